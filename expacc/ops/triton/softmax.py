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

from expacc.ops.dispatch import CURVES, PLAIN, PLANS, REDUCTIONS, Spec, keep_plan, kind_of
from expacc.ops.triton.batch import (
    RUN_TIME,
    finish,
    finish_kernel,
    is_last,
    read_rows,
    rounded,
    rows_of,
)
from expacc.ops.triton.curves import curve_of, lead_parts
from expacc.ops.triton.digits import shares_of, terms_of
from expacc.ops.triton.launch import (
    Launch,
    Scratch,
    as_rows,
    counter_of,
    gradient_strides,
    like,
    new_gradient,
    no_stream,
    power_of_two,
    stream_of,
)
from expacc.ops.triton.layout import layout_of
from expacc.ops.triton.soft import SOFT_STATS, soft_backward_kernel, soft_forward_kernel

# The float64 scratch: numbers of the batch, of which the second is 1/divisor of the mean; top,
# share and pull (and level) of every row, for backward; then the programs' sums of values and of
# weights.
_NUMBERS = 8
_ROW_STATS = 3
_LONGEST_BLOCK = 2048
# Of a tile. Forward has float64 to do for every row, in every thread that shares it: few rows.
_FORWARD_ELEMENTS, _SOFT_TILE, _TILE = 64, 512, 1024
_FEW_ROWS = 8192
_MOST_SUMS = 4096  # which the last program of the rows adds up; more take a launch of their own


# ------------------------------------------------------------------------------ the kernels


@triton.jit(do_not_specialize=RUN_TIME)
def forward_kernel(
    logits, target, weight, values, scratch, counter,
    first_number: "fp64", second_number: "fp64",  # noqa: F821
    factor: "fp64", shift: "fp64", scale: "fp64", share_weight: "fp64",  # noqa: F821
    count, classes, inner, tiles, outer_stride, inner_stride, class_stride, target_outer,
    target_inner, ignore_index, has_weight, reduction, at_once,
    CURVE: tl.constexpr, MOVED: tl.constexpr, SHARED: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, LONG: tl.constexpr, SUMS: tl.constexpr,
):  # fmt: skip
    """Values (or their sum over this program's rows), and top, share and pull of every row.

    ``reduction`` is 0 for none, 1 for a sum, 2 for a mean. A loss is ``factor`` times a curve of the
    two numbers; MOVED by shift and scale of the lead; SHARED, log p(y) / Σ log p_j is added, for which
    a rival's gradient has a level beside its share.
    """
    program = tl.program_id(0)
    plane, place, rows, inside = rows_of(program, tiles, inner, ROWS)
    kept, index, factor_of_row, chain = read_rows(
        target + plane * target_outer, weight, place, inside, target_inner, classes, ignore_index,
        has_weight,
    )  # fmt: skip
    start = logits + plane * outer_stride + place * inner_stride
    own = tl.load(start + index * class_stride, mask=kept, other=0.0).to(tl.float32)
    columns = tl.arange(0, BLOCK)
    EXACT: tl.constexpr = logits.dtype.element_ty == tl.float32
    lowest = -3.4028234663852886e38  # so that -inf minus the top is -inf, not NaN
    behind = tl.zeros([ROWS], tl.float64)  # Σ (z - top) of the rivals that are not masked
    rivals = tl.zeros([ROWS], tl.float64)
    if LONG:
        top = tl.full([ROWS], lowest, tl.float32)
        sums = tl.zeros([ROWS, BLOCK], tl.float64 if EXACT else tl.float32)
        for first in range(0, classes, BLOCK):
            column = first + columns
            allowed = kept[:, None] & (column < classes)[None, :]
            scores = tl.load(
                start[:, None] + column.to(tl.int64)[None, :] * class_stride,
                mask=allowed,
                other=float("-inf"),
            ).to(tl.float32)
            scores = tl.where(column[None, :] == index[:, None], float("-inf"), scores)
            higher = tl.maximum(top, tl.max(scores, 1))
            sums = sums * terms_of(top - higher, EXACT)[:, None]
            sums += terms_of(scores - higher[:, None], EXACT)
            if SHARED:
                behind -= rivals * (higher.to(tl.float64) - top.to(tl.float64))
                fallen, present = _fallen(scores, higher)
                behind += fallen
                rivals += present
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
        if MOVED:  # a scale above 1 makes as much more of an error
            wide_scores = scores.to(tl.float64) - top.to(tl.float64)[:, None]
            total = tl.sum(tl.exp(wide_scores), 1)
        else:
            total = tl.sum(terms_of(scores - top[:, None], EXACT), 1)
        if SHARED:
            behind, rivals = _fallen(scores, top)

    wide = total.to(tl.float64)
    lead = own.to(tl.float64) - top.to(tl.float64) - tl.log(wide)
    lead = tl.where(total == 0, float("inf"), lead)  # no rival, or none that is not masked
    # NaN, +inf, or nothing but -inf: there is no softmax.
    sick = (own != own) | (own == float("inf")) | ((total == 0) & (own == float("-inf")))
    lead = tl.where(sick, float("nan"), lead)
    if MOVED:
        lead = lead * scale + shift
    minus, prob, error = lead_parts(lead)
    value, slope = curve_of(minus, prob, error, first_number, second_number, CURVE)
    value *= factor
    slope *= factor
    base = scratch + 8 + rows
    wide_count = count.to(tl.int64)
    if SHARED:
        beyond = tl.where(lead > -700.0, minus + lead, 0.0)  # log(1 + e^lead)
        offset = tl.log(tl.where(total == 0, 1.0, wide)) + beyond  # log Σ e^(z - top)
        rest = behind - rivals * tl.where(total == 0, 0.0, offset)
        rest = tl.where(rest > -1e-277, -1e-277, rest)
        part = 1.0 / (1.0 + rest / -minus)  # 1 for a label that is infinitely behind
        whole = rest - minus
        value += share_weight * part
        slope += share_weight * (rest / whole / whole)
        level = -share_weight * part / whole
        through = level * rivals
        pull = slope * error - prob * through
        share = -(slope + through) * error / wide
        only = classes == 2  # it may have next to nothing, as the label
        share = tl.where(only, 0.0, share)
        level = tl.where(only, -pull, level)
        tl.store(base + 3 * wide_count, tl.where(total == 0, 0.0, level), mask=inside)
    else:
        pull = slope * error
        if MOVED:
            pull *= scale
        share = -pull / wide
    value = tl.where(kept, value * chain, 0.0)
    tl.store(base, top.to(tl.float64), mask=inside)
    tl.store(base + wide_count, tl.where((total == 0) & (sick == 0), 0.0, share), mask=inside)
    tl.store(base + 2 * wide_count, pull, mask=inside)
    if reduction == 0:
        tl.store(values + rows, rounded(value, values), mask=inside)
    else:
        parts = scratch + 8 + (4 if SHARED else 3) * wide_count
        programs = tl.num_programs(0)
        tl.store(parts + program, tl.sum(value, 0))
        tl.store(parts + programs + program, tl.sum(factor_of_row, 0))
        if at_once:  # noqa: SIM102
            if is_last(counter):
                finish(scratch, parts, programs, values, reduction == 2, False, SUMS)
                tl.store(counter, 0)


@triton.jit
def _fallen(scores, top):
    """Σ (z - top) over the classes that are not masked, and how many they are."""
    present = scores != float("-inf")
    apart = tl.where(present, scores.to(tl.float64) - top.to(tl.float64)[:, None], 0.0)
    return tl.sum(apart, 1), tl.sum(present.to(tl.float64), 1)


@triton.jit(do_not_specialize=RUN_TIME, do_not_specialize_on_alignment=["upstream"])
def backward_kernel(
    logits, target, weight, upstream, grad, scratch,
    count, classes, inner, tiles, segments, outer_stride, inner_stride, class_stride, target_outer,
    target_inner, grad_outer, grad_inner, grad_class, upstream_stride, ignore_index, has_weight,
    mean, SHARED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Rivals get share · e^(z - top), the target pull; times weight, upstream and 1/divisor."""
    program = tl.program_id(0)
    plane, place, rows, inside = rows_of(program // segments, tiles, inner, ROWS)
    kept, index, _, chain = read_rows(
        target + plane * target_outer, weight, place, inside, target_inner, classes, ignore_index,
        has_weight,
    )  # fmt: skip
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
    if SHARED:
        level = (tl.load(base + 3 * wide_count, mask=kept, other=0.0) * chain).to(tl.float32)
    EXACT: tl.constexpr = logits.dtype.element_ty == tl.float32
    start = logits + plane * outer_stride + place * inner_stride
    out = grad + plane * grad_outer + place * grad_inner
    first = (program % segments) * (BLOCK * BLOCKS)
    for block in range(BLOCKS):
        columns = first + block * BLOCK + tl.arange(0, BLOCK)
        width = (columns < classes)[None, :]
        along = columns.to(tl.int64)[None, :]
        scores = tl.load(
            start[:, None] + along * class_stride, mask=kept[:, None] & width, other=0.0
        ).to(tl.float32)
        result = shares_of(scores - top[:, None], whole[:, None], rest[:, None], EXACT)
        if SHARED:
            result += tl.where(scores != float("-inf"), level[:, None], 0.0)
        result = tl.where(columns[None, :] == index[:, None], pull[:, None], result)
        result = tl.where(kept[:, None], result, 0.0)
        mask = inside[:, None] & width
        tl.store(out[:, None] + along * grad_class, result.to(grad.dtype.element_ty), mask=mask)


# -------------------------------------------------------------------------- launching them


@functools.cache
def _forward_tile(classes: int, rows: int, across: bool, soft: bool) -> tuple[int, int, int]:
    """(rows, columns, warps) of a program, for up to so many rows."""
    block = max(4, power_of_two(classes))
    if across:  # rows are neighbours in memory
        block = min(block, 32)
        return (
            min((_SOFT_TILE if soft else _TILE) // block, power_of_two(rows)),
            block,
            1 + 3 * soft,
        )
    if soft:
        block = min(block, _TILE)
        height = min(max(1, _SOFT_TILE // block), power_of_two(rows))
        return height, block, max(1, height * block // 128)
    if block > _LONGEST_BLOCK:
        return 1, _LONGEST_BLOCK, 4
    if block > 32:
        return min(2 if block <= 128 else 1, power_of_two(rows)), block, max(1, block // 1024)
    # Four warps, each with its own rows: fewer sums for the last program to add up.
    return min(4 * _FORWARD_ELEMENTS // block, power_of_two(rows)), block, 4


@functools.cache
def _backward_tile(classes: int, rows: int, across: bool, soft: bool) -> tuple[int, int, int]:
    block = max(4, power_of_two(classes))
    if across:
        block = min(block, 32)
        return min(_TILE // block, power_of_two(rows)), block, 4
    if block > _LONGEST_BLOCK:
        return 1, _LONGEST_BLOCK, 8 if soft else 4
    height = min(max(1, _TILE // block), power_of_two(rows))
    if rows <= _FEW_ROWS:  # the whole chip for a moment, rather than a part of it for longer
        height = max(1, height // 4)
    return height, block, max(1, height * block // (256 if soft else 1024))


class RowsPlan:
    """A loss over log p of one kind of batch: logits and targets of given layouts.

    Args:
        logits: (N, C, …), float32, bfloat16 or float16, any strides; this and the others only as
            examples.
        target: int64 labels (N, …), any values: one out of range makes its row NaN; or
            probabilities like the logits.
        weight: (C,) or None.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' or 'sum'.
        dtype: of the result.
        spec: the loss.

    Raises:
        ValueError: the axes beside the classes cannot be taken for two.
    """

    def __init__(
        self,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None,
        ignore_index: int,
        reduction: str,
        dtype: torch.dtype,
        spec: Spec = PLAIN,
    ) -> None:
        layout = layout_of(logits, target, gradient_strides(logits))
        if layout is None:
            raise ValueError(f"logits must have rows in two axes at most; got {logits.stride()}.")
        self.spec, self.layout = spec, layout
        self.classes = classes = logits.shape[1]
        self.count = count = layout.rows
        dense = target.ndim == logits.ndim
        self.soft = dense or spec.smoothing != 0
        device = self.device = logits.device
        self.index = device.index
        self.stream_of = stream_of if logits.is_cuda else no_stream
        kind = REDUCTIONS[reduction]
        across = layout.across
        rows, block, warps = _forward_tile(classes, min(layout.inner, 1024), across, self.soft)
        tiles = layout.tiles(rows)
        programs = tiles * layout.outer
        self.at_once = kind != 0 and programs <= _MOST_SUMS
        stats = SOFT_STATS if self.soft else _ROW_STATS + (spec.share != 0)
        size = _NUMBERS + stats * count + (2 * programs if kind else 0)
        self.scratch = Scratch(size, device)
        if logits.ndim == 2:
            self.values = like(None if kind else count, dtype, device)
        else:
            places = () if kind else logits.shape[:1] + logits.shape[2:]
            self.values = torch.empty((), dtype=dtype, device=device).expand(places)
        self.nothing = torch.zeros((), dtype=torch.float32, device=device)
        self.rest = (ignore_index, int(weight is not None))
        self.mean = int(kind == 2)
        number = CURVES.index(spec.curve)
        moved = spec.moves()
        target_strides = layout.target if self.soft else layout.target[:2]
        self.strides = (*layout.logits, *target_strides)
        last = spec.smoothing if self.soft else spec.share
        self.floats = (spec.factor, spec.shift, spec.scale, last)
        ints = (count, classes, layout.inner, tiles, *self.strides, *self.rest)
        kernel: Any = forward_kernel
        if self.soft:
            kernel = soft_forward_kernel
            self.kinds: tuple[Any, ...] = (number, moved, dense)
            shape = (rows, block, 256 * warps)
        else:
            self.kinds = (number, moved, spec.share != 0)
            shape = (rows, block, classes > block, 256 * warps)
        fixed = (*self.floats, *ints, kind, int(self.at_once))
        self.forward_launch = Launch(
            kernel, programs, device, fixed, (*self.kinds, *shape), {"num_warps": warps}
        )
        self.finish_launch = None
        if kind != 0 and not self.at_once:
            ints = (stats * count, programs, self.mean, 0)
            self.finish_launch = Launch(finish_kernel, 1, device, ints, (4096,), {"num_warps": 16})
        self.backward_launches: dict[tuple[Any, ...], Launch] = {}
        # The same by C++, once that is built; False where there is none.
        self.native: Any = None if logits.ndim == 2 and not self.soft else False
        self.call: Any = None  # what it was made for, and the same loss by operations of torch
        self.reference: Any = None

    def forward(
        self, logits: Tensor, target: Tensor, weight: Tensor | None, first: float, second: float
    ) -> tuple[Tensor, Tensor]:
        """The values, or their sum or mean, and scratch for backward; of a curve's two numbers."""
        stream = self.stream_of(self.index)
        scratch = self.scratch.take(stream)
        values = torch.empty_like(self.values)
        if weight is None:
            weight = self.nothing
        counter = counter_of(self.device, stream) if self.at_once else scratch
        tensors = (logits, target, weight, values, scratch, counter)
        self.forward_launch(tensors, (first, second))
        if self.finish_launch is not None:
            self.finish_launch((scratch, values))
        return values, scratch

    def backward(
        self,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None,
        first: float,
        second: float,
        scratch: Tensor,
        upstream: Tensor,
        grad: Tensor | None = None,
        spent: bool = True,
    ) -> Tensor:
        """The gradient of ``forward``'s result; ``upstream`` is () or like the labels.

        Written to ``grad``, (N, C) and contiguous, if given. Scratch that is ``spent`` may be had
        by the next batch: on the default stream, where launches follow each other.
        """
        place = 0
        if grad is not None:
            place = grad.data_ptr() & 15
        else:
            grad = new_gradient(logits)
        if upstream.ndim > 1:
            upstream = as_rows(upstream)
        key = (upstream.dtype, upstream.stride(), place)
        launch = self.backward_launches.get(key)
        if launch is None:
            stride = upstream.stride(0) if upstream.ndim else 0
            launch = self.backward_launches[key] = self._make_backward(stride)
        if weight is None:
            weight = self.nothing
        tensors = (logits, target, weight, upstream, grad, scratch)
        launch(tensors, (first, second) if self.soft else ())
        if spent:
            self.scratch.give_back(scratch, self.stream_of(self.index))
        return grad

    def _make_backward(self, upstream_stride: int) -> Launch:
        layout, classes = self.layout, self.classes
        limit = min(layout.inner, 2 * _FEW_ROWS)
        rows, block, warps = _backward_tile(classes, limit, layout.across, self.soft)
        # A long row in a few segments: what is done once per row is little beside the columns.
        blocks = min(4, -(-classes // block))
        segments = -(-classes // (block * blocks))
        tiles = layout.tiles(rows)
        strides = (*self.strides, *layout.gradient, upstream_stride)
        ints = (self.count, classes, layout.inner, tiles, segments, *strides, *self.rest, self.mean)
        kernel: Any = soft_backward_kernel if self.soft else backward_kernel
        fixed: tuple[float, ...] = (*self.floats, *ints) if self.soft else ints
        kinds = self.kinds if self.soft else self.kinds[2:]
        programs = tiles * layout.outer * segments
        constants = (*kinds, rows, block, blocks)
        return Launch(kernel, programs, self.device, fixed, constants, {"num_warps": warps})


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
