"""Losses over Σ_j t_j f(log p_j) on a GPU: class probabilities, smoothed labels.

With h_j = f'(u_j) and u = log softmax, the gradient is t_k h_k - p_k Σ_j t_j h_j. The best class is
compared with its rivals, so that its 1 - p keeps its digits; every other p is at most 1/2. A row is
read three times, of which the cache answers two: its top, the sum, the losses.
"""

import triton
import triton.language as tl

from expacc.ops.triton.batch import RUN_TIME, leave, read_rows, rows_of, scores_of
from expacc.ops.triton.curves import MIXTURE, curve_of, lead_parts, log1p
from expacc.ops.triton.digits import shares_of, terms_of

SOFT_STATS = 5  # of a row, for backward: top, share, pull, log of the sum, the best class


@triton.jit
def soft_rows(
    target, weight, plane, place, inside, target_outer, target_inner, classes, ignore_index,
    has_weight, DENSE: tl.constexpr,
):  # fmt: skip
    """(kept, label, weight in the mean's divisor, 1 or NaN for a label out of range)."""
    if DENSE:
        one = inside.to(tl.float64)
        kept = inside
        index = place * 0
        factor = one
        chain = one
    else:
        kept, index, factor, chain = read_rows(
            target + plane * target_outer, weight, place, inside, target_inner, classes,
            ignore_index, has_weight,
        )  # fmt: skip
        chain = tl.where(chain == chain, kept.to(tl.float64), float("nan"))
    return kept, index, factor, chain


@triton.jit
def masses_of(
    start, weight, index, allowed, columns, classes, target_class, has_weight, smoothing,
    DENSE: tl.constexpr,
):  # fmt: skip
    """Class weight times probability of a block of classes, (rows, columns), float32."""
    if DENSE:
        place = start[:, None] + columns.to(tl.int64)[None, :] * target_class
        mass = tl.load(place, mask=allowed, other=0.0).to(tl.float32)
    else:
        mass = tl.where(columns[None, :] == index[:, None], 1.0, 0.0)
    if smoothing != 0:
        mass = (mass * (1.0 - smoothing) + smoothing / classes).to(tl.float32)
    if has_weight:
        each = tl.load(weight + columns, mask=columns < classes, other=0.0).to(tl.float32)
        each = tl.where((each >= 0) & (each < float("inf")), each, float("nan"))
        mass *= each[None, :]
    return mass


@triton.jit
def _class_parts(
    x, minus_best, whole, rest, first_number, second_number, factor, shift, scale,
    CURVE: tl.constexpr, MOVED: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """(value, slope in u) of classes whose scores are x behind the best's.

    1/Σ is ``whole + rest``. In float32 where the curve is a line in p and log p.
    """
    if MOVED or CURVE != MIXTURE:
        minus = minus_best[:, None] - x.to(tl.float64)
        prob = tl.exp(-minus)
        error = 1.0 - prob
        along = tl.full(x.shape, 1.0, tl.float64)
        if MOVED:
            lead = -minus - log1p(-tl.where(prob > 0.5, 0.5, prob))
            minus, prob, moved = lead_parts(lead * scale + shift)
            along = moved * scale / error
            error = moved
        value, slope = curve_of(minus, prob, error, first_number, second_number, CURVE)
        value *= factor
        slope *= factor * along
    else:
        wide = tl.zeros([1, 1], tl.float64)
        a = (wide + first_number * factor).to(tl.float32)
        b = (wide + second_number * factor).to(tl.float32)
        prob = shares_of(x, whole[:, None], rest[:, None], EXACT)
        value = b * (1.0 - prob)
        slope = -b * prob
        if first_number != 0:  # 0 · inf would be NaN
            value += a * (minus_best.to(tl.float32)[:, None] - x)
            slope -= a
    return value, slope


@triton.jit
def _halves(number):
    """A float64 as two float32 numbers."""
    whole = number.to(tl.float32)
    return whole, (number - whole.to(tl.float64)).to(tl.float32)


@triton.jit(do_not_specialize=RUN_TIME)
def soft_forward_kernel(
    logits, target, weight, values, scratch, counter,
    first_number: "fp64", second_number: "fp64",  # noqa: F821
    factor: "fp64", shift: "fp64", scale: "fp64", smoothing: "fp64",  # noqa: F821
    count, classes, inner, tiles, outer_stride, inner_stride, class_stride, target_outer,
    target_inner, target_class, ignore_index, has_weight, reduction, at_once,
    CURVE: tl.constexpr, MOVED: tl.constexpr, DENSE: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, SUMS: tl.constexpr,
):  # fmt: skip
    """Values (or their sum over this program's rows), and what every row's gradient needs."""
    program = tl.program_id(0)
    plane, place, rows, inside = rows_of(program, tiles, inner, ROWS)
    kept, index, divisor, chain = soft_rows(
        target, weight, plane, place, inside, target_outer, target_inner, classes, ignore_index,
        has_weight, DENSE,
    )  # fmt: skip
    start = logits + plane * outer_stride + place * inner_stride
    masses = target + plane * target_outer + place * target_inner
    EXACT: tl.constexpr = logits.dtype.element_ty == tl.float32

    top = tl.full([ROWS], float("-inf"), tl.float32)
    best = tl.zeros([ROWS], tl.int32)
    sick = tl.zeros([ROWS], tl.int32)
    for first in range(0, classes, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        allowed = kept[:, None] & (columns < classes)[None, :]
        scores = scores_of(start, columns, class_stride, allowed, float("-inf"))
        higher = tl.max(scores, 1)
        here = tl.min(tl.where(scores == higher[:, None], columns[None, :], 2147483647), 1)
        best = tl.where(higher > top, here, best)
        top = tl.maximum(top, higher)
        bad = (scores != scores) | (scores == float("inf"))
        sick = tl.maximum(sick, tl.max(bad.to(tl.int32), 1))
    sick = (sick > 0) | (top == float("-inf"))
    top = tl.where(sick, 0.0, top)

    total = tl.zeros([ROWS], tl.float64)  # of the rivals of the best
    for first in range(0, classes, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        allowed = kept[:, None] & (columns < classes)[None, :]
        scores = scores_of(start, columns, class_stride, allowed, float("-inf"))
        terms = terms_of(scores - top[:, None], EXACT)
        terms = tl.where(columns[None, :] == best[:, None], 0.0, terms)
        total += tl.sum(terms, 1).to(tl.float64)
    lead = tl.where(total == 0, float("inf"), -tl.log(total))
    minus_best, prob_best, error_best = lead_parts(lead)
    minus, prob, error = minus_best, prob_best, error_best
    if MOVED:
        minus, prob, error = lead_parts(lead * scale + shift)
    value_best, slope_best = curve_of(minus, prob, error, first_number, second_number, CURVE)
    value_best *= factor
    slope_best *= factor
    along = slope_best * error  # by the lead
    if MOVED:
        along *= scale
        slope_best = tl.where(error_best == 0, 0.0, along / error_best)

    whole, rest = _halves(1.0 / (1.0 + total))
    value = tl.zeros([ROWS], tl.float64)
    slopes = tl.zeros([ROWS], tl.float64)
    mass_best = tl.zeros([ROWS], tl.float64)
    for first in range(0, classes, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        allowed = kept[:, None] & (columns < classes)[None, :]
        scores = scores_of(start, columns, class_stride, allowed, float("-inf"))
        mass = masses_of(
            masses, weight, index, allowed, columns, classes, target_class, has_weight, smoothing,
            DENSE,
        )  # fmt: skip
        each, slope = _class_parts(
            scores - top[:, None], minus_best, whole, rest, first_number, second_number, factor,
            shift, scale, CURVE, MOVED, EXACT,
        )  # fmt: skip
        is_best = columns[None, :] == best[:, None]
        mass_best += tl.sum(tl.where(is_best & allowed, mass, 0.0), 1).to(tl.float64)
        # A masked class without mass is absent: 0, not 0 · inf.
        other = allowed & (is_best == 0) & ((mass != 0) | (scores != float("-inf")))
        value += tl.sum(tl.where(other, (mass * each).to(tl.float64), 0.0), 1)
        slopes += tl.sum(tl.where(other, (mass * slope).to(tl.float64), 0.0), 1)
    # Without mass there is no loss, of an infinite one either.
    value += tl.where((mass_best == 0) & (minus > 1e308), 0.0, mass_best * value_best)
    pull = mass_best * along - prob_best * slopes
    share = -(slopes + mass_best * slope_best) / (1.0 + total)
    poison = tl.where(sick & kept, float("nan"), 0.0)
    value = tl.where(kept, (value + poison) * chain, 0.0)
    wide_count = count.to(tl.int64)
    base = scratch + 8 + rows
    tl.store(base, top.to(tl.float64), mask=inside)
    tl.store(base + wide_count, share + poison, mask=inside)
    tl.store(base + 2 * wide_count, pull + poison, mask=inside)
    tl.store(base + 3 * wide_count, minus_best, mask=inside)
    tl.store(base + 4 * wide_count, best.to(tl.float64), mask=inside)
    parts = scratch + 8 + 5 * wide_count
    leave(
        value, divisor, rows, inside, values, scratch, parts, counter, reduction, at_once, SUMS
    )  # fmt: skip


@triton.jit(do_not_specialize=RUN_TIME, do_not_specialize_on_alignment=["upstream"])
def soft_backward_kernel(
    logits, target, weight, upstream, grad, scratch,
    first_number: "fp64", second_number: "fp64",  # noqa: F821
    factor: "fp64", shift: "fp64", scale: "fp64", smoothing: "fp64",  # noqa: F821
    count, classes, inner, tiles, segments, outer_stride, inner_stride, class_stride, target_outer,
    target_inner, target_class, grad_outer, grad_inner, grad_class, upstream_stride, ignore_index,
    has_weight, mean,
    CURVE: tl.constexpr, MOVED: tl.constexpr, DENSE: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """mass · slope + share · e^(z - top), the best class pull; times upstream and 1/divisor."""
    program = tl.program_id(0)
    plane, place, rows, inside = rows_of(program // segments, tiles, inner, ROWS)
    kept, index, _divisor, chain = soft_rows(
        target, weight, plane, place, inside, target_outer, target_inner, classes, ignore_index,
        has_weight, DENSE,
    )  # fmt: skip
    chain *= tl.load(upstream + rows * upstream_stride, mask=inside, other=0.0).to(tl.float64)
    if mean:
        chain *= tl.load(scratch + 1)
    base = scratch + 8 + rows
    wide_count = count.to(tl.int64)
    top = tl.load(base, mask=kept, other=0.0).to(tl.float32)
    share = tl.load(base + wide_count, mask=kept, other=0.0) * chain
    pull = tl.load(base + 2 * wide_count, mask=kept, other=0.0) * chain
    minus_best = tl.load(base + 3 * wide_count, mask=kept, other=0.0)
    best = tl.load(base + 4 * wide_count, mask=kept, other=0.0).to(tl.int32)
    whole, rest = _halves(share)
    inverse, inverse_rest = _halves(tl.exp(-minus_best))
    narrow = chain.to(tl.float32)
    EXACT: tl.constexpr = logits.dtype.element_ty == tl.float32
    start = logits + plane * outer_stride + place * inner_stride
    masses = target + plane * target_outer + place * target_inner
    out = grad + plane * grad_outer + place * grad_inner
    first = (program % segments) * (BLOCK * BLOCKS)
    for block in range(BLOCKS):
        columns = first + block * BLOCK + tl.arange(0, BLOCK)
        width = (columns < classes)[None, :]
        along = columns.to(tl.int64)[None, :]
        allowed = kept[:, None] & width
        scores = tl.load(
            start[:, None] + along * class_stride, mask=allowed, other=0.0
        ).to(tl.float32)  # fmt: skip
        mass = masses_of(
            masses, weight, index, allowed, columns, classes, target_class, has_weight, smoothing,
            DENSE,
        )  # fmt: skip
        x = scores - top[:, None]
        _value, slope = _class_parts(
            x, minus_best, inverse, inverse_rest, first_number, second_number, factor, shift, scale,
            CURVE, MOVED, EXACT,
        )  # fmt: skip
        own = tl.where(mass == 0, 0.0, (mass * slope).to(tl.float32) * narrow[:, None])
        result = own + shares_of(x, whole[:, None], rest[:, None], EXACT)
        result = tl.where(columns[None, :] == best[:, None], pull.to(tl.float32)[:, None], result)
        result = tl.where(kept[:, None], result, 0.0)
        mask = inside[:, None] & width
        tl.store(out[:, None] + along * grad_class, result.to(grad.dtype.element_ty), mask=mask)
