"""∂P/∂m_i of P(the true class wins) alone: what a step of training needs, and no more.

Differentiating P in m_i puts rival i level with the true class, and a Gaussian with one margin
pinned at 0 is a Gaussian again, with a margin less:

    ∂P/∂m_i = φ(m_i/√2)/√2 · P(all others positive | margin i is 0),

whose margins are m_j - m_i/2 with variance 3/2 and covariance 1/2. One rival: no other, closed
form. Two: Φ. Three: the bivariate normal with correlation 1/3, Φ·Φ plus an integral over [0, 1/3]
so smooth that three nodes do. From four on, the integral over z, by a fixed rule about each row's
own centre. All of it elementwise in the rows, so that a row's slopes do not depend on its company.

The error is below 4e-7 everywhere (a slope is at most 0.28) and below 0.4 % of the row's largest
slope where that is above 1e-12. ``integral.py`` has every digit of the smallest ones too, at many
times the cost.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from expacc.ops.orthant.noise import constant_like

_ROOT_HALF = math.sqrt(0.5)
_DENSITY = 1 / math.sqrt(2 * math.pi)
EXP_MIN = -80.0  # exp of less is subnormal in float32, and 100 times as slow
_FARTHEST = 17.8  # φ(m/√2) is e^-79 there: a lead or lag beyond has no slope to speak of
_SLICE = 1 << 17  # numbers evaluated at once: the second-level cache
# On the CPU the last rows of a tensor are computed by other code than those that fill vectors, with
# other last bits. With a multiple of every vector's width there are none.
_WIDTH = 64


def win_slopes(leads: Tensor) -> Tensor:
    """∂P/∂lead of leads (rivals, rows) in units of the noise; +inf is an absent rival."""
    return _slopes(leads) if leads.device.type != "cpu" else _in_full_vectors(_slopes, leads)


def _in_full_vectors(function: Callable[[Tensor], Tensor], given: Tensor) -> Tensor:
    """The function's results for columns filled up with zeros; theirs are dropped."""
    rows = given.shape[1]
    if rows % _WIDTH == 0:
        return function(given)
    return function(torch.nn.functional.pad(given, (0, -rows % _WIDTH)))[:, :rows]


def _slopes(leads: Tensor) -> Tensor:
    leads = leads.clamp(-_FARTHEST, _FARTHEST)
    rivals = leads.shape[0]
    if rivals == 1:
        return _crossing(leads, 1.0)
    if rivals == 2:
        # Φ(x/√1.5) = erfc(-x/√3)/2 of the other's lead, x = m_j - m_i/2
        other = torch.sub(leads / 2, leads.flip(0)).mul_(1 / math.sqrt(3))
        return torch.erfc(other).mul_(_crossing(leads, 0.5))
    if rivals == 3:
        return _three(leads)
    return _many(leads)


def _crossing(lead: Tensor, factor: float) -> Tensor:
    """φ(m/√2)/√2, times a factor: the density of a dead heat with one rival."""
    return lead.square().mul_(-0.25).exp_().mul_(factor * _DENSITY * _ROOT_HALF)


@functools.cache
def _angles() -> tuple[tuple[float, ...], ...]:
    """Gauss–Legendre for 4 ∫ exp(-(h² + k² - 2 h k sin t) / (2 cos² t)) dt / 2π, sin t to 1/3.

    Per node the logarithm of its weight, and the factors of h² + k² and of h k for arguments
    divided by √2.
    """
    half = math.asin(1 / 3) / 2
    logs, squares, products = [], [], []
    for node, weight in ((-math.sqrt(0.6), 5 / 9), (0.0, 8 / 9), (math.sqrt(0.6), 5 / 9)):
        sine = math.sin(half * (1 + node))
        logs.append(math.log(4 * weight * half / (2 * math.pi)))
        squares.append(-1 / (1 - sine * sine))
        products.append(2 * sine / (1 - sine * sine))
    return tuple(logs), tuple(squares), tuple(products)


class _Constants(NamedTuple):
    """What ``_three`` multiplies with, where it is: a Python number would be copied each time."""

    shrink: Tensor  # -1/√3
    cyclic: Tensor
    logs: Tensor
    squares: Tensor
    products: Tensor
    log_crossing: Tensor


@functools.cache
def _constants(dtype: torch.dtype, device: torch.device) -> _Constants:
    def tensor(*values: float) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=device).view(-1, 1, 1)

    logs, squares, products = (tensor(*part) for part in _angles())
    return _Constants(
        shrink=tensor(-1 / math.sqrt(3)).view(()),
        cyclic=torch.tensor([1, 2, 0, 2, 0, 1], device=device),
        logs=logs,
        squares=squares,
        products=products,
        log_crossing=tensor(math.log(0.25 * _DENSITY * _ROOT_HALF)).view(()),
    )


def _three(leads: Tensor) -> Tensor:
    known = _constants(leads.dtype, leads.device)
    # With rival i level, the two others j = i+1 and k = i+2 (cyclically) lead by m_j - m_i/2 with
    # deviation √1.5; -h/√2 and -k/√2, (2, 3, rows).
    scaled = leads * known.shrink
    behind = scaled.index_select(0, known.cyclic).view(2, *leads.shape)
    behind.sub_(scaled, alpha=0.5)
    exponent = torch.addcmul(known.logs, behind.square().sum(0), known.squares)
    exponent.addcmul_(behind[0] * behind[1], known.products)
    joint = exponent.clamp_(min=EXP_MIN).exp_().sum(0)
    tails = behind.erfc_()
    # The density of a dead heat: m²/4 is 3/4 of the scaled square.
    crossing = torch.addcmul(known.log_crossing, scaled, scaled, value=-0.75).exp_()
    return joint.addcmul_(tails[0], tails[1]).mul_(crossing)


@functools.cache
def _rule(rivals: int) -> tuple[tuple[float, ...], float]:
    """Offsets from a row's centre and their step; the product of more rivals is narrower."""
    step = 0.55 if rivals < 6 else 0.48 if rivals < 16 else 0.36 if rivals < 128 else 0.28
    below, above = math.ceil(5.8 / step), math.ceil(5.6 / step)
    return tuple(k * step for k in range(-below, above + 1)), step


def _many(leads: Tensor) -> Tensor:
    """The trapezoidal rule about -m/2 of the nearest rival, where the two are level."""
    rivals, rows = leads.shape
    offsets, step = _rule(rivals)
    nodes = constant_like(offsets, leads).view(-1, 1, 1)
    most = max(1, _SLICE // (rivals * len(offsets)) // _WIDTH) * _WIDTH
    if rows > most:
        return torch.cat([_many(part) for part in torch.split(leads, most, 1)], 1)
    centre = leads.amin(0, keepdim=True).mul_(-0.5)
    z = nodes + centre  # (nodes, 1, rows)
    x = (leads + z).clamp_(min=-12.0)
    cdf = torch.erfc(x * -_ROOT_HALF).mul_(0.5)
    hazard = x.square_().mul_(-0.5).clamp_(min=EXP_MIN).exp_().div_(cdf)
    win = cdf.log_().sum(1, keepdim=True).sub_(z.square_().mul_(0.5)).clamp_(min=EXP_MIN).exp_()
    return hazard.mul_(win).sum(0).mul_(step * _DENSITY * _DENSITY)


# ------------------------------------------------------------------------------ below a margin

# On the CPU, where training EXACT spends its time. A lead beyond the margin counts as the margin
# and has no slope: most rows have none at all. The rivals at the margin are one factor of the
# integral together, Φ(margin + z) to the power of their number, so of very many classes only the
# nearest need factors of their own. Few factors can be multiplied as they are, without logarithms,
# and a shorter rule does for rows that are not lost by far. Other rows go the long way, and those
# whose slopes are all below 1e-16 have none. The error is that of ``win_slopes``.
_COSTLY = 3  # rivals from which it pays to look for the rows that count
_MANY, _NEAREST = 16, 8  # from so many rivals on, so many have factors of their own
_LOST = -5.0  # rows with a lead below would need nodes farther up
_FORLORN = -12.0  # no slope of a row with a lead below is above 1e-16
_EDGE = 8.9  # beyond, 1 + erf is 0 or 2, and exp(-v²) is nothing that counts


def slopes_within(leads: Tensor, within: Tensor, limit: Tensor) -> Tensor:
    """``win_slopes`` of the leads within the margin, soon; those of others, or < 1e-16, may be 0.

    Args:
        leads: (rivals, rows) in units of the noise, none above its row's limit.
        within: which are below the limit, (rivals, rows) bool.
        limit: (rows), the margin in the same units.
    """
    rivals = len(leads)
    if leads.device.type != "cpu" or rivals < _COSTLY:  # a GPU would have to wait for the count
        return win_slopes(leads)
    counted = within.any(0)
    if rivals == _COSTLY:
        if 2 * int(counted.sum()) > leads.shape[1]:
            return win_slopes(leads)
        return _fill(torch.zeros_like(leads), counted, win_slopes, leads)
    lowest = leads.amin(0)
    counted.logical_and_((lowest <= _FORLORN).logical_not_())  # NaN stays
    short = lowest > _LOST  # NaN goes the long way
    if rivals >= _MANY:
        short.logical_and_(within.sum(0, dtype=torch.int32) <= _NEAREST)
    slopes = _fill(torch.zeros_like(leads), counted & short, _near_slopes, leads, limit)
    return _fill(slopes, counted.logical_and_(short.logical_not_()), win_slopes, leads)


def _fill(
    slopes: Tensor, chosen: Tensor, function: Callable[..., Tensor], *given: Tensor
) -> Tensor:
    """Write the function's slopes for the chosen rows."""
    rows = chosen.nonzero().squeeze(1)
    if len(rows):
        slopes.index_copy_(1, rows, function(*(each.index_select(-1, rows) for each in given)))
    return slopes


def _near_slopes(leads: Tensor, limit: Tensor) -> Tensor:
    rivals = len(leads)
    if rivals < _MANY:
        return _in_full_vectors(lambda all_: _by_products(all_, None, rivals), leads)
    nearest, places = leads.topk(_NEAREST, dim=0, largest=False)
    given = torch.cat([nearest, limit.unsqueeze(0)])
    slopes = _in_full_vectors(lambda both: _by_products(both[:-1], both[-1], rivals), given)
    return torch.zeros_like(leads).scatter_(0, places, slopes)


@functools.cache
def _short_rule(rivals: int) -> tuple[tuple[float, ...], float]:
    """Offsets from a row's centre, in units of √2, and their step."""
    step = 0.6 if rivals < 6 else 0.55 if rivals < 8 else 0.48 if rivals < 16 else 0.36
    step = step if rivals < 128 else 0.28
    below, above = math.ceil(4 / step), math.ceil(4.4 / step)
    return tuple(k * step * _ROOT_HALF for k in range(-below, above + 1)), step


def _by_products(leads: Tensor, limit: Tensor | None, rivals: int) -> Tensor:
    """Slopes of leads (leads, rows), the other rivals being at the limit, (rows).

    In units of √2: with v = x/√2, Φ(x) = (1 + erf v)/2 and φ(x) is exp(-v²) by a constant.
    """
    count, rows = leads.shape
    offsets, step = _short_rule(rivals)
    most = max(1, _SLICE // (count * len(offsets)) // _WIDTH) * _WIDTH
    if rows > most:
        parts = torch.split(leads, most, 1)
        limits = [None] * len(parts) if limit is None else torch.split(limit, most)
        pairs = zip(parts, limits, strict=True)
        return torch.cat([_by_products(part, own, rivals) for part, own in pairs], 1)
    scaled = leads * _ROOT_HALF
    z = constant_like(offsets, leads).unsqueeze(1) - scaled.amin(0) / 2  # where the two are level
    v = torch.add(scaled.unsqueeze(1), z).clamp_(-_EDGE, _EDGE)  # (leads, nodes, rows)
    doubled = torch.erf(v).add_(1).unbind()
    slopes = v.square_().neg_().exp_()
    exponent = z.square().neg_()
    if limit is not None:
        others = torch.add(z, limit, alpha=_ROOT_HALF).erf_().add_(1).mul_(0.5).clamp_(min=1e-7)
        exponent.add_(others.log_(), alpha=rivals - count)
    product = exponent.clamp_(min=EXP_MIN).exp_()
    # Each slope has the factors of all rivals but its own: those before it, then those after it.
    each = slopes.unbind()
    for place in range(count):
        each[place].mul_(product)
        product.mul_(doubled[place])
    product = doubled[-1]
    for place in range(count - 2, -1, -1):
        each[place].mul_(product)
        product.mul_(doubled[place])
    return slopes.sum(1).mul_(step / (2 * math.pi) / 2 ** (count - 1))
