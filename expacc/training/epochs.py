"""The loop of a single network: a step, its evaluation, epochs; everything is checked before."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from expacc.optim import ASAM, GradientNormalizer
from expacc.plain import Report
from expacc.scheduled import ScheduledLoss
from expacc.training.checkpoint import EpochRecord, Position, RunCheckpoint
from expacc.training.complement import ComplementObjective
from expacc.training.graphs import Recorded
from expacc.training.loaders import Batch, Batches, Ranks
from expacc.training.progress import Bar, percent, progress_bar
from expacc.training.randomness import reseed

PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Score:
    """Mean loss and accuracy over the rows so far."""

    loss: float
    accuracy: float


@dataclass(kw_only=True)
class Stepper:
    """Forward, backward and step, in the precision and with the optimiser given.

    Sums stay on the device; nothing here waits for it.
    """

    model: nn.Module
    wrapped: nn.Module
    loss: Loss
    optimizer: Optimizer
    normalizer: GradientNormalizer | None
    complement: ComplementObjective | None
    clip: float | None
    precision: str
    compile: bool
    graphs: bool
    device: torch.device
    ranks: Ranks

    def __post_init__(self) -> None:
        whole = self.wrapped
        self._forward: Callable[[Any], Any] = torch.compile(whole) if self.compile else whole
        self._half = PRECISIONS[self.precision]
        self._recorded: Recorded | None = None
        optimizer = self.optimizer
        self._base = optimizer.base_optimizer if isinstance(optimizer, ASAM) else optimizer
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self._half is torch.float16)

    def zeros(self) -> Tensor:
        """The sums before the first row: loss, correct, counted, rows."""
        wide = torch.float32 if self.device.type == "mps" else torch.float64
        return torch.zeros(4, dtype=wide, device=self.device)

    def step(self, group: list[Batch]) -> Tensor:
        """Move the weights by the mean gradient over a group of batches; return the sums."""
        sums = self._backward(group)
        if isinstance(self.optimizer, ASAM):
            if self.normalizer and not self.scaler.is_enabled():
                self.normalizer.step()
            try:
                self.optimizer.first_step()
                self._backward(group)
            finally:  # an error or Ctrl-C leaves no weights halfway up the climb
                self.optimizer.restore()
        self.scaler.unscale_(self._base)
        if self.normalizer:
            self.normalizer.step()
        elif self.clip is not None:
            groups = self._base.param_groups
            nn.utils.clip_grad_norm_([p for group in groups for p in group["params"]], self.clip)
        self.scaler.step(self._base)
        self.scaler.update()
        self.optimizer.zero_grad()
        if self.complement is not None:
            self._backward(group, self.complement.loss)
            self.complement.follow(self._base)
            self.scaler.step(self.complement.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()
        return sums

    def _backward(self, group: list[Batch], loss: Loss | None = None) -> Tensor:
        """Add the gradient of the mean over all rows of the group, on all ranks."""
        rows = sum(batch.rows for batch in group)
        sums = self.zeros()
        for number, batch in enumerate(group, start=1):
            with self._exchange_of_gradients(number == len(group)):
                logits, value = self._evaluated(self._forward, batch, loss)
                here = len(batch.target)
                # A mean over no rows may be NaN; it must still join the other ranks' backward.
                value = value if here else value.nan_to_num()
                # DDP averages over ranks, so a rank's weight is world · its rows / all rows.
                weighted = value * (here * self.ranks.world / rows)
                self.scaler.scale(weighted).backward()  # type: ignore[no-untyped-call]
            sums += self._sums(logits.detach(), value.detach(), batch)
        self._share_gradients_of_the_loss()
        return sums

    @torch.no_grad()
    def score(self, batches: Iterable[Batch]) -> Score:
        """Evaluate the model, on all ranks together."""
        sums = self.zeros()
        # A forward pass through DDP would talk to the other ranks.
        forward = self._forward if self.wrapped is self.model else self.model
        for batch in batches:
            logits, value = self._evaluated(forward, batch)
            value = value if len(batch.target) else value.nan_to_num()
            sums += self._sums(logits, value, batch)
        return self.read(self.ranks.sum(sums))

    @staticmethod
    def read(sums: Tensor) -> Score:
        """The means, on the host."""
        loss, correct, counted, rows = sums.tolist()
        return Score(loss / max(rows, 1), correct / max(counted, 1))

    def _evaluated(
        self, forward: Callable[[Any], Any], batch: Batch, loss: Loss | None = None
    ) -> tuple[Tensor, Tensor]:
        """Logits in float32 or better, and the loss."""
        if self.graphs and self._recorded is None and self.model.training:
            self._recorded = Recorded(self.model, batch.inputs, self._half)
        recorded = self._recorded if self.model.training else None
        if recorded is not None and recorded.fits(batch.inputs):
            logits = recorded(batch.inputs)
        else:
            with torch.autocast(self.device.type, self._half, enabled=self._half is not None):
                logits = forward(batch.inputs)
        _check_logits(logits, batch.target)
        if logits.dtype.itemsize < 4:
            logits = logits.float()
        value = (loss or self.loss)(logits, batch.target)
        _check_value(value)
        return logits, value

    def _sums(self, logits: Tensor, value: Tensor, batch: Batch) -> Tensor:
        target = batch.target
        here = target.new_full((), len(target), dtype=self.zeros().dtype)
        highest, predicted = logits.max(1)
        labels = target.argmax(1) if target.is_floating_point() else target
        # A NaN beside the other logits is the highest, so it is no hit; labels below 0 are ignored.
        correct = (predicted == labels) & highest.isfinite()
        counted = (labels >= 0).sum()
        return torch.stack([value * here, correct.sum(), counted, here])

    def _exchange_of_gradients(self, last: bool) -> Any:
        if last or not isinstance(self.wrapped, DistributedDataParallel):
            return nullcontext()
        return self.wrapped.no_sync()  # once per step is enough

    def _share_gradients_of_the_loss(self) -> None:
        """Average what DDP does not know: the gradients of the loss's own parameters."""
        if self.ranks.world > 1 and isinstance(self.loss, nn.Module):
            for parameter in self.loss.parameters():
                if parameter.grad is not None:
                    self.ranks.sum(parameter.grad).div_(self.ranks.world)


def _check_logits(logits: object, target: Tensor) -> None:
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        got = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
        raise TypeError(f"model must return logits, a floating-point tensor; got {got}.")
    rows = len(target)
    if logits.ndim < 2 or len(logits) != rows:
        raise ValueError(
            f"model must return logits of shape (rows, classes), here ({rows}, …); "
            f"got {tuple(logits.shape)}."
        )
    labels = logits.shape[:1] + logits.shape[2:]
    if target.shape != (logits.shape if target.is_floating_point() else labels):
        raise ValueError(
            f"target must have shape {tuple(labels)} for labels, or {tuple(logits.shape)} for "
            f"class probabilities, beside these logits; got {tuple(target.shape)}, {target.dtype}."
        )


def _check_value(value: object) -> None:
    if not isinstance(value, Tensor) or value.shape != ():
        got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise TypeError(
            f"loss must return one number, a tensor without axes; got {got}. Use reduction='mean'."
        )


CHECK_EVERY = 50  # steps between two looks at a device's loss: each look waits for the device


@dataclass(kw_only=True)
class NetworkRun(Stepper):
    """A training run, everything checked and in its place."""

    scheduler: LRScheduler | None
    scheduler_every: str
    training: Batches
    validation: Batches | None
    watched: Mapping[str, Batches]
    checkpoint: RunCheckpoint | None = None
    checkpoint_every: int | None
    checkpoint_seconds: float
    epochs: int
    accumulate: int
    keep_best: bool
    patience: int | None
    seed: int
    report: Report | None = None

    def train(
        self, *, resume: bool, progress: bool | Callable[[float], object]
    ) -> tuple[Position, int]:
        """Go on from the checkpoint, or begin; return where it ended and the steps before."""
        position = self._start(resume)
        self._saved_at = time.monotonic()
        before = self.steps_done(position)
        self._tell = progress if callable(progress) else None
        shown = progress is True and self.ranks.leads
        with progress_bar(
            total=self.epochs * self._per_epoch, title="training", enabled=shown, done=before
        ) as bar:
            while position.epoch < self.epochs and not self._out_of_patience(position):
                self._epoch(position, bar)
        self.model.eval()
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
        sums = self.zeros()
        if position.sums is not None and self.ranks.leads:  # they are those of all ranks
            sums += position.sums.to(self.device)
        first_bad = torch.full((), math.inf, device=self.device)
        title = f"epoch {position.epoch + 1}/{self.epochs}"
        self.model.train()

        def reseeded(step: int) -> None:
            key = f"epoch/{position.epoch}/{step}/{self.ranks.rank}"
            reseed(self.seed, key, self.device)

        for group in self.training.groups(
            position.epoch, size=self.accumulate, start=position.step, before=reseeded
        ):
            if isinstance(self.loss, ScheduledLoss):
                share = self.steps_done(position) / (self.epochs * self._per_epoch)
                self.loss.step(min(1.0, share))
            new = self.step(group)
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
            if self._tell is not None:
                self._tell(done / (self.epochs * self._per_epoch))
            if bar.due(done):
                bar.update(done, title, **_known(self.read(sums), position))

        self._check_finite(first_bad)
        sums = self.ranks.sum(sums)
        if sums[3] == 0:
            raise ValueError(
                f"loaders must give the batches that their length says, {len(self.training)}; "
                f"got none."
            )
        score = self.read(sums)
        self._close_epoch(position, score, started)
        bar.update(self.steps_done(position), title, **_known(score, position))

    def _close_epoch(self, position: Position, score: Score, started: float) -> None:
        found = None
        if self.validation is not None:
            self.model.eval()
            found = self.score(self.validation.epoch(0))
        self.model.eval()
        watched = {name: self.score(rows.epoch(0)) for name, rows in self.watched.items()}
        record = EpochRecord(
            epoch=position.epoch + 1,
            loss=score.loss,
            accuracy=score.accuracy,
            validation_loss=found.loss if found else None,
            validation_accuracy=found.accuracy if found else None,
            seconds=time.perf_counter() - started,
            watched={name: one.accuracy for name, one in watched.items()},
        )
        position.history.append(record)
        position.epoch, position.step = record.epoch, 0
        if self.report is not None and self.ranks.leads:
            self.report(self.steps_done(position), self._numbers(record))
        position.sums, position.seconds = None, 0.0
        if self.keep_best and position.best_epoch() == record.epoch:
            position.best = {
                name: value.detach().cpu().clone() if isinstance(value, Tensor) else value
                for name, value in self.model.state_dict().items()
            }
        if isinstance(self.scheduler, ReduceLROnPlateau):
            self.scheduler.step((found or score).loss)
        elif self.scheduler is not None and self.scheduler_every == "epoch":
            self.scheduler.step()
        if time.monotonic() - self._saved_at >= self.checkpoint_seconds:
            self._save(position)

    def _numbers(self, record: EpochRecord) -> dict[str, float]:
        """What a tracker is told of an epoch; by now no rate or number of the next."""
        found = {
            "train/loss": record.loss,
            "train/accuracy": record.accuracy,
            "validation/loss": record.validation_loss,
            "validation/accuracy": record.validation_accuracy,
            "learning_rate": float(self._base.param_groups[0]["lr"]),
        }
        if isinstance(self.loss, ScheduledLoss):
            found |= {f"loss/{name}": getattr(self.loss, name) for name in self.loss.schedules}
        return {name: float(value) for name, value in found.items() if value is not None}

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
            self._saved_at = time.monotonic()


def _known(score: Score, position: Position) -> dict[str, float | str]:
    """What the bar tells, the most wanted first."""
    last = position.history[-1].validation_accuracy if position.history else None
    validation = {} if last is None else {"validation": percent(last, 1)}
    return {"accuracy": score.accuracy, **validation, "loss": score.loss}
