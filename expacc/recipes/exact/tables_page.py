"""The pages of exact-uci (Tables 1, 2 and 8), exact-ablation (Table 4), exact-normalizer (Tables 5
and 6) and exact-noise."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from expacc.recipes.exact import (
    METHODS,
    NOISE_METHODS,
    NOISE_QUESTIONS,
    TABLE_1,
    TABLE_2,
    TABLE_4,
    TABLE_5,
    TABLE_6,
    TABLE_8,
)
from expacc.recipes.exact.scores import (
    Gaps,
    Scores,
    Where,
    counts_text,
    printed_gaps,
    settings_text,
)
from expacc.recipes.page import SLACK, Claim, Comparison, Grid, Number, Page, Section, verdict
from expacc.report.words import NONE, signed
from expacc.runner.rows import Row

Facts = Mapping[str, Any]


# ------------------------------------------------------------------------------------- exact-uci

_CE = "cross_entropy"
_TABLE = {"train": TABLE_1, "test": TABLE_2}
_SETTINGS = {
    "given": "Table 8's settings",
    "splits": "the same on other splits",
    "search": "settings of a clean search",
}


def write_uci(rows: Sequence[Row], facts: Facts) -> Page:
    """Tables 1 and 2 beside ours, a clean search, and where differences may come from."""
    scores = Scores("exact-uci", rows, facts)
    given, search = (
        {method: (name, part, method) for method, name in METHODS.items()}
        for part in ("given", "search")
    )
    beside = {where: [*scores.compared(_TABLE[where], given, where)] for where in ("test", "train")}
    gaps = {part: scores.gaps(part, "exact", _CE) for part in _SETTINGS}
    section = scores.layout.section
    found = scores.compared(TABLE_2, search)
    return scores.layout.page(
        (
            *(section(where, beside=own) for where, own in beside.items()),
            _gain_section(gaps, scores),
            section("search", beside=found, grids=[_found_grid(scores)]),
            _control_section(beside, scores, f"decay {facts['decay']:g}"),
        ),
        (
            *(_best_claim(where, scores) for where in ("train", "test")),
            *(
                scores.claim("gain", TABLE_2, ("exact", _CE), own, _as_much, how=_SETTINGS[part])
                for part, own in gaps.items()
            ),
        ),
    )


def _as_much(theirs: float, ours: float) -> bool:
    return ours >= theirs - SLACK


def _best_claim(where: Where, scores: Scores) -> Claim:
    counted, theirs, ours = _best("exact", where, scores)
    holds = ours >= theirs if counted else None
    words = {"rows": {"train": "training", "test": "test"}[where], "theirs": theirs}
    return scores.layout.claim("best", f"{ours} of {counted} tables", holds, **words, of=counted)


def _best(method: str, where: Where, scores: Scores) -> tuple[int, int, int]:
    """Tables that are finished; on how many a method is the best, in print and here."""
    counted, tally, place = 0, [0, 0], list(METHODS).index(method)
    for table in scores.tables:
        ours = [scores.number("given", table, one, where) for one in METHODS]
        theirs: list[Number | None] = [_TABLE[where][table][one] for one in METHODS]
        if all(ours):
            counted += 1
            for turn, numbers in enumerate((theirs, ours)):
                means = [round(number.mean, 2) for number in numbers if number]
                tally[turn] += means[place] == max(means)
    return counted, tally[0], tally[1]


def _gain_section(gaps: Mapping[str, Gaps], scores: Scores) -> Section:
    gains = {
        "paper": printed_gaps(TABLE_2, "exact", _CE, scores.tables),
        "ours, Table 8": gaps["given"],
        "the same, other splits": gaps["splits"],
        "ours, clean search": gaps["search"],
    }
    gains = {name: found for name, found in gains.items() if found}
    lines, best, counted = [], [], 0
    for table, one in scores.grain().items():
        gap = scores.difference("splits", table, "exact", _CE)
        error = NONE if gap is None else f"{(gap.spread or 0.0) / max(1, gap.count - 1) ** 0.5:.2f}"
        shown = [signed(found.get(table)) for found in gains.values()]
        lines.append((table, *shown, error, f"{one:.2f}"))
    for method, name in METHODS.items():
        counted, *train = _best(method, "train", scores)
        _, *test = _best(method, "test", scores)
        best.append((name, *(f"{tally}" for tally in (*train, *test))))
    layout, less = scores.layout, "EXACT less cross entropy"
    return layout.section(
        "gains",
        grids=[
            layout.grid("gain", lines, columns=gains),
            layout.grid("best", best, counted=counted),
        ],
        charts=scores.chart("exact-gains", gains, less) if len(gains) > 1 else (),
    )


def _found_grid(scores: Scores) -> Grid:
    lines = [
        (
            table,
            name,
            settings_text(TABLE_8[method][table].record()),
            settings_text(own),
            str(scores.number("search", table, method, "train") or NONE),
        )
        for table in scores.tables
        for method, name in METHODS.items()
        if (own := scores.settings("search", table, method))
    ]
    return scores.layout.grid("found", lines)


def _control_section(
    beside: Mapping[str, Sequence[Comparison]], scores: Scores, decay: str
) -> Section:
    columns = {
        f"{name}, {where}": (part, method, where)
        for name, part, method in (
            ("as printed", "given", "exact"),
            (decay, "decay", "exact"),
            ("sampled gradient", "sampled", "exact: sampled"),
        )
        for where in ("train", "test")
    }
    unlike = [
        _unlike(row, where, scores)
        for where, rows in beside.items()
        for row in rows
        if verdict(row) in ("above", "below")
    ]
    grids = (
        scores.layout.grid("unlike", unlike, name=decay),
        scores.grid("otherwise", columns, needs=slice(2, None)),
        scores.layout.grid("distance", _distances(scores), name=decay),
    )
    return scores.layout.section("causes", grids=grids)


def _unlike(row: Comparison, where: Where, scores: Scores) -> tuple[str, ...]:
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
    one = f"{scores.grain(where)[table]:.2f}"
    return (where, table, name, *numbers, one, f"{same} of {len(each)}")


def _distances(scores: Scores) -> list[tuple[str, ...]]:
    """How far our numbers are from print without and with the weight decay."""
    lines = []
    for method, name in METHODS.items():
        off = []
        for table in scores.tables:
            for where, printed in _TABLE.items():
                both = [scores.number(part, table, method, where) for part in ("given", "decay")]
                if all(both):
                    theirs = printed[table][method].mean
                    off.append([abs(number.mean - theirs) for number in both if number])
        if off:
            lines.append((name, *(f"{mean:.2f}" for mean in np.mean(off, 0)), f"{len(off)}"))
    return lines


# ------------------------------------------------------------------------------- exact-ablation

# Variant → how it reads; columns of Table 4.
_PARTS = {
    "no margin": "without margin",
    "no schedule": "without variance schedule",
    "no normaliser": "without gradient normaliser",
}


def write_ablation(rows: Sequence[Row], facts: Facts) -> Page:
    """Table 4 beside ours."""
    scores = Scores("exact-ablation", rows, facts)
    columns = {part: (name, "given", f"exact: {part}") for part, name in _PARTS.items()}
    columns["exact"] = ("whole", "given", "exact")
    gaps = {part: scores.gaps("given", f"exact: {part}", "exact") for part in _PARTS}
    training = {name: ("given", method, "train") for name, _, method in columns.values()}
    readings = {
        "constant sigma 1": ("given", "exact: sigma 1", "test"),
        "constant sigma 0.1": ("given", "exact: sigma 0.1", "test"),
        "clipped at 1": ("given", "exact: clip 1", "test"),
        **{f"{name}, decay": ("decay", method, "test") for name, _, method in columns.values()},
    }
    gains = {_PARTS[part]: found for part, found in gaps.items()}
    chart = scores.chart("exact-parts", gains, "difference to whole EXACT")
    section = scores.layout.section
    return scores.layout.page(
        (
            section("test", beside=scores.compared(TABLE_4, columns), charts=chart),
            section("train", grids=[scores.grid("training", training)]),
            section("otherwise", grids=[scores.grid("readings", readings)]),
        ),
        [
            scores.claim("loses", TABLE_4, (part, "exact"), gaps[part], _no_less, name=name)
            for part, name in _PARTS.items()
        ],
    )


def _no_less(theirs: float, ours: float) -> bool:
    return ours <= theirs + SLACK


# ----------------------------------------------------------------------------- exact-normalizer

_LOSSES = {"cross_entropy": ("cross entropy", 5, TABLE_5), "hinge": ("hinge", 6, TABLE_6)}


def write_normalizer(rows: Sequence[Row], facts: Facts) -> Page:
    """Tables 5 and 6 beside ours."""
    scores = Scores("exact-normalizer", rows, facts)
    claims, sections = [], []
    for loss, (name, number, printed) in _LOSSES.items():
        with_it, both = f"{loss}: normaliser", ("with", "without")
        gaps = scores.gaps("search", with_it, loss, other_part="given")
        claims.append(scores.claim("little", printed, both, gaps, _little, name=name))
        columns = {
            "with": ("with normaliser", "search", with_it),
            "without": ("without", "given", loss),
        }
        words: Facts = {"name": name, "title": name.capitalize(), "number": number}
        grids, beside = [_rates_grid(loss, scores)], scores.compared(printed, columns)
        sections.append(scores.layout.section("loss", beside=beside, grids=grids, **words))
    return scores.layout.page(sections, claims)


def _little(_: float, ours: float) -> bool:
    return abs(ours) <= SLACK


def _rates_grid(loss: str, scores: Scores) -> Grid:
    """What the learning rate, which the paper does not print, does to a number."""
    method, lines = f"{loss}: normaliser", []
    for table, one in scores.grain().items():
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
                f"{one:.2f}",
            )
        )
    return scores.layout.grid("rates", lines)


# ---------------------------------------------------------------------------------- exact-noise

_NORMAL, _GUMBEL, _LOGISTIC, _LAPLACE, _NORMAL_LOG, _GUMBEL_LOG = list(NOISE_METHODS)[1:]
_SHOWN = (_NORMAL, _GUMBEL, _LOGISTIC, _LAPLACE, _GUMBEL_LOG)  # in the chart
_OTHERS = (_GUMBEL, _LOGISTIC, _LAPLACE, _NORMAL_LOG, _GUMBEL_LOG)  # than EXACT
PARTS = {
    "given": "With the paper's settings",
    "search": "With settings of its own for each loss",
}
# What the blog says: one method less another, and the sign of a clear difference that bears it out.
CLAIMS = {
    "noise": (_NORMAL, _GUMBEL, 0),
    "softmax": (_GUMBEL, _CE, -1),
    "log": (_NORMAL_LOG, _NORMAL, -1),
    "better": (_NORMAL, _CE, 1),
}


def write_noise(rows: Sequence[Row], facts: Facts) -> Page:
    """The page, from the rows that there are."""
    scores = Scores("exact-noise", rows, facts)
    return scores.layout.page(
        (_questions(scores), *(_part_section(part, scores) for part in PARTS)),
        [_claim(key, *one, scores) for key, one in CLAIMS.items()],
    )


def _claim(key: str, method: str, other: str, sign: int, scores: Scores) -> Claim:
    """Judged with the paper's settings: clear is more than two standard errors from 0."""
    gaps = scores.gaps("given", method, other)
    if not gaps:
        return scores.layout.claim(key, "", None)
    mean, error = float(np.mean(list(gaps.values()))), _error(gaps)
    clear = 0 if abs(mean) <= 2 * error else 1 if mean > 0 else -1
    found = f"{_mean_text(gaps)} points; better / level / worse: {counts_text(gaps)}"
    return scores.layout.claim(key, found, clear == sign)


def _error(gaps: Gaps) -> float:
    """Standard error of the mean over tables; infinite for one table."""
    values = list(gaps.values())
    return float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else np.inf


def _mean_text(gaps: Gaps) -> str:
    """The mean over tables and its standard error, which one table has not."""
    error = f" ± {_error(gaps):.2f}" if len(gaps) > 1 else ""
    return f"{signed(float(np.mean(list(gaps.values()))))}{error}"


def _questions(scores: Scores) -> Section:
    lines, kept = [], []
    for question, method, other in NOISE_QUESTIONS:
        cells = []
        for part in PARTS:
            found = scores.gaps(part, method, other)
            cells += [_mean_text(found), counts_text(found)] if found else [NONE, NONE]
        if set(cells) != {NONE}:
            lines.append((question, *cells))
    for part, title in PARTS.items():
        whole = {t: gap for t, gap in scores.gaps(part, _NORMAL, _CE).items() if gap > SLACK}
        if whole:
            where = ", ".join(f"{table} {signed(gap, 1)}" for table, gap in whole.items())
            shares = [_share(whole, scores.gaps(part, method, _CE)) for method in _OTHERS]
            kept.append((title, where, *shares))
    layout, others = scores.layout, [NOISE_METHODS[method] for method in _OTHERS]
    grids = (layout.grid("gaps", lines), layout.grid("kept", kept, columns=others))
    return layout.section("questions", grids=grids)


def _share(whole: Gaps, its: Gaps) -> str:
    """What a loss has of EXACT's gain on these tables."""
    if not whole.keys() <= its.keys():
        return NONE
    return f"{sum(its[table] for table in whole) / sum(whole.values()):.0%}".replace("-", "−")


def _part_section(part: str, scores: Scores) -> Section:
    tried = [
        one for one in NOISE_METHODS if any(scores.number(part, t, one) for t in scores.tables)
    ]
    grids = [
        scores.grid(where, {NOISE_METHODS[one]: (part, one, where) for one in tried}, mark=True)
        for where in ("test", "train")
    ]
    if part == "search":
        found = [
            (table, *(settings_text(scores.settings(part, table, one)) for one in tried))
            for table in scores.tables
            if scores.settings(part, table, _CE)
        ]
        grids.append(
            scores.layout.grid("found", found, columns=[NOISE_METHODS[one] for one in tried])
        )
    gains = {NOISE_METHODS[one]: scores.gaps(part, one, _CE) for one in _SHOWN}
    charts = scores.chart(f"noise-{part}", gains, "difference to cross entropy")
    return scores.layout.section(part, grids=grids, charts=charts)
