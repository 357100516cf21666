"""The pages of exact-ablation (Table 4) and exact-normalizer (Tables 5 and 6)."""

from collections.abc import Mapping, Sequence
from typing import Any

from expacc.recipes.exact.charts import gains_chart
from expacc.recipes.exact.paper import TABLE_4, TABLE_5, TABLE_6, page_of
from expacc.recipes.exact.scores import (
    Scores,
    accuracy_grid,
    compared,
    gap_claim,
    grain,
    tables_of,
    with_steps,
)
from expacc.recipes.page import SLACK, Grid, Page, Section
from expacc.report.words import NONE
from expacc.runner.rows import Row

__all__ = ["write_ablation", "write_normalizer"]

Facts = Mapping[str, Any]


# ------------------------------------------------------------------------------- exact-ablation

# Variant → how it reads; columns of Table 4.
_PARTS = {
    "no margin": "without margin",
    "no schedule": "without variance schedule",
    "no normaliser": "without gradient normaliser",
}


def write_ablation(rows: Sequence[Row], facts: Facts) -> Page:
    """Table 4 beside ours."""
    scores, tables = Scores(rows), tables_of(facts)
    columns = {part: (name, "given", f"exact: {part}") for part, name in _PARTS.items()}
    gaps = {part: scores.gaps("given", f"exact: {part}", "exact", facts) for part in _PARTS}
    readings = {
        "constant sigma 1": ("given", "exact: sigma 1", "test"),
        "constant sigma 0.1": ("given", "exact: sigma 0.1", "test"),
        "clipped at 1": ("given", "exact: clip 1", "test"),
        **{f"{name}, decay": ("decay", f"exact: {part}", "test") for part, name in _PARTS.items()},
        "whole, decay": ("decay", "exact", "test"),
    }
    training = {name: ("given", method, "train") for name, _, method in columns.values()}
    less = "difference to whole EXACT"
    gains = {_PARTS[part]: found for part, found in gaps.items() if found}
    return page_of(
        "exact-ablation",
        with_steps(facts),
        (
            Section(
                "Test rows: Table 4",
                beside=compared(
                    TABLE_4, {**columns, "exact": ("whole", "given", "exact")}, scores, facts
                ),
                beside_head=("table", "EXACT"),
                charts=gains_chart(
                    "exact-parts", "What leaving out a part does", less, gains, grain(facts)
                ),
            ),
            Section(
                "Training rows",
                text=(
                    "The paper has no such table. A part that helps to find a better optimum shows "
                    "here first.",
                ),
                grids=(
                    accuracy_grid(
                        "Accuracy on the training rows",
                        {**training, "whole": ("given", "exact", "train")},
                        scores,
                        facts,
                    ),
                ),
            ),
            Section(
                "Other readings of 'without'",
                text=(
                    "Sigma could also stay at a constant on standardised logits, and a gradient "
                    "that is not normalised could be clipped. Section 5.4 of the paper has a "
                    "weight decay of 0.0001 for all models, Table 8 has none: the last columns "
                    "have it. A single test row is worth: "
                    + ", ".join(f"{table} {grain(facts)[table]:.2f}" for table in tables)
                    + " points.",
                ),
                grids=(accuracy_grid("Accuracy on the test rows", readings, scores, facts),),
            ),
        ),
        tuple(
            gap_claim(
                f"EXACT {name} less whole EXACT on the test rows, mean in points: as much is lost",
                TABLE_4,
                (part, "exact"),
                gaps[part],
                lambda theirs, ours: ours <= theirs + SLACK,
            )
            for part, name in _PARTS.items()
        ),
    )


# ----------------------------------------------------------------------------- exact-normalizer

_LOSSES = {"cross_entropy": ("cross entropy", 5, TABLE_5), "hinge": ("hinge", 6, TABLE_6)}


def write_normalizer(rows: Sequence[Row], facts: Facts) -> Page:
    """Tables 5 and 6 beside ours."""
    scores = Scores(rows)
    claims, sections = [], []
    for loss, (name, number, printed) in _LOSSES.items():
        claims.append(
            gap_claim(
                f"The normaliser does little to {name} on the test rows, mean in points",
                printed,
                ("with", "without"),
                scores.gaps("search", f"{loss}: normaliser", loss, facts, other_part="given"),
                lambda theirs, ours: abs(ours) <= SLACK,
            )
        )
        columns = {
            "with": ("with normaliser", "search", f"{loss}: normaliser"),
            "without": ("without", "given", loss),
        }
        sections.append(
            Section(
                f"{name.capitalize()}: Table {number}",
                beside=compared(printed, columns, scores, facts),
                beside_head=("table", name),
                grids=(_rates_grid(loss, scores, facts),),
            )
        )
    return page_of(
        "exact-normalizer",
        with_steps(facts),
        tuple(sections),
        tuple(claims),
    )


def _rates_grid(loss: str, scores: Scores, facts: Facts) -> Grid:
    """What the learning rate, which the paper does not print, does to a number."""
    method, lines = f"{loss}: normaliser", []
    for table in tables_of(facts):
        swept = scores.by_rate("rates", table, method).values()
        rate = scores.settings("search", table, method).get("learning_rate")
        lines.append(
            (
                table,
                str(scores.number("given", table, loss) or NONE),
                str(scores.number("search", table, method) or NONE),
                NONE if rate is None else f"{rate:g}",
                str(scores.number("given", table, method) or NONE),
                f"{min(swept):.2f} to {max(swept):.2f}" if swept else NONE,
                f"{grain(facts)[table]:.2f}",
            )
        )
    head = (
        *("table", "without", "with, rate chosen", "that rate", "with, Table 8's rate"),
        *("with, over all rates", "one test row"),
    )
    return Grid("Accuracy on the test rows", head, tuple(lines))
