"""The leaderboard of a whole study: one table, or several ranked together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

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
from expacc.report.loss_names import OUTSIDE, REFERENCE, loss_name, loss_order
from expacc.stats.many_tables import (
    CriticalDifference,
    Profile,
    WinTieLoss,
    critical_difference,
    dolan_more_profile,
    win_tie_loss,
)
from expacc.stats.rank_tests import wilcoxon_against
from expacc.stats.score_table import Floats

__all__ = ["Entry", "Failure", "Leaderboard", "Overall", "OverallEntry", "leaderboard"]


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
        outside: the check from outside on the same tables, not ranked; None where it lacks a score.
    """

    tables: tuple[str, ...]
    losses: tuple[str, ...]
    accuracies: Floats
    entries: tuple[OverallEntry, ...]
    ranks: CriticalDifference
    profile: Profile
    answer: Answer
    outside: OverallEntry | None = None


@dataclass(frozen=True, eq=False)
class Leaderboard:
    """What a study found.

    Attributes:
        answer: the sentence on top.
        boards: one per table at the smallest share of wrong labels, in the study's order.
        noisy: the same at the other shares.
        overall: several tables together; None for one, or while too few are finished.
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
        answer = overall.answer
    elif len(boards) == 1:
        answer = boards[0].answer
    else:
        finished = sum(board.complete for board in boards)
        answer = Answer(f"No answer yet: {finished} of {len(boards)} tables are finished.", "")
    if least > 0 and answer.choice:
        share = f"{least * 100:g} % of training labels replaced at random"
        answer = replace(answer, sentence=f"With {share}: {answer.sentence}")
    runs = len(record.finals())
    return Leaderboard(answer, boards, noisy, overall, failures, notes, runs)


def _overall(boards: Sequence[TableBoard]) -> tuple[Overall | None, tuple[str, ...]]:
    scores: dict[str, dict[str, Entry]] = {}
    for board in boards:
        for entry in board.entries:
            if entry.loss != OUTSIDE:
                done = entry.accuracy is not None and len(entry.folds) == len(board.folds)
                scores.setdefault(entry.loss, {}).update({board.table: entry} if done else {})
    if not scores.get(REFERENCE):
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


def _outside(
    boards: Sequence[TableBoard], tables: Sequence[str], reference: Floats
) -> OverallEntry | None:
    """scikit-learn's logistic regression beside the losses: unranked, untested."""
    own = [
        entry
        for board in boards
        if board.table in tables
        for entry in board.entries
        if entry.loss == OUTSIDE
        and entry.accuracy is not None
        and len(entry.folds) == len(board.folds)
    ]
    if len(own) < len(tables):
        return None
    accuracies = np.array([entry.accuracy for entry in own], np.float64)
    (against, _) = win_tie_loss(np.stack([accuracies, reference], 1), 1)
    difference, interval = _mean_gap(accuracies - reference)
    errors = [e.metrics["calibration_error"] for e in own if "calibration_error" in e.metrics]
    return OverallEntry(
        OUTSIDE,
        loss_name(OUTSIDE),
        float(accuracies.mean()),
        math.nan,
        difference,
        interval,
        None,
        "outside",
        against,
        float(np.mean(errors)) if errors else None,
        sum(entry.seconds for entry in own),
    )


def _mean_gap(gaps: Floats) -> tuple[float, tuple[float, float]]:
    """The mean over tables and its 95 % interval, by t."""
    reach = float(stats.t.ppf(0.975, len(gaps) - 1) * gaps.std(ddof=1) / len(gaps) ** 0.5)
    mean = float(gaps.mean())
    return mean, (mean - reach, mean + reach)


def _overall_entries(
    losses: Sequence[str],
    entries: Sequence[Sequence[Entry]],
    accuracies: Floats,
    ranks: CriticalDifference,
) -> tuple[OverallEntry, ...]:
    reference = losses.index(REFERENCE)
    against = win_tie_loss(accuracies, reference)
    tested = wilcoxon_against(accuracies, reference)
    rank = dict(zip(ranks.names, ranks.mean_ranks, strict=True))
    found = []
    for column, loss in enumerate(losses):
        own = [row[column] for row in entries]
        mean, interval = _mean_gap(accuracies[:, column] - accuracies[:, reference])
        errors = [e.metrics["calibration_error"] for e in own if "calibration_error" in e.metrics]
        itself = column == reference
        verdict: Verdict = "reference" if itself else "even"
        if tested.adjusted[column] <= SIGNIFICANCE:
            verdict = "better" if tested.leaning[column] > 0 else "worse"
        found.append(
            OverallEntry(
                loss,
                loss_name(loss),
                float(accuracies[:, column].mean()),
                rank[loss_name(loss)],
                None if itself else mean,
                None if itself else interval,
                None if itself else float(tested.adjusted[column]),
                verdict,
                against[column],
                float(np.mean(errors)) if errors else None,
                sum(e.seconds for e in own),
            )
        )
    return tuple(sorted(found, key=lambda e: (e.mean_rank, loss_order(e.loss))))
