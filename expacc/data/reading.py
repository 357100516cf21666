"""From a file or a built-in name to a Table: the reader, the target and each column's kind."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np

from expacc.data.cells import Cell, Cells, is_number
from expacc.data.columns import (
    Grid,
    ManyLevels,
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
    encoding: str = "utf-8",
    skip_lines: int = 0,
    sheet: str | None = None,
    missing: Sequence[str] | None = None,
    label_missing: Sequence[str] = ("", "?"),
    numeric: Sequence[Position] = (),
    categorical: Sequence[Position] = (),
    drop: Sequence[Position] = (),
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
        target: the label's column, by name or by place counted from 1 (-1 is the last, and the
            default).
        header: whether the first line holds names.
        delimiter: what parts fields; None takes it from the file's ending or its first lines.
        quote: the character around fields that hold delimiters, or None to read quotes as text.
        decimal: the decimal sign of numbers.
        encoding: of text files.
        skip_lines: lines before the table.
        sheet: of a workbook; None takes the first.
        missing: texts that count as missing in features; None means '' and '?', and in columns
            whose other values are all numbers also NA, N/A, NaN, nan, null, NULL and None.
        label_missing: texts that count as no label; such rows are left out.
        numeric: columns to be read as numbers; a value that is none is refused.
        categorical: columns to be read as categories.
        drop: columns to be left out.
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
        TableError: the file cannot be read exactly; the sentence names line and column.

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
    grid, columns, labels, notes, dropped = (
        _own(grid, options) if like is None else _alike(grid, options, like)
    )
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
    return Grid(name, names, columns, range(1, len(labels) + 1)), digest.hexdigest()


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


# What is left of the grid, its columns, labels, notes, and the columns that are left out.
Read = tuple[Grid, list[Column], Labels | None, list[str], list[Dropped]]


def _own(grid: Grid, options: ReadOptions) -> Read:
    """A table that stands for itself: kinds judged by its values."""
    goal = _find(grid, "target", -1 if options.target is None else options.target)
    forced = _forced(grid, options, goal)
    notes = list(grid.notes)
    if options.target is None:
        notes.append(
            f"The target is {grid.names[goal]!r}, the last column; --target takes another."
        )
    notes += _header_doubts(grid)
    labels, more = make_labels(grid, goal, options)
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
    columns, dropped = [], []
    unwanted = {_find(grid, "drop", position) for position in options.drop}
    for place, column_name in enumerate(grid.names):
        if place == goal:
            continue
        if place in unwanted:
            dropped.append(Dropped(column_name, "as asked"))
            continue
        try:
            column, more = make_column(grid, place, options, forced.get(place))
        except ManyLevels:
            if place in forced:
                raise
            why = f"id-like text, more than {MOST_LEVELS:,} different values in {grid.rows:,} rows"
            dropped.append(Dropped(column_name, why))
            continue
        reason = reason_to_drop(column, options.max_levels, place in forced)
        if reason:
            dropped.append(Dropped(column_name, reason))
        else:
            columns.append(column)
            more += warnings_about(column, grid.columns[place])
        notes += more if not reason or "id-like" in reason else []
        grid.columns[place] = gone
    notes += [f"Left out {entry.name!r}: {entry.why}." for entry in dropped]
    if not columns:
        raise TableError(grid.source, "no feature is left beside the target. " + " ".join(notes))
    return grid, columns, labels, notes, dropped


def _forced(grid: Grid, options: ReadOptions, goal: int) -> dict[int, Kind]:
    forced: dict[int, Kind] = {}
    kinds: tuple[tuple[str, tuple[Position, ...], Kind], ...] = (
        ("numeric", options.numeric, "number"),
        ("categorical", options.categorical, "category"),
    )
    for what, positions, kind in kinds:
        for position in positions:
            place = _find(grid, what, position)
            if forced.get(place, kind) != kind:
                raise TableError(
                    grid.source, f"{grid.names[place]!r} cannot be both numeric and categorical."
                )
            forced[place] = kind
    if goal in {_find(grid, "drop", position) for position in options.drop}:
        raise TableError(grid.source, f"the target {grid.names[goal]!r} cannot be dropped.")
    return forced


def _alike(grid: Grid, options: ReadOptions, like: Schema) -> Read:
    """A table for a model: columns by name, kinds as it was trained, the target if it is there."""
    wanted = [column for column, _ in like.columns]
    absent = [column for column in wanted if column not in grid.names]
    if absent:
        cure = " Was it written without a header? Give --no-header." if _header_doubts(grid) else ""
        raise TableError(
            grid.source,
            f"the column(s) {', '.join(map(repr, absent[:10]))}{', …' if len(absent) > 10 else ''} "
            f"are missing, which the model needs.{cure}",
            line=grid.header_line,
        )
    # Without names a column that is not there shifts all behind it: the width must be the same, or
    # less by the last column alone, if that was the target.
    found = len(grid.names)
    if (
        like.width is not None
        and found != like.width
        and (found, like.target) != (like.width - 1, f"column {like.width}")
    ):
        raise TableError(
            grid.source,
            f"{found} columns where the training table had {like.width}; without a header they are "
            "known by their place.",
            line=int(grid.lines[0]),
        )
    notes = list(grid.notes)
    extra = [column for column in grid.names if column not in wanted and column != like.target]
    if extra:
        notes.append(
            f"{len(extra)} column(s) the model does not know are ignored: "
            f"{', '.join(map(shown, extra[:10]))}{', …' if len(extra) > 10 else ''}."
        )
    columns = []
    for column_name, kind in like.columns:
        column, more = make_column(grid, grid.names.index(column_name), options, kind)
        columns.append(column)
        notes += more
    labels = None
    if like.target in grid.names:
        labels, _ = make_labels(grid, grid.names.index(like.target), options)
    return grid, columns, labels, notes, []


def _header_doubts(grid: Grid) -> list[str]:
    """A line where the header looks like data: a number for a name, or names that recur below."""
    if grid.header_line is None:
        return []
    numbers = [name for name in grid.names if is_number(name)]
    recurring = [
        name for name, cells in zip(grid.names, grid.columns, strict=True) if name in cells
    ]
    doubts = ""
    if numbers and grid.names[0] in ("0", "1") and numbers == _counted(numbers):
        numbers = []  # 0, 1, 2 … as programs name columns that have no name
    if numbers and len(numbers) + len(recurring) >= len(grid.names) / 2:
        doubts = f"{numbers[0]!r} is a number"
    elif recurring and len(recurring) >= len(grid.names) / 2:
        doubts = f"{recurring[0]!r} is also a value"
    if not doubts:
        return []
    return [
        f"Warning: line {grid.header_line} was taken as names but looks like data ({doubts}); if "
        "it is, give --no-header."
    ]


def _counted(names: Sequence[str]) -> list[str]:
    return [str(int(names[0]) + place) for place in range(len(names))]
