"""Sets of pictures under --data as their authors publish them, and the rows of an item.

MNIST's idx files, CIFAR's binary files, SVHN's cropped digits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from expacc.data import SealedTest, TableError, stratified_folds
from expacc.data.source import open_source
from expacc.recipes.leaky.digits import read_digits
from expacc.recipes.recipe import data_file, data_folder, missing_data
from expacc.recipes.sweep import Ask, Data
from expacc.runner.items import Shared
from expacc.training import TensorTable

_MOST_BYTES = 1 << 30
_CIFAR = (3, 32, 32)
WHOLE = "all"  # the fold of all training rows
FOLDS = 10

Pictures = NDArray[np.uint8]
Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Pictures (rows, channels, height, width) of bytes, and what they show."""

    train: Pictures
    train_labels: Labels
    test: Pictures
    test_labels: Labels

    @property
    def classes(self) -> int:
        """How many."""
        return int(self.train_labels.max()) + 1

    def about(self) -> dict[str, int]:
        """Numbers for the facts of the work."""
        _, channels, size, _ = self.train.shape
        rows = {"train_rows": len(self.train), "test_rows": len(self.test)}
        return {**rows, "classes": self.classes, "channels": channels, "size": size}


def _mnist(data: Path) -> ImageSet:
    digits = read_digits(data)
    side = round(digits.train_images.shape[1] ** 0.5)
    return ImageSet(
        digits.train_images.reshape(-1, 1, side, side),
        digits.train_labels.astype(np.int64),
        digits.test_images.reshape(-1, 1, side, side),
        digits.test_labels.astype(np.int64),
    )


def _cifar(folder: str, train: Sequence[str], test: str, labels: int) -> Callable[[Path], ImageSet]:
    """A reader of binary files whose rows begin with so many labels, the last of them the class."""

    def read(data: Path) -> ImageSet:
        place = data_folder(data, folder)
        paths = {name: data_file(place, name) for name in (*train, test)}
        absent = [name for name, path in paths.items() if path is None]
        if absent:
            raise ValueError(missing_data(folder, *absent))
        found = {name: _records(path, labels) for name, path in paths.items() if path}
        pictures = np.concatenate([found[name][0] for name in train])
        classes = np.concatenate([found[name][1] for name in train])
        return ImageSet(pictures, classes, *found[test])

    return read


def _records(path: Path, labels: int) -> tuple[Pictures, Labels]:
    data = np.frombuffer(open_source(path, _MOST_BYTES).data, np.uint8)
    length = labels + int(np.prod(_CIFAR))
    if not len(data) or len(data) % length:
        raise TableError(
            path.name,
            f"the file must hold rows of {length:,} bytes; got {len(data):,} bytes. Fetch the "
            "binary version again.",
        )
    rows = data.reshape(-1, length)
    return rows[:, labels:].reshape(-1, *_CIFAR), rows[:, labels - 1].astype(np.int64)


def _svhn(data: Path) -> ImageSet:
    from scipy.io import loadmat

    place = data_folder(data, "svhn")
    parts: list[Any] = []
    for name in ("train_32x32.mat", "test_32x32.mat"):
        path = data_file(place, name)
        if path is None:
            raise ValueError(missing_data("svhn", name))
        try:
            found = loadmat(path, variable_names=["X", "y"])
            pictures, labels = found["X"], found["y"].ravel()
        except Exception as error:  # whatever a damaged file makes of the reader
            raise TableError(
                name, f"the file must hold X and y of cropped digits; {error}."
            ) from None
        if pictures.dtype != np.uint8 or pictures.shape != (32, 32, 3, len(labels)):
            raise TableError(name, f"X must be bytes (32, 32, 3, rows); got {pictures.shape}.")
        parts += [pictures.transpose(3, 2, 0, 1).copy(), labels.astype(np.int64) % 10]
    return ImageSet(*parts)


_BATCHES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
# Set → its folder under --data, and what reads it.
SETS: Mapping[str, tuple[str, Callable[[Path], ImageSet]]] = {
    "mnist": ("mnist", _mnist),
    "svhn": ("svhn", _svhn),
    "cifar-10": (
        "cifar-10-batches-bin",
        _cifar("cifar-10-batches-bin", _BATCHES, "test_batch.bin", 1),
    ),
    "cifar-100": ("cifar-100-binary", _cifar("cifar-100-binary", ["train.bin"], "test.bin", 2)),
}


def read_sets(data: Path | None, names: Sequence[str]) -> tuple[dict[str, ImageSet], list[str]]:
    """The sets that are there, and a sentence for each that is not.

    Raises:
        ValueError: there is none; the sentence of the first. A file is damaged.
    """
    found: dict[str, ImageSet] = {}
    missing: list[str] = []
    for name in names:
        folder, read = SETS[name]
        if data is None or data_folder(data, folder) is None:
            missing.append(missing_data(folder))
            continue
        try:
            found[name] = read(data)
        except TableError:
            raise
        except ValueError as error:  # a file is not there
            missing.append(str(error))
    if not found:
        raise ValueError(missing[0])
    return found, missing


def pack(name: str, images: ImageSet) -> dict[str, Any]:
    """The arrays for every process."""
    return {f"{name}/{part}": np.ascontiguousarray(value) for part, value in vars(images).items()}


def unpack(name: str, shared: Shared) -> ImageSet:
    """The inverse of ``pack``."""
    parts = ("train", "train_labels", "test", "test_labels")
    return ImageSet(**{part: np.asarray(shared[f"{name}/{part}"]) for part in parts})


def open_set(ask: Ask, shared: Shared, names: Sequence[str]) -> list[Data]:
    """The rows of an item: the first ``rows`` of a set, whole or without a tenth that is held out.

    Args:
        ask: 'table' and 'folds', ``WHOLE`` or '1' … '10'; 'rows' and 'test_rows' or None for all.
        shared: with the set.
        names: to seal the test rows for.
    """
    images = unpack(ask["table"], shared)
    rows, test_rows = ask["rows"], ask["test_rows"]
    labels = images.train_labels[:rows]
    table = TensorTable(torch.tensor(images.train[:rows]), torch.tensor(labels), images.classes)
    everyone = torch.arange(len(labels))
    train, held = dict.fromkeys(ask["folds"], everyone), {}
    if set(ask["folds"]) - {WHOLE}:
        splits = stratified_folds(labels, FOLDS, 1, seed=ask["seed"], name=ask["table"])
        for number, split in enumerate(splits, start=1):
            if (fold := str(number)) in train:
                train[fold], held[fold] = (
                    torch.from_numpy(split.train),
                    torch.from_numpy(split.test),
                )
    test = images.test[:test_rows], images.test_labels[:test_rows]
    sealed = {fold: SealedTest(*test, np.arange(len(test[1])), names) for fold in ask["folds"]}
    return [Data(table, train, sealed, held)]
