"""Which columns matter: the accuracy that a model loses where one is shuffled among test rows.

A column that became several features is shuffled as one. What the model does not use, or knows from
another column as well, costs nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expacc.data import SealedTest, TrainRows, generator

MOST_COLUMNS = 100  # that are shuffled; of more, those that differ most between the classes
MOST_ROWS, LEAST_ROWS = 1000, 100  # that are predicted anew for each
WORK = 2e8  # features × rows × columns × classes, about a tenth of a second

Array = NDArray[np.float64]
Places = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Importance:
    """The test rows of a fold, and what is shuffled of them.

    Args:
        test: sealed; a method that is asked about is one of its methods.
        given: labels of the test rows.
        columns: of the table, each as its places among the features; none for one left out.
        train: what the models were trained on, which chooses among many columns.
        seed: of the shuffling, the same for every model.
    """

    test: SealedTest
    given: Places
    columns: Sequence[Places]
    train: TrainRows
    seed: int

    @cached_property
    def looked_at(self) -> list[int]:
        """All columns, or of many those whose features' means differ most between classes."""
        if len(self.columns) <= MOST_COLUMNS:
            return list(range(len(self.columns)))
        features, labels = self.train.features, self.train.labels
        overall, spread = features.mean(axis=0), features.var(axis=0)
        between = np.zeros(features.shape[1])
        for code, count in zip(*np.unique(labels, return_counts=True), strict=True):
            between += count * (features[labels == code].mean(axis=0) - overall) ** 2
        merit = np.divide(between, spread, out=np.zeros_like(between), where=spread > 0)
        best = [float(merit[places].max()) if len(places) else -1.0 for places in self.columns]
        return sorted(np.argsort(-np.array(best), kind="stable")[:MOST_COLUMNS].tolist())

    def of(self, predict: Callable[[Any], Array], method: str) -> tuple[float, ...]:
        """For each column the share of test rows that are right no more once it is shuffled.

        Args:
            predict: features → logits.
            method: the name under which it opens the test rows.

        Returns:
            A number for each column, NaN for those that were not looked at.
        """
        found = np.full(len(self.columns), np.nan)

        def shuffled(features: Any) -> Array:
            work = features.shape[1] * len(self.train.classes) * max(1, len(self.looked_at))
            count = min(len(features), MOST_ROWS, max(LEAST_ROWS, int(WORK / work)))
            rows = np.sort(generator(self.seed, "rows").permutation(len(features))[:count])
            part, known = np.ascontiguousarray(features[rows]), self.given[rows]
            right = (predict(part).argmax(axis=1) == known).mean()
            for column in self.looked_at:
                places = self.columns[column]
                if not len(places):
                    found[column] = 0.0  # the same in every training row
                    continue
                kept = part[:, places].copy()
                part[:, places] = kept[generator(self.seed, column).permutation(count)]
                found[column] = right - (predict(part).argmax(axis=1) == known).mean()
                part[:, places] = kept
            return predict(features)

        self.test.score(method, shuffled)
        return tuple(found.tolist())
