"""P-values of several comparisons at once, adjusted for their number."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from expacc.stats.score_table import Floats, read_numbers

Adjustment = Literal["holm", "benjamini-hochberg"]


def adjust(p_values: ArrayLike, method: Adjustment = "holm") -> Floats:
    """Adjust p-values for their number, so that each may be held to the same level.

    Holm keeps the chance of *any* false claim below the level, whatever the dependence: right for
    one sentence about one table. Benjamini and Hochberg keep the expected *share* of false claims
    below it: right for a map of many pairs.

    Args:
        p_values: one per comparison, any order.
        method: ``"holm"`` or ``"benjamini-hochberg"``.

    Reference:
        Holm, Scandinavian Journal of Statistics 6 (1979); Benjamini and Hochberg, JRSS B 57 (1995).

    >>> adjust([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
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
