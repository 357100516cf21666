"""Every numbered table and figure of the sources: recipe, our numbers, verdict."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from expacc.recipes.page import VERDICTS
from expacc.recipes.recipe import recipes
from expacc.recipes.results import read_content
from expacc.recipes.writer import escape

DOCS = Path(__file__).resolve().parents[1]
HEAD = """---
hide: [toc]
---

# The papers, done again: every table and figure

The losses come from three papers, and the best criticism of them from a blog. This is all that
they number, table by table: the recipe that does it again, what the paper prints beside what came
out here, and the verdict. Where there is no recipe it says why. **{done} of {all} are done.**

```
expacc reproduce                                 # the recipes
expacc reproduce exact-toy                       # one that needs no data
expacc reproduce exact-uci --data FOLDER --quick # a part of one, in about a minute
```

How to run them and get the data: [Recipes](reproduce.md). Every number: [All results](results.md).
What became of the blog's doubts: [Is the blog right?](blog.md)

A number is *as in the paper* if it is within two of its standard deviations, or 0.7 points where
that is more; a claim *holds* if ours says the same. Neither is a verdict on a loss: for that see
[Which loss?](which-loss.md)
"""


@cache
def listed() -> dict[str, Any]:
    return tomllib.loads((DOCS / "papers.toml").read_text(encoding="utf-8"))


def _of(item: Mapping[str, Any], content: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """The claims and numbers of a result that are the item's own."""
    if item.get("drawn"):
        return [], []
    whole = "sections" not in item and "claims" not in item
    claims = [
        one
        for one in content["claims"]
        if whole or one["claim"].startswith(tuple(item.get("claims", ())))
    ]
    numbers = [
        one
        for one in content["numbers"]
        if whole or one["section"].startswith(tuple(item.get("sections", ())))
        if "of" not in item or item["of"] in one["labels"].values()
    ]
    return claims, numbers


def _share(judged: list[Any], good: str, *others: str) -> tuple[int, int]:
    found = [one["verdict"] for one in judged]
    return found.count(good), sum(found.count(name) for name in (good, *others))


def verdict(item: Mapping[str, Any]) -> tuple[str, str]:
    """What came out, in words, and the strongest claim in numbers; ('', '') without a result."""
    content = read_content(DOCS / "results" / f"{item['recipe']}.json")
    if content is None:
        return "", ""
    claims, numbers = _of(item, content)
    words = ["drawn again on the recipe's page"] if item.get("drawn") else []
    good, of = _share(claims, "holds", "does not hold")
    if of:
        words.append(
            f"{good} of {of} claims hold" if of > 1 else ("holds" if good else "does not hold")
        )
    good, of = _share(numbers, *VERDICTS[:3])
    if of:
        words.append(f"{good} of {of} numbers as in the paper")
    words += [item["note"]] if "note" in item else []
    judged = [one for one in claims if one["paper"] and one["ours"]]
    first = [one for one in judged if one["headline"]][:2] or judged[:1]
    told = [(one["claim"], one["paper"], one["ours"]) for one in first]
    if not told:  # numbers alone
        both = [one for one in numbers if one["paper"] and one["ours"]][:3]
        told = [
            (
                ", ".join(one["labels"].values()),
                *(f"{one[side]['mean']:.4g}" for side in ("paper", "ours")),
            )
            for one in both
        ]
    ours = "<br>".join(
        f"{escape(what)}: {escape(paper)} → **{escape(ours)}**" for what, paper, ours in told
    )
    return "; ".join(words), ours


def recipe_of(item: Mapping[str, Any]) -> str:
    """The recipe that does it again; '' if there is none, or none yet."""
    name = str(item.get("recipe", ""))
    return name if name in recipes() else ""


def _row(item: Mapping[str, Any]) -> str:
    shown, name = f"{item['number']} | {escape(item['shows'])}", recipe_of(item)
    if not name:
        link = f" [More]({item['link']})" if "link" in item else ""
        return f"| {shown} | – | – | {item['without']}{link} |"
    words, ours = verdict(item)
    if not words:
        return f"| {shown} | {name} | – | Not run yet. |"
    return f"| {shown} | [{name}](results.md#{name}) | {ours or '–'} | {escape(words)} |"


def pages() -> dict[str, str]:
    """Path below docs → text."""
    found = listed()
    items = found["item"]
    done = [one for one in items if recipe_of(one) and verdict(one)[0]]
    lines = [HEAD.format(done=len(done), all=len(items))]
    for key, source in found["source"].items():
        lines += [f"## {source['title']}", "", f"{source['by']}.", ""]
        lines += ['<div class="wide" markdown>', ""]
        lines += [
            "| | what it shows | recipe | paper → ours | verdict |",
            "| --- | --- | --- | --- | --- |",
        ]
        lines += [_row(one) for one in items if one["source"] == key]
        lines += ["", "</div>", ""]
    extra = recipes().keys() - {one.get("recipe") for one in items}
    if extra:
        lines.append(
            f"Beyond what they number: {', '.join(f'`{name}`' for name in sorted(extra))}."
        )
    return {"papers.md": "\n".join(lines).rstrip() + "\n"}
