"""Two methods trained from several seeds and tested on the same rows: which claim those allow.

A claim for users is about new rows and new runs, so both vary: which rows were drawn, and how
training happened to go. Either alone makes false claims (docs/statistics.md).
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, stats

from expacc.stats.one_table import ALL_EQUAL, PairedTest
from expacc.stats.p_values import Floats, check_share, read_numbers

LEAST_SEEDS = 3
FEW_SEEDS = "fewer than three runs do not show how much chance there is in one: run at least three"
_LEAST = 1e-100  # of a p-value: quantiles far beyond are not right in scipy


def paired_runs(
    gains: ArrayLike, *, chosen_apart: bool = False, confidence: float = 0.95
) -> PairedTest:
    """Test two methods by paired runs on one set of test rows.

    The variance of the mean difference is the sum of two: over rows, of a row's mean over the
    seeds; over seeds, of a seed's mean over the rows. What both hold, that single rows turn out
    this way or that in single runs, is counted twice, which errs on the careful side. The critical
    value is Cochran's: the mean of the two t quantiles, each weighted by its variance; with few
    seeds Satterthwaite's would be too small. Fewer than three seeds make no claim.

    Where a search gave the two different numbers, each was judged by a trial, which may have been a
    lucky run; all runs share what came of it. So the variance of a single run more is added.

    Args:
        gains: for each seed and test row, right with the method (1 or 0) less right with the
            reference; shape (seeds, rows). Seed by seed, both had the same start.
        chosen_apart: the search gave the two different numbers.
        confidence: of the interval.

    Returns:
        The test, with the mean difference and its interval.

    Example:
        >>> steady = [[1, 0, 0, 1, 0, 1, 1, 0, 1, 0] * 10] * 3
        >>> paired_runs(steady).p_value < 0.001
        True
        >>> paired_runs([[1] * 10, [-1] * 10, [0] * 10]).p_value
        1.0

    Reference:
        Cochran, Biometrics 20 (1964), on the combined quantile; Owen, Annals of Applied Statistics
        1 (2007), on variances over rows and columns.
    """
    table = read_numbers("gains", gains, "repeat it, or leave its method out.")
    if table.ndim != 2 or table.size == 0 or np.abs(table).max() > 1 + 1e-9:
        raise ValueError(
            f"gains must have shape (seeds, rows) and lie in [-1, 1]; got shape {table.shape}."
        )
    confidence = check_share("confidence", confidence)
    seeds, rows = table.shape
    test, difference = "paired runs", float(table.mean())
    if seeds < LEAST_SEEDS or rows < 2:
        return PairedTest(test, 0.0, 1.0, (), difference, (-1.0, 1.0), FEW_SEEDS)
    freedom = (float(rows - 1), float(seeds - 1))
    if not table.any():
        return PairedTest(test, 0.0, 1.0, freedom, 0.0, (0.0, 0.0), ALL_EQUAL)
    # One row more in the squares, so that a few rows that all agree are not certain.
    of_rows = (float((table.mean(0) ** 2).sum()) + 1) / rows - difference**2
    runs = 1 / seeds + chosen_apart
    variances = np.array([of_rows / rows, float(table.mean(1).var(ddof=1)) * runs])
    error = float(np.sqrt(variances.sum()))

    def reach(p_value: float) -> float:
        """How far from 0 a difference with this p-value is, in standard errors."""
        quantiles: Floats = stats.t.isf(p_value / 2, freedom)
        return float((variances * quantiles).sum() / variances.sum())

    statistic = difference / error
    distance = abs(statistic)
    if distance == 0:
        p_value = 1.0
    elif distance >= reach(_LEAST):
        p_value = _LEAST
    else:
        where = optimize.brentq(lambda x: reach(float(np.exp(x))) - distance, np.log(_LEAST), 0.0)
        p_value = float(np.exp(where))
    wide = reach(1 - confidence) * error
    interval = (max(-1.0, difference - wide), min(1.0, difference + wide))
    return PairedTest(test, statistic, p_value, freedom, difference, interval)
