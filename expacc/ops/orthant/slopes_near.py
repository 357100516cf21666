"""The slopes of ``slopes.py`` below a margin, on the CPU: where training EXACT spends its time.

A lead beyond the margin counts as the margin and has no slope: most rows have none at all. The
rivals at the margin are one factor of the integral together, Φ(margin + z) to the power of their
number, so of very many classes only the nearest need factors of their own. Few factors can be
multiplied as they are, without logarithms, and a shorter rule does for rows that are not lost by
far. Other rows go the long way, and those whose slopes are all below 1e-16 have none. A row's
slopes do not depend on its company here either, and the error is that of ``slopes.py``.
"""

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from expacc.ops.orthant.quadrature import constant_like
from expacc.ops.orthant.slopes import EXP_MIN, WIDTH, in_full_vectors, win_slopes

__all__ = ["slopes_within"]

_ROOT_HALF = math.sqrt(0.5)
_COSTLY = 3  # rivals from which it pays to look for the rows that count
_MANY, _NEAREST = 16, 8  # from so many rivals on, so many have factors of their own
_LOST = -5.0  # rows with a lead below would need nodes farther up
_FORLORN = -12.0  # no slope of a row with a lead below is above 1e-16
_EDGE = 8.9  # beyond, 1 + erf is 0 or 2, and exp(-v²) is nothing that counts
_SLICE = 1 << 17  # numbers evaluated at once: the second-level cache


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
        return in_full_vectors(lambda all_: _by_products(all_, None, rivals), leads)
    nearest, places = leads.topk(_NEAREST, dim=0, largest=False)
    given = torch.cat([nearest, limit.unsqueeze(0)])
    slopes = in_full_vectors(lambda both: _by_products(both[:-1], both[-1], rivals), given)
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
    most = max(1, _SLICE // (count * len(offsets)) // WIDTH) * WIDTH
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
