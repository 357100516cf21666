"""Our losses of the softmax family: expected error and its mixtures with cross entropy.

Each is a curve over u = log p(target), so each is one line over N numbers; the definitions are here
and nowhere else. All take ``weight``, ``ignore_index``, ``reduction`` and ``label_smoothing`` with
the meaning they have in ``torch.nn.functional.cross_entropy``.
"""

import math

import torch
from torch import Tensor

from expacc.contract import (
    Labelled,
    Reduction,
    Shift,
    read_batch,
    read_spec,
    reduce_log_prob,
)
from expacc.errors import check_choice, check_number
from expacc.ops import (
    IMPLEMENTATIONS,
    PLAIN,
    Formula,
    Implementation,
    Spec,
    error_of,
    fused_curve,
    is_plain_batch,
    triton_error,
)

__all__ = ["expected_error", "leaky_expected_error", "mixed_expected_error"]


def mixture_formula(ce_weight: float, error_weight: float) -> Formula:
    """``-ce_weight·u + error_weight·(1 - e^u)`` (mixing paper, Eq. 12) and its slope (Eq. 13)."""
    if ce_weight == 0:  # 0·u would be NaN at u = -inf
        return Formula(
            error_of, lambda u, prob: -prob, factor=error_weight, curve=("mixture", 0.0, 1.0)
        )
    ratio = error_weight / ce_weight
    if ratio < 0:
        # Both terms would cancel as p approaches 1; split so that they share a sign.
        rest = 1 + ratio
        return Formula(
            # 0·u would be NaN at u = -inf.
            value=lambda u: _expm1_minus(u) * -ratio - (u * rest if rest else 0),
            slope=lambda u, prob: error_of(u) * ratio - (1 + ratio),
            factor=ce_weight,
        )
    return Formula(
        value=lambda u: torch.sub(u, error_of(u), alpha=ratio),
        slope=lambda u, prob: prob * ratio + 1,
        factor=-ce_weight,
        curve=("mixture", -1.0, -ratio),
    )


def _expm1_minus(u: Tensor) -> Tensor:
    """e^u - 1 - u without cancellation near 0."""
    series = u * u * (1 / 2 + u * (1 / 6 + u * (1 / 24 + u * (1 / 120 + u * (1 / 720 + u / 5040)))))
    return torch.where(u > -0.01, series, torch.expm1(u) - u)


def reduce_mixture(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: Reduction,
    label_smoothing: float,
    weights: tuple[float, float],
    impl: Implementation,
    shift: Shift = 0.0,
    scale: float = 1.0,
) -> Tensor:
    """The mixture (ce_weight, error_weight) of a batch: fused on a GPU, else as a formula."""
    shared = (logits, target, weight, ignore_index, reduction)
    if impl != "reference" and is_plain_batch(logits, target):
        spec = PLAIN
        if label_smoothing != 0 or shift != 0 or scale != 1:
            spec = read_spec("mixture", logits, label_smoothing, shift, scale)
        fused = fused_curve(shared, weights, impl, _reduce_again, spec)
        if fused is not None:
            return fused
    if impl != "auto":
        check_choice("impl", impl, IMPLEMENTATIONS)
        if impl == "triton" and isinstance(logits, Tensor):
            raise triton_error(logits)
    batch = read_batch(*shared, label_smoothing)
    return reduce_log_prob(mixture_formula(*weights), batch, shift, scale)


def _reduce_again(batch: Labelled, weights: tuple[float, float], spec: Spec, _: object) -> Tensor:
    """The same by operations, for those who differentiate twice."""
    checked = read_batch(*batch, spec.smoothing)
    return reduce_log_prob(mixture_formula(*weights), checked, spec.shift, spec.scale)


def expected_error(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    shift: Shift = 0.0,
    scale: float = 1.0,
    impl: Implementation = "auto",
) -> Tensor:
    r"""Compute the error rate expected when labels are drawn from the softmax.

    The smooth stand-in for the 0-1 loss: at most 1 per row, so a wrong label cannot dominate. Its
    gradient vanishes for rows that are far wrong, so from a random start it learns slowly; prefer
    ``leaky_expected_error`` or ``mixed_expected_error`` there, and this one to fine-tune a trained
    model or where many labels are wrong.

    Definition:
        L = 1 - p(target), with p = softmax(logits).

    Gradient:
        dL/dlogits_j = -p_y (1[j=y] - p_j): largest, 0.25, at p_y = 0.5.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis, or class probabilities t of the logits'
            shape; the latter give Σ_j t_j (1 - p_j).
        weight: one factor >= 0 per class.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        label_smoothing: share in [0, 1] of each label spread evenly over the classes.
        shift: added to the label's log p/(1 - p); 'auto' is log((C - 1)/9) for more than ten
            classes, which then start as ten do, and 0 otherwise.
        scale: factor > 0 of log p/(1 - p).
        impl: 'auto', 'reference' (plain torch) or 'triton' (fused kernels, which need a CUDA
            tensor); 'auto' takes the kernels where they apply.

    Returns:
        A scalar, or one value per row for 'none'. An empty or all-ignored batch gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a bad label.

    Example:
        p(target) is 1/4 and 1/2, so the errors are 3/4 and 1/2:

        >>> logits = torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.0, -torch.inf, -torch.inf, 0.0]])
        >>> expected_error(logits, torch.tensor([1, 3]), reduction="none")
        tensor([0.7500, 0.5000])

    Reference:
        İrsoy 2019, "On Expected Accuracy", Eq. 5; Battash, Hazan and Wolf, "Mixing between the
        Cross Entropy and the Expectation Loss Terms", Eq. 9 and 10.
    """
    shared = (logits, target, weight, ignore_index, reduction, label_smoothing)
    return reduce_mixture(*shared, (0.0, 1.0), impl, shift, scale)


def leaky_expected_error(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    leak: float = 0.1,
    shift: Shift = 0.0,
    scale: float = 1.0,
    impl: Implementation = "auto",
) -> Tensor:
    r"""Compute the expected error plus a small leak of cross entropy.

    The leak keeps a gradient alive for rows that are far wrong, which the expected error alone
    gives up on. A good first choice when labels may be wrong; with clean labels and a recipe tuned
    for cross entropy expect no gain.

    Definition:
        L = 1 - p(target) - leak · log p(target). The paper leaves out the constant 1.

    Gradient:
        dL/dlogits_j = -(p_y + leak)(1[j=y] - p_j): largest at p_y = 0.5 (1 - leak) for leak < 1.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis, or class probabilities of the logits' shape.
        weight: one factor >= 0 per class.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        label_smoothing: share in [0, 1] of each label spread evenly over the classes.
        leak: weight >= 0 of the cross entropy; 0 gives ``expected_error``.
        shift: added to the label's log p/(1 - p); 'auto' is log((C - 1)/9) for more than ten
            classes, which then start as ten do, and 0 otherwise.
        scale: factor > 0 of log p/(1 - p).
        impl: 'auto', 'reference' (plain torch) or 'triton' (fused kernels, which need a CUDA
            tensor); 'auto' takes the kernels where they apply.

    Returns:
        A scalar, or one value per row for 'none'. An empty or all-ignored batch gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a bad label.

    Example:
        p(target) is 1/2: 1 - 1/2 + 0.1 · log 2 = 0.5693:

        >>> leaky_expected_error(torch.tensor([0.0, 0.0]), torch.tensor(1))
        tensor(0.5693)

    Reference:
        İrsoy 2019, "On Expected Accuracy", Eq. 6 (leak is its alpha, 0.1 there).
    """
    if not (type(leak) is float and 0 <= leak < math.inf):  # the usual needs no more questions
        check_number("leak", leak, low=0)
    shared = (logits, target, weight, ignore_index, reduction, label_smoothing)
    return reduce_mixture(*shared, (leak, 1.0), impl, shift, scale)


def focus_weights(focus: float) -> tuple[float, float]:
    """(ce_weight, error_weight) whose gradient peaks at p = ``focus`` (mixing paper, Eq. 14)."""
    check_number("focus", focus, low=0, high=0.5, cure="0.5 means expected error alone.")
    return (0.0, 1.0) if focus == 0.5 else (1.0, 1 / (1 - 2 * focus))


def mixed_expected_error(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    focus: float = 0.0,
    ce_weight: float | None = None,
    error_weight: float | None = None,
    shift: Shift = 0.0,
    scale: float = 1.0,
    impl: Implementation = "auto",
) -> Tensor:
    r"""Compute a mixture of cross entropy and expected error.

    The mixture decides which rows matter most: those with p(target) near ``focus``. Start at focus
    0 and raise it during training (``expacc.schedules.focus_gradual``) to leave hopeless rows
    behind. At high focus from a random start it learns as slowly as the expected error.

    Definition:
        L = -ce_weight · log p(target) + error_weight · (1 - p(target)), where focus F < 0.5 means
        ce_weight = 1, error_weight = 1 / (1 - 2F), and F = 0.5 means 0 and 1.

    Gradient:
        dL/dlogits_j = -(error_weight · p_y + ce_weight)(1[j=y] - p_j): largest at
        p_y = 0.5 (1 - ce_weight / error_weight), which is the focus.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis, or class probabilities of the logits' shape.
        weight: one factor >= 0 per class.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        label_smoothing: share in [0, 1] of each label spread evenly over the classes.
        focus: the p(target) in [0, 0.5] at which the gradient peaks.
        ce_weight: weight >= 0 of the cross entropy, in place of ``focus``; 1 when only
            ``error_weight`` is given.
        error_weight: weight >= 0 of the expected error, in place of ``focus``; 1 when only
            ``ce_weight`` is given. (1, 0) is ``F.cross_entropy``.
        shift: added to the label's log p/(1 - p); 'auto' is log((C - 1)/9) for more than ten
            classes, which then start as ten do, and 0 otherwise.
        scale: factor > 0 of log p/(1 - p).
        impl: 'auto', 'reference' (plain torch) or 'triton' (fused kernels, which need a CUDA
            tensor); 'auto' takes the kernels where they apply.

    Returns:
        A scalar, or one value per row for 'none'. An empty or all-ignored batch gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, both a focus and weights, or (on CPU,
            eagerly) a bad label.

    Example:
        p(target) is 1/2. Focus 0 adds both terms, log 2 + 1/2; (1, 0) is cross entropy:

        >>> logits, target = torch.tensor([0.0, 0.0]), torch.tensor(1)
        >>> mixed_expected_error(logits, target)
        tensor(1.1931)
        >>> mixed_expected_error(logits, target, ce_weight=1, error_weight=0)
        tensor(0.6931)

    Reference:
        Battash, Hazan and Wolf, "Mixing between the Cross Entropy and the Expectation Loss Terms",
        Eq. 12 to 14.
    """
    weights = mixture_weights(focus, ce_weight, error_weight)
    shared = (logits, target, weight, ignore_index, reduction, label_smoothing)
    return reduce_mixture(*shared, weights, impl, shift, scale)


def mixture_weights(
    focus: float, ce_weight: float | None, error_weight: float | None
) -> tuple[float, float]:
    """(ce_weight, error_weight) from a focus or from themselves."""
    if ce_weight is None and error_weight is None:
        return focus_weights(focus)
    if focus != 0:
        raise ValueError(
            f"focus must not be given together with ce_weight or error_weight; got focus {focus}, "
            f"ce_weight {ce_weight} and error_weight {error_weight}. Give one or the other."
        )
    ce_weight = check_number("ce_weight", 1.0 if ce_weight is None else ce_weight, low=0)
    error_weight = check_number(
        "error_weight", 1.0 if error_weight is None else error_weight, low=0
    )
    if ce_weight == 0 and error_weight == 0:
        raise ValueError("ce_weight and error_weight must not both be 0; got 0 and 0.")
    return ce_weight, error_weight
