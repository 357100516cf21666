"""The statistics against published examples and against arithmetic done another way."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats as scipy_stats

from expacc.stats import (
    adjust,
    combined_5x2_f,
    conover,
    corrected_paired_t,
    critical_difference,
    dolan_more_profile,
    friedman,
    iman_davenport,
    mcnemar,
    mean_ranks,
    one_table,
    paired_5x2_t,
    paired_rows,
    rank_tests,
    ranks,
    variance_factor,
    wilcoxon,
    wilcoxon_against,
    wilcoxon_pairs,
    win_tie_loss,
    wins,
)
from expacc.stats.p_values import sign_flip_p


def t_tail(statistic, freedom):
    """Two-sided p of Student's t, by mpmath."""
    x = freedom / (freedom + mpmath.mpf(statistic) ** 2)
    return float(mpmath.betainc(freedom / 2, 0.5, 0, x, regularized=True))


def f_tail(statistic, above, below):
    x = below / (below + above * mpmath.mpf(statistic))
    return float(mpmath.betainc(below / 2, above / 2, 0, x, regularized=True))


# ---- 5×2 cv ----------------------------------------------------------------------------------

# Worked by hand: variances 2, 2, 8, 2, 0 (times 1e-4), their mean 2.8e-4; sum of squares 78e-4.
TEN = np.array([[3, 1], [2, 4], [5, 1], [0, 2], [3, 3]]) / 100


def test_5x2_t_by_hand():
    result = paired_5x2_t(TEN, test_rows=100)
    assert result.statistic == pytest.approx(math.sqrt(45 / 14), abs=1e-12)  # 0.03² / 2.8e-4
    assert result.p_value == pytest.approx(t_tail(math.sqrt(45 / 14), 5), abs=1e-10)
    assert result.degrees_of_freedom == (5,)
    assert result.difference == pytest.approx(0.024)
    reach = 2.570581835636314 * math.sqrt(2.8e-4)  # t(0.975, 5) of every table: 2.571
    assert result.interval == pytest.approx((0.024 - reach, 0.024 + reach), abs=1e-9)


def test_5x2_f_by_hand():
    result = combined_5x2_f(TEN, test_rows=100)
    assert result.statistic == pytest.approx(39 / 14, abs=1e-12)  # 78 / (2 · 14)
    assert result.p_value == pytest.approx(f_tail(mpmath.mpf(39) / 14, 10, 5), abs=1e-10)
    assert result.degrees_of_freedom == (10, 5)
    # 4.74 is the threshold printed in Alpaydin (1999).
    assert scipy_stats.f.ppf(0.95, 10, 5) == pytest.approx(4.74, abs=0.005)


def test_5x2_t_depends_on_the_first_fold_and_f_does_not():
    turned = TEN[::-1]
    assert paired_5x2_t(turned, 100).p_value == pytest.approx(paired_5x2_t(TEN, 100).p_value)
    turned = np.roll(TEN, 2, axis=0)
    assert paired_5x2_t(turned, 100).statistic == pytest.approx(0)
    assert combined_5x2_f(turned, 100).p_value == pytest.approx(combined_5x2_f(TEN, 100).p_value)


@pytest.mark.parametrize("confidence", [0.5, 0.95])
def test_5x2_f_interval_is_what_the_test_does_not_reject(confidence):
    level, notes = 1 - confidence, set()
    for seed in range(20):
        ten = np.random.default_rng(seed).normal(0.01, 0.02, (5, 2))
        result = combined_5x2_f(ten, 100, confidence=confidence)
        notes.add(result.note)
        if result.note == one_table.UNSTEADY:
            assert combined_5x2_f(ten - ten.mean(), 100).statistic > scipy_stats.f.isf(level, 10, 5)
            means = scipy_stats.ttest_1samp(ten.mean(axis=1), 0)
            both = scipy_stats.f.sf(result.statistic, 10, 5), means.pvalue
            assert result.p_value == pytest.approx(max(both))
            assert result.interval == pytest.approx(tuple(means.confidence_interval(confidence)))
            continue
        for end in result.interval:
            assert combined_5x2_f(ten - end, 100).p_value == pytest.approx(level, abs=1e-9)
        outside = not result.interval[0] <= 0 <= result.interval[1]
        assert outside == (result.p_value < level)
    assert notes == {"", one_table.UNSTEADY} if confidence == 0.5 else {""}


# ---- corrected t -----------------------------------------------------------------------------


def test_corrected_t_by_hand():
    # Mean 0.02, variance 1e-4 · 10/4, factor 1/5 + 20/80 = 9/20.
    result = corrected_paired_t([0.0, 0.01, 0.02, 0.03, 0.04], train_rows=80, test_rows=20)
    statistic = 0.02 / math.sqrt(2.5e-4 * 9 / 20)
    assert result.statistic == pytest.approx(statistic, abs=1e-12)
    assert result.p_value == pytest.approx(t_tail(statistic, 4), abs=1e-10)
    reach = 2.7764451051977987 * 0.02 / statistic  # t(0.975, 4)
    assert result.interval == pytest.approx((0.02 - reach, 0.02 + reach), abs=1e-9)
    assert result.degrees_of_freedom == (4,)


def test_corrected_t_against_scikit_learns_example():
    """Its page on comparing models after a grid search prints t 0.750 and one-sided p 0.227."""
    from sklearn import datasets
    from sklearn.model_selection import RepeatedStratifiedKFold, cross_val_score
    from sklearn.svm import SVC

    rows, labels = datasets.make_moons(noise=0.352, random_state=1, n_samples=100)
    splits = RepeatedStratifiedKFold(n_splits=10, n_repeats=10, random_state=0)
    radial, linear = (
        cross_val_score(SVC(kernel=kernel), rows, labels, cv=splits, scoring="roc_auc")
        for kernel in ("rbf", "linear")
    )
    result = corrected_paired_t(radial - linear, train_rows=90, test_rows=10)
    assert f"{result.statistic:.3f} {result.p_value / 2:.3f}" == "0.750 0.227"


def test_corrected_t_against_baycomp():
    import baycomp

    generator = np.random.default_rng(0)
    reference, method = generator.normal(0.8, 0.02, 100), generator.normal(0.81, 0.02, 100)
    left, _ = baycomp.CorrelatedTTest(reference, method, runs=10).probs()
    result = corrected_paired_t(method - reference, train_rows=90, test_rows=10)
    assert result.p_value / 2 == pytest.approx(left, abs=1e-10)


# ---- degenerate differences ------------------------------------------------------------------

SPLIT_TESTS = {
    "5x2 t": lambda value, rows: paired_5x2_t(np.full((5, 2), value), rows),
    "5x2 F": lambda value, rows: combined_5x2_f(np.full((5, 2), value), rows),
    "corrected t": lambda value, rows: corrected_paired_t(np.full(10, value), 9 * rows, rows),
}


@pytest.mark.parametrize("test", SPLIT_TESTS.values(), ids=SPLIT_TESTS)
def test_all_equal_means_no_difference(test):
    for zero in (0.0, 1e-17):
        result = test(zero, 50)
        assert (result.statistic, result.p_value, result.difference) == (0, 1, 0)
        assert result.interval == (0, 0)
        assert result.note == one_table.ALL_EQUAL


@pytest.mark.parametrize("test", SPLIT_TESTS.values(), ids=SPLIT_TESTS)
def test_no_spread_is_not_certainty(test):
    one_row = test(1 / 50, 50)
    assert one_row.note == one_table.NO_SPREAD
    assert one_row.p_value > 0.05
    low, high = one_row.interval
    assert low < 0 < 1 / 50 < high
    tenth, half, everything = (test(value, 50) for value in (0.1, 0.5, 1.0))
    assert one_row.p_value > tenth.p_value > half.p_value > everything.p_value > 0
    assert half.p_value < 0.02
    assert half.interval[0] > 0


def test_no_spread_by_hand():
    # A net gain of 0.2 on 50 rows has at least the variance 0.2 · 0.8 / 50 = 0.0032.
    assert combined_5x2_f(np.full((5, 2), 0.2), 50).statistic == pytest.approx(0.04 / 0.0032)
    assert paired_5x2_t(np.full((5, 2), 0.2), 50).statistic == pytest.approx(0.2 / 0.0032**0.5)
    result = corrected_paired_t(np.full(10, 0.2), 450, 50)
    assert result.statistic == pytest.approx(0.2 / math.sqrt(0.0032 * (1 / 10 + 1 / 9)))
    # Where every row differs only the rounding remains, 1 / (12 · 50²).
    assert combined_5x2_f(np.full((5, 2), 1.0), 50).statistic == pytest.approx(12 * 50**2)


@pytest.mark.parametrize("test", [combined_5x2_f, paired_5x2_t])
def test_swapping_the_methods_swaps_the_sign(test):
    result, swapped = test(TEN, 100), test(-TEN, 100)
    assert swapped.p_value == result.p_value
    assert swapped.difference == -result.difference
    assert swapped.interval == pytest.approx(tuple(-end for end in result.interval[::-1]))


# ---- McNemar ---------------------------------------------------------------------------------


def table_2x2(both, only_ours, only_theirs, neither):
    ours = np.repeat([True, True, False, False], [both, only_ours, only_theirs, neither])
    theirs = np.repeat([True, False, True, False], [both, only_ours, only_theirs, neither])
    return ours, theirs


def binomial_p(ours, theirs, middle):
    """Two-sided binomial p, in whole numbers."""
    n, low = ours + theirs, min(ours, theirs)
    tail = sum(math.comb(n, i) for i in range(low + 1))
    p = min(Fraction(1), Fraction(2 * tail, 2**n))
    at = Fraction(math.comb(n, low) * (2 if ours != theirs else 1), 2**n)
    return float(p - at / 2 if middle else p)


def test_mcnemar_of_agresti():
    """Approval ratings, Agresti (Categorical Data Analysis, 10.1): z² 17.36, -0.04 ± 0.0187."""
    result = mcnemar(*table_2x2(794, 86, 150, 570))
    assert result.statistic == pytest.approx(64**2 / 236, abs=1e-9)
    assert result.statistic == pytest.approx(17.36, abs=0.005)
    assert result.difference == -0.04
    # Agresti's Wald interval is (-0.06, -0.02); half a row per cell moves it by 1e-4 at most.
    wald = 1.959963984540054 * math.sqrt((236 / 1600 - 0.0016) / 1600)
    assert result.interval == pytest.approx((-0.04 - wald, -0.04 + wald), abs=1e-4)
    assert result.interval == pytest.approx((-0.06, -0.02), abs=0.005)
    assert result.p_value == pytest.approx(binomial_p(86, 150, True), rel=1e-9)


@pytest.mark.parametrize(("ours", "theirs"), [(5, 1), (1, 5), (0, 3), (7, 7), (30, 12), (400, 351)])
@pytest.mark.parametrize("middle", [False, True])
def test_mcnemar_is_the_binomial_of_the_discordant_rows(ours, theirs, middle):
    result = mcnemar(*table_2x2(11, ours, theirs, 3), mid_p=middle)
    assert result.p_value == pytest.approx(binomial_p(ours, theirs, middle), abs=1e-12)


def test_mcnemar_interval_by_hand():
    # 6 and 2 discordant rows of 18, half a row added to each cell: 6.5 and 2.5 of 20.
    result = mcnemar(*table_2x2(8, 6, 2, 2))
    centre, error = 4 / 20, math.sqrt((9 / 20 - (4 / 20) ** 2) / 20)
    reach = 1.959963984540054 * error
    assert result.interval == pytest.approx((centre - reach, centre + reach), abs=1e-12)
    none = mcnemar(*table_2x2(10, 0, 0, 8))  # without disagreement
    assert (none.statistic, none.p_value, none.difference) == (0, 1, 0)
    assert none.note
    width = 1.959963984540054 / 20  # it has a width all the same
    assert none.interval == pytest.approx((-width, width))


def test_mcnemar_averages_seeds_first():
    ours, theirs = table_2x2(11, 9, 3, 3)
    once = mcnemar(ours, theirs)
    twice = mcnemar(np.stack([ours, ours]), np.stack([theirs, theirs]))
    assert twice.p_value == pytest.approx(once.p_value)  # the same seed again is no evidence
    assert twice.interval == pytest.approx(once.interval)
    assert twice.statistic == pytest.approx(once.statistic)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("middle", [False, True])
def test_sign_flips_against_every_flip(seed, middle):
    values = np.random.default_rng(seed).integers(-4, 5, 9)
    sums = [abs(sum(s * v for s, v in zip(signs, values, strict=True)))
            for signs in itertools.product((-1, 1), repeat=len(values))]  # fmt: skip
    observed = abs(int(values.sum()))
    above = sum(s > observed for s in sums)
    at = sum(s == observed for s in sums)
    expected = (above + (0.5 if middle else 1) * at) / len(sums)
    assert sign_flip_p(values, middle=middle) == pytest.approx(expected, abs=1e-12)


# ---- several comparisons ---------------------------------------------------------------------

# The fifteen p-values of Benjamini and Hochberg (1995), section 4.1.
FIFTEEN = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240,
           0.4262, 0.5719, 0.6528, 0.7590, 1.0000]  # fmt: skip


def test_adjustment_of_the_fifteen():
    adjusted = adjust(FIFTEEN, "benjamini-hochberg")
    assert (adjusted <= 0.05).tolist() == [True] * 4 + [False] * 11  # as published
    by_hand = [min(15 * FIFTEEN[j] / (j + 1) for j in range(i, 15)) for i in range(15)]
    np.testing.assert_allclose(adjusted, by_hand, atol=1e-12)
    holm = adjust(FIFTEEN, "holm")
    assert (holm <= 0.05).sum() == 3
    by_hand = [min(1, max((15 - j) * FIFTEEN[j] for j in range(i + 1))) for i in range(15)]
    np.testing.assert_allclose(holm, by_hand, atol=1e-12)


@pytest.mark.parametrize("method", ["holm", "benjamini-hochberg"])
def test_adjustment_keeps_the_order_of_its_input(method):
    order = np.random.default_rng(0).permutation(15)
    shuffled = adjust(np.array(FIFTEEN)[order], method)
    np.testing.assert_array_equal(shuffled, adjust(FIFTEEN, method)[order])
    assert adjust([0.3], method).tolist() == [0.3]
    assert adjust([], method).tolist() == []


# ---- several tables --------------------------------------------------------------------------

# Demšar, JMLR 7 (2006), Table 6: AUC of C4.5, +m, +cf, +m+cf. The table prints "voting" as 0.975
# twice but ranks the two 2 and 3, so its unrounded values differ: 0.9751 stands for the better.
AUC = np.array([
    [0.763, 0.768, 0.771, 0.798], [0.599, 0.591, 0.590, 0.569], [0.954, 0.971, 0.968, 0.967],
    [0.628, 0.661, 0.654, 0.657], [0.882, 0.888, 0.886, 0.898], [0.936, 0.931, 0.916, 0.931],
    [0.661, 0.668, 0.609, 0.685], [0.583, 0.583, 0.563, 0.625], [0.775, 0.838, 0.866, 0.875],
    [1.000, 1.000, 1.000, 1.000], [0.940, 0.962, 0.965, 0.962], [0.619, 0.666, 0.614, 0.669],
    [0.972, 0.981, 0.9751, 0.975], [0.957, 0.978, 0.946, 0.970],
])  # fmt: skip

# Conover (1999), section 5.8, example 1: ranks that twelve homeowners gave four grasses.
LAWN = np.array([
    [4, 3, 2, 1], [4, 2, 3, 1], [3, 1.5, 1.5, 4], [3, 1, 2, 4], [4, 2, 1, 3], [2, 2, 2, 4],
    [1, 3, 2, 4], [2, 4, 1, 3], [3.5, 1, 2, 3.5], [4, 1, 3, 2], [4, 2, 3, 1], [3.5, 1, 2, 3.5],
])  # fmt: skip


DEMSAR = [Fraction(44, 14), Fraction(28, 14), Fraction(81, 28), Fraction(55, 28)]


def test_ranks_and_friedman_of_demsar():
    """He does not correct for ties, which we do: the correction divides by 1 - Σ(t³-t)/nk(k²-1)."""
    np.testing.assert_allclose(mean_ranks(AUC), [float(rank) for rank in DEMSAR], atol=1e-12)
    assert [f"{rank:.3f}" for rank in mean_ranks(AUC)] == ["3.143", "2.000", "2.893", "1.964"]
    total = sum(rank**2 for rank in DEMSAR)
    plain = Fraction(12 * 14, 4 * 5) * (total - Fraction(4 * 25, 4))
    assert f"{float(plain):.2f}" == "9.28"  # as printed
    assert f"{float(13 * plain / (14 * 3 - plain)):.2f}" == "3.69"
    # Ties: three pairs (iris, lung cancer, primary tumor) and one of all four (mushroom).
    correction = 1 - Fraction(3 * (2**3 - 2) + (4**3 - 4), 14 * 4 * (4**2 - 1))
    chi_square = plain / correction
    result = friedman(AUC)
    assert result.statistic == pytest.approx(float(chi_square), abs=1e-9)
    tail = float(mpmath.gammainc(1.5, float(chi_square) / 2, regularized=True))
    assert result.p_value == pytest.approx(tail, abs=1e-9)
    better = iman_davenport(AUC)
    ratio = 13 * chi_square / (14 * 3 - chi_square)
    assert better.statistic == pytest.approx(float(ratio), abs=1e-9)
    assert better.p_value == pytest.approx(f_tail(float(ratio), 3, 39), abs=1e-9)
    assert better.degrees_of_freedom == (3, 39)


def test_friedman_of_conover():
    """Rank sums 38, 23.5, 24.5, 34; printed T1 = 8.097 and T2 = 3.19 with 3 and 33 degrees."""
    chi_square = 3 * (Fraction(7505, 2) - 12 * 300) / (Fraction(713, 2) - 300)
    assert friedman(LAWN).statistic == pytest.approx(float(chi_square), abs=1e-9)
    assert f"{float(chi_square):.3f}" == "8.097"
    ratio = 11 * chi_square / (36 - chi_square)
    result = iman_davenport(LAWN)
    assert result.statistic == pytest.approx(float(ratio), abs=1e-9)
    assert f"{result.statistic:.2f}" == "3.19"
    assert result.degrees_of_freedom == (3, 33)


def conover_by_hand(scores):
    """Conover (1999), eq. 5.8.5: the sums of ranks differ by t of them."""
    placed = scipy_stats.rankdata(scores, axis=1)
    tables, methods = placed.shape
    sums, freedom = placed.sum(0), (tables - 1) * (methods - 1)
    scale = math.sqrt(2 * (tables * (placed**2).sum() - (sums**2).sum()) / freedom)
    return scale, [[t_tail(abs(a - b) / scale, freedom) for b in sums] for a in sums]


@pytest.mark.parametrize("scores", [LAWN, AUC], ids=["lawn", "auc"])
def test_conover_by_hand(scores):
    """Versions of scikit-posthocs before the fix of its issue 63 fail here, as does PMCMRplus."""
    scale, p_values = conover_by_hand(scores)
    result = conover(scores)
    np.testing.assert_allclose(result.p_values, p_values, atol=1e-9)
    pairs = np.triu_indices(4, 1)
    np.testing.assert_allclose(
        result.adjusted[pairs], adjust(result.p_values[pairs], "benjamini-hochberg"), atol=1e-12
    )
    np.testing.assert_array_equal(result.adjusted, result.adjusted.T)
    np.testing.assert_array_equal(np.diag(result.adjusted), 1)
    if scores is LAWN:  # sums of ranks that differ by more than t(0.975, 33) · 5.6434 do at 5 %
        assert scale == pytest.approx(math.sqrt(2 * (12 * 356.5 - 3752.5) / 33))
        assert scale * 2.0345152974493 == pytest.approx(11.48, abs=0.005)
        sums = np.array([38, 23.5, 24.5, 34])
        apart = np.abs(sums[:, None] - sums) > 11.48
        np.testing.assert_array_equal(result.p_values < 0.05, apart)
        assert apart.sum() == 4  # 1 differs from 2 and from 3


def test_wilcoxon_of_demsar():
    """C4.5 against C4.5+m: the smaller rank sum is 12, the two ties split; critical value 21."""
    result = wilcoxon(AUC[:, :2])
    assert result.statistic == 12
    assert 0.005 < result.p_value < 0.02
    assert friedman(AUC[:, :2]) == iman_davenport(AUC[:, :2]) == result
    assert conover(AUC[:, :2]).adjusted[0, 1] == result.p_value


def test_wilcoxon_against_scipy_without_ties():
    generator = np.random.default_rng(0)
    for tables in (5, 12, 40):
        scores = generator.normal(size=(tables, 2))
        exact = scipy_stats.wilcoxon(scores[:, 0], scores[:, 1], method="exact")
        result = wilcoxon(scores)
        assert result.statistic == exact.statistic
        assert result.p_value == pytest.approx(exact.pvalue, abs=1e-10)


# ---- degenerate score tables -----------------------------------------------------------------


@pytest.mark.parametrize("methods", [2, 3, 5])
def test_all_methods_tie(methods):
    scores = np.repeat([[0.5], [0.9], [0.7]], methods, axis=1)
    scores[:, 0] += 1e-16  # noise of averaging
    for test in (friedman, iman_davenport):
        assert test(scores).p_value == 1
        assert test(scores).note == rank_tests.ALL_TIED
    assert (conover(scores).adjusted == 1).all()
    assert critical_difference(scores, list("abcde"[:methods])).groups == ((0, methods - 1),)


def test_all_tables_agree():
    scores = np.arange(4) + np.arange(6)[:, None]
    result = iman_davenport(scores)
    assert result.statistic == math.inf
    assert result.p_value == pytest.approx(24.0**-5)
    assert result.note == rank_tests.SAME_ORDER
    pairs = conover(scores)
    assert pairs.p_values[0, 3] == pairs.p_values[0, 1] == 2.0**-5
    assert critical_difference(scores, list("abcd"), pairs="conover").groups == ()
    tied = iman_davenport(np.array([[1, 1, 2]] * 4))
    assert tied.p_value == pytest.approx(3.0**-3)  # the odd one of three, four times the same
    assert conover(np.array([[1, 1, 2]] * 4)).p_values[0, 1] == 1
    few = np.arange(3) + np.arange(2)[:, None]  # which prove nothing
    assert iman_davenport(few).p_value == pytest.approx(1 / 6)
    assert critical_difference(few, list("abc")).groups == ((0, 2),)


# ---- told for people -------------------------------------------------------------------------


def test_ranks_share_ties_and_wins_count_them_apart():
    assert ranks([[0.9, 0.9, 0.1], [0.1, 0.2, 0.3]]).tolist() == [[1.5, 1.5, 3], [3, 2, 1]]
    scores = [[0.9, 0.9, 0.1], [0.1, 0.2, 0.3], [0.5, 0.5 + 1e-16, 0.5]]
    alone, shared, credit = zip(*((w.alone, w.shared, w.credit) for w in wins(scores)), strict=True)
    assert (alone, shared) == ((0, 0, 1), (2, 2, 1))
    assert credit == pytest.approx((5 / 6, 5 / 6, 4 / 3))
    assert sum(credit) == pytest.approx(len(scores))
    scores[2] = [0.5, 0.4, 0.6]
    counts = [(c.wins, c.ties, c.losses) for c in win_tie_loss(scores, reference=0)]
    assert counts == [(0, 3, 0), (1, 1, 1), (2, 0, 1)]


@pytest.mark.parametrize("pairs", ["conover", "wilcoxon"])
def test_critical_difference_groups(pairs):
    result = critical_difference(AUC, ["C4.5", "C4.5+m", "C4.5+cf", "C4.5+m+cf"], pairs=pairs)
    assert result.names == ("C4.5+m+cf", "C4.5+m", "C4.5+cf", "C4.5")
    assert result.mean_ranks == tuple(sorted(mean_ranks(AUC)))
    order = [3, 1, 2, 0]
    apart = result.pairs.adjusted[np.ix_(order, order)] <= 0.05
    for first, last in result.groups:
        assert not apart[first : last + 1, first : last + 1].any()
    joined = {pair for first, last in result.groups
              for pair in itertools.combinations(range(first, last + 1), 2)}  # fmt: skip
    if pairs == "conover":  # its p-values fall as mean ranks part
        for pair in itertools.combinations(range(4), 2):
            assert (pair in joined) != apart[pair]
    strict = critical_difference(AUC, list("abcd"), significance=0.001, pairs=pairs)
    assert strict.groups == ((0, 3),)


def test_profiles():
    profile = dolan_more_profile([[0.9, 0.81], [0.5, 0.6], [0.7, 0.7]])
    np.testing.assert_allclose(profile.thresholds, [5 / 6, 0.9, 1])
    np.testing.assert_allclose(profile.shares, [[1, 1], [2 / 3, 1], [2 / 3, 2 / 3]])
    profile = dolan_more_profile([[1.0, 0.9], [0.9, 0.8], [1.0, 1.0]], [1, 2, 1000], ratio="error")
    np.testing.assert_allclose(profile.shares, [[1, 1 / 3], [1, 2 / 3], [1, 2 / 3]])


# ---- refusals --------------------------------------------------------------------------------

REFUSED = [
    (lambda: combined_5x2_f(np.zeros((2, 5)), 9), ValueError, r"shape \(5, 2\).*got \(2, 5\)"),
    (lambda: combined_5x2_f(np.full((5, 2), np.nan), 9), ValueError, "A failed run has no score"),
    (lambda: combined_5x2_f(TEN, 0), ValueError, "test_rows must be finite and >= 1; got 0"),
    (lambda: paired_5x2_t(TEN, 9, confidence=95), ValueError, r"confidence must lie in \(0, 1\)"),
    (lambda: corrected_paired_t([0.1], 9, 1), ValueError, "at least 2 splits; got 1.*mcnemar"),
    (lambda: corrected_paired_t(["a", "b"], 9, 1), TypeError, "must be an array of numbers"),
    (lambda: corrected_paired_t([True, False], 9, 1), TypeError, "must be an array of numbers"),
    (lambda: mcnemar([1, 0], [0, 1]), TypeError, "correct must hold True or False"),
    (lambda: mcnemar([True], [True, False]), ValueError, r"shape of correct, \(1,\); got \(2,\)"),
    (lambda: adjust([0.5, 1.5]), ValueError, r"must lie in \[0, 1\]; got 1.5"),
    (lambda: adjust([0.5, np.nan]), ValueError, "must be finite; got nan at 1"),
    (lambda: adjust([0.5], "fdr"), ValueError, "'holm' or 'benjamini-hochberg'; got 'fdr'"),
    (lambda: friedman([[1, 2, 3]]), ValueError, "at least 2 tables; got 1"),
    (lambda: friedman([[1], [2]]), ValueError, "at least 2 methods; got 1"),
    (lambda: friedman([1, 2, 3]), ValueError, "two axes, tables × methods"),
    (lambda: friedman([[1, np.inf], [1, 2]]), ValueError, r"got inf at \(0, 1\)"),
    (lambda: wilcoxon(AUC), ValueError, "must hold 2 methods; got 4"),
    (lambda: critical_difference(AUC, ["a", "a", "b", "c"]), ValueError, "4 different names"),
    (lambda: critical_difference(AUC, "abcd"), TypeError, "sequence of strings"),
    (lambda: dolan_more_profile(AUC * 100), ValueError, "Divide percent by 100"),
    (lambda: dolan_more_profile(AUC, [1, 0.5]), ValueError, "increasing vector"),
    (lambda: dolan_more_profile(AUC, ratio="log"), ValueError, "'accuracy' or 'error'"),
    (lambda: win_tie_loss(AUC, 4), ValueError, r"reference must be a column in \[0, 4\); got 4"),
    (lambda: wilcoxon_against(AUC, 4), ValueError, r"reference must be .* \[0, 4\); got 4"),
    (lambda: critical_difference(AUC, list("abcd"), pairs="nemenyi"), ValueError,
     "pairs must be 'wilcoxon' or 'conover'; got 'nemenyi'"),
    (lambda: paired_rows([1, 0, 1], 2), ValueError, r"gains must have shape \(repeats, rows\)"),
    (lambda: paired_rows([[2.0, 0.0]], 2), ValueError, r"lie in \[-1, 1\]"),
    (lambda: paired_rows([[np.nan]], 2), ValueError, "gains must be finite"),
    (lambda: paired_rows([[1.0]], 1), ValueError, "folds must be a whole .*, at least 2; got 1"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "sentence"), REFUSED)
def test_refusals_are_sentences(call, kind, sentence):
    with pytest.raises(kind, match=sentence) as refused:
        call()
    assert str(refused.value).endswith(".")


def test_inputs_stay_untouched():
    scores, ten = AUC.copy(), TEN.copy()
    conover(scores), wilcoxon(scores[:, :2]), dolan_more_profile(scores), combined_5x2_f(ten, 9)
    np.testing.assert_array_equal(scores, AUC)
    np.testing.assert_array_equal(ten, TEN)


# ---- rows of cross-validation ------------------------------------------------------------------


def flips(sums, shrink):
    """Two-sided mid-p over all signs, by writing them all down."""
    sums = [Fraction(value).limit_denominator(1000) for value in sums if value]
    observed = abs(float(sum(sums))) / shrink
    beyond = at = 0
    for signs in itertools.product((1, -1), repeat=len(sums)):
        total = abs(float(sum(s * v for s, v in zip(signs, sums, strict=True))))
        near = abs(total - observed) < 1e-9
        beyond += total > observed and not near
        at += near
    return (beyond + at / 2) / 2 ** len(sums)


@pytest.mark.parametrize("seed", range(8))
def test_paired_rows_counts_all_flips_of_rows(seed):
    generator = np.random.default_rng(seed)
    repeats, seeds, folds = generator.integers(1, 4), generator.integers(1, 4), 3
    gains = generator.integers(-seeds, seeds + 1, (repeats, 9)) / seeds
    gains[:, 6:] = 0
    result = paired_rows(gains, folds)
    single, averaged = (gains**2).sum() / repeats, (gains.mean(0) ** 2).sum()
    lost = (1 - averaged / single) * repeats / max(1, repeats - 1) if repeats > 1 else 1.0
    shrink = (variance_factor(int(repeats), folds, lost) * single / averaged) ** 0.5
    assert result.p_value == pytest.approx(flips(gains.sum(0), shrink), abs=1e-12)
    assert result.difference == pytest.approx(gains.mean())
    low, high = result.interval
    assert low <= result.difference <= high
    assert (low > 0 or high < 0) <= (result.p_value <= 0.05)


def test_paired_rows_gives_no_credit_for_repetitions_that_agree():
    once = np.random.default_rng(0).choice([-1.0, 0.0, 1.0], (1, 4000), p=[0.1, 0.78, 0.12])
    again = np.repeat(once, 4, axis=0)
    p_values = [paired_rows(gains, 10).p_value for gains in (once, again)]
    # The same rows four times: only the factor falls, from 1.8 to that of four repetitions.
    z = [scipy_stats.norm.isf(p / 2) * variance_factor(n, 10, lost) ** 0.5
         for p, n, lost in zip(p_values, (1, 4), (1.0, 0.0), strict=True)]  # fmt: skip
    assert z[0] == pytest.approx(z[1], rel=0.05)


def test_a_method_that_changes_with_its_training_rows_is_judged_with_more_care():
    calm = np.repeat(np.random.default_rng(0).choice([-1.0, 0, 0, 1, 1], (1, 300)), 5, axis=0)
    gains = [calm]
    for share in (0.1, 0.3):
        now = calm.copy()
        now[np.random.default_rng(1).random(now.shape) < share] = 0
        gains.append(now)
    widths = [np.subtract(*paired_rows(table, 3).interval[::-1]) / (table**2).mean() ** 0.5
              for table in gains]  # fmt: skip
    assert widths[0] < widths[1] < widths[2]
    factors = [variance_factor(5, 3, u) for u in (0.0, 0.1, 0.2, 1.0)]
    assert factors == sorted(factors)
    assert all(variance_factor(1, folds, 0.0) == 1.8 for folds in (2, 3, 10))


def test_paired_rows_degenerate():
    same = paired_rows(np.zeros((3, 50)), 5)
    assert (same.p_value, same.interval, same.difference) == (1.0, (0.0, 0.0), 0.0)
    undone = paired_rows([[1, 0], [-1, 0]], 2)  # what one repetition gains, the other loses
    assert (undone.p_value, undone.difference) == (1.0, 0.0)
    few = paired_rows([[1] * 5 + [0] * 995], 10)
    assert few.p_value == pytest.approx(2 / 2**5)  # five rows prove nothing
    assert few.interval[0] < 0
    all_rows = paired_rows(np.ones((1, 200)), 10)
    assert all_rows.p_value < 1e-20
    assert all_rows.interval == (pytest.approx(1, abs=0.03), 1.0)
    thirds = paired_rows(np.array([[1 / 3, -2 / 7] * 30]), 2)  # seeds that failed here and there
    assert 0 < thirds.p_value < 1


def test_paired_rows_on_very_many_rows_is_the_normal_distribution():
    generator = np.random.default_rng(1)
    gains = generator.choice([-1.0, 0.0, 1.0], (1, 3000), p=[0.05, 0.9, 0.05])
    exact = paired_rows(gains, 2).p_value
    sizes = np.repeat(gains, 1).astype(np.int64) * 100_003  # long enough for the other way
    far = sign_flip_p(sizes, middle=True, shrink=variance_factor(1, 2) ** 0.5)
    assert far == pytest.approx(exact, rel=0.05)


def test_wilcoxon_against_is_wilcoxon_with_holm():
    scores = np.random.default_rng(2).normal(size=(15, 4)).cumsum(1)
    found = wilcoxon_against(scores, 1)
    singles = [wilcoxon(scores[:, [place, 1]]).p_value for place in (0, 2, 3)]
    assert found.p_values[[0, 2, 3]].tolist() == singles
    assert found.adjusted[[0, 2, 3]].tolist() == adjust(singles).tolist()
    for place, p in zip((0, 2, 3), singles, strict=True):
        outcome = scipy_stats.wilcoxon(scores[:, place], scores[:, 1], method="exact")
        assert p == pytest.approx(outcome.pvalue)
        ahead = scipy_stats.wilcoxon(scores[:, place], scores[:, 1], alternative="greater")
        assert (found.leaning[place] > 0) == (ahead.pvalue < 0.5)
    assert (found.p_values[1], found.leaning[1]) == (1, 0)
    pairs = wilcoxon_pairs(scores)
    assert pairs.p_values[1, 3] == pairs.p_values[3, 1] == found.p_values[3]
    upper = np.triu_indices(4, 1)
    assert pairs.adjusted[upper].tolist() == adjust(pairs.p_values[upper]).tolist()
