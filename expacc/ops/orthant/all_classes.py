"""P(argmax = j) for every class j at once, from one common grid: O(nodes · C).

With scores s_i = mu_i + noise, T(s) = Σ_i log F(s - mu_i) and h_j = f/F at s - mu_j,

    P_j = ∫ h_j(s) e^{T(s)} ds,     Σ_k G_k dP_k/dmu_j = ∫ h_j e^T (G_j H - A) ds,

with H = Σ_i h_i and A = Σ_i G_i h_i. Σ_j P_j is the integral of d e^T/ds, hence 1. The grid covers
all that the largest score can be; a class's P is right in absolute terms, to 2e-12 in float64.
"""

import math
from typing import Any

import torch
from torch import Tensor

from expacc.ops.orthant.node import in_front
from expacc.ops.orthant.noise import NOISES, Noise, constant_like, fill_panels

# (depth in nats, nodes): midpoint rule, whose error falls exponentially for the smooth noises.
_GRID = {"normal": (45.0, 160), "logistic": (42.0, 320), "gumbel": (42.0, 640)}
# Laplace has kinks at the means: panels between the largest of them, and a few more for the tails.
_MOST_KINKS, _PANEL_NODES, _TAILS = 48, 12, (42.0, 24.0, 14.0, 8.0, 4.0, 2.0)
_MANY_NODES = 240  # of the normal's grid: the best of more than a thousand varies little
_BLOCK_ELEMENTS = 1 << 20


def _tails(classes: int) -> tuple[float, ...]:
    """Where panels end besides at the means, as seen from the best of them.

    The largest of k equal scores is about log k above their mean, for some k up to ``classes``.
    """
    crowd = math.log(classes)
    steps = [2.0 * i for i in range(1, math.ceil(crowd / 2) + 1)]
    return (*(-t for t in _TAILS), *steps, *(t + crowd for t in _TAILS))


def _node_count(classes: int, name: str) -> int:
    if name == "normal" and classes > 1000:
        return _MANY_NODES
    if name in _GRID:
        return _GRID[name][1]
    return (min(classes, _MOST_KINKS) + len(_tails(classes)) - 1) * _PANEL_NODES


def _grid(means: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Scores, (rows, nodes), at which the largest may be found, and their log-weights."""
    best = means.amax(-1, keepdim=True)
    classes = means.shape[-1]
    if name in _GRID:
        low, high = NOISES[name].reach(_GRID[name][0])
        count = _node_count(classes, name)
        high += 0.0 if name == "normal" else math.log(classes)  # the largest of many is higher up
        step = (high - low) / count
        places = torch.arange(count, dtype=best.dtype, device=best.device)
        scores = best + (low + step * (places + 0.5))
        return scores, torch.full_like(scores, math.log(step))
    kinks = means.topk(min(classes, _MOST_KINKS), -1).values
    ends = torch.cat([kinks, best + constant_like(_tails(classes), best)], -1)
    ends = torch.maximum(ends, best - _TAILS[0])  # absent classes, and those far below
    return fill_panels(ends.sort(-1).values, _PANEL_NODES)


def _hazards(means: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """h e^T ds and h, both (rows, C, nodes)."""
    noise: Noise = NOISES[name]
    scores, log_weights = _grid(means, name)
    x = scores.unsqueeze(-2) - means.unsqueeze(-1)
    log_cdf = noise.log_cdf(x)
    total = log_cdf.sum(-2, keepdim=True)
    log_hazard = noise.log_density(x) - log_cdf
    weighted = (log_hazard + (total + log_weights.unsqueeze(-2)).clamp(min=-700)).exp()
    absent = x >= 1e17  # 0, not 0 · inf; and a NaN stays
    return torch.where(absent, 0, weighted), torch.where(absent, -torch.inf, log_hazard).exp()


def _chunks(means: Tensor, name: str) -> int:
    classes = means.shape[-1]
    return max(1, _BLOCK_ELEMENTS // max(1, classes * _node_count(classes, name)))


def _flat(tensor: Tensor) -> Tensor:
    return tensor.detach().reshape(-1, tensor.shape[-1]).to(torch.float64)


@torch.library.custom_op("expacc::win", mutates_args=())
def win(means: Tensor, noise: str) -> Tensor:
    """P(argmax = j), (…, C), of unit noise around ``means`` (…, C); -inf is an absent class."""
    flat = _flat(means)
    parts = []
    for part in torch.split(flat, _chunks(flat, noise)):
        parts.append(_hazards(part, noise)[0].sum(-1))
    result = torch.cat(parts).clamp_(0, 1) if parts else flat
    return result.reshape(means.shape).to(means.dtype)


@win.register_fake
def _(means: Tensor, noise: str) -> Tensor:
    return means.new_empty(means.shape)


@torch.library.custom_op("expacc::win_backward", mutates_args=())
def win_backward(means: Tensor, upstream: Tensor, noise: str) -> Tensor:
    """Σ_k upstream_k dP_k/dmeans_j."""
    flat, grads = _flat(means), _flat(upstream)
    step = _chunks(flat, noise)
    parts = []
    for part, g in zip(torch.split(flat, step), torch.split(grads, step), strict=True):
        weighted, hazard = _hazards(part, noise)
        g = g.unsqueeze(-1)
        pull = g * hazard.sum(-2, keepdim=True) - (g * hazard).sum(-2, keepdim=True)
        parts.append((weighted * pull).sum(-1))
    result = torch.cat(parts) if parts else flat
    return result.reshape(means.shape).to(means.dtype)


@win_backward.register_fake
def _(means: Tensor, upstream: Tensor, noise: str) -> Tensor:
    return means.new_empty(means.shape)


_TWICE = (
    "argmax_probabilities must not be differentiated twice; got a double backward. "
    "Use noise='gumbel', whose win probabilities are a softmax, if you need one."
)


class _WinGradient(torch.autograd.Function):
    """The gradient, which refuses to be differentiated again."""

    @staticmethod
    def forward(means: Tensor, upstream: Tensor, noise: str) -> Tensor:
        return win_backward(means, upstream, noise)  # type: ignore[no-any-return]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        raise RuntimeError(_TWICE)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise RuntimeError(_TWICE)

    @staticmethod
    def vmap(info: Any, in_dims: Any, means: Tensor, upstream: Tensor, noise: str) -> Any:
        moved = in_front(info, in_dims, means, upstream)
        return _WinGradient.apply(*moved, noise), 0  # type: ignore[no-untyped-call]


class _Win(torch.autograd.Function):
    """``win`` with its gradient, under torch.compile and torch.func too."""

    @staticmethod
    def forward(means: Tensor, noise: str) -> Tensor:
        return win(means, noise)  # type: ignore[no-any-return]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        means, ctx.noise = inputs
        ctx.save_for_backward(means)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        (means,) = ctx.saved_tensors
        return _WinGradient.apply(means, grad_outputs[0], ctx.noise), None  # type: ignore[no-untyped-call]

    @staticmethod
    def vmap(info: Any, in_dims: Any, means: Tensor, noise: str) -> Any:
        return win_chances(means.movedim(in_dims[0], 0), noise), 0


class _WinBothModes(_Win):
    """The same with forward-mode AD, which torch.compile refuses to see defined."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _Win.setup_context(ctx, inputs, output)
        ctx.save_for_forward(inputs[0])

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: Any) -> Any:
        # P is the gradient of the expected maximum: its derivatives are symmetric.
        return _WinGradient.apply(*ctx.saved_tensors, tangent, ctx.noise)  # type: ignore[no-untyped-call]


def win_chances(means: Tensor, noise: str) -> Tensor:
    """P(argmax = j), (…, C), of unit noise around ``means`` (…, C), differentiable once."""
    node = _Win if torch.compiler.is_compiling() else _WinBothModes
    result: Tensor = node.apply(means, noise)  # type: ignore[no-untyped-call]
    return result
