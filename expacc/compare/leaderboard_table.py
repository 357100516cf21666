"""From rows to a leaderboard: who scored what, how far from cross entropy, how surely.

Seeds are averaged first. A failed run is a failure with its reason and has no score; a test is made
only where both losses finished every fold.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from expacc.compare.answer import Answer, Rival, answer_one_table, better, worse
from expacc.compare.record import Protocol, StudyRecord, TableFacts, read_protocol
from expacc.report.loss_names import OUTSIDE, REFERENCE, loss_name, loss_order
from expacc.runner.rows import Row
from expacc.stats.one_table import (
    PairedTest,
    combined_5x2_f,
    corrected_paired_t,
    mcnemar,
    paired_rows,
)
from expacc.stats.p_values import NEGLIGIBLE, Floats, adjust


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


SIGNIFICANCE = 0.05
Verdict = Literal["reference", "better", "worse", "even", "unfinished", "outside"]


@dataclass(frozen=True)
class Failure:
    """A run without a score."""

    table: str
    loss: str
    fold: str
    seed: int
    noise: float
    reason: str


@dataclass(frozen=True)
class Entry:
    """One loss on one table.

    Attributes:
        loss: its name in the settings.
        name: its name for people.
        accuracy: mean over the folds that have a score; None if none has.
        spread: standard deviation over folds (over seeds for a holdout); None for a single score.
        folds: fold → accuracy, seeds averaged.
        difference: to cross entropy, over the folds that both have; None where there are none.
        test: of the difference; None until both have every fold.
        second_test: Alpaydin's combined F of 5×2 cv, beside the test that decides; else None.
        adjusted_p: Holm over the losses, times the number of such boards in the study.
        wins: folds in which it is more accurate than cross entropy; ties and losses likewise.
        metrics: name → mean over folds: 'calibration_error', 'log_loss' …
        seconds: of its search and its training.
        failures: runs without a score.
        verdict: against cross entropy.
    """

    loss: str
    name: str
    accuracy: float | None
    spread: float | None
    folds: Mapping[str, float]
    difference: float | None
    test: PairedTest | None
    second_test: PairedTest | None
    adjusted_p: float | None
    wins: int
    ties: int
    losses: int
    metrics: Mapping[str, float]
    seconds: float
    failures: tuple[Failure, ...]
    verdict: Verdict


@dataclass(frozen=True)
class TableBoard:
    """All losses on one table at one share of wrong training labels.

    Attributes:
        table: its name.
        noise: share of training labels that were replaced.
        protocol: how accuracies were measured.
        folds: names of all folds that belong to it.
        entries: best accuracy first; those that lack a fold after those that do not.
        answer: the sentence.
        complete: whether every loss has a score in every fold.
        notes: losses that were not compared, and why.
    """

    table: str
    noise: float
    protocol: Protocol
    folds: tuple[str, ...]
    entries: tuple[Entry, ...]
    answer: Answer
    complete: bool
    notes: tuple[str, ...]

    def entry(self, loss: str) -> Entry | None:
        """The entry of a loss, if it has one."""
        return next((entry for entry in self.entries if entry.loss == loss), None)


def table_board(record: StudyRecord, table: str, noise: float) -> TableBoard:
    """Build the leaderboard of one table at one share of wrong training labels."""
    facts = record.tables[table]
    protocol = read_protocol(record.folds, facts.folds)
    rows = record.finals(table, noise=noise)
    seconds: dict[str, float] = defaultdict(float)
    for row in record.rows:
        if row.table == table and row.noise == noise:
            seconds[row.loss] += row.seconds
    by_loss: dict[str, list[Row]] = {str(loss): [] for loss in record.settings.get("losses", ())}
    for row in rows:
        by_loss.setdefault(row.loss, []).append(row)
    folds = protocol.folds or tuple(sorted({row.fold for row in rows}, key=_natural))
    reference = by_loss.get(REFERENCE, [])
    entries = [
        _entry(loss, own, reference, facts, protocol, folds, seconds[loss])
        for loss, own in by_loss.items()
    ]
    # Every board makes claims of its own; together they are to be wrong as rarely as one.
    boards = len(record.tables) * len(record.noise_levels)
    entries = _judged(entries, boards)
    # A mean over the folds that went well is no match for a mean over all of them.
    entries.sort(key=lambda e: (len(e.folds) < len(folds), -(e.accuracy or 0), loss_order(e.loss)))
    contest = [entry for entry in entries if entry.loss != OUTSIDE]
    complete = all(len(entry.folds) == len(folds) for entry in contest) and bool(contest)
    answer = _answer(table, contest, protocol, len(folds), boards)
    notes = _left_out(contest, len(folds))
    return TableBoard(table, noise, protocol, folds, tuple(entries), answer, complete, notes)


def _natural(fold: str) -> tuple[int, str]:
    digits = "".join(letter for letter in fold if letter.isdigit())
    return (int(digits[:9]) if digits.isascii() and digits else 0, fold)


def _by_fold(rows: Sequence[Row], metric: str) -> dict[str, float]:
    values: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        value = row.metrics.get(metric)
        if row.failure is None and value is not None and np.isfinite(value):
            values[row.fold].append(float(value))
    return {fold: float(np.mean(values[fold])) for fold in sorted(values, key=_natural)}


def _entry(
    loss: str,
    rows: Sequence[Row],
    reference: Sequence[Row],
    facts: TableFacts,
    protocol: Protocol,
    folds: tuple[str, ...],
    seconds: float,
) -> Entry:
    own, theirs = _by_fold(rows, "accuracy"), _by_fold(reference, "accuracy")
    common = [fold for fold in own if fold in theirs]
    gaps = np.array([own[fold] - theirs[fold] for fold in common])
    won, lost = int((gaps > NEGLIGIBLE).sum()), int((gaps < -NEGLIGIBLE).sum())
    scores = list(own.values())
    if len(scores) == 1:
        scores = [row.metrics["accuracy"] for row in rows if row.failure is None]
    test = second = None
    if loss not in (REFERENCE, OUTSIDE) and folds and len(common) == len(folds):
        test, second = _tests(rows, reference, [own, theirs], facts, protocol, folds)
    names = {name for row in rows for name in row.metrics} - {"accuracy"}
    means = {name: _by_fold(rows, name) for name in sorted(names)}
    failures = tuple(
        Failure(row.table, row.loss, row.fold, row.seed, row.noise, row.failure)
        for row in rows
        if row.failure is not None
    )
    return Entry(
        loss=loss,
        name=loss_name(loss),
        accuracy=float(np.mean(list(own.values()))) if own else None,
        spread=float(np.std(scores, ddof=1)) if len(scores) > 1 else None,
        folds=own,
        difference=float(gaps.mean()) if common and loss != REFERENCE else None,
        test=test,
        second_test=second,
        adjusted_p=None,
        wins=won,
        ties=len(common) - won - lost if loss != REFERENCE else 0,
        losses=lost,
        metrics={name: float(np.mean(list(of.values()))) for name, of in means.items() if of},
        seconds=seconds,
        failures=failures,
        verdict="unfinished",
    )


def _tests(
    rows: Sequence[Row],
    reference: Sequence[Row],
    scores: Sequence[Mapping[str, float]],
    facts: TableFacts,
    protocol: Protocol,
    folds: tuple[str, ...],
) -> tuple[PairedTest | None, PairedTest | None]:
    """The test that decides, and Alpaydin's F beside it where it is 5×2 cv."""
    if len(folds) == 1:
        return _holdout_test(rows, reference, facts), None
    own, theirs = scores
    gaps = [own[fold] - theirs[fold] for fold in folds]
    sizes = [len(row.predictions.rows) for row in rows if row.predictions is not None]
    tested = float(np.mean(sizes)) if sizes else facts.rows / (protocol.parts or 5)
    second = combined_5x2_f(np.reshape(gaps, (5, 2)), tested) if protocol.kind == "5x2" else None
    ours, others = (right_by_repetition(some, facts, folds) for some in (rows, reference))
    if ours is not None and others is not None and ours.shape == others.shape:
        gains = ours - others
        known = ~np.isnan(gains[0])
        if len(folds) >= 2 * len(gains) and not np.isnan(gains[:, known]).any():
            return paired_rows(gains[:, known], len(folds) // len(gains)), second
    # Splits of other kinds, such as random ones that came with the table.
    return second or corrected_paired_t(gaps, max(1.0, facts.rows - tested), tested), None


def _holdout_test(
    rows: Sequence[Row], reference: Sequence[Row], facts: TableFacts
) -> PairedTest | None:
    ours, others = (
        {
            row.seed: row.predictions
            for row in some
            if row.failure is None and row.predictions is not None
        }
        for some in (rows, reference)
    )
    pairs = [(ours[seed], others[seed]) for seed in sorted(ours.keys() & others.keys())]
    if not pairs:
        return None
    tested = pairs[0][0].rows
    if any(not np.array_equal(said.rows, tested) for pair in pairs for said in pair):
        return None
    right = [[said.predicted == facts.labels[tested] for said in pair] for pair in pairs]
    return mcnemar(*np.moveaxis(np.array(right), 1, 0))


def _judged(entries: list[Entry], boards: int) -> list[Entry]:
    """Adjust the p-values for the number of losses and say what they mean."""
    tested = [e for e in entries if e.test is not None and e.loss != OUTSIDE]
    adjusted = adjust([e.test.p_value for e in tested if e.test is not None])
    p_values = {e.loss: min(1.0, boards * float(p)) for e, p in zip(tested, adjusted, strict=True)}
    judged = []
    for entry in entries:
        verdict: Verdict = "unfinished"
        p_value = p_values.get(entry.loss)
        if entry.loss == REFERENCE:
            verdict = "reference"
        elif entry.loss == OUTSIDE:
            verdict = "outside"
        elif p_value is not None and (rival := _rival(entry, p_value)) is not None:
            gain = rival.test.difference
            verdict = "even"
            if better(rival, SIGNIFICANCE) and gain > 0:
                verdict = "better"
            elif worse(rival, SIGNIFICANCE) and gain < 0:
                verdict = "worse"
        judged.append(replace(entry, adjusted_p=p_value, verdict=verdict))
    return judged


def _rival(entry: Entry, p_value: float | None) -> Rival | None:
    if entry.test is None or p_value is None or entry.accuracy is None:
        return None
    return Rival(entry.name, entry.accuracy, entry.test, p_value)


def _answer(
    table: str, contest: Sequence[Entry], protocol: Protocol, folds: int, boards: int
) -> Answer:
    """The sentence about one table, from the losses that have every score."""
    name = loss_name(REFERENCE)
    reference = next((e for e in contest if e.loss == REFERENCE), None)
    if reference is None or reference.accuracy is None or len(reference.folds) < folds:
        why = "is not among the losses"
        if reference is not None:
            why = f"has a score in {len(reference.folds)} of {folds} folds"
        return Answer(f"On {table} there is no answer yet: {name} {why}.", "")
    rivals = [r for e in contest if (r := _rival(e, e.adjusted_p)) is not None]
    if not rivals:
        return Answer(f"On {table} there is no answer yet: no other loss has every score.", "")
    return answer_one_table(
        table, name, reference.accuracy, rivals, protocol=protocol.text, families=boards
    )


def _left_out(contest: Sequence[Entry], folds: int) -> tuple[str, ...]:
    return tuple(
        f"{e.name} is not compared: it {'failed' if e.failures else 'is not finished'}, "
        f"{len(e.folds)} of {folds} folds have a score."
        for e in contest
        if len(e.folds) < folds
    )
