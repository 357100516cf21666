"""Launching EXACT's kernels: tiles, scratch, kinds of batches.

A row of up to ``_FEW_CLASSES`` is held on chip and leaves its gradient; one with more leaves a
summary, and its gradient is computed in backward. Either lies where the gradient will be, if it
fits there: then nothing but one gradient is held.
"""

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor

from expacc.ops.dispatch import REDUCTIONS
from expacc.ops.triton.batch import MOST_PARTS, dot_kernel, finish_kernel, moments_kernel
from expacc.ops.triton.exact_large import (
    many_backward_kernel,
    many_margins_kernel,
    many_rows_kernel,
)
from expacc.ops.triton.exact_small import margins_kernel, rows_backward_kernel, rows_kernel
from expacc.ops.triton.folded import fold_table
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
from expacc.ops.triton.layout import Layout, layout_of
from expacc.ops.triton.long import LONG_STATS

_FEW_CLASSES = 64
_MOST_PROGRAMS = 2048  # of the rows; the last of them adds up what the others found
_NUMBERS = 8  # of the batch, before the programs' sums
_BACKWARD_BLOCK = 1024
_FLOAT_BYTES = 4
_SHORT_ROW = 4096  # up to here blocks of 512 columns, which need fewer registers
_NARROW_BLOCK = 256  # of a row that cannot be folded


@functools.cache
def _few(classes: int, rows: int, across: bool = False) -> tuple[int, int, dict[str, int]]:
    """(rows, groups of eight, launch options) of one program that holds its rows on chip.

    Two or four columns a thread, and fewer registers than the compiler would take: more warps then
    hide each other's waiting. Rows that are neighbours in memory are read together, and are so many
    that each thread has work enough of its own.
    """
    groups = max(1, power_of_two(classes) // 8)
    if across:
        return min(32, 128 // groups, power_of_two(rows)), groups, {"num_warps": 1, "maxnreg": 168}
    height = min(max(1, (8 if groups <= 2 else 16) // groups), power_of_two(rows))
    return height, groups, {"num_warps": 1, "maxnreg": 128}


@functools.cache
def _many(classes: int) -> tuple[int, dict[str, int]]:
    """(columns of a block, launch options) of one program that folds a row.

    One warp, which needs no barrier; whatever the number of rows, so that each has the same bits.
    """
    block = min(512 if classes <= _SHORT_ROW else 1024, power_of_two(classes))
    return block, {"num_warps": 1, "maxnreg": 128}


def orthant_forward(margins: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """log of the smaller of P and 1-P (N,), is that 1-P (N,), ∂P/∂m divided by it (N, R)."""
    count, rivals = margins.shape
    margins = margins if margins.stride(1) == 1 else margins.contiguous()
    device, on_gpu = margins.device, margins.is_cuda
    small = torch.empty(count, dtype=torch.float64, device=device)
    ahead = torch.empty(count, dtype=torch.bool, device=device)
    gradient = torch.empty((count, rivals), dtype=torch.float32, device=device)
    tensors: tuple[Tensor, ...] = (margins, small, ahead, gradient)
    ints = (count, rivals, margins.stride(0))
    if rivals <= _FEW_CLASSES:
        rows, groups, options = _few(rivals, min(count, 1024))
        constants: tuple[Any, ...] = (rows, groups, on_gpu)
        launch = Launch(margins_kernel, -(-count // rows), device, ints, constants, options)
    else:
        block, options = _many(rivals)
        stats = torch.empty(count * LONG_STATS, dtype=torch.float32, device=device)
        tensors = (*tensors, stats, fold_table(device))
        constants = (block, _NARROW_BLOCK, on_gpu)
        launch = Launch(many_margins_kernel, count, device, ints, constants, options)
    launch(tensors)
    return small, ahead, gradient


def _fits_gradient(logits: Tensor, few: bool) -> bool:
    """Can what forward leaves of the rows lie in the gradient's memory until backward?

    A summary can if it is no longer than a row, and a row is one program's in backward.
    """
    if few:
        return logits.dtype == torch.float32
    if logits.ndim > 2:
        return False
    classes, row_bytes = logits.shape[1], logits.shape[1] * logits.element_size()
    aligned = row_bytes % _FLOAT_BYTES == 0
    return aligned and row_bytes >= LONG_STATS * _FLOAT_BYTES and classes <= _BACKWARD_BLOCK


def plan_moments(
    layout: Layout,
    classes: int,
    device: torch.device,
    labels: tuple[int, ...],
    ignore_index: int,
) -> tuple[Launch, int]:
    """The launch of the moments of logits, labels having these strides; and its programs."""
    block = min(4096, max(4, power_of_two(classes)))
    height = max(1, 4096 // block)
    along = layout.tiles(height)
    tiles = along * layout.outer
    chunk = -(-tiles // int(MOST_PARTS.value))
    parts = -(-tiles // chunk)
    sizes = (layout.outer, classes, layout.inner, along)
    fixed = (*sizes, *layout.logits, *labels, ignore_index, chunk)
    options = {"num_warps": 16, "maxnreg": 64}  # two programs side by side
    return Launch(moments_kernel, parts, device, fixed, (height, block), options), parts


class Saved(NamedTuple):
    """What backward needs: rows' gradients or summaries, the batch's numbers, the rows' dots."""

    rows: Tensor
    numbers: Tensor
    dots: Tensor


class ExactPlan:
    """EXACT of one kind of batch.

    Args:
        logits: (N, C), float32, bfloat16 or float16, any strides; this and the others are examples.
        target: (N,), int64, any values: a label out of range makes its row NaN.
        weight: (C,) or None.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' or 'sum'.
        dtype: of the result.
        sigma: float32, one for all or one per row (N,); or None for a number.
        limited: is there a margin?
        standardize: divide by the standard deviation of the batch?
        log: -log P instead of 1 - P?
        gradient: will there be a backward?
    """

    def __init__(
        self,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None,
        ignore_index: int,
        reduction: str,
        dtype: torch.dtype,
        sigma: Tensor | None,
        limited: bool,
        standardize: bool,
        log: bool,
        gradient: bool,
    ) -> None:
        layout = layout_of(logits, target, gradient_strides(logits))
        if layout is None:
            raise ValueError(f"logits must have rows in two axes at most; got {logits.stride()}.")
        self.layout = layout
        self.count, self.classes = count, classes = layout.rows, logits.shape[1]
        device = self.device = logits.device
        self.index = device.index
        self.stream_of = stream_of if logits.is_cuda else no_stream
        self.kind = kind = REDUCTIONS[reduction]
        self.standardize = standardize
        self.few = classes <= _FEW_CLASSES
        self.nothing = torch.zeros((), dtype=torch.float32, device=device)
        strides = (*layout.logits, *layout.target[:2])
        sigma_stride = sigma.stride(0) if sigma is not None and sigma.ndim else 0
        has = (int(weight is not None), int(sigma is not None))
        parts = 0
        if standardize:
            parts = self._plan_moments(layout.target[:2], ignore_index)
        if self.few:
            height, groups, options = _few(classes, min(layout.inner, 1024), layout.across)
            programs = layout.tiles(height) * layout.outer
            self.at_once = kind != 0 and programs <= 2 * _MOST_PROGRAMS
        else:
            block, options = _many(classes)
            each = -(-count // _MOST_PROGRAMS)
            programs = -(-count // each)
            self.at_once = kind != 0
        size = _NUMBERS + 3 * parts + (3 * programs if kind else 0)
        self.numbers = Scratch(size, device)
        if logits.ndim == 2:
            self.values = like(None if kind else count, dtype, device)
        else:
            places = () if kind else logits.shape[:1] + logits.shape[2:]
            self.values = torch.empty((), dtype=dtype, device=device).expand(places)
        self.dots = None if kind else like(count, torch.float64, device)
        # In float32: upstream is yet to scale them, and standardising to add to them.
        self.rows = self.nothing
        each_row = classes if self.few else LONG_STATS
        if gradient:
            self.rows = like(count * each_row, torch.float32, device)
        # Then backward need only change them in place.
        self.in_gradient = gradient and _fits_gradient(logits, self.few)
        if self.in_gradient:
            each_row = classes * logits.element_size() // _FLOAT_BYTES
        self.table = () if self.few else (fold_table(device),)
        flags = (sigma_stride, ignore_index, *has, int(standardize), int(log), kind, int(gradient))
        on_gpu = logits.is_cuda
        if self.few:
            sizes = (classes, layout.inner, layout.tiles(height), parts)
            ints: tuple[int, ...] = (*sizes, *strides, *layout.gradient, *flags, int(self.at_once))
            constants: tuple[Any, ...] = (height, groups, on_gpu)
            self.rows_launch = Launch(rows_kernel, programs, device, ints, constants, options)
        else:
            ints = (count, classes, layout.inner, parts, each, each_row, *strides, *flags)
            constants = (limited, block, _NARROW_BLOCK, on_gpu)
            self.rows_launch = Launch(many_rows_kernel, programs, device, ints, constants, options)
        self.finish_launch = None
        if kind and not self.at_once:
            ints = (3 * parts, programs, int(kind == 2), int(standardize and gradient))
            wide = {"num_warps": 16}
            self.finish_launch = Launch(finish_kernel, 1, device, ints, (4096,), wide)
        self.backward_ints = (strides, sigma_stride, ignore_index, has, each_row)
        self.backward_launches: dict[tuple[Any, ...], tuple[Launch | None, Launch]] = {}
        # The same by C++, once that is built; False where there is none.
        self.native: Any = None if logits.ndim == 2 else False
        self.call: Any = None  # what it was made for, and the same loss by operations of torch
        self.reference: Any = None

    def _plan_moments(self, labels: tuple[int, ...], ignore_index: int) -> int:
        found = plan_moments(self.layout, self.classes, self.device, labels, ignore_index)
        self.moments_launch, parts = found
        return parts

    def forward(
        self,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None,
        sigma: float | Tensor,
        margin: float,
    ) -> tuple[Tensor, Saved]:
        """The loss of a batch and what backward needs; the margin may be inf."""
        stream = self.stream_of(self.index)
        numbers = self.numbers.take(stream)
        if self.standardize:
            self.moments_launch((logits, target, numbers))
        values = torch.empty_like(self.values)
        dots = numbers if self.dots is None else torch.empty_like(self.dots)
        rows = self._new_rows(logits)
        counter = counter_of(self.device, stream) if self.at_once else numbers
        sigmas, number = (sigma, 1.0) if isinstance(sigma, Tensor) else (self.nothing, sigma)
        if weight is None:
            weight = self.nothing
        tensors = (logits, target, weight, sigmas, values, dots, rows, numbers, counter)
        self.rows_launch((*tensors, *self.table), (number, margin))
        if self.finish_launch is not None:
            self.finish_launch((numbers, values))
        return values, Saved(rows, numbers, dots)

    def backward(
        self,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None,
        sigma: float | Tensor,
        margin: float,
        saved: Saved,
        upstream: Tensor,
    ) -> Tensor:
        """The gradient by the logits, which spends what was saved.

        Overwrites ``saved.rows`` and returns it, where it can; the next batch may have the numbers,
        on the default stream, where launches follow each other.
        """
        rows, numbers, dots = saved
        if self.in_gradient:
            out = rows if rows.dtype == logits.dtype else rows.view(logits.dtype)
        else:
            out = new_gradient(logits)
        if upstream.ndim > 1:
            upstream = as_rows(upstream)
        key = (upstream.dtype, upstream.stride())
        launches = self.backward_launches.get(key)
        if launches is None:
            stride = upstream.stride(0) if upstream.ndim else 0
            launches = self.backward_launches[key] = self._make_backward(stride, logits.is_cuda)
        dot_launch, launch = launches
        if dot_launch is not None:
            dot_launch((dots, upstream, numbers))
        if weight is None:
            weight = self.nothing
        if self.few:
            launch((logits, target, weight, upstream, rows, out, numbers))
        else:
            sigmas, number = (sigma, 1.0) if isinstance(sigma, Tensor) else (self.nothing, sigma)
            tensors = (logits, target, weight, sigmas, upstream, rows, out, numbers)
            launch(tensors, (number, margin))
        self.numbers.give_back(numbers, self.stream_of(self.index))
        return out

    def _new_rows(self, logits: Tensor) -> Tensor:
        if not self.in_gradient:
            return self.nothing if self.rows is self.nothing else torch.empty_like(self.rows)
        gradient = new_gradient(logits)
        return gradient if logits.dtype == torch.float32 else gradient.view(torch.float32)

    def _make_backward(self, stride: int, on_gpu: bool) -> tuple[Launch | None, Launch]:
        strides, sigma_stride, ignore_index, has, each_row = self.backward_ints
        dot_launch = None
        if self.standardize and self.kind == 0:
            options = {"num_warps": 8}
            dot_launch = Launch(dot_kernel, 1, self.device, (self.count, stride), (4096,), options)
        flags, layout = (int(self.standardize), self.kind), self.layout
        ints: tuple[int, ...]
        rest: tuple[int, ...]
        if self.few:
            block = max(4, power_of_two(self.classes))
            rows = min(1024 // block, power_of_two(min(layout.inner, 1024)))
            options = {"num_warps": max(1, rows * block // 256)}
            tiles = layout.tiles(rows)
            rest = (*strides, *layout.gradient, stride, ignore_index, has[0], *flags)
            ints = (self.classes, layout.inner, tiles, *rest)
            programs = tiles * layout.outer
            constants: tuple[Any, ...] = (rows, block)
            kernel = rows_backward_kernel
        else:
            block = min(_BACKWARD_BLOCK, power_of_two(self.classes))
            blocks = -(-self.classes // block)
            options = {"num_warps": max(1, block // 512), "maxnreg": 96}
            rest = (*strides, *layout.gradient, sigma_stride, stride, ignore_index, *has, *flags)
            ints = (self.count, self.classes, layout.inner, blocks, each_row, *rest)
            programs = self.count * blocks
            constants = (block, on_gpu)
            kernel = many_backward_kernel
        return dot_launch, Launch(kernel, programs, self.device, ints, constants, options)
