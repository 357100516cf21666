"""Which rows each run sees in each step: its own order, from its own seed."""

from collections.abc import Iterator

import torch
from torch import Tensor

from expacc.training.loss_slopes import Batch
from expacc.training.randomness import shuffled, stream_keys
from expacc.training.runs import Run, TensorTable

_BLOCK = 1 << 21  # row numbers drawn at once


class Batches:
    """The batches of R runs.

    Args:
        rows: features with the constant 1 as their last column, and labels.
        runs: whose rows to draw, with steps of their own: the longest first; else all need the
            same number of steps an epoch.
        seeds: (R), int64, on the device of the rows.
        size: rows a step.
        steps: per epoch, or None for one pass.
    """

    def __init__(
        self, rows: TensorTable, runs: list[Run], seeds: Tensor, size: int, steps: int | None
    ) -> None:
        device = rows.features.device
        self.rows, self.seeds = rows, seeds
        lengths = [len(run.rows) for run in runs]
        self.longest = max(lengths)
        self.shortest = min(lengths)
        self.uneven = self.shortest != self.longest
        table = torch.zeros(len(runs), self.longest, dtype=torch.int64)
        for place, run in enumerate(runs):
            table[place, : lengths[place]] = run.rows
        self.table = table.to(device)
        self.lengths = torch.tensor(lengths, device=device).unsqueeze(1)
        self.size = min(size, self.longest) if steps is None else size
        self.stream = steps is not None
        self.steps = -(-self.longest // self.size) if steps is None else steps
        self.full = not self.stream and self.steps == 1
        self._whole: tuple[Tensor, Batch] | None = None

    def keep(self, rows: Tensor) -> None:
        """Go on with these runs only."""
        self.seeds, self.table = self.seeds[rows], self.table[rows]
        self.lengths = self.lengths[rows]
        self.shortest = int(self.lengths.min())
        self._whole = None

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Batch]]:
        """Inputs (R, B, F + 1) and labels of every step of an epoch, from 0.

        Runs whose rows are used up are left out, from the end.
        """
        if self.full:  # the same rows in the same order each time
            if self._whole is None:
                labels = self.rows.labels[self.table]
                self._whole = self._gather(self.table, labels, self._inside(0, self.size))
            for _ in range(self.steps):
                yield self._whole
            return
        if self.stream:
            yield from self._streamed(epoch)
            return
        keys = stream_keys(self.seeds, "order", epoch)
        order = shuffled(keys, self.table, self.lengths if self.uneven else None)
        labels = self.rows.labels[order]
        for low in range(0, self.longest, self.size):
            high = min(low + self.size, self.longest)
            inside = self._inside(low, high)
            some, named = order[:, low:high], labels[:, low:high]
            if inside is not None and low >= self.shortest:
                left = int((self.lengths > low).sum())
                some, named, inside = some[:left], named[:left], inside[:left]
            yield self._gather(some, named, inside)

    def _streamed(self, epoch: int) -> Iterator[tuple[Tensor, Batch]]:
        """Step s has the rows s·size … of each run's endless sequence of new orders."""
        runs = len(self.table)
        block = max(1, min(self.steps, _BLOCK // (runs * self.size)))
        for first in range(0, self.steps, block):
            count = min(block, self.steps - first) * self.size
            order = self._stretch((epoch * self.steps + first) * self.size, count)
            # Steps first, so that each step's numbers lie together.
            steps = order.reshape(runs, -1, self.size).transpose(0, 1).contiguous()
            labels = self.rows.labels[steps]
            for step in range(len(steps)):
                yield self._gather(steps[step], labels[step], None)

    def _stretch(self, begin: int, count: int) -> Tensor:
        """(R, count): the row numbers of each run's sequence from place ``begin`` on."""
        shortest = self.shortest
        lap = begin // self.lengths  # (R, 1): how many orders are used up
        needed = -(-count // shortest) + 1
        if not self.uneven:
            needed = (begin % shortest + count - 1) // shortest + 1
        lengths = self.lengths if self.uneven else None
        laps = torch.cat(
            [
                shuffled(
                    stream_keys(self.seeds, "order", lap.squeeze(1) + ahead), self.table, lengths
                )
                for ahead in range(needed)
            ],
            1,
        )
        if not self.uneven:
            return laps[:, begin % shortest :][:, :count]
        place = begin + torch.arange(count, device=lap.device) - lap * self.lengths
        within = place // self.lengths * self.longest + place % self.lengths
        return laps.gather(1, within)

    def _inside(self, low: int, high: int) -> Tensor | None:
        """(R, B): which places of a batch hold a row of the run; None for all."""
        if not self.uneven or (high < self.longest - 1 and high <= self.shortest):
            return None
        return torch.arange(low, high, device=self.table.device) < self.lengths

    def _gather(self, order: Tensor, labels: Tensor, inside: Tensor | None) -> tuple[Tensor, Batch]:
        runs, size = order.shape
        flat = order.reshape(-1)
        inputs = self.rows.features.index_select(0, flat).view(runs, size, -1)
        index = labels.unsqueeze(1)
        if inside is None and self.rows.weight is None:
            return inputs, Batch(index, 1 / size, float(size))
        if self.rows.weight is None:
            weight = inside.to(inputs.dtype)  # type: ignore[union-attr]
        else:
            weight = self.rows.weight.index_select(0, flat).view(runs, size)
            weight = weight if inside is None else weight * inside
        weight = weight.unsqueeze(1)
        total = weight.sum(2, keepdim=True)
        return inputs, Batch(index, weight / torch.where(total > 0, total, 1), total)
