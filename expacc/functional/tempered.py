"""Losses we compare with that change the softmax itself, against wrong labels.

Comparators, so written for exactness and clarity, in float64; of bi-tempered, labels on the CPU go
through ``ops/tempered.py``.
"""

import math

import torch
from torch import Tensor

from expacc.contract import (
    Reduction,
    class_mass,
    is_label,
    present_log_probs,
    read_batch,
    reduce_rows,
    sound_batch,
)
from expacc.errors import check_number
from expacc.functional.softmax import mixture_formula
from expacc.ops import (
    CLASS_AXIS,
    Formula,
    Tempered,
    all_log_probs,
    apply_formula,
    error_of,
    is_plain_eager,
    row_dtype,
    target_log_prob,
    tempered_loss,
)

__all__ = ["bi_tempered", "epsilon_softmax"]

_MOST_STEPS = 30  # of Newton's method, which needs 5 to 10
_SERIES_TERMS = 13
_SERIES_UP_TO = 0.05  # its terms fall by as much: 1e-17 after thirteen


def _log_of(fallen: Tensor, normalizer: Tensor, excess: float) -> Tensor:
    """log exp_t(fallen - normalizer), t = 1 + excess."""
    return torch.log1p((normalizer - fallen) * excess) * (-1 / excess)


def _newton_step(fallen: Tensor, normalizer: Tensor, excess: float) -> Tensor:
    """Towards Σ_j exp_t(fallen_j - normalizer) = 1: of the (-excess)th power of the sum.

    That power is concave in the normaliser, and a straight line for equal scores: from 0 the steps
    never go too far.
    """
    log_probs = _log_of(fallen, normalizer, excess)
    total = log_probs.exp().sum(CLASS_AXIS, keepdim=True)
    escort = (log_probs * (1 + excess)).exp().sum(CLASS_AXIS, keepdim=True)
    return torch.expm1(total.log() * excess) * (total / (escort * excess))


def tempered_log_probs(logits: Tensor, temperature: float) -> Tensor:
    """The logarithm of the tempered softmax, its normaliser exact to rounding.

    The normaliser is found without a graph; two more steps of Newton's method with one then have
    its derivatives, by the implicit function theorem, and those of second order.
    """
    if temperature == 1:
        return all_log_probs(logits)
    excess = temperature - 1
    fallen = logits - logits.detach().amax(CLASS_AXIS, keepdim=True)
    with torch.no_grad():
        still, normalizer = fallen.detach(), torch.zeros_like(fallen[:, :1])
        for _ in range(_MOST_STEPS):
            step = _newton_step(still, normalizer, excess)
            normalizer = normalizer + step
            # Reading a CPU number is cheap; elsewhere all steps are made.
            if is_plain_eager() and fallen.is_cpu and not (step > 1e-15 * normalizer).any():
                break
    for _ in range(2):
        normalizer = normalizer + _newton_step(fallen, normalizer, excess)
    return _log_of(fallen, normalizer, excess)


def _label_part(log_prob: Tensor, error: Tensor, t1: float) -> Tensor:
    """∫_0^error x (1-x)^-t1 dx = -log_t1 p - (1 - p^(2-t1))/(2-t1) of the label.

    The two terms agree to first order as p approaches 1: a series in 1 - p stands for them there.
    """

    def value(u: Tensor) -> Tensor:
        root = u if t1 == 1 else torch.expm1(u * (1 - t1)) / (1 - t1)
        return torch.expm1(u * (2 - t1)) / (2 - t1) - root

    far = Formula(value, lambda u, prob: torch.exp(u * (1 - t1)) * torch.expm1(u))
    series, coefficient = torch.zeros_like(error), 1.0
    coefficients = []
    for power in range(_SERIES_TERMS):
        coefficients.append(coefficient / (power + 2))
        coefficient *= (t1 + power) / (power + 1)
    for one in reversed(coefficients):
        series = series * error + one
    return torch.where(error < _SERIES_UP_TO, series * error.square(), apply_formula(log_prob, far))


def bi_tempered(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    t1: float = 0.8,
    t2: float = 1.2,
) -> Tensor:
    r"""Compute the bi-tempered logistic loss: a bounded logarithm of a softmax with heavy tails.

    Below 1, t1 bounds the loss, so that a far outlier costs no more than 1 / (1 - t1); above 1, t2
    gives probabilities that fall as a power of the logits, so that a row near the boundary with a
    wrong label pulls less. Slower than the other losses: the normaliser is solved for.

    Definition:
        L = -log_t1 p(target) - (1 - Σ_j p_j^(2-t1)) / (2 - t1), with p_j = exp_t2(logits_j - λ), λ
        such that Σ_j p_j = 1, log_t x = (x^(1-t) - 1) / (1 - t) and
        exp_t x = (1 + (1 - t) x)^(1/(1-t)); log and exp at t = 1. Probabilities as target give the
        expectation over labels drawn from them, which is the paper's loss and a constant.

    Gradient:
        With s_j = p_j^t2 / Σ_k p_k^t2, dL/dlogits_j = -p_y^(t2-t1) (1[j=y] - s_j) + p_j^(1+t2-t1)
        - s_j Σ_k p_k^(1+t2-t1): that of the exact λ, by the implicit function theorem.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis, or class probabilities of the logits' shape.
        weight: one factor >= 0 per class.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        label_smoothing: share in [0, 1] of each label spread evenly over the classes.
        t1: in [0, 1]; 1 gives the logarithm, and with t2 = 1 cross entropy.
        t2: >= 1; 1 gives the softmax.

    Returns:
        A scalar, or one value per row for 'none'. An empty or all-ignored batch gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a bad label.

    Example:
        Two equal classes have p = 1/2 at any t2. With t1 = 0: 1/2 - (1 - 1/2) / 2:

        >>> bi_tempered(torch.zeros(2), torch.tensor(0), t1=0)
        tensor(0.2500)

    Reference:
        Amid et al. 2019, "Robust Bi-Tempered Logistic Loss Based on Bregman Divergences". The
        authors' code finds λ by five steps of a fixed-point iteration; here it is solved for to
        rounding.
    """
    check_number("t1", t1, low=0, high=1)
    check_number("t2", t2, low=1)
    batch = sound_batch(
        read_batch(logits, target, weight, ignore_index, reduction, label_smoothing)
    )
    if batch.mass is None:
        return reduce_rows(_of_labels(batch.logits, batch.labels, t1, t2), batch)
    log_probs = tempered_log_probs(batch.logits.to(row_dtype(logits.device)), t2)
    powers = (log_probs * (2 - t1)).exp()
    mass, probs = class_mass(batch), log_probs.exp()
    others = (powers.sum(CLASS_AXIS, keepdim=True) - powers) / (2 - t1)
    # A masked class without mass is absent: not 0 · inf.
    shown = torch.where((mass == 0) & (log_probs == -torch.inf), 0, log_probs)
    values = mass * (_label_part(shown, 1 - probs, t1) + others)
    return reduce_rows(values.sum(CLASS_AXIS), batch)


def _of_labels(logits: Tensor, labels: Tensor, t1: float, t2: float) -> Tensor:
    """A value per row."""
    index = labels.unsqueeze(CLASS_AXIS)

    def compose(scores: Tensor) -> Tensor:
        log_probs = tempered_log_probs(scores.to(row_dtype(scores.device)), t2)
        rival = ~is_label(labels, log_probs)
        own = log_probs.gather(CLASS_AXIS, index)
        error = torch.where(rival, log_probs.exp(), 0).sum(CLASS_AXIS, keepdim=True)
        powers = torch.where(rival, (log_probs * (2 - t1)).exp(), 0)
        others = powers.sum(CLASS_AXIS, keepdim=True) / (2 - t1)
        return _label_part(own, error, t1) + others

    values = None
    if t2 > 1 and logits.is_cpu and logits.numel() and is_plain_eager():
        values = tempered_loss(logits, index, Tempered(t1, t2, _label_part, compose))
    return (compose(logits) if values is None else values).squeeze(CLASS_AXIS)


def epsilon_softmax(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    ce_weight: float = 0.01,
    mae_weight: float = 5.0,
    boost: float = 1e5,
) -> Tensor:
    r"""Compute cross entropy of the ε-softmax plus the mean absolute error (CE_ε+MAE).

    The ε-softmax adds ``boost`` to the largest probability and divides by 1 + boost: within ε of a
    one-hot vector, so that cross entropy tells right rows from wrong ones and hardly pulls the
    first. The numbers of its paper depend on the share of wrong labels.

    Definition:
        L = -ce_weight · log q(target) + mae_weight · 2 (1 - p(target)), with q_j =
        (p_j + boost · 1[j wins]) / (1 + boost); a class wins if no other scores more.

    Gradient:
        dL/dlogits_j = -(ce_weight · c + 2 mae_weight · p_y)(1[j=y] - p_j), with c = p_y / (p_y +
        boost) where the label wins, and 1 where it does not.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis, or class probabilities of the logits' shape.
        weight: one factor >= 0 per class.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        label_smoothing: share in [0, 1] of each label spread evenly over the classes.
        ce_weight: weight >= 0 of the cross entropy; 0.01 in the paper for 10 classes, 0.1 to 0.0075
            for 100, the smaller the more labels are wrong.
        mae_weight: weight >= 0 of the mean absolute error; 5 for 10 classes, 1 for 100.
        boost: m > 0 in the paper; 1e5 for 10 classes, 1e4 for 100.

    Returns:
        A scalar, or one value per row for 'none'. An empty or all-ignored batch gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a bad label.

    Example:
        p = (1/4, 3/4) and boost 1: the label 1 wins, q is (3/4 + 1) / 2, and with weights 1 the
        loss is log(8/7) + 1/2; as label 0, log 8 + 3/2:

        >>> logits, numbers = torch.tensor([1.0, 3.0]).log(), {"ce_weight": 1, "mae_weight": 1}
        >>> epsilon_softmax(logits, torch.tensor(1), boost=1, **numbers)
        tensor(0.6335)
        >>> epsilon_softmax(logits, torch.tensor(0), boost=1, **numbers)
        tensor(3.5794)

    Reference:
        Wang et al. 2024, "ε-Softmax: Approximating One-Hot Vectors for Mitigating Label Noise". The
        authors' code clamps q at 1e-8, which after the division by 1 + boost takes the gradient of
        cross entropy from every row with p(target) below 1e-3; here nothing is clamped. The first
        of several largest wins there.
    """
    check_number("ce_weight", ce_weight, low=0)
    check_number("mae_weight", mae_weight, low=0)
    check_number("boost", boost, low=0, open_low=True)
    winning = Formula(
        value=lambda u: torch.log1p(error_of(u) * (-1 / (1 + boost))),
        slope=lambda u, prob: prob / (prob + boost),
        factor=-ce_weight,
    )
    losing = Formula(
        value=lambda u: u - math.log1p(boost),
        slope=lambda u, prob: torch.ones_like(u),
        factor=-ce_weight,
    )
    batch = sound_batch(
        read_batch(logits, target, weight, ignore_index, reduction, label_smoothing)
    )
    # Triton 3.6 cannot compile the kernel that torch.compile makes of these sums in float64.
    compiled = torch.compiler.is_compiling()
    wide = batch.logits if compiled else batch.logits.to(row_dtype(logits.device))
    top = batch.logits.detach().amax(CLASS_AXIS, keepdim=True)
    mass = batch.mass
    if mass is None:
        index = batch.labels.unsqueeze(CLASS_AXIS)
        log_probs = target_log_prob(wide, batch.labels).unsqueeze(CLASS_AXIS)
        wins = batch.logits.gather(CLASS_AXIS, index) >= top
    else:
        log_probs, mass = present_log_probs(wide, batch)
        wins = batch.logits >= top
    entropy = torch.where(wins, apply_formula(log_probs, winning), apply_formula(log_probs, losing))
    if ce_weight == 0:  # 0 · inf
        entropy = torch.zeros_like(entropy)
    values = entropy + apply_formula(log_probs, mixture_formula(0.0, 2 * mae_weight))
    return reduce_rows((values if mass is None else mass * values).sum(CLASS_AXIS), batch)
