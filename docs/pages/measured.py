"""What was measured of a loss, out of the stored results: gains and non-gains alike."""

import json
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

from write_losses import table

from expacc.registry import REFERENCE, SPECS
from expacc.registry.spec import LossSpec

ROOT = Path(__file__).resolve().parents[2]
# Where a loss is the subject of a recipe.
RECIPES = {
    "exact": ("exact-uci", "exact-ablation", "exact-noise"),
    "leaky_expected_error": ("leerr-uci", "leerr-mnist-mlp"),
    "expected_error": ("leerr-mnist-logistic",),
    "mixed_expected_error": ("mixing-uci",),
}
# Pages that say more of a loss than its own.
MORE = {
    "exact": ("[EXACT](../exact.md)", "[Is the blog right?](../blog.md)"),
    "expected_distance": ("[Ranked classes](../ordinal.md)",),
    "expected_error": ("[Many classes](../many-classes.md)",),
}


@cache
def read(path: str) -> Any:
    return json.loads((ROOT / path).read_text(encoding="utf-8"))


def signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def contest_rows() -> list[tuple[str, ...]]:
    """Of the 87 tables: loss, gain over cross entropy clean and with wrong labels, wins."""
    means = read("benchmarks/results/contest-87.json")["means"]
    found = []
    for name in means["0.2"]["all"]:
        if name != REFERENCE:
            cells = [SPECS[name].label]
            for noise in ("0", "0.2"):
                one = means[noise]["all"][name]
                cells.append(f"{signed(one['lead'])} ± {one['error']:.2f}")
                cells.append(f"{one['better']} / {one['worse']}")
            found.append(tuple(cells))
    return found


def contest_table() -> str:
    head = ("loss", "clean", "better / worse", "20 % wrong", "better / worse")
    return table(head, contest_rows())


def _contest(spec: LossSpec) -> list[str]:
    means = read("benchmarks/results/contest-87.json")["means"]
    if spec.name == REFERENCE or spec.name not in means["0"]["all"]:
        return []
    rows = []
    for noise, words in (("0", "as they are"), ("0.2", "20 % drawn at random")):
        one = means[noise]["all"][spec.name]
        gain = f"{signed(one['lead'])} ± {one['error']:.2f}"
        rows.append((words, gain, f"{one['better']} / {one['worse']}", signed(one["worst"])))
    head = ("training labels", "over cross entropy, points", "better / worse", "worst table")
    return [
        "**87 UCI tables, linear model**, each loss with the same search; test rows are clean:",
        table(head, rows),
        "`python benchmarks/contest.py uci121 --noise 0,0.2`",
    ]


def _many_classes(spec: LossSpec) -> list[str]:
    rows = read("benchmarks/results/many-classes.json")["rows"]
    kinds = dict.fromkeys(
        (one["set"], one["model"], one["noise"]) for one in rows if one["classes"] == 100
    )
    lines = []
    for kind in kinds:
        found = {
            (one["loss"], one["shift"]): 100 * mean(one["accuracies"])
            for one in rows
            if (one["set"], one["model"], one["noise"]) == kind
        }
        if (spec.name, 0.0) in found and spec.name != REFERENCE:
            keys = ((REFERENCE, 0.0), (spec.name, 0.0), (spec.name, "auto"))
            numbers = [f"{found[key]:.1f}" if key in found else "–" for key in keys]
            lines.append((*kind[:2], f"{kind[2]:.0%}".replace("%", " %"), *numbers))
    if not lines:
        return []
    head = ("data", "model", "wrong labels", "cross entropy", spec.label, "with `shift='auto'`")
    return [
        "**100 classes**, accuracy on clean test rows, %:",
        table(head, lines),
        "`python benchmarks/many_classes.py`; [Many classes](../many-classes.md)",
    ]


def _boosting(spec: LossSpec) -> list[str]:
    accuracy = read("benchmarks/results/boosting.json")["accuracy"]
    rows = []
    for library in ("LightGBM", "XGBoost"):
        ours, reference = f"{library}, {spec.label}", f"{library}, {SPECS[REFERENCE].label}"
        if spec.name == REFERENCE or ours not in accuracy["0.0"]:
            continue
        for place, words in enumerate(("stopped in time", "last round")):
            gains = []
            for found in accuracy.values():
                pairs = zip(found[ours], found[reference], strict=True)
                gains.append(signed(100 * mean(one[place] - two[place] for one, two in pairs)))
            rows.append((library, words, *gains))
    if not rows:
        return []
    head = ("trees", "rounds", *(f"{float(noise):.0%}".replace("%", " %") for noise in accuracy))
    return [
        "**Boosted trees**, 9 tables, points over cross entropy by the share of wrong labels:",
        table(head, rows),
        "`python benchmarks/boosting.py`; [Boosted trees](../boosting.md)",
    ]


def _papers(spec: LossSpec) -> list[str]:
    lines = []
    for recipe in RECIPES.get(spec.name, ()):
        for claim in read(f"docs/results/{recipe}.json")["claims"]:
            if claim["headline"]:
                cells = [claim[key] or "–" for key in ("claim", "paper", "ours", "verdict")]
                lines.append((f"[{recipe}](../results.md#{recipe})", *cells))
    if not lines:
        return []
    head = ("recipe", "claim", "paper", "ours", "verdict")
    return ["**The papers, done again**:", table(head, lines)]


def measured(spec: LossSpec) -> str:
    """Markdown; says so where there is nothing."""
    found = [_papers(spec), _contest(spec), _many_classes(spec), _boosting(spec)]
    blocks = [block for part in found for block in part]
    if spec.name in MORE:
        blocks.append(f"More: {', '.join(MORE[spec.name])}.")
    if spec.name == REFERENCE:
        blocks.append("All gains on these pages are over cross entropy, trained the same way.")
    if not blocks:
        blocks.append("No study of ours has measured it yet, so we claim nothing of it.")
    return "\n\n".join(blocks)
