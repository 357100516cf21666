"""What the search may try: every loss the same number of trials, the shared numbers in common.

Trial t has the same learning rate and weight decay for every loss (EXACT a part of the rate), so
that no loss is lucky; the numbers of its own come from the same low-discrepancy sequence. Trial 0
is a default that is good on most tables: for most losses as strong a weight decay as scikit-learn's
logistic regression has.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scipy.stats import qmc

from expacc.data import derive_seed
from expacc.registry import SPECS
from expacc.registry.spec import Range

__all__ = ["Trial", "trials_of"]

_RATES = {"linear": (0.02, 1.0, 0.2), "mlp": (0.001, 0.03, 0.01)}
_DECAYS = (1e-6, 3e-3, 1e-5)
_MOST_DECAY = 10.0  # over the rows: ten times what is usual, for tables of a few


@dataclass(frozen=True)
class Trial:
    """One setting of a loss.

    Args:
        number: which, from 0.
        found: the searched numbers, for the record.
        loss_params: as ``Run`` takes them.
    """

    number: int
    found: Mapping[str, float]
    loss_params: Mapping[str, Any]

    @property
    def learning_rate(self) -> float:
        """Of Adam, at the start."""
        return self.found["learning_rate"]

    @property
    def weight_decay(self) -> float:
        """L2, on the weights."""
        return self.found["weight_decay"]


def _place(share: float | None, low: float, high: float, usual: float) -> float:
    """A number between low and high by equal ratios; the usual one for None. Four digits."""
    return float(f"{usual if share is None else low * (high / low) ** share:.4g}")


def trials_of(
    loss: str, model: str, count: int, seed: int, name: str, rows: int, classes: int
) -> list[Trial]:
    """The trials of a loss; ``name`` (of table and fold) and ``seed`` decide the draws.

    ``rows`` is how many there are to train on: weight decay is usual at one part in them. Two
    classes have two vectors of weights here where scikit-learn has their difference, and so twice.
    """
    spec = SPECS[loss]
    ranges: dict[str, Range] = {
        "learning_rate": _RATES[model],
        "weight_decay": _DECAYS,
        **spec.search,
    }
    if model == "linear":
        low, high, little = _DECAYS
        first = little if spec.regularizes else (2 if classes == 2 else 1) / rows
        ranges["weight_decay"] = low, max(high, _MOST_DECAY / rows), first
    # The first two coordinates are the shared numbers: alike for every loss.
    sequence = qmc.Halton(d=5, scramble=True, rng=derive_seed(seed, name, "search"))
    points = sequence.random(count)
    trials = []
    for number in range(count):
        found = {}
        for place, (title, (low, high, usual)) in enumerate(ranges.items()):
            factor = spec.rate_factor.get(model, 1.0) if title == "learning_rate" else 1.0
            share = None if number == 0 else points[number, place]
            first = usual(rows) if callable(usual) else usual
            found[title] = _place(share, low * factor, high * factor, first * factor)
        own = {name: found[name] for name in spec.search}
        trials.append(Trial(number, found, spec.params_of(own)))
    return trials
