"""The integrals of exact-integral, and their values and gradients to rounding."""

import math
import random
from dataclasses import dataclass

__all__ = ["CASES", "Case", "Truth", "truth"]

MEAN = (1.0, 2.0, 0.5, 10.0, 6.0, -3.0, -4.0, 5.0, 1.0, 0.0)  # Appendix C


@dataclass(frozen=True)
class Case:
    """P(all margins positive), the margins being N(m, I + 11ᵀ).

    Args:
        name: in keys.
        title: for people.
        margins: m, the lead of the true class over each rival in units of σ.
        about: what it stands for.
    """

    name: str
    title: str
    margins: tuple[float, ...]
    about: str


def _drawn(rivals: int) -> tuple[float, ...]:
    """Leads among standard normal logits."""
    draw = random.Random(16)
    own, *others = (draw.gauss(0, 1) for _ in range(rivals + 1))
    return tuple(round(own - other, 3) for other in others)


CASES = {
    case.name: case
    for case in (
        Case("paper", "the paper's", MEAN, "Appendix C, its numbers taken for the margins"),
        Case(
            "paper-logits",
            "the paper's as logits",
            tuple(MEAN[3] - other for i, other in enumerate(MEAN) if i != 3),
            "Appendix C, its numbers taken for ten logits of which the largest is the true one",
        ),
        Case("level", "ten level classes", (0.0,) * 9, "as training begins, σ large"),
        Case("drawn", "16 drawn classes", _drawn(15), "standard normal logits, σ = 1"),
        Case("ahead", "well ahead", (4.0,) * 9, "a row that is right, σ small"),
        Case("behind", "far behind", (-10.0,) * 9, "a row that is wrong, σ small"),
    )
}


@dataclass(frozen=True)
class Truth:
    """A case's value and gradient.

    Args:
        value: P.
        gradient: ∂P/∂m.
        doubt: how much the value changes, relatively, when every second node is left out.
    """

    value: float
    gradient: tuple[float, ...]
    doubt: float


def truth(margins: tuple[float, ...], half_width: float = 40.0, nodes: int = 20_001) -> Truth:
    """The trapezoid rule with very many nodes over ∫ φ(z) ∏ Φ(z + m_i) dz, float64.

    Independent of this library's own rule: no mode, no map, no torch. The integrand is analytic and
    falls like a Gaussian, so that the rule converges faster than any power of the distance.
    """
    import numpy as np
    from scipy.special import log_ndtr

    z = np.linspace(-half_width, half_width, nodes)
    log_phi = -0.5 * z**2 - 0.5 * math.log(2 * math.pi)
    shifted = z[:, None] + np.array(margins)
    log_cdf = log_ndtr(shifted)
    integrand = log_phi + log_cdf.sum(1)
    scale = integrand.max()
    step = 2 * half_width / (nodes - 1)  # z[1] - z[0] would lose digits
    weights = np.exp(integrand - scale)
    total, coarse = weights.sum() * step, weights[::2].sum() * 2 * step
    log_density = -0.5 * shifted**2 - 0.5 * math.log(2 * math.pi)
    gradient = (weights[:, None] * np.exp(log_density - log_cdf)).sum(0) * step * np.exp(scale)
    return Truth(
        value=float(total * np.exp(scale)),
        gradient=tuple(float(part) for part in gradient),
        doubt=float(abs(total - coarse) / total),
    )
