"""EXACT with other noise on the logits, fast enough to train with.

With unit noise of density f and distribution F on every logit, the true class wins with probability
P = ∫ f(z) ∏ F(z + m_i) dz, m_i its leads; ∂P/∂m_i = ∫ f(z) f(z + m_i) ∏_{j≠i} F(z + m_j) dz.
``expacc.exact_error`` knows four noises; for the normal and the Gumbel it is fast. For the logistic
and the Laplace it places nodes anew for every row, to all digits. Here a fixed rule does, about the
point where the true class and its nearest rival are level: the trapezoidal rule is exact to 1e-6
for the logistic, whose integrand is smooth, and to some per mille for the Laplace, which has kinks.

All noises are scaled to the standard deviation ``sigma``, so that only their shape differs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from expacc.functional.standardize import standardize_logits
from expacc.ops.sampling import genz_orthant_prob
from expacc.training.loss_slopes import Batch, standardize

NoiseName = Literal["normal", "gumbel", "logistic", "laplace"]

# Noise → its standard deviation at scale 1.
NOISES: dict[str, float] = {
    "normal": 1.0,
    "gumbel": math.pi / math.sqrt(6),
    "logistic": math.pi / math.sqrt(3),
    "laplace": math.sqrt(2),
}
BY_RULE = ("logistic", "laplace")  # the others have fast losses of their own
_STEP = {"logistic": 1.0, "laplace": 0.25}  # the smooth one needs fewer nodes
_FAR = 14.0  # a lead or lag beyond: its slope is e^-14
_REACH = _FAR / 2 + 6  # of the nodes, about the centre


def _logistic(x: Tensor) -> tuple[Tensor, Tensor]:
    """F, and f / F."""
    return torch.sigmoid(x), torch.sigmoid(-x)


def _laplace(x: Tensor) -> tuple[Tensor, Tensor]:
    tail = x.abs().neg_().exp_().mul_(0.5)  # also the density
    below = torch.where(x < 0, tail, 1 - tail)
    return below, tail / below


_PARTS: dict[str, Callable[[Tensor], tuple[Tensor, Tensor]]] = {
    "logistic": _logistic,
    "laplace": _laplace,
}


def noise_slopes(leads: Tensor, noise: str) -> tuple[Tensor, Tensor, Tensor]:
    """P and ∂P/∂lead of leads (rivals, rows), both times e^shift, and that shift, (rows).

    Both noises have exponential tails: far behind, the leads of a row may be raised by a common
    shift, and P is smaller by e^-shift. So its logarithm and that's slope keep their digits.
    """
    shift = (-_FAR - leads.amin(0)).clamp_(min=0)
    raised = (leads + shift).clamp_(max=_FAR)
    step = _STEP[noise]
    count = math.ceil(_REACH / step)
    offsets = torch.arange(-count, count + 1, dtype=leads.dtype, device=leads.device) * step
    z = offsets.view(-1, 1, 1) - raised.amin(0) / 2  # (nodes, 1, rows)
    below, hazard = _PARTS[noise](raised + z)
    own, own_hazard = _PARTS[noise](z)
    won = below.prod(1, keepdim=True).mul_(own.mul_(own_hazard)).mul_(step)
    slopes = hazard.mul_(won).sum(0).mul_(leads < _FAR)
    return won.sum((0, 1)), slopes, shift


class _Mean(torch.autograd.Function):
    """The mean of 1 - P or -log P over rows, of logits (rows, classes); its slope comes along.

    In one node and by hand: at 256 rows the bookkeeping of autograd would cost more than the sums.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, loss: "RuleLoss") -> Tensor:
        rows, classes = logits.shape
        batch = Batch(target.view(1, 1, -1), 1 / rows, float(rows))
        scores, back = standardize(logits.t().unsqueeze(0), batch)
        place = torch.arange(classes - 1, device=target.device).unsqueeze(1)
        rivals = (place + (place >= target)).unsqueeze(0)
        unit = loss.sigma / NOISES[loss.noise]
        leads = (scores.gather(1, batch.labels) - scores.gather(1, rivals)).squeeze(0)
        cut = leads if loss.margin is None else leads.clamp(max=loss.margin)
        chance, slopes, shift = noise_slopes(cut / unit, loss.noise)
        small = shift.neg().exp_()
        slopes = slopes.div_(chance) if loss.log else slopes.mul_(small)
        if loss.margin is not None:  # a lead beyond the margin counts as the margin: no slope
            slopes.mul_(leads < loss.margin)
        slopes = slopes.unsqueeze(0).div_(unit * rows)
        total = torch.empty_like(scores).scatter_(1, rivals, slopes)
        total.scatter_(1, batch.labels, slopes.sum(1, keepdim=True).neg_())
        ctx.save_for_backward(back(total).squeeze(0).t())
        return (shift - chance.log() if loss.log else 1 - chance * small).mean()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        return slope * grads[0], None, None


@dataclass(frozen=True)
class RuleLoss:
    """Mean EXACT, or mean -log P, with logistic or Laplace noise of one sigma."""

    noise: str
    log: bool
    sigma: float
    margin: float | None

    def __call__(self, logits: Tensor, target: Tensor) -> Tensor:
        """The mean over the rows; the logits are standardised."""
        value: Tensor = _Mean.apply(logits, target, self)  # type: ignore[no-untyped-call]
        return value


def leads_of(logits: Tensor, target: Tensor, sigma: float, margin: float | None) -> Tensor:
    """The paper's Listing 1: standardised, the lead over each rival, cut at the margin."""
    scores = standardize_logits(logits, None, sync=False)
    place = torch.arange(scores.shape[1] - 1, device=target.device)
    own = target.unsqueeze(1)
    leads = scores.gather(1, own) - scores.gather(1, place + (place >= own))
    return (leads if margin is None else leads.clamp(max=margin)) / sigma


@dataclass(frozen=True, eq=False)
class SampledLoss:
    """Mean EXACT by the authors' sampler, with their 16 samples."""

    sigma: float
    margin: float | None
    generator: torch.Generator

    def __call__(self, logits: Tensor, target: Tensor) -> Tensor:
        """The mean over the rows."""
        leads = leads_of(logits, target, self.sigma, self.margin)
        return 1 - genz_orthant_prob(leads, samples=16, generator=self.generator).mean()
