"""One Module per function of ``functional`` and ``baselines``: stores the arguments, calls it.

Every argument is an attribute that may be read and changed at any time (``loss.leak = 0.2``);
``ScheduledLoss`` does just that. Bad arguments are refused when the Module is made.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from expacc import baselines, functional
from expacc.contract import Reduction, legal_values
from expacc.functional.exact import Implementation, Standardize
from expacc.ops.orthant.noise import NoiseName

__all__ = [
    "ComplementEntropyLoss",
    "ExactLoss",
    "ExpectedErrorLoss",
    "FocalLoss",
    "GeneralizedCrossEntropyLoss",
    "HingeLoss",
    "LeakyExpectedErrorLoss",
    "MaximumProbabilityCrossEntropyLoss",
    "MeanAbsoluteErrorLoss",
    "MixedExpectedErrorLoss",
    "Poly1CrossEntropyLoss",
    "TamedCrossEntropyLoss",
]


class _FunctionLoss(nn.Module):
    """A loss function with its arguments; ``numbers`` names those that are its own."""

    function: ClassVar[Callable[..., Tensor]]
    numbers: ClassVar[tuple[str, ...]] = ()

    weight: Tensor | None
    impl: Implementation  # where it is one of the numbers

    def __init__(
        self,
        weight: Tensor | None,
        ignore_index: int,
        reduction: Reduction,
        label_smoothing: float,
        **numbers: Any,
    ) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.reduction: Reduction = reduction
        self.label_smoothing = label_smoothing
        for name, value in numbers.items():
            setattr(self, name, value)
        self._refuse_bad_arguments()

    def _refuse_bad_arguments(self) -> None:
        """Evaluate one row, so that a bad argument fails here and not at the first batch."""
        classes = len(self.weight) if isinstance(self.weight, Tensor) and self.weight.ndim else 1
        device = self.weight.device if isinstance(self.weight, Tensor) else None
        row = torch.zeros(1, classes, device=device)
        asked = {"impl": self.impl} if "impl" in self.numbers else {}
        if asked.get("impl") == "triton":  # whose kernels would refuse a row on the CPU
            self.impl = "auto"
        self(row, torch.zeros(1, dtype=torch.int64, device=device))
        for name, value in asked.items():
            setattr(self, name, value)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Compute the loss of ``logits`` and ``target``, as the function of the same name."""
        return type(self).function(
            logits,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            **{name: getattr(self, name) for name in self.numbers},
        )

    def extra_repr(self) -> str:
        """Show the numbers, and the shared arguments that differ from their defaults."""
        shown = [f"{name}={getattr(self, name)!r}" for name in self.numbers]
        shown = [one for one in shown if one != "impl='auto'"]
        if self.weight is not None:
            shown.append(f"weight of {len(self.weight)} classes")
        if self.ignore_index != -100:
            shown.append(f"ignore_index={self.ignore_index}")
        if self.reduction != "mean":
            shown.append(f"reduction={self.reduction!r}")
        if self.label_smoothing:
            shown.append(f"label_smoothing={self.label_smoothing}")
        return ", ".join(shown)


class ExpectedErrorLoss(_FunctionLoss):
    """Module of :func:`expacc.functional.expected_error`, with the same arguments."""

    function = staticmethod(functional.expected_error)
    numbers = ("impl",)

    def __init__(
        self,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        impl: Implementation = "auto",
    ) -> None:
        super().__init__(weight, ignore_index, reduction, label_smoothing, impl=impl)


class LeakyExpectedErrorLoss(_FunctionLoss):
    """Module of :func:`expacc.functional.leaky_expected_error`, with the same arguments."""

    function = staticmethod(functional.leaky_expected_error)
    numbers = ("leak", "impl")

    leak: float

    def __init__(
        self,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        leak: float = 0.1,
        impl: Implementation = "auto",
    ) -> None:
        super().__init__(weight, ignore_index, reduction, label_smoothing, leak=leak, impl=impl)


class MixedExpectedErrorLoss(_FunctionLoss):
    """Module of :func:`expacc.functional.mixed_expected_error`, with the same arguments."""

    function = staticmethod(functional.mixed_expected_error)
    numbers = ("focus", "ce_weight", "error_weight", "impl")

    focus: float
    ce_weight: float | None
    error_weight: float | None

    def __init__(
        self,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        focus: float = 0.0,
        ce_weight: float | None = None,
        error_weight: float | None = None,
        impl: Implementation = "auto",
    ) -> None:
        super().__init__(
            weight,
            ignore_index,
            reduction,
            label_smoothing,
            focus=focus,
            ce_weight=ce_weight,
            error_weight=error_weight,
            impl=impl,
        )


class HingeLoss(_FunctionLoss):
    """Module of :func:`expacc.baselines.hinge`, with the same arguments."""

    function = staticmethod(baselines.hinge)
    numbers = ("margin",)

    margin: float

    def __init__(
        self,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        margin: float = 1.0,
    ) -> None:
        super().__init__(weight, ignore_index, reduction, label_smoothing, margin=margin)


class FocalLoss(_FunctionLoss):
    """Module of :func:`expacc.baselines.focal`, with the same arguments."""

    function = staticmethod(baselines.focal)
    numbers = ("gamma", "alpha")

    gamma: float
    alpha: float | None

    def __init__(
        self,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        gamma: float = 2.0,
        alpha: float | None = 0.25,
    ) -> None:
        super().__init__(weight, ignore_index, reduction, label_smoothing, gamma=gamma, alpha=alpha)


class MeanAbsoluteErrorLoss(_FunctionLoss):
    """Module of :func:`expacc.baselines.mean_absolute_error`, with the same arguments."""

    function = staticmethod(baselines.mean_absolute_error)

    def __init__(
        self,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, ignore_index, reduction, label_smoothing)


class GeneralizedCrossEntropyLoss(_FunctionLoss):
    """Module of :func:`expacc.baselines.generalized_cross_entropy`, with the same arguments."""

    function = staticmethod(baselines.generalized_cross_entropy)
    numbers = ("q", "truncation")

    q: float
    truncation: float | None

    def __init__(
        self,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        q: float = 0.7,
        truncation: float | None = None,
    ) -> None:
        super().__init__(
            weight, ignore_index, reduction, label_smoothing, q=q, truncation=truncation
        )


class TamedCrossEntropyLoss(_FunctionLoss):
    """Module of :func:`expacc.baselines.tamed_cross_entropy`, with the same arguments."""

    function = staticmethod(baselines.tamed_cross_entropy)
    numbers = ("taming",)

    taming: float

    def __init__(
        self,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        taming: float = 0.8,
    ) -> None:
        super().__init__(weight, ignore_index, reduction, label_smoothing, taming=taming)


class ComplementEntropyLoss(_FunctionLoss):
    """Module of :func:`expacc.baselines.complement_entropy`, with the same arguments."""

    function = staticmethod(baselines.complement_entropy)

    def __init__(
        self,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, ignore_index, reduction, label_smoothing)


class MaximumProbabilityCrossEntropyLoss(_FunctionLoss):
    """Module of :func:`expacc.baselines.maximum_probability_cross_entropy`, same arguments."""

    function = staticmethod(baselines.maximum_probability_cross_entropy)

    def __init__(
        self,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, ignore_index, reduction, label_smoothing)


class Poly1CrossEntropyLoss(_FunctionLoss):
    """Module of :func:`expacc.baselines.poly1_cross_entropy`, with the same arguments."""

    function = staticmethod(baselines.poly1_cross_entropy)
    numbers = ("epsilon",)

    epsilon: float

    def __init__(
        self,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        epsilon: float = 1.0,
    ) -> None:
        super().__init__(weight, ignore_index, reduction, label_smoothing, epsilon=epsilon)


class ExactLoss(_FunctionLoss):
    """Module of :func:`expacc.functional.exact_error`, with the same arguments."""

    function = staticmethod(functional.exact_error)
    numbers = ("sigma", "margin", "standardize", "noise", "topk", "log", "impl")

    sigma: float | Tensor
    margin: float | None
    standardize: Standardize
    noise: NoiseName
    topk: int
    log: bool

    def __init__(
        self,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        sigma: float | Tensor = 1.0,
        margin: float | None = None,
        standardize: Standardize = True,
        noise: NoiseName = "normal",
        topk: int = 1,
        log: bool = False,
        impl: Implementation = "auto",
    ) -> None:
        super().__init__(
            weight,
            ignore_index,
            reduction,
            label_smoothing,
            sigma=sigma,
            margin=margin,
            standardize=standardize,
            noise=noise,
            topk=topk,
            log=log,
            impl=impl,
        )

    def _refuse_bad_arguments(self) -> None:
        # A sigma per row or class fits the batches to come, not the one row tried here.
        if not (isinstance(self.sigma, Tensor) and self.sigma.ndim > 0):
            super()._refuse_bad_arguments()
        elif self.sigma.is_floating_point():
            legal_values("sigma", self.sigma, low=0, open_low=True)
