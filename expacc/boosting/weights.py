"""A loss as renewed weights of rows.

A loss of ours is a curve L over c = -log p(label), and nearly all of them are concave in c: what a
row can lose has an end. Then L(c) <= L(c0) + L'(c0)·(c - c0), so whoever lowers cross entropy with
the row weights L'(c0) lowers L, and the weights are renewed where that leads. No second derivative
of L is needed, which is negative wherever a row is on the wrong side.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import logsigmoid

from expacc.registry import REFERENCE, SPECS, list_losses, spec_of
from expacc.registry.spec import MOVES, Pull
from expacc.training import objective_of

Array = NDArray[np.float64]
FARTHEST = 700.0  # of log p/(1 - p): beyond, e to it is no number
_SURE = 36.0  # beyond, 1 - p has no digits beside 1


@dataclass(frozen=True)
class RowWeights:
    """The weights of rows under a loss, from how far their label leads.

    Args:
        pull: -dL/d log p; None for cross entropy, whose weights are 1.
        numbers: of the loss.
    """

    pull: Pull | None
    numbers: Mapping[str, Tensor]

    def of_leads(self, leads: Tensor) -> Tensor:
        """L'(c) of rows with log p/(1 - p) = ``leads``, float64."""
        if self.pull is None:
            return torch.ones_like(leads)
        if not self.numbers.keys() & set(MOVES):
            return self.pull(logsigmoid(leads), self.numbers)
        # As a function of the p' with log p'/(1 - p') = scale · lead + shift.
        scale = self.numbers["scale"]
        moved = leads * scale + self.numbers["shift"]
        further = (logsigmoid(-moved) - logsigmoid(-leads.clamp(max=_SURE))).exp()
        return self.pull(logsigmoid(moved), self.numbers) * scale * further

    def renewed(self, leads: Tensor, share: Tensor | None = None) -> Tensor:
        """The same with mean 1, each row counted as often as ``share`` says.

        Nothing is left to divide by where no row has a weight: then all stay 0.
        """
        found = self.of_leads(leads.clamp(-FARTHEST, FARTHEST))
        mean = found.mean() if share is None else (found * share).sum() / share.sum()
        return found / mean if bool(mean > 0) else found


def row_weights(loss: str, classes: int, loss_params: Mapping[str, Any]) -> RowWeights:
    """The weights that a named loss gives to rows.

    Args:
        loss: a name, or a variant of it, as ``expacc.registry.spec_of`` takes them.
        classes: how many; decides a shift 'auto', and the numbers of papers that chose others for
            many classes.
        loss_params: numbers of the loss.

    Raises:
        TypeError: a number that is none.
        ValueError: an unknown loss or number, or a loss that is not concave in -log p.
    """
    if not isinstance(loss, str):
        raise TypeError(f"loss must be a name of a loss; got {loss!r:.80}.")
    for name, value in loss_params.items():
        if callable(value):
            raise TypeError(
                f"{name} must be a number here, where nobody knows how long training takes; got a "
                "schedule."
            )
    spec = spec_of(loss)
    return _row_weights(loss, classes, tuple({**spec.by_classes(classes), **loss_params}.items()))


@functools.lru_cache(maxsize=256)
def _row_weights(loss: str, classes: int, given: tuple[tuple[str, Any], ...]) -> RowWeights:
    spec = spec_of(loss)
    objective = objective_of(loss, dict(given), classes)
    if spec.name == REFERENCE:
        return RowWeights(None, {})
    at = objective.at(0.0)
    numbers = {name: torch.tensor(value, dtype=torch.float64) for name, value in at.items()}
    if not callable(spec.slope):
        raise _not_concave(loss)
    found = RowWeights(spec.slope, numbers)
    line = found.of_leads(torch.linspace(-60.0, _SURE, 4001, dtype=torch.float64))
    if not bool((line.diff() >= -1e-9 * line.max()).all()):
        raise _not_concave(loss, at)
    return found


def _not_concave(loss: str, numbers: Mapping[str, float] | None = None) -> ValueError:
    others = ", ".join(weighting_losses())
    told = ", ".join(f"{name} {value:g}" for name, value in (numbers or {}).items())
    return ValueError(
        "loss must be a concave curve over -log p, whose rows weigh the less the more they are "
        f"wrong; {loss!r}{told and f' with {told}'} is not. Use one of: {others}."
    )


def weighting_losses() -> tuple[str, ...]:
    """Names of the losses that boosting and reweighting take, with their usual numbers.

    >>> "expected_error" in weighting_losses(), "exact" in weighting_losses()
    (True, False)
    """
    return tuple(name for name in list_losses() if SPECS[name].reweights)
