"""What every reader hands over: named columns of cells as written, and where each row stood."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from expacc.data.errors import TableError

__all__ = ["Cell", "Grid", "Kind", "name_columns", "shown"]

Cell = str | int | float | bool | None
Kind = Literal["number", "category"]


@dataclass
class Grid:
    """Cells by column, untouched; ``declared`` holds the kinds that the format itself states."""

    source: str
    names: tuple[str, ...]
    columns: list[Sequence[Cell]]
    lines: Sequence[int]
    header_line: int | None = None
    declared: dict[str, Kind] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.lines)


def shown(name: str) -> str:
    """A name for a line of output: one that could break or colour the line is quoted.

    >>> shown("age"), shown("a\\nb")
    ('age', "'a\\\\nb'")
    """
    return name if name.isprintable() else repr(name)


def name_columns(
    source: str, header: Sequence[str], line: int, starts: Sequence[int] | None = None
) -> tuple[tuple[str, ...], list[str]]:
    """Names from a header; an empty one becomes its position, a double one is refused."""
    names = list(header)
    notes = []
    first: dict[str, int] = {}
    for place, name in enumerate(names):
        if name == "":
            continue
        if name in first:
            raise TableError(
                source,
                f"the header has the name {name!r} twice, in fields {first[name] + 1} and "
                f"{place + 1}. If the first line is data, give --no-header.",
                line=line,
                column=starts[place] if starts else place + 1,
            )
        first[name] = place
    empty = [place for place, name in enumerate(names) if name == ""]
    for place in empty:
        name = f"column {place + 1}"
        while name in first:
            name += "'"
        first[name] = place
        names[place] = name
    if empty:
        given = ", ".join(repr(names[place]) for place in empty[:5])
        more = f" and {len(empty) - 5} more" if len(empty) > 5 else ""
        notes.append(f"The header leaves {len(empty)} name(s) empty: called {given}{more}.")
    return tuple(names), notes
