"""The kind of each column, the labels, and what is left out or doubted, each with its line."""

from collections import Counter
from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from expacc.data.errors import TableError
from expacc.data.grid import Cell, Grid, Kind, shown
from expacc.data.numbers import is_number, parse_numbers, why_not_a_number
from expacc.data.options import NUMERIC_MISSING, ReadOptions
from expacc.data.table import Column, Labels

__all__ = ["as_text", "make_column", "make_labels", "reason_to_drop", "warnings_about"]

_DOUBTFUL_LEVELS = 50
_IDS_AT_LEAST = 50
_EXACT_INTEGERS = 2.0**53
_MOST_ALIKE = 10_000
_LONGEST_LABEL = 1_000


def as_text(cell: Cell) -> str | None:
    """A cell as text: text as it is, 1 as '1', 1.0 as '1.0', True as 'True', NaN as nothing."""
    if cell is None or isinstance(cell, str):
        return cell
    return None if cell != cell else repr(cell)


def natural_order(texts: Sequence[str]) -> list[str]:
    """Sorted by value if all are numbers ('2' before '10'), else by text."""
    if all(map(is_number, texts)):
        return sorted(texts, key=lambda text: (float(text), text))
    return sorted(texts)


def _encode(cells: Sequence[Cell], missing: frozenset[str]) -> tuple[tuple[str, ...], list[int]]:
    texts = cells if set(map(type, cells)) == {str} else [as_text(cell) for cell in cells]
    different = set(cast("Sequence[str | None]", texts))
    levels = natural_order([text for text in different if text is not None and text not in missing])
    place: dict[Cell, int] = dict.fromkeys(different, -1)
    place.update((level, code) for code, level in enumerate(levels))
    return tuple(levels), list(map(place.__getitem__, texts))


def make_labels(grid: Grid, place: int, options: ReadOptions) -> tuple[Labels, list[str]]:
    """Labels as text, exactly as written; nothing is taken for missing but ``label_missing``."""
    name = grid.names[place]
    cells = list(grid.columns[place])
    classes, codes = _encode(cells, frozenset(options.label_missing))
    longest = max(classes, key=len, default="")
    if len(longest) > _LONGEST_LABEL:
        raise TableError(
            grid.source,
            f"a label of {name!r} has {len(longest):,} characters, more than {_LONGEST_LABEL:,}; "
            "is it the target? --target takes another column.",
            line=grid.lines[
                next(row for row, cell in enumerate(cells) if as_text(cell) == longest)
            ],
        )
    notes = []
    known = set(classes)
    for word in (*NUMERIC_MISSING, "none", "-", "."):
        if word in known:
            notes.append(
                f"Warning: {word!r} is kept as a class of {name!r}; if it means no label, give "
                f"--label-missing {word}."
            )
    notes += _alike_classes(classes)
    return Labels(name, classes, np.array(codes, np.int64)), notes


def _alike_classes(classes: Sequence[str]) -> list[str]:
    """A line where classes differ in writing only, such as '1' and '01', or 'Yes' and 'yes'."""
    groups: dict[object, list[str]] = {}
    if len(classes) > _MOST_ALIKE:
        return []  # of so many none was written by hand
    for name in classes:
        # A number by value, text without case, blanks and a last dot.
        key = float(name) if is_number(name) else name.strip().rstrip(".").casefold()
        groups.setdefault(key, []).append(name)
    return [
        f"Warning: the classes {', '.join(map(repr, group[:10]))}{', …' * (len(group) > 10)} "
        "differ in writing only and are kept apart."
        for group in groups.values()
        if len(group) > 1
    ][:10]


def make_column(
    grid: Grid, place: int, options: ReadOptions, forced: Kind | None = None
) -> tuple[Column, list[str]]:
    """One feature: a number if every value is one, else a category; or what is forced."""
    name = grid.names[place]
    kind = forced or grid.declared.get(name)
    words = options.numeric_missing_words
    cells = grid.columns[place] = _untyped_gaps(list(grid.columns[place]), options.missing_words)
    values = None
    if kind != "category":
        values = parse_numbers(cells, words, options.decimal)
        # NA counts as missing beside numbers only; NA alone is text like any other.
        if values is not None and kind is None and np.isnan(values).all():
            plain = options.missing_words
            if any(as_text(cell) not in plain for cell in cells if as_text(cell) is not None):
                values = None
    if values is None and kind == "number":
        raise _not_numbers(grid, place, options)
    if values is not None:
        return Column(name, "number", values), _gap_notes(name, cells, options)
    levels, codes = _encode(cells, options.missing_words)
    column = Column(name, "category", np.array(codes, np.int64), levels)
    return column, [] if kind == "category" else _almost_numbers(grid, place, column, options)


def _untyped_gaps(cells: list[Cell], words: frozenset[str]) -> list[Cell]:
    """Typed cells that are NaN, or read like a word for missing (99 for '99'), become None."""
    kinds = set(map(type, cells))
    if kinds <= {str, type(None)}:
        return cells
    if words <= {"", "?"}:  # no number is written like them
        return [None if cell != cell else cell for cell in cells] if float in kinds else cells
    return [
        None
        if not isinstance(cell, str) and ((text := as_text(cell)) is None or text in words)
        else cell
        for cell in cells
    ]


def _not_numbers(grid: Grid, place: int, options: ReadOptions) -> TableError:
    cells = grid.columns[place]
    words = options.numeric_missing_words
    row = next(
        row
        for row, cell in enumerate(cells)
        if cell is not None and cell not in words and not is_number(cell, options.decimal)
    )
    text = as_text(cells[row]) or "nan"
    return TableError(
        grid.source,
        f"{why_not_a_number(cells[row], options.decimal)}, but {grid.names[place]!r} is a column "
        f"of numbers. Mend it, or give --missing {text} to read it as missing.",
        line=grid.lines[row],
        column=None,
    )


def _gap_notes(name: str, cells: Sequence[Cell], options: ReadOptions) -> list[str]:
    words = options.numeric_missing_words - options.missing_words
    if words.isdisjoint(cells):
        return []
    found = Counter(cell for cell in cells if isinstance(cell, str) and cell in words)
    return [
        f"{shown(name)}: {count:,} × {word!r} read as missing, for all other values are numbers."
        for word, count in sorted(found.items())
    ]


def _almost_numbers(grid: Grid, place: int, column: Column, options: ReadOptions) -> list[str]:
    """Lines on a category that may have been meant as numbers."""
    name, decimal = shown(column.name), options.decimal
    other = "," if decimal == "." else "."
    odd = [level for level in column.levels if not is_number(level, decimal)]
    if not odd:
        return []
    if all(is_number(level, other) or is_number(level, decimal) for level in column.levels):
        return [
            f"Warning: {name}: category, but its values are numbers with a decimal {other!r}; "
            f"if that is meant, give --decimal {other}."
        ]
    if len(column.levels) - len(odd) < 10 * len(odd):
        return []
    cells = grid.columns[place]
    row = next(row for row, cell in enumerate(cells) if as_text(cell) in set(odd))
    return [
        f"Warning: {name}: category, for {len(odd)} of {len(column.levels)} values are not numbers "
        f"(line {grid.lines[row]}: {why_not_a_number(cells[row], decimal)}); if they mean missing, "
        f"give --missing {odd[0]}."
    ]


def reason_to_drop(column: Column, max_levels: int, chosen: bool) -> str | None:
    """Why a column teaches nothing or too much; ``chosen`` by the user, many levels are kept."""
    gaps = column.missing
    if gaps.all():
        return "every value is missing"
    if column.kind == "number":
        present = column.values[~gaps]
        return "every value is the same" if (present == present[0]).all() else None
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


def warnings_about(column: Column, cells: Sequence[Cell]) -> list[str]:
    """Lines on a number column that may be an identifier or lost digits."""
    if column.kind != "number":
        return []
    present: NDArray[np.float64] = column.values[~column.missing].astype(np.float64)
    notes = []
    if present.size and float(np.abs(present).max()) >= _EXACT_INTEGERS:
        whole = {
            text
            for cell in cells
            if (text := as_text(cell)) is not None and text.lstrip("+-").isdigit()
        }
        # Leading zeros go, for Python refuses to convert thousands of digits.
        if any(int(abs(float(text))) != int(text.lstrip("+-0") or "0") for text in whole):
            notes.append(
                f"Warning: {shown(column.name)}: integers beyond 2**53 are rounded as numbers; "
                "if they are identifiers, give --drop or --categorical."
            )
    if not present.all():
        small = {cell for cell, zero in zip(cells, column.values == 0, strict=True) if zero}
        if any(
            isinstance(cell, str)
            and any(digit in cell.lower().partition("e")[0] for digit in "123456789")
            for cell in small
        ):
            notes.append(
                f"Warning: {shown(column.name)}: numbers too small for float64 are read as 0."
            )
    if (
        len(present) >= _IDS_AT_LEAST
        and not (present % 1).any()
        and len(np.unique(present)) == len(present)
    ):
        steps = np.diff(present)
        ordered = ", in order" if (steps > 0).all() or (steps < 0).all() else ""
        notes.append(
            f"Warning: {shown(column.name)}: id-like, {len(present):,} integers, all "
            f"different{ordered}; if it is an identifier, give --drop."
        )
    return notes
