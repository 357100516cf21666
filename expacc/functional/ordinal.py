"""Ranked labels: the distance between the answer and the truth, expected."""

import torch
from torch import Tensor

from expacc.contract import Batch, Reduction, read_batch, reduce_rows, sound_batch
from expacc.errors import check_choice, check_number, sigma_error
from expacc.functional.exact import is_per_class, read_sigma
from expacc.ops import CLASS_AXIS, row_dtype
from expacc.ops.orthant.noise import NOISES, NoiseName
from expacc.probabilities import argmax_probabilities

__all__ = ["expected_distance"]


def expected_distance(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    power: float = 1.0,
    sigma: float | Tensor = 1.0,
    noise: NoiseName = "gumbel",
) -> Tensor:
    r"""Compute the distance from the true class expected when the winner is drawn.

    For ranked classes, such as grades, where a near miss is better than a far one: power 1 is the
    expected mean absolute error, power 2 what quadratic kappa divides. ``expected_cost`` with
    |i - j|^power, without the matrix. Like the expected error it is bounded, and its gradient
    vanishes for rows that are surely wrong.

    Definition:
        L = Σ_j |y - j|^power · P(argmax = j), with P the softmax of logits/sigma (Gumbel noise) or
        that of Gaussian, logistic or Laplace noise of scale sigma.

    Gradient:
        dL/dlogits_j = P_j (|y - j|^power - L) / sigma for Gumbel noise: largest for a likely answer
        far from the truth.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype; classes in their order.
        target: integer labels without the class axis, or class probabilities of the logits' shape.
        weight: one factor >= 0 per class.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        label_smoothing: share in [0, 1] of each label spread evenly over the classes.
        power: of the distance, >= 1. Probabilities as targets cost O(C) with 1 and 2, else O(C²).
        sigma: the noise's scale, > 0: a number, or a tensor with one entry per row.
        noise: 'gumbel' (softmax), whose small losses have all their digits; 'normal', 'logistic' or
            'laplace', right in absolute terms.

    Returns:
        A scalar, or one value per row for 'none'. An empty or all-ignored batch gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a bad label.

    Example:
        p = (1/2, 1/4, 1/4) and the truth is 0: 1/4 · 1 + 1/4 · 2, and 1/4 · 1 + 1/4 · 4:

        >>> logits = torch.tensor([2.0, 1.0, 1.0]).log()
        >>> expected_distance(logits, torch.tensor(0))
        tensor(0.7500)
        >>> expected_distance(logits, torch.tensor(0), power=2)
        tensor(1.2500)

    Reference:
        The expectation of |y - j|^power under the noise of EXACT, Eq. 15, or under the softmax.
    """
    check_choice("noise", noise, tuple(NOISES))
    check_number("power", power, low=1)
    batch = read_batch(logits, target, weight, ignore_index, reduction, label_smoothing)
    batch = sound_batch(batch)
    # In float64: the digits of a small loss are those of differences of logits.
    scores = batch.logits.to(row_dtype(batch.logits.device)).movedim(CLASS_AXIS, -1)
    scales = read_sigma(sigma, batch, scores)
    if isinstance(sigma, Tensor) and is_per_class(scales):
        raise sigma_error(sigma, batch.logits.shape, per_row=True)
    chances = argmax_probabilities(scores, scales, noise)
    return reduce_rows((_prices(batch, chances, power) * chances).sum(-1), batch)


def _prices(batch: Batch, like: Tensor, power: float) -> Tensor:
    """What each answer costs, (…, C): |y - j|^power, or its mean over the mass of y."""
    place = torch.arange(like.shape[-1], device=like.device, dtype=like.dtype)
    if batch.mass is None:
        return (place - batch.labels.unsqueeze(-1)).abs() ** power
    mass = batch.mass.movedim(CLASS_AXIS, -1).to(like.dtype)
    if power in (1, 2):
        return _from_below(mass, power) + _from_below(mass.flip(-1), power).flip(-1)
    return mass @ (place - place.unsqueeze(-1)).abs() ** power


def _from_below(mass: Tensor, power: float) -> Tensor:
    """Σ_{i<j} mass_i (j - i)^power by sums of sums, every term of one sign."""
    below = mass.cumsum(-1).roll(1, -1)
    below = torch.cat([torch.zeros_like(mass[..., :1]), below[..., 1:]], -1)  # Σ_{i<j} mass_i
    first = below.cumsum(-1)
    if power == 1:
        return first
    # (j - i)² is (j - 1 - i)² + 2 (j - 1 - i) + 1
    before = torch.cat([torch.zeros_like(mass[..., :1]), first[..., :-1]], -1)
    return (2 * before + below).cumsum(-1)
