"""leerr-mnist-logistic: training curves, ten folds, gradient norms.

The paper does not say how pixels were scaled and where weights began, and that decides what its
figures show: so there are several conditions. All losses of a fold start from the same weights and
see the same batches; curves on the sealed test rows are scored at the end, all epochs at once.

The page asks of our curves what the text says of Figures 2 to 4. A run *lags* in an epoch if it is
more than 3 points of accuracy behind negative log likelihood on the same fold in the same epoch; it
is *stuck* if its best is that far behind the other's best.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.figure import Figure

from expacc.data import derive_seed
from expacc.recipes.leaky import LEAKY, LOSSES, PLAIN, REFERENCE, xavier
from expacc.recipes.leaky.digits import digits_data, pack, read_digits, unpack
from expacc.recipes.page import Claim, Comparison, Number, Page, Section, number_of
from expacc.recipes.paper import Layout, load_paper
from expacc.recipes.recipe import RecipeOptions, Work
from expacc.recipes.sweep import Ask, Data, Place, Sweep, grid
from expacc.report.figures import Chart
from expacc.report.panels import Line, Panel, panels, power
from expacc.report.words import looks, signed
from expacc.runner.items import Shared
from expacc.runner.rows import Row
from expacc.training import Layer, Model, Run, TrainConfig, Trained


@dataclass(frozen=True)
class Condition:
    """What the paper leaves open.

    Args:
        title: for the page.
        largest: the value of a white pixel: 255 as the files have them, or 1.
        start: weights of 0, which is usual for logistic regression, or Xavier's random ones, which
            the paper has in its main experiments.
    """

    title: str
    largest: float
    start: Literal["zeros", "xavier"]


CONDITIONS = {
    "raw-zeros": Condition("pixels 0–255, weights from 0", 255.0, "zeros"),
    "raw-xavier": Condition("pixels 0–255, random weights", 255.0, "xavier"),
    "unit-xavier": Condition("pixels 0–1, random weights", 1.0, "xavier"),
}
# All three are ce_weight · (-log p) + error_weight · (1 - p), Eq. 5 and 6.
WEIGHTS = {
    "cross_entropy": (1.0, 0.0),
    "expected_error": (0.0, 1.0),
    "leaky_expected_error": (0.1, 1.0),
}
ALL = "all"  # the fold that trains on all rows
FOLDS = 10
EPOCHS, PATIENCE, BATCH = 200, 15, 100
RATE, LARGE_RATE = 1e-4, 1e-2
QUICK_ROWS, QUICK_EPOCHS, QUICK_FOLDS = 12_000, 30, 2


def plan(options: RecipeOptions) -> Work:
    """One item per condition for Figure 2, and one per condition and fold for Figure 3."""
    digits = read_digits(options.data)
    folds = options.seeds or (QUICK_FOLDS if options.quick else FOLDS)
    how: dict[str, Any] = {
        "rows": QUICK_ROWS if options.quick else None,
        "epochs": QUICK_EPOCHS if options.quick else EPOCHS,
        "patience": PATIENCE,
        "batch": BATCH,
        "all_folds": folds,
    }
    # On folds EErr at 1e-2, too, as in Section 3.1.
    whole = {loss: grid(learning_rate=[RATE]) for loss in WEIGHTS}
    cut = {**whole, "expected_error": grid(learning_rate=[RATE, LARGE_RATE])}
    items = [
        SWEEP.item(
            f"{condition}|{fold}",
            options,
            table="mnist",
            folds=[fold],
            settings=whole if fold == ALL else cut,
            points=how["epochs"] if fold == ALL else 1,
            labels={"condition": condition},
            **how,
        )
        for condition in CONDITIONS
        for fold in (ALL, *(str(number + 1) for number in range(folds)))
    ]
    train, test = len(digits.part(how["rows"]).train_labels), len(digits.test_labels)
    facts = {"train_rows": train, "test_rows": test, "quick": options.quick, "folds": folds}
    return SWEEP.work(items, shared=pack(digits), facts={**how, **facts})


def _open(ask: Ask, shared: Shared, names: Sequence[str]) -> list[Data]:
    digits = unpack(shared).part(ask["rows"])
    return [digits_data(digits, ask, names, largest=_condition(ask).largest)]


def _condition(ask: Ask) -> Condition:
    return CONDITIONS[ask["labels"]["condition"]]


def _run(ask: Ask, data: Data, place: Place) -> Run:
    features, classes = data.rows.features.shape[1], data.rows.classes
    # One random start per fold, whatever the scale of pixels.
    begin = xavier((features, classes), ask["seed"], "mnist", place.fold)
    if _condition(ask).start == "zeros":
        begin = Trained((Layer(torch.zeros(classes, features), torch.zeros(classes)),))
    ce_weight, error_weight = WEIGHTS[place.method]
    return Run(
        f"{place.method}/{place.setting['learning_rate']:g}",
        data.train[place.fold],
        data.held.get(place.fold),
        loss="mixed_expected_error",
        loss_params={"ce_weight": ce_weight, "error_weight": error_weight},
        learning_rate=place.setting["learning_rate"],
        start=begin,
        group=f"mnist/{place.fold}",
    )


def _config(ask: Ask, place: Place) -> TrainConfig:
    """On all rows for the whole time, or on a fold with patience."""
    whole = place.fold == ALL
    return TrainConfig(
        Model(),
        "adam",
        batch=ask["batch"],
        epochs=ask["epochs"],
        patience=None if whole else ask["patience"],
        keep="every" if whole else "best",
        curves=("train", "gradient") if whole else ("gradient",),
        seed=derive_seed(ask["seed"], "leerr-mnist-logistic") % (1 << 31),
    )


SWEEP = Sweep(
    "expacc.recipes.leaky.logistic:SWEEP",
    _open,
    run=_run,
    config=_config,
    share_batches=True,
    curves=("gradient_norm", "train_accuracy", "validation_accuracy"),
)


# ----------------------------------------------------------------------------------------- the page

BEHIND = 3.0  # points of accuracy
ORDERS = (1.5, 2.5)  # "two orders of magnitude"
TITLES = {name: condition.title for name, condition in CONDITIONS.items()}
THEIRS = load_paper("leaky")["figures"]
_LOOK = looks(set(LOSSES))
_LOWEST = 40.0  # per cent of accuracy: below it nothing is drawn
_EPOCHS = {epoch: f"{epoch:g}" for epoch in (1.0, 3.0, 10.0, 30.0, 100.0)}


@dataclass(frozen=True)
class Runs:
    """The good runs of one condition.

    Args:
        whole: loss → its run on all training rows (Figure 2).
        folds: loss → fold → its run at the small learning rate (Figure 3).
        large: fold → the run of the expected error at the large learning rate.
    """

    whole: Mapping[str, Row]
    folds: Mapping[str, Mapping[str, Row]]
    large: Mapping[str, Row]

    def pairs(self, loss: str) -> list[tuple[Row, Row]]:
        """Runs of a loss and of negative log likelihood on the same folds."""
        own = self.large if loss == "large" else self.folds.get(loss, {})
        other = self.folds.get(REFERENCE, {})
        return [(own[fold], other[fold]) for fold in sorted(own.keys() & other.keys(), key=int)]


Found = Mapping[str, Runs]  # condition → its runs


def lag(curve: Sequence[float], reference: Sequence[float]) -> int:
    """The number of epochs in which ``curve`` lags; a run that has ended keeps its last value.

    >>> lag([0.60, 0.65, 0.90, 0.92], [0.80, 0.85, 0.90])
    2
    """
    last = len(reference) - 1
    return sum(
        100 * (reference[min(epoch, last)] - value) > BEHIND for epoch, value in enumerate(curve)
    )


def stuck(run: Row, reference: Row) -> bool:
    """Whether a run never gets near the reference on the development rows."""
    best = reference.metrics["validation_accuracy"] - run.metrics["validation_accuracy"]
    return 100 * best > BEHIND


def orders(run: Row, reference: Row) -> float:
    """How many orders of magnitude the gradient norms are apart, the mean over common epochs."""
    pairs = zip(reference.curves["gradient_norm"], run.curves["gradient_norm"], strict=False)
    logs = [np.log10(theirs / own) for theirs, own in pairs if own > 0 and theirs > 0]
    return float(np.mean(logs)) if logs else float("inf")


def write(rows: Sequence[Row], facts: Mapping[str, Any]) -> Page:
    """The page from the rows that there are."""
    found = _found(rows)
    folds = {name: runs for name, runs in found.items() if runs.folds}
    words = {**facts, "conditions": len(CONDITIONS), "behind": BEHIND}
    layout = Layout("leaky", "leerr-mnist-logistic", words)
    sections = [layout.section("figure-2", charts=_figure_2(layout, found))]
    if folds:
        sections += [_figure_3(layout, folds), _figure_4(layout, folds)]
    claims = [one for name, runs in found.items() for one in claims_of(layout, name, runs)]
    return layout.page(sections, claims)


def _found(rows: Sequence[Row]) -> dict[str, Runs]:
    """The good runs by condition, in the order of the conditions."""
    found = {}
    for name in CONDITIONS:
        whole: dict[str, Row] = {}
        folds: dict[tuple[str, float], dict[str, Row]] = {}
        for row in rows:
            if row.failure is None and row.numbers.get("condition") == name:
                own = folds.setdefault((row.loss, float(row.numbers["learning_rate"])), {})
                (whole if row.fold == ALL else own)[row.loss if row.fold == ALL else row.fold] = row
        if whole or folds:
            small = {loss: folds[loss, RATE] for loss in LOSSES if folds.get((loss, RATE))}
            order = {loss: whole[loss] for loss in LOSSES if loss in whole}
            found[name] = Runs(order, small, folds.get((PLAIN, LARGE_RATE), {}))
    return found


def claims_of(layout: Layout, name: str, runs: Runs) -> Iterator[Claim]:
    """What the text says of the figures, in one condition."""

    def claim(key: str, ours: str, holds: bool | None) -> Claim:
        return layout.claim(key, ours, holds if ours else None, where=TITLES[name])

    own, other = runs.whole.get(PLAIN), runs.whole.get(REFERENCE)
    if own is None or other is None:
        for key in ("train_accuracy", "accuracy", "late"):
            yield claim(key, "", None)
    else:
        for metric in ("train_accuracy", "accuracy"):
            ours, theirs = 100 * own.metrics[metric], 100 * other.metrics[metric]
            text = f"{ours:.1f} against {theirs:.1f}: {signed(ours - theirs, 1)}"
            yield claim(metric, text, ours > theirs)
        curve, reference = own.curves["test_accuracy"], other.curves["test_accuracy"]
        epochs, end = lag(curve, reference), 100 * (curve[-1] - reference[-1])
        text = f"behind in {epochs} epochs; {signed(end, 1)} in the last"
        yield claim("late", text, epochs > 0 and -end <= BEHIND)
    pairs, large, leaky = runs.pairs(PLAIN), runs.pairs("large"), runs.pairs(LEAKY)
    count = len(pairs)
    behind = sum(
        lag(own.curves["validation_accuracy"], other.curves["validation_accuracy"]) > 0
        for own, other in pairs
    )
    above = sum(own.metrics["accuracy"] > other.metrics["accuracy"] for own, other in pairs)
    held, still, never = (sum(stuck(*pair) for pair in some) for some in (pairs, large, leaky))
    for key, number, of, holds in (
        ("behind", behind, count, behind == count),
        ("above", above, count, above >= count / 2),
        ("stuck", held, count, 0 < held < count / 2),
        ("large", still, len(large), still >= max(1, held)),
        ("leaky", never, len(leaky), never == 0),
    ):
        yield claim(key, f"{number} of {of}" if of else "", holds)
    apart = number_of(orders(own, other) for own, other in pairs)
    near = apart is not None and ORDERS[0] <= apart.mean <= ORDERS[1]
    yield claim("orders", f"{apart.mean:.1f}" if apart else "", near)


def _accuracies(title: str, lines: Sequence[Line], lowest: float = _LOWEST) -> Panel:
    """From what these curves reach down to, in fives, up to what they reach."""
    values = [value for line in lines for value in line.y]
    low = max(lowest, 5 * ((min(values, default=lowest) - 0.5) // 5))
    high = max(values, default=100.0)
    limits = (low, high + 0.05 * (high - low))
    labels = ("epoch", "accuracy (%)", _EPOCHS)
    return Panel(title, lines, *labels, log="x", y_range=limits)


def _curves(
    rows: Iterable[Row],
    curve: str,
    width: float,
    *,
    dash: str = "",
    more: str = "",
    by: float = 100,
) -> list[Line]:
    lines = []
    for row in rows:
        values = [by * value for value in row.curves[curve]]
        look, epochs = _LOOK[row.loss], range(1, len(values) + 1)
        label = LOSSES[row.loss] + more
        lines.append(Line(epochs, values, label, look.colour, "", dash or look.dash, width))
    return lines


def _figure_2(layout: Layout, found: Found) -> tuple[Chart, ...]:
    """Accuracy on training and test rows by epoch."""
    shown = [
        _accuracies(f"{TITLES[name]}: {where}", _curves(runs.whole.values(), curve, 1.6))
        for name, runs in found.items()
        for curve, where in (("train_accuracy", "training rows"), ("test_accuracy", "test rows"))
        if runs.whole
    ]
    return layout.panels("leerr-figure-2", shown)


def _conditions(width: float, shown: Sequence[Panel], **how: Any) -> Figure:
    """Titles in two lines on a wide page, for three of them do not fit side by side."""
    cut = [replace(one, title=one.title.replace(", ", ",\n")) for one in shown]
    return panels(width, cut if width > 5 else shown, **how)


def _beside(
    found: Found, theirs: Number, ours: Callable[[Runs], Number | None]
) -> list[Comparison]:
    numbers = {TITLES[name]: ours(runs) for name, runs in found.items()}
    return [Comparison((title,), theirs, one) for title, one in numbers.items() if one]


def _stuck_of_ten(runs: Runs) -> Number | None:
    held = [stuck(*pair) for pair in runs.pairs(PLAIN)]
    return Number(10 * sum(held) / len(held), None, len(held)) if held else None


def _figure_3(layout: Layout, found: Found) -> Section:
    lines, small, large = [], [], []
    for name, runs in found.items():
        groups = [(loss, RATE, list(by.values())) for loss, by in runs.folds.items()]
        groups.append((PLAIN, LARGE_RATE, list(runs.large.values())))
        for loss, rate, own in groups:
            errors = [100 * (1 - row.metrics["accuracy"]) for row in own]
            if errors:
                epochs = float(np.mean([row.metrics["epochs"] for row in own]))
                ends = (f"{min(errors):.2f}", f"{max(errors):.2f}", f"{epochs:.0f}")
                lines.append(
                    (TITLES[name], LOSSES[loss], f"{rate:g}", str(number_of(errors)), *ends)
                )
        every = [row for by in runs.folds.values() for row in by.values()]
        small.append(_accuracies(TITLES[name], _curves(every, "validation_accuracy", 0.8)))
        plain = runs.folds.get(PLAIN, {}).values()
        both = _curves(plain, "validation_accuracy", 0.6, more=", 1e-4")
        both += _curves(runs.large.values(), "validation_accuracy", 1.0, dash="-", more=", 1e-2")
        large.append(_accuracies(TITLES[name], both, lowest=0.0))
    return layout.section(
        "figure-3",
        beside=_beside(found, Number(float(THEIRS["stuck"]), None, 10), _stuck_of_ten),
        grids=[layout.grid("errors", lines)],
        charts=[
            *layout.panels("leerr-figure-3", small, draw=_conditions),
            *layout.panels("leerr-large-rate", large, draw=_conditions),
        ],
    )


def _figure_4(layout: Layout, found: Found) -> Section:
    """The mean norm of the gradient with respect to the logits, of one fold."""
    folds = {fold for runs in found.values() for by in runs.folds.values() for fold in by}
    first, shown = min(folds, key=int), []
    ticks = {10.0**e: power(10.0**e) for e in range(-4, 1)}
    for name, runs in found.items():
        own = [by[first] for by in runs.folds.values() if first in by]
        lines = _curves(own, "gradient_norm", 1.6, by=1)
        axes = ("epoch", "gradient norm", _EPOCHS, ticks)
        shown.append(Panel(TITLES[name], lines, *axes, log="xy", y_range=(2e-4, 1.5)))
    theirs = Number(THEIRS["orders"], None, 1)
    return layout.section(
        "figure-4",
        beside=_beside(found, theirs, lambda runs: number_of(
            orders(own, other) for own, other in runs.pairs(PLAIN))),
        charts=layout.panels("leerr-figure-4", shown, draw=_conditions, fold=first),
    )  # fmt: skip
