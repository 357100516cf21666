"""Folds that belong to the rows: by rank of their hash within each class."""

import numpy as np
from numpy.typing import NDArray

from expacc.estimator.inputs import Prepared

__all__ = ["content_folds"]


def content_folds(prepared: Prepared, count: int) -> list[tuple[NDArray[np.int64], ...]]:
    """(training rows, held-out rows) per fold; stratified; a held-out part may lack a rare class.

    Fewer folds where there are few rows, none at all for fewer than four.
    """
    rows = len(prepared.codes)
    count = min(count, rows // 2)
    if count < 2:
        return []
    fold = np.empty(rows, dtype=np.int64)
    begin = 0
    for code in np.unique(prepared.codes):
        members = np.flatnonzero(prepared.codes == code)  # in the order of their hashes
        fold[members] = (begin + np.arange(len(members))) % count
        begin += len(members)  # go on where the last class ended: folds of equal size
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(count)]
