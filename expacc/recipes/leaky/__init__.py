"""The leaky expected error, its tables and figures; here what its recipes share.

The losses by the paper's names, the random weights that runs begin with, and the tests by which
losses are told apart: its paired t test, and what it underlines by it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from scipy import stats

from expacc.data import generator
from expacc.recipes.paper import load_paper
from expacc.stats import combined_5x2_f
from expacc.training import Layer, Trained

LOSSES: dict[str, str] = load_paper("leaky")["losses"]  # loss → the paper's name
REFERENCE, PLAIN, LEAKY = LOSSES
LEVEL = 0.05

# fold → error, of one loss; seeds of a fold are averaged before
Errors = Mapping[str, float]


def xavier(widths: Sequence[int], seed: int, *names: str | int) -> Trained:
    """Weights uniform in ±√(6/(inputs + outputs)) of their layer, and biases 0.

    Args:
        widths: inputs, hidden layers, classes.
        seed: the study's.
        names: whose weights they are.

    >>> start = xavier((4, 2), 0, "pima")
    >>> start.layers[0].weight.shape, bool(start.layers[0].weight.abs().max() <= 1)
    (torch.Size([2, 4]), True)
    """
    random = generator(seed, *names, "xavier")
    layers = []
    for into, out in pairwise(widths):
        reach = (6 / (into + out)) ** 0.5
        weight = random.uniform(-reach, reach, (out, into)).astype(np.float32)
        layers.append(Layer(torch.from_numpy(weight), torch.zeros(out)))
    return Trained(tuple(layers))


def paired_t(differences: Sequence[float]) -> float:
    """The two-sided p-value of the ordinary paired t test; 1 where nothing differs.

    >>> round(paired_t([1.0, 2.0, 3.0]), 6)  # t = 2 √3 with 2 degrees of freedom
    0.07418
    """
    values = np.asarray(differences, np.float64)
    if values.size < 2 or not values.any():
        return 1.0
    spread = float(values.std(ddof=1))
    if spread == 0:
        return 0.0
    statistic = float(values.mean()) / (spread / values.size**0.5)
    return float(2 * stats.t.sf(abs(statistic), values.size - 1))


@dataclass(frozen=True)
class Compared:
    """Two losses on the same folds.

    Args:
        difference: mean error of the first less that of the second.
        p_value: of the paired t test.
        strict_p: of the combined 5×2 cv F test; None without five pairs of folds.
        folds: how many both have.
        fewer: on how many of them the first has the smaller error.
    """

    difference: float
    p_value: float
    strict_p: float | None
    folds: int
    fewer: int

    def says(self, *, strict: bool = False) -> str:
        """'win', 'tie' or 'loss' of the first."""
        p_value = self.strict_p if strict else self.p_value
        if p_value is None or p_value >= LEVEL or self.difference == 0:
            return "tie"
        return "win" if self.difference < 0 else "loss"


def compare(first: Errors, second: Errors, test_rows: int) -> Compared | None:
    """Compare errors (in points) on the folds that both have; None with fewer than two."""
    both = sorted(first.keys() & second.keys())
    if len(both) < 2:
        return None
    differences = [first[fold] - second[fold] for fold in both]
    strict = None
    if both == [f"{pair}{half}" for pair in range(1, 6) for half in "ab"]:  # Alpaydin's test
        strict = combined_5x2_f(np.array(differences).reshape(5, 2) / 100, test_rows).p_value
    return Compared(
        difference=float(np.mean(differences)),
        p_value=paired_t(differences),
        strict_p=strict,
        folds=len(both),
        fewer=sum(value < 0 for value in differences),
    )


def underlined(errors: Mapping[str, Errors], test_rows: int) -> tuple[str, ...]:
    """The loss of the smallest mean error, and those that are not told from it by the t test."""
    known = {loss: float(np.mean(list(own.values()))) for loss, own in errors.items() if own}
    if not known:
        return ()
    best = min(known, key=known.__getitem__)
    kept = []
    for loss in known:
        against = compare(errors[loss], errors[best], test_rows) if loss != best else None
        if loss == best or (against is not None and against.p_value >= LEVEL):
            kept.append(loss)
    return tuple(kept)
