"""What EXACT's integral is made of, in float32 on a GPU: Φ and its tail, mode, nodes, margins.

The mathematics is that of ``orthant/integral.py``: integrate whichever of P and 1-P is small, on
nodes placed around the mode. What is different is where the digits are kept, because here
everything but a few numbers per row is float32:

* arguments are measured from the nearest rival, x_i = u + d_i with d_i >= 0, so that large margins
  cost no digits; the nodes are measured from the mode, u = u0 + δ;
* y = x √(log2(e)/2), so that e^(-x²/2) = 2^(-y²): the hardware knows powers of two. Φ(x) is split
  as 2^(-y²) · F below 0 (F a smooth tail) and is F = 1 - 2^(-y²)·tail above;
* one node lies at the mode and is evaluated first: its value is the scale of all others.

A start for the mode comes from one sum over the rivals, n = Σ e^(-2 d_i): it is near the mode of n
equal rivals, which Newton finds with a few numbers per row. Newton on the whole row then mostly
needs two steps instead of log R: the slope is decreasing and convex, so no step can go astray.
"""

import triton
import triton.language as tl

TO_Y = tl.constexpr(0.8493218002880191)  # y = x √(log2(e)/2), so that e^(-x²/2) = 2^(-y²)
TO_X = tl.constexpr(1.1774100225154747)
TO_Y_SQUARE = tl.constexpr(0.7213475204444817)
DENSITY = tl.constexpr(0.3989422804014327)
LN2 = tl.constexpr(0.6931471805599453)
FAR = tl.constexpr(1e7)
DROP = tl.constexpr(14.0)  # the interval ends this many nats below the mode
SKEW = tl.constexpr(1.25)


# -------------------------------------------------------------------- the normal distribution


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


@triton.jit
def _combine(misses, ROWS: tl.constexpr, GROUPS: tl.constexpr, SIZE: tl.constexpr):
    """1 - (1-a)(1-b) = a + b - ab of neighbours: keeps the digits of small misses."""
    even, odd = tl.split(tl.reshape(misses, [ROWS, GROUPS, SIZE, 2]))
    return even + (odd - even * odd)


@triton.jit
def _multiply(factors, ROWS: tl.constexpr, GROUPS: tl.constexpr, SIZE: tl.constexpr):
    even, odd = tl.split(tl.reshape(factors, [ROWS, GROUPS, SIZE, 2]))
    return even * odd


@triton.jit
def log2_products(hits, misses, ROWS: tl.constexpr, GROUPS: tl.constexpr, FAST: tl.constexpr):
    """log2 of the product of hits (1 - misses) over groups of eight, (rows, groups).

    Many rivals that are nearly certain must not lose their digits to the rounding of 1 - miss.
    """
    hits = _multiply(_multiply(hits, ROWS, GROUPS, 4), ROWS, GROUPS, 2)
    hits = tl.reshape(_multiply(hits, ROWS, GROUPS, 1), [ROWS, GROUPS])
    misses = _combine(_combine(misses, ROWS, GROUPS, 4), ROWS, GROUPS, 2)
    misses = tl.reshape(_combine(misses, ROWS, GROUPS, 1), [ROWS, GROUPS])
    few = misses < 0.5
    rest = tl.where(few, hits, hits * (1.0 - misses))
    return tl.log2(rest) + log2_without(tl.where(few, misses, 0.0), FAST)


# ---------------------------------------------------------------------- search and nodes


@triton.jit
def start_of_search(rivals, lowest, ahead, FAST: tl.constexpr):
    """The mode of ``rivals`` equal ones, and of the target where it takes part; centre; curve."""
    behind = ahead == 0
    centre = tl.where(behind, lowest, 0.0)
    u = tl.where(behind & (lowest > 0), lowest, 0.5 * lowest)
    # Many: near n φ(u) = u, from where Newton need not climb up log n steps.
    twice = 2.0 * tl.log(tl.maximum(rivals, 1.0)) - 1.84
    knee = tl.sqrt(tl.maximum(twice - tl.log(tl.maximum(twice, 1.0)), 0.0))
    u = tl.where(rivals > 5.0, tl.maximum(u, knee), u)
    bend = tl.zeros_like(u)
    for _ in range(4):
        mills, curve = rough_mills(u * TO_Y, FAST)
        own, own_curve = rough_mills((u - lowest) * TO_Y, FAST)
        slope = centre - u + rivals * mills + tl.where(ahead, own, 0.0)
        bend = 1.0 + rivals * curve + tl.where(ahead, own_curve, 0.0)
        u += slope / bend
    return u, centre, bend


@triton.jit
def step_out(distance, slope, curve, drop):
    """Where the shape has dropped by ``drop``, taking |L'| for a power of the distance."""
    slope = tl.maximum(slope, 1e-4)
    power = 1.0 + distance * curve / slope
    ratio = tl.maximum(drop * power / (slope * distance), 1e-6)
    return tl.minimum(distance * tl.exp(tl.log(ratio) / power), tl.sqrt(2.0 * drop))


@triton.jit
def lay_nodes(left, right, NODES: tl.constexpr):
    """(reach c, skew λ, nodes before the mode): δ = c (e^(λ k/NODES) - 1), k from -before."""
    skew = tl.minimum(tl.maximum(tl.log(right / left) * (2.0 * SKEW), -8.0), 8.0)
    skew = tl.where(tl.abs(skew) < 1e-3, 1e-3, skew)
    stretch = expm1(skew)
    reach = left + (left + right) / stretch
    before = tl.log(1.0 + left / (left + right) * stretch) / skew * NODES
    return reach, skew, tl.floor(tl.minimum(tl.maximum(before, 0.0), NODES - 1.0))


@triton.jit
def place_node(node, before, skew, reach, NODES: tl.constexpr):
    """The growth of the step at a node and its distance from the mode, in units of y."""
    k = node - tl.where(before + node >= NODES, NODES * 1.0, 0.0)
    growth = expm1(skew * (k / NODES))
    return growth, reach * growth * TO_Y


@triton.jit
def crossing_weight(zy0, delta, relative, growth, FAST: tl.constexpr):
    """The weight of Φ(z) Σ φ/Φ at a node, relative to the mode."""
    zy = zy0 + delta
    tail = tail_of(zy, FAST)
    low = tl.minimum(zy, 0.0)
    low0 = tl.minimum(zy0, 0.0)
    drop = delta * (2.0 * zy0 + delta)
    drop = tl.where(tl.maximum(zy, zy0) < 0, drop, low * low - low0 * low0)
    cdf = tl.where(zy < 0, tail, 1.0 - tl.exp2(-(zy * zy)) * tail)
    return tl.exp2(relative - drop) * (1.0 + growth) * cdf


@triton.jit
def small_of(total, shift, base, mode, lowest, reach, skew, ahead, scaled, NODES: tl.constexpr):
    """log2 of the smaller of P and 1-P, float64; and the factor that the gradient still needs.

    ``lowest`` is the nearest rival's margin in float64: P of a row far behind depends on all of its
    digits.
    """
    wide = mode.to(tl.float64)
    z0 = wide - lowest
    low = tl.where(ahead, tl.minimum(z0, 0.0), z0)
    constant = shift.to(tl.float64) - base.to(tl.float64) - low * low * TO_Y_SQUARE
    constant -= tl.where(scaled, wide * wide * TO_Y_SQUARE, 0.0)
    step = tl.abs(reach * skew) * (DENSITY / NODES)
    # The hardware's logarithm is good for six digits of this.
    small_log2 = tl.log2(total.to(tl.float64) * step.to(tl.float64)) + constant
    high = tl.maximum(z0.to(tl.float32) * TO_Y, 0.0)
    return small_log2, tl.where(ahead, tl.exp2(-(high * high)), 1.0) / total * DENSITY


# -------------------------------------------------------------- margins of the nearest rival


@triton.jit
def is_over(own, best, lead):
    """Is the nearest rival's lead that over the ``best`` score?

    It is not where it is at a limit, or where there is no rival.
    """
    apart = own.to(tl.float64) - best.to(tl.float64)
    return tl.abs(apart - lead.to(tl.float64)) <= tl.minimum(tl.abs(apart), 1e300) * 1e-6


@triton.jit
def wide_margin(own, best, lead, exact, wide_scale):
    """The nearest rival's margin in float64, from its score where that is ``exact``."""
    apart = own.to(tl.float64) - best.to(tl.float64)
    return tl.where(exact, apart, lead.to(tl.float64)) * wide_scale


# ------------------------------------------------------------ leads of a row, block by block


@triton.jit
def far_of(scale):
    """The lead beyond which a rival is out of reach: 1e7 in units of the noise.

    A plain number: what a ``tl.constexpr`` on the left makes, newer interpreters do not take.
    """
    return 1e7 / scale


@triton.jit
def rivals_of(
    start, first, stride, classes, shrink, absent, index, BLOCK: tl.constexpr,
):  # fmt: skip
    """Rivals' scores in a block of columns, times ``shrink``; -inf where there is nobody.

    ``absent`` times ``shrink`` is -inf: stored leads (``index`` of -1) are scores with a minus.
    """
    columns = first + tl.arange(0, BLOCK)
    there = (columns < classes) & (columns != index)
    scores = tl.load(start + columns.to(tl.int64) * stride, mask=there, other=absent)
    return scores.to(tl.float32) * shrink


@triton.jit
def leads_of(start, first, stride, classes, own, shrink, index, far, BLOCK: tl.constexpr):
    """Leads over a block of columns, within ±far, whether there is a rival, and the scores.

    The scores are multiplied by ``shrink``, as ``own`` is. An ``index`` of -1 means that the leads
    themselves are stored, +inf where there is no rival.
    """
    columns = first + tl.arange(0, BLOCK)
    there = columns < classes
    scores = tl.load(start + columns.to(tl.int64) * stride, mask=there, other=float("-inf"))
    scores = scores.to(tl.float32) * shrink
    lead = tl.where(index < 0, scores, own - scores)
    present = tl.where(index < 0, scores != float("inf"), scores != float("-inf"))
    rival = there & (columns != index) & present
    # Not by minimum and maximum: a NaN must stay one.
    lead = tl.where(lead > far, far, lead)
    return tl.where(lead < -far, -far, lead), rival, scores


@triton.jit
def split_scale(wide_scale):
    """The scale of d in units of y, in two numbers: an error of it is one of all rivals."""
    wide = wide_scale * 0.8493218002880191
    whole = wide.to(tl.float32)
    return whole, (wide - whole.to(tl.float64)).to(tl.float32)


@triton.jit
def distance_of(lead, scores, nearest, best, exact, far, whole, rest):
    """d in units of y: from the best score where that is ``exact``, else from the nearest lead."""
    apart = tl.where((exact != 0) & (lead < far), best - scores, lead - nearest)
    return tl.fma(apart, whole, apart * rest)
