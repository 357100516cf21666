"""The paper's batch normalisation of the logits: one mean and one standard deviation for all.

Karpukhin et al., §4.5.2: without it, logits and sigma could grow together and change nothing.
"""

from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

__all__ = ["standardize_logits"]


def standardize_logits(scores: Tensor, kept: Tensor | None, *, sync: bool) -> Tensor:
    """Logits with mean 0 and (unbiased) standard deviation 1 over the kept, unmasked ones.

    The gradient flows through both. Constant logits stay as they are, less their mean.

    Args:
        scores: (…, C).
        kept: (…), the rows that count; all when None.
        sync: share count, mean and deviation across the ranks of the default process group.
    """
    counts = scores > -torch.inf
    if kept is not None:
        counts = counts & kept.unsqueeze(-1)
    inside = torch.where(counts, scores, 0)
    # In float64: sums over a batch, two numbers.
    count = _across_ranks(counts.sum().to(torch.float64), sync)
    mean = _across_ranks(inside.sum(dtype=torch.float64), sync) / count.clamp(min=1)
    # Masked and ignored logits stay out of the sums and of the gradient: 0 · inf would be NaN.
    centred = torch.where(counts, scores - mean.to(scores.dtype), 0)
    square = centred.square().sum(dtype=torch.float64)
    variance = _across_ranks(square, sync) / (count - 1).clamp(min=1)
    # A root has no slope at 0: constant logits are divided by 1, with no gradient through it.
    deviation = torch.where(variance > 0, variance, 1).sqrt()
    others = torch.where(scores > -torch.inf, 0, scores)  # ignored rows; masked logits stay -inf
    return torch.where(counts, centred / deviation.to(scores.dtype), others)


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


def _across_ranks(value: Tensor, sync: bool) -> Tensor:
    if not sync or not (dist.is_available() and dist.is_initialized()):
        return value
    result: Tensor = _SumOverRanks.apply(value)  # type: ignore[no-untyped-call]
    return result
