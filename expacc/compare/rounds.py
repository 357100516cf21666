"""A work item whose model is trained in rounds: boosted trees, or a classifier that is refitted.

As in ``expacc.compare.work``: trials on inner folds, the best of them again on all training rows,
the sealed test rows once. The number of rounds is the best on the inner folds' held-out rows, for
every loss alike; what the last round gives is scored beside it.
"""

import functools
import time
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expacc.boosting.boosted import BoostedClassifier, best_round
from expacc.compare.fitted import Fitted, entry_of_fit, fit_of, fit_rounds
from expacc.compare.importance import Importance
from expacc.compare.kept import Kept, entry_of_row, row_of_entry
from expacc.compare.references import judge
from expacc.compare.serialize import row_of
from expacc.compare.training_budget import Trial, trials_of
from expacc.compare.trials import Best, best_trial, columns_of, last_of, rows_for_trials, thinned
from expacc.data import SealedTest, TrainRows, derive_seed
from expacc.estimator.calibration import Calibration, fit_calibration
from expacc.runner.items import WorkItem, tell_progress
from expacc.runner.rows import Row

Array = NDArray[np.float64]
Places = NDArray[np.int64]


class RoundsTrainer:
    """The training rows of an item, split for the search.

    Args:
        item: whose payload says what to train.
        train: its training rows.
    """

    def __init__(self, item: WorkItem, train: TrainRows) -> None:
        self.item, self.asked, self.train = item, item.payload, train
        self.own = np.arange(len(train.labels))
        features, self.labels, self.inner = rows_for_trials(train, self.asked["seed"], item.key)
        self.features = features.astype(np.float64)
        self.reasons: dict[str, str] = {}  # of a loss whose trials all failed
        self.kept = Kept(item.kept)
        count, seed, classes = self.asked["trials"], self.asked["seed"], len(train.classes)
        name = f"{self.asked['table']}/{self.asked['fold']}"
        self.trials = {
            loss: trials_of(loss, self.asked["model"], count, seed, name, len(self.own), classes)
            for loss in self.asked["losses"]
        }

    def fit(
        self, loss: str, trial: Trial, rows: Places, key: str, held: Places | None = None
    ) -> Fitted:
        """A trial of a loss on some of the rows."""
        seed = derive_seed(self.asked["seed"], self.item.key, key) % (1 << 31)
        return fit_rounds(
            self.asked["model"],
            loss,
            trial,
            self._at(rows),
            len(self.train.classes),
            seed,
            None if held is None else self._at(held),
        )

    def _at(self, rows: Places) -> tuple[Array, Places]:
        return self.features[rows], self.labels[rows]

    def search(self) -> tuple[list[Row], Best]:
        """Rows of all trials; per loss the best trial, its row and its calibration."""
        found: list[Row] = []
        best: Best = {}
        for loss, trials in self.trials.items():
            tried: list[tuple[Row, list[Fitted]]] = []
            for trial in trials:
                same = next((n for n in range(len(tried)) if trials[n].found == trial.found), None)
                if same is None:
                    tried.append(self._try(loss, trial))
                else:  # a loss without numbers of its own has but one trial of a classifier
                    row, models = tried[same]
                    key = f"{self.item.key}|trial|{loss}|{trial.number}"
                    tried.append((replace(row, key=key, seconds=0.0), models))
            own = [row for row, _ in tried]
            found += own
            place = best_trial(own, [self._right(one) for one in tried])
            best[loss] = None
            if place is None:
                self.reasons[loss] = str(own[0].failure)
            else:
                best[loss] = (trials[place], own[place], self._calibration(tried[place]))
        return found, best

    def _try(self, loss: str, trial: Trial) -> tuple[Row, list[Fitted]]:
        models: list[Fitted] = []
        seconds = 0.0
        try:
            for place in range(len(self.inner)):
                model, spent = self._inner_fit(loss, trial, place)
                models.append(model)
                seconds += spent
                tell_progress(1 / len(self.inner))
            found = [
                model.curves(self._at(held))
                for model, (_, held) in zip(models, self.inner, strict=True)
            ]
        except Exception as error:  # whatever a library says: the others go on
            return self._failed("trial", loss, trial.number, error), []
        # One that stopped earlier stays where it was.
        longest = max(len(right) for right, _ in found)
        accuracy, nats = (
            np.mean([np.pad(one[part], (0, longest - len(one[part])), "edge") for one in found], 0)
            for part in (0, 1)
        )
        rounds = best_round(accuracy, nats)
        more: dict[str, Any] = {
            "numbers": {**trial.found, "rounds": float(rounds)},
            "metrics": {
                "validation_accuracy": float(accuracy[rounds - 1]),
                "validation_loss": float(nats[rounds - 1]),
            },
            "curves": {
                "validation_accuracy": thinned(accuracy.tolist()),
                "validation_loss": thinned(nats.tolist()),
            },
            "seconds": seconds,
        }
        return row_of(self.item, "trial", loss, trial.number, **more), models

    def _inner_fit(self, loss: str, trial: Trial, place: int) -> tuple[Fitted, float]:
        """A trial on an inner fold, and its seconds; as it was kept, if it was."""
        name = f"{loss}/{trial.number}/{place}"
        rows, held = self.inner[place]
        if entries := self.kept.get([name]):
            return fit_of(entries[0], self.asked["model"], loss, len(self.train.classes))
        start = time.perf_counter()
        found = self.fit(loss, trial, rows, f"{loss}/{place}", held)
        seconds = time.perf_counter() - start
        make = functools.partial(entry_of_fit, found, self.features[held], seconds)
        self.kept.put({name: make})
        return found, seconds

    def _failed(self, kind: str, loss: str, place: int, error: Exception) -> Row:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        return row_of(self.item, kind, loss, place, failure=reason)

    def _calibration(self, tried: tuple[Row, list[Fitted]]) -> Calibration:
        """Of the best trial, on the rows that it was judged by."""
        logits, known = self._held_out(tried)
        return fit_calibration(logits, known, np.ones(len(known)))

    def _right(self, tried: tuple[Row, list[Fitted]]) -> NDArray[np.bool_]:
        """Which of the rows that judge a trial it has right; none of a failed one."""
        if tried[0].failure is not None:
            return np.zeros(sum(len(held) for _, held in self.inner), np.bool_)
        logits, known = self._held_out(tried)
        right: NDArray[np.bool_] = logits.argmax(1) == known
        return right

    def _held_out(self, tried: tuple[Row, list[Fitted]]) -> tuple[Array, Places]:
        """A trial's logits, stopped, of all rows that it is judged by; and their labels."""
        row, models = tried
        rounds = int(row.numbers["rounds"])
        logits = np.concatenate(
            [
                model.logits(self.features[held], rounds)
                for model, (_, held) in zip(models, self.inner, strict=True)
            ]
        )
        return logits, np.concatenate([self.labels[held] for _, held in self.inner])

    def deployable(self, loss: str, trial: Trial, row: Row) -> BoostedClassifier:
        """The trial on all training rows as a classifier of class numbers."""
        found = self.fit(loss, trial, self.own, f"{loss}/final/0")
        if not isinstance(found.model, BoostedClassifier):
            raise TypeError(f"model must be of boosted trees to be saved; got {found.model!r:.60}.")
        found.model.n_iter_ = min(int(row.numbers["rounds"]), found.rounds)
        return found.model

    def finals(self, best: Best, test: SealedTest, given: Places, matters: Importance) -> list[Row]:
        """Train each loss's best trial on all training rows; score it stopped, and at the end."""
        rows = []
        for loss, found in best.items():
            for seed in range(self.asked["seeds"]):
                if entries := self.kept.get([name := f"{loss}/final/{seed}"]):
                    rows.append(row_of_entry(entries[0]))
                    continue
                rows.append(self._final(loss, seed, found, test, given, matters))
                self.kept.put({name: functools.partial(entry_of_row, rows[-1])})
        return rows

    def _final(
        self,
        loss: str,
        seed: int,
        found: tuple[Trial, Row, Calibration] | None,
        test: SealedTest,
        given: Places,
        matters: Importance,
    ) -> Row:
        if found is None:
            return row_of(self.item, "final", loss, seed, failure=self.reasons[loss])
        trial, trial_row, calibration = found
        rounds = int(trial_row.numbers["rounds"])
        start = time.perf_counter()
        try:
            model = self.fit(loss, trial, self.own, f"{loss}/final/{seed}")
        except Exception as error:
            return self._failed("final", loss, seed, error)
        seconds = time.perf_counter() - start
        logits: list[Array] = []
        for method, stop in ((f"{loss}|{seed}", rounds), (last_of(loss, seed), model.rounds)):

            def predict(features: Any, stop: int = stop) -> Array:
                logits.append(model.logits(features, stop))
                return logits[-1]

            test.score(method, predict)
        metrics, predictions = judge(logits[0], calibration, test.rows, given)
        at_end = {"last_accuracy": float((logits[1].argmax(1) == given).mean())}
        right = model.logits(self.features[self.own], rounds).argmax(1) == self.labels[self.own]
        metrics |= at_end | {
            "train_accuracy": float(right.mean()),
            "temperature": calibration.temperature,
            "bend": calibration.bend,
        }
        curves = dict(trial_row.curves)
        if seed == 0:  # one run a fold says which columns matter
            curves["importance"] = matters.of(
                lambda features: model.logits(features, rounds), columns_of(loss)
            )
        more: dict[str, Any] = {"metrics": metrics, "predictions": predictions, "curves": curves}
        more |= {"numbers": {**trial_row.numbers, "last_round": float(model.rounds)}}
        return row_of(self.item, "final", loss, seed, seconds=seconds, **more)
