"""From cells as readers hand them over to columns: kinds, labels, doubts, each with its line."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expacc.data.cells import (
    Cells,
    Codes,
    as_text,
    first_odd,
    is_number,
    text_numbers,
    to_numbers,
    why_not_a_number,
)
from expacc.data.options import MOST_LEVELS, NUMERIC_MISSING, ReadOptions, TableError
from expacc.data.table import Column, Kind, Labels, Rows, shown

MOST_NUMBERS = 50  # different ones of a target; more are to be predicted by regression
_DOUBTFUL_LEVELS = 50
_IDS_AT_LEAST = 50
_EXACT_INTEGERS = 2.0**53
_MOST_ALIKE = 10_000
_MOST_DOUBTED = 1_000_000  # cells that are looked at for a warning
_LONGEST_LABEL = 1_000


class ManyLevels(TableError):
    """A column of more different values than a category can have."""


@dataclass
class Grid:
    """Cells by column, untouched; ``declared`` holds the kinds that the format itself states.

    ``index`` names the columns that a program wrote to number its rows.
    """

    source: str
    names: tuple[str, ...]
    columns: list[Cells]
    lines: Sequence[int] | Rows
    header_line: int | None = None
    declared: dict[str, Kind] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    index: tuple[str, ...] = ()
    target: str | None = None  # where the source itself says it

    def __post_init__(self) -> None:
        self.columns = [Cells.of(column) for column in self.columns]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.lines)

    def levels(self, place: int, missing: frozenset[str]) -> tuple[Any, Codes]:
        """``Cells.levels`` of a column; one of far too many values is refused."""
        try:
            return self.columns[place].levels(missing, MOST_LEVELS)
        except OverflowError:
            raise ManyLevels(
                self.source,
                f"{self.names[place]!r} has more than {MOST_LEVELS:,} different values, too many "
                "for a category or a target. --target takes another column, --drop leaves one out.",
            ) from None


def name_columns(
    source: str, header: Sequence[str], line: int, starts: Sequence[int] | None = None
) -> tuple[tuple[str, ...], list[str]]:
    """Names from a header; an empty one becomes its position, one that comes again gets a number.

    Where the header is rather a row of numbers with one twice, it is refused.
    """
    names, notes = _numbered(header)
    if notes and 2 * sum(map(is_number, filter(None, header))) >= len(header):
        first = next(name for name in header if name and header.count(name) > 1)
        one, two = [place for place, name in enumerate(header) if name == first][:2]
        raise TableError(
            source,
            f"the header has {first!r} twice, in fields {one + 1} and {two + 1}, and many numbers. "
            "If the first line is data, give --no-header.",
            line=line,
            column=starts[two] if starts else two + 1,
        )
    taken = {*names}
    empty = [place for place, name in enumerate(names) if name == ""]
    for place in empty:
        name = f"column {place + 1}"
        while name in taken:
            name += "'"
        taken.add(name)
        names[place] = name
    if empty:
        given = ", ".join(repr(names[place]) for place in empty[:5])
        more = f" and {len(empty) - 5} more" if len(empty) > 5 else ""
        notes.append(f"The header leaves {len(empty)} name(s) empty: called {given}{more}.")
    return tuple(names), notes


def _numbered(header: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names that all differ, as pandas makes them: a, a.1, a.2; and a line if there is need."""
    names, counts = list(header), dict.fromkeys(header, 0)
    known, again = {*header}, []
    for place, old in enumerate(header):
        name, count = old, counts[old]
        while old and count > 0:
            counts[old] = count + 1
            name = f"{old}.{count}"
            count = count + 1 if name in known else counts.get(name, 0)
        names[place] = name
        known.add(name)
        counts[name] = counts.get(name, 0) + 1
        if name != old:
            again.append(name)
    if not again:
        return names, []
    given = ", ".join(map(shown, again[:5])) + (", …" if len(again) > 5 else "")
    return names, [f"The header has {len(again)} name(s) again: the later ones are called {given}."]


def make_labels(grid: Grid, place: int, options: ReadOptions) -> tuple[Labels, list[str]]:
    """Labels as text, exactly as written; nothing is taken for missing but ``label_missing``."""
    name = grid.names[place]
    levels, codes = grid.levels(place, frozenset(options.label_missing))
    classes = tuple(levels.to_pylist())
    longest = max(range(len(classes)), key=lambda code: len(classes[code]), default=0)
    if classes and len(classes[longest]) > _LONGEST_LABEL:
        raise TableError(
            grid.source,
            f"a label of {name!r} has {len(classes[longest]):,} characters, more than "
            f"{_LONGEST_LABEL:,}; is it the target? --target takes another column.",
            line=int(grid.lines[int(np.argmax(codes == longest))]),
        )
    notes = []
    known = set(classes)
    words = [word for word in (*NUMERIC_MISSING, "none", "-", ".") if word in known]
    if words:
        notes.append(
            f"Warning: {' and '.join(map(repr, words))} is kept as a class of {name!r}; if it "
            f"means no label, give {' '.join(f'--label-missing {word}' for word in words)}."
        )
    notes += _alike_classes(classes)
    return Labels(name, classes, codes.astype(np.int64)), notes


def _alike_classes(classes: Sequence[str]) -> list[str]:
    """A line where classes differ in writing only, such as '1' and '01', or 'Yes' and 'yes'."""
    groups: dict[object, list[str]] = {}
    if len(classes) > _MOST_ALIKE:
        return []  # of so many none was written by hand
    for name in classes:
        # A number by value, text without case, blanks and a last dot.
        key = float(name) if is_number(name) else name.strip().rstrip(".").casefold()
        groups.setdefault(key, []).append(name)
    found = [group for group in groups.values() if len(group) > 1]
    if not found:
        return []
    group = found[0]
    more = f" (and {len(found) - 1:,} more such groups)" if len(found) > 1 else ""
    return [
        f"Warning: the classes {', '.join(map(repr, group[:10]))}{', …' * (len(group) > 10)} "
        f"differ in writing only and are kept apart{more}."
    ]


def make_column(
    grid: Grid, place: int, options: ReadOptions, forced: Kind | None = None
) -> tuple[Column, list[str]]:
    """One feature: a number if every value is one, else a category; or what is forced.

    Raises:
        ManyLevels: it is neither.
    """
    name, cells = grid.names[place], grid.columns[place]
    kind = forced or grid.declared.get(name)
    words, plain = options.numeric_missing_words, options.missing_words
    values = None
    if kind != "category":
        values = to_numbers(cells, words, options.decimal, plain)
        # NA counts as missing beside numbers only; NA alone is text like any other.
        if values is not None and kind is None and np.isnan(values).all():
            present, _ = cells.levels(plain)
            values = None if len(present) else values
    if values is None and kind == "number":
        raise _not_numbers(grid, place, options)
    if values is not None:
        return Column(name, "number", values), _gap_notes(name, cells, values, words - plain)
    levels, codes = grid.levels(place, plain)
    column = Column(name, "category", codes.astype(np.int64), tuple(levels.to_pylist()))
    return column, [] if kind == "category" else _almost_numbers(
        grid, place, levels, codes, options
    )


def _not_numbers(grid: Grid, place: int, options: ReadOptions) -> TableError:
    cells = grid.columns[place]
    row = first_odd(cells, options.numeric_missing_words, options.decimal, options.missing_words)
    text = as_text(cells[row]) or "nan"
    return TableError(
        grid.source,
        f"{why_not_a_number(cells[row], options.decimal)}, but {grid.names[place]!r} is a column "
        f"of numbers. Mend it, or give --missing {text} to read it as missing.",
        line=int(grid.lines[row]),
    )


def _gap_notes(
    name: str, cells: Cells, values: NDArray[np.float64], words: frozenset[str]
) -> list[str]:
    gaps = np.isnan(values)
    if not words or cells.is_numeric or not gaps.any():
        return []
    found, codes = cells.where(gaps).distinct()
    counts = np.bincount(codes[codes >= 0], minlength=len(found)).tolist()
    texts = zip(cells.decoded(found), counts, strict=True)
    return [
        f"{shown(name)}: {count:,} × {word!r} read as missing, for all other values are numbers."
        for word, count in sorted((text, n) for text, n in texts if text in words)
    ]


_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?")


def _almost_numbers(
    grid: Grid, place: int, levels: Any, codes: NDArray[np.int32], options: ReadOptions
) -> list[str]:
    """Lines on a category that may have been meant as numbers."""
    name, decimal = shown(grid.names[place]), options.decimal
    other = "," if decimal == "." else "."
    if text_numbers(levels, decimal) is not None:
        return []
    texts = levels.to_pylist()
    odd = [code for code, level in enumerate(texts) if not is_number(level, decimal)]
    if all(_THOUSANDS.fullmatch(texts[code]) for code in odd) and other == ",":
        return [
            f"Warning: {name}: category, but its values may be numbers with commas between "
            "thousands; write them without, or give --decimal , if the comma is the decimal sign."
        ]
    if all(is_number(texts[code], other) for code in odd):
        return [
            f"Warning: {name}: category, but its values are numbers with a decimal {other!r}; "
            f"if that is meant, give --decimal {other}."
        ]
    if len(texts) - len(odd) < 10 * len(odd):
        return []
    row = int(np.argmax(np.isin(codes, odd)))
    return [
        f"Warning: {name}: category, for {len(odd)} of {len(texts)} values are not numbers "
        f"(line {grid.lines[row]}: {why_not_a_number(grid.columns[place][row], decimal)}); if they "
        f"mean missing, give --missing {texts[odd[0]]}."
    ]


_ID = re.compile(r"(.*[^A-Za-z])?([Ii][Dd]|uuid|guid)|.*[a-z]I[Dd]|index|[Uu]nnamed.*|rownames?")


def called_id(name: str) -> bool:
    """Whether a name is that of an identifier.

    >>> [called_id(name) for name in ("id", "PassengerId", "user_id", "Unnamed: 0", "humid")]
    [True, True, True, True, False]
    """
    return _ID.fullmatch(name) is not None


def reason_to_drop(
    column: Column, max_levels: int, chosen: bool, called_id: bool = False
) -> str | None:
    """Why a column teaches nothing or too much; ``chosen`` by the user, many levels are kept."""
    gaps = column.missing
    if gaps.all():
        return "every value is missing"
    if column.kind == "number":
        present = column.values[~gaps] if gaps.any() else column.values
        if (present == present[0]).all():
            return "every value is the same"
        if not chosen and numbers_rows(present, called_id):
            return f"id-like, {len(present):,} integers, all different; --numeric keeps it"
        return None
    levels, rows = len(column.levels), len(gaps) - int(gaps.sum())
    if levels == 1 and not gaps.any():
        return "every value is the same"
    if chosen or levels <= _DOUBTFUL_LEVELS:
        return None
    if 2 * levels > rows:
        return (
            f"id-like text, {levels:,} different values in {rows:,} rows; keep it with "
            "--categorical"
        )
    if levels > max_levels:
        return f"{levels:,} levels, more than --max-levels {max_levels:,}"
    return None


def warnings_about(column: Column, cells: Cells) -> list[str]:
    """Lines on a number column that may be an identifier or lost digits."""
    if column.kind != "number":
        return []
    values: NDArray[np.float64] = column.values.astype(np.float64, copy=False)
    gaps = np.isnan(values)
    present = values[~gaps] if gaps.any() else values
    notes = []
    if present.size and max(present.max(), -present.min()) >= _EXACT_INTEGERS:
        large = _some(cells, np.abs(values) >= _EXACT_INTEGERS)
        whole = {text for text in map(as_text, large) if text and text.lstrip("+-").isdigit()}
        # Leading zeros go, for Python refuses to convert thousands of digits.
        if any(int(abs(float(text))) != int(text.lstrip("+-0") or "0") for text in whole):
            notes.append(
                f"Warning: {shown(column.name)}: integers beyond 2**53 are rounded as numbers; "
                "if they are identifiers, give --drop or --categorical."
            )
    zero = values == 0
    if zero.any() and any(
        isinstance(cell, str)
        and any(digit in cell.lower().partition("e")[0] for digit in "123456789")
        for cell in _some(cells, zero)
    ):
        notes.append(f"Warning: {shown(column.name)}: numbers too small for float64 are read as 0.")
    if len(present) >= _IDS_AT_LEAST and _all_different(present):
        notes.append(
            f"Warning: {shown(column.name)}: id-like, {len(present):,} integers, all different; if "
            "it is an identifier, give --drop."
        )
    return notes


def numbers_rows(values: NDArray[Any], called_id: bool) -> bool:
    """Whether integers, all different, are so by no chance: they tell rows apart, and no more.

    They are in order, are of one length, are called so, or so many from their range would agree
    somewhere (three times or more is expected: the middle half of the values is taken for even).
    """
    rows = len(values)
    if rows < (10 if called_id else _IDS_AT_LEAST) or not _all_different(values):
        return False
    steps = np.diff(values)
    if called_id or (steps > 0).all() or (steps < 0).all():
        return True
    lengths = np.floor(np.log10(np.maximum(np.abs(values), 1)))
    low, high = np.quantile(values, (0.25, 0.75))
    return bool(
        (lengths[0] >= 3 and (lengths == lengths[0]).all())
        or (rows / 2) ** 2 / (2 * max(high - low, 1)) >= 3
    )


def is_fraction(cells: Cells, options: ReadOptions) -> bool:
    """Whether a column of numbers holds some that are no integers."""
    values = to_numbers(cells, options.numeric_missing_words, options.decimal)
    return values is not None and bool((values[~np.isnan(values)] % 1).any())


def _some(cells: Cells, rows: NDArray[np.bool_]) -> list[Any]:
    """The different cells of some rows, of many the first."""
    chosen = cells.where(rows)
    chosen = Cells(chosen.array.slice(0, _MOST_DOUBTED), chosen.form)
    return chosen.decoded(chosen.distinct()[0])


def _all_different(values: NDArray[np.float64]) -> bool:
    """Whether they are integers and none is there twice; the first ones tell of most columns."""
    return all(
        not (some % 1).any() and len(np.unique(some)) == len(some)
        for some in (values[:1_000], values)
    )
