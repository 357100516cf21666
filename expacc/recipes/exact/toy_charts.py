"""The charts of exact-toy: points, landscapes, temperatures, starts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from matplotlib.axes import Axes

from expacc.recipes.exact.toy import LOSSES, TOYS, Toy, best, percent_text, place_text
from expacc.report.figures import Chart, Drawing, chart, tidy_axes
from expacc.report.loss_names import INK, LINES, MUTED, SCALE, looks, loss_name
from expacc.report.panels import Line, Panel, Surface, bars, panels
from expacc.runner.rows import Row

__all__ = [
    "expected_chart",
    "landscape_chart",
    "margin_chart",
    "points_chart",
    "starts_chart",
    "temperature_chart",
]

_LOOK = looks(set(LOSSES))
ByLoss = Mapping[tuple[str, str], Row]  # toy and loss, or way of training → row
Charts = tuple[Chart, ...]


def _drawn(shown: Any, key: str, title: str, caption: str, finding: str, draw: Drawing) -> Charts:
    """A chart; none where there is nothing to show."""
    return (chart(key, title, caption, finding, draw),) if shown else ()


def _toys(found: ByLoss, keys: Sequence[str] = LOSSES) -> list[Toy]:
    return [toy for toy in TOYS.values() if any((toy.name, key) in found for key in keys)]


def points_chart(found: ByLoss) -> Chart:
    """Figures 1 and 10: the points, and the threshold that each loss finds."""
    shown = []
    for toy in _toys(found):
        rows = {loss: found[toy.name, loss] for loss in LOSSES if (toy.name, loss) in found}
        ends = [row.metrics[end] for row in rows.values() for end in ("low", "high")]
        reach = [*toy.x, *ends]
        room = 0.12 * (max(reach) - min(reach))
        shown.append(
            Panel(
                toy.title, x="x, and the threshold b", shade_x=best(toy)[1], y_range=(-0.6, 3.6),
                x_range=(min(reach) - room, max(reach) + room),
                y_ticks=dict(zip((3, 2, 1, 0), ("points", *map(loss_name, LOSSES)), strict=True)),
                more=partial(_thresholds, toy=toy, rows=rows),
            )
        )  # fmt: skip
    return chart(
        "toy-points",
        "The threshold that each loss finds",
        "Points of class −1 are rings, of class +1 crosses; what lies right of the threshold is "
        "called +1. The shaded thresholds are the most accurate.",
        "The tables of thresholds and accuracies have the same numbers.",
        partial(panels, shown=shown, wide=2.7, tall=2.3),
    )


def _thresholds(axes: Axes, toy: Toy, rows: Mapping[str, Row]) -> None:
    left, right = axes.get_xlim()
    for loss, row in rows.items():
        ends, line, colour = (
            (row.metrics["low"], row.metrics["high"]),
            2 - LOSSES.index(loss),
            _LOOK[loss].colour,
        )
        axes.plot(ends, [line, line], color=colour, lw=3.5, solid_capstyle="butt")
        axes.plot(ends, [line, line], "|", color=colour, ms=15, mew=2.4)
        share = (sum(ends) / 2 - left) / (right - left)
        side = "left" if share < 0.3 else "right" if share > 0.7 else "center"  # not over the edge
        axes.annotate(
            f"{place_text(row.metrics, toy)}, {percent_text(row.metrics)}", (sum(ends) / 2, line),
            (0, 9), textcoords="offset points", fontsize=8.5, color=colour, ha=side,
        )  # fmt: skip
    for label, marker, fill in ((0, "o", "none"), (1, "P", INK)):
        x = [at for at, y in zip(toy.x, toy.label, strict=True) if y == label]
        axes.plot(x, [3] * len(x), marker, ms=9, mec=INK, mfc=fill, mew=1.2, ls="none")
    axes.spines["left"].set_visible(False)
    tidy_axes(axes, grid="x")


def _sigma(row: Row) -> float:
    return float(row.numbers["sigma"])


def expected_chart(rows: Sequence[Row]) -> Charts:
    """Figure 3: expected accuracy against the threshold, for several sigma."""
    curves = [row for row in rows if row.numbers.get("what") == "accuracy"]
    plain = [row for row in rows if row.key.endswith("/plain")]
    shown, tops = [], []
    for name, toy in TOYS.items():
        found = sorted((row for row in curves if row.table == name), key=_sigma)
        lines = [
            _curve(row, "σ = 0: the accuracy", MUTED, 1.0) for row in plain if row.table == name
        ]
        for row, colour in zip(found, SCALE[:0:-2], strict=False):
            lines.append(_curve(row, f"σ = {_sigma(row):g}", colour))
            tops.append(f"{toy.title}, σ = {_sigma(row):g}, b = {row.metrics['best']:.3g}")
        if lines:
            shown.append(Panel(toy.title, lines, "threshold b", "expected accuracy (%)"))
    return _drawn(
        shown,
        "toy-expected",
        "Expected accuracy for several σ",
        "The paper's Figure 3. As σ falls, the curve becomes the accuracy itself, steps and all; "
        "as it grows, one wide hill is left, and its top may be anywhere.",
        f"Where the curves are highest within the picture: {'; '.join(tops)}.",
        partial(panels, shown=shown, legend="each"),
    )


def _curve(row: Row, label: str, colour: str, width: float = 1.9) -> Line:
    percent = [100 * value for value in row.curves["value"]]
    return Line(row.curves["b"], percent, label, colour, width=width)


def margin_chart(rows: Sequence[Row]) -> Charts:
    """Figure 4: the loss with and without margin."""
    found = sorted((r for r in rows if r.numbers.get("what") == "loss"), key=lambda r: -_sigma(r))
    by_sigma: dict[float, list[Line]] = {}
    words = []
    for row in found:
        margin, curves = row.numbers["margin"], row.curves
        name, colour, dash = (
            ("no margin", _LOOK["hinge"].colour, "--")
            if margin is None
            else (f"margin {margin:g}", _LOOK["exact"].colour, "-")
        )
        line = Line(curves["b"], curves["value"], name, colour, dash=dash)
        by_sigma.setdefault(_sigma(row), []).append(line)
        words.append(f"σ = {_sigma(row):g}, {name}: b = {row.metrics['best']:.3g}")
    shade = best(TOYS["three"])[1]
    shown = [
        Panel(f"σ = {sigma:g}", lines, "threshold b", "" if place else "EXACT loss", shade_x=shade)
        for place, (sigma, lines) in enumerate(by_sigma.items())
    ]
    return _drawn(
        shown,
        "toy-margin",
        "With and without margin",
        "The paper's Figure 4, three points; the shaded thresholds are right for all of them. "
        "Scales differ: at σ = 10 the whole curve spans a few hundredths.",
        f"Smallest loss within the picture: {'; '.join(words)}.",
        partial(panels, shown=shown, tall=2.1, legend="beside"),
    )


def temperature_chart(found: ByLoss) -> Charts:
    """The threshold that a loss prefers, for each k held fixed."""
    ranges = {"three": (-0.1, 1.6), "five": (-14.0, 3.0)}
    shown = []
    for toy in _toys(found):
        lines = []
        for loss in LOSSES:
            if (row := found.get((toy.name, loss))) is not None:
                look, low, high = _LOOK[loss], row.curves["low"], row.curves["high"]
                pairs = list(zip(low, high, strict=True))
                band = (low, high) if any(b > a + 1e-3 for a, b in pairs) else None
                middle = [(a + b) / 2 for a, b in pairs]
                own = Line(row.curves["k"], middle, loss_name(loss), look.colour, look.marker)
                lines.append(replace(own, band=band))
        shown.append(
            Panel(
                toy.title, lines, "temperature k (for EXACT 1/σ)",
                "threshold b of the smallest loss", log="x", shade_y=best(toy)[1],
                x_ticks={0.1: "0.1", 1: "1", 10: "10"}, y_range=ranges[toy.name],
            )
        )  # fmt: skip
    return _drawn(
        shown,
        "toy-temperature",
        "The threshold that each loss prefers, by temperature",
        "For each k the threshold of the smallest loss; a band where the loss is flat. The shaded "
        "thresholds are the most accurate. A line that leaves the picture prefers a threshold "
        "beyond all points.",
        "The tables with k fixed have the same numbers.",
        partial(panels, shown=shown, legend="beside"),
    )


def landscape_chart(toy: Toy, found: Mapping[str, Row], ends: Mapping[str, Row]) -> Charts:
    """The losses over temperature and threshold.

    Args:
        toy: the points.
        found: loss → its surface.
        ends: loss → where training ended.
    """
    shown: list[Panel] = []
    for loss, row in found.items():
        b, k = row.curves["b"], row.curves["k"]
        shown.append(
            Panel(
                loss_name(loss), x="threshold b", y="" if shown else "temperature k", log="y",
                y_ticks={0.1: "0.1", 1: "1"}, x_range=(b[0], b[-1]), y_range=(k[0], k[-1]),
                surface=Surface(b, k, row.curves["value"]),
                more=partial(_marks, toy=toy, lowest=row, end=ends.get(loss)),
            )
        )  # fmt: skip
    ways = "; ".join(
        f"{loss_name(loss)} b = {row.metrics['b']:.3g}, k = {row.metrics['k']:.3g}, "
        f"{100 * row.metrics['accuracy']:.0f} %"
        for loss, row in found.items()
    )
    return _drawn(
        shown,
        f"toy-landscape-{toy.name}",
        f"Landscapes, {toy.title}",
        "Eight steps of equal area, the strongest where the loss is smallest. The ring is the "
        "smallest loss in the picture, a cross where training k and b from k = 1, b = 0 ends; "
        "between the dashed lines the accuracy is highest. EXACT depends on k/σ alone: read k as "
        "1/σ.",
        f"Smallest loss in the picture: {ways}.",
        partial(panels, shown=shown, wide=3.0, tall=2.3),
    )


def _marks(axes: Axes, toy: Toy, lowest: Row, end: Row | None) -> None:
    for edge in best(toy)[1]:
        axes.axvline(edge, color=INK, lw=0.9, ls=(0, (3, 2)))
    at = lowest.metrics["b"], lowest.metrics["k"]
    for colour, width, above in ((LINES, 2.2, 4), (INK, 0.9, 5)):
        axes.plot(*at, "o", ms=8, mfc="none", mec=colour, mew=width, clip_on=False, zorder=above)
    if end is not None:
        b, k = end.curves["b"][0], end.curves["k"][0]
        (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
        if left <= b <= right and low <= k <= high:
            axes.plot(b, k, "X", ms=7, mfc=INK, mec=LINES, mew=0.8, zorder=6)


def starts_chart(rows: ByLoss, names: Mapping[str, str]) -> Chart:
    """From how many random starts training ends at the highest accuracy.

    Args:
        rows: by toy and way.
        names: way → how it is called, in the order of the chart.
    """
    shown = {
        f"{toy.title}, best is {100 * best(toy)[0]:.0f} %": {
            name: (100 * row.metrics["reached"] / row.metrics["starts"], _LOOK[row.loss].colour)
            for way, name in names.items()
            if (row := rows.get((toy.name, way))) is not None
        }
        for toy in _toys(rows, list(names))
    }
    # On a phone the colour says which loss it is, or that k is trained.
    short = {
        name: name.replace(", k trained", "").replace("EXACT, ", "") for name in names.values()
    }
    return chart(
        "toy-starts",
        "From random starts",
        "How often training ends where the accuracy is highest. k trained: Adam on k and b. "
        "σ lowered: the recipe of Appendix E, σ from 100 down, gradients normalised.",
        "The table of where training ends has the same numbers.",
        partial(bars, shown=shown, names=short, label="starts that end at the best (%)"),
    )
