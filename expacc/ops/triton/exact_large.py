"""Triton kernels of EXACT for rows of many classes: a summary forward, the gradient backward.

Forward reads a row twice (``folded.py``) and leaves 40 numbers of it. Backward reads it
once more and writes its gradient: nothing of the logits' size is kept in between. A program takes
rows one after the other, so that the sums of a large batch are few.
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
    shrink_of,
    through_deviation,
)
from expacc.ops.triton.folded import FOLDED_SPAN, folded_gradient, integrate_folded_row
from expacc.ops.triton.integral import FAR, TO_Y
from expacc.ops.triton.long import LONG_NODES, long_gradient

_STATS = tl.constexpr(40)
_PLAIN = tl.constexpr(2)  # the gradient as it is, of no loss


@triton.jit(do_not_specialize=RUN_TIME)
def many_rows_kernel(
    logits, target, weight, sigmas, values, dots, stats, numbers, counter, table,
    sigma: "fp32", margin: "fp32",  # noqa: F821
    count, classes, inner, parts, each, stats_stride, outer_stride, inner_stride, class_stride,
    target_outer, target_inner, sigma_stride, ignore_index, has_weight, has_sigmas, standardize,
    log, reduction, gradient,
    LIMITED: tl.constexpr, BLOCK: tl.constexpr, NARROW: tl.constexpr, FAST: tl.constexpr,
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
        row = program.to(tl.int64) + turn * programs
        plane = row // inner
        place = row - plane * inner
        kept, index, factor, chain = read_rows(
            target + plane * target_outer, weight, place, row < count, target_inner, classes,
            ignore_index, has_weight,
        )  # fmt: skip
        noise = sigma * 1.0
        if has_sigmas:
            noise = tl.load(sigmas + row * sigma_stride, mask=row < count, other=1.0)
        value = tl.zeros([1], tl.float64)
        through = tl.zeros([1], tl.float64)
        if kept:
            start = logits + plane * outer_stride + place * inner_stride
            shrink = shrink_of(deviation)
            own = tl.load(start + index * class_stride).to(tl.float32) * shrink
            small_log2, ahead, along = integrate_folded_row(
                start, class_stride, classes, own, shrink, index.to(tl.int32),
                (margin * deviation * shrink).to(tl.float32),
                1.0 / (deviation * shrink * legal_noise(noise)),
                log, gradient, table, stats + row * stats_stride, LIMITED, BLOCK, NARROW, FAST,
            )  # fmt: skip
            loss, _slope = loss_of(small_log2, ahead, log)
            value = loss * chain
            through += along.to(tl.float64) * chain
        value_sum += value
        weight_sum += factor
        through_sum += through
        if (reduction == 0) & (row < count):
            one = tl.max(value, 0)
            tl.store(values + row, one.to(tl.float32).to(values.dtype.element_ty))
            tl.store(dots + row, tl.max(through, 0))
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
def _gradient(lead, limit, stats, scale, FAST: tl.constexpr):
    """The gradient by the scores of rivals with these leads; +inf where there is nobody."""
    nearest = tl.load(stats + 2 * LONG_NODES)
    span = tl.load(stats + FOLDED_SPAN)
    d = tl.maximum((lead - nearest) * (scale * TO_Y), 0.0)
    if span >= 0:
        gradient = folded_gradient(d, stats, span)
    else:
        gradient = long_gradient(tl.minimum(d, FAR), stats, FAST)
    # A margin at its limit does not move.
    return tl.where((lead <= limit) & (lead < float("inf")), gradient, 0.0)


@triton.jit(do_not_specialize=RUN_TIME, do_not_specialize_on_alignment=["upstream"])
def many_backward_kernel(
    logits, target, weight, sigmas, upstream, stats, out, numbers,
    sigma: "fp32", margin: "fp32",  # noqa: F821
    count, classes, inner, blocks, stats_stride, outer_stride, inner_stride, class_stride,
    target_outer, target_inner, grad_outer, grad_inner, grad_class, sigma_stride, upstream_stride,
    ignore_index, has_weight, has_sigmas, standardize, reduction,
    BLOCK: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """The gradient of a block of columns of one row."""
    row = (tl.program_id(0) // blocks).to(tl.int64)
    first = (tl.program_id(0) % blocks) * BLOCK
    plane = row // inner
    place = row - plane * inner
    kept, index, _, chain = read_rows(
        target + plane * target_outer, weight, place, row < count, target_inner, classes,
        ignore_index, has_weight,
    )  # fmt: skip
    columns = first + tl.arange(0, BLOCK)
    result = tl.zeros([BLOCK], tl.float32)
    if kept:
        above = tl.load(upstream + row * upstream_stride).to(tl.float64)
        chain *= above
        if reduction == 2:
            chain *= tl.load(numbers + 1)
        deviation = tl.program_id(0).to(tl.float64) * 0.0 + 1.0
        if standardize:
            deviation = tl.load(numbers + 5)
        noise = sigma * 1.0
        if has_sigmas:
            noise = tl.load(sigmas + row * sigma_stride)
        shrink = shrink_of(deviation)
        scale = (1.0 / (deviation * shrink * noise)).to(tl.float32)
        start = logits + plane * outer_stride + place * inner_stride
        own = tl.load(start + index * class_stride).to(tl.float32) * shrink
        places = start + columns.to(tl.int64) * class_stride
        scores = tl.load(places, mask=columns < classes, other=float("-inf")).to(tl.float32)
        limit = (margin * deviation * shrink).to(tl.float32)
        mine = stats + row * stats_stride
        result = _gradient(own - scores * shrink, limit, mine, scale, FAST)
        pull = tl.load(mine + 2 * LONG_NODES + 1)
        # The row of a NaN is NaN: 0 times its factor, too.
        factor = (chain * shrink).to(tl.float32) + pull * 0.0
        result = tl.where(columns == index, -pull, result) * factor
        if standardize:
            slope = tl.load(numbers + 2)
            if reduction != 0:
                slope *= above
            result -= through_deviation(scores, numbers, slope)
    tl.debug_barrier()  # the summary may lie where the gradient goes: all threads have read it
    out += plane * grad_outer + place * grad_inner
    tl.store(
        out + columns.to(tl.int64) * grad_class,
        result.to(out.dtype.element_ty),
        mask=columns < classes,
    )


@triton.jit(do_not_specialize=RUN_TIME)
def many_margins_kernel(
    margins, smalls, aheads, gradients, stats, table,
    count, rivals, row_stride,
    BLOCK: tl.constexpr, NARROW: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """The integral of one row of given margins, contiguous, and its gradient."""
    row = tl.program_id(0).to(tl.int64)
    start = margins + row * row_stride
    mine = stats + row * _STATS
    scale = tl.load(table) * 0.0 + 1.0
    own = scale * 0.0
    small_log2, ahead, _along = integrate_folded_row(
        start, 1, rivals, own, scale, -1, float("inf"), scale.to(tl.float64), _PLAIN, 1, table,
        mine, False, BLOCK, NARROW, FAST,
    )  # fmt: skip
    tl.store(smalls + row, tl.max(small_log2, 0) * 0.6931471805599453)
    tl.store(aheads + row, tl.max(ahead.to(tl.int8), 0))
    tl.debug_barrier()  # what the row left is for all threads to read
    for first in range(0, rivals, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        lead = tl.load(start + columns, mask=columns < rivals, other=float("inf")).to(tl.float32)
        gradient = _gradient(lead, float("inf"), mine, scale, FAST)
        tl.store(gradients + row * rivals + columns, gradient, mask=columns < rivals)
