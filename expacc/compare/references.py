"""What is run beside the losses, on the same rows, and how any prediction is judged."""

import time
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from expacc.compare.serialize import row_of
from expacc.data import SealedTest
from expacc.estimator.calibration import Calibration, expected_calibration_error
from expacc.report.words import OUTSIDE
from expacc.runner.rows import Predictions, Row

if TYPE_CHECKING:
    from expacc.compare.work import FoldTrainer

Array = NDArray[np.float64]
Places = NDArray[np.int64]


def judge(
    logits: Any, calibration: Calibration, rows: Places, given: Places
) -> tuple[dict[str, float], Predictions]:
    """Metrics of logits, and what was predicted."""
    chance = calibration.probabilities(logits)
    predicted = logits.argmax(axis=1)
    right = predicted == given
    own = chance[np.arange(len(given)), given]
    recall = [right[given == code].mean() for code in np.unique(given)]
    metrics = {
        "accuracy": float(right.mean()),
        "balanced_accuracy": float(np.mean(recall)),
        "log_loss": float(-np.log(np.maximum(own, 1e-300)).mean()),
        "calibration_error": expected_calibration_error(chance, given),
    }
    predictions = Predictions(
        rows.astype(np.int32),
        predicted.astype(np.int32),
        chance.max(axis=1).astype(np.float32),
        own.astype(np.float32),
    )
    return metrics, predictions


def outside(trainer: "FoldTrainer", test: SealedTest, given: Places) -> Row:
    """scikit-learn's LogisticRegression on the same rows: a check from outside."""
    from sklearn.linear_model import LogisticRegression

    start = time.perf_counter()
    features, labels = trainer.train.features.astype(np.float64), trainer.train.labels
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own limit of steps
        if len(np.unique(labels)) < 2:
            return row_of(trainer.item, "outside", OUTSIDE, 0, failure="one class in training rows")
        model = LogisticRegression().fit(features, labels)
    logits = np.full((len(test), trainer.classes), -1e9)

    def predict(rows: Any) -> Array:
        scores = model.decision_function(rows.astype(np.float64))
        wide = np.stack([-scores / 2, scores / 2], 1) if scores.ndim == 1 else scores
        logits[:, model.classes_] = wide
        return logits

    test.score(OUTSIDE, predict)
    metrics, predictions = judge(logits, Calibration(), test.rows, given)
    return row_of(
        trainer.item,
        "outside",
        OUTSIDE,
        0,
        metrics={**metrics, "train_accuracy": float(model.score(features, labels))},
        predictions=predictions,
        seconds=time.perf_counter() - start,
    )
