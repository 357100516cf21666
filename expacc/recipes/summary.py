"""The files of a result: its page as HTML, Markdown and JSON. The JSON is what the book is made of.

page.json holds a ``Summary`` and, for other programs, every number of the page beside the paper's.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from expacc.files import read_whole, write_whole
from expacc.recipes.page import verdict
from expacc.recipes.page_html import badge, page_html
from expacc.recipes.page_markdown import page_markdown
from expacc.recipes.page_text import verdict_counts
from expacc.recipes.provenance import Result
from expacc.runner.rows import LONGEST
from expacc.stored import Between, check_shape, parse_json

__all__ = ["PAGE", "Summary", "read_summary", "summary", "write_files"]

PAGE = "page.html"
DIGEST = "page.json"
LARGEST = 64 << 20  # bytes of page.json
_TEXTS = ("name", "paper", "shows", "title", "claim", "answer", "badge", "badge_kind", "started")
_SHAPE = {
    **dict.fromkeys((*_TEXTS, "machine", "commit", "command"), str),
    "verdicts": {str: Between(0)},
    "quick": bool,
    "finished": bool,
    "runs": Between(0),
    "failed": Between(0),
    "seconds": Between(0.0, LONGEST),
    "versions": {str: str},
    "missing": [str],
}


@dataclass(frozen=True)
class Summary:
    """A result in short.

    Args:
        name: of the recipe.
        paper: whose claim it is.
        shows: which tables and figures.
        title: of the page.
        claim: what the paper says.
        answer: what we found.
        verdicts: verdict → how many numbers.
        badge: the verdict in a few words.
        badge_kind: its colour.
        quick: whether only a small part was asked for.
        finished: whether all of that is done.
        runs: how many.
        failed: how many of them.
        seconds: of work.
        started: when.
        machine: the last that worked on it.
        versions: package → version.
        commit: of this code.
        command: that makes it again.
        missing: what data was not there.
    """

    name: str
    paper: str
    shows: str
    title: str
    claim: str
    answer: str
    verdicts: Mapping[str, int] = field(default_factory=dict)
    badge: str = ""
    badge_kind: str = ""
    quick: bool = False
    finished: bool = True
    runs: int = 0
    failed: int = 0
    seconds: float = 0.0
    started: str = ""
    machine: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    commit: str = ""
    command: str = ""
    missing: tuple[str, ...] = ()


def summary(result: Result) -> Summary:
    """The result in short."""
    page, account, recipe = result.page, result.account, result.recipe
    counts = verdict_counts(page)
    shown = badge(counts, account)
    return Summary(
        name=recipe.name,
        paper=recipe.paper,
        shows=recipe.shows,
        title=page.title,
        claim=page.claim,
        answer=page.answer,
        verdicts=counts,
        badge=shown["text"],
        badge_kind=shown["kind"],
        quick=account.quick,
        finished=account.finished,
        runs=account.runs,
        failed=account.failed,
        seconds=round(account.seconds, 1),
        started=account.started,
        machine=account.machines[-1] if account.machines else "",
        versions=dict(account.versions[-1]) if account.versions else {},
        commit=account.commits[-1] if account.commits else "",
        command=account.command,
        missing=account.missing,
    )


def write_files(result: Result, folder: str | Path) -> dict[str, Any]:
    """Write page.html, page.md and page.json, each whole or not at all; returns the last."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    content = {**asdict(summary(result)), "numbers": _numbers(result)}
    write_whole(folder / PAGE, page_html(result))
    write_whole(folder / "page.md", page_markdown(result))
    write_whole(folder / DIGEST, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return content


def _numbers(result: Result) -> list[dict[str, Any]]:
    return [
        {
            "section": section.title,
            "labels": dict(zip(section.beside_head, row.labels, strict=False)) or list(row.labels),
            "paper": asdict(row.theirs) if row.theirs else None,
            "ours": asdict(row.ours) if row.ours else None,
            "difference": row.difference,
            "verdict": verdict(row, section.slack),
            "unit": section.unit,
            "note": row.note,
        }
        for section in result.page.sections
        for row in section.beside
    ]


def read_summary(folder: str | Path) -> Summary | None:
    """What ``write_files`` left in a folder; None if there is nothing of the kind."""
    try:
        content = parse_json(read_whole(Path(folder) / DIGEST, LARGEST))
        check_shape(content, dict, DIGEST)
        known = {one.name: content[one.name] for one in fields(Summary) if one.name in content}
        check_shape(known, _SHAPE, DIGEST)
    except (OSError, ValueError):
        return None
    return Summary(**{**known, "missing": tuple(known["missing"])})
