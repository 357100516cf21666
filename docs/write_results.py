"""Write docs/results/NAME.json, results.md and the README's results from stored rows.

Rows that were made from a tree with uncommitted changes are refused: nobody could make them again.
"""

import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from expacc.files import write_whole
from expacc.recipes.page import VERDICTS
from expacc.recipes.recipe import recipes
from expacc.recipes.results import as_json, content_of, folder_of, read_content, spent
from expacc.recipes.runner import has_rows, load_result
from expacc.recipes.writer import escape, table
from expacc.report.words import NONE, duration

DOCS = Path(__file__).resolve().parent
MARKERS = ("<!-- results -->", "<!-- /results -->")
_LOCAL = ("--data", "--out", "-o", "--workers", "--address")  # options with a value of one's own


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
    how = f"{spent(one)}; {one['machine']}; {', '.join(made)}; commit {one['commit']}."
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


def main(runs: Path, docs: Path, readme: Path) -> int:
    refused = 0
    for one in recipes().values():
        folder = folder_of(runs, one.name, quick=False)
        if not has_rows(folder):
            continue
        content = portable(content_of(load_result(one, folder)))
        if reason := refuse_unclean(content):
            print(reason)
            refused += 1
        else:
            (docs / "results").mkdir(exist_ok=True)
            write_whole(docs / "results" / f"{one.name}.json", as_json(content))
    known = [read_content(docs / "results" / f"{name}.json") for name in recipes()]
    found = [content for content in known if content is not None]
    write_whole(docs / "results.md", results_markdown(found))
    write_whole(readme, put_between(readme.read_text(encoding="utf-8"), readme_section(found)))
    print(f"{len(found)} of {len(known)} recipes → results.md, {readme.name}; {refused} refused")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), DOCS, DOCS.parent / "README.md"))
