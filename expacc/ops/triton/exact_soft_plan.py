"""Launching EXACT of class probabilities and smoothed labels: two launches forward, one back."""

from typing import Any

import torch
from torch import Tensor

from expacc.ops.dispatch import REDUCTIONS
from expacc.ops.triton.batch import dot_kernel
from expacc.ops.triton.exact_plan import plan_moments
from expacc.ops.triton.exact_soft import (
    SOFT_ROW,
    soft_exact_backward_kernel,
    soft_exact_kernel,
)
from expacc.ops.triton.launch import (
    Launch,
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

_MOST_PROGRAMS = 8192
_BLOCK, _BACKWARD_BLOCK = 256, 1024


class SoftExactPlan:
    """EXACT of one kind of batch of probabilities, or of labels that are smoothed.

    Args:
        logits: (N, C, …), float32, bfloat16 or float16; this and the others are examples.
        target: probabilities like the logits, or int64 labels (N, …).
        weight: (C,) or None.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' or 'sum'.
        dtype: of the result.
        sigma: float32, one for all or one per row (N,); or None for a number.
        standardize: divide by the standard deviation of the batch?
        smoothing: the part of a label, or of probabilities, that is spread evenly.
        gradient: will there be a backward?

    Raises:
        ValueError: the axes beside the classes cannot be taken for two.
    """

    native = False  # not by C++

    def __init__(
        self,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None,
        ignore_index: int,
        reduction: str,
        dtype: torch.dtype,
        sigma: Tensor | None,
        standardize: bool,
        smoothing: float,
        gradient: bool,
    ) -> None:
        layout = layout_of(logits, target, gradient_strides(logits))
        if layout is None:
            raise ValueError(f"logits must have rows in two axes at most; got {logits.stride()}.")
        self.layout, self.classes = layout, logits.shape[1]
        device = self.device = logits.device
        self.stream_of = stream_of if logits.is_cuda else no_stream
        self.kind, self.standardize = REDUCTIONS[reduction], standardize
        self.dense, self.smoothing = target.ndim == logits.ndim, smoothing
        self.nothing = torch.zeros((), dtype=torch.float32, device=device)
        self.label = torch.zeros((), dtype=torch.int64, device=device)  # of rows that are all kept
        count, classes = layout.rows, self.classes
        places = () if self.kind else logits.shape[:1] + logits.shape[2:]
        self.values = torch.empty((), dtype=dtype, device=device).expand(places)
        parts = 0
        if standardize:
            labels, ignored = (layout.target[:2], ignore_index)
            if self.dense:
                labels, ignored = (0, 0), -1
            self.moments_launch, parts = plan_moments(layout, classes, device, labels, ignored)
        self.each = -(-count // _MOST_PROGRAMS)
        programs = -(-count // self.each)
        self.size = 8 + 3 * parts + 3 * programs
        self.dots = None if self.kind else like(count, torch.float64, device)
        self.stats = count * SOFT_ROW.value if gradient else 1
        stride = sigma.stride(0) if sigma is not None and sigma.ndim else 0
        has = (int(weight is not None), int(sigma is not None), int(standardize), self.kind)
        self.rest = (stride, ignore_index, has)
        strides = (*layout.logits, *layout.target)
        sizes = (count, classes, layout.inner, parts, self.each)
        fixed = (smoothing, *sizes, *strides, stride, ignore_index, *has, int(gradient))
        block = min(_BLOCK, power_of_two(classes))
        self.on_gpu = logits.is_cuda
        constants = (self.dense, block, self.on_gpu)
        options = {"num_warps": 1}
        self.rows_launch = Launch(soft_exact_kernel, programs, device, fixed, constants, options)
        self.backward_launches: dict[tuple[Any, ...], tuple[Launch | None, Launch]] = {}
        self.call: Any = None  # what it was made for, and the same loss by operations of torch
        self.reference: Any = None

    def forward(
        self,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None,
        sigma: float | Tensor,
        _: float,
    ) -> tuple[Tensor, Any]:
        """The loss of a batch and what backward needs."""
        numbers = torch.empty(self.size, dtype=torch.float64, device=self.device)
        if self.standardize:
            self.moments_launch((logits, self.label if self.dense else target, numbers))
        values = torch.empty_like(self.values)
        dots = numbers if self.dots is None else torch.empty_like(self.dots)
        stats = torch.empty(self.stats, dtype=torch.float32, device=self.device)
        counter = counter_of(self.device, self.stream_of(self.device.index))
        sigmas, number = (sigma, 1.0) if isinstance(sigma, Tensor) else (self.nothing, sigma)
        weight = self.nothing if weight is None else weight
        tensors = (logits, target, weight, sigmas, values, dots, stats, numbers, counter)
        self.rows_launch(tensors, (number,))
        return values, (stats, numbers, dots)

    def backward(
        self,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None,
        sigma: float | Tensor,
        _: float,
        saved: Any,
        upstream: Tensor,
    ) -> Tensor:
        """The gradient by the logits."""
        stats, numbers, dots = saved
        if upstream.ndim > 1:
            upstream = as_rows(upstream)
        key = (upstream.dtype, upstream.stride())
        if key not in self.backward_launches:
            stride = upstream.stride(0) if upstream.ndim else 0
            self.backward_launches[key] = self._make_backward(stride)
        dot_launch, launch = self.backward_launches[key]
        if dot_launch is not None:
            dot_launch((dots, upstream, numbers))
        out = new_gradient(logits)
        sigmas, number = (sigma, 1.0) if isinstance(sigma, Tensor) else (self.nothing, sigma)
        weight = self.nothing if weight is None else weight
        tensors = (logits, target, weight, sigmas, upstream, stats, out, numbers)
        launch(tensors, (number,))
        return out

    def _make_backward(self, upstream_stride: int) -> tuple[Launch | None, Launch]:
        layout, (stride, ignore_index, has) = self.layout, self.rest
        dot_launch = None
        if self.standardize and self.kind == 0:
            fixed: tuple[float, ...] = (layout.rows, upstream_stride)
            options = {"num_warps": 8}
            dot_launch = Launch(dot_kernel, 1, self.device, fixed, (4096,), options)
        block = min(_BACKWARD_BLOCK, power_of_two(self.classes))
        blocks = -(-self.classes // block)
        sizes = (layout.rows, self.classes, layout.inner, blocks)
        strides = (*layout.logits, *layout.target, *layout.gradient, stride, upstream_stride)
        fixed = (self.smoothing, *sizes, *strides, ignore_index, *has)
        launch = Launch(
            soft_exact_backward_kernel,
            layout.rows * blocks,
            self.device,
            fixed,
            (self.dense, block, self.on_gpu),
            {"num_warps": max(1, block // 256)},
        )
        return dot_launch, launch
