"""Optimisers over the parameters (R, P) of many runs: every number is the run's own."""

import torch
from torch import Tensor

from expacc.training.runs import Optimizer, Run

__all__ = ["Descent"]

_NORM_DECAY, _NORM_FLOOR = 0.9, 1e-2  # as expacc.GradientNormalizer
_TINY = 1e-8  # Adam's epsilon


class Descent:
    """SGD with momentum, Adam or AdamW, with clipping or normalising per run.

    Args:
        kind: which.
        runs: in the order of the parameters' rows.
        decays: (P), 1 where weight decay applies.
    """

    def __init__(self, kind: Optimizer, runs: list[Run], decays: Tensor) -> None:
        def column(numbers: list[float]) -> Tensor:
            return torch.tensor(numbers, dtype=torch.float64).to(decays).unsqueeze(1)

        self.kind = kind
        self.count = 0
        self.rows = len(runs)
        self.all_normalized = all(run.normalize for run in runs)
        self.state: dict[str, Tensor] = {}
        # Tensors with a run per row; compacted together when runs leave.
        if any(run.weight_decay for run in runs):
            self.state["decay"] = column([run.weight_decay for run in runs]) * decays
        if kind == "sgd":
            self.state["momentum"] = column([run.momentum for run in runs])
        else:
            self.state["beta1"] = column([run.betas[0] for run in runs])
            self.state["beta2"] = column([run.betas[1] for run in runs])
        if any(run.normalize for run in runs):
            self.state["normalized"] = column([float(run.normalize) for run in runs])
        if any(run.clip is not None for run in runs):
            limits = [float("inf") if run.clip is None else run.clip for run in runs]
            self.state["clip"] = column(limits)

    def keep(self, rows: Tensor) -> None:
        """Go on with these runs only."""
        self.state = {name: value[rows] for name, value in self.state.items()}
        self.rows = len(rows)

    def step(self, theta: Tensor, gradient: Tensor, rate: Tensor) -> None:
        """Move ``theta`` in place; ``gradient`` is overwritten. ``rate`` is (R, 1).

        With sgd the first runs may move alone, after a step of all.
        """
        state = self.state
        if theta.shape[0] < self.rows:  # the first ones alone
            state = {name: value[: theta.shape[0]] for name, value in state.items()}
        self.count += 1
        if "normalized" in state or "clip" in state:
            self._scale(gradient)
        decay = state.get("decay")
        if decay is not None and self.kind != "adamw":
            gradient.addcmul_(theta, decay)
        if self.kind == "sgd":
            if "velocity" not in state:
                state["velocity"] = gradient.clone()
            else:
                state["velocity"].mul_(state["momentum"]).add_(gradient)
            theta.addcmul_(state["velocity"], rate, value=-1)
            return
        if decay is not None and self.kind == "adamw":
            theta.addcmul_(theta, rate * decay, value=-1)
        beta1, beta2 = state["beta1"], state["beta2"]
        if "mean" not in state:
            state["mean"], state["square"] = torch.zeros_like(theta), torch.zeros_like(theta)
        mean, square = state["mean"], state["square"]
        mean.lerp_(gradient, 1 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient * (1 - beta2))
        root = (1 - beta2**self.count).sqrt_()
        size = (square.sqrt() / root).add_(_TINY)
        theta.sub_(mean.div(size).mul_(rate / (1 - beta1**self.count)))

    def _scale(self, gradient: Tensor) -> None:
        # A gradient that is not finite ends its run anyway: no need to keep it out of the norm.
        state = self.state
        norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
        if "clip" in state:  # as torch's clip_grad_norm_
            factor = (state["clip"] / (norm + 1e-6)).clamp_(max=1)
        if "normalized" in state:
            if self.count == 1:
                state["norm"] = norm
            running = state["norm"].lerp_(norm, 1 - _NORM_DECAY) if self.count > 1 else norm
            divided = running.clamp(min=_NORM_FLOOR).reciprocal_()
            others = factor if "clip" in state else torch.ones_like(norm)
            factor = (
                divided
                if self.all_normalized
                else torch.where(state["normalized"] > 0, divided, others)
            )
        gradient.mul_(factor)
