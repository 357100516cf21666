"""Folders: tables side by side, and the prepared collections that come with their own folds.

Two are known by their files: the prepared UCI tables of Klambauer et al. 2017 (``NAME_py.dat``,
``labels_py.dat``, ``folds_py.dat``, ``validation_folds_py.dat``) and tables with five pairs of
halves (``data.csv``, ``split5x2.json``); each file plain, .gz, .xz or .zst.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from expacc.data.cells import first_odd, to_numbers
from expacc.data.columns import Grid, make_labels
from expacc.data.options import ReadOptions, TableError
from expacc.data.reading import NAMED, read_table
from expacc.data.source import COMPRESSIONS, open_source, table_name, table_suffix
from expacc.data.table import Column, Rows, Split, Table

_BOOKS = (".xlsx", ".xls", ".ods")
TABLES = (".csv", ".tsv", ".tab", ".data", ".dat", ".arff", ".parquet", ".pq", *_BOOKS)
_PREPARED = ("labels_py.dat", "folds_py.dat", "validation_folds_py.dat")


@dataclass(frozen=True)
class Found:
    """A table that a folder holds, or a name stands for; ``read`` takes read_table's options."""

    name: str
    path: Path
    kind: Literal["table", "uci121", "split5x2"]

    def read(self, **options: Any) -> Table:
        """Read it; a prepared collection fixes its own options and takes none."""
        if self.kind == "table":
            return read_table(self.path, **options)
        return read_uci121(self.path) if self.kind == "uci121" else read_split5x2(self.path)


def find_tables(data: str | Path) -> tuple[tuple[Found, ...], tuple[str, ...]]:
    """The tables behind a file's, folder's or built-in table's name, and notes on what is not one.

    A folder is a prepared table, or holds table files and prepared tables' folders side by side;
    other folders in it are not entered.
    """
    path = Path(data)
    if not path.exists() and str(data) in NAMED:
        return (Found(str(data), path, "table"),), ()
    if not path.is_dir():
        return (Found(table_name(path), path, "table"),), ()
    kind = _prepared(path)
    if kind:
        return (Found(path.absolute().name, path, kind),), ()
    found: list[Found] = []
    ignored = []
    try:
        entries = sorted(path.iterdir())
    except PermissionError:
        raise TableError(path.name, "the folder may not be read by this user.") from None
    for entry in entries:
        if entry.name.startswith("."):
            continue
        kind = _prepared(entry) if entry.is_dir() else None
        if kind:
            found.append(Found(entry.name, entry, kind))
        elif entry.is_file() and table_suffix(entry) in TABLES:
            found.append(Found(table_name(entry), entry, "table"))
        else:
            ignored.append(entry.name)
    if not found:
        from expacc.data.images_kind import image_kind

        if image_kind(path) is not None:
            raise TableError(str(data), "it holds pictures, not tables; expacc compare reads them.")
        raise TableError(
            str(data), f"the folder holds no table; it was searched for {', '.join(TABLES)}."
        )
    names = [table.name for table in found]
    # cars.csv and cars.data beside each other keep their endings, so that each name is one table's.
    found = [
        replace(table, name=table.path.name) if names.count(table.name) > 1 else table
        for table in found
    ]
    notes = [f"Not tables, ignored: {', '.join(ignored)}."] if ignored else []
    return tuple(found), tuple(notes)


def holds_pictures(data: Sequence[str]) -> bool:
    """Whether DATA is a set of pictures: a folder with two or more folders of pictures, an .npz …

    Raises:
        TableError: a folder of tables and of pictures, or more than one set; says what it saw.
    """
    found = []
    for name in data:
        path = Path(name)
        if not path.exists() or (path.is_file() and table_suffix(path) in TABLES):
            continue
        from expacc.data.images_kind import image_kind

        kind = image_kind(path)
        if kind == "folder" and any(table_suffix(one) in TABLES for one in path.iterdir()):
            tables = ", ".join(one.path.name for one in find_tables(path)[0])
            raise TableError(
                name,
                f"it holds folders of pictures and the table {tables}. Name the table, or move it "
                "out of the folder.",
            )
        found += [name] if kind is not None else []
    if found and len(data) > 1:
        raise TableError(found[0], f"a set of pictures must be the only DATA; got {len(data)}.")
    return bool(found)


def _pick(folder: Path, name: str) -> Path | None:
    """The file of that name, plain or compressed."""
    paths = (folder / (name + ending) for ending in ("", *COMPRESSIONS))
    return next((path for path in paths if path.is_file()), None)


def _prepared(folder: Path) -> Literal["uci121", "split5x2"] | None:
    if _pick(folder, "labels_py.dat") and _pick(folder, "folds_py.dat"):
        return "uci121"
    if _pick(folder, "data.csv") and _pick(folder, "split5x2.json"):
        return "split5x2"
    return None


def _need(folder: Path, name: str) -> Path:
    path = _pick(folder, name)
    if path is None:
        raise TableError(folder.name, f"the folder must hold {name} (or .gz, .xz, .zst of it).")
    return path


def read_uci121(folder: str | Path) -> Table:
    """A prepared UCI table with its folds: test rows, validation rows, and the rest to train on."""
    folder = Path(folder).absolute()
    # Some folders hold the source beside the prepared file, so the ending counts.
    inputs = sorted(
        path
        for path in folder.iterdir()
        if table_name(path).endswith("_py")
        and table_suffix(path) == ".dat"
        and table_name(path) + ".dat" not in _PREPARED
    )
    if len({table_name(path) for path in inputs}) != 1:
        raise TableError(
            folder.name, f"the folder must hold one NAME_py.dat; it holds {len(inputs)}."
        )
    options = ReadOptions(header=False)
    digest = hashlib.sha256()
    features = _matrix(inputs[0], options, digest)
    labels = _matrix(_need(folder, "labels_py.dat"), options, digest)
    tests = _marks(_need(folder, "folds_py.dat"), options, digest)
    chosen = _pick(folder, "validation_folds_py.dat")
    validations = _marks(chosen, options, digest) if chosen else np.zeros_like(tests)
    if len(labels.names) != 1:
        raise TableError(
            labels.source, f"one label a line; got {len(labels.names)} fields.", line=1
        )
    if not features.rows == labels.rows == len(tests) == len(validations):
        raise TableError(
            folder.name,
            f"features, labels, folds and validation folds must be equally long; got "
            f"{features.rows}, {labels.rows}, {len(tests)} and {len(validations)} lines.",
        )
    if tests.shape != validations.shape:
        raise TableError(
            folder.name, f"{tests.shape[1]} folds but {validations.shape[1]} validation folds."
        )
    columns = tuple(_numbers(features, place) for place in range(len(features.names)))
    labels.names = ("class",)
    classes, _ = make_labels(labels, 0, ReadOptions(label_missing=()))
    given = tuple(
        Split(
            f"fold {fold + 1}",
            np.flatnonzero(~tests[:, fold] & ~validations[:, fold]),
            np.flatnonzero(validations[:, fold]),
            np.flatnonzero(tests[:, fold]),
        )
        for fold in range(tests.shape[1])
    )
    lines = np.asarray(features.lines, np.int64)
    return Table(
        folder.name,
        columns,
        classes,
        features.rows,
        lines,
        sha256=digest.hexdigest(),
        options=options,
        width=len(columns),
        given=given,
    )


def _matrix(path: Path, options: ReadOptions, digest: Any) -> Grid:
    from expacc.data.delimited import read_delimited

    source = open_source(path, options.max_bytes)
    digest.update(source.sha256.encode())
    return read_delimited(source, options)


def _numbers(grid: Grid, place: int) -> Column:
    cells = grid.columns[place]
    values = to_numbers(cells, ())
    if values is None:
        row = first_odd(cells, (), ".")
        raise TableError(
            grid.source,
            f"field {place + 1} must be a number; got {cells[row]!r}.",
            line=int(grid.lines[row]),
        )
    return Column(grid.names[place], "number", values)


def _marks(path: Path, options: ReadOptions, digest: Any) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    grid = _matrix(path, options, digest)
    columns = []
    for place in range(len(grid.names)):
        values = _numbers(grid, place).values
        odd = np.flatnonzero((values != 0) & (values != 1))
        if odd.size:
            raise TableError(
                grid.source,
                f"field {place + 1} must be 0 or 1; got {grid.columns[place][int(odd[0])]!r}.",
                line=int(grid.lines[odd[0]]),
            )
        columns.append(values == 1)
    return np.column_stack(columns)


def read_split5x2(folder: str | Path) -> Table:
    """A table without header, label last, with held-out test rows and five pairs of halves.

    Each pair gives two splits: train on one half and validate on the other, then swapped. The test
    rows are the same throughout.
    """
    from expacc.data.text import decode

    folder = Path(folder).absolute()
    table = read_table(_need(folder, "data.csv"), header=False)
    source = open_source(_need(folder, "split5x2.json"))
    try:
        record = json.loads(decode(replace(source, suffix=".json"), "utf-8"))
    except (json.JSONDecodeError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        raise TableError(source.name, f"it is not JSON ({error}).", line=line) from None
    given = _pairs(source.name, record, table.rows)
    return replace(table, name=folder.name, given=given)


def _pairs(name: str, record: Any, rows: int) -> tuple[Split, ...]:
    if not isinstance(record, dict) or not {"n", "test", "folds"} <= set(record):
        raise TableError(name, "it must be an object with n, test and folds.")
    if record["n"] != rows:
        raise TableError(name, f"n must be the table's number of rows, {rows}; got {record['n']}.")
    ends = _row_numbers(name, "test", record["test"], rows + 1)
    if len(ends) != 2 or not ends[0] < ends[1]:
        raise TableError(
            name, f"test must be [first, last) with first < last; got {ends.tolist()}."
        )
    test = np.arange(ends[0], ends[1])
    if not isinstance(record["folds"], list) or not record["folds"]:
        raise TableError(name, "folds must be a list of pairs, one or more.")
    given = []
    for number, pair in enumerate(record["folds"], start=1):
        if not isinstance(pair, dict) or set(pair) != {"a", "b"}:
            raise TableError(name, f"pair {number} must be an object with a and b.")
        first, second = (
            _row_numbers(name, f"{key} of pair {number}", pair[key], rows) for key in "ab"
        )
        given += [
            Split(f"pair {number}, a to b", first, second, test),
            Split(f"pair {number}, b to a", second, first, test),
        ]
    return tuple(given)


def _row_numbers(name: str, what: str, value: Any, end: int) -> Rows:
    if not isinstance(value, list) or not all(type(row) is int and 0 <= row < end for row in value):
        raise TableError(name, f"{what} must be a list of row numbers below {end}.")
    return np.array(value, np.int64)
