"""Losses we compare with that divide by their own sum over the classes, against wrong labels.

Ma et al. 2020: any loss so divided is robust to labels that are wrong at random, and learns slowly,
since its gradient falls as 1/C; so it is summed with another (``active_passive.py``). A masked
class (logit -inf) is absent from the sums.
"""

import math

import torch
from torch import Tensor

from expacc.contract import (
    Batch,
    Labelled,
    Reduction,
    class_mass,
    read_batch,
    read_spec,
    reduce_rows,
    sound_batch,
)
from expacc.errors import check_number
from expacc.functional.reweighted import focal_formula
from expacc.ops import (
    CLASS_AXIS,
    IDENTITY,
    Formula,
    RowLoss,
    RowPlan,
    Share,
    all_log_probs,
    compose_all,
    fused_curve,
    is_plain_batch,
    row_dtype,
    row_loss,
)

__all__ = ["active_negative", "normalized_cross_entropy", "normalized_focal"]


def reduce_row_loss(loss: RowLoss, batch: Labelled, label_smoothing: float) -> Tensor:
    """``loss`` of a batch, fused on a GPU where it is a share of log p and a curve."""
    (share, *more), curve = loss
    formula = curve or _NOTHING
    linear = share.curve is IDENTITY and not share.complement and not more
    known = formula.curve if linear and label_smoothing == 0 else None
    plain = is_plain_batch(*batch[:2]) and batch[0].ndim and batch[0].ndim != batch[1].ndim
    if known is not None and plain:
        name, *numbers = known
        spec = read_spec(name, batch[0], 0.0, 0.0, 1.0, formula.factor, share.weight)
        fused = fused_curve(batch, (numbers[0], numbers[1]), "auto", _reduce_again, spec, loss)
        if fused is not None:
            return fused
    return _reduce_read(loss, read_batch(*batch, label_smoothing))


def _reduce_again(batch: Labelled, _: object, __: object, loss: RowLoss) -> Tensor:
    """The same by operations, for those who differentiate twice."""
    return _reduce_read(loss, read_batch(*batch, 0.0))


_NOTHING = Formula(
    torch.zeros_like, lambda u, prob: torch.zeros_like(u), curve=("mixture", 0.0, 0.0)
)


def _reduce_read(loss: RowLoss, batch: Batch) -> Tensor:
    """Weigh and reduce ``loss``: at the label, or Σ_j mass_j · loss with j as the label."""
    logits, target, mass, kept, factor, summed, dtype, single = batch
    if target is None or mass is not None:
        batch = sound_batch(batch)
        log_probs = all_log_probs(batch.logits.to(row_dtype(logits.device)))
        values = class_mass(batch) * compose_all(log_probs, loss)
        return reduce_rows(values.sum(CLASS_AXIS), batch)
    if kept is not None:
        kept = kept.unsqueeze(CLASS_AXIS)
    if isinstance(factor, Tensor) and factor.ndim > 0:
        factor = factor.unsqueeze(CLASS_AXIS)
    plan = RowPlan(loss, kept, factor, summed, dtype)
    result = row_loss(logits, target.unsqueeze(CLASS_AXIS), plan)
    if summed:
        return result
    return result.squeeze(CLASS_AXIS).squeeze(0) if single else result.squeeze(CLASS_AXIS)


def normalized_cross_entropy(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    r"""Compute the normalised cross entropy (NCE), in [0, 1].

    Cross entropy as a share of what it would be over all labels. Robust to wrong labels in theory;
    alone it underfits, more so the more classes there are: prefer one of the sums, such as
    ``normalized_and_reverse_cross_entropy``. A comparator.

    Definition:
        L = log p(target) / Σ_j log p_j.

    Gradient:
        dL/dlogits_j = (1[j=y] - p_j) / S - (log p_y / S²)(1 - C p_j), S = Σ_j log p_j: at the
        start, where all p_j are 1/C, about 1/(C log C) at the label.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis, or class probabilities of the logits' shape.
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
        Four equal classes share cross entropy equally:

        >>> normalized_cross_entropy(torch.zeros(4), torch.tensor(2))
        tensor(0.2500)

    Reference:
        Ma et al. 2020, "Normalized Loss Functions for Deep Learning with Noisy Labels".
    """
    batch = (logits, target, weight, ignore_index, reduction)
    return reduce_row_loss(RowLoss((Share(IDENTITY, 1.0),)), batch, label_smoothing)


def normalized_focal(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    gamma: float = 0.5,
) -> Tensor:
    r"""Compute the normalised focal loss (NFL), in [0, 1].

    The focal loss as a share of what it would be over all labels. Like the normalised cross
    entropy, robust in theory and underfitting alone. A comparator.

    Definition:
        L = f(p(target)) / Σ_j f(p_j) with f(p) = (1 - p)^gamma log p.

    Gradient:
        That of the definition: with g_j = (1 - p_j)^gamma (1 - gamma p_j log p_j / (1 - p_j)) and
        S = Σ_j f(p_j), dL/dlogits_j = g_y (1[j=y] - p_j) / S - (f(p_y) / S²)(g_j - p_j Σ_k g_k).
        The published code detaches (1 - p)^gamma, above and below the line, which is the gradient
        of no loss.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis, or class probabilities of the logits' shape.
        weight: one factor >= 0 per class.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        label_smoothing: share in [0, 1] of each label spread evenly over the classes.
        gamma: how fast easy rows fade, >= 0; 0 gives ``normalized_cross_entropy``.

    Returns:
        A scalar, or one value per row for 'none'. An empty or all-ignored batch gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a bad label.

    Example:
        Four equal classes share any loss equally:

        >>> normalized_focal(torch.zeros(4), torch.tensor(2))
        tensor(0.2500)

    Reference:
        Ma et al. 2020, "Normalized Loss Functions for Deep Learning with Noisy Labels".
    """
    check_number("gamma", gamma, low=0)

    def rivals(u: Tensor, prob: Tensor, spare: Tensor, slope: Tensor) -> float | None:
        # With f = (1 - p)^gamma u the slope is (1 - p)^gamma + gamma (f - f / (1 - p)).
        error = torch.sub(1, prob, out=spare)
        if gamma in (0.5, 1, 2, 3):  # which torch knows
            torch.pow(error, gamma, out=slope)
        else:
            torch.neg(prob, out=slope).log1p_().mul_(gamma / math.log(2)).exp2_()
        u.mul_(slope)
        slope.add_(u, alpha=gamma).addcdiv_(u, error, value=-gamma)
        return None

    share = Share(IDENTITY, 1.0)
    if gamma:
        share = Share(focal_formula(gamma, 1.0), 1.0, rivals=rivals, curved=True)
    batch = (logits, target, weight, ignore_index, reduction)
    return reduce_row_loss(RowLoss((share,)), batch, label_smoothing)


def active_negative(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    active_weight: float = 5.0,
    negative_weight: float = 5.0,
    floor: float = 1e-7,
) -> Tensor:
    r"""Compute the active negative loss (ANL-CE): normalised cross entropy, and its negative.

    The negative part asks the classes that are not the label to be unlikely, each by the logarithm
    of its probability; it fits better than the passive losses that others add. The paper trains
    with an L1 penalty of the weights in place of weight decay (5e-5 for 10 classes, 5e-7 for 100):
    that is the optimiser's, and not in this loss.

    Definition:
        L = active_weight · NCE + negative_weight · NNCE, with NCE = log p(target) / Σ_j log p_j and
        NNCE = 1 - h(target) / Σ_j h_j, h_j = log max(p_j, floor) - log floor.

    Gradient:
        That of ``normalized_cross_entropy``, and with S = Σ_j h_j and a_j = 1[p_j > floor]
        dNNCE/dlogits_j = (h_y / S²)(a_j - p_j Σ_k a_k) - (a_y / S)(1[j=y] - p_j): 0 where no class
        but the label is above the floor.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis, or class probabilities of the logits' shape.
        weight: one factor >= 0 per class.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        label_smoothing: share in [0, 1] of each label spread evenly over the classes.
        active_weight: weight >= 0 of NCE; 5 in the paper for 10 classes, 10 for 100.
        negative_weight: weight >= 0 of NNCE; 5 for 10 classes, 1 for 100.
        floor: in (0, 1), below which no probability is counted; 1e-7 in the paper.

    Returns:
        A scalar, or one value per row for 'none'. An empty or all-ignored batch gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a bad label.

    Example:
        Four equal classes: 5 · 1/4 + 5 · 3/4 = 5:

        >>> active_negative(torch.zeros(4), torch.tensor(2))
        tensor(5.)

    Reference:
        Ye et al. 2023, "Active Negative Loss Functions for Learning with Noisy Labels".
    """
    check_number("active_weight", active_weight, low=0)
    check_number("negative_weight", negative_weight, low=0)
    check_number("floor", floor, low=0, high=1, open_low=True, open_high=True)
    least = math.log(floor)
    above = Formula(
        value=lambda u: (u - least).clamp(min=0),
        slope=lambda u, prob: (u > least).to(u.dtype),
    )

    def rivals(u: Tensor, prob: Tensor, spare: Tensor, slope: Tensor) -> float | None:
        if u.amin().item() > least:
            return least
        torch.gt(u, least, out=slope)
        u.clamp_(min=least).sub_(least)
        return None

    negative = Share(above, negative_weight, complement=True, rivals=rivals)
    shares = (Share(IDENTITY, active_weight), negative)
    batch = (logits, target, weight, ignore_index, reduction)
    return reduce_row_loss(RowLoss(shares), batch, label_smoothing)
