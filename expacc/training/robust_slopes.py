"""The slopes of the losses against wrong labels that are no curves over log p(target).

Derived in the docstrings of ``expacc.functional``; shapes as in ``loss_slopes``.
"""

import torch
from torch import Tensor

from expacc.ops.orthant.slopes import EXP_MIN
from expacc.registry import SPECS
from expacc.training.loss_slopes import Batch, Numbers, Slope

__all__ = ["SLOPES"]

_LEAST_EXCESS = 1e-12  # of t2 over 1, where the tempered softmax is the softmax to rounding
_NEWTON_STEPS = 10


def _softmax(logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """log p of all, p of all, and log p of the label."""
    log_probs = logits.log_softmax(1)
    # exp of less is nothing beside the label's own slope, but takes 50 times as long.
    return log_probs, log_probs.clamp(min=EXP_MIN).exp_(), log_probs.gather(1, batch.labels)


def _spread(probs: Tensor, lift: Tensor, batch: Batch) -> Tensor:
    """lift · (p_j - 1[j = y]), not yet by the rows' shares."""
    return (probs * lift).scatter_add_(1, batch.labels, -lift)


def _of_part(values: Tensor, slopes: Tensor, probs: Tensor, batch: Batch) -> Tensor:
    """The slope of g_y / Σ_j g_j, from all g and g'."""
    own, own_slope = values.gather(1, batch.labels), slopes.gather(1, batch.labels)
    total = values.sum(1, keepdim=True)
    # Without a rival, as for one class, the part is 1 and has no slope.
    total = torch.where(total == 0, 1, total)
    found = _spread(probs, -own_slope / total, batch)
    through = probs * slopes.sum(1, keepdim=True) - slopes
    return found.addcmul_(through, own / total.square())


def _active_passive(passive: str | None) -> Slope:
    """Normalised cross entropy plus a curve, each with its weight."""
    pull = None if passive is None else SPECS[passive].slope

    def slope(logits: Tensor, batch: Batch, numbers: Numbers) -> Tensor:
        log_probs, probs, own = _softmax(logits, batch)
        total = log_probs.sum(1, keepdim=True)
        total = torch.where(total == 0, -1, total)
        active = numbers["active_weight"] if callable(pull) else 1.0
        lift = -active / total
        if callable(pull):
            lift = lift + numbers["passive_weight"] * pull(own, numbers)
        level = own * active / total.square()
        found = probs.mul(lift + level * logits.shape[1]).sub_(level)
        return found.scatter_add_(1, batch.labels, -lift).mul_(batch.share)

    return slope


def _normalized_focal(logits: Tensor, batch: Batch, numbers: Numbers) -> Tensor:
    log_probs, probs, _ = _softmax(logits, batch)
    tiny = torch.finfo(logits.dtype).tiny
    error = -log_probs.expm1()
    power = error.pow(numbers["gamma"])
    # -1 where both vanish.
    quotient = log_probs.clamp(min=-1e30, max=-tiny) / error.clamp(min=tiny)
    slopes = power * (1 - numbers["gamma"] * probs * quotient)
    return _of_part(power * log_probs, slopes, probs, batch).mul_(batch.share)


def _active_negative(logits: Tensor, batch: Batch, numbers: Numbers) -> Tensor:
    log_probs, probs, _ = _softmax(logits, batch)
    active = _of_part(log_probs, torch.ones_like(probs), probs, batch)
    above = log_probs - numbers["floor"].log()
    slopes = (above > 0).to(probs.dtype)
    negative = _of_part(above.clamp_(min=0), slopes, probs, batch)
    found = active.mul_(numbers["active_weight"]) - negative.mul_(numbers["negative_weight"])
    return found.mul_(batch.share)


def _epsilon_softmax(logits: Tensor, batch: Batch, numbers: Numbers) -> Tensor:
    _, probs, own = _softmax(logits, batch)
    prob = own.exp()
    wins = logits.gather(1, batch.labels) >= logits.amax(1, keepdim=True)
    entropy = torch.where(wins, prob / (prob + numbers["boost"]), 1)
    lift = entropy * numbers["ce_weight"] + prob * (2 * numbers["mae_weight"])
    return _spread(probs, lift, batch).mul_(batch.share)


def _bi_tempered(logits: Tensor, batch: Batch, numbers: Numbers) -> Tensor:
    t1, excess = numbers["t1"], (numbers["t2"] - 1).clamp(min=_LEAST_EXCESS)
    fallen = logits - logits.amax(1, keepdim=True)
    normalizer = torch.zeros_like(fallen[:, :1])
    for _ in range(_NEWTON_STEPS):
        log_probs = ((normalizer - fallen) * excess).log1p() / -excess
        total = log_probs.exp().sum(1, keepdim=True)
        escort = (log_probs * (1 + excess)).exp().sum(1, keepdim=True)
        normalizer = normalizer + (total.log() * excess).expm1() * total / (escort * excess)
    log_probs = ((normalizer - fallen) * excess).log1p() / -excess
    escort = (log_probs * (1 + excess)).exp()
    escort = escort / escort.sum(1, keepdim=True)
    powers = (log_probs * (2 + excess - t1)).exp()
    own = (log_probs.gather(1, batch.labels) * (1 + excess - t1)).exp()
    found = powers + escort * (own - powers.sum(1, keepdim=True))
    return found.scatter_add_(1, batch.labels, -own).mul_(batch.share)


SLOPES: dict[str, Slope] = {
    "normalized_cross_entropy": _active_passive(None),
    "normalized_and_reverse_cross_entropy": _active_passive("reverse_cross_entropy"),
    "normalized_and_asymmetric_generalized": _active_passive(
        "asymmetric_generalized_cross_entropy"
    ),
    "normalized_and_asymmetric_unhinged": _active_passive("asymmetric_unhinged"),
    "normalized_and_asymmetric_exponential": _active_passive("asymmetric_exponential"),
    "normalized_focal": _normalized_focal,
    "active_negative": _active_negative,
    "bi_tempered": _bi_tempered,
    "epsilon_softmax": _epsilon_softmax,
}
