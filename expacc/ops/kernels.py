"""The fused losses of a CUDA batch: when they apply, and their autograd nodes.

A loss of a small batch costs what launching costs, so the whole contract of ``F.cross_entropy``
(weight, ignored rows, labels out of range, reduction) is part of the kernels: a loss of the softmax
family is one launch forward and one backward, EXACT two and one. The kernels are next door, in
``kernels_rows.py`` and ``kernels_batch.py``, and are imported at the first call.
"""

import functools
import importlib
import importlib.util
import math
import warnings
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from expacc.ops.eager import Plan, _differentiable_gradient
from expacc.ops.formula import Formula
from expacc.ops.mode import is_plain_eager
from expacc.ops.reference import CLASS_AXIS

__all__ = [
    "IMPLEMENTATIONS",
    "Implementation",
    "fused_exact",
    "fused_mixture",
    "has_triton",
    "no_kernels",
    "takes_kernels",
]

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_ORDINARY = (Tensor, torch.nn.Parameter)
_REDUCTIONS = ("mean", "sum", "none")
Implementation = Literal["auto", "reference", "triton"]
IMPLEMENTATIONS = ("auto", "reference", "triton")
_MOST_ROWS = 2**31 - 1  # of a launch

# Whether 'auto' takes a family's kernels where it can, or only 'triton' does. A family is to be on
# once all of its tests in tests/gpu have passed on a GPU; what has, and what was not run, is in
# docs/kernels.md.
BY_DEFAULT = {"mixture": False, "exact": False}

_HAS_TRITON = importlib.util.find_spec("triton") is not None  # looked for, not imported


@functools.cache
def _module(name: str) -> Any:
    """A module that imports Triton, when it is called for."""
    return importlib.import_module(f"expacc.ops.{name}")


def has_triton() -> bool:
    """Is Triton installed?"""
    return _HAS_TRITON


def no_kernels(logits: Tensor, needs: str = "") -> ValueError:
    """Why 'triton' is impossible; ``needs`` is what else this loss must be for its kernels."""
    if not logits.is_cuda:
        reason = f"needs a CUDA tensor; logits are on {logits.device.type}"
    elif not has_triton():
        reason = "needs Triton, which is not installed"
    elif logits.dtype not in _DTYPES:
        reason = f"needs float32, bfloat16 or float16; logits are {logits.dtype}"
    elif logits.ndim != 2 or logits.numel() == 0:
        reason = f"needs logits (N, C); got shape {tuple(logits.shape)}"
    else:
        reason = f"needs int64 labels without smoothing{needs}; got something else"
    return ValueError(f"impl='triton' {reason}. Use impl='auto'.")


def takes_kernels(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    impl: str,
    family: str,
) -> bool:
    """Is this an ordinary batch of labels on a GPU, with nothing in it that must be refused?

    Looks at types, shapes and devices, never at values; whatever is unusual goes the general way,
    which knows the sentences.
    """
    return (
        (impl == "triton" or (impl == "auto" and BY_DEFAULT[family]))
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


def _kind(
    logits: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str
) -> tuple[Any, ...] | None:
    """Everything about a batch on a GPU that a plan depends on, or that forbids one.

    None if there can be no plan. This is asked in every call: it is a few questions, each answered
    in a tenth of a microsecond.
    """
    if not (
        type(logits) in _ORDINARY
        and logits.is_cuda
        and type(target) in _ORDINARY
        and type(ignore_index) is int
        and type(reduction) is str
        and is_plain_eager()
    ):
        return None
    place = logits.data_ptr() | target.data_ptr()
    weight_kind = None
    if weight is not None:
        place |= weight.data_ptr()
        layout = weight.shape, weight.stride(), weight.device, weight.requires_grad
        weight_kind = type(weight), weight.dtype, *layout
    dtype = logits.dtype
    return (
        dtype,
        dtype is not torch.float32 and torch.is_autocast_enabled("cuda"),
        logits.shape,
        logits.stride(),
        logits.device,
        target.dtype,
        target.shape,
        target.stride(),
        target.device,
        weight_kind,
        ignore_index,
        reduction,
        place & 15,  # what can be read at once
    )


# A kind of batch, and what the kernels do with it: nothing where that is None.
_PLANS: dict[tuple[Any, ...], Any] = {}
_MOST_PLANS = 128
_MISSING = object()


def _keep(kind: tuple[Any, ...], plan: Any) -> Any:
    if len(_PLANS) >= _MOST_PLANS:
        _PLANS.clear()
    _PLANS[kind] = plan
    return plan


def _tried(plan: Any, *arguments: Any) -> Any:
    """The plan, if a first launch succeeds; else None, and a warning says why.

    Triton needs a C compiler and knows not every GPU: a loss that nobody asked for kernels must not
    fail for that.
    """
    try:
        plan.forward(*arguments)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        warnings.warn(
            f"expacc's Triton kernels do not run here, plain torch is used: {error!r:.200}",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return plan


# ---------------------------------------------------------------------------- the softmax family


class _Mixture(torch.autograd.Function):
    """``-ce_weight · log p + error_weight · (1 - p)`` of a batch, reduced."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, plan: Any, rest: Any) -> Tensor:
        values: Tensor
        values, scratch = plan.forward(logits, target, rest[0], rest[3])
        ctx.save_for_backward(logits, target)
        ctx.call = plan, rest, scratch
        return values

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        logits, target = ctx.saved_tensors
        plan, rest, scratch = ctx.call
        upstream = grad_outputs[0]
        if torch.is_grad_enabled():  # create_graph
            weight, ignore_index, reduction, weights, formula_of = rest
            formula = formula_of(*weights)
            plan, index = _plan(logits, target, weight, ignore_index, reduction, formula)
            if reduction == "none":
                upstream = upstream.unsqueeze(CLASS_AXIS)
            return _differentiable_gradient(logits, index, plan, upstream), None, None, None
        return plan.backward(logits, target, rest[0], upstream, scratch), None, None, None


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
    formula_of: Callable[[float, float], Formula],
    impl: str,
) -> Tensor | None:
    """The mixture (ce_weight, error_weight) >= 0 of a batch; None if it is none for the kernels.

    ``formula_of`` makes the same mixture's formula, for those who differentiate twice.
    """
    if impl == "reference":
        return None
    kind = _kind(logits, target, weight, ignore_index, reduction)
    if kind is None:
        return None
    plan = _PLANS.get((impl, kind), _MISSING)
    if plan is _MISSING:
        batch = (logits, target, weight, ignore_index, reduction)
        plan = None
        if takes_kernels(*batch, impl, "mixture"):
            plan = _module("kernels_rows").RowsPlan(*batch, _result_dtype(logits))
            if impl == "auto":
                plan = _tried(plan, logits.detach(), target, weight, weights)
        _keep((impl, kind), plan)
    if plan is None:
        return None
    rest = (weight, ignore_index, reduction, weights, formula_of)
    return _mixture_node(logits, target, plan, rest)


# ---------------------------------------------------------------------------------------- EXACT

_TWICE = (
    "exact_error must not be differentiated twice; got a double backward. Its gradient is "
    "computed together with its value, and has none of its own."
)


class _Exact(torch.autograd.Function):
    """EXACT of a batch, reduced."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, plan: Any, rest: Any) -> Tensor:
        values: Tensor
        values, saved = plan.forward(logits, target, *rest)
        ctx.save_for_backward(logits, target)
        ctx.call = plan, rest, saved
        return values

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(_TWICE)
        logits, target = ctx.saved_tensors
        # The saved gradient is overwritten and given away, so that there is only one of its size;
        # a second backward through the same graph computes it again.
        plan, rest, saved = ctx.call
        ctx.call = plan, rest, None
        if saved is None:
            saved = plan.forward(logits, target, *rest)[1]
        grad = plan.backward(logits, target, *rest, saved, grad_outputs[0])
        return grad, None, None, None


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
    impl: str,
) -> Tensor | None:
    """EXACT with normal noise of a batch; None if it is none for the kernels.

    Sigma is a number, or a tensor, of which one without gradient for all or for each row will do.
    """
    if impl == "reference":
        return None
    batch_kind = _kind(logits, target, weight, ignore_index, reduction)
    if batch_kind is None:
        return None
    gradient = logits.requires_grad and torch.is_grad_enabled()
    sigma_kind = None
    if isinstance(sigma, Tensor):
        sigma = sigma if sigma.dtype == torch.float32 else sigma.to(torch.float32)
        where = sigma.device, sigma.data_ptr() & 15
        sigma_kind = type(sigma), sigma.shape, sigma.stride(), sigma.requires_grad, *where
    kind = (impl, batch_kind, gradient, sigma_kind, margin is None, standardize, log)
    plan = _PLANS.get(kind, _MISSING)
    if plan is _MISSING:
        batch = (logits, target, weight, ignore_index, reduction)
        plan = None
        if takes_kernels(*batch, impl, "exact") and _is_noise_of_rows(sigma, logits):
            sigmas = sigma if isinstance(sigma, Tensor) else None
            flags = (margin is not None, standardize, log, gradient)
            make = _module("kernels_batch").ExactPlan
            plan = make(*batch, _result_dtype(logits), sigmas, *flags)
            if impl == "auto":
                limit = math.inf if margin is None else margin
                plan = _tried(plan, logits.detach(), target, weight, sigma, limit)
        _keep(kind, plan)
    if plan is None:
        return None
    return _exact_node(
        logits, target, plan, (weight, sigma, math.inf if margin is None else margin)
    )


def _is_noise_of_rows(sigma: float | Tensor, logits: Tensor) -> bool:
    """Is sigma a number, or a constant tensor with one entry or one per row?"""
    if not isinstance(sigma, Tensor):
        return True
    rows, classes = logits.shape
    return (
        type(sigma) in _ORDINARY
        and not sigma.requires_grad
        and sigma.device == logits.device
        and (sigma.ndim == 0 or (sigma.shape == (rows,) and rows != classes))
    )
