"""From the name of a loss, or a loss object, to what the loop computes each step."""

import copy
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from expacc.contract import read_shift
from expacc.errors import check_choice, check_number
from expacc.functional import exact_error
from expacc.functional.softmax import focus_weights
from expacc.registry import SPECS, LossSpec, list_losses, spec_of
from expacc.registry.spec import MIXTURE
from expacc.scheduled import ScheduledLoss
from expacc.schedules import Schedule
from expacc.training import loss_slopes, robust_slopes
from expacc.training.loss_slopes import (
    Batch,
    Numbers,
    Slope,
    along,
    along_moved,
    exact,
    standardize,
)

__all__ = ["LOSS_NAMES", "Objective", "objective_of"]

LOSS_NAMES = list_losses()
MOVES = {"shift": 0.0, "scale": 1.0}  # of the soft margin, where they change nothing


@dataclass(frozen=True)
class Objective:
    """A loss for training. Runs whose objectives are of one kind are computed together.

    Args:
        name: for people.
        kind: what must be equal to share a slope; numbers may differ.
        slope: dL/dlogits of a batch.
        loss_params: name → a number or a schedule.
    """

    name: str
    kind: tuple[Any, ...]
    slope: Slope
    loss_params: Mapping[str, float | Schedule]

    def at(self, progress: float) -> dict[str, float]:
        """The numbers at ``progress`` in [0, 1], as the slope takes them."""
        found = {
            name: float(value(progress) if callable(value) else value)
            for name, value in self.loss_params.items()
        }
        if "focus" in found:
            found["ce_weight"], found["error_weight"] = focus_weights(found.pop("focus"))
        return found


def objective_of(
    loss: str | nn.Module | Callable[..., Tensor],
    loss_params: Mapping[str, Any] | None = None,
    classes: int = 2,
) -> Objective:
    """The objective of a named loss with its numbers, or of a loss object.

    Args:
        loss: one of ``LOSS_NAMES``; one of this package's loss Modules, or ``ScheduledLoss`` around
            one; or any callable of (logits, target).
        loss_params: of a named loss, e.g. ``{"leak": 0.2}``; each a number or a schedule. Every
            loss also takes ``slope_factor``, and every curve over log p ``shift`` and ``scale``.
        classes: how many, for a shift 'auto'.

    Raises:
        TypeError: ``loss`` is neither a name nor callable.
        ValueError: an unknown name, or a number the loss does not have.
    """
    given = dict(loss_params or {})
    if isinstance(loss, ScheduledLoss):
        inner, own = _unwrap(loss.loss)
        return objective_of(inner, {**own, **loss.schedules, **given}, classes)
    if isinstance(loss, nn.Module):
        known, own = _unwrap(loss)
        if isinstance(known, str):
            return objective_of(known, {**own, **given}, classes)
    if not isinstance(loss, str):
        return _of_object(loss, given)
    spec = spec_of(loss)
    check_choice("loss", spec.base, LOSS_NAMES)
    options = {name: given.pop(name, usual) for name, usual in spec.options.items()}
    values = {**spec.defaults, **given}
    allowed = {*spec.defaults, "slope_factor"}
    if callable(spec.slope):
        allowed |= MOVES.keys()
        if values.get("shift") == "auto":
            values["shift"] = read_shift("auto", classes)
        if all(values.get(name, usual) == usual for name, usual in MOVES.items()):
            values = {name: value for name, value in values.items() if name not in MOVES}
        else:
            values = {**MOVES, **values}
    if spec.base == "mixed_expected_error":  # a focus, or the two weights in its place
        allowed |= {*MIXTURE}
        if values.keys() & {*MIXTURE}:
            values.pop("focus", None)
            values = {"ce_weight": 1.0, "error_weight": 1.0, **values}
    for name in sorted(given.keys() - allowed):
        has = ", ".join(sorted(allowed | options.keys()))
        raise ValueError(
            f"loss_params must name parameters of {loss}; got {name!r}. It has: {has}."
        )
    for name in spec.counts:
        if callable(schedule := values.get(name)):
            values[name] = functools.partial(_rounded, schedule)
    for progress in (0.0, 0.5, 1.0):
        at = {key: value(progress) if callable(value) else value for key, value in values.items()}
        check_number("slope_factor", at.pop("slope_factor", 1.0), low=0)
        _refuse_bad_numbers(spec.base, tuple(at.items()), tuple(options.items()))
    return _named(spec, values, options)


def _rounded(schedule: Schedule, progress: float) -> int:
    return round(schedule(progress))


@functools.lru_cache(maxsize=4096)
def _refuse_bad_numbers(
    name: str, numbers: tuple[tuple[str, Any], ...], options: tuple[tuple[str, Any], ...]
) -> None:
    """Let the loss itself look at its numbers, on one row."""
    row, label = torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64)
    _function(SPECS[name])(row, label, **dict(numbers), **dict(options))


def _function(spec: LossSpec) -> Callable[..., Tensor]:
    if spec.function is None:
        raise ValueError(f"loss must be a function of logits and labels; got {spec.name!r}.")
    return spec.function


def _named(spec: LossSpec, values: dict[str, Any], options: dict[str, Any]) -> Objective:
    if spec.slope == "exact":
        return _exact_objective(values, options)
    slope: Any
    if callable(spec.slope):
        if "truncation" in values and values["truncation"] is None:
            values["truncation"] = 0.0
        if MOVES.keys() & values.keys():
            return Objective(spec.name, (spec.base, "moved"), along_moved(spec.slope), values)
        slope = along(spec.slope)
    elif spec.slope is not None:
        slope = robust_slopes.SLOPES.get(spec.slope) or getattr(loss_slopes, spec.slope)
        if options:
            return Objective(spec.name, (spec.base, *options.items()), slope(**options), values)
    else:
        slope = _by_rows(_function(spec))
    return Objective(spec.name, (spec.base,), slope, values)


def _exact_objective(values: dict[str, Any], options: dict[str, Any]) -> Objective:
    standardized, noise, log = (options[name] for name in ("standardize", "noise", "log"))
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
        raise ValueError(f"loss_params must be left out for a loss object; got {sorted(numbers)}.")
    name = str(getattr(loss, "__name__", type(loss).__name__))
    by_rows = isinstance(loss, nn.Module) and hasattr(loss, "reduction")
    if by_rows:
        loss = copy.copy(loss)
        setattr(loss, "reduction", "none")  # noqa: B010 - any Module's
    return Objective(name, (name, id(loss)), _run_by_run(loss, by_rows), {})


def _run_by_run(loss: Callable[[Tensor, Tensor], Tensor], by_rows: bool) -> Slope:
    """The slope of any loss, one run after the other, as it may look at its batch as a whole.

    Rows of share 0 are left out. ``by_rows`` says that it gives a value per row; else it gives
    their mean, and knows no weights. Rows of a label that the loss ignores leave their share to the
    others, as in its own mean.
    """
    ignored = getattr(loss, "ignore_index", -100) if by_rows else -100

    def slope(logits: Tensor, batch: Batch, numbers: Numbers) -> Tensor:
        total = torch.zeros_like(logits)
        runs, _, rows = logits.shape
        for run in range(runs):
            share = batch.share
            own = share[run, 0] if isinstance(share, Tensor) else logits.new_full((rows,), share)
            kept = own > 0
            if ignored >= 0:
                whole, kept = own.sum(), kept & (batch.labels[run, 0] != ignored)
                if not kept.any():
                    continue
                own = own * (whole / own[kept].sum())
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
    spec = getattr(type(loss), "spec", None)
    if type(loss) is nn.CrossEntropyLoss:
        spec = SPECS["cross_entropy"]
    plain = (
        getattr(loss, "weight", None) is None
        and getattr(loss, "label_smoothing", 0) == 0
        and getattr(loss, "ignore_index", -100) < 0
        and getattr(loss, "topk", 1) == 1
        and not isinstance(getattr(loss, "sigma", None), Tensor)
        and getattr(loss, "standardize", True) in (True, False)
    )
    if spec is None or not plain:
        return loss, {}
    keys = [*spec.defaults, *spec.options]
    if not _are_usual(loss, {*keys, *MOVES, *MIXTURE, "impl", "focus"}):
        return loss, {}
    if spec.name == "mixed_expected_error" and getattr(loss, "ce_weight", None) is not None:
        keys = [*MIXTURE]
    if callable(spec.slope):
        keys += MOVES
    numbers = {key: getattr(loss, key) for key in keys}
    numbers = {k: v for k, v in numbers.items() if v is not None or k not in MIXTURE}
    if numbers.get("alpha", 0) is None:  # of the focal loss
        numbers["alpha"] = 1.0
    return spec.name, numbers


def _are_usual(loss: nn.Module, known: set[str]) -> bool:
    """Are all other parameters of one of our Modules where they start?"""
    starts = inspect.signature(type(loss)).parameters
    others = [name for name in getattr(loss, "params", ()) if name not in known]
    return all(getattr(loss, name) == starts[name].default for name in others)
