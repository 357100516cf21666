"""Data of a user's own network: read from what people have, relabelled, and cut into parts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from expacc.plain import UsageError
from expacc.training import Augment, ResidentData
from expacc.training.loaders import map_tensors
from expacc.training.progress import Bar, progress_bar

Labels = NDArray[np.int64]
LARGEST = 8 << 30  # bytes of a data set that is read into memory at once
_COLOURS = (1, 3, 4)  # channels of a picture


@dataclass(frozen=True, eq=False)
class NetworkRows:
    """Rows to train or test on.

    Attributes:
        inputs: a tensor (rows, …), or the data set of pairs where rows change each time or do not
            fit into memory.
        labels: class numbers.
        loader: the DataLoader that they came in, whose settings read the data set.
    """

    inputs: Tensor | Dataset[Any]
    labels: Labels
    loader: DataLoader[Any] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def pictures(self) -> bool:
        """Whether rows are tensors (channels, height, width)."""
        return isinstance(self.inputs, Tensor) and self.inputs.ndim == 4

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a row, as a network gets it; of structures of tensors none."""
        if isinstance(self.inputs, Tensor):
            return tuple(self.inputs.shape[1:])
        found = self.inputs[0][0]
        return tuple(np.shape(found)) if _is_array(found) else ()

    def example(self, device: torch.device) -> Any:
        """Two rows, to try a network with."""
        two = np.array([0, min(1, len(self) - 1)])
        loader = self.loader_of(two, self.labels[two], batch=2, scaling=None)
        inputs, _ = next(iter(loader))
        return map_tensors(lambda tensor: tensor.to(device), inputs)

    def on(self, device: torch.device) -> "NetworkRows":
        """The same rows, on the device if they can be there."""
        moved = self.inputs
        if isinstance(moved, Tensor) and moved.nbytes <= LARGEST:
            moved = moved.to(device)
        return NetworkRows(moved, self.labels, self.loader)

    def scaling(self, rows: Labels) -> tuple[Tensor, Tensor] | None:
        """Mean and deviation of each channel over these rows, of pictures in bytes; else None."""
        if not self.pictures or self.inputs.dtype != torch.uint8:  # type: ignore[union-attr]
            return None
        count, total, squares = 0, torch.zeros(()), torch.zeros(())
        for part in torch.split(torch.from_numpy(rows), 4096):
            some = self.inputs[part.to(self.inputs.device)].double().cpu() / 255  # type: ignore
            count += some[:, 0].numel()
            total = total + some.sum((0, 2, 3))
            squares = squares + some.square().sum((0, 2, 3))
        mean = total / count
        deviation = (squares / count - mean.square()).clamp_min(0).sqrt()
        return mean.float(), torch.where(deviation > 0, deviation, 1).float()

    def loader_of(
        self,
        rows: Labels,
        labels: Labels,
        *,
        batch: int,
        scaling: tuple[Tensor, Tensor] | None,
        train: bool = False,
        augment: Augment | None = None,
        whole: bool = False,
    ) -> Any:
        """What ``fit`` reads these rows from, with these labels.

        Args:
            rows: which ones.
            labels: of them.
            batch: rows at a time.
            scaling: of pictures.
            train: in an order that changes.
            augment: what is done to pictures in training.
            whole: leave out what does not fill a batch.
        """
        one_over = len(rows) % batch == 1  # of which no batch norm can be made
        target = torch.from_numpy(labels)
        if isinstance(self.inputs, Tensor):
            mean, deviation = scaling or (None, None)
            some = self.inputs[torch.from_numpy(rows).to(self.inputs.device)]
            return ResidentData(
                some, target, batch_size=batch, shuffle=train, augment=augment, mean=mean,
                deviation=deviation, drop_last=train and (whole or one_over),
            )  # fmt: skip
        named: dict[str, Any] = {"num_workers": 0}
        if self.loader is not None:
            names = ("num_workers", "collate_fn", "pin_memory", "worker_init_fn", "timeout")
            named = {name: getattr(self.loader, name) for name in names}
        return DataLoader(
            _Relabelled(self.inputs, rows, labels), batch_size=batch, shuffle=train,
            drop_last=train and one_over and len(rows) > batch, **named,
        )  # fmt: skip


class _Relabelled(Dataset[Any]):
    """Some rows of a data set, with labels of ours."""

    def __init__(self, rows_of: Any, rows: Labels, labels: Labels) -> None:
        self.rows_of, self.rows, self.labels = rows_of, rows, labels

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> tuple[Any, int]:
        return self.rows_of[int(self.rows[place])][0], int(self.labels[place])


def read_rows(data: Any, name: str, *, progress: bool = False) -> NetworkRows:
    """Rows of tensors or arrays (inputs, labels), a Dataset or a DataLoader.

    Args:
        data: as given.
        name: of the argument, for the sentence.
        progress: show how far the reading is.

    Raises:
        UsageError: it is something else, empty, or has labels that are no class numbers.
    """
    if isinstance(data, NetworkRows):
        return data
    loader = data if isinstance(data, DataLoader) else None
    source = loader.dataset if loader is not None else data
    if isinstance(source, TensorDataset) and len(source.tensors) == 2:
        source = source.tensors
    if isinstance(source, IterableDataset) or not (
        hasattr(source, "__getitem__") and hasattr(source, "__len__")
    ):
        raise UsageError(
            f"{name} must be (inputs, labels), a Dataset or a DataLoader of one, whose rows can be "
            f"asked for by number; got {type(source).__name__}."
        )
    if isinstance(source, Sequence) and len(source) == 2 and not isinstance(source, str):
        source = [part.to_numpy() if hasattr(part, "to_numpy") else part for part in source]
    if isinstance(source, Sequence) and len(source) == 2 and _is_array(source[0]):
        inputs = _inputs(source[0], name)
        labels = read_labels(source[1], name)
        if len(inputs) != len(labels):
            raise UsageError(
                f"{name} must have as many labels as inputs; got {len(labels)} and {len(inputs)}."
            )
        rows = NetworkRows(inputs, labels, loader)
    else:
        with progress_bar(total=len(source), title=f"reading {name}", enabled=progress) as bar:
            rows = _from_dataset(source, loader, name, bar)
    if not len(rows):
        raise UsageError(f"{name} must hold at least one row; got none.")
    return rows


def _is_array(value: Any) -> bool:
    return isinstance(value, Tensor | np.ndarray)


def _inputs(value: Any, name: str) -> Tensor:
    if isinstance(value, np.ndarray) and not value.flags.writeable:  # torch wants to write
        value = value.copy()
    inputs = value.detach().cpu() if isinstance(value, Tensor) else torch.as_tensor(value)
    if inputs.ndim == 0:
        raise UsageError(f"{name} must have an axis of rows; got one number.")
    if inputs.is_floating_point():
        inputs = inputs.float()
    if inputs.dtype == torch.uint8 and inputs.ndim == 3:
        inputs = inputs.unsqueeze(1)
    last = inputs.ndim == 4 and inputs.shape[3] in _COLOURS and inputs.shape[1] not in _COLOURS
    if inputs.dtype == torch.uint8 and last:
        inputs = inputs.permute(0, 3, 1, 2)
    if inputs.is_floating_point() and not bool(torch.isfinite(inputs).all()):
        raise UsageError(f"{name} must have finite inputs; got NaN or infinity among them.")
    return inputs


def read_labels(value: Any, name: str) -> Labels:
    """Class numbers, checked; ``name`` is that of the argument."""
    labels = np.asarray(value.cpu() if isinstance(value, Tensor) else value)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise UsageError(f"{name} must have one label per row; got shape {labels.shape}.")
    if labels.dtype.kind == "f" and bool((labels == np.floor(labels)).all()):
        labels = labels.astype(np.int64)
    if labels.dtype.kind not in "iu":
        raise UsageError(
            f"{name} must have class numbers from 0 as labels; got {labels.dtype}. "
            f"Number the classes first."
        )
    if len(labels) and int(labels.min()) < 0:
        raise UsageError(
            f"{name} must have class numbers from 0 as labels; got {int(labels.min())}."
        )
    return labels.astype(np.int64)


def _from_dataset(source: Any, loader: DataLoader[Any] | None, name: str, bar: Bar) -> NetworkRows:
    """A data set, read into memory if its rows are tensors that stay as they are."""
    if not len(source):
        return NetworkRows(source, np.zeros(0, np.int64), loader)
    first, again = source[0], source[0]
    if not isinstance(first, tuple | list) or len(first) != 2:
        of = f" of {len(first)}" if hasattr(first, "__len__") else ""
        raise UsageError(f"{name} must have rows (input, label); got {type(first).__name__}{of}.")
    own_collate = loader is not None and (loader.collate_fn is not torch.utils.data.default_collate)
    steady = _is_array(first[0]) and bool(
        np.array_equal(np.asarray(first[0]), np.asarray(again[0]))
    )
    if steady and not own_collate:
        size = torch.as_tensor(first[0]).nbytes * len(source)
        shapes = {tuple(np.shape(source[place][0])) for place in (0, len(source) - 1)}
        if size <= LARGEST and len(shapes) == 1:
            pairs = [_told(source[place], bar) for place in range(len(source))]
            inputs = torch.stack([torch.as_tensor(pair[0]) for pair in pairs])
            labels = [_number(pair[1]) for pair in pairs]
            return NetworkRows(_inputs(inputs, name), read_labels(np.array(labels), name), loader)
    for attribute in ("targets", "labels"):
        known = getattr(source, attribute, None)
        if known is not None and not callable(known) and len(known) == len(source):
            return NetworkRows(source, read_labels(known, name), loader)
    labels = [_number(_told(source[place], bar)[1]) for place in range(len(source))]
    return NetworkRows(source, read_labels(np.array(labels), name), loader)


def _told(row: Any, bar: Bar) -> Any:
    bar.update(bar.done + 1)
    return row


def _number(label: Any) -> Any:
    return label.item() if _is_array(label) and np.size(label) == 1 else label
