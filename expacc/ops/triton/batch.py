"""What the Triton kernels of all losses share: the contract of a row, numbers of a batch, sums.

Everything is summed in float64 and in a fixed order: the same batch gives the same bits.
"""

import triton
import triton.language as tl

MOST_PARTS = tl.constexpr(256)  # programs of the moments
# Integers that are not worth a compiled variant of their own, in whichever kernel.
RUN_TIME = (
    *("count", "ignore_index", "has_weight", "has_sigmas", "standardize", "log", "reduction"),
    *(
        "gradient",
        "at_once",
        "parts",
        "each",
        "stats_stride",
        "blocks",
        "segments",
        "mean",
        "chunk",
    ),
    *("skip", "through_too", "outer", "inner", "tiles"),
)

# ``numbers``, float64: unused, 1/divisor of the mean, D / ((count - 1) deviation²), count, mean,
# deviation, unused, unused; then count, sum and sum of squares of every program of the moments;
# then the rows' programs' sums of values, of weights and of D.


@triton.jit
def rows_of(tile, tiles, inner, ROWS: tl.constexpr):
    """(outer, inner places, numbers, whether there are any) of a tile of rows."""
    plane = (tile // tiles).to(tl.int64)
    place = (tile % tiles).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    return plane, place, plane * inner + place, place < inner


@triton.jit
def read_rows(target, weight, rows, inside, target_stride, classes, ignore_index, has_weight):
    """(kept, label in range, weight of the row, the same with NaN for a label out of range)."""
    label = tl.load(target + rows * target_stride, mask=inside, other=ignore_index)
    kept = (label != ignore_index) & inside
    good = (label >= 0) & (label < classes)
    index = tl.where(kept & good, label, 0)
    factor = kept.to(tl.float64)
    if has_weight:
        factor = tl.load(weight + index, mask=kept, other=0.0).to(tl.float64)
        factor = tl.where((factor >= 0) & (factor < float("inf")), factor, float("nan"))
    return kept, index, factor, tl.where(kept & (good == 0), float("nan"), factor)


@triton.jit(do_not_specialize=RUN_TIME)
def moments_kernel(
    logits, target, numbers,
    outer, classes, inner, tiles, outer_stride, inner_stride, class_stride, target_outer,
    target_inner, ignore_index, chunk,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Count, sum and sum of squares of the kept, unmasked logits of ``chunk`` tiles of rows."""
    program = tl.program_id(0)
    number = tl.zeros([ROWS, BLOCK], tl.float32)
    total = tl.zeros([ROWS, BLOCK], tl.float64)
    squares = tl.zeros([ROWS, BLOCK], tl.float64)
    # Measured from one logit, so that a large common offset costs no digits.
    pivot = tl.load(logits).to(tl.float32)
    pivot = tl.where(tl.abs(pivot) < float("inf"), pivot, 0.0)
    for tile in range(chunk):
        plane, row, _, _ = rows_of(program * chunk + tile, tiles, inner, ROWS)
        inside = row < tl.where(plane < outer, inner, 0)
        labels = target + plane * target_outer + row * target_inner
        label = tl.load(labels, mask=inside, other=ignore_index)
        start = logits + plane * outer_stride + row * inner_stride
        kept = inside & (label != ignore_index)
        here = tl.zeros([ROWS, BLOCK], tl.float32)
        for first in range(0, classes, BLOCK):
            place = first + tl.arange(0, BLOCK)
            scores = tl.load(
                start[:, None] + place.to(tl.int64)[None, :] * class_stride,
                mask=kept[:, None] & (place < classes)[None, :],
                other=float("-inf"),
            ).to(tl.float32)
            present = scores != float("-inf")
            # In float64: the difference of two large logits may overflow.
            apart = tl.where(present, scores.to(tl.float64) - pivot.to(tl.float64), 0.0)
            here += present.to(tl.float32)
            total += apart
            squares += apart * apart
        number += here
        # A row of nothing but masked classes has no winner, and so the batch no deviation.
        empty = kept & (tl.sum(here, 1) == 0)
        total += tl.where(empty, float("nan"), 0.0).to(tl.float64)[:, None]
    programs = tl.num_programs(0)
    place = numbers + 8 + program
    tl.store(place, tl.sum(tl.sum(number.to(tl.float64), 1), 0))
    tl.store(place + programs, tl.sum(tl.sum(total, 1), 0))
    tl.store(place + 2 * programs, tl.sum(tl.sum(squares, 1), 0))


@triton.jit
def deviation_of(logits, numbers, parts, noted):
    """The standard deviation from ``moments_kernel``; ``noted`` with the rest for backward.

    Constant logits are divided by 1, and are noted as infinitely many: no gradient flows there.
    """
    sums = numbers + 8
    place = tl.arange(0, MOST_PARTS)
    inside = place < parts
    number = tl.sum(tl.load(sums + place, mask=inside, other=0.0), 0)
    total = tl.sum(tl.load(sums + parts + place, mask=inside, other=0.0), 0)
    squares = tl.sum(tl.load(sums + 2 * parts + place, mask=inside, other=0.0), 0)
    pivot = tl.load(logits).to(tl.float32)
    pivot = tl.where(tl.abs(pivot) < float("inf"), pivot, 0.0)
    apart = total / tl.maximum(number, 1.0)
    variance = (squares - total * apart) / tl.maximum(number - 1.0, 1.0)
    constant = variance <= 1e-15 * apart * apart  # rounding may leave a trace
    deviation = tl.where(constant, 1.0, tl.sqrt(tl.where(constant, 1.0, variance)))
    if noted:
        tl.store(numbers + 3, tl.where(constant, float("inf"), number))
        tl.store(numbers + 4, apart + pivot.to(tl.float64))
        tl.store(numbers + 5, deviation)
    return deviation


@triton.jit
def shrink_of(deviation):
    """A power of two that brings scores so far apart, and their differences, within float32."""
    return tl.where(deviation > 1e18, 5.421010862427522e-20, 1.0).to(tl.float32)  # 2^-64


@triton.jit
def rounded(value, out):
    """A float64 in the dtype of ``out``, by way of float32 if that is shorter."""
    if out.dtype.element_ty != tl.float64:
        value = value.to(tl.float32)
    return value.to(out.dtype.element_ty)


@triton.jit
def is_last(counter):
    """Is this the last program to come here? What the others stored before, it may then load."""
    tl.debug_barrier()
    earlier = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu")
    return earlier == tl.num_programs(0) - 1


@triton.jit
def _through_deviation(numbers, slope):
    """D / ((count - 1) deviation²); the count is infinite where the logits are constant."""
    number = tl.load(numbers + 3, volatile=True)
    deviation = tl.load(numbers + 5, volatile=True)
    return slope / ((number - 1.0) * deviation * deviation)


@triton.jit
def finish(numbers, partial, parts, out, mean, through_too, BLOCK: tl.constexpr):
    """Loss, 1/divisor and the slope through the deviation from the sums, in a fixed order."""
    place = tl.arange(0, BLOCK)
    value = tl.zeros([BLOCK], tl.float64)
    weight = tl.zeros([BLOCK], tl.float64)
    through = tl.zeros([BLOCK], tl.float64)
    for first in range(0, parts, BLOCK):
        inside = first + place < parts
        here = partial + first + place
        value += tl.load(here, mask=inside, other=0.0, volatile=True)
        weight += tl.load(here + parts, mask=inside, other=0.0, volatile=True)
        if through_too:
            through += tl.load(here + 2 * parts, mask=inside, other=0.0, volatile=True)
    result = tl.sum(value, 0)
    slope = tl.sum(through, 0)
    if mean:
        total = tl.sum(weight, 0)
        share = 1.0 / tl.where(total == 0, 1.0, total)  # a batch without weight gives 0
        tl.store(numbers + 1, share)
        result *= share
        slope *= share
    if through_too:
        tl.store(numbers + 2, _through_deviation(numbers, slope))
    tl.store(out, rounded(result, out))


@triton.jit
def leave(
    value, factor, rows, inside, values, scratch, parts, counter, reduction, at_once,
    SUMS: tl.constexpr,
):  # fmt: skip
    """A program's values, or their sum and that of the weights; the last program adds all up."""
    if reduction == 0:
        tl.store(values + rows, rounded(value, values), mask=inside)
    else:
        program = tl.program_id(0)
        programs = tl.num_programs(0)
        tl.store(parts + program, tl.sum(value, 0))
        tl.store(parts + programs + program, tl.sum(factor, 0))
        if at_once:  # noqa: SIM102
            if is_last(counter):
                finish(scratch, parts, programs, values, reduction == 2, False, SUMS)
                tl.store(counter, 0)


@triton.jit
def scores_of(start, columns, class_stride, allowed, other):
    """Scores of rows at ``start`` in these columns, (rows, columns), float32."""
    place = start[:, None] + columns.to(tl.int64)[None, :] * class_stride
    return tl.load(place, mask=allowed, other=other).to(tl.float32)


@triton.jit(do_not_specialize=RUN_TIME)
def finish_kernel(numbers, out, skip, parts, mean, through_too, BLOCK: tl.constexpr):
    """``finish`` by itself, where there are too many sums for a program of the rows."""
    finish(numbers, numbers + 8 + skip, parts, out, mean, through_too, BLOCK)


@triton.jit(do_not_specialize=RUN_TIME, do_not_specialize_on_alignment=["upstream"])
def dot_kernel(dots, upstream, numbers, count, upstream_stride, BLOCK: tl.constexpr):
    """The slope through the deviation, Σ upstream · dots, for a loss that was not reduced."""
    place = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float64)
    for first in range(0, count, BLOCK):
        inside = first + place < count
        rows = (first + place).to(tl.int64)
        chain = tl.load(upstream + rows * upstream_stride, mask=inside, other=0.0)
        total += tl.load(dots + rows, mask=inside, other=0.0) * chain.to(tl.float64)
    tl.store(numbers + 2, _through_deviation(numbers, tl.sum(total, 0)))


# ------------------------------------------------------------------------ a row of EXACT


@triton.jit
def legal_noise(sigma):
    """NaN for what no noise can be."""
    return tl.where((sigma > 0) & (sigma < float("inf")), sigma, float("nan"))


@triton.jit
def through_deviation(scores, numbers, slope):
    """What flows through the standard deviation; nothing to a masked class."""
    mean = tl.load(numbers + 4)
    near = mean.to(tl.float32)
    rest = (mean - near.to(tl.float64)).to(tl.float32)
    size = tl.abs(slope)
    ordinary = (size > 1e-30) & (size < 1e30) & (tl.load(numbers + 5) + tl.abs(mean) < 1e18)
    if ordinary:
        along = (scores - near - rest) * slope.to(tl.float32)
    else:  # large scores and a small slope are both beyond float32
        along = ((scores.to(tl.float64) - mean) * slope).to(tl.float32)
    return tl.where(scores != float("-inf"), along, 0.0)


@triton.jit
def loss_of(small_log2, ahead, log):
    """1 - P or -log P, and dL/dm divided by -gradient, from log2 of the smaller of P and 1-P.

    ``log`` is 0 or 1; 2 asks for the gradient as it is, divided by the smaller.
    """
    small = tl.exp(small_log2 * 0.6931471805599453)
    value = tl.where(ahead, small, 1.0 - small)
    slope = small
    if log == 1:
        value = -tl.where(ahead, tl.log(1.0 - small), small_log2 * 0.6931471805599453)
        slope = tl.where(ahead, small / (1.0 - small), 1.0)
    elif log == 2:
        slope = tl.full(small.shape, 1.0, tl.float64)
    return value, slope
