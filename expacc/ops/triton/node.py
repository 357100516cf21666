"""The fused losses of a CUDA batch: when they apply, and their autograd node.

A loss of a small batch costs what launching costs, so the whole contract of ``F.cross_entropy``
(weight, ignored rows, labels out of range, reduction) is part of the kernels: a loss of the softmax
family is one launch forward and one backward, EXACT two and one. How to launch them is a plan's to
know (``softmax.py``, ``exact_plan.py``: imported at the first call); whatever the kernels cannot do
is done by the loss's own ``reference``.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from expacc.ops import dispatch
from expacc.ops.dispatch import PLANS, Spec, is_plain_batch, wants_composed

# Logits, target, weight, ignore_index, reduction; and the two numbers of a loss: those of a curve
# (of a mixture, the weights of cross entropy and of the error), or sigma and margin.
Batch = tuple[Tensor, Tensor, Tensor | None, int, Any]
Numbers = tuple[Any, float]


# ----------------------------------------------------------------------------------- the losses


def fused_curve(
    batch: Batch,
    numbers: tuple[float, float],
    impl: str,
    reference: Callable[..., Tensor],
    spec: Spec,
    loss: Any = None,
) -> Tensor | None:
    """A curve over log p with these numbers, of a batch; None if it is none for the kernels.

    ``reference(batch, numbers, spec, loss)`` is the loss itself, for those who differentiate twice,
    or many upstreams as one; ``loss`` is all that it needs besides.
    """
    return _fused("mixture", batch, numbers, (impl, spec), reference, loss)


def fused_exact(
    batch: Batch,
    sigma: float | Tensor,
    margin: float | None,
    standardize: bool,
    log: bool,
    impl: str,
    reference: Callable[..., Tensor],
    smoothing: float = 0.0,
) -> Tensor | None:
    """EXACT with normal noise of a batch; None if it is none for the kernels.

    Sigma is a number, or a tensor, of which one without gradient for all or for each row will do.
    Of probabilities, or with smoothing, there are kernels without margin and log.
    ``reference`` is the loss itself, for those who differentiate many upstreams as one.
    """
    if impl == "reference" or not is_plain_batch(*batch[:2]):
        return None
    if isinstance(sigma, Tensor) and sigma.dtype != torch.float32:
        sigma = sigma.to(torch.float32)
    gradient = batch[0].requires_grad and torch.is_grad_enabled()
    if smoothing != 0 or batch[1].is_floating_point():
        if margin is not None or log:
            return None
        more = (impl, standardize, smoothing, gradient)
        return _fused("soft exact", batch, (sigma, math.inf), more, reference, None)
    flags = (margin is not None, standardize, log, gradient)
    limit = math.inf if margin is None else margin
    return _fused("exact", batch, (sigma, limit), (impl, *flags), reference, None)


def _fused(
    family: str,
    batch: Batch,
    numbers: Numbers,
    more: tuple[Any, ...],
    reference: Callable[..., Tensor],
    extra: Any,
) -> Tensor | None:
    """The loss by the plan of the last batch, if this is one like it; else by its own.

    ``more`` is what else a plan depends on: impl, and the curve or the flags of EXACT.
    """
    logits, target, weight, ignore_index, reduction = batch
    ordinary = weight is None and type(numbers[0]) in (float, int)
    last = PLANS.get(family)
    if last is not None and ordinary:
        native = last.plan.native
        if native and last.more == more:
            loss: Tensor | None = native(logits, target, ignore_index, reduction, *numbers)
            if loss is not None:
                return loss
        if last.fits(logits, target, ignore_index, reduction, more):
            return _node(logits, target, last.plan, (None, *numbers, extra))
    kind, plan = _plan_of(family, batch, numbers, more, reference)
    if plan is None:
        return None
    if ordinary:
        dispatch.note_last(family, plan, kind, more)
    return _node(logits, target, plan, (weight, *numbers, extra))


# ------------------------------------------------------------------------------------- the node


class _FusedLoss(torch.autograd.Function):
    """A loss of a batch, reduced; ``rest``: the weight, two numbers, and what a reference needs."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, plan: Any, rest: Any) -> Tensor:
        values: Tensor
        values, saved = plan.forward(logits, target, *rest[:3])
        ctx.save_for_backward(logits, target)
        ctx.call = plan, rest, saved
        return values

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        logits, target = ctx.saved_tensors
        plan, rest, saved = ctx.call
        upstream = grad_outputs[0]
        if wants_composed(upstream):
            gradient = _composed_gradient(plan.reference, logits, target, rest, upstream)
            return gradient, None, None, None
        # What forward saved is overwritten or given to the next batch, so that there is only one of
        # its size; a second backward through the same graph computes it again.
        ctx.call = plan, rest, None
        gradient = _kernel_gradient(plan, logits, target, rest, saved, upstream)
        if plan.native is None and dispatch.native_library is not None:
            plan.native = _native_step(plan, logits, target, rest, upstream)
        return gradient, None, None, None


# The inherited apply: Function.apply would first look for transforms, and there are none.
_node: Callable[..., Tensor] = super(torch.autograd.Function, _FusedLoss).apply


def _kernel_gradient(
    plan: Any, logits: Tensor, target: Tensor, rest: Any, saved: Any, upstream: Tensor
) -> Tensor:
    """By the kernels, from what forward saved if it is not spent."""
    if saved is None:
        saved = plan.forward(logits, target, *rest[:3])[1]
    gradient: Tensor = plan.backward(logits, target, *rest[:3], saved, upstream)
    return gradient


def _composed_gradient(
    reference: Callable[..., Tensor], logits: Tensor, target: Tensor, rest: Any, upstream: Tensor
) -> Tensor:
    """By operations that torch differentiates again, and batches."""
    again = torch.is_grad_enabled()
    value = reference(logits, target, *rest, again)
    with torch.enable_grad():
        return torch.autograd.grad(value, logits, upstream, create_graph=again)[0]


def _native_step(plan: Any, logits: Tensor, target: Tensor, rest: Any, upstream: Tensor) -> Any:
    """The step of such a batch in C++; False if there is none."""
    if rest[0] is not None or isinstance(rest[1], Tensor) or rest[3] is not None:
        return False
    family, more, ignore_index, reduction, origin = plan.call
    reference = plan.reference  # the plan itself would keep itself alive, by way of C++

    def fallback(logits: Tensor, target: Tensor, upstream: Tensor, *numbers: float) -> Tensor:
        rest = (None, *numbers, None)
        if wants_composed(upstream):
            return _composed_gradient(reference, logits, target, rest, upstream)
        batch = (logits, target, None, ignore_index, reduction)
        found = _plan_of(family, batch, numbers, ("triton", *more[1:]), origin)[1]
        return _kernel_gradient(found, logits, target, rest, None, upstream)

    from expacc.ops.native.launch import native_step

    return native_step(plan, logits.detach(), target, upstream, ignore_index, reduction, fallback)


# ------------------------------------------------------------------------------------ the plans


def _plan_of(
    family: str, batch: Batch, numbers: Any, more: tuple[Any, ...], reference: Callable[..., Tensor]
) -> tuple[Any, Any]:
    """The kind of such a batch and its plan; None if it is none for the kernels."""
    kind = dispatch.kind_of(*batch)
    if kind is None:
        return None, None
    sigma_kind = None
    if isinstance(numbers[0], Tensor):
        sigma = numbers[0]
        where = sigma.device, sigma.data_ptr() & 15
        sigma_kind = type(sigma), sigma.shape, sigma.stride(), sigma.requires_grad, *where
    key = (family, *more, kind, sigma_kind)
    plan = PLANS.get(key, dispatch.MISSING)
    if plan is dispatch.MISSING:
        plan, impl = None, more[0]
        if dispatch.supports_triton(*batch, impl, family) and _is_constant(numbers[0], batch[0]):
            make = _maker(family, *batch[:2])
            if make is not None:
                plan = make(batch, numbers, more[1:], reference)
                plan.call = family, more, *batch[3:], reference
                if impl == "auto":
                    wanted = family == "mixture" or more[-1]
                    plan = dispatch.tried(plan, wanted, batch[0].detach(), *batch[1:3], *numbers)
        dispatch.keep_plan(key, plan)
    return kind, plan


def _maker(family: str, logits: Tensor, target: Tensor) -> Callable[..., Any] | None:
    """What makes a plan of such logits; None where their layout is none for the kernels."""
    from expacc.ops.triton.launch import gradient_strides
    from expacc.ops.triton.layout import layout_of

    if layout_of(logits, target, gradient_strides(logits)) is None:
        return None
    makers = {"mixture": _curve_plan, "exact": _exact_plan, "soft exact": _soft_exact_plan}
    return makers[family]


def _curve_plan(batch: Batch, numbers: Any, more: Any, reference: Callable[..., Tensor]) -> Any:
    from expacc.ops.triton.softmax import RowsPlan

    ignore_index, reduction = batch[3:]
    (spec,) = more

    def composed(logits: Tensor, target: Tensor, weight: Any, *rest: Any) -> Tensor:
        *numbers, loss, _ = rest
        given = (logits, target, weight, ignore_index, reduction)
        with torch.enable_grad():
            return reference(given, tuple(numbers), spec, loss)

    plan = RowsPlan(*batch, dispatch.result_dtype(batch[0]), spec)
    plan.reference = composed
    return plan


_TWICE = (
    "exact_error must not be differentiated twice; got a double backward. Its gradient is "
    "computed together with its value, and has none of its own."
)


def _exact_plan(batch: Batch, numbers: Any, flags: Any, reference: Callable[..., Tensor]) -> Any:
    from expacc.ops.triton.exact_plan import ExactPlan

    limited, standardize, log, _ = flags
    sigmas = numbers[0] if isinstance(numbers[0], Tensor) else None
    plan = ExactPlan(*batch, dispatch.result_dtype(batch[0]), sigmas, *flags)
    plan.reference = _composed_exact(batch, reference, limited, standardize=standardize, log=log)
    return plan


def _soft_exact_plan(
    batch: Batch, numbers: Any, more: Any, reference: Callable[..., Tensor]
) -> Any:
    from expacc.ops.triton.exact_soft_plan import SoftExactPlan

    standardize, smoothing, _ = more
    sigmas = numbers[0] if isinstance(numbers[0], Tensor) else None
    plan = SoftExactPlan(*batch, dispatch.result_dtype(batch[0]), sigmas, *more)
    settings = {"standardize": standardize, "label_smoothing": smoothing}
    plan.reference = _composed_exact(batch, reference, False, **settings)
    return plan


def _composed_exact(
    batch: Batch, reference: Callable[..., Tensor], limited: bool, **settings: Any
) -> Callable[..., Tensor]:
    """EXACT by operations, for many upstreams as one."""
    ignore_index, reduction = batch[3:]

    def composed(logits: Tensor, target: Tensor, weight: Any, *rest: Any) -> Tensor:
        sigma, margin, _, again = rest
        if again:
            raise RuntimeError(_TWICE)
        with torch.enable_grad():
            return reference(
                logits,
                target,
                weight=weight,
                ignore_index=ignore_index,
                reduction=reduction,
                sigma=sigma,
                margin=margin if limited else None,
                impl="reference",
                **settings,
            )

    return composed


def _is_constant(sigma: float | Tensor, logits: Tensor) -> bool:
    """Is this a number, or a tensor without a gradient, with one entry or one per row?"""
    if not isinstance(sigma, Tensor):
        return isinstance(sigma, float | int)
    rows, classes = logits.shape[:2]
    return (
        type(sigma) in (Tensor, torch.nn.Parameter)
        and not sigma.requires_grad
        and sigma.device == logits.device
        and (sigma.ndim == 0 or (sigma.shape == (rows,) and rows != classes and logits.ndim == 2))
    )
