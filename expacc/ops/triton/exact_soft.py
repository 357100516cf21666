"""Triton kernels of EXACT for class probabilities and smoothed labels: one integral for a row.

As ``orthant/rival_cost.py`` has it: with b the best class and e_j = mass_b - mass_j what a win of j
costs beyond one of b, the loss is Σ_{i≠b} mass_i + V,

    V = Σ e_j P_j = ∫ A e^T dz,    ∂V/∂s_i = ∫ h_i e^T (e_i H - A) dz,

where T = Σ log Φ over all classes, h = φ/Φ, H = Σ h and A = Σ e h. The integrand is that of an
upset of b, so search, interval and nodes are those of ``long.py`` for a row whose label is b and
which is ahead. Forward leaves of every node its place and its two factors of h_i; backward adds
them up.
"""

import triton
import triton.language as tl

from expacc.ops.triton.batch import (
    RUN_TIME,
    deviation_of,
    finish,
    is_last,
    legal_noise,
    shrink_of,
    through_deviation,
)
from expacc.ops.triton.folded import survey
from expacc.ops.triton.integral import (
    DENSITY,
    TO_X,
    TO_Y,
    crossing_weight,
    place_node,
    small_of,
    start_of_search,
    wide_margin,
)
from expacc.ops.triton.long import LONG_NODES, deep_of, distances_of, long_nodes
from expacc.ops.triton.soft import masses_of, soft_rows

# Of a row: places, factors of e_i h_i and of h_i; then the second score, the best class, its mass,
# whether densities are scaled, and its own gradient.
SOFT_ROW = tl.constexpr(56)


@triton.jit
def _top_of(start, stride, classes, BLOCK: tl.constexpr):
    """(best score, its class, is anything NaN or +inf), of a row."""
    best = tl.program_id(0) * 0
    top = tl.where(best == 0, float("-inf"), 0.0).to(tl.float32)
    sick = best
    for first in range(0, classes, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        place = start + columns.to(tl.int64) * stride
        scores = tl.load(place, mask=columns < classes, other=float("-inf")).to(tl.float32)
        higher = tl.max(scores, 0)
        here = tl.min(tl.where(scores == higher, columns, 2147483647), 0)
        best = tl.where(higher > top, here, best)
        top = tl.where(higher > top, higher, top)
        bad = (scores != scores) | (scores == float("inf"))
        sick = tl.maximum(sick, tl.max(bad.to(tl.int32), 0))
    return top, best, sick


@triton.jit(do_not_specialize=RUN_TIME)
def soft_exact_kernel(
    logits, target, weight, sigmas, values, dots, stats, numbers, counter,
    sigma: "fp32", smoothing: "fp64",  # noqa: F821
    count, classes, inner, parts, each, outer_stride, inner_stride, class_stride, target_outer,
    target_inner, target_class, sigma_stride, ignore_index, has_weight, has_sigmas, standardize,
    reduction, gradient,
    DENSE: tl.constexpr, BLOCK: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """The loss of ``each`` rows, or its sum; and what their gradients need."""
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    deviation = program.to(tl.float64) * 0.0 + 1.0
    if standardize:
        deviation = deviation_of(logits, numbers, parts, program == 0)
    value_sum = tl.zeros([1], tl.float64)
    weight_sum = tl.zeros([1], tl.float64)
    through_sum = tl.zeros([1], tl.float64)
    for turn in range(each):
        row = program.to(tl.int64) + turn * programs + tl.zeros([1], tl.int64)
        inside = row < count
        plane = row // inner
        place = row - plane * inner
        kept, index, factor, chain = soft_rows(
            target, weight, plane, place, inside, target_outer, target_inner, classes, ignore_index,
            has_weight, DENSE,
        )  # fmt: skip
        noise = tl.zeros([1], tl.float32) + sigma
        if has_sigmas:
            noise = tl.load(sigmas + row * sigma_stride, mask=inside, other=1.0)
        loss = tl.zeros([1], tl.float64)
        through = tl.zeros([1], tl.float64)
        if tl.max(kept.to(tl.int32), 0) > 0:
            where = tl.max(row, 0)
            shrink = shrink_of(deviation)
            first_score = logits + tl.max(plane * outer_stride + place * inner_stride, 0)
            masses = target + plane * target_outer + place * target_inner
            wide_scale = 1.0 / (deviation * shrink * tl.max(legal_noise(noise), 0))
            loss, through = _integrate(
                first_score, class_stride, classes, masses, weight, index, target_class, has_weight,
                smoothing, shrink, wide_scale, gradient,
                stats + where * SOFT_ROW, DENSE, BLOCK, FAST,
            )  # fmt: skip
        value = tl.where(kept, loss * chain, 0.0)
        through = tl.where(kept, through * chain, 0.0)
        value_sum += value
        weight_sum += factor
        through_sum += through
        if reduction == 0:
            tl.store(values + row, value.to(tl.float32).to(values.dtype.element_ty), mask=inside)
            tl.store(dots + row, through, mask=inside)
    if reduction != 0:
        sums = numbers + 8 + 3 * parts
        tl.store(sums + program, tl.sum(value_sum, 0))
        tl.store(sums + programs + program, tl.sum(weight_sum, 0))
        tl.store(sums + 2 * programs + program, tl.sum(through_sum, 0))
        if is_last(counter):
            both = (standardize != 0) & (gradient != 0)
            finish(numbers, sums, programs, values, reduction == 2, both, 256)
            tl.store(counter, 0)


@triton.jit
def _costs(
    first, masses, weight, index, classes, target_class, has_weight, smoothing, mass_best,
    DENSE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """(what a win of each class costs beyond one of the best, its mass) of a block, (BLOCK,)."""
    columns = first + tl.arange(0, BLOCK)
    mass = masses_of(
        masses, weight, index, (columns < classes)[None, :], columns, classes, target_class,
        has_weight, smoothing, DENSE,
    )  # fmt: skip
    mass = tl.where(columns < classes, tl.sum(mass, 0), 0.0)
    return mass_best - mass, mass


@triton.jit
def _integrate(
    start, stride, classes, masses, weight, index, target_class, has_weight, smoothing, shrink,
    wide_scale, gradient, stats, DENSE: tl.constexpr, BLOCK: tl.constexpr,
    FAST: tl.constexpr,
):  # fmt: skip
    """(the loss, Σ m dL/dm), (1,), of a row; leaves in ``stats`` what its gradient needs."""
    one = tl.full([1], 1.0, tl.float32)
    top, best, sick = _top_of(start, stride, classes, BLOCK)
    scale = wide_scale.to(tl.float32)
    unsound = (sick > 0) | (top == float("-inf")) | (scale != scale)
    own = tl.where(unsound, 0.0, top * shrink)
    mass_best = one * 0.0
    for first in range(0, classes, BLOCK):
        _cost, mass = _costs(
            first, masses, weight, index, classes, target_class, has_weight, smoothing, mass_best,
            DENSE, BLOCK,
        )  # fmt: skip
        here = first + tl.arange(0, BLOCK) == best
        mass_best += tl.sum(tl.where(here, mass, 0.0), 0)
    infinite = float("inf")
    nearest, near, _threat, rivals, _limited, second = survey(
        start, stride, classes, own, shrink, -infinite, best, infinite, scale, False, BLOCK
    )
    gone = (rivals == 0) | (nearest * scale >= 9.99999e6)
    quiet = unsound | gone
    scale = tl.where(quiet, 1.0, scale)
    wide_scale = tl.where(quiet, 1.0, wide_scale)
    nearest = tl.where(quiet, 0.0, nearest)
    second = tl.where(quiet, own, second)
    lowest = nearest * scale * one
    margin = wide_margin(own, second, nearest, second == second, wide_scale)
    ahead = one > 0.0
    mode, centre, _curve = start_of_search(
        tl.maximum(tl.where(quiet, 1.0, near) * one - 1.0, 0.0), lowest, ahead, FAST
    )
    value = one.to(tl.float64) * 0.0
    through = value
    loss_best = value  # if the best class wins
    for first in range(0, classes, BLOCK):
        _cost, mass = _costs(
            first, masses, weight, index, classes, target_class, has_weight, smoothing, mass_best,
            DENSE, BLOCK,
        )  # fmt: skip
        here = first + tl.arange(0, BLOCK) == best
        loss_best += tl.sum(tl.where(here, 0.0, mass).to(tl.float64), 0)
    if quiet:
        poison = tl.where(unsound, float("nan"), 0.0)
        value += poison
        if gradient:
            order = tl.arange(0, 64)
            tl.store(stats + order, order * 0.0 + poison, mask=order < SOFT_ROW)
    else:
        mode, right, reach, skew, before, base = long_nodes(
            start, stride, classes, own, shrink, best, infinite, scale, nearest, lowest, second, 1,
            wide_scale, ahead, centre, rivals, mode, BLOCK, FAST,
        )  # fmt: skip
        y0 = mode * TO_Y
        zy0 = (mode - lowest) * TO_Y
        scaled = ahead & (mode + right > 9.0)
        high = tl.maximum(((mode.to(tl.float64) - margin) * 0.8493218002880191).to(tl.float32), 0.0)
        wins = tl.exp2(-(high * high))  # of φ(z) to Φ(z), which are relative to the mode's
        shift = mode * 0.0
        upsets = mode * 0.0
        total = mode * 0.0
        pull = mode * 0.0
        along = mode * 0.0
        for node in range(LONG_NODES):
            growth, delta = place_node(node, before, skew, reach, LONG_NODES)
            u = y0 + delta
            logs = tl.zeros([BLOCK], tl.float32)
            sums = tl.zeros([BLOCK], tl.float32)
            priced = tl.zeros([BLOCK], tl.float32)
            sums_along = tl.zeros([BLOCK], tl.float32)
            priced_along = tl.zeros([BLOCK], tl.float32)
            for first in range(0, classes, BLOCK):
                d, rival = distances_of(
                    start, first, stride, classes, own, shrink, best, infinite, nearest, second, 1,
                    scale, wide_scale, BLOCK,
                )  # fmt: skip
                cost, _mass = _costs(
                    first, masses, weight, index, classes, target_class, has_weight, smoothing,
                    mass_best, DENSE, BLOCK,
                )  # fmt: skip
                log2, mills = deep_of(d, u, y0, delta, scaled, FAST)
                logs += log2
                mills = tl.where(rival, mills, 0.0)
                margins = tl.where(rival, d * TO_X + lowest, 0.0)
                sums += mills
                priced += tl.where(rival, mills * cost, 0.0)
                sums_along += mills * margins
                priced_along += tl.where(rival, mills * cost, 0.0) * margins
            log_product = tl.sum(logs, 0) + mode * 0.0
            if node == 0:
                shift = log_product
            lift = tl.where(scaled, delta * (2.0 * y0 + delta), 0.0)
            relative = log_product - shift - lift
            lose = crossing_weight(zy0, delta, relative, growth, FAST)
            win = tl.exp2(relative - delta * (2.0 * zy0 + delta)) * (1.0 + growth) * wins
            thin = tl.where(scaled, tl.exp2(-(u * u)), 1.0)
            hazard = tl.sum(sums, 0)
            price = tl.sum(priced, 0)
            upsets += lose * hazard
            total += lose * price
            by_cost = win + lose * hazard * thin
            plain = lose * price * thin
            pull += by_cost * price - plain * hazard
            along += by_cost * tl.sum(priced_along, 0) - plain * tl.sum(sums_along, 0)
            if gradient:
                tl.store(stats + node, tl.max(u, 0))
                tl.store(stats + LONG_NODES + node, tl.max(by_cost, 0))
                tl.store(stats + 2 * LONG_NODES + node, tl.max(plain, 0))
        upset_log2, _factor = small_of(
            upsets, shift, base, mode, margin, reach, skew, ahead, scaled, LONG_NODES
        )
        unit = tl.exp(upset_log2 * 0.6931471805599453) / upsets.to(tl.float64)
        value = unit * total.to(tl.float64)
        factor = (unit * DENSITY).to(tl.float32)
        through = -(along * factor).to(tl.float64)
        if gradient:
            tl.store(stats + 3 * LONG_NODES, second)
            tl.store(stats + 3 * LONG_NODES + 1, best.to(tl.float32))
            tl.store(stats + 3 * LONG_NODES + 2, tl.max(mass_best, 0))
            tl.store(stats + 3 * LONG_NODES + 3, tl.max(scaled.to(tl.float32), 0))
            tl.store(stats + 3 * LONG_NODES + 4, tl.max(pull * factor, 0) * scale)
            tl.store(stats + 3 * LONG_NODES + 5, tl.max(factor, 0) * scale)
    return value + loss_best, through


@triton.jit(do_not_specialize=RUN_TIME, do_not_specialize_on_alignment=["upstream"])
def soft_exact_backward_kernel(
    logits, target, weight, sigmas, upstream, stats, out, numbers,
    sigma: "fp32", smoothing: "fp64",  # noqa: F821
    count, classes, inner, blocks, outer_stride, inner_stride, class_stride, target_outer,
    target_inner, target_class, grad_outer, grad_inner, grad_class, sigma_stride, upstream_stride,
    ignore_index, has_weight, has_sigmas, standardize, reduction,
    DENSE: tl.constexpr, BLOCK: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """The gradient of a block of columns of one row."""
    row = (tl.program_id(0) // blocks).to(tl.int64) + tl.zeros([1], tl.int64)
    first = (tl.program_id(0) % blocks) * BLOCK
    plane = row // inner
    place = row - plane * inner
    kept, index, _factor, chain = soft_rows(
        target, weight, plane, place, row < count, target_outer, target_inner, classes,
        ignore_index, has_weight, DENSE,
    )  # fmt: skip
    columns = first + tl.arange(0, BLOCK)
    result = tl.zeros([BLOCK], tl.float32)
    if tl.max(kept.to(tl.int32), 0) > 0:
        above = tl.load(upstream + row * upstream_stride).to(tl.float64)
        chain *= above
        if reduction == 2:
            chain *= tl.load(numbers + 1)
        deviation = tl.program_id(0).to(tl.float64) * 0.0 + 1.0
        if standardize:
            deviation = tl.load(numbers + 5)
        noise = tl.zeros([1], tl.float32) + sigma
        if has_sigmas:
            noise = tl.load(sigmas + row * sigma_stride)
        shrink = shrink_of(deviation)
        scale = 1.0 / (deviation * shrink * noise.to(tl.float64))
        start = logits + plane * outer_stride + place * inner_stride
        scores = tl.load(
            start + columns.to(tl.int64) * class_stride, mask=columns < classes, other=float("-inf")
        ).to(tl.float32)
        mine = stats + tl.max(row, 0) * SOFT_ROW
        second = tl.load(mine + 3 * LONG_NODES)
        best = tl.load(mine + 3 * LONG_NODES + 1)
        mass_best = tl.load(mine + 3 * LONG_NODES + 2)
        scaled = tl.load(mine + 3 * LONG_NODES + 3) > 0
        pull = tl.load(mine + 3 * LONG_NODES + 4)
        factor = tl.load(mine + 3 * LONG_NODES + 5)
        masses = target + plane * target_outer + place * target_inner
        cost, _mass = _costs(
            first, masses, weight, index, classes, target_class, has_weight, smoothing,
            mass_best, DENSE, BLOCK,
        )  # fmt: skip
        is_best = columns.to(tl.float32) == best
        rival = (columns < classes) & (scores != float("-inf")) & (is_best == 0)
        d = (second - scores * shrink) * (scale * 0.8493218002880191).to(tl.float32)
        d = tl.where(rival & (d < 1e9), d, 1e9)
        for node in range(LONG_NODES):
            u = tl.load(mine + node)
            by_cost = tl.load(mine + LONG_NODES + node)
            plain = tl.load(mine + 2 * LONG_NODES + node)
            _log2, mills = deep_of(d, u, u, u * 0.0, scaled, FAST)
            result += mills * (cost * by_cost - plain)
        result = tl.where(rival, result * factor, 0.0)
        result = tl.where(is_best, -pull, result)
        result = tl.where(pull == pull, result, pull)  # the whole row of a NaN
        result *= (chain * shrink).to(tl.float32)
        if standardize:
            slope = tl.load(numbers + 2)
            if reduction != 0:
                slope *= tl.sum(above, 0)
            result -= through_deviation(scores, numbers, slope)
    grads = out + plane * grad_outer + place * grad_inner + columns.to(tl.int64) * grad_class
    # Every row of the grid is one of the batch.
    tl.store(grads, result.to(out.dtype.element_ty), mask=columns < classes)
