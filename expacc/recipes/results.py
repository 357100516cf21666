"""The files of a result, the page that leads to all of them, and the documents made of them.

``page.json`` holds all that a page says, for other programs: claims and numbers with their
verdicts, tables, and how they came about. The overview and the documentation are made of it.
"""

import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from expacc.files import Between, check_shape, parse_json, read_whole, write_whole
from expacc.recipes.page import VERDICTS, answer_of, counts_text, verdict, verdict_counts
from expacc.recipes.recipe import Recipe, Result, paper_titles
from expacc.recipes.writer import badge, escape, html_page, page_html, page_markdown, table
from expacc.report.words import NONE, counted, duration
from expacc.runner.rows import LONGEST

PAGE, CONTENT = "page.html", "page.json"
LARGEST = 64 << 20  # bytes of page.json
MARKERS = ("<!-- results -->", "<!-- /results -->")
_LOCAL = ("--data", "--out", "-o", "--workers", "--address")  # options with a value of one's own
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
            lines += [f"**{escape(found['answer'])}**", "", escape(_spent(found)), ""]
    total: Counter[str] = Counter()
    for one in done:
        total.update(one["verdicts"])
    text = counts_text(total) if done else "nothing has been run yet"
    html = html_page(
        "\n".join(lines),
        title="The papers, done again",
        eyebrow="expacc reproduce --all" + (" --quick" if quick else ""),
        answer=f"{text[0].upper()}{text[1:]}.",
        badge={"text": "Quick runs: parts of the whole", "kind": "unfinished"} if quick else None,
        figures=[
            ("recipes", f"{len(done)} of {len(known)}", "done"),
            ("runs", f"{sum(one['runs'] for one in done):,}", _failed(done)),
            ("time", duration(sum(one["seconds"] for one in done)), "of work"),
        ],
    )
    path = out / ("index-quick.html" if quick else "index.html")
    out.mkdir(parents=True, exist_ok=True)
    write_whole(path, html)
    return path


def _failed(done: Sequence[Mapping[str, Any]]) -> str:
    return f"{sum(one['failed'] for one in done):,} failed"


def _spent(one: Mapping[str, Any]) -> str:
    parts = [
        *([] if one["finished"] else ["not finished"]),
        f"{counted(one['runs'], 'run')}, {one['failed']:,} failed",
        duration(one["seconds"]),
        *([f"{counted(len(one['missing']), 'part')} left out"] if one["missing"] else []),
    ]
    return "; ".join(parts)


# ----------------------------------------------------------------------------------- the documents


def refuse_unclean(content: Mapping[str, Any]) -> str:
    """Why a result must not be published; '' if it may: it can be made again from a commit."""
    commit = content["commit"]
    if not commit or "+" in commit:
        return (
            f"{content['name']} must come from a clean commit to be published; got "
            f"{commit or 'none'}, a tree with uncommitted changes. Commit, and run it with "
            "--overwrite."
        )
    if "," in commit:
        return f"{content['name']} must come from one commit to be published; got {commit}."
    if content["quick"] or not content["finished"]:
        return f"{content['name']} must be whole to be published; got a part of it."
    return ""


def portable(content: Mapping[str, Any]) -> dict[str, Any]:
    """With a command that means the same on another machine."""
    kept: list[str] = []
    words = iter(shlex.split(content["command"]))
    for word in words:
        flag, equals, _ = word.partition("=")
        if flag in _LOCAL and not equals:
            next(words, "")
        if flag == "--data":
            kept += ["--data", "DIR"]
        elif flag not in _LOCAL and flag not in ("--quiet", "-q", "--json", "--debug"):
            kept.append(word)
    return {**content, "command": shlex.join(kept)}


def results_markdown(contents: Sequence[Mapping[str, Any]]) -> str:
    """docs/results.md: of every result its claims and numbers, and how it was made."""
    lines = [
        "# Results",
        "",
        "Made by `make results-docs` from `docs/results/*.json`; do not edit it. How to make it "
        "yourself: [reproduce.md](reproduce.md).",
        "",
        *table(
            ["recipe", "paper", "claims that hold", "numbers as in the paper", "runs", "time"],
            [
                [
                    f"[{one['name']}](#{one['name']})",
                    escape(f"{one['paper']}, {one['shows']}"),
                    _share(one["claims"], "holds", "does not hold"),
                    _share(one["numbers"], *VERDICTS[:3]),
                    f"{one['runs']:,}",
                    duration(one["seconds"]),
                ]
                for one in contents
            ],
        ),
    ]
    for one in contents:
        lines += _result(one)
    return "\n".join(lines).rstrip() + "\n"


def _share(judged: Sequence[Mapping[str, Any]], good: str, *others: str) -> str:
    found = Counter(one["verdict"] for one in judged)
    total = sum(found[name] for name in (good, *others))
    return f"{found[good]} of {total}" if total else NONE


def _result(one: Mapping[str, Any]) -> list[str]:
    made = [f"{name} {value}" for name, value in one["versions"].items()]
    how = f"{_spent(one)}; {one['machine']}; {', '.join(made)}; commit {one['commit']}."
    lines = [
        *(f"## {one['name']}", "", escape(f"{one['title']}. {one['paper']}, {one['shows']}."), ""),
        *(f"> {escape(one['claim'])}", "", f"**{escape(one['answer'])}**", ""),
    ]
    if one["claims"]:
        lines += _claims(one["claims"])
    if one["numbers"]:
        rows = []
        for number in one["numbers"]:
            labels = number["labels"]
            what = list(labels.values() if isinstance(labels, dict) else labels)
            both = [_mean(number[side]) for side in ("paper", "ours")]
            cells = [number["section"], ", ".join(what), *both, number["unit"], number["verdict"]]
            rows.append([escape(cell) for cell in cells])
        head = ["table", "of", "paper", "ours", "unit", "verdict"]
        lines += table(head, rows, fold=True)
    return [*lines, f"`{one['command']}`: {escape(how)}", ""]


def _claims(claims: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [
        [escape(one[key] or NONE) for key in ("claim", "paper", "ours", "verdict")]
        for one in claims
    ]
    return table(["claim", "paper", "ours", "verdict"], rows)


def _mean(number: Mapping[str, Any] | None) -> str:
    if number is None:
        return NONE
    spread = "" if number["spread"] is None else f" ± {number['spread']:.3g}"
    return f"{number['mean']:.4g}{spread}".replace("-", "−")


def readme_section(contents: Sequence[Mapping[str, Any]]) -> str:
    """What stands between the markers of the README: a line a claim, and what it was made on."""
    if not contents:
        return "Nothing has been run yet: `make results DATA=…`."
    rows = [
        [
            f"[{one['name']}](docs/results.md#{one['name']})",
            *(escape(claim[key] or NONE) for key in ("claim", "paper", "ours", "verdict")),
        ]
        for one in contents
        for claim in _headlines(one["claims"])
    ]
    commits = dict.fromkeys(one["commit"] for one in contents)
    note = (
        f"Made at commit {escape(', '.join(commits))}; machines, versions and commands are in "
        "[docs/results.md](docs/results.md)."
    )
    return "\n".join([*table(["recipe", "claim", "paper", "ours", "verdict"], rows), note])


def _headlines(claims: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The first of every verdict: what holds never stands without what does not."""
    first: dict[str, Mapping[str, Any]] = {}
    for claim in claims:
        if claim["headline"]:
            first.setdefault(claim["verdict"], claim)
    return list(first.values())


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
