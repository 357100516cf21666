"""The files of a result, and the page that leads to all of them.

``page.json`` holds all that a page says, for other programs: claims and numbers with their
verdicts, tables, and how they came about. The overview and the documentation are made of it.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from expacc.files import Between, check_shape, parse_json, read_whole, write_whole
from expacc.recipes.page import answer_of, counts_text, verdict, verdict_counts
from expacc.recipes.recipe import Recipe, Result, paper_titles
from expacc.recipes.writer import badge, escape, html_page, page_html, page_markdown
from expacc.report.words import counted, duration
from expacc.runner.rows import LONGEST

PAGE, CONTENT = "page.html", "page.json"
LARGEST = 64 << 20  # bytes of page.json
_TEXTS = ("name", "paper", "shows", "title", "claim", "answer", "badge", "badge_kind", "started")
_SHAPE: dict[str, Any] = {
    **dict.fromkeys((*_TEXTS, "machine", "commit", "command"), str),
    "verdicts": {str: Between(0)},
    "quick": bool,
    "finished": bool,
    "runs": Between(0),
    "failed": Between(0),
    "seconds": Between(0.0, LONGEST),
    "versions": {str: str},
    "missing": [str],
    "claims": [{**dict.fromkeys(("claim", "paper", "ours", "verdict"), str), "headline": bool}],
    "numbers": [dict],
    "tables": [dict],
    "deviations": [str],
}


def content_of(result: Result) -> dict[str, Any]:
    """All that a page says, as JSON holds it."""
    page, account, recipe = result.page, result.account, result.recipe
    counts = verdict_counts(page)
    shown = badge(counts, account)
    return {
        "name": recipe.name,
        "paper": recipe.paper,
        "shows": recipe.shows,
        "title": page.title,
        "claim": page.claim,
        "answer": answer_of(page),
        "verdicts": counts,
        "badge": shown["text"],
        "badge_kind": shown["kind"],
        "quick": account.quick,
        "finished": account.finished,
        "runs": account.runs,
        "failed": account.failed,
        "seconds": round(account.seconds, 1),
        "started": account.started,
        "machine": account.machines[-1] if account.machines else "",
        "versions": dict(account.versions[-1]) if account.versions else {},
        "commit": ", ".join(account.commits),
        "command": account.command,
        "missing": list(account.missing),
        "claims": [
            {
                "claim": one.says,
                "paper": one.paper,
                "ours": one.ours,
                "verdict": one.verdict,
                "headline": one.headline,
            }
            for one in page.claims
        ],
        "numbers": [
            {
                "section": section.title,
                "labels": dict(zip(section.beside_head, row.labels, strict=False))
                or list(row.labels),
                "paper": asdict(row.theirs) if row.theirs else None,
                "ours": asdict(row.ours) if row.ours else None,
                "difference": row.difference,
                "verdict": verdict(row, section.slack),
                "unit": section.unit,
                "note": row.note,
            }
            for section in page.sections
            for row in section.beside
        ],
        "tables": [
            {"section": section.title, "title": grid.title, "head": grid.head, "rows": grid.rows}
            for section in page.sections
            for grid in section.grids
        ],
        "deviations": list(page.deviations),
    }


def write_files(result: Result, folder: str | Path) -> dict[str, Any]:
    """Write page.html, page.md and page.json, each whole or not at all; returns the last."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    content = content_of(result)
    write_whole(folder / PAGE, page_html(result))
    write_whole(folder / "page.md", page_markdown(result))
    write_whole(folder / CONTENT, as_json(content))
    return content


def as_json(content: Mapping[str, Any]) -> str:
    """The text of a page.json."""
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def read_content(path: str | Path) -> dict[str, Any] | None:
    """A page.json, or the folder that has one; None if there is nothing of the kind."""
    path = Path(path)
    try:
        content = parse_json(read_whole(path / CONTENT if path.is_dir() else path, LARGEST))
        check_shape(content, _SHAPE, path.name)
    except (OSError, ValueError):
        return None
    return dict(content)


def folder_of(out: Path, name: str, *, quick: bool) -> Path:
    """Where a recipe's rows and page are kept; quick runs apart, they are another thing."""
    return out / (f"{name}-quick" if quick else name)


# ------------------------------------------------------------------------------------ the overview


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
    lines, done, titles = [], [], paper_titles()
    for paper in dict.fromkeys(recipe.paper for recipe in known.values()):
        lines += [f"## {escape(titles.get(paper, paper))}", ""]
        for name, recipe in known.items():
            if recipe.paper != paper:
                continue
            folder = folder_of(out, name, quick=quick)
            found = read_content(folder) if (folder / PAGE).is_file() else None
            if found is None:
                why = (left_out or {}).get(name, f"Not run yet: expacc reproduce {name}")
                lines += [f"### {escape(name)}", "", escape(f"{recipe.shows}: {recipe.what}"), ""]
                lines += [escape(why), ""]
                continue
            done.append(found)
            about = escape(f"{found['shows']} · {found['title']}")
            lines += [f"### [{escape(name)}]({folder.name}/{PAGE})", "", about, ""]
            lines += [f"**{escape(found['answer'])}**", "", escape(spent(found)), ""]
    total: Counter[str] = Counter()
    for one in done:
        total.update(one["verdicts"])
    text = counts_text(total) if done else "nothing has been run yet"
    failed = sum(one["failed"] for one in done)
    html = html_page(
        "\n".join(lines),
        title="The papers, done again",
        eyebrow="expacc reproduce --all" + (" --quick" if quick else ""),
        answer=f"{text[0].upper()}{text[1:]}.",
        badge={"text": "Quick runs: parts of the whole", "kind": "unfinished"} if quick else None,
        figures=[
            ("recipes", f"{len(done)} of {len(known)}", "done"),
            ("runs", f"{sum(one['runs'] for one in done):,}", f"{failed:,} failed"),
            ("time", duration(sum(one["seconds"] for one in done)), "of work"),
        ],
    )
    path = out / ("index-quick.html" if quick else "index.html")
    out.mkdir(parents=True, exist_ok=True)
    write_whole(path, html)
    return path


def spent(one: Mapping[str, Any]) -> str:
    """What a result cost: its runs, their time, and what was left out."""
    parts = [
        *([] if one["finished"] else ["not finished"]),
        f"{counted(one['runs'], 'run')}, {one['failed']:,} failed",
        duration(one["seconds"]),
        *([f"{counted(len(one['missing']), 'part')} left out"] if one["missing"] else []),
    ]
    return "; ".join(parts)
