"""A classifier head and its loss together, in chunks of rows: the N×C logits never exist.

A chunk's logits are made by one matrix product, turned into their own gradient in place, and used
up by the products that give the gradients of features, weight and bias. Where the loss is reduced
to one number this happens in forward, so that no product is done twice; its gradients are scaled by
upstream in backward. A loss per row does not know its upstream before backward, and makes the
logits again there.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from expacc.ops.dispatch import wants_composed
from expacc.ops.triton.softmax import rows_plan


class HeadSettings(NamedTuple):
    """What is not differentiated: the loss, and how many rows make a chunk."""

    weights: tuple[float, float]  # of cross entropy and of the error
    scale: Tensor  # of every row, (N,), float64: class weight and divisor, as the contract has them
    ignore_index: int
    summed: bool
    dtype: torch.dtype
    chunk: int


class _Gradients(NamedTuple):
    features: Tensor | None
    weight: Tensor | None
    bias: Tensor | None


def _walk(
    inputs: tuple[Tensor, Tensor, Tensor | None, Tensor],
    settings: HeadSettings,
    values: Tensor | None,
    upstream: Tensor | None,
    needs: tuple[bool, bool, bool],
) -> _Gradients:
    """Go through the chunks; fill ``values`` if given, and make gradients if ``upstream`` is.

    ``upstream`` is one number per row.
    """
    features, weight, bias, target = inputs
    rows = features.shape[0]
    wanted = upstream is not None
    grad_features = torch.empty_like(features) if wanted and needs[0] else None
    grad_weight = torch.zeros_like(weight) if wanted and needs[1] else None
    grad_bias = None
    if wanted and needs[2] and bias is not None:
        grad_bias = torch.zeros(bias.shape, dtype=torch.float32, device=bias.device)
    for start in range(0, rows, settings.chunk):
        part = slice(start, min(rows, start + settings.chunk))
        some, labels = features[part], target[part]
        logits = torch.nn.functional.linear(some, weight, bias)
        plan = rows_plan(logits, labels, None, settings.ignore_index, "none", torch.float64)
        found, scratch = plan.forward(logits, labels, None, *settings.weights)
        if values is not None:
            values[part] = found
        if upstream is None:
            del logits  # before the next chunk's are made
            continue
        # In place: every element is read before it is written, by the same thread.
        some_upstream = upstream[part]
        grad = plan.backward(
            logits, labels, None, *settings.weights, scratch, some_upstream, grad=logits
        )
        if grad_features is not None:
            torch.mm(grad, weight, out=grad_features[part])
        if grad_weight is not None:
            grad_weight.addmm_(grad.t(), some)
        if grad_bias is not None:
            grad_bias.add_(grad.sum(0, dtype=torch.float32))
        del logits, grad
    return _Gradients(grad_features, grad_weight, grad_bias)


class _Head(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        settings: HeadSettings,
    ) -> Tensor:
        inputs = (features, weight, bias, target)
        ctx.save_for_backward(*inputs)
        ctx.settings = settings
        values = torch.empty(features.shape[0], dtype=torch.float64, device=features.device)
        ctx.gradients = None
        scale = settings.scale
        if not settings.summed:
            _walk(inputs, settings, values, None, (False, False, False))
            return (values * scale).to(settings.dtype)
        needs = ctx.needs_input_grad[:3]
        ctx.gradients = _walk(inputs, settings, values, scale if any(needs) else None, needs)
        return (values * scale).sum().to(settings.dtype)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "linear_mixed_expected_error must not be differentiated twice; got a double "
                "backward. Compute the logits and use mixed_expected_error."
            )
        inputs, settings, upstream = ctx.saved_tensors, ctx.settings, grad_outputs[0]
        needs = ctx.needs_input_grad[:3]
        if wants_composed(upstream):  # many upstreams as one
            raise RuntimeError(
                "linear_mixed_expected_error must be differentiated for one upstream at a time; "
                "got a batch of them. Compute the logits and use mixed_expected_error."
            )
        if not settings.summed:
            found = _walk(inputs, settings, None, upstream * settings.scale, needs)
        else:
            # Scaled in place and given away; a second backward makes them again.
            found, ctx.gradients = ctx.gradients, None
            if found is None:
                found = _walk(inputs, settings, None, settings.scale, needs)
            for grad in found:
                if grad is not None:
                    grad.mul_(upstream)
        bias = None if found.bias is None else found.bias.to(inputs[2].dtype)
        return found.features, found.weight, bias, None, None


_head_node: Callable[..., Tensor] = super(torch.autograd.Function, _Head).apply


def fused_head(
    features: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, settings: HeadSettings
) -> Tensor:
    """The mixture of ``features @ weight.T + bias``, (N, D), (C, D), (C,), for targets (N,)."""
    return _head_node(features, weight, bias, target, settings)
