"""The page of exact-integral."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from expacc.recipes.exact.integral_cases import CASES
from expacc.recipes.exact.integral_charts import METHODS, Found, cases_chart, errors_chart
from expacc.recipes.page import Comparison, Grid, Number, Page, Section
from expacc.runner.rows import Row

__all__ = ["needed_samples", "write"]

CLAIM = (
    "Genz' sampler with the paper's gradients is an order of magnitude nearer the truth than Monte "
    "Carlo with the log-derivative trick: Monte Carlo requires 256 samples to achieve the gradient "
    "error of one sample of EXACT's (Appendix C)."
)
PRINTED = 256  # samples of Monte Carlo that make up for one of Genz
SAMPLERS = ("genz_given", "genz")
ORDERS = 0.5  # half an order of magnitude is the same order
PAPERS = ("paper", "paper-logits")


def write(rows: Sequence[Row], facts: Mapping[str, Any]) -> Page:
    """The page from the rows that there are."""
    cases: dict[str, dict[str, dict[int, Row]]] = {}
    for row in rows:
        if row.failure is None:
            by_method = cases.setdefault(row.table, {})
            by_method.setdefault(row.loss, {})[int(row.numbers["samples"])] = row
    cases = {name: _ordered(cases[name]) for name in CASES if name in cases}
    sections = []
    if "paper" in cases:
        sections += [_samples(cases), _orders(cases)]
    if cases:
        sections.append(_all_cases(cases, facts))
    return Page(
        title="Errors of the orthant integral",
        claim=CLAIM,
        answer=_answer(cases),
        sections=tuple(sections),
        deviations=_deviations(cases),
    )


def _ordered(found: Mapping[str, dict[int, Row]]) -> dict[str, dict[int, Row]]:
    return {method: dict(sorted(found[method].items())) for method in METHODS if method in found}


def needed_samples(found: Found, method: str, metric: str) -> float | None:
    """Samples of Monte Carlo that make up for one of ``method``: the ratio of their mean squares.

    Each mean square falls like 1/N, so that all N together say what one sample is worth: N times
    the mean square, weighted by the number of samples drawn.
    """
    squares = []
    for name in ("log_derivative", method):
        rows = [row for n, row in found.get(name, {}).items() if n <= 1024]
        draws = sum(int(r.numbers["samples"]) * int(r.numbers["repeats"]) for r in rows)
        if not draws:
            return None
        total = sum(
            r.metrics[metric] ** 2 * int(r.numbers["samples"]) ** 2 * int(r.numbers["repeats"])
            for r in rows
        )
        squares.append(total / draws)
    return squares[0] / squares[1] if squares[1] > 0 else None


def _next_power(value: float) -> float:
    """The power of two that is enough, as in the paper's figure."""
    return 2.0 ** math.ceil(math.log2(value)) if value > 1 else 1.0


def _answer(cases: Mapping[str, Found]) -> str:
    if not cases:
        return "Nothing has been run yet."
    found = cases.get("paper", {})
    said = []
    given, ordered = (needed_samples(found, m, "gradient_rmse") for m in SAMPLERS)
    if given is not None:
        same = "the paper's number" if _next_power(given) == PRINTED else f"not {PRINTED}"
        said.append(
            f"With the rivals in the order in which Appendix C lists them, Monte Carlo needs "
            f"{given:,.0f} samples for the gradient error of one of Genz', so "
            f"{_next_power(given):,.0f} on the figure's axis: {same}."
        )
    if ordered is not None:
        than = "" if given is None else f", {ordered / given:,.0f} times as many"
        said.append(
            f"The authors' released code sorts the rivals first; then it needs "
            f"{_round(ordered)}{than}."
        )
    ours, genz = found.get("ours", {}), found.get("genz", {})
    if 16 in ours and 16 in genz:
        ratio = genz[16].metrics["gradient_rmse"] / ours[16].metrics["gradient_rmse"]
        said.append(
            f"Our rule with 16 nodes is nearer still, {_round(ratio)} times as near as sorted Genz "
            f"with 16 samples, and draws nothing." if ratio > 1 else
            f"Our rule with 16 nodes is {1 / ratio:.1f} times as far off as sorted Genz with 16."
        )  # fmt: skip
        first = _first_better(ours, genz)
        if first is not None and first > min(ours):
            said.append(f"With fewer than {first} nodes it is the worse of the two.")
    return " ".join(said) or "Too little of the paper's case has been run to compare."


def _round(value: float) -> str:
    """Two digits, in words that are read at a glance."""
    if value >= 1e6:
        return f"{value / 1e6:,.1f} million"
    if value >= 1e3:
        return f"{float(f'{value:.2g}'):,.0f}"
    return f"{value:.2g}"


def _first_better(ours: Mapping[int, Row], theirs: Mapping[int, Row]) -> int | None:
    """The number of nodes from which on ours has the smaller gradient error at equal numbers."""
    both = [n for n in sorted(ours) if n in theirs]
    better = [ours[n].metrics["gradient_rmse"] < theirs[n].metrics["gradient_rmse"] for n in both]
    for place, n in enumerate(both):
        if all(better[place:]):
            return n
    return None


def _samples(cases: Mapping[str, Found]) -> Section:
    """Ours beside the paper's 256."""
    beside = []
    for name in PAPERS:
        for method in SAMPLERS:
            found = cases.get(name, {})
            needed = needed_samples(found, method, "gradient_rmse")
            if needed is None:
                continue
            # The text speaks of the integral's own mean: the margins, in the order printed.
            literal = (name, method) == ("paper", "genz_given")
            theirs = Number(PRINTED) if literal else None
            reading = "as margins" if name == "paper" else "as logits"
            note = f"{needed:,.0f} before rounding up to a power of two"
            beside.append(
                Comparison((reading, METHODS[method]), theirs, Number(_next_power(needed)), note)
            )
    return Section(
        title="What one sample of Genz' is worth",
        text=_readings(cases),
        beside=tuple(beside),
        beside_head=("Appendix C's numbers taken", "against"),
        unit="samples of Monte Carlo",
        slack=0.0,
        charts=(errors_chart(cases["paper"]),),
    )


def _readings(cases: Mapping[str, Found]) -> tuple[str, ...]:
    """Which reading of Appendix C has the paper's number."""
    fits = {}
    for name in PAPERS:
        for method in SAMPLERS:
            needed = needed_samples(cases.get(name, {}), method, "gradient_rmse")
            if needed is not None:
                fits[name, method] = _next_power(needed) == PRINTED
    said = [
        "Appendix C gives ten numbers for μ, which may be the margins of eleven classes or the "
        "logits of ten, and does not say in which order the sampler goes through the rivals."
    ]
    agreeing = [key for key, fit in fits.items() if fit]
    if agreeing == [("paper", "genz_given")]:
        said[0] += (
            " Only the first reading, with the rivals as listed, has the paper's 256: the figures "
            "were drawn so, it seems, before the authors' code learnt to sort the rivals. Sorted, "
            "the hardest come first, and what is left to chance is small."
        )
    elif agreeing:
        words = [f"{CASES[name].title} with {METHODS[method]}" for name, method in agreeing]
        said[0] += f" The paper's 256 is found with {' and '.join(words)}."
    elif fits:
        said[0] += " No reading that was run has the paper's 256."
    return tuple(said)


def _orders(cases: Mapping[str, Found]) -> Section:
    """'An order of magnitude smaller error'."""
    beside = []
    for method in SAMPLERS:
        for metric, what in (("value_rmse", "integral"), ("gradient_rmse", "gradient")):
            needed = needed_samples(cases["paper"], method, metric)
            if needed is not None and needed > 0:
                theirs = Number(1.0) if method == "genz_given" else None
                beside.append(
                    Comparison((METHODS[method], what), theirs, Number(0.5 * math.log10(needed)))
                )
    return Section(
        title="Orders of magnitude between Monte Carlo and Genz",
        text=_truths(cases["paper"]),
        beside=tuple(beside),
        beside_head=("against", "error of the"),
        unit="orders of magnitude",
        slack=ORDERS,
    )


def _truths(found: Found) -> tuple[str, ...]:
    """How good the paper's ground truth was."""
    said = []
    for method in SAMPLERS:
        for samples, row in found.get(method, {}).items():
            if samples > 1024:
                off = row.metrics["value_rmse"] / row.metrics["value"]
                said.append(f"{off:.1e} ({METHODS[method]})")
    if not said:
        return ()
    doubt = next(iter(next(iter(found.values())).values())).metrics["doubt"]
    return (
        f"The paper's ground truth is Genz' with a million samples. One such run here is off by "
        f"{' and '.join(said)}, relatively. Ours is the trapezoid rule with 20,001 nodes over one "
        f"dimension; leaving out every second node changes it by {doubt:.0e}.",
    )


def _all_cases(cases: Mapping[str, Found], facts: Mapping[str, Any]) -> Section:
    """Every case at 16 samples, the authors' number."""
    lines = []
    for name, found in cases.items():
        any_row = next(iter(next(iter(found.values())).values()))
        cells = [CASES[name].title, CASES[name].about, f"{any_row.metrics['value']:.3g}"]
        cells += [_at_16(found.get(method, {}).get(16)) for method in METHODS]
        lines.append(tuple(cells))
    return Section(
        title="Other integrals",
        text=_worst(cases),
        grids=(
            Grid(
                title="Relative error of the gradient with 16 samples, or nodes",
                head=("case", "what it is", "P", *METHODS.values()),
                rows=tuple(lines),
                note=f"Of samplers the root mean square over {facts.get('repeats', 0):,} repeats, "
                "of ours the error itself. 1 means that nothing is known. Where all margins are "
                "equal there is nothing to sort.",
            ),
        ),
        charts=(cases_chart(cases),),
    )


def _at_16(row: Row | None) -> str:
    if row is None:
        return "–"
    rivals = len(CASES[row.table].margins)
    return f"{row.metrics['gradient_rmse'] * math.sqrt(rivals) / row.metrics['gradient_norm']:.1e}"


def _worst(cases: Mapping[str, Found]) -> tuple[str, ...]:
    """Where samplers fail altogether, and how many nodes ours takes for rounding."""
    said = []
    for name, found in cases.items():
        most = {m: max((n for n in found.get(m, {}) if n <= 1024), default=0) for m in METHODS}
        lost = []
        for method in ("log_derivative", "genz"):
            row = found.get(method, {}).get(most[method])
            if row is not None and abs(row.metrics["value_mean"] / row.metrics["value"] - 1) > 0.9:
                share = row.metrics["value_mean"] / row.metrics["value"]
                part = f"{share:.1e}" if share else "nothing"
                lost.append(f"{METHODS[method]} finds {part} of P even with {most[method]} samples")
        if lost:
            said.append(
                f"{CASES[name].title.capitalize()}, {CASES[name].about}: {'; '.join(lost)}. Monte "
                "Carlo never sees such a win, and Genz' numbers are cut at ±5 in the authors' "
                "code, so that no number of samples helps."
            )
    good = []
    for found in cases.values():
        rows = found.get("ours", {})
        enough = [n for n, row in rows.items() if _relative(row) < 1e-10]
        if enough:
            good.append(min(enough))
    if good and len(good) == len(cases):
        said.append(
            f"With {max(good)} nodes ours has ten digits of the gradient in all {len(cases)}. "
            "A node costs one Φ per rival; a sample of Genz' with its gradient as many per rival "
            "as there are rivals."
        )
    return tuple(said)


def _relative(row: Row) -> float:
    rivals = len(CASES[row.table].margins)
    return row.metrics["gradient_rmse"] * math.sqrt(rivals) / row.metrics["gradient_norm"]


def _deviations(cases: Mapping[str, Found]) -> tuple[str, ...]:
    return (
        "The truth is a fine quadrature in one dimension instead of a million samples. Samplers "
        "run in float64, so that what shows is their own error, not rounding.",
        "The number of samples that make up for one of Genz' is the ratio of mean squares, pooled "
        "over all numbers of samples (N times the mean square does not depend on N), which a "
        "thousand repeats of one sample alone would leave uncertain; the paper reads it off a "
        "figure with powers of two.",
        "A gradient's error is the root mean square over its components and the repeats.",
    )
