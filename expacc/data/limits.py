"""How much a file may become, so that reading it takes at most 2 GB and 20 s on two cores.

A few bytes of a packed file can stand for any number of cells. So whatever a reader takes in is
counted before it is kept.
"""

from expacc.data.errors import TableError
from expacc.data.options import ReadOptions

__all__ = [
    "LONGEST_FIELD",
    "LONGEST_LINE",
    "MOST_BYTES",
    "MOST_LEVELS",
    "READ_MEMORY",
    "READ_SECONDS",
    "TEXT",
    "WORKBOOK",
    "Budget",
    "most_unpacked",
    "too_large",
    "too_many_columns",
]

MOST_BYTES = 512 << 20
"""Bytes of a file, unpacked, unless someone vouches for more."""

TEXT, MOST_CELLS = 25_000_000, 60_000_000
"""Cells that a file may hold, however few bytes it has on the disk; and however many."""

WORKBOOK = 3_000_000
"""Cells that a workbook may hold: each of them is an element of XML, and slow."""

LONGEST_LINE = 32 << 20
"""Characters of one line."""

LONGEST_FIELD = 4 << 20
"""Characters of a field in quotes that runs over several lines."""

MOST_LEVELS = 1_000_000
"""Different values of a target or a category."""

READ_MEMORY, READ_SECONDS = 640 << 20, 12
"""What the process that reads Parquet and workbooks may take beside the file itself."""

_CELLS_OF_A_ROW = 8
_SLOW = 3_000_000  # fields that have to be looked at letter by letter


class Budget:
    """Rows and cells that may be read of one file.

    Args:
        name: the file's.
        size: on the disk; it allows a row, and a cell, for each byte.
        options: ``max_cells`` goes before all else.
        cells: that it may hold in any case.
        per_byte: cells that each byte of it allows.
    """

    def __init__(
        self, name: str, size: int, options: ReadOptions, cells: int = TEXT, per_byte: int = 1
    ) -> None:
        self.name = name
        self.cells = options.max_cells or max(cells, min(MOST_CELLS, per_byte * size))
        self.rows = max(self.cells // _CELLS_OF_A_ROW, min(self.cells, size))
        self.slow = max(_SLOW, options.max_cells or 0)

    def check(self, rows: int, width: int, line: int | None = None) -> None:
        """Raise if a table of this size, so far, is too large."""
        if rows <= self.rows and rows * width <= self.cells:
            return
        raise self.refusal(
            f"{self.rows:,} rows" if rows > self.rows else f"{self.cells:,} cells", line
        )

    def look_closely(self, fields: int, line: int | None = None) -> None:
        """Count fields that take long."""
        self.slow -= fields
        if self.slow < 0:
            raise self.refusal("a few million fields with quotes, blanks and escapes", line)

    def refusal(self, what: str, line: int | None = None) -> TableError:
        """The refusal of a file that holds too much."""
        return TableError(
            self.name,
            f"it holds more than {what}, the most that is read of a file of its size. Raise "
            "--max-cells if you trust it.",
            line=line,
        )


def most_unpacked(options: ReadOptions) -> int:
    """Bytes that a file may unpack to, unless someone vouches for more."""
    return options.max_bytes or MOST_BYTES


def too_large(name: str, max_bytes: int, verb: str) -> TableError:
    """The refusal of a file of too many bytes."""
    return TableError(
        name,
        f"it {verb} more than {max_bytes:,} bytes, the most that is read. Raise --max-bytes if "
        "you trust the file.",
    )


def too_many_columns(name: str, found: str, options: ReadOptions, line: int | None) -> TableError:
    """The refusal of a table with more than ``max_columns``."""
    return TableError(
        name,
        f"{found} columns where at most {options.max_columns:,} are read. Raise --max-columns if "
        "that is meant.",
        line=line,
    )
