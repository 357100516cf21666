"""The charts of the EXACT recipes but for the toy data: rows in, lines or dots by table out."""

from collections.abc import Mapping
from functools import partial
from math import sqrt

from expacc.recipes.exact.integral import CASES
from expacc.report.figures import Chart, chart
from expacc.report.loss_names import INK, looks
from expacc.report.panels import Line, Panel, dots, panels, power, powers
from expacc.report.words import bytes_text, seconds_text, signed
from expacc.runner.rows import Row

__all__ = [
    "COSTED",
    "ESTIMATED",
    "BySize",
    "cases_chart",
    "errors_chart",
    "gains_chart",
    "growth_chart",
]

_LOOK = looks(
    {"cross_entropy", "exact", "hinge", "leaky_expected_error", "mixed_expected_error", "focal"}
)
_LIKE = ("exact", "leaky_expected_error", "mixed_expected_error", "hinge")
_SERIES = list(zip([INK, *(_LOOK[one].colour for one in _LIKE)], "oDs^v", strict=True))

# Method → its name; and the loss whose look it has, dash and marker.
ESTIMATED = {
    "log_derivative": "Monte Carlo, log-derivative",
    "genz_given": "Genz, rivals as given",
    "genz": "Genz, rivals sorted",
    "ours": "ours, float64",
    "ours32": "ours, float32",
}
_ESTIMATED = (
    ("leaky_expected_error", "-", "D"),
    ("mixed_expected_error", "--", "v"),
    ("mixed_expected_error", "-", "^"),
    ("exact", "-", "o"),
    ("exact", "--", "s"),
)
COSTED = {
    "genz": "Genz",
    "ours": "ours",
    "ours_plain": "ours in plain torch",
    "cross_entropy": "cross entropy",
}
_COSTED = {"genz": "mixed_expected_error", "ours_plain": "focal", "ours": "exact"}
LOWEST = 1e-19  # what is 0 is drawn here

Gains = Mapping[str, Mapping[str, float]]  # series → table → points
BySize = Mapping[str, Mapping[int, Row]]  # method → samples or classes → row


# ------------------------------------------------------------------------------------ the tables


def gains_chart(
    key: str, title: str, less: str, gains: Gains, grain: Mapping[str, float]
) -> tuple[Chart, ...]:
    """What each series adds, table by table.

    Args:
        key: of the chart.
        title: of the chart.
        less: what is subtracted from what.
        gains: series → table → points.
        grain: table → what one test row is worth.
    """
    said = "; ".join(
        f"{series}: " + ", ".join(f"{table} {signed(gap)}" for table, gap in found.items())
        for series, found in gains.items()
    )
    caption = (
        f"Points of test accuracy, {less}; right of the line is better. The grey bar is "
        "one test row either way: what lies in it is no difference."
    )
    draw = partial(dots, series=gains, looks=_SERIES, grain=grain, label=f"{less} (points)")
    return (chart(key, title, caption, f"In points, {less}. {said}.", draw),) if gains else ()


# ---------------------------------------------------------------------------------- the integral


def _errors(found: BySize, metric: str, by: float, title: str, y: str) -> Panel:
    lines, values = [], []
    for method, (loss, dash, marker) in zip(ESTIMATED, _ESTIMATED, strict=True):
        rows = [row for n, row in sorted(found.get(method, {}).items()) if n <= 1024]
        errors = [max(row.metrics[metric] / by, LOWEST) for row in rows]
        values += errors
        where, colour = [int(row.numbers["samples"]) for row in rows], _LOOK[loss].colour
        if rows:
            lines.append(Line(where, errors, ESTIMATED[method], colour, marker, dash, 1.7))
    return Panel(
        title, lines, "samples, or nodes", y, log="xy",
        x_ticks={n: f"{n}" for n in (1, 4, 16, 64, 256, 1024)},
        y_ticks={at: power(at) for at in powers(values, 10)},
    )  # fmt: skip


def errors_chart(found: BySize) -> Chart:
    """Figures 8 and 9: the paper's case."""
    metrics = {"value_rmse": "the integral", "gradient_rmse": "its gradient"}
    shown = [
        _errors(found, m, 1.0, title, "root mean square error") for m, title in metrics.items()
    ]
    usual = {m: [n for n in rows if n <= 1024] for m, rows in found.items()}
    ends = "; ".join(
        f"{ESTIMATED[method]} "
        + ", ".join(
            f"{found[method][n].metrics['gradient_rmse']:.1e} with {n}" for n in (min(ns), max(ns))
        )
        for method, ns in usual.items()
        if ns
    )
    return chart(
        "integral-errors",
        "Errors against the number of samples",
        "The paper's Figures 8 and 9 with our rule added, whose nodes take the place of samples. "
        "Both axes are logarithmic. What falls like 1/√N is a straight line of slope −1/2. Monte "
        "Carlo with few samples may not have seen a single win in all repeats; its error is then "
        "the value itself.",
        f"Gradient error: {ends}.",
        partial(panels, shown=shown, wide=3.3, legend="below"),
    )


def cases_chart(cases: Mapping[str, BySize]) -> Chart:
    """The gradient's relative error in all cases."""
    shown = []
    for name, found in cases.items():
        norm = max(r.metrics["gradient_norm"] for rows in found.values() for r in rows.values())
        by = norm / sqrt(len(CASES[name].margins))
        shown.append(_errors(found, "gradient_rmse", by, CASES[name].title, "relative error"))
    return chart(
        "integral-cases",
        "The gradient's relative error, case by case",
        "Both axes are logarithmic; a relative error of 1 means that nothing is known.",
        "The table of relative errors says the same for 16 samples.",
        partial(panels, shown=shown, wide=2.4, tall=2.35, across=3, legend="below"),
    )


# -------------------------------------------------------------------------------------- the cost


def growth_chart(
    found: BySize, by: str, title: str, caption: str, network: tuple[float, str] | None = None
) -> Chart:
    """Time and memory of a row of the batch.

    Args:
        found: the rows.
        by: 'classes' or 'samples'.
        title: of the chart.
        caption: of the chart.
        network: seconds of an image, and the name of a network, drawn as a line across.
    """
    timed = {m: [n for n in rows if "seconds" in rows[n].metrics] for m, rows in found.items()}
    largest = "; ".join(
        f"{COSTED[method]} {seconds_text(found[method][max(ns)].metrics['seconds'])} and "
        f"{bytes_text(found[method][max(ns)].metrics['peak_bytes'])} at {max(ns):,}"
        for method, ns in timed.items()
        if ns
    )
    shown = [
        _growth(found, "seconds", "time of a row", by, network),
        _growth(found, "peak_bytes", "memory of a row", by, None),
    ]
    finding = f"A whole batch at the largest size that was run: {largest}."
    draw = partial(panels, shown=shown, wide=3.2, tall=2.65, legend="below")
    return chart(f"cost-{by}", title, caption, finding, draw)


def _growth(
    found: BySize, metric: str, title: str, by: str, network: tuple[float, str] | None
) -> Panel:
    lines = []
    for method, rows in found.items():
        look = _LOOK[_COSTED.get(method, method)]
        each = {n: int(row.numbers["rows"]) for n, row in sorted(rows.items())}
        done = {n: rows[n].metrics[metric] / each[n] for n in each if metric in rows[n].metrics}
        lines.append(
            Line(list(done), list(done.values()), COSTED[method], look.colour, look.marker)
        )
        needed = {n: rows[n].metrics.get("needed_bytes", 0.0) / each[n] for n in each}
        lost = {n: size for n, size in needed.items() if size and metric == "peak_bytes"}
        if lost:  # what was not run, and would need this
            lines.append(
                Line(list(lost), list(lost.values()), "", look.colour, look.marker, ":", 1.3, True)
            )
    values = [value for line in lines for value in line.y] + ([network[0]] if network else [])
    sizes = sorted({size for line in lines for size in line.x})
    wanted = [n for n in (1, 2, 4, 10, 16, 32, 64, 100, 256, 1000, 4000) if n in sizes]
    kept = [n for place, n in enumerate(wanted) if not place or n >= 2.4 * wanted[place - 1]]
    ticks = (
        {at: seconds_text(at) for at in powers(values, 10)}
        if metric == "seconds"
        else {at: bytes_text(at) for at in powers(values, 32, 1024)}
    )
    x = {"classes": "classes", "samples": "samples, or nodes"}[by]
    x_ticks: dict[float, str] = {n: f"{n:,}" for n in kept}
    return Panel(title, lines, x, log="xy", x_ticks=x_ticks, y_ticks=ticks, level=network)
