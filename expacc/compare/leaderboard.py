"""The leaderboard of a whole study: one table, or several ranked together; as files, too."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from expacc.compare.answer import Answer, answer_many_tables
from expacc.compare.leaderboard_table import (
    SIGNIFICANCE,
    Entry,
    Failure,
    TableBoard,
    Verdict,
    table_board,
)
from expacc.compare.record import StudyRecord
from expacc.compare.standing import standing_of_tables
from expacc.plain import csv_text
from expacc.report.words import OUTSIDE, REFERENCE, loss_name, loss_order
from expacc.stats.many_tables import (
    CriticalDifference,
    Profile,
    WinTieLoss,
    critical_difference,
    dolan_more_profile,
    win_tie_loss,
)
from expacc.stats.p_values import Floats
from expacc.stats.rank_tests import wilcoxon_against


@dataclass(frozen=True)
class OverallEntry:
    """One loss over several tables.

    Attributes:
        accuracy: mean over the tables.
        mean_rank: 1 is best on every table.
        difference: to cross entropy, mean over the tables; None for cross entropy itself.
        interval: 95 % interval of that mean, by t over tables; None for cross entropy itself.
        adjusted_p: against cross entropy, Wilcoxon's signed rank test with Holm over the losses.
        verdict: against cross entropy.
        against: tables won, tied and lost against cross entropy.
        calibration_error: mean over the tables; None if it was not measured.
        seconds: over all tables.
    """

    loss: str
    name: str
    accuracy: float
    mean_rank: float
    difference: float | None
    interval: tuple[float, float] | None
    adjusted_p: float | None
    verdict: Verdict
    against: WinTieLoss
    calibration_error: float | None
    seconds: float


@dataclass(frozen=True, eq=False)
class Overall:
    """Several tables together.

    Attributes:
        tables: those on which every ranked loss has all its scores.
        losses: those ranked, in the order of the columns of ``accuracies``.
        accuracies: tables × losses.
        entries: best mean rank first.
        outside: what was run beside the losses on all of these tables; not ranked.
    """

    tables: tuple[str, ...]
    losses: tuple[str, ...]
    accuracies: Floats
    entries: tuple[OverallEntry, ...]
    ranks: CriticalDifference
    profile: Profile
    answer: Answer
    outside: tuple[OverallEntry, ...] = ()


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
    overall, notes = (None, boards[0].notes) if len(boards) == 1 else _overall(boards)
    if overall is not None:
        ranked = [board for board in boards if board.table in overall.tables]
        model = str(record.settings.get("model", "linear"))
        answer = replace(overall.answer, also=standing_of_tables(ranked, overall, model))
        overall = replace(overall, answer=answer)
    elif len(boards) == 1:
        answer = boards[0].answer
    else:
        finished = sum(board.complete for board in boards)
        answer = Answer(f"No answer yet: {finished} of {len(boards)} tables are finished.", "")
    if least > 0 and answer.choice:
        share = f"{least * 100:g} % of training labels replaced at random"
        answer = replace(answer, sentence=f"With {share}: {answer.sentence}")
    runs = len(record.finals())
    notes = (*notes, *record.left_out)
    found = {share: _overall([one for one in noisy if one.noise == share])[0] for share in more}
    together = tuple((share, one) for share, one in found.items() if one is not None)
    return Leaderboard(answer, boards, noisy, overall, failures, notes, runs, together)


def _overall(boards: Sequence[TableBoard]) -> tuple[Overall | None, tuple[str, ...]]:
    scores: dict[str, dict[str, Entry]] = {}
    for board in boards:
        for entry in board.entries:
            if entry.loss not in OUTSIDE:
                done = entry.accuracy is not None and len(entry.folds) == len(board.folds)
                scores.setdefault(entry.loss, {}).update({board.table: entry} if done else {})
    if len(boards) < 2 or not scores.get(REFERENCE):
        return None, (f"{loss_name(REFERENCE)} has no complete table.",)
    # A loss that fails often would otherwise take most tables with it.
    half = len(scores[REFERENCE]) / 2
    losses = sorted((loss for loss, own in scores.items() if len(own) >= half), key=loss_order)
    tables = [b.table for b in boards if all(b.table in scores[loss] for loss in losses)]
    notes = [
        f"{loss_name(loss)} is not ranked: it has all scores on {len(own)} of {len(boards)} tables."
        for loss, own in scores.items()
        if loss not in losses
    ]
    if len(tables) < len(boards):
        missing = len(boards) - len(tables)
        notes.append(f"{missing} of {len(boards)} tables are not ranked: a loss lacks a score.")
    if len(tables) < 2 or len(losses) < 2:
        return None, tuple(notes)
    entries = [[scores[loss][table] for loss in losses] for table in tables]
    accuracies = np.array([[entry.accuracy for entry in row] for row in entries], np.float64)
    names = [loss_name(loss) for loss in losses]
    ranks = critical_difference(accuracies, names, significance=SIGNIFICANCE)
    overall = Overall(
        tuple(tables),
        tuple(losses),
        accuracies,
        _overall_entries(losses, entries, accuracies, ranks),
        ranks,
        dolan_more_profile(accuracies),
        answer_many_tables(accuracies, names, loss_name(REFERENCE), significance=SIGNIFICANCE),
        _outside(boards, tables, accuracies[:, losses.index(REFERENCE)]),
    )
    return overall, tuple(notes)


def _overall_entry(
    loss: str, own: Sequence[Entry], reference: Floats, gaps: Floats | None = None
) -> OverallEntry:
    """One loss over the tables: what is told of every loss; ranks and tests come later."""
    accuracies = np.array([entry.accuracy for entry in own], np.float64)
    gaps = accuracies - reference if gaps is None else gaps
    (against, _) = win_tie_loss(np.stack([reference + gaps, reference], 1), 1)
    mean = float(gaps.mean())
    reach = float(stats.t.ppf(0.975, len(gaps) - 1) * gaps.std(ddof=1) / len(gaps) ** 0.5)
    errors = [e.metrics["calibration_error"] for e in own if "calibration_error" in e.metrics]
    return OverallEntry(
        loss,
        loss_name(loss),
        accuracy=float(accuracies.mean()),
        mean_rank=math.nan,
        difference=mean,
        interval=(mean - reach, mean + reach),  # by t over tables
        adjusted_p=None,
        verdict="outside",
        against=against,
        calibration_error=float(np.mean(errors)) if errors else None,
        seconds=sum(entry.seconds for entry in own),
    )


def _outside(
    boards: Sequence[TableBoard], tables: Sequence[str], reference: Floats
) -> tuple[OverallEntry, ...]:
    """What was run beside the losses on all of these tables: unranked, untested."""
    found = []
    for name in OUTSIDE:
        own = [
            entry
            for board in boards
            if board.table in tables
            and (entry := board.entry(name)) is not None
            and entry.accuracy is not None
        ]
        if len(own) == len(tables):
            # One of them may have run on the first folds only: the same ones of cross entropy.
            gaps = np.array([entry.difference for entry in own], np.float64)
            found.append(_overall_entry(name, own, reference, gaps))
    return tuple(sorted(found, key=lambda entry: -entry.accuracy))


def _overall_entries(
    losses: Sequence[str],
    entries: Sequence[Sequence[Entry]],
    accuracies: Floats,
    ranks: CriticalDifference,
) -> tuple[OverallEntry, ...]:
    reference = losses.index(REFERENCE)
    tested = wilcoxon_against(accuracies, reference)
    rank = dict(zip(ranks.names, ranks.mean_ranks, strict=True))
    found = []
    for column, loss in enumerate(losses):
        one = _overall_entry(loss, [row[column] for row in entries], accuracies[:, reference])
        one = replace(one, mean_rank=rank[one.name])
        if column == reference:
            one = replace(one, difference=None, interval=None, verdict="reference")
        else:
            leaning: Verdict = "better" if tested.leaning[column] > 0 else "worse"
            p_value = float(tested.adjusted[column])
            verdict: Verdict = leaning if p_value <= SIGNIFICANCE else "even"
            one = replace(one, adjusted_p=p_value, verdict=verdict)
        found.append(one)
    return tuple(sorted(found, key=lambda e: (e.mean_rank, loss_order(e.loss))))


_COLUMNS = (
    *("table", "target", "noise", "loss", "verdict", "accuracy", "spread", "difference", "low"),
    *("high", "test", "p", "adjusted_p", "wins", "ties", "losses", "calibration_error", "log_loss"),
    *("balanced_accuracy", "seconds", "folds", "failures"),
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
            *(entry.seconds, len(entry.folds), len(entry.failures)),
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
