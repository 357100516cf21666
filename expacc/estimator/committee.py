"""Fitted networks that vote with their probabilities: for NumPy, as one Module."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from expacc.estimator.columns import Columns
from expacc.estimator.inputs import Array
from expacc.estimator.radial import Radial, radial_units

BLOCK = 1024  # rows that networks see at once


@dataclass(frozen=True)
class Members:
    """Networks of one shape side by side.

    Args:
        pieces: whether they see numbers in pieces, too.
        weights: (R, out, in + 1) a layer.
        radial: the units that the first of them sees, if it is not the inputs.
        votes: of each network.
    """

    pieces: bool
    weights: tuple[NDArray[np.float32], ...]
    radial: Radial | None = None
    votes: int = 1


@dataclass(frozen=True)
class Committee:
    """Fitted networks that vote with their probabilities."""

    columns: Columns
    members: tuple[Members, ...]

    def log_probabilities(self, features: Array) -> Array:
        """(n, C): the logarithm of the mean probability.

        Rows go through in blocks of one size, so that none depends on its company.
        """
        found = []
        with torch.no_grad():
            for low in range(0, max(1, len(features)), BLOCK):
                inputs = self.columns.transform(features[low : low + BLOCK])
                rows = len(inputs)
                padded = np.zeros((BLOCK, inputs.shape[1]), np.float32)
                padded[:rows] = inputs
                found.append(self._vote(torch.from_numpy(padded))[:rows])
        logs: Array = torch.cat(found).numpy()
        return logs

    def _vote(self, inputs: Tensor) -> Tensor:
        total, count = torch.zeros(()), 0
        for group in self.members:
            seen = inputs if group.pieces else inputs[:, : self.columns.plain]
            if group.radial is not None:
                parts = group.radial.factor, group.radial.center
                seen = radial_units(seen, *map(torch.from_numpy, parts))
            logits = evaluate([torch.from_numpy(each) for each in group.weights], seen)
            total = total + group.votes * torch.softmax(logits.double(), 1).sum(0).t()
            count += group.votes * len(logits)
        return torch.log((total / count).clamp_min(1e-300))


def evaluate(weights: Sequence[Tensor], inputs: Tensor) -> Tensor:
    """Logits (R, C, n) of inputs (n, M) under every network's weights (R, out, in + 1)."""
    signal = inputs.t()
    for place, weight in enumerate(weights):
        signal = signal.relu() if place else signal
        if signal.ndim == 2:  # a matrix times one matrix is one product for all networks
            flat = weight[:, :, :-1].flatten(0, 1) @ signal
            signal = flat.view(*weight.shape[:2], -1) + weight[:, :, -1:]
        else:
            signal = torch.baddbmm(weight[:, :, -1:], weight[:, :, :-1], signal)
    return signal


def committee_module(committee: Committee, dtype: torch.dtype) -> nn.Module:
    """A Module from features to the logarithms of the mean probabilities."""
    return _CommitteeModule(committee, dtype).eval()


class _CommitteeModule(nn.Module):
    def __init__(self, committee: Committee, dtype: torch.dtype) -> None:
        super().__init__()
        self.columns = committee.columns.module(dtype)
        self.plain = committee.columns.plain
        self.groups = [
            (group.pieces, len(group.weights), group.radial is not None, group.votes)
            for group in committee.members
        ]
        for number, group in enumerate(committee.members):
            parts = {str(place): weight for place, weight in enumerate(group.weights)}
            if group.radial is not None:
                parts |= {"factor": group.radial.factor, "center": group.radial.center}
            for name, part in parts.items():
                self.register_buffer(f"group_{number}_{name}", torch.tensor(part, dtype=dtype))

    def forward(self, features: Tensor) -> Tensor:
        """(n, C) of features (n, F)."""
        inputs = self.columns(features)
        known: dict[str, Tensor] = dict(self.named_buffers())
        total, count = inputs.new_zeros(()), 0
        for number, (pieces, layers, radial, votes) in enumerate(self.groups):
            seen = inputs if pieces else inputs[:, : self.plain]
            if radial:
                seen = radial_units(
                    seen, known[f"group_{number}_factor"], known[f"group_{number}_center"]
                )
            weights = [known[f"group_{number}_{place}"] for place in range(layers)]
            total = total + votes * torch.softmax(evaluate(weights, seen), 1).sum(0).t()
            count += votes * len(weights[0])
        return torch.log((total / count).clamp_min(torch.finfo(total.dtype).tiny))
