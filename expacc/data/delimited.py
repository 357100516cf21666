"""Read CSV, TSV and their kin exactly, or refuse them at a line and a column.

Lines end with LF, CRLF or CR, mixed as they come. A field in quotes is taken as it stands, with
delimiters, blanks and line breaks; a doubled quote is a quote. Blanks around a field without quotes
belong to the delimiter and a note counts them. Nothing else is changed.
"""

import csv
import re
from array import array
from collections.abc import Iterator
from itertools import islice

from expacc.data.dialect import (
    WHITESPACE,
    delimiter_words,
    sniff_delimiter,
    split_plain,
)
from expacc.data.encodings import decode
from expacc.data.grid import Cell, Grid, name_columns
from expacc.data.options import ReadOptions
from expacc.data.refusals import TableError
from expacc.data.source import Source

__all__ = ["read_delimited"]

_SAMPLE = 100
_BLOCK = 8192
_CSV_LIMIT = 100_000  # the standard library refuses fields beyond 131,072 characters
_LINE_END = re.compile(r"\r\n|\n|\r")


def read_delimited(source: Source, options: ReadOptions) -> Grid:
    """Read a delimited text; see the module for the rules."""
    text = decode(source, options.encoding)
    notes = []
    delimiter = options.delimiter
    if delimiter is None:
        sample = list(islice(_Lines(text, options.skip_lines), _SAMPLE))
        delimiter, note = sniff_delimiter(source.name, source.suffix, sample, options.quote)
        notes.append(note)
    grid = _Reader(source.name, text, delimiter, options).read()
    grid.notes[:0] = notes
    return grid


class _Lines:
    """The lines of a text without their ends, and the number and end of the last one given."""

    def __init__(self, text: str, skip: int) -> None:
        self.text = text
        self.number = 0
        self.end = ""
        self._lines = self._split()
        for _ in islice(self._lines, skip):
            pass

    def __iter__(self) -> Iterator[str]:
        return self._lines

    def __next__(self) -> str:
        return next(self._lines)

    def _split(self) -> Iterator[str]:
        # Not str.splitlines(): it would also part lines at form feeds and Unicode separators.
        text, start = self.text, 0
        for match in _LINE_END.finditer(text):
            self.number += 1
            self.end = match[0]
            yield text[start : match.start()]
            start = match.end()
        if start < len(text):
            self.number += 1
            self.end = ""
            yield text[start:]


class _Reader:
    """One pass over one text."""

    def __init__(self, name: str, text: str, delimiter: str, options: ReadOptions) -> None:
        self.name = name
        self.delimiter = delimiter
        self.quote = options.quote
        self.options = options
        self.lines = _Lines(text, options.skip_lines)
        self.blanks = " " if delimiter in ("\t", " ") else " \t"
        self.simple = _simple_line(delimiter, options.quote, self.blanks)
        self.width = 0
        self.first_line = 0
        self.trimmed = 0
        self.broken: list[int] = []  # lines at which a field with a line break begins
        self.blank: list[int] = []

    def read(self) -> Grid:
        columns: list[list[Cell]] = []
        numbers = array("q")
        header: tuple[list[str], list[int], int] | None = None
        block: list[list[str]] = []
        for number, fields, starts in self._records():
            if not self.width:
                self._set_width(fields, number)
                columns = [[] for _ in fields]
                if self.options.header:
                    header = fields, starts, number
                    continue
            numbers.append(number)
            block.append(fields)
            if len(block) == _BLOCK:
                _append(columns, block)
                block = []
        _append(columns, block)
        if not self.width:
            raise TableError(self.name, "there is no line with content.")
        if not numbers:
            raise TableError(
                self.name, "there is a header but no row of data.", line=self.first_line
            )
        return self._grid(header, columns, numbers)

    def _grid(
        self,
        header: tuple[list[str], list[int], int] | None,
        columns: list[list[Cell]],
        numbers: "array[int]",
    ) -> Grid:
        notes = []
        # As some write it, each line ends with a delimiter: a last column of nothing at all.
        if self.width > 1 and not any(columns[-1]) and not (header and header[0][-1]):
            columns.pop()
            if header:
                header[0].pop()
            notes.append("Every line ends with a delimiter: the empty last column is not one.")
        if header:
            names, more = name_columns(self.name, header[0], header[2], header[1])
            notes += more
        else:
            names = tuple(f"column {place + 1}" for place in range(len(columns)))
        if self.trimmed:
            notes.append(f"Blanks around {self.trimmed:,} unquoted field(s) are not part of them.")
        if self.blank:
            notes.append(f"{len(self.blank)} blank line(s) skipped, first line {self.blank[0]}.")
        if self.broken:
            notes.append(
                f"{len(self.broken)} row(s) hold quoted line breaks, first line {self.broken[0]}."
            )
        return Grid(
            self.name, names, columns, numbers, header_line=header and header[2], notes=notes
        )

    def _set_width(self, fields: list[str], number: int) -> None:
        self.width, self.first_line = len(fields), number
        if self.width > self.options.max_columns:
            raise TableError(
                self.name,
                f"{self.width:,} columns where at most {self.options.max_columns:,} are read. "
                "Raise --max-columns if that is meant.",
                line=number,
            )

    def _records(self) -> Iterator[tuple[int, list[str], list[int]]]:
        """Line number, fields and, where quotes made it needful, the column each starts at."""
        quote, delimiter, blanks = self.quote, self.delimiter, self.blanks
        lines = self.lines
        trim, tabs = delimiter != WHITESPACE, "\t" in blanks
        pending: list[int] = []  # blank lines: skipped in the middle, of no account at the end
        for line in lines:
            number = lines.number
            starts: list[int] = []
            if quote is not None and quote in line:
                if self.width and len(line) < _CSV_LIMIT and self.simple.fullmatch(line):
                    fields = next(csv.reader((line,), delimiter=delimiter, quotechar=quote))
                else:
                    fields, starts = self._quoted(line)
            elif not line.strip(" "):
                pending.append(number)
                continue
            else:
                fields = split_plain(line, delimiter)
                if trim and (" " in line or (tabs and "\t" in line)):
                    bare = [field.strip(blanks) for field in fields]
                    self.trimmed += sum(map(str.__ne__, bare, fields))
                    fields = bare
            if pending:
                self._skip(pending)
                pending = []
            if not self.width and not starts:
                starts = _plain_starts(line, delimiter)
            if self.width and len(fields) != self.width:
                if quote is not None and quote in line and not starts:
                    fields, starts = self._quoted(line)
                raise self._ragged(line, fields, starts, number)
            yield number, fields, starts

    def _skip(self, pending: list[int]) -> None:
        if self.width == 1:
            raise TableError(
                self.name,
                'a blank line in a table of one column may be a missing value or nothing; write "" '
                "or remove it.",
                line=pending[0],
            )
        self.blank += pending

    def _quoted(self, line: str) -> tuple[list[str], list[int]]:
        """The fields of a record with quotes, which may run over several lines."""
        quote, delimiter, blanks = self.quote or "", self.delimiter, self.blanks
        gaps = delimiter == WHITESPACE
        begun = self.lines.number
        fields: list[str] = []
        starts: list[int] = []
        place = 0
        while True:
            left = place
            while place < len(line) and line[place] in blanks:
                place += 1
            if gaps and place == len(line) and fields:
                break
            starts.append(place + 1)
            if line.startswith(quote, place):
                field, line, place = self._within(line, place)
                after = place
                while place < len(line) and line[place] in blanks:
                    place += 1
                at_end = place == len(line)
                if not at_end and not (place > after if gaps else line[place] == delimiter):
                    raise TableError(
                        self.name,
                        f"text follows a closing quote; double a quote that belongs to the field "
                        f"({quote}{quote}), or give --quote none to read quotes as text.",
                        line=self.lines.number,
                        column=place + 1,
                    )
            else:
                end = self._field_end(line, place)
                raw = line[left:end]
                field = raw.strip(blanks)
                if quote in field:
                    raise TableError(
                        self.name,
                        f"a quote inside a field without quotes; put the field in quotes and "
                        f"double it ({quote}{quote}), or give --quote none to read quotes as text.",
                        line=self.lines.number,
                        column=line.index(quote, place) + 1,
                    )
                self.trimmed += not gaps and field != raw
                place, at_end = end, end == len(line)
            fields.append(field)
            if at_end:
                break
            place += not gaps
        if self.lines.number != begun:
            self.broken.append(begun)
        return fields, starts

    def _field_end(self, line: str, place: int) -> int:
        if self.delimiter == WHITESPACE:
            ends = [end for blank in " \t" if (end := line.find(blank, place)) >= 0]
            return min(ends, default=len(line))
        end = line.find(self.delimiter, place)
        return len(line) if end < 0 else end

    def _within(self, line: str, place: int) -> tuple[str, str, int]:
        """What stands between quotes, the line they close in, and the place behind them."""
        quote = self.quote or ""  # never empty here: a quote was seen
        opened = self.lines.number, place + 1
        parts = []
        place += 1
        while True:
            end = line.find(quote, place)
            if end < 0:
                parts += [line[place:], self.lines.end]
                try:
                    line, place = next(self.lines), 0
                except StopIteration:
                    raise TableError(
                        self.name,
                        "a quote opens here and is never closed; close it, or give --quote none to "
                        "read quotes as text.",
                        line=opened[0],
                        column=opened[1],
                    ) from None
                continue
            parts.append(line[place:end])
            if not line.startswith(quote, end + 1):
                return "".join(parts), line, end + 1
            parts.append(quote)
            place = end + 2

    def _ragged(self, line: str, fields: list[str], starts: list[int], number: int) -> TableError:
        what = "header" if self.options.header else "first line"
        message = (
            f"{len(fields)} field(s) where the {what} (line {self.first_line}) has {self.width}, "
            f"parted by {delimiter_words(self.delimiter)}."
        )
        if len(fields) > self.width:
            starts = starts or _plain_starts(line, self.delimiter)
            column = starts[self.width]
            message += f" Field {self.width + 1} starts here; quote a field that holds a delimiter."
        else:
            column = len(line) + 1
        if self.width == 1:
            message += f" If line {self.first_line} is no part of the table, give --skip-lines."
        return TableError(self.name, message, line=number, column=column)


def _simple_line(delimiter: str, quote: str | None, blanks: str) -> re.Pattern[str]:
    """Lines that the standard library reads as we do, and faster.

    Each field is quoted without a quote inside, or bare without quotes or blanks at its ends.
    """
    if quote is None or delimiter == WHITESPACE:
        return re.compile(r"(?!)")
    mark, part = re.escape(quote), re.escape(delimiter)
    field = f"(?:{mark}[^{mark}]*+{mark}|(?![{blanks}])[^{mark}{part}]*+(?<![{blanks}]))"
    return re.compile(f"{field}(?:{part}{field})*+", re.DOTALL)


def _plain_starts(line: str, delimiter: str) -> list[int]:
    """The columns, from 1, at which the fields of a line without quotes start."""
    starts = []
    place = 0
    for field in split_plain(line, delimiter):
        if delimiter == WHITESPACE:
            place = line.index(field, place)
        starts.append(place + len(field) - len(field.lstrip(" \t")) + 1)
        place += len(field) + (delimiter != WHITESPACE)
    return starts


def _append(columns: list[list[Cell]], block: list[list[str]]) -> None:
    if block:
        for column, cells in zip(columns, zip(*block, strict=True), strict=True):
            column.extend(cells)
