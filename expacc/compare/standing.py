"""How methods stand to each other on the same test rows of one table.

Two of them are paired, which makes a test. The losses are held against what needs no loss of ours:
always the most frequent class, and scikit-learn's classifiers.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from expacc.compare.record import NETWORK, Protocol, TableFacts, majority_of
from expacc.plain import plain
from expacc.report.words import (
    FOREST,
    LOGISTIC,
    MAJORITY,
    NETWORKS,
    OUTSIDE,
    REFERENCE,
    TREES,
    listed,
    loss_name,
    percent,
    points_text,
)
from expacc.runner.rows import Predictions, Row
from expacc.stats.one_table import (
    PairedTest,
    combined_5x2_f,
    corrected_paired_t,
    mcnemar,
    paired_rows,
)
from expacc.stats.p_values import Floats


def fold_order(fold: str) -> tuple[int, str]:
    """Sort key: folds by their number."""
    digits = "".join(letter for letter in fold if letter.isdigit())
    return (int(digits[:9]) if digits.isascii() and digits else 0, fold)


def by_fold(rows: Sequence[Row], metric: str) -> dict[str, float]:
    """Fold → mean over the runs that have this metric."""
    values: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        value = row.metrics.get(metric)
        if row.failure is None and value is not None and np.isfinite(value):
            values[row.fold].append(float(value))
    return {fold: float(np.mean(values[fold])) for fold in sorted(values, key=fold_order)}


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


def paired_tests(
    rows: Sequence[Row],
    reference: Sequence[Row],
    facts: TableFacts,
    protocol: Protocol,
    folds: Sequence[str],
) -> tuple[PairedTest | None, PairedTest | None]:
    """The test that decides, and Alpaydin's F beside it where it is 5×2 cv.

    Args:
        rows: of a method, with a score in each of the folds.
        reference: of what it is held against, likewise.
        facts: of the table.
        protocol: of the study.
        folds: all of them, or those of its first repetition.
    """
    if len(folds) == 1:
        return _one_test_set(rows, reference, facts, protocol), None
    own, theirs = by_fold(rows, "accuracy"), by_fold(reference, "accuracy")
    gaps = [own[fold] - theirs[fold] for fold in folds]
    sizes = [len(row.predictions.rows) for row in rows if row.predictions is not None]
    tested = float(np.mean(sizes)) if sizes else facts.rows / (protocol.parts or 5)
    halves = protocol.kind == "5x2" and len(folds) == 10
    second = combined_5x2_f(np.reshape(gaps, (5, 2)), tested) if halves else None
    ours, others = (right_by_repetition(some, facts, folds) for some in (rows, reference))
    if ours is not None and others is not None and ours.shape == others.shape:
        gains = ours - others
        known = ~np.isnan(gains[0])
        if len(folds) >= 2 * len(gains) and not np.isnan(gains[:, known]).any():
            return paired_rows(gains[:, known], len(folds) // len(gains)), second
    # Splits of other kinds, such as random ones that came with the table.
    return second or corrected_paired_t(gaps, max(1.0, facts.rows - tested), tested), None


def _one_test_set(
    rows: Sequence[Row], reference: Sequence[Row], facts: TableFacts, protocol: Protocol
) -> PairedTest | None:
    """McNemar's test of a holdout; where seeds are paired, their test."""
    ours, others = (
        {
            row.seed: row.predictions
            for row in some
            if row.failure is None and row.predictions is not None
        }
        for some in (rows, reference)
    )
    if reference and reference[0].loss == MAJORITY:  # which says the same whatever the seed
        others = dict.fromkeys(ours, *others.values())
    pairs = [(ours[seed], others[seed]) for seed in sorted(ours.keys() & others.keys())]
    if not pairs:
        return None
    tested = pairs[0][0].rows
    if any(not np.array_equal(said.rows, tested) for pair in pairs for said in pair):
        return None
    right = [[said.predicted == facts.labels[tested] for said in pair] for pair in pairs]
    ours_right, theirs_right = np.moveaxis(np.array(right), 1, 0)
    if protocol.kind == "test":
        from expacc.stats.runs_and_rows import paired_runs

        gains = np.subtract(ours_right, theirs_right, dtype=np.float64)
        rates = [{row.numbers.get("factor") for row in some} - {None} for some in (rows, reference)]
        return paired_runs(gains, chosen_apart=all(rates) and rates[0] != rates[1])
    return mcnemar(ours_right, theirs_right)


NOUNS = {
    LOGISTIC: "logistic regression",
    TREES: "a boosted tree",
    FOREST: "a random forest",
    NETWORKS: "a vote of small networks",
}
MODELS = {
    "linear": "a linear model",
    "mlp": "a small network",
    "lightgbm": "LightGBM",
    "xgboost": "XGBoost",
    NETWORK: "your network",
}
STOPPED_ACCURACY = "stopped_accuracy"  # of networks: at the epoch that validation rows choose
LAST = "last_accuracy"  # the metric of the last round, of models that are stopped before
CLEAR = 0.01  # a gain from which on we say: use it


def model_text(model: str) -> str:
    """What a sentence calls a model; a class without its module.

    >>> model_text("linear"), model_text("sklearn.naive_bayes.GaussianNB")
    ('a linear model', 'GaussianNB')
    """
    return MODELS.get(model) or plain(model.replace(":", ".").rpartition(".")[2], 60)


@dataclass(frozen=True)
class Standing:
    """What the losses reach beside what needs none.

    Attributes:
        sentences: for people, to be read after the answer.
        headline: what is said before the answer, where nothing beats the most frequent class.
        instead: what to use instead of any loss: a name of ``OUTSIDE``, or ''.
    """

    sentences: tuple[str, ...] = ()
    headline: str = ""
    instead: str = ""


def majority_rows(rows: Sequence[Row], facts: TableFacts) -> list[Row]:
    """What always saying the table's most frequent class scores on the rows that others tested.

    For a study that did not run it: one row a fold.
    """
    code, _ = majority_of(facts)
    tested = {row.fold: row for row in rows if row.failure is None and row.predictions is not None}
    found = []
    for row in tested.values():
        places = row.predictions.rows  # type: ignore[union-attr] # chosen by it
        given = facts.labels[places]
        said = Predictions(
            places,
            np.full(len(places), code, np.int32),
            np.ones(len(places), np.float32),
            (given == code).astype(np.float32),
        )
        right = given == code
        metrics = {
            "accuracy": float(right.mean()),
            "balanced_accuracy": float(right.any()) / len(np.unique(given)),
        }
        key = f"{row.item}|outside|{MAJORITY}|0"
        found.append(
            replace(
                row, key=key, kind="outside", loss=MAJORITY, seed=0, numbers={}, metrics=metrics,
                curves={}, predictions=said, seconds=0.0,
            )
        )  # fmt: skip
    return found


def against(
    rows: Sequence[Row], reference: Sequence[Row], facts: TableFacts, protocol: Protocol
) -> tuple[PairedTest | None, tuple[str, ...]]:
    """The test of two methods on the folds that both have, and those folds."""
    both = by_fold(rows, "accuracy").keys() & by_fold(reference, "accuracy").keys()
    folds = tuple(sorted(both, key=fold_order))
    if not folds:
        return None, ()
    ours, theirs = ([row for row in some if row.fold in both] for some in (rows, reference))
    return paired_tests(ours, theirs, facts, protocol, folds)[0], folds


def standing(
    runs: Mapping[str, Sequence[Row]],
    losses: Sequence[str],
    facts: TableFacts,
    protocol: Protocol,
    model: str,
) -> Standing:
    """Hold the losses of a board against the most frequent class and the references.

    Args:
        runs: loss, or what was run beside them → final rows.
        losses: those that have every score, best first.
        facts: of the table.
        protocol: of the study.
        model: that the losses trained.
    """
    if not losses:
        return Standing()
    mean = {name: float(np.mean(list(by_fold(rows, "accuracy").values()))) for name, rows in
            runs.items() if by_fold(rows, "accuracy")}  # fmt: skip
    headline = _no_better_than_one_class(runs, losses, mean, facts, protocol)
    sentence, instead = _references(runs, losses[0], facts, protocol, model)
    at_end = _at_last_round(runs, losses)
    if headline and not instead:
        instead = MAJORITY
    return Standing(tuple(filter(None, (sentence, at_end))), headline, instead)


def _at_last_round(runs: Mapping[str, Sequence[Row]], losses: Sequence[str]) -> str:
    """What cross entropy and the best three reach at the end; '' without such a reading."""
    found = {loss: by_fold(runs[loss], LAST) for loss in losses}
    means = {loss: float(np.mean(list(own.values()))) for loss, own in found.items() if own}
    if not means:
        return ""
    ordered = sorted(means, key=lambda loss: (loss != REFERENCE, -means[loss]))
    told = listed([f"{loss_name(loss)} {percent(means[loss])}" for loss in ordered[:4]])
    return f"Rounds were chosen on held-out training rows; at the last round, {told}."


def _is_far(rows: Sequence[Row], majority: Sequence[Row]) -> bool:
    """Is each run so far above one class that other test rows would not change it?"""
    least = min(row.metrics["accuracy"] for row in rows)
    most = max(row.metrics["accuracy"] for row in majority)
    tested = min(len(row.predictions.rows) if row.predictions else 1 for row in rows)
    return least - most > 4 / float(np.sqrt(tested))  # four standard errors at most, of either


def _no_better_than_one_class(
    runs: Mapping[str, Sequence[Row]],
    losses: Sequence[str],
    mean: Mapping[str, float],
    facts: TableFacts,
    protocol: Protocol,
) -> str:
    """A sentence if no loss beats the most frequent class by more than its interval; else ''."""
    for loss in losses:
        test, _ = against(runs[loss], runs[MAJORITY], facts, protocol)
        if test is None or test.interval[0] > 0:
            return ""
        if test.interval[0] <= -1 and _is_far(runs[loss], runs[MAJORITY]):
            return ""  # of too few seeds for an interval
    share = mean[MAJORITY]
    always = (
        f"always saying {plain(facts.classes[majority_of(facts)[0]], 40)!r} ({percent(share)} %)"
    )
    gaps = [mean[loss] - share for loss in losses]
    widest = max(map(abs, gaps))
    who = "every loss" if len(losses) > 1 else loss_name(losses[0])
    if widest < 5e-5:
        return f"{who} reaches just what {always} does"
    if widest <= CLEAR:
        return f"{who} is within {np.ceil(1000 * widest - 1e-6) / 10:.1f} points of {always}"
    where = "above" if gaps[0] > 0 else "below"
    return (
        f"no loss beats {always} by more than chance (the best, {loss_name(losses[0])}, is "
        f"{points_text(gaps[0])} {where} it)"
    )


def _references(
    runs: Mapping[str, Sequence[Row]], best: str, facts: TableFacts, protocol: Protocol, model: str
) -> tuple[str, str]:
    """What scikit-learn's classifiers reach beside the best loss, and which is to be used."""
    found = []
    for name in OUTSIDE:
        if name == MAJORITY or not runs.get(name):
            continue
        test, both = against(runs[name], runs[best], facts, protocol)
        if test is not None:
            theirs, ours = (
                float(np.mean([by_fold(runs[one], "accuracy")[fold] for fold in both]))
                for one in (name, best)
            )
            found.append((theirs - ours, name, theirs, ours, test, len(both)))
    if not found:
        return "", ""
    gap, name, theirs, ours, test, folds = max(found, key=lambda one: (round(one[0], 10), one[1]))
    every = len(by_fold(runs[best], "accuracy"))
    where = "" if folds == every else f" on {folds} of {every} folds"
    noun, on = NOUNS[name], model_text(model)
    # The best of several was picked, so its p-value is multiplied by their number.
    certain = test.p_value * len(found) <= 0.05 and test.interval[0] > 0
    reach = f"{noun[0].upper()}{noun[1:]} reaches {percent(theirs)} %{where}"
    if certain and gap >= CLEAR:
        what = "it" if name == LOGISTIC else "one"
        comes = f"no loss on {on} comes near ({percent(ours)})"
        return f"{reach}, {comes}: use {what}.", name
    best_loss = f"the best loss on {on} ({loss_name(best)}, {percent(ours)})"
    if certain:
        return (
            f"{reach}, {points_text(gap)} more than {best_loss}: small, but no chance.",
            "",
        )
    if test.interval[1] < 0:
        ours_text = f"{loss_name(best)} on {on} {percent(ours)}"
        return f"{reach}, {ours_text}: nothing run beside the losses does better.", ""
    return f"{reach}, not told apart from {best_loss}.", ""
