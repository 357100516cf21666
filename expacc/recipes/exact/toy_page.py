"""The page of exact-toy: the paper's thresholds, its landscapes, and the blog's objections."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from matplotlib.axes import Axes

from expacc.recipes.exact import TOY
from expacc.recipes.exact.toy import FIVE, LOSSES, THREE, TOYS, Toy, best, percent_text, place_text
from expacc.recipes.page import Claim, Comparison, Grid, Number, Page, Section
from expacc.recipes.paper import Layout
from expacc.report.figures import Chart, tidy_axes
from expacc.report.panels import Line, Panel, Surface, bars
from expacc.report.words import INK, LINES, MUTED, NONE, SCALE, looks, loss_name
from expacc.runner.rows import Row

_NOTES = {  # of the five points
    "exact": "where the descent from b = 0 stops; any threshold from −6 to −5 is as accurate",
    "cross_entropy": "on our grid, at k = {k:.2g}, up to b = {high:.2f}",
    "hinge": "on our grid, at k = {k:.2g}, up to b = {high:.2f}",
}
_NOISES = {
    ("normal", False): "normal (EXACT)",
    ("gumbel", False): "Gumbel: the softmax's 1 − p",
    ("logistic", False): "logistic",
    ("laplace", False): "Laplace",
    ("normal", True): "normal, −log P",
}
_RANGES = {"three": (-0.1, 1.6), "five": (-14.0, 3.0)}  # of thresholds in the chart by temperature
_LOOK = looks(set(LOSSES))

ByLoss = dict[tuple[str, str], Row]  # toy and loss, or way of training → row
Charts = tuple[Chart, ...]


def write(rows: Sequence[Row], facts: Mapping[str, Any]) -> Page:
    """The page from the rows that there are."""
    good = sorted((row for row in rows if row.failure is None), key=lambda row: row.key)
    parts: dict[str, ByLoss] = {}
    for row in good:
        parts.setdefault(row.fold, {})[row.table, row.loss] = row
    layout = Layout("exact", "exact-toy", {"starts": 0, **facts})
    paper, trained = parts.get("paper", {}), parts.get("trained", {})
    sections = []
    if paper:
        charts = layout.panels("toy-points", [_points(toy, paper) for toy in _toys(paper)])
        sections.append(layout.section("thresholds", beside=_thresholds(paper), charts=charts))
        sections.append(layout.section("accuracies", beside=_accuracies(paper)))
    sections += [
        _figures(layout, [row for row in good if row.fold == "slices"]),
        _temperature(layout, parts.get("fixed", {}), trained, parts.get("surface", {})),
        _starts(layout, good),
        layout.section("noise", grids=[layout.grid("noises", _noises(good))]),
    ]
    return layout.page(sections, _claims(layout, trained))


def _toys(found: ByLoss) -> list[Toy]:
    return [toy for toy in TOYS.values() if any(name == toy.name for name, _ in found)]


def _of(found: ByLoss, toy: Toy) -> dict[str, Row]:
    """The rows of some points by loss."""
    return {loss: found[toy.name, loss] for loss in LOSSES if (toy.name, loss) in found}


# --------------------------------------------------------------------------------- the paper's


def _number(row: Row | None, metric: str, by: float = 1.0) -> Number | None:
    return None if row is None else Number(by * row.metrics[metric])


def _thresholds(paper: ByLoss) -> Iterator[Comparison]:
    for toy, printed in TOY.items():
        for loss, (low, high, _) in printed.items():
            row, name = paper.get((toy, loss)), (TOYS[toy].title, loss_name(loss))
            note = _NOTES[loss].format(**row.metrics) if row is not None and toy == "five" else ""
            what, note = "threshold" if low == high else "lowest", note.replace("-", "−")
            yield Comparison((*name, what), Number(low), _number(row, "low"), note)
            if high > low:
                yield Comparison((*name, "highest"), Number(high), _number(row, "high"))


def _accuracies(paper: ByLoss) -> Iterator[Comparison]:
    for toy, printed in TOY.items():
        for loss, (_, _, share) in printed.items():
            ours = _number(paper.get((toy, loss)), "accuracy", 100)
            yield Comparison((TOYS[toy].title, loss_name(loss)), Number(share), ours)
    for one in TOYS.values():
        ours = Number(100 * best(one)[0])
        yield Comparison((one.title, "any threshold"), None, ours, "the optimum")


def _points(toy: Toy, found: ByLoss) -> Panel:
    """Figures 1 and 10: the points, and the threshold that each loss finds."""
    rows = _of(found, toy)
    ends = [row.metrics[end] for row in rows.values() for end in ("low", "high")]
    reach = [*toy.x, *ends]
    room = 0.12 * (max(reach) - min(reach))
    return Panel(
        toy.title, x="x, and the threshold b", shade_x=best(toy)[1], y_range=(-0.6, 3.6),
        x_range=(min(reach) - room, max(reach) + room),
        y_ticks=dict(zip((3, 2, 1, 0), ("points", *map(loss_name, LOSSES)), strict=True)),
        more=partial(_mark_thresholds, toy=toy, rows=rows),
    )  # fmt: skip


def _mark_thresholds(axes: Axes, toy: Toy, rows: Mapping[str, Row]) -> None:
    left, right = axes.get_xlim()
    for loss, row in rows.items():
        ends, line = (row.metrics["low"], row.metrics["high"]), 2 - LOSSES.index(loss)
        colour = _LOOK[loss].colour
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


def _figures(layout: Layout, slices: Sequence[Row]) -> Section:
    losses = [row for row in slices if row.numbers.get("what") == "loss"]
    lines = [
        (
            f"{row.numbers['sigma']:g}",
            f"{row.numbers['margin'] or 'none'}",
            f"{row.metrics['best']:.3g}".replace("-", "−"),
            f"{100 * row.metrics['accuracy']:.0f} %",
        )
        for row in losses
    ]
    return layout.section(
        "figures",
        grids=[layout.grid("smallest", lines)],
        charts=(*_expected(layout, slices), *_margins(layout, losses)),
    )


def _sigma(row: Row) -> float:
    return float(row.numbers["sigma"])


def _expected(layout: Layout, slices: Sequence[Row]) -> Charts:
    """Figure 3: expected accuracy against the threshold, for several sigma."""
    shown, tops = [], []
    for toy in TOYS.values():
        own = [row for row in slices if row.table == toy.name]
        plain = [row for row in own if row.key.endswith("/plain")]
        lines = [_curve(row, "σ = 0: the accuracy", MUTED, 1.0) for row in plain]
        found = [row for row in own if row.numbers.get("what") == "accuracy"]
        for row, colour in zip(sorted(found, key=_sigma), SCALE[:0:-2], strict=False):
            lines.append(_curve(row, f"σ = {_sigma(row):g}", colour))
            tops.append(f"{toy.title}, σ = {_sigma(row):g}, b = {row.metrics['best']:.3g}")
        if lines:
            shown.append(Panel(toy.title, lines, "threshold b", "expected accuracy (%)"))
    told = f"Where the curves are highest within the picture: {'; '.join(tops)}."
    return layout.panels("toy-expected", shown, told)


def _curve(row: Row, label: str, colour: str, width: float = 1.9) -> Line:
    percent = [100 * value for value in row.curves["value"]]
    return Line(row.curves["b"], percent, label, colour, width=width)


def _margins(layout: Layout, losses: Sequence[Row]) -> Charts:
    """Figure 4: the loss with and without margin."""
    by_sigma: dict[float, list[Line]] = {}
    for row in sorted(losses, key=lambda row: -_sigma(row)):
        margin, places = row.numbers["margin"], (row.curves["b"], row.curves["value"])
        name, like, dash = (
            ("no margin", "hinge", "--") if margin is None else (f"margin {margin:g}", "exact", "-")
        )
        line = Line(*places, name, _LOOK[like].colour, dash=dash)
        by_sigma.setdefault(_sigma(row), []).append(line)
    shade = best(THREE)[1]
    shown = [
        Panel(f"σ = {sigma:g}", lines, "threshold b", "" if place else "EXACT loss", shade_x=shade)
        for place, (sigma, lines) in enumerate(by_sigma.items())
    ]
    return layout.panels("toy-margin", shown)


# ----------------------------------------------------------------------------------- the blog's


def _claims(layout: Layout, trained: ByLoss) -> Iterator[Claim]:
    """The blog on the three points, the paper on the five: what training k as well does."""
    for toy, key, right in ((THREE, "blog", True), (FIVE, "paper", False)):
        highest = best(toy)[0]
        for loss in ("cross_entropy", "hinge"):
            row = trained.get((toy.name, loss))
            share = highest if right else TOY[toy.name][loss][2] / 100
            ours = "" if row is None else percent_text(row.metrics)
            reached = row is not None and row.metrics["accuracy"] > highest - 1e-9
            holds = None if row is None else reached == right
            yield layout.claim(key, ours, holds, loss=loss_name(loss), share=100 * share)


def _temperature(layout: Layout, fixed: ByLoss, trained: ByLoss, surface: ByLoss) -> Section:
    """The temperature held fixed, then trained."""
    by_k = layout.panels("toy-temperature", [_preferred(toy, fixed) for toy in _toys(fixed)])
    landscapes = [
        chart
        for toy in TOYS.values()
        for chart in _landscape(layout, toy, _of(surface, toy), _of(trained, toy))
    ]
    return layout.section(
        "temperature",
        grids=[_temperatures(layout, toy, fixed, trained) for toy in TOYS.values()],
        charts=(*by_k, *landscapes),
    )


def _temperatures(layout: Layout, toy: Toy, fixed: ByLoss, trained: ByLoss) -> Grid:
    found: list[tuple[str, str, Mapping[str, float]]] = []
    for loss in LOSSES:
        row = fixed.get((toy.name, loss))
        curves = {} if row is None else row.curves
        for i, k in enumerate(curves.get("k", ())):
            if any(abs(k - wanted) < 1e-9 * max(1.0, k) for wanted in toy.temperatures):
                found.append((loss, f"{k:g}", {name: curve[i] for name, curve in curves.items()}))
        row = trained.get((toy.name, loss))
        if row is not None:
            # A threshold far away and k near 0 is no threshold: all points are in one class.
            k_text = f"{row.metrics['k']:.3g}" if abs(row.metrics["k"]) >= 1e-3 else "0"
            found.append((loss, f"trained: {k_text}".replace("-", "−"), row.metrics))
    lines = [
        (loss_name(loss), k, place_text(at, toy), f"{at['loss']:.4f}", percent_text(at))
        for loss, k, at in found
    ]
    highest = f"{100 * best(toy)[0]:.0f} %"
    marked = [(i, 4) for i, line in enumerate(lines) if line[-1] == highest]
    return layout.grid("temperatures", lines, marked=marked, toy=toy.title)


def _preferred(toy: Toy, found: ByLoss) -> Panel:
    """The threshold that a loss prefers, for each k held fixed."""
    lines = []
    for loss, row in _of(found, toy).items():
        look, low, high = _LOOK[loss], row.curves["low"], row.curves["high"]
        pairs = list(zip(low, high, strict=True))
        middle = [(a + b) / 2 for a, b in pairs]
        own = Line(row.curves["k"], middle, loss_name(loss), look.colour, look.marker)
        lines.append(replace(own, band=(low, high)) if any(b > a + 1e-3 for a, b in pairs) else own)
    return Panel(
        toy.title, lines, "temperature k (for EXACT 1/σ)", "threshold b of the smallest loss",
        log="x", shade_y=best(toy)[1], x_ticks={0.1: "0.1", 1: "1", 10: "10"},
        y_range=_RANGES[toy.name],
    )  # fmt: skip


def _landscape(
    layout: Layout, toy: Toy, found: Mapping[str, Row], ends: Mapping[str, Row]
) -> Charts:
    """The losses over temperature and threshold, and where training ended."""
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
    key, told = f"toy-landscape-{toy.name}", f"Smallest loss in the picture: {ways}."
    return layout.panels(key, shown, told, part="toy-landscape", toy=toy.title)


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


def _reached(row: Row) -> str:
    return f"{row.metrics['reached']:.0f} of {row.metrics['starts']:.0f}"


def _first(row: Row) -> str:
    return f"{place_text(row.metrics, TOYS[row.table])}, {percent_text(row.metrics)}"


def _starts(layout: Layout, rows: Sequence[Row]) -> Section:
    """From how many random starts training ends at the highest accuracy."""
    found: ByLoss = {}
    order: dict[tuple[bool, float], str] = {}  # k trained, then σ lowered by margin → the way
    for row in rows:
        if row.fold == "trained":
            way = order[False, LOSSES.index(row.loss)] = f"{loss_name(row.loss)}, k trained"
            found[row.table, way] = row
        elif row.fold == "lowered":
            margin = row.numbers["margin"] or 0.0
            text = f", margin {margin:g}" if margin else ""
            way = order[True, margin] = f"EXACT, σ lowered{text}"
            found[row.table, way] = row
    ways = [order[key] for key in sorted(order)]
    lines = []
    shown: dict[str, dict[str, tuple[float, str]]] = {}
    for toy in _toys(found):
        title = f"{toy.title}, best is {100 * best(toy)[0]:.0f} %"
        for way in [way for way in ways if (toy.name, way) in found]:
            row = found[toy.name, way]
            share, mean = (
                row.metrics["reached"] / row.metrics["starts"],
                row.metrics["mean_accuracy"],
            )
            lines.append((toy.title, way, _first(row), _reached(row), f"{100 * mean:.1f} %"))
            shown.setdefault(title, {})[way] = 100 * share, _LOOK[row.loss].colour
    # On a phone the colour says which loss it is, or that k is trained.
    short = {way: way.replace(", k trained", "").replace("EXACT, ", "") for way in ways}
    draw = partial(bars, shown=shown, names=short, label="starts that end at the best (%)")
    charts = [layout.chart("toy-starts", "", draw)] if shown else []
    return layout.section("starts", grids=[layout.grid("ends", lines)], charts=charts)


def _noises(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """Other noise in the place of the normal, and -log P in the place of P."""
    found = {
        (row.table, str(row.numbers["noise"]), bool(row.numbers["log"]), row.numbers["way"]): row
        for row in rows
        if row.fold == "noise"
    }
    for toy in TOYS.values():
        for kind, name in _NOISES.items():
            both = [found.get((toy.name, *kind, way)) for way in ("trained", "lowered")]
            cells = [(_first(row), _reached(row)) if row else (NONE, NONE) for row in both]
            if any(both):
                yield (toy.title, name, *cells[0], *cells[1])
