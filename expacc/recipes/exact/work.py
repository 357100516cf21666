"""One work item of the tabular EXACT recipes: a method on a table, with settings given or found.

The part 'search' finds settings on the training rows first; every other trains with those of the
payload, each with every split and seed. Test rows are opened once a run.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from expacc.compare.serialize import unpack_split, unpack_table
from expacc.data import SealedTest, Table, TrainRows, open_split
from expacc.recipes.exact.methods import Regression, train_method
from expacc.recipes.exact.paper import Settings
from expacc.recipes.exact.protocol import Ready, as_record, score
from expacc.recipes.exact.search import TrialScore, best_of, search
from expacc.runner.items import Shared, WorkItem
from expacc.runner.rows import Kind, Row

__all__ = ["execute", "failed_rows"]

_LR = "logistic_regression"


def execute(item: WorkItem, shared: Shared) -> list[Row]:
    """Search if asked to, train, test; one row per trial and per final run."""
    ask = item.payload
    table = unpack_table(ask["table"], shared)
    opened = [_open(table, fold, ask, shared) for fold in ask["folds"]]
    settings = [Settings(**given) for given in ask["settings"]]
    if ask["part"] != "search":
        return _finals(item, opened, settings)
    train = opened[0][1]
    start = time.process_time()
    scores = search(
        train,
        ask["method"],
        settings,
        seed=ask["seed"],
        name=ask["table"],
        device=ask["device"],
    )
    each = (time.process_time() - start) / len(scores)
    rows = [_trial(item, place, found, each) for place, found in enumerate(scores)]
    best = best_of(scores)
    if best is None:
        return [*rows, *_failed(item, "every trial diverged")]
    return [*rows, *_finals(item, opened, [best])]


Opened = tuple[str, TrainRows, SealedTest]


def _open(table: Table, fold: str, ask: Mapping[str, Any], shared: Shared) -> Opened:
    """A split's training rows, and its test rows sealed for as many runs as there will be."""
    split = unpack_split(table.name, fold, shared)
    count = 1 if ask["part"] == "search" else len(ask["settings"])
    methods = [_method(ask, place, seed) for place in range(count) for seed in range(ask["seeds"])]
    train, test, _ = open_split(table, split, methods=methods, seed=ask["seed"], dtype=np.float64)
    return fold, train, test


def _method(ask: Mapping[str, Any], place: int, seed: int) -> str:
    return f"{ask['part']}|{ask['method']}|{place}|{seed}"


def _finals(item: WorkItem, opened: list[Opened], settings: Sequence[Settings]) -> list[Row]:
    """Train on all training rows with every setting and seed, and score each run once."""
    ask = item.payload
    if ask["method"] == _LR:
        return [_regression(item, *one, settings[0]) for one in opened]
    start = time.process_time()
    parts = [Ready.of(train) for _, train, _ in opened]
    stacked = Ready.stacked(parts) if len(parts) > 1 else parts
    keyed, places = {}, {}
    for (fold, _, test), ready in zip(opened, stacked, strict=True):
        for place, own in enumerate(settings):
            for seed in range(ask["seeds"]):
                # The same for every method: the same weights at the start, the same order of rows.
                key = f"{fold}|{seed}" if len(settings) == 1 else f"{fold}|{place}|{seed}"
                keyed[key] = (ready, own)
                places[key] = (fold, place, seed, ready, test)
    results = train_method(ask["method"], keyed, ask["seed"], device=ask["device"])
    each = (time.process_time() - start) / len(results)
    rows = []
    for result in results:
        fold, place, seed, ready, test = places[result.key]
        own = settings[place]
        if result.model is None:
            reason = f"diverged at step {result.failed_step}"
            rows.append(_row(item, "final", seed, fold, own, tag=place, failure=reason))
            continue
        metrics = {
            "accuracy": score(test, _method(ask, place, seed), result.model, ready.scale),
            "train_accuracy": ready.accuracy(result.model, ready.own),
            "cpu_seconds": each,
        }
        rows.append(_row(item, "final", seed, fold, own, tag=place, metrics=metrics, seconds=each))
    return rows


def _regression(
    item: WorkItem, fold: str, train: TrainRows, test: SealedTest, settings: Settings
) -> Row:
    """scikit-learn's has no seed: one row stands for all."""
    start = time.process_time()
    ready = Ready.of(train)
    model = Regression(ready, settings.regularization)
    metrics = {
        "accuracy": model.score(test, _method(item.payload, 0, 0)),
        "train_accuracy": model.accuracy(ready.own),
    }
    spent = time.process_time() - start
    metrics["cpu_seconds"] = spent
    return _row(item, "outside", 0, fold, settings, metrics=metrics, seconds=spent)


def _trial(item: WorkItem, place: int, found: TrialScore, seconds: float) -> Row:
    metrics = {"validation_accuracy": found.validation, "train_accuracy": found.train}
    failed = found.failure is not None
    return _row(
        item,
        "trial",
        place,
        item.payload["folds"][0],
        found.settings,
        metrics={} if failed else {**metrics, "cpu_seconds": seconds},
        seconds=seconds,
        failure=found.failure,
    )


def _row(
    item: WorkItem,
    kind: Kind,
    place: int,
    fold: str,
    settings: Settings | None,
    tag: int = 0,
    **more: Any,
) -> Row:
    ask = item.payload
    return Row(
        key=f"{item.key}|{kind}|{fold}|{tag}|{place}",
        item=item.key,
        kind=kind,
        table=ask["table"],
        loss=ask["method"],
        fold=fold,
        seed=0 if kind == "trial" else place,
        numbers={"part": ask["part"], **({} if settings is None else as_record(settings))},
        **more,
    )


def _failed(item: WorkItem, reason: str) -> list[Row]:
    ask = item.payload
    return [
        _row(item, "final", seed, fold, None, failure=reason)
        for fold in ask["folds"]
        for seed in range(ask["seeds"])
    ]


def failed_rows(item: WorkItem, reason: str) -> list[Row]:
    """The final rows of an item that gave none."""
    return _failed(item, reason)
