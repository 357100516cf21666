"""How much a file may become: a fixed amount, or what its size on the disk speaks for.

A few bytes of a packed file can stand for any number of cells. So whatever a reader takes in is
counted before it is kept.
"""

from expacc.data.errors import TableError
from expacc.data.options import ReadOptions
from expacc.data.source import Source

__all__ = ["LONGEST_FIELD", "LONGEST_LINE", "TEXT", "WORKBOOK", "Budget", "too_many_columns"]

TEXT = 25_000_000
"""Cells that text and Parquet may hold, however few bytes they are on the disk."""

WORKBOOK = 3_000_000
"""Cells that a workbook may hold: each of them is an element of XML, and slow."""

LONGEST_LINE = 32 << 20
"""Characters of one line."""

LONGEST_FIELD = 4 << 20
"""Characters of a field in quotes that runs over several lines."""

_CELLS_OF_A_ROW = 8
_SLOW = 2_000_000  # fields that have to be looked at letter by letter


class Budget:
    """Rows and cells that may be read of one file.

    Args:
        source: its size on the disk allows a row, and a cell, for each byte.
        options: ``max_cells`` goes before all else.
        cells: that it may hold in any case.
        per_byte: cells that each byte of it allows.
    """

    def __init__(
        self, source: Source, options: ReadOptions, cells: int = TEXT, per_byte: int = 1
    ) -> None:
        self.name = source.name
        self.cells = options.max_cells or max(cells, per_byte * source.size)
        self.rows = max(self.cells // _CELLS_OF_A_ROW, min(self.cells, source.size))
        self.slow = options.max_cells or max(_SLOW, source.size)

    def check(self, rows: int, width: int, line: int | None = None) -> None:
        """Raise if a table of this size, so far, is too large."""
        if rows <= self.rows and rows * width <= self.cells:
            return
        raise self._refusal(
            f"{self.rows:,} rows" if rows > self.rows else f"{self.cells:,} cells", line
        )

    def look_closely(self, fields: int, line: int | None = None) -> None:
        """Count fields that take long."""
        self.slow -= fields
        if self.slow < 0:
            raise self._refusal("a few million fields with quotes, blanks and escapes", line)

    def _refusal(self, what: str, line: int | None) -> TableError:
        return TableError(
            self.name,
            f"it holds more than {what}, the most that is read of a file of its size. Raise "
            "--max-cells if you trust it.",
            line=line,
        )


def too_many_columns(name: str, found: str, options: ReadOptions, line: int | None) -> TableError:
    """The refusal of a table with more than ``max_columns``."""
    return TableError(
        name,
        f"{found} columns where at most {options.max_columns:,} are read. Raise --max-columns if "
        "that is meant.",
        line=line,
    )
