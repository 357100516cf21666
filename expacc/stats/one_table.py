"""Two methods on one table: which test, what difference, how sure.

Tests of splits take differences *method minus reference* as fractions (0.031 is 3.1 points), tests
of rows what each got right; all return a `PairedTest`. Average over seeds first: seeds of one split
are not independent evidence.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from expacc.stats.p_values import (
    NEGLIGIBLE,
    Floats,
    check_rows,
    check_share,
    read_differences,
    read_numbers,
    sign_flip_p,
)

ALL_EQUAL = "every difference is 0"
NO_SPREAD = "splits show no spread; the least that counting rows can give was taken instead"
UNSTEADY = (
    "the repetitions differ more from each other than the halves within them, so the F test "
    "rejects every difference; p and interval are those of a t test over the five repetitions"
)


@dataclass(frozen=True)
class PairedTest:
    """What a test says about a method and its reference.

    Attributes:
        test: the name of the test.
        statistic: t, F or chi-square.
        p_value: two-sided.
        degrees_of_freedom: of the statistic's reference distribution.
        difference: the mean difference, method minus reference.
        interval: a confidence interval for the difference, (low, high).
        note: what was degenerate and what was done about it; empty as a rule.
    """

    test: str
    statistic: float
    p_value: float
    degrees_of_freedom: tuple[float, ...]
    difference: float
    interval: tuple[float, float]
    note: str = ""


def _five_by_two(
    differences: ArrayLike, test_rows: float, confidence: float
) -> tuple[Floats, float, float, str]:
    """The ten differences, the confidence, and the variance of one of them with its note."""
    ten = read_differences(differences)
    if ten.shape != (5, 2):
        raise ValueError(
            f"differences must have shape (5, 2), five repetitions of two folds; got {ten.shape}. "
            f"For other splits use corrected_paired_t."
        )
    test_rows, confidence = (
        check_rows("test_rows", test_rows),
        check_share("confidence", confidence),
    )
    variances = (ten[:, 0] - ten[:, 1]) ** 2 / 2
    return ten, confidence, *_spread(float(variances.mean()), ten, test_rows)


def _spread(variance: float, differences: Floats, test_rows: float) -> tuple[float, str]:
    """Return the variance of a difference, or where none is seen the least that it can have.

    A net gain of d on n rows needs at least a share |d| of rows that only one of the two gets
    right, and which rows fall into a split is chance: the variance is at least (|d| - d²)/n. Where
    d is 1 nothing remains but the rounding to whole rows. Dividing by zero instead would turn one
    lucky row per split into certainty.
    """
    if variance > NEGLIGIBLE**2:
        return variance, ""
    sampling = float((np.abs(differences) - differences**2).mean()) / test_rows
    return max(sampling, 1 / (12 * test_rows**2)), NO_SPREAD


def _nothing_differs(test: str, degrees_of_freedom: tuple[float, ...]) -> PairedTest:
    return PairedTest(test, 0.0, 1.0, degrees_of_freedom, 0.0, (0.0, 0.0), ALL_EQUAL)


def paired_5x2_t(
    differences: ArrayLike, test_rows: float, *, confidence: float = 0.95
) -> PairedTest:
    """Test two methods by Dietterich's 5×2 cv paired t test.

    The numerator is the first of the ten differences alone, so the outcome depends on the order
    of the folds: report `combined_5x2_f` instead. The interval is the mean difference ± t·s with s
    the standard deviation of *one* difference, as in the test: repetitions share their rows, so
    nothing is gained by calling their mean more precise.

    Args:
        differences: shape (5, 2), repetitions × folds.
        test_rows: rows in a test fold, needed where the differences show no spread.
        confidence: of the interval.

    Returns:
        The test; its interval is for one difference.

    Example:
        >>> paired_5x2_t([[0.0, 0.0]] * 5, test_rows=50).p_value
        1.0

    Reference:
        Dietterich, Neural Computation 10 (1998), eq. 3.5.
    """
    test, freedom = "5×2 cv paired t", (5.0,)
    ten, confidence, variance, note = _five_by_two(differences, test_rows, confidence)
    if np.abs(ten).max() <= NEGLIGIBLE:
        return _nothing_differs(test, freedom)
    statistic = float(ten[0, 0]) / variance**0.5
    mean = float(ten.mean())
    reach = float(stats.t.ppf((1 + confidence) / 2, 5)) * variance**0.5
    p_value = float(2 * stats.t.sf(abs(statistic), 5))
    return PairedTest(test, statistic, p_value, freedom, mean, (mean - reach, mean + reach), note)


def combined_5x2_f(
    differences: ArrayLike, test_rows: float, *, confidence: float = 0.95
) -> PairedTest:
    """Test two methods by Alpaydin's combined 5×2 cv F test, which uses all ten differences.

    The interval holds every difference that the test would not reject, so it leaves 0 out exactly
    where p < 1 - confidence. Where the repetitions differ so much that it would reject every one,
    a t test over their five means takes its place.

    With methods that memorise their rows, or labels that are noise, the two halves of a repetition
    err together, and the test claims a difference in up to 15 % of cases where there is none:
    `paired_rows` does not.

    Args:
        differences: shape (5, 2), repetitions × folds.
        test_rows: rows in a test fold, needed where the differences show no spread.
        confidence: of the interval.

    Returns:
        The test; p and interval agree about 0.

    Example:
        >>> combined_5x2_f([[0.0, 0.0]] * 5, test_rows=50).p_value
        1.0

    Reference:
        Alpaydin, Neural Computation 11 (1999), eq. 3.1.
    """
    test, freedom = "5×2 cv combined F", (10.0, 5.0)
    ten, confidence, variance, note = _five_by_two(differences, test_rows, confidence)
    if np.abs(ten).max() <= NEGLIGIBLE:
        return _nothing_differs(test, freedom)
    statistic = float((ten**2).sum()) / (10 * variance)
    mean = float(ten.mean())
    # Shifting all differences by d leaves the variances alone: sum (x - d)² <= 10·variance·limit.
    room = variance * float(stats.f.ppf(confidence, 10, 5)) - float(((ten - mean) ** 2).mean())
    p_value = float(stats.f.sf(statistic, 10, 5))
    reach = max(room, 0.0) ** 0.5
    if room < 0:
        note, error = UNSTEADY, float(ten.mean(axis=1).std(ddof=1)) / 5**0.5
        p_value = max(p_value, float(2 * stats.t.sf(abs(mean) / error, 4)))
        reach = float(stats.t.ppf((1 + confidence) / 2, 4)) * error
    interval = (mean - reach, mean + reach)
    return PairedTest(test, statistic, p_value, freedom, mean, interval, note)


def corrected_paired_t(
    differences: ArrayLike,
    train_rows: float,
    test_rows: float,
    *,
    confidence: float = 0.95,
) -> PairedTest:
    """Test two methods on k folds, repeated folds or random splits by the corrected paired t test.

    Training sets overlap, so the differences are correlated and their mean is less certain than
    their spread suggests. Nadeau and Bengio replace 1/n by 1/n + test_rows/train_rows.

    Args:
        differences: one per split, any shape.
        train_rows: rows that a split trains on (the mean, where splits differ).
        test_rows: rows that a split tests on.
        confidence: of the interval.

    Returns:
        The test, with the mean difference and its interval.

    Example:
        >>> result = corrected_paired_t([0.1, 0.2, 0.3], train_rows=200, test_rows=100)
        >>> round(result.statistic, 6)  # 0.2 / sqrt(0.01 · (1/3 + 1/2))
        2.19089

    Reference:
        Nadeau and Bengio, Machine Learning 52 (2003), section 5; for repeated folds Bouckaert and
        Frank, PAKDD (2004).
    """
    test = "corrected paired t"
    flat = read_differences(differences).ravel()
    if flat.size < 2:
        raise ValueError(
            f"differences must hold at least 2 splits; got {flat.size}. For a single split compare "
            f"its rows: mcnemar."
        )
    train_rows, test_rows = check_rows("train_rows", train_rows), check_rows("test_rows", test_rows)
    confidence = check_share("confidence", confidence)
    freedom = float(flat.size - 1)
    if np.abs(flat).max() <= NEGLIGIBLE:
        return _nothing_differs(test, (freedom,))
    mean = float(flat.mean())
    variance, note = _spread(float(flat.var(ddof=1)), flat, test_rows)
    error = (variance * (1 / flat.size + test_rows / train_rows)) ** 0.5
    statistic = mean / error
    p_value = float(2 * stats.t.sf(abs(statistic), freedom))
    reach = float(stats.t.ppf((1 + confidence) / 2, freedom)) * error
    interval = (mean - reach, mean + reach)
    return PairedTest(test, statistic, p_value, (freedom,), mean, interval, note)


SAME_ROWS = "the two are right on the same rows"
MOST = 1.55  # what one nearest neighbour and networks that memorise need, with few folds
FINEST = 1000  # shares of seeds are multiples of 1/m for some m up to here


def variance_factor(repeats: int, folds: int, instability: float = 1.0) -> float:
    """How much the mean of cross-validation varies beyond what its rows say, at the worst.

    A row is tested by a model that learnt from the others, and helps to train the models that test
    them: the differences of two rows are correlated, and the more so the more two rows teach each
    other. What rows teach shows: with other training rows, a row's difference comes out otherwise.
    If two rows teach each other alike, the variance of the mean is 1 + K·(1 - 2/K + 2/(K·R))·u
    times that of independent rows, for R repetitions of K folds and the instability u. The line
    used here is steeper; its ends are fitted to simulated studies of learners from ridge to one
    nearest neighbour, on signal and on pure noise: `benchmarks/error_rates.py`. A single
    repetition does not show its instability and gets the worst case.

    Args:
        repeats: how often all rows were dealt anew.
        folds: parts that a repetition deals the rows to.
        instability: the share of the squared differences that is gone in a row's mean over many
            repetitions; from 0 to 1, the worst.

    Returns:
        The factor, above 1.

    Example:
        >>> variance_factor(1, 10), variance_factor(5, 3), round(variance_factor(5, 3, 0.1), 3)
        (1.8, 1.55, 1.161)
    """
    lasting = max(0.0, 1 - 3.5 / folds)  # the part that no number of repetitions averages away
    least = 1 + 0.8 * (lasting + (1 - lasting) / repeats)
    slope = max(1.6, 1.15 * (folds - 2 + 2 / repeats))
    return min(max(least, MOST), max(least, 1 + slope * instability))


def paired_rows(gains: ArrayLike, folds: int, *, confidence: float = 0.95) -> PairedTest:
    """Test two methods on the rows of cross-validation, repeated or not, by flipping signs.

    If neither method is better, the differences of a row, over all repetitions together, were as
    likely to come out with the other sign. The sum that was seen is compared with all such flips,
    after it was made smaller for two reasons: rows are not independent (`variance_factor`), and
    averaging over repetitions is given no credit in the variance, only in the sum. Both keep the
    test careful where a method depends much on its training rows. The interval holds 0 wherever p
    exceeds 1 - confidence.

    Args:
        gains: for each repetition and row, the share of seeds that the method got right less the
            share that the reference got right; shape (repeats, rows).
        folds: parts that a repetition deals the rows to.
        confidence: of the interval.

    Returns:
        The test, with the mean difference and its interval.

    Example:
        >>> result = paired_rows([[1, 1, 1, 1, 1, 1, 1, -1, 0, 0]], folds=2)
        >>> round(result.p_value, 6)  # |sum| of 8 signs >= 6/sqrt(1.8): 6 or 8, of 2^8
        0.070312

    Reference:
        Bayle, Bayle, Janson and Mackey, NeurIPS 33 (2020), for the variance over rows; the factor
        is our own, see docs/statistics.md.
    """
    table = read_numbers("gains", gains, "repeat it, or leave its method out.")
    if table.ndim != 2 or table.size == 0 or np.abs(table).max() > 1 + 1e-9:
        raise ValueError(
            f"gains must have shape (repeats, rows) and lie in [-1, 1]; got shape {table.shape}."
        )
    if isinstance(folds, bool) or not isinstance(folds, int) or folds < 2:
        raise ValueError(f"folds must be a whole number, at least 2; got {folds!r}.")
    confidence = check_share("confidence", confidence)
    repeats, rows = table.shape
    test = "paired rows"
    difference = float(table.mean())
    single = float((table**2).sum()) / repeats  # of one repetition, rows taken as independent
    if single == 0:
        return PairedTest(test, 0.0, 1.0, (), 0.0, (0.0, 0.0), SAME_ROWS)
    averaged = float((table.mean(axis=0) ** 2).sum())
    instability = (1 - averaged / single) * repeats / (repeats - 1) if repeats > 1 else 1.0
    factor = variance_factor(repeats, folds, instability)
    shrink = (factor * single / averaged) ** 0.5 if averaged > 0 else 1.0
    whole = _whole_numbers(table.sum(axis=0))
    p_value = sign_flip_p(whole, middle=True, shrink=shrink)
    # Half a row in each cell of the 2×2 table, as for a holdout, so that few rows are not certain.
    centre = difference * rows / (rows + 2)
    error = (factor * ((single + 1) / (rows + 2) - centre**2) / (rows + 2)) ** 0.5
    reach = float(stats.norm.ppf((1 + confidence) / 2)) * error
    if p_value > 1 - confidence:
        reach = max(reach, abs(difference))
    interval = (max(-1.0, difference - reach), min(1.0, difference + reach))
    statistic = difference * rows / (factor * single) ** 0.5
    return PairedTest(test, statistic, p_value, (), difference, interval)


def _whole_numbers(sums: Floats) -> NDArray[np.int64]:
    """Sums of shares of seeds as multiples of their common part."""
    for parts in range(1, FINEST + 1):
        scaled = sums * parts
        if np.abs(scaled - np.rint(scaled)).max() < 1e-6:
            break
    return np.rint(scaled).astype(np.int64)


def _read_correctness(name: str, correct: ArrayLike) -> NDArray[np.bool_]:
    array = np.asarray(correct)
    if array.dtype != np.bool_:
        raise TypeError(
            f"{name} must hold True or False, one per row; got {array.dtype}. "
            f"Use predictions == labels."
        )
    if array.ndim not in (1, 2) or array.size == 0:
        raise ValueError(f"{name} must have shape (rows,) or (seeds, rows); got {array.shape}.")
    return np.atleast_2d(array)


def mcnemar(
    correct: ArrayLike,
    reference_correct: ArrayLike,
    *,
    mid_p: bool = True,
    confidence: float = 0.95,
) -> PairedTest:
    """Test two methods on the rows of a single holdout, by McNemar's exact test.

    The p-value is exact given the rows on which the two disagree; ``mid_p`` counts the observed
    split of them half, which keeps the level near its nominal value. Several seeds are averaged
    row by row first, and a row's difference then flips its sign as a whole. The interval is Wald's
    after half a row was added to each cell of the 2×2 table (Agresti and Min), so that it has a
    width even where the two never disagree. Neither sees how training sets vary: one holdout
    cannot tell.

    Args:
        correct: True where the method is right, shape (rows,) or (seeds, rows).
        reference_correct: the same for the reference, on the same rows.
        mid_p: the mid-p (default) or the conservative exact p.
        confidence: of the interval.

    Returns:
        The test, with the mean difference and its interval.

    Example:
        >>> result = mcnemar([True] * 5 + [False], [False] * 5 + [True])
        >>> round(result.p_value, 6)  # 2·(1 + 6/2) / 2⁶
        0.125

    Reference:
        Fagerland, Lydersen and Laake, BMC Medical Research Methodology 13:91 (2013); Agresti and
        Min, Statistics in Medicine 24 (2005).
    """
    ours = _read_correctness("correct", correct)
    theirs = _read_correctness("reference_correct", reference_correct)
    if ours.shape != theirs.shape:
        raise ValueError(
            f"reference_correct must have the shape of correct, {np.shape(correct)}; "
            f"got {np.shape(reference_correct)}."
        )
    confidence = check_share("confidence", confidence)
    seeds, rows = ours.shape
    wins = ours.sum(0, dtype=np.int64) - theirs.sum(0, dtype=np.int64)
    squares = float((wins**2).sum()) / seeds**2
    difference = float(wins.sum()) / (seeds * rows)
    note = "" if squares else SAME_ROWS
    statistic = (difference * rows) ** 2 / squares if squares else 0.0
    centre = difference * rows / (rows + 2)
    error = (((squares + 1) / (rows + 2) - centre**2) / (rows + 2)) ** 0.5
    reach = float(stats.norm.ppf((1 + confidence) / 2)) * error
    interval = (max(-1.0, centre - reach), min(1.0, centre + reach))
    p_value = sign_flip_p(wins, middle=mid_p)
    return PairedTest("McNemar", statistic, p_value, (1.0,), difference, interval, note)
