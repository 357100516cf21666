"""What goes into a test: finite numbers of the right shape, or a sentence that says what is wrong.

A *score table* has one row per table of data and one column per method; a larger score is better.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
