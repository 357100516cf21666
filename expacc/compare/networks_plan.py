"""A study of one's own network, planned: all that a run needs to know, and which runs there are."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from expacc.compare.networks_data import Labels, NetworkRows
from expacc.compare.networks_noise import Noise, Parts, parts_of
from expacc.compare.record import RUN
from expacc.compare.serialize import row_of
from expacc.report.words import NULL, REFERENCE, STOPPED
from expacc.runner.items import WorkItem
from expacc.runner.rows import Row
from expacc.training import Augment

# Of the learning rate, in the order of the trials: the first is what the optimiser was made with.
FACTORS = (1.0, 0.5, 2.0, 0.25, 4.0, 0.125, 8.0)


@dataclass(frozen=True, eq=False)
class Plan:
    """All that a run needs to know.

    Attributes:
        build: makes a network.
        losses: name → name or function.
        train: rows of training, and of testing by folds.
        test: rows of testing; None tests by folds.
        folds: name → training rows and test rows, by number.
        labels: the given label of every row, those of training first.
        noises: by share.
        optimizer: makes one for a network.
        schedule: share of training done → factor of the learning rate.
        classes, epochs, batch, trials, validation, seed: as asked for.
        device, precision, augment, graphs, compile: how ``fit`` is called.
        folder: of the study.
        checkpoints: whether runs can go on after a kill.
        side_by_side: runs at a time.
    """

    build: Callable[[], nn.Module]
    losses: Mapping[str, Any]
    train: NetworkRows
    test: NetworkRows | None
    folds: Mapping[str, tuple[Labels, Labels]]
    labels: Labels
    noises: Mapping[float, Noise]
    optimizer: Callable[[nn.Module], torch.optim.Optimizer]
    schedule: Callable[[float], float]
    classes: int
    epochs: int
    batch: int
    trials: int
    validation: float
    seed: int
    device: torch.device
    precision: Any
    augment: Augment | None
    graphs: bool
    compile: bool
    folder: Path
    checkpoints: bool
    side_by_side: int = 1
    lock: threading.Lock = field(default_factory=threading.Lock)  # global generators, building

    @property
    def channels_last(self) -> bool:
        """Whether pictures lie in memory as tensor cores want them."""
        return self.device.type == "cuda" and self.train.pictures

    def parts(self, fold: str, noise: float, seed: str) -> Parts:
        """What a seed trains on: the same for every loss."""
        name = f"{fold}/{noise:g}/{seed}"
        return parts_of(
            fold,
            self.folds[fold][0],
            self.labels[: len(self.train)],
            self.noises[noise],
            classes=self.classes,
            share=self.validation,
            seed=self.seed,
            name=name,
        )


def items_of(table: str, plan: Plan, seeds: int) -> list[WorkItem]:
    """An item for each run: the trials of every loss, then its final runs, and the null row's."""
    items = []
    for noise in plan.noises:
        for fold in plan.folds:
            asked = {"table": table, "fold": fold, "noise": noise, "seed": plan.seed}
            runs = [
                ("trial", loss, place)
                for place in range(plan.trials if plan.trials > 1 else 0)
                for loss in plan.losses
            ]
            runs += [
                ("final", loss, seed) for seed in range(seeds) for loss in (*plan.losses, NULL)
            ]
            for kind, loss, place in runs:
                key = f"{table}|{noise:g}|{fold}|{RUN}|{kind}|{loss}|{place}"
                items.append(WorkItem(key, {**asked, "kind": kind, "loss": loss, "place": place}))
    return items


def failed_runs(item: WorkItem, reason: str) -> list[Row]:
    """The rows of a run that gave none."""
    asked = item.payload
    rows = [row_of(item, asked["kind"], asked["loss"], asked["place"], failure=reason)]
    if asked["kind"] == "final" and asked["loss"] == REFERENCE:
        rows.append(row_of(item, "final", STOPPED, asked["place"], failure=reason))
    return rows
