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


def fill_panels(ends: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Nodes and log-weights, (rows, nodes), of Gauss–Legendre on every panel."""
    places, weights = (ends.new_tensor(part) for part in _RULES[count])
    width = ends.diff(dim=-1).unsqueeze(-1)
    nodes = ends[..., :-1].unsqueeze(-1) + width * places
    log_weights = width.clamp(min=1e-300).log() + weights.log()
    return nodes.flatten(-2), log_weights.flatten(-2)
