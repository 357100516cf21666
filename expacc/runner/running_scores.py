"""Where the losses of a study stand while it runs: for the bar, its table, and a tracker."""

from collections.abc import Callable, Sequence

from expacc.plain import Report
from expacc.runner.rows import Row

MOST = 12  # lines of the table


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
