"""P and ∂P/∂m_i of P(the true class wins) for logistic and Laplace noise: what training needs.

With unit noise of density f and distribution F on every logit, the true class wins with probability
P = ∫ f(z) ∏ F(z + m_i) dz, m_i its leads; ∂P/∂m_i = ∫ f(z) f(z + m_i) ∏_{j≠i} F(z + m_j) dz.
``any_noise.py`` places nodes anew for every row, to all digits. Here a fixed rule does, about the
point where the true class and its nearest rival are level: the trapezoidal rule. The integrand of
the logistic is smooth. The Laplace density has a kink at 0, so a slope's integrand has two; of each
the first term of the rule's error is known and taken off. A slope is at most 0.25; the error is
below 1e-5 for the logistic and below 3e-4 for the Laplace. Of a row hundreds of units behind, the
slope of log P is within 0.1.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from expacc.ops.orthant.noise import constant_like

BY_RULE = ("logistic", "laplace")  # the others have fast roads of their own
FAR = 14.0  # a lead or lag beyond: its slope is e^-14
_REACH = FAR / 2 + 6  # of the nodes, about the centre
_STEP = {"logistic": 0.6, "laplace": 0.25}  # the smooth one needs fewer nodes
_SLICE = 1 << 17  # numbers evaluated at once: the second-level cache


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
    rivals, rows = leads.shape
    step = _STEP[noise]
    # Of many level rivals the best is higher by the logarithm of their number.
    below, above = (
        math.ceil(reach / step) for reach in (_REACH, _REACH + math.log(max(1, rivals)))
    )
    most = max(1, _SLICE // (max(1, rivals) * max(rivals, below + above + 1)))
    if rows > most:
        parts = [noise_slopes(part, noise) for part in torch.split(leads, most, 1)]
        chance, slopes, shift = (torch.cat(each, -1) for each in zip(*parts, strict=True))
        return chance, slopes, shift
    leads = leads.clamp(min=-1e30)  # -inf is behind, too; NaN stays
    shift = (-FAR - leads.amin(0)).clamp_(min=0)
    raised = (leads + shift).clamp_(max=FAR)
    offsets = tuple(k * step for k in range(-below, above + 1))
    centre = raised.amin(0) / -2
    z = constant_like(offsets, leads).view(-1, 1, 1) + centre  # (nodes, 1, rows)
    lower, hazard = _PARTS[noise](raised + z)
    own, own_hazard = _PARTS[noise](z)
    won = lower.prod(1, keepdim=True).mul_(own.mul_(own_hazard)).mul_(step)
    slopes, chance = hazard.mul_(won).sum(0), won.sum((0, 1))
    if noise == "laplace":
        chance_off, slopes_off = _kinks(raised, centre, step)
        chance, slopes = chance.sub_(chance_off), slopes.sub_(slopes_off).clamp_(min=0)
    return chance, slopes.mul_(leads < FAR), shift


def _kinks(leads: Tensor, centre: Tensor, step: float) -> tuple[Tensor, Tensor]:
    """What the rule is off by, of P and of its slopes, for their kinks, to third order.

    Where a derivative jumps by J, a share t of the step behind a node, the trapezoidal rule is off
    by J step² (t - t² - 1/6)/2. That of f jumps by -1 at 0: for P, J = -∏ F there; both kinks of a
    slope's integrand, at 0 and at -m_i, have J = -f(m_i) ∏_{j≠i} F there.
    """

    def off(place: Tensor) -> Tensor:
        share = torch.remainder((place - centre) / step, 1.0)
        return (share - share.square()).sub_(1 / 6).mul_(-step * step / 2)

    lower, hazard = _laplace(leads)
    at_own = lower.prod(0).mul_(off(torch.zeros_like(centre)))
    apart = leads.unsqueeze(1) - leads  # (j, i, rows): m_j - m_i, at z = -m_i; F is 1/2 for i
    density = leads.abs().neg_().exp_()  # f(m_i)/F(0)
    at_rival = _laplace(apart)[0].prod(0).mul_(density).mul_(off(-leads))
    return at_own, at_rival.addcmul_(hazard, at_own)
