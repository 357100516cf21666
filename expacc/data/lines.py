"""The lines of a text, block by block, so that no text is in memory twice."""

import re
from collections.abc import Iterator

from expacc.data.encodings import decode_parts
from expacc.data.errors import TableError
from expacc.data.limits import LONGEST_LINE
from expacc.data.source import Source

__all__ = ["Lines"]

_LINE_END = re.compile(r"\r\n|\n|\r")


class Lines:
    """The lines of a text without their ends.

    Attributes:
        number: of the last line given, from 1.
        end: the line end behind it.
    """

    def __init__(self, source: Source, encoding: str, skip: int = 0) -> None:
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

    def next_block(self) -> str | None:
        """Whole lines with their ends, none of them given yet, or None at the end of the text.

        Its lines are given by ``rest_of_block`` if they are not taken by ``pass_block``.
        """
        if self._start >= len(self._block):
            block = next(self._blocks, None)
            if block is None:
                return None
            self._block, self._start = block, 0
        else:
            self._block, self._start = self._block[self._start :], 0
        self._ends = _LINE_END.finditer(self._block)
        return self._block

    def pass_block(self, lines: int) -> None:
        """The block was taken as it is, so many lines."""
        self.number += lines
        self._start = len(self._block)

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
