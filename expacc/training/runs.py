"""What to train, and what comes back: plain frozen records, and their checks before a start."""

import functools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from expacc.errors import check_choice, check_count, check_number
from expacc.schedules import Schedule

Optimizer = Literal["sgd", "adam", "adamw"]
Number = float | Schedule


@dataclass(frozen=True)
class TensorTable:
    """The rows that runs train on and are validated on: a run names its own by number.

    Several versions of one table (standardised per fold, with other labels) are simply rows one
    below the other.

    Args:
        features: (n, F), floating.
        labels: (n), int64, in [0, classes).
        classes: how many.
        weight: (n), >= 0, each row's weight in training; None for 1.
    """

    features: Tensor
    labels: Tensor
    classes: int
    weight: Tensor | None = None


@dataclass(frozen=True)
class Model:
    """A linear classifier, or a network with ReLU.

    Args:
        hidden: widths of the hidden layers; () is linear.
        fixed_first: keep the logit of class 0 at 0, as the EXACT paper's linear models do; for
            hidden=() only.
        start: 'uniform' (as nn.Linear) or 'zeros' (linear models only).
        input_dropout: share of features zeroed in training.
        hidden_dropout: share of hidden units zeroed in training.
    """

    hidden: tuple[int, ...] = ()
    fixed_first: bool = False
    start: Literal["uniform", "zeros"] = "uniform"
    input_dropout: float = 0.0
    hidden_dropout: float = 0.0


@dataclass(frozen=True)
class Run:
    """One training run. Numbers may be schedules: callables from progress to a number.

    Args:
        key: names the run; with the config's seed it decides its initial weights and row order.
        rows: training rows, int64 numbers into ``TensorTable``.
        validation: rows for early stopping and curves; None for none.
        loss: a name (see ``expacc.training.LOSS_NAMES``), a loss Module, or a callable of
            (logits, target) that returns the mean.
        loss_params: the loss's own, e.g. {'leak': 0.1} or {'sigma': sigma_tabular, 'margin': 2.0}.
        learning_rate: > 0, changed once an epoch if a schedule.
        weight_decay: >= 0, on weights, not on biases: L2 for sgd and adam, decoupled for adamw.
        momentum: of sgd.
        betas: of adam and adamw.
        clip: largest norm of the run's gradient; None for no limit.
        normalize: divide the gradient by its running norm, as ``expacc.GradientNormalizer``; it
            replaces clipping.
        start: weights to go on from; None for the model's own start.
        stop: an epoch, from 1, whose weights are kept beside the others; None for none.
        group: with ``train_runs(share_batches=True)``, runs of one group begin with the same
            weights and see the same rows in the same order: it stands in the key's place there.
    """

    key: str
    rows: Tensor
    validation: Tensor | None = None
    loss: str | nn.Module | Any = "cross_entropy"
    loss_params: Mapping[str, Any] = field(default_factory=dict)
    learning_rate: Number = 0.1
    weight_decay: float = 0.0
    momentum: float = 0.9
    betas: tuple[float, float] = (0.9, 0.999)
    clip: float | None = None
    normalize: bool = False
    start: "Trained | None" = None
    stop: int | None = None
    group: str = ""


def _old_numbers(value: Mapping[str, Any]) -> Mapping[str, Any]:
    warnings.warn(
        "numbers of a Run is now loss_params; the old name goes in the next release.",
        DeprecationWarning,
        stacklevel=3,
    )
    return value


_init = Run.__init__


def _init_with_old_name(run: Run, *args: Any, numbers: Any = None, **kwargs: Any) -> None:
    _init(run, *args, **kwargs)
    if numbers is not None:
        object.__setattr__(run, "loss_params", _old_numbers(numbers))


functools.update_wrapper(_init_with_old_name, _init)
setattr(Run, "__init__", _init_with_old_name)  # noqa: B010 - for one release
setattr(Run, "numbers", property(lambda run: _old_numbers(run.loss_params)))  # noqa: B010


@dataclass(frozen=True)
class TrainConfig:
    """What all runs of a call share.

    Args:
        model: the architecture.
        optimizer: 'sgd' (with momentum), 'adam' or 'adamw'.
        batch: rows a step; at least as many as there are means full batches, unshuffled.
        epochs: at most.
        steps: per epoch, rows repeated in ever new orders; None for one pass over the rows, whose
            last batch may be short.
        patience: epochs without a better validation accuracy before a run stops; None for never.
        min_epochs: before which none stops.
        keep: weights of the 'best' epoch on the validation rows (the earliest of equals; the last
            for runs without), of the 'latest best', of the 'last', or of 'every' epoch.
        curves: evaluate now and then: () or some of 'validation', 'train' and 'gradient', the mean
            over an epoch's rows of ‖dL/dlogits‖, as they were trained on. Early stopping and
            keep='best' look at validation each epoch anyway.
        every: epochs from one point of the curves, or one kept epoch, to the next; the last epoch
            always has one.
        seed: the study's.
    """

    model: Model = field(default_factory=Model)
    optimizer: Optimizer = "sgd"
    batch: int = 256
    epochs: int = 20
    steps: int | None = None
    patience: int | None = None
    min_epochs: int = 1
    keep: Literal["best", "latest best", "last", "every"] = "best"
    curves: tuple[str, ...] = ()
    every: int = 1
    seed: int = 0


@dataclass(frozen=True)
class Layer:
    """weight (out, in) and bias (out), as nn.Linear has them."""

    weight: Tensor
    bias: Tensor


@dataclass(frozen=True)
class Trained:
    """The layers of a trained classifier; call ``logits`` on features (n, F)."""

    layers: tuple[Layer, ...]

    def logits(self, features: Tensor) -> Tensor:
        """(n, C)."""
        for index, layer in enumerate(self.layers):
            features = features.relu() if index else features
            features = torch.addmm(layer.bias, features, layer.weight.t())
        return features

    def module(self) -> nn.Sequential:
        """A plain nn.Sequential of nn.Linear and nn.ReLU with these weights."""
        parts: list[nn.Module] = []
        for layer in self.layers:
            out, into = layer.weight.shape
            linear = nn.Linear(into, out, dtype=layer.weight.dtype)
            linear.load_state_dict({"weight": layer.weight, "bias": layer.bias})
            parts += [nn.ReLU(), linear] if parts else [linear]
        return nn.Sequential(*parts)


@dataclass(frozen=True)
class RunResult:
    """How a run ended.

    Args:
        key: the run's.
        model: the kept weights; None if the run failed before any epoch ended.
        epochs: how many were done.
        best_epoch: whose weights are kept, from 1.
        stopped: whether patience ended it.
        failed_step: the first step (from 1) whose gradient was not finite; None for a good run.
        curves: by epochs: 'validation_accuracy', 'validation_loss' (cross entropy), 'train_…',
            'gradient_norm'.
        every: the weights of every epoch, or each ``config.every``-th, if the config keeps them.
        at_stop: those of the run's ``stop``, if it has one and came that far.
    """

    key: str
    model: Trained | None
    epochs: int
    best_epoch: int
    stopped: bool
    failed_step: int | None
    curves: Mapping[str, tuple[float, ...]]
    every: tuple[Trained, ...] = ()
    at_stop: Trained | None = None


def check_training(
    rows: TensorTable, runs: Sequence[Run], config: TrainConfig, *, share_batches: bool = False
) -> None:
    """Check what ``train_runs`` is given.

    Raises:
        TypeError: a tensor of the wrong type.
        ValueError: a wrong shape, or a number out of its range.
    """
    _check_rows(rows)
    _check_config(config)
    keys = set()
    for run in runs:
        if run.key in keys:
            raise ValueError(f"runs must have different keys; got {run.key!r} twice.")
        keys.add(run.key)
        _check_run(run, len(rows.labels))
    if share_batches:
        _check_groups(runs, config)


def _check_groups(runs: Sequence[Run], config: TrainConfig) -> None:
    if config.model.input_dropout or config.model.hidden_dropout:
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


def _check_config(config: TrainConfig) -> None:
    model = config.model
    check_choice("optimizer", config.optimizer, ("sgd", "adam", "adamw"))
    check_choice("keep", config.keep, ("best", "latest best", "last", "every"))
    check_choice("start", model.start, ("uniform", "zeros"))
    for name in ("batch", "epochs", "every"):
        check_count(name, getattr(config, name))
    for name in ("steps", "patience"):
        if getattr(config, name) is not None:
            check_count(name, getattr(config, name))
    for width in model.hidden:
        check_count("hidden", width)
    for name in ("input_dropout", "hidden_dropout"):
        check_number(name, getattr(model, name), low=0, high=1, open_high=True)
    if model.hidden and (model.fixed_first or model.start == "zeros"):
        raise ValueError(
            f"fixed_first and start='zeros' must be left out with hidden layers; got {model}."
        )
    for name in config.curves:
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
    if run.stop is not None:
        check_count("stop", run.stop)
    if not callable(run.learning_rate):
        check_number("learning_rate", run.learning_rate, low=0)
    check_number("weight_decay", run.weight_decay, low=0)
    check_number("momentum", run.momentum, low=0, high=1, open_high=True)
    for beta in run.betas:
        check_number("betas", beta, low=0, high=1, open_high=True)
    if run.clip is not None:
        check_number("clip", run.clip, low=0, open_low=True)
