"""What passes between a study and its workers: tables, handed to every process once, and rows."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from expacc.data import Column, Labels, Split, Table
from expacc.runner.items import WorkItem
from expacc.runner.rows import Row

_PARTS = ("train", "validation", "test")


def pack_table(table: Table) -> dict[str, Any]:
    """What ``unpack_table`` needs: name → array or bytes, under the table's name."""
    facts = {
        "columns": [[column.name, column.kind, list(column.levels)] for column in table.columns],
        "target": table.target.name,
        "classes": list(table.target.classes),
        "rows": table.rows,
        "widths": [column.width for column in table.columns],
        "features": sum(column.features for column in table.columns),
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
        Column(title, kind, shared[f"{name}/column/{place}"], tuple(levels), width=width)
        for place, ((title, kind, levels), width) in enumerate(
            zip(facts["columns"], facts["widths"], strict=True)
        )
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


def runs_in(payload: Mapping[str, Any]) -> int:
    """How many rows an item will give."""
    losses, trials, seeds = payload["losses"], payload["trials"], payload["seeds"]
    count: int = len(losses) * (trials + seeds) + 1
    return count


def failed_rows(item: WorkItem, reason: str) -> list[Row]:
    """The final rows of an item that gave none."""
    asked = item.payload
    return [
        row_of(item, "final", loss, seed, failure=reason)
        for loss in asked["losses"]
        for seed in range(asked["seeds"])
    ]


def row_of(item: WorkItem, kind: Any, loss: str, place: int, **more: Any) -> Row:
    """A row of an item, called after its columns."""
    asked = item.payload
    return Row(
        key=f"{item.key}|{kind}|{loss}|{place}",
        item=item.key,
        kind=kind,
        table=asked["table"],
        loss=loss,
        fold=asked["fold"],
        noise=asked["noise"],
        seed=place if kind == "final" else 0,
        **more,
    )
