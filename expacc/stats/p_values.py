"""P-values: what goes into a test, adjustment, signs that could have been others, and their reach.

A *score table* has one row per table of data and one column per method; a larger score is better.
What goes into a test is finite numbers of the right shape, or a sentence that says what is wrong.

The sign-flip distribution is the one idea under McNemar's, Wilcoxon's and our row test. If neither
method is better, each difference was as likely to come out with the other sign. So the sum of all
differences has a known distribution, a convolution of scaled binomials; nothing is assumed about
its shape, and ties and zeros need no correction.
"""

import functools
import math
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import signal, stats

Floats = NDArray[np.float64]

# Means over seeds and folds carry rounding errors of about 1e-16; no experiment has 1e10 rows.
NEGLIGIBLE = 1e-10


def read_numbers(name: str, values: ArrayLike, cure: str) -> Floats:
    """Return ``values`` as float64, or raise if one of them is not a finite number."""
    try:
        numbers = np.asarray(values)
        if numbers.dtype.kind not in "iuf":  # bool, complex, object and str are no scores
            raise TypeError
        numbers = numbers.astype(np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be an array of numbers; got {values!r}.") from None
    if not np.isfinite(numbers).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(numbers))[0])
        where = place[0] if len(place) == 1 else place
        raise ValueError(
            f"{name} must be finite; got {numbers[place]} at {where}. A failed run has no score: "
            f"{cure}"
        )
    return numbers


def read_differences(differences: ArrayLike) -> Floats:
    """Return differences of scores, one per split, as float64."""
    return read_numbers("differences", differences, "repeat it, or leave its method out.")


def read_scores(scores: ArrayLike) -> Floats:
    """Return a score table (tables × methods) rounded to 1e-10, so that ties are ties."""
    numbers = read_numbers("scores", scores, "repeat it, or leave its table out.")
    if numbers.ndim != 2:
        raise ValueError(f"scores must have two axes, tables × methods; got shape {numbers.shape}.")
    tables, methods = numbers.shape
    if tables < 2:
        raise ValueError(
            f"scores must hold at least 2 tables; got {tables}. Within one table, compare splits."
        )
    if methods < 2:
        raise ValueError(f"scores must hold at least 2 methods; got {methods}.")
    return np.round(numbers, 10)


def check_share(name: str, value: Any) -> float:
    """Return ``value`` if it is a number strictly between 0 and 1, else raise."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number; got {value!r}.")
    if not 0 < value < 1:
        raise ValueError(f"{name} must lie in (0, 1); got {value}.")
    return float(value)


def check_rows(name: str, value: Any) -> float:
    """Return a number of rows (a mean over splits may be fractional), at least 1, else raise."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number; got {value!r}.")
    if not 1 <= value < np.inf:
        raise ValueError(f"{name} must be finite and >= 1; got {value}.")
    return float(value)


Adjustment = Literal["holm", "benjamini-hochberg"]


def adjust(p_values: ArrayLike, method: Adjustment = "holm") -> Floats:
    """Adjust p-values for their number, so that each may be held to the same level.

    Holm keeps the chance of *any* false claim below the level, whatever the dependence: right for
    one sentence about one table. Benjamini and Hochberg keep the expected *share* of false claims
    below it: right for a map of many pairs.

    Args:
        p_values: one per comparison, any order.
        method: ``"holm"`` or ``"benjamini-hochberg"``.

    Returns:
        The adjusted p-values, in the order of the input.

    Example:
        >>> adjust([0.01, 0.04, 0.03]).tolist()
        [0.03, 0.06, 0.06]

    Reference:
        Holm, Scandinavian Journal of Statistics 6 (1979); Benjamini and Hochberg, JRSS B 57 (1995).
    """
    raw = read_numbers("p_values", p_values, "it has no p-value either.")
    if raw.ndim != 1:
        raise ValueError(f"p_values must be a vector; got shape {raw.shape}.")
    if raw.size and not (raw.min() >= 0 and raw.max() <= 1):
        worst = float(raw[(raw < 0) | (raw > 1)][0])
        raise ValueError(f"p_values must lie in [0, 1]; got {worst}.")
    if method not in ("holm", "benjamini-hochberg"):
        raise ValueError(f"method must be 'holm' or 'benjamini-hochberg'; got {method!r}.")
    if raw.size == 0:
        return raw
    if method == "benjamini-hochberg":
        return np.asarray(stats.false_discovery_control(raw), np.float64)
    order = np.argsort(raw, kind="stable")
    steps = raw[order] * np.arange(raw.size, 0, -1)
    adjusted = np.empty_like(raw)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(steps))
    return adjusted


LONGEST = 4_000_000  # sums; beyond, the normal distribution is as good and needs no room


@functools.lru_cache(maxsize=4)  # the rivals of a study often have the same sizes
def _distribution(sizes: tuple[int, ...], counts: tuple[int, ...]) -> Floats:
    """Of the sum U of the positive sizes; the sum of the differences is 2U - all."""
    distribution = np.ones(1)
    for size, count in zip(sizes, counts, strict=True):
        if count == 1:  # most of the ranks of Wilcoxon's test
            longer = np.zeros(len(distribution) + size)
            longer[: len(distribution)] = distribution / 2
            longer[size:] += distribution / 2
            distribution = longer
            continue
        steps = np.zeros(size * count + 1)
        steps[::size] = stats.binom.pmf(np.arange(count + 1), count, 0.5)
        distribution = signal.convolve(distribution, steps)
    return distribution


def sign_flip_p(differences: NDArray[np.int64], *, middle: bool, shrink: float = 1.0) -> float:
    """Return the two-sided p of the sum of ``differences`` when every sign is a fair coin.

    Args:
        differences: whole numbers; zeros say nothing and change nothing.
        middle: count the observed value itself half (the mid-p), which removes most of the
            conservatism of a discrete test.
        shrink: divide the observed sum by this first, where differences are known to vary together
            more than coins do.
    """
    sizes = np.abs(differences[differences != 0])
    if sizes.size == 0:
        return 1.0
    everything = int(sizes.sum())
    observed = abs(int(differences.sum())) / shrink
    if everything > LONGEST:
        return float(2 * stats.norm.sf(observed / float((sizes.astype(float) ** 2).sum()) ** 0.5))
    values, counts = np.unique(sizes, return_counts=True)
    distribution = _distribution(tuple(values.tolist()), tuple(counts.tolist()))
    distance = np.abs(2 * np.arange(everything + 1) - everything)
    near = np.abs(distance - observed) < 1e-9 * max(1.0, observed)
    beyond = float(distribution[(distance > observed) & ~near].sum())
    at = float(distribution[near].sum())
    # A convolution by FFT may be off by 1e-16: no p below the smallest that the coins allow.
    smallest = 0.5 ** min(sizes.size, 1000)
    return float(min(1.0, max(beyond + (0.5 if middle else 1.0) * at, smallest)))


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
