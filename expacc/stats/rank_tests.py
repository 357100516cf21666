"""Several methods on several tables: do they differ at all, and which pairs?

A table is one observation. Scores are ranked within their table, so a hard table counts as much as
an easy one, and folds or seeds are averaged before they come here.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from expacc.stats.p_values import NEGLIGIBLE, Floats, adjust, read_scores, sign_flip_p

ALL_TIED = "all methods tie on every table"
SAME_ORDER = "every table ranks the methods alike; p is the chance of that when all are equal"
WILCOXON = "Wilcoxon signed rank"
TWO_METHODS = "two methods: Wilcoxon's signed rank test"


@dataclass(frozen=True)
class RankTest:
    """What a rank test says about all methods together.

    Attributes:
        test: the name of the test that was done.
        statistic: chi-square, F, or the smaller rank sum.
        p_value: the chance of a statistic as extreme when all methods are equal.
        degrees_of_freedom: of the statistic's reference distribution; empty if p is exact.
        note: what was degenerate and what was done about it; empty as a rule.
    """

    test: str
    statistic: float
    p_value: float
    degrees_of_freedom: tuple[float, ...]
    note: str = ""


@dataclass(frozen=True, eq=False)
class AgainstReference:
    """Every method against one of them, the reference, whose own entries are 1 and 0.

    Attributes:
        test: the name of the test that was done.
        p_values: of each method alone.
        adjusted: by Holm over the rivals.
        leaning: 1 where the ranks speak for the method, -1 for the reference, 0 for neither.
    """

    test: str
    p_values: Floats
    adjusted: Floats
    leaning: Floats


@dataclass(frozen=True, eq=False)
class PairwiseTest:
    """P-values of all pairs of methods, as symmetric (methods × methods) arrays with ones inside.

    Attributes:
        test: the name of the test that was done.
        p_values: of each pair alone.
        adjusted: over all pairs: Wilcoxon's by Holm, Conover's by Benjamini and Hochberg.
        note: what was degenerate and what was done about it; empty as a rule.
    """

    test: str
    p_values: Floats
    adjusted: Floats
    note: str = ""


def ranks(scores: ArrayLike) -> Floats:
    """Rank the methods within each table, 1 for the best; ties share the mean of their ranks.

    Args:
        scores: tables × methods, larger is better.

    Returns:
        Tables × methods.

    Example:
        >>> ranks([[0.9, 0.9, 0.1], [0.1, 0.2, 0.3]]).tolist()
        [[1.5, 1.5, 3.0], [3.0, 2.0, 1.0]]
    """
    return np.asarray(stats.rankdata(-read_scores(scores), axis=1), np.float64)


def mean_ranks(scores: ArrayLike) -> Floats:
    """Return each method's rank averaged over the tables; small is good.

    Args:
        scores: tables × methods, larger is better.

    Returns:
        One mean rank per method.

    Example:
        >>> mean_ranks([[0.9, 0.8, 0.8], [0.7, 0.6, 0.5]]).tolist()
        [1.0, 2.25, 2.75]
    """
    return np.asarray(ranks(scores).mean(axis=0), np.float64)


def wilcoxon(scores: ArrayLike) -> RankTest:
    """Test two methods over several tables by Wilcoxon's signed rank test, exactly.

    Tables without a difference are ranked and their ranks split evenly (Pratt, Demšar); the exact
    distribution takes ties as they are. The statistic is the smaller of the two rank sums.

    Args:
        scores: tables × 2.

    Returns:
        The test; its statistic is the smaller rank sum.

    Example:
        >>> wilcoxon([[0.9, 0.8], [0.7, 0.6], [0.6, 0.5], [0.8, 0.6]]).p_value  # 2 of 2⁴
        0.125

    Reference:
        Demšar, JMLR 7 (2006), section 3.1.3.
    """
    table = read_scores(scores)
    if table.shape[1] != 2:
        raise ValueError(f"scores must hold 2 methods; got {table.shape[1]}. Use friedman.")
    signed = _signed_ranks(table[:, 0] - table[:, 1])
    tables = len(table)
    statistic = (tables * (tables + 1) - abs(float(signed.sum()))) / 4
    note = ALL_TIED if not signed.any() else ""
    p_value = sign_flip_p(signed, middle=False)
    return RankTest(WILCOXON, statistic, p_value, (), note)


def _signed_ranks(gains: Floats) -> NDArray[np.int64]:
    """Twice the ranks of the sizes, because shared ranks may end in a half, with their signs."""
    gains = np.where(np.abs(gains) < NEGLIGIBLE / 2, 0.0, gains)
    sizes = stats.rankdata(np.round(np.abs(gains) / NEGLIGIBLE))
    return np.asarray(np.rint(2 * sizes * np.sign(gains)), np.int64)


def wilcoxon_against(scores: ArrayLike, reference: int) -> AgainstReference:
    """Test every method against the reference over several tables: Wilcoxon, Holm adjusted.

    The chance that *any* method which is no better is called better stays below the level, however
    the others fare: each test looks at its own pair alone, and Holm needs no more.

    Args:
        scores: tables × methods, larger is better.
        reference: the column of the reference.

    Returns:
        P-values, adjusted ones, and which way the ranks lean.

    Example:
        >>> wilcoxon_against([[0.9, 0.8], [0.7, 0.6], [0.6, 0.5], [0.8, 0.6]], 1).leaning.tolist()
        [1.0, 0.0]

    Reference:
        Demšar, JMLR 7 (2006), section 3.2.2; Benavoli, Corani and Mangili, JMLR 17 (2016), on why
        ranks among all methods are no basis for a pair.
    """
    table = read_scores(scores)
    methods = table.shape[1]
    if type(reference) is not int or not 0 <= reference < methods:
        raise ValueError(f"reference must be a column in [0, {methods}); got {reference!r}.")
    raw, adjusted, leaning = np.ones(methods), np.ones(methods), np.zeros(methods)
    rivals = [method for method in range(methods) if method != reference]
    for method in rivals:
        signed = _signed_ranks(table[:, method] - table[:, reference])
        raw[method] = sign_flip_p(signed, middle=False)
        leaning[method] = np.sign(signed.sum())
    adjusted[rivals] = adjust(raw[rivals], "holm")
    return AgainstReference(WILCOXON, raw, adjusted, leaning)


def wilcoxon_pairs(scores: ArrayLike) -> PairwiseTest:
    """Test all pairs of methods over several tables: Wilcoxon's test, Holm adjusted.

    Args:
        scores: tables × methods, larger is better.

    Returns:
        P-values of all pairs, and adjusted ones.

    Example:
        >>> wilcoxon_pairs([[0.9, 0.8], [0.7, 0.6], [0.6, 0.5], [0.8, 0.6]]).p_values.tolist()
        [[1.0, 0.125], [0.125, 1.0]]
    """
    table = read_scores(scores)
    methods = table.shape[1]
    raw, adjusted = np.ones((methods, methods)), np.ones((methods, methods))
    pairs = np.triu_indices(methods, 1)
    raw[pairs] = [
        sign_flip_p(_signed_ranks(table[:, one] - table[:, other]), middle=False)
        for one, other in zip(*pairs, strict=True)
    ]
    adjusted[pairs] = adjust(raw[pairs], "holm")
    return PairwiseTest(WILCOXON, np.minimum(raw, raw.T), np.minimum(adjusted, adjusted.T))


def friedman(scores: ArrayLike) -> RankTest:
    """Test whether any method differs over several tables: Friedman's chi-square, ties corrected.

    With two methods this is `wilcoxon`. The chi-square approximation is conservative on few
    tables: decide by `iman_davenport`.

    Args:
        scores: tables × methods, larger is better.

    Returns:
        The test of all methods together.

    Example:
        >>> friedman([[0.3, 0.2, 0.1], [0.3, 0.2, 0.1]]).statistic  # all agree: n (k - 1)
        4.0

    Reference:
        Friedman, JASA 32 (1937); Conover, Practical Nonparametric Statistics (1999), section 5.8.
    """
    table = read_scores(scores)
    methods = table.shape[1]
    if methods == 2:
        return wilcoxon(table)
    freedom = (float(methods - 1),)
    if (table == table[:, :1]).all():
        return RankTest("Friedman", 0.0, 1.0, freedom, ALL_TIED)
    outcome = stats.friedmanchisquare(*table.T)
    return RankTest("Friedman", float(outcome.statistic), float(outcome.pvalue), freedom)


def iman_davenport(scores: ArrayLike) -> RankTest:
    """Test whether any method differs over several tables: Friedman's statistic as an F.

    F = (n-1)χ² / (n(k-1) - χ²) for n tables and k methods. Where all tables agree F is infinite;
    p is then the chance of such agreement, one over the number of possible orders to the n-1.
    With two methods this is `wilcoxon`.

    Args:
        scores: tables × methods, larger is better.

    Returns:
        The test of all methods together.

    Example:
        >>> round(iman_davenport([[0.3, 0.2, 0.1], [0.3, 0.2, 0.1]]).p_value, 6)  # 1/3!
        0.166667

    Reference:
        Iman and Davenport, Communications in Statistics A9 (1980); Demšar, JMLR 7 (2006).
    """
    table = read_scores(scores)
    tables, methods = table.shape
    chi_square = friedman(table)
    if methods == 2:
        return chi_square
    test, freedom = "Iman–Davenport", (methods - 1.0, (methods - 1.0) * (tables - 1.0))
    if chi_square.note:
        return RankTest(test, 0.0, 1.0, freedom, chi_square.note)
    rest = tables * (methods - 1) - chi_square.statistic
    if rest < 1e-9 * tables:
        return RankTest(test, math.inf, _chance_of_agreement(table), freedom, SAME_ORDER)
    statistic = (tables - 1) * chi_square.statistic / rest
    return RankTest(test, statistic, float(stats.f.sf(statistic, *freedom)), freedom)


def _chance_of_agreement(table: Floats) -> float:
    """The chance that all tables show one order of ranks, given which ranks are tied."""
    _, ties = np.unique(table[0], return_counts=True)
    orders = math.factorial(table.shape[1]) // math.prod(math.factorial(int(t)) for t in ties)
    return float(orders ** (1 - len(table)))


def conover(scores: ArrayLike) -> PairwiseTest:
    """Test all pairs of methods over several tables: Conover's test, Benjamini–Hochberg adjusted.

    To be read only where `iman_davenport` finds a difference. It keeps the expected *share* of
    false claims low, not the chance of one: for a claim about one loss use `wilcoxon_against`.
    With two methods this is `wilcoxon`. Where all tables agree the test would divide by zero: p is
    then that of a sign test in which every table says the same, 2^(1-n).

    Args:
        scores: tables × methods, larger is better.

    Returns:
        P-values of all pairs, and adjusted ones.

    Example:
        >>> conover([[0.3, 0.2, 0.1], [0.3, 0.2, 0.1]]).p_values[0, 2].item()  # 2^(1-n)
        0.5

    Reference:
        Conover and Iman, Los Alamos report LA-7677-MS (1979); Conover (1999), section 5.8.
    """
    table = read_scores(scores)
    tables, methods = table.shape
    overall = iman_davenport(table)
    raw = np.ones((methods, methods))
    pairs = np.triu_indices(methods, 1)
    name = "Conover"
    if methods == 2:
        name, raw[pairs] = overall.test, overall.p_value
    elif overall.note == SAME_ORDER:
        mean = mean_ranks(table)
        differ = np.abs(mean[pairs[0]] - mean[pairs[1]]) > NEGLIGIBLE
        raw[pairs] = np.where(differ, 2.0 ** (1 - tables), 1.0)
    elif not overall.note:
        # Here, because the import takes seconds: it brings pandas and seaborn.
        from scikit_posthocs import (
            posthoc_conover_friedman,
        )

        raw[pairs] = posthoc_conover_friedman(table).to_numpy()[pairs]
    adjusted = np.ones_like(raw)
    adjusted[pairs] = adjust(raw[pairs], "benjamini-hochberg")
    note = TWO_METHODS if methods == 2 else overall.note
    return PairwiseTest(name, np.minimum(raw, raw.T), np.minimum(adjusted, adjusted.T), note)
