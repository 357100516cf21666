"""The losses of ``class_sums.py`` for many classes on the CPU: one softmax, value and gradient.

What a call costs is passes over the block that is in the cache, and operations on its rows, of
which there are many: so blocks are larger than elsewhere, the gradient is computed beside the
value, as a curve and its slope need the same powers, and it is multiplied only by an upstream that
is not 1. Rivals have p <= 1/2 here, but for at most one per row, which is computed by itself.
"""

import math
from collections.abc import Callable
from functools import reduce
from typing import Any, cast

import torch
from torch import Tensor

from expacc.ops.dispatch import CLASS_AXIS, wants_composed
from expacc.ops.log_prob import IDENTITY
from expacc.ops.rivals import MANY_CLASSES, compute_dtype, split_rows
from expacc.ops.row_loss import RowPlan, Share, composed_gradient, reduce_values

_BLOCK_ELEMENTS = 524_288


def softmax_row_loss(logits: Tensor, index: Tensor, plan: RowPlan) -> Tensor | None:
    """``scale · loss``, (N, 1, …), or its sum; None where the careful way is needed.

    That is where a label or its rivals have next to nothing, a class is masked, or a number is
    none.
    """
    known = all(share.curve is IDENTITY or share.rivals for share in plan.loss.shares)
    if not (known and logits.is_cpu and logits.shape[CLASS_AXIS] >= MANY_CLASSES):
        return None
    wants = logits.requires_grad and torch.is_grad_enabled()
    found = _evaluate(logits.detach(), index, plan, wants)
    return None if found is None else _node(logits, index, plan, *found)


def _evaluate(
    logits: Tensor, index: Tensor, plan: RowPlan, wants_gradient: bool
) -> tuple[Tensor, Tensor | None] | None:
    """Values, (N, 1, …) without scale, and the gradient of their scaled sum."""
    work, count = compute_dtype(logits.dtype), logits.shape[CLASS_AXIS] - 1
    step = max(1, _BLOCK_ELEMENTS * len(logits) // max(1, logits.numel()))
    size = (min(len(logits), step), *logits.shape[1:])
    ahead, spare, slopes = (torch.empty(size, dtype=work) for _ in range(3))
    grad = torch.empty(logits.shape if wants_gradient else size, dtype=work)
    values = torch.empty(index.shape, dtype=torch.float64)
    least, eps = torch.finfo(work).tiny ** 0.8, torch.finfo(work).eps
    tensors, scale = [logits, index, values], plan.scale
    if isinstance(scale, Tensor):
        tensors.append(scale.expand(index.shape))
    for i, (block, labels, value, *factors) in enumerate(split_rows(step, *tensors)):
        shares = grad[i * step if wants_gradient else 0 :][: len(block)]
        u, room, slope = (buffer[: len(block)] for buffer in (ahead, spare, slopes))
        torch.softmax(block, CLASS_AXIS, dtype=work, out=shares)
        mine = shares.gather(CLASS_AXIS, labels)
        others = shares.scatter_(CLASS_AXIS, labels, 0).sum(CLASS_AXIS, keepdim=True)
        if not (mine.amin().item() > least and others.amin().item() > least):
            return None
        own, rest = mine.double(), others.double()
        level = block.gather(CLASS_AXIS, labels).double().sub_(own.log())  # log Σ e^z
        rounded = level.to(work)
        level = level - rounded  # what that left of it
        torch.sub(block, rounded, out=u).scatter_(CLASS_AXIS, labels, 0)
        odds = rest / own
        log_prob = odds.log1p().neg_()
        below = u.sum(CLASS_AXIS, keepdim=True).double().sub_(level, alpha=count)  # Σ log p_j
        sums: list[Tensor] = []
        counts: list[Tensor | None] = []
        for share in plan.loss.shares:
            if share.rivals is not None and level.abs().amax().item() > 4 * eps:
                # The logits are far from 0.
                u.sub_(level.to(work)).scatter_(CLASS_AXIS, labels, 0)
            fall = 0.0 if share.rivals is None else share.rivals(u, shares, room, slope)
            if fall is not None:
                sums.append(below - count * fall)
                counts.append(None)
                continue
            if share.curved:
                _mend_likeliest(share, mine, shares, u, slope)
            sums.append(_sum_of_rivals(u, labels))
            counts.append(_sum_of_rivals(slope, labels))
        if not math.isfinite(reduce(torch.add, sums).sum().item()):
            return None
        value.copy_(plan.loss.value(log_prob, sums))
        if not wants_gradient:
            continue
        prob = log_prob.exp()
        along, lifts = plan.loss.slopes(log_prob, prob, sums)
        weighed = list(zip(lifts, counts, strict=True))
        through = reduce(torch.add, (lift * (count if n is None else n) for lift, n in weighed))
        chain = factors[0] if factors else scale
        pull = (along * odds).sub_(through).mul_(prob).mul_(chain)  # 1 - p = odds · p
        # p_k = share_k · (1 - p) / rest, and the last is p / own.
        shares.mul_((along + through).mul_(prob / own).mul_(chain).neg_().to(work))
        for lift, n in weighed:
            push = (lift * chain).to(work)
            if n is None:
                shares.add_(push)
            else:
                shares.addcmul_(slope, push)
        shares.scatter_(CLASS_AXIS, labels, pull.to(work))
    return values, grad if wants_gradient else None


def _sum_of_rivals(values: Tensor, labels: Tensor) -> Tensor:
    return values.scatter_(CLASS_AXIS, labels, 0).sum(CLASS_AXIS, keepdim=True).double()


def _mend_likeliest(
    share: Share, own: Tensor, probs: Tensor, values: Tensor, slopes: Tensor
) -> None:
    """Value and slope of rivals with more than a half: their 1 - p is the sum of the others."""
    where = (probs.amax(CLASS_AXIS) > 0.5).nonzero(as_tuple=True)
    if not len(where[0]):
        return
    rows: tuple[Any, ...] = (where[0], slice(None), *where[1:])
    chosen = probs[rows]
    best = chosen.argmax(1, keepdim=True)
    error = chosen.scatter_(1, best, 0).sum(1).double() + own[rows].squeeze(1)
    log_prob = torch.log1p(-error)
    place = (where[0], best.squeeze(1), *where[1:])
    values[place] = share.curve.value(log_prob).to(values.dtype)
    slopes[place] = share.curve.slope(log_prob, 1 - error).to(slopes.dtype)


class _SoftmaxNode(torch.autograd.Function):
    """What was evaluated, as a node of autograd's graph."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, index: Tensor, plan: RowPlan, values: Tensor, grad: Tensor | None
    ) -> Tensor:
        ctx.plan, ctx.grad = plan, grad
        ctx.save_for_backward(logits, index)
        return reduce_values(values, plan)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        logits, index = ctx.saved_tensors
        plan, upstream = ctx.plan, grad_outputs[0]
        if wants_composed(upstream):
            grad = composed_gradient(logits, index, plan, upstream)
            return grad, None, None, None, None
        kept, ctx.grad = ctx.grad, None
        if kept is None:  # a second backward makes it again
            found = _evaluate(logits, index, plan, wants_gradient=True)
            kept = cast(tuple[Tensor, Tensor], found)[1]  # as it was for forward
        grad = kept
        if not plan.summed:
            grad.mul_(upstream)
        elif upstream.item() != 1:
            grad.mul_(upstream.item())
        grad = grad.to(logits.dtype)
        if plan.kept is not None:
            grad.masked_fill_(~plan.kept, 0)
        return grad, None, None, None, None


# The inherited apply: Function.apply would first look for transforms, and there are none.
_node: Callable[..., Tensor] = super(torch.autograd.Function, _SoftmaxNode).apply
