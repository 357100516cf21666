"""A loss over log p(target) as one autograd node with its gradient written by hand.

The mathematics is that of ``reference.py``. Two ways to compute it:

* a small batch costs what calling operations costs, so ``SmallLogProbLoss`` makes as few calls as
  it can, in float64, from the ratios p_j/p_y = e^{z_j - z_y};
* a large batch costs what moving memory costs, so ``BlockLogProbLoss`` works in row blocks that fit
  the cache, and keeps nothing of the logits' size between forward and backward.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from expacc.ops.formula import Formula, error_of
from expacc.ops.mode import wants_composed
from expacc.ops.reference import CLASS_AXIS, compose_log_prob_loss, compute_dtype, row_dtype

_SMALL_ELEMENTS = 16_384
# A block's copy of the logits (512 KiB in float32) and its results stay in the second-level cache.
_BLOCK_ELEMENTS_CPU = 131_072
_BLOCK_ELEMENTS_DEVICE = 2**27


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
        parts = _ratios(logits.detach(), index)
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


def _ratios(logits: Tensor, index: Tensor) -> tuple[Tensor, Tensor] | None:
    """(p_j/p_y with 0 at the target, their sum), or None if that sum is not finite."""
    ratios = logits.clone() if logits.dtype == torch.float64 else logits.double()
    ratios.sub_(ratios.gather(CLASS_AXIS, index)).exp_()
    # A rival 709 ahead overflows, and the target's own ratio is 1 or NaN: the blocks handle both.
    # Reading a CPU number is cheap.
    if not math.isfinite(ratios.sum().item()):
        return None
    ratios.scatter_(CLASS_AXIS, index, 0)
    return ratios, ratios.sum(CLASS_AXIS, keepdim=True)


class SmallLogProbLoss(torch.autograd.Function):
    """The loss of a small batch on the CPU from its ``_ratios``."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, index: Tensor, plan: Plan, ratios: Tensor, odds: Tensor
    ) -> Tensor:
        (value, _, factor), kept, scale, summed, dtype = ctx.plan = plan
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
        (_, slope, factor), kept, scale, summed, _ = plan
        # Not in the upstream's own dtype: a small factor would be lost in float16.
        chain = (upstream.item() if summed else upstream.double()) * scale * -factor
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


def _rows_per_block(logits: Tensor) -> int:
    """How many entries of the leading axis make about a block of elements; at least 1."""
    limit = _BLOCK_ELEMENTS_CPU if logits.is_cpu else _BLOCK_ELEMENTS_DEVICE
    rows, elements = logits.shape[0], logits.numel()
    return max(1, rows if elements <= limit else limit * rows // elements)


def _split(step: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The tensors' blocks of ``step`` rows; splitting once is cheaper than slicing in a loop."""
    return zip(*(torch.split(tensor, step) for tensor in tensors), strict=True)


def _rivals(logits: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """(top, total) of the rivals of ``index`` (N, 1, …); both keep the class axis."""
    work = compute_dtype(logits.dtype)
    lowest = torch.finfo(work).min  # so that -inf minus the top is -inf, not NaN
    rows, step = logits.shape[0], _rows_per_block(logits)
    # One buffer for all blocks, which then never leaves the cache.
    buffer = torch.empty(min(rows, step), *logits.shape[1:], dtype=work, device=logits.device)
    top = torch.empty(index.shape, dtype=work, device=logits.device)
    total = torch.empty_like(top)
    for block, labels, highest, summed in _split(step, logits, index, top, total):
        rivals = buffer[: len(block)].copy_(block).scatter_(CLASS_AXIS, labels, -torch.inf)
        torch.amax(rivals, CLASS_AXIS, keepdim=True, out=highest)
        rivals.sub_(highest.clamp_(min=lowest)).exp_()
        torch.sum(rivals, CLASS_AXIS, keepdim=True, out=summed)
    return top, total


def _spread(logits: Tensor, index: Tensor, pull: Tensor, top: Tensor, total: Tensor) -> Tensor:
    """The gradient: ``pull`` = dL/du · (1 - p_y) at the target, its negative shared by the rivals.

    Every rival's share is exact to rounding, and a row sums to zero.
    """
    work = compute_dtype(logits.dtype)
    # A present rival makes total at least 1, so the clamp changes only the empty sum, 0 to 1.
    share = (-pull / total.clamp(min=1)).to(work)
    grad = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    step = _rows_per_block(logits)
    for block, highest, factor, out in _split(step, logits, top, share, grad):
        if out.dtype == work:
            torch.sub(block, highest, out=out).exp_().mul_(factor)
        else:
            out.copy_(torch.sub(block, highest).exp_().mul_(factor))
    return grad.scatter_(CLASS_AXIS, index, pull.to(grad.dtype))


class BlockLogProbLoss(torch.autograd.Function):
    """The loss of a batch of any size on any device, in row blocks."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, index: Tensor, plan: Plan) -> Tensor:
        ctx.plan = plan
        top, total = _rivals(logits, index)
        rows = row_dtype(logits.device)
        own = logits.gather(CLASS_AXIS, index).to(rows)
        own.masked_fill_(own == torch.inf, torch.nan)  # a softmax of +inf is none
        log_prob = logsigmoid(own.sub_(top).sub_(total.to(rows).log()))
        if plan.kept is not None:
            log_prob.masked_fill_(~plan.kept, 0)
        ctx.save_for_backward(logits, index, log_prob, top, total)
        values = plan.formula.value(log_prob) * (plan.scale * plan.formula.factor)
        return (values.sum() if plan.summed else values).to(plan.dtype)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        logits, index, log_prob, top, total = ctx.saved_tensors
        plan, upstream = ctx.plan, grad_outputs[0]
        if wants_composed(upstream):
            return composed_gradient(logits, index, plan, upstream), None, None
        slope = plan.formula.slope(log_prob, torch.exp(log_prob))
        chain = upstream.to(log_prob.dtype) * (plan.scale * plan.formula.factor)
        pull = slope * error_of(log_prob) * chain
        grad = _spread(logits, index, pull, top, total)
        if plan.kept is not None:
            grad.masked_fill_(~plan.kept, 0)
        return grad, None, None


_block_node: Callable[..., Tensor] = BlockLogProbLoss.apply
