"""Triton kernels around the orthant integral: EXACT from logits to loss and gradient.

Forward, for a batch that is standardised: sums of the logits (``moments_kernel``), then the rows
(``rows_kernel``: gather, margin, scale, integral, gradient), the last program of which reduces.
Only the standard deviation matters to a difference of logits: it is a factor of sigma. Backward is
one pass: the rows' gradients times upstream, plus what flows through the standard deviation,

    dL/dx = chain · g - (x - mean) D / ((n - 1) std²),   D = Σ_rows chain · Σ_i m_i dL/dm_i,

since a row of g sums to zero, and m is 1/std times what it would be without.

Rows of many classes are in ``exact_large.py``.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-untyped-call,name-defined"
# mypy: no-warn-return-any

import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]

from expacc.ops.triton.integral import integrate_rows
from expacc.ops.triton.long import loss_of
from expacc.ops.triton.moments import deviation_of, finish, is_last, shrink_of
from expacc.ops.triton.softmax import read_rows

__all__ = [
    "legal_noise",
    "margins_kernel",
    "rows_backward_kernel",
    "rows_kernel",
    "through_deviation",
]

_NODES = tl.constexpr(16)


@triton.jit
def _tile(program, count, classes, ROWS: tl.constexpr, GROUPS: tl.constexpr):
    """Rows, whether they exist, and columns (rows, groups, 8) of a program."""
    rows = program.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = (tl.arange(0, GROUPS) * 8)[:, None] + tl.arange(0, 8)[None, :]
    return rows, rows < count, columns[None, :, :] + tl.zeros([ROWS, 1, 1], tl.int32)


@triton.jit
def legal_noise(sigma):
    """NaN for what no noise can be."""
    return tl.where((sigma > 0) & (sigma < float("inf")), sigma, float("nan"))


@triton.jit
def through_deviation(scores, numbers, slope):
    """What flows through the standard deviation; nothing to a masked class."""
    # In float64: large scores and a small slope are both beyond float32.
    along = (scores.to(tl.float64) - tl.load(numbers + 4)) * slope
    return tl.where(scores != float("-inf"), along.to(tl.float32), 0.0)


@triton.jit(
    do_not_specialize=[
        "count",
        "ignore_index",
        "parts",
        "has_weight",
        "has_sigmas",
        "standardize",
        "log",
        "reduction",
        "gradient",
        "at_once",
    ]
)
def rows_kernel(
    logits,
    target,
    weight,
    sigmas,
    values,
    dots,
    gradients,
    numbers,
    counter,
    sigma: "fp32",  # noqa: F821
    margin: "fp32",  # noqa: F821
    count,
    classes,
    parts,
    row_stride,
    class_stride,
    target_stride,
    sigma_stride,
    ignore_index,
    has_weight,
    has_sigmas,
    standardize,
    log,
    reduction,
    gradient,
    at_once,
    ROWS: tl.constexpr,
    GROUPS: tl.constexpr,
    FAST: tl.constexpr,
):
    """The loss of some rows, or its sum; and the gradient of each row's loss by its logits."""
    program = tl.program_id(0)
    rows, inside, columns = _tile(program, count, classes, ROWS, GROUPS)
    kept, index, factor, chain = read_rows(
        target, weight, rows, inside, target_stride, classes, ignore_index, has_weight
    )
    start = logits + rows * row_stride
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
        tl.store(
            gradients + rows[:, None, None] * classes + columns,
            slopes,
            mask=inside[:, None, None] & (columns < classes),
        )
    if at_once:  # noqa: SIM102
        if is_last(counter):
            both = (standardize != 0) & (gradient != 0)
            finish(numbers, sums, programs, values, reduction == 2, both, 256)
            tl.store(counter, 0)


@triton.jit(
    do_not_specialize=["count", "ignore_index", "has_weight", "standardize", "reduction"],
    do_not_specialize_on_alignment=["upstream"],
)
def rows_backward_kernel(
    logits,
    target,
    weight,
    upstream,
    gradients,
    out,
    numbers,
    count,
    classes,
    row_stride,
    class_stride,
    target_stride,
    upstream_stride,
    ignore_index,
    has_weight,
    standardize,
    reduction,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The rows' gradients times weight, upstream and 1/divisor; and through the deviation."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    inside = rows < count
    kept, _index, _factor, chain = read_rows(
        target, weight, rows, inside, target_stride, classes, ignore_index, has_weight
    )
    above = tl.load(upstream + rows * upstream_stride, mask=inside, other=0.0).to(tl.float64)
    chain *= above
    if reduction == 2:
        chain *= tl.load(numbers + 1)
    there = kept[:, None] & (columns < classes)[None, :]
    place = rows[:, None] * classes + columns[None, :]
    result = tl.load(gradients + place, mask=there, other=0.0).to(tl.float32)
    result *= chain.to(tl.float32)[:, None]
    if standardize:
        slope = tl.load(numbers + 2)
        if reduction != 0:
            slope *= tl.load(upstream).to(tl.float64)
        scores = tl.load(
            logits + rows[:, None] * row_stride + columns.to(tl.int64)[None, :] * class_stride,
            mask=there,
            other=0.0,
        ).to(tl.float32)
        result -= through_deviation(scores, numbers, slope)
    result = tl.where(kept[:, None], result, 0.0)
    mask = inside[:, None] & (columns < classes)[None, :]
    tl.store(out + place, result.to(out.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["count"])
def margins_kernel(
    margins,
    smalls,
    aheads,
    gradients,
    count,
    rivals,
    row_stride,
    ROWS: tl.constexpr,
    GROUPS: tl.constexpr,
    FAST: tl.constexpr,
):
    """The integral of given margins, (N, R), contiguous in R."""
    rows, inside, columns = _tile(tl.program_id(0), count, rivals, ROWS, GROUPS)
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
