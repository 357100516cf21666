"""What a loss that divides by its own sum over the classes is, and its value in torch operations.

With R = Σ_{j≠y} g(u_j), the rivals' part, such a loss is a function of two numbers per row, u_y and
R; ``class_sums.py`` computes it.
"""

from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from expacc.ops.dispatch import CLASS_AXIS
from expacc.ops.log_prob import IDENTITY, Formula, apply_formula, compose_target_lead
from expacc.ops.rivals import row_dtype

# Of many classes with p <= 1/2, in buffers: g(u_j) in the place of u_j, from p_j, with room to
# spare, and g'(u_j) in the last. Or returns a where all g(u_j) are u_j - a, and leaves them alone.
Rivals = Callable[[Tensor, Tensor, Tensor, Tensor], float | None]


class Share(NamedTuple):
    """``weight`` times the label's part g(u_y) / Σ_j g(u_j), or 1 minus it.

    g is ``curve`` without its factor: below 0, or for a ``complement`` above. ``rivals`` is the
    same in few passes; a ``curved`` one hangs on the digits of 1 - p, too.
    """

    curve: Formula
    weight: float
    complement: bool = False
    rivals: Rivals | None = None
    curved: bool = False

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
        whole = torch.where(present, own, 0).sum(CLASS_AXIS, keepdim=True)
        part = own / share.rest(whole)
        if share.complement:  # all of it, of nothing too
            part = torch.where(own == whole, 1, part)
        part = torch.where(present, part, 0 if share.complement else 1)
        total = total + (1 - part if share.complement else part) * share.weight
    return total if loss.curve is None else total + apply_formula(log_probs, loss.curve)


def compose_row_loss(logits: Tensor, index: Tensor, plan: RowPlan) -> Tensor:
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


def composed_gradient(logits: Tensor, index: Tensor, plan: RowPlan, upstream: Tensor) -> Tensor:
    """Its gradient, itself differentiable."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        value = compose_row_loss(logits, index, plan)
        return torch.autograd.grad(value, logits, upstream, create_graph=again)[0]


def reduce_values(values: Tensor, plan: RowPlan) -> Tensor:
    """Rows' values, scaled and reduced; used up."""
    if plan.kept is not None:
        values.masked_fill_(~plan.kept, 0)
    if plan.summed and values.is_cpu and not isinstance(plan.scale, Tensor):
        return torch.scalar_tensor(values.sum().item() * plan.scale, dtype=plan.dtype)
    values = values * plan.scale
    return (values.sum() if plan.summed else values).to(plan.dtype)
