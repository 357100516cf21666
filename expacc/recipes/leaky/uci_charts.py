"""The charts of leerr-uci: errors beside the paper's, and what the learning rate does."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from expacc.recipes.leaky.uci import LOSSES
from expacc.recipes.page import Number
from expacc.report.figures import Chart, chart, tidy_axes
from expacc.report.palette import INK, MUTED, looks

__all__ = ["errors_chart", "rates_chart"]

_LOOK = looks(set(LOSSES))
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

Means = Mapping[str, Mapping[str, Number]]  # table → loss → our error
Rates = Mapping[str, Mapping[str, Mapping[float, Sequence[float]]]]  # … → rate → errors


def _shape(panels: int, width: float) -> tuple[int, int]:
    """Panels across and down."""
    across = 1 if width < 5 else 2 if panels in (2, 4) else min(panels, 3)
    return across, -(-panels // across)


def errors_chart(means: Means, printed: Means) -> Chart:
    """Error rates with their spread, the paper's beside ours, a panel per table."""

    def draw(width: float) -> Figure:
        across, down = _shape(len(means), width)
        figure = Figure(figsize=(width, 1.75 * down + 0.45))
        grid = figure.subplots(down, across, squeeze=False)
        for axes, (table, ours) in zip(grid.flat, means.items(), strict=False):
            _panel(axes, table, ours, printed.get(table, {}))
        for axes in grid.flat[len(means) :]:
            axes.set_visible(False)
        for axes in grid.flat[max(0, len(means) - across) :]:
            axes.set_xlabel("error (%)")
        shapes = [
            Line2D([], [], color=MUTED, marker="o", ms=6, lw=1.6),
            Line2D([], [], color=MUTED, marker="o", ms=6, mfc="none", lw=1.6, ls=":"),
        ]
        figure.legend(shapes, ["ours", "paper"], loc="outside lower center", ncols=2)
        return figure

    said = []
    for table, ours in means.items():
        numbers = ", ".join(f"{LOSSES[loss]} {number.mean:.2f}" for loss, number in ours.items())
        said.append(f"{table}: {numbers}")
    return chart(
        "leerr-errors",
        "Error rates, the paper's beside ours",
        "A dot is the mean over the folds, a line one standard deviation either way. Panels have "
        "scales of their own.",
        f"Our error rates in per cent. {'; '.join(said)}.",
        draw,
    )


def _panel(
    axes: Axes, table: str, ours: Mapping[str, Number], theirs: Mapping[str, Number]
) -> None:
    for place, loss in enumerate(LOSSES):
        colour = _LOOK[loss].colour
        for number, up, dash, face in (
            (ours.get(loss), -0.17, "-", colour),
            (theirs.get(loss), 0.17, ":", "none"),
        ):
            if number is None:
                continue
            reach = number.spread or 0.0
            axes.plot(
                [number.mean - reach, number.mean + reach], [place + up] * 2,
                color=colour, ls=dash, lw=1.6,
            )  # fmt: skip
            axes.plot([number.mean], [place + up], "o", color=colour, mfc=face, ms=6)
    axes.set_yticks(range(len(LOSSES)), list(LOSSES.values()))
    axes.set_ylim(len(LOSSES) - 0.5, -0.5)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_title(table, color=INK)
    tidy_axes(axes, grid="x")


def rates_chart(rates: Rates) -> Chart:
    """Validation error against the learning rate, a panel per table."""

    def draw(width: float) -> Figure:
        across, down = _shape(len(rates), width)
        figure = Figure(figsize=(width, 2.1 * down + (0.4 if width > 5 else 0.9)))
        grid = figure.subplots(down, across, squeeze=False)
        handles: dict[str, Line2D] = {}
        for axes, (table, by_loss) in zip(grid.flat, rates.items(), strict=False):
            for loss, by_rate in by_loss.items():
                if not by_rate:
                    continue
                look = _LOOK[loss]
                x = sorted(by_rate)
                mean = [float(np.mean(by_rate[rate])) for rate in x]
                low, high = ([float(f(by_rate[rate])) for rate in x] for f in (np.min, np.max))
                axes.fill_between(x, low, high, color=look.colour, alpha=0.12, lw=0)
                (line,) = axes.plot(
                    x, mean, color=look.colour, ls=look.dash, marker=look.marker, ms=4, lw=1.6
                )
                handles.setdefault(LOSSES[loss], line)
            axes.set_xscale("log")
            exponents = range(-4, 0)
            axes.xaxis.set_major_locator(FixedLocator([10.0**e for e in exponents]))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_ticklabels(["10" + str(e).translate(_RAISED) for e in exponents])
            axes.yaxis.set_major_locator(MaxNLocator(5))
            axes.set_title(table, color=INK)
            tidy_axes(axes, grid="y")
        for axes in grid.flat[len(rates) :]:
            axes.set_visible(False)
        for axes in grid.flat[max(0, len(rates) - across) :]:
            axes.set_xlabel("learning rate")
        for axes in grid[:, 0]:
            axes.set_ylabel("validation error (%)")
        figure.legend(
            list(handles.values()), list(handles), loc="outside lower center", ncols=len(handles)
        )
        return figure

    return chart(
        "leerr-rates",
        "What the learning rate does",
        "The best validation error of a run, averaged over the folds; the band is the range over "
        "them. Where it is wide, some folds get stuck, or are slow, at that rate.",
        _widest(rates),
        draw,
    )


def _widest(rates: Rates) -> str:
    """Where runs of one loss and rate differ most."""
    found = [
        (max(errors) - min(errors), table, loss, rate)
        for table, by_loss in rates.items()
        for loss, by_rate in by_loss.items()
        for rate, errors in by_rate.items()
    ]
    spread, table, loss, rate = max(found)
    return (
        f"The folds differ most, by {spread:.1f} points, for {LOSSES[loss]} on {table} at a "
        f"learning rate of {rate:g}."
    )
