"""A loss and the pull of its gradient against p(target), of two classes, as an inline SVG.

Inline, so that its lines follow the page by day and by night, and nothing is fetched.
"""

import math
from html import escape
from typing import Any

import torch

from expacc.registry import REFERENCE, SPECS
from expacc.registry.spec import LossSpec

# Of whole batches, or of more than logits and labels: no curve over one row's p.
LEFT_OUT = ("expected_balanced_error", "expected_f1_error", "complement_entropy")
WITH = {"exact": {"sigma": 1.0, "standardize": False}}  # its defaults are a schedule, and a batch
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 340, 230, 38, 26, 8, 34
Points = list[tuple[float, float]]


def numbers_of(spec: LossSpec) -> dict[str, Any]:
    """What it is drawn with: its defaults."""
    return WITH.get(spec.name, dict(spec.defaults))


def curves(spec: LossSpec) -> tuple[Points, Points] | None:
    """(p, loss) and (p, |dL/dz|); None for a loss that is no curve over p."""
    binary = spec.family == "binary"
    if spec.name in LEFT_OUT or spec.function is None or (spec.needs and not binary):
        return None
    p = torch.linspace(0.005, 0.995, 199, dtype=torch.float64)
    lead = (p / (1 - p)).log()
    logits = (lead if binary else torch.stack([lead, 0 * lead], 1)).requires_grad_()
    target = torch.ones_like(p) if binary else torch.zeros(len(p), dtype=torch.int64)
    values = spec.function(logits, target, reduction="none", **numbers_of(spec))
    (grad,) = torch.autograd.grad(values.sum(), logits)
    pull = (grad if binary else grad[:, 0]).abs()
    return tuple(
        list(zip(p.tolist(), line.tolist(), strict=True)) for line in (values.detach(), pull)
    )  # type: ignore[return-value]


def _ceiling(highest: float) -> float:
    """The next round number: 1, 1.5, 2, 3, 4, 5 or 8 times a power of ten."""
    unit = 10.0 ** math.floor(math.log10(highest))
    return next(unit * one for one in (1, 1.5, 2, 3, 4, 5, 8, 10) if unit * one >= highest * 0.999)


def _panel(title: str, line: Points, reference: Points | None, which: str) -> str:
    highest, beside = (
        max((y for x, y in points or () if x >= 0.02), default=0.0) for points in (line, reference)
    )
    top = _ceiling(max(highest, beside if beside < 4 * highest else 0.0))
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(x: float, y: float) -> str:
        return f"{LEFT + x * wide:.1f},{TOP + (1 - y / top) * high:.1f}"

    def path(points: Points, name: str) -> str:
        return (
            f'<polyline class="{name}" clip-path="url(#{which})" '
            f'points="{" ".join(place(x, min(y, 3 * top)) for x, y in points)}"/>'
        )

    ticks = [
        f'<text x="{LEFT + x * wide:.1f}" y="{HEIGHT - 18}" text-anchor="middle">{x:g}</text>'
        for x in (0, 0.5, 1)
    ]
    for y in (0, top / 2, top):
        height = TOP + (1 - y / top) * high
        ticks.append(f'<text x="{LEFT - 5}" y="{height + 4:.1f}" text-anchor="end">{y:g}</text>')
        ticks.append(f'<path class="grid" d="M{LEFT} {height:.1f}h{wide}"/>')
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f'<clipPath id="{which}"><rect x="{LEFT}" y="{TOP - 2}" width="{wide}" '
        f'height="{high + 4}"/></clipPath>'
        f'<text class="title" x="{LEFT}" y="15">{escape(title)}</text>{"".join(ticks)}'
        f'<path class="grid" d="M{LEFT + wide / 2} {TOP}v{high}"/>'
        f'<text x="{LEFT + wide / 2}" y="{HEIGHT - 3}" text-anchor="middle">p(target)</text>'
        f"{path(reference, 'reference') if reference else ''}{path(line, 'loss')}</svg>"
    )


def picture(spec: LossSpec) -> str:
    """Two panels, loss and pull; '' for a loss that is no curve over p."""
    found = curves(spec)
    if found is None:
        return ""
    known = None if spec.name == REFERENCE else curves(SPECS[REFERENCE])
    day, night = spec.look[:2] if spec.look[0] else ("#0072b2", "#4db1ea")
    titles = ("loss", "pull on the true class’s logit")
    panels = [
        _panel(title, line, known[which] if known else None, f"{spec.name}-{which}")
        for which, (title, line) in enumerate(zip(titles, found, strict=True))
    ]
    shown = [
        f"{name} {value:g}"
        for name, value in numbers_of(spec).items()
        if isinstance(value, float) and not isinstance(value, bool)
    ]
    drawn = ", ".join([spec.label, *shown])
    beside = " Grey, dashed: cross entropy." if known else ""
    return (
        f'<figure class="curve" data-search-exclude style="--day:{day};--night:{night}">'
        f"{''.join(panels)}"
        f"<figcaption>{escape(drawn)}; two classes.{beside}</figcaption></figure>"
    )
