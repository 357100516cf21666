"""Expected cost: errors that are not all equal."""

import math

from torch import Tensor

from expacc.contract import (
    Batch,
    Reduction,
    legal_values,
    read_batch,
    reduce_rows,
    sound_batch,
)
from expacc.errors import check_choice, check_cost, sigma_error
from expacc.functional.exact import argmax_cost, is_per_class, read_sigma
from expacc.ops import CLASS_AXIS, compute_dtype, row_dtype
from expacc.ops.orthant.noise import NOISES, NoiseName

__all__ = ["expected_cost"]


def expected_cost(
    logits: Tensor,
    target: Tensor,
    cost: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    sigma: float | Tensor = 1.0,
    noise: NoiseName = "gumbel",
) -> Tensor:
    r"""Compute the cost expected when the winner is drawn from noisy logits.

    For mistakes that differ: ``cost[y, j]`` is what answering j costs when y is true. A matrix of
    ones with a zero diagonal gives the expected error.

    Definition:
        L = Σ_j cost[y, j] · P(argmax = j), with P the softmax of logits/sigma (Gumbel noise) or
        that of Gaussian, logistic or Laplace noise of scale sigma.

    Gradient:
        dL/dlogits_j = P_j (cost[y, j] - L) / sigma for Gumbel noise: largest for a likely answer
        whose cost is far from the average.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis, or class probabilities of the logits' shape.
        cost: (C, C), finite; rows are the true classes.
        weight: one factor >= 0 per class.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        label_smoothing: share in [0, 1] of each label spread evenly over the classes.
        sigma: the noise's scale, > 0: a number, or a tensor with one entry per row.
        noise: 'gumbel' (softmax), 'normal', 'logistic' or 'laplace'.

    Returns:
        A scalar, or one value per row for 'none'. An empty or all-ignored batch gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a bad label.

    Example:
        p = (1/4, 3/4), the truth is 0, and answering 1 costs 10:

        >>> cost = torch.tensor([[0.0, 10.0], [1.0, 0.0]])
        >>> expected_cost(torch.tensor([1.0, 3.0]).log(), torch.tensor(0), cost)
        tensor(7.5000)

    Reference:
        The expectation of a cost under the noise of EXACT, Eq. 15, or under the softmax.
    """
    check_choice("noise", noise, tuple(NOISES))
    batch = read_batch(logits, target, weight, ignore_index, reduction, label_smoothing)
    check_cost(cost, batch.logits)
    cost = legal_values("cost", cost, low=-math.inf)
    batch = sound_batch(batch)
    scores = batch.logits.to(compute_dtype(batch.logits.dtype)).movedim(CLASS_AXIS, -1)
    scales = read_sigma(sigma, batch, scores)
    if isinstance(sigma, Tensor) and is_per_class(scales):
        raise sigma_error(sigma, batch.logits.shape, per_row=True)
    return reduce_rows(argmax_cost(scores, scales, _prices(batch, cost), noise), batch)


def _prices(batch: Batch, cost: Tensor) -> Tensor:
    """What each answer costs, (…, C)."""
    if batch.mass is None:
        return cost[batch.labels]
    # In float64, which neither autocast nor TF32 shortens, in backward either.
    mass = batch.mass.movedim(CLASS_AXIS, -1).to(row_dtype(cost.device))
    return mass @ cost.to(mass.dtype)
