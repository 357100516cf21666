"""Launching EXACT's kernels: tiles, scratch, keys.

A row of up to ``_MOST_CLASSES`` is held on chip and leaves its gradient; a longer one leaves nodes
and weights, and its gradient is computed in backward.
"""

from typing import Any, NamedTuple

import torch
import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
from torch import Tensor

from expacc.ops.kernels_exact import (
    long_backward_kernel,
    long_rows_kernel,
    margins_kernel,
    rows_backward_kernel,
    rows_kernel,
)
from expacc.ops.kernels_launch import is_aligned, launch
from expacc.ops.kernels_long import LONG_STATS
from expacc.ops.kernels_moments import dot_kernel, finish_kernel, moments_kernel
from expacc.ops.kernels_softmax import shared_key

__all__ = ["exact_backward", "exact_forward", "orthant_forward"]

_MOST_CLASSES = 8192  # of a row that is held on chip
_LONG_GROUPS = 256  # of eight columns, in a block of a longer one
_MOMENT_PROGRAMS = 256
_NUMBERS = 8  # of the batch, before the programs' sums


def _shape(classes: int, rows: int) -> tuple[int, int, dict[str, int]]:
    """(rows, groups of eight, launch options) of one program of the integral.

    Eight columns a thread, and fewer registers than the compiler would take: more warps then hide
    each other's waiting.
    """
    groups = max(1, triton.next_power_of_2(classes) // 8)
    height = min(max(1, 32 // groups), triton.next_power_of_2(rows))
    warps = max(1, min(16, height * groups // 32))
    registers = 80 if height == 1 and warps <= 8 else 128
    return height, groups, {"num_warps": warps, "maxnreg": registers}


def orthant_forward(margins: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """log of the smaller of P and 1-P (N,), is that 1-P (N,), ∂P/∂m divided by it (N, R)."""
    count, rivals = margins.shape
    margins = margins if margins.stride(1) == 1 else margins.contiguous()
    rows, groups, options = _shape(rivals, count)
    device = margins.device
    small = torch.empty(count, dtype=torch.float64, device=device)
    ahead = torch.empty(count, dtype=torch.bool, device=device)
    gradient = torch.empty((count, rivals), dtype=torch.float32, device=device)
    constants = (rows, groups, margins.is_cuda)
    launch(
        margins_kernel,
        -(-count // rows),
        device,
        (margins.dtype, rivals, margins.stride(0), is_aligned(margins), constants),
        margins,
        small,
        ahead,
        gradient,
        count,
        rivals,
        margins.stride(0),
        *constants,
        **options,
    )
    return small, ahead, gradient


class Batch(NamedTuple):
    """What EXACT is computed of.

    Logits are (N, C), float32, bfloat16 or float16, with any strides; target (N,) int64 with any
    values, a label out of range making its row NaN; weight (C,) or None; sigma a number, or one per
    row (N,); margin a number or inf; reduction 'none', 'mean' or 'sum'; dtype that of the result.
    """

    logits: Tensor
    target: Tensor
    weight: Tensor | None
    ignore_index: int
    reduction: str
    sigma: float | Tensor
    margin: float
    standardize: bool
    log: bool
    dtype: torch.dtype

    @property
    def key(self) -> tuple[Any, ...]:
        """What the variants of all kernels depend on."""
        shared = shared_key(self.logits, self.target, self.weight, self.ignore_index)
        if not isinstance(self.sigma, Tensor):
            return shared
        return (*shared, self.sigma.dtype, is_aligned(self.sigma), self.sigma.stride())

    @property
    def sigmas(self) -> tuple[Tensor, int, float]:
        """A tensor, its stride and a number: the first two or the last are used."""
        if isinstance(self.sigma, Tensor):
            return self.sigma, self.sigma.stride(0) if self.sigma.ndim else 0, 1.0
        return self.logits, 0, self.sigma

    @property
    def weights(self) -> Tensor:
        """The weights, or any tensor where there are none."""
        return self.logits if self.weight is None else self.weight


class Saved(NamedTuple):
    """What backward needs: the rows' gradients or nodes, the batch's numbers, the rows' dots."""

    rows: Tensor
    numbers: Tensor
    dots: Tensor


def exact_forward(batch: Batch, gradient: bool) -> tuple[Tensor, Saved]:
    """The loss of a batch; ``gradient``: will there be a backward?"""
    logits, target = batch.logits, batch.target
    count, classes = logits.shape
    device, key = logits.device, batch.key
    long = classes > _MOST_CLASSES
    rows, groups, options = (1, 32, {"num_warps": 4}) if long else _shape(classes, count)
    programs = -(-count // rows)
    summed = batch.reduction != "none"
    parts, height, block, chunk = 0, 1, 1, 1
    if batch.standardize:
        block = min(4096, max(4, triton.next_power_of_2(classes)))
        height = max(1, 4096 // block)
        tiles = -(-count // height)
        chunk = -(-tiles // _MOMENT_PROGRAMS)
        parts = -(-tiles // chunk)
    size = _NUMBERS + 3 * parts + (3 * programs if summed else 0)
    numbers = torch.empty(size, dtype=torch.float64, device=device)
    if batch.standardize:
        launch(
            moments_kernel,
            parts,
            device,
            (key, height, block),
            logits,
            target,
            numbers,
            count,
            classes,
            *logits.stride(),
            target.stride(0),
            batch.ignore_index,
            chunk,
            height,
            block,
            num_warps=8,
        )
    values = torch.empty(() if summed else (count,), dtype=batch.dtype, device=device)
    dots = numbers if summed else torch.empty(count, dtype=torch.float64, device=device)
    # float16 has too small a range for a gradient that upstream has not yet scaled.
    single = long or logits.dtype == torch.float16
    shape = (count, LONG_STATS if long else classes) if gradient else (1,)
    saved = torch.empty(shape, dtype=torch.float32 if single else logits.dtype, device=device)
    sigmas, sigma_stride, sigma = batch.sigmas
    constants = (
        batch.weight is not None,
        isinstance(batch.sigma, Tensor),
        batch.standardize,
        batch.log,
        summed,
        gradient,
        _LONG_GROUPS if long else rows,
        groups,
        triton.next_power_of_2(max(1, parts)),
        logits.is_cuda,
    )
    launch(
        long_rows_kernel if long else rows_kernel,
        programs,
        device,
        (key, batch.dtype, constants),
        logits,
        target,
        batch.weights,
        sigmas,
        values,
        dots,
        saved,
        numbers,
        count,
        classes,
        parts,
        *logits.stride(),
        target.stride(0),
        sigma_stride,
        batch.ignore_index,
        sigma,
        batch.margin,
        *constants,
        **options,
    )
    if summed:
        mean = batch.reduction == "mean"
        width = min(4096, max(32, triton.next_power_of_2(programs)))
        launch(
            finish_kernel,
            1,
            device,
            (batch.dtype, mean, width),
            numbers,
            values,
            3 * parts,
            programs,
            mean,
            width,
            num_warps=max(1, width // 256),
        )
    return values, Saved(saved, numbers, dots)


def exact_backward(batch: Batch, saved: Saved, upstream: Tensor) -> Tensor:
    """The gradient by the logits. Overwrites ``saved.rows`` and returns it, where it can."""
    logits, target = batch.logits, batch.target
    count, classes = logits.shape
    device = logits.device
    long = classes > _MOST_CLASSES
    summed = batch.reduction != "none"
    upstream_stride = upstream.stride(0) if upstream.ndim else 0
    above = (upstream.dtype, is_aligned(upstream), upstream_stride)
    if batch.standardize and not summed:
        launch(
            dot_kernel,
            1,
            device,
            above,
            saved.dots,
            upstream,
            saved.numbers,
            count,
            upstream_stride,
            4096,
            num_warps=8,
        )
    mean = batch.reduction == "mean"
    if long:
        out = torch.empty((count, classes), dtype=logits.dtype, device=device)
        sigmas, sigma_stride, sigma = batch.sigmas
        blocks = -(-classes // (_LONG_GROUPS * 8))
        constants: tuple[Any, ...] = (
            batch.weight is not None,
            isinstance(batch.sigma, Tensor),
            batch.standardize,
            mean,
            summed,
            _LONG_GROUPS,
            logits.is_cuda,
        )
        launch(
            long_backward_kernel,
            count * blocks,
            device,
            (batch.key, above, constants),
            logits,
            target,
            batch.weights,
            sigmas,
            upstream,
            saved.rows,
            out,
            saved.numbers,
            count,
            classes,
            blocks,
            *logits.stride(),
            target.stride(0),
            sigma_stride,
            upstream_stride,
            batch.ignore_index,
            sigma,
            batch.margin,
            *constants,
            num_warps=8,
        )
        return out
    same = saved.rows.dtype == logits.dtype
    out = saved.rows if same else torch.empty_like(saved.rows, dtype=logits.dtype)
    block = min(2048, max(4, triton.next_power_of_2(classes)))
    rows = max(1, 1024 // block)
    blocks = -(-classes // block)
    constants = (batch.weight is not None, batch.standardize, mean, summed, rows, block)
    launch(
        rows_backward_kernel,
        -(-count // rows) * blocks,
        device,
        (batch.key, above, constants),
        logits,
        target,
        batch.weights,
        upstream,
        saved.rows,
        out,
        saved.numbers,
        count,
        classes,
        blocks,
        *logits.stride(),
        target.stride(0),
        upstream_stride,
        batch.ignore_index,
        *constants,
        num_warps=max(1, min(8, rows * block // 256)),
    )
    return out
