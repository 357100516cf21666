"""What the papers put between backward and step: normalised gradients, sharpness-aware steps.

Nothing here reads a value back from a device: what depends on a norm is decided where the norm is.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from expacc.errors import check_number

__all__ = ["ASAM", "GradientNormalizer"]


def _gradients(parameters: Iterable[Tensor]) -> list[Tensor]:
    """The gradients that are there, checked to be dense and real."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    for gradient in gradients:
        if gradient.layout != torch.strided:
            raise TypeError(
                f"gradients must be dense; got {gradient.layout} of shape "
                f"{tuple(gradient.shape)}. Use sparse=False in the layer that makes it."
            )
        if not gradient.is_floating_point():
            raise TypeError(f"gradients must be floating-point tensors; got {gradient.dtype}.")
    return gradients


def _by_kind(tensors: Iterable[Tensor]) -> list[list[Tensor]]:
    """Split by device and dtype, which one fused call must share."""
    kinds: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault((tensor.device, tensor.dtype), []).append(tensor)
    return list(kinds.values())


def _wide(tensor: Tensor) -> Tensor:
    """The tensor in float32 or better, itself if it is."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _total_norm(tensors: list[Tensor]) -> Tensor:
    """The L2 norm over all elements of all tensors, on the first one's device.

    Half-precision tensors are measured in float32: their norm may exceed what they can hold.
    """
    norms = []
    for kind in _by_kind(tensors):
        wide = torch.promote_types(kind[0].dtype, torch.float32)
        norms += [norm.to(tensors[0].device) for norm in torch._foreach_norm(kind, 2, dtype=wide)]
    total: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return total


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
        gradients = _gradients(self._parameters())
        if not gradients:
            return torch.zeros_like(self._ema)
        self._ema = self._ema.to(gradients[0].device)  # the model may have moved
        norm = _total_norm(gradients).to(self._ema.dtype)
        sound = norm.isfinite()
        ema = self.decay * self._ema + (1 - self.decay) * norm
        ema = torch.where(self._ema.isnan(), norm, ema)
        self._ema.copy_(torch.where(sound, ema, self._ema))
        divisor = torch.where(sound, self._ema.clamp(min=self.floor), 1.0)
        for kind in _by_kind(gradients):
            here = divisor.to(kind[0].device)
            if kind[0].dtype.itemsize >= 4:
                torch._foreach_div_(kind, here)
            else:  # a CUDA kernel would round the divisor to float16 first, to infinity
                for gradient in kind:
                    gradient.copy_(_wide(gradient) / here)
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


class ASAM(Optimizer):
    """Step with the gradient taken uphill: adaptive sharpness-aware minimisation, or plain SAM.

    Each step costs two forward and backward passes: one finds the climb e(w), the other the
    gradient at w + e(w), with which the base optimiser moves w. Prefer it where a flat minimum
    matters and the double cost is affordable; a linear model has little to gain.

    Two steps without a closure, the normaliser optional and on both passes as in EXACT::

        loss(model(x), y).backward();  normalizer.step();  optimizer.first_step()
        loss(model(x), y).backward();  normalizer.step();  optimizer.second_step()

    or one step with a closure, called twice, that computes the loss, calls ``backward`` (then
    ``normalizer.step()``) and returns the loss; gradients are cleared before each call. The climb
    does not depend on the size of the gradient, so the normaliser's first call only feeds its mean,
    and a GradScaler needs no unscaling before it::

        scaler.scale(loss(model(x), y)).backward();  optimizer.first_step()
        scaler.scale(loss(model(x), y)).backward();  scaler.unscale_(optimizer.base_optimizer)
        normalizer.step();  optimizer.restore()
        scaler.step(optimizer.base_optimizer);  scaler.update();  optimizer.zero_grad()

    To feed the normaliser there too, unscale before it and call ``scaler.update()`` after it.
    Learning-rate schedulers take this object or the base optimiser: groups, state and defaults are
    the same objects. Both passes update the running statistics of batch normalisation.

    Definition:
        e(w) = rho · T² g / ‖T g‖₂, g the gradient at w, ‖·‖₂ one norm over all parameters
        T = |w| + eta for parameters of two or more axes if ``adaptive``, else T = 1
        w ← base optimiser's step from w, with the gradient at w + e(w)

        Biases and normalisation parameters (one axis or none) thus climb as in plain SAM. A norm of
        0 and one that is not finite give no climb.

    Args:
        base_optimizer: an optimiser, made already.
        rho: the radius of the climb, >= 0; None means 2.0 (EXACT's runs) if ``adaptive``, else 0.05
            (SAM's). The authors of ASAM use 0.5 to 1.
        adaptive: measure the radius relative to each weight.
        eta: what is added to |w|, so that a weight of 0 can move, >= 0. ASAM's authors use 0.01,
            the code behind EXACT's runs 0.

    Raises:
        TypeError: ``base_optimizer`` is not an optimiser, ``adaptive`` not a bool, a gradient
            sparse or complex.
        ValueError: a number out of range.
        RuntimeError: ``first_step`` and ``second_step`` out of order.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([[1.0, 2.0]]))
        >>> optimizer = ASAM(torch.optim.SGD([weight], lr=0.1), rho=0.5, eta=0.0)
        >>> def loss():  # (3 w₁² + w₂²) / 2, gradient (3 w₁, w₂)
        ...     return (weight.square() @ torch.tensor([3.0, 1.0])).sum() / 2
        >>> loss().backward()  # g = (3, 2), T g = (3, 4), T² g = (3, 8)
        >>> optimizer.first_step()  # e = 0.5 (3, 8) / 5
        >>> weight.data
        tensor([[1.3000, 2.8000]])
        >>> loss().backward()  # gradient there (3.9, 2.8)
        >>> optimizer.second_step()  # (1, 2) - 0.1 (3.9, 2.8)
        >>> weight.data
        tensor([[0.6100, 1.7200]])

    Reference:
        Kwon et al. (2021), "ASAM: Adaptive Sharpness-Aware Minimization for Scale-Invariant
        Learning of Deep Neural Networks", Section 4 and Algorithm 1. Foret et al. (2021),
        "Sharpness-Aware Minimization for Efficiently Improving Generalization", Eq. 2 with p = 2
        and Algorithm 1. In EXACT: Section 5.4.
    """

    def __init__(
        self,
        base_optimizer: Optimizer,
        *,
        rho: float | None = None,
        adaptive: bool = True,
        eta: float = 0.01,
    ) -> None:
        if not isinstance(base_optimizer, Optimizer):
            raise TypeError(
                f"base_optimizer must be an optimizer, made already; "
                f"got {type(base_optimizer).__name__}. "
                f"Use torch.optim.SGD(model.parameters(), lr=0.1)."
            )
        if not isinstance(adaptive, bool):
            raise TypeError(f"adaptive must be True or False; got {adaptive!r}.")
        if rho is None:
            rho = 2.0 if adaptive else 0.05
        self.base_optimizer = base_optimizer
        self.rho = check_number("rho", rho, low=0)
        self.adaptive = adaptive
        self.eta = check_number("eta", eta, low=0)
        self._before: list[tuple[Tensor, Tensor]] | None = None
        # As torch revives a pickled optimiser: the hooks that Optimizer needs, and no groups,
        # state or defaults of its own, which __getattr__ finds in the base optimiser.
        self.__setstate__({})

    def __getattr__(self, name: str) -> Any:
        if name in ("param_groups", "state", "defaults"):
            return getattr(self.base_optimizer, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __getstate__(self) -> dict[str, Any]:
        names = ("base_optimizer", "rho", "adaptive", "eta", "_before")
        return {name: getattr(self, name) for name in names}

    def _stretched(self, parameter: Tensor, vector: Tensor) -> Tensor:
        """T times a vector at this parameter."""
        if not self.adaptive or parameter.ndim <= 1:
            return vector
        return vector * (parameter.abs() + self.eta)

    @torch.no_grad()
    def first_step(self, zero_grad: bool = True) -> None:
        """Climb from w to w + e(w), by the gradient at w; keep w."""
        if self._before is not None:
            raise RuntimeError(
                "first_step must be followed by second_step or restore; got first_step again."
            )
        parameters = [p for group in self.param_groups for p in group["params"]]
        parameters = [p for p in parameters if p.grad is not None]
        gradients = _gradients(parameters)
        self._before = []
        if parameters:
            steep = [
                self._stretched(p, _wide(gradient))
                for p, gradient in zip(parameters, gradients, strict=True)
            ]
            norm = _total_norm(steep)
            climbs = norm.isfinite() & (norm > 0)
            norm = torch.where(climbs, norm, 1.0)
            for p, vector in zip(parameters, steep, strict=True):
                # First to length <= 1, then longer: no product can overflow on the way.
                climb = self._stretched(p, vector / norm.to(p.device) * self.rho)
                self._before.append((p, p.clone()))
                p.add_(torch.where(climbs.to(p.device), climb, 0.0))
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def restore(self) -> None:
        """Return to w, bit for bit; do nothing if there was no climb."""
        for parameter, before in self._before or ():
            parameter.copy_(before)
        self._before = None
        self._opt_called = True  # a scheduler asks whether the optimiser ran before it

    def second_step(self, zero_grad: bool = True) -> None:
        """Return to w and let the base optimiser step with the gradient taken at w + e(w)."""
        if self._before is None:
            raise RuntimeError("second_step must come after first_step; got no climb to end.")
        self.restore()
        self.base_optimizer.step()
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Do both steps, with a closure that is called twice; return the loss at w."""
        if not callable(closure):
            raise TypeError(
                f"closure must be a function that calls backward and returns the loss; "
                f"got {closure!r}. Without one, use first_step and second_step."
            )
        self.zero_grad()
        with torch.enable_grad():
            loss = closure()
        try:
            self.first_step()
            with torch.enable_grad():
                closure()
        finally:
            self.restore()  # a closure that fails, or Ctrl-C, leaves the weights as they were
        self.base_optimizer.step()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients."""
        self.base_optimizer.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the base optimiser."""
        self.base_optimizer.add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """The base optimiser's state and, under 'asam', the numbers of this one."""
        numbers = {"rho": self.rho, "adaptive": self.adaptive, "eta": self.eta}
        return {**self.base_optimizer.state_dict(), "asam": numbers}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore both; a state of the base optimiser alone leaves the numbers as they are."""
        base = dict(state_dict)
        numbers = base.pop("asam", {})
        self.base_optimizer.load_state_dict(base)
        self.rho = numbers.get("rho", self.rho)
        self.adaptive = numbers.get("adaptive", self.adaptive)
        self.eta = numbers.get("eta", self.eta)
