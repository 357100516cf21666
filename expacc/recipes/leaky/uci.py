"""leerr-uci: logistic regression on the 5×2 folds that come with the tables.

A pair of halves is two folds: train on one half, validate on the other, then swapped. All folds,
losses and learning rates of a table train together, as one item. The best learning rate of each
fold and loss, by the validation half, is scored on the sealed test rows, once.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from expacc.compare.serialize import pack_splits, pack_table, unpack_split, unpack_table
from expacc.data import SealedTest, Split, Table, TrainRows, derive_seed, find_tables, open_split
from expacc.recipes import sources
from expacc.recipes.leaky.protocol import LOSSES, xavier
from expacc.recipes.paper import load_paper
from expacc.recipes.recipe import RecipeOptions, Work
from expacc.recipes.sweep import Ask, Data, Place, Sweep, grid, stacked
from expacc.runner.items import Shared
from expacc.training import Model, Run, TrainConfig

RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)  # of equally good ones the smallest
BATCH = 32
MIN_EPOCHS, PATIENCE, MOST_EPOCHS = 100, 15, 1000
QUICK_TABLES, QUICK_PAIRS = 2, 2
FOLDER = "leerr-uci"
NAMES: dict[str, str] = load_paper("leaky")["names"]


def table_of(name: str) -> str:
    """The full name of a table of the paper, whichever of its names a folder has.

    >>> table_of("ringn"), table_of("Pima"), table_of("iris")
    ('ringnorm', 'pima', 'iris')
    """
    short = {short: full for full, short in NAMES.items()}
    low = name.lower()
    return low if low in NAMES else short.get(low, name)


def plan(options: RecipeOptions) -> Work:
    """One item per table and repeat."""
    found = _tables(sources.need(options.data, FOLDER))
    absent = [name for name in NAMES if name not in found]
    if not found:
        raise ValueError(sources.missing(FOLDER, *absent))
    if options.quick:  # the small ones
        small = sorted(found, key=lambda name: found[name].rows * len(found[name].columns))
        found = {name: found[name] for name in small[:QUICK_TABLES]}
    how: dict[str, Any] = {
        "batch": BATCH,
        "min_epochs": MIN_EPOCHS,
        "patience": PATIENCE,
        "epochs": MOST_EPOCHS,
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
        folds = [split.name for split in splits[: 2 * QUICK_PAIRS if options.quick else None]]
        items += [
            SWEEP.item(
                f"{name}|{repeat}",
                options,
                table=name,
                folds=folds,
                settings={loss: grid(learning_rate=RATES) for loss in LOSSES},
                seeds=[repeat],
                search="keep",
                **how,
            )
            for repeat in range(options.seeds or 1)
        ]
    return SWEEP.work(
        items,
        shared=shared,
        missing=(sources.missing(FOLDER, *absent),) if absent else (),
        facts={
            **how,
            "tables": facts,
            "absent": absent,
            "quick": options.quick,
            "rates": list(RATES),
            "seed": options.seed,
            "device": options.device,
        },
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
    known = [name for name in NAMES if name in tables]
    return {name: tables[name] for name in [*known, *sorted(set(tables) - set(NAMES))]}


def _named(table: Table) -> list[Split]:
    """The given splits as 1a, 1b … 5b."""
    return [
        replace(split, name=f"{place // 2 + 1}{'ab'[place % 2]}")
        for place, split in enumerate(table.given)
    ]


def _open(ask: Ask, shared: Shared, names: Sequence[str]) -> list[Data]:
    """The folds by width: a column that is constant in a half is left out there."""
    table = unpack_table(ask["table"], shared)
    widths: dict[int, dict[str, tuple[TrainRows, TrainRows | None, SealedTest]]] = {}
    for fold in ask["folds"]:
        split = unpack_split(ask["table"], fold, shared)
        train, test, _ = open_split(table, split, methods=names, seed=ask["seed"])
        if train.validation is None:
            raise ValueError(f"{fold} of {ask['table']} must have validation rows; it has none.")
        widths.setdefault(train.features.shape[1], {})[fold] = (train, train.validation, test)
    return [stacked(folds) for folds in widths.values()]


def _run(ask: Ask, data: Data, place: Place) -> Run:
    rate, fold = place.setting["learning_rate"], place.fold
    widths = (data.rows.features.shape[1], data.rows.classes)
    return Run(
        f"{fold}/{place.method}/{rate:g}/{place.seed}",
        data.train[fold],
        data.held[fold],
        loss=place.method,
        learning_rate=rate,
        start=xavier(widths, ask["seed"], ask["table"], fold, place.seed),
    )


def _config(ask: Ask, place: Place) -> TrainConfig:
    return TrainConfig(
        Model(),
        "adam",
        batch=ask["batch"],
        epochs=ask["epochs"],
        patience=ask["patience"],
        min_epochs=ask["min_epochs"],
        seed=derive_seed(ask["seed"], ask["table"]) % (1 << 31),
    )


SWEEP = Sweep("expacc.recipes.leaky.uci:SWEEP", _open, run=_run, config=_config)
