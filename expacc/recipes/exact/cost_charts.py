"""The charts of exact-cost: time and memory against classes and samples."""

from collections.abc import Callable, Mapping, Sequence
from math import ceil, floor, log10

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from expacc.report.figures import Chart, chart, tidy_axes
from expacc.report.palette import INK, MUTED, looks
from expacc.runner.rows import Row

__all__ = ["METHODS", "bytes_text", "growth_chart", "seconds_text"]

METHODS = {
    "genz": "Genz",
    "ours": "ours",
    "ours_plain": "ours in plain torch",
    "cross_entropy": "cross entropy",
}
_LOOK = looks({"cross_entropy", "exact", "mixed_expected_error", "focal"})
_STYLE = {
    "genz": _LOOK["mixed_expected_error"],
    "ours": _LOOK["exact"],
    "ours_plain": _LOOK["focal"],
    "cross_entropy": _LOOK["cross_entropy"],
}
Found = Mapping[str, Mapping[int, Row]]  # method → classes or samples → row


def seconds_text(seconds: float) -> str:
    """Seconds in a unit that suits them.

    >>> seconds_text(2.5e-6), seconds_text(0.0123), seconds_text(3.0)
    ('2.5 µs', '12 ms', '3 s')
    """
    units = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
    unit, size = next((one for one in units if seconds >= 0.9995 * one[1]), units[-1])
    return f"{float(f'{seconds / size:.2g}'):g} {unit}"


def bytes_text(count: float) -> str:
    """Bytes in a unit that suits them.

    >>> bytes_text(512), bytes_text(16.4e9)
    ('512 bytes', '15 GiB')
    """
    if count < 1024:
        return f"{count:.0f} bytes"
    units = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
    unit, size = next(one for one in units if count >= one[1])
    return f"{float(f'{count / size:.2g}'):g} {unit}"


def growth_chart(
    found: Found,
    by: str,
    title: str,
    caption: str,
    finding: str,
    network: tuple[str, float] | None = None,
) -> Chart:
    """Time and memory of a row of the batch.

    Args:
        found: the rows.
        by: 'classes' or 'samples'.
        title: of the chart.
        caption: of the chart.
        finding: of the chart.
        network: name and seconds per image of a network, drawn as a line.
    """
    panels = (("seconds", "time of a row"), ("peak_bytes", "memory of a row"))

    def draw(width: float) -> Figure:
        wide = width > 5
        figure = Figure(figsize=(width, 3.5 if wide else 5.7))
        grid = figure.subplots(1 if wide else 2, 2 if wide else 1, squeeze=False)
        for axes, (metric, name) in zip(grid.flat, panels, strict=True):
            _lines(axes, found, metric, network if metric == "seconds" else None)
            axes.set_title(name, color=INK)
            axes.set_xlabel("classes" if by == "classes" else "samples, or nodes")
            tidy_axes(axes, grid="both")
        handles, names = grid.flat[0].get_legend_handles_labels()
        if wide:
            figure.legend(handles, names, loc="outside lower center", ncols=5)
        else:
            figure.legend(handles, names, loc="outside lower left")
        return figure

    return chart(f"cost-{by}", title, caption, finding, draw)


def _lines(axes: Axes, found: Found, metric: str, network: tuple[str, float] | None) -> None:
    values: list[float] = []
    places: set[int] = set()
    for method, name in METHODS.items():
        rows = [(at, row) for at, row in sorted(found.get(method, {}).items())]
        points = [(at, r.metrics[metric] / int(r.numbers["rows"])) for at, r in rows
                  if metric in r.metrics]  # fmt: skip
        if not points:
            continue
        look = _STYLE[method]
        across, up = zip(*points, strict=True)
        values += up
        places |= set(across)
        axes.plot(across, up, color=look.colour, lw=1.8, marker=look.marker, ms=4.5, label=name)
        lost = [(at, r.metrics["needed_bytes"] / int(r.numbers["rows"])) for at, r in rows
                if "needed_bytes" in r.metrics]  # fmt: skip
        if lost and metric == "peak_bytes":
            places |= {at for at, _ in lost}
            values += [needed for _, needed in lost]
            axes.plot(*zip(*lost, strict=True), marker=look.marker, ms=5, mfc="none",
                      mec=look.colour, ls=":", color=look.colour, lw=1.3)  # fmt: skip
    if network is not None and values:
        name, seconds = network
        values.append(seconds)
        axes.axhline(seconds, color=MUTED, lw=1.2, ls=(0, (4, 3)), label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    low, high = min(values), max(values)
    if metric == "seconds":
        _ticks(axes.yaxis, _powers(low, high, 10), seconds_text)
    else:
        _ticks(
            axes.yaxis, [1024 * size for size in _powers(low / 1024, high / 1024, 32)], bytes_text
        )
    wanted = (1, 2, 4, 10, 16, 32, 64, 100, 256, 1000, 4000)
    ticks = [at for at in wanted if at in places]
    kept = [at for i, at in enumerate(ticks) if not i or at >= 2.4 * ticks[i - 1]]
    _ticks(axes.xaxis, kept, lambda at: f"{at:,.0f}")


def _powers(low: float, high: float, base: int) -> list[float]:
    """Powers of the base around an interval, no more than six."""
    first, last = (round_(log10(end) / log10(base)) for round_, end in ((floor, low), (ceil, high)))
    step = max(1, -(-(last - first) // 6))
    return [float(base) ** power for power in range(first, last + 1, step)]


def _ticks(axis: Axis, places: Sequence[float], name: Callable[[float], str]) -> None:
    axis.set_major_locator(FixedLocator(list(places)))
    axis.set_minor_locator(NullLocator())
    axis.set_ticklabels([name(place) for place in places])
