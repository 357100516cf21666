"""From a file or a built-in name to a Table: the reader, the target and each column's kind."""

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np

from expacc.data.cells import Cell, Cells, is_number
from expacc.data.columns import (
    MOST_NUMBERS,
    Grid,
    ManyLevels,
    called_id,
    make_column,
    make_labels,
    reason_to_drop,
    warnings_about,
)
from expacc.data.options import MOST_LEVELS, Position, ReadOptions, TableError, need
from expacc.data.source import open_source, refuse_other_formats, table_name
from expacc.data.table import Column, Dropped, Kind, Labels, Schema, Table, shown

NAMED = {
    "iris": "load_iris",
    "wine": "load_wine",
    "breast-cancer": "load_breast_cancer",
    "digits": "load_digits",
}
"""The built-in tables, as scikit-learn ships them."""

# Imported when a file of theirs is read; text that is none of these is delimited.
_READERS = {
    ".arff": ("arff", "read_arff"),
    **dict.fromkeys((".parquet", ".pq"), ("containers", "read_parquet")),
    **dict.fromkeys((".xlsx", ".xls", ".ods"), ("containers", "read_workbook")),
}


def read_table(
    data: str | Path,
    *,
    target: Position | None = None,
    header: bool = True,
    delimiter: str | None = None,
    quote: str | None = '"',
    decimal: str = ".",
    encoding: str | None = None,
    skip_lines: int = 0,
    sheet: str | None = None,
    missing: Sequence[str] | None = None,
    label_missing: Sequence[str] = ("", "?"),
    numeric: Sequence[Position] = (),
    categorical: Sequence[Position] = (),
    text: Sequence[Position] = (),
    drop: Sequence[Position] = (),
    text_columns: int = 512,
    max_bytes: int | None = None,
    max_cells: int | None = None,
    max_columns: int = 10_000,
    max_levels: int = 1_000,
    like: Schema | None = None,
) -> Table:
    """Read a table exactly as it was written, or refuse it with line and column.

    Args:
        data: a CSV, TSV, ARFF, Parquet, XLSX, XLS or ODS file, plain, .gz, .xz or .zst, or one
            of the built-in names ``iris``, ``wine``, ``breast-cancer``, ``digits``.
        target: the label's column, by name or by place counted from 1 (-1 is the last). None takes
            the last one if it may well be; see ``expacc.data.target``.
        header: whether the first line holds names.
        delimiter: what parts fields; None takes it from the file's ending or its first lines.
        quote: the character around fields that hold delimiters, or None to read quotes as text.
        decimal: the decimal sign of numbers.
        encoding: of text files; None is UTF-8, or cp1252 or latin-1 for a text that is none.
        skip_lines: lines before the table.
        sheet: of a workbook; None takes the first.
        missing: texts that count as missing in features; None means '' and '?', and in columns
            whose other values are all numbers also NA, N/A, NaN, nan, null, NULL and None.
        label_missing: texts that count as no label; such rows are left out.
        numeric: columns to be read as numbers; a value that is none is refused.
        categorical: columns to be read as categories; of a target, its numbers are classes.
        text: columns whose words are features.
        drop: columns to be left out.
        text_columns: the most features that all texts together become; 0 leaves them out.
        max_bytes: the most that is read, after decompression; None means 512 MiB.
        max_cells: the most cells; None means 25 million (3 million in a workbook), or as many as
            the file has bytes, up to 60 million.
        max_columns: the most columns that are read.
        max_levels: the most levels a category may have before it is left out.
        like: what a model expects. Columns are found by name and read as that kind, others are
            ignored with a note, none is dropped, and the target may be absent.

    Returns:
        The table; its ``notes`` say what was taken for what.

    Raises:
        TableError: the file cannot be read exactly; the sentence names line and column. One of
            its kind, ``expacc.data.target.TargetError``, lists candidates for the target.

    Example:
        >>> table = read_table("iris")
        >>> table.rows, table.target.classes
        (150, ('setosa', 'versicolor', 'virginica'))
    """
    # All but these two are fields of ReadOptions.
    chosen = {key: value for key, value in locals().items() if key not in ("data", "like")}
    options = ReadOptions(**chosen)
    grid, name, sha256 = read_grid(data, options)
    width = len(grid.names)
    labels: Labels | None
    if like is None:
        grid, columns, labels, notes, dropped, written = _own(grid, options)
    else:
        from expacc.data.alike import read_alike

        columns, labels, notes = read_alike(grid, options, like)
        dropped, written = [], {}
    return Table(
        name,
        tuple(columns),
        labels,
        grid.rows,
        np.asarray(grid.lines, np.int64),
        notes=tuple(notes),
        dropped=tuple(dropped),
        sha256=sha256,
        options=options,
        width=width,
        written=written,
    )


def read_grid(data: str | Path, options: ReadOptions) -> tuple[Grid, str, str]:
    """The cells as written, before any thought on what they mean; the table's name; the digest."""
    path = Path(data)
    if str(data) in NAMED and not path.exists():
        grid, sha256 = _read_named(str(data))
        return grid, str(data), sha256
    if path.is_dir():
        raise TableError(str(data), "it is a folder; give a file of it, or use find_tables.")
    refuse_other_formats(path)
    source = open_source(path, options.max_bytes)
    home, reader = _READERS.get(source.suffix, ("delimited", "read_delimited"))
    grid = getattr(import_module(f"expacc.data.{home}"), reader)(source, options)
    if str(data) in NAMED:
        grid.notes.insert(0, f"Warning: {data} is the file here, not the built-in table.")
    return grid, table_name(path), source.sha256


def _read_named(name: str) -> tuple[Grid, str]:
    """A built-in table, its classes by name, and the digest of its numbers and classes."""
    datasets = need("sklearn.datasets", f"the built-in table {name!r}")
    bunch = getattr(datasets, NAMED[name])()
    digest = hashlib.sha256(bunch.data.tobytes())
    classes = [str(text) for text in bunch.target_names]
    labels: list[Cell] = [classes[code] for code in bunch.target.tolist()]
    digest.update("\n".join(map(str, labels)).encode())
    columns = [Cells.of(column) for column in (*bunch.data.T.tolist(), labels)]
    names = (*map(str, bunch.feature_names), "class")
    grid = Grid(name, names, columns, range(1, len(labels) + 1), target="class")
    return grid, digest.hexdigest()


def _find(grid: Grid, what: str, position: Position) -> int:
    """The place of a column, from 0; a text is a name first and a place second."""
    names = grid.names
    if isinstance(position, str):
        if position in names:
            return names.index(position)
        if not position.lstrip("-").isdecimal():
            known = ", ".join(map(shown, names[:30])) + (", …" if len(names) > 30 else "")
            raise TableError(grid.source, f"{what} {position!r} is not a column; it has: {known}.")
    place = int(position)
    if not 1 <= abs(place) <= len(names):
        raise TableError(
            grid.source,
            f"{what} must be a name, or a place from 1 to {len(names)} (negative from the end); "
            f"got {position}.",
        )
    return place - 1 if place > 0 else len(names) + place


# What is left of the grid, its columns, labels, notes, what is left out, and cells as written.
Read = tuple[Grid, list[Column], Labels, list[str], list[Dropped], dict[str, Cells]]
DATES = "year, month, day of week, days since 1970 and, if there are times, hour"
_WRITTEN = 2_000_000  # cells that are kept as they were written, to be shown


def _own(grid: Grid, options: ReadOptions) -> Read:
    """A table that stands for itself: kinds judged by its values."""
    notes, doubts = list(grid.notes), header_doubts(grid)
    if doubts and options.target is None:  # a row of it would be lost, and columns have odd names
        raise TableError(
            grid.source,
            f"the first line looks like data ({doubts}). If it is, give --no-header; if it holds "
            "names, name the one to predict with --target.",
            line=grid.header_line,
        )
    goal = _goal(grid, options)
    forced = _forced(grid, options, goal)
    if options.target is None:
        notes.append(
            f"The target is {grid.names[goal]!r}, the last column; --target takes another."
        )
    if doubts:
        notes.append(
            f"Warning: line {grid.header_line} was taken as names but looks like data ({doubts}); "
            "if it is, give --no-header."
        )
    labels, more = make_labels(grid, goal, options)
    _refuse_regression(grid, labels, goal in forced)
    gone = Cells.of(())  # in place of texts that are as large as the file and not needed any more
    grid.columns[goal] = gone
    notes += more
    kept = labels.codes >= 0
    if not kept.all():
        notes.append(f"{int((~kept).sum()):,} row(s) without a label left out.")
        grid = replace(
            grid,
            columns=[column.where(kept) if len(column) else column for column in grid.columns],
            lines=np.asarray(grid.lines, np.int64)[kept],
        )
        labels = Labels(labels.name, labels.classes, labels.codes[kept])
    if len(labels.classes) < 2:
        found = f"the one class {labels.classes[0]!r}" if labels.classes else "no label at all"
        raise TableError(
            grid.source,
            f"the target {labels.name!r} must have two classes or more; it has {found}.",
        )
    if 2 * len(labels.classes) > len(labels.codes) and len(labels.codes) > 20:
        notes.append(
            f"Warning: the target {labels.name!r} has {len(labels.classes):,} classes in "
            f"{len(labels.codes):,} rows; is it a number to be predicted, or an identifier?"
        )
    written: dict[str, Cells] = {}
    if grid.rows * len(grid.names) <= _WRITTEN:
        pairs = zip(grid.names, grid.columns, strict=True)
        written = {name: cells for name, cells in pairs if cells is not gone}
    columns, dropped = [], []
    unwanted = {_find(grid, "drop", position) for position in options.drop}
    letters = {}
    for place, name in enumerate(grid.names):
        if place == goal:
            continue
        column: Column | None = None
        reason: str | None = "as asked"
        more = []
        if name.startswith("__index_level_") and name in grid.index and place not in forced:
            reason = "the index of the file"
        elif place not in unwanted:
            column, reason, more = _feature(grid, place, options, forced.get(place))
        if reason:
            dropped.append(Dropped(name, reason))
            if "id-like text" in reason or "levels" in reason:
                letters[name] = grid.columns[place].letters()
            more = [note for note in more if "id-like" in reason]
        elif column is not None:
            columns.append(column)
            letters[name] = grid.columns[place].letters()
        notes += more
        grid.columns[place] = gone
    if any(column.kind == "text" for column in columns):
        from expacc.data.free_text import hash_texts

        columns, more = hash_texts(columns, options.text_columns, grid.rows)
        notes += more
    notes += _left_out(dropped, letters)
    if not columns:
        raise TableError(grid.source, "no feature is left beside the target. " + " ".join(notes))
    return grid, columns, labels, notes, dropped, written


def _goal(grid: Grid, options: ReadOptions) -> int:
    """The place of the target."""
    if options.target is not None:
        return _find(grid, "target", options.target)
    if grid.target is not None:
        return grid.names.index(grid.target)
    from expacc.data.target import find_target

    return find_target(grid, options)


def _refuse_regression(grid: Grid, labels: Labels, chosen: bool) -> None:
    if chosen or len(labels.classes) <= MOST_NUMBERS or not all(map(is_number, labels.classes)):
        return
    raise TableError(
        grid.source,
        f"the target {labels.name!r} holds {len(labels.classes):,} different numbers: to predict a "
        "number is regression, and expacc trains classifiers. --target takes another column; "
        f"--categorical {shlex.quote(labels.name)} takes each number for a class.",
    )


def _feature(
    grid: Grid, place: int, options: ReadOptions, kind: Kind | None
) -> tuple[Column | None, str | None, list[str]]:
    """A column as what it is, why it is left out, and notes."""
    name = grid.names[place]
    try:
        column, notes = make_column(grid, place, options, "category" if kind == "text" else kind)
    except ManyLevels:
        if kind:
            raise
        why = f"id-like text, more than {MOST_LEVELS:,} different values in {grid.rows:,} rows"
        return None, why, []
    if kind == "text":
        return replace(column, kind="text"), None, []
    reason = reason_to_drop(column, options.max_levels, kind is not None, called_id(name))
    if kind is None and (reason is None or "id-like" in reason or "levels" in reason):
        dated = _dated(column)
        if dated is not None:
            return dated, None, [f"{shown(name)}: dates, which become {DATES}."]
        if reason and column.kind == "category" and options.text_columns:
            from expacc.data.free_text import is_free_text

            if is_free_text(column.levels):
                return replace(column, kind="text"), None, []
    if reason is None:
        notes += warnings_about(column, grid.columns[place])
    return column, reason, notes


def _dated(column: Column) -> Column | None:
    """The column as dates, if all of its values are; most columns show at once that they are not"""
    if column.kind == "number":
        if not any(word in column.name.lower() for word in ("date", "datum", "day")):
            return None
    elif not any(letter.isdigit() for letter in column.levels[0]):
        return None
    from expacc.data.dates import dates_of

    return dates_of(column)


def _left_out(dropped: Sequence[Dropped], letters: Mapping[str, int]) -> list[str]:
    """One line on all columns that are left out, a loud one if they hold most of what there is."""
    if not dropped:
        return []
    by_reason: dict[str, list[str]] = {}
    for entry in dropped:
        by_reason.setdefault(entry.why, []).append(repr(entry.name))
    parts = [f"{', '.join(names[:10])}{', …' * (len(names) > 10)}: {why}"
             for why, names in by_reason.items()]  # fmt: skip
    text = f"Left out {'; '.join(parts)}."
    lost = sum(letters.get(entry.name, 0) for entry in dropped)
    if 2 * lost <= sum(letters.values()):
        return [text]
    return [f"Warning: most of the table's text is not used. {text} --text COLUMN takes its words."]


_SAID = {"number": "numeric", "category": "categorical", "text": "text"}


def _forced(grid: Grid, options: ReadOptions, goal: int) -> dict[int, Kind]:
    forced: dict[int, Kind] = {}
    kinds: tuple[tuple[str, tuple[Position, ...], Kind], ...] = (
        ("numeric", options.numeric, "number"),
        ("categorical", options.categorical, "category"),
        ("text", options.text, "text"),
    )
    for what, positions, kind in kinds:
        for position in positions:
            place = _find(grid, what, position)
            if forced.get(place, kind) != kind:
                raise TableError(
                    grid.source,
                    f"{grid.names[place]!r} cannot be both {_SAID[forced[place]]} and {what}.",
                )
            forced[place] = kind
    if goal in {_find(grid, "drop", position) for position in options.drop}:
        raise TableError(grid.source, f"the target {grid.names[goal]!r} cannot be dropped.")
    return forced


def header_doubts(grid: Grid) -> str:
    """Why the header looks like data: a number for a name, or names that recur below; else ''."""
    if grid.header_line is None:
        return ""
    numbers = [name for name in grid.names if is_number(name)]
    recurring = [
        name for name, cells in zip(grid.names, grid.columns, strict=True) if name in cells
    ]
    if numbers and grid.names[0] in ("0", "1") and numbers == _counted(numbers):
        numbers = []  # 0, 1, 2 … as programs name columns that have no name
    if numbers and len(numbers) + len(recurring) >= len(grid.names) / 2:
        return f"{numbers[0]!r} is a number"
    if recurring and len(recurring) >= len(grid.names) / 2:
        return f"{recurring[0]!r} is also a value"
    return ""


def _counted(names: Sequence[str]) -> list[str]:
    return [str(int(names[0]) + place) for place in range(len(names))]
