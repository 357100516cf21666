"""The loop of a single network: steps, epochs, checkpoints; everything is checked before."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from expacc.scheduled import ScheduledLoss
from expacc.training.distributed import Ranks
from expacc.training.loaders import Batches
from expacc.training.progress import Bar, percent, progress_bar
from expacc.training.randomness import reseed
from expacc.training.resume import EpochRecord, Position, RunCheckpoint
from expacc.training.stepping import Score, Stepper

__all__ = ["NetworkRun"]

CHECK_EVERY = 50  # steps between two looks at a device's loss: each look waits for the device


@dataclass
class NetworkRun:
    """A training run, everything checked and in its place."""

    stepper: Stepper
    loss: Callable[[Tensor, Tensor], Tensor]
    scheduler: LRScheduler | None
    scheduler_every: str
    training: Batches
    validation: Batches | None
    checkpoint: RunCheckpoint | None
    checkpoint_every: int | None
    epochs: int
    accumulate: int
    keep_best: bool
    patience: int | None
    seed: int
    device: torch.device
    ranks: Ranks

    def train(self, *, resume: bool, progress: bool) -> tuple[Position, int]:
        """Go on from the checkpoint, or begin; return where it ended and the steps before."""
        position = self._start(resume)
        before = self.steps_done(position)
        shown = progress and self.ranks.leads
        with progress_bar(
            total=self.epochs * self._per_epoch, title="training", enabled=shown, done=before
        ) as bar:
            while position.epoch < self.epochs and not self._out_of_patience(position):
                self._epoch(position, bar)
        if self.keep_best and position.best is not None:
            self.stepper.model.load_state_dict(position.best)
        self.stepper.model.eval()
        self.ranks.meet()  # the last checkpoint is in place when any rank goes on
        return position, before

    def steps_done(self, position: Position) -> int:
        """Optimiser steps from the very start to the position."""
        return position.epoch * self._per_epoch + position.step

    @property
    def _per_epoch(self) -> int:
        return math.ceil(len(self.training) / self.accumulate)

    def _out_of_patience(self, position: Position) -> bool:
        best = position.best_epoch()
        return (
            self.patience is not None
            and best is not None
            and (position.epoch - best >= self.patience)
        )

    def _start(self, resume: bool) -> Position:
        position = None
        if self.checkpoint is not None:
            self.checkpoint.prepare()
            position = self.checkpoint.load() if resume else None
        position = position or Position()
        done = self.steps_done(position)
        ends = self.ranks.least(torch.tensor([done, -done], device=self.device)).tolist()
        if ends[0] != -ends[1]:
            raise ValueError(
                f"checkpoint must be a folder that all ranks see; got {ends[0]} steps done on one "
                f"rank and {-ends[1]} on another."
            )
        return position

    def _epoch(self, position: Position, bar: Bar) -> None:
        """Train from the position to the end of its epoch, and record the epoch."""
        started = time.perf_counter() - position.seconds
        sums = self.stepper.zeros()
        if position.sums is not None and self.ranks.leads:  # they are those of all ranks
            sums += position.sums.to(self.device)
        first_bad = torch.full((), math.inf, device=self.device)
        title = f"epoch {position.epoch + 1}/{self.epochs}"
        self.stepper.model.train()

        def reseeded(step: int) -> None:
            key = f"epoch/{position.epoch}/{step}/{self.ranks.rank}"
            reseed(self.seed, key, self.device)

        for group in self.training.groups(
            position.epoch, size=self.accumulate, start=position.step, before=reseeded
        ):
            if isinstance(self.loss, ScheduledLoss):
                share = self.steps_done(position) / (self.epochs * self._per_epoch)
                self.loss.step(min(1.0, share))
            new = self.stepper.step(group)
            if self.scheduler is not None and self.scheduler_every == "step":
                self.scheduler.step()
            position.step += 1
            done = self.steps_done(position)
            sums += new
            first_bad = first_bad.minimum(torch.where(new[0].isfinite(), math.inf, done))
            save = self.checkpoint_every is not None and done % self.checkpoint_every == 0
            if save or done % self._check_every == 0:
                self._check_finite(first_bad)
            if save:
                position.sums = self.ranks.sum(sums.clone())
                position.seconds = time.perf_counter() - started
                self._save(position)
            if bar.due(done):
                bar.update(done, title, **_known(self.stepper.read(sums), position))

        self._check_finite(first_bad)
        sums = self.ranks.sum(sums)
        if sums[3] == 0:
            raise ValueError(
                f"loaders must give the batches that their length says, {len(self.training)}; "
                f"got none."
            )
        score = self.stepper.read(sums)
        self._close_epoch(position, score, started)
        bar.update(self.steps_done(position), title, **_known(score, position))

    def _close_epoch(self, position: Position, score: Score, started: float) -> None:
        found = None
        if self.validation is not None:
            self.stepper.model.eval()
            found = self.stepper.score(self.validation.epoch(0))
        record = EpochRecord(
            epoch=position.epoch + 1,
            loss=score.loss,
            accuracy=score.accuracy,
            validation_loss=found.loss if found else None,
            validation_accuracy=found.accuracy if found else None,
            seconds=time.perf_counter() - started,
        )
        position.history.append(record)
        position.epoch, position.step = record.epoch, 0
        position.sums, position.seconds = None, 0.0
        if self.keep_best and position.best_epoch() == record.epoch:
            position.best = {
                name: value.detach().cpu().clone() if isinstance(value, Tensor) else value
                for name, value in self.stepper.model.state_dict().items()
            }
        if isinstance(self.scheduler, ReduceLROnPlateau):
            self.scheduler.step((found or score).loss)
        elif self.scheduler is not None and self.scheduler_every == "epoch":
            self.scheduler.step()
        self._save(position)

    @property
    def _check_every(self) -> int:
        return 1 if self.device.type == "cpu" and self.ranks.world == 1 else CHECK_EVERY

    def _check_finite(self, first_bad: Tensor) -> None:
        step = self.ranks.least(first_bad.clone()).item()
        if step < math.inf:
            kept = (
                f" The last checkpoint stays in {self.checkpoint.path}." if self.checkpoint else ""
            )
            raise FloatingPointError(
                f"loss must be finite; got a loss that is not at step {step:.0f}. Lower the "
                f"learning rate, or use a normalizer or clip.{kept}"
            )

    def _save(self, position: Position) -> None:
        if self.checkpoint is not None and self.ranks.leads:
            self.checkpoint.save(position)


def _known(score: Score, position: Position) -> dict[str, float | str]:
    """What the bar tells, the most wanted first."""
    last = position.history[-1].validation_accuracy if position.history else None
    validation = {} if last is None else {"validation": percent(last, 1)}
    return {"accuracy": score.accuracy, **validation, "loss": score.loss}
