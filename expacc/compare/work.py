"""One work item: a fold of a table at one share of label noise, with every loss.

All losses and all their trials train together as one tensor program, on training rows only. The
best trial of each loss is trained again on all training rows and scored on the sealed test rows,
once.

The first trial is a default that is good on most tables, and the accuracy of a trial is known to a
standard error only. The best of twenty such accuracies is mostly luck, so the default stays unless
the best is better by more than the standard error of their difference, on the same rows. It is the
same rule for all losses, and over tables it chose better numbers than the plain maximum did.
"""

import functools
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from expacc.compare.importance import Importance
from expacc.compare.references import execute_references, judge
from expacc.compare.serialize import row_of, unpack_split, unpack_table
from expacc.compare.training_budget import (
    INNER_FOLDS,
    LEFT_OUT,
    MODELS,
    SMALL,
    Trial,
    batch_and_epochs,
    epochs_a_point,
    trials_of,
)
from expacc.data import SealedTest, TrainRows, derive_seed, holdout, open_split, stratified_folds
from expacc.estimator.calibration import Calibration, fit_calibration
from expacc.registry.spec import REFERENCE
from expacc.runner.items import Shared, WorkItem
from expacc.runner.rows import Row
from expacc.schedules import geometric
from expacc.training import Model, Run, RunResult, TensorTable, TrainConfig, Trained, train_runs

Array = NDArray[np.float64]
Places = NDArray[np.int64]
Best = dict[str, tuple[Trial, Row, Calibration] | None]  # of each loss; None if all trials failed


def execute(item: WorkItem, shared: Shared) -> list[Row]:
    """Search, train, test; one row per trial and final run, or per reference.

    Args:
        item: a fold of a table at one share of label noise, for losses or for references.
        shared: the tables and folds of the study.

    Returns:
        The item's rows, failed runs among them.
    """
    asked = item.payload
    if "references" in asked:
        return execute_references(item, shared)
    table = unpack_table(asked["table"], shared)
    split = unpack_split(asked["table"], asked["fold"], shared)
    methods = [f"{loss}|{seed}" for loss in asked["losses"] for seed in range(asked["seeds"])]
    methods += [_columns_of(loss) for loss in asked["losses"]]
    train, test, preprocessor = open_split(
        table, split, methods=methods, label_noise=asked["noise"], seed=asked["seed"]
    )
    given = np.asarray(table.target.codes)[test.rows]  # for the record, after the scoring
    trainer = FoldTrainer(item, train)
    trial_rows, best = trainer.search()
    places = preprocessor.places
    columns = [places[column.name] for column in table.columns]
    seed = derive_seed(asked["seed"], item.key, "shuffle")
    matters = Importance(test, given, columns, train, seed)
    return [*trial_rows, *trainer.finals(best, test, given, matters)]


def _columns_of(loss: str) -> str:
    """The name under which the test rows are opened to see which columns matter."""
    return f"{loss}|columns"


def inner_splits(labels: Places, seed: int, name: str) -> list[tuple[Places, Places]]:
    """Rows to train trials on, and rows to judge them by."""
    if len(labels) < SMALL:
        splits = stratified_folds(labels, INNER_FOLDS, 1, seed=seed, name=f"{name}/inner")
    else:
        splits = holdout(labels, LEFT_OUT, seed=seed, name=f"{name}/inner")
    return [(split.train, split.test) for split in splits]


def best_trial(trials: Sequence[Row], right: Sequence[NDArray[np.bool_]]) -> int | None:
    """The place of the trial to train again; None if all failed.

    Args:
        trials: in order; the first is the default.
        right: of each, which of the rows that judge it, all inner folds together, it has right.
    """
    good = [place for place, row in enumerate(trials) if row.failure is None]
    if not good:
        return None

    def merit(place: int) -> tuple[float, float]:
        """Accuracy first, then cross entropy, which tells equals apart."""
        found = trials[place].metrics
        return found["validation_accuracy"], -found["validation_loss"]

    best = max(good, key=merit)
    if good[0] != 0:
        return best
    gained = int((right[best] & ~right[0]).sum())
    lost = int((right[0] & ~right[best]).sum())
    return best if gained - lost > math.sqrt(gained + lost) + 0.5 else 0


class FoldTrainer:
    """The training rows of an item, split for the search.

    Args:
        item: whose payload says what to train.
        train: its training rows.
    """

    def __init__(self, item: WorkItem, train: TrainRows) -> None:
        self.item, self.asked, self.train = item, item.payload, train
        self.classes = len(train.classes)
        features, labels = train.features, train.labels
        self.own = np.arange(len(labels))
        if train.validation is not None:
            inner = [(self.own, np.arange(len(labels), len(labels) + len(train.validation)))]
            features = np.concatenate([features, train.validation.features])
            labels = np.concatenate([labels, train.validation.labels])
        else:
            inner = inner_splits(labels, self.asked["seed"], item.key)
        self.inner = [(torch.from_numpy(a), torch.from_numpy(b)) for a, b in inner]
        self.rows = TensorTable(torch.from_numpy(features), torch.from_numpy(labels), self.classes)
        model, count, seed = (self.asked[name] for name in ("model", "trials", "seed"))
        name = f"{self.asked['table']}/{self.asked['fold']}"
        self.trials = {
            loss: trials_of(loss, model, count, seed, name, len(self.own), self.classes)
            for loss in self.asked["losses"]
        }
        self.usual = trials_of(REFERENCE, model, 1, seed, name, len(self.own), self.classes)[0]
        self.base: Trial | None = None

    def config(self, rows: int, *, curves: bool) -> TrainConfig:
        """How long a run trains, and what is the same for all."""
        batch, epochs = batch_and_epochs(rows)
        hidden = MODELS[self.asked["model"]]
        return TrainConfig(
            Model(hidden, start="uniform" if hidden else "zeros"),
            "adam",
            batch=batch,
            epochs=epochs,
            keep="last",
            curves=("validation",) if curves else (),
            every=epochs_a_point(epochs),
            seed=derive_seed(self.asked["seed"], self.item.key) % (1 << 31),
        )

    def run(
        self,
        loss: str,
        trial: Trial,
        key: str,
        rows: torch.Tensor,
        held: torch.Tensor | None,
        start: Trained | None = None,
    ) -> Run:
        """A trial of a loss as the loop takes it; ``start`` is cross entropy's solution."""
        rate = trial.learning_rate
        return Run(
            key,
            rows,
            held,
            loss=loss,
            loss_params=trial.loss_params,
            learning_rate=geometric(rate, rate / 50),
            weight_decay=trial.weight_decay,
            start=start,
        )

    def together(
        self, runs: dict[Any, Run], *, curves: bool = False
    ) -> dict[Any, tuple[RunResult, float]]:
        """Train on the device that the item names; models come back to the CPU.

        With each result its seconds: its share of those that it was trained together with.
        """
        if not runs:
            return {}
        config = self.config(max(len(run.rows) for run in runs.values()), curves=curves)
        start = time.perf_counter()
        found = train_runs(
            self.rows, list(runs.values()), config, device=self.asked.get("device", "cpu")
        )
        each = (time.perf_counter() - start) / len(runs)
        return {tag: (one, each) for tag, one in zip(runs, found, strict=True)}

    def search(self) -> tuple[list[Row], Best]:
        """Rows of all trials; per loss the best trial, its row and its calibration."""
        self.base, trained = self._search_base()
        starts = self._solutions(trained)
        trained |= self.together(
            self._inner_runs(
                {
                    loss: [trial for trial in trials if loss != REFERENCE or trial.warm]
                    for loss, trials in self.trials.items()
                },
                starts,
            ),
            curves=True,
        )
        results = {tag: result for tag, (result, _) in trained.items()}
        found: list[Row] = []
        best: Best = {}
        for loss, trials in self.trials.items():
            seconds = sum(trained[loss, 0, fold][1] for fold in range(len(self.inner)))
            own = [self._trial_row(loss, trial, results, seconds) for trial in trials]
            found += own
            best[loss] = None
            place = best_trial(own, [self._right(loss, trial.number, results) for trial in trials])
            if place is not None:
                calibration = self._calibration(loss, place, results)
                best[loss] = (trials[place], own[place], calibration)
        return found, best

    def _held_out(
        self, loss: str, number: int, results: dict[Any, RunResult]
    ) -> tuple[Array, Places]:
        """A trial's logits of all rows that it is judged by, NaN where it failed; and labels."""
        logits, labels = [], []
        for fold, (_, held) in enumerate(self.inner):
            model = results[loss, number, fold].model
            features = self.rows.features[held]
            failed = torch.full((len(held), self.classes), torch.nan)
            logits.append(failed if model is None else model.logits(features))
            labels.append(self.rows.labels[held])
        return torch.cat(logits).double().numpy(), torch.cat(labels).numpy()

    def _right(self, loss: str, number: int, results: dict[Any, RunResult]) -> NDArray[np.bool_]:
        logits, labels = self._held_out(loss, number, results)
        right: NDArray[np.bool_] = logits.argmax(1) == labels
        return right

    def _inner_runs(
        self, trials: Mapping[str, Sequence[Trial]], starts: Sequence[Trained | None]
    ) -> dict[Any, Run]:
        """Every trial on every inner fold; the warm ones from the fold's start."""
        return {
            (loss, trial.number, fold): self.run(
                loss,
                trial,
                f"{loss}/{trial.number}/{fold}",
                rows,
                held,
                starts[fold] if trial.warm else None,
            )
            for loss, own in trials.items()
            for trial in own
            for fold, (rows, held) in enumerate(self.inner)
        }

    def _search_base(self) -> tuple[Trial | None, dict[Any, tuple[RunResult, float]]]:
        """Cross entropy's best trial from nothing, which warm trials go on from; None if all fail.

        A study without cross entropy takes its default trial.
        """
        trials = [trial for trial in self.trials.get(REFERENCE, ()) if not trial.warm]
        trained = self.together(
            self._inner_runs({REFERENCE: trials or [self.usual]}, ()), curves=True
        )
        results = {tag: result for tag, (result, _) in trained.items()}
        if not trials:
            return self.usual, trained
        rows = [self._trial_row(REFERENCE, trial, results, 0.0) for trial in trials]
        place = best_trial(
            rows, [self._right(REFERENCE, trial.number, results) for trial in trials]
        )
        return None if place is None else trials[place], trained

    def _solutions(self, trained: dict[Any, tuple[RunResult, float]]) -> list[Trained | None]:
        """Of cross entropy, one for each inner fold; None starts from nothing."""
        if self.base is None:
            return [None] * len(self.inner)
        tags = [(REFERENCE, self.base.number, fold) for fold in range(len(self.inner))]
        return [trained[tag][0].model for tag in tags]

    def final_runs(self, chosen: Mapping[Any, tuple[str, Trial]], seeds: int) -> dict[Any, Run]:
        """Runs on all training rows, by (tag, seed); cross entropy's trains first, if needed."""
        own = torch.from_numpy(self.own)
        starts: dict[int, Trained | None] = {}
        if self.base is not None and any(trial.warm for _, trial in chosen.values()):
            first = {
                seed: self.run(REFERENCE, self.base, f"{REFERENCE}/start/{seed}", own, None)
                for seed in range(seeds)
            }
            starts = {seed: result.model for seed, (result, _) in self.together(first).items()}
        return {
            (tag, seed): self.run(
                loss,
                trial,
                f"{loss}/final/{seed}",
                own,
                None,
                starts.get(seed) if trial.warm else None,
            )
            for tag, (loss, trial) in chosen.items()
            for seed in range(seeds)
        }

    def _trial_row(
        self, loss: str, trial: Trial, results: dict[Any, RunResult], seconds: float
    ) -> Row:
        parts = [results[loss, trial.number, fold] for fold in range(len(self.inner))]
        failed = [part.failed_step for part in parts if part.failed_step is not None]
        curves: dict[str, tuple[float, ...]] = {}
        if not failed:
            curves = {
                name: tuple(np.mean([part.curves[name] for part in parts], axis=0).tolist())
                for name in ("validation_accuracy", "validation_loss")
            }
        metrics = {name: values[-1] for name, values in curves.items()}
        bad = [name for name, value in metrics.items() if not np.isfinite(value)]
        failure = f"diverged at step {failed[0]}" if failed else None
        if bad:
            metrics, curves, failure = {}, {}, f"{bad[0]} is not finite"
        more = {"numbers": trial.found, "metrics": metrics, "curves": curves, "seconds": seconds}
        return row_of(self.item, "trial", loss, trial.number, failure=failure, **more)

    def _calibration(self, loss: str, place: int, results: dict[Any, RunResult]) -> Calibration:
        """Of the best trial, on the rows that it was judged by."""
        logits, known = self._held_out(loss, place, results)
        return fit_calibration(logits, known, np.ones(len(known)))

    def finals(self, best: Best, test: SealedTest, given: Places, matters: Importance) -> list[Row]:
        """Train each loss's best trial on all training rows, and score it once."""
        own = torch.from_numpy(self.own)
        chosen = {loss: (loss, found[0]) for loss, found in best.items() if found is not None}
        results = self.together(self.final_runs(chosen, self.asked["seeds"]))
        rows = []
        for loss, found in best.items():
            for seed in range(self.asked["seeds"]):
                result, seconds = results.get((loss, seed), (None, 0.0))
                failure, logits = None, None
                if found is None or result is None:
                    failure = "every trial diverged"
                elif result.model is None:
                    failure = f"diverged at step {result.failed_step}"
                else:
                    logits = _score(test, f"{loss}|{seed}", result.model)
                    if not np.isfinite(logits).all():  # whose argmax would be a class
                        failure = "logits of test rows are not finite"
                if failure or found is None or result is None or result.model is None:
                    rows.append(row_of(self.item, "final", loss, seed, failure=failure))
                    continue
                trial, trial_row, calibration = found
                right = result.model.logits(self.rows.features[own]).argmax(1)
                metrics, predictions = judge(logits, calibration, test.rows, given)
                metrics |= {
                    "train_accuracy": float((right == self.rows.labels[own]).double().mean()),
                    "temperature": calibration.temperature,
                    "bend": calibration.bend,
                }
                more = {"metrics": metrics, "predictions": predictions, "seconds": seconds}
                curves = dict(trial_row.curves)
                if seed == 0:  # one run a fold says which columns matter
                    predict = functools.partial(_logits, result.model)
                    curves["importance"] = matters.of(predict, _columns_of(loss))
                more |= {"numbers": trial.found, "curves": curves}
                rows.append(row_of(self.item, "final", loss, seed, **more))
        return rows


def _score(test: SealedTest, method: str, model: Any) -> Array:
    """Predict the test rows once; the logits come along."""
    kept: list[Array] = []

    def predict(features: Any) -> Array:
        kept.append(_logits(model, features))
        return kept[0]

    test.score(method, predict)
    return kept[0]


def _logits(model: Any, features: Any) -> Array:
    logits: Array = model.logits(torch.from_numpy(features)).double().numpy()
    return logits
