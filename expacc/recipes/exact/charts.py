"""Charts of the tabular EXACT recipes."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from expacc.recipes.exact.rows import signed
from expacc.report.figures import Chart, chart, legend_place, tidy_axes
from expacc.report.palette import INK, LINES, MUTED, looks

__all__ = ["gain_chart", "noise_chart", "parts_chart"]

ROW = 0.36  # inches of a table
_LOOK = looks({"cross_entropy", "exact", "hinge", "leaky_expected_error", "mixed_expected_error"})
_COLOURS = [
    INK,
    _LOOK["exact"].colour,
    _LOOK["leaky_expected_error"].colour,
    _LOOK["mixed_expected_error"].colour,
    _LOOK["hinge"].colour,
]
_MARKERS = "oDs^v"

Gains = Mapping[str, Mapping[str, float]]  # series → table → points


def _dots(axes: Axes, gains: Gains, tables: Sequence[str], row: Mapping[str, float]) -> None:
    """A line a table, a marker a series, and a bar of one test row on either side of 0."""
    axes.axvline(0, color=MUTED, lw=1.1)
    for place, table in enumerate(tables):
        axes.plot([-row[table], row[table]], [place] * 2, color=LINES, lw=7, solid_capstyle="butt")
    count = len(gains)
    for turn, found in enumerate(gains.values()):
        shift = 0.2 * (turn - (count - 1) / 2)
        places = [place for place, table in enumerate(tables) if table in found]
        axes.plot(
            [found[tables[place]] for place in places],
            [place + shift for place in places],
            _MARKERS[turn], color=_COLOURS[turn], ms=6, mew=1.4,
            mfc="none" if turn == 0 else _COLOURS[turn],
        )  # fmt: skip
    axes.set_yticks(range(len(tables)), tables)
    axes.set_ylim(len(tables) - 0.4, -0.6)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    tidy_axes(axes, grid="x")


def _drawn(gains: Gains, row: Mapping[str, float], what: str, width: float) -> Figure:
    tables = [table for table in row if any(table in found for found in gains.values())]
    down = ROW * len(tables) + 0.9 + (0.2 * len(gains) if width < 5 else 0)
    figure = Figure(figsize=(width, down))
    axes = figure.add_subplot()
    _dots(axes, gains, tables, row)
    axes.set_xlabel(what)
    shown = [line for line in axes.get_lines() if line.get_marker() not in ("None", None, "")]
    figure.legend(shown, list(gains), loc=legend_place(width))
    return figure


def _said(gains: Gains) -> str:
    return "; ".join(
        f"{series}: " + ", ".join(f"{table} {signed(gap)}" for table, gap in found.items())
        for series, found in gains.items()
    )


def gain_chart(gains: Gains, row: Mapping[str, float]) -> Chart:
    """EXACT less cross entropy on the test rows, by table."""
    return chart(
        "exact-gains",
        "What EXACT adds to cross entropy, table by table",
        "Points of test accuracy; right of the line EXACT is better. The grey bar is one test row "
        "either way: what lies in it is no difference.",
        f"EXACT less cross entropy in points. {_said(gains)}.",
        lambda width: _drawn(gains, row, "EXACT less cross entropy (points)", width),
    )


def parts_chart(gains: Gains, row: Mapping[str, float]) -> Chart:
    """What leaving out a part of EXACT does to the test accuracy."""
    return chart(
        "exact-parts",
        "What leaving out a part does",
        "Points of test accuracy against whole EXACT; left of the line the part is missed. The "
        "grey bar is one test row either way.",
        f"Without a part less whole EXACT, in points. {_said(gains)}.",
        lambda width: _drawn(gains, row, "difference to whole EXACT (points)", width),
    )


def noise_chart(gains: Gains, row: Mapping[str, float], key: str, title: str) -> Chart:
    """What each loss adds to cross entropy, by table."""
    return chart(
        key,
        title,
        "Points of test accuracy against cross entropy, mean over splits or seeds. The grey bar is "
        "one test row either way.",
        f"Less cross entropy, in points. {_said(gains)}.",
        lambda width: _drawn(gains, row, "difference to cross entropy (points)", width),
    )
