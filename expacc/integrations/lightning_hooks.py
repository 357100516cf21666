"""The callbacks of both Lightning packages, without their base class; imports neither."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from expacc.errors import check_number
from expacc.integrations.progress import refuse_clipping, scheduled, set_progress
from expacc.optim import GradientNormalizer
from expacc.scheduled import ScheduledLoss


class ScheduleHooks:
    """Let numbers of losses follow training, set before each batch.

    Progress is ``trainer.global_step / trainer.estimated_stepping_batches``, which a resumed run
    has of itself; gradient accumulation does not change it. Class path for LightningCLI:
    ``expacc.integrations.lightning.LossSchedule``.

    Args:
        schedules: for each number, a callable from progress in [0, 1]; with LightningCLI its
            import path, as ``{focus: expacc.schedules.focus_gradual}``. None: every
            ``ScheduledLoss`` in the LightningModule follows its own.
        loss: the attribute of the LightningModule that holds the loss for ``schedules``.

    Raises:
        TypeError, ValueError: when training starts: there is no such loss, it lacks a number, or
            the length of training is not known.

    Example:
        >>> from expacc.schedules import focus_gradual
        >>> from expacc.integrations.lightning import LossSchedule
        >>> schedule = LossSchedule({"focus": focus_gradual}, loss="criterion")
    """

    def __init__(
        self,
        schedules: dict[str, Callable[[float], float]] | None = None,
        loss: str = "criterion",
    ) -> None:
        self.schedules, self.loss = schedules, loss
        self._scheduled: list[ScheduledLoss] = []
        self._steps = 1.0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Find the losses, and how many steps there will be."""
        if self.schedules:
            found = getattr(pl_module, self.loss, None)
            if not isinstance(found, nn.Module):
                raise TypeError(
                    f"loss must name an attribute of the LightningModule that is a loss Module; "
                    f"got {self.loss!r}, which is {type(found).__name__}."
                )
            self._scheduled = [scheduled(found, self.schedules)]
        else:
            modules = pl_module.modules()
            self._scheduled = [one for one in modules if isinstance(one, ScheduledLoss)]
            if not self._scheduled:
                raise ValueError(
                    "LossSchedule must find a ScheduledLoss in the LightningModule; got none. "
                    "Store it as an attribute, or pass schedules."
                )
        self._steps = float(trainer.estimated_stepping_batches)
        if not 0 < self._steps < float("inf"):
            raise ValueError(
                f"the Trainer must know when training ends for a schedule; got {self._steps} "
                f"steps. Pass max_epochs or max_steps."
            )

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Set the numbers."""
        set_progress(self._scheduled, trainer.global_step, self._steps)


class NormalizationHooks:
    """Divide the gradients by a running mean of their norm, as ``expacc.GradientNormalizer``.

    It replaces clipping, and has a mean for each optimizer, which the checkpoints keep. Not for
    FSDP or DeepSpeed, where no process has all gradients. Class path for LightningCLI:
    ``expacc.integrations.lightning.GradientNormalization``.

    Args:
        decay: the weight of the past in the mean, in [0, 1).
        floor: the smallest divisor, > 0.

    Raises:
        ValueError: a number out of range; or, when training starts, the Trainer clips gradients
            or shards them.

    Example:
        >>> from expacc.integrations.lightning import GradientNormalization
        >>> callback = GradientNormalization(decay=0.95)
    """

    def __init__(self, decay: float = 0.9, floor: float = 1e-2) -> None:
        self.decay = check_number("decay", decay, low=0, high=1, open_high=True)
        self.floor = check_number("floor", floor, low=0, open_low=True)
        self._normalizers: dict[int, GradientNormalizer] = {}
        self._loaded: dict[int, Tensor] = {}

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Make a normaliser for each optimizer, with the checkpoint's mean."""
        refuse_clipping("gradient_clip_val", trainer.gradient_clip_val)
        strategy = type(trainer.strategy).__name__
        if any(name in strategy for name in ("FSDP", "DeepSpeed", "ModelParallel")):
            raise ValueError(
                f"GradientNormalization must have all gradients in each process; got {strategy}. "
                f"Use strategy='ddp'."
            )
        self._normalizers = {
            place: GradientNormalizer(optimizer, decay=self.decay, floor=self.floor)
            for place, optimizer in enumerate(trainer.optimizers)
        }
        for place, ema in self._loaded.items():
            if place in self._normalizers:
                self._normalizers[place].load_state_dict({"ema": ema})
        self._loaded = {}

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Divide the gradients."""
        inner = getattr(optimizer, "optimizer", optimizer)
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        if scaler is not None and getattr(inner, "_step_supports_amp_scaling", False):
            scaler.unscale_(inner)  # what a fused step would do, which then does not
        place = next(at for at, one in enumerate(trainer.optimizers) if one is inner)
        self._normalizers[place].step()

    def state_dict(self) -> dict[str, Any]:
        """The means, by place of the optimizer."""
        return {"ema": {place: one.ema.cpu() for place, one in self._normalizers.items()}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the means for when training starts."""
        self._loaded = {int(at): torch.as_tensor(ema) for at, ema in state_dict["ema"].items()}
