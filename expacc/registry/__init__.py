"""Every loss told once: its names, formula and source, its looks, what to search, its slope.

The Modules, the batched trainer, ``compare``, the estimators, the benchmarks, the figure and
``docs/losses.md`` all read this list. To add a loss: a function in ``functional/``, a ``LossSpec``
in ``ours.py`` or ``rivals.py``, a row in ``tests/losses.py``, and
``python docs/write_losses.py``.

Reading the list needs no torch: functions and Modules are imported when they are asked for.
"""

import functools
import inspect
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, get_args

from expacc.registry.ours import OURS
from expacc.registry.rivals import CLASSIC, ROBUST
from expacc.registry.spec import REFERENCE, Family, LossSpec

if TYPE_CHECKING:
    from torch import nn

__all__ = ["REFERENCE", "SPECS", "LossSpec", "choose_losses", "get_loss", "list_losses", "spec_of"]

_ALL = (*OURS, *ROBUST, *CLASSIC)
SPECS: Mapping[str, LossSpec] = {spec.name: spec for spec in _ALL}
_ALIASES = {spec.function_name: spec.name for spec in _ALL}


def list_losses(family: Family | None = None) -> tuple[str, ...]:
    """Names of the losses of (logits, target), cross entropy first.

    Args:
        family: 'ours'; 'robust', made against wrong labels; 'classic'; None for all.

    Returns:
        What ``get_loss``, ``expacc.training.Run`` and ``expacc compare --losses`` take.

    Raises:
        ValueError: an unknown family.

    Example:
        >>> list_losses()[:3]
        ('cross_entropy', 'exact', 'leaky_expected_error')
    """
    known = get_args(Family)
    if family not in (None, *known):
        raise ValueError(f"family must be one of {', '.join(known)}; got {family!r}.")
    return tuple(spec.name for spec in _ALL if not spec.needs and family in (None, spec.family))


def choose_losses(words: Sequence[str]) -> tuple[str, ...]:
    """Names of losses from names, families and 'all', each once, in the order of the words.

    Args:
        words: such as ("ours", "focal").

    Returns:
        Names.

    Raises:
        ValueError: a word that is neither.

    Example:
        >>> choose_losses(["robust", "focal"])[-1]
        'focal'
    """
    found: dict[str, None] = {}
    for word in words:
        name = word.strip().replace("-", "_")
        if name == "all":
            found |= dict.fromkeys(list_losses())
        elif name in get_args(Family):
            found |= dict.fromkeys(list_losses(name))  # type: ignore[arg-type]
        else:
            found[spec_of(word.strip()).name] = None
    return tuple(found)


@functools.cache
def spec_of(name: str) -> LossSpec:
    """The loss of a name, or a variant of it with some of its arguments fixed.

    Args:
        name: such as 'exact', 'exact:noise=laplace' or 'leaky_expected_error:leak=0.2:shift=auto'.

    Returns:
        Its spec.

    Raises:
        ValueError: an unknown name or argument.

    Example:
        >>> spec_of("exact:noise=laplace").label
        'EXACT, noise laplace'
    """
    word, *settings = name.split(":")
    word = word.replace("-", "_")
    spec = SPECS.get(_ALIASES.get(word, word))
    if spec is None:
        _refuse_beside("losses must be losses", word)
        others = f"Families: ours, robust, classic, all. Names: {', '.join(list_losses())}."
        cure = _nearest(word, [*SPECS, *_ALIASES, *get_args(Family)], others)
        raise ValueError(f"losses must be names or families of losses; got {word!r}. {cure}")
    fixed = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not (key and equals and text):
            raise ValueError(f"losses must be NAME:argument=value:…; got {name!r}.")
        fixed[key.replace("-", "_")] = _value(text)
    return spec.variant(fixed) if fixed else spec


def _value(text: str) -> Any:
    plain = {"none": None, "true": True, "false": False}
    if text.lower() in plain:
        return plain[text.lower()]
    try:
        return float(text)
    except ValueError:
        return text


def get_loss(name: str, *, classes: int | None = None, **arguments: Any) -> "nn.Module":
    """Make a loss Module from its name, as a line of a configuration file would.

    Args:
        name: one of ``list_losses()``, a binary one, or 'max_mahalanobis_center'.
        classes: how many there are, for the parameters that a loss's paper chose for the nearer of
            10 and 100 (docs/losses.md has both); without it those for 10, the usual ones.
        **arguments: of the Module: ``weight``, ``ignore_index``, ``reduction``,
            ``label_smoothing`` and the loss's own.

    Returns:
        The Module; 'cross_entropy' gives ``torch.nn.CrossEntropyLoss``.

    Raises:
        TypeError: an argument that the loss does not have.
        ValueError: an unknown name, or a number out of its range.

    Example:
        >>> get_loss("leaky_expected_error", leak=0.2)
        LeakyExpectedErrorLoss(leak=0.2)
    """
    spec = SPECS.get(_ALIASES.get(name, name))
    if spec is None:
        _refuse_beside("name must be a loss of expacc", name)
        cure = _nearest(name, [*SPECS, *_ALIASES], f"Names: {', '.join(list_losses())}.")
        raise ValueError(f"name must be a loss of expacc; got {name!r}. {cure}")
    if spec.module is None:
        raise ValueError(
            f"name must be a loss of logits and labels; got {name!r}, which needs {spec.needs}. "
            f"Call expacc.functional.{spec.function_name}."
        )
    if classes is not None:
        from expacc.errors import check_count

        check_count("classes", classes)
        arguments = {**spec.by_classes(classes), **arguments}
    known = list(inspect.signature(spec.module).parameters)
    for argument in arguments:
        if argument not in known:
            cure = _nearest(argument, known, f"It takes: {', '.join(known)}.")
            raise TypeError(f"arguments must be those of {name}; got {argument!r}. {cure}")
    return spec.module(**arguments)


def _refuse_beside(demand: str, word: str) -> None:
    from expacc.registry.beside import find_beside

    if other := find_beside(word):
        raise ValueError(f"{demand}; {word!r} {other.refusal()}")


def _nearest(given: object, known: Iterable[str], otherwise: str) -> str:
    near = get_close_matches(str(given), list(dict.fromkeys(known)), n=1, cutoff=0.7)
    return f"Did you mean {near[0]!r}?" if near else otherwise
