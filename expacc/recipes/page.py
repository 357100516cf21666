"""What a page holds, before it becomes Markdown and HTML: plain frozen records.

A page is a list of tables and figures. What the paper says stands as ``Claim``s, one line each
(*claim · paper · ours · verdict*), its numbers as ``Comparison``s; the answer on top is counted
from them. No code of a page puts sentences together: text is fixed, or left out.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from expacc.report.words import NONE, mean_spread

if TYPE_CHECKING:  # it brings matplotlib, which the list of recipes does not need
    from expacc.report.figures import Chart

VERDICTS = ("within", "above", "below", "new", "not run")

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

    def __str__(self) -> str:
        """As the papers' tables have it: '20.84 ± 0.26'."""
        return mean_spread(self.mean, self.spread)


def number_of(values: Iterable[float]) -> Number | None:
    """Mean and standard deviation (of a sample) of some values; None of none.

    >>> number_of([1.0, 2.0, 3.0]), number_of([])
    (Number(mean=2.0, spread=1.0, count=3), None)
    """
    import numpy as np  # which the list of recipes does not need

    found = list(values)
    if not found:
        return None
    spread = float(np.std(found, ddof=1)) if len(found) > 1 else None
    return Number(float(np.mean(found)), spread, len(found))


@dataclass(frozen=True)
class Claim:
    """One claim of the paper, and what we found: a line of the table on top of the page.

    Args:
        says: what is claimed, short: 'LEErr against NegLog on magic'.
        paper: its outcome there: 'win'.
        ours: its outcome here, with numbers: 'win, −0.31 points, p = 0.003'; '' if not run.
        holds: whether it is so here; None where it was not run or cannot be judged.
        headline: whether it stands among the results of the README, too.
    """

    says: str
    paper: str
    ours: str
    holds: bool | None
    headline: bool = False

    @property
    def verdict(self) -> str:
        """'holds', 'does not hold' or 'not run'."""
        return {True: "holds", False: "does not hold", None: "not run"}[self.holds]


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
        answer: a sentence to stand first; '' to count it from claims and numbers.
        sections: the body.
        deviations: what we did otherwise than the paper, and why; one paragraph each.
        claims: what the paper says, piece by piece, with what we found.
    """

    title: str
    claim: str
    answer: str
    sections: tuple[Section, ...]
    deviations: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()


def verdict_counts(page: Page) -> dict[str, int]:
    """How many numbers of the page have which verdict; those that none has are left out."""
    found = Counter(
        verdict(row, section.slack) for section in page.sections for row in section.beside
    )
    return {name: found[name] for name in VERDICTS if found[name]}


def claim_counts(page: Page) -> tuple[int, int]:
    """How many claims hold, and how many were judged."""
    judged = [claim.holds for claim in page.claims if claim.holds is not None]
    return sum(judged), len(judged)


def counts_text(counts: Mapping[str, int]) -> str:
    """The verdicts of numbers in words.

    >>> counts_text({"within": 18, "below": 2, "not run": 4})
    "18 of 20 numbers agree with the paper's, 2 below; 4 not run"
    >>> counts_text({})
    'no number of the paper to hold ours against'
    """
    judged = sum(counts.get(name, 0) for name in ("within", "above", "below"))
    parts = [f"{counts.get('within', 0)} of {judged} numbers agree with the paper's"]
    parts += [f"{counts[name]} {name}" for name in ("above", "below") if counts.get(name)]
    text = ", ".join(parts) if judged else "no number of the paper to hold ours against"
    left = [f"{counts[name]} {name}" for name in ("new", "not run") if counts.get(name)]
    return "; ".join([text, *left])


def answer_of(page: Page) -> str:
    """What stands first: the page's own sentence, or how many claims and numbers hold."""
    held, judged = claim_counts(page)
    claims = f"{held} of {judged} claims hold. " if judged else ""
    numbers = counts_text(verdict_counts(page))
    return page.answer or f"{claims}{numbers[0].upper()}{numbers[1:]}."


def figure_text(value: float, slack: float) -> str:
    """A number with one digit more than what counts as a difference.

    >>> figure_text(95.2, 0.7), figure_text(1234.5678, 5), figure_text(0.31, 0.01)
    ('95.20', '1,234.6', '0.310')
    >>> figure_text(3.2e-9, 0.7), figure_text(3.2e-9, 0), figure_text(-0.0001, 0.7)
    ('0.00', '3.2e−9', '0.00')
    """
    if slack > 0:
        text = f"{value:,.{min(9, max(0, 1 - math.floor(math.log10(slack))))}f}"
    else:
        text = f"{value:.3g}"
    if "e" in text:
        digits, power = text.split("e")
        text = f"{digits}e{int(power)}"
    return text.replace("-", "−") if re.search("[1-9]", text) else text.replace("-", "")


def difference_text(value: float | None, slack: float) -> str:
    """A difference with its sign.

    >>> difference_text(0.014, 0.7), difference_text(-3, 0.7), difference_text(0.001, 0.7)
    ('+0.01', '−3.00', '0.00')
    """
    if value is None:
        return NONE
    shown = figure_text(value, slack)
    return f"+{shown}" if value > 0 and re.search("[1-9]", shown) else shown


def _number(number: Number | None, slack: float) -> str:
    if number is None:
        return NONE
    text = figure_text(number.mean, slack)
    return text if number.spread is None else f"{text} ± {figure_text(number.spread, slack)}"


def beside_table(section: Section) -> tuple[str, list[str], list[list[str]]]:
    """Ours beside theirs: what the numbers are and the verdicts mean, the head, and the rows."""
    counts = {row.ours.count for row in section.beside if row.ours and row.ours.count}
    one = counts.pop() if len(counts) == 1 else 0
    width = max(len(row.labels) for row in section.beside)
    # Without a slack the paper's spreads say how many digits count.
    spreads = [row.theirs.spread for row in section.beside if row.theirs and row.theirs.spread]
    shown = section.slack or min(spreads, default=0.0)
    numbers = [number for row in section.beside for number in (row.theirs, row.ours) if number]
    spread = any(number.spread is not None for number in numbers)
    means = "Means and, after ±, standard deviations" if spread else "Numbers"
    over = f" Ours over {one} runs." if one > 1 else ""
    head = [*(*section.beside_head, *[""] * width)[:width]]
    head += ["paper", "ours", "difference", "verdict"]
    rows = [_line(row, width, section.slack, shown, count=not one) for row in section.beside]
    if any(row.note for row in section.beside):
        head.append("note")
        rows = [[*line, row.note] for line, row in zip(rows, section.beside, strict=True)]
    return f"{means}, in {section.unit}.{over} {_legend(section)}", head, rows


def _line(row: Comparison, width: int, slack: float, shown: float, *, count: bool) -> list[str]:
    of = row.ours.count if row.ours and count else 0
    return [
        *(*row.labels, *[""] * width)[:width],
        _number(row.theirs, shown),
        _number(row.ours, shown) + (f" ({of})" if of else ""),
        difference_text(row.difference, shown),
        verdict(row, slack),
    ]


def _legend(section: Section) -> str:
    """What 'within' means in this section."""
    spread = any(row.theirs and row.theirs.spread for row in section.beside)
    if not spread and section.slack <= 0:
        return "Within: ours is the paper's number."
    slack = f"{section.slack:g} {section.unit}"
    room = "two of the paper's standard deviations" if spread else slack
    more = f", or {slack} where that is more" if spread and section.slack > 0 else ""
    return f"Within: ours is no further from the paper's than {room}{more}."
