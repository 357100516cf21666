"""Runs that differ in loss and learning rate alone, trained in lockstep on the same batches.

``train_runs`` gives every run its own rows in its own order. Here all contenders of a fold and seed
start from the same weights and see the same batches, as in the paper: a batch is gathered once, and
the first layer of all contenders is one product.

Shapes: G groups (a fold and a seed), K contenders, C classes, B rows, F features and a constant 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from expacc.recipes.mixing.arms import Contender
from expacc.recipes.mixing.steps import Steps, Weights
from expacc.training import Model, TensorTable, Trained
from expacc.training.layers import Network
from expacc.training.randomness import seed_of, shuffled, stream_keys

__all__ = ["Group", "Outcome", "groups_at_once", "train_in_lockstep"]

# Bytes of weights, velocities and rates to train at once: what the caches of a CPU hold.
_CPU_MEMORY, _GPU_MEMORY = 12 << 20, 8 << 30


@dataclass(frozen=True)
class Group:
    """A fold with a seed.

    Args:
        name: decides the first weights and the order of rows.
        rows: to train on, int64 numbers.
        held: to select the best epoch by.
    """

    name: str
    rows: Tensor
    held: Tensor


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Args:
        model: the weights of its best epoch; None if it diverged.
        best_epoch: the last of those with the highest accuracy on the held rows, from 1.
        validation: that accuracy.
        diverged: the epoch in which its weights were no longer finite; None for a good run.
    """

    model: Trained | None
    best_epoch: int
    validation: float
    diverged: int | None


def train_in_lockstep(
    rows: TensorTable,
    groups: Sequence[Group],
    contenders: Sequence[Contender],
    *,
    hidden: int,
    batch: int,
    epochs: int,
    seed: int,
    device: str = "cpu",
) -> list[list[Outcome]]:
    """Train every contender on every group with SGD, momentum 0.9; one list per group.

    Args:
        rows: features and labels that groups name rows of.
        groups: what to train on.
        contenders: what to train.
        hidden: width of the hidden layer; 0 for a linear model.
        batch: rows a step; the last batch of an epoch may be short.
        epochs: passes over the rows.
        seed: of everything random, with the groups' names.
        device: where to train.
    """
    place = torch.device(device)
    features = torch.nn.functional.pad(rows.features, (0, 1), value=1.0).to(place)
    ready = TensorTable(features, rows.labels.to(place), rows.classes)
    network = Network(Model((hidden,) if hidden else ()), rows.features.shape[1], rows.classes)
    at_once = groups_at_once(network.size, len(contenders), device)
    # Those with more rows first: the others sit out the last steps of an epoch.
    order = sorted(range(len(groups)), key=lambda number: -len(groups[number].rows))
    found: dict[int, list[Outcome]] = {}
    with torch.no_grad():
        for low in range(0, len(order), at_once):
            part = order[low : low + at_once]
            chosen = [groups[number] for number in part]
            outcomes = _train(ready, chosen, contenders, network, batch, epochs, seed)
            found.update(zip(part, outcomes, strict=True))
    return [found[number] for number in range(len(groups))]


def groups_at_once(weights: int, contenders: int, device: str = "cpu") -> int:
    """How many groups train together, for so many weights a run."""
    each = 3 * 4 * contenders * weights  # bytes of weights, velocities and rates
    budget = _CPU_MEMORY if torch.device(device).type == "cpu" else _GPU_MEMORY
    return max(1, budget // each)


def _train(
    rows: TensorTable,
    groups: Sequence[Group],
    contenders: Sequence[Contender],
    network: Network,
    batch: int,
    epochs: int,
    seed: int,
) -> list[list[Outcome]]:
    """Train groups, the one with the most rows first."""
    place = rows.features.device
    seeds = torch.tensor([seed_of(seed, group.name) for group in groups], device=place)
    weights = Weights(network, network.start(seeds, rows.features.dtype), len(contenders))
    steps = Steps(rows, weights, contenders, epochs, batch)
    lengths = [len(group.rows) for group in groups]
    table = torch.zeros(len(groups), lengths[0], dtype=torch.int64)
    for number, group in enumerate(groups):
        table[number, : lengths[number]] = group.rows
    table, column = table.to(place), torch.tensor(lengths, device=place).unsqueeze(1)
    held = [group.held.to(place) for group in groups]
    best = _Best(weights, len(groups), len(contenders))
    for epoch in range(epochs):
        keys = stream_keys(seeds, "order", epoch)
        steps.epoch(epoch, shuffled(keys, table, column), lengths)
        best.look(epoch + 1, [weights.accuracy(rows, g, chosen) for g, chosen in enumerate(held)])
    return best.outcomes()


class _Best:
    """The weights of every run's best epoch, kept on the device.

    Args:
        weights: of all runs, which training moves.
        groups: how many.
        contenders: how many.
    """

    def __init__(self, weights: Weights, groups: int, contenders: int) -> None:
        self.weights, self.kept = weights, [block.clone() for block in weights.blocks]
        like = weights.blocks[0]
        self.score = torch.full((groups, contenders), -1.0, device=like.device, dtype=like.dtype)
        self.epoch = torch.zeros(groups, contenders, dtype=torch.int64, device=like.device)
        self.diverged = torch.zeros_like(self.epoch)

    def look(self, epoch: int, accuracies: Sequence[Tensor]) -> None:
        """Note the end of an epoch, from 1; ``accuracies`` are (K), one for each group."""
        score = torch.stack(list(accuracies))
        finite = self.weights.finite()
        self.diverged.masked_fill_(~finite & (self.diverged == 0), epoch)
        better = finite & (score >= self.score)  # the last of equals, as the paper's code has it
        self.score = torch.where(better, score, self.score)
        self.epoch.masked_fill_(better, epoch)
        for kept, block in zip(self.kept, self.weights.blocks, strict=True):
            kept.copy_(torch.where(self.weights.spread(better), block, kept))

    def outcomes(self) -> list[list[Outcome]]:
        """One list per group."""
        models = self.weights.models(self.kept)
        score, epoch, diverged = (t.tolist() for t in (self.score, self.epoch, self.diverged))
        return [
            [
                Outcome(
                    None if diverged[g][k] else models[g][k],
                    epoch[g][k],
                    score[g][k],
                    diverged[g][k] or None,
                )
                for k in range(len(score[g]))
            ]
            for g in range(len(score))
        ]
