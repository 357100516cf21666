"""One Module per loss of ``expacc.registry``: stores the arguments, calls the function.

Every argument is an attribute that may be read and changed at any time (``loss.leak = 0.2``);
``ScheduledLoss`` does just that. Bad arguments are refused when the Module is made. Signatures and
docstrings are those of the functions; ``expacc/__init__.pyi`` has them for type checkers.
"""

import inspect
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from expacc.contract import Reduction, legal_values
from expacc.ops import Implementation
from expacc.registry import REFERENCE, SPECS, LossSpec

__all__ = ["FunctionLoss"]

_SHARED = ("weight", "ignore_index", "reduction", "label_smoothing")
_UNSAID = ("impl='auto'", "shift=0.0", "scale=1.0")  # where they change nothing


class FunctionLoss(nn.Module):
    """A loss function with its arguments; ``params`` names those that are its own."""

    spec: ClassVar[LossSpec]
    function: ClassVar[Callable[..., Tensor]]
    params: ClassVar[tuple[str, ...]] = ()

    weight: Tensor | None
    impl: Implementation  # where it is one of the parameters
    ignore_index: int
    reduction: Reduction
    label_smoothing: float

    def _store(self, arguments: dict[str, Any]) -> None:
        nn.Module.__init__(self)
        self.register_buffer("weight", arguments.pop("weight"))
        for name, value in arguments.items():
            setattr(self, name, value)
        self._refuse_bad_arguments()

    def _refuse_bad_arguments(self) -> None:
        """Evaluate one row, so that a bad argument fails here and not at the first batch."""
        for name in self.params:
            value = getattr(self, name)
            # One number per row or class fits the batches to come, not the one row tried here.
            if isinstance(value, Tensor) and value.ndim > 0:
                if value.is_floating_point():
                    legal_values(name, value, low=0, open_low=True)
                return
        classes = len(self.weight) if isinstance(self.weight, Tensor) and self.weight.ndim else 1
        device = self.weight.device if isinstance(self.weight, Tensor) else None
        row = torch.zeros(1, classes, device=device)
        impl = getattr(self, "impl", None)
        if impl == "triton":  # whose kernels would refuse a row on the CPU
            self.impl = "auto"
        self(row, torch.zeros(1, dtype=torch.int64, device=device))
        if impl == "triton":
            self.impl = impl

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Compute the loss of ``logits`` and ``target``, as the function of the same name."""
        return type(self).function(
            logits,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            **{name: getattr(self, name) for name in self.params},
        )

    def extra_repr(self) -> str:
        """Show the parameters, and the shared arguments that differ from their defaults."""
        shown = [f"{name}={getattr(self, name)!r}" for name in self.params]
        shown = [one for one in shown if one not in _UNSAID]
        if self.weight is not None:
            shown.append(f"weight of {len(self.weight)} classes")
        if self.ignore_index != -100:
            shown.append(f"ignore_index={self.ignore_index}")
        if self.reduction != "mean":
            shown.append(f"reduction={self.reduction!r}")
        if self.label_smoothing:
            shown.append(f"label_smoothing={self.label_smoothing}")
        return ", ".join(shown)


def _docstring(spec: LossSpec, text: str) -> str:
    """The function's, less logits and target, with what a Module returns and its own example."""
    text = re.sub(r"\n    logits: .*?(?=\n    weight: )", "", text, count=1, flags=re.S)
    returns = (
        "\nReturns:\n    The Module; called with (logits, target) it gives a scalar, or one value "
        "per row for\n    reduction 'none', as the function "
        f"``expacc.functional.{spec.function_name}`` does.\n\nRaises:"
    )
    text = re.sub(r"\nReturns:\n.*?\nRaises:", lambda _: returns, text, count=1, flags=re.S)
    example = (
        f"\nExample:\n    >>> loss = {spec.module_name}()\n"
        "    >>> loss(torch.zeros(2, 3, requires_grad=True), torch.tensor([0, 2])).backward()\n"
        "\nReference:"
    )
    return re.sub(r"\nExample:\n.*?\nReference:", lambda _: example, text, count=1, flags=re.S)


def _module_of(spec: LossSpec, function: Callable[..., Tensor]) -> type[FunctionLoss]:
    arguments = list(inspect.signature(function).parameters.values())[2:]
    signature = inspect.Signature(arguments, return_annotation=None)

    def __init__(self: FunctionLoss, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        self._store(given.arguments)

    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    shown = signature.replace(parameters=[own, *arguments])
    setattr(__init__, "__signature__", shown)  # noqa: B010 - what help() and configurators read
    body = {
        "__doc__": _docstring(spec, inspect.getdoc(function) or ""),
        "__module__": __name__,
        "__init__": __init__,
        "spec": spec,
        "function": staticmethod(function),
        "params": tuple(one.name for one in arguments if one.name not in _SHARED),
    }
    return type(spec.module_name, (FunctionLoss,), body)


for _spec in SPECS.values():
    if not _spec.needs and _spec.name != REFERENCE and _spec.function is not None:
        globals()[_spec.module_name] = _module_of(_spec, _spec.function)
        __all__.append(_spec.module_name)

if TYPE_CHECKING:

    def __getattr__(name: str) -> type[FunctionLoss]: ...
