"""One row per finished run: the only thing that passes from running to reporting; running means.

In the store it is a line of text columns and one of bytes; what comes back is checked.
"""

import hashlib
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from expacc.files import Between, Numbers, check_shape, parse_json
from expacc.plain import Report

Kind = Literal["trial", "final", "outside"]

# Numbers of rows are in order and differ, so predictions shrink by no more than this; bytes that
# grow by more were made to fill the memory.
MOST_PACKED, ROOM = 40, 1 << 16
_PARTS = (("rows", "<i4"), ("predicted", "<i4"), ("confidence", "<f4"), ("given", "<f4"))


@dataclass(frozen=True)
class Predictions:
    """What a model said of the test rows of its fold.

    Args:
        rows: their numbers in the table.
        predicted: class numbers.
        confidence: the calibrated probability of the predicted class.
        given: the calibrated probability of the class that the table gives.
    """

    rows: NDArray[np.int32]
    predicted: NDArray[np.int32]
    confidence: NDArray[np.float32]
    given: NDArray[np.float32]

    def to_bytes(self) -> bytes:
        """Compressed; ``from_bytes`` reads it on any machine."""
        arrays = [np.ascontiguousarray(getattr(self, name), kind) for name, kind in _PARTS]
        header = json.dumps({"count": len(self.rows)}).encode()
        return zlib.compress(header + b"\n" + b"".join(part.tobytes() for part in arrays), 6)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Predictions":
        """The inverse of ``to_bytes``.

        Raises:
            ValueError: bytes that ``to_bytes`` did not write.
        """
        largest = ROOM + MOST_PACKED * len(data)
        stream = zlib.decompressobj()
        try:
            header, _, body = stream.decompress(data, largest + 1).partition(b"\n")
            count = json.loads(header)["count"]
            sizes = [count * np.dtype(kind).itemsize for _, kind in _PARTS]
            whole = stream.eof and not stream.unused_data and type(count) is int
        except (ValueError, zlib.error, KeyError, TypeError, RecursionError, OverflowError):
            whole = False
        if not whole or len(body) != sum(sizes):
            raise ValueError("predictions must be as written; these bytes are damaged.")
        arrays, low = {}, 0
        for (name, kind), size in zip(_PARTS, sizes, strict=True):
            arrays[name] = np.frombuffer(body, kind, count, low)
            low += size
        return cls(**arrays)

    def digest(self) -> str:
        """A hash of what was predicted, to compare runs with."""
        order = np.argsort(self.rows, kind="stable")
        return hashlib.sha256(
            self.rows[order].astype("<i4").tobytes() + self.predicted[order].astype("<i4").tobytes()
        ).hexdigest()


@dataclass(frozen=True)
class Row:
    """A finished run.

    Args:
        key: unique in the study.
        item: the work item it came with.
        kind: 'trial' of the search, 'final' (retrained with the numbers found, tested once) or
            'outside' (scikit-learn's LogisticRegression).
        table: the table's name.
        loss: a name of ``expacc.training.LOSS_NAMES``, or 'logistic_regression'.
        fold: of the table: '1a' … '5b' for 5×2, '1' … '10' for folds, 'holdout'.
        noise: share of training labels replaced at random.
        seed: which repeat, from 0.
        numbers: what the search chose: learning_rate, weight_decay, leak …
        metrics: of final and outside rows 'accuracy', 'balanced_accuracy', 'log_loss',
            'calibration_error', 'train_accuracy', 'temperature', 'bend', and of models that are
            stopped 'last_accuracy', that of the last round; of trials
            'validation_accuracy' and 'validation_loss'. Empty for a failed run.
        curves: name → numbers at even distances up to the last epoch: 'validation_accuracy' …
        predictions: of final and outside rows.
        seconds: its share of the time of what was trained with it.
        failure: why there is no score; None for a good run.
    """

    key: str
    item: str
    kind: Kind
    table: str
    loss: str
    fold: str
    noise: float = 0.0
    seed: int = 0
    numbers: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    curves: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    predictions: Predictions | None = None
    seconds: float = 0.0
    failure: str | None = None


LONGEST = 1e12  # seconds: any sum of times is a number that can be written

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


MOST = 12  # lines of a running table


class RunningScores:
    """The mean accuracy of each loss over its final rows so far.

    Called with rows that were saved; returns the best loss in words.

    Args:
        label: makes a loss's name of people.
        report: told the means after each call, with the number of final rows as the step.
    """

    def __init__(self, label: Callable[[str], str] = str, report: Report | None = None) -> None:
        self._label, self._report = label, report
        self._sums: dict[tuple[str, float], tuple[float, int]] = {}
        self._noise: set[float] = set()

    def __call__(self, rows: Sequence[Row]) -> str:
        """Add rows that were saved, tell the tracker, and give the best loss in words."""
        seen = [row for row in rows if row.kind == "final" and row.failure is None]
        for row in seen:
            self._noise.add(row.noise)
            total, count = self._sums.get((row.loss, row.noise), (0.0, 0))
            self._sums[row.loss, row.noise] = total + row.metrics["accuracy"], count + 1
        if seen and self._report is not None:
            self._report(sum(count for _, count in self._sums.values()), self.means())
        best = self.table()[:1]
        return f"{best[0][0]} {best[0][1]}" if best else ""

    def means(self) -> dict[str, float]:
        """By loss, and noise if there are several shares, as 'accuracy/focal, noise 0.2'."""
        return {
            f"accuracy/{loss}{f', noise {noise:g}' if len(self._noise) > 1 else ''}": total / count
            for (loss, noise), (total, count) in self._sums.items()
        }

    def table(self) -> list[tuple[str, str, str]]:
        """Loss, mean accuracy over all noise, final runs; the best first."""
        sums: dict[str, tuple[float, int]] = {}
        for (loss, _), (total, count) in self._sums.items():
            before = sums.get(loss, (0.0, 0))
            sums[loss] = before[0] + total, before[1] + count
        ranked = sorted((total / count, loss, count) for loss, (total, count) in sums.items())
        return [
            (self._label(loss), f"{100 * mean:.1f} %", f"{count} runs")
            for mean, loss, count in ranked[: -MOST - 1 : -1]
        ]
