"""A table with what a model says of its rows, as CSV, TSV or Parquet; of no rows a bare header."""

import csv
import io
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expacc.compare.deploy import Deployed
from expacc.data import ReadOptions, Table
from expacc.data.cells import Cells, as_text, to_numbers
from expacc.data.options import NUMERIC_MISSING, NoRows, TableError, need
from expacc.data.reading import read_grid
from expacc.files import write_whole
from expacc.plain import UsageError, plain, safe_cell

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_PARQUET = (".parquet", ".pq")
_ROWS = 4096


def check_place(out: Path | None) -> None:
    """Raise for a file that cannot be, or would not be what its name says, before any work."""
    if out is None:
        return
    if out.suffix.lower() not in (*_DELIMITERS, *_PARQUET):
        raise UsageError(f"--out must end with .csv, .tsv or .parquet; got {str(out)!r}.")
    if not out.parent.is_dir():
        raise UsageError(f"--out must be in a folder that exists; {str(out.parent)!r} does not.")


def with_predictions(
    deployed: Deployed,
    data: str | Path,
    given: Mapping[str, Any],
    labels: Sequence[str],
    chances: NDArray[np.float64] | None,
) -> tuple[list[str], list[Sequence[Any]]]:
    """Names and columns: those of the file as written, then line, prediction and probabilities.

    ``chances`` None: of a file without rows.
    """
    if chances is None:
        chances = np.empty((0, len(deployed.classes)))
    try:
        grid, _, _ = read_grid(data, ReadOptions(**deployed.reading(given)))
        names, lines = list(grid.names), grid.lines
        columns: list[Sequence[Any]] = [*grid.columns]
    except NoRows as error:
        wanted = [name for name, _ in deployed.preprocessor.schema.columns]
        names, lines = list(error.names) or wanted, ()
        if absent := [name for name in wanted if name not in names]:
            raise TableError(
                error.source, f"the column {absent[0]!r} is missing, which the model needs."
            ) from None
        columns = [()] * len(names)
    added: list[tuple[str, Any]] = [("line", np.asarray(lines, np.int64)), ("prediction", labels)]
    added += [
        (f"probability {safe_cell(name)}", chances[:, place])
        for place, name in enumerate(deployed.classes)
    ]
    for name, values in added:
        while name in names:  # the file may hold predictions of another model
            name += "'"
        names.append(name)
        columns.append(values)
    return names, columns


def write_table(
    names: Sequence[str], columns: Sequence[Sequence[Any]], out: Path | None, numbers: Sequence[str]
) -> None:
    """To a file, whole or not at all, or to standard output; always with a header.

    In delimited text what a spreadsheet would run as a formula gets an apostrophe before it. In
    Parquet, columns of text that a model takes for ``numbers`` are such.
    """
    if out is not None and out.suffix.lower() in _PARQUET:
        write_whole(out, _parquet(names, columns, numbers))
        return
    sign = "," if out is None else _DELIMITERS[out.suffix.lower()]
    # Nine digits say all that a probability of a model can; zeros at the end say nothing.
    shown = [
        map("{:.9g}".format, one) if isinstance(one, np.ndarray) and one.dtype.kind == "f" else one
        for one in columns
    ]
    parts = _lines(itertools.chain([names], zip(*shown, strict=True)), sign)
    if out is not None:
        write_whole(out, "".join(parts))
        return
    for part in parts:
        sys.stdout.write(plain(part) if sys.stdout.isatty() else part)


def _parquet(
    names: Sequence[str], columns: Sequence[Sequence[Any]], numbers: Sequence[str]
) -> bytes:
    arrow, parquet = need("pyarrow", "Parquet"), need("pyarrow.parquet", "Parquet")
    made = []
    for name, column in zip(names, columns, strict=True):
        values: Any = column
        if isinstance(column, Cells):
            plain_numbers = None
            if column.is_text and name in numbers:
                plain_numbers = to_numbers(column, ("", "?", *NUMERIC_MISSING))
            if plain_numbers is not None:
                values = arrow.array(plain_numbers, from_pandas=True)
            elif column.form == "plain":
                values = column.array
            else:
                values = [as_text(cell) if column.form == "json" else cell for cell in column]
        elif isinstance(column, tuple):
            values = arrow.array([], arrow.float64() if name in numbers else arrow.string())
        made.append(values)
    buffer = io.BytesIO()
    parquet.write_table(arrow.table(made, names=list(names)), buffer)
    return buffer.getvalue()


def _lines(rows: Iterable[Sequence[Any]], sign: str) -> Iterator[str]:
    """Lines of text, some thousand at a time: a buffer for all takes four bytes a letter."""
    rows = iter(rows)
    while some := list(itertools.islice(rows, _ROWS)):
        text = io.StringIO(newline="")
        writer = csv.writer(text, delimiter=sign, lineterminator="\n")
        for row in some:
            writer.writerow([safe_cell(cell) if isinstance(cell, str) else cell for cell in row])
        yield text.getvalue()


def accuracy_on(table: Table, predicted: Sequence[str]) -> tuple[int, float] | None:
    """Rows with a label, and the share of them that are predicted right; None without labels."""
    if table.labels is None:
        return None
    pairs = [(a, b) for a, b in zip(table.labels.texts(), predicted, strict=True) if a is not None]
    if not pairs:
        return None
    return len(pairs), sum(a == b for a, b in pairs) / len(pairs)
