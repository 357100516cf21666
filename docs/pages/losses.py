"""One page for each loss of the registry."""

import inspect
import re
from html import escape
from typing import Any

from write_losses import parameter_rows, table

from expacc.registry import REFERENCE, SPECS, list_losses
from expacc.registry.beside import BESIDE
from expacc.registry.spec import LossSpec
from pages.curve import picture
from pages.formula import mathml
from pages.measured import measured
from pages.papers import listed

FAMILIES = {  # heading of the navigation → families
    "Ours": ("ours",),
    "Ours, yes/no labels": ("binary",),
    "Against wrong labels": ("robust",),
    "Classic": ("reference", "classic"),
}
REFERENCE_TEXT = """Compute minus the log-likelihood of the label, the usual training loss.

A confident mistake costs without limit, so a network learns wrong labels by heart; in return its
probabilities can be trusted more, and clean data are fitted as well as by any other loss.

Definition:
    L = -log p(target).

Gradient:
    dL/dlogits_j = -(1[j=y] - p_j): largest where the row is farthest wrong.

Args:
    logits: scores, (C), (N, C) or (N, C, d1, …).
    target: integer labels without the class axis, or class probabilities of the logits' shape.

Reference:
    torch's own; every loss here takes its arguments.
"""


def sections(text: str) -> dict[str, str]:
    """The parts of a docstring by heading; what comes first is ''."""
    parts = re.split(r"^(\w+):$", text, flags=re.M)
    bodies = [inspect.cleandoc(part) for part in parts]
    return {"": bodies[0], **dict(zip(parts[1::2], bodies[2::2], strict=True))}


# z_j, Σ_j, ∏_{i≠y}, dL/dlogits_j; e^u, p^(1 + q): but not ce_weight.
_SUBSCRIPT = re.compile(
    r"(?<![\w.])(d?logits|d?features|centre|log|exp|max|F1|[^\W\d_]|∏|d[a-z])"
    r"_(?:\{([^}]*)\}|(\w+))"
)
_POWER = re.compile(r"\^(?:\(((?:[^()]|\([^()]*\))*)\)|\{([^}]*)\}|(-?\w+))")


def _raised(found: re.Match[str]) -> str:
    return f"<sup>{''.join(filter(None, found.groups())).replace('-', '−')}</sup>"


def prose(text: str) -> str:
    """The words of a docstring as Markdown that shows them as they are."""
    pieces = re.split(r"(``.+?``|`[^`]+`)", text)
    for place, piece in enumerate(pieces):
        if place % 2:
            pieces[place] = f"`{piece.strip('`')}`"
        else:
            shown = _SUBSCRIPT.sub(r"\1<sub>\2\3</sub>", escape(piece, quote=False))
            shown = _POWER.sub(
                lambda one: f"<sup>{''.join(filter(None, one.groups())).replace('-', '−')}</sup>",
                shown,
            )
            shown = re.sub(r"(?<![\w)])-(?=[\w(Σ∫])|(?<= )-(?= )|(?<=<sup>)-", "−", shown)
            pieces[place] = re.sub(r"([\\*_\[\]|{}#])", r"\\\1", shown)
    return "".join(pieces)


def cell(text: str) -> str:
    """``prose`` for ``table``, which escapes the bar itself."""
    return prose(text).replace("\\|", "|")


def arguments(text: str) -> dict[str, str]:
    found = re.split(r"^(\*{0,2}\w+(?:, \w+)*): ", text, flags=re.M)
    bodies = (" ".join(body.split()) for body in found[2::2])
    return dict(zip(found[1::2], bodies, strict=True))


def own_names(spec: LossSpec) -> frozenset[str]:
    """Arguments that are numbers of the loss, and so may stand in its formula."""
    made = inspect.signature(_thing(spec)).parameters.values()
    return frozenset(
        one.name
        for one in made
        if one.name != "weight" and (one.default is None or type(one.default) in (int, float))
    )


def _thing(spec: LossSpec) -> Any:
    return spec.function or spec.module


def _signature(spec: LossSpec) -> str:
    thing = _thing(spec)
    shown = []
    star = False
    for one in inspect.signature(thing).parameters.values():
        if one.kind is one.KEYWORD_ONLY and not star:
            shown, star = [*shown, "*"], True
        shown.append(one.name if one.default is one.empty else f"{one.name}={one.default!r}")
    home = "torch.nn.functional" if spec.name == REFERENCE else "expacc.functional"
    first = (
        f"from {home} import {thing.__name__}"
        if spec.function
        else (f"from expacc import {thing.__name__}")
    )
    call = "\n".join(f"    {one}," for one in shown)
    return f"```py\n{first}\n\n{thing.__name__}(\n{call}\n)\n```"


def _notes(spec: LossSpec, reference: str) -> list[str]:
    thing = _thing(spec)
    takes = inspect.signature(thing).parameters
    notes = [prose(" ".join(reference.split()))]
    if spec.has_module:
        notes.append(f"As a Module: `expacc.{spec.module_name}`, with the same arguments by name.")
    if "reduction" not in takes and spec.name != REFERENCE:
        notes.append("A loss of the whole batch: it has no `reduction`.")
    if "shift" in takes:
        notes.append(
            "A curve over log p: `shift` and `scale` move its soft margin "
            "([many classes](../many-classes.md))."
        )
    if "impl" in takes:
        notes.append("One fused kernel each way on a GPU ([kernels](../kernels.md)).")
    if spec.reweights and spec.name != REFERENCE:
        notes.append(
            "Concave over −log p, so it also trains [boosted trees, and any classifier that takes "
            "weights](../boosting.md)."
        )
    if spec.needs and spec.family != "binary":
        notes.append(f"It needs {spec.needs}, so it is no choice of `expacc compare`.")
    return [f"- {note}" for note in notes]


def _settings(spec: LossSpec) -> list[str]:
    kept = (1, 2, 3, 4) if spec.hundred else (1, 2, 4)
    rows = [tuple(row[place] for place in kept) for row in parameter_rows(spec)]
    settings = listed()["settings"]
    told = [settings[spec.name]] if spec.name in settings else []
    if not rows:
        return [*told, "It has no numbers of its own."]
    names = ("loss", "parameter", "start", "100 classes", "searched by `expacc compare`")
    head = tuple(names[place] for place in kept)
    whose = " (the paper's own, for 10 classes)" if spec.family == "robust" else ""
    lines = [*told, f"Where it starts{whose}, and what is searched:", table(head, rows)]
    if spec.hundred:
        lines.append(f'`expacc.get_loss("{spec.name}", classes=100)` takes those for 100.')
    return lines


def page(spec: LossSpec) -> str:
    """Paper, signature, equation, picture, notes, settings, what was measured, example."""
    thing = _thing(spec)
    text = REFERENCE_TEXT if spec.name == REFERENCE else inspect.getdoc(thing) or ""
    parts = sections(text)
    summary, *about = parts[""].split("\n\n")
    equation = "".join(mathml(f"L = {spec.formula}", own_names(spec)))
    where = (
        "u = log p(target), p = e^u, z the logits"
        if spec.family != "binary"
        else "z the logit, t the label"
    )
    given = arguments(parts["Args"])
    compared = spec.name in list_losses() and spec.name != REFERENCE
    lines = [
        f"# {spec.label[0].upper()}{spec.label[1:]}",
        prose(re.sub(r"^Compute ", "", summary).replace("\n", " "))[:1].upper()
        + prose(re.sub(r"^Compute ", "", summary).replace("\n", " "))[1:],
        f"**When**: {spec.when}. **Source**: {spec.source}.",
        _signature(spec),
        *(prose(" ".join(one.split())) for one in about),
        "## Equation",
        f'<div class="equation">{equation}</div>',
        f"With {prose(where)}. In full: {prose(' '.join(parts['Definition'].split()))}",
        f"**Gradient**: {prose(' '.join(parts['Gradient'].split()))}",
        picture(spec),
        "## Implementation notes",
        "\n".join(_notes(spec, parts["Reference"])),
        "## Paper's settings",
        *_settings(spec),
        "## Where it helped, and where not",
        measured(spec),
    ]
    if compared:
        lines.append(f"On your table: `expacc compare mytable.csv --losses {spec.name}`")
    if "Example" in parts:
        lines += ["## Example", _example(spec, parts["Example"])]
    lines += [
        "## Arguments",
        table(
            ("argument", ""),
            [(f"`{name}`", cell(words)) for name, words in given.items()],
        ),
    ]
    if "Returns" in parts:
        lines.append(f"**Returns**: {prose(' '.join(parts['Returns'].split()))}")
    return "\n\n".join(line for line in lines if line) + "\n"


def _example(spec: LossSpec, text: str) -> str:
    """A doctest with the words around it, and what it imports."""
    home = "expacc.functional" if spec.function else "expacc"
    text = f">>> import torch\n>>> from {home} import {_thing(spec).__name__}\n\n{text}"
    blocks = [block for block in re.split(r"\n\s*\n", text) if block.strip()]
    shown = []
    for block in blocks:
        code = block.lstrip().startswith(">>>")
        shown.append(f"```pycon\n{block}\n```" if code else prose(" ".join(block.split())))
    return "\n\n".join(shown)


OVERVIEW = """# The losses

{count} losses, each with a page: formula, picture, settings, what it gained and did not gain where
it was measured. Which one to begin with: [Which loss?](which-loss.md)

All take `logits` and `target` as `F.cross_entropy` does. A loss is a function in
`expacc.functional`, a Module in `expacc`, and a name:
`expacc.get_loss("leaky_expected_error", leak=0.2)`; the same name goes to
`expacc compare --losses`. Below, u = log p(target), p = e<sup>u</sup>, and z are the logits.

{families}

## Beside the losses

With any loss, in a training loop of your own ([reference](reference/expacc.md)):

{beside}

Some rivals are ours under another name: `poly1_cross_entropy` and `symmetric_cross_entropy` are
`mixed_expected_error`; `reverse_cross_entropy` and `mean_absolute_error` are multiples of
`expected_error`.
"""


def overview() -> str:
    """All losses by family, with links."""
    blocks = []
    for heading, families in FAMILIES.items():
        rows = [
            (f"[{spec.label}](losses/{spec.name}.md)", cell(spec.formula), spec.when)
            for spec in SPECS.values()
            if spec.family in families
        ]
        blocks += [f"## {heading}", table(("loss", "of a row", "when"), rows)]
    beside = [
        (f"`expacc.{one.module}`", cell(one.formula), one.source, one.when)
        for one in BESIDE.values()
    ]
    return OVERVIEW.format(
        count=len(SPECS),
        families="\n\n".join(blocks),
        beside=table(("Module", "what it does", "source", "when"), beside),
    )


def pages() -> dict[str, str]:
    """Path below docs → text."""
    made = {f"losses/{spec.name}.md": page(spec) for spec in SPECS.values()}
    return {"losses.md": overview(), **made}


def navigation() -> list[tuple[str, list[tuple[str, str]]]]:
    """(heading, [(label, path)]) in the order of the registry."""
    return [
        (
            heading,
            [
                (spec.label, f"losses/{spec.name}.md")
                for spec in SPECS.values()
                if spec.family in families
            ],
        )
        for heading, families in FAMILIES.items()
    ]
