"""leerr-mnist-mlp: a 300-200-100 network with dropout on MNIST, with and without noise.

The paper tunes learning rate and dropout on the development rows of every fold. That takes a GPU:
on a CPU the default is one setting, half of the folds and fewer epochs; ``--seeds`` asks for the
whole, that many folds of it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from expacc.data import derive_seed
from expacc.recipes.leaky import LEAKY, LOSSES, REFERENCE, Compared, compare, xavier
from expacc.recipes.leaky.digits import digits_data, pack, read_digits, unpack
from expacc.recipes.page import Claim, Comparison, Page, Section, number_of
from expacc.recipes.paper import Layout, load_paper, numbers
from expacc.recipes.recipe import RecipeOptions, Work
from expacc.recipes.sweep import Ask, Data, Place, Sweep, grid
from expacc.report.panels import Line, Panel
from expacc.report.words import MUTED, listed, looks, p_text, p_value_text, share_text, signed
from expacc.runner.items import Shared
from expacc.runner.rows import Row
from expacc.stats import corrected_paired_t
from expacc.training import Model, Run, TrainConfig

PAIR = (REFERENCE, LEAKY)
NOISES = (0.0, 0.05)
HIDDEN = (300, 200, 100)
PATIENCE, BATCH, FOLDS = 30, 128, 10
AT_ONCE = 5  # folds of an item on a GPU: what a kill may cost

# What is tried, and how long: the paper's protocol, what two cores do in an hour, and a minute.
PROTOCOLS: dict[str, dict[str, Any]] = {
    "full": {"rates": [3e-4, 1e-3], "dropouts": [0.1, 0.2, 0.3], "epochs": 400, "rows": None},
    "short": {"rates": [1e-3], "dropouts": [0.2], "epochs": 50, "rows": None},
    "quick": {"rates": [1e-3], "dropouts": [0.2], "epochs": 4, "rows": 10_000},
}
USUAL_FOLDS = {"full": FOLDS, "short": 5, "quick": 2}


def plan(options: RecipeOptions) -> Work:
    """On a CPU an item per fold, loss and share of noise; on a GPU five folds and all losses."""
    digits = read_digits(options.data)
    protocol = options.protocol
    folds = options.seeds or USUAL_FOLDS[protocol]
    how = {**PROTOCOLS[protocol], "patience": PATIENCE, "batch": BATCH, "all_folds": folds}
    # By dropout first: of equally good settings the first is taken.
    tried = grid(dropout=how["dropouts"], learning_rate=how["rates"])
    items = []
    for noise, some, losses in _cuts(folds, options.device):
        named = some[0] if len(some) == 1 else f"{some[0]}-{some[-1]}"
        items.append(
            SWEEP.item(
                f"{protocol}|{noise:g}|{named}|{losses[0] if len(losses) == 1 else 'all'}",
                options,
                table="mnist",
                folds=some,
                settings=dict.fromkeys(losses, tried),
                search="keep",
                noise=noise,
                **how,
            )
        )
    train = len(digits.part(how["rows"]).train_labels)
    facts = {"protocol": protocol, "train_rows": train, "test_rows": len(digits.test_labels)}
    return SWEEP.work(items, shared=pack(digits), facts={**how, **facts})


def _cuts(folds: int, device: str) -> Iterator[tuple[float, list[str], list[str]]]:
    """Share of noise, folds (from 1) and losses of every item."""
    named = [str(number) for number in range(1, folds + 1)]
    at_once, some = (1, 1) if device == "cpu" else (AT_ONCE, len(PAIR))  # a GPU wants many runs
    for noise in NOISES:
        for low in range(0, folds, at_once):
            for first in range(0, len(PAIR), some):
                yield noise, named[low : low + at_once], list(PAIR[first : first + some])


def _open(ask: Ask, shared: Shared, names: Sequence[str]) -> list[Data]:
    # Noise in training and development rows, as in the paper, and the same for all folds.
    return [digits_data(unpack(shared).part(ask["rows"]), ask, names, label_noise=ask["noise"])]


def _run(ask: Ask, data: Data, place: Place) -> Run:
    rate, dropout = place.setting["learning_rate"], place.setting["dropout"]
    widths = (data.rows.features.shape[1], *HIDDEN, data.rows.classes)
    return Run(
        f"mnist/{ask['noise']:g}/{place.fold}/{place.method}/{rate:g}/{dropout:g}",
        data.train[place.fold],
        data.held[place.fold],
        loss=place.method,
        learning_rate=rate,
        start=xavier(widths, ask["seed"], "mnist", int(place.fold)),
    )


def _config(ask: Ask, place: Place) -> TrainConfig:
    dropout = place.setting["dropout"]
    return TrainConfig(
        Model(HIDDEN, input_dropout=dropout, hidden_dropout=dropout),
        "adam",
        batch=ask["batch"],
        epochs=ask["epochs"],
        patience=ask["patience"],
        seed=derive_seed(ask["seed"], "leerr-mnist-mlp") % (1 << 31),
    )


SWEEP = Sweep(
    "expacc.recipes.leaky.mlp:SWEEP",
    _open,
    run=_run,
    config=_config,
    curves=("validation_accuracy",),
)


# ----------------------------------------------------------------------------------------- the page

TABLE_4 = {
    (float(noise), loss): number
    for noise, by_loss in numbers("leaky", "table_4").items()
    for loss, number in by_loss.items()
}
MARGINS = {noise: TABLE_4[noise, LEAKY].mean - TABLE_4[noise, REFERENCE].mean for noise in NOISES}
LATE = 5  # epochs after the first steep fall
_LOOK = looks(set(LOSSES))

Errors = dict[tuple[float, str], dict[str, float]]  # noise, loss → fold → error in per cent
Tests = dict[float, tuple[Compared, float]]  # noise → LEErr less NegLog, and the corrected p


def write(rows: Sequence[Row], facts: Mapping[str, Any]) -> Page:
    """The page from the rows that there are."""
    finals, trials = (
        [row for row in rows if row.kind == kind and row.failure is None]
        for kind in ("final", "trial")
    )
    errors: Errors = {cell: {} for cell in TABLE_4}
    for row in finals:
        errors[row.noise, row.loss][row.fold] = 100 * (1 - row.metrics["accuracy"])
    tests = _compared(errors, facts)
    layout = Layout(
        "leaky",
        "leerr-mnist-mlp",
        {
            **facts,
            "about": load_paper("leaky")["protocols"][facts["protocol"]],
            "rate": listed(facts["rates"]),
            "dropout": listed(facts["dropouts"]),
            "at_end": sum(row.metrics["stopped"] == 0 for row in trials),
            "trials": len(trials),
        },
    )
    lines = [
        (
            *(_labels(noise), signed(one.difference), signed(MARGINS[noise])),
            *(f"{one.fewer} of {one.folds}", p_value_text(one.p_value), p_value_text(corrected)),
        )
        for noise, (one, corrected) in tests.items()
    ]
    pairs = [_pairs(errors, noise) for noise in NOISES] if tests else []
    return layout.page(
        (
            layout.section("table-4", beside=_beside(errors)),
            layout.section(
                "margin",
                grids=[layout.grid("margins", lines)],
                charts=layout.panels("leerr-mlp-folds", pairs),
            ),
            _training(layout, finals),
        ),
        _claims(layout, tests),
    )


def _compared(errors: Errors, facts: Mapping[str, Any]) -> Tests:
    found = {}
    rows = float(facts["train_rows"])
    for noise in NOISES:
        leaky, plain = errors[noise, LEAKY], errors[noise, REFERENCE]
        one = compare(leaky, plain, int(facts["test_rows"]))
        if one is not None:
            folds = sorted(leaky.keys() & plain.keys())
            # Allows for training rows that folds have in common.
            gaps = [(leaky[fold] - plain[fold]) / 100 for fold in folds]
            found[noise] = one, float(corrected_paired_t(gaps, 0.9 * rows, 0.1 * rows).p_value)
    return found


def _labels(noise: float) -> str:
    return f"{share_text(noise)} drawn at random" if noise else "as they are"


def _claims(layout: Layout, tests: Tests) -> Iterator[Claim]:
    for noise in NOISES:
        one, _ = tests.get(noise, (None, 0.0))
        ours = f"{signed(one.difference)}, {p_text(one.p_value)}" if one else ""
        holds = None if one is None else one.says() == "win"
        words = {"labels": _labels(noise), "margin": signed(MARGINS[noise])}
        yield layout.claim("fewer", ours, holds, **words)
    gaps = [tests[noise][0].difference for noise in NOISES if noise in tests]
    theirs, ours = (
        " and ".join(signed(gap) for gap in reversed(some))
        for some in (list(MARGINS.values()), gaps)
    )
    holds = gaps[1] < gaps[0] if len(gaps) == len(NOISES) else None
    yield layout.claim("grows", ours, holds, margins=theirs)


def _beside(errors: Errors) -> Iterator[Comparison]:
    for (noise, loss), theirs in TABLE_4.items():
        ours = number_of(errors[noise, loss].values())
        note = f"{ours.count} of 10 folds" if ours and ours.count < 10 else ""
        yield Comparison((_labels(noise), LOSSES[loss]), theirs, ours, note)


def _training(layout: Layout, finals: Sequence[Row]) -> Section:
    """What was chosen, and how training went."""
    lines = []
    for noise, loss in TABLE_4:
        own = [row for row in finals if (row.noise, row.loss) == (noise, loss)]
        if own:
            counts = Counter(
                f"{row.numbers['learning_rate']:g} and {row.numbers['dropout']:g}" for row in own
            )
            chosen = ", ".join(f"{what} ({count})" for what, count in counts.most_common())
            epochs = float(np.mean([row.metrics["best_epoch"] for row in own]))
            held = 100 * (1 - float(np.mean([row.metrics["validation_accuracy"] for row in own])))
            lines.append((_labels(noise), LOSSES[loss], chosen, f"{epochs:.0f}", f"{held:.2f}"))
    curves = [panel for noise in NOISES if (panel := _curves(finals, noise)).lines]
    charts = layout.panels("leerr-mlp-curves", curves)
    return layout.section("training", grids=[layout.grid("chosen", lines)], charts=charts)


def _pairs(errors: Errors, noise: float) -> Panel:
    """NegLog and LEErr on the same folds, joined by lines; the paper's means as rings."""
    own = [errors[noise, loss] for loss in PAIR]
    folds = sorted(own[0].keys() & own[1].keys())
    lines = [Line([0, 1], [by[fold] for by in own], "", MUTED, width=0.8) for fold in folds]
    for place, (loss, by_fold) in enumerate(zip(PAIR, own, strict=True)):
        colour, values = _LOOK[loss].colour, list(by_fold.values())
        ring, named = [place + (-0.14, 0.14)[place]], "paper's mean" if place else ""
        theirs = [TABLE_4[noise, loss].mean]
        lines.append(Line(ring, theirs, named, colour, "o", "", 1, hollow=True))
        if values:
            mean, dots = [float(np.mean(values))] * 2, "a fold" if place else ""
            lines.append(Line([place] * len(values), values, dots, colour, "o", ""))
            lines.append(Line([place - 0.1, place + 0.1], mean, "", colour, width=2.5))
    title, limits = f"labels {_labels(noise)}", (-0.35, 1.35)
    return Panel(title, lines, "", "test error (%)", x_range=limits, more=_name_pair)


def _name_pair(axes: Axes) -> None:
    axes.set_xticks([0, 1], [LOSSES[loss] for loss in PAIR])


def _curves(finals: Sequence[Row], noise: float) -> Panel:
    """Development error by epoch, mean over the folds; one that has ended keeps its last value."""
    lines = []
    for loss in PAIR:
        curves = [
            [100 * (1 - value) for value in row.curves["validation_accuracy"]]
            for row in finals
            if (row.noise, row.loss) == (noise, loss)
        ]
        if curves:
            longest = max(map(len, curves))
            padded = [[*curve, *[curve[-1]] * (longest - len(curve))] for curve in curves]
            mean, epochs = np.mean(padded, axis=0).tolist(), range(1, longest + 1)
            lines.append(Line(epochs, mean, LOSSES[loss], _LOOK[loss].colour, width=1.7))
    # The first steep fall would flatten everything of interest.
    low = min((min(line.y) for line in lines), default=0.0)
    top = max((line.y[min(LATE, len(line.y)) - 1] for line in lines), default=1.0)
    limits = (low - 0.08 * (top - low) - 0.02, top + 0.02)
    labels = ("epoch", "development error (%)")
    return Panel(f"labels {_labels(noise)}", lines, *labels, y_range=limits)
