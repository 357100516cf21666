"""One work item: a fold of a table at one share of label noise, with every loss.

All losses and all their trials train together as one tensor program, on training rows only. The
best trial of each loss is trained again on all training rows and scored on the sealed test rows,
once.
"""

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from expacc.boosting.boosted import best_round
from expacc.compare.importance import Importance
from expacc.compare.kept import Kept, entry_of_run, parted, run_of
from expacc.compare.references import execute_references, judge
from expacc.compare.serialize import row_of, unpack_split, unpack_table
from expacc.compare.training_budget import (
    MODELS,
    Trial,
    batch_and_epochs,
    epochs_a_point,
    trials_of,
)
from expacc.compare.trials import Best, best_trial, columns_of, last_of, rows_for_trials, thinned
from expacc.data import SealedTest, TrainRows, derive_seed, open_split
from expacc.estimator import AccuracyClassifier
from expacc.estimator.calibration import Calibration, fit_calibration
from expacc.estimator.saving import cv_results
from expacc.registry.spec import REFERENCE
from expacc.runner.items import Shared, WorkItem, tell_progress
from expacc.runner.rows import Row
from expacc.schedules import geometric
from expacc.training import Model, Run, RunResult, TensorTable, TrainConfig, Trained, train_runs

Array = NDArray[np.float64]
Places = NDArray[np.int64]


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
    tested = [(loss, seed) for loss in asked["losses"] for seed in range(asked["seeds"])]
    methods = [f"{loss}|{seed}" for loss, seed in tested]
    if asked["model"] != "linear":
        methods += [last_of(*one) for one in tested]
    methods += [columns_of(loss) for loss in asked["losses"]]
    train, test, preprocessor = open_split(
        table, split, methods=methods, label_noise=asked["noise"], seed=asked["seed"]
    )
    given = np.asarray(table.target.codes)[test.rows]  # for the record, after the scoring
    trainer = trainer_of(item, train)
    trial_rows, best = trainer.search()
    places = preprocessor.places
    columns = [places[column.name] for column in table.columns]
    seed = derive_seed(asked["seed"], item.key, "shuffle")
    matters = Importance(test, given, columns, train, seed)
    return [*trial_rows, *trainer.finals(best, test, given, matters)]


def trainer_of(item: WorkItem, train: TrainRows) -> Any:
    """What searches and trains the model that an item names."""
    if item.payload["model"] in MODELS:
        return FoldTrainer(item, train)
    from expacc.compare.rounds import RoundsTrainer

    return RoundsTrainer(item, train)


class FoldTrainer:
    """The training rows of an item, split for the search."""

    def __init__(self, item: WorkItem, train: TrainRows) -> None:
        self.item, self.asked, self.train = item, item.payload, train
        self.classes = len(train.classes)
        self.own = np.arange(len(train.labels))
        features, labels, inner = rows_for_trials(train, self.asked["seed"], item.key)
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
        self.kept = Kept(item.kept)

    @property
    def stops(self) -> bool:
        """Is training stopped where held-out rows say, and scored at its end as well?"""
        return bool(self.asked["model"] != "linear")

    def config(self, rows: int, *, curves: bool) -> TrainConfig:
        """How long a run trains, and what is the same for all."""
        batch, epochs = batch_and_epochs(rows)
        hidden = tuple(self.asked.get("hidden") or MODELS[self.asked["model"]])
        start: Any = "uniform" if hidden else "zeros"
        return TrainConfig(
            Model(hidden, start=start, hidden_dropout=self.asked.get("dropout", 0.0)),
            "adam",
            batch=batch,
            epochs=epochs,
            keep="best" if self.stops and curves else "last",
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
            stop=trial.stop(self.config(len(rows), curves=False).epochs),
        )

    def together(
        self, runs: dict[Any, Run], *, curves: bool = False
    ) -> dict[Any, tuple[RunResult, float]]:
        """Train on the device that the item names; models come back to the CPU.

        With each result its seconds: its share of those that it was trained together with.
        """
        longest = max((len(run.rows) for run in runs.values()), default=1)
        config = self.config(longest, curves=curves)
        found: dict[Any, tuple[RunResult, float]] = {}
        for tags in parted(self.rows, runs, config, self.asked):
            own = [runs[tag] for tag in tags]
            if entries := self.kept.get([run.key for run in own]):
                done = [run_of(entry) for entry in entries]
            else:
                start = time.perf_counter()
                trained = train_runs(self.rows, own, config, device=self.asked["device"])
                each = (time.perf_counter() - start) / len(own)
                done = [(result, each) for result in trained]
                make = functools.partial(entry_of_run, seconds=each)
                self.kept.put({one.key: functools.partial(make, one) for one in trained})
            found |= dict(zip(tags, done, strict=True))
            tell_progress(len(own) / len(self.inner))
        return found

    def search(self) -> tuple[list[Row], Best]:
        """Rows of all trials; per loss the best trial, its row and its calibration."""
        self.base, trained = self._search_base()
        starts = self._solutions(trained)
        rest = {
            loss: [trial for trial in trials if loss != REFERENCE or trial.warm]
            for loss, trials in self.trials.items()
        }
        trained |= self.together(self._inner_runs(rest, starts), curves=True)
        results = {tag: result for tag, (result, _) in trained.items()}
        found: list[Row] = []
        chosen: dict[str, tuple[Trial, Row] | None] = {}
        for loss, trials in self.trials.items():
            seconds = sum(trained[loss, 0, fold][1] for fold in range(len(self.inner)))
            own = [self._trial_row(loss, trial, results, seconds) for trial in trials]
            found += own
            place = best_trial(own, [self._right(loss, trial.number, results) for trial in trials])
            chosen[loss] = None
            if place is not None:
                chosen[loss] = replace(trials[place], found=own[place].numbers), own[place]
        if self.stops:
            # A fold's own best pass is often its first of many that are as accurate, with small
            # logits: fitted to those, a temperature is wrong for the pass that all have in common.
            best = {loss: [one[0]] for loss, one in chosen.items() if one is not None}
            again = self.together(self._inner_runs(best, starts, "stopped/"))
            results |= {tag: replace(one, model=one.at_stop) for tag, (one, _) in again.items()}
        return found, {
            loss: None if one is None else (*one, self._calibration(loss, one[0].number, results))
            for loss, one in chosen.items()
        }

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
        return np.asarray(logits.argmax(1) == labels)

    def _inner_runs(
        self, trials: Mapping[str, Sequence[Trial]], starts: Sequence[Trained | None], key: str = ""
    ) -> dict[Any, Run]:
        """Every trial on every inner fold; the warm ones from the fold's start."""
        return {
            (loss, trial.number, fold): self.run(
                loss,
                trial,
                f"{key}{loss}/{trial.number}/{fold}",
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
        return None if place is None else replace(trials[place], found=rows[place].numbers), trained

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
            starts = {
                seed: result.at_stop or result.model
                for seed, (result, _) in self.together(first).items()
            }
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
        found, place = dict(trial.found), -1
        if self.stops and curves:
            place = best_round(*curves.values()) - 1
            found["stopped_at"] = (place + 1) / len(curves["validation_loss"])
        metrics = {name: values[place] for name, values in curves.items()}
        curves = {name: thinned(values) for name, values in curves.items()}
        bad = [name for name, value in metrics.items() if not np.isfinite(value)]
        failure = f"diverged at step {failed[0]}" if failed else None
        if bad:
            metrics, curves, failure = {}, {}, f"{bad[0]} is not finite"
        more = {"numbers": found, "metrics": metrics, "curves": curves, "seconds": seconds}
        return row_of(self.item, "trial", loss, trial.number, failure=failure, **more)

    def _calibration(self, loss: str, number: int, results: dict[Any, RunResult]) -> Calibration:
        """Of the best trial, on the rows that it was judged by."""
        logits, known = self._held_out(loss, number, results)
        if not np.isfinite(logits).all():  # it diverged when it was trained again
            return Calibration()
        return fit_calibration(logits, known, np.ones(len(known)))

    def deployable(self, loss: str, trial: Trial, row: Row) -> AccuracyClassifier | None:
        """The trial on all training rows as a classifier of class numbers; None if it diverged."""
        result, _ = self.together(self.final_runs({loss: (loss, trial)}, seeds=1))[loss, 0]
        model = result.at_stop or result.model
        if model is None:
            return None
        hidden = self.config(len(self.own), curves=False).model.hidden
        classifier = AccuracyClassifier(loss, hidden, random_state=self.asked["seed"])
        classifier.classes_ = np.arange(self.classes)
        classifier.layers_ = [
            (layer.weight.double().cpu().numpy(), layer.bias.double().cpu().numpy())
            for layer in model.layers
        ]
        found = [({"loss": loss, **row.numbers}, row.metrics["validation_accuracy"])]
        classifier.cv_results_ = cv_results(found)
        return classifier

    def finals(self, best: Best, test: SealedTest, given: Places, matters: Importance) -> list[Row]:
        """Train each loss's best trial on all training rows, and score it once."""
        chosen = {loss: (loss, found[0]) for loss, found in best.items() if found is not None}
        results = self.together(self.final_runs(chosen, self.asked["seeds"]))
        rows = []
        for loss, found in best.items():
            for seed in range(self.asked["seeds"]):
                result, seconds = results.get((loss, seed), (None, 0.0))
                failure = logits = model = None
                if found is None or result is None:
                    failure = "every trial diverged"
                elif result.model is None:
                    failure = f"diverged at step {result.failed_step}"
                else:
                    model = result.at_stop or result.model
                    logits = _score(test, f"{loss}|{seed}", model)
                    if not np.isfinite(logits).all():  # whose argmax would be a class
                        failure = "logits of test rows are not finite"
                if failure or found is None or result is None or model is None:
                    rows.append(row_of(self.item, "final", loss, seed, failure=failure))
                    continue
                trial, trial_row, calibration = found
                own = torch.from_numpy(self.own)
                right = model.logits(self.rows.features[own]).argmax(1)
                metrics, predictions = judge(logits, calibration, test.rows, given)
                metrics |= {
                    "train_accuracy": float((right == self.rows.labels[own]).double().mean()),
                    "temperature": calibration.temperature,
                    "bend": calibration.bend,
                }
                if self.stops:
                    last = _score(test, last_of(loss, seed), result.model)
                    metrics["last_accuracy"] = float((last.argmax(1) == given).mean())
                more = {"metrics": metrics, "predictions": predictions, "seconds": seconds}
                curves = dict(trial_row.curves)
                if seed == 0:  # one run a fold says which columns matter
                    predict = functools.partial(_logits, model)
                    curves["importance"] = matters.of(predict, columns_of(loss))
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
