"""For skorch: losses that predict probabilities, schedules, normalised gradients."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from expacc import losses
from expacc.errors import check_number
from expacc.integrations.progress import scheduled, set_progress
from expacc.optim import GradientNormalizer
from expacc.registry import SPECS
from expacc.scheduled import ScheduledLoss
from expacc.schedules import Schedule

try:
    from skorch.callbacks import Callback
except ImportError as error:
    raise ImportError(
        "expacc.integrations.skorch needs the package skorch. Use pip install 'expacc[skorch]'."
    ) from error


def _criterion(name: str, loss: type[losses.FunctionLoss]) -> type[losses.FunctionLoss]:
    """The loss, as one that skorch knows to be on logits: softmax then gives probabilities."""
    binary = loss.spec.family == "binary"
    known = nn.BCEWithLogitsLoss if binary else nn.CrossEntropyLoss
    return type(name, (loss, known), {"__module__": __name__, "__doc__": loss.__doc__})


_LOSSES = [spec.module_name for spec in SPECS.values() if hasattr(losses, spec.module_name)]
for _name in _LOSSES:
    globals()[_name] = _criterion(_name, getattr(losses, _name))

__all__ = ["GradientNormalization", "LossSchedule", *_LOSSES]  # noqa: PLE0604 - strings they are


class LossSchedule(Callback):  # type: ignore[misc]
    """Let numbers of the criterion follow training, set before each batch.

    Args:
        schedules: for each number of the criterion, a callable from progress in [0, 1]; None if
            the criterion is a ``ScheduledLoss``.
        epochs: of which progress is a share, those in the history before included, as where a
            run is resumed; None: up to the end of this call of ``fit`` or ``partial_fit``.

    Raises:
        TypeError, ValueError: when training begins, as ``expacc.ScheduledLoss``.

    Example:
        >>> from expacc.schedules import focus_gradual
        >>> from expacc.integrations.skorch import LossSchedule
        >>> schedule = LossSchedule({"focus": focus_gradual})
    """

    def __init__(
        self, schedules: Mapping[str, Schedule] | None = None, epochs: int | None = None
    ) -> None:
        self.schedules, self.epochs = schedules, epochs

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **_: Any) -> None:
        """Find the criterion, and how many epochs there will be."""
        self.scheduled_: ScheduledLoss = scheduled(net.criterion_, self.schedules)
        self.epochs_ = self.epochs or len(net.history) + net.max_epochs

    def on_epoch_begin(self, net: Any, dataset_train: Any = None, **_: Any) -> None:
        """Count the batches to come."""
        self.batches_ = len(net.get_iterator(dataset_train, training=True))
        self.done_ = (len(net.history) - 1) * self.batches_

    def on_batch_begin(self, net: Any, batch: Any = None, training: bool = False, **_: Any) -> None:
        """Set the numbers."""
        if training:
            set_progress([self.scheduled_], self.done_, self.epochs_ * self.batches_)
            self.done_ += 1


class GradientNormalization(Callback):  # type: ignore[misc]
    """Divide the gradients by a running mean of their norm, as ``expacc.GradientNormalizer``.

    It replaces ``GradientNormClipping``. The mean is noted in ``net.history`` at the end of each
    epoch as ``gradient_norm``, and a net whose history was loaded goes on with it: put this
    callback before ``Checkpoint``.

    Args:
        decay: the weight of the past in the mean, in [0, 1).
        floor: the smallest divisor, > 0.

    Raises:
        ValueError: a number out of range, when the net is initialized.

    Example:
        >>> from expacc.integrations.skorch import GradientNormalization
        >>> callback = GradientNormalization(decay=0.95)
    """

    def __init__(self, decay: float = 0.9, floor: float = 1e-2) -> None:
        self.decay, self.floor = decay, floor

    def initialize(self) -> "GradientNormalization":
        """Check the numbers, as skorch does after it has set them."""
        check_number("decay", self.decay, low=0, high=1, open_high=True)
        check_number("floor", self.floor, low=0, open_low=True)
        return self

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **_: Any) -> None:
        """Begin, or go on with the mean of the history."""
        self.normalizer_ = GradientNormalizer(net.optimizer_, decay=self.decay, floor=self.floor)
        if len(net.history) and "gradient_norm" in net.history[-1]:
            ema = torch.tensor(net.history[-1, "gradient_norm"])
            self.normalizer_.load_state_dict({"ema": ema})

    def on_grad_computed(self, net: Any, named_parameters: Any, **_: Any) -> None:
        """Divide the gradients."""
        self.normalizer_.step()

    def on_epoch_end(self, net: Any, **_: Any) -> None:
        """Note the mean."""
        net.history.record("gradient_norm", self.normalizer_.ema.item())
