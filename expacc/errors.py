"""What bad input gets: one sentence with the argument's name, the constraint, the value, the cure.

``ValueError`` for values and shapes, ``TypeError`` for types and dtypes.
"""

import math
from typing import Any

import torch
from torch import Tensor

from expacc.plain import UsageError as UsageError
from expacc.plain import check_choice as check_choice
from expacc.plain import check_count as check_count


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
    elif low == -math.inf:
        phrase = "be finite"
    else:
        phrase = f"be finite and {'>' if open_low else '>='} {low:g}"
    raise ValueError(f"{name} must {phrase}; got {value}.{cure and ' ' + cure}")


def tensor_error(name: str, value: object) -> Exception:
    return TypeError(f"{name} must be a torch.Tensor; got {type(value).__name__}.")


def logits_error(logits: object, name: str = "logits") -> Exception:
    if not isinstance(logits, Tensor):
        return tensor_error(name, logits)
    if not logits.is_floating_point():
        return TypeError(
            f"{name} must be a floating-point tensor; got {logits.dtype}. Use {name}.float()."
        )
    if logits.ndim == 0:
        return ValueError(f"{name} must have an axis of classes; got a tensor without axes.")
    return ValueError(f"{name} must have at least one class; got shape {tuple(logits.shape)}.")


def check_nodes(nodes: int | None) -> int:
    """The number of nodes, 0 for the dtype's own."""
    if nodes is None:
        return 0
    check_count("nodes", nodes)
    return nodes


def sigma_error(
    sigma: Tensor, shape: torch.Size, *, ambiguous: bool = False, per_row: bool = False
) -> Exception:
    if not sigma.is_floating_point():
        return TypeError(f"sigma must be a floating-point tensor; got {sigma.dtype}.")
    if ambiguous:
        return ValueError(
            f"sigma must not be a vector where rows and classes are equally many, {shape[0]}; got "
            f"{tuple(sigma.shape)}. Give ({shape[0]}, 1) for rows or (1, {shape[0]}) for classes."
        )
    if per_row:
        return ValueError(
            f"sigma must be a number, or have one entry per row of logits of shape {tuple(shape)} "
            f"and an axis of length 1 for the classes; got {tuple(sigma.shape)}."
        )
    return ValueError(
        f"sigma must be a number, or have one entry per row, per class or per logit of shape "
        f"{tuple(shape)}; got {tuple(sigma.shape)}."
    )


def check_cost(cost: object, logits: Tensor) -> None:
    """Raise unless ``cost`` is a floating-point (C, C) tensor on the logits' device."""
    if not isinstance(cost, Tensor):
        raise tensor_error("cost", cost)
    if not cost.is_floating_point():
        raise TypeError(f"cost must be a floating-point tensor; got {cost.dtype}.")
    classes = logits.shape[1]
    if cost.shape != (classes, classes):
        raise ValueError(
            f"cost must have shape ({classes}, {classes}), true classes in rows; "
            f"got {tuple(cost.shape)}."
        )
    if cost.device != logits.device:
        raise device_error("cost", cost, logits)


def reduction_error(reduction: object) -> Exception:
    return ValueError(f"reduction must be 'none', 'mean' or 'sum'; got {reduction!r}.")


def ignore_index_error(ignore_index: object) -> Exception:
    return TypeError(f"ignore_index must be an int; got {ignore_index!r}.")


def device_error(name: str, tensor: Tensor, logits: Tensor) -> Exception:
    return ValueError(
        f"{name} must be on the device of the logits, {logits.device}; got {tensor.device}."
    )


def probabilities_error(target: Tensor, logits: Tensor) -> Exception:
    if not target.is_floating_point():
        return TypeError(
            f"target must hold integer labels or floating-point class probabilities; "
            f"got {target.dtype}."
        )
    return ValueError(
        f"target must have the logits' shape {tuple(logits.shape)} when it holds class "
        f"probabilities; got {tuple(target.shape)}. Labels must be integers: use target.long()."
    )


def label_shape_error(target: Tensor, logits: Tensor) -> Exception:
    shape = tuple(logits.shape)
    labels = shape[:1] + shape[2:] if len(shape) > 1 else ()
    return ValueError(
        f"target must have shape {labels} for labels beside logits of shape {shape}, whose classes "
        f"are on axis {min(1, len(shape) - 1)}; got {tuple(target.shape)}."
    )


def labels_only_error(loss: str, soft: bool, label_smoothing: float) -> Exception:
    why = f"for {loss}, which compares the true class with its rivals"
    if soft:
        return ValueError(f"target must hold integer labels {why}; got class probabilities.")
    return ValueError(f"label_smoothing must be 0 {why}; got {label_smoothing}.")


def ignored_probabilities_error(ignore_index: int) -> Exception:
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


def check_values(name: str, tensor: Tensor, low: float, open_low: bool, of: str) -> None:
    """Raise for the first number that is not finite and >= ``low``, > ``low`` if ``open_low``."""
    least, most = (bound.item() for bound in torch.aminmax(tensor))
    above = least > low if open_low else least >= low
    if above and -math.inf < least and most < math.inf:  # NaN is none of it
        return
    legal = tensor > low if open_low else tensor >= low
    worst = tensor[~(legal & (tensor.abs() < math.inf))][0].item()
    bound = "" if low == -math.inf else f" and {'>' if open_low else '>='} {low:g}"
    raise ValueError(f"{name} must be finite{bound}{of and ' ' + of}; got {worst}.")


def check_weight(weight: object, logits: Tensor, classes: int) -> None:
    """Raise unless ``weight`` is a constant vector of class weights; its numbers are not read."""
    if not isinstance(weight, Tensor):
        raise tensor_error("weight", weight)
    if not weight.is_floating_point():
        raise TypeError(f"weight must be a floating-point tensor; got {weight.dtype}.")
    if weight.shape != (classes,):
        raise ValueError(
            f"weight must hold one number per class, shape ({classes},); got {tuple(weight.shape)}."
        )
    if weight.device != logits.device:
        raise device_error("weight", weight, logits)
    if weight.requires_grad:
        raise ValueError(
            "weight must not require a gradient (it has none here, as in torch); "
            "got one that does. Use weight.detach()."
        )


def check_binary_target(target: object, logits: Tensor) -> None:
    """Raise unless ``target`` holds yes/no labels of the logits' shape; reads no number."""
    if not isinstance(target, Tensor):
        raise tensor_error("target", target)
    if target.is_complex():
        raise TypeError(f"target must hold real numbers in [0, 1]; got {target.dtype}.")
    if target.shape != logits.shape:
        raise ValueError(
            f"target must have the logits' shape {tuple(logits.shape)}; got {tuple(target.shape)}."
        )
    if target.device != logits.device:
        raise device_error("target", target, logits)


def share_error(target: Tensor) -> Exception:
    """For a target with a number outside of [0, 1]."""
    worst = target[~((target >= 0) & (target <= 1))][0].item()
    return ValueError(f"target must lie in [0, 1], 1 for a yes; got {worst}.")


def check_factor(name: str, factor: object, logits: Tensor) -> None:
    """Raise unless ``factor`` is a floating-point tensor that broadcasts to the logits' shape."""
    if not isinstance(factor, Tensor):
        raise tensor_error(name, factor)
    if not factor.is_floating_point():
        raise TypeError(f"{name} must be a floating-point tensor; got {factor.dtype}.")
    ends = zip(factor.shape[::-1], logits.shape[::-1], strict=False)
    if factor.ndim > logits.ndim or any(have not in (1, need) for have, need in ends):
        raise ValueError(
            f"{name} must broadcast to the logits' shape {tuple(logits.shape)}; "
            f"got {tuple(factor.shape)}."
        )
    if factor.device != logits.device:
        raise device_error(name, factor, logits)
