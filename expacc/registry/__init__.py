"""Every loss told once: its names, formula and source, its looks, what to search, its slope.

The Modules, the batched trainer, ``compare``, the estimators, the benchmarks, the figure and
``docs/losses.md`` all read this list. To add a loss: a function in ``functional/``, a ``LossSpec``
in ``ours.py``, ``tasks.py`` or ``rivals.py``, a row in ``tests/losses.py``, and
``python docs/write_losses.py``.

Reading the list needs no torch: functions and Modules are imported when they are asked for.
"""

import inspect
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from expacc.registry.ours import OURS
from expacc.registry.rivals import CLASSIC, ROBUST
from expacc.registry.spec import REFERENCE, LossSpec
from expacc.registry.tasks import TASKS

if TYPE_CHECKING:
    from torch import nn

__all__ = ["REFERENCE", "SPECS", "LossSpec", "get_loss", "list_losses"]

_ALL = (*OURS, *TASKS, *ROBUST, *CLASSIC)
SPECS: Mapping[str, LossSpec] = {spec.name: spec for spec in _ALL}
_ALIASES = {spec.function_name: spec.name for spec in _ALL}


def list_losses() -> tuple[str, ...]:
    """Names of the losses of (logits, target), cross entropy first.

    Returns:
        What ``get_loss``, ``expacc.training.Run`` and ``expacc compare --losses`` take.

    Example:
        >>> list_losses()[:3]
        ('cross_entropy', 'exact', 'leaky_expected_error')
    """
    return tuple(spec.name for spec in _ALL if not spec.needs)


def get_loss(name: str, **arguments: Any) -> "nn.Module":
    """Make a loss Module from its name, as a line of a configuration file would.

    Args:
        name: one of ``list_losses()``, a binary one, or 'max_mahalanobis_center'.
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
        cure = _nearest(name, [*SPECS, *_ALIASES], f"Names: {', '.join(list_losses())}.")
        raise ValueError(f"name must be a loss of expacc; got {name!r}. {cure}")
    if spec.module is None:
        raise ValueError(
            f"name must be a loss of logits and labels; got {name!r}, which needs {spec.needs}. "
            f"Call expacc.functional.{spec.function_name}."
        )
    known = list(inspect.signature(spec.module).parameters)
    for argument in arguments:
        if argument not in known:
            cure = _nearest(argument, known, f"It takes: {', '.join(known)}.")
            raise TypeError(f"arguments must be those of {name}; got {argument!r}. {cure}")
    return spec.module(**arguments)


def _nearest(given: object, known: Iterable[str], otherwise: str) -> str:
    near = get_close_matches(str(given), list(dict.fromkeys(known)), n=1, cutoff=0.7)
    return f"Did you mean {near[0]!r}?" if near else otherwise
