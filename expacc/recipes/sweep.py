"""A sweep: tables × methods × folds × seeds × settings, declared by a recipe and carried out here.

A recipe declares one ``Sweep`` in a module of its own: how a table's folds are opened, which run
stands at a place, and what its runs share. Workers find it by its name::

    SWEEP = Sweep("expacc.recipes.leaky.uci:SWEEP", open_folds, run=run_at, config=config_of)

Its ``plan`` cuts the work: ``SWEEP.item(…)`` for a table, some folds, methods with the settings of
each (``grid(learning_rate=RATES)``) and seeds; ``SWEEP.work(items, …)`` at the end. What is done
with the settings is the item's ``search``:

- 'none': every run is a final row.
- 'keep': runs are trials; of every fold, method and seed the best by validation is tested.
- 'retrain': trials on the first fold choose a setting, which is trained on all folds and seeds.

Test rows stay sealed until all runs of the item are trained, and are opened once.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from expacc.data import SealedTest, TrainRows, require_train_rows
from expacc.recipes.recipe import RecipeOptions, Work
from expacc.runner.items import Shared, WorkItem, load_executor
from expacc.runner.rows import Kind, Row
from expacc.training import Run, RunResult, TensorTable, TrainConfig, train_runs

Search = Literal["none", "keep", "retrain"]
Ask = Mapping[str, Any]  # the payload of an item
Setting = Mapping[str, Any]
Predict = Callable[[Any], Any]  # features of the test rows → class scores, or classes


def grid(**values: Iterable[Any]) -> list[dict[str, Any]]:
    """Settings that combine all of the values.

    >>> grid(learning_rate=[0.1, 1.0], dropout=[0.2])
    [{'learning_rate': 0.1, 'dropout': 0.2}, {'learning_rate': 1.0, 'dropout': 0.2}]
    """
    return [dict(zip(values, one, strict=True)) for one in itertools.product(*values.values())]


@dataclass(frozen=True)
class Place:
    """Where a run stands in a sweep.

    Args:
        fold: of the table.
        method: as rows call it.
        seed: which repeat.
        number: which of the method's settings, from 0.
        setting: the numbers that are searched, or given.
    """

    fold: str
    method: str
    seed: int
    number: int
    setting: Setting = field(default_factory=dict, compare=False)

    def name(self, point: int = 0) -> str:
        """As its test rows know it."""
        return f"{self.method}|{self.seed}|{self.number}|{point}"


@dataclass(frozen=True, eq=False)
class Data:
    """Folds of a table whose runs train together.

    Args:
        rows: features and labels; folds name rows of it.
        train: fold → numbers of the rows to train on.
        test: fold → its sealed test rows.
        held: fold → numbers of the rows to select by; left out for none.
        more: whatever else the recipe's own ``train`` needs.
    """

    rows: TensorTable
    train: Mapping[str, Tensor]
    test: Mapping[str, SealedTest]
    held: Mapping[str, Tensor] = field(default_factory=dict)
    more: Any = None


def stacked(folds: Mapping[str, tuple[TrainRows, TrainRows | None, SealedTest]]) -> Data:
    """Folds with rows of their own, one below the other.

    Args:
        folds: name → rows to train on, rows to select by, test rows; features of one width.
    """
    features, labels = [], []
    places: tuple[dict[str, Tensor], dict[str, Tensor]] = ({}, {})
    first = 0
    for fold, (train, held, _) in folds.items():
        for part, into in zip((train, held), places, strict=True):
            if part is not None:
                part = require_train_rows(part)
                into[fold] = torch.arange(first, first + len(part))
                features.append(part.features)
                labels.append(part.labels)
                first += len(part)
    classes = max(len(train.classes) for train, _, _ in folds.values())
    inputs, targets = np.concatenate(features), np.concatenate(labels)
    rows = TensorTable(torch.from_numpy(inputs), torch.from_numpy(targets), classes)
    return Data(rows, places[0], {fold: test for fold, (_, _, test) in folds.items()}, places[1])


@dataclass(frozen=True, eq=False)
class Outcome:
    """What became of a run.

    Args:
        metrics: 'validation_accuracy', by which settings are chosen, and others.
        curves: by epochs.
        predict: what is tested, the last for 'accuracy'; if there are more, one an epoch, theirs is
            the curve 'test_accuracy'.
        failure: why there is nothing to test; None for a good run.
        kind: of its final row: 'outside' for a learner that is not ours.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    curves: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    predict: tuple[Predict, ...] = ()
    failure: str | None = None
    kind: Kind = "final"

    @classmethod
    def of(cls, result: RunResult) -> "Outcome":
        """Of one of our own training runs."""
        if result.failed_step is not None or result.model is None:
            return cls(failure=f"diverged at step {result.failed_step}")
        metrics = {
            "epochs": float(result.epochs),
            "best_epoch": float(result.best_epoch),
            "stopped": float(result.stopped),
        }
        if "validation_accuracy" in result.curves:
            held = result.curves["validation_accuracy"][result.best_epoch - 1]
            metrics = {"validation_accuracy": held, **metrics}
        if "train_accuracy" in result.curves:
            metrics["train_accuracy"] = result.curves["train_accuracy"][-1]
        kept = result.every or (result.model,)
        return cls(metrics, result.curves, tuple(_scores_of(model) for model in kept))


def _scores_of(model: Any) -> Predict:
    return lambda features: model.logits(torch.from_numpy(features)).numpy()


@dataclass(frozen=True)
class Sweep:
    """What a recipe runs.

    Args:
        name: where workers find it: 'package.module:NAME'.
        open: opens an item's folds: its payload, what is shared, and the names to seal test rows
            for. Folds that cannot train together, because a column is constant in one, come apart.
        run: the run at a place; rows and start as the paper has them.
        config: what the run shares with others; those of one config train together.
        train: in place of both, where a method is trained otherwise: outcomes of places, and
            whether they are trials that test rows have no part in.
        share_batches: runs of one ``group`` see the same batches, see ``train_runs``.
        best: what an outcome is chosen by, the more the better, of equals the first.
        curves: names of those that final rows keep.
    """

    name: str
    open: Callable[[Ask, Shared, Sequence[str]], Sequence[Data]]
    run: Callable[[Ask, Data, Place], Run] | None = None
    config: Callable[[Ask, Place], TrainConfig] | None = None
    train: Callable[[Ask, Data, Sequence[Place], bool], Sequence[Outcome]] | None = None
    share_batches: bool = False
    best: Callable[[Outcome], Any] = lambda outcome: outcome.metrics["validation_accuracy"]
    curves: tuple[str, ...] = ()

    def item(
        self,
        key: str,
        options: RecipeOptions,
        *,
        table: str,
        folds: Sequence[str],
        settings: Mapping[str, Sequence[Setting]],
        seeds: Sequence[int] = (0,),
        search: Search = "none",
        points: int = 1,
        noise: float = 0.0,
        labels: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> WorkItem:
        """One item: a table with some folds, methods, seeds and settings.

        Args:
            key: unique in the recipe, the same whenever it is planned again.
            options: the user's.
            table: as rows call it.
            folds: names.
            settings: method → what it is trained with.
            seeds: which repeats.
            search: what is done with the settings.
            points: the most weights that a run is tested with.
            noise: share of labels spoilt, for the rows.
            labels: what tells these rows from others of the recipe; goes into their numbers.
            more: for ``open``, ``run`` and ``config``.
        """
        payload = {
            "sweep": self.name,
            "table": table,
            "folds": list(folds),
            "settings": {method: list(own) for method, own in settings.items()},
            "seeds": list(seeds),
            "search": search,
            "points": points,
            "noise": noise,
            "labels": dict(labels or {}),
            "seed": options.seed,
            "device": options.device,
            **more,
        }
        trials, cells = sum(map(len, settings.values())), len(folds) * len(seeds)
        finals = 0 if search == "none" else cells * len(settings)
        return WorkItem(key, payload, (1 if search == "retrain" else cells) * trials + finals)

    def work(
        self,
        items: Iterable[WorkItem],
        *,
        shared: Shared,
        missing: Sequence[str] = (),
        facts: Mapping[str, Any],
    ) -> Work:
        """All items, with what they share; see ``Work``."""
        executor = "expacc.recipes.sweep:execute"
        return Work(tuple(items), executor, failed_rows, shared, tuple(missing), facts)

    def outcomes(
        self, ask: Ask, parts: Sequence[Data], places: Sequence[Place], *, trials: bool
    ) -> dict[Place, Outcome]:
        """Train the runs at some places."""
        found: dict[Place, Outcome] = {}
        with _flushing(self.share_batches):
            for data in parts:
                own = [place for place in places if place.fold in data.train]
                train = self.train or self._train
                found.update(zip(own, train(ask, data, own, trials), strict=True))
        return {place: found[place] for place in places}

    def _train(self, ask: Ask, data: Data, places: Sequence[Place], _: bool) -> Sequence[Outcome]:
        if self.run is None or self.config is None:
            raise TypeError(f"{self.name} must have run and config, or train; got neither.")
        together: dict[TrainConfig, list[Place]] = {}
        for place in places:
            together.setdefault(self.config(ask, place), []).append(place)
        found: dict[Place, Outcome] = {}
        for config, own in together.items():
            runs = [self.run(ask, data, place) for place in own]
            how: dict[str, Any] = {"device": ask["device"], "share_batches": self.share_batches}
            results = train_runs(data.rows, runs, config, **how)
            found.update(zip(own, map(Outcome.of, results), strict=True))
        return [found[place] for place in places]


@contextmanager
def _flushing(on: bool) -> Iterator[None]:
    """Take numbers below 1e-38 for 0 in this block, as GPUs do.

    A saturated softmax and a loss that is nearly 0 leave many of them, and a processor multiplies
    them a hundred times as slowly as others.
    """
    before = float(torch.full((1,), 2.0**-126) / 2) == 0
    torch.set_flush_denormal(on or before)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def _places(ask: Ask, folds: Sequence[str], seeds: Sequence[int]) -> list[Place]:
    return [
        Place(fold, method, seed, number, setting)
        for fold in folds
        for seed in seeds
        for method, own in ask["settings"].items()
        for number, setting in enumerate(own)
    ]


def execute(item: WorkItem, shared: Shared) -> list[Row]:
    """Train an item's runs, choose among them, test; a row for every trial and final run."""
    ask = item.payload
    sweep: Sweep = load_executor(ask["sweep"])  # type: ignore[assignment]
    every = _places(ask, ask["folds"], ask["seeds"])
    names = {place.name(point): None for place in every for point in range(ask["points"])}
    start = time.perf_counter()
    parts = sweep.open(ask, shared, list(names))
    rows: list[Row] = []
    chosen, kept = every, ask["search"] == "keep"
    trials: dict[Place, Outcome] = {}
    if ask["search"] != "none":
        tried = every if kept else _places(ask, ask["folds"][:1], ask["seeds"][:1])
        trials = sweep.outcomes(ask, parts, tried, trials=True)
        each = (time.perf_counter() - start) / len(trials)
        rows += [_trial(item, place, outcome, each) for place, outcome in trials.items()]
        chosen = []
        for cell in (place for place in every if place.number == 0):
            best = _best(sweep, trials, cell if kept else Place(*_first(ask, cell.method)))
            if best is None:
                bare = Place(cell.fold, cell.method, cell.seed, 0)
                rows.append(_row(item, "final", bare, failure="every setting diverged"))
            else:
                chosen.append(replace(cell, number=best.number, setting=best.setting))
    start = time.perf_counter() if trials else start
    finals = trials if kept else sweep.outcomes(ask, parts, chosen, trials=False)
    each = 0.0 if kept else (time.perf_counter() - start) / max(1, len(finals))
    rows += [_final(item, sweep, parts, place, finals[place], each) for place in chosen]
    return rows


def _first(ask: Ask, method: str) -> tuple[str, str, int, int]:
    return ask["folds"][0], method, ask["seeds"][0], 0


def _best(sweep: Sweep, trials: Mapping[Place, Outcome], cell: Place) -> Place | None:
    """The best of a cell by validation, of equals the first; None if all diverged."""
    good = [
        place
        for place, outcome in trials.items()
        if replace(place, number=0) == cell and outcome.failure is None
    ]
    return max(good, key=lambda place: sweep.best(trials[place]), default=None)


def _trial(item: WorkItem, place: Place, outcome: Outcome, seconds: float) -> Row:
    if outcome.failure is not None:
        return _row(item, "trial", place, failure=outcome.failure)
    return _row(item, "trial", place, metrics=outcome.metrics, seconds=seconds)


def _final(
    item: WorkItem,
    sweep: Sweep,
    parts: Sequence[Data],
    place: Place,
    outcome: Outcome,
    seconds: float,
) -> Row:
    """Test a run, once."""
    if outcome.failure is not None:
        return _row(item, outcome.kind, place, failure=outcome.failure)
    test = next(data.test[place.fold] for data in parts if place.fold in data.test)
    names = [place.name(point) for point in range(len(outcome.predict))]

    def predict(features: Any) -> dict[str, Any]:
        return dict(zip(names, (one(features) for one in outcome.predict), strict=True))

    scores = test.score_together(names, predict)
    accuracies = tuple(scores[name].accuracy for name in names)
    curves = {name: outcome.curves[name] for name in sweep.curves if name in outcome.curves}
    if len(accuracies) > 1:
        curves["test_accuracy"] = accuracies
    metrics = {**outcome.metrics, "accuracy": accuracies[-1]}
    return _row(item, outcome.kind, place, metrics=metrics, curves=curves, seconds=seconds)


def _row(item: WorkItem, kind: Kind, place: Place, **more: Any) -> Row:
    ask = item.payload
    return Row(
        key=f"{item.key}|{place.fold}|{place.name()}|{kind}",
        item=item.key,
        kind=kind,
        table=ask["table"],
        loss=place.method,
        fold=place.fold,
        noise=ask["noise"],
        seed=place.seed,
        numbers={**ask["labels"], **place.setting},
        **more,
    )


def failed_rows(item: WorkItem, reason: str) -> list[Row]:
    """The final rows of an item that gave none."""
    ask = item.payload
    places = _places(ask, ask["folds"], ask["seeds"])
    if ask["search"] != "none":  # which would have chosen one
        places = [Place(p.fold, p.method, p.seed, 0) for p in places if p.number == 0]
    return [_row(item, "final", place, failure=reason) for place in places]
