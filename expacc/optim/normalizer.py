"""Gradients divided by a running mean of their norm."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from expacc.errors import check_number
from expacc.optim.asam import ASAM
from expacc.optim.gradients import by_kind, gradients_of, total_norm, wide


def _listed(parameters: object) -> list[Tensor]:
    """The parameters as a list, each once."""
    if isinstance(parameters, Tensor):
        return [parameters]
    given: list[object] = [parameters]
    if isinstance(parameters, Iterable) and not isinstance(parameters, torch.nn.Module):
        given = list(parameters)
    for parameter in given:
        if not isinstance(parameter, Tensor):
            raise TypeError(
                f"parameters must be an optimizer or tensors; got {type(parameter).__name__}. "
                f"Use model.parameters()."
            )
    return list(dict.fromkeys(given))  # type: ignore[arg-type]


class GradientNormalizer:
    """Divide the gradients by a running mean of their norm, before the optimiser steps.

    EXACT's gradient grows by orders of magnitude as sigma falls; with the normaliser one learning
    rate serves the whole run. It replaces gradient clipping. Weight decay is added by the optimiser
    afterwards and stays as it is. Cross entropy and hinge gain little (Tables 5 and 6).

    Call ``step()`` once per optimiser step, when the gradients are complete and unscaled::

        scaler.scale(loss).backward()   # once, or once per micro-batch
        scaler.unscale_(optimizer)      # with a GradScaler only
        normalizer.step()
        scaler.step(optimizer)

    or ``normalizer = GradientNormalizer.attach(optimizer)`` once, in a loop that is not yours.

    A norm that is not finite, as after an overflow under AMP, leaves the mean and the gradients as
    they are, so the GradScaler sees the overflow and skips the step. Under DDP the gradients are
    averaged by ``backward``, so every rank holds the same mean without communication.

    Definition:
        norm = ‖all gradients‖₂, one number over all parameters
        ema ← norm at the first step, else decay · ema + (1 - decay) · norm
        gradient ← gradient / max(ema, floor)

    Args:
        parameters: an optimiser, of which all groups count, also those added later; or parameters.
            Those without gradient are skipped.
        decay: the weight of the past in the mean, in [0, 1).
        floor: the smallest divisor, > 0.

    Raises:
        TypeError: ``parameters`` holds something else, or a gradient is sparse or complex.
        ValueError: no parameters, or a number out of range.

    Example:
        >>> weight = torch.nn.Parameter(torch.zeros(2))
        >>> normalizer = GradientNormalizer([weight])
        >>> weight.grad = torch.tensor([3.0, 4.0])  # norm 5
        >>> _ = normalizer.step()
        >>> weight.grad
        tensor([0.6000, 0.8000])
        >>> weight.grad = torch.tensor([9.0, 12.0])  # norm 15, mean 0.9 · 5 + 0.1 · 15 = 6
        >>> _ = normalizer.step()
        >>> weight.grad, normalizer.ema
        (tensor([1.5000, 2.0000]), tensor(6.))

    Reference:
        Karpukhin, Dereka and Kolesnikov, "EXACT: How to Train Your Accuracy", Section 4.5.4; the
        floor and the start are those of the authors' code.
    """

    def __init__(
        self,
        parameters: Optimizer | Tensor | Iterable[Tensor],
        *,
        decay: float = 0.9,
        floor: float = 1e-2,
    ) -> None:
        self.decay = check_number("decay", decay, low=0, high=1, open_high=True)
        self.floor = check_number("floor", floor, low=0, open_low=True)
        self._source = parameters if isinstance(parameters, Optimizer) else _listed(parameters)
        if not self._parameters():
            raise ValueError("parameters must hold at least one tensor; got none.")
        first = self._parameters()[0]
        dtype = torch.float64 if first.dtype == torch.float64 else torch.float32
        # NaN says "no norm yet" without a flag that the host would have to read.
        self._ema = torch.full((), float("nan"), dtype=dtype, device=first.device)
        self._handle: RemovableHandle | None = None

    @classmethod
    def attach(
        cls, optimizer: Optimizer, *, decay: float = 0.9, floor: float = 1e-2
    ) -> "GradientNormalizer":
        """Make a normaliser that acts at the start of every ``optimizer.step()``.

        For loops that are not yours to change: timm's, Accelerate's, a Trainer's. A GradScaler
        has unscaled the gradients by then; where a fused optimiser is to do that in its step, it
        is done here. Not for loops that step with a closure, as Lightning and skorch do: their
        gradients are computed within the step, so it is refused (``expacc.integrations`` has
        callbacks for both).

        Args:
            optimizer: an optimiser, or Accelerate's wrapper of one.
            decay: as of the class.
            floor: as of the class.

        Returns:
            The normaliser; ``detach()`` ends its work. Save its ``state_dict`` to resume.

        Raises:
            TypeError: ``optimizer`` is none, or an ``ASAM``.
            ValueError: a number out of range.
            RuntimeError: at a step that is called with a closure.

        Example:
            >>> weight = torch.nn.Parameter(torch.zeros(2))
            >>> optimizer = torch.optim.SGD([weight], lr=1.0)
            >>> normalizer = GradientNormalizer.attach(optimizer)
            >>> weight.grad = torch.tensor([3.0, 4.0])
            >>> optimizer.step()
            >>> weight.data
            tensor([-0.6000, -0.8000])
        """
        inner = getattr(optimizer, "optimizer", optimizer)  # Accelerate's wrapper has no hooks
        if isinstance(inner, ASAM):
            raise TypeError(
                "optimizer must be one that steps once; got ASAM. Call normalizer.step() before "
                "its first_step() and second_step(), or in its closure."
            )
        if not isinstance(inner, Optimizer):
            raise TypeError(f"optimizer must be a torch optimizer; got {type(inner).__name__}.")
        normalizer = cls(inner, decay=decay, floor=floor)
        normalizer._handle = inner.register_step_pre_hook(normalizer._before_step)
        return normalizer

    def detach(self) -> None:
        """Stop acting on the optimiser's steps; do nothing if not attached."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    @torch.no_grad()
    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if kwargs.get("closure") is not None or any(callable(given) for given in args[1:]):
            raise RuntimeError(
                "optimizer.step() must have no closure while a GradientNormalizer is attached; got "
                "one, whose gradients are yet to come. Call normalizer.detach(), and "
                "normalizer.step() at the closure's end; Lightning and skorch have callbacks in "
                "expacc.integrations."
            )
        scale = getattr(optimizer, "grad_scale", None)
        if isinstance(scale, Tensor):  # a GradScaler's, for a fused step to undo
            for kind in by_kind(gradients_of(self._parameters())):
                torch._foreach_div_(kind, scale.to(kind[0].device))
            optimizer.grad_scale = None  # type: ignore[attr-defined]
        self.step()

    def _parameters(self) -> list[Tensor]:
        if isinstance(self._source, Optimizer):
            return [p for group in self._source.param_groups for p in group["params"]]
        return self._source

    @property
    def ema(self) -> Tensor:
        """The running mean of the norm, a scalar tensor on the device; NaN before the first one."""
        return self._ema.clone()

    @torch.no_grad()
    def step(self) -> Tensor:
        """Update the mean, divide the gradients in place, return their norm before (a tensor)."""
        gradients = gradients_of(self._parameters())
        if not gradients:
            return torch.zeros_like(self._ema)
        self._ema = self._ema.to(gradients[0].device)  # the model may have moved
        norm = total_norm(gradients).to(self._ema.dtype)
        sound = norm.isfinite()
        ema = self.decay * self._ema + (1 - self.decay) * norm
        ema = torch.where(self._ema.isnan(), norm, ema)
        self._ema.copy_(torch.where(sound, ema, self._ema))
        divisor = torch.where(sound, self._ema.clamp(min=self.floor), 1.0)
        for kind in by_kind(gradients):
            here = divisor.to(kind[0].device)
            if kind[0].dtype.itemsize >= 4:
                torch._foreach_div_(kind, here)
            else:  # a CUDA kernel would round the divisor to float16 first, to infinity
                for gradient in kind:
                    gradient.copy_(wide(gradient) / here)
        return norm

    def state_dict(self) -> dict[str, Tensor]:
        """The mean, as a tensor that any format can hold."""
        return {"ema": self.ema}

    def load_state_dict(self, state_dict: dict[str, Tensor]) -> None:
        """Restore the mean; it stays on this normaliser's device."""
        ema = state_dict.get("ema")
        if not isinstance(ema, Tensor):
            raise TypeError(
                f"state_dict must hold a tensor 'ema'; got {type(ema).__name__} there and the keys "
                f"{sorted(state_dict)}."
            )
        if ema.shape != ():
            raise ValueError(f"state_dict must hold a scalar 'ema'; got shape {tuple(ema.shape)}.")
        self._ema.copy_(ema)
