"""What a classifier with noisy logits does: who wins, and how surely.

The probabilities behind EXACT as functions of their own: deterministic, differentiable, exact to
the dtype, without a sample drawn.
"""

import warnings

from torch import Tensor

from expacc.contract import legal_values
from expacc.errors import check_choice, check_nodes, check_number, logits_error, sigma_error
from expacc.ops import all_log_probs, compute_dtype, orthant_chance, orthant_logs, win_chances
from expacc.ops.orthant.noise import NOISES, NoiseName

__all__ = ["argmax_probabilities", "log_orthant_prob", "orthant_prob"]


def _read_margins(margins: Tensor, nodes: int | None) -> tuple[Tensor, int]:
    if not isinstance(margins, Tensor) or not margins.is_floating_point() or margins.ndim == 0:
        raise logits_error(margins, name="margins")
    return margins.to(compute_dtype(margins.dtype)), check_nodes(nodes)


def _read_scale(sigma: float | Tensor, scores: Tensor) -> float | Tensor:
    """sigma, finite and > 0; where a tensor's values may not be read, NaN in place of any other."""
    if not isinstance(sigma, Tensor):
        return check_number("sigma", sigma, low=0, open_low=True)
    if not sigma.is_floating_point():
        raise sigma_error(sigma, scores.shape)
    if sigma.ndim > scores.ndim or any(
        have not in (1, need)
        for have, need in zip(sigma.shape[::-1], (1, *scores.shape[-2::-1]), strict=False)
    ):
        raise sigma_error(sigma, scores.shape, per_row=True)
    return legal_values("sigma", sigma.to(scores.dtype), low=0, open_low=True)


def log_orthant_prob(margins: Tensor, *, nodes: int | None = None) -> Tensor:
    r"""Compute log P(all margins positive) for Gaussian margins with covariance I + 11ᵀ.

    The log-probability that a class beats all its rivals when every logit carries independent unit
    Gaussian noise and it leads rival i by ``margins[..., i]``. Right where P underflows.

    Definition:
        log ∫ φ(z) ∏_i Φ(z + margins_i) dz.

    Args:
        margins: (…, C-1), any floating dtype; +inf is an absent rival.
        nodes: of the quadrature; None for 15 to 40 by need (float32 and below) or 40 (float64).

    Returns:
        (…), in the margins' dtype. Its gradient is right wherever log P is. Double backward is
        refused.

    Raises:
        TypeError: margins that are not a floating-point tensor.
        ValueError: margins without an axis, or a bad number of nodes.

    Example:
        Two classes: Φ(margin/√2), and Φ(0) = 1/2:

        >>> log_orthant_prob(torch.tensor([[0.0], [-100.0]]))
        tensor([-6.9315e-01, -2.5052e+03])

    Reference:
        Karpukhin, Dereka and Kolesnikov, "EXACT: How to Train Your Accuracy", Eq. 16, there a
        (C-1)-dimensional integral.
    """
    work, count = _read_margins(margins, nodes)
    log_prob, _ = orthant_logs(work, count)
    return log_prob.to(margins.dtype)


def orthant_prob(margins: Tensor, *, nodes: int | None = None) -> Tensor:
    r"""Compute P(all margins positive) for Gaussian margins with covariance I + 11ᵀ.

    The probability that a class beats all its rivals when every logit carries independent unit
    Gaussian noise and it leads rival i by ``margins[..., i]``.

    Definition:
        P = ∫ φ(z) ∏_i Φ(z + margins_i) dz.

    Args:
        margins: (…, C-1), any floating dtype; +inf is an absent rival.
        nodes: of the quadrature; None for 15 to 40 by need (float32 and below) or 40 (float64).

    Returns:
        (…), in the margins' dtype. Double backward is refused.

    Raises:
        TypeError: margins that are not a floating-point tensor.
        ValueError: margins without an axis, or a bad number of nodes.

    Example:
        Equal logits: each of four classes wins a quarter of the time.

        >>> orthant_prob(torch.zeros(3))
        tensor(0.2500)

    Reference:
        Karpukhin, Dereka and Kolesnikov, "EXACT: How to Train Your Accuracy", Eq. 16.
    """
    work, count = _read_margins(margins, nodes)
    return orthant_chance(work, count, error=False, dtype=margins.dtype)


def argmax_probabilities(
    logits: Tensor, sigma: float | Tensor = 1.0, noise: NoiseName = "normal"
) -> Tensor:
    r"""Compute P(argmax = j) for every class j when the logits carry noise.

    What ``predict_proba`` means for a model trained with EXACT. All classes come from one grid, in
    O(C) per row.

    Definition:
        P_j = P(logits_j + sigma ε_j > logits_i + sigma ε_i for all i ≠ j), ε independent.

    Args:
        logits: (…, C), classes last; -inf is an absent class.
        sigma: a number > 0, or a tensor that broadcasts against (…, 1): one per row.
        noise: 'normal', 'gumbel' (which gives the softmax of logits/sigma), 'logistic', 'laplace'.

    Returns:
        (…, C) in the logits' dtype; sums to 1. Differentiable in logits and sigma.

    Raises:
        TypeError: logits that are not a floating-point tensor.
        ValueError: an unknown noise, or sigma <= 0.

    Example:
        Gumbel noise is softmax:

        >>> argmax_probabilities(torch.tensor([0.0, 0.0, -torch.inf]))
        tensor([0.5000, 0.5000, 0.0000])
        >>> argmax_probabilities(torch.tensor([1.0, 3.0]).log(), noise="gumbel")
        tensor([0.2500, 0.7500])

    Reference:
        The same integral as EXACT's Eq. 16, for all classes at once.
    """
    if not isinstance(logits, Tensor) or not logits.is_floating_point() or logits.ndim == 0:
        raise logits_error(logits)
    check_choice("noise", noise, tuple(NOISES))
    scores = logits.to(compute_dtype(logits.dtype))
    # From the best: where all are large, their differences have more digits than they.
    scaled = (scores - scores.detach().amax(-1, keepdim=True)) / _read_scale(sigma, scores)
    if noise == "gumbel":
        flat = scaled.reshape(-1, scaled.shape[-1])
        return all_log_probs(flat).exp().reshape(scaled.shape).to(logits.dtype)
    return win_chances(scaled, noise).to(logits.dtype)


def win_probabilities(
    logits: Tensor, sigma: float | Tensor = 1.0, noise: NoiseName = "normal"
) -> Tensor:
    """``argmax_probabilities`` by its name until 0.1, for one release."""
    warnings.warn(
        "win_probabilities is now argmax_probabilities; the old name goes in the next release.",
        DeprecationWarning,
        stacklevel=2,
    )
    return argmax_probabilities(logits, sigma, noise)
