"""What the callbacks of all frameworks share: whose numbers follow training, and how far it is."""

from collections.abc import Iterable, Mapping

from torch import nn

from expacc.scheduled import ScheduledLoss
from expacc.schedules import Schedule


def scheduled(loss: nn.Module, schedules: Mapping[str, Schedule] | None) -> ScheduledLoss:
    """The loss with its schedules, or the ``ScheduledLoss`` that it is."""
    if schedules:
        return ScheduledLoss(loss, **schedules)
    if isinstance(loss, ScheduledLoss):
        return loss
    raise TypeError(
        f"loss must be a ScheduledLoss, or come with schedules; got {type(loss).__name__} and "
        f"none. Name one, as in focus=expacc.schedules.focus_gradual."
    )


def set_progress(losses: Iterable[ScheduledLoss], done: float, total: float) -> None:
    """Set the numbers of the losses for ``done`` of ``total`` steps."""
    for loss in losses:
        loss.step(min(1.0, done / total))


def refuse_clipping(name: str, value: object) -> None:
    """Raise if the framework clips gradients beside a normaliser."""
    if value:
        raise ValueError(
            f"{name} must be 0 or None beside GradientNormalization, which replaces clipping; got "
            f"{value}."
        )
