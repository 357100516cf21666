"""The kernels as operations of torch.library: what torch.compile sees.

``expacc::row_log_prob`` is log p(target) of every row; the loss over it is a few operations on N
numbers, which the compiler fuses. The CUDA kernel of ``expacc::orthant`` is EXACT's integral.
"""

from typing import Any

import torch
from torch import Tensor

from expacc.ops.kernels import BY_DEFAULT, has_triton
from expacc.ops.orthant import integrate_orthant
from expacc.ops.orthant_node import orthant

__all__ = ["row_log_prob", "takes_operation"]

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_IGNORED = -1
_MOST_RIVALS = 8192  # of a row that the integral holds on chip


def takes_operation(logits: Tensor) -> bool:
    """Are these logits (N, C) for ``row_log_prob``, inside a graph that is being compiled?"""
    return (
        BY_DEFAULT
        and logits.is_cuda
        and logits.ndim == 2
        and logits.dtype in _DTYPES
        and torch.compiler.is_compiling()
        and has_triton()
    )


@torch.library.custom_op("expacc::row_log_prob", mutates_args=())
def row_log_prob(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """log p(target) of logits (N, C), float64, 0 where the target is -1; and backward's scratch."""
    from expacc.ops.kernels_softmax import ROW_STATS, rows_forward

    if logits.shape[0] == 0:
        empty = torch.empty(0, dtype=torch.float64, device=logits.device)
        return empty, torch.empty(1, dtype=torch.float64, device=logits.device)
    values, scratch = rows_forward(
        logits, target, None, _IGNORED, 1.0, 0.0, "none", torch.float64, True
    )
    return values.neg_(), scratch[: ROW_STATS * logits.shape[0] + 1]


@row_log_prob.register_fake
def _(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    values = logits.new_empty(logits.shape[0], dtype=torch.float64)
    return values, logits.new_empty(3 * logits.shape[0] + 1, dtype=torch.float64)


@torch.library.custom_op("expacc::row_log_prob_backward", mutates_args=())
def row_log_prob_backward(
    logits: Tensor, target: Tensor, upstream: Tensor, scratch: Tensor
) -> Tensor:
    """The gradient of ``row_log_prob``."""
    from expacc.ops.kernels_softmax import rows_backward

    if logits.shape[0] == 0:
        return torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    return rows_backward(logits, target, None, -upstream, scratch, _IGNORED, False)


@row_log_prob_backward.register_fake
def _(logits: Tensor, target: Tensor, upstream: Tensor, scratch: Tensor) -> Tensor:
    return logits.new_empty(logits.shape)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor]) -> None:
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*inputs, output[1])


def _differentiate(ctx: Any, upstream: Tensor, _: Any) -> tuple[Tensor, None]:
    logits, target, scratch = ctx.saved_tensors
    return row_log_prob_backward(logits, target, upstream, scratch), None


row_log_prob.register_autograd(_differentiate, setup_context=_save)


@orthant.register_kernel("cuda")
def _(margins: Tensor, nodes: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rivals = margins.shape[-1]
    ours = margins.dtype == torch.float32 and nodes == 0 and 0 < rivals <= _MOST_RIVALS
    if not (BY_DEFAULT and ours and margins.numel() > 0 and has_triton()):
        return integrate_orthant(margins, nodes)
    from expacc.ops.kernels_batch import orthant_forward

    lead = margins.shape[:-1]
    small, ahead, gradient = orthant_forward(margins.reshape(-1, rivals))
    other = torch.log1p(-small.exp())
    log_p, log_q = torch.where(ahead, other, small), torch.where(ahead, small, other)
    return (
        log_p.reshape(lead),
        log_q.reshape(lead),
        small.reshape(lead),
        gradient.reshape(margins.shape),
    )
