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
from expacc.schedules import focus_gradual, geometric

__all__ = ["Trial", "trials_of"]

# name → (low, high, usual): searched on a logarithmic scale; the first trial takes the usual.
_OWN: dict[str, dict[str, tuple[float, float, float]]] = {
    "leaky_expected_error": {"leak": (0.01, 1.0, 0.1)},
    "hinge": {"margin": (0.1, 5.0, 1.0)},
    "focal": {"gamma": (0.5, 4.0, 2.0)},
    "generalized_cross_entropy": {"q": (0.1, 1.0, 0.7)},
    "tamed_cross_entropy": {"taming": (0.2, 1.5, 0.8)},
    "poly1_cross_entropy": {"epsilon": (0.3, 5.0, 1.0)},
}
_RATES = {"linear": (0.02, 1.0, 0.2), "mlp": (0.001, 0.03, 0.01)}
# EXACT divides its logits by their deviation, so its weights stay small, and so must its steps.
_SLOWER = {"linear": 0.05, "mlp": 0.2}
_DECAYS = (1e-6, 3e-3, 1e-5)
_MOST_DECAY = 10.0  # over the rows: ten times what is usual, for tables of a few
_FIRST_SIGMA = 10.0
# EXACT's margin is its regulariser, and the usual one falls as one part in the rows, too: on rows
# held out of the training parts of small UCI tables 0.3 was best below 250 rows, 0.05 up to 1,000.
_MARGINS, _MARGIN_ROWS, _USUAL_MARGINS = (0.02, 1.0), 60.0, (0.05, 0.3)
_LAST_SIGMAS, _SIGMAS_IN_A_MARGIN = (0.001, 0.1), 25.0


@dataclass(frozen=True)
class Trial:
    """One setting of a loss.

    Args:
        number: which, from 0.
        found: the searched numbers, for the record.
        numbers: of the loss, as ``Run`` takes them.
    """

    number: int
    found: Mapping[str, float]
    numbers: Mapping[str, Any]

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
    own = _exact(rows) if loss == "exact" else _OWN.get(loss, {})
    ranges = {"learning_rate": _RATES[model], "weight_decay": _DECAYS, **own}
    if model == "linear":
        low, high, usual = _DECAYS
        usual = usual if loss == "exact" else (2 if classes == 2 else 1) / rows
        ranges["weight_decay"] = low, max(high, _MOST_DECAY / rows), usual
    # The first two coordinates are the shared numbers: alike for every loss.
    sequence = qmc.Halton(d=5, scramble=True, rng=derive_seed(seed, name, "search"))
    points = sequence.random(count)
    trials = []
    for number in range(count):
        found = {}
        for place, (title, (low, high, usual)) in enumerate(ranges.items()):
            slow = loss == "exact" and title == "learning_rate"
            slower = _SLOWER[model] if slow else 1.0
            share = None if number == 0 else points[number, place]
            found[title] = _place(share, low * slower, high * slower, usual * slower)
        trials.append(Trial(number, found, _numbers(loss, found)))
    return trials


def _exact(rows: int) -> dict[str, tuple[float, float, float]]:
    least, most = _USUAL_MARGINS
    margin = min(max(_MARGIN_ROWS / rows, least), most)
    sigma = margin / _SIGMAS_IN_A_MARGIN
    return {"margin": (*_MARGINS, margin), "last_sigma": (*_LAST_SIGMAS, sigma)}


def _numbers(loss: str, found: Mapping[str, float]) -> dict[str, Any]:
    own = {name: found[name] for name in found.keys() - {"learning_rate", "weight_decay"}}
    if loss == "exact":
        return {"sigma": geometric(_FIRST_SIGMA, own.pop("last_sigma")), **own}
    if loss == "mixed_expected_error":
        return {"focus": focus_gradual}
    return own
