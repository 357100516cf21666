"""The classes other than the label, summed row by row in blocks that stay in the cache."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from expacc.ops.dispatch import CLASS_AXIS

# 1 MiB of float32: half of that costs more calls, twice as much takes no less time.
_BLOCK_ELEMENTS_CPU = 262_144
_BLOCK_ELEMENTS_DEVICE = 2**27
MANY_CLASSES = 64  # below, the softmax is slower than the exp


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of N×C arithmetic: float32, or float64 for float64 input."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def row_dtype(device: torch.device) -> torch.dtype:
    """The dtype of per-row arithmetic: float64 wherever the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


def rows_per_block(logits: Tensor) -> int:
    """How many entries of the leading axis make about a block of elements; at least 1."""
    limit = _BLOCK_ELEMENTS_CPU if logits.is_cpu else _BLOCK_ELEMENTS_DEVICE
    rows, elements = logits.shape[0], logits.numel()
    return max(1, rows if elements <= limit else limit * rows // elements)


def split_rows(step: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The tensors' blocks of ``step`` rows; splitting once is cheaper than slicing in a loop."""
    return zip(*(torch.split(tensor, step) for tensor in tensors), strict=True)


class Rivals(NamedTuple):
    """The classes other than the label, row by row; every tensor keeps the class axis.

    Attributes:
        top: the largest logit, or another number near log Σ e^z.
        total: Σ e^{z - top}; 0 where there is no rival.
        shares: in proportion to p_j, 0 for the label; None if not kept.
        fix: the sum of the row's shares, by which they are divided to add up to 1.
    """

    top: Tensor
    total: Tensor
    shares: Tensor | None
    fix: Tensor


def summarize_rivals(
    logits: Tensor,
    index: Tensor,
    work: torch.dtype,
    keep: bool,
    behind: Tensor | None = None,
) -> Rivals:
    """One softmax over the rivals of ``index`` (N, 1, …), in row blocks.

    With many classes torch's softmax takes less time than its exp alone, but adds up one by one:
    the sum of the shares, which is added in pairs, mends what thousands of classes lose.

    Args:
        logits: (N, C, …).
        index: (N, 1, …), labels in range.
        work: the dtype of the arithmetic.
        keep: whether the shares are kept, in the dtype of N×C arithmetic.
        behind: where Σ (z - top) goes, if anywhere; the top is then the largest logit itself.
    """
    many = logits.shape[CLASS_AXIS] >= MANY_CLASSES
    if many and logits.is_cpu and behind is None:
        quick = _summarize_by_softmax(logits, index, keep)
        if quick is not None:
            return quick
    lowest = torch.finfo(work).min  # so that -inf minus the top is -inf, not NaN
    rows, step = logits.shape[0], rows_per_block(logits)
    # Buffers for all blocks, which then never leave the cache.
    buffer = torch.empty(min(rows, step), *logits.shape[1:], dtype=work, device=logits.device)
    narrow = compute_dtype(logits.dtype)
    spare = None if keep and work == narrow else torch.empty_like(buffer)
    shares = torch.empty(logits.shape, dtype=narrow, device=logits.device) if keep else None
    top = torch.empty(index.shape, dtype=work, device=logits.device)
    largest, fix = torch.ones_like(top), torch.empty_like(top)
    kept = logits if shares is None else shares  # only to be split
    fallen = top if behind is None else behind
    for block, labels, highest, most, summed, below, out in split_rows(
        step, logits, index, top, largest, fix, fallen, kept
    ):
        rivals = buffer[: len(block)].copy_(block).scatter_(CLASS_AXIS, labels, -torch.inf)
        torch.amax(rivals, CLASS_AXIS, keepdim=True, out=highest)
        if behind is not None or not many:
            rivals.sub_(highest.clamp(min=lowest))
        if behind is not None:
            torch.sum(rivals.scatter_(CLASS_AXIS, labels, 0), CLASS_AXIS, keepdim=True, out=below)
            rivals.scatter_(CLASS_AXIS, labels, -torch.inf)
        found = out if spare is None else spare[: len(block)]
        if many:
            torch.softmax(rivals, CLASS_AXIS, out=found)
            torch.amax(found, CLASS_AXIS, keepdim=True, out=most)
        else:
            torch.exp(rivals, out=found)
        torch.sum(found, CLASS_AXIS, keepdim=True, out=summed)
        if shares is not None and found is not out:
            out.copy_(found)
    # A softmax of nothing is NaN.
    absent = top == -torch.inf
    if not logits.is_cpu or absent.any():  # elsewhere a look would wait for the device
        fix.masked_fill_(absent, 1)
        if shares is not None:
            shares.masked_fill_(absent, 0)
    total = (fix / largest).masked_fill_(absent, 0)
    return Rivals(top.clamp_(min=lowest), total, shares, fix)


def _summarize_by_softmax(logits: Tensor, index: Tensor, keep: bool) -> Rivals | None:
    """The same from the softmax over all classes: no copy, and two passes less.

    p/(1-p) is the label's share over the sum of the others', whose common divisor drops out; None
    where one of the two is next to nothing, or not a number.
    """
    narrow, rows, step = (
        compute_dtype(logits.dtype),
        row_dtype(logits.device),
        rows_per_block(logits),
    )
    block_size = (min(len(logits), step), *logits.shape[1:])
    shares = torch.empty(logits.shape if keep else block_size, dtype=narrow)
    true = logits.gather(CLASS_AXIS, index).to(rows)
    own = torch.empty(index.shape, dtype=narrow)
    rest, top = torch.empty_like(own), torch.empty_like(own)
    blocks = split_rows(step, logits, index, true, own, rest, top)
    for i, (block, labels, score, mine, others, level) in enumerate(blocks):
        found = shares[i * step if keep else 0 :][: len(block)]
        torch.softmax(block, CLASS_AXIS, dtype=narrow, out=found)
        torch.gather(found, CLASS_AXIS, labels, out=mine)
        torch.sum(found.scatter_(CLASS_AXIS, labels, 0), CLASS_AXIS, keepdim=True, out=others)
        level.copy_(score - mine.to(rows).log())  # log Σ e^z, rounded
    least = torch.finfo(narrow).tiny ** 0.8
    if not (own.amin().item() > least and rest.amin().item() > least):
        return None
    total = true.sub_(top).exp_().mul_(rest).div_(own)
    return Rivals(top, total, shares if keep else None, rest)
