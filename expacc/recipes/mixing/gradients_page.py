"""The page of mixing-gradients."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes

from expacc.recipes.page import Claim, Comparison, Number, Page
from expacc.recipes.paper import Layout, load_paper
from expacc.report.figures import Chart
from expacc.report.panels import Line, Panel
from expacc.report.words import INK, NONE, SCALE, listed, looks
from expacc.runner.rows import Row

EQUAL = 1e-6  # of a peak: golden section finds a flat top to the root of the rounding
Mix = tuple[float, float]
Mixes = Mapping[Mix, Sequence[Row]]

ALONE: dict[Mix, str] = {(1.0, 0.0): "cross_entropy", (0.0, 1.0): "expected_error"}
PEAKS = load_paper("mixing")["peaks"]  # what the text prints of the two losses alone
FOCUS = {1.0: 0.0, 1.25: 0.1, 5 / 3: 0.2, 2.5: 0.3, 5.0: 0.4}  # Eq. 14, error_weight → F


def write(rows: Sequence[Row], facts: Mapping[str, Any]) -> Page:
    """The page from the rows that there are."""
    good = [row for row in rows if row.failure is None]
    found: dict[Mix, list[Row]] = {}
    for row in sorted(good, key=lambda row: int(row.numbers.get("classes", 0))):
        if row.table == "mix":
            ce, error = (float(row.numbers[name]) for name in ("ce_weight", "error_weight"))
            found.setdefault((ce, error), []).append(row)
    # Cross entropy first, then those with α = 1 by β, then those with β = 1 by falling α.
    order = sorted(found, key=lambda mix: (mix[0] < 1, mix[1] if mix[0] == 1 else -mix[0]))
    mixes = {mix: found[mix] for mix in order}
    layout = Layout("mixing", "mixing-gradients", {**facts, "count": listed(facts["classes"])})
    charts = [*_chart(layout, "mixing-gradients", mixes), *_chart(layout, "mixing-focus", mixes)]
    return layout.page(
        (
            layout.section("figure", charts=charts),
            layout.section("peaks", beside=_peaks(mixes), grids=[_sizes(layout, mixes)]),
        ),
        _claims(layout, mixes, next((row for row in good if row.table == "text"), None)),
    )


def _name(mix: Mix) -> str:
    ce, error = mix
    if mix in ALONE:
        return f"{ALONE[mix].replace('_', ' ')} alone"
    return f"β = {error:.4g}" if ce == 1 else f"α = {ce:.4g}"


def _place(row: Row) -> str:
    return f"{row.metrics['peak']:.3f}".rstrip("0").rstrip(".") or "0"


def _look(mix: Mix) -> tuple[str, str]:
    """Colour and dash: both losses alone as everywhere, mixes from light to dark by their peak."""
    if mix in ALONE:
        return looks(set(ALONE.values()))[ALONE[mix]].colour, "-"
    ce, error = mix
    focus = 0.5 * (1 - ce / error)
    return SCALE[2 + int(10 * focus + 0.5)], "-" if ce == 1 else "--"


def _chart(layout: Layout, key: str, mixes: Mixes) -> tuple[Chart, ...]:
    """Gradients by p; by their own peak, the first chart's are drawn as they are."""
    relative, lines, peaks = key == "mixing-focus", [], []
    for mix, (row, *_) in mixes.items():
        height, (colour, dash) = row.metrics["height"], _look(mix)
        by = height if relative else 1.0
        curve = [value / by for value in row.curves["gradient"]]
        lines.append(Line(row.curves["p"], curve, _name(mix), colour, "", dash, 1.8))
        peaks.append((row.metrics["peak"], height / by, colour))
    label = "gradient / its largest" if relative else "size of the gradient"
    more = partial(_mark, peaks=peaks)
    panel = Panel("", lines, "probability of the true class, p", label, more=more)
    return layout.panels(key, [panel] if lines else [])


def _mark(axes: Axes, peaks: Sequence[tuple[float, float, str]]) -> None:
    for place, height, colour in peaks:
        axes.plot(place, height, "o", ms=6, color=colour, mec=INK, mew=0.8, clip_on=False, zorder=4)
    axes.set(xlim=(-0.01, 1.0), ylim=(0, None))


def _peaks(mixes: Mixes) -> Iterator[Comparison]:
    """Where the gradients are largest, beside what is printed, or follows from a formula."""
    for mix, rows in mixes.items():
        place, note = rows[0].metrics["formula_peak"], "0.5 (1 − α/β)"
        if mix in ALONE:
            place, note = PEAKS[ALONE[mix]]["at"], "in the text below Eq. 10"
        elif mix[0] == 1 and mix[1] in FOCUS:
            place, note = FOCUS[mix[1]], f"Eq. 14, F = {FOCUS[mix[1]]:g}"
        yield _furthest((_name(mix), "peak at p"), place, rows, "peak", note)
        if mix in ALONE:
            height = PEAKS[ALONE[mix]]["height"]
            yield _furthest((_name(mix), "largest gradient"), height, rows, "height", note)
        heights = [row.metrics["height"] for row in rows]
        if max(heights) - min(heights) > EQUAL:
            yield Comparison((_name(mix), "spread over classes"), None, Number(max(heights)))


def _furthest(
    labels: tuple[str, ...], theirs: float, rows: Sequence[Row], metric: str, note: str
) -> Comparison:
    values = [row.metrics[metric] for row in rows]
    furthest = max(values, key=lambda value: abs(value - theirs))
    return Comparison(labels, Number(theirs), Number(furthest, count=len(values)), note)


def _sizes(layout: Layout, mixes: Mixes) -> Any:
    reference = mixes.get((1.0, 0.0))
    lines = []
    for mix, (row, *_) in mixes.items():
        mean = row.metrics["mean"]
        share = f"{mean / reference[0].metrics['mean']:.2f}" if reference else NONE
        height = f"{row.metrics['height']:.3f}"
        lines.append((_name(mix), _place(row), height, f"{mean:.3f}", share))
    return layout.grid("sizes", lines)


def _claims(layout: Layout, mixes: Mixes, text: Row | None) -> Iterator[Claim]:
    """What the paper derives and says, as measured."""
    every = [row.metrics for rows in mixes.values() for row in rows]
    if every:
        off = max(abs(one["peak"] - one["formula_peak"]) for one in every)
        wrong = max(max(one["off_eq_13"], one["off_eq_13_rivals"]) for one in every)
        for key, most in (("peak", off), ("equation", wrong)):
            ours = f"off by {most:.0e}".replace("-", "−")
            yield layout.claim(key, ours, most <= EQUAL, mixes=len(mixes))
    if text is not None:
        found = text.metrics
        half = [
            found[name] for name in ("expected_error_rival_peak", "expected_error_rival_peak_own")
        ]
        for name, digits, holds in (
            ("cross_entropy_rival_peak", 2, found["cross_entropy_rival_peak"] > 0.99),
            ("expected_error_rival_peak", 2, sum(abs(one - 0.5) for one in half) < 0.02),
            ("remainder_high", 3, found["remainder_high"] <= 0.055),
            ("remainder_low", 3, found["remainder_low"] >= 4.5),
            ("cross_entropy_off_error", 3, found["cross_entropy_off_error"] >= 3.5),
            ("expected_error_off_error", 3, found["expected_error_off_error"] <= 1),
            ("least_gap", 0, found["least_gap"] >= 0),
        ):
            yield layout.claim(name, f"{found[name]:.{digits}f}", holds)
