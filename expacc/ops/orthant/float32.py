"""The orthant integral of a float32 batch on the CPU: nodes placed by a formula, no search.

``integral.py`` finds mode and ends of each row's integrand by Newton's method, which for ten
classes costs more than the integral, and works in float64. Here the ends are polynomials in two
numbers per row: the nearest margin, and a soft count of the rivals that are about as near,

    b = min m/√2,    s = log Σ_i exp(SOFTNESS (b - m_i/√2)),

so that placing the nodes is two small matrix products. The polynomials (at the end of this file)
are fitted to the ends of many kinds of rows and widened by their largest error: the interval is up
to 1.5 times as wide as need be, which costs some nodes. The formulas are those of ``integral.py``:

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
def _rules(nodes: int, rivals: int, table: tuple[tuple[float, ...], ...]) -> tuple[Tensor, Tensor]:
    """[1, b, s] ⊗ [1, b, s] to the interval, (…, 9); the interval to nodes and weights, (…, 3)."""
    place = torch.zeros(len(table), 9, dtype=torch.float64, device="cpu")
    place[:, [0, 2, 8, 1, 5, 4]] = torch.tensor(table, dtype=torch.float64, device="cpu")
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
    place, rule = _rules(nodes, rivals, FAR if far else NEAR)
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
    hazard, cdf = _hazards(mu, p)
    crossings, product = hazard.sum(1), cdf.prod(1)
    win = weight.mul_(product).mul_(root)
    return product, crossings, hazard.mul_(win.unsqueeze(1)).sum(0)


def _hazards(mu: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """√(π/2) h and 2Φ, of many rivals Φ, (nodes, rivals, rows)."""
    y = torch.add(p.unsqueeze(1), mu).clamp_(-9.3, 9.0)  # beyond, exp(-y²) is subnormal and slow
    cdf = torch.erfc(y)
    hazard = torch.addcmul(_number(0.0), y, y, value=-1, out=y).exp_().div_(cdf)
    return hazard, cdf.mul_(_number(0.5)) if mu.shape[0] > _MANY else cdf


# ------------------------------------------------------------------ what the rivals' wins cost


def integrate_upsets(leads: Tensor, costs: Tensor) -> tuple[Tensor, Tensor]:
    """V (rows,), float64, and ∂V/∂leads (rows, rivals), as ``rival_cost.py`` defines them.

    Args:
        leads: (rows, rivals), float32, >= 0, 2 to ``MOST_RIVALS`` rivals; +inf is an absent one.
        costs: (rows, rivals), float32.
    """
    if torch.is_autocast_enabled("cpu"):
        with torch.autocast("cpu", enabled=False):
            return integrate_upsets(leads, costs)
    rivals = leads.shape[1]
    step = max(_ROWS, _BLOCK // (rivals * _upset_nodes(rivals)))
    pairs = zip(torch.split(leads, step), torch.split(costs, step), strict=True)
    values, slopes = zip(*(_upsets(*pair) for pair in pairs), strict=True)
    return torch.cat(values), torch.cat(slopes)


def _upsets(leads: Tensor, costs: Tensor) -> tuple[Tensor, Tensor]:
    rows, rivals = leads.shape
    scaled = leads.t().clone(memory_format=torch.contiguous_format)
    scaled.mul_(_number(_SQRT_HALF)).clamp_(max=1e18)
    costs = costs.t().contiguous()
    corner = scaled.new_ones((3, rows))  # 1, b, s
    base = torch.amin(scaled, 0, out=corner[1])
    mu = torch.sub(base, scaled, out=scaled).clamp_(min=_number(-25.0))
    gone = base > _REACH * _SQRT_HALF
    base.clamp_(max=_REACH * _SQRT_HALF)
    torch.log((mu * _number(SOFTNESS)).exp_().sum(0), out=corner[2])
    many = rivals > _MANY
    if many:
        mu.add_(_dither(rivals))
    nodes = _upset_nodes(rivals)
    place, rule = _rules(nodes, rivals, UPSET)
    p, weight = (rule @ (place @ (corner.unsqueeze(1) * corner).view(9, rows))).view(2, nodes, rows)
    y = p + base
    tail = torch.erfc(y.clamp(max=_number(9.0))).mul_(weight)
    root = y.square_().mul_(_number(-0.5)).clamp_(min=_number(-80.0)).exp_()
    density = weight.mul_(root)
    slope, value = torch.zeros_like(mu), torch.zeros_like(base)
    step = -(-nodes // -(-nodes * rivals * rows // _BLOCK))
    for nodes_p, density_p, root_p, tail_p in zip(
        *(torch.split(t, step) for t in (p, density, root, tail)), strict=True
    ):
        hazard, cdf = _hazards(mu, nodes_p)
        product = cdf.prod(1)
        lose = tail_p.mul_(product)
        priced = torch.mul(hazard, costs, out=cdf).sum(1).mul_(lose)  # A
        pull = density_p.mul_(product).mul_(root_p).addcmul_(hazard.sum(1), lose)  # H
        value.add_(priced.sum(0))
        factor = torch.mul(costs, pull.unsqueeze(1), out=cdf).sub_(priced.unsqueeze(1))
        slope.sub_(factor.mul_(hazard).sum(0))
    if many:
        value.add_((_dither(rivals).t() @ slope).squeeze(0), alpha=2 / math.sqrt(math.pi))
    slope.mul_(_number(SLOPE)).masked_fill_(gone, 0.0)
    return value.double().mul_(1 / LIFT).masked_fill_(gone, 0.0), slope.t()


# ------------------------------------------------- where the integrand of a row lives, as fitted

# By tests/tables/make_calm_table.py. Each line of a table holds the coefficients of 1, s, s², b,
# b s and b²; each table has six lines: left end, width and bend of the grid of a row that is
# behind, and the same for one that is ahead.
SOFTNESS = 1.4
LEVEL = 0.38  # a row is ahead if b > LEVEL s: P is then 0.41 or more, elsewhere 0.67 or less
MOST_RIVALS = 99

# For nearest margins from -8 to 19.
NEAR = (
    (4.1551, -2.1033, 0.2949, -0.20846, 0.044092, 0.0052437),
    (8.1487, -1.8802, 0.26568, 0.74273, -0.027958, 0.063054),
    (1.7245, 0.47557, -0.097579, 0.24014, 0.022641, 0.0047953),
    (2.5692, -0.53314, -0.01208, -0.29098, 0.053866, -0.014781),
    (6.5017, -0.53279, -0.012041, -0.026854, 0.053829, -0.0023257),
    (1.4169, 0.50346, -0.0060448, -0.41266, -0.032656, 0.023789),
)
# For nearest margins from -19 to 19, if log P > -92.
FAR = (
    (5.9917, -2.9929, 0.4716, 0.016582, 0.057405, 0.020896),
    (9.9262, -2.684, 0.46609, 0.47249, 0.0077125, 0.019788),
    (1.2534, 0.56165, -0.034922, 0.097263, 0.075396, 0.0047438),
    (2.572, -0.54501, -0.0077881, -0.29144, 0.053295, -0.014774),
    (6.5074, -0.54443, -0.0077421, -0.028136, 0.053242, -0.0022689),
    (1.4042, 0.53057, -0.013596, -0.36265, -0.035552, 0.018473),
)
# Where the best class loses: nearest leads from 0 to 19.
UPSET = (
    (2.5732, -0.54533, -0.014615, -0.28158, 0.0562, -0.015494),
    (6.8004, -0.55808, -0.007329, -0.08741, 0.054765, 0.0014397),
    (1.5595, 0.38943, -0.021113, -0.38307, -0.0054043, 0.017418),
)

# Rivals up to which so many nodes leave 1e-6 of log P, 2e-5 of the gradient; near and far.
_NODES = ((9, 15, 22), (15, 16, 24), (31, 18, 26), (63, 24, 32), (MOST_RIVALS, 28, 40))


@functools.cache
def count_nodes(rivals: int, far: bool) -> int:
    """How many nodes a row of at most ``MOST_RIVALS`` rivals needs."""
    return next(count[far] for most, *count in _NODES if rivals <= most)


def _upset_nodes(rivals: int) -> int:
    """As many as leave 1e-7 of V and 1e-6 of its gradient, relative to the likeliest upset."""
    return 16 if rivals <= 9 else 18 if rivals <= 15 else 20 if rivals <= 31 else 22
