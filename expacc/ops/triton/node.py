"""The fused losses of a CUDA batch: when they apply, and their autograd nodes.

A loss of a small batch costs what launching costs, so the whole contract of ``F.cross_entropy``
(weight, ignored rows, labels out of range, reduction) is part of the kernels: a loss of the softmax
family is one launch forward and one backward, EXACT two and one. The kernels are next door, in
``softmax_plan.py`` and ``exact_plan.py``, and are imported at the first call.
"""

import functools
import importlib
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from expacc.ops.eager import Plan, composed_gradient
from expacc.ops.formula import Formula
from expacc.ops.mode import wants_composed
from expacc.ops.native.build import library
from expacc.ops.reference import CLASS_AXIS
from expacc.ops.triton.dispatch import (
    MISSING,
    PLANS,
    is_plain_batch,
    keep_plan,
    kind_of,
    note_last,
    result_dtype,
    supports_triton,
    tried,
)

__all__ = ["fused_exact", "fused_mixture"]


@functools.cache
def _module(name: str) -> Any:
    """A module that imports Triton, when it is called for."""
    return importlib.import_module(f"expacc.ops.{name}")


# ---------------------------------------------------------------------------- the softmax family


_NO_MORE = (None, None, None)  # gradients, of target, plan and the rest


class _Mixture(torch.autograd.Function):
    """``-ce_weight · log p + error_weight · (1 - p)`` of a batch, reduced."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, plan: Any, rest: Any) -> Tensor:
        values: Tensor
        values, scratch = plan.forward(logits, target, rest[0], rest[1])
        ctx.save_for_backward(logits, target)
        ctx.call = plan, rest, scratch
        return values

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        logits, target = ctx.saved_tensors
        plan, rest, scratch = ctx.call
        # Spent, so that the next batch may have it; a second backward computes it again.
        ctx.call = plan, rest, None
        gradient = _mixture_gradient(plan, logits, target, rest, scratch, grad_outputs[0])
        if plan.native is None and library() and not wants_composed(grad_outputs[0]):
            plan.native = _native_mixture(plan, logits, target, rest, grad_outputs[0])
        return gradient, *_NO_MORE


def _mixture_gradient(
    plan: Any, logits: Tensor, target: Tensor, rest: Any, scratch: Tensor | None, upstream: Tensor
) -> Tensor:
    """By the kernels, with ``scratch`` of forward if it is not spent; or twice differentiable."""
    weight, weights, ignore_index, reduction, formula_of = rest
    if wants_composed(upstream):
        formula = formula_of(*weights)
        general, index = _plan(logits, target, weight, ignore_index, reduction, formula)
        if reduction == "none":
            upstream = upstream.unsqueeze(CLASS_AXIS)
        return composed_gradient(logits, index, general, upstream)
    if scratch is None:
        scratch = plan.forward(logits, target, weight, weights)[1]
    gradient: Tensor = plan.backward(logits, target, weight, upstream, scratch, spent=True)
    return gradient


def _native_mixture(plan: Any, logits: Tensor, target: Tensor, rest: Any, upstream: Tensor) -> Any:
    """The step of such a batch in C++; False if there is none."""
    weight, _, ignore_index, reduction, formula_of = rest
    if weight is not None:
        return False

    def fallback(logits: Tensor, target: Tensor, upstream: Tensor, *weights: float) -> Tensor:
        again = (None, weights, ignore_index, reduction, formula_of)
        found = None
        if not wants_composed(upstream):
            _, found = _mixture_plan(logits, target, *again[:4], "triton")
        return _mixture_gradient(found, logits, target, again, None, upstream)

    batch = (plan, logits.detach(), target, upstream, ignore_index, reduction)
    return _module("native.launch").native_mixture(*batch, fallback)


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
    return Plan(formula, kept, scale, summed, result_dtype(logits)), index


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
    if impl == "reference" or not is_plain_batch(logits, target):
        return None
    last, rest = PLANS.get("mixture"), (weight, weights, ignore_index, reduction, formula_of)
    if last is not None and weight is None:
        native = last.plan.native
        if native and last.more == (impl,):
            loss: Tensor | None = native(logits, target, ignore_index, reduction, *weights)
            if loss is not None:
                return loss
        if last.fits(logits, target, ignore_index, reduction, (impl,)):
            return _mixture_node(logits, target, last.plan, rest)
    kind, plan = _mixture_plan(logits, target, weight, weights, ignore_index, reduction, impl)
    if plan is None:
        return None
    note_last("mixture", plan, kind, (impl,))
    return _mixture_node(logits, target, plan, rest)


def _mixture_plan(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    weights: tuple[float, ...],
    ignore_index: int,
    reduction: str,
    impl: str,
) -> tuple[Any, Any]:
    """The kind of such a batch and its plan; None if it is none for the kernels."""
    kind = kind_of(logits, target, weight, ignore_index, reduction)
    if kind is None:
        return None, None
    plan = PLANS.get((impl, kind), MISSING)
    if plan is MISSING:
        batch = (logits, target, weight, ignore_index, reduction)
        plan = None
        if supports_triton(*batch, impl, "mixture"):
            plan = _module("triton.softmax_plan").RowsPlan(*batch, result_dtype(logits))
            if impl == "auto":
                plan = tried(plan, logits.detach(), target, weight, weights)
        keep_plan((impl, kind), plan)
    return kind, plan


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
        logits, target = ctx.saved_tensors
        # The saved gradient is overwritten and given away, so that there is only one of its size;
        # a second backward through the same graph computes it again.
        plan, rest, saved = ctx.call
        ctx.call = plan, rest, None
        gradient = _exact_gradient(plan, logits, target, rest, saved, grad_outputs[0])
        if plan.native is None and library() and not wants_composed(grad_outputs[0]):
            plan.native = _native_exact(plan, logits, target, rest, grad_outputs[0])
        return gradient, *_NO_MORE


def _exact_gradient(
    plan: Any, logits: Tensor, target: Tensor, rest: Any, saved: Any, upstream: Tensor
) -> Tensor:
    """By the kernels, from what forward saved if it is not spent."""
    if torch.is_grad_enabled():
        raise RuntimeError(_TWICE)
    if wants_composed(upstream):
        return _composed_exact_gradient(plan, logits, target, rest, upstream)
    if saved is None:
        saved = plan.forward(logits, target, *rest)[1]
    gradient: Tensor = plan.backward(logits, target, *rest, saved, upstream)
    return gradient


def _composed_exact_gradient(
    plan: Any, logits: Tensor, target: Tensor, rest: Any, upstream: Tensor
) -> Tensor:
    """By operations that torch batches, for many upstreams as one."""
    weight, sigma, margin = rest
    ignore_index, reduction, (limited, standardize, log, _) = plan.call
    with torch.enable_grad():
        value = plan.reference(
            logits,
            target,
            weight=weight,
            ignore_index=ignore_index,
            reduction=reduction,
            sigma=sigma,
            margin=margin if limited else None,
            standardize=standardize,
            log=log,
            impl="reference",
        )
        return torch.autograd.grad(value, logits, upstream)[0]


def _native_exact(plan: Any, logits: Tensor, target: Tensor, rest: Any, upstream: Tensor) -> Any:
    """As ``_native_mixture``."""
    weight, sigma, _ = rest
    if weight is not None or isinstance(sigma, Tensor):
        return False
    ignore_index, reduction, flags = plan.call

    def fallback(
        logits: Tensor, target: Tensor, upstream: Tensor, sigma: float, margin: float
    ) -> Tensor:
        batch = (logits, target, None, ignore_index, reduction, sigma)
        _, found = _exact_plan(*batch, margin, flags, "triton", plan.reference)
        return _exact_gradient(found, logits, target, (None, sigma, margin), None, upstream)

    batch = (plan, logits.detach(), target, upstream, ignore_index, reduction)
    return _module("native.launch").native_exact(*batch, fallback)


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
    reference: Callable[..., Tensor],
) -> Tensor | None:
    """EXACT with normal noise of a batch; None if it is none for the kernels.

    Sigma is a number, or a tensor, of which one without gradient for all or for each row will do.
    ``reference`` is the loss itself, for those who differentiate many upstreams as one.
    """
    if impl == "reference" or not is_plain_batch(logits, target):
        return None
    last = PLANS.get("exact")
    gradient = logits.requires_grad and torch.is_grad_enabled()
    flags = (margin is not None, standardize, log, gradient)
    limit = math.inf if margin is None else margin
    if last is not None and weight is None and type(sigma) is float:
        native, more = last.plan.native, (impl, *flags)
        if native and last.more == more:
            loss: Tensor | None = native(logits, target, ignore_index, reduction, sigma, limit)
            if loss is not None:
                return loss
        if last.fits(logits, target, ignore_index, reduction, more):
            return _exact_node(logits, target, last.plan, (None, sigma, limit))
    if isinstance(sigma, Tensor) and sigma.dtype != torch.float32:
        sigma = sigma.to(torch.float32)
    batch = (logits, target, weight, ignore_index, reduction, sigma)
    kind, plan = _exact_plan(*batch, limit, flags, impl, reference)
    if plan is None:
        return None
    if not isinstance(sigma, Tensor):
        note_last("exact", plan, kind, (impl, *flags))
    return _exact_node(logits, target, plan, (weight, sigma, limit))


def _exact_plan(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    sigma: float | Tensor,
    limit: float,
    flags: tuple[bool, bool, bool, bool],
    impl: str,
    reference: Callable[..., Tensor],
) -> tuple[Any, Any]:
    """The kind of such a batch and its plan; None if it is none for the kernels.

    ``flags``: is there a margin, standardize, log, will there be a backward?
    """
    batch_kind = kind_of(logits, target, weight, ignore_index, reduction)
    if batch_kind is None:
        return None, None
    sigma_kind = None
    if isinstance(sigma, Tensor):
        where = sigma.device, sigma.data_ptr() & 15
        sigma_kind = type(sigma), sigma.shape, sigma.stride(), sigma.requires_grad, *where
    kind = (impl, *flags, batch_kind, sigma_kind)
    plan = PLANS.get(kind, MISSING)
    if plan is MISSING:
        batch = (logits, target, weight, ignore_index, reduction)
        plan = None
        if supports_triton(*batch, impl, "exact") and _is_noise_of_rows(sigma, logits):
            sigmas = sigma if isinstance(sigma, Tensor) else None
            make = _module("triton.exact_plan").ExactPlan
            plan = make(*batch, result_dtype(logits), sigmas, *flags)
            plan.reference = reference
            if impl == "auto":
                plan = tried(plan, logits.detach(), target, weight, sigma, limit)
        keep_plan(kind, plan)
    return batch_kind, plan


def _is_noise_of_rows(sigma: float | Tensor, logits: Tensor) -> bool:
    """Is sigma a number, or a constant tensor with one entry or one per row?"""
    if not isinstance(sigma, Tensor):
        return True
    rows, classes = logits.shape
    return (
        type(sigma) in (Tensor, torch.nn.Parameter)
        and not sigma.requires_grad
        and sigma.device == logits.device
        and (sigma.ndim == 0 or (sigma.shape == (rows,) and rows != classes))
    )
