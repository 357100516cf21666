"""Triton kernels of EXACT for rows of up to 64 classes, which are held on chip.

Forward, for a batch that is standardised: sums of the logits (``moments_kernel``), then the rows
(``rows_kernel``: gather, margin, scale, integral, gradient), the last program of which reduces.
Only the standard deviation matters to a difference of logits: it is a factor of sigma. Backward is
one pass: the rows' gradients times upstream, plus what flows through the standard deviation,

    dL/dx = chain · g - (x - mean) D / ((n - 1) std²),   D = Σ_rows chain · Σ_i m_i dL/dm_i,

since a row of g sums to zero, and m is 1/std times what it would be without.

The factors of eight rivals are multiplied before one logarithm is taken; in rows where squares are
large ("deep") they are summed apart, relative to those at the mode. Rows of more classes are in
``exact_large.py``.
"""

import triton
import triton.language as tl

from expacc.ops.triton.batch import (
    RUN_TIME,
    deviation_of,
    finish,
    is_last,
    legal_noise,
    loss_of,
    read_rows,
    rows_of,
    shrink_of,
    through_deviation,
)
from expacc.ops.triton.integral import (
    DROP,
    FAR,
    TO_Y,
    TO_Y_SQUARE,
    crossing_weight,
    is_over,
    lay_nodes,
    log2_products,
    place_node,
    reciprocal,
    rough_mills,
    small_of,
    start_of_search,
    step_out,
    tail_of,
    wide_margin,
)

ABSENT = tl.constexpr(1e18)
_NODES = tl.constexpr(16)


# ------------------------------------------------------------------- the integral, on chip


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
    lead, rival, columns, scale, own, best, wide_scale,
    ROWS: tl.constexpr, GROUPS: tl.constexpr, NODES: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
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
                log2_products(hit, miss, ROWS, GROUPS, FAST) - tl.sum(square, 2), 1
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
            log_product = tl.sum(log2_products(hit, miss, ROWS, GROUPS, FAST), 1)
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


# ------------------------------------------------------------------------------ the kernels


@triton.jit
def _columns(ROWS: tl.constexpr, GROUPS: tl.constexpr):
    """The columns (rows, groups, 8) of a program."""
    columns = (tl.arange(0, GROUPS) * 8)[:, None] + tl.arange(0, 8)[None, :]
    return columns[None, :, :] + tl.zeros([ROWS, 1, 1], tl.int32)


@triton.jit(do_not_specialize=RUN_TIME)
def rows_kernel(
    logits, target, weight, sigmas, values, dots, gradients, numbers, counter,
    sigma: "fp32", margin: "fp32",  # noqa: F821
    classes, inner, tiles, parts, outer_stride, inner_stride, class_stride, target_outer,
    target_inner, grad_outer, grad_inner, grad_class, sigma_stride, ignore_index, has_weight,
    has_sigmas, standardize, log, reduction, gradient, at_once,
    ROWS: tl.constexpr, GROUPS: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """The loss of some rows, or its sum; and the gradient of each row's loss by its logits."""
    program = tl.program_id(0)
    plane, place, rows, inside = rows_of(program, tiles, inner, ROWS)
    columns = _columns(ROWS, GROUPS)
    kept, index, factor, chain = read_rows(
        target + plane * target_outer, weight, place, inside, target_inner, classes, ignore_index,
        has_weight,
    )  # fmt: skip
    start = logits + plane * outer_stride + place * inner_stride
    own = tl.load(start + index * class_stride, mask=kept, other=0.0).to(tl.float32)
    there = kept[:, None, None] & (columns < classes)
    places = start[:, None, None] + columns.to(tl.int64) * class_stride
    scores = tl.load(places, mask=there, other=0.0).to(tl.float32)
    deviation = program.to(tl.float64) * 0.0 + 1.0
    if standardize:
        deviation = deviation_of(logits, numbers, parts, program == 0)
    noise = tl.zeros([ROWS], tl.float32) + sigma
    if has_sigmas:
        noise = tl.load(sigmas + rows * sigma_stride, mask=inside, other=1.0).to(tl.float32)
    noise = legal_noise(noise)
    shrink = shrink_of(deviation)
    deviation *= shrink
    own *= shrink
    scores *= shrink
    # Rounded once: an error of the scale is one of all margins.
    wide_scale = 1.0 / (noise.to(tl.float64) * deviation)
    scale = wide_scale.to(tl.float32)
    limit = (margin * deviation).to(tl.float32)
    lead = own[:, None, None] - scores
    is_own = columns == index[:, None, None].to(tl.int32)
    rival = there & (is_own == 0) & (scores != float("-inf"))
    best = tl.max(tl.max(tl.where(rival, scores, float("-inf")), 2), 1)
    lead = tl.minimum(lead, limit)
    small_log2, ahead, slopes, margins = integrate_rows(
        lead, rival, columns, scale, own, best, wide_scale, ROWS, GROUPS, _NODES, FAST
    )

    # The hardware's minimum forgets a NaN: it is asked for by itself. Without a finite score there
    # is no winner, with +inf neither.
    bad = there & ((scores != scores) | (scores == float("inf")))
    sick = tl.max(tl.max(bad.to(tl.int32), 2), 1) > 0
    masked = own == float("-inf")
    sick = sick | (masked & (best == float("-inf"))) | (scale != scale)
    small_log2 = tl.where(sick, float("nan"), small_log2)
    value, slope = loss_of(small_log2, ahead, log)
    if log:
        value = tl.where(masked & (sick == 0), float("inf"), value)
    value = tl.where(kept, value * chain, 0.0)
    sums = numbers + 8 + 3 * parts
    programs = tl.num_programs(0)
    if reduction == 0:
        tl.store(values + rows, value.to(tl.float32).to(values.dtype.element_ty), mask=inside)
    else:
        tl.store(sums + program, tl.sum(value, 0))
        tl.store(sums + programs + program, tl.sum(factor, 0))
    if gradient:
        # By the margins -slope · gradient; a margin at its limit does not move.
        scores = tl.load(places, mask=there, other=0.0).to(tl.float32) * shrink
        moves = rival & (own[:, None, None] - scores <= limit) & (masked == 0)[:, None, None]
        slopes = tl.where(moves, slopes, 0.0) * slope.to(tl.float32)[:, None, None]
        through = tl.sum(tl.sum(tl.where(moves, slopes * margins, 0.0), 2), 1)
        through = -tl.where(kept, through, 0.0).to(tl.float64)
        if reduction == 0:
            tl.store(dots + rows, through * chain, mask=inside)
        else:
            tl.store(sums + 2 * programs + program, tl.sum(through * chain, 0))
        slopes *= (scale * shrink)[:, None, None]
        pull = tl.sum(tl.sum(slopes, 2), 1)
        slopes = tl.where(is_own, -pull[:, None, None], slopes)
        slopes = tl.where(sick[:, None, None], float("nan"), slopes)
        slopes = tl.where(kept[:, None, None], slopes, 0.0)
        out = gradients + plane * grad_outer + place * grad_inner
        tl.store(
            out[:, None, None] + columns.to(tl.int64) * grad_class,
            slopes,
            mask=inside[:, None, None] & (columns < classes),
        )
    if at_once:  # noqa: SIM102
        if is_last(counter):
            both = (standardize != 0) & (gradient != 0)
            finish(numbers, sums, programs, values, reduction == 2, both, 256)
            tl.store(counter, 0)


@triton.jit(do_not_specialize=RUN_TIME, do_not_specialize_on_alignment=["upstream"])
def rows_backward_kernel(
    logits, target, weight, upstream, gradients, out, numbers,
    classes, inner, tiles, outer_stride, inner_stride, class_stride, target_outer, target_inner,
    grad_outer, grad_inner, grad_class, upstream_stride, ignore_index, has_weight, standardize,
    reduction,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The rows' gradients times weight, upstream and 1/divisor; and through the deviation."""
    plane, row, rows, inside = rows_of(tl.program_id(0), tiles, inner, ROWS)
    columns = tl.arange(0, BLOCK)
    kept, _index, _factor, chain = read_rows(
        target + plane * target_outer, weight, row, inside, target_inner, classes, ignore_index,
        has_weight,
    )  # fmt: skip
    above = tl.load(upstream + rows * upstream_stride, mask=inside, other=0.0).to(tl.float64)
    chain *= above
    if reduction == 2:
        chain *= tl.load(numbers + 1)
    there = kept[:, None] & (columns < classes)[None, :]
    along = columns.to(tl.int64)[None, :]
    place = plane * grad_outer + (row * grad_inner)[:, None] + along * grad_class
    result = tl.load(gradients + place, mask=there, other=0.0).to(tl.float32)
    result *= chain.to(tl.float32)[:, None]
    if standardize:
        slope = tl.load(numbers + 2)
        if reduction != 0:
            slope *= tl.load(upstream).to(tl.float64)
        start = logits + plane * outer_stride + row * inner_stride
        scores = tl.load(start[:, None] + along * class_stride, mask=there, other=0.0)
        scores = scores.to(tl.float32)
        result -= through_deviation(scores, numbers, slope)
    result = tl.where(kept[:, None], result, 0.0)
    mask = inside[:, None] & (columns < classes)[None, :]
    tl.store(out + place, result.to(out.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=RUN_TIME)
def margins_kernel(
    margins, smalls, aheads, gradients,
    count, rivals, row_stride,
    ROWS: tl.constexpr, GROUPS: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """The integral of given margins, (N, R), contiguous in R."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < count
    columns = _columns(ROWS, GROUPS)
    there = inside[:, None, None] & (columns < rivals)
    lead = tl.load(margins + rows[:, None, None] * row_stride + columns, mask=there, other=0.0)
    rival = there & (lead != float("inf"))
    one = tl.full([ROWS], 1.0, tl.float32)
    lead = lead.to(tl.float32)
    lowest = tl.min(tl.min(tl.where(rival, lead, float("inf")), 2), 1)
    small_log2, ahead, gradient, _margins = integrate_rows(
        lead, rival, columns, one, lowest, one * 0.0, one.to(tl.float64), ROWS, GROUPS, _NODES, FAST
    )
    tl.store(smalls + rows, small_log2 * 0.6931471805599453, mask=inside)
    tl.store(aheads + rows, ahead.to(tl.int8), mask=inside)
    place = gradients + rows[:, None, None] * rivals + columns
    tl.store(place, gradient, mask=there)
