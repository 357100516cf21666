"""How the EXACT paper trains a linear model on a table, as its authors' code does it.

Every feature, one-hot ones too, is standardised on the training rows. The logit of class 0 stays at
0. SGD with momentum, batches of 256, 16 epochs; an epoch is the table as often as it goes into 500
batches, shuffled as one, so that a batch may hold a row twice. The learning rate falls by equal
ratios from epoch to epoch and ends at 1e-4; sigma falls from 10 and stops one epoch short of 0.01.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from expacc.data import TrainRows, derive_seed, require_train_rows
from expacc.recipes.exact import Settings
from expacc.recipes.exact.noise import NOISES, SampledLoss
from expacc.schedules import Schedule, geometric, per_epoch, sigma_tabular
from expacc.training import Model, Run, RunResult, TensorTable, TrainConfig, Trained, train_runs

EPOCHS, STEPS, BATCH = 16, 500, 256
LAST_RATE = 1e-4
SIGMA = per_epoch(sigma_tabular, EPOCHS)  # from 10; the last epoch is one short of 0.01
_CONSTANT = 1e-6  # a feature of less deviation is taken as constant
_NO_MARGIN = 1e-6  # for the margin of 0 that Table 8 has once; the loss wants one above 0

# Variant of EXACT → its noise, and whether it is -log P that is minimised.
NOISE_METHODS = {
    "exact: normal": ("normal", False),
    "exact: gumbel": ("gumbel", False),
    "exact: logistic": ("logistic", False),
    "exact: laplace": ("laplace", False),
    "exact: normal log": ("normal", True),
    "exact: gumbel log": ("gumbel", True),
}
SAMPLED = "exact: sampled"  # the authors' estimate of the gradient in place of the integral

Array = NDArray[np.float64]
LossAt = Callable[[Run, float], Run]  # the run with its loss at a progress


def _copies(rows: int) -> int:
    """How often a table goes into 500 batches; once at least."""
    return max(1, STEPS * BATCH // rows)


def steps_of(rows: int) -> int:
    """Whole batches of an epoch.

    >>> steps_of(1382), steps_of(32561)
    (496, 381)
    """
    return max(1, _copies(rows) * rows // BATCH)


@dataclass(frozen=True)
class Scale:
    """Mean and deviation of every feature over training rows."""

    mean: Array
    deviation: Array

    @classmethod
    def fit(cls, features: Array) -> "Scale":
        """Learn them; a constant feature becomes 0."""
        deviation = features.std(axis=0)
        return cls(features.mean(axis=0), np.where(deviation > _CONSTANT, deviation, 1.0))

    def __call__(self, features: Array) -> torch.Tensor:
        """Standardised features as the models take them."""
        return torch.from_numpy(((features - self.mean) / self.deviation).astype(np.float32))


@dataclass(frozen=True, eq=False)
class Ready:
    """Training rows, standardised, and what each is trained on.

    Args:
        rows: features and labels of all the training rows, standardised by ``own``.
        own: places of those that are trained on.
        held: places of those that trials are judged by; None for none.
        scale: learnt from ``own``.
    """

    rows: TensorTable
    own: torch.Tensor
    held: torch.Tensor | None
    scale: Scale

    @classmethod
    def of(cls, train: TrainRows, held: NDArray[np.int64] | None = None) -> "Ready":
        """Standardise training rows; those ``held`` out have no part in it.

        Raises:
            TypeError: not training rows.
        """
        train = require_train_rows(train)
        places = np.arange(len(train))
        own = places if held is None else np.setdiff1d(places, held)
        scale = Scale.fit(train.features[own])
        labels = torch.from_numpy(np.asarray(train.labels, np.int64))
        rows = TensorTable(scale(train.features), labels, len(train.classes))
        judged = None if held is None else torch.from_numpy(np.asarray(held, np.int64))
        return cls(rows, torch.from_numpy(own), judged, scale)

    @classmethod
    def stacked(cls, parts: Sequence["Ready"]) -> list["Ready"]:
        """The same, with all rows one below the other, so that their runs train together."""
        whole = TensorTable(
            torch.cat([part.rows.features for part in parts]),
            torch.cat([part.rows.labels for part in parts]),
            parts[0].rows.classes,
        )
        found, first = [], 0
        for part in parts:
            held = None if part.held is None else part.held + first
            found.append(cls(whole, part.own + first, held, part.scale))
            first += len(part.rows.labels)
        return found

    @property
    def drawn(self) -> torch.Tensor:
        """What an epoch shuffles: the rows, as often as they go into 500 batches."""
        return self.own.repeat(_copies(len(self.own)))

    def accuracy(self, model: "Trained | Regression", places: torch.Tensor) -> float:
        """The share of rows that a model gets right."""
        right = model.logits(self.rows.features[places]).argmax(1) == self.rows.labels[places]
        return float(right.double().mean())

    def predict(self, model: "Trained | Regression") -> Callable[[Array], Array]:
        """Class scores of rows as they come."""
        return lambda features: model.logits(self.scale(features)).double().numpy()


# What a variant of a loss changes in its run.
VARIANTS: dict[str, Callable[[Run], Run]] = {
    "no margin": lambda run: _with(run, margin=None),
    # Raw logits at a fixed sigma: their scale, which is sigma's inverse, is trained.
    "no schedule": lambda run: _with(run, sigma=1.0, standardize=False),
    "no normaliser": lambda run: replace(run, normalize=False),
    "clip 1": lambda run: replace(run, normalize=False, clip=1.0),
    "sigma 1": lambda run: _with(run, sigma=1.0),
    "sigma 0.1": lambda run: _with(run, sigma=0.1),
    "normaliser": lambda run: replace(run, normalize=True, clip=None),
}


def _with(run: Run, **numbers: Any) -> Run:
    return replace(run, loss_params={**run.loss_params, **numbers})


def run_of(key: str, ready: Ready, method: str, settings: Settings) -> Run:
    """A training run of a method, 'hinge' or, as a variant, 'exact: no margin'."""
    loss, _, variant = method.partition(": ")
    rate = settings.learning_rate
    if rate is None:
        raise ValueError(f"learning_rate must be given for {method}; got None.")
    numbers: dict[str, Any] = {}
    if loss == "hinge":
        numbers = {"margin": max(settings.margin or 0.0, _NO_MARGIN)}
    elif loss == "exact":
        numbers = {"sigma": SIGMA, "margin": settings.margin}
    run = Run(
        key,
        ready.drawn,
        loss=loss,
        loss_params=numbers,
        learning_rate=rate_of(rate),
        weight_decay=settings.regularization,
        clip=None if loss == "exact" else settings.clip,
        normalize=loss == "exact",
    )
    return VARIANTS[variant](run) if variant else run


def rate_of(rate: float) -> float | Schedule:
    """By equal ratios to 1e-4 in the last epoch; a rate that is no larger stays."""
    if rate <= LAST_RATE:
        return rate
    return per_epoch(geometric(rate, LAST_RATE), EPOCHS, reach_end=True)


def plan_of(ready: Ready, seed: int, *, epochs: int = EPOCHS) -> TrainConfig:
    """The paper's plan."""
    steps = steps_of(len(ready.own))
    model = Model(fixed_first=True)
    return TrainConfig(model, "sgd", BATCH, epochs, steps, keep="last", seed=seed % (1 << 31))


def train_by_epochs(
    ready: Ready,
    runs: Sequence[Run],
    seed: int,
    loss_at: LossAt,
    *,
    device: str = "cpu",
) -> list[RunResult]:
    """Train with losses that change from epoch to epoch, each epoch a program of its own.

    The loop knows schedules for the numbers of a named loss, not for loss objects. So every epoch
    goes on from the weights of the last; momentum and normaliser start anew, which is over after
    some of its 500 steps.
    """
    done: list[RunResult] = []
    for epoch in range(EPOCHS):
        now = []
        for place, run in enumerate(runs):
            start = done[place].model if done else run.start
            if done and start is None:
                continue
            rate = run.learning_rate
            fixed = float(rate(epoch / EPOCHS)) if callable(rate) else rate
            now.append(loss_at(replace(run, start=start, learning_rate=fixed), epoch / EPOCHS))
        plan = plan_of(ready, derive_seed(seed, "epoch", epoch), epochs=1)
        found = {result.key: result for result in train_runs(ready.rows, now, plan, device=device)}
        # A run that diverged keeps its result of then.
        done = [
            found.get(
                run.key, done[place] if done else RunResult(run.key, None, 0, 0, False, 1, {})
            )
            for place, run in enumerate(runs)
        ]
    return done


def train_method(
    method: str, runs: Mapping[str, tuple[Ready, Settings]], seed: int, *, device: str = "cpu"
) -> list[RunResult]:
    """Train the runs of a method together.

    Args:
        method: a loss of Tables 1 and 2, or a variant: 'exact: no margin', 'exact: gumbel'.
        runs: key → training rows and settings; rows are the same object for all, or stacked.
        seed: of weights and order; with the key it decides a run.
        device: where to train.
    """
    ready = next(iter(runs.values()))[0]
    noisy = method in NOISE_METHODS or method == SAMPLED
    named = "exact" if noisy else method
    made = [run_of(key, rows, named, found) for key, (rows, found) in runs.items()]
    if not noisy:
        return train_runs(ready.rows, made, plan_of(ready, seed), device=device)
    streams = {run.key: derive_seed(seed, run.key, "samples") % (1 << 31) for run in made}
    random = {key: torch.Generator(device).manual_seed(own) for key, own in streams.items()}

    def change(run: Run, progress: float) -> Run:
        """What a run of EXACT becomes with another noise, or the authors' sampler."""
        now, margin = SIGMA(progress), run.loss_params["margin"]
        if method == SAMPLED:
            return replace(run, loss=SampledLoss(now, margin, random[run.key]), loss_params={})
        noise, log = NOISE_METHODS[method]
        own = {"sigma": now / NOISES[noise], "margin": margin, "noise": noise, "log": log}
        return replace(run, loss="exact", loss_params=own)

    return train_by_epochs(ready, made, seed, change, device=device)


class Regression:
    """scikit-learn's LogisticRegression as the authors call it, in the form of our own models.

    Args:
        ready: the training rows; trials are fitted to ``ready.own``.
        regularization: 1/C; 0 for no penalty.
    """

    STEPS = 100_000

    def __init__(self, ready: Ready, regularization: float) -> None:
        from sklearn.linear_model import LogisticRegression

        self.classes = ready.rows.classes
        limit = 1 / regularization if regularization > 0 else np.inf
        self.model = LogisticRegression(C=limit, max_iter=self.STEPS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what it says of its own options
            features, labels = ready.rows.features[ready.own], ready.rows.labels[ready.own]
            self.model.fit(features.double().numpy(), labels.numpy())

    def logits(self, features: torch.Tensor) -> torch.Tensor:
        """1 for the class that it predicts."""
        found = torch.from_numpy(self.model.predict(features.double().numpy()))
        return torch.nn.functional.one_hot(found, self.classes)
