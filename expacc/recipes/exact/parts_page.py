"""The pages of exact-ablation (Table 4), exact-normalizer (Tables 5 and 6) and exact-noise."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from expacc.recipes.exact.charts import gains_chart
from expacc.recipes.exact.paper import TABLE_4, TABLE_5, TABLE_6, page_of
from expacc.recipes.exact.scores import (
    Scores,
    accuracy_grid,
    compared,
    counts_text,
    gap_claim,
    grain,
    settings_text,
    tables_of,
    with_steps,
)
from expacc.recipes.page import SLACK, Claim, Grid, Page, Section
from expacc.report.words import NONE, signed
from expacc.runner.rows import Row

__all__ = ["write_ablation", "write_noise", "write_normalizer"]

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
                f"EXACT {name} loses as much on the test rows, points",
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
                f"The normaliser does little to {name} on the test rows, points",
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


# ---------------------------------------------------------------------------------- exact-noise

_CE = "cross_entropy"
_NORMAL, _GUMBEL, _LOGISTIC, _LAPLACE, _NORMAL_LOG, _GUMBEL_LOG = (
    f"exact: {noise}"
    for noise in ("normal", "gumbel", "logistic", "laplace", "normal log", "gumbel log")
)
_NAMES = {
    _CE: "cross entropy",
    _NORMAL: "1 − P, normal (EXACT)",
    _GUMBEL: "1 − P, Gumbel",
    _LOGISTIC: "1 − P, logistic",
    _LAPLACE: "1 − P, Laplace",
    _NORMAL_LOG: "−log P, normal",
    _GUMBEL_LOG: "−log P, Gumbel",
}
_SHOWN = (_NORMAL, _GUMBEL, _LOGISTIC, _LAPLACE, _GUMBEL_LOG)  # in the chart
PARTS = {
    "given": "With the paper's settings",
    "search": "With settings of its own for each loss",
}
QUESTIONS = (
    ("What does the normal buy over the Gumbel?", _NORMAL, _GUMBEL),
    ("Over the logistic?", _NORMAL, _LOGISTIC),
    ("Over the Laplace?", _NORMAL, _LAPLACE),
    ("What does 1 − P buy over −log P, normal noise?", _NORMAL, _NORMAL_LOG),
    ("And with Gumbel noise, expected error against cross entropy?", _GUMBEL, _GUMBEL_LOG),
    ("What do schedule, margin and normaliser do for cross entropy?", _GUMBEL_LOG, _CE),
    ("What does all of it do: EXACT against plain cross entropy?", _NORMAL, _CE),
)
# What the blog says, one method less another, and the sign of a clear difference that bears it out.
CLAIMS = (
    ("Changing the noise is unlikely to help: normal against Gumbel", _NORMAL, _GUMBEL, 0),
    ("The expected accuracy of softmax is inferior to cross entropy", _GUMBEL, _CE, -1),
    ("−log P did worse than 1 − P: normal noise", _NORMAL_LOG, _NORMAL, -1),
    ("What makes EXACT better: EXACT against cross entropy", _NORMAL, _CE, 1),
)


def write_noise(rows: Sequence[Row], facts: Facts) -> Page:
    """The page, from the rows that there are."""
    scores = Scores(rows)
    return page_of(
        "exact-noise",
        with_steps(facts),
        (
            _questions(scores, facts),
            *(_part_section(part, scores, facts) for part in PARTS),
        ),
        tuple(_claim(*one, scores, facts) for one in CLAIMS),
    )


def _claim(says: str, method: str, other: str, sign: int, scores: Scores, facts: Facts) -> Claim:
    """Judged with the paper's settings: clear is more than two standard errors from 0."""
    gaps = scores.gaps("given", method, other, facts)
    words = {-1: "worse", 0: "no clear difference", 1: "better"}[sign]
    if not gaps:
        return Claim(says, words, "", None, headline=True)
    mean, error = float(np.mean(list(gaps.values()))), _error(gaps)
    clear = 0 if abs(mean) <= 2 * error else 1 if mean > 0 else -1
    found = f"{_mean_text(gaps)} points; better / level / worse: {counts_text(gaps)}"
    return Claim(says, words, found, clear == sign, headline=True)


def _error(gaps: Mapping[str, float]) -> float:
    """Standard error of the mean over tables; infinite for one table."""
    values = list(gaps.values())
    return float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else np.inf


def _mean_text(gaps: Mapping[str, float]) -> str:
    """The mean over tables and its standard error, which one table has not."""
    error = f" ± {_error(gaps):.2f}" if len(gaps) > 1 else ""
    return f"{signed(float(np.mean(list(gaps.values()))))}{error}"


def _questions(scores: Scores, facts: Facts) -> Section:
    rows, kept = [], []
    for question, method, other in QUESTIONS:
        cells = [question]
        for part in PARTS:
            found = scores.gaps(part, method, other, facts)
            cells += [_mean_text(found), counts_text(found)] if found else [NONE, NONE]
        if set(cells[1:]) != {NONE}:
            rows.append(tuple(cells))
    for part, title in PARTS.items():
        whole = scores.gaps(part, _NORMAL, _CE, facts)
        tables = [table for table, gap in whole.items() if gap > SLACK]
        shares = []
        for method in (_GUMBEL, _LOGISTIC, _LAPLACE, _NORMAL_LOG, _GUMBEL_LOG):
            its = scores.gaps(part, method, _CE, facts)
            done = tables and all(table in its for table in tables)
            gain = sum(its[table] for table in tables) if done else 0.0
            shares.append(
                f"{gain / sum(whole[table] for table in tables):.0%}".replace("-", "−")
                if done
                else NONE
            )
        if tables:
            where = ", ".join(f"{table} {signed(whole[table], 1)}" for table in tables)
            kept.append((title, where, *shares))
    head = ["question"]
    for words in ("paper's settings", "own settings"):
        head += [words, "better / level / worse"]
    others = [_NAMES[m] for m in (_GUMBEL, _LOGISTIC, _LAPLACE, _NORMAL_LOG, _GUMBEL_LOG)]
    grids = (
        Grid(
            "Test accuracy, the first less the second",
            tuple(head),
            tuple(rows),
            note="Points, mean over the tables and standard error of that mean; then the tables on "
            f"which the first is better, level within {SLACK} points, or worse.",
        ),
        Grid(
            "What others keep of EXACT's gain",
            ("settings", "EXACT gains on", *others),
            tuple(kept),
            note=f"Tables on which EXACT is more than {SLACK} points above cross entropy, and the "
            "share of that gain that each other loss has there.",
        ),
    )
    return Section("The blog's questions", grids=grids)


def _part_section(part: str, scores: Scores, facts: Facts) -> Section:
    tables = tables_of(facts)
    tried = [one for one in _NAMES if any(scores.number(part, table, one) for table in tables)]
    grids = [
        accuracy_grid(
            f"Accuracy on the {where} rows",
            {_NAMES[method]: (part, method, where) for method in tried},
            scores,
            facts,
            mark=True,
        )
        for where in ("test", "train")
    ]
    if part == "search":
        rows = tuple(
            (table, *(settings_text(scores.settings(part, table, one)) for one in tried))
            for table in tables
            if scores.settings(part, table, _CE)
        )
        grids.append(Grid("What was found", ("table", *(_NAMES[one] for one in tried)), rows))
    gains = {_NAMES[one]: scores.gaps(part, one, _CE, facts) for one in _SHOWN}
    title = f"Against cross entropy, {PARTS[part][0].lower()}{PARTS[part][1:]}"
    found = {name: gap for name, gap in gains.items() if gap}
    return Section(
        PARTS[part],
        grids=tuple(grids),
        charts=gains_chart(
            f"noise-{part}", title, "difference to cross entropy", found, grain(facts)
        ),
    )
