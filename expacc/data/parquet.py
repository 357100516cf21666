"""Read Parquet by pyarrow: types are the file's own, so nothing is guessed."""

import datetime
import decimal
import io
from typing import Any

from expacc.data.grid import Cell, Grid, Kind, name_columns
from expacc.data.options import ReadOptions
from expacc.data.refusals import TableError, need
from expacc.data.source import Source

__all__ = ["read_parquet"]


def read_parquet(source: Source, options: ReadOptions) -> Grid:
    """Read a Parquet file; numbers are numbers, text and booleans are categories."""
    arrow = need("pyarrow", "reading Parquet")
    parquet = need("pyarrow.parquet", "reading Parquet")
    try:
        file = parquet.ParquetFile(io.BytesIO(source.data))
        _check_size(source.name, file, options)
        names, notes = name_columns(source.name, file.schema_arrow.names, 1)
        table = file.read(use_threads=False)
    except (arrow.ArrowException, OSError, ValueError) as error:
        if isinstance(error, TableError):
            raise
        reason = str(error).splitlines()[0].rstrip(".")
        raise TableError(source.name, f"the Parquet file is damaged ({reason}).") from None
    columns: list[list[Cell]] = []
    declared: dict[str, Kind] = {}
    for place, (name, values) in enumerate(zip(names, table.columns, strict=True)):
        kind, cells = _column(arrow, source.name, name, place, values)
        columns.append(cells)
        declared[name] = kind
    if table.num_rows == 0:
        raise TableError(source.name, "there are columns but no row of data.")
    rows = range(1, table.num_rows + 1)
    return Grid(source.name, names, columns, rows, declared=declared, notes=notes)


def _check_size(name: str, file: Any, options: ReadOptions) -> None:
    meta = file.metadata
    if meta.num_columns > options.max_columns:
        raise TableError(
            name,
            f"{meta.num_columns:,} columns where at most {options.max_columns:,} are read. "
            "Raise --max-columns if that is meant.",
        )
    # A dictionary page can stand for any number of rows, so the stated size alone says little.
    stated = sum(meta.row_group(group).total_byte_size for group in range(meta.num_row_groups))
    if max(stated, 8 * meta.num_rows * meta.num_columns) > options.max_bytes:
        raise TableError(
            name,
            f"it unpacks to more than {options.max_bytes:,} bytes, the most that is read. Raise "
            "--max-bytes if you trust the file.",
        )


def _column(arrow: Any, source: str, name: str, place: int, values: Any) -> tuple[Kind, list[Cell]]:
    types = arrow.types
    kind = values.type
    if types.is_dictionary(kind):
        values = values.cast(kind.value_type)
        kind = values.type
    if types.is_null(kind):
        return "number", [None] * len(values)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "number", [_plain(cell) for cell in values.to_pylist()]
    if types.is_boolean(kind) or types.is_string(kind) or types.is_large_string(kind):
        return "category", values.to_pylist()
    if types.is_temporal(kind):
        return "category", [_plain(cell) for cell in values.cast(arrow.string()).to_pylist()]
    raise TableError(
        source,
        f"the column {name!r} holds {kind}, which is neither number nor text. Leave it out of the "
        "file.",
        column=place + 1,
    )


def _plain(cell: object) -> Cell:
    if isinstance(cell, decimal.Decimal):
        return int(cell) if cell == cell.to_integral_value() else float(cell)
    if isinstance(cell, datetime.date | datetime.time):
        return cell.isoformat()
    return cell  # type: ignore[return-value]
