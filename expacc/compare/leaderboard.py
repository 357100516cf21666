"""The leaderboard of a whole study: one table, or several ranked together; as files, too."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from expacc.compare.answer import Answer
from expacc.compare.leaderboard_table import Entry, Failure, TableBoard, table_board
from expacc.compare.overall import Overall, rank_tables, standing_of_tables
from expacc.compare.record import GIVEN, StudyRecord
from expacc.compare.standing import LAST, model_text
from expacc.plain import csv_text
from expacc.report.words import REFERENCE


@dataclass(frozen=True, eq=False)
class Leaderboard:
    """What a study found.

    Attributes:
        answer: the sentence on top.
        boards: one per table at the smallest share of wrong labels, in the study's order.
        noisy: the same at the other shares.
        overall: several tables together; None for one, or while too few are finished.
        noisy_overall: the same at the other shares, as far as there is one.
        failures: all runs without a score, trials left out.
        notes: what was left out, in sentences.
        runs: finished, failed ones included, trials left out.
    """

    answer: Answer
    boards: tuple[TableBoard, ...]
    noisy: tuple[TableBoard, ...]
    overall: Overall | None
    failures: tuple[Failure, ...]
    notes: tuple[str, ...]
    runs: int
    noisy_overall: tuple[tuple[float, Overall], ...] = ()

    @property
    def noisy_answers(self) -> tuple[tuple[float, Answer], ...]:
        """Share of wrong labels → the answer there, over all tables of the study."""
        if len(self.boards) == 1:
            return tuple((one.noise, one.answer) for one in self.noisy)
        return tuple((share, overall.answer) for share, overall in self.noisy_overall)

    @property
    def spotlight(self) -> TableBoard:
        """The table to look at closely: the one on which a loss differs most from cross entropy."""

        def size(one: TableBoard) -> float:
            rival = self.rival(one)
            return abs(rival.difference or 0.0) if rival else -1.0

        return max(self.boards, key=size)

    def rival(self, one: TableBoard) -> Entry | None:
        """The loss to hold against cross entropy: the answer's, else the best of the others."""
        rivals = [entry for entry in one.losses if entry.loss != REFERENCE]
        chosen = [entry for entry in rivals if entry.name == self.answer.choice]
        return next(iter(chosen or rivals), None)

    @property
    def verdict(self) -> str:
        """'better', 'keep' or 'unfinished'."""
        if not self.answer.choice:
            return "unfinished"
        return "better" if self.answer.beats else "keep"

    def board(self, table: str, noise: float | None = None) -> TableBoard | None:
        """The board of a table, at the smallest share of wrong labels unless told."""
        for board in (*self.boards, *self.noisy):
            if board.table == table and (noise is None or board.noise == noise):
                return board
        return None


def leaderboard(record: StudyRecord) -> Leaderboard:
    """Build the leaderboard of a study, running or finished.

    Args:
        record: its settings, tables and rows so far.
    """
    if not record.tables:
        raise ValueError("tables must hold at least one table; got none.")
    least, *more = record.noise_levels
    boards = tuple(table_board(record, table, least) for table in record.tables)
    noisy = tuple(table_board(record, table, share) for share in more for table in record.tables)
    failures = tuple(
        failure
        for board in (*boards, *noisy)
        for entry in board.entries
        for failure in entry.failures
    )
    model = str(record.settings.get("model", "linear"))
    overall, notes = (
        (None, boards[0].notes) if len(boards) == 1 else rank_tables(boards, model_text(model))
    )
    if overall is not None:
        ranked = [board for board in boards if board.table in overall.tables]
        answer = replace(overall.answer, also=standing_of_tables(ranked, overall, model))
        overall = replace(overall, answer=answer)
    elif len(boards) == 1:
        answer = boards[0].answer
    else:
        finished = sum(board.complete for board in boards)
        answer = Answer(f"No answer yet: {finished} of {len(boards)} tables are finished.", "")
    if least > 0 and answer.choice:
        how = "wrong" if record.settings.get("noise") == GIVEN else "replaced at random"
        share = f"{least * 100:.3g} % of training labels {how}"
        answer = replace(answer, sentence=f"With {share}: {answer.sentence}")
    runs = len(record.finals())
    notes = (*notes, *record.left_out)
    found = {
        share: rank_tables([one for one in noisy if one.noise == share], model_text(model))[0]
        for share in more
    }
    together = tuple((share, one) for share, one in found.items() if one is not None)
    return Leaderboard(answer, boards, noisy, overall, failures, notes, runs, together)


_COLUMNS = (
    *("table", "target", "noise", "loss", "verdict", "accuracy", "spread", "difference", "low"),
    *("high", "test", "p", "adjusted_p", "wins", "ties", "losses", "calibration_error", "log_loss"),
    *("balanced_accuracy", "seconds", "folds", "failures", LAST),
)


def leaderboard_csv(board: Leaderboard) -> str:
    """One line per table, share of wrong labels and loss; accuracies are fractions."""

    def line(one: TableBoard, entry: Entry) -> Sequence[Any]:
        low, high = entry.test.interval if entry.test else (None, None)
        return (
            *(
                one.table,
                one.target,
                one.noise,
                entry.loss,
                entry.verdict,
                entry.accuracy,
                entry.spread,
            ),
            *(entry.difference, low, high, entry.test.test if entry.test else None),
            *(entry.test.p_value if entry.test else None, entry.adjusted_p),
            *(entry.wins, entry.ties, entry.losses, entry.metrics.get("calibration_error")),
            *(entry.metrics.get("log_loss"), entry.metrics.get("balanced_accuracy")),
            *(entry.seconds, len(entry.folds), len(entry.failures), entry.metrics.get(LAST)),
        )

    boards = (*board.boards, *board.noisy)
    return csv_text(_COLUMNS, (line(one, entry) for one in boards for entry in one.entries))


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


def classes_csv(record: StudyRecord, board: Leaderboard) -> str:
    """One line per table, share of wrong labels, loss and class: the accuracy on its rows."""
    head = ("table", "target", "noise", "loss", "class", "rows", "accuracy")

    def lines() -> Iterator[Sequence[Any]]:
        for one in (*board.boards, *board.noisy):
            facts = record.tables[one.table]
            rows = np.bincount(facts.labels, minlength=len(facts.classes)).tolist()
            for entry in one.entries:
                for name, count, share in zip(facts.classes, rows, entry.by_class, strict=True):
                    yield one.table, one.target, one.noise, entry.loss, name, count, share

    return csv_text(head, lines())


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
        "target": one.target,
        "classes": one.classes,
        "noise": one.noise,
        "protocol": one.protocol.text,
        "complete": one.complete,
        "answer": asdict(one.answer),
        "entries": [asdict(entry) for entry in one.entries],
    }
