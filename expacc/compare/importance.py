"""Which columns matter: the accuracy that a model loses where one is shuffled among test rows.

A column that became several features is shuffled as one. What the model does not use, or knows from
another column as well, costs nothing.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expacc.data import SealedTest, TrainRows, generator

MOST_COLUMNS = 100  # that are shuffled; of more, those that differ most between the classes
MOST_ROWS, LEAST_ROWS = 1000, 100  # that are predicted anew for each
WORK = 2e8  # features × rows × columns × classes, about a tenth of a second

Array = NDArray[np.float64]
Places = NDArray[np.int64]


def importance(
    test: SealedTest,
    method: str,
    predict: Callable[[Any], Array],
    given: Places,
    columns: Sequence[Places],
    train: TrainRows,
    seed: int,
) -> tuple[float, ...]:
    """For each column the share of test rows that are right no more once it is shuffled.

    Args:
        test: the test rows, which know the method by its name.
        method: that name.
        predict: features → logits.
        given: labels of the test rows.
        columns: of the table, each as its places among the features; none for one left out.
        train: what the model was trained on, which chooses among many columns.
        seed: of the shuffling.

    Returns:
        A number for each column, NaN for those that were not looked at.
    """
    looked_at = _chosen(columns, train)
    found = np.full(len(columns), np.nan)

    def shuffled(features: Any) -> Array:
        size = features.shape[1] * len(train.classes) * max(1, len(looked_at))
        count = min(len(features), MOST_ROWS, max(LEAST_ROWS, int(WORK / size)))
        random = generator(seed, "rows")
        rows = np.sort(random.permutation(len(features))[:count])
        part, known = np.ascontiguousarray(features[rows]), given[rows]
        right = (predict(part).argmax(axis=1) == known).mean()
        for column in looked_at:
            places = columns[column]
            if not len(places):
                found[column] = 0.0  # the same in every training row
                continue
            kept = part[:, places].copy()
            part[:, places] = kept[generator(seed, column).permutation(count)]
            found[column] = right - (predict(part).argmax(axis=1) == known).mean()
            part[:, places] = kept
        return predict(features)

    test.score(method, shuffled)
    return tuple(found.tolist())


def _chosen(columns: Sequence[Places], train: TrainRows) -> list[int]:
    """All columns, or of too many those with a feature whose means differ most between classes."""
    if len(columns) <= MOST_COLUMNS:
        return list(range(len(columns)))
    classes, counts = np.unique(train.labels, return_counts=True)
    features = train.features
    overall, spread = features.mean(axis=0), features.var(axis=0) + 1e-12
    between = np.zeros(features.shape[1])
    for code, count in zip(classes.tolist(), counts.tolist(), strict=True):
        gap = features[train.labels == code].mean(axis=0) - overall
        between += count * gap**2
    merit = between / spread
    best = [float(merit[places].max()) if len(places) else -1.0 for places in columns]
    return sorted(np.argsort(-np.array(best), kind="stable")[:MOST_COLUMNS].tolist())
