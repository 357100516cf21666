"""Triton functions of the normal distribution, in float32, where Φ(x) = 2^(-y²) · tail left of 0.

y = x √(log2(e)/2), so that e^(-x²/2) = 2^(-y²): the hardware knows powers of two.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-untyped-call,name-defined"
# mypy: no-warn-return-any

import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]

__all__ = ["expm1", "log2_without", "reciprocal", "rough_mills", "rough_tail", "tail_of"]

TO_Y = tl.constexpr(0.8493218002880191)  # y = x √(log2(e)/2), so that e^(-x²/2) = 2^(-y²)
TO_X = tl.constexpr(1.1774100225154747)
DENSITY = tl.constexpr(0.3989422804014327)
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def reciprocal(x, FAST: tl.constexpr):
    """1/x to the last bit or two; one instruction where there is a GPU."""
    if FAST:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return 1.0 / x


@triton.jit
def tail_of(y, FAST: tl.constexpr):
    """Φ(-|x|) 2^(y²), to 4e-7."""
    t = reciprocal(1.0 + 0.34 * tl.abs(y), FAST)
    s = 0.023793465 * t - 0.0793441432
    s = s * t + 0.0584700877
    s = s * t + 0.0111227433
    s = s * t + 0.0639119399
    s = s * t + 0.0860376559
    s = s * t + 0.105603715
    s = s * t + 0.11520232777
    s = s * t + 0.11520232777
    return s * t


@triton.jit
def rough_tail(y, FAST: tl.constexpr):
    """The same to 2e-4, and better far out: enough to place an interval."""
    t = reciprocal(1.0 + 0.48 * tl.abs(y), FAST)
    s = -0.0811764734 * t + 0.126589945
    s = s * t + 0.129333388
    s = s * t + 0.16263858038
    s = s * t + 0.16263858038
    return s * t


@triton.jit
def rough_mills(y, FAST: tl.constexpr):
    """h = φ/Φ and h (h + x), roughly."""
    tail = rough_tail(y, FAST)
    density = tl.exp2(-(y * y))
    left = y < 0
    cdf = tl.where(left, tail, 1.0 - density * tail)
    mills = tl.where(left, 1.0, density) * reciprocal(cdf, FAST) * DENSITY
    return mills, tl.where(y < -8, 1.0, mills * (mills + y * TO_X))


@triton.jit
def expm1(x):
    """e^x - 1, also of a small x."""
    series = x * (1.0 + x * (0.5 + x * (1 / 6 + x * (1 / 24 + x * (1 / 120 + x * (1 / 720))))))
    return tl.where(tl.abs(x) < 0.25, series, tl.exp(x) - 1.0)


@triton.jit
def log2_without(miss, FAST: tl.constexpr):
    """log2(1 - miss) for a miss of at most 1/2, to the last digit even of a small one.

    The hardware's logarithm is wrong by 2e-7 near 1, which many rivals would add up.
    """
    s = miss * reciprocal(2.0 - miss, FAST)
    z = s * s
    series = 1 / 11 + z * (1 / 13)
    series = 1 / 9 + z * series
    series = 1 / 7 + z * series
    series = 1 / 5 + z * series
    series = 1 / 3 + z * series
    return (s + s * (z * series)) * -2.8853900817779268
