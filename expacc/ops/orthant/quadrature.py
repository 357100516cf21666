"""Gauss–Legendre rules on panels."""

import torch
from torch import Tensor


def _legendre(count: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Nodes and weights of Gauss–Legendre on [0, 1], by the eigenvalues of the Jacobi matrix."""
    k = torch.arange(1, count, dtype=torch.float64)
    off = k / torch.sqrt(4 * k * k - 1)
    values, vectors = torch.linalg.eigh(torch.diag(off, 1) + torch.diag(off, -1))
    return tuple(((values + 1) / 2).tolist()), tuple(vectors[0].square().tolist())


# The counts in use, made once: torch.compile does not look into a cache.
_RULES = {count: _legendre(count) for count in (12, 14, 32)}


_ON_DEVICE: dict[tuple[tuple[float, ...], torch.dtype, torch.device], Tensor] = {}


def constant_like(values: tuple[float, ...], like: Tensor) -> Tensor:
    """``values`` as a tensor on ``like``'s device, copied there once: a copy costs a host sync."""
    if torch.compiler.is_compiling():  # a constant of the graph
        return like.new_tensor(values)
    key = (values, like.dtype, like.device)
    if key not in _ON_DEVICE:
        with torch.inference_mode(False):
            _ON_DEVICE[key] = torch.tensor(values, dtype=like.dtype, device=like.device)
    return _ON_DEVICE[key]


def fill_panels(ends: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Nodes and log-weights, (rows, nodes), of Gauss–Legendre on every panel."""
    places, weights = (constant_like(part, ends) for part in _RULES[count])
    width = ends.diff(dim=-1).unsqueeze(-1)
    nodes = ends[..., :-1].unsqueeze(-1) + width * places
    log_weights = width.log() + weights.log()  # -inf on an empty panel: no weight
    return nodes.flatten(-2), log_weights.flatten(-2)
