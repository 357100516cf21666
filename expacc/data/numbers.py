"""What counts as a number: a decimal number in ASCII digits that float64 can hold."""

import math
import re
from collections.abc import Collection, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from expacc.data.grid import Cell

__all__ = ["is_number", "parse_numbers", "why_not_a_number"]

_NUMBER = {
    point: re.compile(
        rf"[+-]?(?:[0-9]++(?:{re.escape(point)}[0-9]*+)?|{re.escape(point)}[0-9]++)"
        r"(?:[eE][+-]?[0-9]++)?"
    )
    for point in ".,"
}
# The same for a whole column at once, one number a line: possessive, so that it cannot backtrack.
_COLUMN = {point: re.compile(rf"(?:{rule.pattern}\n)*+") for point, rule in _NUMBER.items()}


def is_number(cell: Cell, decimal: str = ".") -> bool:
    """Whether one cell is a number.

    >>> [is_number(text) for text in ("-1.5e3", ".5", "007", "1_000", "0x10", "inf", "1e400")]
    [True, True, True, False, False, False, False]
    """
    if isinstance(cell, str):
        return _NUMBER[decimal].fullmatch(cell) is not None and math.isfinite(
            float(cell.replace(",", "."))
        )
    if isinstance(cell, bool) or cell is None:
        return False
    return abs(cell) <= 1.7976931348623157e308 if isinstance(cell, int) else math.isfinite(cell)


def why_not_a_number(cell: Cell, decimal: str = ".") -> str:
    """Words for a sentence about a cell that is not a number."""
    if isinstance(cell, str) and _NUMBER[decimal].fullmatch(cell):
        return f"{cell!r} is beyond float64"
    return f"{cell!r} is not a number"


def parse_numbers(
    cells: Sequence[Cell], missing: Collection[str], decimal: str = "."
) -> NDArray[np.float64] | None:
    """The cells as float64, NaN where missing; None if one is neither missing nor a number."""
    # Sets and maps of C functions throughout: a column has as many cells as the file has lines.
    kinds = set(map(type, cells))
    present = cells
    if type(None) in kinds or (str in kinds and not frozenset(missing).isdisjoint(cells)):
        present = [cell for cell in cells if cell is not None and cell not in missing]
    texts = present
    if kinds != {str}:
        texts = [cell for cell in present if isinstance(cell, str)] if str in kinds else []
    if texts:
        # One scan in C, not a call a cell; a cell that holds a line break would look like two.
        joined = "\n".join(cast("Sequence[str]", texts)) + "\n"
        scanned = _COLUMN[decimal].match(joined)
        if scanned is None or scanned.end() != len(joined) or joined.count("\n") != len(texts):
            return None
    numbers = kinds <= {int, float, type(None)}
    if (
        len(texts) < len(present)
        and not numbers
        and not all(isinstance(cell, str) or is_number(cell) for cell in present)
    ):
        return None
    if decimal == ",":
        present = [cell.replace(",", ".") if isinstance(cell, str) else cell for cell in present]
    try:
        values = np.fromiter(map(float, cast("Sequence[float]", present)), np.float64, len(present))
    except OverflowError:  # an integer beyond float64
        return None
    if not np.isfinite(values).all():
        return None
    # An integer just beyond float64 is rounded down to it.
    if numbers and np.abs(values).max(initial=0) > 1e308 and not all(map(is_number, present)):
        return None
    if len(present) == len(cells):
        return values
    here = np.fromiter(
        (cell is not None and cell not in missing for cell in cells), np.bool_, len(cells)
    )
    whole = np.full(len(cells), np.nan)
    whole[here] = values
    return whole
