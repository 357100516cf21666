"""Refuse a training that cannot work, before it starts, in one sentence."""

from collections.abc import Sequence

import torch
from torch import Tensor

from expacc.errors import check_choice, check_count, check_number
from expacc.training.runs import Run, TensorTable, TrainConfig

__all__ = ["check_training"]


def check_training(
    rows: TensorTable, runs: Sequence[Run], plan: TrainConfig, *, share_batches: bool = False
) -> None:
    """Check what ``train_runs`` is given.

    Raises:
        TypeError: a tensor of the wrong type.
        ValueError: a wrong shape, or a number out of its range.
    """
    _check_rows(rows)
    _check_plan(plan)
    keys = set()
    for run in runs:
        if run.key in keys:
            raise ValueError(f"runs must have different keys; got {run.key!r} twice.")
        keys.add(run.key)
        _check_run(run, len(rows.labels))
    if share_batches:
        _check_groups(runs, plan)


def _check_groups(runs: Sequence[Run], plan: TrainConfig) -> None:
    if plan.model.input_dropout or plan.model.hidden_dropout:
        raise ValueError(
            "share_batches must be left out with dropout, which is drawn for each run; got True."
        )
    first: dict[str, Tensor] = {}
    for run in runs:
        own = first.setdefault(run.group, run.rows)
        if own is not run.rows and not torch.equal(own, run.rows):
            raise ValueError(
                f"runs of one group must have the same rows to share batches; got others in "
                f"{run.key!r} of group {run.group!r}."
            )


def _check_rows(rows: TensorTable) -> None:
    features, labels = rows.features, rows.labels
    if not features.is_floating_point() or features.ndim != 2:
        raise TypeError(
            "features must be a floating-point tensor (rows, features); "
            f"got {features.dtype} of shape {tuple(features.shape)}."
        )
    if labels.dtype != torch.int64 or labels.shape != features.shape[:1]:
        raise TypeError(
            f"labels must be an int64 tensor of shape ({len(features)},); "
            f"got {labels.dtype} of shape {tuple(labels.shape)}."
        )
    check_count("classes", rows.classes)
    if len(labels) and not bool(((labels >= 0) & (labels < rows.classes)).all()):
        bad = labels[(labels < 0) | (labels >= rows.classes)][0].item()
        raise ValueError(f"labels must lie in [0, {rows.classes - 1}]; got {bad}.")
    if not bool(torch.isfinite(features).all()):
        place = torch.nonzero(~torch.isfinite(features))[0].tolist()
        raise ValueError(
            f"features must be finite; got {features[tuple(place)].item()} at row {place[0]}, "
            f"column {place[1]}. Impute missing values first."
        )
    if rows.weight is not None and (
        rows.weight.shape != labels.shape or not bool((rows.weight >= 0).all())
    ):
        raise ValueError(f"weight must hold a number >= 0 for each of {len(labels)} rows.")


def _check_plan(plan: TrainConfig) -> None:
    model = plan.model
    check_choice("optimizer", plan.optimizer, ("sgd", "adam", "adamw"))
    check_choice("keep", plan.keep, ("best", "latest best", "last", "every"))
    check_choice("start", model.start, ("uniform", "zeros"))
    for name, count in (("batch", plan.batch), ("epochs", plan.epochs), ("every", plan.every)):
        check_count(name, count)
    for name, maybe in (("steps", plan.steps), ("patience", plan.patience)):
        if maybe is not None:
            check_count(name, maybe)
    for width in model.hidden:
        check_count("hidden", width)
    for name in ("input_dropout", "hidden_dropout"):
        check_number(name, getattr(model, name), low=0, high=1, open_high=True)
    if model.hidden and (model.fixed_first or model.start == "zeros"):
        raise ValueError(
            f"fixed_first and start='zeros' must be left out with hidden layers; got {model}."
        )
    for name in plan.curves:
        check_choice("curves", name, ("validation", "train", "gradient"))


def _check_run(run: Run, count: int) -> None:
    for name in ("rows", "validation"):
        chosen = getattr(run, name)
        if chosen is None and name == "validation":
            continue
        if not isinstance(chosen, Tensor) or chosen.dtype != torch.int64 or chosen.ndim != 1:
            raise TypeError(f"{name} of run {run.key!r} must be a 1-D int64 tensor of row numbers.")
        if len(chosen) == 0:
            raise ValueError(f"{name} of run {run.key!r} must name at least one row; got none.")
        low, high = (int(value) for value in torch.aminmax(chosen))
        if low < 0 or high >= count:
            wrong = low if low < 0 else high
            raise ValueError(
                f"{name} of run {run.key!r} must lie in [0, {count - 1}]; got {wrong}."
            )
    if not callable(run.learning_rate):
        check_number("learning_rate", run.learning_rate, low=0)
    check_number("weight_decay", run.weight_decay, low=0)
    check_number("momentum", run.momentum, low=0, high=1, open_high=True)
    for beta in run.betas:
        check_number("betas", beta, low=0, high=1, open_high=True)
    if run.clip is not None:
        check_number("clip", run.clip, low=0, open_low=True)
