"""Triton kernels for EXACT's numbers of a batch: moments of the logits, sums over the rows.

Everything is summed in float64 and in a fixed order: the same batch gives the same bits.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-untyped-call,name-defined"
# mypy: no-warn-return-any

import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]

__all__ = ["deviation_of", "dot_kernel", "finish_kernel", "moments_kernel"]

# ``numbers``, float64: unused, divisor of the mean, D, count, mean, deviation, unused, unused; then
# count, sum and sum of squares of every program of the moments; then the rows' programs' sums.


@triton.jit(do_not_specialize=["count", "ignore_index", "chunk"])
def moments_kernel(
    logits,
    target,
    numbers,
    count,
    classes,
    row_stride,
    class_stride,
    target_stride,
    ignore_index,
    chunk,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Count, sum and sum of squares of the kept, unmasked logits of ``chunk`` tiles of rows."""
    program = tl.program_id(0)
    number = tl.zeros([ROWS, BLOCK], tl.float32)
    total = tl.zeros([ROWS, BLOCK], tl.float64)
    squares = tl.zeros([ROWS, BLOCK], tl.float64)
    # Measured from one logit, so that a large common offset costs no digits.
    pivot = tl.load(logits).to(tl.float32)
    pivot = tl.where(tl.abs(pivot) < float("inf"), pivot, 0.0)
    first_row = program.to(tl.int64) * chunk * ROWS
    for tile in range(chunk):
        rows = first_row + tile * ROWS + tl.arange(0, ROWS)
        inside = rows < count
        label = tl.load(target + rows * target_stride, mask=inside, other=ignore_index)
        kept = inside & (label != ignore_index)
        for first in range(0, classes, BLOCK):
            place = first + tl.arange(0, BLOCK)
            scores = tl.load(
                logits + rows[:, None] * row_stride + place.to(tl.int64)[None, :] * class_stride,
                mask=kept[:, None] & (place < classes)[None, :],
                other=float("-inf"),
            ).to(tl.float32)
            present = scores != float("-inf")
            apart = tl.where(present, scores - pivot, 0.0).to(tl.float64)
            number += present.to(tl.float32)
            total += apart
            squares += apart * apart
    programs = tl.num_programs(0)
    place = numbers + 8 + program
    tl.store(place, tl.sum(tl.sum(number.to(tl.float64), 1), 0))
    tl.store(place + programs, tl.sum(tl.sum(total, 1), 0))
    tl.store(place + 2 * programs, tl.sum(tl.sum(squares, 1), 0))


@triton.jit
def deviation_of(logits, numbers, parts, noted, PARTS: tl.constexpr):
    """The standard deviation from ``moments_kernel``; ``noted`` with the rest for backward.

    Constant logits are divided by 1, and are noted as infinitely many: no gradient flows there.
    """
    sums = numbers + 8
    place = tl.arange(0, PARTS)
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
    return deviation.to(tl.float32)


@triton.jit(do_not_specialize=["skip", "parts"])
def finish_kernel(numbers, out, skip, parts, MEAN: tl.constexpr, BLOCK: tl.constexpr):
    """Loss, divisor and D from the programs' sums, in a fixed order."""
    partial = numbers + 8 + skip
    place = tl.arange(0, BLOCK)
    value = tl.zeros([BLOCK], tl.float64)
    weight = tl.zeros([BLOCK], tl.float64)
    through = tl.zeros([BLOCK], tl.float64)
    for first in range(0, parts, BLOCK):
        inside = first + place < parts
        value += tl.load(partial + first + place, mask=inside, other=0.0)
        weight += tl.load(partial + parts + first + place, mask=inside, other=0.0)
        through += tl.load(partial + 2 * parts + first + place, mask=inside, other=0.0)
    total = 1.0
    if MEAN:
        total = tl.sum(weight, 0)
        total = tl.where(total > 0, total, 1.0)  # a batch without weight gives 0
        tl.store(numbers + 1, total)
    tl.store(numbers + 2, tl.sum(through, 0) / total)
    tl.store(out, (tl.sum(value, 0) / total).to(tl.float32).to(out.dtype.element_ty))


@triton.jit(do_not_specialize=["count"])
def dot_kernel(dots, upstream, numbers, count, upstream_stride, BLOCK: tl.constexpr):
    """D = Σ upstream · dots, for a loss that was not reduced."""
    place = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float64)
    for first in range(0, count, BLOCK):
        inside = first + place < count
        rows = (first + place).to(tl.int64)
        chain = tl.load(upstream + rows * upstream_stride, mask=inside, other=0.0)
        total += tl.load(dots + rows, mask=inside, other=0.0) * chain.to(tl.float64)
    tl.store(numbers + 2, tl.sum(total, 0))
