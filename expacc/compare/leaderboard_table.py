"""From rows to a leaderboard: who scored what, how far from cross entropy, how surely.

Seeds are averaged first. A failed run is a failure with its reason and has no score; a test is made
only where both losses finished every fold.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from expacc.compare.answer import Answer, Rival, answer_one_table, better, worse
from expacc.compare.record import NETWORK, Protocol, StudyRecord, TableFacts, read_protocol
from expacc.compare.standing import (
    by_fold,
    fold_order,
    majority_rows,
    model_text,
    paired_tests,
    standing,
)
from expacc.report.words import MAJORITY, NULL, OUTSIDE, REFERENCE, counted, loss_name, loss_order
from expacc.runner.rows import Row
from expacc.stats.one_table import PairedTest
from expacc.stats.p_values import NEGLIGIBLE, adjust

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
        wins: folds in which it is more accurate than cross entropy, or seeds where they are
            paired; ties and losses likewise.
        metrics: name → mean over folds: 'balanced_accuracy', 'calibration_error', 'log_loss' …
        by_class: accuracy on the test rows of each class, in the order of the table's classes;
            None where none was tested.
        says: the one class that it said of every test row; '' as a rule.
        importance: column → points of accuracy that are lost where its values are shuffled among
            the test rows, as a fraction; empty if it was not measured.
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
    by_class: tuple[float | None, ...]
    says: str
    importance: Mapping[str, float]
    seconds: float
    failures: tuple[Failure, ...]
    verdict: Verdict


@dataclass(frozen=True)
class TableBoard:
    """All losses on one table at one share of wrong training labels.

    Attributes:
        table: its name.
        target: the column that is predicted; '' if the study did not say.
        classes: of it, in the order of their numbers.
        noise: share of training labels that were replaced.
        protocol: how accuracies were measured.
        folds: names of all folds that belong to it.
        entries: best accuracy first; those that lack a fold after those that do not.
        answer: the sentence.
        complete: whether every loss has a score in every fold.
        notes: losses that were not compared, and why.
    """

    table: str
    target: str
    classes: tuple[str, ...]
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

    @property
    def losses(self) -> tuple[Entry, ...]:
        """The losses that have a score, the best first."""
        beside = (*OUTSIDE, NULL)
        return tuple(e for e in self.entries if e.loss not in beside and e.accuracy is not None)

    @property
    def best_outside(self) -> Entry | None:
        """The best of scikit-learn's classifiers; those with every fold come first."""
        found = [e for e in self.entries if e.loss in OUTSIDE and e.loss != MAJORITY]
        scored = sorted(found, key=lambda entry: len(entry.folds) < len(self.folds))
        return next((entry for entry in scored if entry.accuracy is not None), None)

    @property
    def matters(self) -> Entry | None:
        """The best loss of which it is known which columns matter to it: the chosen one, if any."""
        known = [entry for entry in self.losses if entry.importance]
        chosen = [entry for entry in known if entry.name == self.answer.choice in self.answer.beats]
        return next(iter(chosen or known), None)


def table_board(record: StudyRecord, table: str, noise: float) -> TableBoard:
    """Build the leaderboard of one table at one share of wrong training labels."""
    facts = record.tables[table]
    protocol = read_protocol(record.folds, facts.folds)
    if protocol.kind == "test":
        seeds = counted(int(record.settings.get("seeds", 1)), "seed")
        protocol = replace(protocol, text=f"{protocol.text}, {seeds}")
    rows = record.finals(table, noise=noise)
    seconds: dict[str, float] = defaultdict(float)
    for row in record.rows:
        if row.table == table and row.noise == noise:
            seconds[row.loss] += row.seconds
    by_loss: dict[str, list[Row]] = {str(loss): [] for loss in record.settings.get("losses", ())}
    for row in rows:
        by_loss.setdefault(row.loss, []).append(row)
    folds = protocol.folds or tuple(sorted({row.fold for row in rows}, key=fold_order))
    if by_loss and not by_loss.get(MAJORITY):
        by_loss[MAJORITY] = majority_rows(rows, facts)
        if not by_loss[MAJORITY]:
            del by_loss[MAJORITY]  # nothing is tested yet
    reference = by_loss.get(REFERENCE, [])
    entries = [
        _entry(loss, own, reference, facts, protocol, folds, seconds[loss])
        for loss, own in by_loss.items()
    ]
    # Every board makes claims of its own; together they are to be wrong as rarely as one.
    boards = len(record.tables) * len(record.noise_levels)
    entries = _judged(entries, boards)
    # A mean over the folds that went well is no match for a mean over all of them.
    entries.sort(
        key=lambda e: (
            len(e.folds) < (1 if e.loss in OUTSIDE else len(folds)),
            -(e.accuracy or 0),
            loss_order(e.loss),
        )
    )
    contest = [entry for entry in entries if entry.loss not in (*OUTSIDE, NULL)]
    complete = all(len(entry.folds) == len(folds) for entry in contest) and bool(contest)
    model = str(record.settings.get("model", "linear"))
    answer = _answer(table, facts.target, contest, protocol, len(folds), boards, model_text(model))
    if answer.choice and folds:
        whole = [entry.loss for entry in contest if len(entry.folds) == len(folds)]
        found = standing(by_loss, whole, facts, protocol, model)
        if model == NETWORK:
            from expacc.compare.networks_words import network_sentences

            told = network_sentences(by_loss, whole, facts, protocol)
            found = replace(found, sentences=(*found.sentences, *told))
        answer = answer.beside(found, _where(table, facts.target))
    notes = _left_out(contest, len(folds))
    return TableBoard(
        table=table,
        target=facts.target,
        classes=facts.classes,
        noise=noise,
        protocol=protocol,
        folds=folds,
        entries=tuple(entries),
        answer=answer,
        complete=complete,
        notes=notes,
    )


def _where(table: str, target: str) -> str:
    """A table and its target, as the answer calls them."""
    return f"{table}, predicting {target!r}," if target else table


def _entry(
    loss: str,
    rows: Sequence[Row],
    reference: Sequence[Row],
    facts: TableFacts,
    protocol: Protocol,
    folds: tuple[str, ...],
    seconds: float,
) -> Entry:
    own, theirs = by_fold(rows, "accuracy"), by_fold(reference, "accuracy")
    common = [fold for fold in own if fold in theirs]
    gaps = np.array([own[fold] - theirs[fold] for fold in common])
    won, lost = int((gaps > NEGLIGIBLE).sum()), int((gaps < -NEGLIGIBLE).sum())
    ties = len(common) - won - lost
    if protocol.kind == "test":
        won, ties, lost = _by_seed(rows, reference)
    scores = list(own.values())
    if len(scores) == 1:
        scores = [row.metrics["accuracy"] for row in rows if row.failure is None]
    test = second = None
    if loss not in (REFERENCE, *OUTSIDE) and folds and len(common) == len(folds):
        test, second = paired_tests(rows, reference, facts, protocol, folds)
    by_class, said = _classes(rows, facts)
    names = {name for row in rows for name in row.metrics} - {"accuracy"}
    means = {name: by_fold(rows, name) for name in sorted(names)}
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
        ties=ties if loss != REFERENCE else 0,
        losses=lost,
        metrics={name: float(np.mean(list(of.values()))) for name, of in means.items() if of},
        by_class=by_class,
        says=facts.classes[said[0]] if len(said) == 1 and len(facts.classes) > 1 else "",
        importance=_importance(rows, facts),
        seconds=seconds,
        failures=failures,
        verdict="unfinished",
    )


def _by_seed(rows: Sequence[Row], reference: Sequence[Row]) -> tuple[int, int, int]:
    """Seeds in which a loss is more accurate than cross entropy, as accurate, less."""
    found, theirs = (
        {row.seed: row.metrics["accuracy"] for row in some if row.failure is None}
        for some in (rows, reference)
    )
    gaps = [found[seed] - theirs[seed] for seed in found.keys() & theirs.keys()]
    won, lost = (sum(sign * gap > NEGLIGIBLE for gap in gaps) for sign in (1, -1))
    return won, len(gaps) - won - lost, lost


def _classes(rows: Sequence[Row], facts: TableFacts) -> tuple[tuple[float | None, ...], list[int]]:
    """The accuracy on each class over all test rows, and which classes were said at all."""
    count = len(facts.classes)
    right, tested, said = np.zeros(count), np.zeros(count), np.zeros(count, np.bool_)
    for row in rows:
        if row.predictions is not None and row.failure is None:
            given = facts.labels[row.predictions.rows]
            tested += np.bincount(given, minlength=count)
            right += np.bincount(given[row.predictions.predicted == given], minlength=count)
            said[row.predictions.predicted] = True
    shares = tuple(
        float(good / all_) if all_ else None for good, all_ in zip(right, tested, strict=True)
    )
    return shares, np.flatnonzero(said).tolist()


def _importance(rows: Sequence[Row], facts: TableFacts) -> dict[str, float]:
    """Column → mean over folds of the accuracy that is lost without it, the largest first."""
    found = [
        row.curves["importance"]
        for row in rows
        if row.failure is None and len(row.curves.get("importance", ())) == len(facts.columns) > 0
    ]
    if not found:
        return {}
    drops = np.array(found)
    known = np.isfinite(drops).any(axis=0)
    means = {
        facts.columns[place]: float(np.mean(drops[np.isfinite(drops[:, place]), place]))
        for place in np.flatnonzero(known).tolist()
    }
    return dict(sorted(means.items(), key=lambda pair: -pair[1]))


def _judged(entries: list[Entry], boards: int) -> list[Entry]:
    """Adjust the p-values for the number of losses and say what they mean."""
    tested = [e for e in entries if e.test is not None and e.loss not in (*OUTSIDE, NULL)]
    adjusted = adjust([e.test.p_value for e in tested if e.test is not None])
    p_values = {e.loss: min(1.0, boards * float(p)) for e, p in zip(tested, adjusted, strict=True)}
    judged = []
    for entry in entries:
        verdict: Verdict = "unfinished"
        p_value = p_values.get(entry.loss)
        if entry.loss == NULL and entry.test is not None:  # a claim about it is of no use
            p_value = entry.test.p_value
        if entry.loss == REFERENCE:
            verdict = "reference"
        elif entry.loss in OUTSIDE:
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
    table: str,
    target: str,
    contest: Sequence[Entry],
    protocol: Protocol,
    folds: int,
    boards: int,
    model: str,
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
        table,
        name,
        reference.accuracy,
        rivals,
        protocol=protocol.text,
        families=boards,
        target=target,
        model=model,
    )


def _left_out(contest: Sequence[Entry], folds: int) -> tuple[str, ...]:
    return tuple(
        f"{e.name} is not compared: it {'failed' if e.failures else 'is not finished'}, "
        f"{len(e.folds)} of {folds} folds have a score."
        for e in contest
        if len(e.folds) < folds
    )
