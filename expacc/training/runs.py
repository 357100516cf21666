"""What to train, and what comes back: plain frozen records."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from expacc.schedules import Schedule

__all__ = ["Layer", "Model", "Run", "RunResult", "TensorTable", "TrainConfig", "Trained"]

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
        key: names the run; with the plan's seed it decides its initial weights and row order.
        rows: training rows, int64 numbers into ``TensorTable``.
        validation: rows for early stopping and curves; None for none.
        loss: a name (see ``expacc.training.LOSS_NAMES``), a loss Module, or a callable of
            (logits, target) that returns the mean.
        numbers: the loss's own, e.g. {'leak': 0.1} or {'sigma': sigma_tabular, 'margin': 2.0}.
        learning_rate: > 0, changed once an epoch if a schedule.
        weight_decay: >= 0, on weights, not on biases: L2 for sgd and adam, decoupled for adamw.
        momentum: of sgd.
        betas: of adam and adamw.
        clip: largest norm of the run's gradient; None for no limit.
        normalize: divide the gradient by its running norm, as ``expacc.GradientNormalizer``; it
            replaces clipping.
        start: weights to go on from; None for the model's own start.
        group: with ``train_runs(share_batches=True)``, runs of one group begin with the same
            weights and see the same rows in the same order: it stands in the key's place there.
    """

    key: str
    rows: Tensor
    validation: Tensor | None = None
    loss: str | nn.Module | Any = "cross_entropy"
    numbers: Mapping[str, Any] = field(default_factory=dict)
    learning_rate: Number = 0.1
    weight_decay: float = 0.0
    momentum: float = 0.9
    betas: tuple[float, float] = (0.9, 0.999)
    clip: float | None = None
    normalize: bool = False
    start: "Trained | None" = None
    group: str = ""


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
        every: epochs from one point of the curves to the next; the last epoch always has one.
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
        every: the weights of every epoch, if the plan keeps them.
    """

    key: str
    model: Trained | None
    epochs: int
    best_epoch: int
    stopped: bool
    failed_step: int | None
    curves: Mapping[str, tuple[float, ...]]
    every: tuple[Trained, ...] = ()
