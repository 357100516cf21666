"""Rows whose given label no model believes, from out-of-fold predictions.

A loss that trains for accuracy gives up on a row that contradicts the others instead of bending
towards it, so its belief in a wrong label stays small. Every model judges only rows that it was not
trained on.
"""

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expacc.compare.record import StudyRecord, TableFacts
from expacc.data.table import Table
from expacc.plain import csv_text
from expacc.report.words import ACCURACY_TRAINED, OUTSIDE, percent
from expacc.runner.rows import Row

LEAST_BELIEF = 1e-6  # of one model: no single one decides alone
MOSTLY = 0.8  # of the suspects, to call them those of one class
FILE = "file"  # the column of rows that are named, not numbered
_LONGEST_CELL = 200  # letters that are kept
_LARGEST = 256 << 20  # bytes that a record of cells may unpack to


@dataclass(frozen=True)
class SourceRows:
    """The rows of a table as its file has them.

    Attributes:
        lines: of the file, on which each row begins; () if a study did not say.
        columns: name → cells as written, without the target; {} of a large table.
    """

    lines: Sequence[int] = ()
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, facts: TableFacts) -> "SourceRows":
        """What a study keeps of a table's file.

        Raises:
            ValueError: it is damaged.
        """
        if not facts.source:
            return cls()
        try:
            unpacker = zlib.decompressobj()
            text = unpacker.decompress(base64.b64decode(facts.source, validate=True), _LARGEST)
            found = json.loads(text)
            first, lines = found["first"], found["lines"]
            steps = range(facts.rows) if lines == [] else lines or ()  # None: rows without lines
            rows = cls([first + line for line in steps], found["columns"])
            listed = [rows.lines, *rows.columns.values()]
            sizes = set(map(len, listed[lines is None :]))
        except (ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
            raise ValueError(
                f"the rows of {facts.name!r:.60} must be as written; {error}"
            ) from None
        if sizes != {facts.rows}:
            raise ValueError(f"the rows of {facts.name!r:.60} must be those of the table.")
        return rows

    def line(self, row: int) -> int | None:
        """The line of the file on which a row begins."""
        return self.lines[row] if row < len(self.lines) else None

    def values(self, row: int) -> dict[str, str]:
        """A row's cells by column."""
        return {name: str(cells[row]) for name, cells in self.columns.items()}


def pack_source(table: Table) -> str:
    """What ``SourceRows.of`` needs, as text for a study's notes."""
    steps = table.lines - table.lines[0]
    plain = bool((steps == range(table.rows)).all())
    columns = {
        name: ["" if cell is None else str(cell)[:_LONGEST_CELL] for cell in cells]
        for name, cells in table.written.items()
    }
    return _pack(int(table.lines[0]), [] if plain else steps.tolist(), columns)


def pack_names(names: Sequence[str]) -> str:
    """The same of rows that have no lines, but names, such as files."""
    return _pack(0, None, {FILE: [name[:_LONGEST_CELL] for name in names]})


def _pack(first: int, lines: list[int] | None, columns: Mapping[str, list[str]]) -> str:
    text = json.dumps({"first": first, "lines": lines, "columns": columns})
    return base64.b64encode(zlib.compress(text.encode(), 3)).decode()


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


def minority_note(found: Suspects, facts: TableFacts) -> str:
    """A sentence where the suspects are mostly rows of a class that is hardly ever predicted."""
    doubted = found.given[found.disbelieved]
    if not len(doubted):
        return ""
    code = int(np.bincount(doubted).argmax())
    own = int((doubted == code).sum())
    tested = int((found.given == code).sum())
    rare = 2 * tested < len(found.given)
    if own < MOSTLY * len(doubted) or not rare or 10 * own < 3 * tested:
        return ""
    return (
        f"{own:,} of these {len(doubted):,} rows are of the class {facts.classes[code]!r}, which "
        f"{percent(tested / len(found.given))} % of the rows have and the models seldom predict: "
        "that says more about the models than about the labels."
    )


def suspects_csv(record: StudyRecord, found: Sequence[Suspects]) -> str:
    """Every row whose given label at least one model doubts, most suspect first in its table.

    With its line of the file and its cells: a column each, or of several tables one for all.
    """
    head = [
        *("table", "target", "rank", "line", "given", "suggested", "score"),
        *("belief_in_given", "models_against", "models", "disbelieved_by_all"),
        "class_seldom_predicted",
    ]
    sources = {one.table: SourceRows.of(record.tables[one.table]) for one in found}
    alone = len(found) == 1
    names = list(sources[found[0].table].columns) if alone else ["cells"]

    def rows() -> Iterable[Sequence[Any]]:
        for one in found:
            facts, source = record.tables[one.table], sources[one.table]
            seldom = _seldom_predicted(one, len(facts.classes))
            for place in one.against.nonzero()[0].tolist():
                row = int(one.rows[place])
                cells = source.values(row)
                joined = "; ".join(f"{name}: {cell}" for name, cell in cells.items())
                yield (
                    one.table,
                    facts.target,
                    place + 1,
                    source.line(row),
                    facts.classes[int(one.given[place])],
                    facts.classes[int(one.suggested[place])],
                    float(one.score[place]),
                    float(one.belief[place]),
                    int(one.against[place]),
                    int(one.judged[place]),
                    "yes" if one.disbelieved[place] else "no",
                    "yes" if seldom[one.given[place]] else "no",
                    *(cells.values() if alone else (joined,)),
                )

    return csv_text([*head, *names], rows())


def _seldom_predicted(found: Suspects, classes: int) -> NDArray[np.bool_]:
    """Whether most predictions for the rows of a class are another one."""
    against, judged = (
        np.bincount(found.given, weights=votes, minlength=classes)
        for votes in (found.against, found.judged)
    )
    return np.asarray(2 * against > judged)
