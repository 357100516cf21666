"""How a row lies in the store: the tables, and a row to columns and back."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from expacc.study.rows import Predictions, Row

__all__ = ["PLAIN", "SCHEMA", "to_columns", "to_json", "to_row"]

SCHEMA = """
CREATE TABLE study (settings TEXT NOT NULL);
CREATE TABLE notes (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE versions (number INTEGER PRIMARY KEY, packages TEXT NOT NULL UNIQUE);
CREATE TABLE items (
    key TEXT PRIMARY KEY, failure TEXT, details TEXT, seconds REAL NOT NULL, finished TEXT NOT NULL
);
CREATE TABLE rows (
    key TEXT PRIMARY KEY,
    item TEXT NOT NULL REFERENCES items (key) ON DELETE CASCADE,
    kind TEXT NOT NULL, "table" TEXT NOT NULL, loss TEXT NOT NULL, fold TEXT NOT NULL,
    noise REAL NOT NULL, seed INTEGER NOT NULL,
    numbers TEXT NOT NULL, metrics TEXT NOT NULL, curves TEXT NOT NULL,
    predictions BLOB, predictions_hash TEXT,
    seconds REAL NOT NULL, failure TEXT,
    versions INTEGER NOT NULL REFERENCES versions (number),
    CHECK (failure IS NULL OR (metrics = '{}' AND predictions IS NULL))
);
CREATE INDEX rows_of_item ON rows (item);
CREATE INDEX rows_of_table ON rows ("table", kind);
"""
PLAIN = 'key, item, kind, "table", loss, fold, noise, seed, seconds, failure, numbers, metrics'


def to_json(value: Any) -> str:
    """One text for one value, whatever the order of its names."""

    def plain(part: Any) -> Any:
        if isinstance(part, np.generic):
            return part.item()
        if isinstance(part, Mapping):
            return dict(part)
        raise TypeError(f"stored values must be what JSON can hold; got {type(part).__name__}.")

    return json.dumps(value, sort_keys=True, allow_nan=False, default=plain)


def to_columns(row: Row) -> tuple[Any, ...]:
    """The values of all columns but the last, which names the versions."""
    seen = row.predictions
    return (
        *(row.key, row.item, row.kind, row.table, row.loss, row.fold, float(row.noise)),
        int(row.seed),
        to_json(row.numbers),
        to_json({name: float(value) for name, value in row.metrics.items()}),
        # Curves of a diverged run end in NaN, which Python's JSON can hold.
        json.dumps({name: [float(v) for v in curve] for name, curve in row.curves.items()}),
        *((None, None) if seen is None else (seen.to_bytes(), seen.digest())),
        *(float(row.seconds), row.failure),
    )


def to_row(columns: tuple[Any, ...]) -> Row:
    """The row of the columns ``PLAIN``, curves and predictions."""
    *plain, seconds, failure, numbers, metrics, curves, predictions = columns
    key, item, kind, table, loss, fold, noise, seed = plain
    return Row(
        key=key,
        item=item,
        kind=kind,
        table=table,
        loss=loss,
        fold=fold,
        noise=noise,
        seed=seed,
        numbers=json.loads(numbers),
        metrics=json.loads(metrics),
        curves={name: tuple(curve) for name, curve in json.loads(curves).items()},
        predictions=None if predictions is None else Predictions.from_bytes(predictions),
        seconds=seconds,
        failure=failure,
    )
