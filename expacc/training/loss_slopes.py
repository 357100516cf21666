"""The slope of every loss in the logits, for many runs at once, each with its own numbers.

A step of training needs dL/dlogits and nothing else. For a curve over log p(target) that is a line
of ``expacc.registry``, for the losses below a few (derived in the docstrings of
``expacc.functional``). Writing it out, with tensors for the numbers, saves autograd's bookkeeping
and lets runs with different numbers share one program. Tests hold every slope to autograd of the
loss itself.

Shapes: logits (R, C, B), rows contiguous; numbers (R, 1, 1).
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from expacc.ops.orthant.noise_slopes import noise_slopes
from expacc.ops.orthant.slopes import EXP_MIN, slopes_within, win_slopes
from expacc.registry import SPECS
from expacc.registry.spec import Pull

__all__ = [
    "CURVES",
    "Batch",
    "Numbers",
    "Slope",
    "along",
    "along_moved",
    "cross_entropy",
    "exact",
    "expected_balanced_error",
    "expected_distance",
    "expected_f1_error",
    "hinge",
]


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

    def repeated(self, times: int) -> "Batch":
        """Of so many runs that see each of these batches."""
        labels, share, total = (
            value.unsqueeze(1).expand(-1, times, -1, -1).flatten(0, 1)
            if isinstance(value, Tensor)
            else value
            for value in (self.labels, self.share, self.total)
        )
        return Batch(labels, share, total)  # type: ignore[arg-type]


Numbers = Mapping[str, Tensor]
Slope = Callable[[Tensor, Batch, Numbers], Tensor]
# -dL/du of every loss that is a curve over u = log p(target).
CURVES: dict[str, Pull] = {n: s.slope for n, s in SPECS.items() if callable(s.slope)}


def along(curve: Pull) -> Slope:
    """dL/dlogits_j = lift · (p_j - 1[j = y]) with lift = -dL/du."""

    def slope(logits: Tensor, batch: Batch, numbers: Numbers) -> Tensor:
        log_probs = logits.log_softmax(1)
        lift = curve(log_probs.gather(1, batch.labels), numbers).mul_(batch.share)
        # exp of less is nothing beside the label's own slope, but takes 50 times as long.
        probs = log_probs.clamp_(min=EXP_MIN).exp_()
        return probs.mul_(lift).scatter_add_(1, batch.labels, lift.neg_())

    slope.curve = curve  # type: ignore[attr-defined] # for those that compute several at once
    return slope


def along_moved(curve: Pull) -> Slope:
    """Of the p' with log p'/(1 - p') = scale · lead + shift, lead = log p/(1 - p).

    push = -dL/dlead is the label's; rivals share it as they share 1 - p. The label is compared
    with its rivals: 1 - p of a softmax has no digits left where p is nearly 1, and a scale below 1
    brings such rows back.
    """

    def slope(logits: Tensor, batch: Batch, numbers: Numbers) -> Tensor:
        scale, labels = numbers["scale"], batch.labels
        own = logits.gather(1, labels)
        rivals = logits.scatter(1, labels, -torch.inf)
        top = rivals.amax(1, keepdim=True)
        first = torch.maximum(own, top)
        sound = first - first  # NaN for a row that has no winner
        top = top.clamp_(min=torch.finfo(logits.dtype).min)  # so that -inf minus it is -inf
        shares = rivals.sub_(top).clamp_(min=EXP_MIN).exp_().scatter_(1, labels, 0)
        total = shares.sum(1, keepdim=True).clamp_(min=torch.finfo(logits.dtype).tiny)
        lead = (own - top).sub_(total.log()).mul_(scale).add_(numbers["shift"])
        push = curve(logsigmoid(lead), numbers) * logsigmoid(-lead).exp_()
        push = push.mul_(scale).mul_(batch.share).add_(sound)
        return shares.mul_(push / total).scatter_(1, labels, push.neg())

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
    return within.mul_(1 / max(1, logits.shape[1] - 1)).mul_(batch.share).add_(_unsound(logits))


def _unsound(logits: Tensor) -> Tensor:
    """0 for every row, (R, 1, B); NaN where NaN or +inf is in it: comparisons do not see them."""
    top = logits.amax(1, keepdim=True)
    return top - top


def _divisor(variance: Tensor) -> Tensor:
    """Constant logits are divided by 1; a variance that overflowed is no number."""
    return torch.where(variance == 0, 1, variance + (variance - variance))


def standardize(logits: Tensor, batch: Batch) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Logits of mean 0 and deviation 1 over each run's rows, and how a slope goes back.

    The deviation is the unbiased one, counted in rows: a row of weight k is k rows.
    """
    classes = logits.shape[1]
    part = batch.share / classes
    count = batch.total * classes
    if isinstance(count, Tensor):
        count = count.clamp(min=2)  # weights may sum to less than a row
    correction = count / (count - 1)
    mean = (logits * part).sum((1, 2), keepdim=True)
    centred = logits - mean
    variance = (centred.square() * part).sum((1, 2), keepdim=True) * correction
    inverse = _divisor(variance).rsqrt_()
    scores = centred.mul_(inverse)

    def back(slope: Tensor) -> Tensor:
        # Through the deviation; through the mean nothing, as a row's slopes sum to 0.
        along_scores = (slope * scores).sum((1, 2), keepdim=True).mul_(correction)
        return slope.sub_(scores * part * along_scores).mul_(inverse)

    return scores, back


def exact(standardized: bool, limited: bool, noise: str = "normal", log: bool = False) -> Slope:
    """EXACT: standardise, leads, clip at the margin, divide by sigma, 1 - P.

    Args:
        standardized: divide by the deviation of the batch.
        limited: whether any run has a margin.
        noise: normal, logistic or laplace.
        log: -log P in place of 1 - P; not with normal noise.
    """
    leads_slopes = win_slopes if noise == "normal" else functools.partial(_by_rule, noise, log)
    _win = functools.partial(_total, leads_slopes)

    def slope(logits: Tensor, batch: Batch, numbers: Numbers) -> Tensor:
        if logits.shape[1] == 1:
            return torch.zeros_like(logits)
        sigma = numbers["sigma"]
        limit = numbers["margin"] / sigma if limited else None
        if not standardized:
            total, _, _ = _win(logits, batch.labels, 1 / sigma, limit)
            return total.mul_(batch.share / sigma).add_(_unsound(logits))
        if isinstance(batch.share, Tensor):
            scores, back = standardize(logits, batch)
            total, _, _ = _win(scores, batch.labels, 1 / sigma, limit)
            return back(total.mul_(batch.share / sigma))
        # With equal shares the deviation is one operation, and its slope one more: the part that
        # goes through it is along the scores, by Σ win · units.
        count = float(batch.total) * logits.shape[1]
        flat = logits.reshape(len(logits), -1)
        centred = flat.sub(flat.sum(1, keepdim=True).div_(count)).view_as(logits)
        variance = centred.square().sum((1, 2), keepdim=True).div_(count - 1)
        variance = _divisor(variance)
        scale = variance.rsqrt().div_(sigma)
        total, win, units = _win(logits, batch.labels, scale, limit)
        through = units.mul_(win).sum((1, 2), keepdim=True).div_(variance)
        total.mul_(scale.mul_(batch.share))
        return total.addcmul_(centred, through, value=batch.share / (count - 1))

    return slope


_COSTLY = 4  # classes up to which a slope is cheaper than to ask whether it is needed
_SETTLED = 14.0  # in units of the noise; slopes there are e^-49


@functools.cache
def _places(count: int, device: torch.device) -> Tensor:
    return torch.arange(count, device=device).unsqueeze(1)


def _by_rule(noise: str, log: bool, leads: Tensor) -> Tensor:
    chance, slopes, shift = noise_slopes(leads, noise)
    return slopes.div_(chance) if log else slopes.mul_(shift.neg_().exp_())


def _total(
    leads_slopes: Callable[[Tensor], Tensor],
    logits: Tensor,
    labels: Tensor,
    scale: Tensor,
    limit: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The slope of Σ(1 - P) in scale · logits, (R, C, B); that in the leads; and the leads."""
    runs, classes, rows = logits.shape
    place = _places(classes - 1, logits.device)
    rivals = place + (place >= labels)  # (R, C - 1, B): all classes but the label
    units = torch.sub(logits.gather(1, labels), logits.gather(1, rivals)).mul_(scale)
    if classes > _COSTLY:  # to be beyond as good as has no slope
        limit = torch.full_like(scale, _SETTLED) if limit is None else limit.clamp(max=_SETTLED)
    if limit is not None:
        units = torch.minimum(units, limit)
    flat = units.transpose(0, 1).reshape(classes - 1, runs * rows)
    within = None if limit is None else (units >= limit).logical_not_()  # NaN is not beyond it
    if limit is None or within is None or leads_slopes is not win_slopes:
        slopes = leads_slopes(flat)
    else:  # a lead beyond the margin counts as the margin and has no slope
        near = within.transpose(0, 1).reshape(flat.shape)
        slopes = slopes_within(flat, near, limit.view(-1, 1).expand(runs, rows).reshape(-1))
    # Contiguous, so that sums add in the same order whatever the number of runs.
    win = slopes.reshape(classes - 1, runs, rows).transpose(0, 1).contiguous()
    if within is not None:
        win.mul_(within)
    total = torch.empty_like(logits).scatter_(1, rivals, win)
    return total.scatter_(1, labels, win.sum(1, keepdim=True).neg_()), win, units


# ------------------------------------------------------------------------------- other tasks


def expected_distance(logits: Tensor, batch: Batch, numbers: Numbers) -> Tensor:
    """dL/dlogits_j = P_j (|y - j|^power - L) / sigma."""
    sigma = numbers["sigma"]
    probs = logits.div(sigma).softmax(1)
    distance = (_places(logits.shape[1], logits.device) - batch.labels).abs().to(logits.dtype)
    return _of_costs(probs, distance.pow_(numbers["power"])).mul_(batch.share / sigma)


def _of_costs(probs: Tensor, costs: Tensor) -> Tensor:
    """P_j (cost_j - Σ_k cost_k P_k), the slope of Σ_j cost_j P_j."""
    return costs.sub_((probs * costs).sum(1, keepdim=True)).mul_(probs)


def _shares(batch: Batch, like: Tensor) -> Tensor:
    """Each row's part of its run's mean, (R, 1, B)."""
    if isinstance(batch.share, Tensor):
        return batch.share
    return like.new_full((1, 1, 1), batch.share).expand(batch.labels.shape)


_expected_error = along(lambda u, _: u.exp())


def _by_class(values: Tensor, batch: Batch, classes: int) -> Tensor:
    """Sums over the rows of each class, (R, C, 1)."""
    runs = len(batch.labels)
    sums = values.new_zeros(runs, classes)
    return sums.scatter_add_(1, batch.labels[:, 0], values[:, 0]).unsqueeze(2)


def expected_balanced_error(logits: Tensor, batch: Batch, numbers: Numbers) -> Tensor:
    """That of the expected error, each row's share divided by its class's and the classes."""
    sigma = numbers["sigma"]
    share = _shares(batch, logits)
    count = _by_class(share, batch, logits.shape[1])
    present = (count > 0).sum(1, keepdim=True).clamp(min=1)
    own = count.expand_as(logits).gather(1, batch.labels)
    share = share / (torch.where(own > 0, own, 1) * present * sigma)
    return _expected_error(logits / sigma, Batch(batch.labels, share, batch.total), numbers)


def expected_f1_error(average: str) -> Slope:
    """G = dL/dM of the expected confusion matrix M is a matrix of costs."""

    def slope(logits: Tensor, batch: Batch, numbers: Numbers) -> Tensor:
        sigma = numbers["sigma"]
        if average == "micro":  # with one label per row, the expected error
            return _expected_error(logits / sigma, batch, numbers).div_(sigma)
        probs, share = logits.div(sigma).softmax(1), _shares(batch, logits)
        classes = logits.shape[1]
        count = _by_class(share, batch, classes)
        hits = _by_class(share * probs.gather(1, batch.labels), batch, classes)
        either = count + (probs * share).sum(2, keepdim=True)
        present = count > 0
        # F1_c = 2 hits_c / either_c, and both grow with P_c: one by 1 at the label, one always
        unit = 1 / (torch.where(present, either, 1) * present.sum(1, keepdim=True).clamp(min=1))
        unit = unit * present
        costs = (unit * hits * 2 / torch.where(present, either, 1)).expand_as(logits).contiguous()
        costs.scatter_add_(1, batch.labels, unit.expand_as(logits).gather(1, batch.labels) * -2)
        return _of_costs(probs, costs).mul_(share / sigma)

    return slope
