"""The cells of one sheet, row by row, as the program last saved them."""

import datetime
from dataclasses import dataclass, field
from typing import Any

from expacc.data.errors import TableError, need
from expacc.data.grid import Cell
from expacc.data.limits import too_many_columns
from expacc.data.options import ReadOptions
from expacc.data.workbook_parts import Attributes, Package

__all__ = ["Sheet", "read_sheet"]

_MOST_ROWS, _MOST_COLUMNS = 1_048_576, 16_384
_DIGITS = "0123456789"


@dataclass
class Sheet:
    """Rows with content, their numbers, and how many formulas were read by their values."""

    rows: list[list[Cell]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    formulas: int = 0


def read_sheet(package: Package, title: str, options: ReadOptions) -> Sheet:
    """Every cell with a value; empty ones before it in its row are None."""
    reader = _Reader(package, options)
    package.parse_sheet(title, reader.start, reader.end, reader.text)
    return reader.sheet


class _Reader:
    """Called by the parser for every element of a sheet, in its order."""

    def __init__(self, package: Package, options: ReadOptions) -> None:
        self.package = package
        self.options = options
        self.times = need("openpyxl.utils.datetime", "reading XLSX")
        self.sheet = Sheet()
        self.places: dict[str, int] = {}
        self.cells: list[Cell] = []
        self.total = 0
        self.number = 0
        self.place = 0
        self.kind, self.style = "n", 0
        self.formula = self.inside = self.phonetic = False
        self.words: list[str] = []

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "c":
            self._begin_cell(attributes)
        elif name == "v":
            self.inside = self.kind != "inlineStr"
        elif name == "t":
            self.inside = self.kind == "inlineStr" and not self.phonetic
        elif name == "f":
            self.formula = True
        elif name == "rPh":
            self.phonetic = True
        elif name == "row":
            self._begin_row(attributes)

    def text(self, data: str) -> None:
        if self.inside:
            self.words.append(data)

    def end(self, name: str) -> None:
        if name in ("v", "t"):
            self.inside = False
        elif name == "rPh":
            self.phonetic = False
        elif name == "c":
            if self.words or self.formula:
                self._end_cell()
        elif name == "row" and self.cells:
            self.sheet.rows.append(self.cells)
            self.sheet.numbers.append(self.number)
            if len(self.sheet.rows) > self.package.budget.rows:
                self.package.budget.check(len(self.sheet.rows), 1, self.number)

    def _refuse(self, message: str) -> TableError:
        return TableError(self.package.name, message, line=self.number, column=self.place)

    def _begin_row(self, attributes: Attributes) -> None:
        number = int(float(attributes["r"])) if "r" in attributes else self.number + 1
        if number > _MOST_ROWS:
            raise TableError(
                self.package.name, f"a workbook has at most {_MOST_ROWS:,} rows.", line=number
            )
        if number <= self.number:
            raise self.package.damaged(f"row {number} stands behind row {self.number}")
        self.number, self.place, self.cells = number, 0, []

    def _begin_cell(self, attributes: Attributes) -> None:
        where = attributes.get("r")
        place = self.place + 1 if where is None else self._column(where)
        if place <= self.place:
            raise self.package.damaged(f"cell {where} stands behind another of its column")
        self.place = place
        self.kind = attributes.get("t", "n")
        self.style = int(attributes.get("s") or 0)
        self.formula = self.inside = self.phonetic = False
        self.words.clear()

    def _column(self, where: str) -> int:
        """The number of a column, from 1, by its letters: 28 for AB7."""
        letters = where.rstrip(_DIGITS)
        place = self.places.get(letters)
        if place is None:
            place = 0
            for letter in letters.replace("$", "").upper():
                if not "A" <= letter <= "Z":
                    raise self.package.damaged(f"{where[:20]!r} is no cell")
                place = 26 * place + ord(letter) - ord("A") + 1
                if place > _MOST_COLUMNS:
                    raise self.package.damaged(f"a column beyond {_MOST_COLUMNS:,}")
            self.places[letters] = place
        return place

    def _end_cell(self) -> None:
        text = "".join(self.words)
        value, kind = self._value(text) if text else (None, self.kind)
        if self.formula and value is None:
            if self.number <= self.options.skip_lines:
                return
            raise self._refuse(
                "a formula without a saved value; open the workbook, save it, and try again."
            )
        if value is None or self.number <= self.options.skip_lines:
            return
        self.sheet.formulas += self.formula
        if kind == "e" and value not in self.options.missing_words:
            raise self._refuse(
                f"the cell holds the error {value}; mend it, or give --missing '{value}' to read "
                "it as missing."
            )
        if self.place > self.options.max_columns:
            raise too_many_columns(self.package.name, f"{self.place:,}", self.options, self.number)
        gap = self.place - 1 - len(self.cells)
        self.total += gap + 1
        if self.total > self.package.budget.cells:
            self.package.budget.check(1, self.total, self.number)
        if gap:
            self.cells += [None] * gap
        self.cells.append(value)

    def _value(self, text: str) -> tuple[Cell, str]:
        """A cell's value, and 'e' if it is an error."""
        kind = self.kind
        if kind == "n":
            number = float(text) if "." in text or "E" in text or "e" in text else int(text)
            if self.style in self.package.dates:
                return self._date(number)
            return number, kind
        if kind == "s":
            place = int(text)
            if place < 0:
                raise IndexError("a string before the first")
            return self.package.strings[place], kind
        if kind == "b":
            return bool(int(text)), kind
        if kind == "d":
            return _plain(self.times.from_ISO8601(text)), kind
        return text, kind

    def _date(self, number: float) -> tuple[Cell, str]:
        span = self.style in self.package.spans
        try:
            return _plain(self.times.from_excel(number, self.package.epoch, timedelta=span)), "d"
        except (OverflowError, ValueError):
            return "#VALUE!", "e"


def _plain(value: Any) -> Cell:
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return str(value)
