"""The orthant integral of rows too long to be held on chip: a pass forward, a pass backward.

As in ``kernels_orthant.py``, but a program walks along its row in blocks, again for every step of
the search, which the cache makes cheap. All nodes are evaluated side by side in one walk. Forward
leaves each row's nodes and weights; backward evaluates φ/Φ at them again, block by block, and has
the gradient without anything of its size having been kept.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-untyped-call,name-defined"
# mypy: no-warn-return-any

import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]

from expacc.ops.kernels_orthant import (
    ABSENT,
    DROP,
    FAR,
    TO_Y,
    TO_Y_SQUARE,
    crossing_weight,
    deep_factors,
    factors,
    lay_nodes,
    log2_products,
    place_node,
    reciprocal,
    rough_mills,
    small_of,
    start_of_search,
    step_out,
    tail_of,
)

__all__ = ["LONG_NODES", "LONG_STATS", "integrate_long_row", "long_gradient"]

LONG_NODES = tl.constexpr(16)
# What a row leaves for backward: nodes and weights, then the nearest lead, the target's own
# gradient, and whether densities are scaled.
LONG_STATS = 40


@triton.jit
def _leads(start, first, stride, classes, own, index, limit, GROUPS: tl.constexpr):
    """Leads over a block of columns, (1, groups, 8): limited, +inf where there is no rival.

    Also whether a lead is below the limit, and the columns.
    """
    columns = first + (tl.arange(0, GROUPS) * 8)[:, None] + tl.arange(0, 8)[None, :]
    columns = columns[None, :, :]
    there = columns < classes
    scores = tl.load(start + columns.to(tl.int64) * stride, mask=there, other=float("-inf"))
    lead = own - scores.to(tl.float32)
    rival = there & (columns != index) & (lead != float("inf"))
    return tl.where(rival, tl.minimum(lead, limit), float("inf")), lead <= limit, columns


@triton.jit
def _distances(lead, nearest, scale):
    """d in units of y."""
    far = tl.maximum(lead, -1.0 / scale * FAR)
    return tl.where(lead == float("inf"), ABSENT, (far - nearest) * scale * TO_Y)


@triton.jit
def _slopes(
    start,
    stride,
    classes,
    own,
    index,
    limit,
    nearest,
    scale,
    swap,
    swapped,
    points,
    centre,
    POINTS: tl.constexpr,
    GROUPS: tl.constexpr,
    FAST: tl.constexpr,
):
    """L' and -L'' of the shape at ``points``; column ``swap`` stands at ``swapped``."""
    slope = tl.zeros([POINTS, GROUPS], tl.float32)
    curve = tl.zeros([POINTS, GROUPS], tl.float32)
    for first in range(0, classes, GROUPS * 8):
        lead, _moves, columns = _leads(start, first, stride, classes, own, index, limit, GROUPS)
        d = tl.where(columns == swap, swapped, _distances(lead, nearest, scale))
        mills, bend = rough_mills(d + (points * TO_Y)[:, None, None], FAST)
        slope += tl.sum(mills, 2)
        curve += tl.sum(bend, 2)
    return centre - points + tl.sum(slope, 1), 1.0 + tl.sum(curve, 1)


@triton.jit
def integrate_long_row(
    start,
    stride,
    classes,
    own,
    index,
    limit,
    scale,
    stats,
    LOG: tl.constexpr,
    GRADIENT: tl.constexpr,
    WIDE: tl.constexpr,
    GROUPS: tl.constexpr,
    FAST: tl.constexpr,
):
    """The loss of one row, and Σ m dL/dm over its rivals; leaves its nodes and weights in stats."""
    lowest_lead = tl.full([1, WIDE], float("inf"), tl.float32)
    for first in range(0, classes, WIDE * 8):
        lead, _moves, _columns = _leads(start, first, stride, classes, own, index, limit, WIDE)
        lowest_lead = tl.minimum(lowest_lead, tl.min(lead, 2))
    nearest = tl.max(tl.min(lowest_lead, 1), 0)
    nearest = tl.minimum(tl.maximum(nearest, -1.0 / scale * FAR), 1.0 / scale * FAR)
    lowest = nearest * scale

    near = tl.zeros([1, WIDE], tl.float32)
    count = tl.zeros([1, WIDE], tl.float32)
    threat = tl.zeros([1, WIDE], tl.float32)
    place = tl.full([1, WIDE], 2147483647, tl.int32)
    for first in range(0, classes, WIDE * 8):
        lead, _moves, columns = _leads(start, first, stride, classes, own, index, limit, WIDE)
        d = _distances(lead, nearest, scale)
        near += tl.sum(tl.exp2(-3.3971 * d), 2)
        count += tl.sum(tl.where(d < 1e17, 1.0, 0.0), 2)
        margin = d * 1.1774100225154747 + lowest
        power = tl.minimum(margin * tl.abs(margin) * -TO_Y_SQUARE, 1.0)
        threat += tl.sum(tl.exp2(power), 2)
        place = tl.minimum(place, tl.min(tl.where(d == 0, columns, 2147483647), 2))
    ahead = tl.sum(threat, 1) < 1.0
    swap = tl.where(tl.max(ahead.to(tl.int32), 0) > 0, tl.min(tl.min(place, 1), 0), -1)
    swapped = lowest * -TO_Y
    rivals = tl.sum(near, 1) - ahead.to(tl.float32)
    mode, centre = start_of_search(rivals, tl.zeros_like(rivals) + lowest, ahead, FAST)
    curve = tl.full([1], 1.0, tl.float32)
    steps = 0
    while steps < 12:
        slope, curve = _slopes(
            start, stride, classes, own, index, limit, nearest, scale, swap, swapped,
            mode, centre, 1, WIDE, FAST,
        )  # fmt: skip
        move = slope / curve
        mode += move
        moving = tl.max((tl.abs(move) * tl.sqrt(curve) > 0.5).to(tl.int32), 0)
        steps += 1 + 12 * (1 - moving)

    # Both ends at once: left, right.
    side = tl.arange(0, 2)
    sign = 1.0 - 2.0 * side
    more = tl.where(ahead, tl.log(1.0 + tl.sum(count, 1)), 0.0)
    drop = tl.where(side == 0, more, 0.0) + DROP
    distance = tl.sqrt(2.0 * drop / curve)
    for _step in range(2):
        slope, bend = _slopes(
            start, stride, classes, own, index, limit, nearest, scale, swap, swapped,
            mode - sign * distance, centre, 2, GROUPS, FAST,
        )  # fmt: skip
        distance = step_out(distance, slope * sign, bend, drop)
    left = tl.sum(tl.where(side == 0, distance, 0.0), 0) + tl.zeros_like(mode)
    right = tl.sum(tl.where(side == 1, distance, 0.0), 0) + tl.zeros_like(mode)

    reach, skew, before = lay_nodes(left, right, LONG_NODES)
    node = tl.arange(0, LONG_NODES)
    growth, delta = place_node(node, before, skew, reach, LONG_NODES)
    y0 = mode * TO_Y
    zy0 = (mode - lowest) * TO_Y
    u = y0 + delta
    scaled = ahead & (mode + right > 9.0)
    edges = tl.zeros([1, WIDE], tl.float32)
    squares = tl.zeros([1, WIDE], tl.float32)
    for first in range(0, classes, WIDE * 8):
        lead, _moves, _columns = _leads(start, first, stride, classes, own, index, limit, WIDE)
        d = _distances(lead, nearest, scale)
        low = tl.minimum(d + (y0 - left * TO_Y)[:, None, None], 0.0)
        edges += tl.sum(low * low, 2)
        low = tl.minimum(d + y0[:, None, None], 0.0)
        squares += tl.sum(low * low, 2)
    deep = tl.max(((tl.sum(edges, 1) > 90.0) | scaled).to(tl.int32), 0) > 0

    logs = tl.zeros([LONG_NODES, GROUPS], tl.float32)
    hazards = tl.zeros([LONG_NODES, GROUPS], tl.float32)
    moving_hazards = tl.zeros([LONG_NODES, GROUPS], tl.float32)
    through = tl.zeros([LONG_NODES, GROUPS], tl.float32)
    for first in range(0, classes, GROUPS * 8):
        lead, moves, _columns = _leads(start, first, stride, classes, own, index, limit, GROUPS)
        d = _distances(lead, nearest, scale)
        if deep:
            hit, miss, top, square = deep_factors(d, u, y0, delta, scaled, FAST)
            logs += log2_products(hit, miss, LONG_NODES, GROUPS) - tl.sum(square, 2)
        else:
            hit, miss, top = factors(d + u[:, None, None], FAST)
            logs += log2_products(hit, miss, LONG_NODES, GROUPS)
        mills = top * reciprocal(hit - miss, FAST)
        hazards += tl.sum(mills, 2)
        if GRADIENT:
            mills = tl.where(moves, mills, 0.0)
            moving_hazards += tl.sum(mills, 2)
            margin = tl.where(d < 1e17, d * 1.1774100225154747 + lowest, 0.0)
            through += tl.sum(mills * margin, 2)
    log_product = tl.sum(logs, 1)
    shift = tl.sum(tl.where(node == 0, log_product, 0.0), 0)
    lift = tl.where(scaled, delta * (2.0 * y0 + delta), 0.0)
    relative = log_product - shift - lift
    weight = tl.exp2(relative - delta * (2.0 * zy0 + delta)) * (1.0 + growth)
    crossing = crossing_weight(zy0, delta, relative, growth, FAST) * tl.sum(hazards, 1)
    total = tl.sum(tl.where(ahead, crossing, weight), 0) + tl.zeros_like(mode)
    base = tl.where(deep, tl.sum(squares, 1), 0.0)
    shift = shift + tl.zeros_like(mode)
    small_log2, factor = small_of(
        total, shift, base, mode, lowest, reach, skew, ahead, scaled, LONG_NODES
    )
    gone = (tl.zeros_like(mode) + lowest) >= 9.99999e6
    small_log2 = tl.where(gone, float("-inf"), small_log2)
    ahead = ahead | gone
    value, slope = loss_of(small_log2, ahead, LOG)
    weight = weight * tl.where(gone, 0.0, factor * slope.to(tl.float32))
    if GRADIENT:
        tl.store(stats + node, u)
        tl.store(stats + LONG_NODES + node, weight)
        pull = tl.sum(weight * tl.sum(moving_hazards, 1), 0)
        tl.store(stats + 2 * LONG_NODES, nearest)
        tl.store(stats + 2 * LONG_NODES + 1, pull * scale)
        tl.store(stats + 2 * LONG_NODES + 2, tl.max(scaled.to(tl.float32), 0))
    return tl.max(value, 0), -tl.sum(weight * tl.sum(through, 1), 0)


@triton.jit
def loss_of(small_log2, ahead, LOG: tl.constexpr):
    """1 - P or -log P, and dL/dm divided by -gradient, from log2 of the smaller of P and 1-P."""
    small = tl.exp(small_log2 * 0.6931471805599453)
    if LOG:
        value = -tl.where(ahead, tl.log(1.0 - small), small_log2 * 0.6931471805599453)
        slope = tl.where(ahead, small / (1.0 - small), 1.0)
    else:
        value = tl.where(ahead, small, 1.0 - small)
        slope = small
    return value, slope


@triton.jit
def long_gradient(
    start, first, stride, classes, own, index, limit, scale, stats,
    GROUPS: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """dL/dlogits of a block of columns of one row, (1, groups, 8); and the columns."""
    nearest = tl.load(stats + 2 * LONG_NODES)
    pull = tl.load(stats + 2 * LONG_NODES + 1)
    scaled = tl.load(stats + 2 * LONG_NODES + 2) > 0
    lead, moves, columns = _leads(start, first, stride, classes, own, index, limit, GROUPS)
    d = _distances(lead, nearest, scale)
    gradient = tl.zeros([1, GROUPS, 8], tl.float32)
    for node in range(LONG_NODES):
        u = tl.load(stats + node)
        weight = tl.load(stats + LONG_NODES + node)
        gradient += weight * _mills(d, u, scaled, FAST)
    gradient = tl.where(moves & (d < 1e17), gradient * scale, 0.0)
    return tl.where(columns == index, -pull, gradient), columns


@triton.jit
def _mills(d, u, scaled, FAST: tl.constexpr):
    """φ/Φ √(2π), times 2^(u²) where scaled."""
    y = d + u
    hit, miss, density = factors(y, FAST)
    mills = density * reciprocal(hit - miss, FAST)
    # Far out φ and Φ are 0, and their quotient is the tail's.
    deep = y < -8.0
    mills = tl.where(deep, reciprocal(tail_of(y, FAST), FAST), mills)
    if scaled:
        mills = tl.exp2(tl.where(y < 0, u * u, -d * (2.0 * u + d))) * tl.where(
            y < 0, mills, reciprocal(hit - miss, FAST)
        )
    return mills
