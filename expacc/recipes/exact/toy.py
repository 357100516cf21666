"""The toy data of the EXACT paper, and how thresholds are found on them.

The model is f(x) = k (x - b) and its logits are (0, f), each with noise of standard deviation sigma
(Eq. 8), so that P(+1) = Phi(f / (sigma √2)). Thresholds are found by search over k and b, and by
the descents of the paper; everything takes many starts at once, each on its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from expacc.baselines import hinge
from expacc.functional import exact_error

LOSSES = ("cross_entropy", "hinge", "exact")


@dataclass(frozen=True)
class Toy:
    """Points on a line, of class -1 or +1; the model is f(x) = k (x - b), class +1 if f(x) >= 0.

    Args:
        name: in keys.
        title: for people.
        x: where the points are.
        label: 1 for the paper's class +1, 0 for its class -1.
        search: where thresholds b are looked for.
        view: the thresholds that charts show.
        starts: between which training starts, when it starts at random.
        temperatures: the k that are held fixed in turn.
    """

    name: str
    title: str
    x: tuple[float, ...]
    label: tuple[int, ...]
    search: tuple[float, float]
    view: tuple[float, float]
    starts: tuple[float, float]
    temperatures: tuple[float, ...]


# Section 3, Figure 1
THREE = Toy(
    "three", "three points", (-0.25, 0, 0.25), (0, 0, 1),
    search=(-10, 40), view=(-1, 1.5), starts=(-1, 1), temperatures=(1, 2, 4, 8, 32),
)  # fmt: skip
# Appendix E, Figure 10
FIVE = Toy(
    "five", "five points", (-6, -5, -4, 0, 2), (0, 1, 1, 0, 1),
    search=(-1000, 100), view=(-14, 8), starts=(-8, 4), temperatures=(0.05, 0.15, 0.5, 1, 4, 32),
)  # fmt: skip
TOYS = {toy.name: toy for toy in (THREE, FIVE)}


def accuracy(toy: Toy, k: float, b: float) -> float:
    """Share of points in their class; f(x) = 0 is class +1 (Eq. 1)."""
    right = [(k * (x - b) >= 0) == bool(y) for x, y in zip(toy.x, toy.label, strict=True)]
    return sum(right) / len(right)


def best(toy: Toy) -> tuple[float, tuple[float, float]]:
    """The highest accuracy of any threshold, and the first interval of thresholds that has it."""
    ends = sorted(toy.x)
    gaps = list(zip([ends[0] - 1, *ends], [*ends, ends[-1] + 1], strict=True))
    shares = [max(accuracy(toy, k, (low + high) / 2) for k in (1.0, -1.0)) for low, high in gaps]
    highest = max(shares)
    return highest, gaps[shares.index(highest)]


NO_THRESHOLD = 100.0  # beyond it a threshold only says that all points are in one class


def place_text(metrics: Mapping[str, float], toy: Toy) -> str:
    """A threshold, or the two ends of a flat part, in words."""
    low, high = metrics["low"], metrics["high"]
    if abs(low) > NO_THRESHOLD:
        return "none"
    digits = 3 if toy.name == "three" else 2
    texts = [f"{end:.{digits}f}".replace("-", "−") for end in (low, high)]
    return " … ".join(dict.fromkeys(texts))


def percent_text(metrics: Mapping[str, float]) -> str:
    """The accuracy, or the lowest and the highest of a flat part."""
    low, high = (100 * metrics[name] for name in ("accuracy", "accuracy_high"))
    return f"{low:.0f} %" if high - low < 0.5 else f"{low:.0f} to {high:.0f} %"


Loss = Callable[..., Tensor]
# As many steps as the authors' code for the descents, 5000, of which the last do nothing: the
# first ends by step 3200, and in the second sigma is 0.03 at step 800.
WITH_SIGMA, LOWERING = 3500, 1000
FLAT = 1e-13  # losses this near the smallest are as small
DECAY, FLOOR = 0.9, 1e-2  # of the gradient normaliser, Section 4.5.4


def loss_of(name: str, **numbers: Any) -> Loss:
    """A loss per row: 'cross_entropy', 'hinge' or 'exact', as the paper's Eq. 2, 4 and 15."""
    if name == "cross_entropy":
        return partial(F.cross_entropy, reduction="none")
    if name == "hinge":
        return partial(hinge, reduction="none")
    return partial(exact_error, standardize=False, reduction="none", **numbers)


@dataclass(frozen=True)
class Found:
    """Every threshold from low to high has the same loss; the two are equal unless it is flat.

    Args:
        low: threshold.
        high: threshold.
        k: the temperature.
        loss: there.
        accuracy: the lowest from low to high, in [0, 1].
        accuracy_high: the highest.
    """

    low: float
    high: float
    k: float
    loss: float
    accuracy: float
    accuracy_high: float


def risk(loss: Loss, toy: Toy, k: Tensor | float, offset: Tensor) -> Tensor:
    """Mean loss over the points for f(x) = k x + offset, so that b = -offset/k; any shape."""
    x, label = torch.tensor(toy.x, dtype=torch.float64), torch.tensor(toy.label)
    slope = k[..., None] if isinstance(k, Tensor) else k
    scores = slope * x + offset[..., None]
    logits = torch.stack([torch.zeros_like(scores), scores], -1).reshape(-1, 2)
    return loss(logits, label.expand(scores.shape).flatten()).view(scores.shape).mean(-1)


def found_at(toy: Toy, k: float, b: Tensor, values: Tensor) -> Found:
    """The part of the thresholds b where the loss is smallest."""
    b = b[values <= values.min() + FLAT]
    if b[-1] - b[0] < 1e-6:  # one threshold, known up to rounding: it may lie on a point
        b = ((b[:1] + b[-1:]) / 2).round(decimals=9)
    low, high = b[0].item(), b[-1].item()
    between = torch.linspace(low, high, 101, dtype=torch.float64).tolist()
    shares = [accuracy(toy, k, place) for place in between]
    return Found(low, high, k, values.min().item(), min(shares), max(shares))


def best_threshold(loss: Loss, toy: Toy, k: float = 1.0) -> Found:
    """Minimise over b with k fixed: a grid, then finer grids around its lowest points."""
    low, high = toy.search
    for _ in range(8):
        b = torch.linspace(low, high, 2001, dtype=torch.float64)
        found = found_at(toy, k, b, risk(loss, toy, k, -k * b))
        step = (high - low) / 2000
        low, high = found.low - step, found.high + step
    return found


def best_on_grid(loss: Loss, toy: Toy) -> Found:
    """Minimise over the grid k = 0.02, 0.04 … 1 and b from 5 below the data to 5 above, by 0.25.

    Appendix E searched a grid of k and b but does not print it; this one gives both its numbers.
    """
    b = torch.arange(min(toy.x) - 5, max(toy.x) + 5.25, 0.25, dtype=torch.float64)
    rows = [found_at(toy, k / 50, b, risk(loss, toy, k / 50, -k / 50 * b)) for k in range(1, 51)]
    return min(rows, key=lambda found: found.loss)


def train_k_and_b(loss: Loss, toy: Toy, k: Tensor, b: Tensor, steps: int) -> list[Found]:
    """Adam from each k and b, its learning rate falling from 0.1 to 0.

    The offset -k b is trained in b's place: cross entropy and hinge are convex in the two.
    """
    line = torch.stack([k, -k * b]).double().requires_grad_()
    optimizer = torch.optim.Adam([line], lr=0.1)
    falling = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    value = torch.zeros(())
    for _ in range(steps):
        optimizer.zero_grad()
        value = risk(loss, toy, line[0], line[1])
        torch.autograd.backward(value.sum())  # each start has a k and an offset of its own
        optimizer.step()
        falling.step()
    temperature, offset = line.detach()
    return _ends(toy, temperature, -offset / temperature, value.detach())


def descend_with_sigma(loss: Loss, toy: Toy, b: Tensor, steps: int) -> list[Found]:
    """Section 3's descent, as in the authors' code: b and sigma, from 1, both trained by SGD."""
    both = torch.stack([b, torch.zeros_like(b)]).double().requires_grad_()  # b, log sigma
    optimizer = torch.optim.SGD([both], lr=0.01)
    value = torch.zeros(())
    for _ in range(steps):
        optimizer.zero_grad()
        k = torch.exp(-both[1])  # only f / sigma matters: 1 / sigma is EXACT's temperature
        value = risk(loss, toy, k, -k * both[0])
        torch.autograd.backward(value.sum())
        optimizer.step()
    threshold, log_sigma = both.detach()
    return _ends(toy, torch.exp(-log_sigma), threshold, value.detach())


def descend_lowering_sigma(loss: Loss, toy: Toy, b: Tensor, steps: int) -> list[Found]:
    """Appendix E's descent: b alone, sigma = 100 · 0.99^step, gradients by their running mean."""
    threshold = b.double().clone().requires_grad_()
    optimizer = torch.optim.SGD([threshold], lr=0.01)
    value, mean = torch.zeros(()), None
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        value = risk(partial(loss, sigma=100 * 0.99**step), toy, 1.0, -threshold)
        torch.autograd.backward(value.sum())
        gradient = threshold.grad
        if gradient is not None:
            norm = gradient.abs()
            mean = norm if mean is None else DECAY * mean + (1 - DECAY) * norm
            gradient /= mean.clamp(min=FLOOR)
        optimizer.step()
    ones = torch.ones_like(threshold.detach())
    return _ends(toy, ones, threshold.detach(), value.detach())


def as_the_paper(toy: Toy, name: str) -> Found:
    """The threshold of a loss, found as the paper finds it, from b = 0 where it descends."""
    loss, zero = loss_of(name), torch.zeros(1, dtype=torch.float64)
    if name != "exact":
        return best_threshold(loss, toy) if toy.name == "three" else best_on_grid(loss, toy)
    if toy.name == "three":
        return descend_with_sigma(loss, toy, zero, WITH_SIGMA)[0]
    return descend_lowering_sigma(loss, toy, zero, LOWERING)[0]


def _ends(toy: Toy, k: Tensor, b: Tensor, values: Tensor) -> list[Found]:
    found = []
    for one, place, value in zip(k.tolist(), b.tolist(), values.tolist(), strict=True):
        share = accuracy(toy, one, round(place, 9))
        found.append(Found(place, place, one, value, share, share))
    return found
