"""Σ_j c_j P(argmax = j) under unit Gaussian noise, value and gradient from one integral: O(Q · C).

With b the class of the largest mean and d_j = c_j - c_b, a win of b costs nothing more, and

    Σ_j c_j P_j = c_b + V,  V = Σ_{i≠b} d_i P_i = ∫ A e^T ds,  ∂V/∂mu_i = ∫ h_i e^T (d_i H - A) ds,

where T = Σ_j log Φ(s - mu_j), h_j = φ/Φ at s - mu_j, H = Σ_j h_j and A = Σ_{i≠b} d_i h_i. Every
integrand is that of an upset of b by its rivals: it lives where that of 1 - P_b does, so the nodes
are those of ``integral.py`` for a row whose true class is b and which is ahead. V has all its
digits however tiny it is; only what is less than 1e-14 of the likeliest upset has none of its own.

All arguments are b's leads m_i = mu_b - mu_i >= 0, and y = -(z + m_i)/√2 with z = s - mu_b.
"""

import contextlib
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from expacc.ops.dispatch import is_plain_eager
from expacc.ops.orthant.all_classes import win_chances
from expacc.ops.orthant.float32 import integrate_upsets
from expacc.ops.orthant.integral import (
    ABSENT,
    EXP_MIN,
    FAR_AHEAD,
    LOG_SQRT_2PI,
    Rule,
    evaluate_nodes,
    flatten_rows,
    may_be_calm,
    place_nodes,
    rule_of,
)
from expacc.ops.orthant.node import in_front, refuse_twice
from expacc.ops.orthant.noise import log_normal_cdf_and_mills

__all__ = ["rival_cost"]

_SQRT_HALF = math.sqrt(0.5)
_DENSITY = math.exp(-LOG_SQRT_2PI)


def _chunk(my: Tensor, costs: Tensor, rule: Rule) -> tuple[Tensor, Tensor]:
    """V (rows,) and ∂V/∂m (rivals, rows) of leads/√2 and costs (rivals, rows), float64, finite."""
    base, nearest = my.min(0)
    base = base.clamp_(max=FAR_AHEAD)
    mu = base - my
    grid = place_nodes(base, mu, nearest, torch.ones_like(nearest, dtype=torch.bool), rule)
    thin = grid.c.neg().clamp_(min=EXP_MIN).exp_().mul_(2 * _DENSITY)  # h to φ/Φ
    slope, total, shift = torch.zeros_like(my), torch.zeros_like(base), torch.zeros_like(base)
    for i, (part, h, spare, log_product) in enumerate(evaluate_nodes(mu, grid, rule)):
        all_lose = grid.log_value_weight[part] + log_product  # dz e^T e^{-c}
        shift = shift if i else all_lose.amax(0)
        all_lose = all_lose.sub_(shift).exp_()
        best_wins = log_product.sub_(shift).add_(grid.log_weight[part]).exp_().mul_(_DENSITY)
        priced = torch.mul(h, costs, out=spare).sum(1).mul_(all_lose)
        total.add_(priced.sum(0))
        pull = best_wins.add_(h.sum(1).mul_(all_lose).mul_(thin[part]))  # H
        push = priced.mul_(thin[part])  # A
        slope.add_(torch.mul(costs, pull[:, None], out=spare).sub_(push[:, None]).mul_(h).sum(0))
    scale = shift.add_(math.log(4 / (rule.nodes * _SQRT_HALF)) - LOG_SQRT_2PI)
    scale = scale.exp_().masked_fill_(base >= FAR_AHEAD, 0.0)  # every rival absent
    slope = torch.hardshrink(slope, 1e-280)  # undo EXP_MIN: absent means zero
    return total.mul_(scale), slope.mul_(-scale)


def _evaluate(flat: Tensor, costs: Tensor) -> tuple[Tensor, Tensor]:
    """V (rows,), float64, and ∂V/∂m (rows, rivals) of leads and costs (rows, rivals)."""
    rows, rivals = flat.shape
    if rivals == 0:
        return torch.zeros(rows, dtype=torch.float64, device=flat.device), torch.zeros_like(flat)
    if rivals == 1:  # P = Φ(-m/√2)
        lead = flat[:, 0].to(torch.float64)
        log_chance, mills = log_normal_cdf_and_mills(lead * -_SQRT_HALF)
        chance = torch.where(lead >= FAR_AHEAD, 0.0, log_chance.exp_())
        value = chance.mul_(costs[:, 0])
        return value, (value * mills * -_SQRT_HALF).unsqueeze(1).to(flat.dtype)
    rule = rule_of(flat, 0)
    slope = torch.empty_like(flat)
    value = torch.empty(rows, dtype=torch.float64, device=flat.device)
    step = max(1, rule.block // rivals)
    for start in range(0, rows, step):
        part = slice(start, start + step)
        leads = flat[part].to(torch.float64).t().contiguous()
        prices = costs[part].to(torch.float64).t().contiguous()
        value[part], columns = _chunk(leads.clamp(max=ABSENT).mul_(_SQRT_HALF), prices, rule)
        slope[part] = columns.t()
    return value, slope


def integrate_rivals(leads: Tensor, costs: Tensor) -> tuple[Tensor, Tensor]:
    """V (…), float64, and ∂V/∂leads (…, R) in their dtype."""
    flat, prices = flatten_rows(leads), flatten_rows(costs)
    if may_be_calm(flat, 0):
        value, slope = integrate_upsets(flat, prices.float())
    else:
        value, slope = _evaluate(flat, prices)
    return value.reshape(leads.shape[:-1]), slope.reshape(leads.shape)


# --------------------------------------------------------------------------- as a node of autograd


@torch.library.custom_op("expacc::rival_cost", mutates_args=())
def rival_cost_op(leads: Tensor, costs: Tensor) -> tuple[Tensor, Tensor]:
    """``integrate_rivals`` as an operation of its own: torch.compile sees one node."""
    value, slope = integrate_rivals(leads, costs)
    return value.clone(), slope.clone()


@rival_cost_op.register_fake
def _(leads: Tensor, costs: Tensor) -> tuple[Tensor, Tensor]:
    return leads.new_empty(leads.shape[:-1], dtype=torch.float64), leads.new_empty(leads.shape)


_TWICE = (
    "exact_error and expected_cost must not be differentiated twice; got a double backward. "
    "Use noise='gumbel', which is a softmax, if you need one."
)


def _rival_chances(leads: Tensor) -> Tensor:
    """P(rival i wins): what V grows by with its cost. Asked for where costs have a gradient."""
    best = torch.zeros_like(leads[..., :1])
    return win_chances(torch.cat([best, -leads], -1), "normal")[..., 1:]


def _gradients(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None]:
    leads, slope = ctx.saved_tensors
    for_leads = for_costs = None
    if ctx.needs_input_grad[0]:
        # Compiled, there is no double backward, and torch says so.
        refuses = torch.is_grad_enabled() and not torch.compiler.is_compiling()
        with torch.no_grad() if refuses else contextlib.nullcontext():
            for_leads = slope * upstream.unsqueeze(-1).to(slope.dtype)
        if refuses:
            for_leads = refuse_twice(for_leads, leads, _TWICE)
    if ctx.needs_input_grad[1]:
        for_costs = _rival_chances(leads) * upstream.unsqueeze(-1).to(leads.dtype)
    return for_leads, for_costs


class _Traced(torch.autograd.Function):
    """For torch.compile and torch.func."""

    @staticmethod
    def forward(leads: Tensor, costs: Tensor) -> tuple[Tensor, Tensor]:
        return rival_cost_op(leads, costs)  # type: ignore[no-any-return]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(inputs[0], output[1])

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, _: Any) -> Any:
        return _gradients(ctx, upstream)

    @staticmethod
    def vmap(info: Any, in_dims: Any, leads: Tensor, costs: Tensor) -> Any:
        return _traced(*in_front(info, in_dims, leads, costs)), (0, 0)


class _TracedBothModes(_Traced):
    """The same with forward-mode AD, which torch.compile refuses to see defined."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _Traced.setup_context(ctx, inputs, output)
        ctx.save_for_forward(inputs[0], output[1])

    @staticmethod
    def jvp(ctx: Any, of_leads: Tensor | None, of_costs: Tensor | None) -> Any:
        leads, slope = ctx.saved_tensors
        along = torch.zeros_like(leads[..., 0], dtype=torch.float64)
        if of_leads is not None:
            along = along + (of_leads * slope).sum(-1)
        if of_costs is not None:
            along = along + (of_costs * _rival_chances(leads)).sum(-1)
        return along, None


def _traced(leads: Tensor, costs: Tensor) -> tuple[Tensor, Tensor]:
    node = _Traced if torch.compiler.is_compiling() else _TracedBothModes
    result: tuple[Tensor, Tensor] = node.apply(leads, costs)  # type: ignore[no-untyped-call]
    return result


class _Eager(torch.autograd.Function):
    """For plain eager use, where looking for transforms would cost more than the integral."""

    @staticmethod
    def forward(ctx: Any, leads: Tensor, costs: Tensor) -> Tensor:
        value, slope = integrate_rivals(leads, costs)
        ctx.save_for_backward(leads, slope)
        return value

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        return _gradients(ctx, grad_outputs[0])


# The inherited apply: Function.apply would first look for transforms, and there are none.
_eager: Callable[..., Tensor] = super(torch.autograd.Function, _Eager).apply


def rival_cost(leads: Tensor, costs: Tensor) -> Tensor:
    """Σ_i costs_i P(rival i wins), (…), float64, of leads and costs (…, R), float32 or float64.

    Args:
        leads: of the best class over each rival, >= 0, in units of the noise; +inf if absent.
        costs: any finite numbers: what a win of this rival costs beyond one of the best class.
    """
    return _eager(leads, costs) if is_plain_eager() else _traced(leads, costs)[0]
