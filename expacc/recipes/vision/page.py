"""What the pages of recipes with pictures have in common: accuracies, differences, time, curves."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from expacc.recipes.leaky import paired_t
from expacc.recipes.page import Grid, Number, Section, number_of
from expacc.recipes.paper import Layout, load_paper
from expacc.report.panels import Line, Panel
from expacc.report.words import counted, duration, looks, p_text, p_value_text, signed
from expacc.runner.rows import Row

Key = tuple[str, ...]  # what tells cells apart: the set, and labels of the rows


@dataclass(frozen=True)
class Gap:
    """Accuracy of one method less another's on the same seeds and folds, in points."""

    mean: float
    error: float | None
    pairs: int
    p_value: float

    def __str__(self) -> str:
        """With the p-value of the paired t test, where there is one."""
        return signed(self.mean) + (f", {p_text(self.p_value)}" if self.pairs > 1 else "")


class Cells:
    """Test accuracies in points, by what the rows are of.

    Args:
        rows: of the store.
        labels: names of the labels that tell cells apart, beside the set.
        facts: of the work.
        called: label → what the page calls it.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        labels: Sequence[str],
        facts: Mapping[str, Any],
        called: Mapping[str, str] | None = None,
    ) -> None:
        self.called, self.facts, self.finals = (
            called or {},
            facts,
            [r for r in rows if r.kind == "final" and not r.failure],
        )
        self._labels = labels
        self._found: dict[tuple[Key, str], dict[tuple[str, int], Row]] = defaultdict(dict)
        for row in self.finals:
            self._found[self.key(row), row.loss][row.fold, row.seed] = row

    def key(self, row: Row) -> Key:
        """Which cell a row is of."""
        return row.table, *(str(row.numbers[name]) for name in self._labels)

    @property
    def keys(self) -> list[Key]:
        """The cells that have rows, in the order of the plan."""
        found = {key for key, _ in self._found}
        planned = [tuple(cell["key"]) for cell in self.facts["cells"]]
        return [key for key in planned if key in found]

    def named(self, key: Iterable[str]) -> Key:
        """A cell's key in the words of the page."""
        return tuple(self.called.get(one, one) for one in key)

    def rows(self, key: Key, method: str) -> list[Row]:
        """Those of a cell and a method."""
        return list(self._found.get((key, method), {}).values())

    def values(self, key: Key, method: str) -> dict[tuple[str, int], float]:
        """Fold and seed → accuracy."""
        found = self._found.get((key, method), {})
        return {at: 100 * row.metrics["accuracy"] for at, row in found.items()}

    def number(self, key: Key, method: str) -> Number | None:
        """The mean over folds and seeds."""
        return number_of(self.values(key, method).values())

    def differences(self, key: Key, first: str, second: str) -> list[float]:
        """First less second, on the folds and seeds that both have."""
        one, other = self.values(key, first), self.values(key, second)
        return [one[at] - other[at] for at in sorted(one.keys() & other.keys())]

    def gap(self, key: Key, first: str, second: str) -> Gap | None:
        """Their mean; None without a pair."""
        found = np.array(self.differences(key, first, second))
        if not len(found):
            return None
        error = float(found.std(ddof=1)) / len(found) ** 0.5 if len(found) > 1 else None
        return Gap(float(found.mean()), error, len(found), paired_t(found.tolist()))

    def note(self, key: Key, method: str) -> str:
        """How many epochs a number is of."""
        own = self.rows(key, method)
        return counted(max(int(row.metrics["epochs"]) for row in own), "epoch") if own else ""


def gaps_grid(
    layout: Layout, cells: Cells, pairs: Iterable[tuple[str, str]], names: Mapping[str, str]
) -> Grid:
    """Differences of methods, cell by cell."""
    lines = []
    for key in cells.keys:
        for first, second in pairs:
            if (gap := cells.gap(key, first, second)) is not None:
                error = "" if gap.error is None else f"{gap.error:.2f}"
                p_value = p_value_text(gap.p_value if gap.pairs > 1 else None)
                what = f"{names[first]} less {names[second]}"
                lines.append(
                    (*cells.named(key), what, signed(gap.mean), error, f"{gap.pairs}", p_value)
                )
    return layout.grid("gaps", lines)


def cost_section(layout: Layout, cells: Cells, names: Mapping[str, str]) -> Section:
    """Epochs, seeds and hours of every cell, and the curves of training."""
    lines = []
    for cell in cells.facts["cells"]:
        for method, name in names.items():
            own = cells.rows(tuple(cell["key"]), method)
            if own:
                seconds = [row.seconds for row in own]
                numbers = (cell["epochs"], cell["rows"], len(own))
                lines.append(
                    (
                        *(
                            *cells.named(cell["key"]),
                            name,
                            cell["network"],
                            *(f"{one:,}" for one in numbers),
                        ),
                        *(duration(float(np.mean(seconds))), f"{sum(seconds) / 3600:.2f}"),
                    )
                )
    panels = [panel for key in cells.keys if (panel := _curve(cells, key, names)).lines]
    key = f"{layout.name}-curves"
    return layout.section(
        "cost", grids=[layout.grid("runs", lines)], charts=layout.panels(key, panels, part="curves")
    )


def _curve(cells: Cells, key: Key, names: Mapping[str, str]) -> Panel:
    """Training accuracy by epoch, mean over runs."""
    lines = []
    look = looks(set(names))
    for method, name in names.items():
        own = [row.curves["train_accuracy"] for row in cells.rows(key, method)]
        if own:
            shortest = min(map(len, own))
            mean = 100 * np.mean([curve[:shortest] for curve in own], axis=0)
            epochs = [*range(1, shortest + 1)]
            marker = "." * (shortest == 1)
            lines.append(Line(epochs, mean.tolist(), name, look[method].colour, marker))
    return Panel(", ".join(cells.named(key)), lines, "epoch", "training accuracy (%)")


def layout_of(folder: str, name: str, facts: Mapping[str, Any], **words: Any) -> Layout:
    """The page of a recipe; {about} says what its protocol leaves out."""
    about = load_paper(folder)["pages"][name]["protocols"][facts["protocol"]]
    told = " ".join(about.split()).format(**facts)
    return Layout(folder, name, {**facts, "about": told, **words})
