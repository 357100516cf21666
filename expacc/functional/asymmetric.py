"""Asymmetric losses, which we compare with: curves over u = log p(target) against wrong labels.

Zhou et al. 2021, "Asymmetric Loss Functions for Learning with Noisy Labels". A loss is asymmetric
if, as long as most labels of a row are right, minimising it over noisy labels minimises it over
clean ones.
"""

import math

import torch
from torch import Tensor

from expacc.contract import Reduction, Shift, reduce_curve
from expacc.errors import check_number
from expacc.ops import Formula, error_of

__all__ = [
    "asymmetric_exponential",
    "asymmetric_generalized_cross_entropy",
    "asymmetric_unhinged",
]


_FURTHEST = 80.0  # of a number's logarithm, within float32


def _check_power(base: str, value: float, q: float) -> None:
    if abs(q * math.log(value)) > _FURTHEST:
        raise ValueError(
            f"q must leave ({base})^q within float32; got {q!r} with {base} = {value:g}. "
            "Take a smaller q."
        )


def generalized_formula(a: float, q: float) -> Formula:
    """((a + 1)^q - (a + p)^q)/q, from 1 - p so that digits stay as p approaches 1."""
    check_number("a", a, low=0, open_low=True)
    check_number("q", q, low=0, open_low=True)
    _check_power("a + 1", a + 1, q)
    return Formula(
        value=lambda u: torch.expm1(torch.log1p(error_of(u) * (-1 / (a + 1))) * q),
        slope=lambda u, prob: (prob + a).pow(q - 1) * prob * (q / (a + 1) ** q),
        factor=-((a + 1) ** q) / q,
        curve=("asymmetric", a, q),
    )


def unhinged_formula(a: float, q: float) -> Formula:
    """((a - p)^q - (a - 1)^q)/q, from 1 - p so that digits stay as p approaches 1."""
    check_number("a", a, low=1, open_low=True)
    check_number("q", q, low=0, open_low=True)
    rest = a - 1
    _check_power("a - 1", rest, q)
    return Formula(
        value=lambda u: torch.expm1(torch.log1p(error_of(u) / rest) * q),
        slope=lambda u, prob: (error_of(u) + rest).pow(q - 1) * prob * (-q / rest**q),
        factor=rest**q / q,
        curve=("unhinged", a, q),
    )


def exponential_formula(a: float) -> Formula:
    """exp(-p/a) - exp(-1/a), from 1 - p so that digits stay as p approaches 1."""
    check_number("a", a, low=0, open_low=True)
    if 1 / a > _FURTHEST:  # exp(1/a) is too large, and exp(-1/a) nothing beside exp(-p/a)
        return Formula(
            value=lambda u: torch.exp(torch.exp(u) / -a) * -torch.expm1(error_of(u) / -a),
            slope=lambda u, prob: torch.exp(prob / -a) * prob / -a,
        )
    return Formula(
        value=lambda u: torch.expm1(error_of(u) / a),
        slope=lambda u, prob: torch.exp(error_of(u) / a) * prob / -a,
        factor=math.exp(-1 / a),
        curve=("exponential", a, 0.0),
    )


def asymmetric_generalized_cross_entropy(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    a: float = 0.6,
    q: float = 0.6,
    shift: Shift = 0.0,
    scale: float = 1.0,
) -> Tensor:
    r"""Compute the asymmetric generalised cross entropy (AGCE).

    Generalised cross entropy of p + a: near p = 0 it is as flat as the expected error, so a wrong
    label pulls little. With many classes it is as hard to start, too: give it a ``shift``, or the
    normalised cross entropy beside it (``normalized_and_asymmetric_generalized``).

    Definition:
        L = ((a + 1)^q - (a + p)^q) / q with p = p(target); a → 0 is generalised cross entropy.

    Gradient:
        dL/dlogits_j = -p_y (a + p_y)^(q-1) (1[j=y] - p_j): largest between p_y = q / (1 + q), at
        a = 0, and 1/2, for a large a.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis, or class probabilities of the logits' shape.
        weight: one factor >= 0 per class.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        label_smoothing: share in [0, 1] of each label spread evenly over the classes.
        a: > 0; 0.6 in the paper for ten classes.
        q: > 0; 0.6 in the paper for ten classes.
        shift: added to the label's log p/(1 - p); 'auto' is log((C - 1)/9) for more than ten
            classes, which then start as ten do, and 0 otherwise.
        scale: factor > 0 of log p/(1 - p).

    Returns:
        A scalar, or one value per row for 'none'. An empty or all-ignored batch gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a bad label.

    Example:
        p(target) is 1/4: (2² - 1.25²) / 2 = 1.2188:

        >>> asymmetric_generalized_cross_entropy(torch.zeros(4), torch.tensor(2), a=1, q=2)
        tensor(1.2188)

    Reference:
        Zhou et al. 2021, "Asymmetric Loss Functions for Learning with Noisy Labels".
        The authors' code clamps p at 1e-7; here nothing is clamped.
    """
    formula = generalized_formula(a, q)
    batch = (logits, target, weight, ignore_index, reduction)
    return reduce_curve(formula, batch, label_smoothing, shift, scale)


def asymmetric_unhinged(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    a: float = 5.5,
    q: float = 3.0,
    shift: Shift = 0.0,
    scale: float = 1.0,
) -> Tensor:
    r"""Compute the asymmetric unhinged loss (AUL).

    A power of a - p: for q > 1 rows that are far wrong pull more than under the expected error, and
    still boundedly. For a large a it is a multiple of the expected error.

    Definition:
        L = ((a - p)^q - (a - 1)^q) / q with p = p(target).

    Gradient:
        dL/dlogits_j = -p_y (a - p_y)^(q-1) (1[j=y] - p_j): largest near p_y = 1/2, below it for
        q > 1.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis, or class probabilities of the logits' shape.
        weight: one factor >= 0 per class.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        label_smoothing: share in [0, 1] of each label spread evenly over the classes.
        a: > 1; 5.5 in the paper for ten classes.
        q: > 0; 3 in the paper for ten classes; 1 gives ``expected_error``.
        shift: added to the label's log p/(1 - p); 'auto' is log((C - 1)/9) for more than ten
            classes, which then start as ten do, and 0 otherwise.
        scale: factor > 0 of log p/(1 - p).

    Returns:
        A scalar, or one value per row for 'none'. An empty or all-ignored batch gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a bad label.

    Example:
        p(target) is 1/4: (1.75² - 1²) / 2 = 1.0312:

        >>> asymmetric_unhinged(torch.zeros(4), torch.tensor(2), a=2, q=2)
        tensor(1.0312)

    Reference:
        Zhou et al. 2021, "Asymmetric Loss Functions for Learning with Noisy Labels",
        AUE in the authors' code, which clamps p at 1e-7; here nothing is clamped.
    """
    formula = unhinged_formula(a, q)
    batch = (logits, target, weight, ignore_index, reduction)
    return reduce_curve(formula, batch, label_smoothing, shift, scale)


def asymmetric_exponential(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    a: float = 2.5,
    shift: Shift = 0.0,
    scale: float = 1.0,
) -> Tensor:
    r"""Compute the asymmetric exponential loss (AEL).

    Between the two others: an exponential of p, bounded, near to the expected error for a large a.

    Definition:
        L = exp(-p / a) - exp(-1 / a) with p = p(target). The paper leaves out the constant, with
        which the loss is 0 at p = 1.

    Gradient:
        dL/dlogits_j = -(p_y / a) exp(-p_y / a) (1[j=y] - p_j): largest near p_y = 1/2, below it.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis, or class probabilities of the logits' shape.
        weight: one factor >= 0 per class.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        label_smoothing: share in [0, 1] of each label spread evenly over the classes.
        a: > 0; 2.5 in the paper for ten classes.
        shift: added to the label's log p/(1 - p); 'auto' is log((C - 1)/9) for more than ten
            classes, which then start as ten do, and 0 otherwise.
        scale: factor > 0 of log p/(1 - p).

    Returns:
        A scalar, or one value per row for 'none'. An empty or all-ignored batch gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a bad label.

    Example:
        p(target) is 1/4: exp(-1/4) - exp(-1) = 0.4109:

        >>> asymmetric_exponential(torch.zeros(4), torch.tensor(2), a=1)
        tensor(0.4109)

    Reference:
        Zhou et al. 2021, "Asymmetric Loss Functions for Learning with Noisy Labels".
        The authors' code clamps p at 1e-7; here nothing is clamped.
    """
    formula = exponential_formula(a)
    batch = (logits, target, weight, ignore_index, reduction)
    return reduce_curve(formula, batch, label_smoothing, shift, scale)
