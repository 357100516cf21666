"""Which character parts the fields, and many lines parted at once by arrow's reader of CSV.

arrow reads quotes in ways of its own and blanks as part of a field, so it is given only what it
reads as we do; for all else ``BlockParser.parse`` says None, and lines are looked at one by one.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from expacc.data.cells import Cells
from expacc.data.options import Budget, TableError, need
from expacc.data.table import Rows

WHITESPACE = "whitespace"
_CANDIDATES = (",", ";", "\t", "|")
_WORD = re.compile(r"[^ \t]++")
_SPACES = re.compile(" ++")
_BLANK_LINE = re.compile(r"(?m)^ ++$")
_BLANK_LINES = re.compile("\n{2,}+")
_TAB_LINE = re.compile(r"(?m)^ *+\t[ \t]*+$")
_BREAK = r"\r\n|\r|\n"


def delimiter_words(delimiter: str) -> str:
    """The delimiter as a message names it."""
    return {"\t": "tab", WHITESPACE: "whitespace"}.get(delimiter, f"'{delimiter}'")


def split_plain(line: str, delimiter: str) -> list[str]:
    """The fields of a line without quotes, blanks and all."""
    if delimiter == WHITESPACE:
        # Not str.split(): it would also part at a no-break space.
        return [field for field in line.replace("\t", " ").split(" ") if field]
    return line.split(delimiter)


def _fields(line: str, delimiter: str) -> int:
    """How many fields there are; not parted, for a line may be all the file."""
    if delimiter == WHITESPACE:
        return sum(1 for _ in _WORD.finditer(line))
    return line.count(delimiter) + 1


def _bare(line: str, quote: str | None) -> str:
    """The line with everything between quotes taken out, so that what parts fields remains."""
    if quote is None or quote not in line:
        return line
    return "x".join(line.split(quote)[::2])


def sniff_delimiter(
    source: str, suffix: str, lines: Sequence[str], quote: str | None
) -> tuple[str, str]:
    """The delimiter of a sample of lines and the sentence that says so.

    A candidate must part every line into the same number of fields; among several nothing but the
    user can decide. Where none does, the one that comes nearest is taken, so that the reader names
    the line that breaks the rule.
    """
    if suffix in (".tsv", ".tab"):
        return "\t", "Fields are parted by tab, as the file's ending says."
    bare = [_bare(line, quote) for line in lines if line.strip(" \t")]
    fits: dict[str, tuple[int, int]] = {}
    for candidate in (*_CANDIDATES, WHITESPACE):
        counts = Counter(_fields(line, candidate) for line in bare)
        counts.pop(1, None)
        if counts:
            fields, share = max(counts.items(), key=lambda entry: (entry[1], entry[0]))
            fits[candidate] = (share, fields)
    even = [one for one in _CANDIDATES if one in fits and fits[one][0] == len(bare)]
    if len(even) > 1:
        ways = " and ".join(
            f"{delimiter_words(candidate)} ({fits[candidate][1]} fields)" for candidate in even
        )
        raise TableError(
            source, f"{ways} part every line evenly; say which with --delimiter.", line=1
        )
    if even:
        chosen = even[0]
    else:
        # Spaces within comma-parted text part lines too: whitespace needs every line, or no rival.
        near = [candidate for candidate in _CANDIDATES if candidate in fits]
        if WHITESPACE in fits and fits[WHITESPACE][0] == len(bare) and suffix != ".csv":
            chosen = WHITESPACE
        elif near:
            chosen = max(near, key=lambda candidate: fits[candidate])
        else:
            chosen = WHITESPACE if WHITESPACE in fits and suffix != ".csv" else ","
    return chosen, f"Fields are parted by {delimiter_words(chosen)}, judged by the first lines."


@dataclass(frozen=True)
class Taken:
    """The rows of a block, a table of texts, and which of its lines they begin on, from 0."""

    rows: Any
    places: Sequence[int] | Rows
    lines: int
    trimmed: int = 0
    loose: int = 0  # fields that a pattern found, which takes longer
    broken: int = 0  # rows that hold a line break
    first_broken: int = 0  # the place of the first of them
    blanks: int = 0  # lines, before the last row
    first_blank: int = 0
    last_blanks: int = 0  # behind the last row


class BlockParser:
    """Parts blocks of whole lines into the columns of one text.

    Args:
        delimiter: what parts fields; blanks around a field without quotes belong to it.
        quote: the character around fields, or None.
        width: the number of columns.
    """

    def __init__(self, delimiter: str, quote: str | None, width: int) -> None:
        self.arrow = need("pyarrow", "reading text")
        self.csv = need("pyarrow.csv", "reading text")
        self.delimiter, self.quote, self.width = delimiter, quote, width
        self.blanks = " " if delimiter in ("\t", " ") else " \t"
        self.sign = " " if delimiter == WHITESPACE else delimiter if delimiter < "\x7f" else "\x1f"
        names = list(map(str, range(width)))
        text = dict.fromkeys(names, self.arrow.string())
        # The texts were decoded: they are UTF-8.
        self._convert = self.csv.ConvertOptions(
            column_types=text, strings_can_be_null=False, check_utf8=False
        )
        self._names = names
        if quote is None or delimiter == WHITESPACE or max(quote, delimiter) > "\x7f":
            self._simple = self._loose = None
            return
        # Each field is in quotes, a quote inside doubled, or bare without blanks at its ends.
        mark, part = re.escape(quote), re.escape(delimiter)
        quoted = f"{mark}(?:[^{mark}]++|{mark}{mark})*+{mark}"
        more = f"(?![{self.blanks}])[^{mark}{part}\r\n]*+(?<![{self.blanks}])"
        bare = more if width > 1 else f"(?![\r\n]){more}"
        field, count = f"(?:{quoted}|{bare})", width - 1
        self._simple = re.compile(f"(?:{field}(?:{part}{field}){{{count}}}(?:{_BREAK}))*+")
        # Or blanks stand around it.
        any_field = f"[{self.blanks}]*+{quoted}[{self.blanks}]*+|[^{mark}{part}\r\n]*+"
        self._loose = re.compile(f"({any_field})({part}|{_BREAK})")

    def parse(self, block: str) -> Taken | None:
        """The rows of a block of whole records, or None if they have to be looked at closely."""
        if self.quote is not None and self.quote in block:
            return self._quoted(block) if self._simple else None
        if "\r" in block:
            block = block.replace("\r\n", "\n").replace("\r", "\n")
        spaces = " " in block
        if self.delimiter == WHITESPACE:
            if "\t" in block:
                if _TAB_LINE.search(block):
                    return None
                block, spaces = block.replace("\t", " "), True
            if spaces:
                block = _SPACES.sub(" ", block).replace("\n ", "\n").replace(" \n", "\n").strip(" ")
        elif self.sign != self.delimiter:
            if self.sign in block:
                return None
            block = block.replace(self.delimiter, self.sign)
        trims = self.delimiter != WHITESPACE and (spaces or ("\t" in self.blanks and "\t" in block))
        return self._parted(block, trims, "")

    def _parted(self, block: str, trims: bool, quote: str) -> Taken | None:
        """The rows of a block whose every line is one, or blank."""
        if " " in block[:1] or "\n " in block:
            block = _BLANK_LINE.sub("", block)
        data = block.encode()
        lines = block.count("\n") + (not block.endswith("\n"))
        places: Any = range(lines)
        if "\n\n" in block or block.startswith("\n"):
            if self.width == 1:
                return None  # a blank line may be a value
            ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 10)
            ends = ends if block.endswith("\n") else np.append(ends, len(data))
            places = np.flatnonzero(np.diff(ends, prepend=-1) > 1)
        if not len(places):
            return Taken(None, places, lines, last_blanks=lines)
        rows = self._arrow(data, quote)
        if rows is None or rows.num_rows != len(places):
            return None
        trimmed = 0
        if trims:
            rows, trimmed = self._trim(rows)
        last = int(places[-1])
        blanks = last + 1 - len(places)
        first = int(np.argmax(np.diff(places, prepend=-1) > 1)) if blanks else 0
        return Taken(
            rows,
            places,
            lines,
            trimmed,
            blanks=blanks,
            first_blank=int(places[first - 1]) + 1 if first else 0,
            last_blanks=lines - 1 - last,
        )

    def _arrow(self, data: bytes, quote: str) -> Any:
        """A table of texts, or None if a row has more or fewer fields than the first."""
        if data.startswith(b"\xef\xbb\xbf"):
            data = b"\n" + data  # else it would be taken for a mark
        try:
            return self.csv.read_csv(
                self.arrow.BufferReader(data),
                self.csv.ReadOptions(
                    use_threads=False, block_size=len(data) + 1, column_names=self._names
                ),
                self.csv.ParseOptions(
                    delimiter=self.sign, quote_char=quote or False, newlines_in_values=bool(quote)
                ),
                self._convert,
            )
        except self.arrow.ArrowInvalid:
            return None

    def _trim(self, rows: Any) -> tuple[Any, int]:
        compute = need("pyarrow.compute", "reading text")
        columns, trimmed = [], 0
        for column in rows.columns:
            bare = compute.ascii_trim(column, characters=self.blanks)
            lengths = compute.binary_length(column), compute.binary_length(bare)
            changed = compute.sum(compute.not_equal(*lengths)).as_py()
            column, trimmed = bare if changed else column, trimmed + changed
            columns.append(column)
        return self.arrow.table(columns, names=self._names), trimmed

    def _quoted(self, block: str) -> Taken | None:
        """A block with quotes: fields may hold line breaks, or blank lines stand between rows."""
        if not block.endswith(("\r", "\n")):
            block += "\n"
        found = self._broken(block)
        if found is not None or "\r" in block:
            return found
        block = _BLANK_LINE.sub("", block)
        # If each line is then a row, no field holds a break: what was blank stood between them.
        bare = _BLANK_LINES.sub("\n", block).lstrip("\n")
        return self._parted(block, False, self.quote or "") if self._matches(bare) else None

    def _matches(self, block: str) -> bool:
        return self._simple is not None and self._simple.fullmatch(block) is not None

    def _broken(self, block: str) -> Taken | None:
        """Rows that may hold line breaks, without blank lines between them."""
        compute = need("pyarrow.compute", "reading text")
        trimmed = loose = 0
        if self._matches(block):
            rows = self._arrow(block.encode(), self.quote or "")
        else:
            rows, trimmed = self._fields(block)
            loose = rows.num_rows * self.width if rows is not None else 0
        if rows is None:
            return None
        lines = block.count("\n") + block.count("\r") - block.count("\r\n")
        if rows.num_rows == lines:
            return Taken(rows, range(lines), lines, trimmed, loose)
        counts = [compute.count_substring_regex(column, _BREAK) for column in rows.columns]
        breaks: Any = np.sum([column.to_numpy() for column in counts], axis=0, dtype=np.int64)
        places = np.cumsum(breaks + 1) - breaks - 1
        if places[-1] + breaks[-1] + 1 != lines:
            return None
        first = int(np.argmax(breaks > 0))
        return Taken(
            rows,
            places,
            lines,
            trimmed,
            loose,
            broken=int((breaks > 0).sum()),
            first_broken=int(places[first]),
        )

    def _fields(self, block: str) -> tuple[Any, int]:
        """Fields with blanks around them, by a pattern; None if it does not fit everywhere."""
        quote, blanks = self.quote or "", self.blanks
        found = self._loose.findall(block) if self._loose else []
        raw = [field for field, _ in found]
        marks = "".join([mark for _, mark in found])
        if sum(map(len, raw)) + len(marks) != len(block) or len(raw) % self.width:
            return None, 0
        if self.width == 1 and not all(field.strip(" ") for field in raw):
            return None, 0  # a blank line may be a value
        ends = marks.replace("\r\n", "\n").replace("\r", "\n")
        if ends != (self.delimiter * (self.width - 1) + "\n") * (len(raw) // self.width):
            return None, 0
        bare = [field.strip(blanks) for field in raw]
        trimmed = sum([old != new and new[:1] != quote for old, new in zip(raw, bare, strict=True)])
        double = quote + quote
        cells = [cell[1:-1].replace(double, quote) if cell[:1] == quote else cell for cell in bare]
        columns = [
            self.arrow.array(cells[place :: self.width], self.arrow.string())
            for place in range(self.width)
        ]
        return self.arrow.table(columns, names=self._names), trimmed


class RowStore:
    """Rows of texts as they come, block by block, and the line that each began on."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.rows = 0
        self._tables: list[Any] = []
        self._lines: list[Any] = []

    def add(self, lines: Any, columns: Any) -> None:
        """Add a table of arrow's, or columns of texts."""
        if not len(lines):
            return
        arrow = need("pyarrow", "reading text")
        if not isinstance(columns, arrow.Table):
            names = list(map(str, range(len(columns))))
            texts = [arrow.array(column, arrow.string()) for column in columns]
            columns = arrow.table(texts, names=names)
        self.budget.check(self.rows + len(lines), columns.num_columns, int(lines[0]))
        self.rows += len(lines)
        self._tables.append(columns)
        self._lines.append(lines)

    def columns(self) -> list[Cells]:
        """All rows, by column."""
        arrow = need("pyarrow", "reading text")
        whole = arrow.concat_tables(self._tables)
        self._tables.clear()
        return [Cells(column) for column in whole.columns]

    def lines(self) -> Rows:
        """The line of each row."""
        whole = np.empty(self.rows, np.int64)
        start = 0
        for lines in self._lines:
            one_by_one = isinstance(lines, range)
            whole[start : start + len(lines)] = (
                np.arange(lines.start, lines.stop) if one_by_one else lines
            )
            start += len(lines)
        return whole
