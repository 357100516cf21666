"""Many lines at once: what needs no closer look is parted by a few calls of C."""

import csv
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass

from expacc.data.cells import Texts
from expacc.data.dialect import WHITESPACE

__all__ = ["Rules", "Taken", "plain_block"]

_CSV_LIMIT = 100_000  # the standard library refuses fields beyond 131,072 characters
_BLANKS = re.compile(" ++")


@dataclass(frozen=True)
class Rules:
    """How the lines of one text are parted; ``simple`` ones are read alike by Python's csv."""

    delimiter: str
    quote: str | None
    blanks: str
    simple: re.Pattern[str]

    @classmethod
    def of(cls, delimiter: str, quote: str | None) -> "Rules":
        """Blanks around a field without quotes belong to the delimiter, unless they are it."""
        blanks = " " if delimiter in ("\t", " ") else " \t"
        if quote is None or delimiter == WHITESPACE:
            return cls(delimiter, quote, blanks, re.compile(r"(?!)"))
        # Each field is in quotes, a quote inside doubled, or bare without blanks at its ends.
        mark, part = re.escape(quote), re.escape(delimiter)
        quoted = f"{mark}(?:[^{mark}]++|{mark}{mark})*+{mark}"
        bare = f"(?![{blanks}])[^{mark}{part}]*+(?<![{blanks}])"
        line = re.compile(f"(?:{quoted}|{bare})(?:{part}(?:{quoted}|{bare}))*+", re.DOTALL)
        return cls(delimiter, quote, blanks, line)

    def is_simple(self, line: str) -> bool:
        """Whether the standard library reads a line as we do, and faster."""
        return len(line) < _CSV_LIMIT and self.simple.fullmatch(line) is not None


@dataclass(frozen=True)
class Taken:
    """The rows of a block, by column, and which of its lines they are."""

    columns: Sequence[Texts]
    places: Sequence[int]  # of the rows among the lines, from 0
    lines: int
    trimmed: int

    @property
    def inner_blanks(self) -> int:
        """Blank lines before the last row."""
        return self.places[-1] + 1 - len(self.places) if self.places else 0

    @property
    def last_blanks(self) -> int:
        """Blank lines behind the last row."""
        return self.lines - (self.places[-1] + 1 if self.places else 0)

    @property
    def first_blank(self) -> int:
        """The place of the first blank line."""
        return next((at for at, place in enumerate(self.places) if place != at), len(self.places))


def plain_block(block: str, rules: Rules, width: int) -> Taken | None:
    """The rows of a block of whole lines, or None if they have to be looked at one by one."""
    delimiter, quote = rules.delimiter, rules.quote
    if "\r" in block:
        block = block.replace("\r\n", "\n").replace("\r", "\n")
    spaces = " " in block
    if delimiter == WHITESPACE:
        if "\t" in block:
            return None
        block = _BLANKS.sub(" ", block).replace("\n ", "\n").replace(" \n", "\n").strip(" ")
        delimiter = " "
    lines = block.split("\n")
    if block.endswith("\n"):
        lines.pop()
    places: Sequence[int] = range(len(lines))
    texts = lines
    if spaces or "\n\n" in block or block.startswith("\n"):
        places = [place for place, line in enumerate(lines) if line.strip(" ")]
        texts = [lines[place] for place in places]
    if not texts:
        return Taken((), (), len(lines), 0)
    trimmed = 0
    if quote is not None and quote in block:
        if not all(map(rules.is_simple, texts)):
            return None
        rows = list(csv.reader(texts, delimiter=delimiter, quotechar=quote))
        if set(map(len, rows)) != {width}:
            return None
        columns: Sequence[Sequence[str]] = list(zip(*rows, strict=True))
    else:
        if set(map(operator.methodcaller("count", delimiter), texts)) != {width - 1}:
            return None
        cells = delimiter.join(texts).split(delimiter)
        if rules.delimiter != WHITESPACE and (spaces or ("\t" in rules.blanks and "\t" in block)):
            bare = [cell.strip(rules.blanks) for cell in cells]
            trimmed = sum(map(str.__ne__, bare, cells))
            cells = bare
        columns = [cells[place::width] for place in range(width)]
    packed = [Texts("\n".join(column), len(column)) for column in columns]
    return Taken(packed, places, len(lines), trimmed)
