"""A table for a model: columns by name, each of the kind that it had in training."""

import numpy as np

from expacc.data.columns import Grid, make_column, make_labels
from expacc.data.dates import read_date
from expacc.data.free_text import hash_words
from expacc.data.options import ReadOptions, TableError
from expacc.data.reading import header_doubts
from expacc.data.table import Column, Labels, Schema, shown


def read_alike(
    grid: Grid, options: ReadOptions, like: Schema
) -> tuple[list[Column], Labels | None, list[str]]:
    """A table for a model: columns by name, kinds as it was trained, the target if it is there."""
    wanted = [column for column, _ in like.columns]
    absent = [column for column in wanted if column not in grid.names]
    if absent:
        cure = " Was it written without a header? Give --no-header." if header_doubts(grid) else ""
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
        place = grid.names.index(column_name)
        if kind in ("number", "category"):
            column, more = make_column(grid, place, options, kind)
        else:
            column, more = make_column(grid, place, options, "category")
            if kind == "date":
                column = _dates(grid, place, column, column_name in like.day_first)
            else:
                words = hash_words(column.levels, column.values.astype(np.int32))
                column = Column(column_name, "text", words, width=1)
        columns.append(column)
        notes += more
    labels = None
    if like.target in grid.names:
        labels, _ = make_labels(grid, grid.names.index(like.target), options)
    return columns, labels, notes


def _dates(grid: Grid, place: int, column: Column, day_first: bool) -> Column:
    days = [read_date(text, day_first) for text in column.levels]
    if None in days:
        code = days.index(None)
        text = column.levels[code]
        raise TableError(
            grid.source,
            f"{text!r} is not a date, but {column.name!r} is a column of dates. Mend it, or give "
            f"--missing {text} to read it as missing.",
            line=int(grid.lines[int(np.argmax(column.values == code))]),
        )
    values = np.array([*days, np.nan], np.float64)[column.values.astype(np.int64)]
    return Column(column.name, "date", values, day_first=day_first, width=5)
