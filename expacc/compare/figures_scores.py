"""Charts of accuracies: fold by fold, table by table, against wrong labels, by rank."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from expacc.compare.leaderboard_table import Entry, TableBoard
from expacc.compare.overall import Overall
from expacc.report.figures import (
    Chart,
    Drawing,
    chart,
    critical_difference_figure,
    legend_place,
    tidy_axes,
)
from expacc.report.words import (
    INK,
    LINES,
    MAJORITY,
    MUTED,
    OUTSIDE,
    REFERENCE,
    Look,
    loss_name,
    loss_order,
    p_text,
    points,
)
from expacc.stats.many_tables import CriticalDifference

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


def _rows_figure(
    names: Sequence[str], width: float, label: str, margin: float
) -> tuple[Figure, Axes]:
    """An empty figure with a row for each name, and what is measured below."""
    figure = Figure(figsize=(width, 0.75 + ROW * len(names)))
    axes = figure.add_subplot()
    name_rows(axes, names, width)
    axes.set_xlabel(label)
    axes.margins(x=margin)
    axes.xaxis.set_major_locator(MaxNLocator(5 if width < 5 else 8))
    tidy_axes(axes, grid="x")
    return figure, axes


def fold_chart(board: TableBoard, look: Mapping[str, Look]) -> Chart | None:
    """Draw the accuracy of every fold for each loss, folds joined by lines."""
    entries = [entry for entry in board.entries if entry.folds and entry.loss not in OUTSIDE]
    if not entries:
        return None

    def draw(width: float) -> Figure:
        names = [entry.name for entry in entries]
        figure, axes = _rows_figure(names, width, "test accuracy (%)", 0.03)
        for fold in board.folds:
            way = [(e.folds[fold] * 100, y) for y, e in enumerate(entries) if fold in e.folds]
            axes.plot(*zip(*way, strict=True), color=MUTED, lw=0.7, alpha=0.35) if way else None
        for place, entry in enumerate(entries):
            values = 100 * np.array(list(entry.folds.values()))
            style = look[entry.loss]
            axes.plot(
                values, np.full(len(values), place), ls="", marker=style.marker,
                color=style.colour, ms=5.5,
                alpha=0.75, mew=0,
            )  # fmt: skip
            mean = values.mean()
            axes.plot([mean, mean], [place - 0.27, place + 0.27], color=style.colour, lw=2.4)
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


@dataclass(frozen=True, eq=False)
class _Gap:
    """A loss's difference to cross entropy: the mean, its interval, and the parts of it."""

    loss: str
    name: str
    mean: float
    interval: tuple[float, float] | None
    parts: Sequence[float]


def _draw_gaps(gaps: Sequence[_Gap], look: Mapping[str, Look]) -> Drawing:
    def draw(width: float) -> Figure:
        label = f"difference{' to cross entropy' * (width > 5)} (points)"
        figure, axes = _rows_figure([gap.name for gap in gaps], width, label, 0.04)
        axes.axvline(0, color=look[REFERENCE].colour, lw=1.3)
        for place, gap in enumerate(gaps):
            style = look[gap.loss]
            if gap.interval is not None:
                ends = [100 * end for end in gap.interval]
                axes.plot(ends, [place] * 2, color=style.colour, lw=2.2)
                axes.plot(ends, [place] * 2, "|", color=style.colour, ms=9, mew=2.2)
            parts = 100 * np.array(gap.parts)
            below = np.full(len(parts), place + 0.25)
            axes.plot(parts, below, ".", color=style.colour, alpha=0.5, ms=5.5, mew=0)
            mean = 100 * gap.mean
            axes.plot(
                mean, place, ls="", marker=style.marker, color=style.colour, ms=7.5, mec="none"
            )
        return figure

    return draw


def difference_chart(board: TableBoard, look: Mapping[str, Look]) -> Chart | None:
    """Draw the difference of each loss to cross entropy, fold by fold, with its interval."""
    reference = board.entry(REFERENCE)
    entries = [e for e in board.entries if e.difference is not None and e.loss not in OUTSIDE]
    if reference is None or not entries:
        return None
    gaps = [
        _Gap(
            entry.loss,
            entry.name,
            entry.difference or 0.0,
            entry.test.interval if entry.test else None,
            [
                s - reference.folds[fold]
                for fold, s in entry.folds.items()
                if fold in reference.folds
            ],
        )
        for entry in entries
    ]
    found = "; ".join(_difference_text(entry) for entry in entries)
    return chart(
        "differences",
        "Difference to cross entropy",
        "The marker is the mean difference, the bar its 95 % interval, the small dots below are "
        "the folds. An interval across the line at 0 means: not told apart from cross entropy.",
        f"Difference to cross entropy in points. {found}.",
        _draw_gaps(gaps, look),
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
    found = {e.loss for board in boards for e in board.entries}
    losses = sorted(found - {MAJORITY}, key=loss_order)  # which no wrong label moves
    lines: dict[str, tuple[str, list[tuple[float, float]]]] = {}
    for loss in losses:
        places = []
        for level in levels:
            own = [b.entry(loss) for b in boards if b.noise == level]
            scores = [e.accuracy for e in own if e is not None and e.accuracy is not None]
            # A mean over other tables than its neighbours' would be a bend that means nothing.
            if len(scores) == len(own):
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


def table_difference_chart(overall: Overall, look: Mapping[str, Look]) -> Chart:
    """Draw each loss's difference to cross entropy, one dot per table."""
    entries = [entry for entry in overall.entries if entry.difference is not None]
    reference = overall.accuracies[:, overall.losses.index(REFERENCE)]
    gaps = [
        _Gap(e.loss, e.name, float(own.mean()), e.interval, own.tolist())
        for e in entries
        for own in [overall.accuracies[:, overall.losses.index(e.loss)] - reference]
    ]
    found = "; ".join(
        f"{e.name} {points(e.difference)}, better on {e.against.wins}, level on "
        f"{e.against.ties}, worse on {e.against.losses}"
        for e in entries
    )
    return chart(
        "tables",
        "Difference to cross entropy, table by table",
        "A small dot is a table; the marker is the mean over the tables, the bar its 95 % "
        "interval. Dots on both sides of 0 mean that the better loss depends on the data.",
        f"Mean difference to cross entropy in points, over {len(overall.tables)} tables: {found}.",
        _draw_gaps(gaps, look),
    )


RANKS = (
    "Losses by their mean rank over the tables; 1 would be the best on every table. A heavy bar "
    "joins losses that the data cannot tell apart at the 5 % level (Wilcoxon’s signed rank test "
    "with Holm’s correction for all pairs; the answer corrects for the pairs with cross entropy "
    "alone and may tell more apart)."
)


def rank_chart(
    ranks: CriticalDifference,
    looks: Mapping[str, Look],
    key: str = "ranks",
    title: str = "Critical differences",
    caption: str = RANKS,
) -> Chart:
    """Draw the critical-difference diagram; on a phone its losses stand below each other.

    Args:
        ranks: of the losses by their names for people.
        looks: of the same names.
    """

    def draw(width: float) -> Figure:
        if width > 5:
            figure = critical_difference_figure(ranks)
            figure.axes[0].set_title("", loc="center")  # the page has one
            return figure
        figure = Figure(figsize=(width, 0.8 + 0.36 * len(ranks.names)))
        axes = figure.add_subplot()
        for place, (name, rank) in enumerate(zip(ranks.names, ranks.mean_ranks, strict=True)):
            style = looks[name]
            axes.plot(rank, place, ls="", marker=style.marker, color=style.colour, ms=8, mew=0)
            axes.annotate(
                f"{rank:.2f}", (rank, place), (0, 7), textcoords="offset points", ha="center",
                color=MUTED, fontsize=8.5,
            )  # fmt: skip
        span = len(ranks.names) - 1
        for level, (first, last) in enumerate(ranks.groups):
            across = len(ranks.names) + (0.3 + 0.13 * level) * span / 3
            axes.plot([across] * 2, [first - 0.25, last + 0.25], color=INK, lw=4)
        name_rows(axes, ranks.names, width)
        axes.set_ylim(span + 0.5, -0.9)
        axes.set_xticks(range(1, len(ranks.names) + 1))
        axes.margins(x=0.1)
        axes.set_xlabel(f"mean rank over {ranks.tables} tables (1 = best)")
        tidy_axes(axes, grid="x")
        return figure

    listed = ", ".join(f"{n} {r:.2f}" for n, r in zip(ranks.names, ranks.mean_ranks, strict=True))
    groups = "; ".join(" to ".join((ranks.names[a], ranks.names[b])) for a, b in ranks.groups)
    told = f"Not told apart: {groups}." if groups else "All differ."
    return chart(
        key,
        title,
        caption,
        f"Mean ranks over {ranks.tables} tables: {listed}. {ranks.overall.test}: "
        f"{p_text(ranks.overall.p_value)}. {told}",
        draw,
    )


def profile_chart(overall: Overall, look: Mapping[str, Look]) -> Chart:
    """Draw the Dolan–Moré profile of accuracies."""
    profile = overall.profile
    reach = 0.05 * (profile.thresholds[-1] - profile.thresholds[0]) or 0.05
    steps = np.append(profile.thresholds[0] - reach, profile.thresholds)
    shares = np.vstack([profile.shares[:1], profile.shares])

    def draw(width: float) -> Figure:
        wide = width > 5
        figure = Figure(figsize=(width, 3.4 if wide else 2.9 + 0.2 * len(overall.losses)))
        axes = figure.add_subplot()
        for column, loss in enumerate(overall.losses):
            style = look[loss]
            axes.step(
                steps, shares[:, column], where="pre", label=loss_name(loss), color=style.colour,
                ls=style.dash, lw=1.9,
            )  # fmt: skip
        axes.set(ylim=(-0.02, 1.02), xlim=(steps[0], steps[-1]))
        axes.set_ylabel("share of tables (%)")
        axes.set_xlabel("accuracy, as a share of the table’s best (%)")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda share, _: f"{share * 100:g}"))
        axes.xaxis.set_major_locator(MaxNLocator(4 if not wide else 7))
        figure.legend(loc=legend_place(width))
        tidy_axes(axes, grid="both")
        return figure

    best = ", ".join(
        f"{loss_name(loss)} {share * 100:.0f} %"
        for loss, share in zip(overall.losses, profile.shares[-1].tolist(), strict=True)
    )
    return chart(
        "profile",
        "How near to the best on each table",
        "Dolan–Moré profile: the share of tables on which a loss reaches at least that part of the "
        "best accuracy. The right end shows how often it is the best, alone or with others; a "
        "curve further up and to the left is the safer choice.",
        f"Share of {len(overall.tables)} tables on which a loss is best or level with the best: "
        f"{best}.",
        draw,
    )
