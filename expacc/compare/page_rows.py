"""Rows of the data on a page: those doubted, those that a loss changed, and how classes fare."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from expacc.compare.leaderboard_table import Entry, TableBoard
from expacc.compare.record import StudyRecord
from expacc.compare.suspects import FILE, SourceRows, Suspects, minority_note
from expacc.plain import plain
from expacc.report.words import loss_name, percent

MOST_SUSPECTS = 20
FIRST_SUSPECTS, FIRST_PICTURES = 8, 18  # before the rest folds
MOST_CLASSES = 12  # that are shown before the rest is folded away
MOST_CELLS, LONGEST_CELL = 8, 40  # of a row, and letters of each


def place_of(source: SourceRows, row: int) -> str:
    """The line of the file; of rows without lines the name, or the number where there is none."""
    line = source.line(row)
    return source.values(row).get(FILE, f"row {row}") if line is None else str(line)


def cells_of(source: SourceRows, row: int, importance: Mapping[str, float]) -> str:
    """A row's cells on a line: of many those of the columns that matter most."""
    cells = source.values(row)
    names = sorted(cells, key=lambda name: -importance.get(name, 0.0))[:MOST_CELLS]
    if len(names) == len(cells):
        names = list(cells)
    told = [f"{plain(name, LONGEST_CELL)} {plain(cells[name], LONGEST_CELL)}" for name in names]
    return " · ".join(told) + (" · …" if len(cells) > len(names) else "")


def suspect_table(
    record: StudyRecord, found: list[Suspects], importance: Mapping[str, Mapping[str, float]]
) -> dict[str, Any] | None:
    """The rows that are doubted most, with their lines and cells; what they are mostly, if so.

    Args:
        record: the study.
        found: of each table.
        importance: table → column → what its shuffling costs.
    """
    kept = [one for one in found if len(one.rows)]
    if not kept:
        return None
    most = max(MOST_SUSPECTS, len(record.pictures))
    first = FIRST_PICTURES if record.pictures else FIRST_SUSPECTS
    total = sum(int(one.disbelieved.sum()) for one in kept)
    tested = sum(len(one.rows) for one in kept)
    listed = sorted(
        (
            (-float(one.score[i]), place, i)
            for place, one in enumerate(kept)
            for i in one.disbelieved.nonzero()[0][:most].tolist()
        )
    )[:most]
    sources = {place: SourceRows.of(record.tables[kept[place].table]) for _, place, _ in listed}
    rows = []
    for _, place, i in listed:
        one, facts, source = kept[place], record.tables[kept[place].table], sources[place]
        row = int(one.rows[i])
        rows.append(
            {
                "table": one.table,
                "place": place_of(source, row),
                "given": facts.classes[int(one.given[i])],
                "suggested": facts.classes[int(one.suggested[i])],
                "belief": f"{float(one.belief[i]) * 100:.1f}",
                "against": f"{int(one.against[i])} of {int(one.judged[i])}",
                "cells": cells_of(source, row, importance.get(one.table, {})),
                "file": source.values(row).get(FILE, ""),
                "picture": record.pictures.get(str(row), ""),
            }
        )
    judges = ", ".join(loss_name(loss) for loss in kept[0].losses)
    several = len(record.tables) > 1
    notes = [
        (f"{plain(one.table)}: " if several else "") + note
        for one in kept
        if (note := minority_note(one, record.tables[one.table]))
    ]
    doubt = "" if notes else " Such a label may be wrong, or the row may just be hard: look at it."
    listed_all = f" The {len(rows)} most suspect are listed." if total > len(rows) else ""
    places = "" if record.pictures else " Lines are those of the file;"
    return {
        "title": "Rows that no model gets right" if notes else "Labels worth a second look",
        "notes": notes[:MOST_SUSPECTS],
        "several": several,
        "parts": [part for part in (rows[:first], rows[first:]) if part],
        "folded": bool(notes) and not several,
        "caption": f"Of {tested:,} rows, {total:,} carry a label that no model trained for "
        f"accuracy predicted ({judges}; each model judged only rows that it was not trained on)."
        f"{doubt}{listed_all}{places} suspects.csv has every row that at least one model doubts.",
        "gallery": bool(record.pictures),
    }


def class_table(record: StudyRecord, board: TableBoard, chosen: Sequence[Entry]) -> dict[str, Any]:
    """The accuracy on the rows of each class, the most frequent first.

    Args:
        record: of the study.
        board: of the table.
        chosen: whose accuracies are shown.
    """
    facts = record.tables[board.table]
    counts = np.bincount(facts.labels, minlength=len(facts.classes))
    rows: list[dict[str, Any]] = []
    for code in np.argsort(-counts, kind="stable").tolist():
        shares = [entry.by_class[code] for entry in chosen]
        top = max((share for share in shares if share is not None), default=2.0) - 1e-10
        rows.append(
            {
                "name": facts.classes[code],
                "rows": f"{counts[code]:,}",
                "cells": [
                    {"value": percent(share), "best": share is not None and share >= top}
                    for share in shares
                ],
            }
        )
    names = [entry.name for entry in chosen]
    parts = [rows[:MOST_CLASSES], rows[MOST_CLASSES:]]
    return {"names": names, "parts": [part for part in parts if part], "table": board.table}
