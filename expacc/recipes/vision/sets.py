"""Sets of pictures under --data as their authors publish them, and the rows of an item."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from expacc.data import SealedTest, TableError, stratified_folds
from expacc.data.images import ImageSet, read_images
from expacc.recipes.recipe import data_folder, missing_data
from expacc.recipes.sweep import Ask, Data
from expacc.runner.items import Shared
from expacc.training import TensorTable

WHOLE = "all"  # the fold of all training rows
FOLDS = 10

# Set → its folder under --data.
SETS: Mapping[str, str] = {
    "mnist": "mnist",
    "svhn": "svhn",
    "cifar-10": "cifar-10-batches-bin",
    "cifar-100": "cifar-100-binary",
    "cinic-10": "cinic-10",
}


def read_sets(data: Path | None, names: Sequence[str]) -> tuple[dict[str, ImageSet], list[str]]:
    """The sets that are there, and a sentence for each that is not.

    Raises:
        ValueError: there is none, and the sentence is of the first; or a file is damaged.
    """
    found: dict[str, ImageSet] = {}
    missing: list[str] = []
    for name in names:
        folder = data_folder(data, SETS[name])
        if folder is None or not any(folder.iterdir()):
            missing.append(missing_data(SETS[name]))
            continue
        found[name] = read_images(folder)
        if found[name].test is None:
            raise TableError(SETS[name], "there must be test pictures; got none. Fetch it again.")
    if not found:
        raise ValueError(missing[0])
    return found, missing


def pack(name: str, images: ImageSet) -> dict[str, Any]:
    """The arrays for every process."""
    parts = {"train": images, "test": images.test or images}
    found = {f"{name}/{part}": one.images.numpy() for part, one in parts.items()}
    return found | {f"{name}/{part}_labels": one.targets.numpy() for part, one in parts.items()}


def open_set(ask: Ask, shared: Shared, names: Sequence[str]) -> list[Data]:
    """The rows of an item: the first ``rows`` of a set, whole or without a tenth that is held out.

    Args:
        ask: 'table' and 'folds', ``WHOLE`` or '1' … '10'; 'rows' and 'test_rows' or None for all.
        shared: with the set.
        names: to seal the test rows for.
    """
    name, rows, test_rows = ask["table"], ask["rows"], ask["test_rows"]
    images, labels, test, test_labels = (
        np.asarray(shared[f"{name}/{part}"])
        for part in ("train", "train_labels", "test", "test_labels")
    )
    classes, labels = int(labels.max()) + 1, labels[:rows]
    table = TensorTable(torch.tensor(images[:rows]), torch.tensor(labels), classes)
    everyone = torch.arange(len(labels))
    train, held = dict.fromkeys(ask["folds"], everyone), {}
    if set(ask["folds"]) - {WHOLE}:
        splits = stratified_folds(labels, FOLDS, 1, seed=ask["seed"], name=name)
        for number, split in enumerate(splits, start=1):
            if (fold := str(number)) in train:
                train[fold], held[fold] = (
                    torch.from_numpy(split.train),
                    torch.from_numpy(split.test),
                )
    own = test[:test_rows], test_labels[:test_rows]
    sealed = {fold: SealedTest(*own, np.arange(len(own[1])), names) for fold in ask["folds"]}
    return [Data(table, train, sealed, held)]
