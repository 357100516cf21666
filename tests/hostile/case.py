"""One hostile file: its bytes, how it is read, and the cells or the refusal that must come."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Content = bytes | Callable[[], bytes]


@dataclass(frozen=True)
class Case:
    """Either ``names`` and ``rows`` come out exactly, or ``words`` are parts of the sentence."""

    title: str  # "file: what", or what alone for hostile.csv
    content: Content
    names: tuple[str, ...] | None
    rows: tuple[tuple[Any, ...], ...] | None
    words: tuple[str, ...]  # of the refusal, or of the notes
    at: tuple[int | None, int | None]  # line and column of a refusal, where they are told
    options: dict[str, Any]

    @property
    def file(self) -> str:
        return self.title.partition(": ")[0] if ": " in self.title else "hostile.csv"

    def data(self) -> bytes:
        return self.content if isinstance(self.content, bytes) else self.content()


def give(title: str, content: Content, *rows: Any, names=("a", "b"), notes="", **options) -> Case:
    """A file that is read to these cells, with this note among others."""
    return Case(title, content, names, rows, (notes,) if notes else (), (None, None), options)


def refuse(title: str, content: Content, *words: str, at=(None, None), **options) -> Case:
    """A file that is refused in a sentence with these words, at a line and a column."""
    return Case(title, content, None, None, words, at, options)
