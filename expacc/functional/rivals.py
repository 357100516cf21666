"""Losses we compare with that look at the rivals of the true class one by one.

Comparators, so written for exactness and clarity, in float64, not for speed.
"""

import torch
from torch import Tensor

from expacc.contract import (
    Reduction,
    is_label,
    present_log_probs,
    read_batch,
    reduce_rows,
    sound_batch,
)
from expacc.errors import check_number
from expacc.functional.softmax import mixture_formula
from expacc.ops import CLASS_AXIS, all_log_probs, apply_formula, row_dtype

__all__ = ["complement_entropy", "hinge", "maximum_probability_cross_entropy"]


def hinge(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    margin: float = 1.0,
) -> Tensor:
    r"""Compute the multi-class hinge loss, the mean shortfall of the margins over the rivals.

    Stops pushing once the true class leads every rival by ``margin``, as accuracy would, but grows
    without bound for rows that are far wrong. A comparator.

    Definition:
        L = mean over rivals j ≠ y of max(0, margin - logits_y + logits_j). Masked rivals (-inf) do
        not count.

    Gradient:
        dL/dlogits_j = 1/(rivals) for each rival within the margin, minus their sum at y: largest
        when every rival is within the margin.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis; class probabilities are refused.
        weight: one factor >= 0 per class.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        label_smoothing: must be 0.
        margin: the lead that is enough, > 0.

    Returns:
        A scalar, or one value per row for 'none'. An empty or all-ignored batch gives 0, and so
        does a row without rivals.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, probabilities or label smoothing, or
            (on CPU, eagerly) a bad label.

    Example:
        The true class leads by 2 and by 0.5, so the shortfalls are 0 and 0.5:

        >>> hinge(torch.tensor([0.0, 2.0, 1.5]), torch.tensor(1))
        tensor(0.2500)

    Reference:
        Karpukhin, Dereka and Kolesnikov, "EXACT: How to Train Your Accuracy", Eq. 4; the mean over
        rivals is that of its authors' code.
    """
    check_number("margin", margin, low=0, open_low=True)
    batch = read_batch(
        logits, target, weight, ignore_index, reduction, label_smoothing, labels_only="hinge"
    )
    labels = batch.labels
    batch = sound_batch(batch)
    scores = batch.logits.to(row_dtype(logits.device))
    true = scores.gather(CLASS_AXIS, labels.unsqueeze(CLASS_AXIS))
    rival = ~is_label(labels, scores) & (scores != -torch.inf)
    shortfall = torch.where(rival, torch.relu(margin - (true - scores)), 0)
    return reduce_rows(shortfall.sum(CLASS_AXIS) / rival.sum(CLASS_AXIS).clamp(min=1), batch)


def complement_entropy(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    r"""Compute the negated entropy of the rivals' probabilities.

    Complement-objective training maximises this entropy, so that no rival stands out, in a second
    step beside cross entropy. Here it is negated, to be minimised like every other loss. It knows
    nothing of the true class's own score: never train with it alone.

    Definition:
        L = Σ_{j≠y} r_j log r_j with r_j = p_j / (1 - p_y), the softmax over the rivals; in
        [-log(C - 1), 0].

    Gradient:
        dL/dlogits_j = r_j (log r_j - L) for j ≠ y, and 0 for y: zero for uniform rivals.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis; class probabilities are refused.
        weight: one factor >= 0 per class.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        label_smoothing: must be 0.

    Returns:
        A scalar, or one value per row for 'none'. An empty or all-ignored batch gives 0, and so
        does a row without rivals.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, probabilities or label smoothing, or
            (on CPU, eagerly) a bad label.

    Example:
        Two equal rivals: 2 · (1/2) log(1/2) = -log 2, whatever the true class scores:

        >>> complement_entropy(torch.tensor([0.0, 7.0, 0.0]), torch.tensor(1))
        tensor(-0.6931)

    Reference:
        Chen et al. 2019, "Complement Objective Training"; mixing paper, Eq. 6, here negated and
        not divided by C as the authors' code does.
    """
    batch = read_batch(
        logits,
        target,
        weight,
        ignore_index,
        reduction,
        label_smoothing,
        labels_only="complement_entropy",
    )
    batch = sound_batch(batch)
    scores = batch.logits.to(row_dtype(logits.device))
    rivals = torch.where(is_label(batch.labels, scores), -torch.inf, scores)
    present = rivals != -torch.inf
    some = present.any(CLASS_AXIS, keepdim=True)
    log_share = all_log_probs(torch.where(some, rivals, 0))
    # 0 · e^0 = 0: an absent rival has no entropy, nor one that is behind without end.
    log_share = torch.where(present & (log_share > -torch.inf), log_share, 0)
    return reduce_rows((log_share.exp() * log_share).sum(CLASS_AXIS), batch)


def maximum_probability_cross_entropy(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    r"""Compute cross entropy weighted by how far the true class is behind the best one.

    Zero, with zero gradient, for every row that is already right. With many classes the gap is
    nearly zero at the start too, and training may not move at all. A comparator.

    Definition:
        L = -(max_j p_j - p(target)) log p(target).

    Gradient:
        dL/dlogits = -(p_max - p_y) ∇u - u ∇(p_max - p_y), u = log p_y: largest for rows that are
        surely wrong, 0 for rows that are right.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis, or class probabilities t of the logits'
            shape; the latter give Σ_j t_j (p_max - p_j)(-log p_j).
        weight: one factor >= 0 per class.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        label_smoothing: share in [0, 1] of each label spread evenly over the classes.

    Returns:
        A scalar, or one value per row for 'none'. An empty or all-ignored batch gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a bad label.

    Example:
        p = (3/4, 1/4) and label 1: (3/4 - 1/4) · log 4 = 0.6931:

        >>> maximum_probability_cross_entropy(torch.tensor([3.0, 1.0]).log(), torch.tensor(1))
        tensor(0.6931)

    Reference:
        Zhou et al. 2019, "MPCE: A Maximum Probability Based Cross Entropy Loss Function"; mixing
        paper, Eq. 7.
    """
    batch = read_batch(logits, target, weight, ignore_index, reduction, label_smoothing)
    batch = sound_batch(batch)
    scores = batch.logits.to(row_dtype(logits.device))
    log_probs, mass = present_log_probs(scores, batch)
    best = scores.detach().argmax(CLASS_AXIS, keepdim=True)
    # p_max - p_j = p_max (1 - e^{logits_j - logits_best}): no cancellation between equal classes.
    behind = apply_formula(
        scores - scores.gather(CLASS_AXIS, best), mixture_formula(ce_weight=0.0, error_weight=1.0)
    )
    values = -log_probs * log_probs.gather(CLASS_AXIS, best).exp() * behind
    return reduce_rows((mass * values).sum(CLASS_AXIS), batch)
