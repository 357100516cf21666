"""From the name of a loss, or a loss object, to what the loop computes each step."""

import copy
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from expacc import baselines, functional
from expacc.errors import check_choice, check_number
from expacc.functional import exact_error
from expacc.functional.softmax import focus_weights
from expacc.scheduled import ScheduledLoss
from expacc.schedules import Schedule, sigma_tabular
from expacc.training.loss_slopes import (
    CURVES,
    Batch,
    Numbers,
    Slope,
    along,
    cross_entropy,
    exact,
    hinge,
    standardize,
)

__all__ = ["LOSS_NAMES", "Objective", "objective_of"]

# The numbers of every named loss and where they start.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "cross_entropy": {},
    "expected_error": {},
    "leaky_expected_error": {"leak": 0.1},
    "mixed_expected_error": {"focus": 0.0},
    "exact": {"sigma": sigma_tabular, "margin": None},
    "hinge": {"margin": 1.0},
    "focal": {"gamma": 2.0, "alpha": 0.25},
    "mean_absolute_error": {},
    "generalized_cross_entropy": {"q": 0.7, "truncation": None},
    "tamed_cross_entropy": {"taming": 0.8},
    "poly1_cross_entropy": {"epsilon": 1.0},
    "complement_entropy": {},
    "maximum_probability_cross_entropy": {},
}
_EXACT_OPTIONS: dict[str, Any] = {"standardize": True, "noise": "normal", "log": False}
LOSS_NAMES = tuple(_DEFAULTS)


@dataclass(frozen=True)
class Objective:
    """A loss for training. Runs whose objectives are of one kind are computed together.

    Args:
        name: for people.
        kind: what must be equal to share a slope; numbers may differ.
        slope: dL/dlogits of a batch.
        numbers: name → a number or a schedule.
    """

    name: str
    kind: tuple[Any, ...]
    slope: Slope
    numbers: Mapping[str, float | Schedule]

    def at(self, progress: float) -> dict[str, float]:
        """The numbers at ``progress`` in [0, 1], as the slope takes them."""
        found = {
            name: float(value(progress) if callable(value) else value)
            for name, value in self.numbers.items()
        }
        if "focus" in found:
            found["ce_weight"], found["error_weight"] = focus_weights(found.pop("focus"))
        return found


def objective_of(
    loss: str | nn.Module | Callable[..., Tensor], numbers: Mapping[str, Any] | None = None
) -> Objective:
    """The objective of a named loss with its numbers, or of a loss object.

    Args:
        loss: one of ``LOSS_NAMES``; one of this package's loss Modules, or ``ScheduledLoss`` around
            one; or any callable of (logits, target).
        numbers: of a named loss, e.g. ``{"leak": 0.2}``; each a number or a schedule. Every loss
            also takes ``scale``, a factor of its slope.

    Raises:
        TypeError: ``loss`` is neither a name nor callable.
        ValueError: an unknown name, or a number the loss does not have.
    """
    given = dict(numbers or {})
    if isinstance(loss, ScheduledLoss):
        inner, own = _unwrap(loss.loss)
        return objective_of(inner, {**own, **loss.schedules, **given})
    if isinstance(loss, nn.Module):
        known, own = _unwrap(loss)
        if isinstance(known, str):
            return objective_of(known, {**own, **given})
    if not isinstance(loss, str):
        return _of_object(loss, given)
    check_choice("loss", loss, LOSS_NAMES)
    options = {}
    if loss == "exact":
        options = {name: given.pop(name, usual) for name, usual in _EXACT_OPTIONS.items()}
    values = {**_DEFAULTS[loss], **given}
    if loss == "mixed_expected_error" and given.keys() & {"ce_weight", "error_weight"}:
        values.pop("focus")
    allowed = {*_DEFAULTS[loss], "scale"}
    if loss == "mixed_expected_error":
        allowed |= {"ce_weight", "error_weight"}
    for name in sorted(given.keys() - allowed):
        has = ", ".join(sorted(allowed | options.keys()))
        raise ValueError(f"numbers must name numbers of {loss}; got {name!r}. It has: {has}.")
    for progress in (0.0, 0.5, 1.0):
        at = {key: value(progress) if callable(value) else value for key, value in values.items()}
        check_number("scale", at.pop("scale", 1.0), low=0)
        _refuse_bad_numbers(loss, tuple(at.items()), tuple(options.items()))
    return _named(loss, values, options)


@functools.lru_cache(maxsize=4096)
def _refuse_bad_numbers(
    name: str, numbers: tuple[tuple[str, Any], ...], options: tuple[tuple[str, Any], ...]
) -> None:
    """Let the loss itself look at its numbers, on one row."""
    if name != "cross_entropy":
        function = exact_error if name == "exact" else _function(name)
        row, label = torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64)
        function(row, label, **dict(numbers), **dict(options))


def _function(name: str) -> Callable[..., Tensor]:
    found: Callable[..., Tensor] = getattr(functional, name, None) or getattr(baselines, name)
    return found


def _named(name: str, values: dict[str, Any], options: dict[str, Any]) -> Objective:
    if name == "cross_entropy":
        return Objective(name, (name,), cross_entropy, values)
    if name == "hinge":
        return Objective(name, (name,), hinge, values)
    if name in CURVES:
        if name == "generalized_cross_entropy" and values["truncation"] is None:
            values["truncation"] = 0.0
        return Objective(name, (name,), along(CURVES[name]), values)
    if name == "exact":
        return _exact_objective(values, options)
    return Objective(name, (name,), _by_rows(_function(name)), values)


def _exact_objective(values: dict[str, Any], options: dict[str, Any]) -> Objective:
    standardized, noise, log = (options[name] for name in _EXACT_OPTIONS)
    check_choice("standardize", standardized, (True, False))
    kind: tuple[Any, ...] = ("exact", standardized, noise, log)
    if noise == "normal" and not log:
        limited = values["margin"] is not None
        kind = (*kind, limited)
        values["margin"] = values["margin"] if limited else 0.0
        return Objective("exact", kind, exact(standardized, limited), values)
    margin = values.pop("margin")  # a number of the function, so equal in all its runs

    def slope(logits: Tensor, batch: Batch, numbers: Numbers) -> Tensor:
        scores, back = standardize(logits, batch) if standardized else (logits, None)
        per_row = numbers["sigma"].expand_as(batch.labels).reshape(-1, 1)

        def errors(rows: Tensor, labels: Tensor) -> Tensor:
            return exact_error(
                rows,
                labels,
                sigma=per_row.to(rows.dtype),
                margin=margin,
                standardize=False,
                noise=noise,
                log=log,
                reduction="none",
            )

        total = _by_rows(errors)(scores, batch, numbers)
        return back(total) if back else total

    return Objective("exact", (*kind, margin), slope, values)


def _by_rows(function: Callable[..., Tensor]) -> Slope:
    """The slope of a loss that gives one value per row, by autograd over all runs at once."""

    def slope(logits: Tensor, batch: Batch, numbers: Numbers) -> Tensor:
        runs, classes, rows = logits.shape
        with torch.enable_grad():
            leaf = logits.detach().requires_grad_()
            flat = leaf.transpose(1, 2).reshape(runs * rows, classes)
            try:
                values = function(flat, batch.labels.reshape(-1), reduction="none")
            except TypeError as refused:
                if "reduction" not in str(refused):
                    raise
                values = function(flat, batch.labels.reshape(-1))
            total = (values.view(runs, 1, rows) * batch.share).sum()
            return torch.autograd.grad(total, leaf)[0]

    return slope


def _of_object(loss: Any, numbers: dict[str, Any]) -> Objective:
    if not callable(loss):
        raise TypeError(
            f"loss must be a name or a callable of (logits, target); got {loss!r}. "
            f"Names: {', '.join(LOSS_NAMES)}."
        )
    if numbers:
        raise ValueError(f"numbers must be left out for a loss object; got {sorted(numbers)}.")
    name = str(getattr(loss, "__name__", type(loss).__name__))
    by_rows = isinstance(loss, nn.Module) and hasattr(loss, "reduction")
    if by_rows:
        loss = copy.copy(loss)
        setattr(loss, "reduction", "none")  # noqa: B010 - any Module's
    return Objective(name, (name, id(loss)), _run_by_run(loss, by_rows), {})


def _run_by_run(loss: Callable[[Tensor, Tensor], Tensor], by_rows: bool) -> Slope:
    """The slope of any loss, one run after the other, as it may look at its batch as a whole.

    Rows of share 0 are left out. ``by_rows`` says that it gives a value per row; else it gives
    their mean, and knows no weights.
    """

    def slope(logits: Tensor, batch: Batch, numbers: Numbers) -> Tensor:
        total = torch.zeros_like(logits)
        runs, _, rows = logits.shape
        for run in range(runs):
            share = batch.share
            own = share[run, 0] if isinstance(share, Tensor) else logits.new_full((rows,), share)
            kept = own > 0
            with torch.enable_grad():
                leaf = logits[run].t()[kept].detach().requires_grad_()
                value = loss(leaf, batch.labels[run, 0][kept])
                if by_rows:
                    value = (value * own[kept]).sum()
                elif bool((own[kept] != own[kept].amax()).any()):
                    raise ValueError(
                        "sample weights must be left out for a loss without reduction='none'; "
                        "got rows of different weight. Use a named loss."
                    )
                total[run].t()[kept] = torch.autograd.grad(value, leaf)[0]
        return total

    return slope


def _unwrap(loss: nn.Module) -> tuple[str | nn.Module, dict[str, Any]]:
    """The name and the numbers of one of our plain Modules, as far as the named form has them."""
    function = getattr(type(loss), "function", None)
    name = "exact" if function is exact_error else getattr(function, "__name__", "")
    if type(loss) is nn.CrossEntropyLoss:
        name = "cross_entropy"
    plain = (
        getattr(loss, "weight", None) is None
        and getattr(loss, "label_smoothing", 0) == 0
        and getattr(loss, "topk", 1) == 1
        and not isinstance(getattr(loss, "sigma", None), Tensor)
        and getattr(loss, "standardize", True) in (True, False)
    )
    if name not in _DEFAULTS or not plain:
        return loss, {}
    keys = [*_DEFAULTS[name], *(_EXACT_OPTIONS if name == "exact" else ())]
    if name == "mixed_expected_error" and getattr(loss, "ce_weight", None) is not None:
        keys = ["ce_weight", "error_weight"]
    numbers = {key: getattr(loss, key) for key in keys}
    if name == "focal" and numbers["alpha"] is None:
        numbers["alpha"] = 1.0
    return name, numbers
