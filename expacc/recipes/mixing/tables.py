"""The prepared UCI tables for mixing-uci: which are at hand, and how they travel to workers."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from expacc.data import SealedTest, Table, TrainRows, find_tables
from expacc.recipes import sources
from expacc.recipes.mixing.paper import TABLES
from expacc.runner.items import Shared

__all__ = ["FOLDER", "Shape", "open_fold", "pack", "read_tables", "scales_differ", "shape_of"]

FOLDER = "uci121"
PARTS = ("train", "validation", "test")
_FAR = 20.0  # standard deviations


@dataclass(frozen=True)
class Shape:
    """How large a table is: what decides how long its runs take.

    Args:
        rows: of the whole table.
        train: the most training rows of a fold.
        features: columns.
        classes: of the label.
        folds: names of those with rows to train on, to validate on and to test on.
    """

    rows: int
    train: int
    features: int
    classes: int
    folds: tuple[str, ...]


def read_tables(folder: Path, most: int | None = None) -> tuple[dict[str, Table], list[str]]:
    """The folder's tables by name, and a sentence for each that has no fold to use.

    Args:
        folder: with one folder per table.
        most: read so many of the smallest only.

    Raises:
        ValueError: there are none at all.
    """
    try:
        found = [one for one in find_tables(folder)[0] if one.kind == "uci121"]
    except ValueError:  # an empty folder
        found = []
    if not found:
        raise ValueError(sources.missing(FOLDER, *(f"{name}" for name in TABLES)))
    if most is not None:
        found = sorted(found, key=lambda one: (_bytes(one.path), one.name))[:most]
    tables, left_out = {}, []
    for one in found:
        table = one.read()
        if shape_of(table).folds:
            tables[one.name] = table
        else:
            left_out.append(
                f"{FOLDER}/{one.name} is left out: none of its folds has rows to train on, to "
                f"validate on and to test on."
            )
    return tables, left_out


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def shape_of(table: Table) -> Shape:
    """How large a table is."""
    usable = [
        split for split in table.given if all(getattr(split, part).size > 0 for part in PARTS)
    ]
    return Shape(
        rows=table.rows,
        train=max((len(split.train) for split in usable), default=0),
        features=len(table.columns),
        classes=len(table.target.classes),
        folds=tuple(split.name for split in usable),
    )


def scales_differ(table: Table) -> bool:
    """Whether test rows are on another scale than training rows: an error of preparation.

    That is, whether a column's means differ by more than any sample would. Columns that are nearly
    constant in the training rows are measured in the unit of standardised ones, 1.
    """
    values = np.stack([np.asarray(column.values, np.float64) for column in table.columns], 1)
    for split in table.given:
        if split.train.size and split.test.size:
            train, test = values[split.train], values[split.test]
            gap = np.abs(train.mean(0) - test.mean(0))
            if bool((gap > _FAR * np.maximum(train.std(0), 1.0)).any()):
                return True
    return False


def pack(table: Table) -> dict[str, Any]:
    """What ``open_fold`` needs: arrays under the table's name. Features are taken as they come."""
    packed: dict[str, Any] = {
        f"{table.name}/features": np.stack(
            [np.asarray(column.values, np.float32) for column in table.columns], 1
        ),
        f"{table.name}/labels": np.ascontiguousarray(table.target.codes),
        f"{table.name}/classes": "\n".join(table.target.classes).encode(),
    }
    for split in table.given:
        for part in PARTS:
            rows = np.ascontiguousarray(getattr(split, part))
            packed[f"{table.name}/{split.name}/{part}"] = rows
    return packed


def open_fold(
    table: str, fold: str, shared: Shared, methods: list[str]
) -> tuple[TrainRows, TrainRows, SealedTest]:
    """Rows to train on, rows to select by, and the sealed test rows."""
    features, labels = (np.asarray(shared[f"{table}/{name}"]) for name in ("features", "labels"))
    classes = tuple(bytes(shared[f"{table}/classes"]).decode().split("\n"))
    rows: Mapping[str, Any] = {
        part: np.array(shared[f"{table}/{fold}/{part}"], np.int64) for part in PARTS
    }

    def learn(part: str) -> TrainRows:
        chosen = rows[part]
        wrong = np.zeros(len(chosen), np.bool_)
        return TrainRows(features[chosen], labels[chosen], classes, chosen, wrong)

    sealed = SealedTest(features[rows["test"]], labels[rows["test"]], rows["test"], methods)
    return learn("train"), learn("validation"), sealed
