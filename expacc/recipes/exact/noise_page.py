"""The page of exact-noise: what of EXACT's gain is the normal's, and what the objective's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from expacc.recipes.exact.charts import noise_chart
from expacc.recipes.exact.rows import (
    Scores,
    listed,
    number_text,
    protocol_deviations,
    settings_text,
    signed,
    tables_of,
)
from expacc.recipes.page import SLACK, Grid, Page, Section
from expacc.runner.rows import Row

__all__ = ["write"]

Facts = Mapping[str, Any]
_CE = "cross_entropy"
_NORMAL, _GUMBEL = "exact: normal", "exact: gumbel"
_NORMAL_LOG, _GUMBEL_LOG = "exact: normal log", "exact: gumbel log"
_NAMES = {
    _CE: "cross entropy",
    _NORMAL: "1 − P, normal (EXACT)",
    _GUMBEL: "1 − P, Gumbel",
    "exact: logistic": "1 − P, logistic",
    "exact: laplace": "1 − P, Laplace",
    _NORMAL_LOG: "−log P, normal",
    _GUMBEL_LOG: "−log P, Gumbel",
}
_NOISES = (_NORMAL, _GUMBEL, "exact: logistic", "exact: laplace")
_SHOWN = (_NORMAL, _GUMBEL, "exact: logistic", "exact: laplace", _GUMBEL_LOG)  # in the chart
PARTS = {
    "given": "With the paper's settings",
    "search": "With settings of its own for each loss",
}


@dataclass(frozen=True)
class Contrast:
    """One method less another: by table, and over tables.

    Args:
        gaps: table → points of test accuracy.
    """

    gaps: Mapping[str, float]

    @property
    def mean(self) -> float:
        """Over the tables."""
        return float(np.mean(list(self.gaps.values())))

    @property
    def error(self) -> float:
        """Standard error of the mean, from the spread over tables; inf for one table."""
        count = len(self.gaps)
        return float(np.std(list(self.gaps.values()), ddof=1) / count**0.5) if count > 1 else np.inf

    @property
    def clear(self) -> bool:
        """Whether it is more than two standard errors from 0."""
        return abs(self.mean) > 2 * self.error

    def words(self) -> str:
        """For a sentence."""
        if len(self.gaps) < 2:
            return f"{signed(self.mean)} points on one table"
        return (
            f"{signed(self.mean)} ± {self.error:.2f} points over {len(self.gaps)} tables, mean "
            "and standard error"
        )


def _contrast(scores: Scores, part: str, method: str, other: str, facts: Facts) -> Contrast | None:
    gaps = {
        table: gap.mean
        for table in tables_of(facts)
        if (gap := scores.difference(part, table, method, other)) is not None
    }
    return Contrast(gaps) if gaps else None


def write(rows: Sequence[Row], facts: Facts) -> Page:
    """The page, from the rows that there are."""
    scores = Scores(rows)
    return Page(
        title="Which noise, and which objective?",
        claim="A blog (kexue.fm/archives/9098) doubts EXACT: softmax is the same construction with "
        "Gumbel noise; EXACT takes the normal instead, “but what makes it better?”. The "
        "expected accuracy of softmax is old wine, known to be inferior to cross entropy; simply "
        "changing the noise is unlikely to help; and −log P did worse than 1 − P when tried.",
        answer=_answer(scores, facts),
        sections=(
            _questions(scores, facts),
            *(_part_section(part, scores, facts) for part in PARTS),
        ),
        deviations=(
            "The blog tried language tasks, which are not part of this; here it is the paper's own "
            "protocol on the paper's tables. Every loss has the paper's margin, standardised "
            "logits, falling sigma and gradient normaliser, only the noise differs, each scaled to "
            "the same standard deviation. −log P with Gumbel noise is cross entropy with all of "
            "that, so that it tells the machinery from the objective.",
            "With the paper's settings, repeats are other random splits, the paper's first; tables "
            f"with a test part of their own have {facts['splits']} seeds. With settings of its "
            f"own, a loss has {facts['trials']} trials on four fifths of the training rows of the "
            f"paper's split, judged on the fifth, and {facts['seeds']} final runs. The losses that "
            "are slow to train are not searched.",
            "Momentum and normaliser begin anew with every epoch. Logistic and Laplace noise are "
            "integrated by a fixed rule, exact to 1e-4 and 1 % of the gradient.",
            *protocol_deviations(facts),
        ),
    )


# ------------------------------------------------------------------------------------ the answer


def _gaining(scores: Scores, part: str, facts: Facts) -> list[str]:
    """Tables on which EXACT gains over cross entropy."""
    gain = _contrast(scores, part, _NORMAL, _CE, facts)
    return [table for table, gap in gain.gaps.items() if gap > SLACK] if gain else []


def _kept(scores: Scores, part: str, method: str, tables: Sequence[str], facts: Facts) -> str:
    """What of EXACT's gain on these tables another method has, in points."""
    own, its = (_contrast(scores, part, one, _CE, facts) for one in (_NORMAL, method))
    if own is None or its is None or not all(table in its.gaps for table in tables):
        return ""
    whole, rest = (sum(found.gaps[table] for table in tables) for found in (own, its))
    return f"{rest / whole:.0%}"


def _answer(scores: Scores, facts: Facts) -> str:
    sentences = []
    for part, title in PARTS.items():
        tables = _gaining(scores, part, facts)
        kept = {
            method: share
            for method in (_GUMBEL, "exact: logistic", "exact: laplace", _GUMBEL_LOG, _NORMAL_LOG)
            if tables and (share := _kept(scores, part, method, tables, facts))
        }
        if not tables:
            if _contrast(scores, part, _NORMAL, _CE, facts) is not None:
                sentences.append(f"{title}, EXACT gains on no table by more than {SLACK} points.")
            continue
        gain = _contrast(scores, part, _NORMAL, _CE, facts)
        gaps = gain.gaps if gain else {}
        where = listed([f"{table} ({signed(gaps[table], 1)})" for table in tables])
        words = listed([f"{_NAMES[method]} {share}" for method, share in kept.items()])
        rest = f"; of that gain keep: {words}" if kept else ""
        sentences.append(f"{title}, EXACT gains on {where}{rest}.")
    noise = _contrast(scores, "given", _NORMAL, _GUMBEL, facts)
    aim = _contrast(scores, "given", _GUMBEL, _GUMBEL_LOG, facts)
    if noise and aim:
        sentences.append(_verdict(noise, aim))
    return " ".join(sentences) or "Nothing is done yet."


def _verdict(noise: Contrast, aim: Contrast) -> str:
    """Normal or Gumbel, and 1 - P or -log P: which of the two makes a difference."""
    first = (
        f"The normal is {'better' if noise.mean > 0 else 'worse'} than Gumbel noise"
        if noise.clear
        else "Between normal and Gumbel noise there is no clear difference"
    )
    second = (
        f"1 − P is {'better' if aim.mean > 0 else 'worse'} than −log P with the same noise"
        if aim.clear
        else "nor between 1 − P and −log P over all tables"
        if not noise.clear
        else "between 1 − P and −log P there is no clear difference over all tables"
    )
    return f"{first} ({noise.words()}), {second} ({signed(aim.mean)} ± {aim.error:.2f})."


def _questions(scores: Scores, facts: Facts) -> Section:
    asked = (
        ("What does the normal buy over the Gumbel?", _NORMAL, _GUMBEL),
        ("Over the logistic?", _NORMAL, "exact: logistic"),
        ("Over the Laplace?", _NORMAL, "exact: laplace"),
        ("What does 1 − P buy over −log P, normal noise?", _NORMAL, _NORMAL_LOG),
        ("And with Gumbel noise, expected error against cross entropy?", _GUMBEL, _GUMBEL_LOG),
        ("What do schedule, margin and normaliser do for cross entropy?", _GUMBEL_LOG, _CE),
        ("What does all of it do: EXACT against plain cross entropy?", _NORMAL, _CE),
    )
    rows = []
    for question, method, other in asked:
        cells = [question]
        for part in PARTS:
            found = _contrast(scores, part, method, other, facts)
            cells += _cells(found)
        if any(cell != "–" for cell in cells[1:]):
            rows.append(tuple(cells))
    head = ["question"]
    for words in ("paper's settings", "own settings"):
        head += [words, "better / level / worse"]
    grid = Grid(
        "Test accuracy, the first less the second",
        tuple(head),
        tuple(rows),
        note=f"Points, mean over the tables and standard error of that mean; then the tables on "
        f"which the first is better, level within {SLACK} points, or worse.",
    )
    return Section("The blog's questions", grids=(grid,) if rows else ())


def _cells(found: Contrast | None) -> list[str]:
    if found is None:
        return ["–", "–"]
    up = sum(gap > SLACK for gap in found.gaps.values())
    down = sum(gap < -SLACK for gap in found.gaps.values())
    error = f" ± {found.error:.2f}" if np.isfinite(found.error) else ""
    counts = f"{up} / {len(found.gaps) - up - down} / {down}"
    return [f"{signed(found.mean)}{error}", counts]


# ---------------------------------------------------------------------------------- the sections


def _part_section(part: str, scores: Scores, facts: Facts) -> Section:
    tables = tables_of(facts)
    grids = [
        _grid(f"Accuracy on the {where} rows", part, where, scores, facts)
        for where in ("test", "train")
    ]
    if part == "search":
        tried = _tried(part, scores, facts)
        rows = tuple(
            (
                table,
                *(settings_text(scores.settings(part, table, one)) for one in tried),
            )
            for table in tables
            if scores.settings(part, table, _CE)
        )
        names = [_NAMES[method] for method in tried]
        grids.append(Grid("What was found", ("table", *names), rows))
    gains = {}
    for method in _SHOWN:
        found = _contrast(scores, part, method, _CE, facts)
        if found is not None:
            gains[_NAMES[method]] = found.gaps
    one = {table: 100 / facts["tables"][table]["test_rows"] for table in tables}
    key, title = (
        f"noise-{part}",
        f"Against cross entropy, {PARTS[part][0].lower()}{PARTS[part][1:]}",
    )
    return Section(
        PARTS[part],
        grids=tuple(grid for grid in grids if grid.rows),
        charts=(noise_chart(gains, one, key, title),) if gains else (),
    )


def _grid(title: str, part: str, where: Any, scores: Scores, facts: Facts) -> Grid:
    rows: list[tuple[str, ...]] = []
    marked: list[tuple[int, int]] = []
    methods = _tried(part, scores, facts)
    for table in tables_of(facts):
        numbers = [scores.number(part, table, method, where) for method in methods]
        if not any(numbers):
            continue
        best = max(round(number.mean, 2) for number in numbers if number)
        marked += [
            (len(rows), place + 1)
            for place, number in enumerate(numbers)
            if number and round(number.mean, 2) == best
        ]
        rows.append((table, *(number_text(number) for number in numbers)))
    names = [_NAMES[method] for method in methods]
    return Grid(title, ("table", *names), tuple(rows), marked=tuple(marked))


def _tried(part: str, scores: Scores, facts: Facts) -> list[str]:
    """The methods of a part that have a number."""
    return [
        method
        for method in _NAMES
        if any(scores.number(part, table, method) for table in tables_of(facts))
    ]
