"""MNIST from its four original idx files, its ten folds, and its labels with noise."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from expacc.data import (
    SealedTest,
    Split,
    TableError,
    TrainRows,
    flip_labels,
    stratified_folds,
)
from expacc.data.images_arrays import read_idx
from expacc.data.source import open_source
from expacc.recipes.recipe import data_file, missing_data, need_data
from expacc.recipes.sweep import Ask, Data
from expacc.runner.items import Shared
from expacc.training import TensorTable

FOLDER = "mnist"
FILES = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}
FOLDS = 10
_MOST_BYTES = 1 << 30

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Digits:
    """The pictures as rows of bytes, 0 to 255, and what they show."""

    train_images: Bytes
    train_labels: Bytes
    test_images: Bytes
    test_labels: Bytes

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes: '0' … '9'."""
        return tuple(map(str, range(int(self.train_labels.max()) + 1)))

    def part(self, rows: int | None) -> "Digits":
        """With the first training rows only; all test rows stay."""
        if rows is None:
            return self
        return Digits(
            self.train_images[:rows], self.train_labels[:rows], self.test_images, self.test_labels
        )

    def learn(self, *, largest: float = 1.0, label_noise: float = 0.0, seed: int = 0) -> TrainRows:
        """All training rows to learn from.

        Args:
            largest: the value of a white pixel: 1, or 255 for pixels as the files have them.
            label_noise: the chance of a label to be drawn anew from *all* classes, as in the paper:
                one in ten of those stays right.
            seed: of the noise.
        """
        labels = self.train_labels.astype(np.int64)
        count = len(self.classes)
        wrong_share = label_noise * (count - 1) / count
        noisy, wrong = flip_labels(labels, wrong_share, classes=count, seed=seed, name=FOLDER)
        features = _scaled(self.train_images, largest)
        return TrainRows(features, noisy, self.classes, np.arange(len(labels)), wrong)

    def seal(self, methods: Sequence[str], *, largest: float = 1.0) -> SealedTest:
        """The test rows, behind their seal; their labels are never noisy."""
        labels = self.test_labels.astype(np.int64)
        features = _scaled(self.test_images, largest)
        return SealedTest(features, labels, np.arange(len(labels)), methods)


def _scaled(images: Bytes, largest: float) -> NDArray[np.float32]:
    return images.astype(np.float32) * np.float32(largest / 255)


def folds_of(digits: Digits, count: int, seed: int) -> list[Split]:
    """Splits of the training rows 9:1, ten of each dealing; ``test`` are the development rows.

    They are dealt by the clean labels, so that runs with and without noise have the same folds.
    """
    labels = digits.train_labels.astype(np.int64)
    repeats = -(-count // FOLDS)
    return list(stratified_folds(labels, FOLDS, repeats, seed=seed, name=FOLDER))[:count]


def digits_data(
    digits: Digits,
    ask: Ask,
    names: Sequence[str],
    *,
    largest: float = 1.0,
    label_noise: float = 0.0,
) -> Data:
    """The folds of an item: '1', '2' … with development rows, or 'all' training rows.

    ``names`` are those to seal the test rows for; the rest is as for ``Digits.learn``.
    """
    whole = digits.learn(largest=largest, label_noise=label_noise, seed=ask["seed"])
    everyone = torch.arange(len(whole))
    train, held = dict.fromkeys(ask["folds"], everyone), {}
    for number, split in enumerate(folds_of(digits, ask["all_folds"], ask["seed"]), start=1):
        if (fold := str(number)) in train:
            train[fold], held[fold] = torch.from_numpy(split.train), torch.from_numpy(split.test)
    return Data(
        TensorTable(
            torch.from_numpy(whole.features), torch.from_numpy(whole.labels), len(whole.classes)
        ),
        train,
        {fold: digits.seal(names, largest=largest) for fold in ask["folds"]},
        held,
    )


def read_digits(data: Path | None) -> Digits:
    """The four files under ``--data``, plain or compressed.

    Raises:
        ValueError: a file is not there, or is not what its name says.
    """
    place = need_data(data, FOLDER)
    paths = {part: data_file(place, name) for part, name in FILES.items()}
    absent = [FILES[part] for part, path in paths.items() if path is None]
    if absent:
        raise ValueError(missing_data(FOLDER, *absent))
    found = {
        part: read_idx(open_source(path, _MOST_BYTES).data, path.name)
        for part, path in paths.items()
        if path is not None
    }
    for side in ("train", "test"):
        images, labels = found[f"{side}_images"], found[f"{side}_labels"]
        if len(images) != len(labels) or labels.ndim != 1 or images.ndim < 2:
            raise TableError(
                FILES[f"{side}_images"],
                f"pictures and labels must be equally many; got {images.shape} and {labels.shape}.",
            )
    flat = {part: array.reshape(len(array), -1) for part, array in found.items()}
    return Digits(
        flat["train_images"], found["train_labels"], flat["test_images"], found["test_labels"]
    )


def pack(digits: Digits) -> dict[str, Any]:
    """The arrays for every process."""
    return {f"{FOLDER}/{part}": np.ascontiguousarray(getattr(digits, part)) for part in FILES}


def unpack(shared: Shared) -> Digits:
    """The inverse of ``pack``."""
    return Digits(**{part: np.asarray(shared[f"{FOLDER}/{part}"]) for part in FILES})
