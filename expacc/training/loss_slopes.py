"""The slope of every loss in the logits, for many runs at once, each with its own numbers.

A step of training needs dL/dlogits and nothing else, and for the losses below that is a few lines
(derived in the docstrings of ``expacc.functional`` and ``expacc.baselines``). Writing it out, with
tensors for the numbers, saves autograd's bookkeeping and lets runs with different numbers share
one program. Tests hold every slope to autograd of the loss itself.

Shapes: logits (R, C, B), rows contiguous; numbers (R, 1, 1).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from expacc.ops import error_of
from expacc.ops.slopes import win_slopes

__all__ = ["CURVES", "Batch", "Numbers", "Slope", "along", "cross_entropy", "exact", "hinge"]


@dataclass(frozen=True)
class Batch:
    """The rows of a step.

    Args:
        labels: (R, 1, B).
        share: each row's part of its run's mean, (R, 1, B), or the same number for all.
        total: the weight of each run's rows, (R, 1, 1), or a number.
    """

    labels: Tensor
    share: Tensor | float
    total: Tensor | float

    def part(self, low: int, high: int) -> "Batch":
        """Of the runs from ``low`` to ``high``."""
        share, total = (
            value[low:high] if isinstance(value, Tensor) else value
            for value in (self.share, self.total)
        )
        return Batch(self.labels[low:high], share, total)


Numbers = Mapping[str, Tensor]
Slope = Callable[[Tensor, Batch, Numbers], Tensor]
Curve = Callable[[Tensor, Numbers], Tensor]  # -dL/du of u = log p(target), (R, 1, B)


def _focal(u: Tensor, n: Numbers) -> Tensor:
    tiny = torch.finfo(u.dtype).tiny
    error = error_of(u)
    quotient = u.clamp(min=-1e30, max=-tiny) / error.clamp(min=tiny)  # -1 where both vanish
    return error.pow(n["gamma"]) * (1 - n["gamma"] * u.exp() * quotient) * n["alpha"]


def _generalized(u: Tensor, n: Numbers) -> Tensor:
    return torch.where(u > n["truncation"].log(), (u * n["q"]).exp(), 0)


CURVES: dict[str, Curve] = {
    "expected_error": lambda u, n: u.exp(),
    "leaky_expected_error": lambda u, n: u.exp() + n["leak"],
    "mixed_expected_error": lambda u, n: u.exp() * n["error_weight"] + n["ce_weight"],
    "mean_absolute_error": lambda u, n: u.exp() * 2,
    "focal": _focal,
    "generalized_cross_entropy": _generalized,
    "tamed_cross_entropy": lambda u, n: (1 - u).pow(-n["taming"]),
    "poly1_cross_entropy": lambda u, n: u.exp() * n["epsilon"] + 1,
}


def along(curve: Curve) -> Slope:
    """dL/dlogits_j = lift · (p_j - 1[j = y]) with lift = -dL/du."""

    def slope(logits: Tensor, batch: Batch, numbers: Numbers) -> Tensor:
        log_probs = logits.log_softmax(1)
        lift = curve(log_probs.gather(1, batch.labels), numbers).mul_(batch.share)
        return log_probs.exp_().mul_(lift).scatter_add_(1, batch.labels, lift.neg_())

    return slope


def cross_entropy(logits: Tensor, batch: Batch, numbers: Numbers) -> Tensor:
    """dL/dlogits_j = p_j - 1[j = y]."""
    share = batch.share
    down = -share if isinstance(share, Tensor) else logits.new_full((1, 1, 1), -share)
    slope = logits.softmax(1).mul_(share)
    return slope.scatter_add_(1, batch.labels, down.expand(batch.labels.shape))


def hinge(logits: Tensor, batch: Batch, numbers: Numbers) -> Tensor:
    """1/rivals for each rival within the margin, minus their sum at the label."""
    true = logits.gather(1, batch.labels)
    within = (logits + numbers["margin"] > true).to(logits.dtype)
    within.scatter_(1, batch.labels, 0)
    within.scatter_(1, batch.labels, within.sum(1, keepdim=True).neg_())
    return within.mul_(1 / max(1, logits.shape[1] - 1)).mul_(batch.share)


def standardize(logits: Tensor, batch: Batch) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Logits of mean 0 and deviation 1 over each run's rows, and how a slope goes back.

    The deviation is the unbiased one, counted in rows: a row of weight k is k rows.
    """
    classes = logits.shape[1]
    part = batch.share / classes
    count = batch.total * classes
    correction = count / (count - 1)
    if isinstance(part, Tensor):
        mean = (logits * part).sum((1, 2), keepdim=True)
        centred = logits - mean
        variance = (centred.square() * part).sum((1, 2), keepdim=True) * correction
    else:
        centred = logits - logits.mean((1, 2), keepdim=True)
        variance = centred.square().sum((1, 2), keepdim=True).mul_(part * correction)
    deviation = torch.where(variance > 0, variance, 1).sqrt_()  # constant logits stay as they are
    scores = centred.div_(deviation)

    def back(slope: Tensor) -> Tensor:
        # Through the deviation; through the mean nothing, as a row's slopes sum to 0.
        along_scores = (slope * scores).sum((1, 2), keepdim=True).mul_(correction)
        if isinstance(part, Tensor):
            return slope.sub_(scores * part * along_scores).div_(deviation)
        return slope.addcmul_(scores, along_scores, value=-part).div_(deviation)

    return scores, back


def exact(standardized: bool) -> Slope:
    """EXACT with normal noise: standardise, leads, clip at the margin, divide by sigma, 1 - P."""

    def slope(logits: Tensor, batch: Batch, numbers: Numbers) -> Tensor:
        runs, classes, rows = logits.shape
        if classes == 1:
            return torch.zeros_like(logits)
        scores, back = standardize(logits, batch) if standardized else (logits, None)
        place = torch.arange(classes - 1, device=logits.device).unsqueeze(1)
        rivals = place + (place >= batch.labels)  # (R, C - 1, B): all classes but the label
        lead = scores.gather(1, batch.labels) - scores.gather(1, rivals)
        margin, sigma = numbers["margin"], numbers["sigma"]
        units = torch.minimum(lead, margin).div_(sigma)
        flat = units.transpose(0, 1).reshape(classes - 1, runs * rows)
        win = win_slopes(flat).view(classes - 1, runs, rows).transpose(0, 1)
        # A lead beyond the margin counts as the margin: no slope.
        win = torch.where(lead < margin, win, 0).mul_(batch.share / sigma)
        total = torch.empty_like(logits).scatter_(1, rivals, win)
        total.scatter_(1, batch.labels, win.sum(1, keepdim=True).neg_())
        return back(total) if back else total

    return slope
