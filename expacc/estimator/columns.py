"""From columns as people have them to what a small network can learn from.

A number becomes a number of about unit size, whose far ends are drawn in; a column of few values
and a category get an input for each value, in the column's case for what is nearest to it, as the
next table may be rounded otherwise; a missing value has an input of its own. For networks
that want it each number also comes in pieces: how far it has gone through each eighth of the rows,
by which a straight layer can bend (Gorishniy et al., On embeddings for numerical features, 2022).
What is fitted are quantiles and values of the training rows, a row of weight k as k copies.
"""

from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from expacc.estimator.inputs import Array

FEW = 12  # different values of a column, up to which each has an input
MOST_LEVELS = 64  # of a category, the most frequent ones
MOST_INPUTS = 4096  # for values and pieces each: a wide table has fewer of them
PIECES = 8
FARTHEST = 1.7e308  # where the values of a column end: in float32 that is infinity
BLOCK = 4096  # rows turned at once

Places = NDArray[np.int64]


@dataclass(frozen=True)
class Columns:
    """How features (n, F) become inputs: numbers, values, missing ones, then pieces of numbers.

    Args:
        numbers: columns that are numbers, with their ``center`` and ``scale``.
        valued: columns that have an input for a value, from ``least`` to below ``most``.
        missing: columns with an input for missing values.
        pieced: columns with an input for the way from ``low`` to ``high``.
    """

    numbers: Places
    center: Array
    scale: Array
    valued: Places
    least: Array
    most: Array
    missing: Places
    pieced: Places
    low: Array
    high: Array

    @classmethod
    def fit(cls, features: Array, weight: Array, categorical: NDArray[np.bool_]) -> "Columns":
        """Look at the training rows (n, F), of weights (n) > 0."""
        center, scale = np.zeros(features.shape[1]), np.ones(features.shape[1])
        numbers, missing, levels, many = [], [], [], []
        for place, column in enumerate(features.T):
            known = ~np.isnan(column)
            if not known.all():
                missing.append(place)
            values, group = np.unique(column[known], return_inverse=True)
            counts = np.bincount(group, weight[known], len(values)).astype(np.float64)
            if categorical[place]:
                frequent = np.sort(np.argsort(-counts, kind="stable")[:MOST_LEVELS])
                gap = min(1.0, np.diff(values).min(initial=1.0)) / 4
                levels.append((place, np.stack([values - gap, values + gap])[:, frequent]))
                continue
            if len(values) < 2:
                continue
            numbers.append(place)
            quarter, middle, three = _quantiles(values, counts, np.array([0.25, 0.5, 0.75]))
            spread = (three - quarter) / 1.35  # of a normal column, its standard deviation
            center[place] = middle
            scale[place] = spread if spread > 0 else (values[-1] - values[0]) / 2
            if 2 < len(values) <= FEW:
                between = values[1:] / 2 + values[:-1] / 2
                ends = np.concatenate([[-FARTHEST], between, [FARTHEST]])
                levels.append((place, np.stack([ends[:-1], ends[1:]])))
            elif len(values) > FEW:
                many.append((place, values, counts))
        while sum(ends.shape[1] for _, ends in levels) > MOST_INPUTS:
            levels.pop(int(np.argmax([ends.shape[1] for _, ends in levels])))
        least, most = np.concatenate([np.zeros((2, 0)), *(ends for _, ends in levels)], axis=1)
        count = min(PIECES, MOST_INPUTS // max(1, len(many)))
        pieces = []
        for place, values, counts in many if count > 1 else ():
            edges = np.unique(_quantiles(values, counts, np.linspace(0, 1, count + 1)))
            pieces += [(place, *pair) for pair in pairwise(edges)]
        pieced, low, high = (
            (np.array(part) for part in zip(*pieces, strict=True)) if pieces else (np.zeros(0),) * 3
        )
        kept = np.array(numbers, np.int64)
        return cls(
            numbers=kept,
            center=center[kept],
            scale=scale[kept],
            valued=np.repeat(*_lengths(levels)),
            least=least,
            most=most,
            missing=np.array(missing, np.int64),
            pieced=pieced.astype(np.int64),
            low=low.astype(np.float64),
            high=high.astype(np.float64),
        )

    @property
    def plain(self) -> int:
        """Inputs without the pieces."""
        return len(self.numbers) + len(self.valued) + len(self.missing)

    @property
    def inputs(self) -> int:
        """All of them."""
        return self.plain + len(self.pieced)

    def transform(self, features: Array) -> NDArray[np.float32]:
        """Inputs (n, ``inputs``) of features (n, F)."""
        found = np.empty((len(features), self.inputs), np.float32)
        ends = np.cumsum([len(part) for part in (self.numbers, self.valued, self.missing)])
        for low in range(0, len(features), BLOCK):
            rows, out = features[low : low + BLOCK], found[low : low + BLOCK]
            with np.errstate(over="ignore"):  # a number beyond the largest is at its far end
                far = (rows[:, self.numbers] - self.center) / self.scale
                out[:, : ends[0]] = np.nan_to_num(far / np.hypot(1, far / 3), nan=0.0)
                valued = rows[:, self.valued]
                out[:, ends[0] : ends[1]] = (valued >= self.least) & (valued < self.most)
                out[:, ends[1] : ends[2]] = np.isnan(rows[:, self.missing])
                way = (rows[:, self.pieced] - self.low) / (self.high - self.low)
                out[:, ends[2] :] = np.nan_to_num(np.clip(way, 0, 1) - 0.5, nan=0.0)
        return found

    def tensors(self) -> dict[str, Array]:
        """What ``fit`` found, by name, for files."""
        return {each.name: np.asarray(getattr(self, each.name)) for each in fields(self)}

    def module(self, dtype: torch.dtype) -> nn.Module:
        """The same as a Module, from features to inputs."""
        return _ColumnsModule(self, dtype)


def _lengths(levels: list[tuple[int, Array]]) -> tuple[Places, Places]:
    places = np.array([place for place, _ in levels], np.int64)
    return places, np.array([ends.shape[1] for _, ends in levels], np.int64)


def _quantiles(values: Array, counts: Array, shares: Array) -> Array:
    """The least value with such a share of the weight at or below it."""
    below = np.cumsum(counts)
    # Weights are sums, so a share that is met may be missed by rounding.
    found: Array = values[np.searchsorted(below, shares * below[-1] * (1 - 1e-12))]
    return found


class _ColumnsModule(nn.Module):
    """``Columns.transform`` in torch's operations, for ``to_torch`` and its exports."""

    def __init__(self, columns: Columns, dtype: torch.dtype) -> None:
        super().__init__()
        for name, values in columns.tensors().items():
            tensor = torch.from_numpy(np.array(values))
            self.register_buffer(name, tensor.to(dtype) if tensor.is_floating_point() else tensor)

    def forward(self, features: Tensor) -> Tensor:
        """Inputs (n, M) of features (n, F)."""
        part: dict[str, Tensor] = dict(self.named_buffers())
        gaps = torch.isnan(features)
        features = torch.where(gaps, torch.zeros_like(features), features)

        def known(name: str, of: Tensor) -> Tensor:
            return torch.where(gaps[:, part[name]], torch.zeros_like(of), of)

        far = (features[:, part["numbers"]] - part["center"]) / part["scale"]
        way = (features[:, part["pieced"]] - part["low"]) / (part["high"] - part["low"])
        valued = features[:, part["valued"]]
        there = (valued >= part["least"]) & (valued < part["most"])
        return torch.cat(
            [
                known("numbers", far / torch.sqrt(1 + (far / 3) ** 2)),
                known("valued", there.to(features.dtype)),
                gaps[:, part["missing"]].to(features.dtype),
                known("pieced", way.clamp(0, 1) - 0.5),
            ],
            dim=1,
        )
