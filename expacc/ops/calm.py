"""The orthant integral of an ordinary float32 batch: one fixed grid, no search.

When every row's nearest rival is within [-7, 8.5], and there are at most 15 rivals, the integrands
of P, of 1-P and of the gradient all live on z ∈ [-8, 12] and are no narrower than 0.5. The
trapezoidal rule on a fixed grid then converges far below float32, and what ``orthant.py`` spends
on placing its nodes is saved: about 1.5 times faster for ten classes. The formulas are the same, in
particular that of 1-P, which keeps its digits as P approaches 1:

    P = ∫ φ ∏Φ dz,    1-P = ∫ Φ ∏Φ Σ_i h_i dz,    ∂P/∂m_i = ∫ φ ∏Φ h_i dz,    h = φ/Φ at z + m.
"""

import functools
import math

import torch
from torch import Tensor

from expacc.ops.normal import log_normal_cdf_and_mills

_NEAREST = (-7.0, 8.5)
_MOST_RIVALS = 15  # beyond, nearly equal rivals make the integrand too narrow for the grid
_LOW = -8.0
_FEW = 9  # rivals up to which the integrand is wide enough for the coarser grid
_DENSITY = 1 / math.sqrt(2 * math.pi)
_EXP_MIN = -80.0  # exp of less is subnormal in float32, and 100 times as slow


def is_calm(nearest: Tensor, rivals: int) -> bool:
    """Do all rows allow the fixed grid? ``nearest`` is each row's smallest margin, on the CPU."""
    if rivals > _MOST_RIVALS or nearest.numel() == 0:
        return False
    low, high = torch.aminmax(nearest)
    return _NEAREST[0] <= low.item() and high.item() <= _NEAREST[1]  # NaN is not calm


@functools.cache
def _grid(few: bool) -> tuple[Tensor, Tensor, Tensor, float]:
    """z, log φ(z) and log Φ(z), (nodes, 1), and the step."""
    high, step = (11.0, 0.5) if few else (12.0, 0.4)
    z = torch.arange(_LOW, high + step / 2, step, dtype=torch.float64)
    log_density = -0.5 * z * z + math.log(_DENSITY)
    log_cdf = log_normal_cdf_and_mills(z)[0]
    nodes, log_density, log_cdf = (t.float().unsqueeze(1) for t in (z, log_density, log_cdf))
    return nodes, log_density, log_cdf, step


def integrate_calm(margins: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """small_log (rows,), ahead (rows,) and gradient (rivals, rows) of margins (rivals, rows).

    As ``orthant._chunk``: small_log is log(1-P) where ahead, else log P, in float64; gradient is
    ∂P/∂m divided by its exponential.
    """
    z, log_density, log_cdf_z, step = _grid(margins.shape[0] <= _FEW)
    # Below -12 Φ leaves float32; at such nodes the product is negligible anyway.
    x = (margins + z.unsqueeze(1)).clamp_(min=-12)
    cdf = torch.erfc(x * -math.sqrt(0.5)).mul_(0.5)
    hazard = x.square_().mul_(-0.5).clamp_(min=_EXP_MIN).exp_().div_(cdf)  # h √(2π)
    log_product = cdf.log_().sum(1)
    win = (log_product + log_density).clamp_(min=_EXP_MIN).exp_()
    prob = win.sum(0).mul_(step)
    crossing = log_product.add_(log_cdf_z).clamp_(min=_EXP_MIN).exp_().mul_(hazard.sum(1))
    error = crossing.sum(0).mul_(step * _DENSITY)
    ahead = error < prob
    small = torch.where(ahead, error, prob)
    gradient = hazard.mul_(win.unsqueeze(1)).sum(0).mul_((step * _DENSITY) / small)
    return small.double().log_(), ahead, gradient
