"""Losses of yes/no labels on a GPU: one read forward, one read and one write backward.

The curves are those of ``ops/binary.py``, of one logit: a mixture of cross entropy and error, and
EXACT. Elements are float32, from a sum in float64; what is given as labels and weights is checked
here too, and makes NaN where it cannot be.
"""

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from expacc.ops.dispatch import PLANS, keep_plan, tried, wants_composed
from expacc.ops.triton.batch import RUN_TIME, finish, is_last, rounded
from expacc.ops.triton.digits import split_exp
from expacc.ops.triton.integral import TO_Y, tail_of
from expacc.ops.triton.launch import Launch, counter_of, no_stream, stream_of

_BLOCK = 1024
_MOST_PROGRAMS = 2048


# ------------------------------------------------------------------------------ the kernels


@triton.jit
def _mixture(z, a, b):
    """(loss of a yes, its slope) at z, and the same at -z."""
    q, power = split_exp(-tl.abs(z))
    small = (1.0 + q) * power
    likely = 1.0 / (1.0 + small)
    ahead = z >= 0
    prob = tl.where(ahead, likely, small * likely)
    error = tl.where(ahead, small * likely, likely)
    # log(1 + small) as twice an inverse hyperbolic tangent of at most 1/3
    s = small / (2.0 + small)
    square = s * s
    series = 1 / 13 + square * (1 / 15 + square * (1 / 17))
    series = 1 / 9 + square * (1 / 11 + square * series)
    series = 1 / 3 + square * (1 / 5 + square * (1 / 7 + square * series))
    log = 2.0 * (s + s * (square * series))
    yes, no = b * error, b * prob
    if a != 0:  # 0 · inf would be NaN
        yes += a * (log + tl.where(ahead, 0.0, -z))
        no += a * (log + tl.where(ahead, z, 0.0))
    return yes, -error * (b * prob + a), no, -prob * (b * error + a)


@triton.jit
def _exact_side(lead, unit, limit, FAST: tl.constexpr):
    """EXACT of a yes and its slope; a lead beyond the limit counts as the limit."""
    moves = (lead > limit) == 0
    y = tl.where(moves, lead, limit) * (
        unit * (1.4142135623730951 * TO_Y)
    )  # from x = 2 unit lead/√2
    density = tl.exp2(-(y * y))
    other = density * tail_of(y, FAST)
    value = tl.where(y > 0, other, 1.0 - other)
    return tl.where(y != y, y, value), tl.where(moves, density * unit * -0.5641895835477563, 0.0)


@triton.jit
def _parts(
    logits, target, weight, pos_weight, place, inside, classes, a, b, has_weight, has_pos_weight,
    EXACT: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """Loss of the elements and its slope."""
    z = tl.load(logits + place, mask=inside, other=0.0).to(tl.float32)
    t = tl.load(target + place, mask=inside, other=0.0).to(tl.float32)
    t = tl.where((t >= 0) & (t <= 1), t, float("nan"))
    yes_part = t
    if has_pos_weight:
        factor = tl.load(pos_weight + place % classes, mask=inside, other=0.0).to(tl.float32)
        yes_part *= tl.where((factor >= 0) & (factor < float("inf")), factor, float("nan"))
    if EXACT:
        yes, yes_slope = _exact_side(z, a, b, FAST)
        no, no_slope = _exact_side(-z, a, b, FAST)
    else:
        yes, yes_slope, no, no_slope = _mixture(z, a, b)
    # A label that is not there contributes 0, not 0 · inf.
    value = tl.where(yes_part == 0, 0.0, yes_part * yes) + tl.where(t == 1, 0.0, (1.0 - t) * no)
    slope = yes_part * yes_slope - (1.0 - t) * no_slope
    if has_weight:
        factor = tl.load(weight + place, mask=inside, other=0.0).to(tl.float32)
        factor = tl.where((factor >= 0) & (factor < float("inf")), factor, float("nan"))
        value *= factor
        slope *= factor
    return value, slope


@triton.jit(do_not_specialize=RUN_TIME)
def binary_forward_kernel(
    logits, target, weight, pos_weight, values, sums, counter,
    a: "fp32", b: "fp32", scale: "fp64",  # noqa: F821
    count, classes, each, has_weight, has_pos_weight, reduction,
    EXACT: tl.constexpr, BLOCK: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """The loss of ``each`` blocks of elements, or its sum."""
    program = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float64)
    first = program.to(tl.int64) * each * BLOCK
    for block in range(each):
        place = first + block * BLOCK + tl.arange(0, BLOCK)
        inside = place < count
        value, _slope = _parts(
            logits, target, weight, pos_weight, place, inside, classes, a, b, has_weight,
            has_pos_weight, EXACT, FAST,
        )  # fmt: skip
        wide = tl.where(inside, value.to(tl.float64) * scale, 0.0)
        if reduction == 0:
            tl.store(values + place, rounded(wide, values), mask=inside)
        total += wide
    if reduction != 0:
        tl.store(sums + program, tl.sum(total, 0))
        if is_last(counter):
            finish(sums, sums, tl.num_programs(0), values, False, False, BLOCK)
            tl.store(counter, 0)


@triton.jit(do_not_specialize=RUN_TIME, do_not_specialize_on_alignment=["upstream"])
def binary_backward_kernel(
    logits, target, weight, pos_weight, upstream, grad,
    a: "fp32", b: "fp32", scale: "fp64",  # noqa: F821
    count, classes, has_weight, has_pos_weight, upstream_stride,
    EXACT: tl.constexpr, BLOCK: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """The slopes of a block times upstream."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    _value, slope = _parts(
        logits, target, weight, pos_weight, place, inside, classes, a, b, has_weight,
        has_pos_weight, EXACT, FAST,
    )  # fmt: skip
    above = tl.load(upstream + place * upstream_stride, mask=inside, other=0.0).to(tl.float64)
    result = slope.to(tl.float64) * (above * scale)
    tl.store(grad + place, rounded(result, grad), mask=inside)


# -------------------------------------------------------------------------- launching them


class _Plan:
    """A loss of one kind of tensors, contiguous; all are examples."""

    def __init__(
        self, tensors: tuple[Tensor, ...], factors: tuple[bool, bool], kind: str,
        summed: bool, scale: float, dtype: torch.dtype,
    ) -> None:  # fmt: skip
        logits = tensors[0]
        self.device = device = logits.device
        self.count = count = logits.numel()
        self.classes = logits.shape[-1] if logits.ndim else 1
        self.stream_of = stream_of if logits.is_cuda else no_stream
        each = -(-count // (_MOST_PROGRAMS * _BLOCK))
        self.programs = -(-count // (each * _BLOCK))
        self.summed = summed
        self.values = torch.empty((), dtype=dtype, device=device)
        self.factors = (int(factors[0]), int(factors[1]))
        self.constants = (kind == "exact", _BLOCK, logits.is_cuda)
        self.scale = scale
        fixed = (scale, count, self.classes, each, *self.factors, int(summed))
        options = {"num_warps": 4}
        self.launch = Launch(
            binary_forward_kernel, self.programs, device, fixed, self.constants, options
        )
        self.backward_launches: dict[tuple[Any, ...], Launch] = {}

    def forward(self, tensors: tuple[Tensor, ...], numbers: tuple[float, float]) -> Any:
        """The loss and nothing for backward, which reads the same again."""
        shape = () if self.summed else tensors[0].shape
        values = torch.empty(shape, dtype=self.values.dtype, device=self.device)
        stream = self.stream_of(self.device.index)
        sums = torch.empty(2 * self.programs, dtype=torch.float64, device=self.device)
        counter = counter_of(self.device, stream)
        self.launch((*tensors, values, sums, counter), numbers)
        return values, None

    def backward(
        self, tensors: tuple[Tensor, ...], numbers: tuple[float, float], _: None, upstream: Tensor
    ) -> Tensor:
        """The gradient by the logits."""
        if upstream.ndim:
            upstream = upstream.contiguous()
        key = (upstream.dtype, upstream.ndim)
        launch = self.backward_launches.get(key)
        if launch is None:
            fixed = (self.scale, self.count, self.classes, *self.factors, min(1, upstream.ndim))
            launch = self.backward_launches[key] = Launch(
                binary_backward_kernel, -(-self.count // _BLOCK), self.device, fixed,
                self.constants, {"num_warps": 4},
            )  # fmt: skip
        grad = torch.empty_like(tensors[0], memory_format=torch.contiguous_format)
        launch((*tensors, upstream, grad), numbers)
        return grad


class _FusedBinary(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, others: tuple[Tensor, ...], plan: _Plan, numbers: Any, again: Any
    ) -> Tensor:
        ctx.save_for_backward(logits, *others)
        ctx.call = plan, numbers, again
        values: Tensor = plan.forward((logits, *others), numbers)[0]
        return values

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        tensors, upstream = ctx.saved_tensors, grad_outputs[0]
        plan, numbers, again = ctx.call
        if wants_composed(upstream):
            twice = torch.is_grad_enabled()
            with torch.enable_grad():
                value = again(tensors[0])
                (grad,) = torch.autograd.grad(value, tensors[0], upstream, create_graph=twice)
        else:
            grad = plan.backward(tensors, numbers, None, upstream)
        return grad, None, None, None, None


# The inherited apply: Function.apply would first look for transforms, and there are none.
_node: Callable[..., Tensor] = super(torch.autograd.Function, _FusedBinary).apply


def fused_binary_loss(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    pos_weight: Tensor | None,
    curve: tuple[str, float, float],
    summed: bool,
    scale: float,
    dtype: torch.dtype,
    again: Callable[[Tensor], Tensor],
) -> Tensor | None:
    """``scale`` times a curve of contiguous tensors on a GPU, or its sum; None if there is none.

    Args:
        logits: float32, bfloat16 or float16, not empty.
        target: of the same shape.
        weight: of the same shape, or None.
        pos_weight: one for each of the last axis, or None.
        curve: its name, and the weights of cross entropy and of the error; or for 'exact', the
            unit of the lead and the largest lead.
        summed: return the sum.
        scale: of every element.
        dtype: of the result.
        again: the same by operations, for those who differentiate twice.
    """
    name, *numbers = curve
    nothing = logits if weight is None else weight
    others = (target, nothing, logits if pos_weight is None else pos_weight)
    tensors = (logits, *others)
    kinds = tuple((t.dtype, t.data_ptr() & 15) for t in tensors)
    factors = (weight is not None, pos_weight is not None)
    key = ("binary", name, logits.shape, logits.device, kinds, factors, summed, scale, dtype)
    plan = PLANS.get(key, ...)
    if plan is ...:
        made = _Plan(tensors, factors, name, summed, scale, dtype)
        given = tuple(t.detach() for t in tensors)
        plan = keep_plan(key, tried(made, True, given, tuple(numbers)))
    if plan is None:
        return None
    return _node(logits, others, plan, tuple(numbers), again)
