"""How a table is read: every choice a user can make, checked once, recorded with the result."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

__all__ = ["NUMERIC_MISSING", "Position", "ReadOptions"]

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


def _texts(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise TypeError(f"{name} must be a sequence of strings; got {value!r}.")
    if not all(isinstance(entry, str) for entry in value):
        raise TypeError(f"{name} must hold strings only; got {value!r}.")
    return tuple(value)


def _positions(name: str, value: object) -> tuple[Position, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise TypeError(f"{name} must be a sequence of columns; got {value!r}.")
    for entry in value:
        if isinstance(entry, bool) or not isinstance(entry, str | int):
            raise TypeError(f"{name} must hold names or positions only; got {entry!r}.")
    return tuple(value)


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Every choice of ``read_table``, described there; checked when made."""

    target: Position | None = None
    header: bool = True
    delimiter: str | None = None
    quote: str | None = '"'
    decimal: str = "."
    encoding: str = "utf-8"
    skip_lines: int = 0
    sheet: str | None = None
    missing: tuple[str, ...] | None = None
    label_missing: tuple[str, ...] = ("", "?")
    numeric: tuple[Position, ...] = ()
    categorical: tuple[Position, ...] = ()
    drop: tuple[Position, ...] = ()
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
            put("missing", _texts("missing", self.missing))
        put("label_missing", _texts("label_missing", self.label_missing))
        for name in ("numeric", "categorical", "drop"):
            put(name, _positions(name, getattr(self, name)))
        for name, low in (
            ("skip_lines", 0),
            ("max_bytes", 1),
            ("max_cells", 1),
            ("max_columns", 1),
            ("max_levels", 1),
        ):
            value = getattr(self, name)
            if value is None and name in ("max_bytes", "max_cells"):
                continue  # judged by the file's size on the disk
            if type(value) is not int:
                raise TypeError(f"{name} must be an int; got {value!r}.")
            if value < low:
                raise ValueError(f"{name} must be >= {low}; got {value}.")

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
