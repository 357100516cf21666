"""A loss over log p(target) as one autograd node with its gradient written by hand.

The mathematics is that of ``reference.py``. Two ways to compute it:

* a small batch costs what calling operations costs, so it is done in as few as possible, in
  float64, from the ratios p_j/p_y = e^{z_j - z_y};
* a large batch costs what moving memory costs, so it is done in row blocks that fit the cache, and
  nothing of the logits' size is kept between forward and backward.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from expacc.ops.formula import Formula, error_of
from expacc.ops.reference import CLASS_AXIS, compose_log_prob_loss, compute_dtype, row_dtype

_SMALL_ELEMENTS = 16_384
# A block's copy of the logits (512 KiB in float32) and its results stay in the second-level cache.
_BLOCK_ELEMENTS_CPU = 131_072
_BLOCK_ELEMENTS_DEVICE = 2**27


# --------------------------------------------------------------------------------- small batches


def _ratios(logits: Tensor, index: Tensor) -> tuple[Tensor, Tensor] | None:
    """(p_j/p_y with 0 at the target, their sum), or None if that sum is not finite."""
    ratios = logits.to(torch.float64, copy=True)
    ratios.sub_(ratios.gather(CLASS_AXIS, index)).exp_().scatter_(CLASS_AXIS, index, 0)
    odds = ratios.sum(CLASS_AXIS, keepdim=True)
    # A rival 709 ahead overflows; the blocks below handle it. Reading a CPU number is cheap.
    return (ratios, odds) if math.isfinite(odds.sum().item()) else None


def _spread_ratios(index: Tensor, pull: Tensor, ratios: Tensor, odds: Tensor) -> Tensor:
    """The gradient -pull·p_j at the rivals and pull·(1 - p_y) at the target, as multiples of p_y.

    ``pull`` is dL/du · p_y.
    """
    grad = ratios * -pull
    return grad.scatter_(CLASS_AXIS, index, pull.mul_(odds))


# --------------------------------------------------------------------------------- large batches


def _rows_per_block(logits: Tensor) -> int:
    """How many entries of the leading axis make about a block of elements; at least 1."""
    limit = _BLOCK_ELEMENTS_CPU if logits.is_cpu else _BLOCK_ELEMENTS_DEVICE
    rows, elements = logits.shape[0], logits.numel()
    return max(1, rows if elements <= limit else limit * rows // elements)


def _rivals(logits: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """(top, total) of the rivals of ``index`` (N, 1, …); both keep the class axis."""
    work = compute_dtype(logits.dtype)
    lowest = torch.finfo(work).min  # so that -inf minus the top is -inf, not NaN
    rows, step = logits.shape[0], _rows_per_block(logits)
    # One buffer for all blocks, which then never leaves the cache.
    buffer = torch.empty(min(rows, step), *logits.shape[1:], dtype=work, device=logits.device)
    top = torch.empty(index.shape, dtype=work, device=logits.device)
    total = torch.empty_like(top)
    for start in range(0, rows, step):
        block = slice(start, start + step)
        rivals = buffer[: min(step, rows - start)].copy_(logits[block])
        rivals.scatter_(CLASS_AXIS, index[block], -torch.inf)
        highest = torch.amax(rivals, CLASS_AXIS, keepdim=True, out=top[block])
        rivals.sub_(highest.clamp_(min=lowest)).exp_()
        torch.sum(rivals, CLASS_AXIS, keepdim=True, out=total[block])
    return top, total


def _spread_blocks(
    logits: Tensor, index: Tensor, pull: Tensor, top: Tensor, total: Tensor
) -> Tensor:
    """The gradient: ``pull`` = dL/du · (1 - p_y) at the target, its negative shared by the rivals.

    Every rival's share is exact to rounding, and a row sums to zero.
    """
    work = compute_dtype(logits.dtype)
    # A present rival makes total at least 1, so the clamp changes only the empty sum, 0 to 1.
    share = (-pull / total.clamp(min=1)).to(work)
    grad = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    rows, step = logits.shape[0], _rows_per_block(logits)
    for start in range(0, rows, step):
        block = slice(start, start + step)
        if grad.dtype == work:
            part = torch.sub(logits[block], top[block], out=grad[block])
            part.exp_().mul_(share[block])
        else:
            grad[block] = torch.sub(logits[block], top[block]).exp_().mul_(share[block])
    return grad.scatter_(CLASS_AXIS, index, pull.to(grad.dtype))


# --------------------------------------------------------------------------------------- the node


class EagerLogProbLoss(torch.autograd.Function):
    """``scale · formula(log p(target))`` per row, or its sum.

    Args of ``apply``: logits (N, C, …); index (N, 1, …), labels in range; kept (N, 1, …) or None;
    scale, a number or (N, 1, …); formula; whether to sum the rows; and the dtype to return.
    Rows are returned as (N, 1, …).
    """

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        index: Tensor,
        kept: Tensor | None,
        scale: Tensor | float,
        formula: Formula,
        summed: bool,
        dtype: torch.dtype,
    ) -> Tensor:
        small = logits.is_cpu and logits.numel() <= _SMALL_ELEMENTS
        parts = _ratios(logits, index) if small else None
        ctx.small = parts is not None
        if parts is not None:
            log_prob = torch.log1p(parts[1]).neg_()
        else:
            parts = top, total = _rivals(logits, index)
            rows = row_dtype(logits.device)
            gap = logits.gather(CLASS_AXIS, index).to(rows).sub_(top)
            log_prob = logsigmoid(gap.sub_(total.to(rows).log()))
        if kept is not None:
            log_prob.masked_fill_(~kept, 0)
        error = torch.expm1(log_prob).neg_()
        ctx.save_for_backward(logits, index, kept, log_prob, error, *parts)
        ctx.scale, ctx.formula, ctx.summed, ctx.dtype = scale, formula, summed, dtype
        values = formula.value(log_prob, error)
        factor = scale * formula.factor
        if not summed:
            return (values * factor).to(dtype)
        if isinstance(factor, Tensor):
            return (values * factor).sum().to(dtype)
        return values.sum().mul(factor).to(dtype)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        logits, index, kept, log_prob, error, *parts = ctx.saved_tensors
        (upstream,) = grad_outputs
        nothing = (None,) * 6
        if torch.is_grad_enabled():  # create_graph: the gradient must itself be differentiable
            values = ctx.scale * compose_log_prob_loss(logits, index, kept, ctx.formula)
            value = (values.sum() if ctx.summed else values).to(ctx.dtype)
            (grad,) = torch.autograd.grad(value, logits, upstream, create_graph=True)
            return grad, *nothing
        prob = torch.exp(log_prob)
        pull = ctx.formula.slope(log_prob, prob, error)
        pull = pull * (upstream * (ctx.scale * ctx.formula.factor))
        if ctx.small:
            grad = _spread_ratios(index, pull.mul_(prob), *parts).to(logits.dtype)
        else:
            grad = _spread_blocks(logits, index, pull.mul_(error), *parts)
        if kept is not None:
            grad.masked_fill_(~kept, 0)
        return grad, *nothing
