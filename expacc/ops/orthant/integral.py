"""P(the true class wins) under unit Gaussian noise, as one deterministic 1-D integral.

    P(m)      = ∫ φ(z) ∏_i Φ(z + m_i) dz                  (m_i = margin over rival i)
    ∂P/∂m_i   = ∫ φ(z) φ(z + m_i) ∏_{j≠i} Φ(z + m_j) dz
    1 - P     = ∫ Φ(z) d/dz[∏_i Φ(z + m_i)] dz            (by parts: no cancellation as P → 1)

Plain torch, no RNG, O(nodes · rivals) time, O(rivals) memory per row; value and gradient in one
pass. How it works, per row:

1. *Which of P and 1-P is the small one?* A row is "ahead" when Σ exp(-m|m|/2) < 1, which needs all
   m >= 0. Then P >= 1/4 and we integrate 1-P; otherwise P < 3/4 (seen in every case tried, not
   proved) and we integrate P. The other one is log1p(-exp(·)), which loses at most two bits.
2. *The shape that fixes the interval* is L(z) = -(z-b)²/2 + Σ_i log Φ(z + m_i):
     behind: b = 0 and the rivals as they are (the integrand of P itself);
     ahead:  the integrand of P(nearest rival wins): b = -m_min, the nearest rival replaced by the
             target. The integrands of 1-P and of every ∂P/∂m_i lie between it and R times it,
             because φ/Φ is decreasing; so log R nats more on the left are enough. (A grid placed
             for P alone is useless there: at m = +30 the gradient's mass is at z = -15.)
   L is concave, and L' is convex and decreasing because φ/Φ is: Newton on L' started left of the
   mode rises monotonically to it. No safeguard, a fixed number of steps.
3. *The interval* [lo, hi] is where L has dropped by about ``drop`` nats, from L' and L'' alone: no
   cancellation, so float32 is enough for steps 2 and 3.
4. *The rule* is the midpoint rule in t for z(t) = lo + (hi-lo)(e^{2λt}-1)/(e^{2λ}-1), λ from the
   asymmetry of the interval about the mode. The integrand is then nearly a Gaussian in t even where
   the product has a knee (many equal rivals): 40 nodes for float64, 16 for float32.

The nodes are evaluated in float64 whatever the dtype of the margins: torch's vectorised erfc, exp
and log cost about what the detours of float32 around its tails would. All arguments are
y = -(z+m)/√2, so that Φ(z+m) = erfc(y)/2. Evaluations are laid out (nodes, rivals, rows): rows
innermost, so that sums over rivals and nodes vectorise for any number of classes.
"""

import functools
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from expacc.ops.orthant.float32 import LIFT, MOST_RIVALS, SLOPE, integrate_calm, is_calm
from expacc.ops.orthant.noise import DEEP, deep_tail, log_normal_cdf_and_mills

__all__ = ["NODES", "Chances", "integrate_chances", "integrate_orthant"]

_SQRT2 = math.sqrt(2.0)
LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)

# By dtype of the margins: nodes, and the depth of the interval in nats below the mode. Measured
# against the 204-case table: float64 1.4e-13 (log P), 2.5e-12 (gradient); float32 5e-7, 1.4e-5.
NODES = {torch.float64: 40, torch.float32: 16}
_DROP = {torch.float64: 32.0, torch.float32: 15.0}
_SKEW = 1.25  # λ = SKEW/2 · log((hi-mode)/(mode-lo)); 1 is natural, 1.15 to 1.3 measured best
_BLOCK_CPU = 1 << 16  # elements of one work buffer (512 KiB in float64; three are live)
_BLOCK_DEVICE = 1 << 25

# Beyond, log P is homogeneous in the margins to a dozen digits: P(sm) = P(m)^(s²).
_FAR_BEHIND = -1e7
FAR_AHEAD = 1e7  # a row whose every margin is beyond this has P = 1 exactly
ABSENT = 1e18  # +inf becomes this: Φ = 1, φ = 0 exactly, and its square is finite in float32
_TAME = (-24.0, 8.0)  # y within: y² stays below 700, erfc above 1e-29
EXP_MIN = -700.0  # exp of less takes a slow path, 100 times as long: clamp its argument


# --------------------------------------------------------------------------- mode and interval

# In p = -u/√2 with u = z + m_min (so that near rivals have small arguments, whatever the size of
# the margins):
#   y_i = p + μ_i,   L = -(p+β)² + Σ log Φ,   f := -L'/2 = p + β + Σ η_i,
#   η = φ/(√2 Φ),    η' = 2 η (η - y) ∈ (0, 1)
# f is increasing and convex; larger p is further left in z. float32 places an interval well enough.
_YB = 8.0  # beyond it η = η(8) + (y - 8): good to 1 %


@functools.cache
def _constant(value: object, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A cached number: on short float32 tensors a Python scalar takes 3x as long."""
    return torch.tensor(value, dtype=dtype, device=device)


def _slope(mu: Tensor, beta: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """f and f'/2 at the points p: (..., rows) -> (..., rows)."""
    k = functools.partial(_constant, dtype=mu.dtype, device=mu.device)
    y = mu + p.unsqueeze(-2)
    yc = y.clamp(max=k(_YB))
    eta = torch.addcmul(k(-0.5 * math.log(math.pi)), yc, yc, value=-1).clamp_(min=k(-80.0))
    eta = eta.exp_().div_(torch.erfc(yc))
    gap = torch.sub(eta, yc, out=yc)  # η - y, also beyond _YB
    eta = torch.add(gap, y, out=eta)
    f = eta.sum(-2).add_(p).add_(beta)
    half_df = eta.mul_(gap).clamp_(max=k(0.5)).sum(-2).add_(k(0.5))
    return f, half_df


def newton_steps(rivals: int) -> int:
    """Steps that bring the mode within 0.2 of its width (measured; they grow as log R)."""
    return max(1, math.ceil(0.2 + 0.8 * math.log(rivals)))


def _interval(
    mu: Tensor, beta: Tensor, p: Tensor, drop: Tensor, steps: int
) -> tuple[Tensor, Tensor]:
    """Mode (rows,) and distances (2, rows) to the left and right ends, in p; drop: (2, rows)."""
    k = functools.partial(_constant, dtype=mu.dtype, device=mu.device)
    for _ in range(newton_steps(mu.shape[0])):
        f, half_df = _slope(mu, beta, p)
        p = torch.addcdiv(p, f, half_df, value=-0.5)
    bound = drop.sqrt()  # f' >= 1: no end is further than this
    r = bound * torch.rsqrt(half_df + half_df)  # as if L were a parabola
    half_drop = drop * k(0.5)
    sign = k(((1.0,), (-1.0,)))
    for _ in range(steps):
        f, half_df = _slope(mu, beta, torch.addcmul(p, sign, r))
        f = f.mul_(sign).clamp_(min=k(1e-4))
        # Treat f as a power of the distance, f ∝ r^j: exact for a parabola, right for the
        # double-exponential left flank of a knee too. Then L has fallen by 2 f r/(1+j), and r^(1+j)
        # scales that to the drop.
        j1 = torch.addcmul(f, half_df, r, value=2).div_(f)  # 1 + j
        r = (half_drop * j1).div_(f.mul_(r)).log_().div_(j1).exp_().mul_(r)
        r = torch.minimum(r, bound)
    return p, r


# ----------------------------------------------------------- the integral, for a chunk of rows


class Rule(NamedTuple):
    """How fine: nodes, the interval's depth in nats, and the elements of a work buffer."""

    nodes: int
    drop: float
    block: int


@functools.cache
def _unit_nodes(nodes: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.arange(nodes, dtype=dtype, device=device).add_(0.5).mul_(2 / nodes)[:, None]


class Grid(NamedTuple):
    """Nodes and weights of a chunk of rows; every tensor is (nodes, rows), float64."""

    p: Tensor  # node i is at y = p_i + mu for a rival
    log_weight: Tensor  # dz φ(z) e^{-c}, for the gradient
    log_value_weight: Tensor  # dz Φ(z) e^{-c} where ahead, dz φ(z) elsewhere, for the value
    c: Tensor  # φ(z+m_i) is scaled by e^c where ahead, so that it cannot underflow
    deep: bool  # is anything further out than erfc reaches?
    tame: bool  # is everything so near that products of a few Φ cannot underflow?


def place_nodes(base: Tensor, mu: Tensor, nearest: Tensor, ahead: Tensor, rule: Rule) -> Grid:
    """Steps 2 to 4 for margins base - mu, (rivals, rows)."""
    rivals = mu.shape[0]
    is_ahead = ahead.to(mu.dtype)
    mu32, base32, ahead32 = mu.to(torch.float32), base.to(torch.float32), ahead.to(torch.float32)
    k32 = functools.partial(_constant, dtype=torch.float32, device=mu.device)
    behind32 = k32(1.0) - ahead32
    mu32.scatter_(0, nearest[None], (base32 * ahead32)[None])  # the target in the nearest's place
    # Left of the mode: z = -m_min/2, or 0 if that is negative and the row is not ahead.
    start = torch.addcmul(base32 * k32(-0.5), base32.clamp(min=k32(0.0)), behind32, value=-0.5)
    depths = k32(((rule.drop,), (rule.drop,)))
    drops = torch.addcmul(depths, k32(((math.log(rivals),), (0.0,))), ahead32)
    steps = 3 if rule.nodes > 20 and rivals > 16 else 2
    mode, ends = _interval(mu32, base32 * behind32, start, drops, steps)
    mode, (left, right) = mode.to(mu.dtype), ends.to(mu.dtype)

    lam = torch.log(right / left).mul_(_SKEW).clamp_(-4, 4)
    lam = torch.where(lam.abs() < 1e-9, 1e-9, lam)  # the map's limit, without its 0/0
    scale = (left + right) / torch.expm1(lam + lam)
    grow = lam * _unit_nodes(rule.nodes, mu.dtype, mu.device)
    p = torch.addcmul(mode + left, torch.expm1(grow), scale, value=-1)
    y_target = p + base  # z = -√2 y_target

    # p[0] is the largest y of any rival, y_target[0] that of the target. (On a device the question
    # would cost a synchronisation, so there the answer is yes.)
    deep, tame = True, False
    if mu.is_cpu:
        furthest = torch.maximum(p[0], y_target[0]).max().item()
        deep = not furthest <= DEEP
        tame = furthest < _TAME[1] and (mu.amin() + p[-1].amin()).item() > _TAME[0]
    log_cdf = torch.erfc(y_target.clamp(max=DEEP)).mul_(0.5).log_()
    if deep:
        log_cdf.add_(deep_tail(y_target)[0])
    c = p.square().mul_(is_ahead)
    minus_log_density = y_target.square_()  # -log φ(z), up to a constant
    log_weight = grow.add_(torch.log(scale * lam)).sub_(c).sub_(minus_log_density)
    log_value = torch.addcmul(log_weight, log_cdf.add_(minus_log_density), is_ahead)
    return Grid(p, log_weight, log_value, c, deep, tame)


def evaluate_nodes(
    mu: Tensor, grid: Grid, rule: Rule
) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
    """Slice by slice: its nodes, h = √(2π)/2 e^c φ/Φ, a spare buffer like it, and Σ_i log Φ(z+m_i).

    The middle first: its weights set the scale. The next slice overwrites h, (nodes, rivals, rows).
    """
    rivals, rows = mu.shape
    # The few rivals that need the deep tail; all of them on a device.
    far = None
    if grid.deep and mu.is_cpu:
        far = torch.nonzero((mu + grid.p[0] > DEEP).view(-1)).view(-1)
    step = max(1, min(rule.nodes, rule.block // (rivals * rows)))
    step = -(-rule.nodes // -(-rule.nodes // step))  # slices of equal size
    starts = list(range(0, rule.nodes, step))
    starts.insert(0, starts.pop(len(starts) // 2))
    buffer = torch.empty((3, step, rivals, rows), dtype=mu.dtype, device=mu.device)
    many = rivals > 1000  # halve 2Φ one by one: a sum of so many log 2 would cost digits
    for start in starts:
        part = slice(start, min(start + step, rule.nodes))
        y, cdf, h = buffer[:, : part.stop - start]
        torch.add(mu, grid.p[part, None], out=y)
        tail = None
        if grid.deep:
            tail = deep_tail(y if far is None else y.flatten(1).index_select(1, far))
            y.clamp_(max=DEEP)
        torch.erfc(y, out=cdf)  # 2 Φ(z+m)
        torch.addcmul(grid.c[part, None], y, y, value=-1, out=h)
        h = h if grid.tame else h.clamp_(min=EXP_MIN)
        h.exp_().div_(cdf)
        if many:
            cdf.mul_(0.5)
        if grid.tame:
            log_product = _log_product(cdf)
        else:
            log_cdf = cdf.log_()
            if tail is not None:
                _add_tail(log_cdf, h, tail, far)
            log_product = log_cdf.sum(1)
        if not many:
            log_product.sub_(rivals * math.log(2))
        yield part, h, y, log_product


def _chunk(my: Tensor, rule: Rule) -> tuple[Tensor, Tensor, Tensor]:
    """The integrals of some rows, from ``my`` = margins/√2, (rivals, rows), float64, finite.

    Returns small_log (rows,), ahead (rows,) and gradient (rivals, rows): small_log is log(1-P)
    where ahead, else log P; gradient is ∂P/∂m divided by exp(small_log), which neither underflows
    nor overflows.
    """
    base, nearest = my.min(0)
    # exp(-m|m|/2): a negative margin alone makes the sum exceed 1.
    ahead = my.abs().mul_(my).neg_().clamp_(EXP_MIN, 1.0).exp_().sum(0) < 1
    is_ahead = ahead.to(my.dtype)
    base = base.clamp_(max=FAR_AHEAD)
    mu = base - my  # y_i = p + mu_i; 0 for the nearest rival
    grid = place_nodes(base, mu, nearest, ahead, rule)
    one = _constant(1.0, my.dtype, my.device)
    gradient, total, shift = torch.zeros_like(my), torch.zeros_like(base), torch.zeros_like(base)
    for i, (part, h, _, log_product) in enumerate(evaluate_nodes(mu, grid, rule)):
        value_weight = grid.log_value_weight[part] + log_product
        shift = shift if i else value_weight.amax(0)
        value_weight = value_weight.sub_(shift).exp_()
        weight = log_product.sub_(shift).add_(grid.log_weight[part]).exp_()
        # ahead: Φ(z) Σ φ/Φ; behind: φ(z)
        total.add_(torch.lerp(one, h.sum(1).mul_(2), is_ahead).mul_(value_weight).sum(0))
        gradient.add_(h.mul_(weight[:, None]).sum(0))
    constant = math.log(2 * _SQRT2 / rule.nodes) - LOG_SQRT_2PI  # the rest of dz φ(z)
    small_log = total.log().add_(shift).add_(constant)
    gone = base >= FAR_AHEAD  # every rival absent: P = 1
    gradient.mul_(total.reciprocal_().mul_(2 * math.exp(-LOG_SQRT_2PI)).masked_fill_(gone, 0.0))
    gradient = torch.threshold_(gradient, 1e-280, 0.0)  # undo EXP_MIN: absent means zero
    return small_log.masked_fill_(gone, -math.inf), ahead, gradient


def _log_product(factors: Tensor) -> Tensor:
    """log of the product over axis 1; overwrites it. Products first: a logarithm costs four.

    At most nine factors meet in one product, so none below 1e-34 may be among them.
    """
    for _ in range(2):
        half = factors.shape[1] // 2
        if half == 0:
            break
        rest = factors[:, 2 * half :]
        factors = factors[:, :half].mul_(factors[:, half : 2 * half])
        if rest.shape[1]:
            factors[:, :1].mul_(rest)
    return factors.log().sum(1)


def _add_tail(log_cdf: Tensor, h: Tensor, tail: tuple[Tensor, Tensor], far: Tensor | None) -> None:
    d_log, d_mills = tail
    if far is None:
        log_cdf.add_(d_log)
        h.add_(d_mills, alpha=math.sqrt(math.pi / 2))
    else:
        log_cdf.flatten(1).index_add_(1, far, d_log)
        h.flatten(1).index_add_(1, far, d_mills, alpha=math.sqrt(math.pi / 2))


# ------------------------------------------------------------------------------ the operation


def _evaluate(flat: Tensor, rule: Rule) -> tuple[Tensor, Tensor, Tensor]:
    """small_log (rows,), ahead (rows,) and gradient (rows, rivals) of margins (rows, rivals)."""
    rows, rivals = flat.shape
    if rivals == 0:
        nothing = torch.full((rows,), -math.inf, dtype=torch.float64, device=flat.device)
        return nothing, torch.ones_like(nothing, dtype=torch.bool), torch.zeros_like(flat)
    if rivals == 1:  # P = Φ(m/√2)
        margin = flat[:, 0].to(torch.float64)
        small_log, mills = log_normal_cdf_and_mills(margin.abs() * (-1 / _SQRT2))
        gone = (margin >= FAR_AHEAD) | (margin == -math.inf)
        small_log = torch.where(gone, -math.inf, small_log)
        gradient = torch.where(gone, 0.0, mills * (1 / _SQRT2))
        return small_log, margin >= 0, gradient.unsqueeze(1).to(flat.dtype)
    gradient = torch.empty_like(flat)
    small_log = torch.empty(rows, dtype=torch.float64, device=flat.device)
    ahead = torch.empty(rows, dtype=torch.bool, device=flat.device)
    step = max(1, rule.block // rivals)
    for start in range(0, rows, step):
        part = slice(start, start + step)
        scaled = flat[part].to(torch.float64).t().contiguous()
        stretch = (scaled.amin(0) / _FAR_BEHIND).clamp_(min=1)
        lost = stretch == math.inf  # a rival infinitely far ahead: P = 0
        stretch.masked_fill_(lost, 1)
        scaled = (scaled / stretch).clamp_(_FAR_BEHIND, ABSENT).mul_(1 / _SQRT2)
        log, ahead[part], columns = _chunk(scaled, rule)
        small_log[part] = log.mul_(stretch).mul_(stretch).masked_fill_(lost, -math.inf)
        gradient[part] = columns.mul_(stretch).masked_fill_(lost, 0.0).t()
    return small_log, ahead, gradient


def may_be_calm(flat: Tensor, nodes: int) -> bool:
    """Could the float32 rule of ``float32.py`` do? For its own number of nodes only."""
    return (
        flat.dtype == torch.float32
        and flat.is_cpu
        and nodes == 0
        and 2 <= flat.shape[1] <= MOST_RIVALS
        and flat.shape[0] > 0
    )


def flatten_rows(margins: Tensor) -> Tensor:
    """Margins (rows, rivals)."""
    if margins.ndim == 2:
        return margins
    return margins.reshape(math.prod(margins.shape[:-1]), margins.shape[-1])


def rule_of(margins: Tensor, nodes: int) -> Rule:
    block = _BLOCK_CPU if margins.is_cpu else _BLOCK_DEVICE
    return Rule(nodes or NODES[margins.dtype], _DROP[margins.dtype], block)


def integrate_orthant(margins: Tensor, nodes: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """log P, log(1-P), the smaller of the two, and ∂P/∂margins divided by its exponential."""
    lead = margins.shape[:-1]
    flat = flatten_rows(margins)
    if may_be_calm(flat, nodes) and is_calm(flat.amin(1), flat.shape[1]):
        small, ahead, gradient, _ = integrate_calm(flat, far=False)
        gradient = gradient * (SLOPE * LIFT / small).unsqueeze(1)
        small_log = small.double().log_().sub_(math.log(LIFT))
    else:
        small_log, ahead, gradient = _evaluate(flat, rule_of(flat, nodes))
    other = torch.log1p(-small_log.exp())
    log_p = torch.where(ahead, other, small_log)
    log_q = torch.where(ahead, small_log, other)
    return (
        log_p.reshape(lead),
        log_q.reshape(lead),
        small_log.reshape(lead),
        gradient.reshape(margins.shape).contiguous(),
    )


class Chances(NamedTuple):
    """P or 1-P of some rows, in the margins' dtype, as far as that reaches."""

    small: Tensor  # (…): 1-P where ahead, P elsewhere
    ahead: Tensor  # (…)
    gradient: Tensor  # (…, rivals)
    factor: Tensor | float  # (…): ∂P/∂margins = gradient · factor


def integrate_chances(margins: Tensor, nodes: int) -> Chances:
    """The smaller of P and 1-P itself, where its logarithm is not asked for."""
    flat = flatten_rows(margins)
    factor: Tensor | float
    if may_be_calm(flat, nodes):
        small, ahead, gradient, near = integrate_calm(flat)
        small.mul_(_constant(1 / LIFT, torch.float32, flat.device))
        factor = SLOPE
        if not near:
            there = small >= torch.finfo(torch.float32).tiny  # what underflows is 0
            small.mul_(there)
            factor = there * SLOPE
    else:
        small_log, ahead, gradient = _evaluate(flat, rule_of(flat, nodes))
        small = factor = small_log.exp_().to(margins.dtype)
    if margins.ndim != 2:
        lead = margins.shape[:-1]
        small, ahead = small.view(lead), ahead.view(lead)
        gradient = gradient.reshape(margins.shape)
        factor = factor if isinstance(factor, float) else factor.view(lead)
    return Chances(small, ahead, gradient, factor)
