"""The page of exact-cost."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from expacc.recipes.exact import COST
from expacc.recipes.page import Claim, Comparison, Number, Page, Section
from expacc.recipes.paper import Layout
from expacc.report.figures import Chart
from expacc.report.panels import Line, Panel, powers
from expacc.report.words import NONE, bytes_text, listed, looks, seconds_text
from expacc.runner.rows import Row

FROM = {"classes": 32, "samples": 8}  # exponents are fitted from here on: below, calls cost more
NAMES = {"wrn-16-8": "Wide ResNet 16-8", "wrn-28-10": "Wide ResNet 28-10"}
SLACK = 0.25  # of an exponent
EXACT = ("genz", "ours", "ours_plain")
METRICS = {"seconds": "time", "peak_bytes": "memory"}
METHODS = {
    "genz": "Genz",
    "ours": "ours",
    "ours_plain": "ours in plain torch",
    "cross_entropy": "cross entropy",
}
TICKS = (1, 2, 4, 10, 16, 32, 64, 100, 256, 1000, 4000)
_LIKE = {"genz": "mixed_expected_error", "ours_plain": "focal", "ours": "exact"}
_LOOK = looks({*_LIKE.values(), "cross_entropy", "hinge", "leaky_expected_error"})

BySize = Mapping[str, Mapping[int, Row]]  # method → samples or classes → row
ByName = dict[tuple[str, int], Row]  # loss or network, and classes → row


def write(rows: Sequence[Row], facts: Mapping[str, Any]) -> Page:
    """The page from the rows that there are."""
    good = sorted((row for row in rows if row.failure is None), key=lambda row: row.key)
    parts = {part: _by(good, part) for part in FROM}
    networks, linear = (
        {(r.loss, int(r.numbers["classes"])): r for r in good if r.table == part}
        for part in ("network", "linear")
    )
    layout = Layout("exact", "exact-cost", {"device": "cpu", **facts})
    by_classes, by_samples = parts["classes"], parts["samples"]
    overheads = [*_linear_overheads(linear), *_network_overheads(by_classes, networks)]
    return layout.page(
        (
            layout.section("growth", beside=_exponents(parts)),
            *([_classes(layout, by_classes, networks)] if by_classes else []),
            layout.section("samples", charts=_chart(layout, by_samples, "samples")),
            layout.section("overhead", beside=overheads),
        ),
        [_claim(layout, by_classes)],
    )


def _claim(layout: Layout, found: BySize) -> Claim:
    fits = [exponent(found.get("genz", {}), metric, FROM["classes"]) for metric in METRICS]
    slopes, printed = [fit[0] for fit in fits if fit], COST["exponents"]["classes"]
    holds = all(abs(slope - printed) <= SLACK for slope in slopes) if slopes else None
    ours = listed([f"{slope:.2f}" for slope in slopes]) if slopes else ""
    return layout.claim("square", ours, holds, printed=printed)


def _by(rows: Sequence[Row], part: str) -> dict[str, dict[int, Row]]:
    found: dict[str, dict[int, Row]] = {}
    for row in rows:
        if row.table == part:
            found.setdefault(row.loss, {})[int(row.numbers[part])] = row
    return {method: dict(sorted(found[method].items())) for method in METHODS if method in found}


def exponent(by_size: Mapping[int, Row], metric: str, least: int) -> tuple[float, int] | None:
    """The slope of a line through the logarithms, by least squares, and of how many points."""
    measured = {size: row.metrics.get(metric, 0) for size, row in by_size.items() if size >= least}
    points = [(size, value) for size, value in measured.items() if value > 0]
    if len(points) < 3:
        return None
    sizes, values = np.log(points).T
    return float(np.polyfit(sizes, values, 1)[0]), len(points)


def _ratios(found: BySize) -> Iterator[tuple[str, ...]]:
    """Classes; Genz over ours in time and memory; ours over cross entropy in time."""
    asked = (("seconds", "genz", "ours"), ("peak_bytes", "genz", "ours"),
             ("seconds", "ours", "cross_entropy"))  # fmt: skip
    for size in found.get("ours", {}):
        cells = []
        for metric, *both in asked:
            rows = [found.get(method, {}).get(size) for method in both]
            above, below = (row.metrics.get(metric) if row else None for row in rows)
            cells.append(f"{float(f'{above / below:.2g}'):,g}" if above and below else NONE)
        if cells[0] != NONE:
            yield (f"{size:,}", *cells)


def _exponents(parts: Mapping[str, BySize]) -> Iterator[Comparison]:
    for part, found in parts.items():
        for method, name in METHODS.items():
            for metric, what in METRICS.items():
                fitted = exponent(found.get(method, {}), metric, FROM[part])
                if fitted is None or (part == "samples" and method == "cross_entropy"):
                    continue
                slope, count = fitted
                theirs = Number(COST["exponents"][part]) if method == "genz" else None
                note = f"{count} points from {FROM[part]} {part} on"
                yield Comparison((name, f"{what} by {part}"), theirs, Number(slope), note)


def _classes(layout: Layout, found: BySize, networks: ByName) -> Section:
    lines = []
    for size in sorted({size for rows in found.values() for size in rows}):
        cells = [f"{size:,}"]
        for metric, text in (("seconds", seconds_text), ("peak_bytes", bytes_text)):
            for rows in found.values():
                metrics = rows[size].metrics if size in rows else {}
                instead = {"seconds": "not run", "peak_bytes": NONE}[metric]
                if metric == "peak_bytes" and "needed_bytes" in metrics:
                    instead = f"needs {bytes_text(metrics['needed_bytes'])}"
                cells.append(text(metrics[metric]) if metric in metrics else instead)
        genz = found.get("genz", {}).get(size)
        peak = genz.metrics.get("peak_bytes", 0) if genz else 0
        cells.append(f"{4e9 * genz.metrics['seconds'] / peak:.1f} ns" if genz and peak else NONE)
        lines.append(cells)
    small = networks.get(("wrn-16-8", 10))
    network = (_each(small), f"{NAMES['wrn-16-8']}, an image") if small is not None else None
    batch = _first(found).numbers["rows"]
    methods = [f"{METHODS[method]}, {what}" for what in METRICS.values() for method in found]
    return layout.section(
        "classes",
        charts=_chart(layout, found, "classes", network),
        grids=(
            layout.grid("batch", lines, columns=methods, batch=batch),
            layout.grid("ratios", _ratios(found)),
        ),
    )


def _first(found: BySize) -> Row:
    return next(iter(next(iter(found.values())).values()))


def _chart(
    layout: Layout, found: BySize, by: str, network: tuple[float, str] | None = None
) -> tuple[Chart, ...]:
    """Time and memory of a row of the batch; a network's time is a line across."""
    if not found:
        return ()
    shown = [_panel(found, "seconds", by, network), _panel(found, "peak_bytes", by, None)]
    numbers = _first(found).numbers
    words = {"batch": numbers["rows"], "count": numbers["classes"]}
    return layout.panels(f"cost-{by}", shown, **words)


def _panel(found: BySize, metric: str, by: str, network: tuple[float, str] | None) -> Panel:
    lines = []
    for method, rows in found.items():
        look = _LOOK[_LIKE.get(method, method)]
        each = {n: int(row.numbers["rows"]) for n, row in sorted(rows.items())}
        done = {n: rows[n].metrics[metric] / each[n] for n in each if metric in rows[n].metrics}
        style = (look.colour, look.marker)
        lines.append(Line(list(done), list(done.values()), METHODS[method], *style))
        needed = {n: rows[n].metrics.get("needed_bytes", 0.0) / each[n] for n in each}
        lost = {n: size for n, size in needed.items() if size and metric == "peak_bytes"}
        if lost:  # what was not run, and would need this
            lines.append(Line(list(lost), list(lost.values()), "", *style, ":", 1.3, True))
    values = [value for line in lines for value in line.y] + ([network[0]] if network else [])
    sizes = {size for line in lines for size in line.x}
    wanted = [n for n in TICKS if n in sizes]
    kept = [n for place, n in enumerate(wanted) if not place or n >= 2.4 * wanted[place - 1]]
    is_time = metric == "seconds"
    text, at = (seconds_text, powers(values, 10)) if is_time else (
        bytes_text, powers(values, 32, 1024))  # fmt: skip
    return Panel(
        f"{METRICS[metric]} of a row",
        lines,
        {"classes": "classes", "samples": "samples, or nodes"}[by],
        log="xy",
        x_ticks={n: f"{n:,}" for n in kept},
        y_ticks={one: text(one) for one in at},
        level=network,
    )


def _linear_overheads(linear: ByName) -> Iterator[Comparison]:
    """The time added to a step of training, at most."""
    usual = {c: row.metrics["seconds"] for (m, c), row in linear.items() if m == "cross_entropy"}
    for method in EXACT:
        extra = [100 * (linear[method, c].metrics["seconds"] / seconds - 1)
                 for c, seconds in sorted(usual.items()) if (method, c) in linear]  # fmt: skip
        if extra:
            theirs = Number(COST["linear"]) if method == "genz" else None
            sizes = ", ".join(str(c) for c in sorted(usual))
            note = f"a step of SGD, {sizes} classes, from {min(extra):.0f} to {max(extra):.0f} %"
            labels = ("linear model, at most", METHODS[method])
            yield Comparison(labels, theirs, Number(max(extra)), note)


def _network_overheads(found: BySize, networks: ByName) -> Iterator[Comparison]:
    """The share of rows per second that is lost, from the times of network and loss."""
    for name, classes, percent in [
        (name, int(classes), percent)
        for name, printed in COST["overheads"].items()
        for classes, percent in printed.items()
    ]:
        for method in EXACT:
            both = [found.get(m, {}).get(classes) for m in (method, "cross_entropy")]
            timed = (networks.get((name, classes)), *both)
            times = [_each(row) for row in timed if row and "seconds" in row.metrics]
            if len(times) == 3:
                image, loss, plain = times
                lost = 100 * (1 - (image + plain) / (image + loss))
                theirs = Number(percent) if method == "genz" else None
                spent = [seconds_text(one) for one in (image, loss)]
                note = f"an image takes the network {spent[0]}, the loss {spent[1]}"
                labels = (f"{NAMES[name]}, {classes} classes", METHODS[method])
                yield Comparison(labels, theirs, Number(lost), note)


def _each(row: Row) -> float:
    """Seconds of a row of the batch."""
    return row.metrics["seconds"] / int(row.numbers["rows"])
