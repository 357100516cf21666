"""P(the true class is among the k best) for any noise, with a noise level of its own per class.

Given the true class's noise z, rival i stays below it with probability F(ratio_i z + offset_i),
offset_i = (mu_y - mu_i)/sigma_i and ratio_i = sigma_y/sigma_i. So

    P = ∫ f(z) · P(at most k-1 rivals above | z) dz,

and given z the rivals are independent: a product of F for k = 1, a Poisson-binomial sum for k > 1.

The general road: nodes are placed without a gradient, then everything is ordinary differentiable
torch, to any order. ``integral.py`` is the fast road for equal normal noise and k = 1.

Nodes: Gauss–Legendre on panels that meet at the mode of the k = 1 integrand over the R-k+1 easiest
rivals, which has the shape of the integrand up to a factor of R over k-1. Panels meet again where a
sharp left flank has settled, and at the kinks of Laplace noise.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from expacc.ops.orthant.node import in_front
from expacc.ops.orthant.noise import NOISES, Noise, fill_panels

# Nodes per panel, and how deep the integral goes, in nats below its mode.
_PANEL_NODES = {torch.float64: 32, torch.float32: 14}
_DEPTH = {torch.float64: 40.0, torch.float32: 20.0}
_MOST_KINKS = 16
# Halvings: the mode must be found to a fraction of its width, the ends of the interval to 1 %.
_MODE_STEPS, _END_STEPS = 44, 13
_BLOCK_ELEMENTS = 1 << 21
# Below this 1-P is integrated by itself instead of taken as 1 minus P.
_SURE = -1e-4


class Chance(NamedTuple):
    """log P, and 1-P with its own digits where P is close to 1; one number per row, float64."""

    log_prob: Tensor
    error: Tensor


def _bisect(low: Tensor, high: Tensor, above: Any, steps: int) -> Tensor:
    """The point where ``above(x)`` turns from True to False."""
    for _ in range(steps):
        middle = (low + high) / 2
        go_on = above(middle)
        low, high = torch.where(go_on, middle, low), torch.where(go_on, high, middle)
    return (low + high) / 2


def _log_win_density(z: Tensor, offset: Tensor, ratio: Tensor, noise: Noise) -> Tensor:
    """log f(z) + Σ log F, for z (rows,) and rivals (rows, R)."""
    return noise.log_density(z) + noise.log_cdf(ratio * z.unsqueeze(-1) + offset).sum(-1)


def _slope(z: Tensor, offset: Tensor, ratio: Tensor, noise: Noise) -> Tensor:
    """The derivative of that: decreasing in z."""
    x = ratio * z.unsqueeze(-1) + offset
    hazard = (noise.log_density(x) - noise.log_cdf(x)).exp()
    return noise.slope(z) + torch.where(x < 1e17, ratio * hazard, 0).sum(-1)


def _kinks(offset: Tensor, ratio: Tensor) -> Tensor:
    """Where Laplace noise has kinks: at its centre, and where a rival's CDF has its own."""
    own = torch.zeros_like(offset[..., :1])
    return torch.cat([own, torch.where(offset < 1e17, -offset / ratio, 0)], -1)


def _panels(
    offset: Tensor, ratio: Tensor, noise: Noise, depth: float, kinks: Tensor | None
) -> Tensor:
    """Where panels meet, sorted, (rows, panels + 1)."""
    rivals = offset.shape[-1]
    start = torch.zeros_like(offset[..., 0])
    steepest = ratio.amax(-1) if rivals else start + 1
    settle = 8 + math.log(max(1, rivals)) + steepest.clamp(min=1).log()
    needed = torch.where(offset < 1e17, (settle.unsqueeze(-1) - offset) / ratio, 0)
    high = needed.amax(-1).clamp(min=0) + 1 if rivals else start + 1
    # At -1 the slope is positive, at ``high`` negative, whatever the noise.
    mode = _bisect(start - 1, high, lambda z: _slope(z, offset, ratio, noise) > 0, _MODE_STEPS)
    peak = _log_win_density(mode, offset, ratio, noise)

    def distance(side: float, drop: float) -> Tensor:
        """How far from the mode the density has dropped so many nats; by bisection of its log."""

        def not_yet(t: Tensor) -> Tensor:
            return _log_win_density(mode + side * t.exp(), offset, ratio, noise) > peak - drop

        return _bisect(start - 30, start + 17, not_yet, _END_STEPS).exp()

    low, high = mode - distance(-1, depth), mode + distance(1, depth)
    settled = torch.minimum(mode + 12 * distance(-1, 0.5), high)
    points = [low, mode, settled, high]
    if kinks is not None:
        nearest = (kinks - mode.unsqueeze(-1)).abs().argsort(-1)[..., :_MOST_KINKS]
        points += list(kinks.gather(-1, nearest).unbind(-1))
    ends = torch.stack(points, -1)
    ends = torch.maximum(torch.minimum(ends, high.unsqueeze(-1)), low.unsqueeze(-1))
    return ends.sort(-1).values


@torch.library.custom_op("expacc::contest_nodes", mutates_args=())
def contest_nodes(
    offset: Tensor, ratio: Tensor, noise: str, topk: int, single: bool
) -> tuple[Tensor, Tensor]:
    """Nodes and log-weights for P, (…, nodes), of rivals (…, R); float64 in, float64 out.

    An operation of its own, so that torch.compile and vmap see one node and no gradient enters.
    """
    dtype = torch.float32 if single else torch.float64
    lead = offset.shape[:-1]
    offset, ratio = (t.detach().reshape(math.prod(lead), t.shape[-1]) for t in (offset, ratio))
    depth = _DEPTH[dtype]
    kinks = None if NOISES[noise].smooth else _kinks(offset, ratio)
    if topk > 1:
        depth += math.log(math.comb(offset.shape[-1], topk - 1))
        easiest = offset.argsort(-1, descending=True)[..., : offset.shape[-1] - topk + 1]
        offset, ratio = offset.gather(-1, easiest), ratio.gather(-1, easiest)
    ends = _panels(offset, ratio, NOISES[noise], depth, kinks)
    nodes, log_weights = fill_panels(ends, _PANEL_NODES[dtype])
    shape = (*lead, nodes.shape[-1])
    return nodes.reshape(shape), log_weights.reshape(shape)


def _node_count(rivals: int, noise: str, topk: int, single: bool) -> int:
    panels = 3 if NOISES[noise].smooth else 3 + min(_MOST_KINKS, rivals + 1)
    return panels * _PANEL_NODES[torch.float32 if single else torch.float64]


@contest_nodes.register_fake
def _(offset: Tensor, ratio: Tensor, noise: str, topk: int, single: bool) -> tuple[Tensor, Tensor]:
    count = _node_count(offset.shape[-1], noise, topk, single)
    nodes = offset.new_empty(*offset.shape[:-1], count)
    return nodes, torch.empty_like(nodes)


@contest_nodes.register_vmap
def _(
    info: Any, in_dims: Any, offset: Tensor, ratio: Tensor, noise: str, topk: int, single: bool
) -> Any:
    return contest_nodes(*in_front(info, in_dims, offset, ratio), noise, topk, single), (0, 0)


# ------------------------------------------------------------------------------ the integrand


def _merge(a: Tensor, b: Tensor) -> Tensor:
    """Counts 0 … k-1 and 'k or more' of two groups of rivals together; the last axis is the count.

    Every term is a product of probabilities: nothing cancels.
    """
    k = a.shape[-1] - 1
    below_a, over_a = a[..., :k], a[..., k]
    below_b, over_b = b[..., :k], b[..., k]
    counts = [
        sum(
            (below_a[..., i] * below_b[..., j - i] for i in range(1, j + 1)),
            below_a[..., 0] * below_b[..., j],
        )
        for j in range(k)
    ]
    over = over_a + below_a.sum(-1) * over_b
    for i in range(1, k):
        over = over + below_a[..., i] * below_b[..., k - i :].sum(-1)
    return torch.stack([*counts, over], -1)


def _log_counts(x: Tensor, noise: Noise, topk: int) -> tuple[Tensor, Tensor]:
    """log P(at most k-1 rivals above) and log P(k or more above), of x = ratio z + offset.

    A tree of ``_merge``; each level is rescaled by its largest entry, so that a product over a
    thousand rivals that are far ahead does not underflow.
    """
    above, below = noise.log_survival(x), noise.log_cdf(x)
    scale = torch.maximum(above, below)
    logs = [below, above, *[torch.full_like(x, -torch.inf)] * (topk - 1)]
    table = torch.stack([(entry - scale).exp() for entry in logs], -1)
    log_scale = scale
    while table.shape[-2] > 1:
        if table.shape[-2] % 2:  # an empty group: no rival above, for sure
            first, rest = table[..., :1, :1], table[..., :1, 1:]
            empty = torch.cat([torch.ones_like(first), torch.zeros_like(rest)], -1)
            table = torch.cat([table, empty], -2)
            log_scale = torch.cat([log_scale, torch.zeros_like(log_scale[..., :1])], -1)
        table = _merge(table[..., ::2, :], table[..., 1::2, :])
        log_scale = log_scale[..., ::2] + log_scale[..., 1::2]
        largest = table.detach().amax(-1, keepdim=True)
        table = table / largest
        log_scale = log_scale + largest.squeeze(-1).log()
    table, log_scale = table.squeeze(-2), log_scale.squeeze(-1)
    tiny = torch.finfo(table.dtype).tiny
    few, many = table[..., :topk].sum(-1), table[..., topk]
    return few.clamp(min=tiny).log() + log_scale, many.clamp(min=tiny).log() + log_scale


def _log_chances(
    z: Tensor, offset: Tensor, ratio: Tensor, noise: Noise, topk: int
) -> tuple[Tensor, Tensor]:
    """log P(win | z) and log P(no win | z), (…, nodes), for rivals (…, R)."""
    x = ratio.unsqueeze(-2) * z.unsqueeze(-1) + offset.unsqueeze(-2)
    if topk > 1:
        return _log_counts(x, noise, topk)
    log_win = noise.log_cdf(x).sum(-1)
    return log_win, torch.log(-torch.expm1(log_win.clamp(max=-1e-300)))


def _whole_density(offset: Tensor, noise: Noise, single: bool) -> tuple[Tensor, Tensor]:
    """Nodes over all of the noise, for 1-P of a row that is nearly sure to win."""
    dtype = torch.float32 if single else torch.float64
    low, high = noise.reach(_DEPTH[dtype])
    panels = max(4, round((high - low) / 5)) if noise.smooth else 24
    ends = torch.linspace(low, high, panels + 1, dtype=offset.dtype, device=offset.device)
    return fill_panels(ends, _PANEL_NODES[dtype])


def _evaluate(
    offset: Tensor,
    ratio: Tensor,
    nodes: Tensor,
    log_weights: Tensor,
    name: str,
    topk: int,
    single: bool,
) -> Chance:
    noise = NOISES[name]
    log_win, _ = _log_chances(nodes, offset, ratio, noise, topk)
    log_prob = (noise.log_density(nodes) + log_weights + log_win).logsumexp(-1).clamp(max=0)
    nodes, log_weights = _whole_density(offset, noise, single)
    _, log_loss = _log_chances(nodes, offset, ratio, noise, topk)
    small = (noise.log_density(nodes) + log_weights + log_loss).exp().sum(-1)
    sure = log_prob > _SURE
    return Chance(log_prob, torch.where(sure, small, -torch.expm1(log_prob)))


class _Chunked(torch.autograd.Function):
    """``_evaluate`` in chunks of rows, gradient with the value: O(rows · R) memory."""

    @staticmethod
    def forward(
        ctx: Any,
        offset: Tensor,
        ratio: Tensor,
        nodes: Tensor,
        log_weights: Tensor,
        name: str,
        topk: int,
        single: bool,
        rows: int,
    ) -> tuple[Tensor, Tensor]:
        values, grads = [], []
        tensors = (offset, ratio, nodes, log_weights)
        for parts in zip(*(torch.split(tensor, rows) for tensor in tensors), strict=True):
            leaves = [part.detach().requires_grad_() for part in parts[:2]]
            with torch.enable_grad():
                chance = _evaluate(leaves[0], leaves[1], parts[2], parts[3], name, topk, single)
                first = torch.autograd.grad(chance.log_prob.sum(), leaves, retain_graph=True)
                second = torch.autograd.grad(chance.error.sum(), leaves)
            values.append([entry.detach() for entry in chance])
            grads.append([*first, *second])
        ctx.save_for_backward(*(torch.cat(part) for part in zip(*grads, strict=True)))
        log_prob, error = (torch.cat(part) for part in zip(*values, strict=True))
        return log_prob, error

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        log_offset, log_ratio, error_offset, error_ratio = ctx.saved_tensors
        d_log, d_error = (grad.unsqueeze(-1) for grad in grad_outputs)
        d_offset = d_log * log_offset + d_error * error_offset
        d_ratio = d_log * log_ratio + d_error * error_ratio
        return d_offset, d_ratio, None, None, None, None, None, None


def contest(
    offset: Tensor, ratio: Tensor, noise: str, topk: int, *, single: bool, eager: bool
) -> Chance:
    """The chance that at most k-1 rivals are above, for rivals (…, R) in float64.

    Args:
        offset: (mu_y - mu_i)/sigma_i; +inf is an absent rival.
        ratio: sigma_y/sigma_i.
        noise: a name in ``NOISES``.
        topk: k, at least 1; P is 1 if there are fewer than k rivals.
        single: nodes enough for float32, instead of float64.
        eager: nothing traces or transforms us, so that large batches may go in chunks.
    """
    rivals = offset.shape[-1]
    lead = offset.shape[:-1]
    if rivals < topk:
        nothing = torch.where(offset == torch.inf, 0, offset * 0).sum(-1)
        return Chance(nothing, nothing)
    ratio = ratio.expand_as(offset)
    nodes, log_weights = contest_nodes(offset.detach(), ratio.detach(), noise, topk, single)
    rows = math.prod(lead)
    # As many nodes again for 1-P, times what a count table holds.
    per_row = rivals * 2 * nodes.shape[-1] * (topk if topk == 1 else topk + 1)
    if eager and rows * per_row > _BLOCK_ELEMENTS:
        step = max(1, _BLOCK_ELEMENTS // per_row)
        flat = [t.reshape(rows, t.shape[-1]) for t in (offset, ratio, nodes, log_weights)]
        log_prob, error = _Chunked.apply(*flat, noise, topk, single, step)  # type: ignore[no-untyped-call]
        return Chance(log_prob.reshape(lead), error.reshape(lead))
    return _evaluate(offset, ratio, nodes, log_weights, noise, topk, single)
