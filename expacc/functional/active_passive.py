"""Normalised cross entropy plus a bounded loss, against wrong labels: losses we compare with.

Ma et al. 2020 call the first active, for it raises p(target) alone, and the second passive, for it
lowers the others. Their sum fits better than either:
L = active_weight · log p(target) / Σ_j log p_j + passive_weight · passive(p(target)).
"""

from torch import Tensor

from expacc.contract import Reduction
from expacc.errors import check_number
from expacc.functional.asymmetric import (
    exponential_formula,
    generalized_formula,
    unhinged_formula,
)
from expacc.functional.divergences import REVERSE
from expacc.functional.normalized import reduce_row_loss
from expacc.functional.softmax import mixture_formula
from expacc.ops import IDENTITY, Formula, RowLoss, Share

__all__ = [
    "normalized_and_asymmetric_exponential",
    "normalized_and_asymmetric_generalized",
    "normalized_and_asymmetric_unhinged",
    "normalized_and_reverse_cross_entropy",
]


def _sum_of(active_weight: float, passive_weight: float, passive: Formula) -> RowLoss:
    check_number("active_weight", active_weight, low=0)
    check_number("passive_weight", passive_weight, low=0)
    weighted = passive._replace(factor=passive.factor * passive_weight)
    return RowLoss((Share(IDENTITY, active_weight),), weighted)


def normalized_and_reverse_cross_entropy(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    active_weight: float = 1.0,
    passive_weight: float = 1.0,
) -> Tensor:
    r"""Compute normalised plus reverse cross entropy (NCE+RCE).

    The standard robust sum, strong with few classes; with a hundred its passive part, 9.2103 times
    the expected error, hardly starts.

    Definition:
        L = active_weight · log p(target) / Σ_j log p_j + passive_weight · passive, with
        passive = 9.2103 · (1 - p), as in ``reverse_cross_entropy``, p = p(target).

    Gradient:
        The weighted sum of those of ``normalized_cross_entropy`` and of
        ``reverse_cross_entropy``: the first is largest where p_y is
        small, the second near p_y = 0.5.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis, or class probabilities of the logits' shape.
        weight: one factor >= 0 per class.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        label_smoothing: share in [0, 1] of each label spread evenly over the classes.
        active_weight: weight >= 0 of the normalised cross entropy; 1 in the paper for 10
            classes, 10 for 100.
        passive_weight: weight >= 0 of the other; 1 for 10 classes, 1 for 100.

    Returns:
        A scalar, or one value per row for 'none'. An empty or all-ignored batch gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a bad label.

    Example:
        p(target) is 1/4, and so is the normalised cross entropy: 1/4 + 9.2103 · 3/4:

        >>> normalized_and_reverse_cross_entropy(torch.zeros(4), torch.tensor(2))
        tensor(7.1578)

    Reference:
        Ma et al. 2020, "Normalized Loss Functions for Deep Learning with Noisy Labels". Later work
        takes weights 10 and 0.1 for 100 classes.
    """
    loss = _sum_of(active_weight, passive_weight, mixture_formula(0.0, REVERSE))
    batch = (logits, target, weight, ignore_index, reduction)
    return reduce_row_loss(loss, batch, label_smoothing)


def normalized_and_asymmetric_generalized(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    active_weight: float = 1.0,
    passive_weight: float = 4.0,
    a: float = 6.0,
    q: float = 1.5,
) -> Tensor:
    r"""Compute normalised plus asymmetric generalised cross entropy (NCE+AGCE).

    Among the best published losses of one formula under many wrong labels, with the numbers that
    its paper tuned.

    Definition:
        L = active_weight · log p(target) / Σ_j log p_j + passive_weight · passive, with
        passive = ((a + 1)^q - (a + p)^q) / q, p = p(target).

    Gradient:
        The weighted sum of those of ``normalized_cross_entropy`` and of
        ``asymmetric_generalized_cross_entropy``: the first is largest where p_y is
        small, the second near p_y = 0.5.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis, or class probabilities of the logits' shape.
        weight: one factor >= 0 per class.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        label_smoothing: share in [0, 1] of each label spread evenly over the classes.
        active_weight: weight >= 0 of the normalised cross entropy; 1 in the paper for 10
            classes, 10 for 100.
        passive_weight: weight >= 0 of the other; 4 for 10 classes, 0.1 for 100.
        a: > 0; 6 for 10 classes, 1.8 for 100.
        q: > 0; 1.5 for 10 classes, 3 for 100.

    Returns:
        A scalar, or one value per row for 'none'. An empty or all-ignored batch gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a bad label.

    Example:
        p(target) is 1/4, and so is the normalised cross entropy: 1/4 + 4 · (2² - 1.25²) / 2:

        >>> normalized_and_asymmetric_generalized(
        ...     torch.zeros(4), torch.tensor(2), a=1, q=2
        ... )
        tensor(5.1250)

    Reference:
        Zhou et al. 2021, "Asymmetric Loss Functions for Learning with Noisy Labels".
    """
    loss = _sum_of(active_weight, passive_weight, generalized_formula(a, q))
    batch = (logits, target, weight, ignore_index, reduction)
    return reduce_row_loss(loss, batch, label_smoothing)


def normalized_and_asymmetric_unhinged(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    active_weight: float = 1.0,
    passive_weight: float = 4.0,
    a: float = 6.3,
    q: float = 1.5,
) -> Tensor:
    r"""Compute normalised cross entropy plus the asymmetric unhinged loss (NCE+AUL).

    Close to NCE+AGCE in every published table.

    Definition:
        L = active_weight · log p(target) / Σ_j log p_j + passive_weight · passive, with
        passive = ((a - p)^q - (a - 1)^q) / q, p = p(target).

    Gradient:
        The weighted sum of those of ``normalized_cross_entropy`` and of
        ``asymmetric_unhinged``: the first is largest where p_y is
        small, the second near p_y = 0.5.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis, or class probabilities of the logits' shape.
        weight: one factor >= 0 per class.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        label_smoothing: share in [0, 1] of each label spread evenly over the classes.
        active_weight: weight >= 0 of the normalised cross entropy; 1 in the paper for 10
            classes, 10 for 100.
        passive_weight: weight >= 0 of the other; 4 for 10 classes, 0.015 for 100.
        a: > 1; 6.3 for 10 classes, 6 for 100.
        q: > 0; 1.5 for 10 classes, 3 for 100.

    Returns:
        A scalar, or one value per row for 'none'. An empty or all-ignored batch gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a bad label.

    Example:
        p(target) is 1/4, and so is the normalised cross entropy: 1/4 + 4 · (1.75² - 1²) / 2:

        >>> normalized_and_asymmetric_unhinged(
        ...     torch.zeros(4), torch.tensor(2), a=2, q=2
        ... )
        tensor(4.3750)

    Reference:
        Zhou et al. 2021, "Asymmetric Loss Functions for Learning with Noisy Labels".
    """
    loss = _sum_of(active_weight, passive_weight, unhinged_formula(a, q))
    batch = (logits, target, weight, ignore_index, reduction)
    return reduce_row_loss(loss, batch, label_smoothing)


def normalized_and_asymmetric_exponential(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    active_weight: float = 1.0,
    passive_weight: float = 4.0,
    a: float = 5.0,
) -> Tensor:
    r"""Compute normalised cross entropy plus the asymmetric exponential loss (NCE+AEL).

    The flattest of the sums with an asymmetric loss. The constant of its passive part is chosen so
    that the loss is 0 at p = 1; the paper leaves it out.

    Definition:
        L = active_weight · log p(target) / Σ_j log p_j + passive_weight · passive, with
        passive = exp(-p / a) - exp(-1 / a), p = p(target).

    Gradient:
        The weighted sum of those of ``normalized_cross_entropy`` and of
        ``asymmetric_exponential``: the first is largest where p_y is
        small, the second near p_y = 0.5.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis, or class probabilities of the logits' shape.
        weight: one factor >= 0 per class.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        label_smoothing: share in [0, 1] of each label spread evenly over the classes.
        active_weight: weight >= 0 of the normalised cross entropy; 1 in the paper for 10
            classes, 10 for 100.
        passive_weight: weight >= 0 of the other; 4 for 10 classes, 0.1 for 100.
        a: > 0; 5 for 10 classes, 1.5 for 100.

    Returns:
        A scalar, or one value per row for 'none'. An empty or all-ignored batch gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a bad label.

    Example:
        p(target) is 1/4, and so is the normalised cross entropy: 1/4 + 4 · 0.4109:

        >>> normalized_and_asymmetric_exponential(
        ...     torch.zeros(4), torch.tensor(2), a=1
        ... )
        tensor(1.8937)

    Reference:
        Zhou et al. 2021, "Asymmetric Loss Functions for Learning with Noisy Labels".
    """
    loss = _sum_of(active_weight, passive_weight, exponential_formula(a))
    batch = (logits, target, weight, ignore_index, reduction)
    return reduce_row_loss(loss, batch, label_smoothing)
