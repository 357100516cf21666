"""The contract of ``F.cross_entropy``, in one place: shapes, targets, weights, ignore, reduction.

``read_batch`` turns a user's arguments into a ``Batch``: logits (N, C, …), either labels or a mass
per class, and one factor per row that holds the class weight and the reduction. A loss then needs
one call: ``reduce_log_prob`` when it is a curve over log p(target), ``reduce_rows`` otherwise.

Shapes, dtypes and plain numbers are checked always. Values inside tensors are read only where that
is free of surprises (CPU, eager): never on a device, never inside a compiled graph or a transform;
there a label out of range makes its own row NaN.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from expacc.ops import (
    CLASS_AXIS,
    Formula,
    all_log_probs,
    apply_formula,
    compute_dtype,
    is_plain_eager,
    log_prob_loss,
    row_dtype,
)

Reduction = Literal["none", "mean", "sum"]
_REDUCTIONS = get_args(Reduction)

_INTEGERS = {
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
}


@dataclass(slots=True)
class Batch:
    """A checked batch.

    Exactly one of ``target`` (labels, all in range) and ``mass`` (class weight times probability of
    each class) is given. ``scale`` multiplies each row: class weight, 1/denominator of the mean,
    NaN for a bad label on a device. ``kept`` is None when every row is.
    """

    logits: Tensor
    target: Tensor | None
    mass: Tensor | None
    kept: Tensor | None
    scale: Tensor | float
    summed: bool
    single: bool

    @property
    def dtype(self) -> torch.dtype:
        """Torch's convention: the logits' dtype, but float32 for half precision under autocast."""
        dtype = self.logits.dtype
        half = dtype is torch.float16 or dtype is torch.bfloat16
        if half and torch.is_autocast_enabled(self.logits.device.type):
            return torch.float32
        return dtype

    @property
    def labels(self) -> Tensor:
        """The labels of a batch that was read with ``labels_only``."""
        if self.target is None:
            raise ValueError("labels are not part of a batch of class probabilities.")
        return self.target

    def finish(self, result: Tensor) -> Tensor:
        """Undo the batch axis that ``read_batch`` gave to a single row of logits."""
        return result.squeeze(0) if self.single and not self.summed else result


# ------------------------------------------------------------------------------------- numbers


def check_number(
    name: str,
    value: Any,
    *,
    low: float,
    high: float = math.inf,
    open_low: bool = False,
    open_high: bool = False,
    cure: str = "",
) -> float:
    """Return ``value`` if it is a finite real number in the interval, else raise."""
    if type(value) is not float and (
        isinstance(value, bool) or not isinstance(value, int | float | torch.SymFloat)
    ):
        raise TypeError(f"{name} must be a number; got {value!r}.{cure and ' ' + cure}")
    above = value > low if open_low else value >= low
    below = value < high if open_high else value <= high
    if above and below and -math.inf < value < math.inf:
        return value
    if high < math.inf:
        phrase = f"lie in {'(' if open_low else '['}{low:g}, {high:g}{')' if open_high else ']'}"
    else:
        phrase = f"be finite and {'>' if open_low else '>='} {low:g}"
    raise ValueError(f"{name} must {phrase}; got {value}.{cure and ' ' + cure}")


# -------------------------------------------------------------------------------------- tensors


def _values_readable(tensor: Tensor) -> bool:
    """May we look at the numbers? On CPU, eagerly, in an ordinary tensor (not fake, not batched)."""
    ordinary = type(tensor) is Tensor or type(tensor) is torch.nn.Parameter
    return ordinary and tensor.is_cpu and is_plain_eager()


def _check_tensor(name: str, value: object) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor; got {type(value).__name__}.")
    return value


def _check_logits(logits: object) -> Tensor:
    logits = _check_tensor("logits", logits)
    if not logits.is_floating_point():
        raise TypeError(
            f"logits must be a floating-point tensor; got {logits.dtype}. Use logits.float()."
        )
    if logits.ndim == 0:
        raise ValueError(
            "logits must have shape (C), (N, C) or (N, C, d1, …); got a tensor without axes."
        )
    return logits


def _check_weight(weight: object, logits: Tensor, classes: int) -> Tensor:
    weight = _check_tensor("weight", weight)
    if not weight.is_floating_point():
        raise TypeError(f"weight must be a floating-point tensor; got {weight.dtype}.")
    if weight.shape != (classes,):
        raise ValueError(
            f"weight must hold one number per class, shape ({classes},); got {tuple(weight.shape)}."
        )
    if weight.device != logits.device:
        raise ValueError(
            f"weight must be on the device of the logits, {logits.device}; got {weight.device}."
        )
    if weight.requires_grad:
        raise ValueError(
            "weight must not require a gradient (it has none here, as in torch); "
            "got one that does. Use weight.detach()."
        )
    if _values_readable(weight) and classes > 0:
        low, high = (bound.item() for bound in torch.aminmax(weight))
        if not (low >= 0 and high < math.inf):  # NaN fails too
            worst = next(w for w in weight.tolist() if not 0 <= w < math.inf)
            raise ValueError(f"weight must be finite and >= 0 for every class; got {worst}.")
    return weight.detach().to(row_dtype(logits.device))


def _is_soft(target: Tensor, logits: Tensor) -> bool:
    """True if ``target`` holds class probabilities, False if it holds labels."""
    shape = logits.shape
    if target.dtype in _INTEGERS:
        labels = shape[:1] + shape[2:] if len(shape) > 1 else shape[1:]
        if target.shape != labels:
            raise ValueError(
                f"target must have shape {tuple(labels)} for labels beside logits of shape "
                f"{tuple(shape)}, whose classes are on axis {min(1, len(shape) - 1)}; "
                f"got {tuple(target.shape)}."
            )
        return False
    if not target.is_floating_point():
        raise TypeError(
            f"target must hold integer labels or floating-point class probabilities; "
            f"got {target.dtype}."
        )
    if target.shape != shape:
        raise ValueError(
            f"target must have the logits' shape {tuple(shape)} when it holds class probabilities; "
            f"got {tuple(target.shape)}. Labels must be integers: use target.long()."
        )
    return True


def _raise_bad_label(target: Tensor, ignore_index: int, classes: int, single: bool) -> None:
    bad = ((target < 0) | (target >= classes)) & (target != ignore_index)
    if not bool(bad.any()):
        return
    place = bad.nonzero()[0].tolist()
    value = int(target[tuple(place)])
    where = "" if single else f" at row {place[0] if len(place) == 1 else tuple(place)}"
    raise ValueError(
        f"target must lie in [0, {classes}) or equal ignore_index {ignore_index}; got {value}{where}."
    )


def _read_labels(
    target: Tensor, ignore_index: int, classes: int, single: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """(labels in range, kept, bad); kept is None when all rows are, bad when none can be."""
    if target.dtype != torch.int64:
        target = target.to(torch.int64)
    if _values_readable(target):
        if target.numel() == 0:
            return target, None, None
        bounds = torch.aminmax(target)
        low, high = bounds.min.item(), bounds.max.item()
        if low >= 0 and high < classes and not low <= ignore_index <= high:
            return target, None, None  # the usual case costs one pass over N labels
        _raise_bad_label(target, ignore_index, classes, single)
        kept = target != ignore_index
        return torch.where(kept, target, 0), kept, None
    kept = target != ignore_index
    in_range = (target >= 0) & (target < classes)
    return torch.where(kept & in_range, target, 0), kept, kept & ~in_range


# -------------------------------------------------------------------------------------- reading


def read_batch(
    logits: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None,
    ignore_index: int,
    reduction: Reduction,
    label_smoothing: float,
    labels_only: str | None = None,
) -> Batch:
    """Check the arguments all losses share and bring them into one form.

    Args:
        labels_only: name of a loss that needs one true class per row; probabilities and label
            smoothing are then refused with a sentence that names it.
    """
    logits = _check_logits(logits)
    target = _check_tensor("target", target)
    if reduction not in _REDUCTIONS:
        raise ValueError(f"reduction must be 'none', 'mean' or 'sum'; got {reduction!r}.")
    if type(ignore_index) is not int:
        raise TypeError(f"ignore_index must be an int; got {ignore_index!r}.")
    check_number("label_smoothing", label_smoothing, low=0, high=1)
    if target.device != logits.device:
        raise ValueError(
            f"target must be on the device of the logits, {logits.device}; got {target.device}."
        )
    soft = _is_soft(target, logits)
    if labels_only is not None:
        _refuse_soft(labels_only, soft, label_smoothing)
    single = logits.ndim == 1
    if single:
        logits, target = logits.unsqueeze(0), target.unsqueeze(0)
    classes = logits.shape[CLASS_AXIS]
    if classes == 0:
        raise ValueError(f"logits must have at least one class; got shape {tuple(logits.shape)}.")
    if weight is not None:
        weight = _check_weight(weight, logits, classes)
    if soft:
        mass, scale = _read_soft(target, logits, ignore_index, reduction)
        mass = _weigh(_smooth(mass, classes, label_smoothing), weight)
        return Batch(logits, None, mass, None, scale, reduction != "none", single)
    labels, kept, bad = _read_labels(target, ignore_index, classes, single)
    row_weight = None if weight is None else weight[labels]
    if kept is not None:
        kept_weight = kept.to(row_dtype(logits.device))
        row_weight = kept_weight if row_weight is None else kept_weight * row_weight
    divisor = 1.0
    if reduction == "mean":
        divisor = _mean_divisor(row_weight, labels)
    mass = None
    if label_smoothing > 0:  # the class weights then stand in the mass, class by class
        mass = _weigh(_smooth(_one_hot(labels, logits), classes, label_smoothing), weight)
        row_weight = None
    scale = (1.0 if row_weight is None else row_weight) / divisor
    if bad is not None:
        scale = torch.where(bad, torch.nan, scale)
    labels = labels if mass is None else None
    return Batch(logits, labels, mass, kept, scale, reduction != "none", single)


def _refuse_soft(loss: str, soft: bool, label_smoothing: float) -> None:
    why = f"for {loss}, which compares the true class with its rivals"
    if soft:
        raise ValueError(f"target must hold integer labels {why}; got class probabilities.")
    if label_smoothing > 0:
        raise ValueError(f"label_smoothing must be 0 {why}; got {label_smoothing}.")


def _read_soft(
    target: Tensor, logits: Tensor, ignore_index: int, reduction: Reduction
) -> tuple[Tensor, float]:
    """(probabilities, scale). As in torch, the mean divides by the number of rows."""
    if ignore_index >= 0:
        raise ValueError(
            f"ignore_index must stay negative when target holds class probabilities; "
            f"got {ignore_index}. Give the ignored rows zero probabilities."
        )
    rows = logits.numel() // logits.shape[CLASS_AXIS]
    scale = 1 / max(1, rows) if reduction == "mean" else 1.0
    return target.to(compute_dtype(logits.dtype)), scale


def _mean_divisor(row_weight: Tensor | None, labels: Tensor) -> Tensor | float:
    """The weight of the kept rows; 1 where that is 0, so that an empty batch gives 0."""
    if row_weight is None:
        return float(labels.numel() or 1)
    total = row_weight.sum()
    return torch.where(total > 0, total, 1)


def _along_classes(weight: Tensor, like: Tensor) -> Tensor:
    return weight.view(-1, *[1] * (like.ndim - 2))


def _weigh(mass: Tensor, weight: Tensor | None) -> Tensor:
    return mass if weight is None else mass * _along_classes(weight, mass).to(mass.dtype)


def _smooth(probabilities: Tensor, classes: int, label_smoothing: float) -> Tensor:
    if label_smoothing == 0:
        return probabilities
    return probabilities * (1 - label_smoothing) + label_smoothing / classes


def is_label(labels: Tensor, logits: Tensor) -> Tensor:
    """True at (row, label); not F.one_hot, which has no batching rule."""
    classes = torch.arange(logits.shape[CLASS_AXIS], device=logits.device)
    return _along_classes(classes, logits) == labels.unsqueeze(CLASS_AXIS)


def _one_hot(labels: Tensor, logits: Tensor) -> Tensor:
    return is_label(labels, logits).to(compute_dtype(logits.dtype))


# ------------------------------------------------------------------------------------- reducing


def reduce_rows(values: Tensor, batch: Batch) -> Tensor:
    """Weigh and reduce one value per row; rows that are not kept become 0."""
    if batch.kept is not None:
        values = torch.where(batch.kept, values, 0)
    values = values * batch.scale
    return batch.finish((values.sum() if batch.summed else values).to(batch.dtype))


def reduce_log_prob(formula: Formula, batch: Batch) -> Tensor:
    """Weigh and reduce ``formula(log p)``: at the label, or Σ_j mass_j · formula(log p_j)."""
    if batch.target is not None:
        result = log_prob_loss(
            batch.logits,
            batch.target,
            formula,
            kept=batch.kept,
            scale=batch.scale,
            summed=batch.summed,
            dtype=batch.dtype,
        )
        return batch.finish(result)
    return reduce_rows(expect_over_classes(formula, batch), batch)


def expect_over_classes(formula: Formula, batch: Batch) -> Tensor:
    """Σ_j mass_j · formula(log p_j), one value per row."""
    log_probs, mass = present_log_probs(kept_logits(batch), batch)
    return (mass * apply_formula(log_probs, formula)).sum(CLASS_AXIS)


def class_mass(batch: Batch) -> Tensor:
    """The mass of every class: what was given, or 1 at the label."""
    return _one_hot(batch.labels, batch.logits) if batch.mass is None else batch.mass


def present_log_probs(logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """log p of every class, and the mass of every class.

    A masked class (logit -inf) without mass is absent: its log p becomes 0, so that it contributes
    0 and not 0 · inf.
    """
    mass = class_mass(batch)
    log_probs = all_log_probs(logits)
    absent = (mass == 0) & (log_probs == -torch.inf)
    return torch.where(absent, 0, log_probs), mass


def kept_logits(batch: Batch) -> Tensor:
    """The logits with every ignored row replaced by zeros, so that NaN there cannot spread."""
    if batch.kept is None:
        return batch.logits
    return torch.where(batch.kept.unsqueeze(CLASS_AXIS), batch.logits, 0)
