"""log Φ and φ/Φ of the standard normal, to a few ulp over the whole real line.

torch's own are not: ``special.ndtr`` is 0 below -8.3, ``log_ndtr``'s backward is off by a factor of
6 at -1e4 in float32, and it has no batching rule.
"""

import math
from typing import Any

import torch
from torch import Tensor

from expacc.ops.mode import is_plain_eager

__all__ = ["DEEP", "deep_tail", "log_normal_cdf", "log_normal_cdf_and_mills"]

_SQRT2 = math.sqrt(2.0)
_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)

# erfc(y)/2 = Φ(-√2 y) is good to the last bit down to y ≈ 26. Beyond y0 = 32/√2 we continue from y0
# by series in s = y0/y ∈ (0, 1] (Chebyshev-fitted, 2e-13), written so that every correction is
# exactly 0 at y <= y0:
#   φ/Φ   = [φ/Φ](y0) + √2 (y - y0) ρ(s)
#   log Φ = [log Φ](y0) - (y - y0)(y + y0) + log s + (1 - s) ℓ(s)
DEEP = 32 / _SQRT2
_RHO = (
    0.999999999999874,
    -0.0009746643888649649,
    1.8979983716810914e-06,
    1.898528548938856e-06,
    -1.0009254387526592e-08,
    -8.683508704962093e-09,
)
_ELL = (
    0.0009741897211253966,
    0.000974189710173811,
    -2.372655179670973e-06,
    -2.373288216107583e-06,
    1.2317355257099604e-08,
    1.0734684245090744e-08,
)


def _horner(coefficients: tuple[float, ...], s: Tensor) -> Tensor:
    acc = s * coefficients[-1]
    for c in coefficients[-2:0:-1]:
        acc.add_(c).mul_(s)
    return acc.add_(coefficients[0])


def deep_tail(y: Tensor) -> tuple[Tensor, Tensor]:
    """What to add to log Φ and to φ/Φ evaluated at min(y, y0); exactly zero where y <= y0."""
    t = y.clamp(min=DEEP)
    s = DEEP / t
    tau = t - DEEP
    d_mills = _horner(_RHO, s).mul_(tau).mul_(_SQRT2)
    d_log = _horner(_ELL, s).mul_(1 - s).add_(s.log_()).sub_(t.add_(DEEP).mul_(tau))
    return d_log, d_mills


def log_normal_cdf_and_mills(x: Tensor) -> tuple[Tensor, Tensor]:
    """log Φ(x) and φ(x)/Φ(x) in float64, both to a few ulp (relative) over the whole real line."""
    y = x.to(torch.float64) * (-1 / _SQRT2)
    yc = y.clamp(max=DEEP)
    e = torch.erfc(yc).mul_(0.5)
    mills = (-_LOG_SQRT_2PI - yc * yc).exp_().div_(e)
    # log Φ = log1p(-Φ(-x)) on the right, where Φ is close to 1
    log_phi = torch.where(y < 0, torch.log1p(torch.erfc(-y).mul_(-0.5)), e.log_())
    # On a device the question would cost a synchronisation, in a graph it cannot be asked: yes.
    askable = y.is_cpu and is_plain_eager()
    if not askable or (y.numel() > 0 and not bool(y.max() <= DEEP)):  # NaN is no answer
        d_log, d_mills = deep_tail(y)
        log_phi.add_(d_log)
        mills.add_(d_mills)
    return log_phi, mills


def _curvature(x: Tensor, mills: Tensor) -> Tensor:
    # x + r cancels far left, where it is about 1/|x|; there r (x + r) is 1 - O(1/x²).
    return torch.where(x < -1e4, 1.0, mills * (x + mills))


class _LogNormalCdf(torch.autograd.Function):
    """log Φ with φ/Φ as its derivative; φ/Φ =: r has the derivative -r (x + r)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        log_cdf, mills = log_normal_cdf_and_mills(x)
        return log_cdf.to(x.dtype), mills.to(x.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(inputs[0], output[1])

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Tensor:
        x, mills = ctx.saved_tensors
        result: Tensor = grad_outputs[0] * mills - grad_outputs[1] * _curvature(x, mills)
        return result


class _LogNormalCdfBothModes(_LogNormalCdf):
    """The same with forward-mode AD, which torch.compile refuses to see defined."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        _LogNormalCdf.setup_context(ctx, inputs, output)
        ctx.save_for_forward(inputs[0], output[1])

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, Tensor]:
        x, mills = ctx.saved_tensors
        return tangents[0] * mills, -tangents[0] * _curvature(x, mills)


def log_normal_cdf(x: Tensor) -> Tensor:
    """log Φ(x), differentiable to any order."""
    node = _LogNormalCdf if torch.compiler.is_compiling() else _LogNormalCdfBothModes
    result: Tensor = node.apply(x)[0]  # type: ignore[no-untyped-call]
    return result
