"""The fused losses of a CUDA batch: when they apply, and their autograd nodes.

A loss of a small batch costs what launching costs, so the whole contract of ``F.cross_entropy``
(weight, ignored rows, labels out of range, reduction) is part of the kernels: a loss of the softmax
family is two launches forward and one backward, EXACT three and one. The kernels are next door, in
``kernels_softmax.py`` and ``kernels_batch.py``, and are imported at the first call.
"""

import importlib.util
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from expacc.ops.eager import Plan, _differentiable_gradient
from expacc.ops.formula import Formula
from expacc.ops.mode import is_plain_eager
from expacc.ops.reference import CLASS_AXIS

__all__ = ["fused_exact", "fused_mixture", "has_triton", "takes_kernels", "why_no_kernels"]

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_ORDINARY = (Tensor, torch.nn.Parameter)
_REDUCTIONS = ("mean", "sum", "none")
_MOST_ROWS = 2**31 - 1  # of a launch

# Whether 'auto' takes the kernels. They are right where they were measured on a GPU, but not all of
# tests/gpu/test_kernels_cuda.py has passed there yet, and small batches are slower than plain torch
# (docs/kernels.md): until both are done they are for those who ask, by impl='triton'.
BY_DEFAULT = False

_HAS_TRITON = importlib.util.find_spec("triton") is not None  # looked for, not imported


def has_triton() -> bool:
    """Is Triton installed?"""
    return _HAS_TRITON


def why_no_kernels(logits: Tensor) -> str | None:
    """Why the kernels cannot take these logits, as the end of a sentence; None if they can."""
    if not logits.is_cuda:
        return f"needs a CUDA tensor; logits are on {logits.device.type}"
    if not has_triton():
        return "needs Triton, which is not installed"
    if logits.dtype not in _DTYPES:
        return f"needs float32, bfloat16 or float16; logits are {logits.dtype}"
    if logits.ndim != 2:
        return f"needs logits (N, C); got shape {tuple(logits.shape)}"
    return None


def takes_kernels(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
    *,
    asked: bool = False,
) -> bool:
    """Is this an ordinary batch of labels on a GPU, with nothing in it that must be refused?

    Looks at types, shapes and devices, never at values; whatever is unusual goes the general way,
    which knows the sentences.
    """
    return (
        (asked or BY_DEFAULT)
        and type(logits) in _ORDINARY
        and logits.is_cuda
        and logits.ndim == 2
        and logits.dtype in _DTYPES
        and type(target) in _ORDINARY
        and target.dtype == torch.int64
        and target.ndim == 1
        and 0 < target.shape[0] == logits.shape[0] < _MOST_ROWS
        and logits.shape[CLASS_AXIS] > 0
        and target.device == logits.device
        and reduction in _REDUCTIONS
        and type(ignore_index) is int
        and label_smoothing == 0
        and (weight is None or _is_plain_weight(weight, logits))
        and is_plain_eager()
        and has_triton()
    )


def _is_plain_weight(weight: Tensor, logits: Tensor) -> bool:
    return (
        type(weight) in _ORDINARY
        and weight.is_floating_point()
        and weight.shape == logits.shape[1:]
        and weight.device == logits.device
        and weight.is_contiguous()
        and not weight.requires_grad
    )


def _result_dtype(logits: Tensor) -> torch.dtype:
    """Torch's convention: the logits' dtype, but float32 for half precision under autocast."""
    if logits.dtype != torch.float32 and torch.is_autocast_enabled("cuda"):
        return torch.float32
    return logits.dtype


# ---------------------------------------------------------------------------- the softmax family


class _Mixture(torch.autograd.Function):
    """``-ce_weight · log p + error_weight · (1 - p)`` of a batch, reduced."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None,
        ignore_index: int,
        weights: tuple[float, float],
        reduction: str,
        formula: Formula,
    ) -> Tensor:
        from expacc.ops.kernels_softmax import rows_forward

        values, scratch = rows_forward(
            logits,
            target,
            weight,
            ignore_index,
            *weights,
            reduction,
            _result_dtype(logits),
            ctx.needs_input_grad[0],
        )
        ctx.save_for_backward(logits, target, weight, scratch)
        ctx.rest = ignore_index, reduction, formula
        return values

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        from expacc.ops.kernels_softmax import rows_backward

        logits, target, weight, scratch = ctx.saved_tensors
        ignore_index, reduction, formula = ctx.rest
        if torch.is_grad_enabled():  # create_graph
            plan, index = _plan(logits, target, weight, ignore_index, reduction, formula)
            upstream = grad_outputs[0]
            if reduction == "none":
                upstream = upstream.unsqueeze(CLASS_AXIS)
            grad = _differentiable_gradient(logits, index, plan, upstream)
        else:
            grad = rows_backward(
                logits, target, weight, grad_outputs[0], scratch, ignore_index, reduction == "mean"
            )
        return grad, None, None, None, None, None, None


def _plan(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    formula: Formula,
) -> tuple[Plan, Tensor]:
    """The same batch for the differentiable operations of ``reference.py``."""
    kept = target != ignore_index
    good = (target >= 0) & (target < logits.shape[CLASS_AXIS])
    index = torch.where(kept & good, target, 0)
    factor = torch.ones_like(index, dtype=torch.float64)
    if weight is not None:
        factor = weight.double()[index]
    factor = torch.where(kept, factor, 0)
    total = factor.sum()
    divisor = torch.where(total > 0, total, 1) if reduction == "mean" else 1
    scale = torch.where(kept & ~good, torch.nan, factor / divisor).unsqueeze(CLASS_AXIS)
    summed = reduction != "none"
    kept, index = kept.unsqueeze(CLASS_AXIS), index.unsqueeze(CLASS_AXIS)
    return Plan(formula, kept, scale, summed, _result_dtype(logits)), index


_mixture_node: Callable[..., Tensor] = super(torch.autograd.Function, _Mixture).apply


def fused_mixture(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    weights: tuple[float, float],
    formula: Formula,
) -> Tensor:
    """The mixture (ce_weight, error_weight) >= 0 of a batch that ``takes_kernels``.

    ``formula`` is the same mixture, for those who differentiate twice.
    """
    return _mixture_node(logits, target, weight, ignore_index, weights, reduction, formula)


# ---------------------------------------------------------------------------------------- EXACT

_TWICE = (
    "exact_error must not be differentiated twice; got a double backward. Its gradient is "
    "computed together with its value, and has none of its own."
)


class _Exact(torch.autograd.Function):
    """EXACT of a batch, reduced."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, rest: tuple[Any, ...]) -> Tensor:
        from expacc.ops.kernels_batch import Batch, exact_forward

        ctx.save_for_backward(logits, target)
        ctx.rest = rest
        values, ctx.saved = exact_forward(Batch(logits, target, *rest), ctx.needs_input_grad[0])
        return values

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        from expacc.ops.kernels_batch import Batch, exact_backward, exact_forward

        if torch.is_grad_enabled():
            raise RuntimeError(_TWICE)
        batch = Batch(*ctx.saved_tensors, *ctx.rest)
        # The saved gradient is overwritten and given away, so that there is only one of its size;
        # a second backward through the same graph computes it again.
        saved, ctx.saved = ctx.saved, None
        if saved is None:
            saved = exact_forward(batch, True)[1]
        return exact_backward(batch, saved, grad_outputs[0]), None, None


_exact_node: Callable[..., Tensor] = super(torch.autograd.Function, _Exact).apply


def fused_exact(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    sigma: float | Tensor,
    margin: float | None,
    standardize: bool,
    log: bool,
) -> Tensor:
    """EXACT with normal noise of a batch that ``takes_kernels``; sigma a number or (N,)."""
    limit = math.inf if margin is None else margin
    rest = (weight, ignore_index, reduction, sigma, limit, standardize, log, _result_dtype(logits))
    return _exact_node(logits, target, rest)
