"""e^x with the digits that float32 has, where the hardware's is two bits short."""

import triton
import triton.language as tl


@triton.jit
def split_exp(x):
    """(q, 2^k) with e^x = (1 + q) 2^k, q to the last bit; the hardware's e^x is two bits short."""
    gone = x < -100.0
    x = tl.where(gone, -100.0, x)  # so that -inf leaves no NaN; a NaN stays
    whole = tl.floor(x * 1.4426950408889634 + 0.5)
    part = tl.fma(whole, -0.693145751953125, x)  # log 2 in two pieces, the first with short digits
    part = tl.fma(whole, -1.4286068203094172e-6, part)
    series = tl.fma(part, 1 / 5040, 1 / 720)
    series = tl.fma(part, series, 1 / 120)
    series = tl.fma(part, series, 1 / 24)
    series = tl.fma(part, series, 1 / 6)
    series = tl.fma(part, series, 0.5)
    return tl.fma(part * part, series, part), tl.where(gone, 0.0, tl.exp2(whole))


@triton.jit
def terms_of(x, EXACT: tl.constexpr):
    """e^x to be summed: in float64 where float32 has the digits to tell."""
    if EXACT:
        q, power = split_exp(x)
        terms = ((1.0 + q) * power).to(tl.float64)
    else:
        terms = tl.exp(x)
    return terms


@triton.jit
def shares_of(x, share, rest, EXACT: tl.constexpr):
    """(share + rest) e^x, rounded once where float32 has the digits to tell."""
    if not EXACT:
        return tl.exp(x) * share
    q, power = split_exp(x)
    return (share + tl.fma(q, share, rest)) * power
