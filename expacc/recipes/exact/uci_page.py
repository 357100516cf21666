"""The page of exact-uci: Tables 1 and 2 beside ours, a clean search, causes of differences."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from expacc.recipes.exact.charts import gains_chart
from expacc.recipes.exact.paper import METHODS, TABLE_1, TABLE_2, TABLE_4, TABLE_8, page_of
from expacc.recipes.exact.scores import (
    Scores,
    Where,
    accuracy_grid,
    compared,
    gap_claim,
    grain,
    printed_gaps,
    settings_text,
    tables_of,
    with_steps,
)
from expacc.recipes.page import SLACK, Claim, Comparison, Grid, Number, Page, Section, verdict
from expacc.report.words import NONE, signed
from expacc.runner.rows import Row

__all__ = ["write"]

Facts = Mapping[str, Any]
Gaps = Mapping[str, float]  # table → points
_CE = "cross_entropy"
_TABLE = {"train": TABLE_1, "test": TABLE_2}


def write(rows: Sequence[Row], facts: Facts) -> Page:
    """Tables 1 and 2 beside ours, a clean search, and where differences may come from."""
    scores = Scores(rows)
    columns = {
        part: {method: (name, part, method) for method, name in METHODS.items()}
        for part in ("given", "search")
    }
    test, train = (
        compared(_TABLE[where], columns["given"], scores, facts, where)
        for where in ("test", "train")
    )
    gaps = {part: scores.gaps(part, "exact", _CE, facts) for part in ("given", "splits", "search")}
    return page_of(
        "exact-uci",
        with_steps(facts),
        (
            Section("Test rows: Table 2", beside=test, beside_head=("table", "method")),
            Section("Training rows: Table 1", beside=train, beside_head=("table", "method")),
            _gain_section(gaps, scores, facts),
            _search_section(columns["search"], scores, facts),
            _control_section({"test": test, "train": train}, scores, facts),
        ),
        (
            *(_best_claim(where, scores, facts) for where in ("train", "test")),
            *(_gain_claim(part, found) for part, found in gaps.items()),
        ),
    )


_SETTINGS = {
    "given": "Table 8's settings",
    "splits": "the same on other splits",
    "search": "settings of a clean search",
}


def _gain_claim(part: str, gaps: Gaps) -> Claim:
    says = f"EXACT over cross entropy on the test rows, points, {_SETTINGS[part]}"
    return gap_claim(
        says, TABLE_2, ("exact", _CE), gaps, lambda theirs, ours: ours >= theirs - SLACK
    )


def _best_claim(where: Where, scores: Scores, facts: Facts) -> Claim:
    counted, theirs, ours = _best("exact", where, scores, facts)
    rows = {"train": "training", "test": "test"}[where]
    says = f"EXACT is highest on the {rows} rows, ties counted"
    texts = [f"{tally} of {counted} tables" for tally in (theirs, ours)]
    return Claim(says, texts[0], texts[1], ours >= theirs if counted else None)


def _best(method: str, where: Where, scores: Scores, facts: Facts) -> tuple[int, int, int]:
    """Tables that are finished; on how many a method is the best, in print and here."""
    counted, tally, place = 0, [0, 0], list(METHODS).index(method)
    for table in tables_of(facts):
        ours = [scores.number("given", table, one, where) for one in METHODS]
        theirs: list[Number | None] = [_TABLE[where][table][one] for one in METHODS]
        if all(ours):
            counted += 1
            for turn, numbers in enumerate((theirs, ours)):
                means = [round(number.mean, 2) for number in numbers if number]
                tally[turn] += means[place] == max(means)
    return counted, tally[0], tally[1]


def _best_grid(scores: Scores, facts: Facts) -> Grid:
    lines, counted = [], 0
    for method, name in METHODS.items():
        counted, *train = _best(method, "train", scores, facts)
        _, *test = _best(method, "test", scores, facts)
        lines.append((name, *(f"{tally}" for tally in (*train, *test))))
    head = ("method", "training rows, paper", "ours", "test rows, paper", "ours")
    title = f"Highest on so many of {counted} finished tables, ties counted for all"
    return Grid(title, head, tuple(lines))


def _gain_section(gaps: Mapping[str, Gaps], scores: Scores, facts: Facts) -> Section:
    tables, row = tables_of(facts), grain(facts)
    gains = {
        "paper": printed_gaps(TABLE_2, "exact", _CE, tables),
        "ours, Table 8": gaps["given"],
        "the same, other splits": gaps["splits"],
        "ours, clean search": gaps["search"],
    }
    gains = {name: found for name, found in gains.items() if found}
    cells = []
    for table in tables:
        gap = scores.difference("splits", table, "exact", _CE)
        error = NONE if gap is None else f"{(gap.spread or 0.0) / max(1, gap.count - 1) ** 0.5:.2f}"
        shown = [signed(found.get(table)) for found in gains.values()]
        cells.append((table, *shown, error, f"{row[table]:.2f}"))
    head = ("table", *gains, "error over splits", "one test row")
    less = "EXACT less cross entropy"
    title = "What EXACT adds to cross entropy, table by table"
    return Section(
        "EXACT against cross entropy",
        text=(
            "What EXACT adds to cross entropy on the test rows, in points. Where the test rows are "
            "few, one of them is worth much: see the last column before reading a difference.",
            f"The paper has one random split of each table. Table 8's settings on "
            f"{facts['splits']} others, a run on each, show what of a gain is that split's; the "
            "error over splits is the standard error of their mean.",
        ),
        grids=(Grid(less, head, tuple(cells)), _best_grid(scores, facts)),
        charts=gains_chart("exact-gains", title, less, gains, row) if len(gains) > 1 else (),
    )


def _search_section(
    columns: Mapping[str, tuple[str, str, str]], scores: Scores, facts: Facts
) -> Section:
    rows = [
        (
            table,
            name,
            settings_text(TABLE_8[method][table].record()),
            settings_text(own),
            str(scores.number("search", table, method, "train") or NONE),
        )
        for table in tables_of(facts)
        for method, name in METHODS.items()
        if (own := scores.settings("search", table, method))
    ]
    head = ("table", "method", "Table 8", "our search", "accuracy on training rows")
    return Section(
        "Again, with a clean search",
        text=(
            f"{facts['trials']} trials a loss, drawn from the ranges of Table 8, each trained on "
            "four fifths of the training rows and judged on the fifth; the best is trained again "
            f"on all training rows, with {facts['seeds']} seeds, and tested once. The test rows "
            "have no part in the choice: the code that searches is not given them. The paper's "
            "numbers beside ours were found by a search, too, so that this compares searches, not "
            "training.",
            f"Trials and final runs took {scores.cpu.get('search', 0.0):,.0f} seconds of one core.",
        ),
        beside=compared(TABLE_2, columns, scores, facts),
        beside_head=("table", "method"),
        grids=(Grid("What was found", head, tuple(rows)),),
    )


def _control_section(
    beside: Mapping[str, Sequence[Comparison]], scores: Scores, facts: Facts
) -> Section:
    decay = f"decay {facts['decay']:g}"
    columns = {
        f"{name}, {where}": (part, method, where)
        for name, part, method in (
            ("as printed", "given", "exact"),
            (decay, "decay", "exact"),
            ("sampled gradient", "sampled", "exact: sampled"),
        )
        for where in ("train", "test")
    }
    unlike = Grid(
        "Numbers that are not as printed",
        (
            *("rows", "table", "method", "paper", "ours", "Table 4", decay, "sampled gradient"),
            *("one row", "seeds as printed"),
        ),
        tuple(_unlike(row, where, scores, facts) for where, rows in beside.items() for row in rows
              if verdict(row) in ("above", "below")),
        note="Table 4 prints EXACT's test accuracy a second time. One row: what a single row is "
        "worth, in points.",
    )  # fmt: skip
    grids = (
        unlike,
        accuracy_grid("EXACT, otherwise", columns, scores, facts, needs=slice(2, None)),
        _decay_grid(decay, scores, facts),
    )
    return Section(
        "Where a difference may come from",
        text=(
            "EXACT with Table 8's settings; with a weight decay of 0.0001, which Section 5.4 has "
            "for all models and Table 8 for none; and with the authors' estimate of the gradient "
            "from 16 samples in place of the integral, which with two classes is the same.",
        ),
        grids=grids,
    )


def _unlike(row: Comparison, where: Where, scores: Scores, facts: Facts) -> tuple[str, ...]:
    """What the rows and the paper itself say about a number that is not as printed."""
    table, name = row.labels
    method = next(one for one, called in METHODS.items() if called == name)
    exact = method == "exact"
    again = TABLE_4[table]["exact"] if exact and where == "test" else None
    sampled = scores.number("sampled", table, "exact: sampled", where) if exact else None
    each = scores.each("given", table, method, where).values()
    same = sum(abs(value - row.theirs.mean) < 0.005 for value in each) if row.theirs else 0
    decayed = scores.number("decay", table, method, where)
    numbers = [str(one or NONE) for one in (row.theirs, row.ours, again, decayed, sampled)]
    one = grain(facts, where)[table]
    return (where, table, name, *numbers, f"{one:.2f}", f"{same} of {len(each)}")


def _decay_grid(decay: str, scores: Scores, facts: Facts) -> Grid:
    """How far our numbers are from print without and with the weight decay."""
    lines = []
    for method, name in METHODS.items():
        off = []
        for table in tables_of(facts):
            for where, printed in _TABLE.items():
                both = [scores.number(part, table, method, where) for part in ("given", "decay")]
                if all(both):
                    theirs = printed[table][method].mean
                    off.append([abs(number.mean - theirs) for number in both if number])
        if off:
            lines.append((name, *(f"{mean:.2f}" for mean in np.mean(off, 0)), f"{len(off)}"))
    title = "Mean distance from the printed numbers of Tables 1 and 2, in points"
    return Grid(title, ("method", "as printed", decay, "numbers"), tuple(lines))
