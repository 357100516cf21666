"""Losses that divide by their own sum over the classes: g(u_y) / Σ_j g(u_j), u = log softmax.

With R = Σ_{j≠y} g(u_j), the rivals' part, such a loss is a function of two numbers per row, u_y and
R, and

    dL/dz_k = -p_k (L_u + L_R G) + L_R g'(u_k),    dL/dz_y = (1 - p_y) L_u - p_y L_R G

for a rival k and the label, G = Σ_{j≠y} g'(u_j). As in ``log_prob.py`` the label is compared with
its rivals, so that 1 - p keeps its digits, rows are float64, and there are three ways:

* ``compose_all``: differentiable operations, for all classes as the label, hence for probabilities
  as the target too;
* ``_SmallNode`` for a small batch, in float64 and as few operations as possible;
* ``_BlockNode`` for everything else, in row blocks; nothing of the logits' size is kept.

A masked class (logit -inf) is absent. Whether there is one shows in the sums: an infinite one.
"""

import math
from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from expacc.ops.dispatch import CLASS_AXIS, is_plain_eager, wants_composed
from expacc.ops.log_prob import (
    IDENTITY,
    Formula,
    apply_formula,
    compose_target_lead,
    error_of,
)
from expacc.ops.rivals import (
    compute_dtype,
    row_dtype,
    rows_per_block,
    split_rows,
    summarize_rivals,
)

_SMALL_ELEMENTS = 16_384


class Share(NamedTuple):
    """``weight`` times the label's part g(u_y) / Σ_j g(u_j), or 1 minus it.

    g is ``curve`` without its factor: below 0, or for a ``complement`` above.
    """

    curve: Formula
    weight: float
    complement: bool = False

    def rest(self, rest: Tensor) -> Tensor:
        """The sum, neither infinite nor 0: without rivals a part is 0 of something."""
        limits = torch.finfo(rest.dtype)
        least = limits.tiny**0.9
        if self.complement:
            return rest.clamp(min=least)
        return rest.clamp(min=limits.min / 4, max=-least)

    def value(self, own: Tensor, rest: Tensor) -> Tensor:
        """From g(u_y) and the rivals' sum."""
        if self.complement:
            return rest / self.rest(own + rest) * self.weight
        return self.weight / (1 + rest / own)  # 1 for a label that is infinitely behind

    def slopes(self, own: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
        """Of the value in both."""
        if self.complement:
            total = self.rest(own + rest)
            return rest / total / total * -self.weight, own / total / total * self.weight
        total = own + rest
        return rest / total / total * self.weight, -self.weight / (1 + rest / own) / total


class RowLoss(NamedTuple):
    """A sum of ``shares``, and a curve over u_y."""

    shares: tuple[Share, ...]
    curve: Formula | None = None

    def value(self, log_prob: Tensor, rests: list[Tensor]) -> Tensor:
        """Of rows, from u_y and the rivals' sums."""
        values = [
            share.value(share.curve.value(log_prob), rest)
            for share, rest in zip(self.shares, rests, strict=True)
        ]
        if self.curve is not None:
            values.append(self.curve.value(log_prob) * self.curve.factor)
        return reduce(torch.add, values)

    def slopes(
        self, log_prob: Tensor, prob: Tensor, rests: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """dL/du_y, and dL/dR for each sum."""
        along, by_rest = [], []
        for share, rest in zip(self.shares, rests, strict=True):
            by_own, by_rivals = share.slopes(share.curve.value(log_prob), rest)
            linear = share.curve is IDENTITY
            along.append(by_own if linear else by_own * share.curve.slope(log_prob, prob))
            by_rest.append(by_rivals)
        if self.curve is not None:
            along.append(self.curve.slope(log_prob, prob) * self.curve.factor)
        return reduce(torch.add, along), by_rest


class RowPlan(NamedTuple):
    """As ``log_prob.Plan``, with the loss in place of the formula."""

    loss: RowLoss
    kept: Tensor | None
    scale: Tensor | float
    summed: bool
    dtype: torch.dtype


# ------------------------------------------------------------------------------- the reference


def compose_all(log_probs: Tensor, loss: RowLoss) -> Tensor:
    """The loss of every class as the label, from the log p of all, (N, C, …)."""
    present = log_probs > -torch.inf
    shown = torch.where(present, log_probs, -1)
    total = torch.zeros_like(log_probs)
    for share in loss.shares:
        own = apply_formula(shown, share.curve) / share.curve.factor
        sums = share.rest(torch.where(present, own, 0).sum(CLASS_AXIS, keepdim=True))
        part = torch.where(present, own / sums, 0 if share.complement else 1)
        total = total + (1 - part if share.complement else part) * share.weight
    return total if loss.curve is None else total + apply_formula(log_probs, loss.curve)


def _composed(logits: Tensor, index: Tensor, plan: RowPlan) -> Tensor:
    """(N, 1, …) by operations that torch differentiates as often as it likes."""
    if plan.kept is not None:
        logits = torch.where(plan.kept, logits, 0)
    logits = logits.to(row_dtype(logits.device))
    best = logits.detach().argmax(CLASS_AXIS, keepdim=True)  # the only p that may be near to 1
    exact = apply_formula(compose_target_lead(logits, best), IDENTITY, is_lead=True)
    log_probs = logits.log_softmax(CLASS_AXIS).scatter(CLASS_AXIS, best, exact)
    # NaN or +inf anywhere, or nothing but -inf, is in every log p; but not in a masked one's part.
    sound = log_probs.detach().amax(CLASS_AXIS, keepdim=True)
    values = compose_all(log_probs, plan.loss).gather(CLASS_AXIS, index) + (sound - sound)
    if plan.kept is not None:
        values = torch.where(plan.kept, values, 0)
    values = values * plan.scale
    return (values.sum() if plan.summed else values).to(plan.dtype)


def _composed_gradient(logits: Tensor, index: Tensor, plan: RowPlan, upstream: Tensor) -> Tensor:
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        value = _composed(logits, index, plan)
        return torch.autograd.grad(value, logits, upstream, create_graph=again)[0]


def row_loss(logits: Tensor, index: Tensor, plan: RowPlan) -> Tensor:
    """``scale · loss``, (N, 1, …), or its sum.

    Args:
        logits: (N, C, …).
        index: (N, 1, …), labels in range.
        plan: the rest.
    """
    if not is_plain_eager():
        return _composed(logits, index, plan)
    if logits.is_cpu and logits.numel() <= _SMALL_ELEMENTS and logits.shape[CLASS_AXIS] > 2:
        parts = _small_parts(logits.detach(), index)
        if parts is not None:
            return _small_node(logits, index, plan, *parts)
    return _block_node(logits, index, plan)


def _reduce(values: Tensor, plan: RowPlan) -> Tensor:
    if plan.kept is not None:
        values.masked_fill_(~plan.kept, 0)
    if plan.summed and values.is_cpu and not isinstance(plan.scale, Tensor):
        return torch.scalar_tensor(values.sum().item() * plan.scale, dtype=plan.dtype)
    values = values * plan.scale
    return (values.sum() if plan.summed else values).to(plan.dtype)


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
        return _reduce(plan.loss.value(log_prob, rests), plan)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        logits, index, log_prob, ahead, ratios, odds, *rests = ctx.saved_tensors
        plan, upstream = ctx.plan, grad_outputs[0]
        if wants_composed(upstream):
            grad = _composed_gradient(logits, index, plan, upstream)
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
        return _reduce(plan.loss.value(log_prob, rests), plan)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        logits, index, log_prob, top, fix, offset, *rests = ctx.saved_tensors
        plan, upstream = ctx.plan, grad_outputs[0]
        if wants_composed(upstream):
            return _composed_gradient(logits, index, plan, upstream), None, None
        chain = upstream.to(log_prob.dtype) * plan.scale
        prob, error = torch.exp(log_prob), error_of(log_prob)
        along, by_rest = plan.loss.slopes(log_prob, prob, rests)
        along.mul_(chain)
        # The shares become the gradient in place; only a second backward makes them again.
        shares, ctx.shares = ctx.shares, None
        if shares is None:
            shares = summarize_rivals(logits, index, top.dtype, keep=True).shares
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
