"""Triton kernels of the losses over log p(target): one read forward, one read and write backward.

The mathematics is that of ``log_prob.py``: the target against its rivals, what is N×C in float32,
what is one number per row in float64. A program takes ``ROWS`` rows at once when they are short,
and walks along a row in blocks when it is long, with the running maximum of online softmax.
"""

import triton
import triton.language as tl

from expacc.ops.triton.batch import RUN_TIME, leave, read_rows, rows_of, scores_of
from expacc.ops.triton.curves import curve_of, lead_parts
from expacc.ops.triton.digits import shares_of, terms_of


@triton.jit(do_not_specialize=RUN_TIME)
def forward_kernel(
    logits, target, weight, values, scratch, counter,
    first_number: "fp64", second_number: "fp64",  # noqa: F821
    factor: "fp64", shift: "fp64", scale: "fp64", share_weight: "fp64",  # noqa: F821
    count, classes, inner, tiles, outer_stride, inner_stride, class_stride, target_outer,
    target_inner, ignore_index, has_weight, reduction, at_once,
    CURVE: tl.constexpr, MOVED: tl.constexpr, SHARED: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, LONG: tl.constexpr, SUMS: tl.constexpr,
):  # fmt: skip
    """Values (or their sum over this program's rows), and top, share and pull of every row.

    ``reduction`` is 0 for none, 1 for a sum, 2 for a mean. A loss is ``factor`` times a curve of
    the two numbers; MOVED by shift and scale of the lead; SHARED, log p(y) / Σ log p_j is added,
    for which a rival's gradient has a level beside its share.
    """
    program = tl.program_id(0)
    plane, place, rows, inside = rows_of(program, tiles, inner, ROWS)
    kept, index, factor_of_row, chain = read_rows(
        target + plane * target_outer, weight, place, inside, target_inner, classes, ignore_index,
        has_weight,
    )  # fmt: skip
    start = logits + plane * outer_stride + place * inner_stride
    own = tl.load(start + index * class_stride, mask=kept, other=0.0).to(tl.float32)
    columns = tl.arange(0, BLOCK)
    EXACT: tl.constexpr = logits.dtype.element_ty == tl.float32
    lowest = -3.4028234663852886e38  # so that -inf minus the top is -inf, not NaN
    behind = tl.zeros([ROWS], tl.float64)  # Σ (z - top) of the rivals that are not masked
    rivals = tl.zeros([ROWS], tl.float64)
    if LONG:
        top = tl.full([ROWS], lowest, tl.float32)
        sums = tl.zeros([ROWS, BLOCK], tl.float64 if EXACT else tl.float32)
        for first in range(0, classes, BLOCK):
            column = first + columns
            allowed = kept[:, None] & (column < classes)[None, :]
            scores = scores_of(start, column, class_stride, allowed, float("-inf"))
            scores = tl.where(column[None, :] == index[:, None], float("-inf"), scores)
            higher = tl.maximum(top, tl.max(scores, 1))
            sums = sums * terms_of(top - higher, EXACT)[:, None]
            sums += terms_of(scores - higher[:, None], EXACT)
            if SHARED:
                behind -= rivals * (higher.to(tl.float64) - top.to(tl.float64))
                fallen, present = _fallen(scores, higher)
                behind += fallen
                rivals += present
            top = higher
        total = tl.sum(sums, 1)
    else:
        allowed = kept[:, None] & (columns < classes)[None, :]
        scores = scores_of(start, columns, class_stride, allowed, float("-inf"))
        scores = tl.where(columns[None, :] == index[:, None], float("-inf"), scores)
        top = tl.maximum(tl.max(scores, 1), lowest)
        if MOVED:  # a scale above 1 makes as much more of an error
            wide_scores = scores.to(tl.float64) - top.to(tl.float64)[:, None]
            total = tl.sum(tl.exp(wide_scores), 1)
        else:
            total = tl.sum(terms_of(scores - top[:, None], EXACT), 1)
        if SHARED:
            behind, rivals = _fallen(scores, top)

    wide = total.to(tl.float64)
    lead = own.to(tl.float64) - top.to(tl.float64) - tl.log(wide)
    lead = tl.where(total == 0, float("inf"), lead)  # no rival, or none that is not masked
    # NaN, +inf, or nothing but -inf: there is no softmax.
    sick = (own != own) | (own == float("inf")) | ((total == 0) & (own == float("-inf")))
    lead = tl.where(sick, float("nan"), lead)
    if MOVED:
        lead = lead * scale + shift
    minus, prob, error = lead_parts(lead)
    value, slope = curve_of(minus, prob, error, first_number, second_number, CURVE)
    value *= factor
    slope *= factor
    base = scratch + 8 + rows
    wide_count = count.to(tl.int64)
    if SHARED:
        beyond = tl.where(lead > -700.0, minus + lead, 0.0)  # log(1 + e^lead)
        offset = tl.log(tl.where(total == 0, 1.0, wide)) + beyond  # log Σ e^(z - top)
        rest = behind - rivals * tl.where(total == 0, 0.0, offset)
        rest = tl.where(rest > -1e-277, -1e-277, rest)
        part = 1.0 / (1.0 + rest / -minus)  # 1 for a label that is infinitely behind
        whole = rest - minus
        value += share_weight * part
        slope += share_weight * (rest / whole / whole)
        level = -share_weight * part / whole
        through = level * rivals
        pull = slope * error - prob * through
        share = -(slope + through) * error / wide
        only = classes == 2  # it may have next to nothing, as the label
        share = tl.where(only, 0.0, share)
        level = tl.where(only, -pull, level)
        tl.store(base + 3 * wide_count, tl.where(total == 0, 0.0, level), mask=inside)
    else:
        pull = slope * error
        if MOVED:
            pull *= scale
        share = -pull / wide
    value = tl.where(kept, value * chain, 0.0)
    tl.store(base, top.to(tl.float64), mask=inside)
    tl.store(base + wide_count, tl.where((total == 0) & (sick == 0), 0.0, share), mask=inside)
    tl.store(base + 2 * wide_count, pull, mask=inside)
    parts = scratch + 8 + (4 if SHARED else 3) * wide_count
    leave(
        value, factor_of_row, rows, inside, values, scratch, parts, counter, reduction, at_once,
        SUMS,
    )  # fmt: skip


@triton.jit
def _fallen(scores, top):
    """Σ (z - top) over the classes that are not masked, and how many they are."""
    present = scores != float("-inf")
    apart = tl.where(present, scores.to(tl.float64) - top.to(tl.float64)[:, None], 0.0)
    return tl.sum(apart, 1), tl.sum(present.to(tl.float64), 1)


@triton.jit(do_not_specialize=RUN_TIME, do_not_specialize_on_alignment=["upstream"])
def backward_kernel(
    logits, target, weight, upstream, grad, scratch,
    count, classes, inner, tiles, segments, outer_stride, inner_stride, class_stride, target_outer,
    target_inner, grad_outer, grad_inner, grad_class, upstream_stride, ignore_index, has_weight,
    mean, SHARED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Rivals get share · e^(z - top), the target pull; times weight, upstream and 1/divisor."""
    program = tl.program_id(0)
    plane, place, rows, inside = rows_of(program // segments, tiles, inner, ROWS)
    kept, index, _, chain = read_rows(
        target + plane * target_outer, weight, place, inside, target_inner, classes, ignore_index,
        has_weight,
    )  # fmt: skip
    chain *= tl.load(upstream + rows * upstream_stride, mask=inside, other=0.0).to(tl.float64)
    if mean:
        chain *= tl.load(scratch + 1)
    base = scratch + 8 + rows
    wide_count = count.to(tl.int64)
    top = tl.load(base, mask=kept, other=0.0).to(tl.float32)
    share = tl.load(base + wide_count, mask=kept, other=0.0)
    pull = tl.load(base + 2 * wide_count, mask=kept, other=0.0)
    share *= chain
    whole = share.to(tl.float32)
    rest = (share - whole.to(tl.float64)).to(tl.float32)
    pull = (pull * chain).to(tl.float32)
    if SHARED:
        level = (tl.load(base + 3 * wide_count, mask=kept, other=0.0) * chain).to(tl.float32)
    EXACT: tl.constexpr = logits.dtype.element_ty == tl.float32
    start = logits + plane * outer_stride + place * inner_stride
    out = grad + plane * grad_outer + place * grad_inner
    first = (program % segments) * (BLOCK * BLOCKS)
    for block in range(BLOCKS):
        columns = first + block * BLOCK + tl.arange(0, BLOCK)
        width = (columns < classes)[None, :]
        along = columns.to(tl.int64)[None, :]
        scores = tl.load(
            start[:, None] + along * class_stride, mask=kept[:, None] & width, other=0.0
        ).to(tl.float32)
        result = shares_of(scores - top[:, None], whole[:, None], rest[:, None], EXACT)
        if SHARED:
            result += tl.where(scores != float("-inf"), level[:, None], 0.0)
        result = tl.where(columns[None, :] == index[:, None], pull[:, None], result)
        result = tl.where(kept[:, None], result, 0.0)
        mask = inside[:, None] & width
        tl.store(out[:, None] + along * grad_class, result.to(grad.dtype.element_ty), mask=mask)
