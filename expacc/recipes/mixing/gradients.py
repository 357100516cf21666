"""mixing-gradients: Figure 1 of the mixing paper, and what its text says of it.

The gradient of a mix of cross entropy and expected error is measured by differentiating the loss.

Nothing here knows the papers' formulas but what a row compares itself with: logits are made so that
the true class has the probability p, ``mixed_expected_error`` is differentiated, and its peak is
searched.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from expacc.functional import expected_error, mixed_expected_error
from expacc.recipes.recipe import RecipeOptions, Work, final_row
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
    shared = {"classes": list(classes), "seed": options.seed}
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
        failed_rows=failed_rows,
        facts={"classes": list(classes)},
    )


def _row(item: WorkItem, name: str, **more: Any) -> Row:
    return final_row(item, name, table=item.payload["part"], loss="mixed_expected_error", **more)


def failed_rows(item: WorkItem, reason: str) -> list[Row]:
    """The row of an item that gave none."""
    weights = {k: v for k, v in item.payload.items() if k.endswith("_weight")}
    return [_row(item, "failed", numbers=weights, failure=reason)]


def execute(item: WorkItem, shared: Shared) -> list[Row]:
    """The rows of one mix, one per number of classes, or those of the text's claims."""
    torch.manual_seed(0)
    if item.payload["part"] == "text":
        return [_claims(item)]
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


def _claims(item: WorkItem) -> Row:
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
