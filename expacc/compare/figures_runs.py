"""Charts of runs: training curves, what the search tried, whether predictions can be trusted."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from expacc.compare.record import StudyRecord, TableFacts
from expacc.report.figures import Chart, chart, legend_place, tidy_axes
from expacc.report.words import INK, MUTED, SCALE, Look, loss_name, loss_order
from expacc.runner.rows import Row
from expacc.stats.p_values import Floats

_PANELS = {
    "validation_accuracy": "validation rows",
    "train_accuracy": "training rows",
    "wrong_label_accuracy": "wrong training labels",
}
MOST_POINTS = 150  # of a panel of the search


def _together(curves: Sequence[Sequence[float]]) -> Floats:
    """Runs × points, each from the start to the end of its training.

    Tables and losses differ in epochs, so runs are compared by the share of training done.
    """
    most = max(map(len, curves))
    share = np.linspace(0, 1, most)
    return np.array([np.interp(share, np.linspace(0, 1, len(curve)), curve) for curve in curves])


def curve_chart(rows: Sequence[Row], look: Mapping[str, Look], note: str = "") -> Chart | None:
    """Draw accuracy as training goes on: the mean of each loss's final runs, and their spread."""
    one_table = len({row.table for row in rows}) == 1
    found: dict[str, dict[str, Floats]] = {}
    for name in _PANELS:
        by_loss: dict[str, list[Sequence[float]]] = defaultdict(list)
        for row in rows:
            curve = row.curves.get(name, ())
            if row.kind == "final" and row.failure is None and len(curve) > 1:
                by_loss[row.loss].append(curve)
        if by_loss:
            ordered = sorted(by_loss, key=loss_order)
            found[name] = {loss: _together(by_loss[loss]) * 100 for loss in ordered}
    if not found:
        return None

    def draw(width: float) -> Figure:
        wide, panels = width > 5, len(found)
        count = max(map(len, found.values()))
        height = 3.2 if wide else 2.4 * panels + 0.2 * count
        figure = Figure(figsize=(width, height))
        grid = figure.subplots(1 if wide else panels, panels if wide else 1, squeeze=False)
        handles: dict[str, Line2D] = {}
        for axes, (name, by_loss) in zip(grid.flat, found.items(), strict=True):
            for loss, values in by_loss.items():
                style, done = look[loss], np.linspace(0, 100, values.shape[1] + 1)[1:]
                mean, spread = values.mean(0), values.std(0)
                if one_table:  # tables differ far more than losses do
                    axes.fill_between(
                        done, mean - spread, mean + spread, color=style.colour, alpha=0.1, lw=0
                    )
                (line,) = axes.plot(done, mean, color=style.colour, ls=style.dash, lw=1.7)
                handles.setdefault(loss, line)
            axes.set_title(_PANELS[name], color=INK)
            axes.set_xlabel("training done (%)")
            _look_at_the_end(axes, list(by_loss.values()))
            tidy_axes(axes, grid="y")
        for axes in grid[:, 0]:
            axes.set_ylabel("accuracy (%)")
        names = [loss_name(loss) for loss in handles]
        figure.legend(list(handles.values()), names, loc=legend_place(width))
        return figure

    name, shown = next(iter(found.items()))
    ends = "; ".join(f"{loss_name(loss)} {v[:, -1].mean():.1f} %" for loss, v in shown.items())
    return chart(
        "curves",
        "Training curves",
        f"The mean over the final runs{', with one standard deviation as a band' * one_table}. A "
        "curve that still rises at the end wants longer training; a training curve far above its "
        f"validation curve has learnt rows by heart.{note}",
        f"Accuracy on {_PANELS[name]} at the end: {ends}.",
        draw,
    )


def _look_at_the_end(axes: Axes, curves: Sequence[Floats]) -> None:
    """Leave out the first steep climb, which would flatten everything of interest."""
    low = min(float(np.percentile(values.mean(0), 20)) for values in curves)
    high = max(float((values.mean(0) + values.std(0)).max()) for values in curves)
    room = max(0.06 * (high - low), 0.2)
    axes.set_ylim(low - room, min(100.4, high + room))


_WIDE_RANGE = ("weight_decay", "leak", "sigma")
_AXES = ("leak", "focus", "margin", "sigma", "gamma", "q", "taming", "epsilon", "weight_decay")


def _power(value: float, _: object) -> str:
    """A power of ten without matplotlib's own mathematics, which would be pictures of letters."""
    exponent = round(np.log10(value)) if value > 0 else 0
    if abs(value / 10.0**exponent - 1) > 1e-6:
        return f"{value:g}"
    return "10" + str(exponent).translate(_RAISED)


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_POWERS = FuncFormatter(_power)


def search_chart(rows: Sequence[Row], look: Mapping[str, Look]) -> Chart | None:
    """Draw the trials of each loss: learning rate, a second number, validation accuracy."""
    trials: dict[str, list[Row]] = defaultdict(list)
    chosen: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if "learning_rate" in row.numbers and _number(row, "learning_rate") is not None:
            if row.kind == "trial" and "validation_accuracy" in row.metrics:
                trials[row.loss].append(row)
            elif row.kind == "final":
                chosen[row.loss].append(row)
    losses = sorted(trials, key=loss_order)
    if not losses:
        return None
    scores = np.array([r.metrics["validation_accuracy"] for rows in trials.values() for r in rows])
    # What diverged or never learnt would take the whole scale.
    low, high = 100 * float(np.percentile(scores, 20)), 100 * float(scores.max())
    low = min(low, high - 0.5)
    colours = ListedColormap(list(SCALE), name="scale")

    def draw(width: float) -> Figure:
        across = min(len(losses), 3 if width > 5 else 1)
        down = -(-len(losses) // across)
        figure = Figure(figsize=(width, (2.35 if width > 5 else 2.25) * down + 0.5))
        grid = figure.subplots(down, across, squeeze=False)
        points = None
        for axes, loss in zip(grid.flat, losses, strict=False):
            second = _second_axis(trials[loss])
            some = trials[loss][:: max(1, len(trials[loss]) // MOST_POINTS)]
            values = [100 * row.metrics["validation_accuracy"] for row in some]
            x, y = _places(some, second)
            order = np.argsort(values, kind="stable")  # the best on top
            points = axes.scatter(
                np.array(x)[order], np.array(y)[order], c=np.array(values)[order], s=16, lw=0,
                cmap=colours, vmin=low, vmax=high,
            )  # fmt: skip
            best = chosen[loss][:: max(1, len(chosen[loss]) // MOST_POINTS)]
            axes.plot(
                *_places(best, second), "o", ms=7.5, mfc="none", mec=look[loss].colour, mew=1.3
            )
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(_POWERS)
            if second in _WIDE_RANGE and min(y) > 0 and max(y) / min(y) > 30:
                axes.set_yscale("log")
                axes.yaxis.set_major_formatter(_POWERS)
            axes.set_title(loss_name(loss), color=look[loss].colour, fontweight="bold")
            axes.set_xlabel("learning rate")
            axes.set_ylabel(second.replace("_", " ") if second else "")
            axes.minorticks_off()
            tidy_axes(axes, grid="both")
        for axes in grid.flat[len(losses) :]:
            axes.set_visible(False)
        if points is not None:
            bar = figure.colorbar(
                points, ax=grid, location="bottom", aspect=45, shrink=0.7, pad=0.02, extend="min"
            )
            bar.set_label("validation accuracy (%)")
            bar.outline.set_visible(False)
            bar.ax.tick_params(length=0, labelcolor=MUTED)
        return figure

    best = "; ".join(
        f"{loss_name(loss)} {_median(chosen[loss] or trials[loss]):.2g}" for loss in losses
    )
    return chart(
        "search",
        "What the search tried",
        "A dot is a trial, stronger where the validation rows liked it better; a ring marks "
        "numbers that were chosen for a fold. Rings at the rim of a panel say that the search "
        "space was too small; rings all over it, that the number hardly matters.",
        f"{sum(map(len, trials.values()))} trials; best {high:.1f} % on validation rows. Median "
        f"learning rate chosen: {best}.",
        draw,
    )


def _number(row: Row, name: str) -> float | None:
    value = row.numbers.get(name)
    good = isinstance(value, int | float) and not isinstance(value, bool) and np.isfinite(value)
    return float(value) if good and value is not None else None


def _second_axis(rows: Sequence[Row]) -> str:
    """The loss's own number if it was searched, else weight decay, else none."""
    for name in _AXES:
        if len({_number(row, name) for row in rows} - {None}) > 1:
            return name
    return ""


def _places(rows: Sequence[Row], second: str) -> tuple[list[float], list[float]]:
    kept = [row for row in rows if not second or _number(row, second) is not None]
    across = [_number(row, "learning_rate") or 0.0 for row in kept]
    return across, [(_number(row, second) or 0.0) if second else 0.0 for row in kept]


def _median(rows: Sequence[Row]) -> float:
    return float(np.median([_number(row, "learning_rate") or 0.0 for row in rows]))


BINS = 10
MOST_CLASSES = 12


def reliability_chart(
    record: StudyRecord, rows: Sequence[Row], look: Mapping[str, Look], note: str = ""
) -> Chart | None:
    """Draw how often predictions of a given confidence are right."""
    said: dict[str, list[tuple[Floats, NDArray[np.bool_]]]] = defaultdict(list)
    for row in rows:
        if row.predictions is not None and row.failure is None:
            labels = record.tables[row.table].labels[row.predictions.rows]
            right = row.predictions.predicted == labels
            said[row.loss].append((row.predictions.confidence.astype(np.float64), right))
    if not said:
        return None
    lines: dict[str, tuple[Floats, Floats, float]] = {}
    for loss in sorted(said, key=loss_order):
        sure = np.concatenate([pair[0] for pair in said[loss]])
        right = np.concatenate([pair[1] for pair in said[loss]])
        bins = np.minimum((sure * BINS).astype(int), BINS - 1)
        counts = np.bincount(bins, minlength=BINS)
        # A bin of a few rows is noise, which a line would make look like news.
        full = counts >= max(5, 0.002 * len(sure))
        with np.errstate(invalid="ignore"):
            mean = np.bincount(bins, sure, BINS) / counts
            share = np.bincount(bins, right, BINS) / counts
        gap = float(np.nansum(np.abs(mean - share) * counts) / len(sure))
        lines[loss] = (100 * mean[full], 100 * share[full], 100 * gap)

    def draw(width: float) -> Figure:
        wide = width > 5
        figure = Figure(figsize=(min(width, 6.4), 3.9 if wide else 3.2 + 0.2 * len(lines)))
        axes = figure.add_subplot()
        least = min([float(line[0].min()) for line in lines.values() if len(line[0])] or [0.0])
        start = max(0.0, 10 * np.floor(least / 10))
        axes.plot([start, 100], [start, 100], color=MUTED, lw=1, ls=(0, (2, 3)))
        for loss, (mean, share, _) in lines.items():
            style = look[loss]
            axes.plot(
                mean, share, color=style.colour, ls=style.dash, marker=style.marker, ms=5, lw=1.6,
                mew=0, label=loss_name(loss),
            )  # fmt: skip
        axes.set_xlabel("confidence of the prediction (%)")
        axes.set_ylabel("predictions that are right (%)")
        axes.set_xlim(start, 101)
        figure.legend(loc=legend_place(width))
        tidy_axes(axes, grid="both")
        return figure

    errors = "; ".join(f"{loss_name(loss)} {line[2]:.1f}" for loss, line in lines.items())
    return chart(
        "reliability",
        "Can its confidence be trusted?",
        "Test predictions in ten classes of confidence, after calibration. On the dotted "
        "line, predictions that claim 80 % are right in 80 of 100 cases; below it a model is too "
        f"sure of itself.{note}",
        f"Distance from the dotted line in points, all folds together; 0 is perfect: {errors}.",
        draw,
    )


@dataclass(frozen=True)
class Changed:
    """A row that one loss gets right more often than the other.

    Attributes:
        row: its number, from 0.
        given: the label in the table.
        reference: what cross entropy said most often.
        winner: what the winner said most often.
        reference_right: share of cross entropy's models that are right about it.
        winner_right: share of the winner's.
    """

    row: int
    given: str
    reference: str
    winner: str
    reference_right: float
    winner_right: float


@dataclass(frozen=True, eq=False)
class Confusion:
    """The winner's confusion matrix against that of cross entropy, in rows of the table.

    Attributes:
        classes: names; the last is 'other' where classes were too many.
        counts: given × predicted of the winner, averaged over how often a row was tested.
        change: the same, minus cross entropy's.
        gained: rows that the winner gets right more often, clearest first.
        lost: rows that cross entropy gets right more often, clearest first.
    """

    classes: tuple[str, ...]
    counts: Floats
    change: Floats
    gained: tuple[Changed, ...]
    lost: tuple[Changed, ...]


def _votes(rows: Sequence[Row], facts: TableFacts) -> Floats:
    """Rows × classes: the share of its models that predicted the class."""
    votes = np.zeros((facts.rows, len(facts.classes)))
    for row in rows:
        if row.predictions is not None and row.failure is None:
            np.add.at(votes, (row.predictions.rows, row.predictions.predicted), 1.0)
    votes /= np.maximum(votes.sum(axis=1, keepdims=True), 1)
    return votes


def confusion(
    facts: TableFacts, winner: Sequence[Row], reference: Sequence[Row]
) -> Confusion | None:
    """Compare what two losses said of the rows that both were tested on."""
    ours, theirs = _votes(winner, facts), _votes(reference, facts)
    both = np.flatnonzero((ours.sum(1) > 0) & (theirs.sum(1) > 0))
    if not both.size:
        return None
    labels, ours, theirs = facts.labels[both].astype(int), ours[both], theirs[both]
    classes = len(facts.classes)
    counts, before = np.zeros((classes, classes)), np.zeros((classes, classes))
    np.add.at(counts, labels, ours)
    np.add.at(before, labels, theirs)
    places = np.arange(len(both))
    right, before_right = ours[places, labels], theirs[places, labels]
    gain = right - before_right
    said, once = ours.argmax(1), theirs.argmax(1)

    def changed(places: NDArray[np.intp]) -> tuple[Changed, ...]:
        return tuple(
            Changed(
                int(both[i]),
                given=facts.classes[int(labels[i])],
                reference=facts.classes[int(once[i])],
                winner=facts.classes[int(said[i])],
                reference_right=float(before_right[i]),
                winner_right=float(right[i]),
            )
            for i in places
        )

    order = np.argsort(-gain, kind="stable")
    gained, lost = order[gain[order] > 1e-9], order[::-1][gain[order[::-1]] < -1e-9]
    names, change = facts.classes, counts - before
    if classes > MOST_CLASSES:
        weight = np.abs(change).sum(0) + np.abs(change).sum(1)
        kept = np.sort(np.argsort(-weight, kind="stable")[: MOST_CLASSES - 1])
        group = np.full(classes, len(kept))
        group[kept] = np.arange(len(kept))
        counts, change = _merged(counts, group), _merged(change, group)
        names = (*(facts.classes[int(code)] for code in kept), f"{classes - len(kept)} others")
    return Confusion(tuple(names), counts, change, changed(gained), changed(lost))


def _merged(counts: Floats, group: NDArray[np.intp]) -> Floats:
    size = int(group.max()) + 1
    merged = np.zeros((size, size))
    np.add.at(merged, (group[:, None], group[None, :]), counts)
    return merged
