"""One table: accuracies fold by fold, differences to cross entropy, and accuracy against noise."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from expacc.compare.leaderboard import Entry
from expacc.compare.leaderboard_table import TableBoard
from expacc.report.figures import Chart, chart, legend_place, tidy_axes
from expacc.report.loss_names import OUTSIDE, REFERENCE, loss_order
from expacc.report.palette import INK, LINES, MUTED, Look
from expacc.report.words import p_text, points

__all__ = ["difference_chart", "fold_chart", "noise_chart", "two_lines"]

ROW = 0.46  # inches for a loss


def two_lines(name: str, width: float) -> str:
    """Break a long name in two where the page is narrow."""
    if width > 5 or len(name) <= 13 or " " not in name:
        return name
    blanks = [place for place, letter in enumerate(name) if letter == " "]
    middle = min(blanks, key=lambda place: abs(place - len(name) / 2))
    return name[:middle] + "\n" + name[middle + 1 :]


def name_rows(axes: Axes, names: Sequence[str], width: float) -> None:
    """Put one name per row, first on top."""
    axes.set_yticks(range(len(names)), [two_lines(name, width) for name in names])
    axes.tick_params(axis="y", labelcolor=INK, labelsize=9)
    axes.set_ylim(len(names) - 0.45, -0.55)


def fold_chart(board: TableBoard, look: Mapping[str, Look]) -> Chart | None:
    """Draw the accuracy of every fold for each loss, folds joined by lines."""
    entries = [entry for entry in board.entries if entry.folds and entry.loss != OUTSIDE]
    if not entries:
        return None

    def draw(width: float) -> Figure:
        figure = Figure(figsize=(width, 0.75 + ROW * len(entries)))
        axes = figure.add_subplot()
        for fold in board.folds:
            way = [(e.folds[fold] * 100, y) for y, e in enumerate(entries) if fold in e.folds]
            axes.plot(*zip(*way, strict=True), color=MUTED, lw=0.7, alpha=0.35) if way else None
        for place, entry in enumerate(entries):
            values = 100 * np.array(list(entry.folds.values()))
            style = look[entry.loss]
            axes.plot(
                values, np.full(len(values), place), style.marker, color=style.colour, ms=5.5,
                alpha=0.75, mew=0,
            )  # fmt: skip
            mean = values.mean()
            axes.plot([mean, mean], [place - 0.27, place + 0.27], color=style.colour, lw=2.4)
        name_rows(axes, [entry.name for entry in entries], width)
        axes.set_xlabel("test accuracy (%)")
        axes.margins(x=0.03)
        axes.xaxis.set_major_locator(MaxNLocator(5 if width < 5 else 8))
        tidy_axes(axes, grid="x")
        return figure

    scored = "; ".join(
        f"{e.name} {min(e.folds.values()) * 100:.1f} to {max(e.folds.values()) * 100:.1f} %, "
        f"mean {(e.accuracy or 0) * 100:.1f} %"
        for e in entries
    )
    many = "One point is one fold" if len(board.folds) > 1 else "One point is the holdout"
    return chart(
        "folds",
        "Accuracy in every fold",
        f"{many}, seeds averaged; the bar is the mean. A thin line joins the losses in one fold: "
        f"where lines run parallel, folds differ in how hard they are; where they all lean one "
        f"way, one loss is better than the next.",
        f"Test accuracy by loss. {scored}.",
        draw,
    )


def difference_chart(board: TableBoard, look: Mapping[str, Look]) -> Chart | None:
    """Draw the difference of each loss to cross entropy, fold by fold, with its interval."""
    reference = board.entry(REFERENCE)
    entries = [e for e in board.entries if e.difference is not None and e.loss != OUTSIDE]
    if reference is None or not entries:
        return None

    def draw(width: float) -> Figure:
        figure = Figure(figsize=(width, 0.75 + ROW * len(entries)))
        axes = figure.add_subplot()
        axes.axvline(0, color=look[REFERENCE].colour, lw=1.3)
        for place, entry in enumerate(entries):
            style = look[entry.loss]
            if entry.test is not None:
                low, high = entry.test.interval
                axes.plot([low * 100, high * 100], [place] * 2, color=style.colour, lw=2.2)
                axes.plot(
                    [low * 100, high * 100], [place] * 2, "|", color=style.colour, ms=9, mew=2.2
                )
            gaps = [
                100 * (entry.folds[fold] - reference.folds[fold])
                for fold in entry.folds
                if fold in reference.folds
            ]
            axes.plot(
                gaps, np.full(len(gaps), place + 0.24), ".", color=style.colour, alpha=0.5, ms=5.5,
                mew=0,
            )  # fmt: skip
            axes.plot(
                (entry.difference or 0) * 100, place, style.marker, color=style.colour, ms=7.5,
                mec="none",
            )  # fmt: skip
        name_rows(axes, [entry.name for entry in entries], width)
        axes.set_xlabel(f"difference{' to cross entropy' * (width > 5)} (points)")
        axes.margins(x=0.04)
        axes.xaxis.set_major_locator(MaxNLocator(5 if width < 5 else 8))
        tidy_axes(axes, grid="x")
        return figure

    found = "; ".join(_difference_text(entry) for entry in entries)
    return chart(
        "differences",
        "Difference to cross entropy",
        "The marker is the mean difference, the bar its 95 % interval, the small dots below are "
        "the folds. An interval across the line at 0 means: not told apart from cross entropy.",
        f"Difference to cross entropy in points. {found}.",
        draw,
    )


def _difference_text(entry: Entry) -> str:
    text = f"{entry.name} {points(entry.difference)}"
    if entry.test is not None:
        low, high = (points(end) for end in entry.test.interval)
        text += f", interval {low} to {high}"
    if entry.adjusted_p is not None:
        text += f", {p_text(entry.adjusted_p)}"
    return text


def noise_chart(
    boards: Sequence[TableBoard], look: Mapping[str, Look], *, title_of: str
) -> Chart | None:
    """Draw accuracy against the share of wrong training labels, averaged over the tables given."""
    levels = sorted({board.noise for board in boards})
    losses = sorted({e.loss for board in boards for e in board.entries}, key=loss_order)
    lines: dict[str, tuple[str, list[tuple[float, float]]]] = {}
    for loss in losses:
        places = []
        for level in levels:
            found = [b.entry(loss) for b in boards if b.noise == level]
            scores = [e.accuracy for e in found if e is not None and e.accuracy is not None]
            # A mean over other tables than its neighbours' would be a bend that means nothing.
            if len(scores) == len(found):
                places.append((level * 100, float(np.mean(scores)) * 100))
        name = next(e.name for b in boards for e in b.entries if e.loss == loss)
        if places:
            lines[loss] = (name, places)
    if len(levels) < 2 or not lines:
        return None

    def draw(width: float) -> Figure:
        figure = Figure(figsize=(width, 3.4 + (0.2 * len(lines) if width < 5 else 0)))
        axes = figure.add_subplot()
        for loss, (name, places) in lines.items():
            style = look[loss]
            axes.plot(
                *zip(*places, strict=True), color=style.colour, ls=style.dash, marker=style.marker,
                ms=6, lw=1.9, label=name, mew=0,
            )  # fmt: skip
        axes.set_xlabel("training labels replaced at random (%)")
        axes.set_ylabel("test accuracy, clean labels (%)")
        axes.set_xticks([level * 100 for level in levels], [f"{level * 100:g}" for level in levels])
        figure.legend(loc=legend_place(width))
        tidy_axes(axes, grid="y")
        axes.axhline(axes.get_ylim()[0], color=LINES, lw=0.8)
        return figure

    fallen = "; ".join(
        f"{name} from {places[0][1]:.1f} % to {places[-1][1]:.1f} %"
        for name, places in lines.values()
    )
    return chart(
        "noise",
        "Accuracy when training labels are wrong",
        "The same contest with a share of the training labels replaced at random; test labels stay "
        "clean. A flat line is a loss that does not learn mistakes by heart.",
        f"Test accuracy on {title_of} as wrong training labels rise from {levels[0] * 100:g} to "
        f"{levels[-1] * 100:g} %: {fallen}.",
        draw,
    )
