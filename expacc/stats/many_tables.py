"""Several methods on several tables, told for people: wins, groups, profile."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from expacc.stats.p_values import Floats, check_share, read_numbers, read_scores
from expacc.stats.rank_tests import (
    PairwiseTest,
    RankTest,
    conover,
    iman_davenport,
    mean_ranks,
    wilcoxon_pairs,
)


@dataclass(frozen=True)
class Wins:
    """On how many tables a method is best.

    Attributes:
        alone: tables on which no other method reaches its score.
        shared: tables on which it ties with others for the best score.
        credit: ``alone`` plus its share of each tie, 1/m where m methods tie.
    """

    alone: int
    shared: int
    credit: float


@dataclass(frozen=True)
class WinTieLoss:
    """On how many tables a method is better than, level with and worse than the reference."""

    wins: int
    ties: int
    losses: int


@dataclass(frozen=True, eq=False)
class CriticalDifference:
    """Methods by mean rank, and the groups within which no difference was found.

    Attributes:
        names: of the methods, best mean rank first.
        mean_ranks: in the order of ``names``.
        groups: maximal runs (first, last) of places in that order without a significant pair; a
            method that differs from both neighbours is in none.
        overall: the test of all methods together.
        pairs: the tests of all pairs, in the order of the score table's columns.
        tables: how many tables there are.
        significance: the level that was used.
    """

    names: tuple[str, ...]
    mean_ranks: tuple[float, ...]
    groups: tuple[tuple[int, int], ...]
    overall: RankTest
    pairs: PairwiseTest
    tables: int
    significance: float


@dataclass(frozen=True, eq=False)
class Profile:
    """A Dolan–Moré profile: for each threshold, the share of tables on which a method is that near.

    Attributes:
        thresholds: the horizontal axis.
        shares: thresholds × methods.
        ratio: ``"accuracy"`` or ``"error"``.
    """

    thresholds: Floats
    shares: Floats
    ratio: Literal["accuracy", "error"]


def check_names(names: Sequence[str], methods: int) -> tuple[str, ...]:
    """Return the names of the methods, one per column and all different, else raise."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"names must be a sequence of strings; got {names!r}.")
    if len(names) != methods or len(set(names)) != methods:
        raise ValueError(f"names must hold {methods} different names; got {list(names)}.")
    return tuple(names)


def wins(scores: ArrayLike) -> tuple[Wins, ...]:
    """Count the tables on which each method is best, alone or with others.

    Args:
        scores: tables × methods, larger is better.

    Returns:
        One `Wins` per method, in the order of the columns.

    Example:
        >>> wins([[0.9, 0.8], [0.7, 0.7]])[0]
        Wins(alone=1, shared=1, credit=1.5)
    """
    table = read_scores(scores)
    best = table == table.max(axis=1, keepdims=True)
    many = best.sum(axis=1)
    alone, shared = best[many == 1].sum(axis=0), best[many > 1].sum(axis=0)
    credit = (best / many[:, None]).sum(axis=0)
    return tuple(
        Wins(int(a), int(s), float(c)) for a, s, c in zip(alone, shared, credit, strict=True)
    )


def win_tie_loss(scores: ArrayLike, reference: int) -> tuple[WinTieLoss, ...]:
    """Count the tables on which each method beats, meets and misses the reference.

    Args:
        scores: tables × methods, larger is better.
        reference: the column of the reference, which ties with itself everywhere.

    Returns:
        One `WinTieLoss` per method, in the order of the columns.

    Example:
        >>> win_tie_loss([[0.9, 0.8], [0.7, 0.7]], reference=0)[1]
        WinTieLoss(wins=0, ties=1, losses=1)
    """
    table = read_scores(scores)
    if type(reference) is not int or not 0 <= reference < table.shape[1]:
        raise ValueError(f"reference must be a column in [0, {table.shape[1]}); got {reference!r}.")
    sign = np.sign(table - table[:, reference : reference + 1])
    return tuple(
        WinTieLoss(*(int((column == outcome).sum()) for outcome in (1, 0, -1))) for column in sign.T
    )


def critical_difference(
    scores: ArrayLike,
    names: Sequence[str],
    *,
    significance: float = 0.05,
    pairs: Literal["wilcoxon", "conover"] = "wilcoxon",
) -> CriticalDifference:
    """Order methods by mean rank and group those that cannot be told apart.

    Args:
        scores: tables × methods, larger is better.
        names: of the methods, in the order of the columns.
        significance: the level of the tests.
        pairs: how pairs are judged. ``"wilcoxon"``: with Holm over all of them. ``"conover"``: with
            Benjamini and Hochberg, after Iman and Davenport's test has found that the methods
            differ at all; if it has not, all methods are one group.

    Returns:
        The methods by mean rank, their groups and the tests behind them.

    Example:
        >>> critical_difference([[0.9, 0.8], [0.7, 0.6]], ["a", "b"]).names
        ('a', 'b')
    """
    table = read_scores(scores)
    names = check_names(names, table.shape[1])
    significance = check_share("significance", significance)
    if pairs not in ("wilcoxon", "conover"):
        raise ValueError(f"pairs must be 'wilcoxon' or 'conover'; got {pairs!r}.")
    overall, mean = iman_davenport(table), mean_ranks(table)
    judged = wilcoxon_pairs(table) if pairs == "wilcoxon" else conover(table)
    told_apart = judged.adjusted <= significance
    if pairs == "conover" and overall.p_value > significance:
        told_apart = np.zeros_like(told_apart)
    order = np.argsort(mean, kind="stable")
    told_apart = told_apart[np.ix_(order, order)]
    groups: list[tuple[int, int]] = []
    for first in range(len(order)):
        last = first
        while last + 1 < len(order) and not told_apart[first : last + 2, last + 1].any():
            last += 1
        if last > first and (not groups or last > groups[-1][1]):
            groups.append((first, last))
    return CriticalDifference(
        tuple(names[i] for i in order),
        tuple(float(mean[i]) for i in order),
        tuple(groups),
        overall,
        judged,
        len(table),
        significance,
    )


def dolan_more_profile(
    accuracies: ArrayLike,
    thresholds: ArrayLike | None = None,
    *,
    ratio: Literal["accuracy", "error"] = "accuracy",
) -> Profile:
    """Count on which share of tables each method comes near the best one.

    ``ratio="accuracy"``: its accuracy is at least ``threshold`` times the best; thresholds end
    at 1, where the curve shows the share of tables it wins. Defined for every accuracy.
    ``ratio="error"``: its error is at most ``threshold`` times the smallest; thresholds start
    at 1. This is the sharper picture where all are good. Where the best makes no error, the others
    that make none are at 1 and those that do are at no finite threshold.

    Args:
        accuracies: tables × methods, in [0, 1].
        thresholds: increasing; by default all those at which a curve steps.
        ratio: what is compared.

    Returns:
        The profile: thresholds, and shares of tables for every method.

    Example:
        >>> dolan_more_profile([[0.9, 0.81], [0.5, 0.6]], [0.8, 0.9, 1.0]).shares.tolist()
        [[1.0, 1.0], [0.5, 1.0], [0.5, 0.5]]

    Reference:
        Dolan and Moré, Mathematical Programming 91 (2002).
    """
    table = read_scores(accuracies)
    if table.min() < 0 or table.max() > 1 + 1e-9:
        worst = float(table.flat[np.abs(table - 0.5).argmax()])
        raise ValueError(f"accuracies must lie in [0, 1]; got {worst:g}. Divide percent by 100.")
    if ratio not in ("accuracy", "error"):
        raise ValueError(f"ratio must be 'accuracy' or 'error'; got {ratio!r}.")
    amount = table if ratio == "accuracy" else np.round(1 - table, 10)
    best = amount.max(axis=1) if ratio == "accuracy" else amount.min(axis=1)
    nearness = np.full(table.shape, 1.0)  # stays where both are 0
    with np.errstate(divide="ignore"):
        np.divide(amount, best[:, None], out=nearness, where=amount != best[:, None])
    if thresholds is None:
        steps = np.unique(np.append(nearness[np.isfinite(nearness)], 1.0))
    else:
        steps = read_numbers("thresholds", thresholds, "give numbers.")
    if steps.ndim != 1 or steps.size == 0 or (np.diff(steps) <= 0).any():
        raise ValueError(f"thresholds must be an increasing vector; got {thresholds!r}.")
    slack = 1e-9  # a ratio of two rounded means must not miss its own threshold
    near = nearness[None] >= steps[:, None, None] - slack
    if ratio == "error":
        near = nearness[None] <= steps[:, None, None] + slack
    return Profile(steps, near.mean(axis=1), ratio)
