"""How a row lies in the store: the tables, and a row to columns and back."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from expacc.runner.rows import Predictions, Row
from expacc.stored import Between, Numbers, check_shape, parse_json

__all__ = ["DIGESTS", "LONGEST", "PLAIN", "ROW", "SCHEMA", "to_columns", "to_json", "to_row"]

LONGEST = 1e12  # seconds: any sum of times is a number that can be written

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
DIGESTS = "CREATE TABLE digests (name TEXT PRIMARY KEY, digest TEXT NOT NULL)"  # since version 2
PLAIN = 'key, item, kind, "table", loss, fold, noise, seed, seconds, failure, numbers, metrics'
ROW = f"{PLAIN}, curves, predictions, predictions_hash"  # what ``to_row`` takes

_TEXTS = ("key", "item", "kind", "table", "loss", "fold")
_SHAPE = {
    **dict.fromkeys(_TEXTS, str),
    "kind": {"trial", "final", "outside"},
    "noise": Between(0.0, 1.0),
    "seed": Between(0),
    "seconds": Between(0.0, LONGEST),
    "failure": (str, None),
    "numbers": {str: (float, str, bool, None, [(float, str, bool, None)])},
    "metrics": {str: float},
    "curves": {str: Numbers(nan=True)},
}


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
    """The row of the columns ``ROW``, all of them checked.

    Raises:
        ValueError: a column is not as ``to_columns`` wrote it; the sentence names the row.
    """
    *plain, seconds, failure, numbers, metrics, curves, predictions, hashed = columns
    names = (*_TEXTS, "noise", "seed")
    values: dict[str, Any] = dict(zip(names, plain, strict=True))
    values |= {"seconds": seconds, "failure": failure}
    row = f"row {values['key']!r:.200}"
    for name, text in (("numbers", numbers), ("metrics", metrics), ("curves", curves)):
        check_shape(text, str, f"{name} of {row}")
        try:
            values[name] = parse_json(text)
        except ValueError as error:
            raise ValueError(f"{name} of {row}: {error}") from None
    for name, shape in _SHAPE.items():
        check_shape(values[name], shape, f"{name} of {row}")
    if failure is None and not values["metrics"]:
        raise ValueError(f"metrics of {row} must not be empty without a failure; got none.")
    if failure is not None and (values["metrics"] or predictions is not None):
        raise ValueError(f"metrics and predictions of {row}, which failed, must be empty.")
    values["curves"] = {name: tuple(map(float, curve)) for name, curve in values["curves"].items()}
    return Row(**values, predictions=_predictions(predictions, hashed, row))


def _predictions(data: Any, hashed: Any, row: str) -> Predictions | None:
    if data is None:
        return None
    check_shape(data, bytes, f"predictions of {row}")
    try:
        found = Predictions.from_bytes(data)
    except ValueError:
        raise ValueError(f"predictions of {row} must be as written; they are damaged.") from None
    if hashed != found.digest():
        raise ValueError(f"predictions of {row} must have the hash that was saved with them.")
    return found
