"""Losses that divide by their own sum over the classes: g(u_y) / Σ_j g(u_j), u = log softmax.

With R = Σ_{j≠y} g(u_j), the rivals' part, such a loss is a function of two numbers per row, u_y and
R, and

    dL/dz_k = -p_k (L_u + L_R G) + L_R g'(u_k),    dL/dz_y = (1 - p_y) L_u - p_y L_R G

for a rival k and the label, G = Σ_{j≠y} g'(u_j). As in ``log_prob.py`` the label is compared with
its rivals, so that 1 - p keeps its digits, rows are float64, and there are four ways:

* ``compose_all`` of ``row_loss.py``: differentiable operations, for all classes as the label, hence
  for probabilities as the target too;
* ``_SmallNode`` for a small batch, in float64 and as few operations as possible;
* ``class_softmax.py`` for many classes on the CPU, where nothing is next to nothing;
* ``_BlockNode`` for everything else, in row blocks; nothing of the logits' size is kept.

A masked class (logit -inf) is absent. Whether there is one shows in the sums: an infinite one.
"""

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from expacc.ops.class_softmax import softmax_row_loss
from expacc.ops.dispatch import CLASS_AXIS, is_plain_eager, wants_composed
from expacc.ops.log_prob import IDENTITY, Formula, error_of
from expacc.ops.rivals import compute_dtype, row_dtype, rows_per_block, split_rows, summarize_rivals
from expacc.ops.row_loss import (
    RowLoss,
    RowPlan,
    compose_row_loss,
    composed_gradient,
    reduce_values,
)

_SMALL_ELEMENTS = 16_384


def row_loss(logits: Tensor, index: Tensor, plan: RowPlan) -> Tensor:
    """``scale · loss``, (N, 1, …), or its sum.

    Args:
        logits: (N, C, …).
        index: (N, 1, …), labels in range.
        plan: the rest.
    """
    if not is_plain_eager():
        return compose_row_loss(logits, index, plan)
    if logits.is_cpu and logits.numel() <= _SMALL_ELEMENTS and logits.shape[CLASS_AXIS] > 2:
        parts = _small_parts(logits.detach(), index)
        if parts is not None:
            return _small_node(logits, index, plan, *parts)
    found = softmax_row_loss(logits, index, plan)
    return found if found is not None else _block_node(logits, index, plan)


# --------------------------------------------------------------------------------- small batches


def _small_parts(logits: Tensor, index: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """(z_j - z_y, their sum, p_j/p_y with 0 at the label, their sum), or None if not finite.

    Of three classes or more: an only rival's log p may be next to nothing, where numbers cancel.
    """
    ahead = logits.clone() if logits.dtype == torch.float64 else logits.double()
    ahead.sub_(ahead.gather(CLASS_AXIS, index))
    ratios = torch.exp(ahead).scatter_(CLASS_AXIS, index, 0)
    # A rival 709 ahead overflows, a masked one is infinitely behind: the blocks handle both.
    # Reading a CPU number is cheap.
    behind, odds = (one.sum(CLASS_AXIS, keepdim=True) for one in (ahead, ratios))
    if not math.isfinite((behind + odds).sum().item()):
        return None
    return ahead, behind, ratios, odds


class _SmallNode(torch.autograd.Function):
    """The loss of a small batch on the CPU, from its ``_small_parts``."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        index: Tensor,
        plan: RowPlan,
        ahead: Tensor,
        behind: Tensor,
        ratios: Tensor,
        odds: Tensor,
    ) -> Tensor:
        ctx.plan = plan
        log_odds = torch.log1p(odds)
        log_prob, rests = -log_odds, []
        for share in plan.loss.shares:
            if share.curve is IDENTITY:
                rests.append(behind.sub_(log_odds, alpha=logits.shape[CLASS_AXIS] - 1))
            else:
                values = share.curve.value(ahead - log_odds).scatter_(CLASS_AXIS, index, 0)
                rests.append(values.sum(CLASS_AXIS, keepdim=True))
        ctx.save_for_backward(logits, index, log_prob, ahead, ratios, odds, *rests)
        return reduce_values(plan.loss.value(log_prob, rests), plan)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        logits, index, log_prob, ahead, ratios, odds, *rests = ctx.saved_tensors
        plan, upstream = ctx.plan, grad_outputs[0]
        if wants_composed(upstream):
            grad = composed_gradient(logits, index, plan, upstream)
            return grad, None, None, None, None, None, None
        prob = torch.exp(log_prob)
        along, by_rest = plan.loss.slopes(log_prob, prob, rests)
        chain = (upstream.item() if plan.summed else upstream.double()) * plan.scale
        counts, levels = [], []  # L_R G and L_R g'(u_k) of every sum
        for share, lift in zip(plan.loss.shares, by_rest, strict=True):
            if share.curve is IDENTITY:
                counts.append(lift * (logits.shape[CLASS_AXIS] - 1))
                levels.append(lift)
            else:
                slopes = share.curve.slope(ahead + log_prob, ratios * prob)
                slopes.scatter_(CLASS_AXIS, index, 0)
                counts.append(lift * slopes.sum(CLASS_AXIS, keepdim=True))
                levels.append(slopes.mul_(lift))
        through, level = reduce(torch.add, counts), reduce(torch.add, levels)
        prob.mul_(chain)
        push = torch.add(along, through).mul_(prob).neg_()
        pull = along.mul_(odds).sub_(through).mul_(prob)  # 1 - p = odds · p
        grad = torch.addcmul(level * chain, ratios, push).scatter_(CLASS_AXIS, index, pull)
        grad = grad.to(logits.dtype)
        if plan.kept is not None:
            grad.masked_fill_(~plan.kept, 0)
        return grad, None, None, None, None, None, None


# The inherited apply: Function.apply would first look for transforms, and there are none.
_small_node: Callable[..., Tensor] = super(torch.autograd.Function, _SmallNode).apply


# --------------------------------------------------------------------------------- large batches


class _BlockNode(torch.autograd.Function):
    """The loss of a batch of any size on any device, in row blocks."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, index: Tensor, plan: RowPlan) -> Tensor:
        ctx.plan = plan
        rows, work = row_dtype(logits.device), compute_dtype(logits.dtype)
        behind = torch.empty(index.shape, dtype=work, device=logits.device)
        top, total, ctx.shares, fix = summarize_rivals(
            logits, index, work, ctx.needs_input_grad[0], behind
        )
        log_total = total.to(rows).log()
        own = logits.gather(CLASS_AXIS, index).to(rows)
        own.masked_fill_(own == torch.inf, torch.nan)  # a softmax of +inf is none
        lead = own.sub_(top).sub_(log_total)
        log_prob = logsigmoid(lead)
        # log Σ e^{z - top} over all classes; 0 where there is no rival.
        offset = (log_total + softplus(lead, threshold=700.0)).masked_fill_(total == 0, 0)
        if plan.kept is not None:
            behind.masked_fill_(~plan.kept, 0)
        # A finite sum has no masked class in it; where looking costs a wait there may be one.
        ctx.masked = not (logits.is_cpu and math.isfinite(behind.sum().item()))
        ctx.step = rows_per_block(logits)
        rests = []
        for share in plan.loss.shares:
            if share.curve is IDENTITY and not ctx.masked:
                count = logits.shape[CLASS_AXIS] - 1
                rest = behind.to(rows).sub_(offset, alpha=count)
            else:
                rest = _class_sum(share.curve, logits, index, top, offset, ctx)
            rests.append(rest if share.complement else share.rest(rest))
        ctx.save_for_backward(logits, index, log_prob, top, fix, offset, *rests)
        return reduce_values(plan.loss.value(log_prob, rests), plan)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        logits, index, log_prob, top, fix, offset, *rests = ctx.saved_tensors
        plan, upstream = ctx.plan, grad_outputs[0]
        if wants_composed(upstream):
            return composed_gradient(logits, index, plan, upstream), None, None
        chain = upstream.to(log_prob.dtype) * plan.scale
        prob, error = torch.exp(log_prob), error_of(log_prob)
        along, by_rest = plan.loss.slopes(log_prob, prob, rests)
        along.mul_(chain)
        # The shares become the gradient in place; only a second backward makes them again.
        shares, ctx.shares = ctx.shares, None
        if shares is None:
            behind = torch.empty_like(top)
            shares = summarize_rivals(logits, index, top.dtype, True, behind).shares
        rows = (top, offset.to(top.dtype), along, prob, error, error / fix)  # p_k = part · share_k
        lifts = [one * chain for one in by_rest]
        for block in split_rows(ctx.step, logits, index, shares, *rows, *lifts):
            _spread(plan.loss, ctx.masked, *block)
        grad = shares.to(logits.dtype)
        if plan.kept is not None:
            grad.masked_fill_(~plan.kept, 0)
        return grad, None, None


_block_node: Callable[..., Tensor] = _BlockNode.apply


def _class_sum(
    curve: Formula, logits: Tensor, index: Tensor, top: Tensor, offset: Tensor, ctx: Any
) -> Tensor:
    """Σ_{j≠y} g(log p_j) over the classes that are not masked."""
    sums = torch.empty_like(offset)
    narrow = offset if ctx.masked else offset.to(top.dtype)
    for block, labels, highest, less, out in split_rows(ctx.step, logits, index, top, narrow, sums):
        log_probs = torch.sub(block.to(narrow.dtype), highest).sub_(less)
        values = curve.value(log_probs).scatter_(CLASS_AXIS, labels, 0)
        if ctx.masked:
            values = torch.where(log_probs == -torch.inf, 0, values)
        out.copy_(values.sum(CLASS_AXIS, keepdim=True))
    return sums


def _spread(
    loss: RowLoss,
    masked: bool,
    logits: Tensor,
    labels: Tensor,
    shares: Tensor,
    top: Tensor,
    offset: Tensor,
    along: Tensor,
    prob: Tensor,
    error: Tensor,
    part: Tensor,
    *lifts: Tensor,
) -> None:
    """The gradient of a block, in the place of its shares."""
    work = top.dtype
    through, level, extra = torch.zeros_like(along), torch.zeros_like(top), None  # Σ L_R G first
    for share, lift in zip(loss.shares, lifts, strict=True):
        if share.curve is IDENTITY and not masked:
            through = torch.add(through, lift, alpha=logits.shape[CLASS_AXIS] - 1)
            level = level + lift.to(work)
            continue
        log_probs = torch.sub(logits.to(work), top).sub_(offset)
        slopes = share.curve.slope(log_probs, shares * part.to(work))
        if masked:
            slopes = torch.where(log_probs == -torch.inf, 0, slopes)
        slopes = slopes.scatter_(CLASS_AXIS, labels, 0)
        through = through + lift * slopes.sum(CLASS_AXIS, keepdim=True)
        slopes.mul_(lift.to(work))
        extra = slopes if extra is None else extra.add_(slopes)
    grad = shares.mul_((-(along + through) * part).to(work)).add_(level)
    if extra is not None:
        grad.add_(extra)
    pull = (along * error - prob * through).to(work)
    grad.scatter_(CLASS_AXIS, labels, pull)
    if logits.shape[CLASS_AXIS] == 2:  # an only rival may have next to nothing, as the label
        grad.scatter_(CLASS_AXIS, 1 - labels, -pull)
