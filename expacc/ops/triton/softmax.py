"""Triton kernels for losses over log p(target): one read forward, one read and one write backward.

The mathematics is that of ``reference.py``: the target against its rivals, what is N×C in float32,
what is one number per row in float64. A program takes ``ROWS`` rows at once when they are short,
and walks along a row in blocks when it is long, with the running maximum of online softmax.

Only the modules of this folder import Triton, and only when a kernel is called for.
"""

# Triton's decorator has no types, and its language is not quite Python's.
# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-untyped-call,name-defined"
# mypy: no-warn-return-any

import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]

from expacc.ops.triton.moments import finish, is_last, rounded

__all__ = ["backward_kernel", "forward_kernel", "read_rows"]


@triton.jit
def read_rows(target, weight, rows, inside, target_stride, classes, ignore_index, has_weight):
    """(kept, label in range, weight of the row, the same with NaN for a label out of range)."""
    label = tl.load(target + rows * target_stride, mask=inside, other=ignore_index)
    kept = (label != ignore_index) & inside
    good = (label >= 0) & (label < classes)
    index = tl.where(kept & good, label, 0)
    factor = kept.to(tl.float64)
    if has_weight:
        factor = tl.load(weight + index, mask=kept, other=0.0).to(tl.float64)
        factor = tl.where((factor >= 0) & (factor < float("inf")), factor, float("nan"))
    return kept, index, factor, tl.where(kept & (good == 0), float("nan"), factor)


@triton.jit
def _split_exp(x):
    """(q, 2^k) with e^x = (1 + q) 2^k, q to the last bit; the hardware's e^x is two bits short."""
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
    return tl.fma(part * part, series, part), tl.where(gone, 0.0, tl.exp2(whole))


@triton.jit
def _terms(x, EXACT: tl.constexpr):
    """e^x to be summed: in float64 where float32 has the digits to tell."""
    if EXACT:
        q, power = _split_exp(x)
        terms = ((1.0 + q) * power).to(tl.float64)
    else:
        terms = tl.exp(x)
    return terms


@triton.jit
def _shares(x, share, rest, EXACT: tl.constexpr):
    """(share + rest) e^x, rounded once where float32 has the digits to tell."""
    if not EXACT:
        return tl.exp(x) * share
    q, power = _split_exp(x)
    return (share + tl.fma(q, share, rest)) * power


@triton.jit(do_not_specialize=["count", "ignore_index", "has_weight", "reduction", "at_once"])
def forward_kernel(
    logits,
    target,
    weight,
    values,
    scratch,
    counter,
    ce_weight: "fp64",  # noqa: F821
    error_weight: "fp64",  # noqa: F821
    count,
    classes,
    row_stride,
    class_stride,
    target_stride,
    ignore_index,
    has_weight,
    reduction,
    at_once,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    LONG: tl.constexpr,
    SUMS: tl.constexpr,
):
    """Values (or their sum over this program's rows), and top, share and pull of every row.

    ``reduction`` is 0 for none, 1 for a sum, 2 for a mean.
    """
    program = tl.program_id(0)
    rows = program.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < count
    kept, index, factor, chain = read_rows(
        target, weight, rows, inside, target_stride, classes, ignore_index, has_weight
    )
    start = logits + rows * row_stride
    own = tl.load(start + index * class_stride, mask=kept, other=0.0).to(tl.float32)
    columns = tl.arange(0, BLOCK)
    EXACT: tl.constexpr = logits.dtype.element_ty == tl.float32
    lowest = -3.4028234663852886e38  # so that -inf minus the top is -inf, not NaN
    if LONG:
        top = tl.full([ROWS], lowest, tl.float32)
        sums = tl.zeros([ROWS, BLOCK], tl.float64 if EXACT else tl.float32)
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
            sums = sums * _terms(top - higher, EXACT)[:, None]
            sums += _terms(scores - higher[:, None], EXACT)
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
        total = tl.sum(_terms(scores - top[:, None], EXACT), 1)

    wide = total.to(tl.float64)
    lead = own.to(tl.float64) - top.to(tl.float64) - tl.log(wide)
    lead = tl.where(total == 0, float("inf"), lead)  # no rival, or none that is not masked
    # NaN, +inf, or nothing but -inf: there is no softmax.
    sick = (own != own) | (own == float("inf")) | ((total == 0) & (own == float("-inf")))
    lead = tl.where(sick, float("nan"), lead)
    # e^-|lead| gives p and 1 - p without cancellation, whichever is small.
    small = tl.exp(-tl.abs(lead))
    ahead = lead >= 0
    likely = 1 / (1 + small)
    prob = tl.where(ahead, likely, small * likely)
    error = tl.where(ahead, small * likely, likely)
    value = error_weight * error
    slope = -error_weight * prob
    if ce_weight != 0:  # 0 · inf would be NaN
        log_sum = tl.where(small < 1e-9, small, tl.log(1 + small))
        # 1 + small loses digits of small, but the quotient of what was lost is known.
        log_sum = tl.where(
            (small >= 1e-9) & (small < 0.5), log_sum * (small / ((1 + small) - 1)), log_sum
        )
        value += ce_weight * (log_sum - tl.where(ahead, 0.0, lead))
        slope -= ce_weight
    value = tl.where(kept, value * chain, 0.0)
    base = scratch + 8 + rows
    wide_count = count.to(tl.int64)
    pull = slope * error
    tl.store(base, top.to(tl.float64), mask=inside)
    share = tl.where((total == 0) & (sick == 0), 0.0, -pull / wide)
    tl.store(base + wide_count, share, mask=inside)
    tl.store(base + 2 * wide_count, pull, mask=inside)
    if reduction == 0:
        tl.store(values + rows, rounded(value, values), mask=inside)
    else:
        parts = scratch + 8 + 3 * wide_count
        programs = tl.num_programs(0)
        tl.store(parts + program, tl.sum(value, 0))
        tl.store(parts + programs + program, tl.sum(factor, 0))
        if at_once:  # noqa: SIM102
            if is_last(counter):
                finish(scratch, parts, programs, values, reduction == 2, False, SUMS)
                tl.store(counter, 0)


@triton.jit(
    do_not_specialize=["count", "ignore_index", "segments", "has_weight", "mean"],
    do_not_specialize_on_alignment=["upstream"],
)
def backward_kernel(
    logits,
    target,
    weight,
    upstream,
    grad,
    scratch,
    count,
    classes,
    segments,
    row_stride,
    class_stride,
    target_stride,
    upstream_stride,
    ignore_index,
    has_weight,
    mean,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """Rivals get share · e^(z - top), the target pull; times weight, upstream and 1/divisor."""
    program = tl.program_id(0)
    rows = (program // segments).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < count
    kept, index, _, chain = read_rows(
        target, weight, rows, inside, target_stride, classes, ignore_index, has_weight
    )
    chain *= tl.load(upstream + rows * upstream_stride, mask=inside, other=0.0).to(tl.float64)
    if mean:
        chain *= tl.load(scratch + 1)
    base = scratch + 8 + rows
    wide_count = count.to(tl.int64)
    top = tl.load(base, mask=kept, other=0.0).to(tl.float32)
    share = tl.load(base + wide_count, mask=kept, other=0.0)
    pull = tl.load(base + 2 * wide_count, mask=kept, other=0.0)
    share *= chain
    whole = share.to(tl.float32)
    rest = (share - whole.to(tl.float64)).to(tl.float32)
    pull = (pull * chain).to(tl.float32)
    EXACT: tl.constexpr = logits.dtype.element_ty == tl.float32
    first = (program % segments) * (BLOCK * BLOCKS)
    for block in range(BLOCKS):
        columns = first + block * BLOCK + tl.arange(0, BLOCK)
        width = (columns < classes)[None, :]
        scores = tl.load(
            logits + rows[:, None] * row_stride + columns.to(tl.int64)[None, :] * class_stride,
            mask=kept[:, None] & width,
            other=0.0,
        ).to(tl.float32)
        result = _shares(scores - top[:, None], whole[:, None], rest[:, None], EXACT)
        result = tl.where(columns[None, :] == index[:, None], pull[:, None], result)
        result = tl.where(kept[:, None], result, 0.0)
        place = grad + rows[:, None] * classes + columns[None, :]
        tl.store(place, result.to(grad.dtype.element_ty), mask=inside[:, None] & width)
