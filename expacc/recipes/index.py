"""The book: one page that leads to all pages, and the results in words for the documentation.

Everything here is made of what the runs left in their folders; nothing is run, nothing is kept.
"""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from expacc.files import write_whole
from expacc.recipes.page_html import render_sheet
from expacc.recipes.page_markdown import escape, page_markdown, table
from expacc.recipes.page_text import VERDICTS
from expacc.recipes.provenance import Result
from expacc.recipes.recipe import Recipe
from expacc.recipes.summary import PAGE, Summary, read_summary, summary
from expacc.report.words import duration

__all__ = [
    "MARKERS",
    "folder_of",
    "put_between",
    "readme_section",
    "results_markdown",
    "write_book",
]

_LOCAL = ("--data", "--out", "-o", "--workers", "--address")  # options with a value of one's own
PAPERS = {
    "EXACT": "EXACT: How to Train Your Accuracy",
    "leaky expected error": "On Expected Accuracy (leaky expected error)",
    "mixing": "Mixing between the Cross Entropy and the Expectation Loss Terms",
    "blog": "The blog's critique of EXACT",
}
MARKERS = ("<!-- results -->", "<!-- /results -->")


def folder_of(out: Path, name: str, *, quick: bool) -> Path:
    """Where a recipe's rows and page are kept; quick runs apart, they are another thing."""
    return out / (f"{name}-quick" if quick else name)


def write_book(
    out: Path,
    known: Mapping[str, Recipe],
    *,
    quick: bool = False,
    left_out: Mapping[str, str] | None = None,
) -> Path:
    """Write index.html, or index-quick.html, of all pages that there are.

    Args:
        out: the folder of all runs.
        known: all recipes.
        quick: of the quick runs.
        left_out: name → why it could not be run.

    Returns:
        The path of the file.
    """
    entries = []
    for name, recipe in known.items():
        folder = folder_of(out, name, quick=quick)
        found = read_summary(folder) if (folder / PAGE).is_file() else None
        link = f"{folder.name}/{PAGE}" if found else ""
        entries.append(_entry(recipe, found, link, (left_out or {}).get(name, "")))
    path = out / ("index-quick.html" if quick else "index.html")
    out.mkdir(parents=True, exist_ok=True)
    write_whole(path, book_html(entries, quick=quick))
    return path


def _entry(recipe: Recipe, found: Summary | None, link: str, why: str) -> dict[str, Any]:
    return {
        "key": f"recipe-{recipe.name}",
        "name": recipe.name,
        "paper": recipe.paper,
        "shows": recipe.shows,
        "what": recipe.what,
        "found": found,
        "link": link,
        "why": why or f"Not run yet: expacc reproduce {recipe.name}",
        "spent": duration(found.seconds) if found else "",
        "verdicts": [(v, found.verdicts[v]) for v in VERDICTS if v in found.verdicts]
        if found
        else [],
    }


def book_html(entries: Sequence[Mapping[str, Any]], *, quick: bool = False) -> str:
    """The page that leads to all pages, as text."""
    done = [entry["found"] for entry in entries if entry["found"]]
    total = _total(done)
    papers = list(dict.fromkeys(entry["paper"] for entry in entries))
    groups = [
        {
            "key": f"paper-{place}",
            "title": PAPERS.get(paper, paper),
            "short": paper,
            "entries": [entry for entry in entries if entry["paper"] == paper],
        }
        for place, paper in enumerate(papers, 1)
    ]
    started = sorted(one.started for one in done if one.started)
    return render_sheet(
        "book.html",
        {
            "title": "The papers, done again",
            "contents": [("answer", "Overview"), *((g["key"], g["short"]) for g in groups)],
            "headline": _headline(done, total),
            "quick": quick,
            "figures": [
                {"label": "recipes", "value": f"{len(done)} of {len(entries)}", "more": "done"},
                {
                    "label": "runs",
                    "value": f"{sum(one.runs for one in done):,}",
                    "more": f"{sum(one.failed for one in done):,} failed",
                },
                {
                    "label": "time",
                    "value": duration(sum(one.seconds for one in done)),
                    "more": "of work",
                },
                {
                    "label": "numbers that the papers lack",
                    "value": f"{total.get('new', 0):,}",
                    "more": f"of theirs {total.get('not run', 0):,} not run",
                },
            ],
            "groups": groups,
            "footer": f"Runs begun from {started[0]} to {started[-1]}." if started else "",
        },
    )


def _total(done: Sequence[Summary]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for one in done:
        counts.update(one.verdicts)
    return {name: counts[name] for name in VERDICTS if counts[name]}


def _headline(done: Sequence[Summary], total: dict[str, int]) -> str:
    if not done:
        return "Nothing has been run yet."
    judged = sum(total.get(name, 0) for name in ("within", "above", "below"))
    if not judged:
        return f"{len(done)} recipes are done; none has a number of a paper beside it."
    return (
        f"{total.get('within', 0):,} of {judged:,} numbers agree with the papers', "
        f"{total.get('above', 0):,} above, {total.get('below', 0):,} below."
    )


def results_markdown(results: Sequence[Result]) -> str:
    """docs/results.md: a table of all results, then each page without its charts."""
    lines = [
        "# Results",
        "",
        "Made by `make results` from the stored rows of `expacc reproduce`; do not edit it. How to "
        "make it yourself: [reproduce.md](reproduce.md).",
        "",
        *_overview([summary(result) for result in results]),
        "",
    ]
    pages = [page_markdown(_portable(result), level=2) for result in results]
    return "\n".join(lines) + "\n" + "\n".join(pages)


def _portable(result: Result) -> Result:
    """With a command that means the same on another machine."""
    kept: list[str] = []
    words = iter(shlex.split(result.account.command))
    for word in words:
        flag, equals, _ = word.partition("=")
        if flag in _LOCAL and not equals:
            next(words, "")
        if flag == "--data":
            kept += ["--data", "DIR"]
        elif flag not in _LOCAL and flag not in ("--quiet", "-q", "--json", "--debug"):
            kept.append(word)
    return replace(result, account=replace(result.account, command=shlex.join(kept)))


def readme_section(summaries: Sequence[Summary]) -> str:
    """What stands between the markers of the README."""
    if not summaries:
        return "Nothing has been run yet: `make results DATA=…`."
    lines = [*_overview(summaries), ""]
    machines = list(dict.fromkeys(one.machine for one in summaries if one.machine))
    commits = list(dict.fromkeys(one.commit for one in summaries if one.commit))
    versions = summaries[-1].versions
    made = [*machines, *(f"{name} {value}" for name, value in versions.items())]
    if commits:
        made.append(f"commit {', '.join(commits)}")
    lines.append(f"{escape(', '.join(made))}. `expacc reproduce NAME --data FOLDER` makes a row.")
    return "\n".join(lines)


def _overview(summaries: Sequence[Summary]) -> list[str]:
    head = ["recipe", "the paper", "we found", "beside the paper's numbers", "runs", "time"]
    rows = [
        [
            f"`{one.name}`",
            escape(f"{one.paper}, {one.shows}"),
            escape(one.answer),
            escape(_counts(one)),
            f"{one.runs:,}" + (f", {one.failed:,} failed" if one.failed else ""),
            duration(one.seconds),
        ]
        for one in summaries
    ]
    return table(head, rows, [True, True, True, True, False, False])


def _counts(one: Summary) -> str:
    text = ", ".join(f"{one.verdicts[v]} {v}" for v in VERDICTS if v in one.verdicts)
    return (text or "–") + ("" if one.finished else " (not finished)")


def put_between(text: str, content: str) -> str:
    """A document with ``content`` between its markers, in place of what was there.

    Raises:
        ValueError: the markers are not there, once each and in order.
    """
    begin, end = MARKERS
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"the document must hold {begin} and then {end}, once each; got others.")
    before, rest = text.split(begin)
    return f"{before}{begin}\n{content.strip()}\n{end}{rest.split(end)[1]}"
