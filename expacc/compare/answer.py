"""The answer of a comparison, in a sentence and as a choice.

Pure functions: results in, words out. Accuracies are fractions; the words speak of points, which
are hundredths.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from numpy.typing import ArrayLike

from expacc.report.words import p_text
from expacc.stats.many_tables import check_names, win_tie_loss
from expacc.stats.one_table import PairedTest
from expacc.stats.p_values import visible_gain, visible_gain_over_tables
from expacc.stats.rank_tests import wilcoxon_against
from expacc.stats.score_table import check_share, read_scores


@dataclass(frozen=True)
class Rival:
    """A method that was compared with the reference on one table.

    Attributes:
        name: as the sentence shall call it.
        accuracy: its mean accuracy, a fraction.
        test: of its differences to the reference.
        adjusted_p: the test's p-value, adjusted for the number of rivals.
    """

    name: str
    accuracy: float
    test: PairedTest
    adjusted_p: float


@dataclass(frozen=True)
class Answer:
    """What to do, and why.

    Attributes:
        sentence: for people.
        choice: the method to use; the reference unless another beats it beyond chance.
        beats: all methods that beat the reference beyond chance, best first.
    """

    sentence: str
    choice: str
    beats: tuple[str, ...] = ()


def points_text(difference: float) -> str:
    """Write a difference of accuracies in points, without its sign.

    >>> points_text(0.0312), points_text(-0.002), points_text(0.0001), points_text(0.01)
    ('3.1 points', '0.2 points', '0.01 points', '1.0 points')
    """
    points = abs(difference) * 100
    if 0 < points < 0.005:
        return "less than 0.01 points"
    return f"{points:.1f} points" if points >= 0.05 or points == 0 else f"{points:.2f} points"


def _percent(accuracy: float) -> str:
    return f"{accuracy * 100:.1f}"


def _listed(words: Sequence[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def _check_accuracy(name: str, accuracy: float) -> None:
    if not 0 <= accuracy <= 1:  # NaN fails too
        raise ValueError(
            f"accuracy of {name} must lie in [0, 1]; got {accuracy}. "
            f"A failed run has no accuracy: leave the method out."
        )


def _could_see(gain: float) -> str:
    """What a study without a winner adds: silence about small gains is no evidence against them."""
    if gain > 1:
        return " It could not have seen any gain."
    if gain < 5e-5:
        return ""  # the methods never differ
    return f" A true gain of {points_text(gain)} would have been seen in four of five such studies."


def better(rival: Rival, significance: float) -> bool:
    """Say whether a rival beats the reference beyond chance.

    Its p-value is at most the level and its interval lies above 0; the second matters where a
    test rejects without a direction (see `combined_5x2_f`).
    """
    return rival.adjusted_p <= significance and rival.test.interval[0] > 0


def worse(rival: Rival, significance: float) -> bool:
    """Say whether the reference beats a rival beyond chance."""
    return rival.adjusted_p <= significance and rival.test.interval[1] < 0


def answer_one_table(
    table: str,
    reference: str,
    reference_accuracy: float,
    rivals: Sequence[Rival],
    *,
    protocol: str,
    significance: float = 0.05,
    families: int = 1,
) -> Answer:
    """Say in a sentence whether a rival should replace the reference on one table.

    Args:
        table: its name.
        reference: the name of the reference.
        reference_accuracy: its mean accuracy, a fraction.
        rivals: all others.
        protocol: how accuracies were measured, such as "5×2 cv".
        significance: the level for adjusted p-values.
        families: how many such sets of rivals the p-values are adjusted for, all together.
    """
    significance = check_share("significance", significance)
    if not rivals:
        raise ValueError("rivals must hold at least one method; got none.")
    check_names([reference, *(rival.name for rival in rivals)], len(rivals) + 1)
    _check_accuracy(reference, reference_accuracy)
    for rival in rivals:
        _check_accuracy(rival.name, rival.accuracy)
    ordered = sorted(rivals, key=lambda rival: -rival.accuracy)

    def gain(rival: Rival) -> float:
        return round(rival.accuracy - reference_accuracy, 10)

    def p(rival: Rival) -> str:
        return p_text(rival.adjusted_p, significance)

    winners = [rival for rival in ordered if better(rival, significance) and gain(rival) > 0]
    if winners:
        best, *others = winners
        also = [
            f"{rival.name} (+{points_text(gain(rival)).removesuffix(' points')})"
            for rival in others
        ]
        return Answer(
            f"On {table} {best.name} beats {reference} by {points_text(gain(best))} "
            f"({_percent(best.accuracy)} vs {_percent(reference_accuracy)}, {protocol}, {p(best)})"
            + (f"; so {'do' if len(also) > 1 else 'does'} {_listed(also)}." if also else "."),
            best.name,
            tuple(rival.name for rival in winners),
        )
    best = ordered[0]
    keep = f"keep {reference}."
    visible = visible_gain(best.test.interval, families * len(rivals), significance=significance)
    if gain(best) > 0:
        unsure = best.adjusted_p <= significance
        doubt = ", but its splits disagree about the sign" if unsure else ""
        sentence = (
            f"No loss beats {reference} on this data beyond chance "
            f"(largest gain {points_text(gain(best))}, {p(best)}{doubt}): {keep}"
            f"{_could_see(visible)}"
        )
    elif all(worse(rival, significance) for rival in rivals):
        whom = best.name if len(rivals) == 1 else f"all {len(rivals)} other losses"
        nearest = "" if len(rivals) == 1 else f"nearest {best.name}, "
        sentence = (
            f"On {table} {reference} beats {whom} ({nearest}{points_text(gain(best))} behind, "
            f"{_percent(reference_accuracy)} vs {_percent(best.accuracy)}, {protocol}, {p(best)}): "
            f"{keep}"
        )
    elif gain(best) == 0:
        sentence = (
            f"No loss beats {reference} on this data "
            f"({best.name} is level with it at {_percent(best.accuracy)}, {p(best)}): {keep}"
            f"{_could_see(visible)}"
        )
    else:
        sentence = (
            f"No loss beats {reference} on this data, it is the best itself "
            f"(nearest {best.name}, {points_text(gain(best))} behind, {p(best)}): {keep}"
            f"{_could_see(visible)}"
        )
    return Answer(sentence, reference)


def answer_many_tables(
    scores: ArrayLike,
    names: Sequence[str],
    reference: str,
    *,
    significance: float = 0.05,
) -> Answer:
    """Say in a sentence whether a rival should replace the reference over several tables.

    A rival beats the reference if Wilcoxon's signed rank test says so, adjusted by Holm for the
    number of rivals (`wilcoxon_against`).

    Args:
        scores: tables × methods, larger is better.
        names: of the methods, in the order of the columns.
        reference: one of them.
        significance: the level for adjusted p-values.
    """
    table = read_scores(scores)
    names = check_names(names, table.shape[1])
    significance = check_share("significance", significance)
    if reference not in names:
        raise ValueError(f"reference must be one of {list(names)}; got {reference!r}.")
    column = names.index(reference)
    against = wilcoxon_against(table, column)
    counts = win_tie_loss(table, column)
    gaps = table - table[:, [column]]
    # Those that lean against the reference most surely come first, then the nearest behind it.
    rivals = sorted(
        (place for place in range(len(names)) if place != column),
        key=lambda place: -against.leaning[place] * (1 - against.p_values[place]),
    )

    def evidence(place: int, won: int) -> str:
        mean = float(gaps[:, place].mean())
        return (
            f"better on {won} of {len(table)}, {points_text(mean)} "
            f"{'higher' if mean >= 0 else 'lower'} on average, {against.test}, "
            f"{p_text(float(against.adjusted[place]), significance)}"
        )

    certain = [place for place in rivals if against.adjusted[place] <= significance]
    winners = [place for place in certain if against.leaning[place] > 0]
    over, keep = f"Over {len(table)} tables", f"keep {reference}."
    best = rivals[0]
    if winners:
        found = [names[place] for place in winners]
        others = found[1:]
        also = f"; so {'do' if len(others) > 1 else 'does'} {_listed(others)}" if others else ""
        told = evidence(best, counts[best].wins)
        return Answer(
            f"{over} {found[0]} beats {reference} ({told}){also}.", found[0], tuple(found)
        )
    if len(certain) == len(rivals):
        whom = names[best] if len(rivals) == 1 else f"all {len(rivals)} other losses"
        nearest = "" if len(rivals) == 1 else f"nearest {names[best]}, "
        told = evidence(best, counts[best].wins)
        return Answer(f"{over} {reference} beats {whom} ({nearest}it is {told}): {keep}", reference)
    visible = visible_gain_over_tables(gaps[:, best], len(rivals), significance=significance)
    told = evidence(best, counts[best].wins)
    return Answer(
        f"{over} no loss beats {reference} beyond chance (nearest {names[best]}, {told}): {keep}"
        f"{_could_see(visible)}",
        reference,
    )
