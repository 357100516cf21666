"""Losses over log p(target) on a GPU: one read forward, one read and one write backward.

The mathematics is that of ``log_prob.py``: the target against its rivals, what is N×C in float32,
what is one number per row in float64. A program takes ``ROWS`` rows at once when they are short,
and walks along a row in blocks when it is long, with the running maximum of online softmax.
"""

import functools
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from expacc.ops.dispatch import PLANS, REDUCTIONS, keep_plan, kind_of
from expacc.ops.triton.batch import RUN_TIME, finish, finish_kernel, is_last, read_rows, rounded
from expacc.ops.triton.launch import (
    Launch,
    Scratch,
    counter_of,
    like,
    no_stream,
    power_of_two,
    stream_of,
)

# The float64 scratch: numbers of the batch, of which the second is 1/divisor of the mean; top,
# share and pull of every row, for backward; then the programs' sums of values and of weights.
_NUMBERS = 8
_ROW_STATS = 3
_LONGEST_BLOCK = 2048
# Of a tile. Forward has float64 to do for every row, in every thread that shares it: few rows.
_FORWARD_ELEMENTS, _BACKWARD_ELEMENTS = 64, 1024
_FEW_ROWS = 8192
_MOST_SUMS = 4096  # which the last program of the rows adds up; more take a launch of their own


# ------------------------------------------------------------------------------ the kernels


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


@triton.jit(do_not_specialize=RUN_TIME)
def forward_kernel(
    logits, target, weight, values, scratch, counter,
    ce_weight: "fp64", error_weight: "fp64",  # noqa: F821
    count, classes, row_stride, class_stride, target_stride, ignore_index, has_weight,
    reduction, at_once,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, LONG: tl.constexpr, SUMS: tl.constexpr,
):  # fmt: skip
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


@triton.jit(do_not_specialize=RUN_TIME, do_not_specialize_on_alignment=["upstream"])
def backward_kernel(
    logits, target, weight, upstream, grad, scratch,
    count, classes, segments, row_stride, class_stride, target_stride, upstream_stride,
    ignore_index, has_weight, mean,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
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


# -------------------------------------------------------------------------- launching them


@functools.cache
def _forward_tile(classes: int, rows: int) -> tuple[int, int, int]:
    """(rows, columns, warps) of a program, for up to so many rows."""
    block = max(4, power_of_two(classes))
    if block > _LONGEST_BLOCK:
        return 1, _LONGEST_BLOCK, 4
    if block > 32:
        return min(2 if block <= 128 else 1, power_of_two(rows)), block, max(1, block // 1024)
    # Four warps, each with its own rows: fewer sums for the last program to add up.
    return min(4 * _FORWARD_ELEMENTS // block, power_of_two(rows)), block, 4


@functools.cache
def _backward_tile(classes: int, rows: int) -> tuple[int, int, int]:
    block = max(4, power_of_two(classes))
    if block > _LONGEST_BLOCK:
        return 1, _LONGEST_BLOCK, 4
    height = min(max(1, _BACKWARD_ELEMENTS // block), power_of_two(rows))
    if rows <= _FEW_ROWS:  # the whole chip for a moment, rather than a part of it for longer
        height = max(1, height // 4)
    return height, block, max(1, height * block // 1024)


class RowsPlan:
    """The mixture of one kind of batch: logits (N, C) and targets (N,) of given layouts.

    Args:
        logits: float32, bfloat16 or float16, any strides; this and the others only as examples.
        target: int64, any values: a label out of range makes its row NaN.
        weight: (C,) or None.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' or 'sum'.
        dtype: of the result.
    """

    def __init__(
        self,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None,
        ignore_index: int,
        reduction: str,
        dtype: torch.dtype,
    ) -> None:
        count, classes = logits.shape
        device = self.device = logits.device
        self.index = device.index
        self.stream_of = stream_of if logits.is_cuda else no_stream
        kind = REDUCTIONS[reduction]
        rows, block, warps = _forward_tile(classes, min(count, 1024))
        programs = -(-count // rows)
        self.at_once = kind != 0 and programs <= _MOST_SUMS
        size = _NUMBERS + _ROW_STATS * count + (2 * programs if kind else 0)
        self.scratch = Scratch(size, device)
        self.values = like(None if kind else count, dtype, device)
        self.nothing = torch.zeros((), dtype=torch.float32, device=device)
        self.layout = (*logits.stride(), target.stride(0))
        self.rest = (ignore_index, int(weight is not None))
        self.shape = (count, classes)
        self.mean = int(kind == 2)
        self.forward_launch = Launch(
            forward_kernel,
            programs,
            device,
            (count, classes, *self.layout, *self.rest, kind, int(self.at_once)),
            (rows, block, classes > block, 256 * warps),
            {"num_warps": warps},
        )
        self.finish_launch = None
        if kind != 0 and not self.at_once:
            ints = (_ROW_STATS * count, programs, self.mean, 0)
            self.finish_launch = Launch(finish_kernel, 1, device, ints, (4096,), {"num_warps": 16})
        self.backward_launches: dict[tuple[Any, ...], Launch] = {}
        self.native: Any = None  # the same by C++, once that is built; False where there is none
        self.call: Any = None  # what it was made for, and the same loss by operations of torch
        self.reference: Any = None

    def forward(
        self,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None,
        ce_weight: float,
        error_weight: float,
    ) -> tuple[Tensor, Tensor]:
        """The values, or their sum or mean, and scratch for backward."""
        stream = self.stream_of(self.index)
        scratch = self.scratch.take(stream)
        values = torch.empty_like(self.values)
        if weight is None:
            weight = self.nothing
        counter = counter_of(self.device, stream) if self.at_once else scratch
        tensors = (logits, target, weight, values, scratch, counter)
        self.forward_launch(tensors, (ce_weight, error_weight))
        if self.finish_launch is not None:
            self.finish_launch((scratch, values))
        return values, scratch

    def backward(
        self,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None,
        ce_weight: float,
        error_weight: float,
        scratch: Tensor,
        upstream: Tensor,
        grad: Tensor | None = None,
        spent: bool = True,
    ) -> Tensor:
        """The gradient of ``forward``'s result; ``upstream`` is () or (N,).

        Written to ``grad``, (N, C) and contiguous, if given. Scratch that is ``spent`` may be had
        by the next batch: on the default stream, where launches follow each other.
        """
        place = 0
        if grad is not None:
            place = grad.data_ptr() & 15
        else:
            grad = torch.empty_like(logits, memory_format=torch.contiguous_format)
        key = (upstream.dtype, upstream.stride(), place)
        launch = self.backward_launches.get(key)
        if launch is None:
            stride = upstream.stride(0) if upstream.ndim else 0
            launch = self.backward_launches[key] = self._make_backward(stride)
        if weight is None:
            weight = self.nothing
        launch((logits, target, weight, upstream, grad, scratch))
        if spent:
            self.scratch.give_back(scratch, self.stream_of(self.index))
        return grad

    def _make_backward(self, upstream_stride: int) -> Launch:
        count, classes = self.shape
        rows, block, warps = _backward_tile(classes, min(count, 2 * _FEW_ROWS))
        # A long row in a few segments: what is done once per row is little beside the columns.
        blocks = min(4, -(-classes // block))
        segments = -(-classes // (block * blocks))
        ints = (count, classes, segments, *self.layout, upstream_stride, *self.rest, self.mean)
        return Launch(
            backward_kernel,
            -(-count // rows) * segments,
            self.device,
            ints,
            (rows, block, blocks),
            {"num_warps": warps},
        )


def rows_plan(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    dtype: torch.dtype,
) -> RowsPlan:
    """A plan, as ``RowsPlan``; the same one for the same kind of batch."""
    batch = (logits, target, weight, ignore_index, reduction)
    key = ("rows", dtype, kind_of(*batch))
    plan: RowsPlan = PLANS.get(key) or keep_plan(key, RowsPlan(*batch, dtype))
    return plan
