"""Stored rows of the tabular EXACT recipes as means in points, beside the paper's, and as text."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from expacc.recipes.exact import TABLES
from expacc.recipes.exact.protocol import steps_of
from expacc.recipes.page import SLACK, Claim, Comparison, Grid, Number
from expacc.recipes.paper import Layout
from expacc.report.figures import Chart
from expacc.report.panels import dots
from expacc.report.words import INK, NONE, listed, looks, signed
from expacc.runner.rows import Row

Facts = Mapping[str, Any]
Printed = Mapping[str, Mapping[str, Number]]  # table → column → as printed
Gaps = Mapping[str, float]  # table → points
Where = str  # the rows that were scored: 'test' or 'train'
_METRIC = {"test": "accuracy", "train": "train_accuracy"}
_LIKE = ("exact", "leaky_expected_error", "mixed_expected_error", "hinge")
_LOOK = looks({*_LIKE, "cross_entropy", "focal"})
_SERIES = list(zip([INK, *(_LOOK[one].colour for one in _LIKE)], "oDs^v", strict=True))


class Scores:
    """Final rows by part, table and method.

    Args:
        name: of the recipe, whose page they fill.
        rows: all that there are; failed runs are counted apart, trials are left out.
        facts: of the work.

    Attributes:
        tables: those at hand, in the paper's order.
        layout: of the page.
        cpu: part → seconds of one core.
    """

    def __init__(self, name: str, rows: Sequence[Row], facts: Facts) -> None:
        self._good: dict[tuple[str, str, str], list[Row]] = {}
        self._bad: dict[tuple[str, str, str], list[Row]] = {}
        self.cpu: dict[str, float] = {}
        for row in rows:
            part = str(row.numbers.get("part", "given"))
            self.cpu[part] = self.cpu.get(part, 0.0) + row.metrics.get("cpu_seconds", 0.0)
            if row.kind != "trial":
                kept = self._good if row.failure is None else self._bad
                kept.setdefault((part, row.table, row.loss), []).append(row)
        self._sizes = facts["tables"]
        self.tables = [table for table in TABLES if table in facts["tables"]]
        worth = ", ".join(f"{table} {one:.2f}" for table, one in self.grain().items())
        steps = [
            f"{facts['epochs'] * steps_of(self._sizes[table]['train_rows']):,} for {table}"
            for table in self.tables
        ]
        words = {"steps_each": listed(steps), "worth": worth, "slack": SLACK}
        words["cpu"] = self.cpu.get("search", 0.0)
        self.layout = Layout("exact", name, {**facts, **words})

    def grain(self, where: Where = "test") -> dict[str, float]:
        """Table → what one of its rows is worth, in points."""
        return {name: 100 / self._sizes[name][f"{where}_rows"] for name in self.tables}

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

    def gaps(self, part: str, method: str, other: str, *, other_part: str = "") -> dict[str, float]:
        """Table → points of test accuracy by which a method's mean is above another's."""
        found = {}
        for table in self.tables:
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

    def settings(self, part: str, table: str, method: str) -> Mapping[str, Any]:
        """What the runs were trained with."""
        rows = self._good.get((part, table, method), ())
        return {k: v for k, v in rows[0].numbers.items() if k != "part"} if rows else {}

    def compared(
        self, printed: Printed, columns: Mapping[str, tuple[str, str, str]], where: Where = "test"
    ) -> Iterator[Comparison]:
        """Ours beside a table of the paper.

        Args:
            printed: the table.
            columns: its column → name, and the part and method of ours.
            where: the rows that were scored.
        """
        for table in self.tables:
            for column, (name, part, method) in columns.items():
                failed = len(self._bad.get((part, table, method), ()))
                note = f"{failed} runs diverged." if failed else ""
                ours = self.number(part, table, method, where)
                yield Comparison((table, name), printed[table][column], ours, note)

    def grid(
        self,
        key: str,
        columns: Mapping[str, tuple[str, str, Where]],
        *,
        needs: slice = slice(None),
        mark: bool = False,
    ) -> Grid:
        """Means and deviations, a table a row.

        Args:
            key: of the part of the page.
            columns: name → part, method and the rows that were scored.
            needs: columns of which one at least must have a number, or the table is left out.
            mark: whether the best of a row is set in bold.
        """
        rows: list[tuple[str, ...]] = []
        marked: list[tuple[int, int]] = []
        for table in self.tables:
            numbers = [self.number(part, table, m, where) for part, m, where in columns.values()]
            if any(numbers[needs]):
                means = [round(number.mean, 2) if number else -1.0 for number in numbers]
                best = [place for place, mean in enumerate(means, 1) if mean == max(means)]
                marked += [(len(rows), place) for place in best if mark]
                rows.append((table, *(str(number or NONE) for number in numbers)))
        return self.layout.grid(key, rows, columns=columns, marked=marked)

    def chart(self, key: str, gains: Mapping[str, Gaps], less: str) -> tuple[Chart, ...]:
        """What each series adds, table by table; ``less`` says what is subtracted from what."""
        known = {name: found for name, found in gains.items() if found}
        said = "; ".join(
            f"{name}: " + ", ".join(f"{table} {signed(gap)}" for table, gap in found.items())
            for name, found in known.items()
        )
        label = f"{less} (points)"
        draw = partial(dots, series=known, looks=_SERIES, grain=self.grain(), label=label)
        finding = f"In points, {less}. {said}."
        return (self.layout.chart(key, finding, draw, less=less),) if known else ()

    def claim(
        self,
        key: str,
        printed: Printed,
        columns: tuple[str, str],
        gaps: Gaps,
        holds: Callable[[float, float], bool],
        **words: Any,
    ) -> Claim:
        """One column less another, mean over tables, in points.

        Args:
            key: of the claim.
            printed: the table.
            columns: the first less the second.
            gaps: table → ours; the paper's mean is over the same tables.
            holds: of the paper's mean and ours, whether it is so here.
            words: for what it says.
        """
        if not gaps:
            return self.layout.claim(key, "", None, theirs="", **words)
        theirs = float(np.mean(list(printed_gaps(printed, *columns, list(gaps)).values())))
        ours = float(np.mean(list(gaps.values())))
        found = f"{signed(ours)}; better / level / worse: {counts_text(gaps)}"
        return self.layout.claim(key, found, holds(theirs, ours), theirs=signed(theirs), **words)


def _number(found: Sequence[float]) -> Number | None:
    return Number(float(np.mean(found)), float(np.std(found)), len(found)) if found else None


def printed_gaps(
    printed: Printed, column: str, other: str, tables: Sequence[str]
) -> dict[str, float]:
    """Table → one column of the paper less another."""
    return {table: printed[table][column].mean - printed[table][other].mean for table in tables}


def counts_text(gaps: Gaps) -> str:
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
