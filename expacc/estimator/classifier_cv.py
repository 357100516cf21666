"""A classifier that also chooses its loss."""

from typing import Any

from expacc.estimator.classifier import AccuracyClassifier
from expacc.estimator.fitting import Setting, settings_for
from expacc.estimator.renamed import UNUSED


class AccuracyClassifierCV(AccuracyClassifier):
    """``AccuracyClassifier`` that also chooses the loss.

    Every setting of every loss trains on every inner fold, as one tensor program; the best on the
    held-out rows is trained on all rows, and cross entropy stays unless it is beaten beyond a
    standard error.

    Args:
        losses: names or loss objects to choose from; cross entropy is always the one to beat.
        hidden_layer_sizes, epochs, learning_rate, weight_decay, batch_size, dropout, guard,
            calibrate, cv, class_weight, random_state, device, progress, hidden, folds: as in
            ``AccuracyClassifier``.

    Attributes:
        best_params_: the loss and numbers that were kept.
        cv_results_: accuracy on held-out rows of every setting.

    Example:
        >>> from sklearn.datasets import load_wine
        >>> X, y = load_wine(return_X_y=True)
        >>> classifier = AccuracyClassifierCV(losses=("exact", "hinge")).fit(X, y)
        >>> len(classifier.cv_results_["params"])  # start, three of EXACT, one of hinge
        5
    """

    _may_vote = False

    def __init__(
        self,
        losses: tuple[Any, ...] = (
            "leaky_expected_error",
            "exact",
            "expected_error",
            "mixed_expected_error",
        ),
        hidden_layer_sizes: tuple[int, ...] = (),
        epochs: int | str = "auto",
        learning_rate: float | str = "auto",
        *,
        weight_decay: float = 1.0,
        batch_size: int | str = "auto",
        dropout: float = 0.0,
        guard: bool = True,
        calibrate: bool = True,
        cv: Any = 5,
        class_weight: Any = None,
        random_state: Any = None,
        device: str = "cpu",
        progress: bool = False,
        hidden: Any = UNUSED,
        folds: Any = UNUSED,
    ) -> None:
        super().__init__(
            hidden_layer_sizes=hidden_layer_sizes,
            epochs=epochs,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            batch_size=batch_size,
            dropout=dropout,
            guard=guard,
            calibrate=calibrate,
            cv=cv,
            class_weight=class_weight,
            random_state=random_state,
            device=device,
            progress=progress,
            hidden=hidden,
            folds=folds,
        )
        self.losses = losses

    def _settings(self, classes: int) -> tuple[Setting, ...]:
        found: list[Setting] = []
        for loss in self.losses:
            if not isinstance(loss, str) or loss != "cross_entropy":
                found += settings_for(loss, None, self.learning_rate, self.weight_decay, classes)
        return tuple(found)
