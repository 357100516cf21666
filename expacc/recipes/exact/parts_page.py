"""The pages of exact-ablation (Table 4) and exact-normalizer (Tables 5 and 6)."""

from collections.abc import Mapping, Sequence
from typing import Any

from expacc.recipes.exact.charts import parts_chart
from expacc.recipes.exact.paper import TABLE_4, TABLE_5, TABLE_6
from expacc.recipes.exact.rows import (
    Scores,
    listed,
    number_text,
    protocol_deviations,
    signed,
    tables_of,
)
from expacc.recipes.page import SLACK, Comparison, Grid, Number, Page, Section, verdict
from expacc.runner.rows import Row

__all__ = ["write_ablation", "write_normalizer"]

Facts = Mapping[str, Any]

# Variant → how it reads; the first three are columns of Table 4.
_PARTS = {
    "no margin": "without margin",
    "no schedule": "without variance schedule",
    "no normaliser": "without gradient normaliser",
}
_OTHERWISE = {
    "no schedule": ("sigma 1", "sigma 0.1"),
    "no normaliser": ("clip 1",),
}
_LOSSES = {"cross_entropy": ("cross entropy", 5, TABLE_5), "hinge": ("hinge", 6, TABLE_6)}


def _grain(row: Comparison, facts: Facts) -> list[str]:
    count = facts["tables"][row.labels[0]]["test_rows"]
    one, gap = 100 / count, abs(row.difference or 0.0)
    return [f"One of the {count} test rows is {one:.2f} points."] if gap <= 2.5 * one else []


# ------------------------------------------------------------------------------- exact-ablation


def write_ablation(rows: Sequence[Row], facts: Facts) -> Page:
    """Table 4 beside ours."""
    scores = Scores(rows)
    tables = tables_of(facts)
    beside = []
    for table in tables:
        for part, name in _PARTS.items():
            beside.append(_without(table, part, name, scores, facts))
        theirs, ours = TABLE_4[table]["exact"], scores.number("given", table, "exact")
        row = Comparison((table, "whole"), theirs, ours)
        notes = [*_decayed(row, table, "exact", scores, facts), *_grain(row, facts)]
        beside.append(_noted(row, notes))
    gaps = {
        name: {
            table: gap.mean
            for table in tables
            if (gap := scores.difference("given", table, f"exact: {part}", "exact")) is not None
        }
        for part, name in _PARTS.items()
    }
    gaps = {name: found for name, found in gaps.items() if found}
    one = {table: 100 / facts["tables"][table]["test_rows"] for table in tables}
    return Page(
        title="EXACT without its parts",
        claim="Margin, variance schedule and gradient normaliser: all improvements generally lead "
        "to higher test-time accuracy (Appendix F).",
        answer=_missed(gaps, scores, facts),
        sections=(
            Section(
                "Test rows: Table 4",
                beside=tuple(beside),
                beside_head=("table", "EXACT"),
                charts=(parts_chart(gaps, one),) if gaps else (),
            ),
            _training_section(scores, facts),
            _readings_section(scores, facts),
        ),
        deviations=(
            "The paper does not say with which settings the parts were left out, nor what took "
            "their place. We keep Table 8's settings. Without a schedule, sigma is 1 and the "
            "logits are not standardised: their scale, which stands for 1/sigma, is then trained, "
            "which is what Section 4.5.3 sets the schedule against. Without the normaliser the "
            "gradient is used as it is; the authors' code would clip it.",
            *protocol_deviations(facts),
        ),
    )


def _without(table: str, part: str, name: str, scores: Scores, facts: Facts) -> Comparison:
    ours = scores.number("given", table, f"exact: {part}")
    row = Comparison((table, name), TABLE_4[table][part], ours)
    failed = scores.failed("given", table, f"exact: {part}")
    if failed:
        return Comparison(row.labels, row.theirs, row.ours, f"{failed} runs diverged.")
    notes = _decayed(row, table, f"exact: {part}", scores, facts)
    for other in _OTHERWISE.get(part, ()):
        number = scores.number("given", table, f"exact: {other}")
        if number is not None and verdict(Comparison(row.labels, row.theirs, number)) == "within":
            notes.append(f"With {_reading(other)} it is {number_text(number)}, as in the paper.")
    return _noted(row, [*notes[:1], *_grain(row, facts)])


def _decayed(row: Comparison, table: str, method: str, scores: Scores, facts: Facts) -> list[str]:
    """What the weight decay of Section 5.4 makes of it, where that is the paper's number."""
    number = scores.number("decay", table, method)
    if number is None or verdict(Comparison(row.labels, row.theirs, number)) != "within":
        return []
    return [
        f"With a weight decay of {facts['decay']:g} it is {number_text(number)}, as in the paper."
    ]


def _noted(row: Comparison, notes: Sequence[str]) -> Comparison:
    """A note for a number that is not as printed."""
    if verdict(row) not in ("above", "below"):
        return row
    return Comparison(row.labels, row.theirs, row.ours, " ".join(notes) or "No cause found.")


def _reading(other: str) -> str:
    word, number = other.split()
    return (
        f"a constant sigma of {number}" if word == "sigma" else f"the gradient clipped at {number}"
    )


def _missed(gaps: Mapping[str, Mapping[str, float]], scores: Scores, facts: Facts) -> str:
    if not gaps:
        return "Nothing is done yet."
    words = []
    for name, found in gaps.items():
        worse = [table for table, gap in found.items() if gap < -SLACK]
        better = [table for table, gap in found.items() if gap > SLACK]
        mean = sum(found.values()) / len(found)
        text = f"{name} EXACT is worse on {len(worse)} of {len(found)} tables"
        if better:
            text += f", better on {len(better)}"
        words.append(f"{text} (mean {signed(mean)} points)")
    return "".join((words[0][0].upper(), "; ".join(words)[1:], "."))


def _training_section(scores: Scores, facts: Facts) -> Section:
    rows = tuple(
        (
            table,
            *(
                number_text(scores.number("given", table, method, "train"))
                for method in (*(f"exact: {part}" for part in _PARTS), "exact")
            ),
        )
        for table in tables_of(facts)
    )
    return Section(
        "Training rows",
        text=(
            "The paper has no such table. A part that helps to find a better optimum shows here "
            "first.",
        ),
        grids=(Grid("Accuracy on the training rows", ("table", *_PARTS.values(), "whole"), rows),),
    )


def _readings_section(scores: Scores, facts: Facts) -> Section:
    columns = {
        **{f"constant sigma {o.split()[1]}": ("given", o) for o in _OTHERWISE["no schedule"]},
        **{f"clipped at {o.split()[1]}": ("given", o) for o in _OTHERWISE["no normaliser"]},
        **{f"{name}, decay": ("decay", part) for part, name in _PARTS.items()},
    }
    rows = tuple(
        (
            table,
            *(
                number_text(scores.number(part, table, f"exact: {other}"))
                for part, other in columns.values()
            ),
            number_text(scores.number("decay", table, "exact")),
        )
        for table in tables_of(facts)
    )
    return Section(
        "Other readings of 'without'",
        text=(
            "Sigma could also stay at a constant on standardised logits, and a gradient that is "
            "not normalised could be clipped. Section 5.4 of the paper has a weight decay of "
            "0.0001 for all models, Table 8 has none: the last columns have it.",
        ),
        grids=(Grid("Accuracy on the test rows", ("table", *columns, "whole, decay"), rows),),
    )


# ----------------------------------------------------------------------------- exact-normalizer


def write_normalizer(rows: Sequence[Row], facts: Facts) -> Page:
    """Tables 5 and 6 beside ours."""
    scores = Scores(rows)
    sections = [_loss_section(loss, scores, facts) for loss in _LOSSES]
    return Page(
        title="The gradient normaliser with other losses",
        claim="The gradient normaliser has minor effect on training with cross entropy and hinge "
        "loss (Appendix F): 6 and 8 best results with and without it for cross entropy, 6 and 7 "
        "for hinge.",
        answer=_effect(scores, facts),
        sections=tuple(sections),
        deviations=(
            "The paper does not print the settings of these runs. A rate that suits clipped "
            "gradients need not suit normalised ones, so the rate is chosen from the six of the "
            "authors' script on a fifth of the training rows; margin and penalty stay as in "
            "Table 8. Beside it stand Table 8's own rate, and the span over all six, which is "
            "there to be seen and chooses nothing.",
            *protocol_deviations(facts),
        ),
    )


def _loss_section(loss: str, scores: Scores, facts: Facts) -> Section:
    name, table_number, printed = _LOSSES[loss]
    beside, cells = [], []
    for table in tables_of(facts):
        method = f"{loss}: normaliser"
        chosen, kept, plain = (
            scores.number("search", table, method),
            scores.number("given", table, method),
            scores.number("given", table, loss),
        )
        row = Comparison((table, "with normaliser"), printed[table]["with"], chosen)
        notes = _grain(row, facts)
        if kept is not None and verdict(Comparison(row.labels, row.theirs, kept)) == "within":
            notes.insert(0, f"With Table 8's rate it is {number_text(kept)}, as in the paper.")
        swept = scores.by_rate("rates", table, method)
        if swept:
            notes.insert(0, _swept_text(row, swept))
        beside.append(_noted(row, notes))
        row = Comparison((table, "without"), printed[table]["without"], plain)
        beside.append(_noted(row, _grain(row, facts)))
        rate = scores.settings("search", table, method).get("learning_rate")
        cells.append(
            (
                table,
                number_text(plain),
                number_text(chosen),
                "–" if rate is None else f"{rate:g}",
                number_text(kept),
                _span(swept),
            )
        )
    head = (
        *("table", "without", "with, rate chosen", "that rate", "with, Table 8's rate"),
        "with, over all rates",
    )
    return Section(
        f"{name.capitalize()}: Table {table_number}",
        beside=tuple(beside),
        beside_head=("table", name),
        grids=(Grid("Accuracy on the test rows", head, tuple(cells)),),
    )


def _span(swept: Mapping[float, float]) -> str:
    if not swept:
        return "–"
    return f"{min(swept.values()):.2f} to {max(swept.values()):.2f}"


def _swept_text(row: Comparison, swept: Mapping[float, float]) -> str:
    """What the learning rate, which the paper does not print, does to a number."""
    words = f"Over {len(swept)} learning rates it is {_span(swept)}"
    low, high = min(swept.values()) - SLACK, max(swept.values()) + SLACK
    if row.theirs is not None and low <= row.theirs.mean <= high:
        return f"{words}; the paper does not print its own."
    return f"{words}, never the paper's."


def _effect(scores: Scores, facts: Facts) -> str:
    words = []
    for loss, (name, _, _) in _LOSSES.items():
        gaps: dict[str, float] = {}
        for table in tables_of(facts):
            ours = scores.number("search", table, f"{loss}: normaliser")
            plain = scores.number("given", table, loss)
            if isinstance(ours, Number) and isinstance(plain, Number):
                gaps[table] = ours.mean - plain.mean
        if not gaps:
            continue
        large = [f"{table} ({signed(gap, 1)})" for table, gap in gaps.items() if abs(gap) > SLACK]
        level = len(gaps) - len(large)
        text = f"{name} changes by no more than {SLACK} points on {level} of {len(gaps)} tables"
        words.append(f"{text}{f', by more on {listed(large)}' if large else ''}")
    if not words:
        return "Nothing is done yet."
    return f"With the normaliser, {'; '.join(words)}."
