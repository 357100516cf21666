"""A recipe's result as Markdown: the same page without its charts."""

import re
from collections.abc import Sequence

from expacc.plain import plain
from expacc.recipes.page import Grid, Section
from expacc.recipes.page_text import beside_table, counts_text, facts, verdict_counts, word_columns
from expacc.recipes.provenance import Result

__all__ = ["escape", "page_markdown", "table"]

MOST_FAILURES = 10
MANY = 25  # rows of a table from which on it is folded away
# What Markdown and GitHub's additions to it (formulas, strikethrough) read as signs.
_SIGNS = re.compile(r"([\\`*_\[\]<>|~$&])")
_STARTS = re.compile(r"^(\s*)([#+-]|\d+[.)](?=\s))")


def escape(text: str) -> str:
    """Any text as one line of Markdown that shows it as it is.

    >>> escape("a_b|c <b> & $x$"), escape("# no heading"), escape("1. no list")
    ('a\\\\_b\\\\|c \\\\<b\\\\> \\\\& \\\\$x\\\\$', '\\\\# no heading', '1\\\\. no list')
    """
    line = _SIGNS.sub(r"\\\1", " ".join(plain(text).split()))
    return _STARTS.sub(lambda m: m[1] + re.sub(r"([#+.)-])$", r"\\\1", m[2]), line)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[bool]) -> list[str]:
    """A Markdown table; cells are escaped already.

    Args:
        head: one text per column.
        rows: as many cells each.
        words: whether a column holds words, which stand left; numbers stand right.
    """
    rule = ["---" if left else "---:" for left in words]
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *rows)]


def page_markdown(result: Result, level: int = 1) -> str:
    """The page as Markdown.

    Args:
        result: what to show.
        level: of its heading; those inside are lower.
    """
    page, account, recipe = result.page, result.account, result.recipe
    mark = "#" * level
    about = f"`{recipe.name}`: {recipe.paper}, {recipe.shows}."
    lines = [f"{mark} {escape(page.title)}", "", about, "", f"**{escape(page.answer)}**", ""]
    if not account.finished:
        lines += [f"Not finished: {account.parts_done:,} of {account.parts:,} parts are done.", ""]
    if account.quick:
        lines += ["A quick run: its numbers are not those to judge by.", ""]
    lines += [f"The paper: {escape(page.claim)}", ""]
    for section in page.sections:
        lines += _section(section, f"{mark}#")
    lines += [f"{mark}# How it was done", "", f"{counts_text(verdict_counts(page))}.", ""]
    if account.command:
        lines += ["```", plain(account.command).replace("```", "'''"), "```", ""]
    lines += [f"- {name}: {escape(value)}" for name, value in facts(account)]
    lines += [f"- left out: {escape(sentence)}" for sentence in account.missing]
    lines += [
        f"- failed: {escape(one.what)}, {one.count} runs: {escape(one.reason)}"
        for one in account.failures[:MOST_FAILURES]
    ]
    if more := len(account.failures[MOST_FAILURES:]):
        lines.append(f"- failed: {more} more kinds")
    if page.deviations:
        lines += ["", "What we did otherwise than the paper:", ""]
        lines += [f"- {escape(text)}" for text in page.deviations]
    return "\n".join(lines).rstrip() + "\n"


def _section(section: Section, mark: str) -> list[str]:
    lines = [f"{mark} {escape(section.title)}", ""]
    for text in section.text:
        lines += [escape(text), ""]
    beside = beside_table(section)
    if beside:
        names = [*beside.head, "paper", "ours", "difference", "verdict"]
        rows = [
            [*line.labels, line.theirs, line.ours, line.difference, line.verdict]
            for line in beside.lines
        ]
        words = [True] * len(beside.head) + [False] * 3 + [True]
        if beside.notes:
            names, words = [*names, "note"], [*words, True]
            rows = [[*row, line.note] for row, line in zip(rows, beside.lines, strict=True)]
        lines += [escape(beside.caption), "", *_folded(names, rows, words)]
    for grid in section.grids:
        lines += [f"{escape(grid.title)}:", "", *_grid(grid)]
        if grid.note:
            lines += [escape(grid.note), ""]
    if section.charts:
        lines += ["The charts in words:", ""]
        lines += [f"- {escape(one.title)}: {escape(one.finding)}" for one in section.charts] + [""]
    return lines


def _grid(grid: Grid) -> list[str]:
    marked = set(grid.marked)
    rows = [
        [
            f"**{escape(cell)}**" if (down, across) in marked and cell else escape(cell)
            for across, cell in enumerate(row)
        ]
        for down, row in enumerate(grid.rows)
    ]
    return _folded(grid.head, rows, word_columns(grid), escaped=True)


def _folded(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    words: Sequence[bool],
    *,
    escaped: bool = False,
) -> list[str]:
    """A table, folded away if it is long."""
    cells = rows if escaped else [[escape(cell) for cell in row] for row in rows]
    lines = [*table([escape(name) for name in head], cells, words), ""]
    if len(rows) < MANY:
        return lines
    return ["<details>", f"<summary>{len(rows)} rows</summary>", "", *lines, "</details>", ""]
