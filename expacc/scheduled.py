"""A loss whose numbers follow schedules: one line in a user's own loop."""

from typing import Any

import torch
from torch import Tensor, nn

from expacc.schedules import Schedule

__all__ = ["ScheduledLoss"]


class ScheduledLoss(nn.Module):
    """Wrap a loss and set its numbers from schedules as training progresses.

    Call ``step(progress)`` with the share of training done, or ``advance(total_steps)`` once before
    each step and let it count. Every attribute of the wrapped loss can be read here at any time.
    ``state_dict`` keeps the progress and the count (not the schedules, which are code), as a plain
    tensor; ``load_state_dict`` restores them and sets the numbers again.

    Args:
        loss: a Module with the named attributes, ours or any other. A number of ours that must be
            whole, such as ``terms``, is rounded.
        **schedules: for each attribute, a callable from progress in [0, 1] to its value.

    Returns:
        The Module; called with (logits, target) it gives what the wrapped loss gives.

    Raises:
        TypeError: ``loss`` is not a Module, or a schedule is not callable.
        ValueError: no schedule, or a name the loss does not have.

    Example:
        >>> from expacc import MixedExpectedErrorLoss
        >>> from expacc.schedules import focus_gradual
        >>> loss = ScheduledLoss(MixedExpectedErrorLoss(), focus=focus_gradual)
        >>> loss.focus
        0.0
        >>> loss.step(progress=0.5)
        >>> loss.focus
        0.3
    """

    def __init__(self, loss: nn.Module, **schedules: Schedule) -> None:
        super().__init__()
        if not isinstance(loss, nn.Module):
            raise TypeError(f"loss must be a Module; got {type(loss).__name__}.")
        if not schedules:
            raise ValueError("schedules must name at least one number of the loss; got none.")
        for name, schedule in schedules.items():
            if not callable(schedule):
                raise TypeError(
                    f"{name} must be a schedule, a callable from progress to a number; "
                    f"got {schedule!r}. Use expacc.schedules.constant for a fixed number."
                )
            if not hasattr(loss, name):
                has = ", ".join(getattr(loss, "params", ())) or "none that it names"
                raise ValueError(
                    f"{name} must be a number of the loss; got {type(loss).__name__}, "
                    f"which has: {has}."
                )
        self.loss = loss
        self.schedules = dict(schedules)
        self.progress = 0.0
        self.steps = 0
        self.step(0.0)

    def step(self, progress: float) -> None:
        """Set the numbers for ``progress`` in [0, 1]."""
        # Evaluate all before setting any: a bad progress leaves the loss as it was.
        numbers = {name: schedule(progress) for name, schedule in self.schedules.items()}
        counts = getattr(getattr(self.loss, "spec", None), "counts", ())
        for name, value in numbers.items():
            value = round(value) if name in counts else value
            setattr(self.loss, name, value)
        self.progress = float(progress)

    def advance(self, total_steps: int) -> None:
        """Set the numbers for the next of ``total_steps``; call once before each step.

        The first call sets progress 0, the last one (total_steps - 1) / total_steps; further calls
        stay at 1.
        """
        if isinstance(total_steps, bool) or not isinstance(total_steps, int):
            raise TypeError(f"total_steps must be an int; got {total_steps!r}.")
        if total_steps < 1:
            raise ValueError(f"total_steps must be >= 1; got {total_steps}.")
        self.step(min(1.0, self.steps / total_steps))
        self.steps += 1

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the wrapped loss."""
        return self.loss(*args, **kwargs)

    def get_extra_state(self) -> Tensor:
        """Progress and count, as a tensor that any format can hold."""
        return torch.tensor([self.progress, self.steps], dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore progress and count, and set the numbers again."""
        progress, steps = state.tolist()
        self.step(progress)
        self.steps = int(steps)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "loss":  # not yet set: do not look for it in itself
                raise
            return getattr(self.loss, name)
