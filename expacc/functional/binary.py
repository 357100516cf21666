"""Yes/no labels with one logit each, alone or many to a row: drop-ins for
``F.binary_cross_entropy_with_logits``.

Each equals its sibling of two classes at the logits (0, z), element by element. All take
``weight``, ``reduction`` and ``pos_weight`` with the meaning they have in torch.
"""

import torch
from torch import Tensor

from expacc.contract import Reduction, legal_values, output_dtype, values_readable
from expacc.errors import (
    check_binary_target,
    check_choice,
    check_factor,
    check_number,
    logits_error,
    reduction_error,
    share_error,
    sigma_error,
)
from expacc.functional.softmax import mixture_weights
from expacc.ops import (
    BinaryCurve,
    BinaryPlan,
    compose_binary_loss,
    eager_binary_loss,
    exact_curve,
    is_plain_batch,
    is_plain_eager,
    mixture_curve,
)
from expacc.ops.dispatch import BY_DEFAULT, DTYPES, HAS_TRITON

__all__ = [
    "binary_exact_error",
    "binary_expected_error",
    "binary_leaky_expected_error",
    "binary_mixed_expected_error",
]


def _reduce_curve(
    curve: BinaryCurve,
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: Reduction,
    pos_weight: Tensor | None,
) -> Tensor:
    """Check the arguments that all share, weigh and reduce the curve."""
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        raise logits_error(logits)
    if reduction != "mean" and reduction != "none" and reduction != "sum":
        raise reduction_error(reduction)
    check_binary_target(target, logits)
    given = (target, weight, reduction, pos_weight)
    if is_plain_batch(logits, target):
        for name, factor in (("weight", weight), ("pos_weight", pos_weight)):
            if factor is not None:
                check_factor(name, factor, logits)
        fused = _fused(curve, logits, *given)
        if fused is not None:
            return fused
    return _reduce_read(curve, logits, *given)


def _fused(
    curve: BinaryCurve,
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: Reduction,
    pos_weight: Tensor | None,
) -> Tensor | None:
    """By one kernel each way, where all is as the kernels take it."""
    places = (target,) if weight is None else (target, weight)
    factors = [t for t in (weight, pos_weight) if t is not None]
    if (
        curve.kernel is None
        or not BY_DEFAULT["mixture"]
        or not HAS_TRITON
        or logits.dtype not in DTYPES
        or logits.numel() == 0
        or not all(t.is_contiguous() and t.shape == logits.shape for t in (logits, *places))
        or not target.is_floating_point()
        or any(t.requires_grad or not t.is_contiguous() for t in (target, *factors))
        or (pos_weight is not None and pos_weight.shape != logits.shape[-1:])
    ):
        return None
    from expacc.ops.triton.binary import fused_binary_loss

    scale = 1 / logits.numel() if reduction == "mean" else 1.0
    rest = (curve.kernel, reduction != "none", scale, output_dtype(logits))
    return fused_binary_loss(
        logits,
        target,
        weight,
        pos_weight,
        *rest,
        lambda z: _reduce_read(curve, z, target, weight, reduction, pos_weight),
    )


def _reduce_read(
    curve: BinaryCurve,
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: Reduction,
    pos_weight: Tensor | None,
) -> Tensor:
    """By operations, on any device."""
    target = _read_target(target, logits)
    weight = _read_factor("weight", weight, logits)
    pos_weight = _read_factor("pos_weight", pos_weight, logits)
    scale = 1 / (logits.numel() or 1) if reduction == "mean" else 1.0
    plan = BinaryPlan(curve, scale, reduction != "none", output_dtype(logits))
    trained = any(
        t is not None and t.requires_grad and torch.is_grad_enabled()
        for t in (target, weight, pos_weight)
    )
    yes = target if pos_weight is None else target * pos_weight
    if curve.block is None or trained or not is_plain_eager():
        return compose_binary_loss(logits, yes, 1 - target, weight, plan)
    return eager_binary_loss(logits, yes, None if pos_weight is None else 1 - target, weight, plan)


def _read_target(target: Tensor, logits: Tensor) -> Tensor:
    """The labels as numbers in [0, 1]; NaN for others where they may not be read."""
    if not target.is_floating_point():
        target = target.to(torch.float32)
    if values_readable(target):
        if target.numel():
            low, high = torch.aminmax(target.detach())
            if not (low.item() >= 0 and high.item() <= 1):
                raise share_error(target)
        return target
    return torch.where((target >= 0) & (target <= 1), target, torch.nan)


def _read_factor(name: str, factor: Tensor | None, logits: Tensor) -> Tensor | None:
    """A weight of the logits' shape, its numbers finite and >= 0."""
    if factor is None:
        return None
    check_factor(name, factor, logits)
    return legal_values(name, factor, low=0).expand(logits.shape)


def binary_expected_error(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    reduction: Reduction = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    r"""Compute the error rate expected when a yes is drawn with probability sigmoid(logit).

    ``expected_error`` for yes/no labels: at most 1 per label, so a wrong one cannot dominate. Its
    gradient vanishes where the logit is far wrong; prefer ``binary_leaky_expected_error`` from a
    random start, and this one to fine-tune or where many labels are wrong.

    Definition:
        L = t (1 - p) + (1 - t) p, with p = sigmoid(logits) and t the target.

    Gradient:
        dL/dlogit = (1 - 2t) p (1 - p): largest, 0.25, at p = 0.5.

    Args:
        logits: of any shape, any floating dtype; one for each label.
        target: of the same shape, in [0, 1]: 1 for a yes, 0 for a no, between for soft labels.
        weight: factors >= 0 that broadcast to the logits' shape.
        reduction: 'none', 'mean' (over all labels, whatever their weights, as torch does) or 'sum'.
        pos_weight: factors >= 0 of the part of a label that is a yes, which broadcast as well.

    Returns:
        A scalar, or the logits' shape for 'none'. An empty tensor gives 0.

    Raises:
        TypeError: a tensor of the wrong type.
        ValueError: a wrong shape, or (on CPU, eagerly) a target or weight out of its range.

    Example:
        p is 3/4: a yes is wrong 1/4 of the time, a no 3/4:

        >>> logits = torch.tensor([3.0, 3.0]).log()
        >>> binary_expected_error(logits, torch.tensor([1.0, 0.0]), reduction="none")
        tensor([0.2500, 0.7500])

    Reference:
        İrsoy 2019, "On Expected Accuracy", Eq. 5, of two classes with logits (0, z).
    """
    return _reduce_curve(mixture_curve(0.0, 1.0), logits, target, weight, reduction, pos_weight)


def binary_leaky_expected_error(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    reduction: Reduction = "mean",
    pos_weight: Tensor | None = None,
    leak: float = 0.1,
) -> Tensor:
    r"""Compute the binary expected error plus a small leak of binary cross entropy.

    ``leaky_expected_error`` for yes/no labels: the leak keeps a gradient alive where the logit is
    far wrong. A good first choice when labels may be wrong.

    Definition:
        L = t f(p) + (1 - t) f(1 - p), f(p) = 1 - p - leak · log p, p = sigmoid(logits).

    Gradient:
        dL/dlogit = -(p + leak)(1 - p) for a yes: largest at p = 0.5 (1 - leak) for leak < 1.

    Args:
        logits: of any shape, any floating dtype; one for each label.
        target: of the same shape, in [0, 1]: 1 for a yes, 0 for a no, between for soft labels.
        weight: factors >= 0 that broadcast to the logits' shape.
        reduction: 'none', 'mean' (over all labels, whatever their weights, as torch does) or 'sum'.
        pos_weight: factors >= 0 of the part of a label that is a yes, which broadcast as well.
        leak: weight >= 0 of the cross entropy; 0 gives ``binary_expected_error``.

    Returns:
        A scalar, or the logits' shape for 'none'. An empty tensor gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a target or
            weight out of its range.

    Example:
        p is 1/2: 1 - 1/2 + 0.1 · log 2 = 0.5693:

        >>> binary_leaky_expected_error(torch.tensor(0.0), torch.tensor(1.0))
        tensor(0.5693)

    Reference:
        İrsoy 2019, "On Expected Accuracy", Eq. 6, of two classes with logits (0, z).
    """
    check_number("leak", leak, low=0)
    return _reduce_curve(mixture_curve(leak, 1.0), logits, target, weight, reduction, pos_weight)


def binary_mixed_expected_error(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    reduction: Reduction = "mean",
    pos_weight: Tensor | None = None,
    focus: float = 0.0,
    ce_weight: float | None = None,
    error_weight: float | None = None,
) -> Tensor:
    r"""Compute a mixture of binary cross entropy and binary expected error.

    ``mixed_expected_error`` for yes/no labels; raise ``focus`` during training
    (``expacc.schedules.focus_gradual``) to leave hopeless labels behind.

    Definition:
        L = t f(p) + (1 - t) f(1 - p), f(p) = -ce_weight · log p + error_weight · (1 - p), where
        focus F < 0.5 means ce_weight = 1, error_weight = 1 / (1 - 2F), and F = 0.5 means 0 and 1.

    Gradient:
        dL/dlogit = -(error_weight · p + ce_weight)(1 - p) for a yes: largest at
        p = 0.5 (1 - ce_weight / error_weight), which is the focus.

    Args:
        logits: of any shape, any floating dtype; one for each label.
        target: of the same shape, in [0, 1]: 1 for a yes, 0 for a no, between for soft labels.
        weight: factors >= 0 that broadcast to the logits' shape.
        reduction: 'none', 'mean' (over all labels, whatever their weights, as torch does) or 'sum'.
        pos_weight: factors >= 0 of the part of a label that is a yes, which broadcast as well.
        focus: the probability of the label, in [0, 0.5], at which the gradient peaks.
        ce_weight: weight >= 0 of the cross entropy, in place of ``focus``; 1 when only
            ``error_weight`` is given.
        error_weight: weight >= 0 of the expected error, in place of ``focus``; 1 when only
            ``ce_weight`` is given. (1, 0) is ``F.binary_cross_entropy_with_logits``.

    Returns:
        A scalar, or the logits' shape for 'none'. An empty tensor gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, both a focus and weights, or (on CPU,
            eagerly) a target or weight out of its range.

    Example:
        p is 1/2. Focus 0 adds both terms, log 2 + 1/2:

        >>> binary_mixed_expected_error(torch.tensor(0.0), torch.tensor(1.0))
        tensor(1.1931)

    Reference:
        Battash, Hazan and Wolf, "Mixing between the Cross Entropy and the Expectation Loss Terms",
        Eq. 12 to 14, of two classes with logits (0, z).
    """
    weights = mixture_weights(focus, ce_weight, error_weight)
    return _reduce_curve(mixture_curve(*weights), logits, target, weight, reduction, pos_weight)


def binary_exact_error(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    reduction: Reduction = "mean",
    pos_weight: Tensor | None = None,
    sigma: float | Tensor = 1.0,
    margin: float | None = None,
    log: bool = False,
) -> Tensor:
    r"""Compute EXACT of yes/no labels, the error rate expected under Gaussian noise.

    ``exact_error`` of two classes with logits (0, z), both noisy, in closed form. Shrink ``sigma``
    during training, with ``GradientNormalizer`` between backward and step. The logits are not
    standardised: one deviation for labels that have nothing to do with each other would make the
    loss of each depend on its company. Give logits about unit size, or a sigma of their size.

    Definition:
        L = t (1 - P(z)) + (1 - t)(1 - P(-z)), P(z) = Φ(min(z, margin) / (sigma √2)), z the logits.

    Gradient:
        dL/dlogit = (1 - 2t) exp(-(z / 2 sigma)²) / (2 sigma √π): largest at z = 0; 0 beyond the
        margin.

    Args:
        logits: of any shape, any floating dtype; one for each label.
        target: of the same shape, in [0, 1]: 1 for a yes, 0 for a no, between for soft labels.
        weight: factors >= 0 that broadcast to the logits' shape.
        reduction: 'none', 'mean' (over all labels, whatever their weights, as torch does) or 'sum'.
        pos_weight: factors >= 0 of the part of a label that is a yes, which broadcast as well.
        sigma: the noise's scale, > 0, on each of the two logits: a number, or a tensor that
            broadcasts to the logits' shape, with a gradient if it requires one.
        margin: leads beyond this count as this; None for no limit.
        log: return -log P instead of 1 - P, also where P underflows.

    Returns:
        A scalar, or the logits' shape for 'none'. An empty tensor gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a target or
            weight out of its range.

    Example:
        Level, and ahead by √2 sigma, which wins Φ(1) of the time:

        >>> logits = torch.tensor([0.0, 2.0**0.5])
        >>> binary_exact_error(logits, torch.ones(2), reduction="none")
        tensor([0.5000, 0.1587])

    Reference:
        Karpukhin, Dereka and Kolesnikov, "EXACT: How to Train Your Accuracy", Eq. 15 to 19, of two
        classes.
    """
    check_choice("log", log, (True, False))
    if margin is not None:
        check_number("margin", margin, low=0, open_low=True)
    if isinstance(sigma, Tensor) and isinstance(logits, Tensor):
        if not sigma.is_floating_point():
            raise sigma_error(sigma, logits.shape)
        check_factor("sigma", sigma, logits)
        sigma = legal_values("sigma", sigma, low=0, open_low=True)
    else:
        sigma = check_number("sigma", sigma, low=0, open_low=True)
    curve = exact_curve(sigma, margin, log)
    return _reduce_curve(curve, logits, target, weight, reduction, pos_weight)
