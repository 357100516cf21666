"""Launching the losses over log p: tiles, scratch, kinds of batches.

Their kernels are in ``hard.py`` for labels and in ``soft.py`` for probabilities.
"""

import functools
from typing import Any

import torch
from torch import Tensor

from expacc.ops.dispatch import CURVES, PLAIN, PLANS, REDUCTIONS, Spec, keep_plan, kind_of
from expacc.ops.triton.batch import finish_kernel
from expacc.ops.triton.hard import backward_kernel, forward_kernel
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
            shape: tuple[Any, ...] = (rows, block, 256 * warps)
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
