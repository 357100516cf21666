"""Triton kernels for losses over log p(target): one read forward, one read and one write backward.

The mathematics is that of ``reference.py``: the target against its rivals, what is N×C in float32,
what is one number per row in float64. A program takes ``ROWS`` rows at once when they are short,
and walks along a row in blocks when it is long, with the running maximum of online softmax.

Only the ``kernels_*`` modules import Triton, and only when a kernel is called for.
"""

# Triton's decorator has no types, and its language is not quite Python's.
# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-untyped-call,name-defined"
# mypy: no-warn-return-any

from typing import Any

import torch
import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]
from torch import Tensor

from expacc.ops.kernels_launch import is_aligned, launch

__all__ = ["read_rows", "rows_backward", "rows_forward", "shared_key"]

# The float64 scratch: top, share and pull of every row, for backward; then the divisor of the mean;
# then the programs' sums of values and of weights.
ROW_STATS = 3
_LONGEST_BLOCK = 2048


@triton.jit
def read_rows(
    target, weight, rows, inside, target_stride, classes, ignore_index, HAS_WEIGHT: tl.constexpr
):
    """(kept, label in range, weight of the row, the same with NaN for a label out of range)."""
    label = tl.load(target + rows * target_stride, mask=inside, other=ignore_index)
    kept = (label != ignore_index) & inside
    good = (label >= 0) & (label < classes)
    index = tl.where(kept & good, label, 0)
    if HAS_WEIGHT:
        factor = tl.load(weight + index, mask=kept, other=0.0).to(tl.float64)
    else:
        factor = kept.to(tl.float64)
    return kept, index, factor, tl.where(kept & (good == 0), float("nan"), factor)


@triton.jit
def _exp(x, EXACT: tl.constexpr):
    """e^x: the hardware's, or where float32 has the digits to tell, one that is right to an ulp."""
    if not EXACT:
        return tl.exp(x)
    gone = x < -100.0
    x = tl.where(gone, -100.0, x)  # so that -inf leaves no NaN; a NaN stays
    whole = tl.floor(x * 1.4426950408889634 + 0.5)
    part = tl.fma(whole, -0.693145751953125, x)  # log 2 in two pieces, the first with short digits
    part = tl.fma(whole, -1.4286068203094172e-6, part)
    series = tl.fma(part, 1 / 5040, 1 / 720)
    series = tl.fma(part, series, 1 / 120)
    series = tl.fma(part, series, 1 / 24)
    series = tl.fma(part, series, 1 / 6)
    series = tl.fma(part, series, 0.5)
    series = tl.fma(part * part, series, part) + 1.0
    return tl.where(gone, 0.0, series * tl.exp2(whole))


@triton.jit(do_not_specialize=["count", "ignore_index"])
def _forward(
    logits,
    target,
    weight,
    values,
    scratch,
    count,
    classes,
    row_stride,
    class_stride,
    target_stride,
    ignore_index,
    ce_weight: "fp64",  # noqa: F821
    error_weight: "fp64",  # noqa: F821
    HAS_WEIGHT: tl.constexpr,
    CROSS_ENTROPY: tl.constexpr,
    SUMMED: tl.constexpr,
    STATS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    LONG: tl.constexpr,
):
    """Values (or their sum over this program's rows), and top, share and pull of every row."""
    program = tl.program_id(0)
    rows = program.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < count
    kept, index, factor, chain = read_rows(
        target, weight, rows, inside, target_stride, classes, ignore_index, HAS_WEIGHT
    )
    start = logits + rows * row_stride
    own = tl.load(start + index * class_stride, mask=kept, other=0.0).to(tl.float32)
    columns = tl.arange(0, BLOCK)
    EXACT: tl.constexpr = logits.dtype.element_ty == tl.float32
    lowest = -3.4028234663852886e38  # so that -inf minus the top is -inf, not NaN
    if LONG:
        top = tl.full([ROWS], lowest, tl.float32)
        sums = tl.zeros([ROWS, BLOCK], tl.float32)
        for first in range(0, classes, BLOCK):
            place = first + columns
            allowed = kept[:, None] & (place < classes)[None, :]
            scores = tl.load(
                start[:, None] + place.to(tl.int64)[None, :] * class_stride,
                mask=allowed,
                other=float("-inf"),
            ).to(tl.float32)
            scores = tl.where(place[None, :] == index[:, None], float("-inf"), scores)
            higher = tl.maximum(top, tl.max(scores, 1))
            sums = sums * tl.exp(top - higher)[:, None] + _exp(scores - higher[:, None], EXACT)
            top = higher
        total = tl.sum(sums, 1)
    else:
        allowed = kept[:, None] & (columns < classes)[None, :]
        scores = tl.load(
            start[:, None] + columns.to(tl.int64)[None, :] * class_stride,
            mask=allowed,
            other=float("-inf"),
        ).to(tl.float32)
        scores = tl.where(columns[None, :] == index[:, None], float("-inf"), scores)
        top = tl.maximum(tl.max(scores, 1), lowest)
        total = tl.sum(_exp(scores - top[:, None], EXACT), 1)

    wide = total.to(tl.float64)
    lead = own.to(tl.float64) - top.to(tl.float64) - tl.log(wide)
    lead = tl.where(total == 0, float("inf"), lead)  # no rival, or none that is not masked
    # e^-|lead| gives p and 1 - p without cancellation, whichever is small.
    small = tl.exp(-tl.abs(lead))
    ahead = lead >= 0
    likely = 1 / (1 + small)
    prob = tl.where(ahead, likely, small * likely)
    error = tl.where(ahead, small * likely, likely)
    value = error_weight * error
    slope = -error_weight * prob
    if CROSS_ENTROPY:
        log_sum = tl.where(small < 1e-9, small, tl.log(1 + small))
        # 1 + small loses digits of small, but the quotient of what was lost is known.
        log_sum = tl.where(
            (small >= 1e-9) & (small < 0.5), log_sum * (small / ((1 + small) - 1)), log_sum
        )
        value += ce_weight * (log_sum - tl.where(ahead, 0.0, lead))
        slope -= ce_weight
    value = tl.where(kept, value * chain, 0.0)
    if SUMMED:
        programs = tl.num_programs(0)
        part = scratch + 3 * count.to(tl.int64) + 1 + program
        tl.store(part, tl.sum(value, 0))
        tl.store(part + programs, tl.sum(factor, 0))
    else:
        if values.dtype.element_ty != tl.float64:
            value = value.to(tl.float32)
        tl.store(values + rows, value.to(values.dtype.element_ty), mask=inside)
    if STATS:
        pull = slope * error
        base = scratch + rows
        tl.store(base, top.to(tl.float64), mask=inside)
        tl.store(base + count, tl.where(total == 0, 0.0, -pull / wide), mask=inside)
        tl.store(base + 2 * count.to(tl.int64), pull, mask=inside)


@triton.jit(do_not_specialize=["count", "ignore_index", "blocks"])
def _backward(
    logits,
    target,
    weight,
    upstream,
    grad,
    scratch,
    count,
    classes,
    blocks,
    row_stride,
    class_stride,
    target_stride,
    upstream_stride,
    ignore_index,
    HAS_WEIGHT: tl.constexpr,
    MEAN: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Rivals get share · e^(z - top), the target pull; times weight, upstream and 1/divisor."""
    program = tl.program_id(0)
    rows = (program // blocks).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = (program % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = rows < count
    kept, index, _, chain = read_rows(
        target, weight, rows, inside, target_stride, classes, ignore_index, HAS_WEIGHT
    )
    chain *= tl.load(upstream + rows * upstream_stride, mask=inside, other=0.0).to(tl.float64)
    if MEAN:
        chain /= tl.load(scratch + 3 * count.to(tl.int64))
    base = scratch + rows
    top = tl.load(base, mask=kept, other=0.0).to(tl.float32)
    share = tl.load(base + count, mask=kept, other=0.0)
    pull = tl.load(base + 2 * count.to(tl.int64), mask=kept, other=0.0)
    share = (share * chain).to(tl.float32)
    pull = (pull * chain).to(tl.float32)
    width = (columns < classes)[None, :]
    scores = tl.load(
        logits + rows[:, None] * row_stride + columns.to(tl.int64)[None, :] * class_stride,
        mask=kept[:, None] & width,
        other=0.0,
    ).to(tl.float32)
    result = _exp(scores - top[:, None], logits.dtype.element_ty == tl.float32) * share[:, None]
    result = tl.where(columns[None, :] == index[:, None], pull[:, None], result)
    result = tl.where(kept[:, None], result, 0.0)
    place = grad + rows[:, None] * classes + columns[None, :]
    tl.store(place, result.to(grad.dtype.element_ty), mask=inside[:, None] & width)


@triton.jit(do_not_specialize=["count", "parts"])
def _finish(scratch, out, count, parts, MEAN: tl.constexpr, BLOCK: tl.constexpr):
    """The sum of the programs' sums, in a fixed order; divided by the weight for a mean."""
    divisor = scratch + 3 * count.to(tl.int64)
    partial = divisor + 1
    place = tl.arange(0, BLOCK)
    value = tl.zeros([BLOCK], tl.float64)
    weight = tl.zeros([BLOCK], tl.float64)
    for first in range(0, parts, BLOCK):
        inside = first + place < parts
        value += tl.load(partial + first + place, mask=inside, other=0.0)
        weight += tl.load(partial + parts + first + place, mask=inside, other=0.0)
    result = tl.sum(value, 0)
    if MEAN:
        total = tl.sum(weight, 0)
        total = tl.where(total > 0, total, 1.0)  # a batch without weight gives 0
        tl.store(divisor, total)
        result /= total
    tl.store(out, result.to(tl.float32).to(out.dtype.element_ty))


def _tile(classes: int, rows: int) -> tuple[int, int, int]:
    """(rows, columns, warps) of one program's tile."""
    block = max(4, triton.next_power_of_2(classes))
    if block > _LONGEST_BLOCK:
        return 1, _LONGEST_BLOCK, 4
    # One warp for up to 1024 elements: no barrier, and float64 is done once per row.
    height = min(max(1, 1024 // block), triton.next_power_of_2(rows))
    return height, block, max(1, height * block // 1024)


def rows_forward(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    ce_weight: float,
    error_weight: float,
    reduction: str,
    dtype: torch.dtype,
    stats: bool,
) -> tuple[Tensor, Tensor]:
    """The mixture of logits (N, C): its values (N,) or their sum or mean, and scratch for backward.

    Args:
        logits: float32, bfloat16 or float16, any strides.
        target: (N,), int64, any values: a label out of range makes its row NaN.
        weight: (C,) or None.
        ignore_index: a label whose rows contribute nothing.
        ce_weight: of -log p.
        error_weight: of 1 - p.
        reduction: 'none', 'mean' or 'sum'.
        dtype: of the result.
        stats: will there be a backward?
    """
    count, classes = logits.shape
    rows, block, warps = _tile(classes, count)
    programs = -(-count // rows)
    summed = reduction != "none"
    size = ROW_STATS * count + 1 + (2 * programs if summed else 0)
    device = logits.device
    scratch = torch.empty(size, dtype=torch.float64, device=device)
    values = torch.empty(() if summed else (count,), dtype=dtype, device=device)
    shared = shared_key(logits, target, weight, ignore_index)
    constants = (weight is not None, ce_weight != 0, summed, stats, rows, block, classes > block)
    launch(
        _forward,
        programs,
        device,
        (shared, dtype, constants),
        logits,
        target,
        logits if weight is None else weight,
        values,
        scratch,
        count,
        classes,
        *logits.stride(),
        target.stride(0),
        ignore_index,
        ce_weight,
        error_weight,
        *constants,
        num_warps=warps,
    )
    if summed:
        mean = reduction == "mean"
        width = min(4096, max(32, triton.next_power_of_2(programs)))
        launch(
            _finish,
            1,
            device,
            (dtype, mean, width),
            scratch,
            values,
            count,
            programs,
            mean,
            width,
            num_warps=max(1, width // 256),
        )
    return values, scratch


def shared_key(
    logits: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int
) -> tuple[Any, ...]:
    """What both kernels' variants depend on."""
    return (
        logits.dtype,
        logits.shape[1],
        logits.stride(),
        is_aligned(logits),
        target.stride(0),
        is_aligned(target),
        weight if weight is None else (weight.dtype, is_aligned(weight)),
        -(2**31) <= ignore_index < 2**31,
    )


def rows_backward(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    upstream: Tensor,
    scratch: Tensor,
    ignore_index: int,
    mean: bool,
    grad: Tensor | None = None,
) -> Tensor:
    """The gradient of ``rows_forward``'s result, from its scratch; ``upstream`` is () or (N,).

    Written to ``grad``, (N, C) and contiguous, if given.
    """
    count, classes = logits.shape
    rows, block, warps = _tile(classes, count)
    blocks = -(-classes // block)
    if grad is None:
        grad = torch.empty((count, classes), dtype=logits.dtype, device=logits.device)
    upstream_stride = upstream.stride(0) if upstream.ndim else 0
    shared = shared_key(logits, target, weight, ignore_index)
    constants = (weight is not None, mean, rows, block)
    launch(
        _backward,
        -(-count // rows) * blocks,
        logits.device,
        (
            shared,
            upstream.dtype,
            is_aligned(upstream),
            upstream_stride,
            is_aligned(grad),
            constants,
        ),
        logits,
        target,
        logits if weight is None else weight,
        upstream,
        grad,
        scratch,
        count,
        classes,
        blocks,
        *logits.stride(),
        target.stride(0),
        upstream_stride,
        ignore_index,
        *constants,
        num_warps=warps,
    )
    return grad
