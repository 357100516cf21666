"""Radial units: a network that knows rows by their distance to some that it has seen.

Its hidden layer has a unit a center, exp(-distance), its line is the solution of a ridge
regression on them: no steps, no rate, and squares that a wrong label bends little. Distances weigh
each input by how steep a first solution is along it, which is found in two rounds (Radhakrishnan
et al., Mechanism for feature learning in neural networks and backpropagation-free machine learning
models, 2024), so inputs that say nothing stop parting rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from torch import Tensor

from expacc.estimator.inputs import Array
from expacc.training import TensorTable

CENTERS = 512
MOST_ROWS = 12_288  # to solve for; more change little
SLOPE_ROWS = 1000  # at which slopes are taken, of a solution for twice as many
SLOPE_SIGNS = 8  # sums of classes at random, beyond so many of them
ROUNDS = 2
RIDGES = (0.1, 0.5, 2.0, 8.0, 30.0)
SOFT = 1e-4  # added to a squared distance: no kink, and no digits lost, on a center
BLOCK = 4096
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class RadialKind:
    """What distances are made of.

    Args:
        pieces: whether numbers come in pieces, too.
        weighed: whether each input is weighed by its slope.
    """

    pieces: bool
    weighed: bool

    def describe(self) -> dict[str, Any]:
        """For people and for JSON."""
        return {
            "units": "radial",
            "hidden_layer_sizes": [CENTERS],
            "pieces": self.pieces,
            "weighed": self.weighed,
            "loss": "squares",
        }


@dataclass(frozen=True)
class Radial:
    """Units of one kind: (M) factors of the inputs and (m, M) centers in these units."""

    factor: NDArray[np.float32]
    center: NDArray[np.float32]


@dataclass(frozen=True)
class RadialFit:
    """A kind of network, fitted.

    Args:
        radial: its units, those of all rows.
        line: (C, m + 1), from units to logits.
        chances: (n, C), by the network that did not see the row.
    """

    kind: RadialKind
    radial: Radial
    line: NDArray[np.float32]
    chances: Array


def radial_units(inputs: Tensor, factor: Tensor, center: Tensor) -> Tensor:
    """Units (n, m) of inputs (n, M)."""
    scaled = inputs * factor
    squares = (scaled**2).sum(1, keepdim=True) + (center**2).sum(1) - 2 * scaled @ center.t()
    return torch.exp(-torch.sqrt(squares.clamp_min(0) + SOFT))


def fit_radial(
    table: TensorTable,
    weight: Array,
    folds: list[tuple[Rows, ...]],
    kinds: Sequence[RadialKind],
) -> Iterator[RadialFit]:
    """Every kind on every fold and on all rows; held-out rows choose its ridge.

    Args:
        table: inputs in float32 and classes, in an order that means nothing.
        weight: (n), > 0.
        folds: (training rows, held-out rows); each row is held out once.
        kinds: to fit, all with pieces or all without.
    """
    inputs, codes, classes = table.features, table.labels.numpy(), table.classes
    rows = len(codes)
    seen = inputs[:CENTERS]
    target = torch.zeros(rows, classes)
    target[torch.arange(rows), torch.from_numpy(codes)] = 1
    part = torch.from_numpy(weight / weight.mean()).float()
    held_out = {kind: np.empty((len(RIDGES), rows, classes), np.float32) for kind in kinds}
    last: dict[RadialKind, tuple[Tensor, list[Tensor], Tensor]] = {}
    for trained, held in [*folds, (np.arange(rows), np.arange(0))]:
        some = torch.from_numpy(trained[:MOST_ROWS])
        own, mean = part[some], part[some] @ target[some] / part[some].sum()
        wanted = target[some] - mean
        alike = _to_unit(torch.ones(inputs.shape[1]), seen)
        factors = {False: alike}
        if any(kind.weighed for kind in kinds):
            factors[True] = _weighed(inputs[some], seen, own, wanted, alike)
        for kind in kinds:
            factor = factors[kind.weighed]
            lines = _solve(inputs[some], factor, seen, own, wanted, RIDGES)
            stacked = torch.stack(lines).float()
            for low in range(0, len(held), BLOCK):
                block = held[low : low + BLOCK]
                units = radial_units(inputs[torch.from_numpy(block)], factor, seen * factor)
                held_out[kind][:, block] = (units @ stacked + mean).numpy()
            last[kind] = factor, lines, mean
    share = weight / weight.sum()
    for kind in kinds:
        factor, lines, mean = last[kind]
        best, sharpness, chances = _best_ridge(held_out.pop(kind), codes, share)
        line = torch.cat([lines[best].t(), mean[:, None].double()], 1) * sharpness
        yield RadialFit(
            kind,
            Radial(factor.numpy(), (seen * factor).numpy()),
            line.float().numpy(),
            chances,
        )


def _to_unit(factor: Tensor, seen: Tensor) -> Tensor:
    """Factors by which the median distance of two centers is 1."""
    scaled = (seen * factor).double()
    apart = torch.pdist(scaled)
    apart = apart[apart > 0]
    return factor / float(apart.median()) if len(apart) else factor


def _weighed(rows: Tensor, seen: Tensor, weight: Tensor, wanted: Tensor, alike: Tensor) -> Tensor:
    """Factors in proportion to the root mean square slope of the solution along each input."""
    factor, classes = alike, wanted.shape[1]
    rows, weight, wanted = (each[: 2 * SLOPE_ROWS] for each in (rows, weight, wanted))
    for _ in range(ROUNDS):
        line = _solve(rows, factor, seen, weight, wanted, (1.0,))[0].float()
        if classes > SLOPE_SIGNS:  # its mean over signs is the sum over classes
            signs = torch.from_numpy(np.random.default_rng(0).choice([-1.0, 1.0], (classes, 8)))
            line = line @ signs.float()
        some, centers = rows[:SLOPE_ROWS] * factor, seen * factor
        units = radial_units(rows[:SLOPE_ROWS], factor, centers)
        steep = units / -units.clamp_min(1e-30).log()
        squares = torch.zeros(rows.shape[1])
        for one in line.t()[: max(1, line.shape[1] - (classes == 2))]:
            pull = steep * one
            squares += ((pull @ centers - some * pull.sum(1, keepdim=True)) ** 2).mean(0)
        slope = factor * squares.sqrt()
        if not float(slope.max()) > 0:
            break
        factor = _to_unit(factor * slope / slope.max(), seen)
    return factor


def _solve(
    rows: Tensor,
    factor: Tensor,
    seen: Tensor,
    weight: Tensor,
    wanted: Tensor,
    ridges: tuple[float, ...],
) -> list[Tensor]:
    """(m, C) for each ridge: the least weighted squares plus ridge times the squared norm."""
    centers = seen * factor
    among = radial_units(seen, factor, centers).double()
    products = torch.zeros_like(among)
    right = torch.zeros(len(seen), wanted.shape[1], dtype=torch.float64)
    for low in range(0, len(rows), BLOCK):
        units = radial_units(rows[low : low + BLOCK], factor, centers)
        both = (units * weight[low : low + BLOCK, None]).t()
        products += both @ units
        right += both @ wanted[low : low + BLOCK]
    products.diagonal().add_(1e-5 * float(products.diagonal().mean()))
    among.diagonal().add_(1e-4)
    found = []
    for ridge in ridges:
        sums, (lower, failed) = products + ridge * among, (right, 1)
        while failed:  # centers that lie on each other leave less than rounding
            lower, failed = torch.linalg.cholesky_ex(sums)
            sums.diagonal().mul_(1.001)
        found.append(torch.cholesky_solve(right, lower))
    return found


def _best_ridge(found: NDArray[np.float32], codes: Rows, share: Array) -> tuple[int, float, Array]:
    """The ridge that held-out rows prefer, the sharpness of its logits, and its probabilities."""
    rows = np.arange(len(codes))
    tried: list[tuple[float, int, float, Array]] = []
    for place, values in enumerate(found.astype(np.float64)):

        def surprise(log: float, some: Array = values[:BLOCK]) -> float:
            logs = log_softmax(np.exp(log) * some, axis=1)[rows[:BLOCK], codes[:BLOCK]]
            return -float(share[:BLOCK] @ logs)

        sharp = float(np.exp(minimize_scalar(surprise, bounds=(-1, 5), method="bounded").x))
        chances = np.exp(log_softmax(sharp * values, axis=1))
        tried.append((float(share @ score_of(chances, codes)), place, sharp, chances))
    return max(tried, key=lambda one: one[0])[1:]  # of equals the first


def score_of(chances: Array, codes: Rows) -> Array:
    """A row's: right or not, and a little of the confidence, as few rows are often level."""
    own = chances[np.arange(len(codes)), codes]
    found: Array = (chances.argmax(1) == codes) + 0.2 * own
    return found
