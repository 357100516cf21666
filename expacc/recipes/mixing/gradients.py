"""mixing-gradients: Figure 1 of the mixing paper, and what its text says of it.

The gradient of a mix of cross entropy and expected error is measured by differentiating the loss.

Nothing here knows the papers' formulas but what a row compares itself with: logits are made so that
the true class has the probability p, ``mixed_expected_error`` is differentiated, and its peak is
searched.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from matplotlib.axes import Axes
from torch import Tensor

from expacc.functional import expected_error, mixed_expected_error
from expacc.recipes.page import Claim, Comparison, Number, Page
from expacc.recipes.paper import Layout, load_paper
from expacc.recipes.recipe import RecipeOptions, Work, failed_row, final_row
from expacc.report.figures import Chart
from expacc.report.panels import Line, Panel
from expacc.report.words import INK, NONE, SCALE, listed, looks
from expacc.runner.items import Shared, WorkItem
from expacc.runner.rows import Row

POINTS = 201  # of a curve
NEAR_ZERO = 1e-9  # where a probability can be no smaller: a peak there is a peak at 0
_GOLDEN = (math.sqrt(5) - 1) / 2


# (ce_weight, error_weight). Eq. 14 with F = 0 … 0.5, between the two losses alone, and Figure 1's
# "vice versa": error_weight 1 beside a smaller ce_weight. The values in the figure's legend are not
# in the text of the paper; the first family has those of its schedule.
MIXES = (
    *((1.0, 0.0), (1.0, 1.0), (1.0, 1.25), (1.0, 5 / 3), (1.0, 2.5), (1.0, 5.0), (0.0, 1.0)),
    *((0.5, 1.0), (0.2, 1.0), (0.1, 1.0)),
)
CLASSES = (2, 10, 100)
QUICK_CLASSES = (2, 10)


def plan(options: RecipeOptions) -> Work:
    """An item per mix, and one for what the text says."""
    classes = QUICK_CLASSES if options.quick else CLASSES
    shared = {"classes": list(classes), "seed": options.seed, "loss": "mixed_expected_error"}
    items = [
        WorkItem(
            f"mix-{ce:.3g}-{error:.3g}",
            {"part": "mix", "ce_weight": ce, "error_weight": error, **shared},
        )
        for ce, error in MIXES
    ]
    return Work(
        items=(*items, WorkItem("text", {"part": "text", **shared})),
        executor="expacc.recipes.mixing.gradients:execute",
        failed_rows=failed_row,
        facts={"classes": list(classes)},
    )


def _row(item: WorkItem, name: str, **more: Any) -> Row:
    asked = item.payload
    return final_row(item, name, table=asked["part"], loss=asked["loss"], **more)


def execute(item: WorkItem, shared: Shared) -> list[Row]:
    """The rows of one mix, one per number of classes, or those of the text's claims."""
    torch.manual_seed(0)
    if item.payload["part"] == "text":
        return [_text(item)]
    return [_mix(item, classes) for classes in item.payload["classes"]]


def gradients(p: Tensor, rivals: Tensor, ce_weight: float, error_weight: float) -> Tensor:
    """dL/dlogits, (points, 1 + rivals), where the true class, the first, has probability p."""
    true = torch.special.logit(p) + torch.logsumexp(rivals, 0)
    logits = torch.cat([true[:, None], rivals.expand(len(p), -1)], 1).requires_grad_()
    target = torch.zeros(len(p), dtype=torch.int64)
    loss = mixed_expected_error(
        logits, target, ce_weight=ce_weight, error_weight=error_weight, reduction="sum"
    )
    (gradient,) = torch.autograd.grad(loss, logits)
    return gradient


def _mix(item: WorkItem, classes: int) -> Row:
    ce, error = float(item.payload["ce_weight"]), float(item.payload["error_weight"])
    generator = torch.Generator().manual_seed(int(item.payload["seed"]))
    rivals = torch.randn(classes - 1, dtype=torch.float64, generator=generator)
    p = torch.linspace(NEAR_ZERO, 1 - NEAR_ZERO, POINTS, dtype=torch.float64)

    def size(points: Tensor) -> Tensor:
        return gradients(points, rivals, ce, error)[:, 0].abs()

    curve = size(p)
    peak, height = _peak(size, p, curve)
    printed = (error * p.square() + p * (ce - error) - ce).abs()  # Eq. 13, j = y
    whole = gradients(p, rivals, ce, error)
    shares = torch.softmax(rivals, 0) * (1 - p)[:, None]
    printed_rivals = shares * (error * p + ce)[:, None]  # Eq. 13, j ≠ y
    return _row(
        item,
        f"{classes}",
        numbers={"ce_weight": ce, "error_weight": error, "classes": classes},
        metrics={
            "peak": peak,
            "height": height,
            "formula_peak": 0.5 * max(0.0, 1 - ce / error) if error else 0.0,
            "off_eq_13": (curve - printed).abs().max().item(),
            "off_eq_13_rivals": (whole[:, 1:] - printed_rivals).abs().max().item(),
            "mean": torch.trapezoid(curve, p).item(),
        },
        curves={"p": tuple(p.tolist()), "gradient": tuple(curve.tolist())},
    )


def _peak(size: Callable[[Tensor], Tensor], p: Tensor, curve: Tensor) -> tuple[float, float]:
    """Where the gradient is largest, by golden section around the largest point of the curve."""
    place = int(curve.argmax())
    low, high = p[max(0, place - 1)].item(), p[min(len(p) - 1, place + 1)].item()
    while high - low > 1e-10:
        step = _GOLDEN * (high - low)
        left, right = size(torch.tensor([high - step, low + step], dtype=torch.float64)).tolist()
        low, high = (low, low + step) if left >= right else (high - step, high)
    middle = torch.tensor([(low + high) / 2], dtype=torch.float64)
    return middle.item(), size(middle).item()


def _text(item: WorkItem) -> Row:
    """What the text says between Eq. 10 and Eq. 12, measured on a fine grid."""
    low = torch.linspace(NEAR_ZERO, 0.25, 100_001, dtype=torch.float64)
    high = torch.linspace(0.75, 1 - NEAR_ZERO, 100_001, dtype=torch.float64)
    everywhere = torch.linspace(NEAR_ZERO, 1 - NEAR_ZERO, 100_001, dtype=torch.float64)
    # The two losses over p alone, from the library: two classes, logit(p) against 0.
    metrics: dict[str, float] = {
        "remainder_high": (_cross_entropy(high) - _expected_error(high)).max().item(),
        "remainder_low": (_cross_entropy(low) - _expected_error(low)).min().item(),
        "cross_entropy_off_error": (_cross_entropy(low) - 1).min().item(),
        "expected_error_off_error": (1 - _expected_error(low)).max().item(),
        "least_gap": (_cross_entropy(everywhere) - _expected_error(everywhere)).min().item(),
        **_rival_peaks(),
    }
    return _row(item, "", metrics=metrics)


def _of_two(p: Tensor, loss: Callable[..., Tensor], **numbers: Any) -> Tensor:
    logits = torch.stack([torch.special.logit(p), torch.zeros_like(p)], 1)
    return loss(logits, torch.zeros(len(p), dtype=torch.int64), reduction="none", **numbers)


def _cross_entropy(p: Tensor) -> Tensor:
    return _of_two(p, mixed_expected_error, ce_weight=1.0, error_weight=0.0)


def _expected_error(p: Tensor) -> Tensor:
    return _of_two(p, expected_error)


def _rival_peaks() -> dict[str, float]:
    """Where a rival's gradient is largest, over p of the true class and of that rival."""
    side = torch.linspace(0, 1, 201, dtype=torch.float64).clamp(NEAR_ZERO, 1 - NEAR_ZERO)
    own, rival = (part.flatten() for part in torch.meshgrid(side, side, indexing="ij"))
    inside = own + rival <= 1 + NEAR_ZERO
    own, rival = own[inside], rival[inside]
    rest = (1 - own - rival).clamp(min=NEAR_ZERO)  # a third class takes what is left
    logits = torch.stack([own, rival, rest], 1).log()
    target = torch.zeros(len(own), dtype=torch.int64)
    found = {}
    for name, ce, error in (("cross_entropy", 1.0, 0.0), ("expected_error", 0.0, 1.0)):
        leaf = logits.clone().requires_grad_()
        loss = mixed_expected_error(leaf, target, ce_weight=ce, error_weight=error, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, leaf)
        best = int(gradient[:, 1].argmax())
        found[f"{name}_rival_peak_own"] = own[best].item()
        found[f"{name}_rival_peak"] = rival[best].item()
        found[f"{name}_rival_height"] = gradient[best, 1].item()
    return found


# ----------------------------------------------------------------------------------------- the page

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
