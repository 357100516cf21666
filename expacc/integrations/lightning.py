"""For Lightning, by the package ``lightning``: schedules and normalised gradients."""

from expacc.integrations.lightning_hooks import NormalizationHooks, ScheduleHooks

try:
    from lightning.pytorch.callbacks import Callback
except ImportError as error:
    raise ImportError(
        "expacc.integrations.lightning needs the package lightning, 2.2 or newer. "
        "Use pip install 'expacc[lightning]'."
    ) from error

__all__ = ["GradientNormalization", "LossSchedule"]


class LossSchedule(ScheduleHooks, Callback):  # noqa: D101
    __doc__ = ScheduleHooks.__doc__


class GradientNormalization(NormalizationHooks, Callback):  # noqa: D101
    __doc__ = NormalizationHooks.__doc__
