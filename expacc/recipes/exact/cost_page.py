"""The page of exact-cost."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from expacc.recipes.exact.cost_charts import METHODS, bytes_text, growth_chart, seconds_text
from expacc.recipes.page import Comparison, Grid, Number, Page, Section
from expacc.runner.rows import Row

__all__ = ["exponent", "write"]

CLAIM = (
    "EXACT's cost is O(N C²) in time and in memory, N samples and C classes (Section 6.3, Figure "
    "7). In training that is up to 200 % for linear models, 3.7 % for Wide ResNet 16-8, and 0.3 % "
    "for Wide ResNet 28-10 with 10 classes, 5.5 % with 100."
)
FROM = {"classes": 32, "samples": 8}  # exponents are fitted from here on: below, calls cost more
PRINTED = {  # Section 6.3: growth with classes and with samples, time and memory alike
    ("genz", "classes"): 2.0,
    ("genz", "samples"): 1.0,
}
OVERHEADS = {  # Section 6.3: percent of rows per second lost
    ("wrn-16-8", 10): 3.7,
    ("wrn-28-10", 10): 0.3,
    ("wrn-28-10", 100): 5.5,
}
LINEAR = 200.0  # Section 6.3: "can achieve"
NAMES = {"wrn-16-8": "Wide ResNet 16-8", "wrn-28-10": "Wide ResNet 28-10"}
SLACK = 0.25  # of an exponent
EXACT = ("genz", "ours", "ours_plain")
METRICS = {"seconds": "time", "peak_bytes": "memory"}

Found = dict[str, dict[int, Row]]


def write(rows: Sequence[Row], facts: Mapping[str, Any]) -> Page:
    """The page from the rows that there are."""
    good = sorted((row for row in rows if row.failure is None), key=lambda row: row.key)
    parts = {part: _by(good, part) for part in FROM}
    networks = {(r.loss, int(r.numbers["classes"])): r for r in good if r.table == "network"}
    linear = {(r.loss, int(r.numbers["classes"])): r for r in good if r.table == "linear"}
    sections = []
    if any(parts.values()):
        sections.append(_growth(parts))
    if parts["classes"]:
        sections.append(_classes(parts["classes"], networks))
    if parts["samples"]:
        sections.append(_samples(parts["samples"]))
    if linear or (networks and parts["classes"]):
        sections.append(_overheads(parts["classes"], networks, linear))
    return Page(
        title="What EXACT costs",
        claim=CLAIM,
        answer=_answer(parts),
        sections=tuple(sections),
        deviations=_deviations(facts, networks),
    )


def _by(rows: Sequence[Row], part: str) -> Found:
    found: Found = {}
    for row in rows:
        if row.table == part:
            found.setdefault(row.loss, {})[int(row.numbers[part])] = row
    return {method: dict(sorted(found[method].items())) for method in METHODS if method in found}


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


def _ratio(found: Found, classes: int, metric: str, method: str, by: str) -> float | None:
    above, below = (found.get(name, {}).get(classes) for name in (method, by))
    if above is None or below is None or metric not in above.metrics or metric not in below.metrics:
        return None
    return above.metrics[metric] / below.metrics[metric]


def _answer(parts: Mapping[str, Found]) -> str:
    said = []
    words = []
    found = parts["classes"]
    for method, name in (("genz", "Genz'"), ("ours", "ours")):
        by = [
            (METRICS[metric], exponent(found.get(method, {}), metric, FROM["classes"]))
            for metric in METRICS
        ]
        slopes = [f"{slope[0]:.2f} in {what}" for what, slope in by if slope is not None]
        if slopes:
            words.append(f"{name} {' and '.join(slopes)}")
    if words:
        said.append(f"Growth with the classes, as a power of their number: {'; '.join(words)}.")
    both = [c for c in found.get("ours", {}) if _ratio(found, c, "seconds", "genz", "ours")]
    if both:
        most = max(both)
        time, memory = (_ratio(found, most, m, "genz", "ours") for m in METRICS)
        if time is not None and memory is not None:
            said.append(
                f"At {most} classes Genz' takes {_times(time)} times our time and "
                f"{_times(memory)} times our memory{_not_run(found.get('genz', {}))}."
            )
        dearer = [c for c in both if (_ratio(found, c, "seconds", "genz", "ours") or 2) < 1]
        if dearer:
            said.append(f"With {_list(dearer)} classes ours is the slower.")
    usual = "cross_entropy"
    against = [c for c in found.get("ours", {}) if _ratio(found, c, "seconds", "ours", usual)]
    if against:
        ratios = [_ratio(found, c, "seconds", "ours", usual) or 0.0 for c in against]
        takes = f"takes {_times(min(ratios))} to {_times(max(ratios))} times"
        said.append(
            f"Cross entropy stays cheaper: ours {takes} its time."
            if min(ratios) > 1
            else f"Ours {takes} the time of cross entropy."
        )
    return " ".join(said) or "Nothing has been measured yet."


def _times(ratio: float) -> str:
    """Two digits, without a power of ten."""
    return f"{float(f'{ratio:.2g}'):,g}"


def _list(values: Sequence[object]) -> str:
    words = [str(value) for value in values]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _not_run(genz: Mapping[int, Row]) -> str:
    lost = {size: row for size, row in genz.items() if "needed_bytes" in row.metrics}
    if not lost:
        return ""
    first = min(lost)
    return f"; from {first:,} on, {bytes_text(lost[first].metrics['needed_bytes'])}, it was not run"


def _growth(parts: Mapping[str, Found]) -> Section:
    beside = []
    for part, found in parts.items():
        for method, name in METHODS.items():
            for metric, what in METRICS.items():
                fitted = exponent(found.get(method, {}), metric, FROM[part])
                if fitted is None or (part == "samples" and method == "cross_entropy"):
                    continue
                slope, count = fitted
                printed = PRINTED.get((method, part))
                theirs = None if printed is None else Number(printed)
                note = f"{count} points from {FROM[part]} {part} on"
                beside.append(Comparison((name, f"{what} by {part}"), theirs, Number(slope), note))
    return Section(
        title="Growth exponents",
        text=(
            "Slopes of lines through the logarithms, by least squares. For ours the nodes of the "
            "rule take the place of samples; in use it has 15 to 40 whatever the classes.",
            *_per_number(parts.get("classes", {}).get("genz", {})),
        ),
        beside=tuple(beside),
        beside_head=("method", "what"),
        unit="exponents",
        slack=SLACK,
    )


def _per_number(genz: Mapping[int, Row]) -> tuple[str, ...]:
    """Why Genz' time may grow faster than its operations: what a number of its buffers takes."""
    done = [
        c for c, row in genz.items() if c >= FROM["classes"] and row.metrics.get("peak_bytes", 0)
    ]
    fitted = exponent(genz, "seconds", FROM["classes"])
    if fitted is None or fitted[0] <= PRINTED["genz", "classes"] + SLACK or len(done) < 2:
        return ()
    ends = [(c, 4e9 * genz[c].metrics["seconds"] / genz[c].metrics["peak_bytes"]) for c in done]
    words = [f"{each:.1f} ns at {c}" for c, each in (ends[0], ends[-1])]
    return (
        f"Genz' time grows faster than its operations do: a number in its buffers takes "
        f"{' and '.join(words)} classes, for these buffers outgrow the processor's caches.",
    )


def _classes(found: Found, networks: Mapping[tuple[str, int], Row]) -> Section:
    lines = []
    sizes = sorted({size for rows in found.values() for size in rows})
    for size in sizes:
        cells = [f"{size:,}"]
        for metric, text in (("seconds", seconds_text), ("peak_bytes", bytes_text)):
            for method in found:
                row = found.get(method, {}).get(size)
                if row is None:
                    cells.append("–")
                elif metric in row.metrics:
                    cells.append(text(row.metrics[metric]))
                else:
                    needed = bytes_text(row.metrics["needed_bytes"])
                    cells.append(f"needs {needed}" if metric == "peak_bytes" else "not run")
        lines.append(tuple(cells))
    small = networks.get(("wrn-16-8", 10))
    network = None
    if small is not None:
        per_image = small.metrics["seconds"] / int(small.numbers["rows"])
        network = (f"{NAMES['wrn-16-8']}, an image", per_image)
    any_row = next(iter(next(iter(found.values())).values()))
    caption = (
        f"Forward and backward of a batch of {any_row.numbers['rows']}, 16 samples, by row of the "
        "batch. Both axes are logarithmic. Hollow marks were not run: this is what they would need."
    )
    finding = _finding(found)
    return Section(
        title="Against the number of classes",
        charts=(growth_chart(found, "classes", "Cost by classes", caption, finding, network),),
        grids=(
            Grid(
                title=f"A batch of {any_row.numbers['rows']}, forward and backward",
                head=("classes", *(f"{METHODS[method]}, {what}" for what in METRICS.values()
                                   for method in found)),
                rows=tuple(lines),
                note=_room_note(found.get("genz", {})),
            ),
        ),
    )  # fmt: skip


def _room_note(genz: Mapping[int, Row]) -> str:
    rooms = [row.metrics["room_bytes"] for row in genz.values() if "room_bytes" in row.metrics]
    if not rooms:
        return ""
    return f"Not run: Genz' buffers would not fit in the {bytes_text(min(rooms))} left to a loss."


def _finding(found: Found) -> str:
    words = []
    for method, name in METHODS.items():
        rows = {at: row for at, row in found.get(method, {}).items() if "seconds" in row.metrics}
        if rows:
            row = rows[max(rows)]
            words.append(
                f"{name} {seconds_text(row.metrics['seconds'])} and "
                f"{bytes_text(row.metrics['peak_bytes'])} at {max(rows):,}"
            )
    return f"A whole batch at the largest size that was run: {'; '.join(words)}."


def _samples(found: Found) -> Section:
    any_row = next(iter(next(iter(found.values())).values()))
    caption = (
        f"{any_row.numbers['classes']} classes, forward and backward, by row of the batch. Ours "
        "with so many nodes is plain torch; cross entropy draws no samples and is there to "
        "compare. Both axes are logarithmic."
    )
    drawn = growth_chart(found, "samples", "Cost by samples", caption, _finding(found))
    return Section(title="Against the number of samples", charts=(drawn,))


def _overheads(
    found: Found, networks: Mapping[tuple[str, int], Row], linear: Mapping[tuple[str, int], Row]
) -> Section:
    beside = []
    sizes = sorted({classes for _, classes in linear})
    for method in EXACT:
        extra = [
            100
            * (
                linear[method, c].metrics["seconds"] / linear["cross_entropy", c].metrics["seconds"]
                - 1
            )
            for c in sizes
            if (method, c) in linear and ("cross_entropy", c) in linear
        ]
        if extra:
            theirs = Number(LINEAR) if method == "genz" else None
            span = f"from {min(extra):.0f} to {max(extra):.0f} %"
            note = f"a step of SGD, {_list(sizes)} classes, {span}"
            beside.append(
                Comparison(
                    ("linear model, at most", METHODS[method]), theirs, Number(max(extra)), note
                )
            )
    for (name, classes), printed in OVERHEADS.items():
        network = networks.get((name, classes))
        for method in EXACT:
            lost = None if network is None else _lost(found, network, classes, method)
            if network is not None and lost is not None:
                theirs = Number(printed) if method == "genz" else None
                label = f"{NAMES[name]}, {classes} classes"
                note = _each_text(found, network, classes, method)
                beside.append(Comparison((label, METHODS[method]), theirs, Number(lost), note))
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


def _lost(found: Found, network: Row, classes: int, method: str) -> float | None:
    """Percent of rows per second: 1 - (network + cross entropy) / (network + EXACT)."""
    loss, usual = (found.get(name, {}).get(classes) for name in (method, "cross_entropy"))
    if loss is None or usual is None or "seconds" not in loss.metrics:
        return None
    each = [_each(row) for row in (network, usual, loss)]
    return 100 * (1 - (each[0] + each[1]) / (each[0] + each[2]))


def _each(row: Row) -> float:
    """Seconds of a row of the batch."""
    return row.metrics["seconds"] / int(row.numbers["rows"])


def _each_text(found: Found, network: Row, classes: int, method: str) -> str:
    loss = _each(found[method][classes])
    return (
        f"an image takes the network {seconds_text(_each(network))}, the loss {seconds_text(loss)}"
    )


def _deviations(
    facts: Mapping[str, Any], networks: Mapping[tuple[str, int], Row]
) -> tuple[str, ...]:
    if str(facts.get("device", "cpu")).startswith("cuda"):
        clock = "The wall's clock after synchronising, and the peak of torch's allocator."
        scope = (
            "Times belong to this GPU, and so do their exponents as long as it is not full: much "
            "of a small batch is waiting for kernels to start. What Genz' stores is the same "
            "anywhere."
        )
    else:
        clock = (
            "One thread of a CPU instead of a V100: the clock is the CPU time of the process, and "
            "memory the peak of what torch allocates."
        )
        scope = "Overheads therefore belong to this machine; exponents do not."
    images = sorted({int(row.numbers["rows"]) for row in networks.values()})
    batches = (
        f" Networks are timed with batches of {_list(images)}, losses with 256; both are divided "
        "by their rows."
        if images
        else ""
    )
    return (
        f"{clock}{batches} {scope}",
        "Genz' sampler is a transcription of the authors' in fewer passes over memory, with their "
        "buffers. Every method is timed as a whole loss: standardising, margin, integral.",
    )
