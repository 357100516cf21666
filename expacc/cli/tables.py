"""How tables are read: the options of every command that reads one, and what it says of them."""

import functools
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from expacc.cli.screen import Screen, shell, user_input
from expacc.plain import UsageError

if TYPE_CHECKING:
    from expacc.data import Found, Table


_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_PANEL = "How the table is read"


# name → type, what it is, what stands for its value
_OPTIONS: Mapping[str, tuple[Any, str, str | None]] = {
    "target": (
        str,
        "The column of classes: a name, or a place from 1 (-1: last). "
        "Default: the last, if it may be it.",
        "COLUMN",
    ),
    "header": (bool, "Whether the first line holds names (default: it does).", None),
    "delimiter": (str, "comma, semicolon, tab, pipe, whitespace or a character.", "SIGN"),
    "quote": (str, "Sign around fields; none reads it as text.", "SIGN|none"),
    "decimal": (str, "Decimal sign: . or ,", "SIGN"),
    "encoding": (str, "Of text (default: utf-8, else cp1252).", "NAME"),
    "skip_lines": (int, "Lines before the table.", "N"),
    "sheet": (str, "Of a workbook (default: first).", "NAME"),
    "missing": (list[str], "A word for a missing value; repeatable.", "WORD"),
    "label_missing": (list[str], "A word for no label; repeatable.", "WORD"),
    "numeric": (list[str], "Read it as numbers; repeatable.", "COLUMN"),
    "categorical": (list[str], "Read it as categories; repeatable.", "COLUMN"),
    "text": (list[str], "Read it as free text; repeatable.", "COLUMN"),
    "drop": (list[str], "Leave it out; repeatable.", "COLUMN"),
    "text_columns": (int, "Features of all texts together (default: 512; 0: none).", "N"),
    "max_bytes": (int, "Largest file, unpacked (default: 512 MiB).", "N"),
    "max_cells": (int, "Most cells (default: 25 to 60 million).", "N"),
    "max_columns": (int, "Most columns (default: 10,000).", "N"),
    "max_levels": (int, "Most levels of a category (default: 1,000).", "N"),
}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _option(name: str, *, hidden: bool) -> Any:
    """None means: not given. So a model's own choices stay unless the user overrules them."""
    kind, text, metavar = _OPTIONS[name]
    flag = "--header/--no-header" if name == "header" else _flag(name)
    more: dict[str, Any] = {"rich_help_panel": _PANEL, "show_default": False, "hidden": hidden}
    return Annotated[kind | None, Option(flag, help=text, metavar=metavar, **more)]


def reads_tables(*shown: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command all table options; it receives those given as one dict, ``reading``.

    Args:
        shown: those that its help lists; others work too: ``expacc inspect --help``.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        own = [
            parameter
            for name, parameter in signature(command).parameters.items()
            if name != "reading"
        ]
        added = [
            Parameter(
                name,
                Parameter.KEYWORD_ONLY,
                default=None,
                annotation=_option(name, hidden=bool(shown) and name not in shown),
            )
            for name in _OPTIONS
        ]

        @functools.wraps(command)
        def wrapped(**values: Any) -> Any:
            from expacc.data import ReadOptions

            reading = given_options({name: values.pop(name) for name in _OPTIONS})
            with user_input():
                ReadOptions(**reading)
            return command(reading=reading, **values)

        parameters = [p.replace(kind=Parameter.KEYWORD_ONLY) for p in own] + added
        wrapped.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
        del wrapped.__wrapped__  # its signature is another
        return wrapped

    return decorate


def given_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those that the user gave, as ``read_table`` takes them."""
    given = {name: value for name, value in values.items() if value is not None and value != []}
    if str(given.get("quote", "")).lower() == "none":
        given["quote"] = None
    return given


def flags_of(reading: Mapping[str, Any]) -> list[str]:
    """The options as they would be typed."""
    words: list[str] = []
    for name, value in reading.items():
        if name == "header":
            words.append("--header" if value else "--no-header")
        elif isinstance(value, list):
            words += [word for each in value for word in (_flag(name), each)]
        else:
            words += [_flag(name), "none" if value is None else str(value)]
    return words


MOST_COLUMNS = 12  # that are described before the rest is counted
MANY = 3  # tables from which on columns are not described


def read_all(
    data: Sequence[str], reading: Mapping[str, Any], screen: Screen, command: Sequence[str] = ()
) -> list["Table"]:
    """Every table; one of a folder that cannot be read is left out with a line.

    Args:
        data: files, folders and names.
        reading: how they are read.
        screen: where to say so.
        command: as it was typed, for what to type in its place.
    """
    from expacc.data import TableError, find_tables

    tables, refused = [], []
    alone = len(data) == 1
    for name in data:
        found, notes = find_tables(no_address(name))
        for note in notes:
            screen.remark(f"{name}: {note}", "dim")
        for each in found:
            screen.begins(f"Reading {each.name} …")
            try:
                if alone and len(found) == 1:
                    table = _read_or_ask(each, reading, screen, command)
                else:
                    table = each.read(**reading)
            except (TableError, ImportError) as error:
                if len(found) == 1:
                    raise
                refused.append(error)
                screen.warn(f"Left out {each.name}: {error}")
                continue
            tables.append(replace(table, name=each.name))
    if not tables:
        raise UsageError(
            f"DATA must hold a table that can be read; got {len(refused)} that cannot. "
            f"{'' if not refused else refused[0]}"
        )
    return tables


def no_address(name: str) -> str:
    """``name``, unless it is that of something elsewhere: a mistake with its cure."""
    if _ADDRESS.match(name) and not Path(name).exists():
        raise UsageError(
            f"DATA must be a file, a folder or a built-in name; got an address: {name}. Files are "
            f"read, nothing is fetched. Download it first: curl -LO {shlex.quote(name)}"
        )
    return name


def read_one(
    data: str, reading: Mapping[str, Any], screen: Screen, command: Sequence[str] = ()
) -> "Table":
    """The one table of a file, a name or a folder; see ``read_all``."""
    from expacc.data import find_tables

    found, _ = find_tables(no_address(data))
    if len(found) > 1:
        raise UsageError(f"DATA must be one table here; {data} holds {len(found)}. Name one.")
    return _read_or_ask(found[0], reading, screen, command)


def _read_or_ask(
    found: "Found", reading: Mapping[str, Any], screen: Screen, command: Sequence[str]
) -> "Table":
    """Read a table; where its target is not plain, ask on a terminal, else list what may be it."""
    from expacc.data import TableError

    try:
        return found.read(**reading)
    except TableError as error:
        refusal: Any = error
        candidates, source = getattr(error, "candidates", ()), error.source
        if not candidates:
            raise
    screen.warn(f"{source}: which column is the target? {refusal.doubt}.")
    for place, one in enumerate(candidates, 1):
        screen.warn(f"{place:3}  {one.name}: {one.text()}")
        if not screen.can_ask:
            screen.warn(f"     {shell([*command, '--target', one.name])}")
    if refusal.more:
        more = "column holds" if refusal.more == 1 else "columns hold"
        screen.warn(f"     {refusal.more} more {more} classes.")
    if screen.can_ask:
        answer = screen.ask(f"The target, 1 to {len(candidates)} or a name (Enter stops): ")
        if answer:
            if answer.isdecimal() and not 1 <= int(answer) <= len(candidates):
                raise UsageError(
                    f"the target must be 1 to {len(candidates)} or a name; got {answer}."
                )
            if answer.isdecimal():
                answer = candidates[int(answer) - 1].name
            return found.read(**{**reading, "target": answer})
    raise UsageError(f"{source}: the target must be named: --target COLUMN.")


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
                rest = f"  … and {len(columns) - most} more; expacc inspect shows them all."
                screen.remark(rest, "dim")
        for note in table.notes:
            screen.remark(f"  {note}", "yellow" if note.startswith("Warning") else "")


def inspect(data: Sequence[str], *, reading: Mapping[str, Any], screen: Screen) -> None:
    """The command: show how tables are read, and do nothing else."""
    tables = read_all(data, reading, screen, ["expacc", "inspect", *data, *flags_of(reading)])
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
