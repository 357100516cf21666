"""The bi-tempered logistic loss of labels: value and gradient in row blocks, without a graph.

With p_j = (1 + excess · (λ - z_j))^(-1/excess), excess = t2 - 1, Newton's method finds λ; then with
e_j = p_j^t2, w_j = p_j^(1 + t2 - t1) and sums over the rivals,

    dL/dz_k = w_k - e_k / Σ_j e_j · (Σ w - p_y^(t2 - t1) Σ p),    dL/dz_y = -Σ_k dL/dz_k,

in which nothing cancels at the label. A small batch is float64; in a large one λ is found in
float32 first, and the last digits are float64's.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from expacc.ops.dispatch import CLASS_AXIS, wants_composed
from expacc.ops.rivals import compute_dtype, rows_per_block, split_rows

_SMALL_ELEMENTS = 16_384
_MOST_STEPS = 30  # of Newton's method, which needs 5 to 10


class Tempered(NamedTuple):
    """The two temperatures, t2 > 1, and what else the loss needs.

    Attributes:
        t1: of the logarithm.
        t2: of the exponential.
        label_part: the loss of the label alone, from u = log p and 1 - p.
        compose: the values of rows from logits, by operations that torch differentiates.
    """

    t1: float
    t2: float
    label_part: Callable[[Tensor, Tensor, float], Tensor]
    compose: Callable[[Tensor], Tensor]


def tempered_loss(logits: Tensor, index: Tensor, loss: Tempered) -> Tensor | None:
    """The loss of every row, (N, 1, …), on the CPU; None where one is not a number.

    Args:
        logits: (N, C, …).
        index: (N, 1, …), labels in range.
        loss: the rest.
    """
    wants = logits.requires_grad and torch.is_grad_enabled()
    values, grad = _evaluate(logits.detach(), index, loss, wants)
    if not math.isfinite(values.sum().item()):
        return None
    return _node(logits, index, loss, values, grad)


def _evaluate(
    logits: Tensor, index: Tensor, loss: Tempered, wants_gradient: bool
) -> tuple[Tensor, Tensor | None]:
    step = rows_per_block(logits)
    size = (4, min(len(logits), step), *logits.shape[1:])
    wide = torch.empty(size, dtype=torch.float64)
    narrow = None if logits.numel() <= _SMALL_ELEMENTS else torch.empty(size, dtype=torch.float32)
    grad = torch.empty(logits.shape, dtype=compute_dtype(logits.dtype)) if wants_gradient else None
    values = torch.empty(index.shape, dtype=torch.float64)
    kept = logits if grad is None else grad  # only to be split
    for block, labels, value, out in split_rows(step, logits, index, values, kept):
        normalizer = torch.zeros_like(value)
        if narrow is not None:
            _solve(block, normalizer, loss.t2, narrow[:, : len(block)])
        buffers = wide[:, : len(block)]
        escort = _solve(block, normalizer, loss.t2, buffers)
        value.copy_(_of_block(labels, escort, loss, buffers))
        if wants_gradient:
            out.copy_(buffers[3])
    return values, grad


def _solve(logits: Tensor, normalizer: Tensor, t2: float, buffers: Tensor) -> Tensor:
    """Improve the normaliser to the last digit of the buffers' dtype.

    Returns Σ e_j, and leaves e_j, log2 p_j and p_j in the second to the fourth buffer.
    """
    fallen, base, logs, probs = buffers.unbind()
    excess, work = t2 - 1, buffers.dtype
    fallen.copy_(logits)
    fallen.sub_(fallen.amax(CLASS_AXIS, keepdim=True)).mul_(-excess)
    enough = 16 * torch.finfo(work).eps
    for _ in range(_MOST_STEPS):
        torch.add(fallen, (normalizer * excess).to(work), out=base)
        torch.log1p(base, out=logs).mul_(-1 / (excess * math.log(2)))
        torch.exp2(logs, out=probs)
        torch.div(probs, base.add_(1), out=base)
        whole, escort = (one.sum(CLASS_AXIS, keepdim=True).double() for one in (probs, base))
        # Of the (-excess)th power of the sum: it is concave in the normaliser, and a straight line
        # for equal scores: from 0 the steps never go too far.
        step = torch.expm1(whole.log() * excess) * (whole / (escort * excess))
        if not (step.abs() > enough * normalizer).any():
            break
        normalizer += step
    return escort


def _of_block(labels: Tensor, escort: Tensor, loss: Tempered, buffers: Tensor) -> Tensor:
    """The values of a block that is solved; its gradient goes to the last buffer."""
    _, base, logs, out = buffers.unbind()
    t1, t2 = loss.t1, loss.t2

    def total(powers: Tensor) -> Tensor:
        return powers.sum(CLASS_AXIS, keepdim=True)

    def powers_of(exponent: float) -> Tensor:
        return torch.mul(logs, exponent, out=out).exp2_()

    own = logs.gather(CLASS_AXIS, labels).mul_(math.log(2))
    error = total(out.scatter_(CLASS_AXIS, labels, 0))
    logs.scatter_(CLASS_AXIS, labels, -torch.inf)
    others = total(powers_of(2 - t1)) / (2 - t1)
    rest = total(powers_of(1 + t2 - t1))
    slope = torch.exp(own * (t2 - t1)).mul_(error)
    out.addcmul_(base, (slope - rest) / escort)
    mine = base.gather(CLASS_AXIS, labels) / escort
    # -(1 - s) p^(t2 - t1) (1 - p) - s Σ w, with s the label's part of Σ e
    parted = total(base.scatter_(CLASS_AXIS, labels, 0)) / escort
    pull = slope.mul_(parted).add_(mine.mul_(rest)).neg_()
    out.scatter_(CLASS_AXIS, labels, pull)
    return loss.label_part(own, error, t1) + others


class _TemperedNode(torch.autograd.Function):
    """What was evaluated, as a node of autograd's graph."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, index: Tensor, loss: Tempered, values: Tensor, grad: Tensor | None
    ) -> Tensor:
        ctx.loss, ctx.grad = loss, grad
        ctx.save_for_backward(logits, index)
        return values

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        logits, index = ctx.saved_tensors
        upstream = grad_outputs[0]
        if wants_composed(upstream):
            again = torch.is_grad_enabled()
            with torch.enable_grad():
                value = ctx.loss.compose(logits)
                (grad,) = torch.autograd.grad(value, logits, upstream, create_graph=again)
            return grad, None, None, None, None
        kept, ctx.grad = ctx.grad, None
        if kept is None:  # a second backward makes it again
            kept = cast(Tensor, _evaluate(logits, index, ctx.loss, wants_gradient=True)[1])
        return kept.mul_(upstream.to(kept.dtype)).to(logits.dtype), None, None, None, None


# The inherited apply: Function.apply would first look for transforms, and there are none.
_node: Callable[..., Tensor] = super(torch.autograd.Function, _TemperedNode).apply
