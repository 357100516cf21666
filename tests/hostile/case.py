"""One hostile file: its bytes, how it is read, and the cells or the refusal that must come."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """Either ``names`` and ``rows`` come out exactly, or ``refused`` is part of the sentence."""

    title: str
    content: bytes | Callable[[], bytes]
    names: tuple[str, ...] | None = None
    rows: tuple[tuple[Any, ...], ...] | None = None
    refused: tuple[str, ...] = ()
    line: int | None = None
    column: int | None = None
    notes: tuple[str, ...] = ()
    file: str = "hostile.csv"
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert (self.rows is None) == bool(self.refused), self.title

    def data(self) -> bytes:
        return self.content if isinstance(self.content, bytes) else self.content()
