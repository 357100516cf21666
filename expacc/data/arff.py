"""Read ARFF strictly: the kinds and the levels are declared, and every cell must keep to them."""

import re
from dataclasses import dataclass

from expacc.data.encodings import decode
from expacc.data.grid import Cell, Grid, Kind, name_columns
from expacc.data.numbers import is_number
from expacc.data.options import ReadOptions
from expacc.data.refusals import TableError
from expacc.data.source import Source

__all__ = ["read_arff"]

_LINE_END = re.compile(r"\r\n|\n|\r")
_NUMBERS = ("numeric", "real", "integer")
# A word in quotes with backslash escapes, or a run without what parts words.
_WORD = re.compile(
    r"""'((?:[^'\\]|\\.)*+)'|"((?:[^"\\]|\\.)*+)"|([^\s,{}'"%]++(?:[ ]++[^\s,{}'"%]++)*+)"""
)
_NAME = re.compile(r"""'((?:[^'\\]|\\.)*+)'|"((?:[^"\\]|\\.)*+)"|([^\s,{}'"%]++)""")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


@dataclass(frozen=True)
class _Attribute:
    name: str
    kind: Kind
    levels: frozenset[str] | None = None  # of a nominal attribute


def read_arff(source: Source, options: ReadOptions) -> Grid:
    """Read an ARFF file; sparse rows, weights and relational attributes are refused."""
    return _Reader(source.name, decode(source, options.encoding), options).read()


class _Reader:
    def __init__(self, name: str, text: str, options: ReadOptions) -> None:
        self.name = name
        self.options = options
        self.lines = _LINE_END.split(text)
        self.number = 0

    def refuse(self, message: str, place: int = 0) -> TableError:
        return TableError(self.name, message, line=self.number, column=place + 1)

    def read(self) -> Grid:
        attributes = self._header()
        if len(attributes) > self.options.max_columns:
            raise self.refuse(
                f"{len(attributes):,} columns where at most {self.options.max_columns:,} are read. "
                "Raise --max-columns if that is meant."
            )
        names, notes = name_columns(self.name, [entry.name for entry in attributes], self.number)
        columns: list[list[Cell]] = [[] for _ in attributes]
        numbers = []
        for line in self.lines[self.number :]:
            self.number += 1
            if not line.strip() or line.lstrip().startswith("%"):
                continue
            cells = self._row(line, attributes)
            numbers.append(self.number)
            for column, cell in zip(columns, cells, strict=True):
                column.append(cell)
        if not numbers:
            raise self.refuse("there is a header but no row of data.")
        declared = {entry.name: entry.kind for entry in attributes}
        return Grid(self.name, names, columns, numbers, declared=declared, notes=notes)

    def _header(self) -> list[_Attribute]:
        attributes: list[_Attribute] = []
        for line in self.lines:
            self.number += 1
            bare = line.strip()
            word = bare.split(None, 1)[0].lower() if bare else ""
            if not bare or bare.startswith("%") or word == "@relation":
                continue
            if word == "@data":
                if not attributes:
                    raise self.refuse("@data comes before any @attribute.")
                return attributes
            if word != "@attribute":
                raise self.refuse(
                    f"a header line must be @relation, @attribute, @data or a % comment; "
                    f"got {bare[:40]!r}."
                )
            attributes.append(self._attribute(line))
            if any(entry.name == attributes[-1].name for entry in attributes[:-1]):
                raise self.refuse(f"the attribute {attributes[-1].name!r} is declared twice.")
        raise self.refuse("the file ends without @data.")

    def _attribute(self, line: str) -> _Attribute:
        place = line.lower().index("@attribute") + len("@attribute")
        place += len(line[place:]) - len(line[place:].lstrip())
        match = _NAME.match(line, place)
        if match is None:
            raise self.refuse("an attribute must have a name and a type.", place)
        name = _unquoted(match)
        rest = line[match.end() :].strip()
        start = match.end()
        if rest.startswith("{"):
            return _Attribute(
                name, "category", frozenset(self._levels(line, line.index("{", start)))
            )
        kind = rest.split(None, 1)[0].lower() if rest else ""
        if kind in _NUMBERS:
            return _Attribute(name, "number")
        if kind in ("string", "date"):
            return _Attribute(name, "category")
        raise self.refuse(
            f"the type of {name!r} must be numeric, real, integer, string, date or {{…}}; "
            f"got {rest[:40]!r}.",
            start,
        )

    def _levels(self, line: str, place: int) -> list[str]:
        words, end = self._words(line, place + 1, "}")
        if end >= len(line):
            raise self.refuse("the list of levels is not closed by }.", place)
        levels = [word for word, _, _ in words]
        if len(set(levels)) < len(levels):
            double = next(level for level in levels if levels.count(level) > 1)
            raise self.refuse(f"the level {double!r} is declared twice.", place)
        return levels

    def _words(self, line: str, place: int, stop: str) -> tuple[list[tuple[str, bool, int]], int]:
        """Words parted by commas up to ``stop`` or the line's end: text, whether quoted, place."""
        words = []
        while True:
            while place < len(line) and line[place] in " \t":
                place += 1
            match = _WORD.match(line, place)
            if match is None:
                if line[place : place + 1] in ("'", '"'):
                    raise self.refuse("a quote opens here and is never closed.", place)
                raise self.refuse("a value is missing; write ? for a missing value.", place)
            words.append((_unquoted(match), match[3] is None, place))
            place = match.end()
            while place < len(line) and line[place] in " \t":
                place += 1
            if place == len(line) or line[place] == stop:
                return words, place
            if line[place] == "%" and stop == "":
                return words, len(line)
            if line[place] != ",":
                raise self.refuse("values must be parted by commas, and odd ones quoted.", place)
            place += 1

    def _row(self, line: str, attributes: list[_Attribute]) -> list[Cell]:
        if line.lstrip().startswith("{"):
            raise self.refuse("sparse rows are not read; save the table as CSV or dense ARFF.")
        words, _ = self._words(line, 0, "")
        if len(words) != len(attributes):
            extra = words[len(attributes)][2] if len(words) > len(attributes) else len(line)
            raise self.refuse(
                f"{len(words)} field(s) where {len(attributes)} attributes are declared.", extra
            )
        return [
            self._cell(*word, attribute) for word, attribute in zip(words, attributes, strict=True)
        ]

    def _cell(self, text: str, quoted: bool, place: int, attribute: _Attribute) -> Cell:
        if text == "?" and not quoted:
            return None
        given = self.options.missing or ()
        if attribute.kind == "number" and text not in given and not is_number(text):
            raise self.refuse(f"{text!r} is not a number, as {attribute.name!r} declares.", place)
        if attribute.levels is not None and text not in attribute.levels:
            raise self.refuse(
                f"{text!r} is not among the levels that {attribute.name!r} declares.", place
            )
        return text


def _unquoted(match: re.Match[str]) -> str:
    text = next(group for group in match.groups() if group is not None)
    if match[3] is not None:
        return text
    return re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), text)
