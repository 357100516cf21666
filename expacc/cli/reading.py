"""The options that say how a table is read: the same for every command that reads one."""

import copy
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from typer import Option

__all__ = ["TABLE_OPTIONS", "flags_of", "given_options", "reads_tables"]

_PANEL = "How the table is read"


def _option(flag: str, text: str, metavar: str | None = None) -> Any:
    return Option(flag, help=text, metavar=metavar, rich_help_panel=_PANEL, show_default=False)


# None means: not given. So a model's own choices stay unless the user overrules them.
TABLE_OPTIONS: Mapping[str, Any] = {
    "target": Annotated[
        str | None,
        _option("--target", "The label: a name, or a place from 1 (-1: last, default).", "COLUMN"),
    ],
    "header": Annotated[
        bool | None,
        _option("--header/--no-header", "Whether the first line holds names (default: it does)."),
    ],
    "delimiter": Annotated[
        str | None,
        _option("--delimiter", "comma, semicolon, tab, pipe, whitespace or a character.", "SIGN"),
    ],
    "quote": Annotated[
        str | None, _option("--quote", "Sign around fields; none reads it as text.", "SIGN|none")
    ],
    "decimal": Annotated[str | None, _option("--decimal", "Decimal sign: . or ,", "SIGN")],
    "encoding": Annotated[str | None, _option("--encoding", "Of text (default: utf-8).", "NAME")],
    "skip_lines": Annotated[int | None, _option("--skip-lines", "Lines before the table.", "N")],
    "sheet": Annotated[str | None, _option("--sheet", "Of a workbook (default: first).", "NAME")],
    "missing": Annotated[
        list[str] | None, _option("--missing", "A word for a missing value; repeatable.", "WORD")
    ],
    "label_missing": Annotated[
        list[str] | None, _option("--label-missing", "A word for no label; repeatable.", "WORD")
    ],
    "numeric": Annotated[
        list[str] | None, _option("--numeric", "Read it as numbers; repeatable.", "COLUMN")
    ],
    "categorical": Annotated[
        list[str] | None, _option("--categorical", "Read it as categories; repeatable.", "COLUMN")
    ],
    "drop": Annotated[list[str] | None, _option("--drop", "Leave it out; repeatable.", "COLUMN")],
    "max_bytes": Annotated[
        int | None, _option("--max-bytes", "Largest file, unpacked (default: 512 MiB).", "N")
    ],
    "max_cells": Annotated[
        int | None, _option("--max-cells", "Most cells (default: 25 to 60 million).", "N")
    ],
    "max_columns": Annotated[
        int | None, _option("--max-columns", "Most columns (default: 10,000).", "N")
    ],
    "max_levels": Annotated[
        int | None, _option("--max-levels", "Most levels of a category (default: 1,000).", "N")
    ],
}


def reads_tables(*shown: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command all table options; it receives those given as one dict, ``reading``.

    Args:
        shown: those that its help lists; the others work too, and ``expacc read --help`` has all.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        own = [
            parameter
            for name, parameter in inspect.signature(command).parameters.items()
            if name != "reading"
        ]
        added = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=kind if not shown or name in shown else _hidden(kind),
            )
            for name, kind in TABLE_OPTIONS.items()
        ]

        @functools.wraps(command)
        def wrapped(**values: Any) -> Any:
            reading = given_options({name: values.pop(name) for name in TABLE_OPTIONS})
            return command(reading=reading, **values)

        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + added
        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
        del wrapped.__wrapped__  # its signature is another
        return wrapped

    return decorate


def _hidden(kind: Any) -> Any:
    option = copy.copy(kind.__metadata__[0])
    option.hidden = True
    return Annotated[kind.__origin__, option]


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
        flag = "--" + name.replace("_", "-")
        if name == "header":
            words.append("--header" if value else "--no-header")
        elif isinstance(value, list):
            words += [word for each in value for word in (flag, each)]
        else:
            words += [flag, "none" if value is None else str(value)]
    return words
