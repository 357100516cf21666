"""Sharpness-aware steps: the gradient is taken uphill."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from expacc.errors import check_number
from expacc.optim.gradients import gradients_of, total_norm, wide


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
        gradients = gradients_of(parameters)
        self._before = []
        if parameters:
            steep = [
                self._stretched(p, wide(gradient))
                for p, gradient in zip(parameters, gradients, strict=True)
            ]
            norm = total_norm(steep)
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
