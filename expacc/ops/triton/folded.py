"""The orthant integral of a row with many rivals, from a summary of 30 numbers.

All that the integral needs of the rivals are sums Σ_i f(u + d_i) of smooth functions: log Φ for the
product, φ/Φ for its slope. So the rivals are folded once into weighted Chebyshev moments,

    M_k = Σ_i ω(d_i) T_k(t_i),    t = 2d/span - 1,    ω(d) = 2^-(tilt d + bend d²),

and every such sum is then one over 32 grid points, Σ_j W_j f(u + d_j)/ω(d_j), whatever the number
of rivals: the search for the mode, the interval and all nodes cost next to nothing. The gradient is
a smooth function of d as well: it is known on the grid, and each rival gets its own from a
polynomial, in backward. ω falls as Φ(-(u + d)) does a little left of the mode; without it the many
rivals that hardly matter would cost the digits of the few that do.

T_k T_k and T_k T_{k+1} are T_2k and T_{2k+1} up to constants: half of the recurrence is enough.

A row whose mode is far left (a rival many sigmas ahead) has a span that 30 moments cannot cover; it
goes the way of ``long.py``, node by node.
"""

import functools
import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from expacc.ops.triton.batch import loss_of
from expacc.ops.triton.integral import (
    DENSITY,
    DROP,
    LN2,
    TO_X,
    TO_Y,
    TO_Y_SQUARE,
    crossing_weight,
    far_of,
    is_over,
    lay_nodes,
    log2_without,
    place_node,
    reciprocal,
    rivals_of,
    rough_mills,
    rough_tail,
    small_of,
    split_scale,
    start_of_search,
    step_out,
    tail_of,
    wide_margin,
)
from expacc.ops.triton.long import LONG_NODES, integrate_long_row

GRID = tl.constexpr(32)
PAIRS = tl.constexpr(15)  # of moments: an even and an odd one; an odd number of them
NEAR_RATE = tl.constexpr(3.8217)  # Σ e^(-2.25 d) counts the rivals for the start of the search
_CHUNK = tl.constexpr(4096)  # columns whose sums are float32
WIDEST = tl.constexpr(10.2)  # span, in units of y: 12 sigmas
FOLDED_SPAN, FOLDED_TILT, FOLDED_BEND = tl.constexpr(34), tl.constexpr(35), tl.constexpr(36)


@functools.cache
def fold_table(device: torch.device) -> Tensor:
    """What the kernels know of Chebyshev: grid, products to grid weights, grid to coefficients.

    The grid is in [0, 1]. Weights come from the raw products Σ ω T_k T_k and Σ ω T_k T_{k+1}. The
    coefficients are those of E(s) + t O(s) in T_k(s), s = 2t² - 1: E in the first 16 rows, O in the
    last, which needs half the operations of one polynomial in t.
    """
    size, half, degree = GRID.value, GRID.value // 2, 2 * PAIRS.value
    angles = (torch.arange(size, dtype=torch.float64) + 0.5) * math.pi / size
    transform = torch.cos(torch.arange(degree)[:, None] * angles) * (2 / size)
    transform[0] /= 2
    weights = torch.zeros(size, size, dtype=torch.float64)
    weights[:degree] = 2 * transform
    for parity in (0, 1):  # M_k = 2 P_k - P_parity, but M_0 = P_0 and M_1 = P_1
        weights[parity] = transform[parity] - transform[parity + 2 :: 2].sum(0)
    coefficients = torch.zeros(size, size, dtype=torch.float64)
    coefficients[: PAIRS.value] = transform[::2]
    odd = torch.zeros(size, dtype=torch.float64)
    for k in reversed(range(PAIRS.value)):  # t T_k(s) = (T_{2k+1}(t) + T_{2k-1}(t)) / 2
        odd = 2 * transform[2 * k + 1] - odd if k else transform[1] - odd / 2
        coefficients[half + k] = odd
    grid = (torch.cos(angles) + 1) / 2
    whole = torch.cat([grid[None], weights, coefficients])
    return whole.to(torch.float32).to(device)


@triton.jit
def survey(
    start, stride, classes, own, shrink, absent, index, limit, scale,
    LIMITED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """(nearest lead, near rivals, their threat, rivals, rivals at the limit, best score).

    A lead over nobody is +inf, which counts for nothing by itself. With a NaN among the scores the
    near rivals are NaN: the hardware's minimum forgets one.
    """
    far = far_of(scale)
    nearest = far
    near = scale * 0.0
    threat = scale * 0.0
    count = scale * 0.0
    limited = scale * 0.0
    best = scale * 0.0 - float("inf")
    to_rate = scale * (TO_Y * NEAR_RATE)
    for first in range(0, classes, BLOCK):
        scores = rivals_of(start, first, stride, classes, shrink, absent, index, BLOCK)
        best = tl.maximum(best, tl.max(scores, 0))
        rival = scores != float("-inf")
        lead = tl.where(rival, own - scores, float("inf"))
        if LIMITED:
            at_limit = rival & (lead > limit)
            limited += tl.sum(tl.where(at_limit, 1.0, 0.0), 0)
            lead = tl.where(at_limit, limit, lead)
        lower = tl.maximum(tl.minimum(nearest, tl.min(lead, 0)), -far)
        near *= tl.exp2((lower - nearest) * to_rate)
        near += tl.sum(tl.exp2((lower - lead) * to_rate), 0)
        margin = lead * scale
        threat += tl.sum(tl.exp2(tl.minimum(margin * tl.abs(margin) * -TO_Y_SQUARE, 1.0)), 0)
        count += tl.sum(tl.where(rival, 1.0, 0.0), 0)
        nearest = lower
    near = tl.where(near == float("inf"), count, near)  # of a class that is masked
    return nearest, near, threat, count, limited, best


@triton.jit
def _fold(
    start, stride, classes, own, shrink, absent, index, limit, nearest, best, exact, wide_scale,
    span, tilt, bend, LIMITED: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Σ ω T_k T_k and Σ ω T_k T_{k+1} over the rivals within the span, (32,).

    Each lane has sums of its own, which meet once in ``_CHUNK`` columns. There is no NaN here.
    """
    order = tl.arange(0, GRID)
    products = tl.zeros([GRID], tl.float64)  # there may be dozens of chunks
    to_unit = 2.0 / span
    whole, rest = split_scale(wide_scale)
    # d is from the best score where that is ``exact``, else from the nearest lead.
    base = tl.where(exact != 0, best, own)
    less = tl.where(exact != 0, 0.0, nearest)
    far = tl.minimum(far_of(whole), 3e38)
    nothing = tl.zeros([LANES], tl.float32)
    for begin in range(0, classes, _CHUNK):
        sums = (nothing,)
        for _ in tl.static_range(1, 2 * PAIRS):
            sums = sums + (nothing,)  # type: ignore[assignment]  # noqa: RUF005
        scores = rivals_of(start, begin, stride, classes, shrink, absent, index, LANES)
        for first in range(begin, min(begin + _CHUNK, classes), LANES):
            ahead = rivals_of(start, first + LANES, stride, classes, shrink, absent, index, LANES)
            apart = tl.minimum((base - scores) - less, far)  # finite over nobody, too
            d = tl.fma(apart, whole, apart * rest)
            d = tl.minimum(tl.maximum(d, 0.0), span + span)
            counts = d <= span
            if LIMITED:
                counts = counts & (own - scores <= limit)
            t = d * to_unit - 1.0
            # ω = 0 beyond the span.
            before = tl.where(counts, tl.exp2(-0.5 * d * (tilt + bend * d)), 0.0)
            now = before * t
            twice = t + t
            added = (sums[0] + before * before, sums[1] + before * now)  # type: ignore[misc]
            for k in tl.static_range(1, PAIRS):
                following = twice * now - before
                more = (sums[2 * k] + now * now, sums[2 * k + 1] + now * following)
                added = added + more  # type: ignore[assignment]
                before = now
                now = following
            sums = added  # type: ignore[assignment]
            scores = ahead
        block = tl.zeros([GRID], tl.float32)
        for k in tl.static_range(2 * PAIRS):
            block += tl.where(order == k, tl.sum(sums[k], 0), 0.0)
        products += block.to(tl.float64)
    return products.to(tl.float32)


@triton.jit
def _weight_of(edge, FAST: tl.constexpr):
    """(span, tilt, bend) of ω, which falls as Φ(-(edge + d)) and is forgotten beyond 1e-9."""
    right = tl.maximum(edge, 0.0)
    span = (tl.sqrt(right * right + 36.0) - right - tl.minimum(edge, 0.0)) * TO_Y
    y = edge * TO_Y
    density = tl.exp2(-(y * y))
    tail = rough_tail(y, FAST)
    left = y < 0
    survival = tl.where(left, 1.0 - density * tail, tail)  # times 2^(-y²) where right
    tilt = tl.where(left, density, 1.0) * reciprocal(survival, FAST) * (DENSITY * TO_X / LN2)
    end = y + span
    drop = end * end - tl.log2(rough_tail(end, FAST))
    drop += tl.log2(survival) - tl.where(left, 0.0, y * y)
    return span, tilt, (drop - tilt * span) / (span * span)


@triton.jit
def _grid_slope(d, weights, u, lowest, ahead, centre, limited, at_limit, FAST: tl.constexpr):
    """L' and -L'' of the shape at points u (points,) from the folded rivals."""
    mills, curve = rough_mills(d[None, :] + (u * TO_Y)[:, None], FAST)
    slope = centre - u + tl.sum(weights[None, :] * mills, 1)
    bend = 1.0 + tl.sum(weights[None, :] * curve, 1)
    mills, curve = rough_mills(u * TO_Y + at_limit, FAST)
    slope += limited * mills
    bend += limited * curve
    # Where ahead, the target stands in the nearest rival's place.
    nearest, nearest_curve = rough_mills(u * TO_Y, FAST)
    own, own_curve = rough_mills((u - lowest) * TO_Y, FAST)
    slope += tl.where(ahead, own - nearest, 0.0)
    bend += tl.where(ahead, own_curve - nearest_curve, 0.0)
    return slope, tl.maximum(bend, 1.0)


@triton.jit
def _log2_and_mills(y, u, d, scaled, FAST: tl.constexpr):
    """log2 Φ and φ/Φ √(2π) at y = u + d; the latter times 2^(u²) where ``scaled``."""
    density = tl.exp2(-(y * y))
    tail = tail_of(y, FAST)
    left = y < 0
    miss = tl.where(left, 0.0, density * tail)
    log2 = tl.where(left, tl.log2(tail) - y * y, log2_without(miss, FAST))
    cdf = tl.where(left, tail, 1.0 - miss)
    top = tl.where(left, 1.0, density)
    beyond = tl.where(left, tl.exp2(u * u), tl.exp2(-d * (2.0 * u + d)))
    return log2, tl.where(scaled, beyond, top) * reciprocal(cdf, FAST)


@triton.jit
def integrate_folded_row(
    start, stride, classes, own, shrink, index, limit, wide_scale, log, gradient, table, stats,
    LIMITED: tl.constexpr, BLOCK: tl.constexpr, NARROW: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """log2 of the smaller of P and 1-P and whether that is 1-P, (1,); and Σ m dL/dm of one row.

    Leaves in ``stats`` what the gradient needs: coefficients, nearest lead, the target's own, span,
    tilt and bend; or with a span of -1, what ``integrate_long_row`` leaves.
    """
    scale = wide_scale.to(tl.float32)
    # A stored lead is a score with a minus, and +inf where there is no rival.
    stored = index < 0
    signed = tl.where(stored, -shrink, shrink)
    absent = tl.where(stored, float("inf"), float("-inf"))
    nearest, near, threat, count, limited, best = survey(
        start, stride, classes, own, signed, absent, index, limit, scale, LIMITED, BLOCK
    )
    one = tl.full([1], 1.0, tl.float32)
    lowest = nearest * scale * one
    # Stored leads are margins already.
    exact = tl.where(is_over(own, best, nearest) & (index >= 0), 1, 0)
    margin = wide_margin(own, best, nearest, exact != 0, wide_scale)
    ahead = threat * one < 1.0
    rivals = tl.maximum(near * one - ahead.to(tl.float32), 0.0)
    mode, centre, curve = start_of_search(rivals, lowest, ahead, FAST)
    first_mode = mode
    at_limit = one * 0.0
    if LIMITED:
        at_limit = (limit - nearest) * (scale * TO_Y) * one

    order = tl.arange(0, GRID)
    unit = tl.load(table + order)
    span, tilt, bend = _weight_of(mode, FAST)
    d = unit
    weights = unit
    rise = unit
    # A row that surely loses: P <= Φ(lowest/√2) < 1e-49, and neither P nor its slope is a float32.
    # So does one whose class is masked, and without a slope.
    masked = own == float("-inf")
    lost = ((tl.max(lowest, 0) < -21.0) & (log == 0)) | masked
    # A NaN is in this sum; the hardware's minimum forgets it. With +inf, or without a finite score,
    # there is no winner.
    sick = (near != near) | (own == float("inf")) | (best == float("inf")) | (scale != scale)
    sick = sick | (masked & (count == 0))
    # Beyond all rivals' reach: P is 1, and what follows would multiply infinities by 0.
    gone = tl.max(lowest, 0) >= 9.99999e6
    rounds = tl.where(lost | sick | gone, 100, 0)
    while rounds < 4:
        # ω stands three widths left of the mode: where the integrand still counts.
        edge = mode - 3.0 / tl.sqrt(curve)
        span, tilt, bend = _weight_of(edge, FAST)
        products = _fold(
            start, stride, classes, own, signed, absent, index, limit, nearest, best,
            exact, wide_scale, tl.sum(span, 0), tl.sum(tilt, 0), tl.sum(bend, 0),
            LIMITED, 64 if FAST else BLOCK,
        )  # fmt: skip
        d = unit * span
        rise = tl.exp2(d * (tilt + bend * d))  # 1/ω
        to_weights = tl.load(table + GRID + order[:, None] * GRID + order[None, :])
        weights = tl.sum(products[:, None] * to_weights, 0) * rise
        before = mode
        for _ in range(3):
            slope, curve = _grid_slope(
                d, weights, mode, lowest, ahead, centre, limited, at_limit, FAST
            )
            mode = tl.maximum(mode + slope / curve, edge)
        # Far from where ω was made for, the sums are rough: fold again around the new mode.
        shift = (mode - before) * tl.sqrt(curve)
        settled = (shift > -2.5) & (shift < 6.0)
        hopeless = span > WIDEST
        rounds += 1 + 8 * tl.max(settled.to(tl.int32), 0) + 4 * tl.max(hopeless.to(tl.int32), 0)
    folded = (rounds > 8) & (tl.max(span, 0) <= WIDEST) & (rounds < 100)

    small_log2 = tl.full([1], -1000.0, tl.float64)
    through = scale * 0.0
    if folded:
        # Both ends at once: left, right.
        side = tl.arange(0, 2)
        sign = 1.0 - 2.0 * side
        drop = tl.where((side == 0) & ahead, tl.log(1.0 + count), 0.0) + DROP
        distance = tl.sqrt(2.0 * drop / curve)
        for _ in range(2):
            slope, bent = _grid_slope(
                d, weights, mode - sign * distance, lowest, ahead, centre, limited, at_limit, FAST
            )
            distance = step_out(distance, slope * sign, bent, drop)
        left = tl.sum(tl.where(side == 0, distance, 0.0), 0) * one
        right = tl.sum(tl.where(side == 1, distance, 0.0), 0) * one
        reach, skew, earlier = lay_nodes(left, right, LONG_NODES)
        node = tl.arange(0, LONG_NODES)
        growth, delta = place_node(node, earlier, skew, reach, LONG_NODES)
        y0 = mode * TO_Y
        zy0 = (mode - lowest) * TO_Y
        u = y0 + delta
        scaled = ahead & (mode > 0)
        logs, mills = _log2_and_mills(
            u[:, None] + d[None, :], u[:, None], d[None, :], scaled[:, None], FAST
        )
        log_product = tl.sum(weights[None, :] * logs, 1)
        hazards = tl.sum(weights[None, :] * mills, 1)
        if LIMITED:
            log_limit, mills_limit = _log2_and_mills(u + at_limit, u, at_limit, scaled, FAST)
            log_product += limited * log_limit
            hazards += limited * mills_limit
        shift = tl.sum(tl.where(node == 0, log_product, 0.0), 0)
        lift = tl.where(scaled, delta * (2.0 * y0 + delta), 0.0)
        relative = log_product - shift - lift
        weight = tl.exp2(relative - delta * (2.0 * zy0 + delta)) * (1.0 + growth)
        crossing = crossing_weight(zy0, delta, relative, growth, FAST) * hazards
        total = tl.sum(tl.where(ahead, crossing, weight), 0) * one
        small_log2, factor = small_of(
            total, shift * one, one * 0.0, mode, margin, reach, skew, ahead, scaled, LONG_NODES
        )
        if gradient:
            _loss, outer = loss_of(small_log2, ahead, log)
            weight = weight * factor * outer.to(tl.float32)
            on_grid = tl.sum(weight[:, None] * mills, 0)
            through = -tl.sum(weights * on_grid * (tl.max(lowest, 0) + d * TO_X), 0)
            pull = tl.sum(weights * on_grid, 0)
            to_coefficients = tl.load(
                table + GRID + GRID * GRID + order[:, None] * GRID + order[None, :]
            )
            coefficients = tl.sum(to_coefficients * (on_grid * rise * scale)[None, :], 1)
            tl.store(stats + order, coefficients)
            tl.store(stats + 2 * LONG_NODES, nearest)
            tl.store(stats + 2 * LONG_NODES + 1, pull * scale)
            tl.store(stats + FOLDED_SPAN, tl.max(span, 0))
            tl.store(stats + FOLDED_TILT, tl.max(tilt, 0))
            tl.store(stats + FOLDED_BEND, tl.max(bend, 0))
    elif lost | sick | gone:
        poison = tl.where(sick, float("nan"), 0.0)
        small_log2 += poison.to(tl.float64)
        small_log2 += tl.where(gone, float("-inf"), 0.0)
        if log == 1:
            small_log2 += tl.where(masked, float("-inf"), 0.0)
        if gradient:
            rest = tl.where(order == 2 * LONG_NODES - 8, nearest, 0.0) + poison
            tl.store(stats + order + 8, tl.where(order == FOLDED_SPAN - 8, 1.0, rest))
            tl.store(stats + order, unit * 0.0, mask=order < 8)
    else:
        small_log2, ahead, through = integrate_long_row(
            start, stride, classes, own, shrink, index, limit, scale, nearest, lowest, margin, best,
            exact, wide_scale, ahead, centre, count, first_mode, log, gradient, stats, NARROW, FAST,
        )  # fmt: skip
        if gradient:
            tl.store(stats + FOLDED_SPAN, -1.0)
    return small_log2, ahead, through


@triton.jit
def folded_gradient(d, stats, span):
    """The gradient of rivals at distances d >= 0, from the coefficients of their row."""
    tilt = tl.load(stats + FOLDED_TILT)
    bend = tl.load(stats + FOLDED_BEND)
    t = d * (2.0 / span) - 1.0
    twice = 4.0 * (t * t) - 2.0
    before = tl.full(d.shape, 1.0, tl.float32)
    now = 0.5 * twice
    even = tl.load(stats) + tl.load(stats + 1) * now
    odd = tl.load(stats + GRID // 2) + tl.load(stats + GRID // 2 + 1) * now
    for k in tl.static_range(2, PAIRS):
        following = twice * now - before
        even += tl.load(stats + k) * following
        odd += tl.load(stats + GRID // 2 + k) * following
        before = now
        now = following
    value = (even + t * odd) * tl.exp2(-d * (tilt + bend * d))
    return tl.where(d <= span, value, 0.0)
