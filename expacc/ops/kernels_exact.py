"""Triton kernels around the orthant integral: EXACT from logits to loss and gradient.

Forward, for a batch that is standardised: sums of the logits (``moments_kernel``), the rows
(``rows_kernel``: gather, margin, scale, integral, gradient), one reduction (``finish_kernel``).
Only the standard deviation matters to a difference of logits: it is a factor of sigma. Backward is
one pass: the rows' gradients times upstream, plus what flows through the standard deviation,

    dL/dx = chain · g - (x - mean) D / ((n - 1) std²),   D = Σ_rows chain · Σ_i m_i dL/dm_i,

since a row of g sums to zero, and m is 1/std times what it would be without.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-untyped-call,name-defined"
# mypy: no-warn-return-any

import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]

from expacc.ops.kernels_long import integrate_long_row, long_gradient, loss_of
from expacc.ops.kernels_moments import deviation_of
from expacc.ops.kernels_orthant import integrate_rows
from expacc.ops.kernels_softmax import read_rows

__all__ = [
    "long_backward_kernel",
    "long_rows_kernel",
    "margins_kernel",
    "rows_backward_kernel",
    "rows_kernel",
]

_NODES = tl.constexpr(14)


@triton.jit
def _tile(program, count, classes, ROWS: tl.constexpr, GROUPS: tl.constexpr):
    """Rows, whether they exist, and columns (rows, groups, 8) of a program."""
    rows = program.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = (tl.arange(0, GROUPS) * 8)[:, None] + tl.arange(0, 8)[None, :]
    return rows, rows < count, columns[None, :, :] + tl.zeros([ROWS, 1, 1], tl.int32)


@triton.jit(do_not_specialize=["count", "ignore_index", "parts"])
def rows_kernel(
    logits,
    target,
    weight,
    sigmas,
    values,
    dots,
    gradients,
    numbers,
    count,
    classes,
    parts,
    row_stride,
    class_stride,
    target_stride,
    sigma_stride,
    ignore_index,
    sigma: "fp32",  # noqa: F821
    margin: "fp32",  # noqa: F821
    HAS_WEIGHT: tl.constexpr,
    SIGMAS: tl.constexpr,
    STANDARDIZE: tl.constexpr,
    LOG: tl.constexpr,
    SUMMED: tl.constexpr,
    GRADIENT: tl.constexpr,
    ROWS: tl.constexpr,
    GROUPS: tl.constexpr,
    PARTS: tl.constexpr,
    FAST: tl.constexpr,
):
    """The loss of some rows, or its sum; and the gradient of each row's loss by its logits."""
    program = tl.program_id(0)
    sums = numbers + 8
    rows, inside, columns = _tile(program, count, classes, ROWS, GROUPS)
    kept, index, factor, chain = read_rows(
        target, weight, rows, inside, target_stride, classes, ignore_index, HAS_WEIGHT
    )
    deviation = 1.0
    if STANDARDIZE:
        deviation = deviation_of(logits, numbers, parts, program == 0, PARTS)
    noise = tl.zeros([ROWS], tl.float32) + sigma
    if SIGMAS:
        noise = tl.load(sigmas + rows * sigma_stride, mask=inside, other=1.0).to(tl.float32)
    scale = 1.0 / (noise * deviation)
    limit = margin * deviation
    start = logits + rows * row_stride
    own = tl.load(start + index * class_stride, mask=kept, other=0.0).to(tl.float32)
    there = kept[:, None, None] & (columns < classes)
    places = start[:, None, None] + columns.to(tl.int64) * class_stride
    scores = tl.load(places, mask=there, other=0.0).to(tl.float32)
    lead = own[:, None, None] - scores
    is_own = columns == index[:, None, None].to(tl.int32)
    rival = there & (is_own == 0) & (scores != float("-inf"))
    small_log2, ahead, gradient, margins = integrate_rows(
        tl.minimum(lead, limit), rival, columns, scale, ROWS, GROUPS, _NODES, FAST
    )

    value, slope = loss_of(small_log2, ahead, LOG)
    value = tl.where(kept, value * chain, 0.0)
    if SUMMED:
        programs = tl.num_programs(0)
        part = sums + 3 * parts + program
        tl.store(part, tl.sum(value, 0))
        tl.store(part + programs, tl.sum(factor, 0))
    else:
        tl.store(values + rows, value.to(tl.float32).to(values.dtype.element_ty), mask=inside)
    if GRADIENT:
        # By the margins -slope · gradient; a margin at its limit does not move.
        scores = tl.load(places, mask=there, other=0.0).to(tl.float32)
        moves = rival & (own[:, None, None] - scores <= limit)
        gradient = tl.where(moves, gradient, 0.0) * slope.to(tl.float32)[:, None, None]
        through = tl.sum(tl.sum(tl.where(moves, gradient * margins, 0.0), 2), 1)
        through = -tl.where(kept, through, 0.0).to(tl.float64)
        if SUMMED:
            tl.store(
                sums + 3 * parts + 2 * tl.num_programs(0) + program, tl.sum(through * chain, 0)
            )
        else:
            tl.store(dots + rows, through * chain, mask=inside)
        gradient *= scale[:, None, None]
        pull = tl.sum(tl.sum(gradient, 2), 1)
        gradient = tl.where(is_own, -pull[:, None, None], gradient)
        gradient = tl.where(kept[:, None, None], gradient, 0.0)
        tl.store(
            gradients + rows[:, None, None] * classes + columns,
            gradient.to(gradients.dtype.element_ty),
            mask=inside[:, None, None] & (columns < classes),
        )


@triton.jit(do_not_specialize=["count", "ignore_index", "blocks"])
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
    blocks,
    row_stride,
    class_stride,
    target_stride,
    upstream_stride,
    ignore_index,
    HAS_WEIGHT: tl.constexpr,
    STANDARDIZE: tl.constexpr,
    MEAN: tl.constexpr,
    SUMMED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The rows' gradients times weight, upstream and 1/divisor; and through the deviation."""
    program = tl.program_id(0)
    rows = (program // blocks).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = (program % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = rows < count
    kept, _index, _factor, chain = read_rows(
        target, weight, rows, inside, target_stride, classes, ignore_index, HAS_WEIGHT
    )
    above = tl.load(upstream + rows * upstream_stride, mask=inside, other=0.0).to(tl.float64)
    chain *= above
    if MEAN:
        chain /= tl.load(numbers + 1)
    there = kept[:, None] & (columns < classes)[None, :]
    place = rows[:, None] * classes + columns[None, :]
    result = tl.load(gradients + place, mask=there, other=0.0).to(tl.float32)
    result *= chain.to(tl.float32)[:, None]
    if STANDARDIZE:
        slope = tl.load(numbers + 2)
        if SUMMED:
            slope *= tl.load(upstream).to(tl.float64)
        number = tl.load(numbers + 3)  # infinite where the logits are constant
        deviation = tl.load(numbers + 5)
        slope = (slope / ((number - 1.0) * deviation * deviation)).to(tl.float32)
        scores = tl.load(
            logits + rows[:, None] * row_stride + columns.to(tl.int64)[None, :] * class_stride,
            mask=there,
            other=0.0,
        ).to(tl.float32)
        apart = scores - tl.load(numbers + 4).to(tl.float32)
        result -= tl.where(scores != float("-inf"), apart * slope, 0.0)
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
    scale = tl.full([ROWS], 1.0, tl.float32)
    small_log2, ahead, gradient, _margins = integrate_rows(
        lead.to(tl.float32), rival, columns, scale, ROWS, GROUPS, _NODES, FAST
    )
    tl.store(smalls + rows, small_log2 * 0.6931471805599453, mask=inside)
    tl.store(aheads + rows, ahead.to(tl.int8), mask=inside)
    place = gradients + rows[:, None, None] * rivals + columns
    tl.store(place, gradient, mask=there)


@triton.jit(do_not_specialize=["count", "ignore_index", "parts"])
def long_rows_kernel(
    logits,
    target,
    weight,
    sigmas,
    values,
    dots,
    stats,
    numbers,
    count,
    classes,
    parts,
    row_stride,
    class_stride,
    target_stride,
    sigma_stride,
    ignore_index,
    sigma: "fp32",  # noqa: F821
    margin: "fp32",  # noqa: F821
    HAS_WEIGHT: tl.constexpr,
    SIGMAS: tl.constexpr,
    STANDARDIZE: tl.constexpr,
    LOG: tl.constexpr,
    SUMMED: tl.constexpr,
    GRADIENT: tl.constexpr,
    WIDE: tl.constexpr,
    GROUPS: tl.constexpr,
    PARTS: tl.constexpr,
    FAST: tl.constexpr,
):
    """The loss of one long row; and what its gradient needs."""
    row = tl.program_id(0).to(tl.int64)
    kept, index, factor, chain = read_rows(
        target, weight, row, row < count, target_stride, classes, ignore_index, HAS_WEIGHT
    )
    deviation = 1.0
    if STANDARDIZE:
        deviation = deviation_of(logits, numbers, parts, row == 0, PARTS)
    noise = sigma
    if SIGMAS:
        noise = tl.load(sigmas + row * sigma_stride).to(tl.float32)
    start = logits + row * row_stride
    value = chain * 0.0
    through = chain * 0.0
    if kept:
        own = tl.load(start + index * class_stride).to(tl.float32)
        scale = 1.0 / (noise * deviation)
        loss, along = integrate_long_row(
            start,
            class_stride,
            classes,
            own,
            index.to(tl.int32),
            margin * deviation,
            scale,
            stats + row * 40,
            LOG,
            GRADIENT,
            WIDE,
            GROUPS,
            FAST,
        )
        value = loss * chain
        through = along.to(tl.float64) * chain
    if SUMMED:
        part = numbers + 8 + 3 * parts + row
        tl.store(part, value)
        tl.store(part + count, factor)
        tl.store(part + 2 * count.to(tl.int64), through)
    else:
        tl.store(values + row, value.to(tl.float32).to(values.dtype.element_ty))
        tl.store(dots + row, through)


@triton.jit(do_not_specialize=["count", "ignore_index", "blocks"])
def long_backward_kernel(
    logits,
    target,
    weight,
    sigmas,
    upstream,
    stats,
    out,
    numbers,
    count,
    classes,
    blocks,
    row_stride,
    class_stride,
    target_stride,
    sigma_stride,
    upstream_stride,
    ignore_index,
    sigma: "fp32",  # noqa: F821
    margin: "fp32",  # noqa: F821
    HAS_WEIGHT: tl.constexpr,
    SIGMAS: tl.constexpr,
    STANDARDIZE: tl.constexpr,
    MEAN: tl.constexpr,
    SUMMED: tl.constexpr,
    GROUPS: tl.constexpr,
    FAST: tl.constexpr,
):
    """The gradient of a block of columns of one long row, computed again from its nodes."""
    row = (tl.program_id(0) // blocks).to(tl.int64)
    first = (tl.program_id(0) % blocks) * GROUPS * 8
    kept, index, _, chain = read_rows(
        target, weight, row, row < count, target_stride, classes, ignore_index, HAS_WEIGHT
    )
    above = tl.load(upstream + row * upstream_stride).to(tl.float64)
    chain *= above
    if MEAN:
        chain /= tl.load(numbers + 1)
    start = logits + row * row_stride
    columns = first + (tl.arange(0, GROUPS) * 8)[:, None] + tl.arange(0, 8)[None, :]
    columns = columns[None, :, :]
    result = tl.zeros([1, GROUPS, 8], tl.float32)
    if kept:
        deviation = 1.0
        if STANDARDIZE:
            deviation = tl.load(numbers + 5).to(tl.float32)
        noise = sigma
        if SIGMAS:
            noise = tl.load(sigmas + row * sigma_stride).to(tl.float32)
        own = tl.load(start + index * class_stride).to(tl.float32)
        gradient, _columns = long_gradient(
            start,
            first,
            class_stride,
            classes,
            own,
            index.to(tl.int32),
            margin * deviation,
            1.0 / (noise * deviation),
            stats + row * 40,
            GROUPS,
            FAST,
        )
        result = gradient * chain.to(tl.float32)
        if STANDARDIZE:
            slope = tl.load(numbers + 2)
            if SUMMED:
                slope *= above
            number = tl.load(numbers + 3)  # infinite where the logits are constant
            wide = tl.load(numbers + 5)
            slope = (slope / ((number - 1.0) * wide * wide)).to(tl.float32)
            place = start + columns.to(tl.int64) * class_stride
            scores = tl.load(place, mask=columns < classes, other=0.0).to(tl.float32)
            apart = scores - tl.load(numbers + 4).to(tl.float32)
            result -= tl.where(scores != float("-inf"), apart * slope, 0.0)
    place = out + row * classes + columns
    tl.store(place, result.to(out.dtype.element_ty), mask=columns < classes)
