"""Losses we compare with that lean on some rows more than cross entropy does: focal and Poly-1."""

import torch
from torch import Tensor

from expacc.contract import Reduction, Shift, reduce_curve
from expacc.errors import check_number
from expacc.functional.softmax import mixture_formula
from expacc.ops import Formula, error_of

__all__ = ["focal", "poly1_cross_entropy"]


def focal_formula(gamma: float, alpha: float) -> Formula:
    """-alpha (1 - p)^gamma log p."""

    def slope(u: Tensor, prob: Tensor) -> Tensor:
        # error^gamma (1 - gamma p · (u / error)). The quotient goes to -1 as both go to 0, where
        # autograd's gamma error^(gamma-1) is infinite for gamma < 1; the limits of the clamps make
        # it -1 there, and make p·u 0 at p = 0.
        limits = torch.finfo(u.dtype)
        error = error_of(u)
        quotient = u.clamp(min=limits.min, max=-limits.tiny) / error.clamp(min=limits.tiny)
        return error.pow(gamma) * (quotient * prob).mul_(-gamma).add_(1)

    return Formula(
        value=lambda u: error_of(u).pow(gamma) * u,
        slope=slope,
        factor=-alpha,
        curve=("focal", gamma, 0.0),
    )


def focal(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    gamma: float = 2.0,
    alpha: float | None = 0.25,
    shift: Shift = 0.0,
    scale: float = 1.0,
) -> Tensor:
    r"""Compute the focal loss, cross entropy with the easy rows turned down.

    Emphasises hard rows: the opposite of what accuracy asks for when labels are wrong. Made for
    detectors with a flood of easy background; a comparator here.

    Definition:
        L = -alpha (1 - p(target))^gamma log p(target). ``alpha`` is a plain factor.

    Gradient:
        dL/dlogits_j = -alpha (1 - p_y)^gamma (1 - gamma p_y log p_y / (1 - p_y)) (1[j=y] - p_j):
        largest at a small p_y, 0 to 0.06 (0.058 at gamma = 2).

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis, or class probabilities of the logits' shape.
        weight: one factor >= 0 per class.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        label_smoothing: share in [0, 1] of each label spread evenly over the classes.
        gamma: how fast easy rows fade, >= 0; 0 gives alpha times cross entropy.
        alpha: factor >= 0; None means 1.
        shift: added to the label's log p/(1 - p); 'auto' is log((C - 1)/9) for more than ten
            classes, which then start as ten do, and 0 otherwise.
        scale: factor > 0 of log p/(1 - p).

    Returns:
        A scalar, or one value per row for 'none'. An empty or all-ignored batch gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a bad label.

    Example:
        p(target) is 1/2: 0.25 · (1/2)² · log 2 = 0.0433:

        >>> focal(torch.tensor([0.0, 0.0]), torch.tensor(1))
        tensor(0.0433)

    Reference:
        Lin et al. 2017, "Focal Loss for Dense Object Detection"; mixing paper, Eq. 2, which names
        gamma = 2 and alpha = 0.25.
    """
    check_number("gamma", gamma, low=0)
    alpha = 1.0 if alpha is None else check_number("alpha", alpha, low=0)
    formula = focal_formula(gamma, alpha)
    batch = (logits, target, weight, ignore_index, reduction)
    return reduce_curve(formula, batch, label_smoothing, shift, scale)


def poly1_cross_entropy(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    epsilon: float = 1.0,
    shift: Shift = 0.0,
    scale: float = 1.0,
) -> Tensor:
    r"""Compute Poly-1 cross entropy: ``mixed_expected_error`` with weights 1 and epsilon.

    The PolyLoss paper adds epsilon to the first coefficient of cross entropy's expansion in 1 - p;
    that is the mixture of cross entropy and expected error, found a second time.

    Definition:
        L = -log p(target) + epsilon · (1 - p(target)).

    Gradient:
        dL/dlogits_j = -(1 + epsilon · p_y)(1[j=y] - p_j): largest at p_y = 0.5 (1 - 1/epsilon) for
        epsilon > 1, at 0 below.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis, or class probabilities of the logits' shape.
        weight: one factor >= 0 per class.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        label_smoothing: share in [0, 1] of each label spread evenly over the classes.
        epsilon: >= -1 (below, the loss would fall as p falls); 0 gives cross entropy.
        shift: added to the label's log p/(1 - p); 'auto' is log((C - 1)/9) for more than ten
            classes, which then start as ten do, and 0 otherwise.
        scale: factor > 0 of log p/(1 - p).

    Returns:
        A scalar, or one value per row for 'none'. An empty or all-ignored batch gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a bad label.

    Example:
        p(target) is 1/2: log 2 + 2 · 1/2 = 1.6931:

        >>> poly1_cross_entropy(torch.zeros(2), torch.tensor(0), epsilon=2)
        tensor(1.6931)

    Reference:
        Leng et al. 2022, "PolyLoss: A Polynomial Expansion Perspective of Classification Loss
        Functions"; mixing paper, Eq. 12 with alpha = 1, beta = epsilon.
    """
    check_number("epsilon", epsilon, low=-1)
    formula = mixture_formula(ce_weight=1.0, error_weight=epsilon)
    batch = (logits, target, weight, ignore_index, reduction)
    return reduce_curve(formula, batch, label_smoothing, shift, scale)
