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
from expacc.registry import SPECS, LossSpec

__all__ = ["FunctionLoss"]

_BUFFERS = ("weight", "pos_weight")
_SHARED = (*_BUFFERS, "ignore_index", "reduction", "label_smoothing")
_UNSAID = ("impl='auto'", "shift=0.0", "scale=1.0")  # where they change nothing


class FunctionLoss(nn.Module):
    """A loss function with its arguments.

    ``params`` names those that are its own, ``shared`` those that others have too.
    """

    spec: ClassVar[LossSpec]
    function: ClassVar[Callable[..., Tensor]]
    params: ClassVar[tuple[str, ...]] = ()
    shared: ClassVar[tuple[str, ...]] = ()

    weight: Tensor | None
    pos_weight: Tensor | None  # and others, of those losses that have them
    impl: Implementation  # where it is one of the parameters
    ignore_index: int
    reduction: Reduction
    label_smoothing: float

    def _store(self, arguments: dict[str, Any]) -> None:
        nn.Module.__init__(self)
        for name, value in arguments.items():
            if name in _BUFFERS:
                self.register_buffer(name, value)
            else:
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
        if self.spec.family == "binary":
            factors = [getattr(self, name) for name in _BUFFERS]
            shapes = [one.shape for one in factors if isinstance(one, Tensor)]
            device = next((one.device for one in factors if isinstance(one, Tensor)), None)
            shape: torch.Size = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
            labels = torch.zeros(shape, device=device)
            self(labels, labels)
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
            **{name: getattr(self, name) for name in (*self.shared, *self.params)},
        )

    def extra_repr(self) -> str:
        """Show the parameters, and the shared arguments that differ from their defaults."""
        shown = [f"{name}={getattr(self, name)!r}" for name in self.params]
        shown = [one for one in shown if one not in _UNSAID]
        if self.spec.family != "binary" and self.weight is not None:
            shown.append(f"weight of {len(self.weight)} classes")
        elif self.spec.family == "binary":
            factors = ((name, getattr(self, name)) for name in _BUFFERS)
            shown += [f"{name} of shape {tuple(f.shape)}" for name, f in factors if f is not None]
        usual = {"ignore_index": -100, "reduction": "mean", "label_smoothing": 0.0}
        for name in self.shared:
            if name in usual and getattr(self, name) != usual[name]:
                shown.append(f"{name}={getattr(self, name)!r}")
        return ", ".join(shown)


def _docstring(spec: LossSpec, text: str) -> str:
    """The function's, less logits and target, with what a Module returns and its own example."""
    text = re.sub(r"\n    logits: .*?(?=\n    weight: )", "", text, count=1, flags=re.S)
    none = ""
    if "\n    reduction: " in text:
        each = "of the logits' shape" if spec.family == "binary" else "one value per row"
        none = f", or {each}\n    for reduction 'none'"
    returns = (
        f"\nReturns:\n    The Module; called with (logits, target) it gives a scalar{none}, as the "
        f"function\n    ``expacc.functional.{spec.function_name}`` does.\n\nRaises:"
    )
    text = re.sub(r"\nReturns:\n.*?\nRaises:", lambda _: returns, text, count=1, flags=re.S)
    target = "torch.ones(2, 3)" if spec.family == "binary" else "torch.tensor([0, 2])"
    example = (
        f"\nExample:\n    >>> loss = {spec.module_name}()\n"
        f"    >>> loss(torch.zeros(2, 3, requires_grad=True), {target}).backward()\n"
        "\nReference:"
    )
    return re.sub(r"\nExample:\n.*?\nReference:", lambda _: example, text, count=1, flags=re.S)


def _module_of(spec: LossSpec, function: Callable[..., Tensor]) -> type[FunctionLoss]:
    arguments = list(inspect.signature(function).parameters.values())[2:]
    signature = inspect.Signature(arguments, return_annotation=None)

    def __init__(self: FunctionLoss, *args: Any, **kwargs: Any) -> None:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError as error:
            takes = ", ".join(signature.parameters)
            got = str(error).removeprefix("got ")
            raise TypeError(f"{spec.module_name} must be made of {takes}; got {got}.") from None
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
        "shared": tuple(one.name for one in arguments if one.name in _SHARED),
    }
    return type(spec.module_name, (FunctionLoss,), body)


for _spec in SPECS.values():
    if _spec.has_module and _spec.function is not None:
        globals()[_spec.module_name] = _module_of(_spec, _spec.function)
        __all__.append(_spec.module_name)

if TYPE_CHECKING:

    def __getattr__(name: str) -> type[FunctionLoss]: ...
