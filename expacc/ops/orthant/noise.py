"""The noise a logit may carry: log density, log CDF and log survival, and how far it reaches.

All four are log-concave, so the density of a win is too: one mode, found by bisection. Gumbel noise
gives softmax; the normal gives EXACT; the other two show what the choice is worth.
"""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from expacc.ops.orthant.normal import log_normal_cdf

NoiseName = Literal["normal", "gumbel", "logistic", "laplace"]
_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


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
