"""The loss chosen by cross-validation, all trials in one batch."""

from typing import Any

from expacc.estimator.classifier import AccuracyClassifier
from expacc.estimator.settings import Setting, settings_for

__all__ = ["AccuracyClassifierCV"]


class AccuracyClassifierCV(AccuracyClassifier):
    """``AccuracyClassifier`` that also chooses the loss.

    Every setting of every loss trains on every inner fold, as one tensor program; the best on the
    held-out rows is trained on all rows, and cross entropy stays unless it is beaten beyond a
    standard error.

    Args:
        losses: names or loss objects to choose from; cross entropy is always the one to beat.
        hidden, epochs, learning_rate, weight_decay, batch_size, dropout, guard, calibrate, folds,
            class_weight, random_state, device, progress: as in ``AccuracyClassifier``.

    Attributes:
        chosen_: the loss and numbers that were kept.
        held_out_: accuracy on held-out rows of every setting.

    Example:
        >>> from sklearn.datasets import load_wine
        >>> X, y = load_wine(return_X_y=True)
        >>> classifier = AccuracyClassifierCV(losses=("exact", "hinge")).fit(X, y)
        >>> len(classifier.held_out_)  # the start, six settings of EXACT, two of the hinge
        9
    """

    def __init__(
        self,
        losses: tuple[Any, ...] = (
            "exact",
            "leaky_expected_error",
            "mixed_expected_error",
            "hinge",
            "focal",
        ),
        hidden: tuple[int, ...] = (),
        epochs: int | str = "auto",
        learning_rate: float | str = "auto",
        *,
        weight_decay: float = 1.0,
        batch_size: int | str = "auto",
        dropout: float = 0.0,
        guard: bool = True,
        calibrate: bool = True,
        folds: int = 5,
        class_weight: Any = None,
        random_state: Any = None,
        device: str = "cpu",
        progress: bool = False,
    ) -> None:
        self.losses = losses
        self.hidden = hidden
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.dropout = dropout
        self.guard = guard
        self.calibrate = calibrate
        self.folds = folds
        self.class_weight = class_weight
        self.random_state = random_state
        self.device = device
        self.progress = progress

    def _settings(self, classes: int) -> tuple[Setting, ...]:
        found: list[Setting] = []
        for loss in self.losses:
            if not isinstance(loss, str) or loss != "cross_entropy":
                found += settings_for(loss, None, self.learning_rate, self.weight_decay, classes)
        return tuple(found)
