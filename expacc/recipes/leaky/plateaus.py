"""Training curves held against those of negative log likelihood.

A run *lags* in an epoch if it is more than 3 points of accuracy behind negative log likelihood on
the same fold in the same epoch; it is *stuck* if its best is that far behind the other's best.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from expacc.recipes.paper import load_paper
from expacc.runner.rows import Row

__all__ = ["BEHIND", "LEAKY", "LOSS", "LOSSES", "REFERENCE", "Runs", "lag", "orders", "stuck"]

BEHIND = 3.0  # points of accuracy
LOSS, LEAKY, REFERENCE = "expected_error", "leaky_expected_error", "cross_entropy"
LOSSES: dict[str, str] = load_paper("leaky")["losses"]


@dataclass(frozen=True)
class Runs:
    """The good runs of one condition.

    Args:
        whole: loss → its run on all training rows (Figure 2).
        folds: loss → fold → its run at the small learning rate (Figure 3).
        large: fold → the run of the expected error at the large learning rate.
    """

    whole: Mapping[str, Row]
    folds: Mapping[str, Mapping[str, Row]]
    large: Mapping[str, Row]

    def pairs(self, loss: str) -> list[tuple[Row, Row]]:
        """Runs of a loss and of negative log likelihood on the same folds."""
        own = self.large if loss == "large" else self.folds.get(loss, {})
        other = self.folds.get(REFERENCE, {})
        return [(own[fold], other[fold]) for fold in sorted(own.keys() & other.keys(), key=int)]


def lag(curve: Sequence[float], reference: Sequence[float]) -> int:
    """The number of epochs in which ``curve`` lags; a run that has ended keeps its last value.

    >>> lag([0.60, 0.65, 0.90, 0.92], [0.80, 0.85, 0.90])
    2
    """
    last = len(reference) - 1
    return sum(
        100 * (reference[min(epoch, last)] - value) > BEHIND for epoch, value in enumerate(curve)
    )


def stuck(run: Row, reference: Row) -> bool:
    """Whether a run never gets near the reference on the development rows."""
    best = reference.metrics["validation_accuracy"] - run.metrics["validation_accuracy"]
    return 100 * best > BEHIND


def orders(run: Row, reference: Row) -> float:
    """How many orders of magnitude the gradient norms are apart, the mean over common epochs."""
    pairs = zip(reference.curves["gradient_norm"], run.curves["gradient_norm"], strict=False)
    logs = [np.log10(theirs / own) for theirs, own in pairs if own > 0 and theirs > 0]
    return float(np.mean(logs)) if logs else float("inf")
