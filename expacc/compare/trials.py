"""How trials are judged and one of them is chosen, whatever the model.

The first trial is a default that is good on most tables, and the accuracy of a trial is known to a
standard error only. The best of twenty such accuracies is mostly luck, so the default stays unless
the best is better by more than the standard error of their difference, on the same rows. It is the
same rule for all losses, and over tables it chose better numbers than the plain maximum did.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expacc.compare.training_budget import INNER_FOLDS, LEFT_OUT, POINTS, SMALL, Trial
from expacc.data import TrainRows, holdout, stratified_folds
from expacc.estimator.calibration import Calibration
from expacc.runner.rows import Row

Places = NDArray[np.int64]
Best = dict[str, tuple[Trial, Row, Calibration] | None]  # of each loss; None if all trials failed


def columns_of(loss: str) -> str:
    """The name under which the test rows are opened to see which columns matter."""
    return f"{loss}|columns"


def last_of(loss: str, seed: int) -> str:
    """The name under which a run that was stopped opens the test rows for its last round."""
    return f"{loss}|{seed}|last"


def inner_splits(labels: Places, seed: int, name: str) -> list[tuple[Places, Places]]:
    """Rows to train trials on, and rows to judge them by."""
    if len(labels) < SMALL:
        splits = stratified_folds(labels, INNER_FOLDS, 1, seed=seed, name=f"{name}/inner")
    else:
        splits = holdout(labels, LEFT_OUT, seed=seed, name=f"{name}/inner")
    return [(split.train, split.test) for split in splits]


def thinned(curve: Sequence[float]) -> tuple[float, ...]:
    """At most as many points as are drawn, at even distances, the last among them."""
    return tuple(curve[:: -math.ceil(len(curve) / POINTS)][::-1])


def rows_for_trials(
    train: TrainRows, seed: int, name: str
) -> tuple[NDArray[Any], Places, list[tuple[Places, Places]]]:
    """Features and labels, and which of these rows trials train on and are judged by.

    Where a table came with validation rows they are those, below the training rows.
    """
    more, own = train.validation, len(train.labels)
    if more is None:
        return train.features, train.labels, inner_splits(train.labels, seed, name)
    features = np.concatenate([train.features, more.features])
    labels = np.concatenate([train.labels, more.labels])
    return features, labels, [(np.arange(own), np.arange(own, len(labels)))]


def best_trial(
    trials: Sequence[Row], right: Sequence[NDArray[np.bool_]], *, errors: float = 1.0
) -> int | None:
    """The place of the trial to train again; None if all failed.

    Args:
        trials: in order; the first is the default.
        right: of each, which of the rows that judge it, all inner folds together, it has right.
        errors: by how many standard errors another must be better than the default.
    """
    good = [place for place, row in enumerate(trials) if row.failure is None]
    if not good:
        return None

    def merit(place: int) -> tuple[float, float]:
        """Accuracy first, then cross entropy, which tells equals apart."""
        found = trials[place].metrics
        return found["validation_accuracy"], -found["validation_loss"]

    best = max(good, key=merit)
    if good[0] != 0:
        return best
    gained = int((right[best] & ~right[0]).sum())
    lost = int((right[0] & ~right[best]).sum())
    return best if gained - lost > errors * math.sqrt(gained + lost) + 0.5 else 0
