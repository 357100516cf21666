"""The report's tables as files for other programs."""

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from expacc.compare.leaderboard import Leaderboard
from expacc.compare.leaderboard_table import Entry, TableBoard
from expacc.compare.record import StudyRecord
from expacc.compare.suspects import Suspects
from expacc.plain import safe_cell

__all__ = ["leaderboard_csv", "leaderboard_json", "suspects_csv"]


def _csv(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return buffer.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str):
        return safe_cell(value)
    return "" if value is None else value


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

    return _csv(head, rows())


_COLUMNS = (
    *("table", "noise", "loss", "verdict", "accuracy", "spread", "difference", "low", "high"),
    *("test", "p", "adjusted_p", "wins", "ties", "losses", "calibration_error", "log_loss"),
    *("balanced_accuracy", "seconds", "folds", "failures"),
)


def leaderboard_csv(board: Leaderboard) -> str:
    """One line per table, share of wrong labels and loss; accuracies are fractions."""

    def line(one: TableBoard, entry: Entry) -> Sequence[Any]:
        low, high = entry.test.interval if entry.test else (None, None)
        return (
            *(one.table, one.noise, entry.loss, entry.verdict, entry.accuracy, entry.spread),
            *(entry.difference, low, high, entry.test.test if entry.test else None),
            *(entry.test.p_value if entry.test else None, entry.adjusted_p),
            *(entry.wins, entry.ties, entry.losses, entry.metrics.get("calibration_error")),
            *(entry.metrics.get("log_loss"), entry.metrics.get("balanced_accuracy")),
            *(entry.seconds, len(entry.folds), len(entry.failures)),
        )

    boards = (*board.boards, *board.noisy)
    return _csv(_COLUMNS, (line(one, entry) for one in boards for entry in one.entries))


def leaderboard_json(record: StudyRecord, board: Leaderboard) -> str:
    """Everything on the leaderboard, with every fold, test and failure."""
    overall = board.overall
    content = {
        "answer": asdict(board.answer),
        "verdict": board.verdict,
        "settings": dict(record.settings),
        "tables": [_board(one) for one in (*board.boards, *board.noisy)],
        "overall": overall
        and {
            "tables": overall.tables,
            "entries": [asdict(entry) for entry in overall.entries],
            "overall_test": asdict(overall.ranks.overall),
        },
        "failures": [asdict(failure) for failure in board.failures],
        "notes": board.notes,
        "versions": dict(record.versions),
        "command": record.command,
    }
    return json.dumps(_finite(content), indent=1, allow_nan=False, default=str) + "\n"


def _finite(value: Any) -> Any:
    """JSON has no infinity and no NaN: they become text."""
    if isinstance(value, Mapping):
        return {str(name): _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _board(one: TableBoard) -> dict[str, Any]:
    return {
        "table": one.table,
        "noise": one.noise,
        "protocol": one.protocol.text,
        "complete": one.complete,
        "answer": asdict(one.answer),
        "entries": [asdict(entry) for entry in one.entries],
    }
