"""Curves over u = log p as device functions: value and slope, the factor of their formula aside.

A curve is a number of ``CURVES`` and two parameters; which formula is which curve, it says itself
(``Formula.curve``). Everything is float64, one number per row or, for class probabilities, per
class.
"""

import triton
import triton.language as tl

from expacc.ops.dispatch import CURVES

MIXTURE = tl.constexpr(CURVES.index("mixture"))
_FOCAL = tl.constexpr(CURVES.index("focal"))
_GENERALIZED = tl.constexpr(CURVES.index("generalized"))
_TAMED = tl.constexpr(CURVES.index("tamed"))
_HUBERIZED = tl.constexpr(CURVES.index("huberized"))
_JENSEN_SHANNON = tl.constexpr(CURVES.index("jensen-shannon"))
_TAYLOR = tl.constexpr(CURVES.index("taylor"))
_ASYMMETRIC = tl.constexpr(CURVES.index("asymmetric"))
_UNHINGED = tl.constexpr(CURVES.index("unhinged"))
_EXPONENTIAL = tl.constexpr(CURVES.index("exponential"))
_TINY = tl.constexpr(2.2250738585072014e-308)


@triton.jit
def log1p(x):
    """log(1 + x) in float64: what 1 + x loses of x is known."""
    whole = 1.0 + x
    back = whole - 1.0
    quotient = tl.where(back == 0, 1.0, x / tl.where(back == 0, 1.0, back))
    found = tl.log(whole) * tl.where(tl.abs(x) > 1e10, 1.0, quotient)
    return tl.where(back == 0, x, found)


@triton.jit
def expm1(x):
    """e^x - 1 in float64."""
    power = tl.exp(x)
    log = tl.log(tl.where(tl.abs(x) < 1, power, 2.0))
    small = (power - 1.0) * (x / tl.where(log == 0, 1.0, log))
    return tl.where(tl.abs(x) < 1, tl.where(log == 0, x, small), power - 1.0)


@triton.jit
def lead_parts(lead):
    """(-log p, p, 1 - p) of the lead log p/(1-p), without cancellation."""
    # e^-|lead| gives p and 1 - p, whichever is small.
    small = tl.exp(-tl.abs(lead))
    ahead = lead >= 0
    likely = 1 / (1 + small)
    prob = tl.where(ahead, likely, small * likely)
    error = tl.where(ahead, small * likely, likely)
    log_sum = tl.where(small < 1e-9, small, tl.log(1 + small))
    # 1 + small loses digits of small, but the quotient of what was lost is known.
    log_sum = tl.where(
        (small >= 1e-9) & (small < 0.5), log_sum * (small / ((1 + small) - 1)), log_sum
    )
    return log_sum - tl.where(ahead, 0.0, lead), prob, error


@triton.jit
def curve_of(minus, prob, error, a, b, CURVE: tl.constexpr):
    """(value, its slope in u) of the curve at -log p, p and 1 - p; NaN where those are."""
    if CURVE == MIXTURE:
        value = b * error
        slope = -b * prob
        if a != 0:  # 0 · inf would be NaN
            value += a * minus
            slope -= a
    elif CURVE == _FOCAL:
        power = tl.where((error == 0) & (a == 0), 1.0, tl.exp(a * tl.log(error)))
        power = tl.where((error == 0) & (a > 0), 0.0, power)
        # u/(1-p) goes to -1 as both go to 0; p·u to 0 with p.
        steep = tl.where(minus > 1e308, 1e308, tl.where(minus < _TINY, _TINY, minus))
        steep = steep / tl.where(error < _TINY, _TINY, error) * prob
        value = -power * minus
        slope = power * (1.0 + a * steep)
    elif CURVE == _GENERALIZED:
        inside = tl.where(minus > -b, -b, minus)
        value = expm1(-inside * a)
        slope = tl.where(minus >= -b, 0.0, tl.exp(-minus * a) * a)
    elif CURVE == _TAMED:
        log = log1p(minus)
        power = 1.0 - a
        value = tl.where(power == 0, log, expm1(log * power))
        slope = -tl.exp(-a * log) * tl.where(power == 0, 1.0, power)
    elif CURVE == _HUBERIZED:
        value = tl.where(minus < -b, minus, 1.0 - b - prob / a)
        slope = -tl.where(prob > a, 1.0, prob / a)
    elif CURVE == _JENSEN_SHANNON:
        rest = 1.0 - a
        ratio = log1p(error / tl.where(prob < _TINY, _TINY, prob) * a)
        mixed = log1p(-error * rest)
        if a < 0.01:  # where 1 - w (1-p) loses what is left of the mixture
            mixed = tl.where(prob < 0.5, tl.log(prob * rest + a), mixed)
        value = error - ratio * prob / b - mixed * (a / (rest * b))
        slope = (ratio / b + 1.0) * -prob
    elif CURVE == _TAYLOR:
        value = error / a
        power = a - 1.0
        while power > 0.5:
            value = (value + 1.0 / power) * error
            power -= 1.0
        slope = expm1(log1p(-prob) * a)
    elif CURVE == _ASYMMETRIC:
        value = expm1(log1p(-error / (a + 1.0)) * b)
        slope = tl.exp((b - 1.0) * tl.log(prob + a) - b * tl.log(a + 1.0 + prob * 0.0)) * prob * b
    elif CURVE == _UNHINGED:
        rest = a - 1.0
        value = expm1(log1p(error / rest) * b)
        slope = tl.exp((b - 1.0) * tl.log(error + rest) - b * tl.log(rest + prob * 0.0)) * prob * -b
    else:
        tl.static_assert(CURVE == _EXPONENTIAL, "no such curve")
        value = expm1(error / a)
        slope = tl.exp(error / a) * prob / -a
    return value, slope
