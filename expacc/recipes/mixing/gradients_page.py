"""The page of mixing-gradients."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from expacc.recipes.page import Claim, Comparison, Grid, Number, Page, Section
from expacc.recipes.paper import load_paper
from expacc.report.figures import Chart, chart, legend_place, tidy_axes
from expacc.report.loss_names import INK, SCALE, looks
from expacc.report.words import listed
from expacc.runner.rows import Row

__all__ = ["write"]

EQUAL = 1e-6  # of a peak: golden section finds a flat top to the root of the rounding
# What the text prints of the two losses alone.
PRINTED = {
    (1.0, 0.0): load_paper("mixing")["peaks"]["cross_entropy"],
    (0.0, 1.0): load_paper("mixing")["peaks"]["expected_error"],
}
FOCUS = {1.0: 0.0, 1.25: 0.1, 5 / 3: 0.2, 2.5: 0.3, 5.0: 0.4}  # Eq. 14, error_weight → F

Mix = tuple[float, float]


def write(rows: Sequence[Row], facts: Mapping[str, Any]) -> Page:
    """The page from the rows that there are."""
    good = [row for row in rows if row.failure is None]
    mixes: dict[Mix, list[Row]] = {}
    for row in sorted(good, key=lambda row: int(row.numbers.get("classes", 0))):
        if row.table == "mix":
            weights = row.numbers["ce_weight"], row.numbers["error_weight"]
            mixes.setdefault((float(weights[0]), float(weights[1])), []).append(row)
    mixes = dict(sorted(mixes.items(), key=_order))
    text = next((row for row in good if row.table == "text"), None)
    return Page(
        title="Gradients of mixtures",
        claim=(
            "Adding the expected error to cross entropy moves the gradient's peak away from "
            "hopeless rows, p near 0: with weights α and β it is largest at p = 0.5 (1 − α/β) (Eq. "
            "13), so that α = 1, β = 1/(1 − 2F) emphasise p = F (Eq. 14). Figure 1 draws it."
        ),
        answer="",
        sections=(_figure(mixes), _peaks(mixes)) if mixes else (),
        claims=tuple(_claims(mixes, text)),
        deviations=(
            "The paper draws its formula; here the loss itself is differentiated, on logits whose "
            "true class has the probability p, and its largest gradient is searched. "
            f"With {listed(facts['classes'])} classes, the rivals' logits drawn at random.",
            "The weights in the figure's legend are not in the text. Ours are those of the "
            "schedule, F = 0, 0.1 … 0.5, and α = 0.5, 0.2, 0.1 beside β = 1; the last is what the "
            "leaky paper uses.",
            "Eq. 11 is Taylor's remainder without its factor 1/2; with it, the remainder at "
            "p = 1/4 is (3/4)²/(2 ξ²) with ξ between 1/4 and 1. Its 4.5 is the largest value that "
            "this can take, at ξ = 1/4, and was taken for the smallest. The direction of the "
            "argument stays: for small p the expected error is the nearer to the error rate.",
        ),
    )


def _order(entry: tuple[Mix, object]) -> tuple[bool, float]:
    """Cross entropy first, then those with α = 1 by β, then those with β = 1 by falling α."""
    (ce, error), _ = entry
    return (ce < 1, error if ce == 1 else -ce)


def _name(mix: Mix) -> str:
    ce, error = mix
    if error == 0:
        return "cross entropy alone"
    if ce == 0:
        return "expected error alone"
    return f"β = {error:.4g}" if ce == 1 else f"α = {ce:.4g}"


def _figure(mixes: Mapping[Mix, Sequence[Row]]) -> Section:
    peaks = "; ".join(
        f"{_name(mix)} {rows[0].metrics['height']:.3g} at p = {_place(rows[0])}"
        for mix, rows in mixes.items()
    )
    charts = (
        _chart(
            "mixing-gradients",
            "Gradient of the true logit",
            "The size of the gradient against the probability p of the true class; a dot marks its "
            "peak. Where nothing else is said, α, the weight of cross entropy, and β, that of the "
            "expected error, are 1.",
            f"Largest gradients: {peaks}.",
            mixes,
            relative=False,
        ),
        _chart(
            "mixing-focus",
            "The same, each by its own peak",
            "What a loss looks at, apart from how large its gradients are. α alone and β = 1/α "
            "give one curve: only the ratio of the weights moves the peak.",
            f"Peaks at p = {', '.join(_place(rows[0]) for rows in mixes.values())}.",
            mixes,
            relative=True,
        ),
    )
    return Section(title="Figure 1", charts=charts)


def _place(row: Row) -> str:
    return f"{row.metrics['peak']:.3f}".rstrip("0").rstrip(".") or "0"


def _looks(mixes: Mapping[Mix, object]) -> dict[Mix, tuple[str, str]]:
    """Colour and dash: both losses alone as everywhere, mixes from light to dark by their peak."""
    alone = looks({"cross_entropy", "expected_error"})
    ends = {
        (1.0, 0.0): (alone["cross_entropy"].colour, "-"),
        (0.0, 1.0): (alone["expected_error"].colour, "-"),
    }
    found = {}
    for mix in mixes:
        ce, error = mix
        focus = 0.5 * (1 - ce / error) if error else 0.0
        shade = SCALE[2 + int(10 * focus + 0.5)] if focus < 0.5 else SCALE[-1]
        found[mix] = ends.get(mix, (shade, "-" if ce == 1 else "--"))
    return found


def _chart(
    key: str, title: str, caption: str, finding: str,
    mixes: Mapping[Mix, Sequence[Row]], *, relative: bool,
) -> Chart:  # fmt: skip
    style = _looks(mixes)

    def draw(width: float) -> Figure:
        wide = width > 5
        figure = Figure(figsize=(width, 3.7 if wide else 2.9 + 0.2 * len(mixes)))
        axes = figure.subplots()
        for mix, rows in mixes.items():
            _curve(axes, rows[0], _name(mix), style[mix], relative=relative)
        axes.set_xlabel("probability of the true class, p")
        axes.set_ylabel("gradient / its largest" if relative else "size of the gradient")
        axes.set_xlim(-0.01, 1.0)
        axes.set_ylim(0, None)
        tidy_axes(axes, grid="both")
        figure.legend(loc=legend_place(width))
        return figure

    return chart(key, title, caption, finding, draw)


def _curve(axes: Axes, row: Row, name: str, look: tuple[str, str], *, relative: bool) -> None:
    colour, dash = look
    height = row.metrics["height"]
    by = height if relative else 1.0
    axes.plot(
        row.curves["p"], [value / by for value in row.curves["gradient"]],
        color=colour, ls=dash, lw=1.8, label=name,
    )  # fmt: skip
    axes.plot(
        [row.metrics["peak"]], [height / by], "o", ms=6, color=colour, mec=INK, mew=0.8,
        clip_on=False, zorder=4,
    )  # fmt: skip


def _peaks(mixes: Mapping[Mix, Sequence[Row]]) -> Section:
    beside = []
    for mix, rows in mixes.items():
        heights = [row.metrics["height"] for row in rows]
        printed = PRINTED.get(mix)
        if printed is not None:
            place, height = printed["at"], printed["height"]
            note = "in the text below Eq. 10"
            beside.append(_row(_name(mix), "peak at p", place, rows, "peak", note))
            beside.append(_row(_name(mix), "largest gradient", height, rows, "height", note))
        elif mix[0] == 1 and mix[1] in FOCUS:
            note = f"Eq. 14, F = {FOCUS[mix[1]]:g}"
            beside.append(_row(_name(mix), "peak at p", FOCUS[mix[1]], rows, "peak", note))
        else:
            place = rows[0].metrics["formula_peak"]
            beside.append(_row(_name(mix), "peak at p", place, rows, "peak", "0.5 (1 − α/β)"))
        if max(heights) - min(heights) > EQUAL:
            beside.append(
                Comparison((_name(mix), "spread over classes"), None, Number(max(heights)))
            )
    reference = mixes.get((1.0, 0.0), [])
    base = reference[0].metrics["mean"] if reference else None
    table = tuple(
        (
            _name(mix),
            _place(rows[0]),
            f"{rows[0].metrics['height']:.3f}",
            f"{rows[0].metrics['mean']:.3f}",
            "–" if base is None else f"{rows[0].metrics['mean'] / base:.2f}",
        )
        for mix, rows in mixes.items()
    )
    return Section(
        title="Peaks",
        text=(
            "A mix moves the peak and changes the size of all gradients at once. To tell the two "
            "effects apart takes cross entropy scaled to the same volume, the paper's Eq. 20 to "
            "22, in mixing-uci.",
        ),
        beside=tuple(beside),
        beside_head=("mix", "what"),
        unit="probability or size",
        slack=1e-4,
        grids=(
            Grid(
                title="How large the gradients are",
                head=("mix", "peak at p", "largest", "mean over p", "mean / cross entropy's"),
                rows=table,
                note="The mean is over p from 0 to 1, every p alike.",
            ),
        ),
    )


def _row(
    mix: str, what: str, theirs: float, rows: Sequence[Row], metric: str, note: str
) -> Comparison:
    values = [row.metrics[metric] for row in rows]
    furthest = max(values, key=lambda value: abs(value - theirs))
    return Comparison((mix, what), Number(theirs), Number(furthest, count=len(values)), note)


def _claims(mixes: Mapping[Mix, Sequence[Row]], text: Row | None) -> list[Claim]:
    """What the paper derives and says, as measured."""
    found = []
    every = [row for rows in mixes.values() for row in rows]
    if every:
        off = max(abs(row.metrics["peak"] - row.metrics["formula_peak"]) for row in every)
        wrong = max(max(r.metrics["off_eq_13"], r.metrics["off_eq_13_rivals"]) for r in every)
        for says, most, headline in (
            (f"peak at p = 0.5 (1 − α/β), of {len(mixes)} mixes", off, True),
            ("Eq. 13, every gradient", wrong, False),
        ):
            ours = f"off by {most:.0e}".replace("-", "−")
            found.append(Claim(says, "exactly", ours, most <= EQUAL, headline))
    if text is None:
        return found
    m = text.metrics
    half = abs(m["expected_error_rival_peak"] - 0.5) + abs(m["expected_error_rival_peak_own"] - 0.5)
    ce_less_el = "Cross entropy less expected error"
    for says, paper, ours, holds in (
        (
            "Rival's gradient, cross entropy: largest at the rival's probability",
            *("1", f"{m['cross_entropy_rival_peak']:.2f}", m["cross_entropy_rival_peak"] > 0.99),
        ),
        (
            "Rival's gradient, expected error: largest where both probabilities are",
            *("0.5", f"{m['expected_error_rival_peak']:.2f}", half < 0.02),
        ),
        (
            f"{ce_less_el} for p ≥ 3/4",
            *("≤ 0.055", f"{m['remainder_high']:.3f}", m["remainder_high"] <= 0.055),
        ),
        (
            f"{ce_less_el} for p ≤ 1/4",
            *("≥ 4.5", f"{m['remainder_low']:.3f}", m["remainder_low"] >= 4.5),
        ),
        (
            "Cross entropy's distance from the error, 1, for p ≤ 1/4",
            *("≥ 3.5", f"{m['cross_entropy_off_error']:.3f}", m["cross_entropy_off_error"] >= 3.5),
        ),
        (
            "Expected error's distance from the error, 1, for p ≤ 1/4",
            *("≤ 1", f"{m['expected_error_off_error']:.3f}", m["expected_error_off_error"] <= 1),
        ),
        (f"{ce_less_el}, everywhere", "≥ 0", f"{m['least_gap']:.0f}", m["least_gap"] >= 0),
    ):
        found.append(Claim(says, paper, ours, holds))
    return found
