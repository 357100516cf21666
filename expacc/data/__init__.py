"""Read tables exactly as they were written, and part them for honest comparisons.

from expacc.data import five_by_two, open_split, read_table

table = read_table("cars.csv")
for split in five_by_two(table.target.codes, seed=0, name=table.name):
    train, test, preprocessor = open_split(table, split, methods=["cross_entropy"])
"""

from expacc.data.errors import TableError, need

need("numpy", "reading tables")

from expacc.data.collections import Found, find_tables, read_split5x2, read_uci121  # noqa: E402
from expacc.data.options import ReadOptions  # noqa: E402
from expacc.data.preprocess import Preprocessor  # noqa: E402
from expacc.data.reading import read_table  # noqa: E402
from expacc.data.sealed import (  # noqa: E402
    SealedTest,
    TestScore,
    TrainRows,
    open_split,
    require_train_rows,
)
from expacc.data.splits import (  # noqa: E402
    Splits,
    derive_seed,
    five_by_two,
    flip_labels,
    generator,
    given_splits,
    holdout,
    stratified_folds,
)
from expacc.data.table import Column, Dropped, Labels, Schema, Split, Table  # noqa: E402

__all__ = [
    "Column",
    "Dropped",
    "Found",
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
    "read_split5x2",
    "read_table",
    "read_uci121",
    "require_train_rows",
    "stratified_folds",
]
