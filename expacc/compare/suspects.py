"""Rows whose given label no model believes, from out-of-fold predictions.

A loss that trains for accuracy gives up on a row that contradicts the others instead of bending
towards it, so its belief in a wrong label stays small. Every model judges only rows that it was not
trained on.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expacc.compare.record import StudyRecord
from expacc.plain import csv_text
from expacc.report.words import ACCURACY_TRAINED, OUTSIDE
from expacc.runner.rows import Row

LEAST_BELIEF = 1e-6  # of one model: no single one decides alone


@dataclass(frozen=True, eq=False)
class Suspects:
    """The rows of a table that were tested, most suspect first.

    Attributes:
        table: its name.
        losses: whose models judged.
        rows: row numbers, from 0.
        belief: the geometric mean of the models' calibrated probabilities of the given label.
        score: 1 - belief.
        given: class numbers.
        suggested: the class that was predicted most often.
        against: how many models predicted another class than the given one.
        judged: by how many models.
    """

    table: str
    losses: tuple[str, ...]
    rows: NDArray[np.int64]
    belief: NDArray[np.float64]
    score: NDArray[np.float64]
    given: NDArray[np.int64]
    suggested: NDArray[np.int64]
    against: NDArray[np.int64]
    judged: NDArray[np.int64]

    @property
    def disbelieved(self) -> NDArray[np.bool_]:
        """Whether every model predicted another class."""
        return np.equal(self.against, self.judged)


def rank_rows(
    rows: Sequence[Row], labels: NDArray[np.int32], classes: int, *, table: str = ""
) -> Suspects:
    """Rank the tested rows of one table by how little their given labels are believed.

    On tables with labels flipped on purpose, belief in the given label alone found them better than
    belief held against the strongest rival's did, and the geometric mean better than the plain one:
    one model that was talked into a wrong label does not outvote those that were not.

    Args:
        rows: runs with predictions; all of them are asked.
        labels: the class number that the table gives each row.
        classes: how many there are.
        table: its name.
    """
    count = len(labels)
    logs, votes = np.zeros(count), np.zeros((count, classes), np.int32)
    for row in rows:
        said = row.predictions
        if said is not None and row.failure is None:
            # A row that stands twice in a test fold is judged twice: add, do not overwrite.
            believed = np.log(np.maximum(said.given.astype(np.float64), LEAST_BELIEF))
            np.add.at(logs, said.rows, believed)
            np.add.at(votes, (said.rows, said.predicted), 1)
    judged = votes.sum(axis=1)
    tested = np.flatnonzero(judged)
    given = np.asarray(labels, np.int64)[tested]
    judged, votes = judged[tested], votes[tested]
    everyone = np.arange(len(tested))
    against = judged - votes[everyone, given]
    belief = np.exp(logs[tested] / judged)
    # Most often predicted; among equals another class than the given one.
    preference = votes * 2
    preference[everyone, given] -= 1
    suggested = preference.argmax(axis=1)
    order = np.lexsort((tested, -against / judged, belief))
    return Suspects(
        table,
        tuple(dict.fromkeys(row.loss for row in rows)),
        rows=tested[order],
        belief=belief[order],
        score=1 - belief[order],
        given=given[order],
        suggested=suggested[order],
        against=against[order],
        judged=judged[order],
    )


def suspects(record: StudyRecord, table: str) -> Suspects:
    """Rank the rows of a table of a study, by its accuracy-trained models on unaltered labels.

    Where none of the losses trains for accuracy, all of them are asked.
    """
    least = record.noise_levels[0]
    finals = [row for row in record.finals(table, noise=least) if row.loss not in OUTSIDE]
    asked = [row for row in finals if row.loss in ACCURACY_TRAINED]
    facts = record.tables[table]
    return rank_rows(asked or finals, facts.labels, len(facts.classes), table=table)


def suspects_csv(record: StudyRecord, found: Sequence[Suspects]) -> str:
    """Every row whose given label at least one model doubts, most suspect first in its table."""
    head = [
        *("table", "rank", "row", "given", "suggested", "score"),
        *("belief_in_given", "models_against", "models", "disbelieved_by_all"),
    ]

    def rows() -> Iterable[Sequence[Any]]:
        for one in found:
            classes = record.tables[one.table].classes
            for place in one.against.nonzero()[0].tolist():
                yield (
                    one.table,
                    place + 1,
                    int(one.rows[place]),
                    classes[int(one.given[place])],
                    classes[int(one.suggested[place])],
                    float(one.score[place]),
                    float(one.belief[place]),
                    int(one.against[place]),
                    int(one.judged[place]),
                    "yes" if one.disbelieved[place] else "no",
                )

    return csv_text(head, rows())
