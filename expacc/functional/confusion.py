"""The confusion matrix expected of noisy logits, and the losses of a batch that are made of it."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from expacc.contract import (
    Batch,
    class_mass,
    legal_values,
    output_dtype,
    read_batch,
    sound_batch,
)
from expacc.errors import check_choice, check_weight, sigma_error
from expacc.functional.exact import is_per_class, read_sigma
from expacc.ops import (
    CLASS_AXIS,
    Formula,
    all_log_probs,
    apply_formula,
    compute_dtype,
    error_of,
    row_dtype,
)
from expacc.ops.orthant.noise import NOISES, NoiseName
from expacc.probabilities import argmax_probabilities

__all__ = ["expected_balanced_error", "expected_f1_error"]

Average = Literal["macro", "micro"]
_ERROR = Formula(error_of, lambda u, prob: -prob)


class _Rows(NamedTuple):
    """Rows of a batch, (rows, C), in float64: class probabilities, P and 1 - P of every class."""

    batch: Batch
    mass: Tensor
    chance: Tensor
    error: Tensor


def _read_rows(
    logits: Tensor,
    target: Tensor,
    ignore_index: int,
    label_smoothing: float,
    sigma: float | Tensor,
    noise: NoiseName,
) -> _Rows:
    check_choice("noise", noise, tuple(NOISES))
    batch = sound_batch(read_batch(logits, target, None, ignore_index, "sum", label_smoothing))
    wide = row_dtype(batch.logits.device)
    classes = batch.logits.shape[CLASS_AXIS]
    mass = class_mass(batch).to(wide).movedim(CLASS_AXIS, -1)
    factor = batch.scale  # 1, 0 for ignored rows, NaN for those that have no number
    if batch.kept is not None:
        factor = factor * batch.kept.to(wide)
    mass = mass * (factor.unsqueeze(-1) if isinstance(factor, Tensor) and factor.ndim else factor)
    scores = batch.logits.to(wide).movedim(CLASS_AXIS, -1)
    scales = read_sigma(sigma, batch, scores)
    if isinstance(sigma, Tensor) and is_per_class(scales):
        raise sigma_error(sigma, batch.logits.shape, per_row=True)
    if noise == "gumbel":  # 1 - P has all its digits
        best = scores.detach().amax(-1, keepdim=True)
        log_probs = all_log_probs(((scores - best) / scales).reshape(-1, classes))
        chance, error = log_probs.exp(), apply_formula(log_probs, _ERROR)
    else:
        chance = argmax_probabilities(scores, scales, noise).reshape(-1, classes)
        error = 1 - chance
    return _Rows(batch, mass.reshape(-1, classes), chance, error)


def expected_confusion(
    logits: Tensor,
    target: Tensor,
    *,
    ignore_index: int = -100,
    sigma: float | Tensor = 1.0,
    noise: NoiseName = "gumbel",
) -> Tensor:
    r"""Compute the confusion matrix expected when the winner is drawn from noisy logits.

    Definition:
        M[i, j] = Σ over rows of t_i · P(argmax = j), with P the softmax of logits/sigma (Gumbel
        noise) or that of Gaussian, logistic or Laplace noise of scale sigma, and t the label.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis, or class probabilities of the logits' shape.
        ignore_index: a label whose rows contribute nothing.
        sigma: the noise's scale, > 0: a number, or a tensor with one entry per row.
        noise: 'gumbel' (softmax), 'normal', 'logistic' or 'laplace'.

    Returns:
        (C, C), true classes in rows, counts in float32 or float64. Differentiable.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a bad label.

    Example:
        Two rows of class 0 with p = (3/4, 1/4), one of class 1 with p = (1/2, 1/2):

        >>> logits = torch.tensor([[3.0, 1.0], [3.0, 1.0], [1.0, 1.0]]).log()
        >>> expected_confusion(logits, torch.tensor([0, 0, 1]))
        tensor([[1.5000, 0.5000],
                [0.5000, 0.5000]])

    Reference:
        The expectation of counts under the noise of EXACT, Eq. 15, or under the softmax.
    """
    rows = _read_rows(logits, target, ignore_index, 0.0, sigma, noise)
    # In float64, which neither autocast nor TF32 shortens.
    matrix = rows.mass.transpose(0, 1) @ rows.chance
    return matrix.to(compute_dtype(logits.dtype))


def _class_weight(weight: Tensor | None, rows: _Rows) -> Tensor:
    """The factor of every class in an average over classes."""
    if weight is None:
        return torch.ones_like(rows.mass[:1].sum(0))
    logits = rows.batch.logits
    check_weight(weight, logits, logits.shape[CLASS_AXIS])
    return legal_values("weight", weight.to(rows.mass.dtype), low=0, of="for every class")


def _average(part: Tensor, whole: Tensor, factor: Tensor) -> Tensor:
    """The mean of part/whole over classes by their factors; 0 if none has any."""
    # A class that does not count may have a whole so small that its inverse overflows.
    shares = factor * (part / torch.where((whole == 0) | (factor == 0), 1, whole))
    total = factor.sum()
    return shares.sum() / torch.where(total == 0, 1, total)


def expected_balanced_error(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    sigma: float | Tensor = 1.0,
    noise: NoiseName = "gumbel",
) -> Tensor:
    r"""Compute 1 - balanced accuracy expected when the winner is drawn from noisy logits.

    Every class counts the same, however rare: the expected error of a row over the rows of its
    class in the batch. A loss of the whole batch: it has no ``reduction``, and batches should hold
    rows of every class. Like the expected error it gives up on rows that are far wrong.

    Definition:
        L = mean over the classes c of the batch of Σ t_c (1 - P(argmax = c)) / Σ t_c, sums over
        rows, with t the label and P the softmax of logits/sigma, or that of other noise.

    Gradient:
        dL/dlogits_j = -P_y (1[j=y] - P_j) / (sigma · rows of class y · classes) for Gumbel noise:
        that of the expected error, larger for rows of rare classes.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis, or class probabilities of the logits' shape.
        weight: one factor >= 0 per class, of its part in the mean over classes; 0 leaves it out.
        ignore_index: a label whose rows contribute nothing.
        label_smoothing: share in [0, 1] of each label spread evenly over the classes.
        sigma: the noise's scale, > 0: a number, or a tensor with one entry per row.
        noise: 'gumbel' (softmax), 'normal', 'logistic' or 'laplace'.

    Returns:
        A scalar. An empty or all-ignored batch gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a bad label.

    Example:
        Class 0 is wrong 1/4 of the time in both of its rows, class 1 half of the time:

        >>> logits = torch.tensor([[3.0, 1.0], [3.0, 1.0], [1.0, 1.0]]).log()
        >>> expected_balanced_error(logits, torch.tensor([0, 0, 1]))
        tensor(0.3750)

    Reference:
        Balanced accuracy, the mean of the classes' recalls (Brodersen et al. 2010), expected under
        the softmax or under the noise of EXACT, Eq. 15.
    """
    rows = _read_rows(logits, target, ignore_index, label_smoothing, sigma, noise)
    count, missed = rows.mass.sum(0), (rows.mass * rows.error).sum(0)
    factor = _class_weight(weight, rows) * (count != 0)
    return _average(missed, count, factor).to(output_dtype(logits))


def expected_f1_error(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    average: Average = "macro",
    sigma: float | Tensor = 1.0,
    noise: NoiseName = "gumbel",
) -> Tensor:
    r"""Compute 1 - F1 of the confusion matrix expected of noisy logits.

    F1 of expected counts, which is near the expected F1 for batches of many rows. A loss of the
    whole batch: it has no ``reduction``, and batches should hold rows of every class. With one
    label per row and no weight, 'micro' is the expected error.

    Definition:
        F1_c = 2 M[c, c] / (Σ_j M[c, j] + Σ_i M[i, c]), M = ``expected_confusion``. 'macro' is 1
        less its mean over the classes of the batch, 'micro' 1 less the sum of numerators over the
        sum of denominators, over all classes.

    Gradient:
        dL/dlogits_j = P_j (G_yj - Σ_k G_yk P_k) / sigma for Gumbel noise, G = dL/dM: largest for
        undecided rows of rare classes.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        target: integer labels without the class axis, or class probabilities of the logits' shape.
        weight: one factor >= 0 per class, of its part in the average; 0 leaves it out.
        ignore_index: a label whose rows contribute nothing.
        label_smoothing: share in [0, 1] of each label spread evenly over the classes.
        average: 'macro' or 'micro'.
        sigma: the noise's scale, > 0: a number, or a tensor with one entry per row.
        noise: 'gumbel' (softmax), 'normal', 'logistic' or 'laplace'.

    Returns:
        A scalar. An empty or all-ignored batch gives 0.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a bad label.

    Example:
        M = [[1.5, 0.5], [0.5, 0.5]], so F1 is 3/4 and 1/2:

        >>> logits = torch.tensor([[3.0, 1.0], [3.0, 1.0], [1.0, 1.0]]).log()
        >>> expected_f1_error(logits, torch.tensor([0, 0, 1]))
        tensor(0.3750)

    Reference:
        Van Rijsbergen 1979, "Information Retrieval", ch. 7, of the counts expected under the
        softmax or under the noise of EXACT, Eq. 15.
    """
    check_choice("average", average, ("macro", "micro"))
    rows = _read_rows(logits, target, ignore_index, label_smoothing, sigma, noise)
    mass, chance = rows.mass, rows.chance
    others = mass.sum(-1, keepdim=True) - mass
    if rows.batch.mass is None:  # exactly 0 at the label
        others = torch.where(mass == 0, others, 0)
    count = mass.sum(0)
    wrong = (mass * rows.error).sum(0) + (others * chance).sum(0)
    either = count + (mass.sum(-1, keepdim=True) * chance).sum(0)
    factor = _class_weight(weight, rows)
    if average == "macro":
        value = _average(wrong, either, factor * (count != 0))
    else:
        whole = (factor * either).sum()
        value = (factor * wrong).sum() / torch.where(whole == 0, 1, whole)
    return value.to(output_dtype(logits))
