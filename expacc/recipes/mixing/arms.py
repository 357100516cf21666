"""The losses of the mixing paper's UCI experiment, epoch by epoch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from expacc.functional.softmax import focus_weights
from expacc.recipes.mixing.paper import CE, CONSTANT, CONTROL, EL, FOCAL, GRADUAL, SWITCH
from expacc.schedules import focus_constant, focus_gradual, focus_switch

__all__ = ["Contender", "contenders", "gradient_volume"]


@dataclass(frozen=True)
class Contender:
    """A loss and its learning rate.

    Args:
        weights: (ce_weight, error_weight) of every epoch; None for the focal loss.
        rates: learning rate of every epoch.
        gamma: of the focal loss.
        alpha: of the focal loss.
    """

    weights: tuple[tuple[float, float], ...] | None
    rates: tuple[float, ...]
    gamma: float = 2.0
    alpha: float = 0.25


# Progress in [0, 1] → ce_weight and error_weight; all but focal are such mixtures (Eq. 12, 14).
_MIXES: dict[str, Callable[[float], tuple[float, float]]] = {
    CE: lambda progress: (1.0, 0.0),
    CONSTANT: lambda progress: focus_weights(focus_constant(progress)),
    SWITCH: lambda progress: focus_weights(focus_switch(progress)),
    GRADUAL: lambda progress: focus_weights(focus_gradual(progress)),
    EL: lambda progress: (0.0, 1.0),
    CONTROL: lambda progress: (1.0, 0.0),
}


def gradient_volume(ce_weight: float, error_weight: float) -> float:
    """The area under the mixture's gradient in the label's own logit, over that of CE.

    Eq. 20 and 21: ∫ |error_weight p² + (ce_weight - error_weight) p - ce_weight| dp, from 0 to 1,
    is ce_weight/2 + error_weight/6, and 1/2 for cross entropy.

    >>> gradient_volume(1, 0), gradient_volume(1, 1.5)
    (1.0, 1.5)
    """
    return ce_weight + error_weight / 3


def contenders(rates: Sequence[float], epochs: int) -> dict[str, list[Contender]]:
    """All seven by name, each with every learning rate.

    The control is cross entropy with the learning rate times the gradient volume that the gradual
    mixture has in the same epoch.
    """
    found = {}
    for name in (CE, CONSTANT, SWITCH, GRADUAL, EL, CONTROL, FOCAL):
        mix = _MIXES.get(name)
        moments = [epoch / epochs for epoch in range(epochs)]
        weights = None if mix is None else tuple(mix(progress) for progress in moments)
        volumes = [1.0] * epochs
        if name == CONTROL:
            volumes = [gradient_volume(*_MIXES[GRADUAL](progress)) for progress in moments]
        found[name] = [
            Contender(weights, tuple(rate * volume for volume in volumes)) for rate in rates
        ]
    return found
