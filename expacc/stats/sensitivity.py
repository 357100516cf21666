"""What a study could have seen: the smallest true gain that it would most likely have found."""

import math

from scipy import stats

from expacc.stats.score_table import Floats

__all__ = ["POWER", "visible_gain", "visible_gain_over_tables"]

POWER = 0.8  # four of five such studies find a gain of this size
WILCOXON_EFFICIENCY = 3 / math.pi  # against the t test, for normal differences


def _reach(comparisons: int, significance: float) -> float:
    """Standard errors from no gain to one that is found with ``POWER``, Holm's first step."""
    level = significance / max(1, comparisons)
    return float(stats.norm.isf(level / 2) + stats.norm.ppf(POWER))


def visible_gain(
    interval: tuple[float, float], comparisons: int, *, significance: float = 0.05
) -> float:
    """The gain that four of five such studies would have called beyond chance.

    Args:
        interval: the 95 % interval of the difference, whose width tells its standard error.
        comparisons: p-values that are adjusted together.
        significance: the level.

    >>> round(visible_gain((-0.01, 0.03), 1), 4)  # 0.02 / 1.96 · (1.96 + 0.84)
    0.0286
    """
    error = (interval[1] - interval[0]) / 2 / float(stats.norm.isf(0.025))
    return error * _reach(comparisons, significance)


def visible_gain_over_tables(
    gaps: Floats, comparisons: int, *, significance: float = 0.05
) -> float:
    """The mean gain over such tables that four of five such studies would have called certain.

    Args:
        gaps: the method's scores less the reference's, one per table.
        comparisons: p-values that are adjusted together.
        significance: the level.
    """
    error: float = float(gaps.std(ddof=1)) / math.sqrt(len(gaps) * WILCOXON_EFFICIENCY)
    return error * _reach(comparisons, significance)
