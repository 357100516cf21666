"""Several tables: differences to cross entropy, critical differences, the profile."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from expacc.compare.figures_folds import ROW, name_rows
from expacc.compare.leaderboard import Overall
from expacc.report.figures import Chart, chart, legend_place, tidy_axes
from expacc.report.figures_many import critical_difference_figure
from expacc.report.loss_names import REFERENCE, loss_name
from expacc.report.palette import INK, MUTED, Look
from expacc.report.words import p_text, points

__all__ = ["profile_chart", "rank_chart", "table_difference_chart"]


def table_difference_chart(overall: Overall, look: Mapping[str, Look]) -> Chart:
    """Draw each loss's difference to cross entropy, one dot per table."""
    entries = [entry for entry in overall.entries if entry.difference is not None]
    reference = overall.losses.index(REFERENCE)

    def draw(width: float) -> Figure:
        figure = Figure(figsize=(width, 0.75 + ROW * len(entries)))
        axes = figure.add_subplot()
        axes.axvline(0, color=look[REFERENCE].colour, lw=1.3)
        for place, entry in enumerate(entries):
            style, column = look[entry.loss], overall.losses.index(entry.loss)
            gaps = 100 * (overall.accuracies[:, column] - overall.accuracies[:, reference])
            low, high = (100 * end for end in entry.interval or (0.0, 0.0))
            axes.plot([low, high], [place] * 2, color=style.colour, lw=2.2)
            axes.plot([low, high], [place] * 2, "|", color=style.colour, ms=9, mew=2.2)
            axes.plot(gaps.mean(), place, style.marker, color=style.colour, ms=7.5, mec="none")
            axes.plot(
                gaps, np.full(len(gaps), place + 0.26), ".", color=style.colour, alpha=0.45, ms=6,
                mew=0,
            )  # fmt: skip
        name_rows(axes, [entry.name for entry in entries], width)
        axes.set_xlabel(f"difference{' to cross entropy' * (width > 5)} (points)")
        axes.margins(x=0.04)
        axes.xaxis.set_major_locator(MaxNLocator(5 if width < 5 else 8))
        tidy_axes(axes, grid="x")
        return figure

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
        draw,
    )


def rank_chart(overall: Overall, look: Mapping[str, Look]) -> Chart:
    """Draw the critical-difference diagram; on a phone its losses stand below each other."""
    ranks = overall.ranks
    looks = {loss_name(loss): style for loss, style in look.items()}

    def draw(width: float) -> Figure:
        if width > 5:
            figure = critical_difference_figure(ranks)
            axes = figure.axes[0]
            axes.set_title("", loc="center")
            axes.xaxis.label.set_color(MUTED)
            for text in axes.texts:
                text.set_color(INK)
            for thing in axes.get_lines():
                thing.set_color(INK if thing.get_linewidth() > 2 else MUTED)
            axes.tick_params(color=MUTED, labelcolor=MUTED)
            axes.spines["top"].set_color(MUTED)
            axes.grid(False)
            return figure
        figure = Figure(figsize=(width, 0.8 + 0.36 * len(ranks.names)))
        axes = figure.add_subplot()
        for place, (name, rank) in enumerate(zip(ranks.names, ranks.mean_ranks, strict=True)):
            style = looks[name]
            axes.plot(rank, place, style.marker, color=style.colour, ms=8, mew=0)
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
        "ranks",
        "Critical differences",
        "Losses by their mean rank over the tables; 1 would be the best on every table. A heavy "
        "bar joins losses that the data cannot tell apart at the 5 % level (Wilcoxon’s signed rank "
        "test with Holm’s correction for all pairs; the answer corrects for the pairs with cross "
        "entropy alone and may tell more apart).",
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
