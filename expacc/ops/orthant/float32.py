"""The orthant integral of a float32 batch on the CPU: nodes placed by a formula, no search.

``orthant.py`` finds mode and ends of each row's integrand by Newton's method, which for ten classes
costs more than the integral, and works in float64. Here the ends are polynomials in two numbers per
row: the nearest margin, and a soft count of the rivals that are about as near,

    b = min m/√2,    s = log Σ_i exp(SOFTNESS (b - m_i/√2)),

so that placing the nodes is two small matrix products. The polynomials (``calm_table.py``) are
fitted to the ends of many kinds of rows and widened by their largest error: the interval is up to
1.5 times as wide as need be, which costs some nodes. The formulas are those of ``orthant.py``:

    P = ∫ φ ∏Φ dz,    1-P = ∫ Φ ∏Φ Σ_i h_i dz,    ∂P/∂m_i = ∫ φ ∏Φ h_i dz,    h = φ/Φ at z + m,

with 1-P where the row is ahead. All arguments are y = -(z+m)/√2, so that Φ = erfc(y)/2.

Good for P and 1-P themselves at any margin, since what float32 cannot hold is 0; for their
logarithms only as long as nothing underflows, which is what ``is_calm`` asks.
"""

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor

from expacc.ops.orthant.float32_table import FAR, LEVEL, MOST_RIVALS, NEAR, SOFTNESS, count_nodes

__all__ = ["LIFT", "SLOPE", "Calm", "integrate_calm", "is_calm"]

_NEAREST = (-8.0, 16.0)  # within, P and 1-P are far from underflowing in float32
_REACH = 19.0  # P or 1-P of a row whose nearest margin is beyond underflows
LIFT = 2.0**96  # keeps what is computed on the way above float32's smallest
SLOPE = math.sqrt(2 / math.pi) / LIFT
_BLOCK = 1 << 17  # elements of a work buffer: 512 KiB, of which two are live
_ROWS = 512  # of a chunk at least: what is done per row, once, should not be done for a few
_MANY = 32  # rivals: the product of more 2Φ could overflow, and their roundings add up
_DITHER = 3e-6
_SQRT_HALF = math.sqrt(0.5)


class Calm(NamedTuple):
    """The integrals of some rows, in float32."""

    small: Tensor  # (rows,): LIFT (1-P) where ahead, LIFT P elsewhere
    ahead: Tensor  # (rows,)
    gradient: Tensor  # (rows, rivals): ∂P/∂m / SLOPE
    near: bool  # so that nothing underflows


def is_calm(nearest: Tensor, rivals: int) -> bool:
    """Is every P and 1-P far from underflowing? ``nearest``: each row's smallest margin, on CPU."""
    if rivals > MOST_RIVALS or nearest.numel() == 0:
        return False
    return _is_near(nearest, 1.0)


def _is_near(nearest: Tensor, scale: float) -> bool:
    low, high = torch.aminmax(nearest)
    # NaN is not.
    return _NEAREST[0] * scale <= low.item() and high.item() <= _NEAREST[1] * scale


@functools.cache
def _number(value: float) -> Tensor:
    """A cached number: on short tensors a Python scalar takes twice as long."""
    return torch.tensor(value, dtype=torch.float32, device="cpu")


@functools.cache
def _dither(rivals: int) -> Tensor:
    """Offsets of y, (rivals, 1): equal rivals would all be rounded the same way, these are not.

    The gradient takes their effect on P back, to second order.
    """
    offsets = torch.linspace(-_DITHER, _DITHER, rivals, dtype=torch.float32, device="cpu")
    return offsets.unsqueeze(1)


@functools.cache
def _rules(nodes: int, rivals: int, far: bool) -> tuple[Tensor, Tensor]:
    """[1, b, s] ⊗ [1, b, s] to the interval, (6, 9); the interval to nodes and weights, (…, 3)."""
    table = torch.tensor(FAR if far else NEAR, dtype=torch.float64, device="cpu")
    place = torch.zeros(6, 9, dtype=torch.float64, device="cpu")
    place[:, [0, 2, 8, 1, 5, 4]] = table
    t = torch.arange(0.5, nodes, dtype=torch.float64, device="cpu") / nodes
    # y(t) = left - width t + bend t (1-t), and dz/dt = -√2 dy/dt.
    places = torch.stack([torch.ones_like(t), -t, t - t * t], 1)
    weights = torch.stack([torch.zeros_like(t), torch.ones_like(t), 2 * t - 1], 1)
    # In the weights also φ's 1/√(2π), and the halves of ∏ 2Φ where they are not in the factors.
    scale = LIFT if rivals > _MANY else LIFT * 0.5**rivals
    weights *= scale / (nodes * math.sqrt(math.pi))
    return place.float(), torch.cat([places, weights]).float()


def integrate_calm(flat: Tensor, *, far: bool | None = None) -> Calm:
    """The integrals of margins (rows, rivals), float32, 2 to ``MOST_RIVALS`` rivals.

    Args:
        flat: +inf is an absent rival.
        far: false if ``is_calm``; None to find out. If not calm, what underflows is not right, but
            below float32's smallest normal number.
    """
    if torch.is_autocast_enabled("cpu"):  # which would shorten the products that place the nodes
        with torch.autocast("cpu", enabled=False):
            return integrate_calm(flat, far=far)
    rows, rivals = flat.shape
    step = max(_ROWS, _BLOCK // (rivals * count_nodes(rivals, False)))
    if rows <= step:
        return _integrate(flat, far)
    parts = [_integrate(part, far) for part in torch.split(flat, step)]
    small, ahead, gradient, near = zip(*parts, strict=True)
    return Calm(torch.cat(small), torch.cat(ahead), torch.cat(gradient), all(near))


def _integrate(flat: Tensor, far: bool | None) -> Calm:
    rows, rivals = flat.shape
    scaled = flat.t().clone(memory_format=torch.contiguous_format).mul_(_number(_SQRT_HALF))
    corner = scaled.new_ones((3, rows))  # 1, b, s
    base = torch.amin(scaled, 0, out=corner[1])
    if far is None:
        far = not _is_near(base, _SQRT_HALF)
    if far:
        scaled.clamp_(-1e18, 1e18)
        base.clamp_(-1e18, 1e18)
    # y = p + mu; 0 for the nearest rival. One that is 25 further has Φ = 1 at every node.
    mu = torch.sub(base, scaled, out=scaled).clamp_(min=_number(-25.0))
    if far:
        base.clamp_(-_REACH * _SQRT_HALF, _REACH * _SQRT_HALF)
    count = torch.log((mu * _number(SOFTNESS)).exp_().sum(0), out=corner[2])
    ahead = base > count * _number(LEVEL)
    many = rivals > _MANY
    if many:
        mu.add_(_dither(rivals))

    nodes = count_nodes(rivals, far)
    place, rule = _rules(nodes, rivals, far)
    interval = place @ (corner.unsqueeze(1) * corner).view(9, rows)
    nodes_weights = rule @ torch.where(ahead, interval[3:], interval[:3])
    p, weight = nodes_weights[:nodes], nodes_weights[nodes:]
    y = p + base  # of the target: z = -√2 y
    tail = torch.erfc(y.clamp(max=_number(9.0)) if far else y).mul_(weight)
    # The density as a square: neither it nor what it is multiplied by underflows on the way.
    root = torch.addcmul(_number(0.0), y, y, value=-0.5, out=y)
    root = (root.clamp_(min=_number(-80.0)) if far else root).exp_()
    density = weight.mul_(root), root

    slices = -(-nodes * rivals * rows // _BLOCK)
    if slices == 1:
        product, crossings, gradient = _evaluate(mu, p, *density)
    else:
        step = -(-nodes // slices)
        parts = zip(*(torch.split(t, step) for t in (p, *density)), strict=True)
        found = [_evaluate(mu, *part) for part in parts]
        product, crossings = (torch.cat([part[i] for part in found]) for i in (0, 1))
        gradient = functools.reduce(Tensor.add_, [part[2] for part in found])
    small = torch.where(ahead, crossings.mul_(product).mul_(tail).sum(0), density[0].sum(0))
    if many:
        change = (_dither(rivals).t() @ gradient).squeeze(0).mul_(_number(2 / math.sqrt(math.pi)))
        small.add_(torch.where(ahead, -change, change))
    return Calm(small, ahead, gradient.t(), not far)


def _evaluate(mu: Tensor, p: Tensor, weight: Tensor, root: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """At the nodes p, (nodes, rows): ∏Φ, Σh and Σ h · win, (rivals, rows); ``weight`` becomes win.

    The product is scaled, and h times √(π/2).
    """
    y = torch.add(p.unsqueeze(1), mu).clamp_(-9.3, 9.0)  # beyond, exp(-y²) is subnormal and slow
    cdf = torch.erfc(y)  # 2Φ
    hazard = torch.addcmul(_number(0.0), y, y, value=-1, out=y).exp_().div_(cdf)
    crossings = hazard.sum(1)
    product = (cdf.mul_(_number(0.5)) if mu.shape[0] > _MANY else cdf).prod(1)
    win = weight.mul_(product).mul_(root)
    return product, crossings, hazard.mul_(win.unsqueeze(1)).sum(0)
