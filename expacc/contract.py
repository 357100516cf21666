"""The contract of ``F.cross_entropy``, in one place: shapes, targets, weights, ignore, reduction.

``read_batch`` turns a user's arguments into a ``Batch``: logits (N, C, …), either labels or a mass
per class, and one factor per row that holds the class weight and the reduction. A loss then needs
one call: ``reduce_log_prob`` when it is a curve over log p(target), ``reduce_rows`` otherwise.

Shapes, dtypes and plain numbers are checked always. Values inside tensors are read only where that
is free of surprises (CPU, eager): never on a device, never inside a compiled graph or a transform;
there a label out of range makes its own row NaN.

A loss of 256×10 logits takes microseconds, so the path of a good call makes few Python calls; the
sentences for bad input are in ``expacc.errors``.
"""

import functools
import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from expacc import errors
from expacc.ops import (
    CLASS_AXIS,
    Formula,
    Spec,
    all_leads,
    all_log_probs,
    apply_formula,
    compute_dtype,
    fused_curve,
    is_plain_batch,
    is_plain_eager,
    log_prob_loss,
    row_dtype,
)

Reduction = Literal["none", "mean", "sum"]
# logits, target, weight, ignore_index, reduction
Labelled = tuple[Tensor, Tensor, Tensor | None, int, Reduction]
Shift = float | Literal["auto"]

_ORDINARY = (Tensor, torch.nn.Parameter)  # neither fake nor a subclass with a will of its own
_INTEGERS = {
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
}


class Batch(NamedTuple):
    """A checked batch.

    Exactly one of ``target`` (labels, all in range) and ``mass`` (class weight times probability of
    each class) is given. ``scale`` multiplies each row: class weight, 1/divisor of the mean, NaN
    for a bad label on a device. ``kept`` is None when every row is. ``single`` marks one row of
    logits that came without a batch axis.
    """

    logits: Tensor
    target: Tensor | None
    mass: Tensor | None
    kept: Tensor | None
    scale: Tensor | float
    summed: bool
    dtype: torch.dtype
    single: bool

    @property
    def labels(self) -> Tensor:
        """The labels of a batch that was read with ``labels_only``."""
        if self.target is None:
            raise ValueError("labels are not part of a batch of class probabilities.")
        return self.target


# -------------------------------------------------------------------------------------- reading


def read_batch(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: Reduction,
    label_smoothing: float,
    *,
    labels_only: str | None = None,
) -> Batch:
    """Check the arguments all losses share and bring them into one form.

    Args:
        labels_only: name of a loss that needs one true class per row; probabilities and label
            smoothing are then refused with a sentence that names it.
    """
    if not isinstance(logits, Tensor) or not logits.is_floating_point() or logits.ndim == 0:
        raise errors.logits_error(logits)
    if not isinstance(target, Tensor):
        raise errors.tensor_error("target", target)
    if reduction != "mean" and reduction != "none" and reduction != "sum":
        raise errors.reduction_error(reduction)
    if type(ignore_index) is not int:
        raise errors.ignore_index_error(ignore_index)
    if label_smoothing != 0:
        errors.check_number("label_smoothing", label_smoothing, low=0, high=1)
    if target.device != logits.device:
        raise errors.device_error("target", target, logits)
    shape = logits.shape
    soft = target.dtype not in _INTEGERS
    if soft and (not target.is_floating_point() or target.shape != shape):
        raise errors.probabilities_error(target, logits)
    if not soft and target.shape != (shape[:1] + shape[2:] if len(shape) > 1 else ()):
        raise errors.label_shape_error(target, logits)
    if labels_only is not None and (soft or label_smoothing != 0):
        raise errors.labels_only_error(labels_only, soft, label_smoothing)
    dtype = logits.dtype
    if dtype != torch.float32 and dtype != torch.float64 and _autocasts(logits):
        dtype = torch.float32
    single = len(shape) == 1
    if single:
        logits, target = logits.unsqueeze(0), target.unsqueeze(0)
    classes = logits.shape[CLASS_AXIS]
    if classes == 0:
        raise errors.logits_error(logits)
    if weight is not None:
        weight = _read_weight(weight, logits, classes)

    summed = reduction != "none"
    scale: Tensor | float
    mass: Tensor | None
    if soft:
        if ignore_index >= 0:
            raise errors.ignored_probabilities_error(ignore_index)
        mass = _smooth(target.to(compute_dtype(logits.dtype)), classes, label_smoothing)
        rows = logits.numel() // classes
        scale = 1 / max(1, rows) if reduction == "mean" else 1.0  # by rows, as torch does
        return Batch(logits, None, _weigh(mass, weight), None, scale, summed, dtype, single)

    labels, kept, bad = read_labels(target, ignore_index, classes, single)
    if weight is None and kept is None and label_smoothing == 0:  # the usual case
        scale = 1 / (labels.numel() or 1) if reduction == "mean" else 1.0
        return Batch(logits, labels, None, None, scale, summed, dtype, single)
    row_weight = _row_weight(weight, kept, labels)
    divisor = torch.ones_like(row_weight[:1].sum())
    if reduction == "mean":
        total = row_weight.sum()
        divisor = torch.where(total == 0, 1, total)  # an empty batch gives 0
    mass = None
    if label_smoothing != 0:  # the class weights then stand in the mass, class by class
        mass = _weigh(_smooth(_one_hot(labels, logits), classes, label_smoothing), weight)
        row_weight = torch.ones_like(row_weight)
    scale = row_weight / divisor
    if bad is not None:
        scale = torch.where(bad, torch.nan, scale)
    return Batch(logits, labels if mass is None else None, mass, kept, scale, summed, dtype, single)


def _autocasts(logits: Tensor) -> bool:
    """Torch's convention: the logits' dtype, but float32 for half precision under autocast."""
    return torch.is_autocast_enabled(logits.device.type)


def values_readable(tensor: Tensor) -> bool:
    """May we look at the numbers? On CPU, eagerly, in an ordinary tensor."""
    return type(tensor) in _ORDINARY and tensor.is_cpu and is_plain_eager()


def legal_values(
    name: str, tensor: Tensor, *, low: float, open_low: bool = False, of: str = ""
) -> Tensor:
    """The tensor, its numbers finite and >= ``low``; NaN for others where they may not be read.

    Args:
        name: of the argument.
        tensor: floating-point, any shape.
        low: the least number, or -inf.
        open_low: > ``low`` instead.
        of: what every number is for, in the sentence of the refusal.
    """
    if values_readable(tensor):
        if tensor.numel():
            errors.check_values(name, tensor, low, open_low, of)
        return tensor
    above = tensor > low if open_low else tensor >= low
    return torch.where(above & (tensor.abs() < torch.inf), tensor, torch.nan)


def _read_weight(weight: Tensor, logits: Tensor, classes: int) -> Tensor:
    errors.check_weight(weight, logits, classes)
    weight = weight.detach().to(row_dtype(logits.device))
    return legal_values("weight", weight, low=0, of="for every class")


def read_labels(
    target: Tensor, ignore_index: int, classes: int, single: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """(labels in range, kept, bad); kept is None when all rows are, bad when none can be."""
    if target.dtype != torch.int64:
        target = target.to(torch.int64)
    if values_readable(target):
        if target.numel() == 0:
            return target, None, None
        bounds = torch.aminmax(target)
        low, high = bounds[0].item(), bounds[1].item()
        if low >= 0 and high < classes and not low <= ignore_index <= high:
            return target, None, None  # the usual case
        errors.check_labels(target, ignore_index, classes, single)
        kept = target != ignore_index
        return torch.where(kept, target, 0), kept, None
    kept = target != ignore_index
    in_range = (target >= 0) & (target < classes)
    return torch.where(kept & in_range, target, 0), kept, kept & ~in_range


def _row_weight(weight: Tensor | None, kept: Tensor | None, labels: Tensor) -> Tensor:
    """The class weight of every row, 0 where it is not kept."""
    rows = row_dtype(labels.device)
    row_weight = torch.ones_like(labels, dtype=rows) if weight is None else weight[labels]
    return row_weight if kept is None else torch.where(kept, row_weight, 0)


def _along_classes(weight: Tensor, like: Tensor) -> Tensor:
    return weight.view(-1, *[1] * (like.ndim - 2))


def _weigh(mass: Tensor, weight: Tensor | None) -> Tensor:
    return mass if weight is None else mass * _along_classes(weight, mass).to(mass.dtype)


def _smooth(probabilities: Tensor, classes: int, label_smoothing: float) -> Tensor:
    if label_smoothing == 0:
        return probabilities
    return probabilities * (1 - label_smoothing) + label_smoothing / classes


def _one_hot(labels: Tensor, logits: Tensor) -> Tensor:
    return is_label(labels, logits).to(compute_dtype(logits.dtype))


# -------------------------------------------------------------------------------- class by class


def is_label(labels: Tensor, logits: Tensor) -> Tensor:
    """True at (row, label); not F.one_hot, which has no batching rule."""
    classes = torch.arange(logits.shape[CLASS_AXIS], device=logits.device)
    return _along_classes(classes, logits) == labels.unsqueeze(CLASS_AXIS)


def class_mass(batch: Batch) -> Tensor:
    """The mass of every class: what was given, or 1 at the label."""
    return _one_hot(batch.labels, batch.logits) if batch.mass is None else batch.mass


def sound_batch(batch: Batch) -> Batch:
    """The batch with zeros for ignored rows, where a NaN must not spread, and NaN for unsound ones.

    A row with NaN or +inf among its logits, or with nothing but -inf, has no softmax and no winner:
    its value and its gradient are NaN, whatever a loss makes of it.
    """
    logits = batch.logits
    if batch.kept is not None:
        logits = torch.where(batch.kept.unsqueeze(CLASS_AXIS), logits, 0)
    if values_readable(logits) and math.isfinite(logits.detach().sum().item()):
        return batch._replace(logits=logits)  # the usual case
    top = logits.detach().amax(CLASS_AXIS)
    sound = top - top + 1  # 1 or NaN
    scale = batch.scale * sound.to(row_dtype(logits.device))
    return batch._replace(logits=logits * sound.unsqueeze(CLASS_AXIS), scale=scale)


def present_log_probs(logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """log p of every class, and the mass of every class.

    A masked class (logit -inf) without mass is absent: its log p becomes 0, so that it contributes
    0 and not 0 · inf.
    """
    mass = class_mass(batch)
    log_probs = all_log_probs(logits)
    absent = (mass == 0) & (log_probs == -torch.inf)
    return torch.where(absent, 0, log_probs), mass


# ------------------------------------------------------------------------------------- reducing


def reduce_rows(values: Tensor, batch: Batch) -> Tensor:
    """Weigh and reduce one value per row; rows that are not kept become 0."""
    if batch.kept is not None:
        values = torch.where(batch.kept, values, 0)
    values = values * batch.scale
    if batch.summed:
        return values.sum().to(batch.dtype)
    return (values.squeeze(0) if batch.single else values).to(batch.dtype)


def read_shift(shift: Shift, classes: int) -> float:
    """The number: 'auto' makes more than ten classes start as ten do, where p is 1/10."""
    if shift == "auto":
        return math.log((classes - 1) / 9) if classes > 10 else 0.0
    if isinstance(shift, str):
        raise ValueError(f"shift must be a number or 'auto'; got {shift!r}.")  # noqa: TRY004
    return errors.check_number("shift", shift, low=-math.inf)


def read_spec(
    curve: str,
    logits: Tensor,
    label_smoothing: float,
    shift: Shift,
    scale: float,
    factor: float = 1.0,
    share: float = 0.0,
) -> Spec:
    """A curve of the kernels, its numbers checked."""
    classes = logits.shape[CLASS_AXIS] if logits.ndim > 1 else len(logits)
    numbers = (curve, classes, label_smoothing, shift, scale, factor, share)
    try:
        return _checked_spec(*numbers)
    except TypeError:  # nothing to remember it by, or no number
        return _checked_spec.__wrapped__(*numbers)


@functools.lru_cache(256, typed=True)
def _checked_spec(
    curve: str,
    classes: int,
    label_smoothing: float,
    shift: Shift,
    scale: float,
    factor: float,
    share: float,
) -> Spec:
    number = read_shift(shift, classes)
    errors.check_number("scale", scale, low=0, open_low=True)
    errors.check_number("label_smoothing", label_smoothing, low=0, high=1)
    return Spec(curve, factor, number, float(scale), share, float(label_smoothing))


def reduce_curve(
    formula: Formula,
    batch: Labelled,
    label_smoothing: float,
    shift: Shift = 0.0,
    scale: float = 1.0,
) -> Tensor:
    """``formula`` of a batch that nobody has read: fused on a GPU, else as ``reduce_log_prob``."""
    if formula.curve is not None and is_plain_batch(*batch[:2]) and batch[0].ndim:
        curve, *numbers = formula.curve
        spec = read_spec(curve, batch[0], label_smoothing, shift, scale, formula.factor)
        fused = fused_curve(batch, (numbers[0], numbers[1]), "auto", _reduce_again, spec, formula)
        if fused is not None:
            return fused
    return reduce_log_prob(formula, read_batch(*batch, label_smoothing), shift, scale)


def _reduce_again(batch: Labelled, _: object, spec: Spec, formula: Formula) -> Tensor:
    """The same by operations, for those who differentiate twice."""
    return reduce_log_prob(formula, read_batch(*batch, spec.smoothing), spec.shift, spec.scale)


def reduce_log_prob(
    formula: Formula, batch: Batch, shift: Shift = 0.0, scale: float = 1.0
) -> Tensor:
    """Weigh and reduce ``formula(log p)``: at the label, or Σ_j mass_j · formula(log p_j).

    ``shift`` and ``scale`` move the soft margin log p/(1-p), and with it p.
    """
    logits, target, mass, kept, factor, summed, dtype, single = batch
    if shift != 0 or scale != 1:
        errors.check_number("scale", scale, low=0, open_low=True)
        formula = formula._replace(shift=read_shift(shift, logits.shape[CLASS_AXIS]), scale=scale)
    if target is None or mass is not None:
        batch = sound_batch(batch)
        if formula.moves():
            mass, leads = class_mass(batch), all_leads(batch.logits)
            leads = torch.where((mass == 0) & (leads == -torch.inf), torch.inf, leads)
            values = apply_formula(leads, formula, is_lead=True)
        else:
            log_probs, mass = present_log_probs(batch.logits, batch)
            values = apply_formula(log_probs, formula)
        return reduce_rows((mass * values).sum(CLASS_AXIS), batch)
    result = log_prob_loss(logits, target, formula, kept, factor, summed, dtype)
    return result.squeeze(0) if single and not summed else result


# ------------------------------------------------------------------ for losses of other targets


def output_dtype(logits: Tensor) -> torch.dtype:
    """The dtype of a result, as in ``read_batch``."""
    dtype = logits.dtype
    short = dtype != torch.float32 and dtype != torch.float64
    return torch.float32 if short and _autocasts(logits) else dtype
