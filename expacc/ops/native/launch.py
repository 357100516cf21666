"""A plan's launches as the C++ node takes them (``node.cpp``).

Only once that is built, and after a first step through Python, when every kernel is compiled; and
only for what a training loop does again and again: no class weights, sigma a number, the default
stream, the same kind of upstream gradient. Whatever else comes, the node leaves to Python.
"""

import struct
from collections.abc import Callable
from typing import Any

from torch import Tensor

from expacc.ops.native.build import library
from expacc.ops.triton.exact_plan import ExactPlan
from expacc.ops.triton.launch import DEFAULT_STREAM, Launch, driver_addresses
from expacc.ops.triton.scratch import counter_of
from expacc.ops.triton.softmax_plan import RowsPlan

__all__ = ["native_exact", "native_mixture"]

# In the order of native.cpp.
_SLOTS = ("logits", "target", "values", "rows", "scratch", "dots", "upstream", "gradient")
Fallback = Callable[[Tensor, Tensor, Tensor, float, float], Tensor]
Run = Callable[[Tensor, Tensor, int, str, float, float], Tensor | None]


def native_mixture(
    plan: RowsPlan,
    logits: Tensor,
    target: Tensor,
    upstream: Tensor,
    ignore_index: int,
    reduction: str,
    fallback: Fallback,
) -> Run | bool:
    """A function that does a step of batches like this; False if there is none.

    Args:
        plan: of the batch, after its first backward.
        logits: this and the other tensors are examples.
        target: labels.
        upstream: of the loss.
        ignore_index: as the plan has it.
        reduction: as the plan has it.
        fallback: the gradient by way of Python.
    """
    backward_launch = plan.backward_launches.get((upstream.dtype, upstream.stride(), 0))
    counter: str | Tensor = counter_of(plan.device, DEFAULT_STREAM) if plan.at_once else "scratch"
    nothing = plan.nothing
    tensors: tuple[str | Tensor, ...] = ("logits", "target", nothing, "values", "scratch", counter)
    forward = [_kernel(plan.forward_launch, *tensors)]
    if plan.finish_launch is not None:
        forward.append(_kernel(plan.finish_launch, "scratch", "values"))
    tensors = ("logits", "target", nothing, "upstream", "gradient", "scratch")
    backward = [_kernel(backward_launch, *tensors)]
    return _made(
        (logits, target, plan.values, upstream, ignore_index, reduction),
        (plan.scratch.size, 0, 0),
        False,
        forward,
        backward,
        fallback,
        (nothing, counter),
    )


def native_exact(
    plan: ExactPlan,
    logits: Tensor,
    target: Tensor,
    upstream: Tensor,
    ignore_index: int,
    reduction: str,
    fallback: Fallback,
) -> Run | bool:
    """As ``native_mixture``, of EXACT."""
    dot_launch, backward_launch = plan.backward_launches.get(
        (upstream.dtype, upstream.stride()), (None, None)
    )
    counter: str | Tensor = counter_of(plan.device, DEFAULT_STREAM) if plan.at_once else "scratch"
    nothing = plan.nothing
    forward = []
    if plan.standardize:
        forward.append(_kernel(plan.moments_launch, "logits", "target", "scratch"))
    tensors: tuple[str | Tensor, ...] = ("logits", "target", nothing, nothing, "values", "dots")
    tensors = (*tensors, "rows", "scratch", counter, *plan.table)
    forward.append(_kernel(plan.rows_launch, *tensors))
    if plan.finish_launch is not None:
        forward.append(_kernel(plan.finish_launch, "scratch", "values"))
    backward = []
    if dot_launch is not None:
        backward.append(_kernel(dot_launch, "dots", "upstream", "scratch"))
    noise = () if plan.few else (nothing,)
    tensors = ("logits", "target", nothing, *noise, "upstream", "rows", "gradient", "scratch")
    backward.append(_kernel(backward_launch, *tensors))
    dots = 0 if plan.dots is None else plan.dots.numel()
    return _made(
        (logits, target, plan.values, upstream, ignore_index, reduction),
        (plan.numbers.size, dots, 0 if plan.in_gradient else plan.rows.numel()),
        plan.in_gradient,
        forward,
        backward,
        fallback,
        (nothing, counter, *plan.table),
    )


def _made(
    batch: tuple[Any, ...],
    sizes: tuple[int, int, int],
    in_gradient: bool,
    forward: list[Any],
    backward: list[Any],
    fallback: Fallback,
    keep: tuple[Any, ...],
) -> Run | bool:
    driver = driver_addresses()
    if driver is None or None in forward or None in backward:
        return False
    parts = (sizes, in_gradient, driver, forward, backward, fallback, keep)
    run: Run = library().make(*batch, *parts).run
    return run


def _kernel(launch: Launch | None, *tensors: str | Tensor) -> tuple[Any, ...] | None:
    """A launch with these slots and tensors; the floats follow them in the order of ``run``."""
    compiled = None if launch is None else launch.compiled
    if compiled is None:
        return None
    arguments = []
    for place, (letter, value) in enumerate(compiled.arguments):
        if place < len(tensors):
            tensor = tensors[place]
            slot = isinstance(tensor, str)
            which = _SLOTS.index(tensor) if isinstance(tensor, str) else 0
            address = 0 if isinstance(tensor, str) else tensor.data_ptr()
            arguments.append(("s" if slot else "c", which, address))
        elif place < compiled.changing:
            arguments.append((letter, place - len(tensors), 0))
        else:
            bits = struct.pack("@" + letter, value).ljust(8, b"\0")
            arguments.append(("c", 0, int.from_bytes(bits, "little")))
    return (compiled.function, compiled.programs, compiled.threads, compiled.shared, arguments)
