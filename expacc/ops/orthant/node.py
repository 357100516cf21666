"""The orthant integral as a node of autograd: eager, compiled, and under torch.func."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from expacc.ops.dispatch import is_plain_eager
from expacc.ops.orthant.integral import integrate_chances, integrate_orthant

__all__ = ["orthant", "orthant_chance", "orthant_logs"]


def _chain(saved: tuple[Tensor, ...], d_log_p: Tensor | None, d_log_q: Tensor | None) -> Tensor:
    """The gradient of the margins from those of log P and log(1-P)."""
    log_p, log_q, small_log, gradient = saved
    # ∂log P = gradient · e^{small - log P}, ∂log(1-P) = -gradient · e^{small - log(1-P)}: one of
    # the two exponentials is exactly 1, and nothing under- or overflows.
    factor = torch.zeros_like(small_log)
    if d_log_p is not None:
        lost = log_p == -torch.inf  # a rival infinitely far ahead: the gradient is 0
        factor = d_log_p * torch.where(lost, 0, small_log - log_p).exp()
    if d_log_q is not None:
        certain = log_q == -torch.inf  # all rivals absent: the gradient is 0
        factor = factor - d_log_q * torch.where(certain, 0, small_log - log_q).exp()
    return gradient * factor.to(gradient.dtype).unsqueeze(-1)


_TWICE = (
    "orthant_prob must not be differentiated twice; got a double backward. Its gradient is "
    "computed together with its value, and has none of its own."
)


@torch.library.custom_op("expacc::orthant", mutates_args=())
def orthant(margins: Tensor, nodes: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``integrate_orthant`` as an operation of its own: torch.compile sees one node."""
    return integrate_orthant(margins, nodes)


@orthant.register_fake
def _(margins: Tensor, nodes: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    row = margins.new_empty(margins.shape[:-1], dtype=torch.float64)
    return row, torch.empty_like(row), torch.empty_like(row), margins.new_empty(margins.shape)


class _RefuseTwice(torch.autograd.Function):
    """A gradient, tied to its source by a node that refuses to be differentiated."""

    generate_vmap_rule = True

    @staticmethod
    def forward(gradient: Tensor, source: Tensor, sentence: str) -> Tensor:
        return gradient.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.sentence = inputs[2]

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        raise RuntimeError(ctx.sentence)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise RuntimeError(ctx.sentence)


def refuse_twice(gradient: Tensor, source: Tensor, sentence: str) -> Tensor:
    """The gradient by ``source``, which says this to whoever differentiates it again."""
    result: Tensor = _RefuseTwice.apply(gradient, source, sentence)  # type: ignore[no-untyped-call]
    return result


def in_front(info: Any, in_dims: Sequence[int | None], *tensors: Tensor) -> list[Tensor]:
    """The tensors of a rule for vmap, the batch first, also of those that have none."""
    return [
        tensor.expand(info.batch_size, *tensor.shape) if axis is None else tensor.movedim(axis, 0)
        for tensor, axis in zip(tensors, in_dims, strict=False)
    ]


def _gradient(margins: Tensor, saved: tuple[Tensor, ...], d_log_p: Any, d_log_q: Any) -> Tensor:
    if torch.compiler.is_compiling():  # which supports no double backward, and says so
        return _chain(saved, d_log_p, d_log_q)
    with torch.no_grad():
        gradient = _chain(saved, d_log_p, d_log_q)
    if torch.is_grad_enabled():
        gradient = refuse_twice(gradient, margins, _TWICE)
    return gradient


class _TracedOrthant(torch.autograd.Function):
    """For torch.compile and torch.func."""

    @staticmethod
    def forward(margins: Tensor, nodes: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return orthant(margins, nodes)  # type: ignore[no-any-return]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output[2], output[3])
        ctx.save_for_backward(inputs[0], *output)

    @staticmethod
    def backward(ctx: Any, d_log_p: Any, d_log_q: Any, *_: Any) -> tuple[Tensor, None]:
        margins, *saved = ctx.saved_tensors
        return _gradient(margins, tuple(saved), d_log_p, d_log_q), None

    @staticmethod
    def vmap(info: Any, in_dims: Any, margins: Tensor, nodes: int) -> Any:
        return _traced_orthant(margins.movedim(in_dims[0], 0), nodes), (0, 0, 0, 0)


class _TracedOrthantBothModes(_TracedOrthant):
    """The same with forward-mode AD, which torch.compile refuses to see defined."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _TracedOrthant.setup_context(ctx, inputs, output)
        ctx.save_for_forward(*output)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: Any) -> Any:
        saved = ctx.saved_tensors
        one = torch.ones_like(saved[0])
        along = ((tangent * _chain(saved, *ends)).sum(-1) for ends in ((one, None), (None, one)))
        return *along, None, None


def _traced_orthant(margins: Tensor, nodes: int) -> tuple[Tensor, ...]:
    node = _TracedOrthant if torch.compiler.is_compiling() else _TracedOrthantBothModes
    result: tuple[Tensor, ...] = node.apply(margins, nodes)  # type: ignore[no-untyped-call]
    return result


class _EagerOrthant(torch.autograd.Function):
    """For plain eager use, where looking for transforms would cost more than the integral."""

    @staticmethod
    def forward(ctx: Any, margins: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        outputs = integrate_orthant(margins, nodes)
        ctx.save_for_backward(margins, *outputs)
        return outputs[0], outputs[1]

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor | None) -> tuple[Tensor, None]:
        margins, *saved = ctx.saved_tensors
        return _gradient(margins, tuple(saved), *grad_outputs), None


class _EagerChance(torch.autograd.Function):
    """P or 1-P itself, for plain eager use: what training needs, in few operations."""

    @staticmethod
    def forward(ctx: Any, margins: Tensor, nodes: int, error: bool, dtype: torch.dtype) -> Tensor:
        small, ahead, gradient, factor = integrate_chances(margins, nodes)
        ctx.save_for_backward(margins, gradient)
        ctx.factor = -factor if error else factor
        large = torch.rsub(small, 1)
        value = torch.where(ahead, small, large) if error else torch.where(ahead, large, small)
        return value if value.dtype == dtype else value.to(dtype)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None, None, None]:
        margins, gradient = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph
            with torch.no_grad():
                result = _scale(gradient, grad_outputs[0], ctx.factor)
            result = refuse_twice(result, margins, _TWICE)
        else:
            result = _scale(gradient, grad_outputs[0], ctx.factor)
        return result, None, None, None


def _scale(gradient: Tensor, upstream: Tensor, factor: Tensor | float) -> Tensor:
    slope = upstream * factor
    if slope.dtype != gradient.dtype:
        slope = slope.to(gradient.dtype)
    return gradient * slope.unsqueeze(-1)


# The inherited apply: Function.apply would first look for transforms, and there are none.
_eager_logs: Callable[..., tuple[Tensor, Tensor]]
_eager_logs = super(torch.autograd.Function, _EagerOrthant).apply
_eager_chance: Callable[..., Tensor] = super(torch.autograd.Function, _EagerChance).apply


def orthant_logs(margins: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """log P and log(1-P), (…), float64, of margins (…, R), float32 or float64.

    Args:
        margins: +inf is an absent rival.
        nodes: of the quadrature; 0 for the dtype's own.
    """
    if is_plain_eager():
        return _eager_logs(margins, nodes)
    log_p, log_q, *_ = _traced_orthant(margins, nodes)
    return log_p, log_q


def orthant_chance(margins: Tensor, nodes: int, *, error: bool, dtype: torch.dtype) -> Tensor:
    """P, or 1-P with all its digits if ``error``; cheaper than by its logarithm.

    Args:
        margins: as for ``orthant_logs``.
        nodes: as for ``orthant_logs``.
        error: 1-P instead of P.
        dtype: of the result; what underflows in the margins' own is 0.
    """
    if is_plain_eager():
        return _eager_chance(margins, nodes, error, dtype)
    log_p, log_q = orthant_logs(margins, nodes)  # an index that is a bool would not compile
    return (log_q if error else log_p).exp().to(dtype)
