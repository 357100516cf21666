"""The work of leerr-uci: logistic regression on the 5×2 folds that come with the tables.

A pair of halves is two folds: train on one half, validate on the other, then swapped. All folds,
losses and learning rates of a table train together, as one item. The best learning rate of each
fold and loss, by the validation half, is scored on the sealed test rows, once.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from expacc.compare.serialize import pack_splits, pack_table, unpack_split, unpack_table
from expacc.data import Split, Table, TrainRows, derive_seed, find_tables, open_split
from expacc.recipes import sources
from expacc.recipes.leaky.paper import LOSSES, NAMES, table_of
from expacc.recipes.leaky.start import xavier
from expacc.recipes.leaky.trials import trial_metrics, validation_accuracy
from expacc.recipes.recipe import RecipeOptions, Work
from expacc.runner.items import Shared, WorkItem
from expacc.runner.rows import Row
from expacc.training import Model, Run, RunResult, TensorTable, TrainConfig, train_runs

__all__ = ["RATES", "execute", "failed_rows", "plan"]

RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)
BATCH = 32
MIN_EPOCHS, PATIENCE, MOST_EPOCHS = 100, 15, 1000
QUICK_TABLES, QUICK_PAIRS = 2, 2
FOLDER = "leerr-uci"


def plan(ask: RecipeOptions) -> Work:
    """One item per table and repeat."""
    found = _tables(sources.need(ask.data, FOLDER))
    absent = [name for name in NAMES if name not in found]
    if not found:
        raise ValueError(sources.missing(FOLDER, *absent))
    if ask.quick:  # the small ones
        small = sorted(found, key=lambda name: found[name].rows * len(found[name].columns))
        found = {name: found[name] for name in small[:QUICK_TABLES]}
    settings = {
        "rates": list(RATES),
        "batch": BATCH,
        "min_epochs": MIN_EPOCHS,
        "patience": PATIENCE,
        "epochs": MOST_EPOCHS,
        "seed": ask.seed,
        "device": ask.device,
    }
    items, facts = [], {}
    shared: dict[str, Any] = {}
    for name, table in found.items():
        splits = _named(table)
        shared |= pack_table(table) | pack_splits(name, splits)
        facts[name] = {
            "rows": table.rows,
            "features": len(table.columns),
            "classes": len(table.target.classes),
            "test_rows": len(splits[0].test),
        }
        folds = [split.name for split in splits[: 2 * QUICK_PAIRS if ask.quick else None]]
        for repeat in range(ask.seeds or 1):
            payload = {"table": name, "folds": folds, "repeat": repeat, **settings}
            runs = len(folds) * len(LOSSES) * (len(RATES) + 1)
            items.append(WorkItem(f"{name}|{repeat}", payload, runs))
    return Work(
        items=tuple(items),
        executor="expacc.recipes.leaky.uci:execute",
        failed_rows=failed_rows,
        shared=shared,
        missing=(sources.missing(FOLDER, *absent),) if absent else (),
        facts={"tables": facts, "absent": absent, "quick": ask.quick, **settings},
    )


def _tables(folder: Path) -> dict[str, Table]:
    """The tables of the folder that come with 5×2 folds: the paper's in its order, then others."""
    try:
        found, _ = find_tables(folder)
    except ValueError:  # an empty folder
        return {}
    tables = {}
    for one in found:
        if one.kind == "split5x2":
            name = table_of(one.name)
            tables[name] = replace(one.read(), name=name)
    order = list(NAMES)
    known = [name for name in order if name in tables]
    return {name: tables[name] for name in [*known, *sorted(set(tables) - set(order))]}


def _named(table: Table) -> list[Split]:
    """The given splits as 1a, 1b … 5b."""
    return [
        replace(split, name=f"{place // 2 + 1}{'ab'[place % 2]}")
        for place, split in enumerate(table.given)
    ]


def execute(item: WorkItem, shared: Shared) -> list[Row]:
    """Train on every fold with every loss and rate; one row per run, and one per test score."""
    start = time.perf_counter()
    ask = item.payload
    table = unpack_table(ask["table"], shared)
    opened = {}
    for fold in ask["folds"]:
        split = unpack_split(ask["table"], fold, shared)
        train, test, _ = open_split(table, split, methods=list(LOSSES), seed=ask["seed"])
        opened[fold] = (train, test)
    widths: dict[int, dict[str, TrainRows]] = {}
    for fold, (train, _) in opened.items():  # a column that is constant in a half is left out there
        widths.setdefault(train.features.shape[1], {})[fold] = train
    results: dict[tuple[str, str, float], RunResult] = {}
    for parts in widths.values():
        results |= _train(parts, ask)
    each = (time.perf_counter() - start) / len(results)
    rows = []
    for fold, (_, test) in opened.items():
        for loss in LOSSES:
            trials = {rate: results[fold, loss, rate] for rate in ask["rates"]}
            rows += [
                _trial(item, loss, fold, rate, result, each) for rate, result in trials.items()
            ]
            best = _best(trials)
            if best is None:
                reason = "every learning rate diverged"
                rows.append(_row(item, "final", loss, fold, failure=reason))
                continue
            chosen = trials[best]
            score = test.score(loss, _scorer(chosen))
            metrics = {**trial_metrics(chosen), "accuracy": score.accuracy}
            rows.append(
                _row(
                    item, "final", loss, fold,
                    numbers={"learning_rate": best}, metrics=metrics,
                )
            )  # fmt: skip
    return rows


def _train(
    parts: Mapping[str, TrainRows], ask: Mapping[str, Any]
) -> dict[tuple[str, str, float], RunResult]:
    """Runs on folds of one width as one tensor program: fold, loss and rate → how it ended."""
    features, labels, runs, tags = [], [], [], []
    first = 0
    for fold, train in parts.items():
        held = train.validation
        if held is None:
            raise ValueError(f"{fold} of {ask['table']} must have validation rows; it has none.")
        own = torch.arange(first, first + len(train))
        other = torch.arange(first + len(train), first + len(train) + len(held))
        first += len(train) + len(held)
        features += [train.features, held.features]
        labels += [train.labels, held.labels]
        names = (ask["table"], fold, ask["repeat"])
        begin = xavier((train.features.shape[1], len(train.classes)), ask["seed"], *names)
        for loss in LOSSES:
            for rate in ask["rates"]:
                key = f"{fold}/{loss}/{rate:g}/{ask['repeat']}"
                runs.append(Run(key, own, other, loss=loss, learning_rate=rate, start=begin))
                tags.append((fold, loss, rate))
    classes = max(len(train.classes) for train in parts.values())
    inputs, targets = np.concatenate(features), np.concatenate(labels)
    rows = TensorTable(torch.from_numpy(inputs), torch.from_numpy(targets), classes)
    how = TrainConfig(
        Model(),
        "adam",
        batch=ask["batch"],
        epochs=ask["epochs"],
        patience=ask["patience"],
        min_epochs=ask["min_epochs"],
        seed=derive_seed(ask["seed"], ask["table"]) % (1 << 31),
    )
    return dict(zip(tags, train_runs(rows, runs, how, device=ask["device"]), strict=True))


def _best(trials: Mapping[float, RunResult]) -> float | None:
    """The rate of the best validation accuracy; of equals the smallest."""
    good = [rate for rate, result in sorted(trials.items()) if result.failed_step is None]
    return max(good, key=lambda rate: validation_accuracy(trials[rate]), default=None)


def _scorer(result: RunResult) -> Callable[[Any], Any]:
    """Scores of the sealed test rows by a trained model."""
    model = result.model
    if model is None:
        raise ValueError("result must have a model; got one that diverged.")
    return lambda features: model.logits(torch.from_numpy(features)).numpy()


def _trial(
    item: WorkItem, loss: str, fold: str, rate: float, result: RunResult, seconds: float
) -> Row:
    numbers = {"learning_rate": rate}
    if result.failed_step is not None:
        reason = f"diverged at step {result.failed_step}"
        return _row(item, "trial", loss, fold, rate, numbers=numbers, failure=reason)
    return _row(
        item,
        "trial",
        loss,
        fold,
        rate,
        numbers=numbers,
        metrics=trial_metrics(result),
        seconds=seconds,
    )


def _row(
    item: WorkItem, kind: Any, loss: str, fold: str, rate: float | None = None, **more: Any
) -> Row:
    ask = item.payload
    return Row(
        key="|".join([item.key, fold, kind, loss, *([f"{rate:g}"] if rate else [])]),
        item=item.key,
        kind=kind,
        table=ask["table"],
        loss=loss,
        fold=fold,
        seed=ask["repeat"],
        **more,
    )


def failed_rows(item: WorkItem, reason: str) -> list[Row]:
    """The rows of an item that gave none."""
    return [
        _row(item, "final", loss, fold, failure=reason)
        for fold in item.payload["folds"]
        for loss in LOSSES
    ]
