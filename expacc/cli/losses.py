"""The command that prints every loss: name, formula, numbers and their ranges, when."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from expacc.cli.screen import Screen, user_input

if TYPE_CHECKING:
    from rich.table import Table

    from expacc.registry import LossSpec
    from expacc.registry.beside import Beside

HEADINGS = {
    "reference": "What all are compared with",
    "ours": "Ours",
    "robust": "Made against wrong labels",
    "classic": "Classic",
    "binary": "For yes/no labels, one logit each",
}


def losses(names: Sequence[str], screen: Screen) -> None:
    """Print the losses of these names or families; all without any."""
    from rich.markup import escape

    from expacc.registry import SPECS, choose_losses
    from expacc.registry.beside import BESIDE, find_beside

    others = (
        [one for word in names if (one := find_beside(word))] if names else list(BESIDE.values())
    )
    with user_input():
        chosen = [
            loss
            for word in names or HEADINGS
            if not find_beside(word)
            for loss in (
                [name for name, spec in SPECS.items() if spec.family == word]
                or choose_losses([word])
            )
        ]
    screen.give([*(_content(SPECS[name]) for name in chosen), *map(_beside, others)])
    if screen.as_json:
        return
    console = screen.console()
    for family, heading in HEADINGS.items():
        specs = [SPECS[name] for name in chosen if SPECS[name].family == family]
        if not specs:
            continue
        table = _table(heading)
        for spec in specs:
            said = spec.needs and family != "binary"  # whose heading says it
            when = f"{spec.when}; needs {spec.needs}" if said else spec.when
            cells = (spec.name, spec.formula, _numbers(spec), when)
            table.add_row(*(escape(cell.replace("`", "")) for cell in cells))
        console.print(table)
        console.print()
    if others:
        table = _table("With any loss, in a training loop of your own; no choice of compare")
        for one in others:
            cells = (one.name, one.formula, one.numbers, f"{one.when}. Use: {one.use}")
            table.add_row(*map(escape, cells))
        console.print(table)
        console.print()
    screen.say("u = log p(label), p = e^u, z the logits. Curves over u also take shift and scale.")
    screen.say(
        "Compare some: expacc compare DATA --losses ours,robust. All of them: docs/losses.md."
    )


def _table(heading: str) -> "Table":
    from rich.table import Table

    table = Table(title=heading, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("name", no_wrap=True)
    for column in ("per row", "numbers: allowed, start (searched)", "when"):
        table.add_column(column, overflow="fold")
    return table


def _usual(value: object) -> str:
    if callable(value):
        return getattr(value, "__name__", "").lstrip("_") or "by the rows"
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _numbers(spec: "LossSpec") -> str:
    from expacc.registry.limits import limits_of

    lines = []
    for name in dict.fromkeys([*spec.defaults, *spec.search]):
        first = _usual(spec.defaults[name]) if name in spec.defaults else ""
        low, high, _ = spec.search.get(name, (None, None, None))
        searched = f"({low:g} to {high:g})" if low is not None else ""
        allowed = f"{name} {limits_of(spec.base, name)}:"
        lines.append(" ".join(part for part in (allowed, first, searched) if part))
    return "\n".join(lines) or "–"


def _content(spec: "LossSpec") -> dict[str, Any]:
    from expacc.registry.limits import limits_of

    return {
        "name": spec.name,
        "family": spec.family,
        "label": spec.label,
        "formula": spec.formula,
        "numbers": {
            name: {
                "allowed": limits_of(spec.base, name),
                "start": None if callable(start := spec.defaults.get(name)) else start,
                "searched": list(spec.search[name][:2]) if name in spec.search else None,
            }
            for name in dict.fromkeys([*spec.defaults, *spec.search])
        },
        "when": spec.when,
        "needs": spec.needs,
        "source": spec.source,
        "function": f"expacc.functional.{spec.function_name}",
        "module": f"expacc.{spec.module_name}",
    }


def _beside(one: "Beside") -> dict[str, Any]:
    """The same of what is no loss."""
    return {
        "name": one.name,
        "family": "beside",
        "label": one.kind,
        "formula": one.formula,
        "numbers": one.numbers,
        "when": one.when,
        "needs": one.use,
        "source": one.source,
        "function": None,
        "module": f"expacc.{one.module}",
    }
