"""Losses we compare with between cross entropy and the expected error, curves over u = log p."""

import math

import torch
from torch import Tensor

from expacc.contract import Reduction, Shift, reduce_curve
from expacc.errors import check_count, check_number
from expacc.functional.softmax import mixture_formula
from expacc.ops import Formula, error_of

__all__ = [
    "jensen_shannon",
    "reverse_cross_entropy",
    "symmetric_cross_entropy",
    "taylor_cross_entropy",
]


# The logarithm of 0 in the reverse cross entropy, negated. All published code has log 1e-4; the
# papers print A = -4, which is log10 of the same number.
REVERSE = -math.log(1e-4)


def reverse_cross_entropy(
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
    r"""Compute the reverse cross entropy (RCE): ``expected_error`` times -log 1e-4 = 9.2103.

    Cross entropy with label and softmax exchanged, log 0 replaced by a number: the expected error
    under another name and step size. A comparator.

    Definition:
        L = -Σ_j p_j log t_j with t the one-hot label and log 0 = log 1e-4, that is
        9.2103 · (1 - p(target)).

    Gradient:
        dL/dlogits_j = -9.2103 p_y (1[j=y] - p_j): largest, 2.3026, at p_y = 0.5.

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
        p(target) is 1/2: 9.2103 / 2:

        >>> reverse_cross_entropy(torch.zeros(2), torch.tensor(0))
        tensor(4.6052)

    Reference:
        Wang et al. 2019, "Symmetric Cross Entropy for Robust Learning with Noisy Labels".
        The paper prints A = -4 for log 0, which is log10 of 1e-4; all published code has the
        natural logarithm, and so have we.
    """
    formula = mixture_formula(ce_weight=0.0, error_weight=REVERSE)
    batch = (logits, target, weight, ignore_index, reduction)
    return reduce_curve(formula, batch, label_smoothing, shift, scale)


def symmetric_cross_entropy(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    ce_weight: float = 0.1,
    rce_weight: float = 1.0,
    shift: Shift = 0.0,
    scale: float = 1.0,
) -> Tensor:
    r"""Compute the symmetric cross entropy (SCE): ``mixed_expected_error`` under another name.

    Cross entropy plus reverse cross entropy, which is 9.2103 times the expected error: all results
    published for it are results of our mixture, and of ``leaky_expected_error`` with
    leak = ce_weight / (9.2103 rce_weight), 0.011 for the numbers here.

    Definition:
        L = -ce_weight · log p(target) + rce_weight · 9.2103 · (1 - p(target)).

    Gradient:
        dL/dlogits_j = -(9.2103 rce_weight · p_y + ce_weight)(1[j=y] - p_j): largest at
        p_y = 0.5 (1 - ce_weight / (9.2103 rce_weight)).

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis, or class probabilities of the logits' shape.
        weight: one factor >= 0 per class.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        label_smoothing: share in [0, 1] of each label spread evenly over the classes.
        ce_weight: weight >= 0 of the cross entropy; 0.1 in the paper for 10 classes, 6 for 100.
        rce_weight: weight >= 0 of the reverse cross entropy; 1 for 10 classes, 0.1 for 100.
        shift: added to the label's log p/(1 - p); 'auto' is log((C - 1)/9) for more than ten
            classes, which then start as ten do, and 0 otherwise.
        scale: factor > 0 of log p/(1 - p).

    Returns:
        A scalar, or one value per row for 'none'. An empty or all-ignored batch gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a bad label.

    Example:
        p(target) is 1/2: 0.1 · log 2 + 9.2103 / 2 = 4.6745:

        >>> symmetric_cross_entropy(torch.zeros(2), torch.tensor(0))
        tensor(4.6745)

    Reference:
        Wang et al. 2019, "Symmetric Cross Entropy for Robust Learning with Noisy Labels".
        The paper prints A = -4 for log 0, which is log10 of 1e-4; all published code has the
        natural logarithm, and so have we.
    """
    check_number("ce_weight", ce_weight, low=0)
    check_number("rce_weight", rce_weight, low=0)
    if ce_weight == 0 and rce_weight == 0:
        raise ValueError("ce_weight and rce_weight must not both be 0; got 0 and 0.")
    formula = mixture_formula(ce_weight, rce_weight * REVERSE)
    batch = (logits, target, weight, ignore_index, reduction)
    return reduce_curve(formula, batch, label_smoothing, shift, scale)


def _jensen_shannon_formula(share: float) -> Formula:
    # With w = 1 - share, m = share + w p the mixture, t = log m/p = log(1 + share (1-p)/p) and
    # c = -log w, the definition is (1 - p) - p t/c - (share / (w c)) log m: no two of its terms
    # cancel but down to the third. And dm/dp drops out of the slope: -p (1 + t/c).
    rest, c = 1 - share, -math.log1p(-share)

    def log_ratio(error: Tensor, prob: Tensor) -> Tensor:
        # The clamp keeps 0 · log(share / 0) at 0.
        return torch.log1p(error / prob.clamp(min=torch.finfo(prob.dtype).tiny) * share)

    def value(u: Tensor) -> Tensor:
        error, prob = error_of(u), torch.exp(u)
        log_mixed = torch.log1p(error * -rest)
        if share < 0.01:  # where 1 - w (1-p) loses what is left of m
            log_mixed = torch.where(prob < 0.5, torch.log(prob * rest + share), log_mixed)
        found = error - log_ratio(error, prob) * prob / c
        return torch.sub(found, log_mixed, alpha=share / (rest * c))

    def slope(u: Tensor, prob: Tensor) -> Tensor:
        return (log_ratio(error_of(u), prob) / c + 1) * -prob

    return Formula(value, slope, curve=("jensen-shannon", share, c))


def jensen_shannon(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    label_share: float = 0.7,
    shift: Shift = 0.0,
    scale: float = 1.0,
) -> Tensor:
    r"""Compute the Jensen–Shannon loss, from cross entropy (share → 0) to expected error (→ 1).

    The weighted divergence of label and softmax, scaled: a bounded loss that begins as generalised
    cross entropy does and fits rows that are nearly right as cross entropy does. A strong answer to
    wrong labels; the more are wrong, the larger the share.

    Definition:
        L = D / (-(1 - s) log(1 - s)), D = s KL(onehot ‖ m) + (1 - s) KL(p ‖ m), with s =
        label_share and m = s onehot(target) + (1 - s) p. With p = p(target) and
        μ = s + (1 - s) p that is 1 - p - (p log(μ/p) + s / (1 - s) log μ) / (-log(1 - s)).

    Gradient:
        dL/dlogits_j = -p_y (1 + log(μ/p_y) / (-log(1 - s)))(1[j=y] - p_j): largest between 0, for
        a small share, and p_y = 0.5, at a share of 1.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis, or class probabilities of the logits' shape.
        weight: one factor >= 0 per class.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        label_smoothing: share in [0, 1] of each label spread evenly over the classes.
        label_share: s in (0, 1), the weight of the label in the mixture, π in the paper; 0.7 there
            for 10 classes (0.9 where most labels are wrong), 0.3 for 100.
        shift: added to the label's log p/(1 - p); 'auto' is log((C - 1)/9) for more than ten
            classes, which then start as ten do, and 0 otherwise.
        scale: factor > 0 of log p/(1 - p).

    Returns:
        A scalar, or one value per row for 'none'. An empty or all-ignored batch gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a bad label.

    Example:
        p(target) is 1/2 and μ is 3/4: 1/2 - (log 1.5 / 2 + log 0.75) / log 2 = 0.6226:

        >>> jensen_shannon(torch.zeros(2), torch.tensor(0), label_share=0.5)
        tensor(0.6226)

    Reference:
        Englesson and Azizpour 2021, "Generalized Jensen-Shannon Divergence Loss for Learning with
        Noisy Labels". The authors' code clamps both distributions at 1e-7; here
        nothing is clamped, and what needs two views of a row (GJS) is not here.
    """
    check_number(
        "label_share", label_share, low=0, high=1, open_low=True, open_high=True,
        cure="Cross entropy is the limit at 0, the expected error at 1.",
    )  # fmt: skip
    formula = _jensen_shannon_formula(label_share)
    batch = (logits, target, weight, ignore_index, reduction)
    return reduce_curve(formula, batch, label_smoothing, shift, scale)


def _taylor_formula(terms: int) -> Formula:
    def value(u: Tensor) -> Tensor:
        error = error_of(u)
        total = error * (1 / terms)
        for power in range(terms - 1, 0, -1):
            total = (total + 1 / power) * error
        return total

    # The sum of the powers below ``terms`` is (1 - (1-p)^terms)/p.
    return Formula(
        value,
        lambda u, prob: torch.expm1(torch.log1p(-prob) * terms),
        curve=("taylor", float(terms), 0.0),
    )


def taylor_cross_entropy(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    terms: int = 2,
    shift: Shift = 0.0,
    scale: float = 1.0,
) -> Tensor:
    r"""Compute the first terms of cross entropy's expansion in 1 - p.

    One term is the expected error, all of them are cross entropy: how many is how much rows that
    are far wrong may pull. Against wrong labels; bounded by 1 + 1/2 + … + 1/terms.

    Definition:
        L = Σ_{i=1}^{terms} (1 - p)^i / i with p = p(target).

    Gradient:
        dL/dlogits_j = -(1 - (1 - p_y)^terms)(1[j=y] - p_j): largest at
        p_y = 1 - (terms + 1)^(-1/terms), 0.5 for one term, 0.42 for two.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis, or class probabilities of the logits' shape.
        weight: one factor >= 0 per class.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        label_smoothing: share in [0, 1] of each label spread evenly over the classes.
        terms: how many, an int >= 1; 2 to 6 were tuned in the paper. 1 gives ``expected_error``.
        shift: added to the label's log p/(1 - p); 'auto' is log((C - 1)/9) for more than ten
            classes, which then start as ten do, and 0 otherwise.
        scale: factor > 0 of log p/(1 - p).

    Returns:
        A scalar, or one value per row for 'none'. An empty or all-ignored batch gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a bad label.

    Example:
        p(target) is 1/2: 1/2 + 1/8:

        >>> taylor_cross_entropy(torch.zeros(2), torch.tensor(0))
        tensor(0.6250)

    Reference:
        Feng et al. 2020, "Can Cross Entropy Loss Be Robust to Label Noise?".
    """
    check_count("terms", terms)
    formula = _taylor_formula(terms)
    batch = (logits, target, weight, ignore_index, reduction)
    return reduce_curve(formula, batch, label_smoothing, shift, scale)
