"""What a page holds, before it becomes HTML or Markdown: plain frozen records."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it brings matplotlib, which the list of recipes does not need
    from expacc.report.figures import Chart

__all__ = ["Comparison", "Grid", "Number", "Page", "Section", "verdict"]

SLACK = 0.7  # points: what one split and a handful of seeds leave open, whatever the paper's spread


@dataclass(frozen=True)
class Number:
    """A mean in the units of the paper (points of accuracy), its spread, and how many it is of.

    Args:
        mean: finite.
        spread: standard deviation over repeats; None where the paper gives none.
        count: repeats; 0 where unknown.
    """

    mean: float
    spread: float | None = None
    count: int = 0


@dataclass(frozen=True)
class Comparison:
    """One number of the paper, and ours.

    Args:
        labels: what it is of, one text per head column: ('car', 'EXACT', 'test').
        theirs: as printed; None if the paper has no such number.
        ours: None if it was not run, or failed.
        note: the cause of a difference, or why there is no number.
    """

    labels: tuple[str, ...]
    theirs: Number | None
    ours: Number | None
    note: str = ""

    @property
    def difference(self) -> float | None:
        """Ours less theirs."""
        if self.theirs is None or self.ours is None:
            return None
        return self.ours.mean - self.theirs.mean


def verdict(row: Comparison, slack: float = SLACK) -> str:
    """'within', 'above' or 'below' the paper's two deviations, or ``slack`` where that is more.

    'not run' and 'new' if there is no number of ours, or of theirs.
    """
    difference = row.difference
    if row.theirs is None or difference is None:
        return "not run" if row.ours is None else "new"
    room = max(slack, 2 * (row.theirs.spread or 0.0)) + 1e-9
    if abs(difference) <= room:
        return "within"
    return "above" if difference > 0 else "below"


@dataclass(frozen=True)
class Grid:
    """A table of words and numbers as they stand.

    Args:
        title: what it shows.
        head: one text per column; the first column labels the rows.
        rows: cells as texts, already rounded.
        note: below it.
        marked: (row, column) of cells to set in bold, as papers mark their best.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    marked: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Section:
    """A part of a page, shown in this order: text, ours beside theirs, grids, charts.

    Args:
        title: of the section.
        text: paragraphs.
        beside: numbers of the paper with ours; rendered with difference and verdict.
        beside_head: names of the label columns of ``beside``.
        unit: of those numbers.
        slack: what counts as equal, in that unit.
        grids: further tables.
        charts: made by ``expacc.report.figures.chart``.
    """

    title: str
    text: tuple[str, ...] = ()
    beside: tuple[Comparison, ...] = ()
    beside_head: tuple[str, ...] = ()
    unit: str = "points"
    slack: float = SLACK
    grids: tuple[Grid, ...] = ()
    charts: tuple["Chart", ...] = ()


@dataclass(frozen=True)
class Page:
    """A recipe's result.

    Args:
        title: of the page.
        claim: what the paper says, in a sentence or two.
        answer: what we found, gains and non-gains alike, in a sentence or two; it stands first.
        sections: the body.
        deviations: what we did otherwise than the paper, and why; one paragraph each.
    """

    title: str
    claim: str
    answer: str
    sections: tuple[Section, ...]
    deviations: tuple[str, ...] = ()
