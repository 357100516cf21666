"""What a study leaves behind: all that the report, the leaderboard and the suspects are made of.

The store vouches for its own bytes. Here its values are checked against each other: predictions
against the table, accuracies against predictions and labels, keys against what they name.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from expacc.files import Between, Numbers, check_shape
from expacc.report.words import OUTSIDE
from expacc.runner.rows import LONGEST, Predictions, Row

TEST_SET = "test"  # the fold of data whose test rows are given, and its setting
GIVEN = "given"  # the setting 'noise' where wrong labels were not drawn
NETWORK = "network"  # the setting 'model' of a user's own network


@dataclass(frozen=True)
class Protocol:
    """A way of splitting a table.

    Attributes:
        kind: decides the test.
        text: for sentences, such as '5×2 cv'.
        folds: the names of all folds, where they follow from the protocol; else ().
        parts: how many parts the rows are dealt to, for the size of a test fold; 0 if unknown.
        repeats: how often they are dealt.
    """

    kind: Literal["5x2", "folds", "holdout", "test"]
    text: str
    folds: tuple[str, ...] = ()
    parts: int = 0
    repeats: int = 1

    @property
    def test(self) -> str:
        """The test's name and source, for the methods paragraph."""
        if self.kind == "holdout":
            return "McNemar’s mid-p test (Fagerland, Lydersen and Laake, 2013)"
        if self.kind == "test":
            return (
                "a t test of the paired differences, whose variance is that over test rows plus "
                "that over seeds, with Cochran’s critical value"
            )
        return (
            "a sign-flip test of the paired differences of the test rows, with a variance factor "
            "for what rows teach each other"
        )


def read_protocol(folds: str, named: tuple[str, ...] = ()) -> Protocol:
    """Read the setting 'folds'; ``named`` are the folds that a table has of its own.

    >>> read_protocol("5x2").text, read_protocol("10").text, read_protocol("3x10").text
    ('5×2 cv', '10-fold cv', '3×10-fold cv')
    """
    if folds == "5x2":
        names = tuple(f"{repeat}{half}" for repeat in range(1, 6) for half in "ab")
        return Protocol("5x2", "5×2 cv", names, 2, 5)
    if folds == TEST_SET:
        return Protocol("test", "one test set", (TEST_SET,))
    if folds.startswith("holdout") and len(named) > 1:
        return Protocol("folds", f"{len(named)} given folds", named, len(named))
    if folds.startswith("holdout"):
        return Protocol("holdout", "one holdout", ("holdout",))
    found = re.fullmatch(r"(?:(\d{1,4})[x×])?(\d{1,4})", folds)
    if not found:
        return Protocol("folds", f"splits {folds!r}")
    repeats, parts = found.groups()
    if repeats:
        return Protocol("folds", f"{repeats}×{parts}-fold cv", named, int(parts), int(repeats))
    names = named or tuple(str(fold) for fold in range(1, int(parts) + 1))
    return Protocol("folds", f"{parts}-fold cv", names, int(parts))


def check_folds(folds: str) -> None:
    """Raise for a setting 'folds' that a new study cannot have."""
    protocol = read_protocol(folds)
    if folds == "holdout" or protocol.parts > 1:
        return
    if protocol.parts or folds.isdecimal():
        raise ValueError(f"folds must be at least 2; got {folds!r}. For one split use holdout.")
    raise ValueError(f"folds must be 5x2, a number, RxK or holdout; got {folds!r}.")


@dataclass(frozen=True, eq=False)
class TableFacts:
    """A table of the study, as far as a report needs it.

    Args:
        name: of the table.
        rows: how many.
        features: how many, as the model sees them.
        classes: labels as text, in the order of their numbers.
        labels: the class number that the table gives each row, shape (rows,).
        notes: what was noticed when it was read.
        sha256: of the file.
        target: the name of the column that holds the labels.
        folds: the names of all its folds, as rows carry them; () if they follow from the protocol.
        columns: the names of the features, in the order of the table; () if a study did not say.
        reading: the options that it was read with, where they are not the usual ones.
        source: its lines and cells, packed; see ``expacc.compare.suspects.SourceRows``.
    """

    name: str
    rows: int
    features: int
    classes: tuple[str, ...]
    labels: NDArray[np.int32]
    notes: tuple[str, ...] = ()
    sha256: str = ""
    target: str = ""
    folds: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    reading: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""

    def __post_init__(self) -> None:
        if np.shape(self.labels) != (self.rows,):
            raise ValueError(
                f"labels of {self.name} must hold one class number per row, shape "
                f"({self.rows},); got {np.shape(self.labels)}."
            )

    def to_json(self) -> dict[str, Any]:
        """Plain values; ``read_tables`` reads them."""
        plain = {name: list(v) if isinstance(v, tuple) else v for name, v in vars(self).items()}
        return {**plain, "labels": self.labels.tolist()}


def majority_of(facts: TableFacts) -> tuple[int, float]:
    """The number of a table's most frequent class, the first of several, and its share."""
    counts = np.bincount(facts.labels, minlength=len(facts.classes))
    code = int(counts.argmax())
    return code, float(counts[code] / max(1, facts.rows))


def with_target(settings: Mapping[str, Any], tables: Mapping[str, TableFacts]) -> dict[str, Any]:
    """What was asked for, the target first; of several tables, theirs."""
    named = [f"{name}: {facts.target}" for name, facts in tables.items()]
    target = ", ".join(named) if len(named) > 1 else next(iter(tables.values())).target
    others = {name: value for name, value in settings.items() if name != "tables"}
    return {"target": target, **others}


@dataclass(frozen=True, eq=False)
class StudyRecord:
    """A study, running or finished.

    Args:
        settings: what was asked for: 'losses' (names), 'model', 'trials', 'folds' ('5x2', '10',
            '3x10', 'holdout' …), 'seeds' (how many), 'label_noise' (shares), 'seed' …
        tables: name → facts.
        rows: every run so far.
        versions: package → version.
        started: when, in words.
        seconds: how long it took.
        command: what to type to repeat it.
        next_step: what to type to train what it recommends; '' if it did not say.
        left_out: lines on what was not run beside the losses, and why.
        pictures: of rows by number, PNG files in base64, for those that a page shows.
    """

    settings: Mapping[str, Any]
    tables: Mapping[str, TableFacts]
    rows: tuple[Row, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    started: str = ""
    seconds: float = 0.0
    command: str = ""
    next_step: str = ""
    left_out: tuple[str, ...] = ()
    pictures: Mapping[str, str] = field(default_factory=dict)

    @property
    def folds(self) -> str:
        """The protocol, as in the settings."""
        return str(self.settings.get("folds", "5x2"))

    @property
    def noise_levels(self) -> tuple[float, ...]:
        """The shares of replaced training labels, smallest first."""
        asked = self.settings.get("label_noise") or ()
        found = {float(share) for share in asked} | {row.noise for row in self.rows}
        return tuple(sorted(found)) or (0.0,)

    def finals(self, table: str | None = None, *, noise: float | None = None) -> list[Row]:
        """Final and outside runs, failed ones too, in the order of their keys."""
        kept = (
            row
            for row in self.rows
            if row.kind != "trial"
            and (table is None or row.table == table)
            and (noise is None or row.noise == noise)
        )
        return sorted(kept, key=lambda row: row.key)


RUN = "run"  # in the key of an item that is a single run
BESIDE = "references"  # ends the key of an item of what is run beside the losses
PNG = b"\x89PNG\r\n\x1a\n"  # how a file begins
_LARGEST_PICTURE = 1 << 17  # letters
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
    "next_step": str,
    "left_out": [str],
    "pictures": {str: str},
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
            "columns?": [str],
            "reading?": {str: (str, int, bool, None, [(str, int)])},
            "source?": str,
        }
    ],
}
_TEXTS = ("classes", "notes", "folds", "columns")
_SHARES = (
    "accuracy",
    "balanced_accuracy",
    "train_accuracy",
    "validation_accuracy",
    "last_accuracy",
)


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


def check_pictures(pictures: Mapping[str, str]) -> Mapping[str, str]:
    """The pictures of rows, if they are what a page may hold."""
    for row, text in pictures.items():
        head = base64.b64decode(text.encode(), validate=True)[:8]
        if not row.isdecimal() or len(text) > _LARGEST_PICTURE or head != PNG:
            raise ValueError(f"picture {row!r:.20} must be a small PNG file of a row; it is not.")
    return pictures


def read_tables(notes: Mapping[str, Any]) -> dict[str, TableFacts]:
    """The tables of checked notes, by name."""
    tables = {}
    for facts in notes.get("tables", ()):
        name, labels = facts["name"], np.array(facts["labels"], np.int32)
        if name in tables:
            raise ValueError(f"tables must have different names; got {name!r:.60} twice.")
        if labels.size and int(labels.max()) >= len(facts["classes"]):
            raise ValueError(f"labels of {name!r:.60} must be classes of it; got one beyond.")
        texts = {part: tuple(facts.get(part, ())) for part in _TEXTS}
        tables[name] = TableFacts(**{**facts, **texts, "labels": labels})
    if not tables:
        raise ValueError("a study must have a table; this one has none.")
    return tables


def check_rows_of_study(
    rows: Sequence[Row], tables: Mapping[str, TableFacts], settings: Mapping[str, Any]
) -> None:
    """Raise for the first row that does not agree with itself, its table or the settings."""
    losses = {*settings["losses"], *OUTSIDE}
    for row in rows:
        name = f"row {row.key!r:.200}"
        facts = tables.get(row.table)
        item = f"{row.table}|{row.noise:g}|{row.fold}"
        items = (item, f"{item}|{BESIDE}") if row.loss in OUTSIDE else (item,)
        own = settings["model"] == NETWORK and row.item.startswith(f"{item}|{RUN}|")
        if facts is None or row.loss not in losses or not (own or row.item in items):
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
