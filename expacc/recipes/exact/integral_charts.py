"""The charts of exact-integral: errors against the number of samples or nodes."""

from collections.abc import Mapping, Sequence
from math import log10, sqrt
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from expacc.recipes.exact.integral_cases import CASES
from expacc.report.figures import Chart, chart, legend_place, tidy_axes
from expacc.report.palette import INK, looks
from expacc.runner.rows import Row

__all__ = ["METHODS", "cases_chart", "errors_chart", "power"]

METHODS = {
    "log_derivative": "Monte Carlo, log-derivative",
    "genz_given": "Genz, rivals as given",
    "genz": "Genz, rivals sorted",
    "ours": "ours, float64",
    "ours32": "ours, float32",
}
_LOOK = looks({"leaky_expected_error", "mixed_expected_error", "exact"})
_STYLE = {  # colour, dash, marker
    "log_derivative": (_LOOK["leaky_expected_error"].colour, "-", "D"),
    "genz_given": (_LOOK["mixed_expected_error"].colour, "--", "v"),
    "genz": (_LOOK["mixed_expected_error"].colour, "-", "^"),
    "ours": (_LOOK["exact"].colour, "-", "o"),
    "ours32": (_LOOK["exact"].colour, "--", "s"),
}
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
LOWEST = 1e-19  # what is 0 is drawn here

Found = Mapping[str, Mapping[int, Row]]  # method → samples → row


def power(exponent: int) -> str:
    """A power of ten, as text.

    >>> power(-3), power(0)
    ('10⁻³', '1')
    """
    return "1" if exponent == 0 else "10" + str(exponent).translate(_RAISED)


def errors_chart(found: Found) -> Chart:
    """Figures 8 and 9: the paper's case."""

    def draw(width: float) -> Figure:
        wide = width > 5
        figure = Figure(figsize=(width, 3.6 if wide else 5.6 + 0.2 * len(found)))
        grid = figure.subplots(1 if wide else 2, 2 if wide else 1, squeeze=False)
        panels = (("value_rmse", "the integral"), ("gradient_rmse", "its gradient"))
        for axes, (metric, title) in zip(grid.flat, panels, strict=True):
            _lines(axes, found, metric, 1.0)
            axes.set_title(title, color=INK)
            axes.set_ylabel("root mean square error")
            axes.set_xlabel("samples, or nodes")
        handles, names = grid.flat[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center" if wide else "outside lower left",
                      ncols=3 if wide else 1)  # fmt: skip
        return figure

    return chart(
        "integral-errors",
        "Errors against the number of samples",
        "The paper's Figures 8 and 9 with our rule added, whose nodes take the place of samples. "
        "Both axes are logarithmic. What falls like 1/√N is a straight line of slope −1/2. Monte "
        "Carlo with few samples may not have seen a single win in all repeats; its error is then "
        "the value itself.",
        f"Gradient error: {_ends(found)}.",
        draw,
    )


def _ends(found: Found) -> str:
    words = []
    for method, by_samples in found.items():
        usual = [n for n in by_samples if n <= 1024]
        if usual:
            few, many = min(usual), max(usual)
            ends = [f"{by_samples[n].metrics['gradient_rmse']:.1e} with {n}" for n in (few, many)]
            words.append(f"{METHODS[method]} {', '.join(ends)}")
    return "; ".join(words)


def cases_chart(cases: Mapping[str, Found]) -> Chart:
    """The gradient's relative error in all cases."""

    def draw(width: float) -> Figure:
        across = 3 if width > 5 else 1
        down = -(-len(cases) // across)
        legend = 0.5 if width > 5 else 1.2
        figure = Figure(figsize=(width, 2.35 * down + legend))
        grid = figure.subplots(down, across, squeeze=False, sharex=width > 5)
        shown: dict[str, Any] = {}
        for axes, (name, found) in zip(grid.flat, cases.items(), strict=False):
            norm = max(
                row.metrics["gradient_norm"] for rows in found.values() for row in rows.values()
            )
            rivals = len(CASES[name].margins)
            _lines(axes, found, "gradient_rmse", norm / sqrt(rivals))
            axes.set_title(CASES[name].title, color=INK)
            handles, names = axes.get_legend_handles_labels()
            shown |= dict(zip(names, handles, strict=True))
        for axes in grid.flat[len(cases) :]:
            axes.set_visible(False)
        for axes in grid[-1]:
            axes.set_xlabel("samples, or nodes")
        for axes in grid[:, 0]:
            axes.set_ylabel("relative error")
        place = "outside lower center" if width > 5 else legend_place(width)
        figure.legend(list(shown.values()), list(shown), loc=place, ncols=3 if width > 5 else 1)
        return figure

    words = []
    for name, found in cases.items():
        at = [found[m][16] for m in ("genz", "ours") if 16 in found.get(m, {})]
        if len(at) == 2:
            shares = [_relative(row) for row in at]
            words.append(f"{CASES[name].title} {shares[0]:.1e} and {shares[1]:.1e}")
    return chart(
        "integral-cases",
        "The gradient's relative error, case by case",
        "Both axes are logarithmic; a relative error of 1 means that nothing is known.",
        f"With 16 samples sorted Genz, and with 16 nodes ours, are off by: {'; '.join(words)}.",
        draw,
    )


def _relative(row: Row) -> float:
    rivals = len(CASES[row.table].margins)
    return row.metrics["gradient_rmse"] * sqrt(rivals) / row.metrics["gradient_norm"]


def _lines(axes: Axes, found: Found, metric: str, by: float) -> None:
    values = []
    for method in METHODS:
        rows = [row for n, row in sorted(found.get(method, {}).items()) if n <= 1024]
        if not rows:
            continue
        colour, dash, marker = _STYLE[method]
        errors = [max(row.metrics[metric] / by, LOWEST) for row in rows]
        values += errors
        axes.plot(
            [int(row.numbers["samples"]) for row in rows], errors, color=colour, ls=dash, lw=1.7,
            marker=marker, ms=4, label=METHODS[method],
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    _ticks(axes.xaxis, [1, 4, 16, 64, 256, 1024], ["1", "4", "16", "64", "256", "1024"])
    low, high = int(log10(min(values))) - 1, int(log10(max(values))) + 1
    step = max(1, round((high - low) / 6))
    exponents = list(range(high, low - 1, -step))
    _ticks(axes.yaxis, [10.0**e for e in exponents], [power(e) for e in exponents])
    tidy_axes(axes, grid="both")


def _ticks(axis: Axis, places: Sequence[float], names: Sequence[str]) -> None:
    axis.set_major_locator(FixedLocator(list(places)))
    axis.set_minor_locator(NullLocator())
    axis.set_ticklabels(list(names))
