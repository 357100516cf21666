"""The kernels as operations of torch.library: what torch.compile sees.

``expacc::row_log_prob`` is log p(target) of every row; the loss over it is a few operations on N
numbers, which the compiler fuses. The CUDA kernel of ``expacc::orthant`` is EXACT's integral.
"""

from typing import Any

import torch
from torch import Tensor

from expacc.ops.dispatch import BY_DEFAULT, DTYPES, HAS_TRITON
from expacc.ops.orthant.integral import integrate_orthant
from expacc.ops.orthant.node import orthant

_IGNORED = -1


def takes_operation(logits: Tensor) -> bool:
    """Are these logits (N, C) for ``row_log_prob``, inside a graph that is being compiled?"""
    return (
        BY_DEFAULT["mixture"]
        and logits.is_cuda
        and logits.ndim == 2
        and logits.dtype in DTYPES
        and torch.compiler.is_compiling()
        and HAS_TRITON
    )


@torch.library.custom_op("expacc::row_log_prob", mutates_args=())
def row_log_prob(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """log p(target) of logits (N, C), float64, 0 where the target is -1; and backward's scratch."""
    from expacc.ops.triton.softmax import rows_plan

    if logits.shape[0] == 0:
        empty = torch.empty(0, dtype=torch.float64, device=logits.device)
        return empty, torch.empty(8, dtype=torch.float64, device=logits.device)
    plan = rows_plan(logits, target, None, _IGNORED, "none", torch.float64)
    values, scratch = plan.forward(logits, target, None, 1.0, 0.0)
    return values.neg_(), scratch


@row_log_prob.register_fake
def _(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    values = logits.new_empty(logits.shape[0], dtype=torch.float64)
    return values, logits.new_empty(3 * logits.shape[0] + 8, dtype=torch.float64)


@torch.library.custom_op("expacc::row_log_prob_backward", mutates_args=())
def row_log_prob_backward(
    logits: Tensor, target: Tensor, upstream: Tensor, scratch: Tensor
) -> Tensor:
    """The gradient of ``row_log_prob``."""
    from expacc.ops.triton.softmax import rows_plan

    if logits.shape[0] == 0:
        return torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    plan = rows_plan(logits, target, None, _IGNORED, "none", torch.float64)
    return plan.backward(logits, target, None, 1.0, 0.0, scratch, -upstream, spent=False)


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


def _merge(size: int, tensor: Tensor, axis: int | None) -> Tensor:
    """A batch of rows as one: its axis first and merged with that of the rows."""
    if axis is None:
        tensor, axis = tensor.expand(size, *tensor.shape), 0
    return tensor.movedim(axis, 0).flatten(0, 1)


@row_log_prob.register_vmap
def _(info: Any, in_dims: Any, logits: Tensor, target: Tensor) -> Any:
    merged = (
        _merge(info.batch_size, *pair) for pair in zip((logits, target), in_dims, strict=True)
    )
    values, scratch = row_log_prob(*merged)
    return (values.view(info.batch_size, -1), scratch), (0, None)  # one scratch for all


@row_log_prob_backward.register_vmap
def _(info: Any, in_dims: Any, *tensors: Tensor) -> Any:
    *rows, scratch = tensors
    merged = [_merge(info.batch_size, *pair) for pair in zip(rows, in_dims[:3], strict=True)]
    grad = row_log_prob_backward(*merged, scratch)
    return grad.view(info.batch_size, -1, grad.shape[1]), 0


@orthant.register_kernel("cuda")
def _(margins: Tensor, nodes: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rivals = margins.shape[-1]
    ours = margins.dtype == torch.float32 and nodes == 0 and rivals > 0
    if not (BY_DEFAULT["exact"] and ours and margins.numel() > 0 and HAS_TRITON):
        return integrate_orthant(margins, nodes)
    from expacc.ops.triton.exact_plan import orthant_forward

    lead = margins.shape[:-1]
    flat = margins.reshape(-1, rivals)
    small, ahead, gradient = orthant_forward(flat)
    # A rival infinitely far ahead, P = 0, and NaN, which the hardware's minimum forgets.
    lowest = flat.amin(-1)
    small.add_(torch.where(lowest > -torch.inf, 0, lowest))
    gradient.mul_(torch.where(lowest > -torch.inf, 1, lowest.exp()).unsqueeze(-1))
    other = torch.log1p(-small.exp())
    log_p, log_q = torch.where(ahead, other, small), torch.where(ahead, small, other)
    return (
        log_p.reshape(lead),
        log_q.reshape(lead),
        small.reshape(lead),
        gradient.reshape(margins.shape),
    )
