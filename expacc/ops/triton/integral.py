"""Triton kernel for EXACT: the orthant integral, its gradient and the loss of a row, on chip.

The mathematics is that of ``orthant.py``: integrate whichever of P and 1-P is small, on nodes
placed around the mode. What is different is where the digits are kept, because here everything but
a few numbers per row is float32:

* arguments are measured from the nearest rival, x_i = u + d_i with d_i >= 0, so that large margins
  cost no digits; the nodes are measured from the mode, u = u0 + δ;
* Φ(x) is split as 2^(-y²) · F below 0 (F a smooth tail) and is F = 1 - 2^(-y²)·tail above, with
  y = x √(log2(e)/2). The factors of eight rivals are multiplied before one logarithm is taken. In
  rows where squares are large ("deep") they are summed apart, relative to those at the mode;
* one node lies at the mode and is evaluated first: its value is the scale of all others.

A start for the mode comes from one sum over the rivals, n = Σ e^(-2 d_i): it is near the mode of n
equal rivals, which Newton finds with a few numbers per row. Newton on the whole row then mostly
needs two steps instead of log R: the slope is decreasing and convex, so no step can go astray.
Rows of more than a few dozen rivals are summarised first, in ``folded.py``.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-untyped-call,name-defined"
# mypy: no-warn-return-any

import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]

from expacc.ops.triton.normal import (
    DENSITY,
    TO_Y,
    expm1,
    log2_without,
    reciprocal,
    rough_mills,
    tail_of,
)

__all__ = [
    "crossing_weight",
    "integrate_rows",
    "is_over",
    "lay_nodes",
    "place_node",
    "small_of",
    "start_of_search",
    "step_out",
    "wide_margin",
]

ABSENT = tl.constexpr(1e18)
FAR = tl.constexpr(1e7)
TO_Y_SQUARE = tl.constexpr(0.7213475204444817)
DROP = tl.constexpr(14.0)  # the interval ends this many nats below the mode
SKEW = tl.constexpr(1.25)


@triton.jit
def _row_sum(tile):
    return tl.sum(tl.sum(tile, 2), 1)


@triton.jit
def _row_min(tile):
    return tl.min(tl.min(tile, 2), 1)


@triton.jit
def _slope(d, u, centre, FAST: tl.constexpr):
    """L' and -L'' of the shape at u, (rows,), for d (rows, groups, 8) in units of y."""
    mills, curve = rough_mills(d + (u * TO_Y)[:, None, None], FAST)
    return centre - u + _row_sum(mills), 1.0 + _row_sum(curve)


@triton.jit
def step_out(distance, slope, curve, drop):
    """Where the shape has dropped by ``drop``, taking |L'| for a power of the distance."""
    slope = tl.maximum(slope, 1e-4)
    power = 1.0 + distance * curve / slope
    ratio = tl.maximum(drop * power / (slope * distance), 1e-6)
    return tl.minimum(distance * tl.exp(tl.log(ratio) / power), tl.sqrt(2.0 * drop))


@triton.jit
def _combine(misses, ROWS: tl.constexpr, GROUPS: tl.constexpr, SIZE: tl.constexpr):
    """1 - (1-a)(1-b) = a + b - ab of neighbours: keeps the digits of small misses."""
    even, odd = tl.split(tl.reshape(misses, [ROWS, GROUPS, SIZE, 2]))
    return even + (odd - even * odd)


@triton.jit
def _multiply(factors, ROWS: tl.constexpr, GROUPS: tl.constexpr, SIZE: tl.constexpr):
    even, odd = tl.split(tl.reshape(factors, [ROWS, GROUPS, SIZE, 2]))
    return even * odd


@triton.jit
def _log2_products(hits, misses, ROWS: tl.constexpr, GROUPS: tl.constexpr, FAST: tl.constexpr):
    """log2 of the product of hits (1 - misses) over groups of eight, (rows, groups).

    Many rivals that are nearly certain must not lose their digits to the rounding of 1 - miss.
    """
    hits = _multiply(_multiply(hits, ROWS, GROUPS, 4), ROWS, GROUPS, 2)
    hits = tl.reshape(_multiply(hits, ROWS, GROUPS, 1), [ROWS, GROUPS])
    misses = _combine(_combine(misses, ROWS, GROUPS, 4), ROWS, GROUPS, 2)
    misses = tl.reshape(_combine(misses, ROWS, GROUPS, 1), [ROWS, GROUPS])
    few = misses < 0.5
    rest = tl.where(few, hits, hits * (1.0 - misses))
    return tl.log2(rest) + log2_without(tl.where(few, misses, 0.0), FAST)


@triton.jit
def start_of_search(rivals, lowest, ahead, FAST: tl.constexpr):
    """The mode of ``rivals`` equal ones, and of the target where it takes part; centre; curve."""
    behind = ahead == 0
    centre = tl.where(behind, lowest, 0.0)
    u = tl.where(behind & (lowest > 0), lowest, 0.5 * lowest)
    # Many: near n φ(u) = u, from where Newton need not climb up log n steps.
    twice = 2.0 * tl.log(tl.maximum(rivals, 1.0)) - 1.84
    knee = tl.sqrt(tl.maximum(twice - tl.log(tl.maximum(twice, 1.0)), 0.0))
    u = tl.where(rivals > 5.0, tl.maximum(u, knee), u)
    bend = tl.zeros_like(u)
    for _ in range(4):
        mills, curve = rough_mills(u * TO_Y, FAST)
        own, own_curve = rough_mills((u - lowest) * TO_Y, FAST)
        slope = centre - u + rivals * mills + tl.where(ahead, own, 0.0)
        bend = 1.0 + rivals * curve + tl.where(ahead, own_curve, 0.0)
        u += slope / bend
    return u, centre, bend


@triton.jit
def lay_nodes(left, right, NODES: tl.constexpr):
    """(reach c, skew λ, nodes before the mode): δ = c (e^(λ k/NODES) - 1), k from -before."""
    skew = tl.minimum(tl.maximum(tl.log(right / left) * (2.0 * SKEW), -8.0), 8.0)
    skew = tl.where(tl.abs(skew) < 1e-3, 1e-3, skew)
    stretch = expm1(skew)
    reach = left + (left + right) / stretch
    before = tl.log(1.0 + left / (left + right) * stretch) / skew * NODES
    return reach, skew, tl.floor(tl.minimum(tl.maximum(before, 0.0), NODES - 1.0))


@triton.jit
def small_of(total, shift, base, mode, lowest, reach, skew, ahead, scaled, NODES: tl.constexpr):
    """log2 of the smaller of P and 1-P, float64; and the factor that the gradient still needs.

    ``lowest`` is the nearest rival's margin in float64: P of a row far behind depends on all of its
    digits.
    """
    wide = mode.to(tl.float64)
    z0 = wide - lowest
    low = tl.where(ahead, tl.minimum(z0, 0.0), z0)
    constant = shift.to(tl.float64) - base.to(tl.float64) - low * low * TO_Y_SQUARE
    constant -= tl.where(scaled, wide * wide * TO_Y_SQUARE, 0.0)
    step = tl.abs(reach * skew) * (DENSITY / NODES)
    # The hardware's logarithm is good for six digits of this.
    small_log2 = tl.log2(total.to(tl.float64) * step.to(tl.float64)) + constant
    high = tl.maximum(z0.to(tl.float32) * TO_Y, 0.0)
    return small_log2, tl.where(ahead, tl.exp2(-(high * high)), 1.0) / total * DENSITY


@triton.jit
def is_over(own, best, lead):
    """Is the nearest rival's lead that over the ``best`` score?

    It is not where it is at a limit, or where there is no rival.
    """
    apart = own.to(tl.float64) - best.to(tl.float64)
    return tl.abs(apart - lead.to(tl.float64)) <= tl.minimum(tl.abs(apart), 1e300) * 1e-6


@triton.jit
def wide_margin(own, best, lead, exact, wide_scale):
    """The nearest rival's margin in float64, from its score where that is ``exact``."""
    apart = own.to(tl.float64) - best.to(tl.float64)
    return tl.where(exact, apart, lead.to(tl.float64)) * wide_scale


@triton.jit
def _find_interval(d, lowest, ahead, shape, FAST: tl.constexpr):
    """(u0, left, right): the mode of the shape, and how far it reaches on either side.

    d is in units of y; ``shape`` is d with the target in the nearest rival's place where ahead.
    """
    rivals = _row_sum(tl.exp2(-3.3971 * d)) - ahead.to(tl.float32)
    u, centre, curve = start_of_search(rivals, lowest, ahead, FAST)
    # Newton on the row itself, until a step is short beside the width of the shape.
    steps = 0
    while steps < 12:
        slope, curve = _slope(shape, u, centre, FAST)
        move = slope / curve
        u += move
        moving = tl.max((tl.abs(move) * tl.sqrt(curve) > 0.5).to(tl.int32), 0)
        steps += 1 + 12 * (1 - moving)
    more = tl.log(1.0 + _row_sum(tl.where(d < 1e17, 1.0, 0.0)))
    drop_left = tl.where(ahead, more, 0.0) + DROP
    left = tl.sqrt(2.0 * drop_left / curve)
    right = tl.sqrt(2.0 / curve * DROP)
    for _ in range(2):
        slope, curve = _slope(shape, u - left, centre, FAST)
        left = step_out(left, slope, curve, drop_left)
        slope, curve = _slope(shape, u + right, centre, FAST)
        right = step_out(right, -slope, curve, tl.zeros_like(curve) + DROP)
    return u, left, right


@triton.jit
def place_node(node, before, skew, reach, NODES: tl.constexpr):
    """The growth of the step at a node and its distance from the mode, in units of y."""
    k = node - tl.where(before + node >= NODES, NODES * 1.0, 0.0)
    growth = expm1(skew * (k / NODES))
    return growth, reach * growth * TO_Y


@triton.jit
def crossing_weight(zy0, delta, relative, growth, FAST: tl.constexpr):
    """The weight of Φ(z) Σ φ/Φ at a node, relative to the mode."""
    zy = zy0 + delta
    tail = tail_of(zy, FAST)
    low = tl.minimum(zy, 0.0)
    low0 = tl.minimum(zy0, 0.0)
    drop = delta * (2.0 * zy0 + delta)
    drop = tl.where(tl.maximum(zy, zy0) < 0, drop, low * low - low0 * low0)
    cdf = tl.where(zy < 0, tail, 1.0 - tl.exp2(-(zy * zy)) * tail)
    return tl.exp2(relative - drop) * (1.0 + growth) * cdf


@triton.jit
def _factors(y, FAST: tl.constexpr):
    """Φ as hit (1 - miss), where no square is large; and the density 2^(-y²)."""
    density = tl.exp2(-(y * y))
    other = density * tail_of(y, FAST)  # Φ(-|x|)
    is_left = y < 0
    return tl.where(is_left, other, 1.0), tl.where(is_left, 0.0, other), density


@triton.jit
def _deep_factors(d, u, y0, delta, scaled, FAST: tl.constexpr):
    """Φ as hit (1 - miss) 2^(-square), and the numerator of φ/Φ, for points (points,).

    Squares are relative to those at the mode; densities are scaled by 2^(u²) where ``scaled``.
    """
    y = d + u[:, None, None]
    tail = tail_of(y, FAST)
    density = tl.exp2(-(y * y))
    is_left = y < 0
    mine = d + y0[:, None, None]
    below = tl.minimum(mine, 0.0)
    low = tl.minimum(y, 0.0)
    square = delta[:, None, None] * (2.0 * mine + delta[:, None, None])
    square = tl.where(tl.maximum(mine, y) < 0, square, low * low - below * below)
    beyond = tl.exp2(-d * (2.0 * u[:, None, None] + d))
    beyond = tl.where(is_left, tl.exp2(u * u)[:, None, None], beyond)
    top = tl.where(scaled[:, None, None], beyond, tl.where(is_left, 1.0, density))
    hit = tl.where(is_left, tail, 1.0)
    return hit, tl.where(is_left, 0.0, density * tail), top, square


@triton.jit
def integrate_rows(
    lead,
    rival,
    columns,
    scale,
    own,
    best,
    wide_scale,
    ROWS: tl.constexpr,
    GROUPS: tl.constexpr,
    NODES: tl.constexpr,
    FAST: tl.constexpr,
):
    """The integral of rows of margins ``lead`` · ``scale``, and its gradient.

    Args:
        lead: (rows, groups, 8), float32.
        rival: the same shape; False where there is nobody.
        columns: the number of each column, the same shape.
        scale: (rows,), > 0.
        own: the target's score, (rows,).
        best: the best rival's.
        wide_scale: the scale in float64.

    Returns:
        log2 of the smaller of P and 1-P as float64; whether that is 1-P; ∂P/∂margin divided by the
        smaller; and the margins.
    """
    lead = tl.maximum(lead, (-1.0 / scale * FAR)[:, None, None])
    nearest = _row_min(tl.where(rival, lead, float("inf")))
    nearest = tl.minimum(nearest, 1.0 / scale * FAR)
    d = tl.where(rival, (lead - nearest[:, None, None]) * scale[:, None, None], ABSENT)
    d = tl.minimum(d, ABSENT)  # a difference may overflow
    lowest = nearest * scale
    margins = d + lowest[:, None, None]
    gone = lowest >= 9.99999e6
    power = tl.minimum(margins * tl.abs(margins) * -TO_Y_SQUARE, 1.0)
    ahead = _row_sum(tl.exp2(power)) < 1.0
    d = d * TO_Y
    first = _row_min(tl.where(d == 0, columns, 2147483647))
    replaced = ahead[:, None, None] & (columns == first[:, None, None])
    shape = tl.where(replaced, (lowest * -TO_Y)[:, None, None], d)
    mode, left, right = _find_interval(d, lowest, ahead, shape, FAST)

    reach, skew, before = lay_nodes(left, right, NODES)
    y0 = mode * TO_Y
    zy0 = (mode - lowest) * TO_Y
    edge = tl.minimum(d + (y0 - left * TO_Y)[:, None, None], 0.0)
    scaled = ahead & (mode + right > 9.0)  # densities are scaled by 2^(y²), y that of u
    deep = tl.max(((_row_sum(edge * edge) > 90.0) | scaled).to(tl.int32), 0) > 0
    some_ahead = tl.max(ahead.to(tl.int32), 0) > 0

    base = tl.zeros([ROWS], tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    shift = tl.zeros([ROWS], tl.float32)
    gradient = tl.zeros([ROWS, GROUPS, 8], tl.float32)
    if deep:
        below = tl.minimum(d + y0[:, None, None], 0.0)
        base = _row_sum(below * below)
        for node in range(NODES):
            growth, delta = place_node(node, before, skew, reach, NODES)
            u = y0 + delta
            hit, miss, top, square = _deep_factors(d, u, y0, delta, scaled, FAST)
            lift = tl.where(scaled, delta * (2.0 * y0 + delta), 0.0)
            mills = top * reciprocal(hit - miss, FAST)
            log_product = tl.sum(
                _log2_products(hit, miss, ROWS, GROUPS, FAST) - tl.sum(square, 2), 1
            )
            if node == 0:
                shift = log_product
            relative = log_product - shift - lift
            weight = tl.exp2(relative - delta * (2.0 * zy0 + delta)) * (1.0 + growth)
            gradient += mills * weight[:, None, None]
            crossing = crossing_weight(zy0, delta, relative, growth, FAST) * _row_sum(mills)
            total += tl.where(ahead, crossing, weight)
    else:
        # No square is large: Φ itself is a number, and eight of them can be multiplied.
        for node in range(NODES):
            growth, delta = place_node(node, before, skew, reach, NODES)
            y = d + (y0 + delta)[:, None, None]
            hit, miss, density = _factors(y, FAST)
            mills = density * reciprocal(hit - miss, FAST)
            log_product = tl.sum(_log2_products(hit, miss, ROWS, GROUPS, FAST), 1)
            if node == 0:
                shift = log_product
            relative = log_product - shift
            weight = tl.exp2(relative - delta * (2.0 * zy0 + delta)) * (1.0 + growth)
            gradient += mills * weight[:, None, None]
            if some_ahead:
                crossing = crossing_weight(zy0, delta, relative, growth, FAST) * _row_sum(mills)
                total += tl.where(ahead, crossing, weight)
            else:
                total += weight

    exact = is_over(own, best, nearest)
    margin = wide_margin(own, best, nearest, exact, wide_scale)
    small_log2, factor = small_of(
        total, shift, base, mode, margin, reach, skew, ahead, scaled, NODES
    )
    gradient = tl.where(gone[:, None, None], 0.0, gradient * factor[:, None, None])
    return tl.where(gone, float("-inf"), small_log2), ahead | gone, gradient, margins
