"""From prepared rows to a fitted model: start, polish, choose by held-out rows, calibrate.

A linear model starts as scikit-learn's logistic regression, a network as one trained on cross
entropy. From there each setting trains for accuracy. Held-out rows then choose, and the start is
kept unless a setting is better by more than a standard error: what is gained is real, and where
nothing is to be gained the user has what they would have had anyway.

The settings were chosen once, over many tables, and are the same for everybody. On 98 tables of up
to 58,000 rows, five folds each, polishing logistic regression with the leaky expected error under
these settings and this rule gained 0.25 points of accuracy on average over logistic regression
itself, and lost 0.47 at most on a table of 500 rows or more (benchmarks/estimator.py).
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from threadpoolctl import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    threadpool_limits,
)

from expacc.estimator.calibration import Calibration, fit_calibration
from expacc.estimator.inputs import Array, Prepared, content_folds
from expacc.plain import UsageError
from expacc.registry import spec_of
from expacc.schedules import constant, cosine, geometric
from expacc.training import Layer, Model, Run, TensorTable, TrainConfig, Trained, train_runs

FULL_BATCH = 4096  # distinct rows up to which training is full-batch, in float64
RATE = 0.1
_ONE_THREAD = 1 << 22  # features times rows
MANY_CLASSES = 20  # beyond, fewer settings and steps: the losses cost time per class


@dataclass(frozen=True)
class Setting:
    """A loss with its numbers and a learning rate, which falls to a twentieth by equal ratios."""

    loss: Any
    loss_params: Mapping[str, Any] = field(default_factory=dict)
    learning_rate: float = 0.02
    weight_decay: float = 0.0

    @property
    def schedule(self) -> Any:
        """Of the learning rate."""
        rate = self.learning_rate
        return geometric(rate, rate / 20) if rate > 0 else constant(rate)

    def describe(self) -> dict[str, Any]:
        """For people and for JSON."""
        numbers = {
            name: value if not callable(value) else _ends(value)
            for name, value in self.loss_params.items()
        }
        name = self.loss if isinstance(self.loss, str) else type(self.loss).__name__
        return {"loss": name, **numbers, "learning_rate": self.learning_rate}


def _ends(schedule: Any) -> str:
    return f"{schedule(0.0):g} to {schedule(1.0):g}"


def settings_for(
    loss: Any,
    numbers: Mapping[str, Any] | None,
    learning_rate: float | str,
    weight_decay: float,
    classes: int,
) -> tuple[Setting, ...]:
    """What to try for a loss; what the user fixed stays fixed."""
    rate = RATE if learning_rate == "auto" else float(learning_rate)
    spec = spec_of(loss) if isinstance(loss, str) else None
    choices: Sequence[Mapping[str, Any]] = (numbers,) if numbers else ({},)
    if spec and not numbers:
        choices = spec.polish
    decay = weight_decay * (spec.decay_factor if spec else 1.0)
    found = tuple(Setting(loss, dict(choice), rate, decay) for choice in choices)
    return found if classes <= MANY_CLASSES else found[::2]


START = {"loss": "cross_entropy"}  # what every fit begins with, and keeps unless it is beaten


@dataclass(frozen=True)
class FitConfig:
    """How to fit; see ``AccuracyClassifier`` for the meaning of each."""

    settings: tuple[Setting, ...] = ()
    classes: int = 2
    hidden: tuple[int, ...] = ()
    dropout: float = 0.0
    epochs: int | str = "auto"
    batch_size: int | str = "auto"
    folds: Any = 4  # a number, unless the rows have folds of their own
    guard: bool = True
    calibrate: bool = True
    seed: int = 0
    device: str = "cpu"
    progress: bool = False


@dataclass(frozen=True)
class Fitted:
    """The model in the units of the features, its calibration, and why it was chosen.

    Args:
        model: layers in float64.
        calibration: of its probabilities.
        chosen: the setting; None for the start.
        iterations: of the start and from there on.
        held_out: accuracy on held-out rows of the start, then of every setting that has one.
    """

    model: Trained
    calibration: Calibration
    chosen: Setting | None
    iterations: int
    held_out: list[tuple[dict[str, Any], float]]


def fit_model(prepared: Prepared, config: FitConfig) -> Fitted:
    """Fit as the module says."""
    if config.hidden:
        return _fit(prepared, config)
    with one_thread_if_small(prepared):
        return _fit(prepared, config)


def one_thread_if_small(prepared: Prepared) -> AbstractContextManager[object]:
    """Within, fewer than 4 million numbers are one thread's.

    Steps are short, and threads wait for each other at the end of each: on two cores that were
    shared with other work a linear model of 10,000 rows × 20 took 3.5 s with two threads, 0.2 s
    with one; networks that vote more than 90 s, and 11 s.
    """
    if prepared.features.size > _ONE_THREAD or torch.get_num_threads() == 1:
        return nullcontext()
    limit: AbstractContextManager[object] = threadpool_limits(1)
    return limit


def _fit(prepared: Prepared, config: FitConfig) -> Fitted:
    weight = prepared.weight / prepared.weight.sum()
    center = weight @ prepared.features
    spread = np.sqrt(weight @ (prepared.features - center) ** 2)
    spread[spread < 1e-12 * np.maximum(1, np.abs(center))] = 1  # a constant column
    trainer = _Trainer((prepared.features - center) / spread, prepared, config)
    everyone = np.arange(len(prepared.codes))
    folds = content_folds(prepared, config.folds) if _needs_folds(config) else []
    if prepared.fold is None and not trainer.small:  # one of them has rows enough to judge by
        folds = folds[:1]
    held = np.concatenate([held for _, held in folds]) if folds else everyone[:0]
    judge = _Judge(trainer.codes[held], trainer.weight[held])

    starts = trainer.start([rows for rows, _ in folds] + [everyone])
    iterations = trainer.iterations
    polished = trainer.polish([rows for rows, _ in folds], starts[:-1], config.settings)
    logits = {-1: trainer.held_out(starts[:-1], folds)}
    for place in range(len(config.settings)):
        logits[place] = trainer.held_out([each[place] for each in polished], folds)
    base = logits[-1]
    chosen = _unguarded(config)
    if base is not None:
        chosen = _choose(base, logits, judge, config)
    final = starts[-1]
    if chosen >= 0:
        trained = trainer.polish([everyone], [final], config.settings[chosen : chosen + 1])[0][0]
        chosen, final = (-1, final) if trained is None else (chosen, trained)
        iterations += trainer.iterations if chosen >= 0 else 0

    calibration = Calibration()
    scores = logits[chosen]
    if config.calibrate and folds and scores is not None:
        # Rows are in a random order of their own, and two numbers need no more of them.
        some = held.argsort()[:FULL_BATCH]
        calibration = fit_calibration(scores[some], judge.codes[some], judge.weight[some])
    held_out = [
        (START if place < 0 else config.settings[place].describe(), judge.accuracy(found))
        for place, found in logits.items()
        if folds and found is not None
    ]
    return Fitted(
        _unscaled(final, center, spread),
        calibration,
        config.settings[chosen] if chosen >= 0 else None,
        iterations,
        held_out,
    )


def _needs_folds(config: FitConfig) -> bool:
    choice = config.guard and len(config.settings) > 0
    return config.calibrate or choice or len(config.settings) > 1


def _unguarded(config: FitConfig) -> int:
    """Without held-out rows: the first setting, or the start if that was to be guarded."""
    return 0 if config.settings and not config.guard else -1


@dataclass(frozen=True)
class _Judge:
    """Held-out rows: their classes and weights."""

    codes: NDArray[np.int64]
    weight: Array

    def accuracy(self, logits: Array) -> float:
        right = (logits.argmax(axis=1) == self.codes) * self.weight
        return float(right.sum() / self.weight.sum())


def _choose(start: Array, logits: dict[int, Array | None], judge: _Judge, config: FitConfig) -> int:
    """The setting that beats the start by most beyond a standard error; -1 for the start."""
    right = (start.argmax(axis=1) == judge.codes).astype(np.float64)
    best, lead = -1, 0.0 if config.guard else -np.inf
    part = judge.weight / judge.weight.sum()
    count = 1 / (part @ part)  # of rows, as far as their weights are equal
    for place in range(len(config.settings)):
        scores = logits[place]
        if scores is None:  # it diverged
            continue
        gain = (scores.argmax(axis=1) == judge.codes) - right
        mean = part @ gain
        error = np.sqrt(part @ (gain - mean) ** 2 / count)
        # Beyond its error, and half a row: a single row is no evidence.
        beyond = mean - error - 0.5 / count if config.guard else mean
        if beyond > lead:
            best, lead = place, beyond
    return best


def _unscaled(model: Trained, center: Array, spread: Array) -> Trained:
    """The same model for features as the user has them, in float64."""
    first, *rest = (Layer(part.weight.double(), part.bias.double()) for part in model.layers)
    weight = first.weight / torch.from_numpy(spread)
    bias = first.bias - weight @ torch.from_numpy(center)
    return Trained((Layer(weight, bias), *rest))


class _Trainer:
    """Standardised rows on the device, and the three things done with them."""

    def __init__(self, features: Array, prepared: Prepared, config: FitConfig) -> None:
        self.config = config
        self.iterations = 0  # of what was trained last
        self.features, self.codes, self.weight = features, prepared.codes, prepared.weight
        self.small = len(self.codes) <= FULL_BATCH
        # EXACT's rule for five classes and more is twice as fast in float32.
        few = config.classes < 5
        dtype = torch.float64 if self.small and few else torch.float32
        self.rows = TensorTable(
            torch.from_numpy(features).to(dtype),
            torch.from_numpy(self.codes),
            config.classes,
            None if bool((self.weight == 1).all()) else torch.from_numpy(self.weight),
        )
        self.model = Model(
            config.hidden,
            start="uniform" if config.hidden else "zeros",
            hidden_dropout=config.dropout if config.hidden else 0.0,
        )

    def start(self, parts: list[NDArray[np.int64]]) -> list[Trained]:
        """Models trained on cross entropy, one per part of the rows."""
        if not self.config.hidden:
            return [self._logistic(part) for part in parts]
        runs = [
            Run(
                f"start {place}",
                torch.from_numpy(part),
                learning_rate=cosine(0.01, 0.0001),
                weight_decay=1e-4,
            )
            for place, part in enumerate(parts)
        ]
        found = self._train(runs, steps=1500, batch=128)
        if any(model is None for model in found):
            raise UsageError(
                "X must allow a network to train on it; training on cross entropy diverged. "
                "Standardise X, or use fewer hidden units."
            )
        return [model for model in found if model is not None]

    def _logistic(self, part: NDArray[np.int64]) -> Trained:
        """scikit-learn's logistic regression; a class absent from the part is never predicted."""
        codes, classes = self.codes[part], self.config.classes
        present = np.unique(codes)
        weight = np.zeros((classes, self.features.shape[1]))
        bias = np.zeros(classes)
        if len(present) > 1:
            found = LogisticRegression(max_iter=200).fit(
                self.features[part], codes, sample_weight=self.weight[part]
            )
            both = len(present) == 2
            halves = np.array([[-0.5], [0.5]])
            self.iterations = int(found.n_iter_.max())
            weight[present] = halves * found.coef_ if both else found.coef_
            bias[present] = halves[:, 0] * found.intercept_ if both else found.intercept_
        if len(present) < classes:
            logits = self.features[part] @ weight.T + bias
            bias[np.setdiff1d(np.arange(classes), present)] = logits.min() - 1
        dtype = self.rows.features.dtype
        return Trained(
            (Layer(torch.from_numpy(weight).to(dtype), torch.from_numpy(bias).to(dtype)),)
        )

    def polish(
        self,
        parts: list[NDArray[np.int64]],
        starts: list[Trained],
        settings: tuple[Setting, ...],
    ) -> list[list[Trained | None]]:
        """Per part, each setting's model, trained on from the part's start; None if it diverged."""
        runs: list[Run] = []
        for place, (part, start) in enumerate(zip(parts, starts, strict=True)):
            rows = torch.from_numpy(part)
            for setting in settings:
                runs.append(
                    Run(
                        f"{place} {setting.describe()} {len(runs)}",
                        rows,
                        loss=setting.loss,
                        loss_params=setting.loss_params,
                        learning_rate=setting.schedule,
                        weight_decay=setting.weight_decay / float(self.weight.sum()),
                        start=start,
                    )
                )
        steps = 60 if self.config.classes <= MANY_CLASSES else 40
        found = self._train(runs, steps=steps if self.small else 5 * steps, batch=1024)
        count = len(settings)
        return [found[low : low + count] for low in range(0, len(parts) * count, max(1, count))]

    def _train(self, runs: list[Run], *, steps: int, batch: int) -> list[Trained | None]:
        config, rows = self.config, len(self.codes)
        full = self.small and not config.hidden
        size = (
            (rows if full else min(batch, rows))
            if config.batch_size == "auto"
            else int(config.batch_size)
        )
        epochs = -(-steps // -(-rows // size)) if config.epochs == "auto" else int(config.epochs)
        plan = TrainConfig(
            self.model, "adam", batch=size, epochs=epochs, keep="last", seed=config.seed
        )
        results = train_runs(self.rows, runs, plan, device=config.device, progress=config.progress)
        self.iterations = epochs
        return [result.model for result in results]

    def held_out(
        self, models: list[Any], folds: list[tuple[NDArray[np.int64], ...]]
    ) -> Array | None:
        """Logits of the held-out rows, fold by fold; None if one diverged."""
        if not folds or any(model is None for model in models):
            return None
        return np.concatenate(
            [
                model.logits(self.rows.features[torch.from_numpy(held)]).double().numpy()
                for model, (_, held) in zip(models, folds, strict=True)
            ]
        )
