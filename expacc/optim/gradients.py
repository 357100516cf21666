"""What is measured on gradients; nothing here reads a value back from a device."""

from collections.abc import Iterable

import torch
from torch import Tensor


def gradients_of(parameters: Iterable[Tensor]) -> list[Tensor]:
    """The gradients that are there, checked to be dense and real."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    for gradient in gradients:
        if gradient.layout != torch.strided:
            raise TypeError(
                f"gradients must be dense; got {gradient.layout} of shape "
                f"{tuple(gradient.shape)}. Use sparse=False in the layer that makes it."
            )
        if not gradient.is_floating_point():
            raise TypeError(f"gradients must be floating-point tensors; got {gradient.dtype}.")
    return gradients


def by_kind(tensors: Iterable[Tensor]) -> list[list[Tensor]]:
    """Split by device and dtype, which one fused call must share."""
    kinds: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault((tensor.device, tensor.dtype), []).append(tensor)
    return list(kinds.values())


def wide(tensor: Tensor) -> Tensor:
    """The tensor in float32 or better, itself if it is."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def total_norm(tensors: list[Tensor]) -> Tensor:
    """The L2 norm over all elements of all tensors, on the first one's device.

    Half-precision tensors are measured in float32: their norm may exceed what they can hold.
    """
    norms = []
    for kind in by_kind(tensors):
        dtype = torch.promote_types(kind[0].dtype, torch.float32)
        norms += [norm.to(tensors[0].device) for norm in torch._foreach_norm(kind, 2, dtype=dtype)]
    total: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return total
