"""The pictures of several methods on several tables: critical differences and the profile.

Each function returns a matplotlib ``Figure`` that belongs to no window; `svg_text` writes it so
that the same figure gives the same bytes.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from expacc.stats.many_tables import CriticalDifference, Profile, check_names

# Okabe and Ito's colours, which the colour-blind can tell apart; then again with other dashes.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", ":", "-.")
LETTER = 0.085  # inches that a letter takes at most, about
ROW = 0.26  # inches between two labels
BAR = 0.16  # inches between two bars


@contextmanager
def _style() -> Iterator[None]:
    """Matplotlib's defaults whatever the user has set, so that a figure always looks the same."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({"font.size": 10, "svg.hashsalt": "expacc"})
        yield


def svg_text(figure: Figure) -> str:
    """Write a figure as SVG without a date and with fixed identifiers."""
    buffer = io.StringIO()
    with _style():
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def critical_difference_figure(result: CriticalDifference) -> Figure:
    """Draw methods on a line of mean ranks; a bar joins those that cannot be told apart."""
    methods = len(result.names)
    left = (methods + 1) // 2
    longest = max(len(name) for name in result.names)
    margin = 0.3 + LETTER * (longest + 6)
    levels = _bar_levels(result.groups)
    bars = max(levels, default=-1) + 1
    width, height = 4.2 + 2 * margin, 1.4 + BAR * bars + ROW * left
    with _style():
        figure = Figure(figsize=(width, height))
        # The vertical unit is an inch, so that labels keep their distance in every figure.
        depth = height - 1.0
        axes = figure.add_axes((margin / width, 0.0, 4.2 / width, depth / height))
        axes.set(xlim=(1, methods), ylim=(-depth, 0))
        _rank_axis(axes, result)
        for (first, last), level in zip(result.groups, levels, strict=True):
            ends = result.mean_ranks[first], result.mean_ranks[last]
            reach = 0.008 * (methods - 1)
            way = (ends[0] - reach, ends[1] + reach), (-0.14 - BAR * level,) * 2
            axes.plot(*way, color="#D55E00", lw=4, solid_capstyle="butt", clip_on=False)
        for place, (name, rank) in enumerate(zip(result.names, result.mean_ranks, strict=True)):
            on_left = place < left
            row = place if on_left else methods - 1 - place
            _elbow(axes, name, rank, -0.22 - BAR * bars - ROW * row, on_left=on_left)
        return figure


def _bar_levels(groups: Sequence[tuple[int, int]]) -> list[int]:
    """Give each bar the highest line on which it touches no other; groups come from the left."""
    ends: list[int] = []
    levels = []
    for first, last in groups:
        level = next((i for i, end in enumerate(ends) if end < first), len(ends))
        ends[level : level + 1] = [last]
        levels.append(level)
    return levels


def _rank_axis(axes: Axes, result: CriticalDifference) -> None:
    methods = len(result.names)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xticks(range(1, methods + 1))
    axes.set_xlabel(f"mean rank over {result.tables} tables (1 = best on every table)")
    axes.set_yticks([])
    for side in ("left", "right", "bottom"):
        axes.spines[side].set_visible(False)
    level = f"{result.significance * 100:g} %"
    found = f"a bar joins losses that do not differ at the {level} level"
    if result.overall.p_value > result.significance:
        found = f"no differences at the {level} level"
    axes.set_title(f"Critical differences: {found}", fontsize=10, pad=10)


def _elbow(axes: Axes, name: str, rank: float, depth: float, *, on_left: bool) -> None:
    methods = axes.get_xlim()[1]
    edge = 1.0 if on_left else methods
    outward = -0.02 * (methods - 1) if on_left else 0.02 * (methods - 1)
    way = (rank, rank, edge + outward), (0, depth, depth)
    axes.plot(*way, color="#555555", lw=0.9, clip_on=False)
    label = f"{name}  {rank:.2f}" if on_left else f"{rank:.2f}  {name}"
    side = "right" if on_left else "left"
    axes.text(edge + 1.5 * outward, depth, label, ha=side, va="center", clip_on=False)


def profile_figure(profile: Profile, names: Sequence[str]) -> Figure:
    """Draw a Dolan–Moré profile: on which share of tables a method comes how near the best."""
    names = check_names(names, profile.shares.shape[1])
    error = profile.ratio == "error"
    thresholds = profile.thresholds
    with _style():
        figure = Figure(figsize=(7.2 + LETTER * max(map(len, names)), 3.8), layout="constrained")
        axes = figure.add_subplot()
        # A margin on the open side shows where the curves come from or go to.
        reach = 0.05 * (thresholds[-1] - thresholds[0]) or 0.05
        grid = np.append(thresholds, thresholds[-1] + reach)
        shares = np.vstack([profile.shares, profile.shares[-1:]])
        if not error:
            grid = np.append(thresholds[0] - reach, thresholds)
            shares = np.vstack([profile.shares[:1], profile.shares])
        for place, name in enumerate(names):
            axes.step(
                grid,
                shares[:, place],
                where="post" if error else "pre",
                label=name,
                color=COLOURS[place % len(COLOURS)],
                ls=DASHES[place // len(COLOURS) % len(DASHES)],
                lw=1.8,
            )
        axes.set(ylim=(-0.02, 1.02), xlim=(grid[0], grid[-1]), ylabel="share of tables (%)")
        if error:
            axes.set_xlabel("error at most this many times the table's smallest (×)")
            axes.set_title("How often each loss comes near the smallest error", fontsize=10)
            if grid[-1] > 10:
                axes.set_xscale("log")
        else:
            axes.set_xlabel("accuracy at least this share of the table's best (%)")
            axes.set_title("How often each loss comes near the best accuracy", fontsize=10)
            axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
        axes.grid(alpha=0.3)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
        return figure
