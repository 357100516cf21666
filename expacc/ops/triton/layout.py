"""Where the rows of a batch lie: logits (N, C) or (N, C, d1, …), read in place.

A row is a place of the batch, its classes lie ``class stride`` apart. The axes beside the classes
are merged to two, ``outer`` and ``inner``, of which a program takes a piece of the inner: rows one
after the other, so that a segmentation map's neighbours are read together.
"""

from typing import NamedTuple

from torch import Tensor

from expacc.ops.dispatch import CLASS_AXIS


class Layout(NamedTuple):
    """Sizes, and strides (outer, inner, class) of logits, target and gradient.

    A label has the class stride 0.
    """

    outer: int
    inner: int
    logits: tuple[int, int, int]
    target: tuple[int, int, int]
    gradient: tuple[int, int, int]

    @property
    def rows(self) -> int:
        return self.outer * self.inner

    @property
    def across(self) -> bool:
        """Do neighbouring rows lie closer than a row's classes?"""
        return self.logits[1] < self.logits[2]

    def tiles(self, height: int) -> int:
        """Programs of ``height`` rows along the inner axis."""
        return -(-self.inner // height)


def layout_of(logits: Tensor, target: Tensor, gradient: tuple[int, ...]) -> Layout | None:
    """The layout of a batch whose gradient has these strides; None where it has more axes."""
    dense = target.ndim == logits.ndim
    strides = logits.stride()
    theirs = target.stride()
    axes = [0, *range(2, logits.ndim)]
    places = axes if dense else range(target.ndim)
    merged: list[tuple[int, int, int, int]] = []
    for axis, place in zip(axes, places, strict=True):
        size = logits.shape[axis]
        if size == 1:
            continue
        new = (size, strides[axis], theirs[place], gradient[axis])
        if merged:
            *before, last = merged
            if all(old == size * step for old, step in zip(last[1:], new[1:], strict=True)):
                merged = [*before, (last[0] * size, *new[1:])]
                continue
        merged.append(new)
    if len(merged) > 2:
        return None
    one = (1, 0, 0, 0)
    outer, inner = (*[one] * (2 - len(merged)), *merged)
    each = theirs[CLASS_AXIS] if dense else 0
    steps = (strides[CLASS_AXIS], each, gradient[CLASS_AXIS])
    found = [(outer[n], inner[n], step) for n, step in zip((1, 2, 3), steps, strict=True)]
    return Layout(outer[0], inner[0], found[0], found[1], found[2])
