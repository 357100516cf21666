"""Stored rows of the tabular EXACT recipes as means in points, and the words for them."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from expacc.recipes.exact.paper import TABLES
from expacc.recipes.exact.protocol import steps_of
from expacc.recipes.page import Number
from expacc.runner.rows import Row

__all__ = [
    "Scores",
    "listed",
    "number_text",
    "protocol_deviations",
    "settings_text",
    "signed",
    "tables_of",
]

Where = Literal["test", "train"]
_METRIC = {"test": "accuracy", "train": "train_accuracy"}


class Scores:
    """Final rows by part, table and method.

    Args:
        rows: all that there are; trials and failed runs are counted apart.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self._good: dict[tuple[str, str, str], list[Row]] = {}
        self._bad: dict[tuple[str, str, str], list[Row]] = {}
        self.trials: dict[tuple[str, str], int] = {}
        self.cpu: dict[str, float] = {}
        for row in rows:
            part = str(row.numbers.get("part", "given"))
            self.cpu[part] = self.cpu.get(part, 0.0) + row.seconds
            if row.kind == "trial":
                own = (row.table, row.loss)
                self.trials[own] = self.trials.get(own, 0) + 1
                continue
            kept = self._good if row.failure is None else self._bad
            kept.setdefault((part, row.table, row.loss), []).append(row)

    def each(
        self, part: str, table: str, method: str, where: Where = "test"
    ) -> dict[tuple[str, int], float]:
        """Accuracy in points by split and seed."""
        rows = self._good.get((part, table, method), ())
        return {(row.fold, row.seed): 100 * row.metrics[_METRIC[where]] for row in rows}

    def number(self, part: str, table: str, method: str, where: Where = "test") -> Number | None:
        """Mean and deviation over splits and seeds; None if there is no run."""
        found = list(self.each(part, table, method, where).values())
        if not found:
            return None
        return Number(float(np.mean(found)), float(np.std(found)), len(found))

    def difference(
        self, part: str, table: str, method: str, other: str, where: Where = "test"
    ) -> Number | None:
        """Mean and deviation of the paired difference to another method."""
        own, its = (self.each(part, table, one, where) for one in (method, other))
        gaps = [own[key] - its[key] for key in own if key in its]
        if not gaps:
            return None
        return Number(float(np.mean(gaps)), float(np.std(gaps)), len(gaps))

    def by_rate(self, part: str, table: str, method: str) -> dict[float, float]:
        """Mean test accuracy in points by learning rate."""
        found: dict[float, list[float]] = {}
        for row in self._good.get((part, table, method), ()):
            rate = float(row.numbers["learning_rate"])
            found.setdefault(rate, []).append(100 * row.metrics["accuracy"])
        return {rate: float(np.mean(values)) for rate, values in sorted(found.items())}

    def failed(self, part: str, table: str, method: str) -> int:
        """How many runs have no score."""
        return len(self._bad.get((part, table, method), ()))

    def settings(self, part: str, table: str, method: str) -> Mapping[str, Any]:
        """What the runs were trained with."""
        rows = self._good.get((part, table, method), ())
        return {k: v for k, v in rows[0].numbers.items() if k != "part"} if rows else {}


def listed(words: Sequence[str]) -> str:
    """Words in a row.

    >>> listed(["car"]), listed(["car", "wine", "adult"]), listed([])
    ('car', 'car, wine and adult', 'none')
    """
    if not words:
        return "none"
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def signed(value: float | None, digits: int = 2) -> str:
    """A difference with its sign, and a real minus.

    >>> signed(3.4), signed(-0.72), signed(0.001), signed(None)
    ('+3.40', '−0.72', '0.00', '–')
    """
    if value is None:
        return "–"
    text = f"{value:+.{digits}f}"
    return text.replace("-", "−") if float(text) else text.lstrip("+-")


def number_text(number: Number | None) -> str:
    """As the paper's tables have it.

    >>> number_text(Number(95.2, 0.14)), number_text(None)
    ('95.20 ± 0.14', '–')
    """
    if number is None:
        return "–"
    spread = "" if number.spread is None else f" ± {number.spread:.2f}"
    return f"{number.mean:.2f}{spread}"


_SHORT = {"learning_rate": "rate", "clip": "clip", "margin": "margin", "regularization": "L2"}


def settings_text(settings: Mapping[str, Any]) -> str:
    """Settings in a cell.

    >>> settings_text({"learning_rate": 0.05, "margin": 0.05, "regularization": 0.0})
    'rate 0.05, margin 0.05'
    """
    words = [
        f"{short} {settings[name]:g}"
        for name, short in _SHORT.items()
        if settings.get(name) is not None and not (name == "regularization" and not settings[name])
    ]
    return ", ".join(words) or "no penalty"


def tables_of(facts: Mapping[str, Any]) -> list[str]:
    """The tables at hand, in the paper's order."""
    return [name for name in TABLES if name in facts["tables"]]


def protocol_deviations(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Where the paper and its authors' code differ, and which of them is followed."""
    steps = [
        f"{facts['epochs'] * steps_of(facts['tables'][name]['train_rows']):,} for {name}"
        for name in tables_of(facts)
    ]
    return (
        "The paper says that missing categories become the most frequent one; its code makes them "
        "a level of their own, and so do we. Means that stand in for missing numbers come from the "
        "training rows here, from all rows there.",
        "The paper says 8000 steps; its code, which we follow, trains 16 epochs of as many whole "
        f"copies of the table as go into 500 batches, shuffled as one: {listed(steps)}.",
    )
