"""The text of a file, part by part, and its lines, block by block: no text is in memory twice."""

import codecs
import io
import re
from collections.abc import Iterable, Iterator
from typing import Any

from expacc.data.options import LONGEST_LINE, TableError
from expacc.data.source import Source
from expacc.plain import UsageError

_PART = 4 << 20  # bytes
_ASCII = bytes(range(1, 128))  # NUL is left: text has none
_NOT_CP1252 = {0x81, 0x8D, 0x8F, 0x90, 0x9D}
# Overlong ones and surrogates, too: of damage, not of Latin letters.
_WIDE = re.compile(rb"[\xc0-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_MOST_HIGH = 0.3  # of the bytes, in a text of Latin letters
_LINE_END = re.compile(r"\r\n|\n|\r")


def decode(source: Source, encoding: str | None) -> str:
    """The text of a file; a byte-order mark is not part of it."""
    return "".join(decode_parts(source, encoding))


def guess_encoding(source: Source) -> tuple[str, list[str]]:
    """utf-8, or, of a text that is none, cp1252 or latin-1; and a line that says so.

    A text of other letters than those of western Europe, or of UTF-8 with some damage, stays utf-8.
    """
    data, end = source.view, 0
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(data), _PART):
            end = min(start + _PART, len(data))
            decoder.decode(data[start:end], end == len(data))
        return "utf-8", []
    except UnicodeDecodeError as error:
        place = end - len(error.object) + error.start
        # Half of a character at the end; one byte alone may be a small letter of Latin-1.
        last = data[place:] if "end of data" in error.reason else b""
        cut = len(last) > 1 or b"" < last < b"\xe0"
    odd = paired = 0
    seen: set[int] = set()
    rest = b""  # of the last part, where a character may go on
    for start in range(0, len(data), _PART):
        part = data[start : start + _PART]
        high = part.translate(None, _ASCII)
        odd += len(high)
        seen |= {*high}
        part, done = rest + part, 0
        for wide in _WIDE.finditer(part):
            done = wide.end()
            paired += done - wide.start()
        rest = part[max(done, len(part) - 3) :]
    marked = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    if marked or cut or 0 in seen or 2 * paired > odd or odd > _MOST_HIGH * len(data):
        return "utf-8", []  # where it is refused with its place
    found = "latin-1" if seen & _NOT_CP1252 else "cp1252"
    line, _ = _place(_parts(data[:place], found, final=False))
    return found, [
        f"The text is not UTF-8 (line {line}): read as {found}; if letters come out wrong, give "
        "--encoding."
    ]


def decode_parts(source: Source, encoding: str | None) -> Iterator[str]:
    """The text part by part: in a whole one a single wide character would make all others wide."""
    encoding = encoding or guess_encoding(source)[0]
    data, name = source.view, source.name
    _check(source, encoding)
    done = 0
    try:
        for part in _parts(data, encoding):
            place = part.find("\0")
            if place >= 0:
                line, column = _place(_cut(_parts(data, encoding), done + place))
                raise TableError(
                    name,
                    "a NUL character, which text does not hold; is it another encoding, such as "
                    "--encoding utf-16-le?",
                    line=line,
                    column=column,
                )
            done += len(part)
            yield part
    except UnicodeDecodeError as error:
        # Of what it was given last, and this ends with the part it was given.
        start = error.start
        line, column = _place(_parts(data[:start], encoding, final=False))
        what = "ends within a character of" if start + 1 > len(data) else "is not"
        raise TableError(
            name,
            f"byte 0x{data[start : start + 1].hex()} {what} {encoding} ({error.reason}). If the "
            "file has another encoding, give it, such as --encoding latin-1.",
            line=line,
            column=column,
        ) from None
    except UnicodeError as error:  # utf-16 without a mark, for one
        raise TableError(name, f"the text is not {encoding} ({error}).") from None


def _check(source: Source, encoding: str) -> None:
    try:
        b"\0\0\0\0".decode(encoding)  # none of nothing: that asks no encoding
    except LookupError:
        raise UsageError(
            f"encoding must be one that Python knows, such as utf-8, latin-1, cp1252 or utf-16; "
            f"got {encoding!r}."
        ) from None
    except UnicodeError:
        pass
    if encoding.lower().replace("_", "-") not in ("utf-8", "utf8", "utf-8-sig"):
        return
    for mark, wide in (
        (b"\xff\xfe\0\0", "utf-32"),
        (b"\xff\xfe", "utf-16"),
        (b"\xfe\xff", "utf-16"),
    ):
        if source.view[:4].startswith(mark):
            raise TableError(
                source.name,
                f"the text is {wide.upper()}; give --encoding {wide}.",
                line=1,
                column=1,
            )


def _parts(data: Any, encoding: str, *, final: bool = True) -> Iterator[str]:
    """Decode in parts; an error's ``start`` counts from the first byte of all."""
    decoder = codecs.getincrementaldecoder(encoding)()
    begun = False
    for start in range(0, len(data), _PART):
        end = min(start + _PART, len(data))
        try:
            part = decoder.decode(data[start:end], final and end == len(data))
        except UnicodeDecodeError as error:
            error.start += end - len(error.object)  # it was given what was left over, and this
            raise
        if part and not begun:
            begun, part = True, part.removeprefix("\ufeff")
        if part:
            yield part


def _cut(parts: Iterable[str], characters: int) -> Iterator[str]:
    for part in parts:
        yield part[:characters]
        characters -= len(part)
        if characters <= 0:
            return


def _place(parts: Iterable[str]) -> tuple[int, int]:
    """Line and column, from 1, of the character behind these parts."""
    line, column = 1, 1
    ends = io.IncrementalNewlineDecoder(None, translate=True)
    for part in (*parts, None):
        text = ends.decode(part or "", part is None)
        line += text.count("\n")
        last = text.rfind("\n")
        column = len(text) - last if last >= 0 else column + len(text)
    return line, column


class Lines:
    """The lines of a text without their ends.

    Attributes:
        number: of the last line given, from 1.
        end: the line end behind it.
    """

    def __init__(self, source: Source, encoding: str | None, skip: int = 0) -> None:
        self.name = source.name
        self.number = 0
        self.end = ""
        self._blocks = self._whole_lines(decode_parts(source, encoding))
        self._block = ""
        self._ends = _LINE_END.finditer("")
        self._start = 0
        for _ in range(skip):
            if self.following() is None:
                break

    def next_block(self, grow: bool = False) -> str | None:
        """Whole lines with their ends, none of them given yet, or None at the end of the text.

        Its lines are given by ``rest_of_block`` if they are not taken by ``pass_block``. What is
        left of the last block comes alone, or, to ``grow``, with the next one.
        """
        rest = self._block[self._start :]
        if grow or not rest:
            rest += next(self._blocks, "")
        self._block, self._start = rest, 0
        self._ends = _LINE_END.finditer(rest)
        return rest or None

    def pass_block(self, lines: int, characters: int) -> None:
        """So much of the block was taken as it is."""
        self.number += lines
        self._start = characters

    def rest_of_block(self) -> Iterator[str]:
        """The lines of the block that are still to come."""
        while self._start < len(self._block):
            yield self._next()

    def following(self) -> str | None:
        """The next line, in whatever block."""
        if self._start >= len(self._block) and self.next_block() is None:
            return None
        return self._next()

    def all(self) -> Iterator[str]:
        """Every line that is still to come."""
        while (line := self.following()) is not None:
            yield line

    def _next(self) -> str:
        # Not str.splitlines(): it would also part lines at form feeds and Unicode separators.
        found = next(self._ends, None)
        start, self.number = self._start, self.number + 1
        if found is None:
            self.end, self._start = "", len(self._block)
            return self._block[start:]
        self.end, self._start = found[0], found.end()
        return self._block[start : found.start()]

    def _whole_lines(self, parts: Iterator[str]) -> Iterator[str]:
        rest = ""
        for part in parts:
            text = rest + part
            # A CR at the end may be half of a line end.
            last = max(text.rfind("\n"), text.rfind("\r", 0, len(text) - 1)) + 1
            if last:
                yield text[:last]
            rest = text[last:]
            if len(rest) > LONGEST_LINE:
                raise TableError(
                    self.name,
                    f"a line has more than {LONGEST_LINE:,} characters, the most that is read; is "
                    "this a table?",
                )
        if rest:
            yield rest
