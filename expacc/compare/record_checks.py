"""What a store says of a study, believed only as far as it agrees with itself.

The store vouches for its own bytes. Here the values are checked against each other: predictions
against the table, accuracies against predictions and labels, keys against what they name.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from expacc.compare.record import TableFacts
from expacc.report.loss_names import OUTSIDE
from expacc.runner.columns import LONGEST
from expacc.runner.rows import Predictions, Row
from expacc.stored import Between, Numbers, check_shape

__all__ = ["check_rows_of_study", "check_settings", "read_notes", "read_tables"]

CLOSE = 1e-9  # of a share that is computed again
_COUNT = Between(0)
_SETTINGS = {
    "losses": [str],
    "model": str,
    "trials": (Between(1), Numbers(1, whole=True)),
    "folds": str,
    "seeds": Between(1),
    "label_noise": Numbers(0.0, 1.0),
    "seed": int,
}
_NOTES = {
    "started": str,
    "command": str,
    "seconds": Between(0.0, LONGEST),
    "planned": {"items": _COUNT, "runs": _COUNT},
    "tables": [
        {
            "name": str,
            "rows": Between(1),
            "features": _COUNT,
            "classes": [str],
            "labels": Numbers(0, (1 << 31) - 1, whole=True),
            "notes": [str],
            "sha256": str,
            "target": str,
            "folds?": [str],
        }
    ],
}
_SHARES = ("accuracy", "balanced_accuracy", "train_accuracy", "validation_accuracy")


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise unless these can be the settings of a study."""
    known = {name: value for name, value in settings.items() if name in _SETTINGS}
    check_shape(known, _SETTINGS, "settings")
    if not settings["losses"] or not settings["label_noise"]:
        raise ValueError("settings must name a loss and a share of label noise; got none.")


def read_notes(notes: Mapping[str, Any]) -> dict[str, Any]:
    """The notes of a study, each of its own shape; others are left out."""
    known = {name: value for name, value in notes.items() if name in _NOTES}
    for name, value in known.items():
        check_shape(value, _NOTES[name], f"note {name}")
    return known


def read_tables(notes: Mapping[str, Any]) -> dict[str, TableFacts]:
    """The tables of checked notes, by name."""
    tables = {}
    for facts in notes.get("tables", ()):
        name, labels = facts["name"], np.array(facts["labels"], np.int32)
        if name in tables:
            raise ValueError(f"tables must have different names; got {name!r:.60} twice.")
        if labels.size and int(labels.max()) >= len(facts["classes"]):
            raise ValueError(f"labels of {name!r:.60} must be classes of it; got one beyond.")
        tables[name] = TableFacts(
            name=name,
            rows=facts["rows"],
            features=facts["features"],
            classes=tuple(facts["classes"]),
            labels=labels,
            notes=tuple(facts["notes"]),
            sha256=facts["sha256"],
            target=facts["target"],
            folds=tuple(facts.get("folds", ())),
        )
    return tables


def check_rows_of_study(
    rows: Sequence[Row], tables: Mapping[str, TableFacts], settings: Mapping[str, Any]
) -> None:
    """Raise for the first row that does not agree with itself, its table or the settings."""
    losses = {*settings["losses"], OUTSIDE}
    for row in rows:
        name = f"row {row.key!r:.200}"
        facts = tables.get(row.table)
        item = f"{row.table}|{row.noise:g}|{row.fold}"
        if facts is None or row.loss not in losses or row.item != item:
            raise ValueError(f"{name} must be of a table, loss and item of the study; it is not.")
        place = f"{row.item}|{row.kind}|{row.loss}|"
        if not row.key.startswith(place) or (
            row.kind == "final" and row.key != f"{place}{row.seed}"
        ):
            raise ValueError(f"{name} must be called after its columns; they differ.")
        if facts.folds and row.fold not in facts.folds:
            raise ValueError(f"fold of {name} must be one of its table; got {row.fold!r:.40}.")
        for metric in _SHARES:
            if not 0 <= row.metrics.get(metric, 0.0) <= 1:
                raise ValueError(f"{metric} of {name} must lie in [0, 1]; it does not.")
            if not all(0 <= value <= 1 for value in row.curves.get(metric, ())):
                raise ValueError(f"curve {metric} of {name} must lie in [0, 1]; it does not.")
        if row.failure is None and row.kind != "trial":
            if row.predictions is None:
                raise ValueError(f"{name} must have predictions; it has none.")
            _check_predictions(row.predictions, facts, name)
            _check_accuracy(row, row.predictions, facts, name)


def _check_predictions(said: Predictions, facts: TableFacts, name: str) -> None:
    if not len(said.rows):
        raise ValueError(f"predictions of {name} must be of at least one row; got none.")
    for values, most in ((said.rows, facts.rows), (said.predicted, len(facts.classes))):
        if int(values.min()) < 0 or int(values.max()) >= most:
            raise ValueError(f"predictions of {name} must be of rows and classes of its table.")
    for chance in (said.confidence, said.given):
        if not bool(((chance >= 0) & (chance <= 1 + 1e-6)).all()):  # NaN fails too
            raise ValueError(f"predictions of {name} must have probabilities from 0 to 1.")


def _check_accuracy(row: Row, said: Predictions, facts: TableFacts, name: str) -> None:
    given = facts.labels[said.rows]
    right = said.predicted == given
    recall = [float(right[given == code].mean()) for code in np.unique(given)]
    found = {"accuracy": float(right.mean()), "balanced_accuracy": float(np.mean(recall))}
    for metric, value in found.items():
        # Accuracy must be there; the other is younger than the first stores.
        stored = row.metrics.get(metric, value if metric != "accuracy" else np.inf)
        if not abs(stored - value) <= CLOSE:
            raise ValueError(
                f"{metric} of {name} must be that of its predictions, {value:.6g}; "
                f"got {stored:.6g}."
            )
