"""A recipe's result → one HTML file that needs nothing else."""

import functools
import re
from typing import Any

from expacc.recipes.page import Grid, Section
from expacc.recipes.page_text import beside_table, counts_text, facts, verdict_counts, word_columns
from expacc.recipes.provenance import Account, Result
from expacc.report.html import render
from expacc.report.words import duration

__all__ = ["badge", "page_html", "render_sheet"]

MOST_FAILURES = 30
render_sheet = functools.partial(
    render, package="expacc.recipes", styles=("report.css", "page.css")
)
LONG = 150  # letters of an answer from which on it is set smaller


def page_html(result: Result) -> str:
    """The page as text: the same bytes for the same result."""
    page, account, recipe = result.page, result.account, result.recipe
    counts = verdict_counts(page)
    parts = [_part(place, section) for place, section in enumerate(page.sections, 1)]
    contents = [("answer", "The answer"), ("claim", "The claim")]
    contents += [(part["key"], part["title"]) for part in parts] + [("how", "How it was done")]
    return render_sheet(
        "page.html",
        {
            "title": page.title,
            "eyebrow": f"expacc reproduce {recipe.name} · {recipe.paper} · {recipe.shows}",
            "badge": badge(counts, account),
            "answer": page.answer,
            "long": len(page.answer) > LONG,
            "notes": notes(account),
            "figures": _figures(counts, account),
            "claim": page.claim,
            "contents": contents,
            "parts": parts,
            "command": account.command,
            "counts": counts_text(counts),
            "facts": facts(account),
            "failures": account.failures[:MOST_FAILURES],
            "failures_left": len(account.failures[MOST_FAILURES:]),
            "missing": account.missing,
            "deviations": page.deviations,
            "footer": _footer(account),
        },
    )


def badge(counts: dict[str, int], account: Account) -> dict[str, str]:
    """The verdict in a few words, and its colour; what is not whole says so."""
    if not account.finished:
        return {"text": "Not finished", "kind": "unfinished"}
    if account.quick:
        return {"text": "Quick run: a part of the whole", "kind": "unfinished"}
    judged = sum(counts.get(name, 0) for name in ("within", "above", "below"))
    if not judged:
        return {"text": "Done again", "kind": ""}
    within = counts.get("within", 0)
    if within == judged:
        return {"text": f"As in the paper: {judged} of {judged}", "kind": "better"}
    return {"text": f"{within} of {judged} as in the paper", "kind": ""}


def notes(account: Account) -> list[str]:
    """What a reader must know before the numbers."""
    found = []
    if not account.finished:
        found.append(
            f"Not finished: {account.parts_done:,} of {account.parts:,} parts are done, and the "
            f"numbers are of those."
        )
    if account.quick:
        found.append("A quick run, to see that it runs: its numbers are not those to judge by.")
    if account.missing:
        what = "A part was" if len(account.missing) == 1 else f"{len(account.missing)} parts were"
        found.append(f"{what} left out for want of data; see “How it was done”.")
    return found


def _figures(counts: dict[str, int], account: Account) -> list[dict[str, str]]:
    judged = sum(counts.get(name, 0) for name in ("within", "above", "below"))
    figures = []
    if judged:
        others = [f"{counts.get(name, 0)} {name}" for name in ("above", "below")]
        within = f"{counts.get('within', 0)} of {judged}"
        figures.append(
            {"label": "agree with the paper", "value": within, "more": ", ".join(others)}
        )
    failed = f"{account.failed:,} failed" if account.failed else "none failed"
    figures += [
        {"label": "runs", "value": f"{account.runs:,}", "more": failed},
        {"label": "time", "value": duration(account.seconds), "more": account.started},
        {"label": "machine", "value": _cores(account), "more": "; then ".join(account.machines)},
    ]
    return figures


def _cores(account: Account) -> str:
    if account.device != "cpu":
        return account.device
    found = re.findall(r"(\d+ cores?)", account.machines[-1]) if account.machines else []
    return found[-1] if found else "CPU"


def _part(place: int, section: Section) -> dict[str, Any]:
    return {
        "key": f"part-{place}",
        "title": section.title,
        "text": section.text,
        "beside": beside_table(section),
        "grids": [_grid(grid) for grid in section.grids],
        "charts": section.charts,
    }


def _grid(grid: Grid) -> dict[str, Any]:
    words = word_columns(grid)
    width = len(words)
    return {
        "title": grid.title,
        "head": (*grid.head, *[""] * (width - len(grid.head))),
        "rows": [(*row, *[""] * (width - len(row))) for row in grid.rows],
        "words": words,
        "marked": set(grid.marked),
        "note": grid.note,
    }


def _footer(account: Account) -> str:
    version = account.versions[0].get("expacc", "") if account.versions else ""
    return (
        f"Begun {account.started}, {duration(account.seconds)} of work. Made by expacc {version}."
    )
