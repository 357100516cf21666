"""The charts of mixing-uci: critical differences, and the difference to CE on every table."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from expacc.compare.figures_scores import name_rows
from expacc.recipes.mixing.scores import Scores
from expacc.recipes.mixing.uci import CE, CONTROL, EVERY
from expacc.report.figures import Chart, chart, critical_difference_figure, tidy_axes
from expacc.report.palette import INK, MUTED, Look, looks
from expacc.report.words import p_text
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


def ranks_chart(key: str, title: str, ranks: CriticalDifference) -> Chart:
    """A critical-difference diagram as in Figure 3; on a phone its losses stand in a column."""

    def draw(width: float) -> Figure:
        if width > 5:
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
        count = len(ranks.names)
        figure = Figure(figsize=(width, 0.8 + 0.36 * count))
        axes = figure.add_subplot()
        for place, (name, rank) in enumerate(zip(ranks.names, ranks.mean_ranks, strict=True)):
            style = look_of(name)
            axes.plot(rank, place, ls="", marker=style.marker, color=style.colour, ms=8, mew=0)
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

    listed = ", ".join(f"{n} {r:.2f}" for n, r in zip(ranks.names, ranks.mean_ranks, strict=True))
    groups = "; ".join(" to ".join((ranks.names[a], ranks.names[b])) for a, b in ranks.groups)
    told = f"Not told apart: {groups}." if groups else "All differ."
    return chart(
        key,
        title,
        "Losses by their mean rank over the tables; equals share the mean of their ranks. A heavy "
        "bar joins losses that do not differ at the 5 % level (Conover’s test with "
        "Benjamini–Hochberg).",
        f"Mean ranks over {ranks.tables} tables: {listed}. {ranks.overall.test}: "
        f"{p_text(ranks.overall.p_value)}. {told}",
        draw,
    )


def gains_chart(key: str, scores: Scores) -> Chart:
    """Each loss's difference to CE, one dot per table."""
    names = [name for name in EVERY if name != CE]
    means = scores.means()
    gaps = {
        name: means[:, scores.columns([name])[0]] - means[:, scores.columns([CE])[0]]
        for name in names
    }

    def draw(width: float) -> Figure:
        figure = Figure(figsize=(width, 0.75 + 0.5 * len(names)))
        axes = figure.add_subplot()
        axes.axvline(0, color=look_of(CE).colour, lw=1.3)
        for place, name in enumerate(names):
            style = look_of(name)
            # Up and down by the golden section, so that dots of one height are far apart.
            heights = place + 0.4 * (np.arange(len(gaps[name])) * 0.618034 % 1) - 0.2
            axes.plot(gaps[name], heights, ".", color=style.colour, alpha=0.55, ms=5.5, mew=0)
            axes.plot(
                [gaps[name].mean()] * 2, [place - 0.34, place + 0.34], color=style.colour, lw=2.4
            )
        name_rows(axes, names, width)
        # Differences of a tenth and of thirty points in one picture.
        axes.set_xscale("symlog", linthresh=1.0, linscale=1.0)
        ticks = [-30, -10, -3, -1, 0, 1, 3, 10, 30] if width > 5 else [-30, -3, 0, 3, 30]
        axes.set_xticks(ticks, [f"{tick:+d}".replace("-", "−") if tick else "0" for tick in ticks])
        axes.minorticks_off()
        reach = max(3.0, max(float(np.abs(gap).max()) for gap in gaps.values()))
        axes.set_xlim(-1.15 * reach, 1.15 * reach)
        axes.set_xlabel(f"accuracy less that of CE{' (points)' if width > 5 else ''}")
        tidy_axes(axes, grid="x")
        return figure

    return chart(
        key,
        f"Difference to CE on every table, {scores.shape}",
        "A dot is a table, the line the mean over tables. Even steps up to one point, then by "
        "equal ratios.",
        _told(gaps),
        draw,
    )


def _told(gaps: dict[str, "np.ndarray[tuple[int], np.dtype[np.float64]]"]) -> str:
    parts: Sequence[str] = [
        f"{name} {gap.mean():+.2f} on average, from {gap.min():+.1f} to {gap.max():+.1f}".replace(
            "-", "−"
        ).replace("F=0−0.5", "F=0-0.5")
        for name, gap in gaps.items()
    ]
    return "Points of accuracy above CE: " + "; ".join(parts) + "."
