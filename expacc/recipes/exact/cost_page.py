"""The page of exact-cost."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from expacc.recipes.exact.charts import COSTED, BySize, growth_chart
from expacc.recipes.exact.paper import COST, page_of
from expacc.recipes.page import Claim, Comparison, Grid, Number, Page, Section
from expacc.report.words import NONE, bytes_text, listed, seconds_text
from expacc.runner.rows import Row

__all__ = ["exponent", "write"]

FROM = {"classes": 32, "samples": 8}  # exponents are fitted from here on: below, calls cost more
NAMES = {"wrn-16-8": "Wide ResNet 16-8", "wrn-28-10": "Wide ResNet 28-10"}
SLACK = 0.25  # of an exponent
EXACT = ("genz", "ours", "ours_plain")
METRICS = {"seconds": "time", "peak_bytes": "memory"}

ByName = dict[tuple[str, int], Row]  # loss or network, and classes → row


def write(rows: Sequence[Row], facts: Mapping[str, Any]) -> Page:
    """The page from the rows that there are."""
    good = sorted((row for row in rows if row.failure is None), key=lambda row: row.key)
    parts = {part: _by(good, part) for part in FROM}
    networks, linear = (
        {(r.loss, int(r.numbers["classes"])): r for r in good if r.table == part}
        for part in ("network", "linear")
    )
    by_classes, by_samples = parts["classes"], parts["samples"]
    return page_of(
        "exact-cost",
        {"device": "cpu", **facts},
        (
            _growth(parts),
            *([_classes(by_classes, networks)] if by_classes else []),
            *([_samples(by_samples)] if by_samples else []),
            _overheads(by_classes, networks, linear),
        ),
        (_claim(by_classes),),
    )


def _claim(found: BySize) -> Claim:
    fits = [exponent(found.get("genz", {}), metric, FROM["classes"]) for metric in METRICS]
    slopes, printed = [fit[0] for fit in fits if fit], COST["exponents"]["classes"]
    says = "The authors' sampler grows with the square of the classes, in time and memory"
    holds = all(abs(slope - printed) <= SLACK for slope in slopes) if slopes else None
    ours = listed([f"{slope:.2f}" for slope in slopes]) if slopes else ""
    return Claim(says, f"{printed:g}", ours, holds, headline=True)


def _by(rows: Sequence[Row], part: str) -> dict[str, dict[int, Row]]:
    found: dict[str, dict[int, Row]] = {}
    for row in rows:
        if row.table == part:
            found.setdefault(row.loss, {})[int(row.numbers[part])] = row
    return {method: dict(sorted(found[method].items())) for method in COSTED if method in found}


def exponent(by_size: Mapping[int, Row], metric: str, least: int) -> tuple[float, int] | None:
    """The slope of a line through the logarithms, by least squares, and of how many points."""
    points = [
        (math.log(size), math.log(row.metrics[metric]))
        for size, row in by_size.items()
        if size >= least and row.metrics.get(metric, 0) > 0
    ]
    if len(points) < 3:
        return None
    x = sum(point[0] for point in points) / len(points)
    y = sum(point[1] for point in points) / len(points)
    slope = sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)
    return slope, len(points)


def _ratio(found: BySize, size: int, metric: str, above: str, below: str) -> float | None:
    both = [found.get(method, {}).get(size) for method in (above, below)]
    values = [row.metrics.get(metric) for row in both if row is not None]
    return None if len(values) < 2 or None in values else values[0] / values[1]  # type: ignore[operator]


def _ratios(found: BySize) -> list[tuple[str, ...]]:
    """Classes; Genz over ours in time and memory; ours over cross entropy in time."""
    asked = (("seconds", "genz", "ours"), ("peak_bytes", "genz", "ours"),
             ("seconds", "ours", "cross_entropy"))  # fmt: skip
    lines = []
    for size in found.get("ours", {}):
        values = [_ratio(found, size, *one) for one in asked]
        if values[0] is not None:
            lines.append(
                (f"{size:,}", *(NONE if v is None else f"{float(f'{v:.2g}'):,g}" for v in values))
            )
    return lines


def _growth(parts: Mapping[str, BySize]) -> Section:
    beside = []
    for part, found in parts.items():
        for method, name in COSTED.items():
            for metric, what in METRICS.items():
                fitted = exponent(found.get(method, {}), metric, FROM[part])
                if fitted is None or (part == "samples" and method == "cross_entropy"):
                    continue
                slope, count = fitted
                theirs = Number(COST["exponents"][part]) if method == "genz" else None
                note = f"{count} points from {FROM[part]} {part} on"
                beside.append(Comparison((name, f"{what} by {part}"), theirs, Number(slope), note))
    return Section(
        title="Growth exponents",
        text=(
            "Slopes of lines through the logarithms, by least squares. For ours the nodes of the "
            "rule take the place of samples; in use it has 15 to 40 whatever the classes. Genz' "
            "time may grow faster than its operations do, where its buffers outgrow the "
            "processor's caches: the next table has what a number in them takes.",
        ),
        beside=tuple(beside),
        beside_head=("method", "what"),
        unit="exponents",
        slack=SLACK,
    )


def _classes(found: BySize, networks: ByName) -> Section:
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
        lines.append(tuple(cells))
    small = networks.get(("wrn-16-8", 10))
    network = (_each(small), f"{NAMES['wrn-16-8']}, an image") if small is not None else None
    batch = next(iter(next(iter(found.values())).values())).numbers["rows"]
    caption = (
        f"Forward and backward of a batch of {batch}, 16 samples, by row of the batch. Both axes "
        "are logarithmic. Hollow marks were not run: this is what they would need."
    )
    methods = [f"{COSTED[method]}, {what}" for what in METRICS.values() for method in found]
    head = ("classes", *methods, "Genz, a number")
    ratios = ("classes", "Genz / ours, time", "Genz / ours, memory", "ours / cross entropy, time")
    return Section(
        title="Against the number of classes",
        charts=(growth_chart(found, "classes", "Cost by classes", caption, network),),
        grids=(
            Grid(
                title=f"A batch of {batch}, forward and backward",
                head=head,
                rows=tuple(lines),
                note="Not run: Genz' buffers would not fit in the 2 GiB, or half of a GPU's free "
                "memory, that a loss is given.",
            ),
            Grid("How many times as much", ratios, tuple(_ratios(found))),
        ),
    )


def _samples(found: BySize) -> Section:
    classes = next(iter(next(iter(found.values())).values())).numbers["classes"]
    caption = (
        f"{classes} classes, forward and backward, by row of the batch. Ours with so many nodes is "
        "plain torch; cross entropy draws no samples and is there to compare. Both axes are "
        "logarithmic."
    )
    drawn = growth_chart(found, "samples", "Cost by samples", caption)
    return Section(title="Against the number of samples", charts=(drawn,))


def _overheads(found: BySize, networks: ByName, linear: ByName) -> Section:
    beside = []
    usual = {c: row.metrics["seconds"] for (m, c), row in linear.items() if m == "cross_entropy"}
    for method in EXACT:
        extra = [100 * (linear[method, c].metrics["seconds"] / seconds - 1)
                 for c, seconds in sorted(usual.items()) if (method, c) in linear]  # fmt: skip
        if extra:
            theirs = Number(COST["linear"]) if method == "genz" else None
            sizes = ", ".join(str(c) for c in sorted(usual))
            note = f"a step of SGD, {sizes} classes, from {min(extra):.0f} to {max(extra):.0f} %"
            labels = ("linear model, at most", COSTED[method])
            beside.append(Comparison(labels, theirs, Number(max(extra)), note))
    for name, printed in COST["overheads"].items():
        for classes, percent in printed.items():
            network = networks.get((name, int(classes)))
            for method in EXACT:
                both = [found.get(m, {}).get(int(classes)) for m in (method, "cross_entropy")]
                times = [_each(row) for row in (network, *both) if row and "seconds" in row.metrics]
                if len(times) < 3:
                    continue
                image, loss, plain = times
                lost = 100 * (1 - (image + plain) / (image + loss))  # of the rows per second
                theirs = Number(percent) if method == "genz" else None
                note = (
                    f"an image takes the network {seconds_text(image)}, the loss "
                    f"{seconds_text(loss)}"
                )
                labels = (f"{NAMES[name]}, {classes} classes", COSTED[method])
                beside.append(Comparison(labels, theirs, Number(lost), note))
    return Section(
        title="Overhead in training",
        text=(
            "For networks, the share of rows per second that is lost when cross entropy gives way "
            "to EXACT, from the times of network and loss; for linear models, the time added to a "
            "step of training.",
        ),
        beside=tuple(beside),
        beside_head=("model", "EXACT by"),
        unit="percent",
        slack=0.5,
    )


def _each(row: Row) -> float:
    """Seconds of a row of the batch."""
    return row.metrics["seconds"] / int(row.numbers["rows"])
