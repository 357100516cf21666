"""The chart kinds that recipes share: panels of lines, surfaces, bars, and dots by row.

Data in, a matplotlib figure for one width out; `expacc.report.figures.chart` draws both widths.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, log10
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from expacc.report.figures import legend_place, tidy_axes
from expacc.report.loss_names import INK, LINES, MUTED, SCALE

Ticks = Mapping[float, str]
SHADE = SCALE[0]
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Line:
    """A line of a panel.

    Args:
        x: across.
        y: up.
        label: in the legend; '' for none.
        colour: of line and markers.
        marker: matplotlib's letter; '' for none.
        dash: matplotlib's line style.
        width: in points.
        hollow: whether markers are rings.
        band: low and high edge of an area about the line.
    """

    x: Sequence[float]
    y: Sequence[float]
    label: str = ""
    colour: str = INK
    marker: str = ""
    dash: Any = "-"
    width: float = 1.9
    hollow: bool = False
    band: tuple[Sequence[float], Sequence[float]] | None = None


@dataclass(frozen=True)
class Surface:
    """Values over a plane in eight steps of equal area, the strongest where they are smallest.

    Args:
        x: places across.
        y: places up.
        values: row by row, a row for each y.
    """

    x: Sequence[float]
    y: Sequence[float]
    values: Sequence[float]


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Args:
        title: above it.
        lines: what is drawn.
        x: label of the axis.
        y: label of the axis.
        x_ticks: place → text; None for matplotlib's own.
        y_ticks: the same.
        log: the axes that are logarithmic: '', 'x', 'y' or 'xy'.
        x_range: None for what the data needs.
        y_range: the same.
        shade_x: an interval to be shaded from top to bottom.
        shade_y: an interval to be shaded from left to right.
        level: a dashed line across, and its label.
        surface: drawn below the lines.
        more: draws what is left.
    """

    title: str
    lines: Sequence[Line] = ()
    x: str = ""
    y: str = ""
    x_ticks: Ticks | None = None
    y_ticks: Ticks | None = None
    log: Literal["", "x", "y", "xy"] = ""
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    shade_x: tuple[float, float] | None = None
    shade_y: tuple[float, float] | None = None
    level: tuple[float, str] | None = None
    surface: Surface | None = None
    more: Callable[[Axes], None] = field(default=lambda axes: None)


def panels(
    width: float,
    shown: Sequence[Panel],
    *,
    wide: float = 3.2,
    tall: float = 2.6,
    across: int | None = None,
    legend: Literal["each", "beside", "below", "none"] = "none",
) -> Figure:
    """Panels side by side on a wide page, one below the other on a phone.

    Args:
        width: in inches.
        shown: the panels.
        wide: height in inches of a line of panels on a wide page.
        tall: height of one on a phone.
        across: how many stand side by side on a wide page; None for all.
        legend: in each panel, beside them all, below them all, or nowhere.
    """
    is_wide = width > 5
    columns = (across or len(shown)) if is_wide else 1
    down = -(-len(shown) // columns)
    names = {line.label for panel in shown for line in panel.lines if line.label}
    extra = 0.0 if is_wide else 0.4
    if legend in ("beside", "below"):
        extra += 0.3 if is_wide and legend == "below" else 0.0 if is_wide else 0.2 * len(names)
    figure = Figure(figsize=(width, (wide if is_wide else tall) * down + extra))
    grid = figure.subplots(down, columns, squeeze=False)
    found: dict[str, Any] = {}
    for axes, panel in zip(grid.flat, shown, strict=False):
        _draw(axes, panel)
        handles, labels = axes.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
        if legend == "each":
            axes.legend(loc="best", fontsize=8, handlelength=1.4)
    for axes in grid.flat[len(shown) :]:
        axes.set_visible(False)
    if legend == "beside" or (legend == "below" and not is_wide):
        figure.legend(list(found.values()), list(found), loc=legend_place(width))
    elif legend == "below":
        columns = 3 if sum(map(len, found)) > 70 else len(found)  # letters of a line
        figure.legend(list(found.values()), list(found), loc="outside lower center", ncols=columns)
    return figure


def _draw(axes: Axes, panel: Panel) -> None:
    if panel.shade_x:
        axes.axvspan(*panel.shade_x, color=SHADE, lw=0, alpha=0.7)
    if panel.shade_y:
        axes.axhspan(*panel.shade_y, color=SHADE, lw=0, alpha=0.7)
    if panel.surface:
        _surface(axes, panel.surface)
    for line in panel.lines:
        if line.band:
            axes.fill_between(line.x, *line.band, color=line.colour, alpha=0.18, lw=0)
        axes.plot(
            line.x, line.y, color=line.colour, ls=line.dash, lw=line.width, marker=line.marker,
            ms=4, mec=line.colour, mfc="none" if line.hollow else line.colour,
            label=line.label or None,
        )  # fmt: skip
    if panel.level:
        axes.axhline(panel.level[0], color=MUTED, lw=1.2, ls=(0, (4, 3)), label=panel.level[1])
    for which, ticks in (("x", panel.x_ticks), ("y", panel.y_ticks)):
        if which in panel.log:
            axes.set(**{f"{which}scale": "log"})
        if ticks is not None:
            axis = axes.xaxis if which == "x" else axes.yaxis
            axis.set_major_locator(FixedLocator(list(ticks)))
            axis.set_minor_locator(NullLocator())
            axis.set_ticklabels(list(ticks.values()))
    for limits, change in ((panel.x_range, axes.set_xlim), (panel.y_range, axes.set_ylim)):
        if limits:
            change(*limits)
    axes.set_title(panel.title, color=INK)
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    tidy_axes(axes, grid="both")
    if panel.surface:
        axes.grid(False)
    panel.more(axes)


def _surface(axes: Axes, surface: Surface) -> None:
    values = np.array(surface.values).reshape(len(surface.y), len(surface.x))
    # Levels by rank, so that a valley shows whatever happens elsewhere.
    levels = np.unique(np.quantile(values, np.linspace(0, 1, len(SCALE) + 1)))
    levels[-1] += 1e-12
    colours = SCALE[::-1][: len(levels) - 1]
    axes.contourf(surface.x, surface.y, values, levels, colors=colours)


def power(value: float) -> str:
    """A power of ten, as text.

    >>> power(0.001), power(1.0)
    ('10⁻³', '1')
    """
    exponent = round(log10(value))
    return "1" if exponent == 0 else "10" + str(exponent).translate(_RAISED)


def powers(values: Sequence[float], base: float, unit: float = 1.0) -> list[float]:
    """Ticks for a logarithmic axis: unit × powers of the base about the values, seven at most.

    >>> powers([0.02, 300.0], 10)
    [0.01, 0.1, 1.0, 10.0, 100.0, 1000.0]
    """
    ends = min(values) / unit, max(values) / unit
    first, last = (
        cut(log10(end) / log10(base)) for cut, end in zip((floor, ceil), ends, strict=True)
    )
    step = max(1, -(-(last - first) // 6))
    return [unit * float(base) ** exponent for exponent in range(first, last + 1, step)]


def bars(
    width: float,
    shown: Mapping[str, Mapping[str, tuple[float, str]]],
    names: Mapping[str, str],
    label: str,
) -> Figure:
    """Shares in per cent as bars, one below the other, with their numbers.

    Args:
        width: in inches.
        shown: panel → row → per cent and colour.
        names: row → its name on a phone, in the order of the chart.
        label: of the axis.
    """
    is_wide, count = width > 5, len(names)
    height = 0.27 * count + 0.9 if is_wide else (0.36 * count + 0.8) * len(shown)
    figure = Figure(figsize=(width, height))
    shape = (1, len(shown)) if is_wide else (len(shown), 1)
    grid = figure.subplots(*shape, squeeze=False, sharey=is_wide)
    for axes, (title, found) in zip(grid.flat, shown.items(), strict=True):
        for place, name in enumerate(names):
            if name in found:
                share, colour = found[name]
                axes.barh(place, share, height=0.62, color=colour, lw=0)
                axes.annotate(f"{share:.0f} %", (share, place), (4, 0), va="center", fontsize=8.5,
                              textcoords="offset points", color=INK)  # fmt: skip
        texts = list(names) if is_wide else list(names.values())
        axes.set_yticks(range(count), texts, fontsize=8.5 if is_wide else 8)
        axes.set_ylim(count - 0.4, -0.6)
        axes.set_xlim(0, 112 if is_wide else 130)
        axes.set_xticks([0, 50, 100])
        axes.set_title(title, color=INK)
        axes.set_xlabel(label)
        tidy_axes(axes, grid="x")
    return figure


def dots(
    width: float,
    series: Mapping[str, Mapping[str, float]],
    looks: Sequence[tuple[str, str]],
    grain: Mapping[str, float],
    label: str,
) -> Figure:
    """A line a row, a marker a series, about 0; a grey bar spans what is no difference.

    Args:
        width: in inches.
        series: name → row → value.
        looks: colour and marker of each series; the first is drawn hollow.
        grain: row → half the width of its grey bar, in the order of the chart.
        label: of the axis.
    """
    rows = [row for row in grain if any(row in found for found in series.values())]
    down = 0.36 * len(rows) + 0.9 + (0.2 * len(series) if width < 5 else 0)
    figure = Figure(figsize=(width, down))
    axes = figure.add_subplot()
    axes.axvline(0, color=MUTED, lw=1.1)
    for place, row in enumerate(rows):
        axes.plot([-grain[row], grain[row]], [place] * 2, color=LINES, lw=7, solid_capstyle="butt")
    handles = []
    for turn, (found, (colour, marker)) in enumerate(zip(series.values(), looks, strict=False)):
        shift = 0.2 * (turn - (len(series) - 1) / 2)
        places = [place for place, row in enumerate(rows) if row in found]
        handles += axes.plot(
            [found[rows[place]] for place in places], [place + shift for place in places], marker,
            color=colour, ms=6, mew=1.4, mfc=colour if turn else "none",
        )  # fmt: skip
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.set_xlabel(label)
    tidy_axes(axes, grid="x")
    figure.legend(handles, list(series), loc=legend_place(width))
    return figure
