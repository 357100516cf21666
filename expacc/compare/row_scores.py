"""Which test rows a loss got right: by seed for a holdout, by repetition for folds."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from expacc.compare.record import TableFacts
from expacc.runner.rows import Row
from expacc.stats.score_table import Floats

__all__ = ["right_by_repetition", "right_by_seed"]


def right_by_seed(rows: Sequence[Row], facts: TableFacts) -> dict[int, dict[int, bool]]:
    """Seed → row number → whether the prediction is the given label."""
    found = {}
    for row in rows:
        if row.failure is None and row.predictions is not None:
            said = row.predictions
            right = (said.predicted == facts.labels[said.rows]).tolist()
            found[row.seed] = dict(zip(said.rows.tolist(), right, strict=True))
    return found


def right_by_repetition(
    rows: Sequence[Row], facts: TableFacts, folds: Sequence[str]
) -> Floats | None:
    """For each repetition and row of the table, the share of seeds that were right.

    A repetition is a run of folds that test no row twice. NaN stands for rows that no fold tests.

    Returns:
        Shape (repetitions, rows); None where repetitions do not all have as many folds and test
        the same rows, or where a fold has no predictions.
    """
    repetitions: list[Floats] = []
    counts: list[int] = []
    for fold in folds:
        tested = _tested(rows, facts, fold)
        if tested is None:
            return None
        places, right = tested
        if not repetitions or not np.isnan(repetitions[-1][places]).all():
            repetitions.append(np.full(facts.rows, np.nan))
            counts.append(0)
        repetitions[-1][places] = right
        counts[-1] += 1
    table = np.array(repetitions)
    same = (np.isnan(table) == np.isnan(table[:1])).all() if len(table) else False
    return table if same and len(set(counts)) == 1 else None


def _tested(
    rows: Sequence[Row], facts: TableFacts, fold: str
) -> tuple[NDArray[np.int32], Floats] | None:
    """The test rows of a fold, and the share of seeds that were right about each."""
    said = [
        row.predictions
        for row in rows
        if row.fold == fold and row.failure is None and row.predictions is not None
    ]
    if not said or any(not np.array_equal(one.rows, said[0].rows) for one in said):
        return None
    right = [one.predicted == facts.labels[one.rows] for one in said]
    return said[0].rows, np.mean(right, axis=0)
