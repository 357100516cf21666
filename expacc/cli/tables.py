"""Read the tables that a command names, and tell how they were read."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from expacc.cli.screen import Screen

if TYPE_CHECKING:
    from expacc.data import Table

__all__ = ["describe", "read", "read_all", "read_one"]

MOST_COLUMNS = 12  # that are described before the rest is counted
MANY = 3  # tables from which on columns are not described


def read_all(data: Sequence[str], reading: Mapping[str, Any], screen: Screen) -> list["Table"]:
    """Every table; one of a folder that cannot be read is left out with a line."""
    from expacc.data import TableError, find_tables

    tables, refused = [], []
    for name in data:
        found, notes = find_tables(name)
        for note in notes:
            screen.remark(f"{name}: {note}", "dim")
        for each in found:
            try:
                table = each.read(**reading)
            except (TableError, ImportError) as error:
                if len(found) == 1:
                    raise
                refused.append(error)
                screen.warn(f"Left out {each.name}: {error}")
                continue
            tables.append(replace(table, name=each.name))
    if not tables:
        raise ValueError(
            f"DATA must hold a table that can be read; got {len(refused)} that cannot. "
            f"{'' if not refused else refused[0]}"
        )
    return tables


def read_one(data: str, reading: Mapping[str, Any]) -> "Table":
    """The one table of a file, a name or a folder."""
    from expacc.data import find_tables

    found, _ = find_tables(data)
    if len(found) > 1:
        raise ValueError(f"DATA must be one table here; {data} holds {len(found)}. Name one.")
    return found[0].read(**reading)


def describe(tables: Sequence["Table"], screen: Screen, *, every_column: bool = False) -> None:
    """Say what was taken for what."""
    for table in tables:
        lines = list(table.describe())
        head, columns = lines[:2], lines[2 : 2 + len(table.columns)]
        screen.remark(head[0], "bold")
        screen.remark(f"  {head[1]}")
        if every_column or len(tables) < MANY:
            most = len(columns) if every_column else MOST_COLUMNS
            for line in columns[:most]:
                screen.remark(f"  {line}", "dim")
            if len(columns) > most:
                rest = f"  … and {len(columns) - most} more; expacc read shows them all."
                screen.remark(rest, "dim")
        for note in table.notes:
            screen.remark(f"  {note}", "yellow" if note.startswith("Warning") else "")


def read(data: Sequence[str], *, reading: Mapping[str, Any], screen: Screen) -> None:
    """The command: show how tables are read, and do nothing else."""
    tables = read_all(data, reading, screen)
    for table in tables:
        for line in table.describe():
            screen.say(line)
    screen.give(
        [
            {
                "name": table.name,
                "rows": table.rows,
                "target": table.target.name,
                "classes": table.target.counts(),
                "columns": [
                    {"name": c.name, "kind": c.kind, "missing": int(c.missing.sum())}
                    for c in table.columns
                ],
                "left_out": {entry.name: entry.why for entry in table.dropped},
                "notes": list(table.notes),
                "sha256": table.sha256,
            }
            for table in tables
        ]
    )
