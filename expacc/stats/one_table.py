"""Two methods on one table: which test, what difference, how sure.

Every function takes differences *method minus reference* as fractions (0.031 is 3.1 points) and
returns a `PairedTest`. Average over seeds first: seeds of one split are not independent evidence.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from expacc.stats.score_table import (
    NEGLIGIBLE,
    Floats,
    check_rows,
    check_share,
    read_differences,
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


def _ten_differences(differences: ArrayLike) -> Floats:
    ten = read_differences(differences)
    if ten.shape != (5, 2):
        raise ValueError(
            f"differences must have shape (5, 2), five repetitions of two folds; got {ten.shape}. "
            f"For other splits use corrected_paired_t."
        )
    return ten


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

    Reference:
        Dietterich, Neural Computation 10 (1998), eq. 3.5.
    """
    test, freedom = "5×2 cv paired t", (5.0,)
    ten = _ten_differences(differences)
    test_rows, confidence = (
        check_rows("test_rows", test_rows),
        check_share("confidence", confidence),
    )
    if np.abs(ten).max() <= NEGLIGIBLE:
        return _nothing_differs(test, freedom)
    variances = (ten[:, 0] - ten[:, 1]) ** 2 / 2
    variance, note = _spread(float(variances.mean()), ten, test_rows)
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

    Reference:
        Alpaydin, Neural Computation 11 (1999), eq. 3.1.
    """
    test, freedom = "5×2 cv combined F", (10.0, 5.0)
    ten = _ten_differences(differences)
    test_rows, confidence = (
        check_rows("test_rows", test_rows),
        check_share("confidence", confidence),
    )
    if np.abs(ten).max() <= NEGLIGIBLE:
        return _nothing_differs(test, freedom)
    variances = (ten[:, 0] - ten[:, 1]) ** 2 / 2
    variance, note = _spread(float(variances.mean()), ten, test_rows)
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

    Reference:
        Nadeau and Bengio, Machine Learning 52 (2003), section 5; for repeated folds Bouckaert and
        Frank, PAKDD (2004).

    >>> result = corrected_paired_t([0.1, 0.2, 0.3], train_rows=200, test_rows=100)
    >>> round(result.statistic, 6)  # 0.2 / sqrt(0.01 · (1/3 + 1/2))
    2.19089
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
