"""Who votes: many small networks trained at once, stopped, chosen, averaged.

Each candidate, from a line to two layers, is trained on every fold's other rows: cross entropy
first, the expected error then; those of radial units are solved for. The rows that a network did
not see say when its kind is to stop and how good it is; the best kind and all that held-out rows
hardly tell from it vote with their probabilities. So no single row of wrong label, fold or
setting decides.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from expacc.estimator.calibration import Calibration, fit_calibration
from expacc.estimator.columns import Columns
from expacc.estimator.committee import Committee, Members
from expacc.estimator.inputs import Array, Prepared
from expacc.estimator.radial import RadialFit, RadialKind, fit_radial, score_of
from expacc.training import Layer, Model, Run, TensorTable, TrainConfig, Trained, train_runs

LEARNING_RATE = 0.006
LOOKS = 10  # how often a candidate may stop, evenly over its training
NEAR = 1.5  # standard errors from the best, within which a kind votes
JUDGES = 4096  # rows of a fold, at most, that say when


# Parameters of one model's training: as they are where networks vote.
WHERE_THEY_VOTE: dict[str, Any] = {
    **{"hidden_layer_sizes": "auto", "effort": "full", "loss_params": None, "guard": True},
    **dict.fromkeys(("loss", "epochs", "learning_rate", "batch_size"), "auto"),
    **{"weight_decay": 1.0, "dropout": 0.0},
}


def networks_vote(value_of: Callable[[str], Any]) -> bool:
    """Whether parameters leave it to us what is trained."""
    for name, usual in WHERE_THEY_VOTE.items():
        value = value_of(name)
        if type(value) is not type(usual) or value != usual:
            return False
    return True


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
CANDIDATES: tuple[Candidate | RadialKind, ...] = (
    Candidate((), True, 0.3, 0.02),
    Candidate((64,), False, None, 0.3),
    Candidate((128,), True, 0.3, 2.0, 0.3),
    Candidate((128, 128), False, None, 0.3, 0.3),
    RadialKind(pieces=False, weighed=False),
    RadialKind(pieces=False, weighed=True),
    RadialKind(pieces=True, weighed=False),
    RadialKind(pieces=True, weighed=True),
)


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
    chosen: tuple[Candidate | RadialKind, ...]
    held_out: list[tuple[dict[str, Any], float]]


@dataclass(frozen=True)
class _Judged:
    """A candidate at its best moment."""

    candidate: Candidate | RadialKind
    network: tuple[Trained, ...] | RadialFit  # one a fold, or one of all rows
    chances: Array  # (n, C), of the fold that did not see the row
    right: Array  # (n), 0 or 1
    score: float

    @classmethod
    def of(cls, candidate: Any, network: Any, chances: Array, codes: Any, part: Array) -> "_Judged":
        """With what held-out rows, of these shares of the weight, say."""
        right = (chances.argmax(1) == codes).astype(np.float64)
        return cls(candidate, network, chances, right, float(part @ score_of(chances, codes)))


def fit_committee(
    prepared: Prepared,
    folds: list[tuple[NDArray[np.int64], ...]],
    classes: int,
    categorical: NDArray[np.bool_],
    *,
    candidates: Sequence[Candidate | RadialKind] | None = None,
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
        if isinstance(alike[0], RadialKind):
            judged += [
                _Judged.of(fit.kind, fit, fit.chances, prepared.codes, part)
                for fit in fit_radial(table, prepared.weight, folds, alike)
            ]
            continue
        found = _train(table, alike, folds, steps, seed, device, progress)
        for candidate, moments in zip(alike, found, strict=True):
            if moments is not None:
                judged.append(_judge(candidate, moments, table, folds, part))
    if not judged:
        raise FloatingPointError(
            "X must allow a network to train on it; every one diverged. Standardise X."
        )
    voters = _near_the_best(judged, part)
    logits = np.log(np.maximum(sum(each.chances for each in voters) / len(voters), 1e-300))
    return CommitteeFit(
        Committee(columns, _members(voters, len(folds))),
        fit_calibration(logits, prepared.codes, prepared.weight),
        logits,
        tuple(each.candidate for each in voters),
        [(each.candidate.describe(), float(part @ each.right)) for each in judged],
    )


def _alike(candidates: Sequence[Candidate | RadialKind]) -> list[list[Any]]:
    """Those that can train as one program."""
    groups: dict[object, list[Any]] = {}
    for each in candidates:
        shape = (each.hidden, each.dropout) if isinstance(each, Candidate) else ()
        groups.setdefault((shape, each.pieces), []).append(each)
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
    """The moment that held-out rows prefer, some of them where there are many."""
    codes = table.labels.numpy()
    some = np.concatenate([held[:JUDGES] for _, held in folds])
    scores = [
        float(part[some] @ score_of(_held_out(networks, table, folds, JUDGES)[some], codes[some]))
        for networks in moments
    ]
    networks = moments[int(np.argmax(scores))]
    return _Judged.of(candidate, networks, _held_out(networks, table, folds), codes, part)


def _held_out(
    networks: tuple[Trained, ...],
    table: TensorTable,
    folds: list[tuple[NDArray[np.int64], ...]],
    most: int | None = None,
) -> Array:
    """(n, C), of the first ``most`` rows of each fold the probabilities."""
    chances = np.zeros((len(table.labels), table.classes))
    for network, (_, held) in zip(networks, folds, strict=True):
        rows = held[:most]
        logits = network.logits(table.features[torch.from_numpy(rows)])
        chances[rows] = torch.softmax(logits.double(), 1).numpy()
    return chances


def _near_the_best(judged: list[_Judged], part: Array) -> list[_Judged]:
    """The best, and whoever is within so many standard errors, and half a row, of it."""
    best = max(judged, key=lambda each: each.score)
    count = 1 / (part @ part)  # of rows, as far as their weights are equal
    near = []
    for each in judged:
        lead = best.right - each.right
        mean = part @ lead
        if mean <= NEAR * np.sqrt(part @ (lead - mean) ** 2 / count) + 0.5 / count:
            near.append(each)
    return near


def _members(voters: list[_Judged], folds: int) -> tuple[Members, ...]:
    """Every kind with as many votes: a network a fold, or one of so many."""
    groups: dict[tuple[object, ...], list[Trained]] = {}
    found = []
    for each in voters:
        if isinstance(each.network, RadialFit):
            line = each.network.line[None]
            found.append(Members(each.candidate.pieces, (line,), each.network.radial, folds))
        else:
            shape = [len(layer.bias) for layer in each.network[0].layers]
            groups.setdefault((each.candidate.pieces, *shape), []).extend(each.network)
    for (pieces, *_), networks in groups.items():
        layers = zip(*(network.layers for network in networks), strict=True)
        found.append(Members(bool(pieces), tuple(map(_side_by_side, layers))))
    return tuple(found)


def _side_by_side(layers: Sequence[Layer]) -> NDArray[np.float32]:
    """(R, out, in + 1)."""
    whole = [torch.cat([layer.weight, layer.bias[:, None]], 1) for layer in layers]
    return torch.stack(whole).float().numpy()
