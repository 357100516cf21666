"""The charts of mixing-uci: critical differences, and the difference to CE on every table."""

import numpy as np
from matplotlib.figure import Figure

from expacc.compare.figures_scores import name_rows
from expacc.recipes.mixing.scores import Scores
from expacc.recipes.mixing.uci import CE, CONTROL, EVERY
from expacc.recipes.paper import Layout
from expacc.report.figures import Chart, critical_difference_figure, tidy_axes
from expacc.report.palette import INK, MUTED, Look, looks
from expacc.report.words import p_text, signed
from expacc.stats.many_tables import CriticalDifference

__all__ = ["gains_chart", "look_of", "ranks_chart"]

# Each of ours in the colour of the loss of the report that it is nearest to.
_LIKE = {
    CE: "cross_entropy",
    "CE+EL F=0": "poly1_cross_entropy",
    "CE+EL F=0,0.5": "leaky_expected_error",
    "CE+EL F=0-0.5": "mixed_expected_error",
    "EL": "expected_error",
    "Focal": "focal",
    CONTROL: "hinge",
}


def look_of(name: str) -> Look:
    """How a loss is drawn."""
    return looks(set(_LIKE.values()))[_LIKE[name]]


def ranks_chart(layout: Layout, key: str, title: str, ranks: CriticalDifference) -> Chart:
    """A critical-difference diagram as in Figure 3; on a phone its losses stand in a column."""

    def draw(width: float) -> Figure:
        return _line_of_ranks(ranks) if width > 5 else _column_of_ranks(ranks, width)

    listed = ", ".join(f"{n} {r:.2f}" for n, r in zip(ranks.names, ranks.mean_ranks, strict=True))
    groups = "; ".join(" to ".join((ranks.names[a], ranks.names[b])) for a, b in ranks.groups)
    finding = (
        f"Mean ranks over {ranks.tables} tables: {listed}. {ranks.overall.test}: "
        f"{p_text(ranks.overall.p_value)}. Not told apart: {groups or 'none'}."
    )
    return layout.chart(key, finding, draw, part="diagram", name=title)


def _line_of_ranks(ranks: CriticalDifference) -> Figure:
    figure = critical_difference_figure(ranks)
    axes = figure.axes[0]
    axes.set_title("", loc="center")
    axes.xaxis.label.set_color(MUTED)
    for text in axes.texts:
        text.set_color(INK)
    for line in axes.get_lines():
        line.set_color(INK if line.get_linewidth() > 2 else MUTED)
    axes.tick_params(color=MUTED, labelcolor=MUTED)
    axes.spines["top"].set_color(MUTED)
    axes.grid(False)
    return figure


def _column_of_ranks(ranks: CriticalDifference, width: float) -> Figure:
    count = len(ranks.names)
    figure = Figure(figsize=(width, 0.8 + 0.36 * count))
    axes = figure.add_subplot()
    for place, (name, rank) in enumerate(zip(ranks.names, ranks.mean_ranks, strict=True)):
        style = look_of(name)
        axes.plot(rank, place, style.marker, color=style.colour, ms=8, mew=0)
        axes.annotate(
            f"{rank:.2f}", (rank, place), (0, 7), textcoords="offset points", ha="center",
            color=MUTED, fontsize=8.5,
        )  # fmt: skip
    for level, (first, last) in enumerate(ranks.groups):
        across = count + 0.3 + 0.25 * level
        axes.plot([across] * 2, [first - 0.25, last + 0.25], color=INK, lw=4)
    name_rows(axes, ranks.names, width)
    axes.set_ylim(count - 0.5, -0.9)
    axes.set_xticks(range(1, count + 1))
    axes.margins(x=0.1)
    axes.set_xlabel(f"mean rank over {ranks.tables} tables (1 = best)")
    tidy_axes(axes, grid="x")
    return figure


def gains_chart(layout: Layout, key: str, scores: Scores) -> Chart:
    """Each loss's difference to CE, one dot per table."""
    names = [name for name in EVERY if name != CE]
    means = scores.means()
    gaps = {name: np.subtract(*means[:, scores.columns([name, CE])].T) for name in names}

    def draw(width: float) -> Figure:
        figure = Figure(figsize=(width, 0.75 + 0.5 * len(names)))
        axes = figure.add_subplot()
        axes.axvline(0, color=look_of(CE).colour, lw=1.3)
        for place, (name, gap) in enumerate(gaps.items()):
            colour = look_of(name).colour
            # Up and down by the golden section, so that dots of one height are far apart.
            heights = place + 0.4 * (np.arange(len(gap)) * 0.618034 % 1) - 0.2
            axes.plot(gap, heights, ".", color=colour, alpha=0.55, ms=5.5, mew=0)
            axes.plot([gap.mean()] * 2, [place - 0.34, place + 0.34], color=colour, lw=2.4)
        name_rows(axes, names, width)
        # Differences of a tenth and of thirty points in one picture.
        axes.set_xscale("symlog", linthresh=1.0, linscale=1.0)
        ticks = [-30, -10, -3, -1, 0, 1, 3, 10, 30] if width > 5 else [-30, -3, 0, 3, 30]
        axes.set_xticks(ticks, [signed(tick, 0) for tick in ticks])
        axes.minorticks_off()
        reach = max(3.0, max(float(np.abs(gap).max()) for gap in gaps.values()))
        axes.set_xlim(-1.15 * reach, 1.15 * reach)
        axes.set_xlabel(f"accuracy less that of CE{' (points)' if width > 5 else ''}")
        tidy_axes(axes, grid="x")
        return figure

    told = "; ".join(
        f"{name} {signed(gap.mean())} on average, from {signed(gap.min(), 1)} to "
        f"{signed(gap.max(), 1)}"
        for name, gap in gaps.items()
    )
    finding = f"Points of accuracy above CE: {told}."
    return layout.chart(key, finding, draw, part="gains", shape=scores.shape)
