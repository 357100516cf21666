"""Tables as arrays and JSON, to be handed to every process once."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from expacc.data import Column, Labels, Split, Table

__all__ = ["pack_splits", "pack_table", "unpack_split", "unpack_table"]

_PARTS = ("train", "validation", "test")


def pack_table(table: Table) -> dict[str, Any]:
    """What ``unpack_table`` needs: name → array or bytes, under the table's name."""
    facts = {
        "columns": [[column.name, column.kind, list(column.levels)] for column in table.columns],
        "target": table.target.name,
        "classes": list(table.target.classes),
        "rows": table.rows,
    }
    packed: dict[str, Any] = {f"{table.name}/facts": json.dumps(facts).encode()}
    packed[f"{table.name}/labels"] = np.ascontiguousarray(table.target.codes)
    packed[f"{table.name}/lines"] = np.ascontiguousarray(table.lines)
    for place, column in enumerate(table.columns):
        packed[f"{table.name}/column/{place}"] = np.ascontiguousarray(column.values)
    return packed


def unpack_table(name: str, shared: Mapping[str, Any]) -> Table:
    """The table, as far as training and testing need it."""
    facts = json.loads(bytes(shared[f"{name}/facts"]))
    columns = tuple(
        Column(title, kind, shared[f"{name}/column/{place}"], tuple(levels))
        for place, (title, kind, levels) in enumerate(facts["columns"])
    )
    labels = Labels(facts["target"], tuple(facts["classes"]), shared[f"{name}/labels"])
    return Table(name, columns, labels, facts["rows"], shared[f"{name}/lines"])


def pack_splits(table: str, splits: Sequence[Split]) -> dict[str, Any]:
    """The row numbers of every fold."""
    return {
        f"{table}/split/{split.name}/{part}": np.ascontiguousarray(getattr(split, part))
        for split in splits
        for part in _PARTS
    }


def unpack_split(table: str, fold: str, shared: Mapping[str, Any]) -> Split:
    """One fold."""
    rows = {part: np.array(shared[f"{table}/split/{fold}/{part}"]) for part in _PARTS}
    return Split(fold, rows["train"], rows["validation"], rows["test"])
