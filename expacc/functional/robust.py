"""Losses we compare with that wrong labels disturb less: curves over u = log p(target)."""

import math

import torch
from torch import Tensor

from expacc.contract import Reduction, Shift, reduce_curve
from expacc.errors import check_number
from expacc.functional.softmax import mixture_formula
from expacc.ops import Formula

__all__ = [
    "generalized_cross_entropy",
    "mean_absolute_error",
    "partially_huberized_cross_entropy",
    "tamed_cross_entropy",
]


def mean_absolute_error(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    shift: Shift = 0.0,
    scale: float = 1.0,
) -> Tensor:
    r"""Compute the L1 distance between the label and the softmax, twice the expected error.

    Proposed against wrong labels, and known to train deep networks poorly: it is the expected error
    under another name and step size. A comparator.

    Definition:
        L = ‖onehot(target) - p‖₁ = 2 (1 - p(target)). Probabilities t as target give
        2 Σ_j t_j (1 - p_j), the expectation over labels drawn from t, not ‖t - p‖₁.

    Gradient:
        dL/dlogits_j = -2 p_y (1[j=y] - p_j): largest, 0.5, at p_y = 0.5.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis, or class probabilities of the logits' shape.
        weight: one factor >= 0 per class.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        label_smoothing: share in [0, 1] of each label spread evenly over the classes.
        shift: added to the label's log p/(1 - p); 'auto' is log((C - 1)/9) for more than ten
            classes, which then start as ten do, and 0 otherwise.
        scale: factor > 0 of log p/(1 - p).

    Returns:
        A scalar, or one value per row for 'none'. An empty or all-ignored batch gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a bad label.

    Example:
        p = (1/5, 4/5) and label 0: |1 - 1/5| + |0 - 4/5| = 1.6:

        >>> mean_absolute_error(torch.tensor([1.0, 4.0]).log(), torch.tensor(0))
        tensor(1.6000)

    Reference:
        Ghosh, Kumar and Sastry 2017; mixing paper, Eq. 3.
    """
    formula = mixture_formula(ce_weight=0.0, error_weight=2.0)
    batch = (logits, target, weight, ignore_index, reduction)
    return reduce_curve(formula, batch, label_smoothing, shift, scale)


def _generalized_formula(q: float, truncation: float | None) -> Formula:
    if truncation is None:
        return Formula(
            value=lambda u: torch.expm1(u * q),
            slope=lambda u, prob: torch.exp(u * q) * q,
            factor=-1 / q,
            curve=("generalized", q, -math.inf),
        )
    floor = math.log(truncation)
    return Formula(
        value=lambda u: torch.expm1(u.clamp(min=floor) * q),
        slope=lambda u, prob: torch.where(u > floor, torch.exp(u * q) * q, 0),
        factor=-1 / q,
        curve=("generalized", q, floor),
    )


def generalized_cross_entropy(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    q: float = 0.7,
    truncation: float | None = None,
    shift: Shift = 0.0,
    scale: float = 1.0,
) -> Tensor:
    r"""Compute generalised cross entropy, from cross entropy (q → 0) to expected error (q = 1).

    The standard answer to wrong labels. The truncated variant drops rows with p(target) below
    ``truncation`` altogether; start it from a trained model, since such rows have no gradient.

    Definition:
        L = (1 - p^q) / q with p = p(target); truncated: p replaced by max(p, truncation).

    Gradient:
        dL/dlogits_j = -p_y^q (1[j=y] - p_j): largest at p_y = q / (1 + q); 0 at and below the
        truncation.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis, or class probabilities of the logits' shape.
        weight: one factor >= 0 per class.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        label_smoothing: share in [0, 1] of each label spread evenly over the classes.
        q: in (0, 1]; 1 gives ``expected_error``.
        truncation: a probability in (0, 1), 0.5 in the paper, or None for none.
        shift: added to the label's log p/(1 - p); 'auto' is log((C - 1)/9) for more than ten
            classes, which then start as ten do, and 0 otherwise.
        scale: factor > 0 of log p/(1 - p).

    Returns:
        A scalar, or one value per row for 'none'. An empty or all-ignored batch gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a bad label.

    Example:
        p(target) is 1/4, its square root 1/2: (1 - 1/2) / 0.5 = 1; at truncation 0.36, 0.8:

        >>> logits, target = torch.zeros(4), torch.tensor(2)
        >>> generalized_cross_entropy(logits, target, q=0.5)
        tensor(1.)
        >>> generalized_cross_entropy(logits, target, q=0.5, truncation=0.36)
        tensor(0.8000)

    Reference:
        Zhang and Sabuncu 2018, "Generalized Cross Entropy Loss for Training Deep Neural Networks
        with Noisy Labels"; mixing paper, p. 2 (which swaps this citation with the tamed one's).
    """
    check_number("q", q, low=0, high=1, open_low=True, cure="Cross entropy is the limit at 0.")
    if truncation is not None:
        check_number("truncation", truncation, low=0, high=1, open_low=True, open_high=True)
    formula = _generalized_formula(q, truncation)
    batch = (logits, target, weight, ignore_index, reduction)
    return reduce_curve(formula, batch, label_smoothing, shift, scale)


def _tamed_formula(taming: float) -> Formula:
    if taming == 1:
        return Formula(
            value=lambda u: torch.log1p(-u),
            slope=lambda u, prob: 1 / (u - 1),
            curve=("tamed", 1.0, 0.0),
        )
    power = 1 - taming
    return Formula(
        value=lambda u: torch.expm1(torch.log1p(-u) * power),
        slope=lambda u, prob: (1 - u) ** -taming * -power,
        factor=1 / power,
        curve=("tamed", taming, 0.0),
    )


def tamed_cross_entropy(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    taming: float = 0.8,
    shift: Shift = 0.0,
    scale: float = 1.0,
) -> Tensor:
    r"""Compute the tamed cross entropy, which grows ever more slowly for rows that are far wrong.

    Between cross entropy (taming 0) and its logarithm (1). Unlike the expected error it never quite
    gives a row up; against many wrong labels that is a weakness. A comparator.

    Definition:
        L = ((1 - log p)^(1 - taming) - 1) / (1 - taming) with p = p(target), zero at p = 1;
        log(1 - log p) at taming 1.

    Gradient:
        dL/dlogits_j = -(1 - log p_y)^(-taming) (1[j=y] - p_j): largest at the p_y in (0, 1) with
        taming (1 - p_y) = p_y (1 - log p_y).

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis, or class probabilities of the logits' shape.
        weight: one factor >= 0 per class.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        label_smoothing: share in [0, 1] of each label spread evenly over the classes.
        taming: >= 0; 0 gives cross entropy.
        shift: added to the label's log p/(1 - p); 'auto' is log((C - 1)/9) for more than ten
            classes, which then start as ten do, and 0 otherwise.
        scale: factor > 0 of log p/(1 - p).

    Returns:
        A scalar, or one value per row for 'none'. An empty or all-ignored batch gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a bad label.

    Example:
        log p(target) is -log 2, and log(1 + log 2) = 0.5266:

        >>> tamed_cross_entropy(torch.zeros(2), torch.tensor(0), taming=1)
        tensor(0.5266)

    Reference:
        Martinez and Stiefelhagen 2018, "Taming the Cross Entropy Loss"; mixing paper, Eq. 4, whose
        constant we fix so that the loss is 0 at p = 1.
    """
    check_number("taming", taming, low=0)
    formula = _tamed_formula(taming)
    batch = (logits, target, weight, ignore_index, reduction)
    return reduce_curve(formula, batch, label_smoothing, shift, scale)


def _huberized_formula(threshold: float) -> Formula:
    floor = math.log(threshold)
    return Formula(
        value=lambda u: torch.where(u > floor, -u, 1 - floor - torch.exp(u) / threshold),
        slope=lambda u, prob: -(prob / threshold).clamp(max=1),
        curve=("huberized", threshold, floor),
    )


def partially_huberized_cross_entropy(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    threshold: float = 0.5,
    shift: Shift = 0.0,
    scale: float = 1.0,
) -> Tensor:
    r"""Compute cross entropy, continued as a straight line in p where p(target) is small.

    Cross entropy for rows that are believed, the expected error's slope for rows that are not: a
    wrong label costs 1 + log(1/threshold) at most. Against wrong labels; the more classes there
    are, the smaller the threshold, or from a random start all rows pull by p / threshold, hardly.

    Definition:
        L = -log p for p = p(target) >= threshold, else 1 - log(threshold) - p / threshold.

    Gradient:
        dL/dlogits_j = -min(1, p_y / threshold) (1[j=y] - p_j): largest at p_y = threshold, or at
        1/2 for a threshold above.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis, or class probabilities of the logits' shape.
        weight: one factor >= 0 per class.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        label_smoothing: share in [0, 1] of each label spread evenly over the classes.
        threshold: the p(target) in (0, 1) below which the line begins; 1/tau in the paper, 0.5 for
            10 classes, 0.1 for 100.
        shift: added to the label's log p/(1 - p); 'auto' is log((C - 1)/9) for more than ten
            classes, which then start as ten do, and 0 otherwise.
        scale: factor > 0 of log p/(1 - p).

    Returns:
        A scalar, or one value per row for 'none'. An empty or all-ignored batch gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a bad label.

    Example:
        p(target) is 1/4, half of the threshold: 1 + log 2 - 1/2 = 1.1931:

        >>> partially_huberized_cross_entropy(torch.zeros(4), torch.tensor(2), threshold=0.5)
        tensor(1.1931)

    Reference:
        Menon et al. 2020, "Can Gradient Clipping Mitigate Label Noise?", the partially Huberised
        loss with tau = 1/threshold.
    """
    check_number("threshold", threshold, low=0, high=1, open_low=True, open_high=True)
    formula = _huberized_formula(threshold)
    batch = (logits, target, weight, ignore_index, reduction)
    return reduce_curve(formula, batch, label_smoothing, shift, scale)
