"""Losses by name, or of the user's own, as a network in training calls them."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from expacc.compare.settings import NEVER_ALONE
from expacc.plain import UsageError, check_choice
from expacc.registry import choose_losses, list_losses, spec_of
from expacc.report.words import NULL, OUTSIDE, REFERENCE, STOPPED
from expacc.scheduled import ScheduledLoss
from expacc.schedules import sigma_vision

Loss = Callable[[Tensor, Tensor], Tensor]
DEFAULT = (
    REFERENCE,
    "leaky_expected_error",
    "mixed_expected_error",
    "expected_error",
    "generalized_cross_entropy",
)
# EXACT on pictures, as its paper trains it, with normalised gradients.
_VISION: Mapping[str, Any] = {"sigma": sigma_vision, "margin": 5.0, "standardize": True}


def read_losses(losses: Sequence[str] | Mapping[str, Any] | str) -> dict[str, Any]:
    """Name → how it is made, cross entropy first; what is asked for is made once, to see that it
    can be.

    Raises:
        UsageError: an unknown name, or what is no loss.
    """
    given = {losses: losses} if isinstance(losses, str) else losses
    if not isinstance(given, Mapping):
        names = [name for word in given for name in ([word] if ":" in word else _chosen(word))]
        given = {name: name for name in names}
    found: dict[str, Any] = {REFERENCE: REFERENCE}
    for name, loss in given.items():
        if not isinstance(name, str) or not name or set(name) & set("|/\n"):
            raise UsageError(f"losses must have plain names, without | and /; got {name!r}.")
        if name in (*OUTSIDE, STOPPED, NULL):
            raise UsageError(f"losses must have names of their own; got {name!r}, which is taken.")
        if not isinstance(loss, str) and not callable(loss):
            raise UsageError(
                f"losses must be names or functions of (logits, target); got {name!r}: {loss!r}."
            )
        found[name] = loss
        try:
            make_loss(loss, 10)
        except (ValueError, TypeError) as error:
            raise UsageError(str(error)) from None
    if len(found) < 2:
        raise UsageError(
            "losses must name at least one beside cross entropy; got none. "
            "Use losses=['leaky_expected_error']."
        )
    return found


def _chosen(word: str) -> tuple[str, ...]:
    try:
        return choose_losses([word])
    except ValueError as error:
        raise UsageError(str(error)) from None


def make_loss(loss: str | Loss, classes: int) -> tuple[Loss, bool]:
    """The loss with the numbers that a network from random weights wants, and whether its gradients
    are normalised.

    Args:
        loss: a name of the registry, perhaps with numbers fixed, or a function.
        classes: how many there are.

    Example:
        >>> make_loss("leaky_expected_error", 10)
        (LeakyExpectedErrorLoss(leak=0.1), False)
    """
    if not isinstance(loss, str):
        return (copy.deepcopy(loss) if isinstance(loss, nn.Module) else loss), False
    spec = spec_of(loss)
    check_choice("losses", spec.base, tuple(n for n in list_losses() if n != NEVER_ALONE))
    if spec.module is None:
        raise UsageError(f"losses must be Modules to train with; got {loss!r}.")
    exact = spec.base == "exact"
    # What the name fixes stays; what a search would move stays at its usual value.
    fixed = {setting.partition("=")[0] for setting in loss.split(":")[1:]}
    searched = {name: middle for name, (_, _, middle) in spec.search.items()}
    usual = {**spec.defaults, **spec.options}
    usual |= {} if exact else {**spec.params_of(searched), **spec.by_classes(classes)}
    usual |= {name: value for name, value in _VISION.items() if exact and name not in fixed}
    schedules = {name: value for name, value in usual.items() if callable(value)}
    module = spec.module(**{name: v for name, v in usual.items() if name not in schedules})
    return (ScheduledLoss(module, **schedules) if schedules else module), exact


def check_loss_value(loss: Loss, name: str, logits: Tensor, target: Tensor) -> None:
    """Raise unless a loss gives one number for a batch."""
    try:
        with torch.no_grad():
            value = loss(logits, target)
    except Exception as error:
        raise UsageError(
            f"losses must be functions of (logits, target); {name!r} fails with "
            f"{type(error).__name__}: {str(error)[:200]}"
        ) from None
    if not isinstance(value, Tensor) or value.shape != ():
        got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise UsageError(
            f"losses must return the mean over rows, one number; {name!r} gives {got}."
        )
