"""Read tables exactly as they were written, and part them for honest comparisons.

from expacc.data import five_by_two, open_split, read_table

table = read_table("cars.csv")
for split in five_by_two(table.target.codes, seed=0, name=table.name):
    train, test, preprocessor = open_split(table, split, methods=["cross_entropy"])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from expacc.data.options import need

if TYPE_CHECKING:
    from expacc.data.collections import Found, find_tables, read_split5x2, read_uci121
    from expacc.data.images import ImageSet, read_images
    from expacc.data.options import ReadOptions, TableError
    from expacc.data.preprocess import Preprocessor
    from expacc.data.reading import read_table
    from expacc.data.sealed import SealedTest, TestScore, TrainRows, open_split, require_train_rows
    from expacc.data.splits import (
        Splits,
        derive_seed,
        five_by_two,
        flip_labels,
        generator,
        given_splits,
        holdout,
        stratified_folds,
    )
    from expacc.data.table import Column, Dropped, Labels, Schema, Split, Table

__all__ = [
    "Column",
    "Dropped",
    "Found",
    "ImageSet",
    "Labels",
    "Preprocessor",
    "ReadOptions",
    "Schema",
    "SealedTest",
    "Split",
    "Splits",
    "Table",
    "TableError",
    "TestScore",
    "TrainRows",
    "derive_seed",
    "find_tables",
    "five_by_two",
    "flip_labels",
    "generator",
    "given_splits",
    "holdout",
    "open_split",
    "read_images",
    "read_split5x2",
    "read_table",
    "read_uci121",
    "require_train_rows",
    "stratified_folds",
]

need("numpy", "reading tables")

# Fetched when first asked for: who trains on a table reads none, and who reads one does not split.
_HOMES = {
    "collections": "Found find_tables read_split5x2 read_uci121",
    "images": "ImageSet read_images",
    "options": "ReadOptions TableError",
    "preprocess": "Preprocessor",
    "reading": "read_table",
    "sealed": "SealedTest TestScore TrainRows open_split require_train_rows",
    "splits": "Splits derive_seed five_by_two flip_labels generator given_splits holdout "
    "stratified_folds",
    "table": "Column Dropped Labels Schema Split Table",
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names.split():
            return getattr(import_module(f"expacc.data.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
