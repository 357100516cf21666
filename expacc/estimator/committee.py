"""Many small networks as one tensor program, and what becomes of them: stopped, chosen, averaged.

Each candidate, from a line to 128 units with much or little weight decay, is trained on every
fold's other rows: cross entropy first, the expected error then. The rows that a network did not
see say when its kind is to stop and how good it is; the best kind and all that are within a
standard error of it vote with their probabilities. So no single row of wrong label, fold or
setting decides, and nothing is fitted twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from expacc.estimator.calibration import Calibration, fit_calibration
from expacc.estimator.columns import Columns
from expacc.estimator.inputs import Array, Prepared
from expacc.training import Model, Run, TensorTable, TrainConfig, Trained, train_runs

LEARNING_RATE = 0.006
LOOKS = 10  # how often a candidate may stop, evenly over its training
BLOCK = 1024  # rows that networks see at once


@dataclass(frozen=True)
class Candidate:
    """A kind of network.

    Args:
        hidden: widths of its layers.
        pieces: whether numbers come in pieces, too.
        error_from: the share of training after which the expected error takes over; None for a
            gradual change, 1.0 for cross entropy alone.
        weight_decay: decoupled, by the learning rate.
        dropout: of hidden units.
    """

    hidden: tuple[int, ...]
    pieces: bool
    error_from: float | None
    weight_decay: float
    dropout: float = 0.0

    def describe(self) -> dict[str, Any]:
        """For people and for JSON."""
        names = {None: "cross entropy to expected error", 1.0: "cross entropy"}
        return {
            "hidden_layer_sizes": list(self.hidden),
            "pieces": self.pieces,
            "loss": names.get(self.error_from, "expected error after cross entropy"),
            "weight_decay": self.weight_decay,
            "dropout": self.dropout,
        }


# Chosen on the larger of the 40 tables for building in benchmarks/splits.json (docs/classifier.md).
CANDIDATES = (
    Candidate((), True, 0.3, 0.02),
    Candidate((64,), False, None, 0.3),
    Candidate((128,), True, 0.3, 2.0, 0.3),
    Candidate((128,), True, 0.3, 6.0, 0.3),
    Candidate((256,), False, 1.0, 2.0, 0.3),
    Candidate((128, 128), False, None, 0.3, 0.3),
)


@dataclass(frozen=True)
class Members:
    """Networks of one shape side by side: ``weights`` are (R, out, in + 1) a layer."""

    pieces: bool
    weights: tuple[NDArray[np.float32], ...]


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
            logits = evaluate([torch.from_numpy(each) for each in group.weights], seen)
            total = total + torch.softmax(logits.double(), 1).sum(0).t()
            count += len(logits)
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
        self.kinds = [(group.pieces, len(group.weights)) for group in committee.members]
        for number, group in enumerate(committee.members):
            for place, weight in enumerate(group.weights):
                self.register_buffer(f"weight_{number}_{place}", torch.tensor(weight, dtype=dtype))

    def forward(self, features: Tensor) -> Tensor:
        """(n, C) of features (n, F)."""
        inputs = self.columns(features)
        known: dict[str, Tensor] = dict(self.named_buffers())
        chances = []
        for number, (pieces, layers) in enumerate(self.kinds):
            seen = inputs if pieces else inputs[:, : self.plain]
            weights = [known[f"weight_{number}_{place}"] for place in range(layers)]
            chances.append(torch.softmax(evaluate(weights, seen), 1))
        mean = torch.cat(chances).mean(0).t()
        return torch.log(mean.clamp_min(torch.finfo(mean.dtype).tiny))


@dataclass(frozen=True)
class CommitteeFit:
    """A committee, its calibration, and what held-out rows said.

    Args:
        logits: (n, C) of every row from the networks that did not see it.
        chosen: the candidates that vote.
        held_out: accuracy on held-out rows of every candidate.
    """

    committee: Committee
    calibration: Calibration
    logits: Array
    chosen: tuple[Candidate, ...]
    held_out: list[tuple[dict[str, Any], float]]


@dataclass(frozen=True)
class _Judged:
    """A candidate at its best moment."""

    candidate: Candidate
    networks: tuple[Trained, ...]  # by fold
    chances: Array  # (n, C), of the fold that did not see the row
    right: Array  # (n), 0 or 1
    score: float


def fit_committee(
    prepared: Prepared,
    folds: list[tuple[NDArray[np.int64], ...]],
    classes: int,
    categorical: NDArray[np.bool_],
    *,
    candidates: Sequence[Candidate] | None = None,
    steps: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    progress: bool = False,
) -> CommitteeFit:
    """Train every candidate on every fold, and let those vote that held-out rows prefer.

    Args:
        prepared: distinct rows.
        folds: (training rows, held-out rows); each row is held out once.
        classes: how many.
        categorical: (F), which columns are categories.
        candidates: kinds of networks; None for the usual ones.
        steps: of training; None for as many as suit the number of rows.
        seed: of starts, orders and dropout.
        device: where to train.
        progress: show a bar, for fits of over two seconds.

    Raises:
        FloatingPointError: every candidate diverged.
    """
    part = prepared.weight / prepared.weight.sum()
    columns = Columns.fit(prepared.features, prepared.weight, categorical)
    inputs = torch.from_numpy(columns.transform(prepared.features))
    weight = None if bool((prepared.weight == 1).all()) else torch.from_numpy(prepared.weight)
    judged: list[_Judged] = []
    for alike in _alike(candidates or CANDIDATES):
        seen = inputs if alike[0].pieces else inputs[:, : columns.plain]
        table = TensorTable(seen, torch.from_numpy(prepared.codes), classes, weight)
        found = _train(table, alike, folds, steps, seed, device, progress)
        for candidate, networks in zip(alike, found, strict=True):
            if networks is not None:
                judged.append(_judge(candidate, networks, table, folds, part))
    if not judged:
        raise FloatingPointError(
            "X must allow a network to train on it; every one diverged. Standardise X."
        )
    voters = _near_the_best(judged, part)
    logits = np.log(np.maximum(sum(each.chances for each in voters) / len(voters), 1e-300))
    return CommitteeFit(
        Committee(columns, _members(voters)),
        fit_calibration(logits, prepared.codes, prepared.weight),
        logits,
        tuple(each.candidate for each in voters),
        [(each.candidate.describe(), float(part @ each.right)) for each in judged],
    )


def _alike(candidates: Sequence[Candidate]) -> list[list[Candidate]]:
    """Those that can train as one program."""
    groups: dict[object, list[Candidate]] = {}
    for each in candidates:
        groups.setdefault((each.hidden, each.pieces, each.dropout), []).append(each)
    return list(groups.values())


def training_length(rows: int) -> tuple[int, int]:
    """Steps and rows a step: 1,000 of 128; fewer on small tables, more of both on large ones."""
    batch = max(16, min(128, rows // 4)) if rows < 20_000 else 512
    return round(min(1500, max(400, 1000 * (rows / 1500) ** 0.5))), batch


def _rate(progress: float) -> float:
    """Of learning: up in the first twentieth, then down along a cosine."""
    falling = 0.05 + 0.475 * (1 + float(np.cos(np.pi * progress)))
    return LEARNING_RATE * falling * min(1.0, 0.2 + 16 * progress)


def _weights_of(error_from: float | None) -> dict[str, Callable[[float], float]]:
    """Of cross entropy and the expected error, whose slope is a third as steep at its steepest."""
    if error_from is None:
        return {"ce_weight": lambda t: 1 - t, "error_weight": lambda t: 3 * t}
    return {
        "ce_weight": lambda t: float(t < error_from),
        "error_weight": lambda t: 3.0 * (t >= error_from),
    }


def _train(
    table: TensorTable,
    candidates: list[Candidate],
    folds: list[tuple[NDArray[np.int64], ...]],
    steps: int | None,
    seed: int,
    device: str,
    progress: bool,
) -> list[list[tuple[Trained, ...]] | None]:
    """By candidate and moment its network of each fold; None if one diverged."""
    usual, batch = training_length(min(len(rows) for rows, _ in folds))
    shift = {"shift": "auto"} if table.classes > 10 else {}
    runs = [
        Run(
            f"{candidate} {fold}",
            torch.from_numpy(rows),
            loss="mixed_expected_error",
            loss_params={**_weights_of(candidate.error_from), **shift},
            learning_rate=_rate,
            weight_decay=candidate.weight_decay,
            betas=(0.9, 0.99),
        )
        for candidate in candidates
        for fold, (rows, _) in enumerate(folds)
    ]
    first = candidates[0]
    config = TrainConfig(
        Model(first.hidden, hidden_dropout=first.dropout),
        "adamw",
        batch=batch,
        epochs=2 * LOOKS,
        steps=-(-(steps or usual) // (2 * LOOKS)),
        keep="every",
        every=2,
        seed=seed,
    )
    results = train_runs(table, runs, config, device=device, progress=progress)
    found: list[list[tuple[Trained, ...]] | None] = []
    for low in range(0, len(runs), len(folds)):
        own = results[low : low + len(folds)]
        moments = list(zip(*(result.every for result in own), strict=False))
        failed = any(result.failed_step is not None for result in own)
        found.append(None if failed else moments)
    return found


def _judge(
    candidate: Candidate,
    moments: list[tuple[Trained, ...]],
    table: TensorTable,
    folds: list[tuple[NDArray[np.int64], ...]],
    part: Array,
) -> _Judged:
    """The moment with the highest accuracy on held-out rows, and a little of its confidence."""
    codes = table.labels.numpy()
    rows = np.arange(len(codes))

    def at(networks: tuple[Trained, ...]) -> _Judged:
        chances = np.empty((len(codes), table.classes))
        for network, (_, held) in zip(networks, folds, strict=True):
            logits = network.logits(table.features[torch.from_numpy(held)])
            chances[held] = torch.softmax(logits.double(), 1).numpy()
        right = (chances.argmax(1) == codes).astype(np.float64)
        # Accuracies of few rows are often level; confidence parts them.
        score = float(part @ (right + 0.2 * chances[rows, codes]))
        return _Judged(candidate, networks, chances, right, score)

    best = at(moments[0])
    for networks in moments[1:]:  # one at a time: their chances are as many as the table's cells
        found = at(networks)
        best = found if found.score > best.score else best
    return best


def _near_the_best(judged: list[_Judged], part: Array) -> list[_Judged]:
    """The best, and whoever is within a standard error of the difference."""
    best = max(judged, key=lambda each: each.score)
    count = 1 / (part @ part)  # of rows, as far as their weights are equal
    near = []
    for each in judged:
        lead = best.right - each.right
        mean = part @ lead
        if mean <= np.sqrt(part @ (lead - mean) ** 2 / count):
            near.append(each)
    return near


def _members(voters: list[_Judged]) -> tuple[Members, ...]:
    groups: dict[tuple[object, ...], list[Trained]] = {}
    for each in voters:
        key = (each.candidate.pieces, each.candidate.hidden)
        groups.setdefault(key, []).extend(each.networks)
    return tuple(
        Members(
            bool(pieces),
            tuple(
                np.stack(
                    [
                        np.concatenate([layer.weight.numpy(), layer.bias.numpy()[:, None]], 1)
                        for layer in layers
                    ]
                ).astype(np.float32)
                for layers in zip(*(network.layers for network in networks), strict=True)
            ),
        )
        for (pieces, _), networks in groups.items()
    )
