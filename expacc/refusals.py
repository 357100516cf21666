"""What bad input gets: one sentence with the argument's name, the constraint, the value, the cure.

``ValueError`` for values and shapes, ``TypeError`` for types and dtypes.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


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
        return value  # type: ignore[return-value]
    if high < math.inf:
        phrase = f"lie in {'(' if open_low else '['}{low:g}, {high:g}{')' if open_high else ']'}"
    else:
        phrase = f"be finite and {'>' if open_low else '>='} {low:g}"
    raise ValueError(f"{name} must {phrase}; got {value}.{cure and ' ' + cure}")


def not_a_tensor(name: str, value: object) -> Exception:
    return TypeError(f"{name} must be a torch.Tensor; got {type(value).__name__}.")


def bad_logits(logits: object) -> Exception:
    if not isinstance(logits, Tensor):
        return not_a_tensor("logits", logits)
    if not logits.is_floating_point():
        return TypeError(
            f"logits must be a floating-point tensor; got {logits.dtype}. Use logits.float()."
        )
    if logits.ndim == 0:
        return ValueError(
            "logits must have shape (C), (N, C) or (N, C, d1, …); got a tensor without axes."
        )
    return ValueError(f"logits must have at least one class; got shape {tuple(logits.shape)}.")


def bad_reduction(reduction: object) -> Exception:
    return ValueError(f"reduction must be 'none', 'mean' or 'sum'; got {reduction!r}.")


def bad_ignore_index(ignore_index: object) -> Exception:
    return TypeError(f"ignore_index must be an int; got {ignore_index!r}.")


def wrong_device(name: str, tensor: Tensor, logits: Tensor) -> Exception:
    return ValueError(
        f"{name} must be on the device of the logits, {logits.device}; got {tensor.device}."
    )


def bad_probabilities(target: Tensor, logits: Tensor) -> Exception:
    if not target.is_floating_point():
        return TypeError(
            f"target must hold integer labels or floating-point class probabilities; "
            f"got {target.dtype}."
        )
    return ValueError(
        f"target must have the logits' shape {tuple(logits.shape)} when it holds class "
        f"probabilities; got {tuple(target.shape)}. Labels must be integers: use target.long()."
    )


def bad_label_shape(target: Tensor, logits: Tensor) -> Exception:
    shape = tuple(logits.shape)
    labels = shape[:1] + shape[2:] if len(shape) > 1 else ()
    return ValueError(
        f"target must have shape {labels} for labels beside logits of shape {shape}, whose classes "
        f"are on axis {min(1, len(shape) - 1)}; got {tuple(target.shape)}."
    )


def labels_only(loss: str, soft: bool, label_smoothing: float) -> Exception:
    why = f"for {loss}, which compares the true class with its rivals"
    if soft:
        return ValueError(f"target must hold integer labels {why}; got class probabilities.")
    return ValueError(f"label_smoothing must be 0 {why}; got {label_smoothing}.")


def ignored_probabilities(ignore_index: int) -> Exception:
    return ValueError(
        f"ignore_index must stay negative when target holds class probabilities; "
        f"got {ignore_index}. Give the ignored rows zero probabilities."
    )


def check_labels(target: Tensor, ignore_index: int, classes: int, single: bool) -> None:
    """Raise for the first label that is neither in range nor ignored."""
    bad = ((target < 0) | (target >= classes)) & (target != ignore_index)
    if not bool(bad.any()):
        return
    place = bad.nonzero()[0].tolist()
    value = int(target[tuple(place)])
    where = "" if single else f" at row {place[0] if len(place) == 1 else tuple(place)}"
    raise ValueError(
        f"target must lie in [0, {classes}) or equal ignore_index {ignore_index}; "
        f"got {value}{where}."
    )


def check_weight(
    weight: object, logits: Tensor, classes: int, readable: Callable[[Tensor], bool]
) -> None:
    """Raise unless ``weight`` is a constant vector of finite class weights >= 0."""
    if not isinstance(weight, Tensor):
        raise not_a_tensor("weight", weight)
    if not weight.is_floating_point():
        raise TypeError(f"weight must be a floating-point tensor; got {weight.dtype}.")
    if weight.shape != (classes,):
        raise ValueError(
            f"weight must hold one number per class, shape ({classes},); got {tuple(weight.shape)}."
        )
    if weight.device != logits.device:
        raise wrong_device("weight", weight, logits)
    if weight.requires_grad:
        raise ValueError(
            "weight must not require a gradient (it has none here, as in torch); "
            "got one that does. Use weight.detach()."
        )
    if readable(weight):
        low, high = (bound.item() for bound in torch.aminmax(weight))
        if not (low >= 0 and high < math.inf):  # NaN fails too
            worst = next(w for w in weight.tolist() if not 0 <= w < math.inf)
            raise ValueError(f"weight must be finite and >= 0 for every class; got {worst}.")
