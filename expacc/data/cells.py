"""A column of many cells in little memory: blocks of text, numbers or codes, unpacked when needed.

A cell as an object of Python takes some 60 bytes; a table has as many as its file has fields.
"""

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from expacc.data.grid import Cell

__all__ = ["Block", "Cells", "Codes", "Plain", "Texts", "Values", "packed"]


class Block(Protocol):
    """Some rows of a column."""

    def __len__(self) -> int: ...

    def cells(self) -> list[Cell]:
        """The cells as objects."""
        ...

    def may_hold(self, text: str) -> bool:
        """False only if no cell is that text."""
        ...


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts without line breaks, joined by them; those equal to ``gap`` are missing."""

    joined: str
    rows: int
    gap: str | None = None

    def __len__(self) -> int:
        return self.rows

    def cells(self) -> list[Cell]:
        """Part them again."""
        texts = self.joined.split("\n")
        if self.gap is None or self.gap not in self.joined:
            return list(texts)
        return [None if text == self.gap else text for text in texts]

    def may_hold(self, text: str) -> bool:
        """A quick search, for most names are no values."""
        return text in self.joined


@dataclass(frozen=True, slots=True)
class Values:
    """Numbers or booleans, and which of them are missing."""

    values: NDArray[Any]
    gaps: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def cells(self) -> list[Cell]:
        """As Python's own numbers."""
        cells: list[Cell] = self.values.tolist()
        if self.gaps is not None:
            for place in np.flatnonzero(self.gaps).tolist():
                cells[place] = None
        return cells

    def may_hold(self, text: str) -> bool:
        """They are no texts."""
        return False


@dataclass(frozen=True, slots=True)
class Codes:
    """Places in a list of texts; -1 for a missing one."""

    codes: NDArray[np.int32]
    levels: Sequence[str]

    def __len__(self) -> int:
        return len(self.codes)

    def cells(self) -> list[Cell]:
        """Each text is one object, however often it occurs."""
        levels = self.levels
        return [levels[code] if code >= 0 else None for code in self.codes.tolist()]

    def may_hold(self, text: str) -> bool:
        """The levels tell."""
        return text in self.levels


@dataclass(frozen=True, slots=True)
class Plain:
    """Cells of any kind, as JSON."""

    text: str
    rows: int

    def __len__(self) -> int:
        return self.rows

    def cells(self) -> list[Cell]:
        """Read the JSON."""
        return list(json.loads(self.text))

    def may_hold(self, text: str) -> bool:
        """Not told without reading it."""
        return True


def packed(cells: Sequence[Cell]) -> Block:
    """A block of texts that may hold line breaks."""
    if all(isinstance(cell, str) for cell in cells):
        joined = "\n".join(cells)  # type: ignore[arg-type] # all are
        if joined.count("\n") == len(cells) - 1:
            return Texts(joined, len(cells))
    return Plain(json.dumps(list(cells)), len(cells))


class Cells(Sequence[Cell]):
    """The cells of a column, read block by block."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.rows = 0

    def append(self, block: Block) -> None:
        """Add rows."""
        if len(block):
            self.blocks.append(block)
            self.rows += len(block)

    def __len__(self) -> int:
        return self.rows

    def __iter__(self) -> Iterator[Cell]:
        return itertools.chain.from_iterable(block.cells() for block in self.blocks)

    @overload
    def __getitem__(self, place: int) -> Cell: ...
    @overload
    def __getitem__(self, place: slice) -> list[Cell]: ...
    def __getitem__(self, place: int | slice) -> Cell | list[Cell]:
        if isinstance(place, slice):
            return list(self)[place]
        at = range(self.rows)[place]
        for block in self.blocks:
            if at < len(block):
                return block.cells()[at]
            at -= len(block)
        raise IndexError(place)

    def __contains__(self, cell: object) -> bool:
        if isinstance(cell, str):
            return any(block.may_hold(cell) and cell in block.cells() for block in self.blocks)
        return any(cell in block.cells() for block in self.blocks)

    def is_empty(self) -> bool:
        """Whether every cell is an empty text."""
        return not any(any(block.cells()) for block in self.blocks)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment] # as lists have none
