"""log p(target) in plain torch: the CPU path, and the truth every kernel is held to.

The target is compared with its rivals, never with a sum that contains itself. With
``top = max_{j≠y} z_j`` and ``total = Σ_{j≠y} e^{z_j - top}``,

    lead = (z_y - top) - log total = log p/(1-p),    u = log p = logsigmoid(lead).

This keeps every digit of 1 - p when p is within 1e-30 of 1, where ``z_y - logsumexp(z)`` returns 0
and the gradient dies. What is one number per row (lead, u, the loss) is computed in float64, since
it costs next to nothing; what is N×C stays in float32.

Two forms of the same thing:

* ``compose_*``: differentiable torch operations, for torch.compile, torch.func transforms,
  forward-mode AD and double backward;
* ``FusedLogProbLoss``: one autograd node with the gradient written by hand, in row blocks that fit
  the cache. Saves nothing of the logits' size.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from expacc.ops.formula import Formula, apply_formula

CLASS_AXIS = 1
# A block's copy of the logits (512 KiB in float32) and its results stay in the second-level cache.
_BLOCK_ELEMENTS_CPU = 131_072
_BLOCK_ELEMENTS_DEVICE = 2**27


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of N×C arithmetic: float32, or float64 for float64 input."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def row_dtype(device: torch.device) -> torch.dtype:
    """The dtype of per-row arithmetic: float64 wherever the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


# ------------------------------------------------------------------------------------ composed


def compose_target_log_prob(logits: Tensor, target: Tensor) -> Tensor:
    """log p(target) of ``logits`` (N, C, …) for ``target`` (N, …), all labels in range."""
    logits = logits.to(compute_dtype(logits.dtype))
    index = target.unsqueeze(CLASS_AXIS)
    classes = torch.arange(logits.shape[CLASS_AXIS], device=logits.device)
    classes = classes.view(-1, *[1] * (logits.ndim - 2))
    rivals = torch.where(classes == index, -torch.inf, logits)
    lowest = torch.finfo(logits.dtype).min  # so that -inf minus the top is -inf, not NaN
    top = rivals.detach().amax(CLASS_AXIS, keepdim=True).clamp(min=lowest)
    total = (rivals - top).exp().sum(CLASS_AXIS)
    alone = total == 0  # no rival, or none that is not masked
    rows = row_dtype(logits.device)
    log_total = torch.where(alone, 1, total).to(rows).log()
    gap = (logits.gather(CLASS_AXIS, index).to(rows) - top).squeeze(CLASS_AXIS)
    lead = torch.where(alone, torch.inf, gap - log_total)
    # logaddexp, not logsigmoid: the same number, and it has a batching rule for vmap.
    return -torch.logaddexp(torch.zeros_like(lead), -lead)


def compose_log_prob_loss(
    logits: Tensor, target: Tensor, kept: Tensor | None, formula: Formula
) -> Tensor:
    """``formula`` of log p(target) per row; 0 with zero gradient where ``kept`` is False."""
    if kept is None:
        return apply_formula(compose_target_log_prob(logits, target), formula)
    logits = torch.where(kept.unsqueeze(CLASS_AXIS), logits, 0)
    values = apply_formula(compose_target_log_prob(logits, target), formula)
    return torch.where(kept, values, 0)


# --------------------------------------------------------------------------------------- fused


def _row_blocks(logits: Tensor) -> Iterator[slice]:
    """Slices of the leading axis that hold about a block of elements each."""
    rows = logits.shape[0]
    limit = _BLOCK_ELEMENTS_CPU if logits.device.type == "cpu" else _BLOCK_ELEMENTS_DEVICE
    step = max(1, limit * rows // max(1, logits.numel()))
    for start in range(0, rows, step):
        yield slice(start, start + step)


def _rivals(logits: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """(top, total) of the rivals of ``index`` (N, 1, …); both keep the class axis."""
    work = compute_dtype(logits.dtype)
    rows = row_dtype(logits.device)
    lowest = torch.finfo(work).min
    tops: list[Tensor] = []
    totals: list[Tensor] = []
    for block in _row_blocks(logits):
        rivals = logits[block].to(work, copy=True)
        rivals.scatter_(CLASS_AXIS, index[block], -torch.inf)
        top = rivals.amax(CLASS_AXIS, keepdim=True).clamp_(min=lowest)
        rivals.sub_(top).exp_()
        tops.append(top)
        totals.append(rivals.sum(CLASS_AXIS, keepdim=True, dtype=rows))
    if len(tops) == 1:
        return tops[0], totals[0]
    return torch.cat(tops), torch.cat(totals)


def _spread(logits: Tensor, index: Tensor, pull: Tensor, top: Tensor, total: Tensor) -> Tensor:
    """The gradient of the logits: ``pull`` on the target, its negative shared by the rivals.

    Softmax's derivative f'(u)(1[j=y] - p_j) with f'(u)(1 - p_y) = pull: every rival's share is
    exact to rounding, and a row sums to zero.
    """
    work = compute_dtype(logits.dtype)
    # A present rival makes total at least 1, so this changes only the empty sum, 0 to 1.
    share = (-pull / total.clamp(min=1)).to(work)
    grad = torch.empty_like(logits, memory_format=torch.contiguous_format)
    for block in _row_blocks(logits):
        part = grad[block] if grad.dtype == work else torch.empty_like(grad[block], dtype=work)
        torch.sub(logits[block], top[block], out=part).exp_().mul_(share[block])
        if grad.dtype != work:
            grad[block] = part
    return grad.scatter_(CLASS_AXIS, index, pull.to(grad.dtype))


class FusedLogProbLoss(torch.autograd.Function):
    """``scale · formula(log p(target))`` per row, or its sum, as one autograd node.

    Args of ``apply``: logits (N, C, …), target (N, …) with labels in range, kept (N, …) or None,
    scale (a number or (N, …)), formula, whether to sum the rows, and the dtype to return.
    """

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        target: Tensor,
        kept: Tensor | None,
        scale: Tensor | float,
        formula: Formula,
        summed: bool,
        dtype: torch.dtype,
    ) -> Tensor:
        index = target.unsqueeze(CLASS_AXIS)
        top, total = _rivals(logits, index)
        gap = logits.gather(CLASS_AXIS, index).to(total.dtype).sub_(top)
        log_prob = logsigmoid(gap.sub_(total.log())).squeeze(CLASS_AXIS)
        if kept is not None:
            log_prob.masked_fill_(~kept, 0)
        ctx.save_for_backward(logits, target, kept, log_prob, top, total)
        ctx.scale, ctx.formula, ctx.summed, ctx.dtype = scale, formula, summed, dtype
        values = formula.value(log_prob)
        if not summed:
            return (values * scale).to(dtype)
        if isinstance(scale, Tensor):
            return (values * scale).sum().to(dtype)
        return values.sum().mul_(scale).to(dtype)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, kept, log_prob, top, total = ctx.saved_tensors
        (upstream,) = grad_outputs
        nothing = (None,) * 6
        if torch.is_grad_enabled():  # create_graph: the gradient must itself be differentiable
            values = ctx.scale * compose_log_prob_loss(logits, target, kept, ctx.formula)
            value = (values.sum() if ctx.summed else values).to(ctx.dtype)
            (grad,) = torch.autograd.grad(value, logits, upstream, create_graph=True)
            return grad, *nothing
        # pull = dL/du · (1 - p); 1 - p = -expm1(u) keeps its digits as p approaches 1.
        pull = ctx.formula.slope(log_prob).mul_(torch.expm1(log_prob)).mul_(upstream)
        pull = pull.mul_(ctx.scale).neg_().unsqueeze(CLASS_AXIS)
        grad = _spread(logits, target.unsqueeze(CLASS_AXIS), pull, top, total)
        if kept is not None:
            grad.masked_fill_(~kept.unsqueeze(CLASS_AXIS), 0)
        return grad, *nothing
