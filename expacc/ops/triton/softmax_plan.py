"""Launching the kernels of losses over log p(target): tiles, scratch, kinds of batches."""

import functools
from typing import Any

import torch
from torch import Tensor

from expacc.ops.triton.launch import Launch, no_stream, power_of_two, stream_of
from expacc.ops.triton.moments import finish_kernel
from expacc.ops.triton.scratch import Scratch, counter_of, like
from expacc.ops.triton.softmax import backward_kernel, forward_kernel

__all__ = ["REDUCTIONS", "RowsPlan", "rows_plan"]

REDUCTIONS = {"none": 0, "sum": 1, "mean": 2}

# The float64 scratch: numbers of the batch, of which the second is 1/divisor of the mean; top,
# share and pull of every row, for backward; then the programs' sums of values and of weights.
_NUMBERS = 8
_ROW_STATS = 3
_LONGEST_BLOCK = 2048
# Of a tile. Forward has float64 to do for every row, in every thread that shares it: few rows.
_FORWARD_ELEMENTS, _BACKWARD_ELEMENTS = 64, 1024
_FEW_ROWS = 8192
_MOST_SUMS = 4096  # which the last program of the rows adds up; more take a launch of their own


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
        self.dense = logits.stride() == (classes, 1)
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

    def forward(
        self, logits: Tensor, target: Tensor, weight: Tensor | None, weights: tuple[float, float]
    ) -> tuple[Tensor, Tensor]:
        """The values, or their sum or mean, and scratch for backward.

        ``weights`` are those of -log p and of 1 - p.
        """
        stream = self.stream_of(self.index)
        scratch = self.scratch.take(stream)
        values = torch.empty_like(self.values)
        if weight is None:
            weight = self.nothing
        counter = counter_of(self.device, stream) if self.at_once else scratch
        self.forward_launch((logits, target, weight, values, scratch, counter), weights)
        if self.finish_launch is not None:
            self.finish_launch((scratch, values))
        return values, scratch

    def backward(
        self,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None,
        upstream: Tensor,
        scratch: Tensor,
        grad: Tensor | None = None,
        spent: bool = False,
    ) -> Tensor:
        """The gradient of ``forward``'s result; ``upstream`` is () or (N,).

        Written to ``grad``, (N, C) and contiguous, if given. Scratch that is ``spent`` may be had
        by the next batch: on the default stream, where launches follow each other.
        """
        place = 0
        if grad is not None:
            place = grad.data_ptr() & 15
        elif self.dense:
            grad = torch.empty_like(logits)
        else:
            grad = torch.empty(self.shape, dtype=logits.dtype, device=logits.device)
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


_PLANS: dict[tuple[Any, ...], RowsPlan] = {}
_MOST_PLANS = 256


def rows_plan(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    dtype: torch.dtype,
) -> RowsPlan:
    """A plan, as ``RowsPlan``; the same one for the same kind of batch."""
    place = logits.data_ptr() | target.data_ptr()
    weight_kind = None
    if weight is not None:
        place |= weight.data_ptr()
        weight_kind = weight.dtype
    layout = logits.shape, logits.stride(), logits.device, target.stride()
    key = (logits.dtype, *layout, weight_kind, ignore_index, reduction, dtype, place & 15)
    plan = _PLANS.get(key)
    if plan is None:
        if len(_PLANS) >= _MOST_PLANS:
            _PLANS.clear()
        plan = RowsPlan(logits, target, weight, ignore_index, reduction, dtype)
        _PLANS[key] = plan
    return plan
