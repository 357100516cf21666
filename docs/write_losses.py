"""Write what is made of ``expacc/registry``: docs/losses.md and expacc/__init__.pyi."""

import inspect
from pathlib import Path

import torch

import expacc
from expacc.contract import Reduction, Shift
from expacc.functional.confusion import Average
from expacc.functional.exact import Standardize
from expacc.losses import FunctionLoss
from expacc.ops import Implementation
from expacc.ops.orthant.noise import NoiseName
from expacc.registry import SPECS
from expacc.registry.beside import BESIDE

# Types by the names that the stub gives them.
TYPES = {
    "Average": ("expacc.functional.confusion", Average),
    "Implementation": ("expacc.ops", Implementation),
    "NoiseName": ("expacc.ops.orthant.noise", NoiseName),
    "Reduction": ("expacc.contract", Reduction),
    "Shift": ("expacc.contract", Shift),
    "Standardize": ("expacc.functional.exact", Standardize),
}
ROOT = Path(__file__).resolve().parent.parent

PAGE = """# The losses

Written by `python docs/write_losses.py` from `expacc/registry`.

Functions are in `expacc.functional`, Modules in `expacc`; `expacc.get_loss(name, …)` makes a Module
from a name, and `expacc.list_losses()` lists the names. With u = log p(target), p = e^u, logits z:

{losses}

![Losses against wrong labels and their pull, each by itself, against p(target)](figures/robust.svg)

A binary loss at z is its sibling of two classes at the logits (0, z), and its curve the same.
[ordinal.md](ordinal.md) compares the expected distance with cross entropy on ranked classes.

With any of them, in a training loop of your own (neither is a choice of `expacc compare`):

{beside}

Some rivals are ours under another name: `poly1_cross_entropy` and `symmetric_cross_entropy` are
`mixed_expected_error`; `reverse_cross_entropy` and `mean_absolute_error` are multiples of
`expected_error`.

Their parameters, where they start, and what `expacc compare` searches. Losses made against wrong
labels start where their papers do for 10 classes; where a paper has other numbers for 100, they
stand beside, and `expacc.get_loss(name, classes=…)` takes the nearer (those for 100 from 32 on):

{parameters}
"""

STUB = '''"""Written by ``python docs/write_losses.py``: public names, for type checkers.

What a Module takes stands as its fields: all by name, ``weight`` by its place, too.
"""

from typing import Any, dataclass_transform

from torch import Tensor

{imports}

__version__: str

def _placed(*, default: Any, kw_only: bool) -> Any: ...

@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(_placed,))
class _Fields(FunctionLoss): ...

{classes}'''

# What Modules of a kind have in common → the class of the stub that has it.
KINDS = {
    ("weight", "ignore_index", "reduction", "label_smoothing"): "_RowLoss",
    ("weight", "ignore_index", "label_smoothing"): "_BatchLoss",
    ("weight", "reduction", "pos_weight"): "_BinaryLoss",
}


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    escaped = [[cell.replace("|", "\\|") for cell in cells] for cells in lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in escaped)


def code(thing: object) -> str:
    if thing is None:
        return "–"
    known = {torch.nn.functional.cross_entropy: "F.", torch.nn.CrossEntropyLoss: "nn."}
    return f"`{known.get(thing, '')}{thing.__name__}`"


def number(value: object) -> str:
    if callable(value):  # a schedule
        return f"`{value.__name__}`"
    return "–" if value is None else f"{value:g}"


def parameter_rows(spec: expacc.registry.LossSpec) -> list[tuple[str, ...]]:
    """Of each parameter: loss, name, where it starts, for 100 classes, what is searched."""
    rows = []
    for name in dict.fromkeys([*spec.defaults, *spec.search]):
        low, high, usual = map(number, spec.search.get(name, (None, None, None)))
        start = number(spec.defaults[name]) if name in spec.defaults else "–"
        searched = f"{low} to {high}, first {usual}" if name in spec.search else "–"
        many = number(spec.hundred[name]) if name in spec.hundred else ""
        rows.append((f"`{spec.name}`", f"`{name}`", start, many, searched))
    return rows


def page() -> str:
    losses = [
        (code(spec.function), code(spec.module), spec.formula, spec.source, spec.when)
        for spec in SPECS.values()
    ]
    parameters = [row for spec in SPECS.values() for row in parameter_rows(spec)]
    return PAGE.format(
        beside=table(
            ("Module", "what it does", "numbers", "source", "when", "use"),
            [
                (f"`{one.module}`", one.formula, one.numbers, one.source, one.when, f"`{one.use}`")
                for one in BESIDE.values()
            ],
        ),
        losses=table(("function", "Module", "per row", "source", "when"), losses),
        parameters=table(("loss", "parameter", "start", "100 classes", "searched"), parameters),
    )


def type_of(argument: inspect.Parameter) -> str:
    for alias, (_, annotation) in TYPES.items():
        if argument.annotation == annotation:
            return alias
    return inspect.formatannotation(argument.annotation).replace("torch.Tensor", "Tensor")


def class_of(name: str, base: str, first: str, fields: list[inspect.Parameter]) -> str:
    """A class of the stub."""
    lines = [f"class {name}({base}):", f'    """{first}"""', ""]
    for one in fields:
        default = repr(one.default).replace("'", '"')
        if one.kind is not one.KEYWORD_ONLY:
            default = f"_placed(default={default}, kw_only=False)"
        lines.append(f"    {one.name}: {type_of(one)} = {default}")
    return "\n".join([*(lines if fields else lines[:-1]), ""])


def classes() -> list[str]:
    """The Modules, and before the first of a kind what the kind has in common."""
    found: dict[str, str] = {}
    for spec in SPECS.values():
        if spec.has_module:
            assert spec.module is not None
            assert issubclass(spec.module, FunctionLoss)
            arguments, kind = inspect.signature(spec.module).parameters, KINDS[spec.module.shared]
            if kind not in found:
                common = [arguments[name] for name in spec.module.shared]
                found[kind] = class_of(kind, "_Fields", "What such losses have.", common)
            first = (inspect.getdoc(spec.function) or "").splitlines()[0]
            own = [arguments[name] for name in spec.module.params]
            found[spec.module_name] = class_of(spec.module_name, kind, first, own)
    return list(found.values())


def stub() -> str:
    homes_of = expacc._HOMES | expacc._WITH_EXTRAS
    public = {name: f"expacc.{home}" for name, home in homes_of.items()}
    public |= dict.fromkeys(("baselines", "functional", "schedules"), "expacc")
    named = {alias: home for alias, (home, _) in TYPES.items()} | {"FunctionLoss": "expacc.losses"}
    lines = [f"from {home} import {name} as {name}" for name, home in public.items()]
    homes: dict[str, list[str]] = {}
    for name, home in named.items():
        homes.setdefault(home, []).append(name)
    lines += [f"from {home} import {', '.join(sorted(names))}" for home, names in homes.items()]
    return STUB.format(imports="\n".join(sorted(lines)), classes="\n".join(classes()))


WRITTEN = {"docs/losses.md": page, "expacc/__init__.pyi": stub}

if __name__ == "__main__":
    for path, write in WRITTEN.items():
        (ROOT / path).write_text(write())
        print(ROOT / path)
