"""For Lightning, by its older package ``pytorch_lightning``: schedules and normalised gradients."""

from expacc.integrations.lightning_hooks import NormalizationHooks, ScheduleHooks

try:
    from pytorch_lightning.callbacks import Callback
except ImportError as error:
    raise ImportError(
        "expacc.integrations.pytorch_lightning needs the package pytorch_lightning, 2.2 or newer. "
        "Use pip install 'pytorch_lightning'."
    ) from error

__all__ = ["GradientNormalization", "LossSchedule"]


class LossSchedule(ScheduleHooks, Callback):  # noqa: D101
    __doc__ = ScheduleHooks.__doc__


class GradientNormalization(NormalizationHooks, Callback):  # noqa: D101
    __doc__ = NormalizationHooks.__doc__
