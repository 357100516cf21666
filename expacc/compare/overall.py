"""Several tables together: losses by their ranks, and what is reached beside them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from expacc.compare.answer import Answer, answer_many_tables
from expacc.compare.leaderboard_table import SIGNIFICANCE, Entry, TableBoard, Verdict
from expacc.compare.standing import LAST, model_text
from expacc.plain import plain
from expacc.report.words import (
    MAJORITY,
    OUTSIDE,
    REFERENCE,
    TREES,
    listed,
    loss_name,
    loss_order,
    percent,
)
from expacc.stats.many_tables import (
    CriticalDifference,
    Profile,
    WinTieLoss,
    critical_difference,
    dolan_more_profile,
    win_tie_loss,
)
from expacc.stats.p_values import NEGLIGIBLE, Floats
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
        last_accuracy: mean of the last rounds of models that are stopped before; else None.
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
    last_accuracy: float | None = None


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


def rank_tables(
    boards: Sequence[TableBoard], model: str = ""
) -> tuple[Overall | None, tuple[str, ...]]:
    """The losses ranked over tables; None where too little is finished; and lines on what is not.

    Args:
        boards: of different tables, at one share of wrong labels.
        model: what was trained, in words.
    """
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
        answer_many_tables(
            accuracies, names, loss_name(REFERENCE), significance=SIGNIFICANCE, model=model
        ),
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
    last = [entry.metrics[LAST] for entry in own if LAST in entry.metrics]
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
        last_accuracy=float(np.mean(last)) if len(last) == len(own) else None,
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


def standing_of_tables(
    boards: Sequence[TableBoard], overall: Overall, model: str
) -> tuple[str, ...]:
    """What the references reach over several tables, and where no loss beats one class."""
    also = []
    best = max(overall.entries, key=lambda entry: entry.accuracy)
    rivals = [entry for entry in overall.outside if entry.loss != MAJORITY]
    if rivals:
        rival = max(rivals, key=lambda entry: entry.difference or 0.0)
        # Both as they differ from cross entropy, which has every fold that either of them has.
        ahead = sum(
            _ahead(board, rival.loss) > _ahead(board, best.loss) + NEGLIGIBLE for board in boards
        )
        reach = "reach" if rival.loss == TREES else "reaches"
        also.append(
            f"Beside the losses {rival.name} {reach} {percent(rival.accuracy)} % on average; the "
            f"best loss on {model_text(model)}, {best.name}, {percent(best.accuracy)} %, "
            f"and less than that on {ahead} of {len(boards)} tables."
        )
    alike = [board.table for board in boards if board.answer.one_class]
    if alike:
        shown = listed([plain(name, 40) for name in alike[:3]])
        more = f" and {len(alike) - 3} more" if len(alike) > 3 else ""
        also.append(
            f"On {len(alike)} of {len(boards)} tables no loss beats always saying the most "
            f"frequent class ({shown}{more})."
        )
    return tuple(also)


def _ahead(board: TableBoard, loss: str) -> float:
    entry = board.entry(loss)
    return (entry.difference or 0.0) if entry is not None else 0.0
