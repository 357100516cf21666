"""leerr-uci: logistic regression on the 5×2 folds that come with the tables.

A pair of halves is two folds: train on one half, validate on the other, then swapped. All folds,
losses and learning rates of a table train together, as one item. The best learning rate of each
fold and loss, by the validation half, is scored on the sealed test rows, once.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from expacc.compare.serialize import pack_splits, pack_table
from expacc.data import Split, Table, derive_seed
from expacc.recipes.leaky import (
    LEAKY,
    LEVEL,
    LOSSES,
    PLAIN,
    REFERENCE,
    Compared,
    compare,
    underlined,
    xavier,
)
from expacc.recipes.page import Claim, Comparison, Number, Page, Section, number_of
from expacc.recipes.paper import Layout, load_paper, numbers
from expacc.recipes.recipe import (
    RecipeOptions,
    Work,
    missing_data,
    need_data,
    open_folds,
    tables_of,
)
from expacc.recipes.sweep import Ask, Data, Place, Sweep, grid, stacked
from expacc.report.panels import Line, Panel, power
from expacc.report.words import NONE, listed, looks, p_text, p_value_text, signed
from expacc.runner.items import Shared
from expacc.runner.rows import Row
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
    found = _read_tables(need_data(options.data, FOLDER))
    absent = [name for name in NAMES if name not in found]
    if not found:
        raise ValueError(missing_data(FOLDER, *absent))
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
        missing=(missing_data(FOLDER, *absent),) if absent else (),
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


def _read_tables(folder: Path) -> dict[str, Table]:
    """The tables of the folder that come with 5×2 folds: the paper's in its order, then others."""
    found = {table_of(one.name): one for one in tables_of(folder, "split5x2")}
    tables = {name: replace(one.read(), name=name) for name, one in found.items()}
    known = [name for name in NAMES if name in tables]
    return {name: tables[name] for name in [*known, *sorted(set(tables) - set(NAMES))]}


def _named(table: Table) -> list[Split]:
    """The given splits as 1a, 1b … 5b."""
    return [
        replace(split, name=f"{place // 2 + 1}{'ab'[place % 2]}")
        for place, split in enumerate(table.given)
    ]


def _open(ask: Ask, shared: Shared, names: Sequence[str]) -> list[Data]:
    return [
        stacked({fold: (train, train.validation, test) for fold, (train, test) in folds.items()})
        for folds in open_folds(ask, shared, names)
    ]


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


# ----------------------------------------------------------------------------------------- the page

PAIRS = ((LEAKY, REFERENCE), (PLAIN, REFERENCE), (LEAKY, PLAIN))
TABLE_3 = numbers("leaky", "table_3")
UNDERLINED: dict[str, list[str]] = load_paper("leaky")["underlined"]
STUCK = 5.0  # points of validation error above the best run on the same fold
_LOOK = looks(set(LOSSES))

Facts = Mapping[str, Any]
Errors = dict[str, dict[str, dict[str, float]]]  # table → loss → fold → error in per cent
Tests = dict[tuple[str, str, str], Compared]  # table and two losses → how they compare
Best = Mapping[str, Sequence[str]]  # table → losses that are best, or no worse


def write(rows: Sequence[Row], facts: Facts) -> Page:
    """The page from the rows that there are."""
    errors = _errors(rows)
    test_rows = {name: int(about["test_rows"]) for name, about in facts["tables"].items()}
    tests: Tests = {}
    for table, by_loss in errors.items():
        for first, second in PAIRS:
            one = compare(by_loss[first], by_loss[second], test_rows[table])
            if one is not None:
                tests[table, first, second] = one
    best = {table: underlined(by_loss, test_rows[table]) for table, by_loss in errors.items()}
    trials = [row for row in rows if row.kind == "trial" and row.failure is None]
    layout = Layout(
        "leaky",
        "leerr-uci",
        {
            **facts,
            "tried": len(facts["rates"]),
            "least": min(facts["rates"]),
            "most": max(facts["rates"]),
            "at_end": sum(row.metrics["stopped"] == 0 for row in trials),
            "trials": len(trials),
            "extra": listed([table for table in facts["tables"] if table not in NAMES]),
            "level": LEVEL,
            "stuck": STUCK,
        },
    )
    marked = [
        (place, list(LOSSES).index(loss) + 1)
        for place, table in enumerate(errors)
        for loss in best[table]
    ]
    lines = [
        (table, *(str(number_of(by_loss[loss].values()) or NONE) for loss in LOSSES))
        for table, by_loss in errors.items()
    ]
    names = LOSSES.values()
    return layout.page(
        (
            _numbers(layout, errors, facts),
            layout.section(
                "marked", grids=[layout.grid("ours", lines, columns=names, marked=marked)]
            ),
            layout.section("told", grids=[layout.grid("tests", map(_line, tests.items()))]),
            _rates(layout, trials),
        ),
        _claims(layout, tests, best),
    )


def _errors(rows: Sequence[Row]) -> Errors:
    """Test errors by fold, averaged over repeats first; the paper's tables, then others."""
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for row in rows:
        if row.kind == "final" and row.failure is None:
            found[row.table, row.loss, row.fold].append(100 * (1 - row.metrics["accuracy"]))
    errors: Errors = {}
    for (table, loss, fold), values in found.items():
        by_loss = errors.setdefault(table, {name: {} for name in LOSSES})
        by_loss[loss][fold] = float(np.mean(values))
    return {name: errors[name] for name in _in_order(errors) if name in errors}


def _in_order(found: Mapping[str, Any]) -> list[str]:
    return [*NAMES, *sorted(set(found) - set(NAMES))]


def _claims(layout: Layout, tests: Tests, best: Best) -> Iterator[Claim]:
    own = {table: tests.get((table, LEAKY, REFERENCE)) for table in NAMES}
    said = [one.says() for one in own.values() if one]
    tally = " / ".join(str(said.count(outcome)) for outcome in ("win", "tie", "loss"))
    holds: bool | None = said.count("win") >= 3 and "loss" not in said
    if not holds and "loss" not in said and len(said) < len(NAMES):
        holds = None  # the other tables may decide
    yield layout.claim("tally", tally if said else "", holds)
    for table, one in own.items():
        # What is underlined is the best, or not told from it.
        theirs = "tie" if REFERENCE in UNDERLINED[table] else "win"
        ours = f"{one.says()}, {signed(one.difference)}, {p_text(one.p_value)}" if one else ""
        holds = one.says() == theirs if one else None
        yield layout.claim("table", ours, holds, table=table, theirs=theirs)
    for table in NAMES:
        theirs, ours = (
            listed([name for loss, name in LOSSES.items() if loss in some])
            for some in (UNDERLINED[table], best.get(table, ()))
        )
        done = table in best
        told = (ours, ours == theirs) if done else ("", None)
        yield layout.claim("best", *told, table=table, theirs=theirs)


def _numbers(layout: Layout, errors: Errors, facts: Facts) -> Section:
    """Every number of Table 3 beside ours."""
    beside, means = [], {}
    for table in _in_order(errors):
        absent = "" if table in facts["tables"] else "left out"
        absent = "the table is not at hand" if table in facts.get("absent", ()) else absent
        by_loss = errors.get(table, {})
        own = {loss: number_of(by_loss.get(loss, {}).values()) for loss in LOSSES}
        for loss, ours in own.items():
            few = f"{ours.count} of 10 folds" if ours and ours.count < 10 else ""
            theirs = TABLE_3.get(table, {}).get(loss)
            beside.append(Comparison((table, LOSSES[loss]), theirs, ours, absent or few))
        if by_loss:
            means[table] = own
    shown = [
        Panel(table, [*_bars(own, -0.17, "-"), *_bars(TABLE_3.get(table, {}), 0.17, ":")],
              "error (%)", more=_name_losses) for table, own in means.items()
    ]  # fmt: skip
    return layout.section("table-3", beside=beside, charts=layout.panels("leerr-errors", shown))


def _name_losses(axes: Axes) -> None:
    axes.set_yticks(range(len(LOSSES)), list(LOSSES.values()))
    axes.set_ylim(len(LOSSES) - 0.5, -0.5)
    axes.xaxis.set_major_locator(MaxNLocator(5))


def _bars(means: Mapping[str, Number | None], up: float, dash: str) -> Iterator[Line]:
    """A mean and its deviation either way, a loss a line; the paper's are dotted, with rings."""
    for place, loss in enumerate(LOSSES):
        if number := means.get(loss):
            reach = number.spread or 0.0
            ends = [number.mean - reach, number.mean, number.mean + reach]
            colour, across = _LOOK[loss].colour, [place + up] * 3
            yield Line(ends, across, "", colour, "", dash, 1.6)
            yield Line(ends[1:2], across[:1], "", colour, "o", "", 1.6, dash == ":")


def _line(test: tuple[tuple[str, str, str], Compared]) -> tuple[str, ...]:
    (table, first, second), one = test
    return (
        *(table, f"{LOSSES[first]} less {LOSSES[second]}", signed(one.difference)),
        *(f"{one.fewer} of {one.folds}", p_value_text(one.p_value), one.says()),
        p_value_text(one.strict_p),
        NONE if one.strict_p is None else one.says(strict=True),
    )


def _rates(layout: Layout, trials: Sequence[Row]) -> Section:
    """What the learning rate does, and how many runs end far behind the best of their fold."""
    best: dict[tuple[str, str], float] = {}
    rates: dict[str, dict[str, dict[float, list[float]]]] = {}
    for row in trials:
        fold, held = (row.table, row.fold), row.metrics["validation_accuracy"]
        best[fold] = max(best.get(fold, 0.0), held)
        own = rates.setdefault(row.table, {loss: defaultdict(list) for loss in LOSSES})
        own[row.loss][float(row.numbers["learning_rate"])].append(100 * (1 - held))
    behind: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for row in trials:
        gap = 100 * (best[row.table, row.fold] - row.metrics["validation_accuracy"])
        behind[row.table, row.loss].append(gap > STUCK)
    counts = {
        table: [f"{sum(behind[table, loss])} of {len(behind[table, loss])}" for loss in LOSSES]
        for table in rates
    }
    ticks = {10.0**e: power(10.0**e) for e in range(-4, 0)}
    labels = ("learning rate", "validation error (%)")
    shown = [
        Panel(table, [_by_rate(*one) for one in own.items()], *labels, x_ticks=ticks, log="x")
        for table, own in rates.items()
    ]
    return layout.section(
        "rates",
        grids=[layout.grid("behind", [(t, *own) for t, own in counts.items()],
                           columns=LOSSES.values())],
        charts=layout.panels("leerr-rates", shown),
    )  # fmt: skip


def _by_rate(loss: str, by_rate: Mapping[float, Sequence[float]]) -> Line:
    rates, look = sorted(by_rate), _LOOK[loss]
    mean, low, high = (
        [float(f(by_rate[rate])) for rate in rates] for f in (np.mean, np.min, np.max)
    )
    style = (look.colour, look.marker, look.dash, 1.6)
    return Line(rates, mean, LOSSES[loss], *style, band=(low, high))
