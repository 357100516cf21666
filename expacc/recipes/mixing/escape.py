"""Escaping efficiency: traces of curvature times noise at a network's weights (Eq. 15 to 19).

Around a minimum SGD's noise has the covariance Σ/batch, Σ that of the rows' gradients; the loss
that it climbs is about half of the time times Tr(HΣ). With z = Σ_i ε_i (g_i - g)/√n, random signs ε
and the rows' gradients g_i, the mean of zᵀHz is Tr(HΣ): Hutchinson's estimate, whose probes are
drawn with the covariance itself, so that no row's gradient has to be kept.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor, nn

Rows = Sequence[tuple[Tensor, Tensor]]  # batches of inputs and labels
OfRows = Callable[[Tensor], Tensor]  # of u = log p of the labels, a value for each row


def mixture(ce_weight: float, error_weight: float) -> OfRows:
    """The mixture of cross entropy and expected error."""
    return lambda u: error_weight * (1 - u.exp()) - ce_weight * u


def chance(u: Tensor) -> Tensor:
    """The probability of the label."""
    return u.exp()


def _label_log_prob(network: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    logits: Tensor = network(inputs).float()
    return logits.log_softmax(1).gather(1, labels[:, None]).squeeze(1)


def _weights(network: nn.Module) -> list[Tensor]:
    return [weight for weight in network.parameters() if weight.requires_grad]


def _added(one: Sequence[Tensor], other: Sequence[Tensor]) -> list[Tensor]:
    return [a + b for a, b in zip(one, other, strict=True)]


def weighted_gradient(
    network: nn.Module, rows: Rows, of: OfRows, factors: Sequence[Tensor]
) -> list[Tensor]:
    """The gradient of Σ factor · value over all rows."""
    weights = _weights(network)
    total = [torch.zeros_like(weight) for weight in weights]
    for (inputs, labels), factor in zip(rows, factors, strict=True):
        value = (of(_label_log_prob(network, inputs, labels)) * factor).sum()
        total = _added(total, torch.autograd.grad(value, weights))
    return total


def curvature(network: nn.Module, rows: Rows, of: OfRows, along: Sequence[Tensor]) -> float:
    """zᵀHz, with the Hessian H of the mean value over the rows."""
    weights, count = _weights(network), sum(len(labels) for _, labels in rows)
    total = 0.0
    for inputs, labels in rows:
        value = of(_label_log_prob(network, inputs, labels)).sum() / count
        slope = torch.autograd.grad(value, weights, create_graph=True)
        product = sum((s * z).sum() for s, z in zip(slope, along, strict=True))
        again = torch.autograd.grad(product, weights)  # type: ignore[arg-type]
        total += sum(float((h * z).sum()) for h, z in zip(again, along, strict=True))
    return total


def noise_trace(
    network: nn.Module,
    rows: Rows,
    of: OfRows,
    *,
    probes: int,
    draw: Generator,
    of_noise: OfRows | None = None,
    centred: bool = True,
) -> list[float]:
    """Estimates of Tr(HΣ), one a probe.

    Args:
        network: in evaluation mode, in which rows do not depend on each other.
        rows: that stand for all.
        of: the value whose Hessian H is taken.
        probes: how many.
        draw: of the signs.
        of_noise: the value whose gradients make Σ; None for the same.
        centred: whether Σ is their covariance; else their second moments.

    Example:
        >>> network = nn.Linear(2, 3)
        >>> rows = [(torch.randn(8, 2), torch.arange(8) % 3)]
        >>> draw = torch.Generator().manual_seed(0)
        >>> found = noise_trace(network, rows, mixture(1, 0), probes=4, draw=draw)
        >>> len(found), min(found) >= 0  # cross entropy of a linear model is convex
        (4, True)
    """
    own = of_noise or of
    count = sum(len(labels) for _, labels in rows)
    mean = None
    if centred:
        mean = weighted_gradient(
            network, rows, own, [labels.new_ones(len(labels)) for _, labels in rows]
        )
    found = []
    for _ in range(probes):
        signs = [
            torch.randint(2, (len(labels),), generator=draw, device=labels.device) * 2.0 - 1
            for _, labels in rows
        ]
        probe = weighted_gradient(network, rows, own, signs)
        if mean is not None:
            drawn = sum(float(sign.sum()) for sign in signs) / count
            probe = [one - drawn * g for one, g in zip(probe, mean, strict=True)]
        found.append(curvature(network, rows, of, probe) / count)
    return found


def square_trace(network: nn.Module, rows: Rows, *, probes: int, draw: Generator) -> list[float]:
    """Estimates of Tr(F Fᵀ), F the second moments of the gradients of p: |F z|², z of signs."""
    weights, count = _weights(network), sum(len(labels) for _, labels in rows)
    found = []
    for _ in range(probes):
        z = [
            torch.randint(2, weight.shape, generator=draw, device=weight.device) * 2.0 - 1
            for weight in weights
        ]
        along = []
        for inputs, labels in rows:  # each row's slope along z, by the transpose of the transpose
            p = _label_log_prob(network, inputs, labels).exp()
            dummy = torch.ones_like(p, requires_grad=True)
            back = torch.autograd.grad(p, weights, dummy, create_graph=True)
            product = sum((b * one).sum() for b, one in zip(back, z, strict=True))
            along.append(torch.autograd.grad(product, dummy)[0] / count)  # type: ignore[arg-type]
        moved = weighted_gradient(network, rows, chance, along)
        found.append(sum(float(one.square().sum()) for one in moved))
    return found
