"""The losses of a chunk of runs: neighbours of one kind share a slope, each with its numbers."""

from collections.abc import Callable

import torch
from torch import Tensor

from expacc.ops.orthant.slopes import EXP_MIN
from expacc.training.loss_slopes import Batch, Slope
from expacc.training.objectives import Objective


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
        groups: that share batches: so many times the same kinds come; 0 where none is shared.
    """

    def __init__(
        self, objectives: list[Objective], epochs: int, like: Tensor, groups: int = 0
    ) -> None:
        self.groups = groups or 1
        self.wide = groups > 0 and all(hasattr(one.slope, "curve") for one in objectives)
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
                    name: self._shaped(_of_groups(table[:, epoch], self.groups, low, high))
                    for name, table in self.numbers.items()
                }
                self.parts.append((self.slopes[self.kinds[low]], low, high, numbers))
                low = high

    def _shaped(self, numbers: Tensor) -> Tensor:
        return numbers.unsqueeze(2) if self.wide else numbers.reshape(-1, 1, 1)

    def slope(self, logits: Tensor, batch: Batch) -> Tensor:
        """dL/dlogits (R, C, B) of every run."""
        if self.wide:
            return self._along_curves(logits, batch)
        if len(self.parts) == 1:
            slope, _, _, numbers = self.parts[0]
            return _times_factor(slope(logits, batch, numbers), numbers)
        total = torch.empty_like(logits)
        for slope, low, high, numbers in self.parts:
            if self.groups == 1:
                own = slope(logits[low:high], batch.part(low, high), numbers)
                total[low:high] = _times_factor(own, numbers)
                continue
            groups = len(logits) * self.groups // len(self.kinds)  # those with rows left
            numbers = {name: value[: groups * (high - low)] for name, value in numbers.items()}
            some = [_of_groups(value, groups, low, high) for value in (logits, total)]
            own = slope(some[0].flatten(0, 1), _batch_of(batch, groups, low, high), numbers)
            some[1].copy_(_times_factor(own, numbers).view(some[1].shape))
        return total

    def _along_curves(self, logits: Tensor, batch: Batch) -> Tensor:
        """As ``along`` of all curves at once, the rows of a group's runs side by side.

        A softmax over classes wants long rows, and batches that are shared may be short.
        """
        runs, classes, rows = logits.shape
        size = len(self.kinds) // self.groups
        groups = runs // size  # those with rows left
        labels = batch.labels.reshape(groups, 1, -1)
        share = (
            batch.share if isinstance(batch.share, float) else batch.share.reshape(groups, 1, -1)
        )
        side_by_side = logits.view(groups, size, classes, rows).transpose(1, 2)
        log_probs = side_by_side.reshape(groups, classes, -1).log_softmax(1)
        own = log_probs.gather(1, labels).view(groups, size, rows)
        lift = torch.empty_like(own)
        for slope, low, high, numbers in self.parts:
            if groups < self.groups:
                numbers = {name: value[:groups] for name, value in numbers.items()}
            curve = slope.curve(own[:, low:high], numbers)  # type: ignore[attr-defined]
            lift[:, low:high] = _times_factor(curve, numbers)
        lift = lift.view(groups, 1, -1).mul_(share)
        total = log_probs.clamp_(min=EXP_MIN).exp_().mul_(lift)
        total.scatter_add_(1, labels, lift.neg_())
        return total.view(groups, classes, size, rows).transpose(1, 2).reshape(logits.shape)


def _of_groups(values: Tensor, groups: int, low: int, high: int) -> Tensor:
    """(groups, high - low, …): some places of every group."""
    return values.view(groups, -1, *values.shape[1:])[:, low:high]


def _batch_of(batch: Batch, groups: int, low: int, high: int) -> Batch:
    labels, share, total = (
        _of_groups(value, groups, low, high).flatten(0, 1) if isinstance(value, Tensor) else value
        for value in (batch.labels, batch.share, batch.total)
    )
    return Batch(labels, share, total)  # type: ignore[arg-type]


def _times_factor(slope: Tensor, numbers: dict[str, Tensor]) -> Tensor:
    factor = numbers.get("slope_factor")
    return slope if factor is None else slope.mul_(factor)


def _tables(objectives: list[Objective], epochs: int) -> list[dict[str, list[float]]]:
    """name → its value in every epoch, per run; equal objectives are evaluated once."""
    known: dict[object, dict[str, list[float]]] = {}
    any_factor = any("slope_factor" in objective.loss_params for objective in objectives)
    tables = []
    for objective in objectives:
        key = (objective.kind, tuple((n, _identity(v)) for n, v in objective.loss_params.items()))
        if key not in known:
            moving = any(callable(value) for value in objective.loss_params.values())
            each = [objective.at(epoch / epochs) for epoch in range(epochs if moving else 1)]
            each = each if moving else each * epochs
            known[key] = {name: [numbers[name] for numbers in each] for name in each[0]}
            if any_factor:
                known[key].setdefault("slope_factor", [1.0] * epochs)
        tables.append(known[key])
    return tables


def _identity(value: float | Callable[[float], float]) -> object:
    return id(value) if callable(value) else value
