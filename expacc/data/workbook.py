"""Read XLSX: the values that the program last saved, cell by cell."""

from expacc.data.columns import as_text
from expacc.data.errors import TableError
from expacc.data.grid import Cell, Grid, name_columns
from expacc.data.options import ReadOptions
from expacc.data.source import Source
from expacc.data.workbook_cells import read_sheet
from expacc.data.workbook_parts import Package

__all__ = ["read_workbook"]


def read_workbook(source: Source, options: ReadOptions) -> Grid:
    """Read one sheet; a formula without a saved value and an error value are refused."""
    package = Package(source, options)
    title, notes = _choose(package, options)
    sheet = read_sheet(package, title, options)
    rows, numbers = sheet.rows, sheet.numbers
    if sheet.formulas:
        notes.append(f"{sheet.formulas:,} formula(s) read by their saved values.")
    if not rows:
        raise TableError(source.name, "the sheet is empty.")
    blank = numbers[-1] - numbers[0] + 1 - len(numbers)
    if blank:
        first = next(n for n, number in enumerate(numbers, numbers[0]) if n != number)
        notes.append(f"{blank:,} blank row(s) skipped, first row {first}.")
    # Empty cells at the end may not be stored: the header, or the widest row, is the measure.
    width = len(rows[0]) if options.header else max(map(len, rows))
    header_line = None
    if options.header:
        header_line, header = numbers.pop(0), rows.pop(0)
        names, more = name_columns(
            source.name, [as_text(cell) or "" for cell in header], header_line
        )
        notes += more
        if not rows:
            raise TableError(source.name, "there is a header but no row of data.", line=header_line)
    else:
        names = tuple(f"column {place + 1}" for place in range(width))
    package.budget.check(len(rows), width)
    for number, cells in zip(numbers, rows, strict=True):
        if len(cells) > width:
            raise TableError(
                source.name,
                f"{len(cells)} cells where the header (line {header_line}) has {width}.",
                line=number,
                column=width + 1,
            )
        cells += [None] * (width - len(cells))
    columns: list[list[Cell]] = [list(column) for column in zip(*rows, strict=True)]
    return Grid(source.name, names, [*columns], numbers, header_line=header_line, notes=notes)


def _choose(package: Package, options: ReadOptions) -> tuple[str, list[str]]:
    """The sheet to be read, and a line if there are others."""
    titles = package.titles
    if not titles:
        raise TableError(package.name, "the workbook has no sheet of cells.")
    if options.sheet is not None and options.sheet not in titles:
        known = ", ".join(map(repr, titles[:30])) + (", …" if len(titles) > 30 else "")
        raise TableError(package.name, f"there is no sheet {options.sheet!r}; it has: {known}.")
    chosen = options.sheet or titles[0]
    if len(titles) == 1 or options.sheet is not None:
        return chosen, []
    note = f"The sheet {chosen!r} is read, the first of {len(titles)}; --sheet takes another."
    return chosen, [note]
