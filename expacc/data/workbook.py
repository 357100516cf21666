"""Read XLSX by openpyxl: the values that the program last saved, cell by cell."""

import datetime
import io
import warnings
import zipfile
from typing import Any

from expacc.data.columns import as_text
from expacc.data.grid import Cell, Grid, name_columns
from expacc.data.options import ReadOptions
from expacc.data.refusals import TableError, need
from expacc.data.source import Source

__all__ = ["read_workbook"]

_MOST_ROWS = 1_048_576


def read_workbook(source: Source, options: ReadOptions) -> Grid:
    """Read one sheet; a formula without a saved value and an error value are refused."""
    _check_size(source, options)
    rows, notes = _rows(source, options)
    blank = [number for number, cells in rows if not cells]
    rows = [(number, cells) for number, cells in rows if cells]
    if not rows:
        raise TableError(source.name, "the sheet is empty.")
    blank = [number for number in blank if rows[0][0] < number < rows[-1][0]]
    if blank:
        notes.append(f"{len(blank)} blank row(s) skipped, first row {blank[0]}.")
    # Empty cells at the end may not be stored: the header, or the widest row, is the measure.
    width = len(rows[0][1]) if options.header else max(len(cells) for _, cells in rows)
    header_line = None
    if options.header:
        header_line, header = rows.pop(0)
        names, more = name_columns(
            source.name, [as_text(cell) or "" for cell in header], header_line
        )
        notes += more
        if not rows:
            raise TableError(source.name, "there is a header but no row of data.", line=header_line)
    else:
        names = tuple(f"column {place + 1}" for place in range(width))
    for number, cells in rows:
        if len(cells) > width:
            raise TableError(
                source.name,
                f"{len(cells)} cells where the header (line {header_line}) has {width}.",
                line=number,
                column=width + 1,
            )
        cells += [None] * (width - len(cells))
    columns: list[list[Cell]] = [list(column) for column in zip(*(c for _, c in rows), strict=True)]
    lines = [number for number, _ in rows]
    return Grid(source.name, names, columns, lines, header_line=header_line, notes=notes)


def _check_size(source: Source, options: ReadOptions) -> None:
    try:
        with zipfile.ZipFile(io.BytesIO(source.data)) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise TableError(source.name, f"the workbook is damaged ({error}).") from None
    if size > options.max_bytes:
        raise TableError(
            source.name,
            f"it unpacks to more than {options.max_bytes:,} bytes, the most that is read. Raise "
            "--max-bytes if you trust the file.",
        )


def _rows(source: Source, options: ReadOptions) -> tuple[list[tuple[int, list[Cell]]], list[str]]:
    sheet, notes, book = _open(source, options, values=False)
    try:
        rows, formulas = _read(source.name, sheet, options)
    finally:
        book.close()
    if formulas:
        sheet, _, book = _open(source, options, values=True)
        try:
            rows, _ = _read(source.name, sheet, options)
        finally:
            book.close()
        saved = {
            (number, place): cell for number, cells in rows for place, cell in enumerate(cells)
        }
        for number, place in formulas:
            if saved.get((number, place)) is None:
                raise TableError(
                    source.name,
                    "a formula without a saved value; open the workbook, save it, and try again.",
                    line=number,
                    column=place + 1,
                )
        notes.append(f"{len(formulas)} formula(s) read by their saved values.")
    return rows, notes


def _open(source: Source, options: ReadOptions, *, values: bool) -> tuple[Any, list[str], Any]:
    openpyxl = need("openpyxl", "reading XLSX")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about styles and extensions, which hold no cell
            book = openpyxl.load_workbook(
                io.BytesIO(source.data), read_only=True, data_only=values, keep_links=False
            )
    except Exception as error:  # openpyxl raises what its parsers raise
        raise TableError(source.name, f"the workbook is damaged ({error}).") from None
    titles = [sheet.title for sheet in book.worksheets]
    if not titles:
        raise TableError(source.name, "the workbook has no sheet of cells.")
    if options.sheet is not None and options.sheet not in titles:
        raise TableError(
            source.name, f"there is no sheet {options.sheet!r}; it has: {', '.join(titles)}."
        )
    chosen = options.sheet or titles[0]
    notes = []
    if len(titles) > 1 and options.sheet is None:
        notes.append(
            f"The sheet {chosen!r} is read, the first of {len(titles)}; --sheet takes another."
        )
    sheet = book[chosen]
    sheet.reset_dimensions()  # the file's own word on its size may be wrong and would cut rows
    return sheet, notes, book


def _read(
    name: str, sheet: Any, options: ReadOptions
) -> tuple[list[tuple[int, list[Cell]]], list[tuple[int, int]]]:
    rows: list[tuple[int, list[Cell]]] = []
    formulas = []
    try:
        for number, row in enumerate(sheet.iter_rows(), start=1):
            if number <= options.skip_lines:
                continue
            if number > _MOST_ROWS:  # a row may be numbered at will, and all before it are made up
                raise TableError(name, f"a workbook has at most {_MOST_ROWS:,} rows.", line=number)
            cells: list[Cell] = []
            for place, entry in enumerate(row):
                if entry.data_type == "f":
                    formulas.append((number, place))
                if entry.data_type == "e" and entry.value not in options.missing_words:
                    raise TableError(
                        name,
                        f"the cell holds the error {entry.value}; mend it, or give --missing "
                        f"'{entry.value}' to read it as missing.",
                        line=number,
                        column=place + 1,
                    )
                cells.append(_plain(entry.value))
            while cells and cells[-1] is None:
                cells.pop()
            if len(cells) > options.max_columns:
                raise TableError(
                    name,
                    f"{len(cells):,} columns where at most {options.max_columns:,} are read. Raise "
                    "--max-columns if that is meant.",
                    line=number,
                )
            rows.append((number, cells))
    except TableError:
        raise
    except Exception as error:  # openpyxl raises what its parsers raise
        raise TableError(name, f"the workbook is damaged ({error}).") from None
    return rows, formulas


def _plain(value: object) -> Cell:
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return str(value)
    return value  # type: ignore[return-value]
