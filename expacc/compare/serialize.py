"""What passes between a study and its workers: tables and folds, handed to each once, and rows."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from expacc.compare.record import BESIDE, read_protocol
from expacc.data import (
    Column,
    Labels,
    Split,
    Splits,
    Table,
    five_by_two,
    given_splits,
    holdout,
    stratified_folds,
)
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


def digest_of(name: str, shared: Mapping[str, Any]) -> str:
    """A hash of a packed table without its folds."""
    digest = hashlib.sha256()
    for key, value in shared.items():
        if key.startswith(f"{name}/") and not key.startswith(f"{name}/split/"):
            data = value.tobytes() if isinstance(value, np.ndarray) else value
            digest.update(f"{key} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def named_splits(table: Table, folds: str, seed: int) -> tuple[list[Split], tuple[str, ...]]:
    """The folds under the names that rows carry: 1a … 5b, 1 … 10, 1.1 … 3.10 or holdout; notes."""
    protocol = read_protocol(folds)
    labels, parts, repeats = table.target.codes, protocol.parts, protocol.repeats
    options: dict[str, Any] = {
        "seed": seed,
        "name": table.name,
        "classes": table.target.classes,
    }
    splits: Splits
    if protocol.kind == "holdout" and table.given:
        splits = given_splits(table)
    elif protocol.kind == "holdout":
        splits = holdout(labels, 0.3, **options)
    elif protocol.kind == "5x2":
        splits = five_by_two(labels, **options)
    else:
        splits = stratified_folds(labels, parts, repeats, **options)
    found = list(splits)
    names = [str(place + 1) for place in range(len(found))]
    if protocol.kind == "5x2":
        names = list(protocol.folds)
    elif len(found) == 1:
        names = ["holdout"]
    elif repeats > 1:
        names = [f"{place // parts + 1}.{place % parts + 1}" for place in range(len(found))]
    named = [split.renamed(name) for split, name in zip(found, names, strict=True)]
    return named, tuple(splits.notes)


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


def loss_items(
    table: str, folds: Sequence[str], noises: Sequence[float], asked: Mapping[str, Any]
) -> list[WorkItem]:
    """The losses on a table: an item a fold and share of noise, with what is asked of all."""
    items = []
    for noise in noises:
        for fold in folds:
            payload = {"table": table, "fold": fold, "noise": noise, **asked}
            items.append(WorkItem(f"{table}|{noise:g}|{fold}", payload, runs_in(payload)))
    return items


def reference_items(
    table: str, folds: Sequence[str], noises: Sequence[float], chosen: Mapping[str, int], seed: int
) -> list[WorkItem]:
    """What is run beside the losses: an item a fold and share of noise; on how many of the folds.

    Items of their own, so that a study can have them later and no failure of theirs takes a loss.
    """
    items = []
    for noise in noises:
        for place, fold in enumerate(folds):
            if names := [name for name, count in chosen.items() if place < count]:
                payload = {"table": table, "fold": fold, "noise": noise, "seed": seed}
                payload |= {"references": names}
                key = f"{table}|{noise:g}|{fold}|{BESIDE}"
                items.append(WorkItem(key, payload, runs_in(payload)))
    return items


def runs_in(payload: Mapping[str, Any]) -> int:
    """How many rows an item will give."""
    if "references" in payload:
        return len(payload["references"])
    losses, trials, seeds = payload["losses"], payload["trials"], payload["seeds"]
    count: int = len(losses) * (trials + seeds)
    return count


def failed_rows(item: WorkItem, reason: str) -> list[Row]:
    """The final rows of an item that gave none."""
    asked = item.payload
    if "references" in asked:
        return [row_of(item, "outside", name, 0, failure=reason) for name in asked["references"]]
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
