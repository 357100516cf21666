"""Logistic regressions that differ in loss and learning rate alone, trained in lockstep.

They start from the same weights and see the same rows in the same order, so that a batch is
gathered once and multiplied with the weights of all. ``train_runs`` does neither, and keeps no
weights along the way, which curves on sealed test rows need: all epochs are scored at the end.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from expacc.training import Model, Run, TensorTable, Trained
from expacc.training.batches import Batches
from expacc.training.layers import Network
from expacc.training.optimizers import BatchedOptimizer
from expacc.training.randomness import seed_of

__all__ = ["WEIGHTS", "Contender", "Course", "flushing", "train_in_lockstep"]

# All three are ce_weight · (-log p) + error_weight · (1 - p), Eq. 5 and 6.
WEIGHTS = {
    "cross_entropy": (1.0, 0.0),
    "expected_error": (0.0, 1.0),
    "leaky_expected_error": (0.1, 1.0),
}


@dataclass(frozen=True)
class Contender:
    """A loss and its learning rate."""

    loss: str
    learning_rate: float


@dataclass
class Course:
    """How one of them went, epoch by epoch.

    Args:
        norms: the mean over the epoch's rows of ‖dL/dlogits‖, at the weights of their step.
        train: accuracy on the training rows at the end of the epoch; empty unless asked for.
        held: accuracy on the held-out rows.
        models: the weights of every epoch if asked for, else those of the best.
        best_epoch: the first of the highest accuracy on held-out rows, or the last; from 1.
        stopped: whether patience ended it.
        diverged: the epoch in which weights were no longer finite; None for a good run.
    """

    norms: list[float] = field(default_factory=list)
    train: list[float] = field(default_factory=list)
    held: list[float] = field(default_factory=list)
    models: list[Trained] = field(default_factory=list)
    best_epoch: int = 0
    stopped: bool = False
    diverged: int | None = None


@contextmanager
def flushing() -> Iterator[None]:
    """Take numbers below 1e-38 for 0 in this block, as GPUs do.

    A saturated softmax leaves many of them, and a processor multiplies them a hundred times as
    slowly as others.
    """
    before = float(torch.full((1,), 2.0**-126) / 2) == 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def train_in_lockstep(
    rows: TensorTable,
    train: Tensor,
    held: Tensor | None,
    contenders: Sequence[Contender],
    start: Trained,
    *,
    key: str,
    batch: int,
    epochs: int,
    patience: int | None = None,
    every_epoch: bool = False,
    seed: int = 0,
    device: str = "cpu",
) -> list[Course]:
    """Train linear models with Adam; one course for each contender.

    Args:
        rows: features and labels.
        train: numbers of the rows to train on.
        held: numbers of the rows to watch, for patience; None for none.
        contenders: what differs.
        start: the weights they all begin with.
        key: names the order of the rows, with the seed.
        batch: rows a step.
        epochs: at most.
        patience: epochs without a better accuracy on held-out rows before one stops.
        every_epoch: keep the weights of all epochs, and watch the training rows, too.
        seed: the study's.
        device: where to train.
    """
    with torch.no_grad(), flushing():
        bench = _Bench(rows, train, contenders, start, key, batch, seed, device)
        courses = [Course() for _ in contenders]
        for epoch in range(epochs):
            bench.epoch(epoch, courses)
            _look(bench, courses, train, held, every_epoch)
            going = _going(bench, courses, held, patience)
            if not going:
                break
            if len(going) < len(bench.alive):
                bench.keep(going)
    return courses


class _Bench:
    """The weights of those that still train, (L, P), and what moves them."""

    def __init__(
        self,
        rows: TensorTable,
        train: Tensor,
        contenders: Sequence[Contender],
        start: Trained,
        key: str,
        batch: int,
        seed: int,
        device: str,
    ) -> None:
        # The constant 1 feeds the biases.
        features = torch.nn.functional.pad(rows.features, (0, 1), value=1.0).to(device)
        self.rows = TensorTable(features, rows.labels.to(device), rows.classes)
        self.network = Network(Model(), rows.features.shape[1], rows.classes)
        one = torch.zeros(1, self.network.size, dtype=features.dtype)
        self.network.put(start, one[0])
        self.theta = one.to(device).repeat(len(contenders), 1)
        runs = [Run(key, train) for _ in contenders]
        seeds = torch.tensor([seed_of(seed, key)], device=features.device)
        self.batches = Batches(self.rows, runs[:1], seeds, batch, None)
        decays = self.network.decays(features.device, features.dtype)
        self.descent = BatchedOptimizer("adam", runs, decays)

        def column(numbers: list[float]) -> Tensor:
            return torch.tensor(numbers, dtype=features.dtype, device=features.device)

        self.rates = column([one.learning_rate for one in contenders]).unsqueeze(1)
        weights = [WEIGHTS[one.loss] for one in contenders]
        self.numbers = {
            name: column([pair[place] for pair in weights]).view(-1, 1, 1)
            for place, name in enumerate(("ce_weight", "error_weight"))
        }
        self.alive = list(range(len(contenders)))

    def epoch(self, epoch: int, courses: list[Course]) -> None:
        """One pass over the training rows."""
        count, classes = len(self.theta), self.rows.classes
        weights = self.theta.view(count * classes, -1)
        gradient = torch.empty_like(self.theta)
        slopes = gradient.view_as(weights)
        norms = self.theta.new_zeros(count)
        seen = 0
        for inputs, batch in self.batches.epoch(epoch):
            signal = inputs[0]
            logits = torch.mm(weights, signal.t()).view(count, classes, -1)
            slope = self._slope(logits, batch.labels.expand(count, 1, -1))
            norms += torch.linalg.vector_norm(slope, dim=1).sum(1)
            seen += len(signal)
            torch.mm(slope.view(count * classes, -1), signal, out=slopes)
            gradient.div_(len(signal))
            self.descent.step(self.theta, gradient, self.rates)
        for place, norm in zip(self.alive, (norms / seen).tolist(), strict=True):
            courses[place].norms.append(norm)

    def _slope(self, logits: Tensor, labels: Tensor) -> Tensor:
        """dL/dlogits_j = lift · (p_j - 1[j = y]) of each row; lift = ce_weight + error_weight p_y.

        By softmax, not by the exponential of its logarithm: that is slow where p underflows.
        """
        slope = logits.softmax(1)
        lift = slope.gather(1, labels).mul_(self.numbers["error_weight"])
        lift.add_(self.numbers["ce_weight"])
        return slope.mul_(lift).scatter_add_(1, labels, lift.neg_())

    def accuracy(self, chosen: Tensor) -> list[float]:
        """Of all that still train, on some rows."""
        right = torch.zeros(len(self.theta), device=self.theta.device)
        weights = self.theta.view(len(self.theta) * self.rows.classes, -1)
        for part in torch.split(chosen.to(self.theta.device), 10_000):
            scores = torch.mm(weights, self.rows.features[part].t())
            scores = scores.view(len(self.theta), self.rows.classes, -1)
            labels = self.rows.labels[part].expand(len(self.theta), 1, -1)
            # Right if no other class is level or above: much faster than argmax over this axis.
            right += ((scores >= scores.gather(1, labels)).sum(1) == 1).sum(1)
        return (right / len(chosen)).tolist()

    def model(self, place: int) -> Trained:
        """One of them, on the CPU."""
        return self.network.trained(self.theta[place])

    def keep(self, going: list[int]) -> None:
        """Go on with these places only."""
        kept = torch.tensor(going, device=self.theta.device)
        self.theta, self.rates = self.theta[kept], self.rates[kept]
        self.numbers = {name: value[kept] for name, value in self.numbers.items()}
        self.descent.keep(kept)
        self.alive = [self.alive[place] for place in going]


def _look(
    bench: _Bench, courses: list[Course], train: Tensor, held: Tensor | None, every_epoch: bool
) -> None:
    """Note accuracies, and the weights that are to be kept."""
    on_train = bench.accuracy(train) if every_epoch else []
    on_held = bench.accuracy(held) if held is not None else []
    for place, run in enumerate(bench.alive):
        course = courses[run]
        if on_train:
            course.train.append(on_train[place])
        if on_held:
            course.held.append(on_held[place])
        better = not on_held or on_held[place] > max(course.held[:-1], default=-1.0)
        if better:
            course.best_epoch = len(course.norms)
        if every_epoch:
            course.models.append(bench.model(place))
        elif better:
            course.models = [bench.model(place)]


def _going(
    bench: _Bench, courses: list[Course], held: Tensor | None, patience: int | None
) -> list[int]:
    """The places of those that go on."""
    finite = torch.isfinite(bench.theta).all(1).tolist()
    going = []
    for place, run in enumerate(bench.alive):
        course = courses[run]
        epoch = len(course.norms)
        if not finite[place]:
            course.diverged = epoch
        elif patience is not None and held is not None and epoch - course.best_epoch >= patience:
            course.stopped = True
        else:
            going.append(place)
    return going
