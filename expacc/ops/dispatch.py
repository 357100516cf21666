"""How we are being run, which batches are for Triton, and what is known of batches seen before.

Most calls are like the one before: its plan is found by comparing, in a microsecond; others' in a
dictionary.
"""

import contextlib
import importlib.util
import warnings
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

CLASS_AXIS = 1
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_ORDINARY = (Tensor, torch.nn.Parameter)
REDUCTIONS = {"none": 0, "sum": 1, "mean": 2}  # as the kernels know them


class Spec(NamedTuple):
    """Which loss of the kernels: ``factor`` times a curve, moved; and a share of the classes' sum.

    Attributes:
        curve: its name among ``CURVES``; its two numbers are each launch's.
        factor: of the curve.
        shift: added to the lead log p/(1-p).
        scale: factor > 0 of the lead.
        share: of log p(target) / Σ log p_j.
        smoothing: the part of a label that is spread evenly.
    """

    curve: str = "mixture"
    factor: float = 1.0
    shift: float = 0.0
    scale: float = 1.0
    share: float = 0.0
    smoothing: float = 0.0

    def moves(self) -> bool:
        """Is p another than the softmax's?"""
        return self.shift != 0 or self.scale != 1


PLAIN = Spec()
Implementation = Literal["auto", "reference", "triton"]
IMPLEMENTATIONS = ("auto", "reference", "triton")
_MOST_ROWS = 2**31 - 1  # of a launch
# What the kernels know as curves over log p; a ``Formula`` says which it is, if any.
CURVES = (
    *("mixture", "focal", "generalized", "tamed", "huberized", "jensen-shannon", "taylor"),
    *("asymmetric", "unhinged", "exponential"),
)

# Whether 'auto' takes a family's kernels where it can, or only 'triton' does. All of the tests in
# tests/gpu have passed on a GPU: see docs/kernels.md.
BY_DEFAULT = {"mixture": True, "exact": True, "soft exact": True}

# The C++ node, once ``build_native`` was called.
native_library: Any = None

HAS_TRITON = importlib.util.find_spec("triton") is not None  # looked for, not imported


def is_plain_eager() -> bool:
    """True when nothing traces or transforms us: values may be read, one fused node may be used."""
    return (
        not torch.compiler.is_compiling()
        and torch._C._functorch.maybe_current_level() is None  # vmap, grad, jvp …
        and forward_ad._current_level < 0
    )


def wants_composed(upstream: Tensor) -> bool:
    """In backward: is a graph of the gradient wanted, or are these many upstreams as one?

    ``is_grads_batched`` has a vmap of its own, older than torch.func's.
    """
    return (
        torch.is_grad_enabled()
        or torch._C._functorch.is_legacy_batchedtensor(upstream)
        or not is_plain_eager()
    )


def triton_error(logits: Tensor, needs: str = "") -> ValueError:
    """Why 'triton' is impossible; ``needs`` is what else this loss must be for its kernels."""
    if not logits.is_cuda:
        reason = f"needs a CUDA tensor; logits are on {logits.device.type}"
    elif not HAS_TRITON:
        reason = "needs Triton, which is not installed"
    elif logits.dtype not in DTYPES:
        reason = f"needs float32, bfloat16 or float16; logits are {logits.dtype}"
    elif logits.ndim < 2 or logits.numel() == 0:
        reason = f"needs logits (N, C, …); got shape {tuple(logits.shape)}"
    else:
        labels = needs or " or probabilities without a gradient, and weights of none"
        reason = f"needs int64 labels{labels}; got something else"
    return ValueError(f"impl='triton' {reason}. Use impl='auto'.")


def supports_triton(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    impl: str,
    family: str,
) -> bool:
    """Is this an ordinary batch of labels on a GPU, with nothing in it that must be refused?

    Looks at types, shapes and devices, never at values; whatever is unusual goes the general way,
    which knows the sentences.
    """
    return (
        (impl == "triton" or (impl == "auto" and BY_DEFAULT[family]))
        and is_plain_batch(logits, target)
        and logits.ndim > 1
        and logits.dtype in DTYPES
        and logits.numel() > 0
        and logits.numel() // logits.shape[CLASS_AXIS] < _MOST_ROWS
        and _is_plain_target(target, logits, ignore_index, family)
        and target.device == logits.device
        and reduction in REDUCTIONS
        and type(ignore_index) is int
        and (weight is None or _is_plain_weight(weight, logits))
        and HAS_TRITON
    )


def _is_plain_target(target: Tensor, logits: Tensor, ignore_index: int, family: str) -> bool:
    """Labels, or for the curves probabilities that nobody trains."""
    if target.dtype == torch.int64:
        return target.shape == logits.shape[:1] + logits.shape[2:]
    return (
        family != "exact"
        and target.is_floating_point()
        and target.shape == logits.shape
        and not target.requires_grad
        and ignore_index < 0
    )


def _is_plain_weight(weight: Tensor, logits: Tensor) -> bool:
    return (
        type(weight) in _ORDINARY
        and weight.is_floating_point()
        and weight.shape == logits.shape[1:2]
        and weight.device == logits.device
        and weight.is_contiguous()
        and not weight.requires_grad
    )


def result_dtype(logits: Tensor) -> torch.dtype:
    """Torch's convention: the logits' dtype, but float32 for half precision under autocast."""
    if logits.dtype != torch.float32 and torch.is_autocast_enabled("cuda"):
        return torch.float32
    return logits.dtype


def is_plain_batch(logits: Tensor, target: Tensor) -> bool:
    """Are these ordinary tensors, the logits on a GPU, with nothing tracing or transforming us?"""
    return (
        type(logits) in _ORDINARY
        and logits.is_cuda
        and type(target) in _ORDINARY
        and is_plain_eager()
    )


def kind_of(
    logits: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str
) -> tuple[Any, ...] | None:
    """Everything about a batch on a GPU that a plan depends on, or that forbids one.

    None if there can be no plan.
    """
    if type(ignore_index) is not int or type(reduction) is not str:
        return None
    place = logits.data_ptr() | target.data_ptr()
    weight_kind = None
    if weight is not None:
        place |= weight.data_ptr()
        layout = weight.shape, weight.stride(), weight.device, weight.requires_grad
        weight_kind = type(weight), weight.dtype, *layout
    dtype = logits.dtype
    return (
        dtype,
        dtype is not torch.float32 and torch.is_autocast_enabled("cuda"),
        logits.shape,
        logits.stride(),
        logits.device,
        target.dtype,
        target.shape,
        target.stride(),
        target.device,
        weight_kind,
        ignore_index,
        reduction,
        place & 15,  # what can be read at once
    )


class Last:
    """The last batch's plan, if it had no weight: a quicker look than one into a dictionary."""

    __slots__ = ("batch", "kind", "label", "more", "plan")

    def __init__(self, plan: Any, kind: tuple[Any, ...], more: tuple[Any, ...]) -> None:
        dtype, autocast, shape, stride, device, self.label, rows, step, _, _, *rest = kind
        self.plan = plan
        self.batch = (dtype, shape, stride, device.index, rows, step)
        self.kind = (autocast, *rest)
        self.more = more

    def fits(
        self,
        logits: Tensor,
        target: Tensor,
        ignore_index: int,
        reduction: str,
        more: tuple[Any, ...],
    ) -> bool:
        """Is this batch, without a weight, of the same kind, by ``kind_of``'s questions?"""
        dtype, shape, stride, device, rows, step = self.batch
        autocast, ignored, reduced, place = self.kind
        return (
            logits.shape == shape
            and more == self.more
            and logits.dtype is dtype
            and target.dtype is self.label
            and logits.get_device() == device
            and target.get_device() == device
            and target.shape == rows
            and logits.stride() == stride
            and target.stride() == step
            and reduction == reduced
            and ignore_index == ignored
            and type(ignore_index) is int
            and (logits.data_ptr() | target.data_ptr()) & 15 == place
            and (dtype is torch.float32 or autocast == torch.is_autocast_enabled("cuda"))
        )


# A kind of batch, and what the kernels do with it: nothing where that is None. A family's name
# stands for its last batch.
PLANS: dict[Any, Any] = {}
_MOST_PLANS = 128
MISSING = object()


def keep_plan(kind: tuple[Any, ...], plan: Any) -> Any:
    """Keep the plan of a kind of batch, and return it."""
    if len(PLANS) >= _MOST_PLANS:
        PLANS.clear()
    PLANS[kind] = plan
    return plan


def note_last(family: str, plan: Any, kind: tuple[Any, ...], more: tuple[Any, ...]) -> None:
    """Keep the plan of a batch without a weight as its family's last."""
    if kind[9] is None:
        PLANS[family] = Last(plan, kind, more)


def tried(plan: Any, gradient: bool, *arguments: Any) -> Any:
    """The plan, if a first launch forward and one backward succeed; else None, and a remark why.

    Triton needs a C compiler and knows not every GPU: a loss that nobody asked for kernels must not
    fail for that, nor a program that takes warnings for errors.
    """
    values = None
    try:
        values, saved = plan.forward(*arguments)
        if gradient:
            plan.backward(*arguments, saved, torch.ones_like(values))
    except torch.OutOfMemoryError:
        if values is None:
            raise  # else there is no room for a gradient that perhaps nobody wants
    except Exception as error:
        remark = f"expacc's Triton kernels do not run here, plain torch is used: {error!r:.200}"
        with contextlib.suppress(RuntimeWarning):
            warnings.warn(remark, RuntimeWarning, stacklevel=2)
        return None
    return plan
