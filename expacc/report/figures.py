"""How every chart is drawn and put into a page, and the pictures of many tables.

A chart is drawn twice, for a wide page and for a phone, so that its letters are readable on both.
Its text stays text, in the page's own font. What matplotlib writes as style attributes becomes
plain attributes: a strict Content-Security-Policy allows no inline styles, and the page's style
sheet can then repaint a chart by night.
"""

import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from expacc.report.loss_names import INK, LINES, MUTED
from expacc.stats.many_tables import CriticalDifference

WIDE, NARROW = 8.0, 3.15  # inches; a pixel of the page is a 96th

Drawing = Callable[[float], Figure]


@dataclass(frozen=True)
class Chart:
    """A chart ready for the page.

    Attributes:
        key: its anchor.
        title: what is drawn.
        caption: what to look for.
        finding: what it shows here, in words: the alternative text.
        wide: SVG for a wide page.
        narrow: SVG for a phone.
    """

    key: str
    title: str
    caption: str
    finding: str
    wide: str
    narrow: str


def chart(key: str, title: str, caption: str, finding: str, draw: Drawing) -> Chart:
    """Draw a chart for both widths.

    Args:
        draw: returns the figure for a width in inches.
    """
    pictures = []
    for kind, width in (("wide", WIDE), ("narrow", NARROW)):
        with chart_style():
            figure = draw(width)
            pictures.append(inline_svg(figure, f"{key}-{kind}", title, finding))
    return Chart(key, title, caption, finding, *pictures)


@contextmanager
def chart_style() -> Iterator[None]:
    """The report's own look, whatever the user has set."""
    with mpl.rc_context(), warnings.catch_warnings():
        # Text stays text: the reader's fonts have what matplotlib's lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        mpl.rcdefaults()
        mpl.rcParams.update(
            {
                "font.size": 9,  # points: 12 pixels
                "axes.labelsize": 9,
                "axes.titlesize": 9.5,
                "xtick.labelsize": 8.5,
                "ytick.labelsize": 8.5,
                "legend.fontsize": 9,
                "text.color": INK,
                "axes.labelcolor": MUTED,
                "axes.edgecolor": LINES,
                "xtick.color": LINES,
                "ytick.color": LINES,
                "xtick.labelcolor": MUTED,
                "ytick.labelcolor": MUTED,
                "axes.grid": True,
                "grid.color": LINES,
                "grid.linewidth": 0.7,
                "axes.axisbelow": True,
                "axes.spines.top": False,
                "axes.spines.right": False,
                "axes.titlelocation": "left",
                "text.parse_math": False,  # a dollar in a name is a dollar
                "axes.unicode_minus": True,
                "svg.fonttype": "none",
                "figure.constrained_layout.use": True,
                "legend.frameon": False,
            }
        )
        yield


def legend_place(width: float) -> Literal["outside right upper", "outside lower left"]:
    """Beside the axes on a wide page, below them on a phone."""
    return "outside right upper" if width > 5 else "outside lower left"


def tidy_axes(axes: Axes, *, grid: str) -> None:
    """Keep the grid lines of one direction ('x', 'y' or 'both') and no ticks."""
    axes.grid(False)
    axes.grid(True, axis=grid)  # type: ignore[arg-type]
    axes.tick_params(length=0)


_DECLARATION = re.compile(r"([a-z-]+):\s*([^;]+?)\s*(?:;|$)")
_KEPT_IDS = re.compile(r'(?:url\(#|href="#)([^)"]+)')
_PAINT = re.compile(r' (?:fill|stroke)="#[0-9a-f]+"')
_LONG = re.compile(r"(\d\.\d\d)\d+")  # a hundredth of a point is enough for any eye
# The page has its own font, and matplotlib's hints about text are for editors.
_DROPPED = {"font-family", "font", "white-space", "font-stretch", "font-style", "font-variant"}


def _as_attributes(match: re.Match[str]) -> str:
    pairs = _DECLARATION.findall(match.group(1))
    return "".join(f' {name}="{value}"' for name, value in pairs if name not in _DROPPED)


def inline_svg(figure: Figure, key: str, title: str, finding: str) -> str:
    """Write a figure as an SVG element for a page: the same bytes for the same figure.

    Args:
        figure: drawn within `chart_style`.
        key: unique in the page; the picture's identifiers start with it.
        title: for ``<title>``.
        finding: for ``<desc>``.
    """
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": key}):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    text = buffer.getvalue()
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text)
    if box is None:
        raise ValueError("figure must be drawn with a viewBox from 0 0; matplotlib gave none.")
    width, height = (float(number) for number in box.groups())
    body = text[text.index(">", text.index("<svg")) + 1 : text.rindex("</svg>")]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.S)
    body = re.sub(r"<!--.*?-->", "", body, flags=re.S)  # matplotlib repeats each text in one
    body = re.sub(r'<style type="text/css">.*?</style>', "", body, flags=re.S)
    body = re.sub(r' style="([^"]*)"', _as_attributes, body)
    # A marker takes the colours of the place where it is used, which the style sheet can repaint.
    body = re.sub(r"<defs>.*?</defs>", lambda m: _PAINT.sub("", m.group(0)), body, flags=re.S)
    body = re.sub(r'="[^"]*"', lambda m: _LONG.sub(r"\1", m.group(0)), body)
    kept = set(_KEPT_IDS.findall(body))
    body = re.sub(r' id="([^"]*)"', lambda m: m.group(0) if m.group(1) in kept else "", body)
    body = re.sub(r'(url\(#|href="#| id=")', rf"\g<1>{key}-", body)
    body = re.sub(r"<defs>\s*</defs>|\n\s*", lambda m: "" if m.group(0)[0] == "<" else "\n", body)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'class="picture" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width / 72 * 96:.0f}" height="{height / 72 * 96:.0f}" '
        f'role="img" aria-labelledby="{key}-title {key}-desc" '
        f'stroke-linejoin="round" stroke-linecap="butt">'
        f'<title id="{key}-title">{escape(title)}</title>'
        f'<desc id="{key}-desc">{escape(finding)}</desc>'
    )
    return head + body.strip() + "</svg>"


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
            axes.plot(*way, color=INK, lw=4, solid_capstyle="butt", clip_on=False)
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
    axes.set_xlabel(f"mean rank over {result.tables} tables (1 = best on every table)", color=MUTED)
    axes.tick_params(color=MUTED, labelcolor=MUTED)
    axes.spines["top"].set_color(MUTED)
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
    axes.plot(*way, color=MUTED, lw=0.9, clip_on=False)
    label = f"{name}  {rank:.2f}" if on_left else f"{rank:.2f}  {name}"
    side = "right" if on_left else "left"
    axes.text(edge + 1.5 * outward, depth, label, ha=side, va="center", color=INK, clip_on=False)
