"""The noise a logit may carry, log Φ to the last digits, and rules to integrate over them.

All four noises are log-concave, so the density of a win is too: one mode, found by bisection.
Gumbel noise gives softmax; the normal gives EXACT; the other two show what the choice is worth.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from expacc.ops.dispatch import is_plain_eager

NoiseName = Literal["normal", "gumbel", "logistic", "laplace"]
_SQRT2 = math.sqrt(2.0)
_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)

# ---------------------------------------------------------------------------- log Φ and φ/Φ

# To a few ulp over the whole real line. torch's own are not: ``special.ndtr`` is 0 below -8.3,
# ``log_ndtr``'s backward is off by a factor of 6 at -1e4 in float32, and has no batching rule.
#
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


# ------------------------------------------------------------------------------- the noises


class Noise(NamedTuple):
    """A unit noise z. ``slope`` is d log density / dz; ``reach`` bounds z for a depth in nats."""

    log_density: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]
    log_cdf: Callable[[Tensor], Tensor]
    log_survival: Callable[[Tensor], Tensor]
    reach: Callable[[float], tuple[float, float]]
    smooth: bool = True


def _log_sigmoid(x: Tensor) -> Tensor:
    return -torch.logaddexp(torch.zeros_like(x), -x)


def _gumbel_log_survival(z: Tensor) -> Tensor:
    # log(1 - exp(-e^-z)); far right e^-z is tiny and the whole is -z.
    rate = torch.exp(-z.clamp(-700, 600))
    near = torch.log(-torch.expm1(-rate))
    return torch.where(z > 600, -z, near)


def _laplace_log_cdf(z: Tensor) -> Tensor:
    left = z.clamp(max=0) - math.log(2)
    right = torch.log1p(-0.5 * torch.exp(-z.clamp(min=0)))
    return torch.where(z < 0, left, right)


def _normal_reach(depth: float) -> tuple[float, float]:
    half = math.sqrt(2 * depth)
    return -half, half


NOISES: dict[str, Noise] = {
    "normal": Noise(
        log_density=lambda z: -0.5 * z * z - _LOG_SQRT_2PI,
        slope=lambda z: -z,
        log_cdf=log_normal_cdf,
        log_survival=lambda z: log_normal_cdf(-z),
        reach=_normal_reach,
    ),
    "gumbel": Noise(
        log_density=lambda z: -z - torch.exp(-z),
        slope=lambda z: torch.exp(-z) - 1,
        log_cdf=lambda z: -torch.exp(-z.clamp(min=-700)),
        log_survival=_gumbel_log_survival,
        reach=lambda depth: (-math.log(depth + 5), depth),
    ),
    "logistic": Noise(
        log_density=lambda z: _log_sigmoid(z) + _log_sigmoid(-z),
        slope=lambda z: -torch.tanh(z / 2),
        log_cdf=_log_sigmoid,
        log_survival=lambda z: _log_sigmoid(-z),
        reach=lambda depth: (-depth, depth),
    ),
    "laplace": Noise(
        log_density=lambda z: -z.abs() - math.log(2),
        slope=lambda z: -torch.sign(z),
        log_cdf=_laplace_log_cdf,
        log_survival=lambda z: _laplace_log_cdf(-z),
        reach=lambda depth: (-depth, depth),
        smooth=False,
    ),
}


# ------------------------------------------------------------- Gauss–Legendre rules on panels


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
