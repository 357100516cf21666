"""Stored rows of the tabular EXACT recipes as means in points, beside the paper's, and as text."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from expacc.recipes.exact.paper import TABLES
from expacc.recipes.exact.protocol import steps_of
from expacc.recipes.page import SLACK, Claim, Comparison, Grid, Number
from expacc.report.words import NONE, listed, signed
from expacc.runner.rows import Row

__all__ = [
    "Scores",
    "accuracy_grid",
    "compared",
    "counts_text",
    "gap_claim",
    "grain",
    "printed_gaps",
    "settings_text",
    "tables_of",
    "with_steps",
]

Facts = Mapping[str, Any]
Printed = Mapping[str, Mapping[str, Number]]  # table → column → as printed
Where = str  # the rows that were scored: 'test' or 'train'
_METRIC = {"test": "accuracy", "train": "train_accuracy"}


class Scores:
    """Final rows by part, table and method.

    Args:
        rows: all that there are; failed runs are counted apart, trials are left out.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self._good: dict[tuple[str, str, str], list[Row]] = {}
        self._bad: dict[tuple[str, str, str], list[Row]] = {}
        self.cpu: dict[str, float] = {}
        for row in rows:
            part = str(row.numbers.get("part", "given"))
            self.cpu[part] = self.cpu.get(part, 0.0) + row.metrics.get("cpu_seconds", 0.0)
            if row.kind != "trial":
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
        return _number(list(self.each(part, table, method, where).values()))

    def difference(self, part: str, table: str, method: str, other: str) -> Number | None:
        """Mean and deviation of the paired difference to another method on the test rows."""
        own, its = (self.each(part, table, one) for one in (method, other))
        return _number([own[key] - its[key] for key in own if key in its])

    def gaps(
        self, part: str, method: str, other: str, facts: Facts, *, other_part: str = ""
    ) -> dict[str, float]:
        """Table → points of test accuracy by which a method's mean is above another's."""
        found = {}
        for table in tables_of(facts):
            ours = self.number(part, table, method)
            its = self.number(other_part or part, table, other)
            if ours is not None and its is not None:
                found[table] = ours.mean - its.mean
        return found

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


def _number(found: Sequence[float]) -> Number | None:
    return Number(float(np.mean(found)), float(np.std(found)), len(found)) if found else None


def tables_of(facts: Facts) -> list[str]:
    """The tables at hand, in the paper's order."""
    return [name for name in TABLES if name in facts["tables"]]


def grain(facts: Facts, where: Where = "test") -> dict[str, float]:
    """Table → what one of its rows is worth, in points."""
    return {name: 100 / facts["tables"][name][f"{where}_rows"] for name in tables_of(facts)}


# -------------------------------------------------------------------------- beside the paper's


def compared(
    printed: Printed,
    columns: Mapping[str, tuple[str, str, str]],
    scores: Scores,
    facts: Facts,
    where: Where = "test",
) -> tuple[Comparison, ...]:
    """Ours beside a table of the paper.

    Args:
        printed: the table.
        columns: its column → name, and the part and method of ours.
        scores: ours.
        facts: of the work.
        where: the rows that were scored.
    """
    found = []
    for table in tables_of(facts):
        for column, (name, part, method) in columns.items():
            failed = scores.failed(part, table, method)
            note = f"{failed} runs diverged." if failed else ""
            ours = scores.number(part, table, method, where)
            found.append(Comparison((table, name), printed[table][column], ours, note))
    return tuple(found)


def gap_claim(
    says: str,
    printed: Printed,
    columns: tuple[str, str],
    gaps: Mapping[str, float],
    holds: Callable[[float, float], bool],
) -> Claim:
    """One column less another, mean over tables, in points.

    Args:
        says: what is claimed.
        printed: the table.
        columns: the first less the second.
        gaps: table → ours; the paper's mean is over the same tables.
        holds: of the paper's mean and ours, whether it is so here.
    """
    if not gaps:
        return Claim(says, "", "", None, headline=True)
    theirs = float(np.mean(list(printed_gaps(printed, *columns, list(gaps)).values())))
    ours = float(np.mean(list(gaps.values())))
    found = f"{signed(ours)}; better / level / worse: {counts_text(gaps)}"
    return Claim(says, signed(theirs), found, holds(theirs, ours), headline=True)


def printed_gaps(
    printed: Printed, column: str, other: str, tables: Sequence[str]
) -> dict[str, float]:
    """Table → one column of the paper less another."""
    return {table: printed[table][column].mean - printed[table][other].mean for table in tables}


def accuracy_grid(
    title: str,
    columns: Mapping[str, tuple[str, str, Where]],
    scores: Scores,
    facts: Facts,
    *,
    needs: slice = slice(None),
    mark: bool = False,
) -> Grid:
    """Means and deviations, a table a row.

    Args:
        title: of the grid.
        columns: name → part, method and the rows that were scored.
        scores: ours.
        facts: of the work.
        needs: columns of which one at least must have a number, or the table is left out.
        mark: whether the best of a row is set in bold.
    """
    rows: list[tuple[str, ...]] = []
    marked: list[tuple[int, int]] = []
    for table in tables_of(facts):
        numbers = [scores.number(part, table, m, where) for part, m, where in columns.values()]
        if any(numbers[needs]):
            means = [round(number.mean, 2) if number else -1.0 for number in numbers]
            best = [place for place, mean in enumerate(means, 1) if mean == max(means)]
            marked += [(len(rows), place) for place in best if mark]
            rows.append((table, *(str(number or NONE) for number in numbers)))
    return Grid(title, ("table", *columns), tuple(rows), marked=tuple(marked))


# ------------------------------------------------------------------------------------- as text


def counts_text(gaps: Mapping[str, float]) -> str:
    """On how many tables it is better, level within the slack, worse.

    >>> counts_text({"car": 3.5, "wine": 0.0, "adult": -0.1})
    '1 / 2 / 0'
    """
    up, down = (sum(sign * gap > SLACK for gap in gaps.values()) for sign in (1, -1))
    return f"{up} / {len(gaps) - up - down} / {down}"


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


def with_steps(facts: Facts) -> dict[str, Any]:
    """The facts, and how many steps each table is trained for, as text."""
    steps = [
        f"{facts['epochs'] * steps_of(facts['tables'][name]['train_rows']):,} for {name}"
        for name in tables_of(facts)
    ]
    return {**facts, "steps_each": listed(steps)}
