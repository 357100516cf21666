"""Honest probabilities: one temperature, found on held-out rows, that no argmax notices."""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

__all__ = ["expected_calibration_error", "fit_temperature", "probabilities"]

Array = NDArray[np.float64]


def fit_temperature(logits: Array, codes: NDArray[np.int64], weight: Array) -> float:
    """The T whose softmax(logits / T) has the least weighted cross entropy, in [1e-3, 1e3]."""

    def cross_entropy(log_inverse: float) -> float:
        scaled = log_softmax(logits * np.exp(log_inverse), axis=1)
        return float(-(scaled[np.arange(len(codes)), codes] * weight).sum() / weight.sum())

    bound = np.log(1e3)
    found = minimize_scalar(
        cross_entropy, bounds=(-bound, bound), method="bounded", options={"xatol": 1e-10}
    )
    return float(np.exp(-found.x))


def probabilities(logits: Array, temperature: float) -> Array:
    """softmax(logits / temperature), (n, C)."""
    scaled: Array = softmax(logits / temperature, axis=1)
    return scaled


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
