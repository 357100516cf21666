"""The orthant integral of a row that cannot be folded, because a rival is many sigmas ahead.

As in ``exact_small.py``, but a program walks along its row in blocks, again for every step of
the search and every node, which the cache makes cheap. Such rows are few, so the code is short
rather than fast. Forward leaves each row's nodes and weights; backward evaluates φ/Φ at them again
and has the gradient without anything of its size having been kept.
"""

import triton
import triton.language as tl

from expacc.ops.triton.batch import loss_of
from expacc.ops.triton.integral import (
    DROP,
    TO_X,
    TO_Y,
    crossing_weight,
    distance_of,
    far_of,
    lay_nodes,
    leads_of,
    log2_without,
    place_node,
    reciprocal,
    rough_mills,
    small_of,
    split_scale,
    step_out,
    tail_of,
)

LONG_NODES = tl.constexpr(16)
# What a row leaves for backward: nodes and weights, then the nearest lead, the target's own
# gradient, whether densities are scaled, and a factor of all weights. (A folded row leaves
# coefficients instead of nodes.)
LONG_STATS = 40
CERTAIN = tl.constexpr(1e9)


@triton.jit
def distances_of(
    start, first, stride, classes, own, shrink, index, limit, nearest, best, exact, scale,
    wide_scale, BLOCK: tl.constexpr,
):  # fmt: skip
    """d of a block of columns in units of y, far away where there is no rival; and who moves."""
    far = far_of(scale)
    whole, rest = split_scale(wide_scale)
    lead, rival, scores = leads_of(start, first, stride, classes, own, shrink, index, far, BLOCK)
    moves = rival & (lead <= limit)
    exact = tl.where(lead <= limit, exact, 0)
    lead = tl.where(lead > limit, limit, lead)
    d = distance_of(lead, scores, nearest, best, exact, far, whole, rest)
    return tl.where(rival, d, CERTAIN), moves


@triton.jit
def _slope(
    start, stride, classes, own, shrink, index, limit, nearest, best, exact, scale, wide_scale, u,
    lowest, ahead, centre, BLOCK: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """L' and -L'' of the shape at u, (1,)."""
    slopes = tl.zeros([BLOCK], tl.float32)
    curves = tl.zeros([BLOCK], tl.float32)
    for first in range(0, classes, BLOCK):
        d, _ = distances_of(
            start, first, stride, classes, own, shrink, index, limit, nearest, best, exact, scale,
            wide_scale, BLOCK,
        )  # fmt: skip
        mills, curve = rough_mills(d + u * TO_Y, FAST)
        slopes += mills
        curves += curve
    # Where ahead, the target stands in the nearest rival's place.
    near, near_curve = rough_mills(u * TO_Y, FAST)
    mine, mine_curve = rough_mills((u - lowest) * TO_Y, FAST)
    slope = centre - u + tl.sum(slopes, 0) + tl.where(ahead, mine - near, 0.0)
    curve = 1.0 + tl.sum(curves, 0) + tl.where(ahead, mine_curve - near_curve, 0.0)
    return slope, tl.maximum(curve, 1.0)


@triton.jit
def deep_of(d, u, y0, delta, scaled, FAST: tl.constexpr):
    """log2 Φ relative to the squares at the mode, and φ/Φ √(2π), times 2^(u²) where scaled."""
    y = d + u
    tail = tail_of(y, FAST)
    density = tl.exp2(-(y * y))
    left = y < 0
    mine = d + y0
    below = tl.minimum(mine, 0.0)
    low = tl.minimum(y, 0.0)
    square = tl.where(
        tl.maximum(mine, y) < 0, delta * (2.0 * mine + delta), low * low - below * below
    )
    miss = tl.where(left, 0.0, density * tail)
    cdf = tl.where(left, tail, 1.0 - miss)
    log2 = tl.where(left, tl.log2(tail), log2_without(miss, FAST)) - square
    beyond = tl.exp2(tl.where(left, u * u, -d * (2.0 * u + d)))
    top = tl.where(scaled, beyond, tl.where(left, 1.0, density))
    return log2, top * reciprocal(cdf, FAST)


@triton.jit
def long_nodes(
    start, stride, classes, own, shrink, index, limit, scale, nearest, lowest, best, exact,
    wide_scale, ahead, centre, count, mode, BLOCK: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """(mode, right end, reach, skew, nodes before it, Σ squares at the mode), from a start."""
    curve = mode * 0.0 + 1.0
    steps = 0
    while steps < 40:
        slope, curve = _slope(
            start, stride, classes, own, shrink, index, limit, nearest, best, exact, scale,
            wide_scale, mode, lowest, ahead, centre, BLOCK, FAST,
        )  # fmt: skip
        move = slope / curve
        mode += move
        moving = tl.max((tl.abs(move) * tl.sqrt(curve) > 0.5).to(tl.int32), 0)
        steps += 1 + 40 * (1 - moving)
    drop_left = tl.where(ahead, tl.log(1.0 + count), 0.0) + DROP
    left = tl.sqrt(2.0 * drop_left / curve)
    right = tl.sqrt(2.0 / curve * DROP)
    for step in range(4):  # left, right, left, right
        is_left = step % 2 == 0
        sign = tl.where(is_left, 1.0, -1.0)
        distance = tl.where(is_left, left, right)
        slope, bend = _slope(
            start, stride, classes, own, shrink, index, limit, nearest, best, exact, scale,
            wide_scale, mode - sign * distance, lowest, ahead, centre, BLOCK, FAST,
        )  # fmt: skip
        drop = tl.where(is_left, drop_left, DROP)
        distance = step_out(distance, slope * sign, bend, drop)
        left = tl.where(is_left, distance, left)
        right = tl.where(is_left, right, distance)

    reach, skew, before = lay_nodes(left, right, LONG_NODES)
    y0 = mode * TO_Y
    squares = tl.zeros([BLOCK], tl.float32)
    for first in range(0, classes, BLOCK):
        d, _ = distances_of(
            start, first, stride, classes, own, shrink, index, limit, nearest, best, exact, scale,
            wide_scale, BLOCK,
        )  # fmt: skip
        low = tl.minimum(d + y0, 0.0)
        squares += low * low
    return mode, right, reach, skew, before, tl.sum(squares, 0) + mode * 0.0


@triton.jit
def integrate_long_row(
    start, stride, classes, own, shrink, index, limit, scale, nearest, lowest, margin, best, exact,
    wide_scale, ahead, centre, count, mode, log, gradient, stats, BLOCK: tl.constexpr,
    FAST: tl.constexpr,
):  # fmt: skip
    """log2 of the smaller of P and 1-P, whether that is 1-P, (1,), and Σ m dL/dm over the rivals.

    From a survey of the row and a start of the search; leaves its nodes and weights in ``stats``.
    ``margin`` is ``lowest`` in float64.
    """
    mode, right, reach, skew, before, base = long_nodes(
        start, stride, classes, own, shrink, index, limit, scale, nearest, lowest, best, exact,
        wide_scale, ahead, centre, count, mode, BLOCK, FAST,
    )  # fmt: skip
    y0 = mode * TO_Y
    zy0 = (mode - lowest) * TO_Y
    scaled = ahead & (mode + right > 9.0)
    shift = mode * 0.0
    total = mode * 0.0
    pull = mode * 0.0
    through = mode * 0.0
    for node in range(LONG_NODES):
        growth, delta = place_node(node, before, skew, reach, LONG_NODES)
        u = y0 + delta
        logs = tl.zeros([BLOCK], tl.float32)
        hazards = tl.zeros([BLOCK], tl.float32)
        moving = tl.zeros([BLOCK], tl.float32)
        along = tl.zeros([BLOCK], tl.float32)
        for first in range(0, classes, BLOCK):
            d, moves = distances_of(
                start, first, stride, classes, own, shrink, index, limit, nearest, best, exact,
                scale, wide_scale, BLOCK,
            )  # fmt: skip
            log2, mills = deep_of(d, u, y0, delta, scaled, FAST)
            logs += log2
            hazards += mills
            mills = tl.where(moves, mills, 0.0)
            moving += mills
            along += mills * (d * TO_X + lowest)
        log_product = tl.sum(logs, 0) + mode * 0.0
        if node == 0:
            shift = log_product
        lift = tl.where(scaled, delta * (2.0 * y0 + delta), 0.0)
        relative = log_product - shift - lift
        weight = tl.exp2(relative - delta * (2.0 * zy0 + delta)) * (1.0 + growth)
        crossing = crossing_weight(zy0, delta, relative, growth, FAST) * tl.sum(hazards, 0)
        total += tl.where(ahead, crossing, weight)
        pull += weight * tl.sum(moving, 0)
        through -= weight * tl.sum(along, 0)
        if gradient:
            tl.store(stats + node, tl.max(u, 0))
            tl.store(stats + LONG_NODES + node, tl.max(weight, 0))
    small_log2, factor = small_of(
        total, shift, base, mode, margin, reach, skew, ahead, scaled, LONG_NODES
    )
    _, slope = loss_of(small_log2, ahead, log)
    factor *= slope.to(tl.float32)
    if gradient:
        tl.store(stats + 2 * LONG_NODES, nearest)
        tl.store(stats + 2 * LONG_NODES + 1, tl.max(pull * factor, 0) * scale)
        tl.store(stats + 2 * LONG_NODES + 2, tl.max(scaled.to(tl.float32), 0))
        tl.store(stats + 2 * LONG_NODES + 3, tl.max(factor, 0) * scale)
    return small_log2, ahead, tl.max(through * factor, 0)


@triton.jit
def long_gradient(d, stats, FAST: tl.constexpr):
    """The gradient of rivals at distances d, from the nodes and weights of their row."""
    scaled = tl.load(stats + 2 * LONG_NODES + 2) > 0
    gradient = tl.zeros(d.shape, tl.float32)
    for node in range(LONG_NODES):
        u = tl.load(stats + node)
        weight = tl.load(stats + LONG_NODES + node)
        _, mills = deep_of(d, u, u, u * 0.0, scaled, FAST)
        gradient += weight * mills
    return gradient * tl.load(stats + 2 * LONG_NODES + 3)
