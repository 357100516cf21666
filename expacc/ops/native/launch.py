"""A plan's launches as the C++ node takes them (``node.cpp``).

Only once that is built, and after a first step through Python, when every kernel is compiled; and
only for what a training loop does again and again: no class weights, sigma a number, the default
stream, the same kind of upstream gradient. Whatever else comes, the node leaves to Python.
"""

import struct
from collections.abc import Callable
from typing import Any

from torch import Tensor

from expacc.ops import dispatch
from expacc.ops.triton.exact_plan import ExactPlan
from expacc.ops.triton.launch import DEFAULT_STREAM, Launch, counter_of, driver_addresses
from expacc.ops.triton.softmax import RowsPlan

# In the order of node.cpp.
_SLOTS = ("logits", "target", "values", "rows", "scratch", "dots", "upstream", "gradient")


def native_step(
    plan: RowsPlan | ExactPlan,
    logits: Tensor,
    target: Tensor,
    upstream: Tensor,
    ignore_index: int,
    reduction: str,
    fallback: Callable[..., Tensor],
) -> Any:
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
    counter: str | Tensor = counter_of(plan.device, DEFAULT_STREAM) if plan.at_once else "scratch"
    describe = _mixture if isinstance(plan, RowsPlan) else _exact
    sizes, in_gradient, forward, backward, tensors = describe(plan, upstream, counter)
    if plan.finish_launch is not None:
        forward.append(_kernel(plan.finish_launch, "scratch", "values"))
    driver = driver_addresses()
    if driver is None or None in forward or None in backward:
        return False
    batch = (logits, target, plan.values, upstream, ignore_index, reduction)
    keep = (plan.nothing, counter, *tensors)
    parts = (sizes, in_gradient, driver, forward, backward, fallback, keep)
    return dispatch.native_library.make(*batch, *parts).run


def _mixture(plan: Any, upstream: Tensor, counter: str | Tensor) -> tuple[Any, ...]:
    """Sizes of scratch, dots and rows, is the last in the gradient, kernels, tensors to keep."""
    launch = plan.backward_launches.get((upstream.dtype, upstream.stride(), 0))
    given = ("logits", "target", plan.nothing)
    forward = [_kernel(plan.forward_launch, *given, "values", "scratch", counter)]
    backward = [_kernel(launch, *given, "upstream", "gradient", "scratch")]
    return (plan.scratch.size, 0, 0), False, forward, backward, ()


def _exact(plan: Any, upstream: Tensor, counter: str | Tensor) -> tuple[Any, ...]:
    key = (upstream.dtype, upstream.stride())
    dot_launch, launch = plan.backward_launches.get(key, (None, None))
    given, nothing = ("logits", "target", plan.nothing), plan.nothing
    forward, backward = [], []
    if plan.standardize:
        forward.append(_kernel(plan.moments_launch, "logits", "target", "scratch"))
    rest = ("values", "dots", "rows", "scratch", counter, *plan.table)
    forward.append(_kernel(plan.rows_launch, *given, nothing, *rest))
    if dot_launch is not None:
        backward.append(_kernel(dot_launch, "dots", "upstream", "scratch"))
    noise = () if plan.few else (nothing,)
    backward.append(_kernel(launch, *given, *noise, "upstream", "rows", "gradient", "scratch"))
    dots = 0 if plan.dots is None else plan.dots.numel()
    sizes = (plan.numbers.size, dots, 0 if plan.in_gradient else plan.rows.numel())
    return sizes, plan.in_gradient, forward, backward, plan.table


def _kernel(launch: Launch | None, *tensors: str | Tensor) -> tuple[Any, ...] | None:
    """A launch with these slots and tensors; the floats follow them in the order of ``run``."""
    compiled = None if launch is None else launch.compiled()
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
