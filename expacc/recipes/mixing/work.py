"""The work of mixing-uci: seven losses on every table, its folds, seeds and learning rates.

An item is a table and an architecture, all folds together: its runs train in lockstep. The best
epoch and learning rate are those of the validation rows; the sealed test rows are scored once.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import torch

from expacc.data import SealedTest, TrainRows, require_train_rows
from expacc.recipes import sources
from expacc.recipes.mixing.arms import contenders
from expacc.recipes.mixing.lockstep import Group, Outcome, groups_at_once, train_in_lockstep
from expacc.recipes.mixing.paper import ARMS, CONTROL, NETWORK, SHAPES, TABLES
from expacc.recipes.mixing.tables import (
    FOLDER,
    Shape,
    open_fold,
    pack,
    read_tables,
    scales_differ,
    shape_of,
)
from expacc.recipes.recipe import RecipeOptions, Work
from expacc.runner.items import Shared, WorkItem
from expacc.runner.rows import Row
from expacc.training import TensorTable

__all__ = ["execute", "failed_rows", "plan", "seconds_of"]

RATES = (0.01, 0.005, 0.001)  # of equally good ones the first, as in the authors' sweep
BATCH, EPOCHS, SEEDS = 8, 50, 2
QUICK_TABLES, QUICK_LOOK, QUICK_FOLDS, QUICK_EPOCHS = 6, 20, 2, 20
EVERY = (*ARMS, CONTROL)

Place = tuple[str, int, str]  # fold, seed, arm


def plan(ask: RecipeOptions) -> Work:
    """An item per table and architecture, the longest first."""
    folder = sources.need(ask.data, FOLDER)
    tables, left_out = read_tables(folder, QUICK_LOOK if ask.quick else None)
    if ask.quick:  # neither the tiny ones nor those that take long
        tables = dict(list(tables.items())[-QUICK_TABLES:])
    absent = [] if ask.quick else [name for name in TABLES if name not in tables]
    seeds = list(range(ask.seeds or (1 if ask.quick else SEEDS)))
    settings = {
        "rates": list(RATES),
        "batch": BATCH,
        "epochs": QUICK_EPOCHS if ask.quick else EPOCHS,
        "seed": ask.seed,
        "device": ask.device,
    }
    items: list[tuple[float, WorkItem]] = []
    shared: dict[str, Any] = {}
    facts = {}
    for name, table in tables.items():
        size = shape_of(table)
        folds = list(size.folds[: QUICK_FOLDS if ask.quick else None])
        shared |= pack(table)
        facts[name] = asdict(size) | {"folds": folds, "apart": scales_differ(table)}
        for shape in SHAPES:
            for part in _parts(size, shape, folds, len(seeds)):
                payload = {"table": name, "shape": shape, "folds": part, "seeds": seeds, **settings}
                runs = len(part) * len(seeds) * len(EVERY) * len(RATES)
                guess = seconds_of(size, shape, runs, settings)
                key = f"{name}|{shape}" + (f"|{part[0]}" if len(part) < len(folds) else "")
                items.append((guess, WorkItem(key, payload, runs)))
    items.sort(key=lambda pair: -pair[0])
    missing = [sources.missing(FOLDER, *absent)] if absent else []
    return Work(
        items=tuple(item for _, item in items),
        executor="expacc.recipes.mixing.work:execute",
        failed_rows=failed_rows,
        shared=shared,
        missing=(*missing, *left_out),
        facts={"tables": facts, "absent": absent, "seeds": seeds, "quick": ask.quick, **settings},
    )


def _parts(size: Shape, shape: str, folds: list[str], seeds: int) -> list[list[str]]:
    """The folds of each item: all, unless the weights are so many that they would take turns."""
    at_once = groups_at_once(_weights(size, shape), len(EVERY) * len(RATES))
    return [folds] if at_once >= len(folds) * seeds else [[fold] for fold in folds]


def _weights(size: Shape, shape: str) -> int:
    """Of one run."""
    if shape != NETWORK:
        return size.classes * (size.features + 1)
    return (size.features + size.classes) * (size.features + 1)


def seconds_of(size: Shape, shape: str, runs: int, settings: Mapping[str, Any]) -> float:
    """About how long so many runs take on one core of a laptop, to order items by.

    A step costs calls, whatever the number of runs, and then what moving weights and computing
    slopes costs; measured on the tables of the paper.
    """
    weights = _weights(size, shape)
    calls, each = (350e-6, 1.5e-6) if shape == NETWORK else (200e-6, 0.2e-6)
    each += 3e-9 * weights + 0.1e-6 * size.classes
    steps = -(-size.train // settings["batch"]) * settings["epochs"]
    return float(steps * (calls + runs * each))


def execute(item: WorkItem, shared: Shared) -> list[Row]:
    """Train all runs of the item; a row for each, and one per fold, seed and loss with its test."""
    start = time.perf_counter()
    ask = item.payload
    names = {f"{arm}|{seed}": (seed, arm) for seed in ask["seeds"] for arm in EVERY}
    learn: dict[str, tuple[TrainRows, TrainRows]] = {}
    sealed: dict[str, SealedTest] = {}
    for fold in ask["folds"]:
        train, held, sealed[fold] = open_fold(ask["table"], fold, shared, list(names))
        learn[fold] = require_train_rows(train), require_train_rows(held)
    with _without_denormals():
        results = _train(learn, ask)
    each = (time.perf_counter() - start) / item.runs
    rows = []
    for fold, test in sealed.items():
        chosen: dict[str, Outcome] = {}
        rate_of: dict[str, float] = {}
        for name, (seed, arm) in names.items():
            trials = results[fold, seed, arm]
            for rate, outcome in trials.items():
                rows.append(_trial(item, (fold, seed, arm), rate, outcome, each))
            best = _best(trials)
            if best is None:
                reason = "every learning rate diverged"
                rows.append(_row(item, "final", (fold, seed, arm), failure=reason))
            else:
                chosen[name], rate_of[name] = trials[best], best
        scores = test.score_together(list(chosen), partial(_predict, chosen))
        for name, score in scores.items():
            metrics = _metrics(chosen[name]) | {"accuracy": score.accuracy}
            at = (fold, *names[name])
            rows.append(_row(item, "final", at, rate_of[name], metrics=metrics))
    return rows


def _train(
    folds: Mapping[str, tuple[TrainRows, TrainRows]], ask: Mapping[str, Any]
) -> dict[Place, dict[float, Outcome]]:
    """All runs of the item: fold, seed and arm → the outcome of every learning rate."""
    features, labels = [], []
    groups, places = [], []
    first = 0
    for fold, (train, held) in folds.items():
        own = torch.arange(first, first + len(train))
        other = torch.arange(first + len(train), first + len(train) + len(held))
        first += len(train) + len(held)
        features += [train.features, held.features]
        labels += [train.labels, held.labels]
        for seed in ask["seeds"]:
            groups.append(Group(f"{ask['table']}|{ask['shape']}|{fold}|{seed}", own, other))
            places.append((fold, seed))
    inputs, targets = np.concatenate(features), np.concatenate(labels)
    rivals = contenders(ask["rates"], ask["epochs"])
    found = train_in_lockstep(
        TensorTable(torch.from_numpy(inputs), torch.from_numpy(targets), len(train.classes)),
        groups,
        [one for each in rivals.values() for one in each],
        hidden=inputs.shape[1] if ask["shape"] == NETWORK else 0,
        batch=ask["batch"],
        epochs=ask["epochs"],
        seed=ask["seed"],
        device=ask["device"],
    )
    results: dict[Place, dict[float, Outcome]] = {}
    for (fold, seed), outcomes in zip(places, found, strict=True):
        of_group = iter(outcomes)
        for arm in rivals:
            results[fold, seed, arm] = {rate: next(of_group) for rate in ask["rates"]}
    return results


@contextmanager
def _without_denormals() -> Iterator[None]:
    """Take numbers below 1e-38 for 0, as GPUs do: the gradients of a loss that is nearly 0.

    A processor takes a hundred times as long for them as for others.
    """
    before = float(torch.full((1,), 2.0**-126) / 2) == 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def _best(trials: Mapping[float, Outcome]) -> float | None:
    """The rate of the best validation accuracy, the first of equals; None if all diverged."""
    good = [rate for rate, outcome in trials.items() if outcome.model is not None]
    return max(good, key=lambda rate: trials[rate].validation, default=None)


def _predict(chosen: Mapping[str, Outcome], features: Any) -> dict[str, Any]:
    """Class scores of the test rows by every model."""
    rows = torch.from_numpy(features)
    return {
        name: outcome.model.logits(rows).numpy()
        for name, outcome in chosen.items()
        if outcome.model is not None
    }


def _metrics(outcome: Outcome) -> dict[str, float]:
    return {"validation_accuracy": outcome.validation, "best_epoch": float(outcome.best_epoch)}


def _trial(item: WorkItem, at: Place, rate: float, outcome: Outcome, seconds: float) -> Row:
    if outcome.diverged is not None:
        reason = f"diverged in epoch {outcome.diverged}"
        return _row(item, "trial", at, rate, failure=reason)
    return _row(item, "trial", at, rate, metrics=_metrics(outcome), seconds=seconds)


def _row(item: WorkItem, kind: Any, at: Place, rate: float | None = None, **more: Any) -> Row:
    ask, (fold, seed, arm) = item.payload, at
    numbers: dict[str, Any] = {"shape": ask["shape"]}
    if rate is not None:
        numbers["learning_rate"] = rate
    return Row(
        key="|".join([item.key, fold, str(seed), arm, kind, *([f"{rate:g}"] if rate else [])]),
        item=item.key,
        kind=kind,
        table=ask["table"],
        loss=arm,
        fold=fold,
        seed=seed,
        numbers=numbers,
        **more,
    )


def failed_rows(item: WorkItem, reason: str) -> list[Row]:
    """The final rows of an item that gave none."""
    ask = item.payload
    return [
        _row(item, "final", (fold, seed, arm), failure=reason)
        for fold in ask["folds"]
        for seed in ask["seeds"]
        for arm in EVERY
    ]
