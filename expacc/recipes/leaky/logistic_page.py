"""The page of leerr-mnist-logistic."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from expacc.recipes.leaky.logistic import ALL, CONDITIONS, LARGE_RATE, RATE
from expacc.recipes.leaky.logistic_charts import (
    folds_chart,
    large_rate_chart,
    norms_chart,
    whole_chart,
)
from expacc.recipes.leaky.paper import LOSSES
from expacc.recipes.leaky.plateaus import BEHIND, Runs, Statement, orders, statements, stuck
from expacc.recipes.leaky.words import listed, mean_spread
from expacc.recipes.page import Comparison, Grid, Number, Page, Section
from expacc.runner.rows import Row

__all__ = ["write"]

CLAIM = (
    "Logistic regression on MNIST: the expected error (EErr) ends above negative log likelihood "
    "(NegLog) on training and test rows, after a plateau in the first epochs (Figure 2). Over ten "
    "folds the plateau is always there, and one run never gets over it (Figure 3). Its gradients "
    "are two orders of magnitude smaller (Figure 4), but a learning rate of 1e-2 instead of 1e-4 "
    "does not help; a leak of 0.1 (LEErr) does."
)
TITLES = {name: condition.title for name, condition in CONDITIONS.items()}
THEIRS = {"orders": 2.0, "stuck": 1.0}


def write(rows: Sequence[Row], facts: Mapping[str, Any]) -> Page:
    """The page from the rows that there are."""
    found = _found(rows)
    said = {name: statements(runs) for name, runs in found.items()}
    sections = [_statements(said)] if found else []
    whole = {name: runs for name, runs in found.items() if runs.whole}
    folds = {name: runs for name, runs in found.items() if runs.folds}
    if whole:
        sections.append(Section(title="Figure 2", charts=(whole_chart(whole, TITLES),)))
    if folds:
        sections += [_figure_3(folds, facts), _figure_4(folds)]
    return Page(
        title="Logistic regression on MNIST: plateaus",
        claim=CLAIM,
        answer=_answer(said, found),
        sections=tuple(sections),
        deviations=_deviations(facts),
    )


def _found(rows: Sequence[Row]) -> dict[str, Runs]:
    """The good runs by condition, in the order of the conditions."""
    found = {}
    for name in CONDITIONS:
        own = [r for r in rows if r.failure is None and r.numbers.get("condition") == name]
        if not own:
            continue
        folds: dict[str, dict[str, Row]] = {}
        whole, large = {}, {}
        for row in own:
            if row.fold == ALL:
                whole[row.loss] = row
            elif row.numbers["learning_rate"] == RATE:
                folds.setdefault(row.loss, {})[row.fold] = row
            elif row.numbers["learning_rate"] == LARGE_RATE:
                large[row.fold] = row
        found[name] = Runs(
            {loss: whole[loss] for loss in LOSSES if loss in whole},
            {loss: folds[loss] for loss in LOSSES if loss in folds},
            large,
        )
    return found


def _answer(said: Mapping[str, list[Statement]], found: Mapping[str, Runs]) -> str:
    judged = {name: [one for one in own if one.holds is not None] for name, own in said.items()}
    judged = {name: own for name, own in judged.items() if own}
    if not judged:
        return "Nothing has been run yet."
    words = []
    for name, own in judged.items():
        right = sum(bool(one.holds) for one in own)
        words.append(f"{right} of {len(own)} ({TITLES[name]})")
    parts = [
        "How pixels are scaled and where weights begin decides, and the paper says neither. Of the "
        f"statements of its text on the figures, we find {listed(words)}."
    ]
    for name, runs in found.items():
        plain, reference = runs.whole.get("expected_error"), runs.whole.get("cross_entropy")
        if plain is not None and reference is not None:
            gain = 100 * (plain.metrics["accuracy"] - reference.metrics["accuracy"])
            if name == "unit-xavier":
                where = "above" if gain > 0 else "below"
                parts.append(
                    f"With pixels from 0 to 1, as most would scale them, EErr ends {abs(gain):.1f} "
                    f"points {where} NegLog on test rows."
                )
            elif gain > 0:
                parts.append(f"With {TITLES[name]}, EErr ends {gain:.1f} points above NegLog.")
    return " ".join(parts)


def _statements(said: Mapping[str, list[Statement]]) -> Section:
    """Every statement beside every condition."""
    first = next(iter(said.values()))
    lines, marks = [], []
    for place, one in enumerate(first):
        cells = [f"{one.source}: {one.says}"]
        for column, own in enumerate(said.values(), start=1):
            holds = own[place].holds
            word = "" if holds is None else "yes, " if holds else "no, "
            cells.append(word + own[place].found)
            if holds:
                marks.append((place, column))
        lines.append(tuple(cells))
    return Section(
        title="What the text says of the figures",
        text=(
            "The figures themselves are not at hand as numbers, so we hold against the runs what "
            f"the paper's text says of them. Behind means more than {BEHIND:g} points of accuracy "
            "behind NegLog on the same fold in the same epoch; stuck means that the best "
            "development accuracy of a run is that far behind NegLog's best.",
        ),
        grids=(
            Grid(
                title="Statement by statement",
                head=("the paper says", *(TITLES[name] for name in said)),
                rows=tuple(lines),
                note="In bold: it is so here.",
                marked=tuple(marks),
            ),
        ),
    )


def _figure_3(found: Mapping[str, Runs], facts: Mapping[str, Any]) -> Section:
    lines = []
    for name, runs in found.items():
        groups = [(LOSSES[loss], f"{RATE:g}", list(by.values())) for loss, by in runs.folds.items()]
        if runs.large:
            groups.append((LOSSES["expected_error"], f"{LARGE_RATE:g}", list(runs.large.values())))
        for loss, rate, own in groups:
            errors = [100 * (1 - row.metrics["accuracy"]) for row in own]
            spread = float(np.std(errors, ddof=1)) if len(errors) > 1 else None
            epochs = float(np.mean([row.metrics["epochs"] for row in own]))
            number = Number(float(np.mean(errors)), spread, len(errors))
            best, worst = f"{min(errors):.2f}", f"{max(errors):.2f}"
            lines.append(
                (TITLES[name], loss, rate, mean_spread(number), best, worst, f"{epochs:.0f}")
            )
    beside = []
    for name, runs in found.items():
        pairs = runs.pairs("expected_error")
        if pairs:
            held = sum(stuck(own, other) for own, other in pairs)
            ours = Number(10 * held / len(pairs), None, len(pairs))
            beside.append(Comparison((TITLES[name],), Number(THEIRS["stuck"], None, 10), ours))
    return Section(
        title="Figure 3",
        beside=tuple(beside),
        beside_head=("runs of EErr that are stuck",),
        unit="of ten",
        slack=1.0,
        grids=(
            Grid(
                title="Test error of the best development epoch, in per cent, over the folds",
                head=("condition", "loss", "rate", "error", "best", "worst", "epochs"),
                rows=tuple(lines),
                note=f"Epochs: when patience, or epoch {facts.get('epochs')}, ended the runs, on "
                "average.",
            ),
        ),
        charts=(folds_chart(found, TITLES), large_rate_chart(found, TITLES)),
    )


def _figure_4(found: Mapping[str, Runs]) -> Section:
    beside = []
    for name, runs in found.items():
        pairs = runs.pairs("expected_error")
        apart = [orders(own, other) for own, other in pairs]
        if apart:
            spread = float(np.std(apart, ddof=1)) if len(apart) > 1 else None
            ours = Number(float(np.mean(apart)), spread, len(apart))
            beside.append(Comparison((TITLES[name],), Number(THEIRS["orders"], None, 1), ours))
    known = sorted({f for r in found.values() for by in r.folds.values() for f in by}, key=int)
    return Section(
        title="Figure 4",
        beside=tuple(beside),
        beside_head=("norms of NegLog's gradients over EErr's",),
        unit="orders of magnitude",
        slack=0.5,
        charts=(norms_chart(found, TITLES, known[0]),),
    )


def _deviations(facts: Mapping[str, Any]) -> tuple[str, ...]:
    said = [
        "The scale of the pixels, the start and the batch size are not in the paper. "
        f"{len(CONDITIONS)} conditions were run, all with batches of {facts.get('batch')} rows. "
        "LEErr is not in the paper's figures; it is added here because they are what leads to it.",
        "On a fold all losses start from the same weights and see the same rows in the same "
        "order. Folds are stratified.",
        "The test curves of Figure 2 were scored at the end of training, all epochs at once; they "
        "chose nothing.",
    ]
    if facts.get("quick"):
        said.append(
            f"Only a glance: {facts.get('train_rows'):,} training rows, {facts.get('folds')} folds "
            f"and {facts.get('epochs')} epochs, too few for what the figures show."
        )
    return tuple(said)
