"""How a table is read, how much of it, and what one that cannot be read exactly gets."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from expacc.plain import UsageError, check_count, one_line

Position = str | int
"""A column: its name, or its place counted from 1 (from the end if negative)."""

NUMERIC_MISSING = ("NA", "N/A", "NaN", "nan", "null", "NULL", "None")
"""Words for a missing value that count only where every other value of the column is a number."""

_DELIMITERS = {
    "comma": ",",
    "semicolon": ";",
    "tab": "\t",
    "\\t": "\t",
    "pipe": "|",
    "space": "whitespace",
    " ": "whitespace",
}


def _sequence(name: str, value: object, what: str, kinds: tuple[type, ...]) -> tuple[Any, ...]:
    """The value as a tuple, if it is a sequence of these types and no text."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise TypeError(f"{name} must be a sequence of {what}; got {value!r}.")
    for entry in value:
        if isinstance(entry, bool) or not isinstance(entry, kinds):
            raise TypeError(f"{name} must hold {what} only; got {entry!r}.")
    return tuple(value)


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Every choice of ``read_table``, described there; checked when made."""

    target: Position | None = None
    header: bool = True
    delimiter: str | None = None
    quote: str | None = '"'
    decimal: str = "."
    encoding: str | None = None
    skip_lines: int = 0
    sheet: str | None = None
    missing: tuple[str, ...] | None = None
    label_missing: tuple[str, ...] = ("", "?")
    numeric: tuple[Position, ...] = ()
    categorical: tuple[Position, ...] = ()
    text: tuple[Position, ...] = ()
    drop: tuple[Position, ...] = ()
    text_columns: int = 512
    max_bytes: int | None = None
    max_cells: int | None = None
    max_columns: int = 10_000
    max_levels: int = 1_000

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        if isinstance(self.target, bool) or not isinstance(self.target, str | int | None):
            raise TypeError(f"target must be a column's name or position; got {self.target!r}.")
        if not isinstance(self.header, bool):
            raise TypeError(f"header must be True or False; got {self.header!r}.")
        if self.delimiter is not None:
            put("delimiter", self._delimiter(self.delimiter))
        if self.quote is not None and (
            len(self.quote) != 1 or self.quote in "\r\n\0 " or self.quote == self.delimiter
        ):
            raise ValueError(
                "quote must be one character other than the delimiter, or None; "
                f"got {self.quote!r}."
            )
        if self.decimal not in (".", ","):
            raise ValueError(f"decimal must be '.' or ','; got {self.decimal!r}.")
        if self.missing is not None:
            put("missing", _sequence("missing", self.missing, "strings", (str,)))
        put("label_missing", _sequence("label_missing", self.label_missing, "strings", (str,)))
        for name in ("numeric", "categorical", "text", "drop"):
            put(name, _sequence(name, getattr(self, name), "names or positions", (str, int)))
        check_count("skip_lines", self.skip_lines, 0)
        check_count("text_columns", self.text_columns, 0)
        for name in ("max_bytes", "max_cells", "max_columns", "max_levels"):
            value = getattr(self, name)
            if value is not None or name in ("max_columns", "max_levels"):
                check_count(name, value)  # None: judged by the file's size on the disk

    def _delimiter(self, given: str) -> str:
        delimiter = _DELIMITERS.get(given, given)
        if delimiter != "whitespace" and (len(delimiter) != 1 or delimiter in '"\r\n\0'):
            raise ValueError(
                "delimiter must be one character, 'comma', 'semicolon', 'tab', 'pipe' or "
                f"'whitespace'; got {self.delimiter!r}."
            )
        return delimiter

    @property
    def missing_words(self) -> frozenset[str]:
        """What counts as missing in every feature column."""
        return frozenset(("", "?") if self.missing is None else self.missing)

    @property
    def numeric_missing_words(self) -> frozenset[str]:
        """What counts as missing in a column of numbers."""
        return self.missing_words | (frozenset(NUMERIC_MISSING) if self.missing is None else set())

    def to_json(self) -> dict[str, object]:
        """Plain values for a record."""
        return asdict(self)


class TableError(UsageError):
    """A table that was refused; the message is one line for the user.

    Attributes:
        source: the file's name.
        line: the line (a workbook's row), counted from 1, or None.
        column: the character, or the field where cells are typed, counted from 1, or None.
    """

    def __init__(
        self, source: str, message: str, *, line: int | None = None, column: int | None = None
    ) -> None:
        where = source
        if line is not None:
            where += f", line {line}"
        if column is not None:
            where += f", column {column}"
        super().__init__(one_line(f"{where}: {message}"))
        self.source, self.line, self.column = source, line, column
        self.message = message

    def __reduce__(self) -> tuple[object, ...]:
        # An exception is pickled by its args; ours are not those of __init__.
        return _again, (self.source, self.message, self.line, self.column)


def _again(source: str, message: str, line: int | None, column: int | None) -> TableError:
    return TableError(source, message, line=line, column=column)


class NoRows(TableError):
    """A table that is empty but for, at most, a header.

    Attributes:
        names: of the columns; () if there is no header.
    """

    def __init__(
        self, source: str, message: str, names: Sequence[str] = (), *, line: int | None = None
    ) -> None:
        super().__init__(source, message, line=line)
        self.names = tuple(names)


def need(module: str, purpose: str, extra: str = "tables") -> ModuleType:
    """Import ``module`` now, or say which extra brings it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(
            f"{purpose} needs {package}, which is not installed. Use pip install 'expacc[{extra}]'."
        ) from error


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
