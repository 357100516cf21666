"""Every method of these recipes: what it is called, and how some of its runs are trained together.

A method is a loss of the paper's Tables 1 and 2, or a variant of one: 'exact: no margin',
'exact: gumbel', 'cross_entropy: normaliser'.
"""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from expacc.data import SealedTest, derive_seed
from expacc.recipes.exact.noise import SampledLoss, loss_at
from expacc.recipes.exact.paper import Settings
from expacc.recipes.exact.protocol import (
    EPOCHS,
    Ready,
    run_of,
    sigma_of,
    train,
    train_by_epochs,
)
from expacc.training import Run, RunResult

__all__ = ["NOISE_METHODS", "SAMPLED", "Regression", "train_method"]

# Variant of EXACT → its noise, and whether it is -log P that is minimised.
NOISE_METHODS = {
    "exact: normal": ("normal", False),
    "exact: gumbel": ("gumbel", False),
    "exact: logistic": ("logistic", False),
    "exact: laplace": ("laplace", False),
    "exact: normal log": ("normal", True),
    "exact: gumbel log": ("gumbel", True),
}
SAMPLED = "exact: sampled"  # the authors' estimate of the gradient in place of the integral

Keyed = Mapping[str, tuple[Ready, Settings]]


def train_method(method: str, runs: Keyed, seed: int, *, device: str = "cpu") -> list[RunResult]:
    """Train the runs of a method together.

    Args:
        method: which.
        runs: key → training rows and settings; rows are the same object for all, or stacked.
        seed: of weights and order; with the key it decides a run.
        device: where to train.
    """
    ready = next(iter(runs.values()))[0]
    if method in NOISE_METHODS:
        noise, log = NOISE_METHODS[method]
        made = [run_of(key, rows, "exact", found) for key, (rows, found) in runs.items()]
        change = loss_at(noise, log, EPOCHS)
        return train_by_epochs(ready, made, seed, change, device=device)
    if method == SAMPLED:
        return _sampled(ready, runs, seed, device)
    made = [run_of(key, rows, method, found) for key, (rows, found) in runs.items()]
    return train(ready, made, seed, device=device)


def _sampled(ready: Ready, runs: Keyed, seed: int, device: str) -> list[RunResult]:
    random = {
        key: torch.Generator(device).manual_seed(derive_seed(seed, key, "samples") % (1 << 31))
        for key in runs
    }
    sigma = sigma_of(EPOCHS)

    def change(run: Run, progress: float) -> Run:
        loss = SampledLoss(sigma(progress), run.numbers["margin"], random[run.key])
        return replace(run, loss=loss, numbers={})

    made = [run_of(key, rows, "exact", found) for key, (rows, found) in runs.items()]
    return train_by_epochs(ready, made, seed, change, device=device)


class Regression:
    """scikit-learn's LogisticRegression as the authors call it.

    Args:
        ready: the training rows; trials are fitted to ``ready.own``.
        regularization: 1/C; 0 for no penalty.
    """

    STEPS = 100_000

    def __init__(self, ready: Ready, regularization: float) -> None:
        from sklearn.linear_model import LogisticRegression

        self.ready = ready
        limit = 1 / regularization if regularization > 0 else np.inf
        self.model = LogisticRegression(C=limit, max_iter=self.STEPS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what it says of its own options
            self.model.fit(self._features(ready.own), ready.rows.labels[ready.own].numpy())

    def _features(self, places: torch.Tensor) -> NDArray[Any]:
        found: NDArray[Any] = self.ready.rows.features[places].double().numpy()
        return found

    def accuracy(self, places: torch.Tensor) -> float:
        """On training rows."""
        predicted = self.model.predict(self._features(places))
        return float((predicted == self.ready.rows.labels[places].numpy()).mean())

    def score(self, test: SealedTest, method: str) -> float:
        """On test rows, once."""

        def predict(features: Any) -> NDArray[np.int64]:
            found = self.model.predict(self.ready.scale(features).double().numpy())
            return np.asarray(found, np.int64)

        return test.score(method, predict).accuracy
