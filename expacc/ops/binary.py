"""Losses of yes/no labels with one logit each.

A loss is a curve over the lead of a label, z for a yes and -z for a no; a soft label t costs
t · f(z) + (1 - t) · f(-z). Written in terms of one sign, in which nothing cancels: 1 - p has its
digits at both ends, in float32 too. Two ways to compute it:

* ``compose_binary_loss``, every test's truth: differentiable operations in float64, under
  torch.compile, torch.func and forward-mode AD, for double backward, and where a target or a weight
  is trained;
* ``eager_binary_loss``: blocks that stay in the cache, slope and value in one pass, in buffers that
  are used again; a small tensor in float64, a large one in its own dtype, where what is below 1e-37
  has no digits and Gaussian tails have five.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from expacc.ops.dispatch import wants_composed
from expacc.ops.log_prob import Formula, apply_formula
from expacc.ops.rivals import compute_dtype, row_dtype

_SMALL_ELEMENTS = 16_384
_BLOCK_ELEMENTS_CPU = 102_400
_BLOCK_ELEMENTS_DEVICE = 2**27
_BUFFERS = 4
_LARGEST_ODDS = {torch.float32: 87.0, torch.float64: 700.0}  # their logarithms

# y, which is used up; buffers for the value, for anything, for the slope in y or None; whether y
# may be beyond all bounds
Block = Callable[[Tensor, Tensor, Tensor, Tensor | None, bool], None]


class BinaryCurve(NamedTuple):
    """A loss of one logit.

    Args:
        yes: the loss of a yes, elementwise and differentiable.
        block: writes value and slope at y = ``unit`` · lead, less their factors; None for a loss
            that is always composed.
        unit, value_factor, slope_factor: plain numbers.
        kernel: 'mixture' and its weights, or 'exact', unit and limit of the lead; None if unknown.
    """

    yes: Callable[[Tensor], Tensor]
    block: Block | None
    unit: float = 1.0
    value_factor: float = 1.0
    slope_factor: float = 1.0
    kernel: tuple[str, float, float] | None = None  # as the GPU's kernels know it


class BinaryPlan(NamedTuple):
    """Everything that is not differentiated: ``scale`` multiplies the sum or every element."""

    curve: BinaryCurve
    scale: float
    summed: bool
    dtype: torch.dtype


# ------------------------------------------------------------------------------------- curves


def mixture_curve(ce_weight: float, error_weight: float, formula: Formula) -> BinaryCurve:
    """``-ce_weight · log p + error_weight · (1 - p)`` with p = sigmoid(z), which is ``formula``."""

    def block(behind: Tensor, found: Tensor, spare: Tensor, out: Tensor | None, wild: bool) -> None:
        error = torch.sigmoid(behind, out=found)
        extra, limit = None, _LARGEST_ODDS[behind.dtype]
        if ce_weight and wild:
            extra = behind.sub(limit).clamp_(min=0)
            behind.clamp_(max=limit)
        p = torch.sigmoid(behind.neg_(), out=spare)
        log = None
        if ce_weight:  # -log p; p itself has no digits left of the error
            log = torch.div(error, p, out=behind).log1p_()
            if extra is not None:
                log.add_(extra)
        if out is not None:
            if error_weight:
                torch.mul(error, p.add_(ratio) if ratio else p, out=out)
            else:
                out.copy_(error)
        if log is not None:
            if error_weight:
                found.add_(log, alpha=ratio)
            else:
                found.copy_(log)

    factor = error_weight or ce_weight
    ratio = ce_weight / factor
    known = ("mixture", ce_weight, error_weight)

    def yes(z: Tensor) -> Tensor:
        return apply_formula(z, formula, is_lead=True)

    return BinaryCurve(yes, block, -1.0, factor, factor, known)


def _hazard(x: Tensor, _: Tensor) -> Tensor:
    """d/dx of -log Φ, where log_ndtr's own is wrong by a factor at x = -1e4."""
    mills: Tensor = torch.special.erfcx(x * -math.sqrt(0.5))
    return -math.sqrt(2 / math.pi) * mills.reciprocal()


def _minus_log_ndtr(x: Tensor) -> Tensor:
    far = x.clamp(max=-1)
    tail = far.square() / 2 - torch.special.erfcx(far * -math.sqrt(0.5)).div(2).log()
    return torch.where(x < -1, tail, -torch.log1p(torch.erfc(x * math.sqrt(0.5)) / -2))


def exact_curve(sigma: float | Tensor, margin: float | None, log: bool) -> BinaryCurve:
    """1 - Φ(min(z, margin)/(sigma √2)), or -log Φ of it: EXACT of the logits (0, z)."""

    def yes(z: Tensor) -> Tensor:
        limits = torch.finfo(z.dtype)  # beyond there is no slope, in sigma either
        lead = z.clamp(limits.min, limits.max if margin is None else margin)
        lead = torch.where(z.isnan(), z, lead)  # which would have no slope
        unit = sigma.to(z.dtype) if isinstance(sigma, Tensor) else sigma
        if log:
            # The loss of -inf is inf: here it is that of the least number, whose square is.
            return apply_formula(lead / (unit * math.sqrt(2)), Formula(_minus_log_ndtr, _hazard))
        return torch.erfc(lead / (unit * 2)) / 2

    if log or isinstance(sigma, Tensor):
        return BinaryCurve(yes, None)
    limit = None if margin is None else margin / (2 * sigma)

    def block(lead: Tensor, found: Tensor, spare: Tensor, out: Tensor | None, wild: bool) -> None:
        if out is not None:
            # Not exp, which torch leaves to MKL: four times as slow where that knows not the CPU.
            torch.mul(lead, lead, out=out).mul_(-1 / math.log(2)).exp2_()
            if limit is not None:  # a lead beyond the margin counts as the margin and has no slope
                out.mul_(torch.le(lead, limit, out=spare))
        if limit is not None:
            lead.clamp_(max=limit)
        torch.erfc(lead, out=found)

    unit = 1 / (2 * sigma)
    known = ("exact", unit, math.inf if margin is None else margin)
    return BinaryCurve(yes, block, unit, 0.5, -1 / math.sqrt(math.pi), known)


# ---------------------------------------------------------------------------------- composed


def compose_binary_loss(
    logits: Tensor, yes: Tensor, no: Tensor, weight: Tensor | None, plan: BinaryPlan
) -> Tensor:
    """``scale · weight · (yes · loss of a yes + no · loss of a no)``, each or their sum."""
    rows = row_dtype(logits.device)
    wide = logits.to(rows)
    # In one call: of a second one torch.compile(dynamic=True) makes an AssertionError.
    values = plan.curve.yes(torch.stack((wide, -wide)))
    parts = torch.stack((yes.to(rows), no.to(rows)))
    # A label that is not there contributes 0, not 0 · inf.
    total = (parts * torch.where((parts == 0) & (values == torch.inf), 0, values)).sum(0)
    if weight is not None:
        total = total * weight.to(rows)
    return ((total.sum() if plan.summed else total) * plan.scale).to(plan.dtype)


# ------------------------------------------------------------------------------- plain eager


def eager_binary_loss(
    logits: Tensor, yes: Tensor, no: Tensor | None, weight: Tensor | None, plan: BinaryPlan
) -> Tensor:
    """The same with one node.

    Args:
        logits: any shape.
        yes: the part of the label that is a yes, of the same shape.
        no: its other part; None where it is 1 - yes.
        weight: of the same shape, or None.
        plan: the rest; its curve has a block.
    """
    if not logits.is_cpu:
        return _node(logits, yes, no, weight, plan, True)
    # Reading a CPU number is cheap.
    for wild in (False, True):
        result = _node(logits, yes, no, weight, plan, wild)
        if math.isfinite((result if plan.summed else result.detach().sum()).item()):
            return result
    # An infinite logit that is right made 0 · inf, or it is what it is.
    return compose_binary_loss(logits, yes, 1 - yes if no is None else no, weight, plan)


def _compute(
    logits: Tensor,
    yes: Tensor,
    no: Tensor | None,
    weight: Tensor | None,
    plan: BinaryPlan,
    wild: bool,
    wants_slope: bool,
) -> tuple[Tensor, Tensor | None]:
    """The loss, and its slope, computed beside it while the block is in the cache."""
    curve, scale, summed, dtype = plan
    on_cpu, count = logits.is_cpu, logits.numel()
    work = torch.float64 if on_cpu and count <= _SMALL_ELEMENTS else compute_dtype(logits.dtype)
    factor, share = weight, yes
    if no is not None:
        # a · f(z) + b · f(-z) = (a + b) · the loss of a soft label a/(a + b)
        whole = torch.add(yes, no).to(work)
        share = torch.where(whole == 0, 0, yes / whole)
        factor = whole if weight is None else whole * weight
    place = logits.device
    slope = torch.empty(count, dtype=work, device=place) if wants_slope else None
    rows = None if summed else torch.empty(count, dtype=dtype, device=place)
    step = min(count, _BLOCK_ELEMENTS_CPU if on_cpu else _BLOCK_ELEMENTS_DEVICE)
    buffers = torch.empty(_BUFFERS, step, dtype=work, device=place).unbind()
    columns = [t.reshape(-1) for t in (logits, share, factor) if t is not None]
    sums = []
    for low in range(0, count, step or 1):
        here = slice(low, low + step)
        z, t, *more = (column[here].to(work) for column in columns)
        size = len(z)
        own = buffers if size == step else [buffer[:size] for buffer in buffers]
        out = None if slope is None else slope[here]
        found = _of_block(z, t, curve, own, out, wild)
        for one in more:
            found.mul_(one)
            if out is not None:
                out.mul_(one)
        if rows is None:
            sums.append(found.sum())
        else:
            rows[here] = found.mul_(curve.value_factor)
    shaped = None if slope is None else slope.view(logits.shape)
    if rows is not None:
        return rows.view(logits.shape), shaped
    scale *= curve.value_factor
    if on_cpu:
        total = math.fsum(one.item() for one in sums)
        return torch.scalar_tensor(total * scale, dtype=dtype), shaped
    return (torch.stack(sums).sum() * scale).to(dtype), shaped


class BinaryLoss(torch.autograd.Function):
    """The loss of a tensor of any size."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        yes: Tensor,
        no: Tensor | None,
        weight: Tensor | None,
        plan: BinaryPlan,
        wild: bool,
    ) -> Tensor:
        ctx.plan, ctx.wild = plan, wild
        ctx.save_for_backward(logits, yes, no, weight)
        found, ctx.slope = _compute(logits, yes, no, weight, plan, wild, ctx.needs_input_grad[0])
        return found

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        logits, yes, no, weight = ctx.saved_tensors
        plan, upstream = ctx.plan, grad_outputs[0]
        if wants_composed(upstream):
            again = torch.is_grad_enabled()
            with torch.enable_grad():
                value = compose_binary_loss(
                    logits, yes, 1 - yes if no is None else no, weight, plan
                )
                (grad,) = torch.autograd.grad(value, logits, upstream, create_graph=again)
        else:
            # The slope becomes the gradient in place; only a second backward makes it again.
            slope, ctx.slope = ctx.slope, None
            if slope is None:
                found = _compute(logits, yes, no, weight, plan, ctx.wild, wants_slope=True)
                slope = cast(Tensor, found[1])  # asked for
            # Not in the upstream's own dtype: a small factor would be lost in float16.
            scale = plan.scale * plan.curve.slope_factor
            quick = plan.summed and upstream.is_cpu
            chain = upstream.item() * scale if quick else upstream.to(slope.dtype) * scale
            grad = slope.mul_(chain).to(logits.dtype)
        return grad, None, None, None, None, None


def _of_block(
    z: Tensor,
    t: Tensor,
    curve: BinaryCurve,
    buffers: Sequence[Tensor],
    out: Tensor | None,
    wild: bool,
) -> Tensor:
    """The value, less its factor; ``out`` becomes the slope, less its factor."""
    side, y, found, spare = buffers
    unit, block = curve.unit, cast(Block, curve.block)  # callers looked
    torch.sub(-unit, t, alpha=-2 * unit, out=side)  # the unit, negative for a no
    if z.is_cpu and torch.frac(t, out=spare).amax().item() == 0:
        block(torch.mul(z, side, out=y), found, spare, out, wild)  # no label is soft
        if out is not None:
            out.mul_(side)
        return found
    parts = []
    for sign in (-unit, unit):
        slope = None if out is None else torch.empty_like(z)
        value = torch.empty_like(z)
        block(z * sign, value, spare, slope, wild)
        parts.append((value, slope))
    (no, no_slope), (yes, yes_slope) = parts
    if not z.is_cpu:  # where 0 · inf goes unnoticed
        no, yes = torch.where(t == 1, yes, no), torch.where(t == 0, no, yes)
    if out is not None and no_slope is not None and yes_slope is not None:
        torch.lerp(no_slope.mul_(-unit), yes_slope.mul_(unit), t, out=out)
    return torch.lerp(no, yes, t, out=found)


# The inherited apply: Function.apply would first look for transforms, and there are none.
_node: Callable[..., Tensor] = super(torch.autograd.Function, BinaryLoss).apply
