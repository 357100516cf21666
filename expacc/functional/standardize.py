"""The paper's batch normalisation of the logits: one mean and one standard deviation for all.

Karpukhin et al., §4.5.2: without it, logits and sigma could grow together and change nothing.
"""

from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from expacc.ops import is_plain_eager

__all__ = ["standardize_logits"]

_LEAST = 1e-24  # a variance that float32's squares can tell
# Up to here a million squares can be added; beyond, what to multiply by.
_REACH = {torch.float32: (2.0**50, 2.0**-84), torch.float64: (2.0**480, 2.0**-560)}


def standardize_logits(scores: Tensor, kept: Tensor | None, *, sync: bool) -> Tensor:
    """Logits with mean 0 and (unbiased) standard deviation 1 over the kept, unmasked ones.

    The gradient flows through both. Constant logits stay as they are, less their mean.

    Args:
        scores: (…, C).
        kept: (…), the rows that count; all when None.
        sync: share count, mean and deviation across the ranks of the default process group.
    """
    counts = scores != -torch.inf  # NaN counts: with it there is no mean
    if kept is not None:
        counts = counts & kept.unsqueeze(-1)
    if scores.is_cpu and is_plain_eager():
        result, variance = _standardize(scores, counts, sync)
        if _LEAST < variance.item() < torch.inf:  # the usual case: no square was out of range
            return result
    factor = _into_reach(scores, counts, sync)
    result, variance = _standardize(scores * factor, counts, sync)
    # Constant logits are not divided by their deviation: the factor would be left in the gradient.
    return torch.where(torch.isnan(variance) | (variance > 0), result, result / factor)


def _standardize(scores: Tensor, counts: Tensor, sync: bool) -> tuple[Tensor, Tensor]:
    """The scores that count, standardised, and their variance."""
    inside = torch.where(counts, scores, 0)
    # In float64: sums over a batch, two numbers.
    count = _across_ranks(counts.sum().to(torch.float64), sync)
    mean = _across_ranks(inside.sum(dtype=torch.float64), sync) / count.clamp(min=1)
    # Masked and ignored logits stay out of the sums and of the gradient: 0 · inf would be NaN.
    centred = torch.where(counts, scores - mean.to(scores.dtype), 0)
    square = centred.square().sum(dtype=torch.float64)
    variance = _across_ranks(square, sync) / (count - 1).clamp(min=1)
    # A root has no slope at 0: constant logits are divided by 1, with no gradient through it. The
    # rounding of a mean may leave a trace of them.
    constant = variance <= (mean * 1e-15).square()
    deviation = torch.where(constant, 1, variance).sqrt()
    variance = torch.where(constant, 0, variance)
    others = torch.where(scores == -torch.inf, scores, 0)  # ignored rows; masked logits stay -inf
    return torch.where(counts, centred / deviation.to(scores.dtype), others), variance.detach()


def _into_reach(scores: Tensor, counts: Tensor, sync: bool) -> Tensor:
    """A power of two for the scores, so that their squares neither overflow nor vanish."""
    size = torch.where(counts, scores.detach().abs(), 0)
    size = size.amax() if size.numel() else size.sum()
    if _is_shared(sync):
        dist.all_reduce(size, dist.ReduceOp.MAX)
    most, power = _REACH[scores.dtype]
    small, large = (torch.full_like(size, factor) for factor in (power, 1 / power))
    return torch.where(size > most, small, torch.where(size * most < 1, large, 1))


class _SumOverRanks(torch.autograd.Function):
    """The sum of a number over the ranks; its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        total = value.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Tensor:
        total = grad_outputs[0].clone()
        dist.all_reduce(total)
        return total


def _is_shared(sync: bool) -> bool:
    return sync and dist.is_available() and dist.is_initialized()


def _across_ranks(value: Tensor, sync: bool) -> Tensor:
    if not _is_shared(sync):
        return value
    result: Tensor = _SumOverRanks.apply(value)  # type: ignore[no-untyped-call]
    return result
