"""The numbers and facts of a page as text, for HTML and Markdown alike."""

import math
import re
from collections import Counter
from dataclasses import dataclass

from expacc.recipes.page import Comparison, Grid, Number, Page, Section, verdict
from expacc.recipes.provenance import Account
from expacc.report.words import duration

__all__ = [
    "VERDICTS",
    "ComparisonTable",
    "Line",
    "beside_table",
    "counts_text",
    "difference_text",
    "facts",
    "figure_text",
    "legend",
    "verdict_counts",
    "word_columns",
]

VERDICTS = ("within", "above", "below", "new", "not run")
NONE = "–"


def figure_text(value: float, slack: float) -> str:
    """A number with one digit more than what counts as a difference.

    >>> figure_text(95.2, 0.7), figure_text(1234.5678, 5), figure_text(0.31, 0.01)
    ('95.20', '1,234.6', '0.310')
    >>> figure_text(3.2e-9, 0.7), figure_text(3.2e-9, 0), figure_text(-0.0001, 0.7)
    ('0.00', '3.2e−9', '0.00')
    """
    text = f"{value:,.{_decimals(slack)}f}" if slack > 0 else f"{value:.3g}"
    if "e" in text:
        digits, power = text.split("e")
        text = f"{digits}e{int(power)}"
    return text.replace("-", "−") if re.search("[1-9]", text) else text.replace("-", "")


def _decimals(slack: float) -> int:
    return min(9, max(0, 1 - math.floor(math.log10(slack))))


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


@dataclass(frozen=True)
class Line:
    """A row of ours beside theirs, as text.

    Args:
        labels: what it is of.
        theirs: with its spread.
        ours: with its spread.
        count: how many ours is of, where rows differ in that; '' else.
        difference: with its sign.
        verdict: one of ``VERDICTS``.
        note: the cause of a difference.
    """

    labels: tuple[str, ...]
    theirs: str
    ours: str
    count: str
    difference: str
    verdict: str
    note: str


@dataclass(frozen=True)
class ComparisonTable:
    """A section's numbers of the paper with ours, as text.

    Args:
        head: names of the label columns.
        lines: the rows.
        caption: what the numbers are, and what the verdicts mean.
        notes: whether any row has a note.
        unit: of the numbers.
    """

    head: tuple[str, ...]
    lines: tuple[Line, ...]
    caption: str
    notes: bool
    unit: str


def beside_table(section: Section) -> ComparisonTable | None:
    """Ours beside theirs as text; None where a section has no such numbers."""
    if not section.beside:
        return None
    counts = {row.ours.count for row in section.beside if row.ours and row.ours.count}
    one = counts.pop() if len(counts) == 1 else 0
    width = max(len(row.labels) for row in section.beside)
    head = (*section.beside_head, *[""] * width)[:width]
    # Without a slack the paper's spreads say how many digits count.
    spreads = [row.theirs.spread for row in section.beside if row.theirs and row.theirs.spread]
    shown = section.slack or min(spreads, default=0.0)
    lines = tuple(
        _line(row, width, section.slack, shown, show_count=not one) for row in section.beside
    )
    numbers = [number for row in section.beside for number in (row.theirs, row.ours) if number]
    spread = any(number.spread is not None for number in numbers)
    means = "Means and, after ±, standard deviations" if spread else "Numbers"
    over = f" Ours over {one} runs." if one > 1 else ""
    caption = f"{means}, in {section.unit}.{over} {legend(section)}"
    notes = any(line.note for line in lines)
    return ComparisonTable(head, lines, caption, notes, section.unit)


def _line(row: Comparison, width: int, slack: float, shown: float, *, show_count: bool) -> Line:
    count = row.ours.count if row.ours and show_count else 0
    return Line(
        labels=(*row.labels, *[""] * (width - len(row.labels))),
        theirs=_number(row.theirs, shown),
        ours=_number(row.ours, shown),
        count=f"{count} run{'s' if count > 1 else ''}" if count else "",
        difference=difference_text(row.difference, shown),
        verdict=verdict(row, slack),
        note=row.note,
    )


def legend(section: Section) -> str:
    """What 'within' means in this section."""
    spread = any(row.theirs and row.theirs.spread for row in section.beside)
    if not spread and section.slack <= 0:
        return "Within: ours is the paper's number."
    slack = f"{section.slack:g} {section.unit}"
    room = "two of the paper's standard deviations" if spread else slack
    more = f", or {slack} where that is more" if spread and section.slack > 0 else ""
    return f"Within: ours is no further from the paper's than {room}{more}."


_NUMBER = re.compile(r"[-+−±≤≥<>≈~]?\s*[\d.,]+(?:e[-−+]?\d+)?\b.*|[–—-]?", re.S)


def word_columns(grid: Grid) -> list[bool]:
    """For each column of a grid whether it holds words, which stand left, or numbers."""
    width = max([len(grid.head), *(len(row) for row in grid.rows)])
    return [
        column == 0
        or not all(_NUMBER.fullmatch(row[column].strip()) for row in grid.rows if column < len(row))
        for column in range(width)
    ]


def verdict_counts(page: Page) -> dict[str, int]:
    """How many rows of the page have which verdict; those that none has are left out."""
    found = Counter(
        verdict(row, section.slack) for section in page.sections for row in section.beside
    )
    return {name: found[name] for name in VERDICTS if found[name]}


def counts_text(counts: dict[str, int]) -> str:
    """The verdicts in words.

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


def facts(account: Account) -> list[tuple[str, str]]:
    """How it was done, as pairs of a name and a text; the command is left to the page."""
    runs = f"{account.runs:,} in {account.parts_done:,} parts"
    if not account.finished:
        runs += f" of {account.parts:,}: it is not finished"
    failed = f"{account.failed:,}" if account.failed else "none"
    seeds = "as many as the paper has" if account.seeds is None else f"{account.seeds}"
    found = [
        ("runs", runs),
        ("failed runs", failed),
        ("time", f"{duration(account.seconds)} of work, begun {account.started}"),
        ("machine", "; then ".join(account.machines) or "not recorded"),
        ("device", account.device),
        ("seeds", f"{seeds}; all random numbers come from seed {account.seed}"),
    ]
    if account.quick:
        found.append(("quick", "yes: a small part of the whole, to see that it runs"))
    found += [
        ("versions", ", ".join(f"{name} {value}" for name, value in one.items()))
        for one in account.versions
    ]
    if account.commits:
        found.append(("commit", "; then ".join(account.commits)))
    return found
