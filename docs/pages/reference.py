"""The reference: what is public, by mkdocstrings, and every option of the command line."""

import importlib
import inspect
from importlib.util import find_spec
from typing import Any

import typer
from write_losses import code, table

import expacc
from expacc.cli.app import app
from expacc.registry import SPECS

# page → title, first lines, modules whose public names it shows.
ROOMS = {
    "training": (
        "Schedules, optimizers, training",
        "Numbers that follow training, what normalises gradients, and the two training loops.",
        ("expacc.schedules", "expacc.training"),
    ),
    "estimator": (
        "Estimators and boosting",
        "Classifiers with scikit-learn's contract, and objectives for boosted trees.",
        ("expacc.estimator", "expacc.boosting"),
    ),
    "integrations": (
        "Integrations",
        "For the loops of others ([how](../frameworks.md)).",
        tuple(f"expacc.integrations.{name}" for name in ("transformers", "lightning", "skorch")),
    ),
    "networks": ("Networks", "Small ones, one file a family.", ("expacc.networks",)),
    "stats": (
        "Statistics",
        "Scores in, tests out ([which, and why](../statistics.md)).",
        ("expacc.stats",),
    ),
    "data": (
        "Tables",
        "How tables are read, split and spoilt ([in words](../tables.md)).",
        ("expacc.data",),
    ),
    "registry": ("The registry", "What there is to know of each loss.", ("expacc.registry",)),
}


def _rooms() -> dict[str, tuple[str, str, tuple[str, ...]]]:
    """Those that are there."""
    return {
        name: room for name, room in ROOMS.items() if find_spec(".".join(room[2][0].split(".")[:2]))
    }


def _directives(module: str) -> list[str]:
    """A directive of mkdocstrings for each public class and function, by where it is written."""
    room = importlib.import_module(module)
    found = []
    for name in room.__all__:
        thing = getattr(room, name)
        written = inspect.isclass(thing) or inspect.isfunction(thing)
        if written and not name.endswith("Loss"):  # losses are made, and have pages
            path = f"{thing.__module__}.{thing.__qualname__}"
            heading = f"{module}.{name}"
            found.append(
                f"::: {path}\n    options:\n      heading: {heading}\n      toc_label: {name}"
            )
    return found


def _losses() -> str:
    rows = [
        (
            f"[{spec.label}](../losses/{spec.name}.md)",
            code(spec.function),
            code(spec.module),
            spec.when,
        )
        for spec in SPECS.values()
    ]
    return table(("loss", "`expacc.functional`", "`expacc`", "when"), rows)


def _core() -> str:
    shown = [
        name
        for name in expacc.__all__
        if (not name.startswith("_") and not name.endswith("Loss")) or name == "ScheduledLoss"
    ]
    things = {name: getattr(expacc, name) for name in shown}
    directives = [
        f"::: {thing.__module__}.{thing.__qualname__}\n    options:\n      heading: expacc.{name}\n"
        f"      toc_label: {name}"
        for name, thing in things.items()
        if inspect.isclass(thing) or inspect.isfunction(thing)
    ]
    return "\n\n".join(["# expacc", "What stands beside the [losses](losses.md).", *directives])


def _option(one: Any) -> tuple[str, str, str]:
    names = ", ".join(f"`{name}`" for name in [*one.opts, *one.secondary_opts])
    if one.param_type_name == "argument":
        names = f"`{(one.metavar or one.name or '').upper()}`"
    default = "" if one.default is None or callable(one.default) else f"`{one.default}`"
    words = " ".join((getattr(one, "help", "") or "").split())
    return names, default if default not in ("`False`", "`()`", "``") else "", words


def command_line() -> str:
    """Each command, its help and its options."""
    group = typer.main.get_command(app)
    lines = ["# Command line", "`expacc COMMAND --help` says the same."]
    for name, command in group.commands.items():
        if command.hidden:
            continue
        help_ = inspect.cleandoc(command.help or "").replace("\b", "")
        rows = [_option(one) for one in command.params if not getattr(one, "hidden", False)]
        head = ("option", "default", "")
        lines += [f"## expacc {name}", help_, table(head, rows)]
    return "\n\n".join(lines) + "\n"


def pages() -> dict[str, str]:
    """Path below docs → text."""
    found = {
        "reference/losses.md": f"# Losses by name\n\n{_losses()}\n",
        "reference/expacc.md": _core() + "\n",
        "reference/cli.md": command_line(),
    }
    for name, (title, first, modules) in _rooms().items():
        blocks = [f"# {title}", first]
        for module in modules:
            blocks += [f"## {module}", *_directives(module)]
        found[f"reference/{name}.md"] = "\n\n".join(blocks) + "\n"
    return found


def navigation() -> list[tuple[str, str]]:
    return [
        ("Losses by name", "reference/losses.md"),
        ("expacc", "reference/expacc.md"),
        *((title, f"reference/{name}.md") for name, (title, _, _) in _rooms().items()),
        ("Command line", "reference/cli.md"),
    ]
