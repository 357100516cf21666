"""The page of exact-integral."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from expacc.recipes.exact.integral import CASES
from expacc.recipes.exact.paper import INTEGRAL
from expacc.recipes.page import Claim, Comparison, Number, Page, Section
from expacc.recipes.paper import Layout
from expacc.report.panels import Line, Panel, power, powers
from expacc.report.words import NONE, looks
from expacc.runner.rows import Row

SAMPLERS = ("genz_given", "genz")
PAPERS = {"paper": "as margins", "paper-logits": "as logits"}  # two readings of Appendix C
DIGITS = 1e-10  # of a gradient
MOST = 1024  # samples; what has more is there to be the truth
LOWEST = 1e-19  # what is 0 is drawn here
METHODS = {
    "log_derivative": "Monte Carlo, log-derivative",
    "genz_given": "Genz, rivals as given",
    "genz": "Genz, rivals sorted",
    "ours": "ours, float64",
    "ours32": "ours, float32",
}
# The loss whose colour a method has, its dash and marker.
_STYLES = (
    ("leaky_expected_error", "-", "D"),
    ("mixed_expected_error", "--", "v"),
    ("mixed_expected_error", "-", "^"),
    ("exact", "-", "o"),
    ("exact", "--", "s"),
)
_LOOK = looks({loss for loss, _, _ in _STYLES} | {"cross_entropy", "hinge", "focal"})

BySize = Mapping[str, Mapping[int, Row]]  # method → samples → row


def write(rows: Sequence[Row], facts: Mapping[str, Any]) -> Page:
    """The page from the rows that there are."""
    found: dict[str, dict[str, dict[int, Row]]] = {}
    for row in rows:
        if row.failure is None:
            by_method = found.setdefault(row.table, {})
            by_method.setdefault(row.loss, {})[int(row.numbers["samples"])] = row
    cases = {
        name: {m: dict(sorted(found[name][m].items())) for m in METHODS if m in found[name]}
        for name in CASES
        if name in found
    }
    layout = Layout("exact", "exact-integral", {"repeats": 0, **INTEGRAL, **facts})
    paper, sections = cases.get("paper", {}), []
    if paper:
        panels = {"value_rmse": "the integral", "gradient_rmse": "its gradient"}
        drawn = [
            _errors(paper, metric, 1.0, title, "root mean square error")
            for metric, title in panels.items()
        ]
        charts = layout.panels("integral-errors", drawn)
        truths = [
            (METHODS[m], f"{n:,}", f"{row.metrics['value_rmse'] / row.metrics['value']:.1e}",
             f"{row.metrics['doubt']:.0e}")
            for m in SAMPLERS for n, row in paper.get(m, {}).items() if n > MOST
        ]  # fmt: skip
        sections = [
            layout.section("samples", beside=_samples(cases), charts=charts),
            layout.section("orders", beside=_orders(paper), grids=[layout.grid("truth", truths)]),
        ]
    return layout.page((*sections, _all_cases(layout, cases)), [_claim(layout, paper)])


def needed_samples(found: BySize, method: str, metric: str) -> float | None:
    """Samples of Monte Carlo that make up for one of ``method``: the ratio of their mean squares.

    Each mean square falls like 1/N, so that all N together say what one sample is worth: N times
    the mean square, weighted by the number of samples drawn.
    """
    squares = []
    for name in ("log_derivative", method):
        rows = [row for n, row in found.get(name, {}).items() if n <= MOST]
        sizes = [(int(r.numbers["samples"]), int(r.numbers["repeats"])) for r in rows]
        draws = sum(samples * repeats for samples, repeats in sizes)
        if not draws:
            return None
        both = zip(rows, sizes, strict=True)
        squares.append(sum(r.metrics[metric] ** 2 * n**2 * times for r, (n, times) in both) / draws)
    return squares[0] / squares[1] if squares[1] > 0 else None


def _next_power(value: float) -> float:
    """The power of two that is enough, as in the paper's figure."""
    return 2.0 ** math.ceil(math.log2(value)) if value > 1 else 1.0


def _relative(row: Row) -> float:
    """The error of a gradient in units of its length."""
    rivals = len(CASES[row.table].margins)
    return row.metrics["gradient_rmse"] * math.sqrt(rivals) / row.metrics["gradient_norm"]


def _claim(layout: Layout, found: BySize) -> Claim:
    needed = needed_samples(found, "genz_given", "gradient_rmse")
    if needed is None:
        return layout.claim("samples", "", None)
    return layout.claim("samples", f"{needed:,.0f}", _next_power(needed) == INTEGRAL["samples"])


def _errors(found: BySize, metric: str, by: float, title: str, y: str) -> Panel:
    lines, values = [], []
    for method, (loss, dash, marker) in zip(METHODS, _STYLES, strict=True):
        rows = [row for n, row in sorted(found.get(method, {}).items()) if n <= MOST]
        errors = [max(row.metrics[metric] / by, LOWEST) for row in rows]
        values += errors
        where, colour = [int(row.numbers["samples"]) for row in rows], _LOOK[loss].colour
        if rows:
            lines.append(Line(where, errors, METHODS[method], colour, marker, dash, 1.7))
    return Panel(
        title, lines, "samples, or nodes", y, log="xy",
        x_ticks={n: f"{n}" for n in (1, 4, 16, 64, 256, 1024)},
        y_ticks={at: power(at) for at in powers(values, 10)},
    )  # fmt: skip


def _samples(cases: Mapping[str, BySize]) -> Iterator[Comparison]:
    """Ours beside the paper's 256."""
    for name, reading in PAPERS.items():
        for method in SAMPLERS:
            needed = needed_samples(cases.get(name, {}), method, "gradient_rmse")
            if needed is not None:
                # The text speaks of the integral's own mean: the margins, in the order printed.
                literal = (name, method) == ("paper", "genz_given")
                theirs = Number(INTEGRAL["samples"]) if literal else None
                note = f"{needed:,.0f} before rounding up to a power of two"
                labels = (reading, METHODS[method])
                yield Comparison(labels, theirs, Number(_next_power(needed)), note)


def _orders(found: BySize) -> Iterator[Comparison]:
    """'An order of magnitude smaller error'."""
    for method in SAMPLERS:
        for metric, what in (("value_rmse", "integral"), ("gradient_rmse", "gradient")):
            needed = needed_samples(found, method, metric)
            if needed:
                theirs = Number(INTEGRAL["orders"]) if method == "genz_given" else None
                ours = Number(0.5 * math.log10(needed))
                yield Comparison((METHODS[method], what), theirs, ours)


def _all_cases(layout: Layout, cases: Mapping[str, BySize]) -> Section:
    """Every case at 16 samples, the authors' number, and at the most."""
    few, many, shown = [], [], []
    for name, found in cases.items():
        case, every = CASES[name], [row for rows in found.values() for row in rows.values()]
        at_16 = [found.get(method, {}).get(16) for method in METHODS]
        errors = [NONE if row is None else f"{_relative(row):.1e}" for row in at_16]
        few.append((case.title, case.about, f"{every[0].metrics['value']:.3g}", *errors))
        shares = [_share(found.get(method, {})) for method in ("log_derivative", "genz")]
        enough = [n for n, row in found.get("ours", {}).items() if _relative(row) < DIGITS]
        many.append((case.title, *shares, f"{min(enough)}" if enough else NONE))
        norm = max(row.metrics["gradient_norm"] for row in every)
        by = norm / math.sqrt(len(case.margins))
        shown.append(_errors(found, "gradient_rmse", by, case.title, "relative error"))
    return layout.section(
        "cases",
        grids=[layout.grid("few", few, columns=METHODS.values()), layout.grid("many", many)],
        charts=layout.panels("integral-cases", shown),
    )


def _share(rows: Mapping[int, Row]) -> str:
    usual = [n for n in rows if n <= MOST]
    if not usual:
        return NONE
    metrics = rows[max(usual)].metrics
    return f"{metrics['value_mean'] / metrics['value']:.3g}"
