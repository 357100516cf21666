"""What commands are given: options that several have; tables, how they are read and shown."""

import functools
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from expacc.cli.screen import Screen, shell, user_input
from expacc.plain import UsageError

if TYPE_CHECKING:
    from expacc.data import Found, Table


Data = Annotated[
    list[str],
    Argument(metavar="DATA…", help="CSV, TSV, Parquet, ARFF or XLSX files, folders, or names."),
]
OneData = Annotated[str, Argument(metavar="DATA", help="A table's file, or a built-in name.")]
Folder = Annotated[Path, Argument(metavar="DIR", help="The folder of a study.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="No remarks, no progress.")]
Json = Annotated[bool, Option("--json", help="Print the result as JSON.")]
Debug = Annotated[bool, Option("--debug", help="Show tracebacks.")]
Seed = Annotated[int, Option("--seed", metavar="N", help="Of everything random.")]
Engine = Annotated[str, Option("--engine", metavar="local|ray", help="Where to compute.")]
Workers = Annotated[
    int | None,
    Option("--workers", metavar="N", help="Processes; default: one a core or GPU."),
]
Address = Annotated[str | None, Option("--address", metavar="HOST:PORT", help="Of a Ray cluster.")]
Device = Annotated[str, Option("--device", metavar="cpu|cuda", help="Where to train.")]
Hidden = Annotated[
    str | None, Option("--hidden", metavar="A,B", help="Of mlp: units of its layers; default: 64.")
]
Dropout = Annotated[float, Option("--dropout", metavar="X", help="Of mlp: share dropped.")]
Overwrite = Annotated[bool, Option("--overwrite", help="Start anew; delete what is there.")]
DryRun = Annotated[bool, Option("--dry-run", help="Say what would run, how long.")]

Losses = Annotated[
    list[str] | None,
    Option(
        "--losses",
        metavar="A,B|ours|robust|all",
        help="See: expacc losses; default: a few kinds.",
    ),
]
CompareModel = Annotated[
    str | None,
    Option(
        "--model",
        metavar="MODEL",
        help="linear (default), mlp, lightgbm, xgboost or a classifier's module.Class; "
        "of pictures cnn …",
    ),
]
Trials = Annotated[
    int | None,
    Option("--trials", metavar="N", help="Of the search; default: as many as are quick."),
]
Folds = Annotated[
    str | None,
    Option(
        "--folds",
        metavar="5x3|10|holdout",
        help="How accuracy is measured; default: 5x3 or 3.",
    ),
]
Repeats = Annotated[
    int | None, Option("--repeats", metavar="N", help="Final runs a fold; default: 2 to 5.")
]
LabelNoise = Annotated[
    str, Option("--inject-label-noise", metavar="A,B", help="Shares of labels made wrong.")
]
References = Annotated[
    str | None,
    Option(
        "--references",
        metavar="WHAT",
        help="Beside: none, fast, all (default), networks.",
    ),
]
CompareDevice = Annotated[
    str | None,
    Option(
        "--device",
        metavar="cpu|cuda",
        help="Default: cpu; for pictures a GPU if any.",
    ),
]
# Of pictures; not listed by --help, which has to fit a screen: docs/pictures.md.
Size = Annotated[int | None, Option("--size", metavar="N", hidden=True)]
Epochs = Annotated[int | None, Option("--epochs", metavar="N", hidden=True)]
Pretrained = Annotated[Path | None, Option("--pretrained", metavar="FILE", hidden=True)]
Mirror = Annotated[bool, Option("--mirror", hidden=True)]


def out_option(default: str, metavar: str = "DIR") -> Any:
    """``--out``, with what it is by default."""
    text = f"Default: {default}."
    return Annotated[Path | None, Option("--out", "-o", metavar=metavar, help=text)]


_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_PANEL = "How the table is read"


# name → type, what it is, what stands for its value
_OPTIONS: Mapping[str, tuple[Any, str, str | None]] = {
    "target": (
        str,
        "The column of classes: a name, or a place (1, -1: last); default: the last.",
        "COLUMN",
    ),
    "header": (bool, "Does the first line hold names? Default: yes.", None),
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


def refuse(options: Mapping[str, Any], what: str) -> None:
    """Raise for the first option that was given and means nothing for this kind of data."""
    for name, value in options.items():
        if value not in (None, False):
            raise UsageError(f"{name} is for {what}; DATA is not. Leave it out.")


def no_study(data: Sequence[str]) -> None:
    """Raise for the folder of a study, whose files are no data."""
    for name in data:
        if (Path(name) / "study.sqlite").is_file():
            raise UsageError(
                f"DATA must be data; {name} is the folder of a study. To see it: "
                f"{shell(['expacc', 'show', name])}"
            )


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
