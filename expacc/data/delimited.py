"""Read CSV, TSV and their kin exactly, or refuse them at a line and a column.

Lines end with LF, CRLF or CR, mixed as they come. A field in quotes is taken as it stands, with
delimiters, blanks and line breaks; a doubled quote is a quote. Blanks around a field without quotes
belong to the delimiter and a note counts them. Nothing else is changed.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from expacc.data.blocks import (
    WHITESPACE,
    BlockParser,
    RowStore,
    delimiter_words,
    sniff_delimiter,
    split_plain,
)
from expacc.data.columns import Grid, name_columns
from expacc.data.options import (
    LONGEST_FIELD,
    Budget,
    NoRows,
    ReadOptions,
    TableError,
    too_many_columns,
)
from expacc.data.source import Source
from expacc.data.text import Lines, guess_encoding

_SAMPLE, _SAMPLE_SIZE = 100, 4 << 20  # lines, and characters
_BLANK = re.compile("[ \t]")


def read_delimited(source: Source, options: ReadOptions) -> Grid:
    """Read a delimited text; see the module for the rules."""
    notes: list[str] = []
    if options.encoding is None:
        encoding, notes = guess_encoding(source)
        options = replace(options, encoding=encoding)
    delimiter = options.delimiter
    if delimiter is None:
        lines = Lines(source, options.encoding, options.skip_lines)
        delimiter, note = sniff_delimiter(source.name, source.suffix, _sample(lines), options.quote)
        notes.append(note)
    grid = _Reader(source, delimiter, options).read()
    grid.notes[:0] = notes
    return grid


def _sample(lines: Lines) -> list[str]:
    """The first lines; of very long ones fewer."""
    found: list[str] = []
    size = 0
    for line in itertools.islice(lines.all(), _SAMPLE):
        size += len(line)
        if found and size > _SAMPLE_SIZE:
            break
        found.append(line)
    return found


class _Few:
    """How many lines there were of a kind, and the first of them."""

    def __init__(self) -> None:
        self.count = 0
        self.first = 0

    def add(self, line: int, count: int = 1) -> None:
        if count:
            self.first = self.first if self.count else line
            self.count += count


class _Reader:
    """One pass over one text."""

    def __init__(self, source: Source, delimiter: str, options: ReadOptions) -> None:
        self.name = source.name
        self.delimiter = delimiter
        self.quote = options.quote
        self.options = options
        self.lines = Lines(source, options.encoding, options.skip_lines)
        self.budget = Budget(source.name, source.size, options)
        self.blanks = " " if delimiter in ("\t", " ") else " \t"
        self.parser: BlockParser | None = None
        self.width = 0
        self.first_line = 0
        self.trimmed = 0
        self.broken = _Few()  # rows that hold a line break
        self.blank = _Few()
        self.pending = _Few()  # blank lines: skipped in the middle, of no account at the end
        self.header: tuple[list[str], list[int], int] | None = None
        self.store = RowStore(self.budget)

    def read(self) -> Grid:
        grow, size = False, 0
        while (block := self.lines.next_block(grow)) is not None:
            self.budget.check(self.lines.number, 1)  # blank lines take time too
            if self.parser is None:
                self._begin()
                continue
            end = self._end_of_records(block)
            # A quote that is open goes on in the next block, if there is one and it is not long.
            grow = end == 0 and size < len(block) < LONGEST_FIELD
            size = len(block) if grow else 0
            if grow:
                continue
            if end == 0 or not self._take(block[:end] if end < len(block) else block):
                self._take_by_line()
            grow = 0 < end < len(block)
        if not self.width:
            raise NoRows(self.name, "there is no line with content.")
        if not self.store.rows:
            header = self.header
            names = name_columns(self.name, header[0], header[2], header[1])[0] if header else ()
            raise NoRows(
                self.name, "there is a header but no row of data.", names, line=self.first_line
            )
        return self._grid()

    def _begin(self) -> None:
        """The first line says how many columns there are, and what they are called."""
        for number, fields, starts in self._records():
            self.width, self.first_line = len(fields), number
            if self.width > self.options.max_columns:
                raise too_many_columns(self.name, f"{self.width:,}", self.options, number)
            self.parser = BlockParser(self.delimiter, self.quote, self.width)
            if self.options.header:
                self.header = fields, starts, number
            else:
                self.store.add([number], [[field] for field in fields])
            return

    def _end_of_records(self, block: str) -> int:
        """Where the last whole record of a block ends: no quote is open there."""
        quote = self.quote
        if quote is None or self.delimiter == WHITESPACE or block.count(quote) % 2 == 0:
            return len(block)
        ends = "\r\n" if "\r" in block else "\n"
        end, odd = len(block), False
        while not odd and end > 0:  # from one line with quotes to the one before
            last = block.rfind(quote, 0, end)
            start = max(block.rfind(mark, 0, last) for mark in ends) + 1 if last >= 0 else 0
            odd = block.count(quote, start, end) % 2 == 1
            end = start
        return end

    def _take(self, block: str) -> bool:
        """Read a block at once, if none of its lines needs a closer look."""
        taken = self.parser.parse(block) if self.parser else None
        if taken is None or (self.width == 1 and taken.last_blanks):
            return False
        first = self.lines.number + 1
        if len(taken.places):
            self._skip()
            self.blank.add(first + taken.first_blank, taken.blanks)
            self.broken.add(first + taken.first_broken, taken.broken)
            places = taken.places
            shifted = range(first, first + len(places)) if isinstance(places, range) else None
            self.store.add(shifted or np.asarray(places) + first, taken.rows)
        self.budget.look_closely(taken.loose // 5, first)
        self.trimmed += taken.trimmed
        self.lines.pass_block(taken.lines, len(block))
        self.pending.add(self.lines.number + 1 - taken.last_blanks, taken.last_blanks)
        return True

    def _take_by_line(self) -> None:
        numbers, rows = [], []
        for number, fields, _ in self._records():
            numbers.append(number)
            rows.append(fields)
        self.store.add(numbers, list(zip(*rows, strict=True)))

    def _grid(self) -> Grid:
        notes = []
        header, columns = self.header, self.store.columns()
        # As some write it, each line ends with a delimiter: a last column of nothing at all.
        if self.width > 1 and not (header and header[0][-1]) and columns[-1].is_empty():
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
        if self.blank.count:
            notes.append(
                f"{self.blank.count:,} blank line(s) skipped, first line {self.blank.first}."
            )
        if self.broken.count:
            notes.append(
                f"{self.broken.count:,} row(s) hold quoted line breaks, first line "
                f"{self.broken.first}."
            )
        line = header and header[2]
        return Grid(self.name, names, columns, self.store.lines(), header_line=line, notes=notes)

    def _records(self) -> Iterator[tuple[int, list[str], list[int]]]:
        """Line number, fields and, where quotes made it needful, the column each starts at."""
        quote, delimiter, blanks = self.quote, self.delimiter, self.blanks
        lines = self.lines
        trim, tabs = delimiter != WHITESPACE, "\t" in blanks
        for line in lines.rest_of_block():
            number = lines.number
            starts: list[int] = []
            quoted = quote is not None and quote in line
            if quoted:
                fields, starts = self._quoted(line)
            elif not line.strip(" "):
                self.pending.add(number)
                continue
            else:
                found = line.count(delimiter) + 1 if trim else 0
                if found > max(self.width, self.options.max_columns):  # too many to part them
                    raise self._too_wide(line, found, number)
                fields = split_plain(line, delimiter)
                if trim and (" " in line or (tabs and "\t" in line)):
                    bare = [field.strip(blanks) for field in fields]
                    self.trimmed += sum(map(str.__ne__, bare, fields))
                    fields = bare
                self.budget.look_closely(1 + len(fields) // 4, number)
            self._skip()
            if self.width and len(fields) != self.width:
                raise self._ragged(line, len(fields), starts, number)
            if not self.width and not starts and len(fields) <= self.options.max_columns:
                starts = _plain_starts(line, delimiter, len(fields))
            yield number, fields, starts

    def _skip(self) -> None:
        """Blank lines before a row are skipped, where they can be no value."""
        if not self.pending.count:
            return
        if self.width == 1:
            raise TableError(
                self.name,
                'a blank line in a table of one column may be a missing value or nothing; write "" '
                "or remove it.",
                line=self.pending.first,
            )
        self.blank.add(self.pending.first, self.pending.count)
        self.pending = _Few()

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
            if len(fields) > max(self.width, self.options.max_columns):
                raise self._too_wide(line, len(fields), begun, starts)
            place += not gaps
        self.budget.look_closely(len(fields), begun)
        if self.lines.number != begun:
            self.broken.add(begun)
        return fields, starts

    def _field_end(self, line: str, place: int) -> int:
        if self.delimiter == WHITESPACE:
            found = _BLANK.search(line, place)
            return found.start() if found else len(line)
        end = line.find(self.delimiter, place)
        return len(line) if end < 0 else end

    def _within(self, line: str, place: int) -> tuple[str, str, int]:
        """What stands between quotes, the line they close in, and the place behind them."""
        quote = self.quote or ""  # never empty here: a quote was seen
        opened = self.lines.number, place + 1
        parts = []
        size = 0
        place += 1
        while True:
            end = line.find(quote, place)
            if end < 0:
                parts.append(line[place:] + self.lines.end)
                size += len(parts[-1])
                following = self.lines.following() if size <= LONGEST_FIELD else None
                if following is None:
                    so = "not closed for long" if size > LONGEST_FIELD else "never closed"
                    raise TableError(
                        self.name,
                        f"a quote opens here and is {so}; close it, or give --quote none to read "
                        "quotes as text.",
                        line=opened[0],
                        column=opened[1],
                    )
                line, place = following, 0
                continue
            parts.append(line[place:end])
            if not line.startswith(quote, end + 1):
                return "".join(parts), line, end + 1
            parts.append(quote)
            place = end + 2

    def _too_wide(
        self, line: str, found: int, number: int, starts: Sequence[int] = ()
    ) -> TableError:
        """The refusal of a line with so many fields that they are not even parted."""
        words = f"more than {found - 1:,}" if starts else f"{found:,}"
        if self.width:
            return self._ragged(line, found, starts, number, words)
        return too_many_columns(self.name, words, self.options, number)

    def _ragged(
        self, line: str, found: int, starts: Sequence[int], number: int, words: str = ""
    ) -> TableError:
        what = "header" if self.options.header else "first line"
        message = (
            f"{words or found} field(s) where the {what} (line {self.first_line}) has "
            f"{self.width}, parted by {delimiter_words(self.delimiter)}."
        )
        if found > self.width:
            starts = starts or _plain_starts(line, self.delimiter, self.width + 1)
            column = starts[self.width]
            message += f" Field {self.width + 1} starts here; quote a field that holds a delimiter."
        else:
            column = len(line) + 1
        if self.width == 1:
            message += f" If line {self.first_line} is no part of the table, give --skip-lines."
        return TableError(self.name, message, line=number, column=column)


def _plain_starts(line: str, delimiter: str, most: int) -> list[int]:
    """The columns, from 1, at which the first fields of a line without quotes start."""
    starts = []
    place = 0
    if delimiter == WHITESPACE:
        fields = split_plain(line, delimiter)[:most]
    else:
        fields = line.split(delimiter, most)[:most]
    for field in fields:
        if delimiter == WHITESPACE:
            place = line.index(field, place)
        starts.append(place + len(field) - len(field.lstrip(" \t")) + 1)
        place += len(field) + (delimiter != WHITESPACE)
    return starts
