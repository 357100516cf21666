"""Which trial of a search is trained again: by rows held out of the training rows, with caution.

The first trial is a default that is good on most tables, and the accuracy of a trial is known to a
standard error only. The best of twenty such accuracies is mostly luck, so the default stays unless
another trial is better by more than a standard error. Over tables, that rule chose better numbers
for every loss than the plain maximum did, and it is the same rule for all of them.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from expacc.data import holdout, stratified_folds
from expacc.runner.rows import Row

__all__ = ["INNER_FOLDS", "SMALL", "best_trial", "inner_splits"]

SMALL = 2000  # training rows up to which trials are judged on three inner folds, not on one
INNER_FOLDS = 3
LEFT_OUT = 0.25  # of more rows than that

Numbers = NDArray[np.int64]


def inner_splits(labels: Numbers, seed: int, name: str) -> list[tuple[Numbers, Numbers]]:
    """Rows to train trials on, and rows to judge them by."""
    if len(labels) < SMALL:
        splits = stratified_folds(labels, INNER_FOLDS, 1, seed=seed, name=f"{name}/inner")
    else:
        splits = holdout(labels, LEFT_OUT, seed=seed, name=f"{name}/inner")
    return [(split.train, split.test) for split in splits]


def best_trial(trials: Sequence[Row], judged: int) -> int | None:
    """The place of the trial to train again; None if all failed.

    Args:
        trials: in order; the first is the default.
        judged: rows that each was judged by, all inner folds together.
    """
    good = [place for place, row in enumerate(trials) if row.failure is None]
    if not good:
        return None
    best = max(good, key=lambda place: _merit(trials[place]))
    if good[0] != 0:
        return best
    share = trials[best].metrics["validation_accuracy"]
    error = math.sqrt(max(share * (1 - share), 0.25 / judged) / judged)
    return best if share > trials[0].metrics["validation_accuracy"] + error else 0


def _merit(row: Row) -> tuple[float, float]:
    """Accuracy first, then cross entropy, which tells equals apart."""
    return row.metrics["validation_accuracy"], -row.metrics["validation_loss"]
