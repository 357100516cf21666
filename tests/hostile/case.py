"""One hostile file: its bytes, how it is read, and the cells or the refusal that must come."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Content = bytes | Callable[[], bytes]


@dataclass(frozen=True)
class Case:
    """Either ``names`` and ``rows`` come out exactly, or ``refused`` is part of the sentence."""

    title: str
    content: Content
    names: tuple[str, ...] | None
    rows: tuple[tuple[Any, ...], ...] | None
    words: tuple[str, ...]  # of the refusal, or of the notes
    at: tuple[int | None, int | None]  # line and column of a refusal, where they are told
    file: str
    options: dict[str, Any]

    def data(self) -> bytes:
        return self.content if isinstance(self.content, bytes) else self.content()


def give(
    title: str, content: Content, names: Any, rows: Any, *notes: str, file="hostile.csv", **options
) -> Case:
    """A file that is read to these cells, with these notes among others."""
    return Case(title, content, names, rows, notes, (None, None), file, options)


def refuse(
    title: str, content: Content, *words: str, at=(None, None), file="hostile.csv", **options
) -> Case:
    """A file that is refused in a sentence with these words, at a line and a column."""
    return Case(title, content, None, None, words, at, file, options)
