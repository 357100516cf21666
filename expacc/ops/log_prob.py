"""Losses as curves over u = log p(target): the truth in torch operations, and the quick ways.

The target is compared with its rivals, never with a sum that contains itself. With
``top = max_{j≠y} z_j`` and ``total = Σ_{j≠y} e^{z_j - top}``,

    lead = (z_y - top) - log total = log p/(1-p),    u = log p = -log(1 + e^-lead).

This keeps every digit of 1 - p when p is within 1e-30 of 1, where ``z_y - logsumexp(z)`` returns 0
and the gradient dies. What is one number per row (lead, u, the loss) is computed in float64, since
it costs next to nothing; what is N×C stays in float32. Three ways to compute it:

* ``compose_log_prob_loss``, every test's truth: differentiable operations, under torch.compile,
  torch.func and forward-mode AD, and for double backward;
* a small batch costs what calling operations costs, so ``SmallLogProbLoss`` makes as few calls as
  it can, in float64, from the ratios p_j/p_y = e^{z_j - z_y};
* a large batch costs what moving memory costs, so ``BlockLogProbLoss`` works in row blocks that fit
  the cache, and keeps nothing of the logits' size between forward and backward.

A curve's slope is written out instead of left to autograd. It is exact where autograd's is not: the
backward of ``expm1`` is ``result + 1``, which is 0 for every u below -37 although the true slope,
``e^u``, is a perfectly good number. And it lets one autograd node carry the whole loss.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from expacc.ops.dispatch import CLASS_AXIS, wants_composed
from expacc.ops.rivals import compute_dtype, row_dtype, summarize_rivals

_SMALL_ELEMENTS = 16_384
_LARGEST_ODDS = 1e150


# ------------------------------------------------------------------------------------- curves


class Formula(NamedTuple):
    """A loss ``factor · value`` of u = log p in [-inf, 0], and ``slope`` = d value / d u.

    Elementwise; ``slope`` is given p = e^u too, which its callers have at hand. The p may be
    another than the softmax's: the one whose lead is ``scale · lead + shift``.
    """

    value: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor, Tensor], Tensor]
    factor: float = 1.0
    shift: float = 0.0
    scale: float = 1.0
    curve: tuple[str, float, float] | None = None  # ``value`` as the kernels know it, if they do

    def moves(self) -> bool:
        """Is p another than the softmax's?"""
        return self.shift != 0 or self.scale != 1

    def log_prob(self, lead: Tensor) -> Tensor:
        """u of a lead, to full precision at both ends."""
        if self.moves():
            lead = lead * self.scale + self.shift
        # softplus, not logsigmoid: the same number, and it has a batching rule for vmap; not
        # logaddexp, whose slope is NaN at -inf.
        return -softplus(-lead, threshold=700.0 if lead.dtype == torch.float64 else 80.0)


IDENTITY = Formula(value=lambda u: u, slope=lambda u, prob: torch.ones_like(u))


def error_of(log_prob: Tensor) -> Tensor:
    """1 - p, to full precision however close p is to 1."""
    return -torch.expm1(log_prob)


class _ApplyFormula(torch.autograd.Function):
    """``formula.value`` with ``formula.slope`` as its derivative, under vmap and compile too."""

    generate_vmap_rule = True

    @staticmethod
    def forward(argument: Tensor, formula: Formula, is_lead: bool) -> Tensor:
        log_prob = formula.log_prob(argument) if is_lead else argument
        return formula.value(log_prob) * formula.factor

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Formula, bool], output: Tensor) -> None:
        argument, ctx.formula, ctx.is_lead = inputs
        ctx.save_for_backward(argument)
        ctx.save_for_forward(argument)

    @staticmethod
    def slope(ctx: Any) -> Tensor:
        """Made of differentiable torch functions: double backward follows from it."""
        (argument,) = ctx.saved_tensors
        formula: Formula = ctx.formula
        if not ctx.is_lead:
            return formula.slope(argument, torch.exp(argument)) * formula.factor
        log_prob = formula.log_prob(argument)
        slope = formula.slope(log_prob, torch.exp(log_prob)) * error_of(log_prob)
        return slope * (formula.factor * formula.scale)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None, None]:
        return grad_outputs[0] * _ApplyFormula.slope(ctx), None, None


class _ApplyFormulaBothModes(_ApplyFormula):
    """The same with forward-mode AD, which torch.compile refuses to see defined."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        tangent: Tensor = tangents[0] * _ApplyFormula.slope(ctx)
        return tangent


def apply_formula(argument: Tensor, formula: Formula, *, is_lead: bool = False) -> Tensor:
    """Evaluate ``formula`` with its own slope as the derivative, to any order.

    Args:
        argument: u = log p, as it is; or the lead log p/(1-p), which the formula may move.
        formula: the curve.
        is_lead: which of the two.
    """
    node = _ApplyFormula if torch.compiler.is_compiling() else _ApplyFormulaBothModes
    result: Tensor = node.apply(argument, formula, is_lead)  # type: ignore[no-untyped-call]
    return result


# ------------------------------------------------------------------------------- the reference


def compose_target_lead(logits: Tensor, index: Tensor) -> Tensor:
    """log p/(1-p) of ``logits`` (N, C, …) for ``index`` (N, 1, …), all labels in range."""
    logits = logits.to(compute_dtype(logits.dtype))
    classes = torch.arange(logits.shape[CLASS_AXIS], device=logits.device)
    classes = classes.view(-1, *[1] * (logits.ndim - 2))
    rivals = torch.where(classes == index, -torch.inf, logits)
    lowest = torch.finfo(logits.dtype).min  # so that -inf minus the top is -inf, not NaN
    top = rivals.detach().amax(CLASS_AXIS, keepdim=True).clamp(min=lowest)
    total = (rivals - top).exp().sum(CLASS_AXIS, keepdim=True)
    alone = total == 0  # no rival, or none that is not masked
    rows = row_dtype(logits.device)
    log_total = torch.where(alone, 1, total).to(rows).log()
    own = logits.gather(CLASS_AXIS, index).to(rows)
    own = own + torch.where(own == torch.inf, torch.nan, 0)  # a softmax of +inf is none
    # Alone is p = 1; but NaN times 0, and a masked target's -inf times 0, is NaN.
    return torch.where(alone, own * 0 + torch.inf, own - top - log_total)


def all_leads(logits: Tensor) -> Tensor:
    """log p/(1-p) of every class, accurate to the last digit even as one p approaches 1.

    For every class but the largest p is at most 1/2, and log p and 1 - p have all their digits.
    """
    logits = logits.to(compute_dtype(logits.dtype))
    best = logits.detach().argmax(CLASS_AXIS, keepdim=True)
    log_probs = logits.log_softmax(CLASS_AXIS).scatter(CLASS_AXIS, best, -math.log(2))  # no pole
    leads = log_probs - torch.log1p(-log_probs.exp())
    return leads.scatter(CLASS_AXIS, best, compose_target_lead(logits, best).to(leads.dtype))


def compose_log_prob_loss(
    logits: Tensor, index: Tensor, kept: Tensor | None, formula: Formula
) -> Tensor:
    """``formula`` of log p(target), (N, 1, …); 0 with zero gradient where ``kept`` is False."""
    if kept is not None:
        logits = torch.where(kept, logits, 0)
    values = apply_formula(compose_target_lead(logits, index), formula, is_lead=True)
    return values if kept is None else torch.where(kept, values, 0)


# ------------------------------------------------------------------------------- plain eager


class Plan(NamedTuple):
    """What to do with log p(target): everything that is not differentiated, in one argument.

    ``kept`` and ``scale``, unless None or a number, are (N, 1, …).
    """

    formula: Formula
    kept: Tensor | None
    scale: Tensor | float
    summed: bool
    dtype: torch.dtype


def eager_log_prob_loss(logits: Tensor, index: Tensor, plan: Plan) -> Tensor:
    """``scale · formula(log p(target))``, (N, 1, …), or its sum.

    Args:
        logits: (N, C, …).
        index: (N, 1, …), labels in range.
        plan: the rest.
    """
    if logits.is_cpu and logits.numel() <= _SMALL_ELEMENTS:
        parts = _ratios(logits.detach(), index, plan.formula)
        if parts is not None:
            return _small_node(logits, index, plan, *parts)
    return _block_node(logits, index, plan)


def composed_gradient(logits: Tensor, index: Tensor, plan: Plan, upstream: Tensor) -> Tensor:
    """The gradient by operations that torch differentiates again, and batches."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        values = plan.scale * compose_log_prob_loss(logits, index, plan.kept, plan.formula)
        value = (values.sum() if plan.summed else values).to(plan.dtype)
        return torch.autograd.grad(value, logits, upstream, create_graph=again)[0]


# --------------------------------------------------------------------------------- small batches


def _ratios(logits: Tensor, index: Tensor, formula: Formula) -> tuple[Tensor, Tensor] | None:
    """(p_j/p_y with 0 at the target, their sum), or None if that sum is too large for its square.

    A shift is one of the target's logit, and a scale is a power of the odds: rivals keep their
    shares.
    """
    shift, scale = formula.shift, formula.scale
    ratios = logits.clone() if logits.dtype == torch.float64 else logits.double()
    own = ratios.gather(CLASS_AXIS, index)
    ratios.sub_(own.add_(shift / scale) if shift else own).exp_()
    # A rival 709 ahead overflows, one 373 ahead takes p², of which slopes are made, to 0, and the
    # target's own ratio is 1 or NaN: the blocks handle all. Reading a CPU number is cheap.
    if not ratios.sum().item() < _LARGEST_ODDS:
        return None
    ratios.scatter_(CLASS_AXIS, index, 0)
    odds = ratios.sum(CLASS_AXIS, keepdim=True)
    if scale == 1:
        return ratios, odds
    powers = odds.pow(scale)
    if not (powers + 1 / powers).sum().item() < _LARGEST_ODDS:  # what vanished has no root
        return None
    return ratios.mul_(powers / odds), powers


class SmallLogProbLoss(torch.autograd.Function):
    """The loss of a small batch on the CPU from its ``_ratios``."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, index: Tensor, plan: Plan, ratios: Tensor, odds: Tensor
    ) -> Tensor:
        (value, _, factor, *_), kept, scale, summed, dtype = ctx.plan = plan
        log_prob = torch.log1p(odds).neg_()
        if kept is not None:
            log_prob.masked_fill_(~kept, 0)
        ctx.save_for_backward(logits, index, log_prob, ratios, odds)
        values = value(log_prob)
        if summed and not isinstance(scale, Tensor):
            return torch.scalar_tensor(values.sum().item() * (scale * factor), dtype=dtype)
        values = values * (scale * factor)
        return (values.sum() if summed else values).to(dtype)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        logits, index, log_prob, ratios, odds = ctx.saved_tensors
        plan, upstream = ctx.plan, grad_outputs[0]
        if wants_composed(upstream):
            grad = composed_gradient(logits, index, plan, upstream)
            return grad, None, None, None, None
        (_, slope, factor, _, power, _), kept, scale, summed, _ = plan
        # Not in the upstream's own dtype: a small factor would be lost in float16.
        chain = (upstream.item() if summed else upstream.double()) * scale * (-factor * power)
        # The rivals get -dL/du · p_j, the target the negative of their sum, dL/du · (1 - p_y).
        prob = torch.exp(log_prob)
        push = (slope(log_prob, prob) * chain).mul_(prob)
        grad = ratios * push
        grad.scatter_(CLASS_AXIS, index, push.mul_(odds).neg_())
        grad = grad.float() if logits.dtype == torch.float32 else grad.to(logits.dtype)
        if kept is not None:
            grad.masked_fill_(~kept, 0)
        return grad, None, None, None, None


# The inherited apply: Function.apply would first look for transforms, and there are none.
_small_node: Callable[..., Tensor] = super(torch.autograd.Function, SmallLogProbLoss).apply


# --------------------------------------------------------------------------------- large batches


class BlockLogProbLoss(torch.autograd.Function):
    """The loss of a batch of any size on any device, in row blocks."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, index: Tensor, plan: Plan) -> Tensor:
        ctx.plan = plan
        rows = row_dtype(logits.device)
        # With a scale above 1 the error of the odds counts so many times.
        work = rows if plan.formula.scale > 1 else compute_dtype(logits.dtype)
        ctx.work = work
        top, total, shares, fix = summarize_rivals(logits, index, work, ctx.needs_input_grad[0])
        own = logits.gather(CLASS_AXIS, index).to(rows)
        own.masked_fill_(own == torch.inf, torch.nan)  # a softmax of +inf is none
        lead = own.sub_(top).sub_(total.to(rows).log())
        if plan.formula.moves():
            lead.mul_(plan.formula.scale).add_(plan.formula.shift)
        log_prob = logsigmoid(lead)
        if plan.kept is not None:
            log_prob.masked_fill_(~plan.kept, 0)
        ctx.save_for_backward(logits, index, log_prob, fix)
        ctx.shares = shares
        values = plan.formula.value(log_prob) * (plan.scale * plan.formula.factor)
        return (values.sum() if plan.summed else values).to(plan.dtype)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        logits, index, log_prob, fix = ctx.saved_tensors
        plan, upstream = ctx.plan, grad_outputs[0]
        if wants_composed(upstream):
            return composed_gradient(logits, index, plan, upstream), None, None
        slope = plan.formula.slope(log_prob, torch.exp(log_prob))
        factor = plan.formula.factor * plan.formula.scale
        chain = upstream.to(log_prob.dtype) * (plan.scale * factor)
        pull = slope * error_of(log_prob) * chain
        # The shares become the gradient in place; only a second backward makes them again.
        shares, ctx.shares = ctx.shares, None
        if shares is None:
            shares = summarize_rivals(logits, index, ctx.work, keep=True).shares
        # The rivals share the negative of the label's pull, so that a row sums to zero.
        grad = shares.mul_((-pull / fix).to(shares.dtype)).to(logits.dtype)
        grad.scatter_(CLASS_AXIS, index, pull.to(grad.dtype))
        if plan.kept is not None:
            grad.masked_fill_(~plan.kept, 0)
        return grad, None, None


_block_node: Callable[..., Tensor] = BlockLogProbLoss.apply
