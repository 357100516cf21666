"""A loss as a curve over u = log p(target): its value and its slope.

The slope is written out instead of left to autograd for two reasons. It is exact where autograd's
is not: the backward of ``expm1`` is ``result + 1``, which is 0 for every u below -37 although the
true slope, ``e^u``, is a perfectly good number. And it lets one autograd node carry the whole loss,
which is what makes small batches fast.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Formula(NamedTuple):
    """A loss ``factor · value`` of u = log p in [-inf, 0], and ``slope`` = d value / d u.

    Elementwise; ``slope`` is given p = e^u too, which its callers have at hand.
    """

    value: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor, Tensor], Tensor]
    factor: float = 1.0


IDENTITY = Formula(value=lambda u: u, slope=lambda u, prob: torch.ones_like(u))


def error_of(log_prob: Tensor) -> Tensor:
    """1 - p, to full precision however close p is to 1."""
    return -torch.expm1(log_prob)


class _ApplyFormula(torch.autograd.Function):
    """``formula.value`` with ``formula.slope`` as its derivative, under vmap and compile too."""

    generate_vmap_rule = True

    @staticmethod
    def forward(log_prob: Tensor, formula: Formula) -> Tensor:
        return formula.value(log_prob) * formula.factor

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Formula], output: Tensor) -> None:
        log_prob, ctx.formula = inputs
        ctx.save_for_backward(log_prob)
        ctx.save_for_forward(log_prob)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None]:
        (log_prob,) = ctx.saved_tensors
        # The slope is made of differentiable torch functions: double backward follows from it.
        slope = ctx.formula.slope(log_prob, torch.exp(log_prob))
        return grad_outputs[0] * slope * ctx.formula.factor, None


class _ApplyFormulaBothModes(_ApplyFormula):
    """The same with forward-mode AD, which torch.compile refuses to see defined."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        (log_prob,) = ctx.saved_tensors
        slope = ctx.formula.slope(log_prob, torch.exp(log_prob))
        tangent: Tensor = tangents[0] * slope * ctx.formula.factor
        return tangent


def apply_formula(log_prob: Tensor, formula: Formula) -> Tensor:
    """Evaluate ``formula`` with its own slope as the derivative, to any order."""
    node = _ApplyFormula if torch.compiler.is_compiling() else _ApplyFormulaBothModes
    result: Tensor = node.apply(log_prob, formula)  # type: ignore[no-untyped-call]
    return result
