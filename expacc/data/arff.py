"""Read ARFF strictly: the kinds and the levels are declared, and every cell must keep to them."""

import re
from dataclasses import dataclass, replace

import numpy as np

from expacc.data.blocks import BlockParser, RowStore
from expacc.data.cells import Cell, Cells, is_number, to_numbers
from expacc.data.columns import Grid, name_columns
from expacc.data.options import Budget, NoRows, ReadOptions, TableError, need, too_many_columns
from expacc.data.source import Source
from expacc.data.table import Kind
from expacc.data.text import Lines, guess_encoding

# What a line of bare words, or words in single quotes, does not hold; and '?' is no gap.
_ODD = re.compile(r"""[^\S\r\n ]|["%{}\\]|''|'\?'""")
_MOST_LEVELS = 2_000_000  # of all attributes
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
    levels: set[str] | None = None  # of a nominal attribute


def read_arff(source: Source, options: ReadOptions) -> Grid:
    """Read an ARFF file; sparse rows, weights and relational attributes are refused."""
    notes: list[str] = []
    if options.encoding is None:
        encoding, notes = guess_encoding(source)
        options = replace(options, encoding=encoding)
    grid = _Reader(source, options).read()
    grid.notes[:0] = notes
    return grid


class _Reader:
    def __init__(self, source: Source, options: ReadOptions) -> None:
        self.name = source.name
        self.options = options
        self.lines = Lines(source, options.encoding)
        self.budget = Budget(source.name, source.size, options)
        self.levels = 0
        self.attributes: list[_Attribute] = []
        self.store = RowStore(self.budget)
        self.parsers: dict[bool, BlockParser] = {}  # by whether there are quotes

    def refuse(self, message: str, place: int = 0) -> TableError:
        return TableError(self.name, message, line=self.lines.number, column=place + 1)

    def read(self) -> Grid:
        self._header()
        header = [entry.name for entry in self.attributes]
        names, notes = name_columns(self.name, header, self.lines.number)
        self.parsers = {
            quoted: BlockParser(",", "'" if quoted else None, len(header))
            for quoted in (False, True)
        }
        while (block := self.lines.next_block()) is not None:
            self.budget.check(self.lines.number, 1)  # comments take time too
            if not self._take(block):
                self._take_by_line()
        if not self.store.rows:
            line = self.lines.number
            raise NoRows(self.name, "there is a header but no row of data.", names, line=line)
        kinds = (entry.kind for entry in self.attributes)
        declared = dict(zip(names, kinds, strict=True))
        columns = self.store.columns()
        return Grid(self.name, names, columns, self.store.lines(), declared=declared, notes=notes)

    def _take(self, block: str) -> bool:
        """Read a block at once, if it holds plain words only, and each is as declared."""
        if _ODD.search(block):
            return False
        taken = self.parsers["'" in block].parse(block)
        if taken is None or taken.broken:
            return False
        self.budget.look_closely(taken.loose // 5, self.lines.number + 1)
        if len(taken.places):
            arrow, compute = (need(name, "reading text") for name in ("pyarrow", "pyarrow.compute"))
            missing = {"?", *(self.options.missing or ())}
            columns = []
            for attribute, texts in zip(self.attributes, taken.rows.columns, strict=True):
                if attribute.kind == "number":
                    fine = to_numbers(Cells(texts), missing) is not None
                else:
                    words = {*texts.unique().to_pylist()} - {"?"}
                    fine = "" not in words and (
                        attribute.levels is None or attribute.levels >= words
                    )
                if not fine:
                    return False
                nothing = arrow.scalar(None, texts.type)
                columns.append(compute.if_else(compute.equal(texts, "?"), nothing, texts))
            rows = arrow.table(columns, names=taken.rows.column_names)
            self.store.add(np.asarray(taken.places) + self.lines.number + 1, rows)
        self.lines.pass_block(taken.lines, len(block))
        return True

    def _take_by_line(self) -> None:
        numbers, rows = [], []
        for line in self.lines.rest_of_block():
            if line.strip() and not line.lstrip().startswith("%"):
                rows.append(self._row(line))
                numbers.append(self.lines.number)
        self.store.add(numbers, list(zip(*rows, strict=True)))

    def _header(self) -> None:
        names: set[str] = set()
        for line in self.lines.all():
            self.budget.check(self.lines.number, 1)
            bare = line.strip()
            word = bare.split(None, 1)[0].lower() if bare else ""
            if not bare or bare.startswith("%") or word == "@relation":
                continue
            if word == "@data":
                if not names:
                    raise self.refuse("@data comes before any @attribute.")
                return
            if word != "@attribute":
                raise self.refuse(
                    f"a header line must be @relation, @attribute, @data or a % comment; "
                    f"got {bare[:40]!r}."
                )
            attribute = self._attribute(line)
            if attribute.name in names:
                raise self.refuse(f"the attribute {attribute.name!r} is declared twice.")
            names.add(attribute.name)
            self.attributes.append(attribute)
            if len(names) > self.options.max_columns:
                found = f"more than {self.options.max_columns:,}"
                raise too_many_columns(self.name, found, self.options, self.lines.number)
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
            return _Attribute(name, "category", self._levels(line, line.index("{", start)))
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

    def _levels(self, line: str, place: int) -> set[str]:
        words, end = self._words(line, place + 1, "}", _MOST_LEVELS - self.levels)
        self.levels += len(words)
        if end >= len(line):
            raise self.refuse("the list of levels is not closed by }.", place)
        levels: set[str] = set()
        for word, _, _ in words:
            if word in levels:
                raise self.refuse(f"the level {word!r} is declared twice.", place)
            levels.add(word)
        return levels

    def _words(
        self, line: str, place: int, stop: str, most: int
    ) -> tuple[list[tuple[str, bool, int]], int]:
        """Words parted by commas up to ``stop`` or the line's end: text, whether quoted, place."""
        words: list[tuple[str, bool, int]] = []
        while True:
            while place < len(line) and line[place] in " \t":
                place += 1
            if len(words) > most:
                raise self.refuse(f"more than {most:,} values, the most that are read.", place)
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

    def _row(self, line: str) -> list[Cell]:
        attributes = self.attributes
        if line.lstrip().startswith("{"):
            raise self.refuse("sparse rows are not read; save the table as CSV or dense ARFF.")
        words, _ = self._words(line, 0, "", self.options.max_columns)
        self.budget.look_closely(len(words), self.lines.number)
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
