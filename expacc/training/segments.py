"""The losses of a chunk of runs: neighbours of one kind share a slope, each with its numbers."""

from collections.abc import Callable

import torch
from torch import Tensor

from expacc.training.loss_slopes import Batch, Slope
from expacc.training.objectives import Objective

__all__ = ["Segments", "order_by_kind"]


def order_by_kind(objectives: list[Objective]) -> list[int]:
    """Positions such that objectives of one kind are neighbours; stable."""
    first: dict[object, int] = {}
    for objective in objectives:
        first.setdefault(objective.kind, len(first))
    return sorted(range(len(objectives)), key=lambda i: first[objectives[i].kind])


class Segments:
    """Slopes of all runs, given ordered by kind.

    Args:
        objectives: one per run, neighbours of one kind.
        epochs: for which the numbers are tabled: they change once an epoch.
        like: a tensor of the dtype and device to compute in.
        groups: how many times the kinds come one after the other; each group has the same.
    """

    def __init__(
        self, objectives: list[Objective], epochs: int, like: Tensor, groups: int = 1
    ) -> None:
        self.groups = groups
        self.kinds = [objective.kind for objective in objectives]
        self.slopes: dict[object, Slope] = {o.kind: o.slope for o in objectives}
        tables = _tables(objectives, epochs)
        names = sorted({name for table in tables for name in table})
        # Numbers a kind does not have are never read.
        self.numbers = {
            name: torch.tensor(
                [table.get(name, [0.0] * epochs) for table in tables], dtype=torch.float64
            ).to(like)
            for name in names
        }
        self.set_epoch(0)

    def keep(self, rows: Tensor) -> None:
        """Go on with these runs only."""
        self.kinds = [self.kinds[row] for row in rows.tolist()]
        self.numbers = {name: table[rows] for name, table in self.numbers.items()}
        self.set_epoch(self.epoch)

    def set_epoch(self, epoch: int) -> None:
        """Use the numbers of this epoch."""
        self.epoch = epoch
        self.parts: list[tuple[Slope, int, int, dict[str, Tensor]]] = []
        low, size = 0, len(self.kinds) // self.groups
        for high in range(1, size + 1):
            if high == size or self.kinds[high] != self.kinds[low]:
                numbers = {
                    name: _of_groups(table[:, epoch], self.groups, low, high).reshape(-1, 1, 1)
                    for name, table in self.numbers.items()
                }
                self.parts.append((self.slopes[self.kinds[low]], low, high, numbers))
                low = high

    def slope(self, logits: Tensor, batch: Batch) -> Tensor:
        """dL/dlogits (R, C, B) of every run."""
        if len(self.parts) == 1:
            slope, _, _, numbers = self.parts[0]
            return _scaled(slope(logits, batch, numbers), numbers)
        total = torch.empty_like(logits)
        for slope, low, high, numbers in self.parts:
            if self.groups == 1:
                own = slope(logits[low:high], batch.part(low, high), numbers)
                total[low:high] = _scaled(own, numbers)
                continue
            some = [_of_groups(value, self.groups, low, high) for value in (logits, total)]
            own = slope(some[0].flatten(0, 1), self._part(batch, low, high), numbers)
            some[1].copy_(_scaled(own, numbers).view(some[1].shape))
        return total

    def _part(self, batch: Batch, low: int, high: int) -> Batch:
        """The batch of some places of every group."""
        labels, share, total = (
            _of_groups(value, self.groups, low, high).flatten(0, 1)
            if isinstance(value, Tensor)
            else value
            for value in (batch.labels, batch.share, batch.total)
        )
        return Batch(labels, share, total)  # type: ignore[arg-type]


def _of_groups(values: Tensor, groups: int, low: int, high: int) -> Tensor:
    """(groups, high - low, …): some places of every group."""
    return values.view(groups, -1, *values.shape[1:])[:, low:high]


def _scaled(slope: Tensor, numbers: dict[str, Tensor]) -> Tensor:
    scale = numbers.get("scale")
    return slope if scale is None else slope.mul_(scale)


def _tables(objectives: list[Objective], epochs: int) -> list[dict[str, list[float]]]:
    """name → its value in every epoch, per run; equal objectives are evaluated once."""
    known: dict[object, dict[str, list[float]]] = {}
    any_scale = any("scale" in objective.numbers for objective in objectives)
    tables = []
    for objective in objectives:
        key = (objective.kind, tuple((n, _identity(v)) for n, v in objective.numbers.items()))
        if key not in known:
            moving = any(callable(value) for value in objective.numbers.values())
            each = [objective.at(epoch / epochs) for epoch in range(epochs if moving else 1)]
            each = each if moving else each * epochs
            known[key] = {name: [numbers[name] for numbers in each] for name in each[0]}
            if any_scale:
                known[key].setdefault("scale", [1.0] * epochs)
        tables.append(known[key])
    return tables


def _identity(value: float | Callable[[float], float]) -> object:
    return id(value) if callable(value) else value
