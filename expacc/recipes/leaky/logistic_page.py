"""The page of leerr-mnist-logistic: what the text says of Figures 2 to 4, asked of our curves."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from expacc.recipes.leaky.charts import (
    folds_chart,
    large_rate_chart,
    norms_chart,
    whole_chart,
)
from expacc.recipes.leaky.logistic import ALL, CONDITIONS, LARGE_RATE, RATE
from expacc.recipes.leaky.plateaus import (
    BEHIND,
    LEAKY,
    LOSS,
    LOSSES,
    REFERENCE,
    Runs,
    lag,
    orders,
    stuck,
)
from expacc.recipes.page import Claim, Comparison, Grid, Number, Page, Section, number_of
from expacc.recipes.paper import load_paper
from expacc.report.words import signed
from expacc.runner.rows import Row

__all__ = ["write"]

ORDERS = (1.5, 2.5)  # "two orders of magnitude"
TITLES = {name: condition.title for name, condition in CONDITIONS.items()}
THEIRS = load_paper("leaky")["figures"]


def write(rows: Sequence[Row], facts: Mapping[str, Any]) -> Page:
    """The page from the rows that there are."""
    found = _found(rows)
    whole = {name: runs for name, runs in found.items() if runs.whole}
    folds = {name: runs for name, runs in found.items() if runs.folds}
    sections = []
    if whole:
        sections.append(Section(title="Figure 2", charts=(whole_chart(whole, TITLES),)))
    if folds:
        sections += [_figure_3(folds, facts), _figure_4(folds)]
    return Page(
        title="Logistic regression on MNIST: plateaus",
        claim=(
            "Logistic regression on MNIST: the expected error (EErr) ends above negative log "
            "likelihood (NegLog) on training and test rows, after a plateau in the first epochs "
            "(Figure 2). Over ten folds the plateau is always there, and one run never gets over "
            "it (Figure 3). Its gradients are two orders of magnitude smaller (Figure 4), but a "
            "learning rate of 1e-2 instead of 1e-4 does not help; a leak of 0.1 (LEErr) does."
        ),
        answer="",
        sections=tuple(sections),
        deviations=(
            "The scale of the pixels, the start and the batch size are not in the paper, and they "
            f"decide. {len(CONDITIONS)} conditions were run, all with batches of {facts['batch']} "
            "rows. LEErr is not in the paper's figures; it is added here because they are what "
            "leads to it.",
            "The figures themselves are not at hand as numbers, so we hold against the runs what "
            f"the paper's text says of them. Behind means more than {BEHIND:g} points of accuracy "
            "behind NegLog on the same fold in the same epoch; stuck means that the best "
            "development accuracy of a run is that far behind NegLog's best.",
            "On a fold all losses start from the same weights and see the same rows in the same "
            "order. Folds are stratified.",
            "The test curves of Figure 2 were scored at the end of training, all epochs at once; "
            "they chose nothing.",
            f"{facts['train_rows']:,} training rows, {facts['folds']} folds, {facts['epochs']} "
            "epochs at most.",
        ),
        claims=tuple(claim for name, runs in found.items() for claim in _claims(name, runs)),
    )


def _found(rows: Sequence[Row]) -> dict[str, Runs]:
    """The good runs by condition, in the order of the conditions."""
    found = {}
    for name in CONDITIONS:
        whole: dict[str, Row] = {}
        folds: dict[tuple[str, float], dict[str, Row]] = {}
        for row in rows:
            if row.failure is None and row.numbers.get("condition") == name:
                own = folds.setdefault((row.loss, float(row.numbers["learning_rate"])), {})
                (whole if row.fold == ALL else own)[row.loss if row.fold == ALL else row.fold] = row
        if whole or folds:
            small = {loss: folds[loss, RATE] for loss in LOSSES if folds.get((loss, RATE))}
            order = {loss: whole[loss] for loss in LOSSES if loss in whole}
            found[name] = Runs(order, small, folds.get((LOSS, LARGE_RATE), {}))
    return found


def _claims(name: str, runs: Runs) -> Iterator[Claim]:
    """What the text says of the figures, in one condition."""
    where = TITLES[name]
    own, other = runs.whole.get(LOSS), runs.whole.get(REFERENCE)
    for metric, part in (("train_accuracy", "training"), ("accuracy", "test")):
        says = f"Figure 2: EErr ends above NegLog on {part} rows; {where}"
        if own is None or other is None:
            yield Claim(says, "above", "", None, headline=part == "test")
            continue
        ours, theirs = 100 * own.metrics[metric], 100 * other.metrics[metric]
        text = f"{ours:.1f} against {theirs:.1f}: {signed(ours - theirs, 1)}"
        yield Claim(says, "above", text, ours > theirs, headline=part == "test")
    says = f"Figure 2: EErr stays behind at first, and catches up; {where}"
    if own is None or other is None:
        yield Claim(says, "yes", "", None)
    else:
        curve, reference = own.curves["test_accuracy"], other.curves["test_accuracy"]
        epochs, end = lag(curve, reference), 100 * (curve[-1] - reference[-1])
        text = f"behind in {epochs} epochs; {signed(end, 1)} in the last"
        yield Claim(says, "yes", text, epochs > 0 and -end <= BEHIND)
    pairs, large, leaky = runs.pairs(LOSS), runs.pairs("large"), runs.pairs(LEAKY)
    count = len(pairs)
    behind = sum(
        lag(own.curves["validation_accuracy"], other.curves["validation_accuracy"]) > 0
        for own, other in pairs
    )
    above = sum(own.metrics["accuracy"] > other.metrics["accuracy"] for own, other in pairs)
    held, still, never = (sum(stuck(*pair) for pair in some) for some in (pairs, large, leaky))
    for says, paper, number, of, holds in (
        ("Figure 3: EErr stays behind at first", "every fold", behind, count, behind == count),
        ("Figure 3: EErr ends above on test rows", "many folds", above, count, above >= count / 2),
        ("Figure 3: EErr is stuck", "1 of 10", held, count, 0 < held < count / 2),
        (
            *("Section 3.1: EErr at 1e-2 is stuck", "no less often"),
            *(still, len(large), still >= max(1, held)),
        ),
        ("Section 3.1: LEErr is stuck", "no fold", never, len(leaky), never == 0),
    ):
        counts = f"{number} of {of}" if of else ""
        yield Claim(f"{says}; {where}", paper, counts, holds if of else None)
    apart = number_of(orders(own, other) for own, other in pairs)
    yield Claim(
        f"Figure 4: orders of magnitude between gradient norms; {where}",
        "2",
        "" if apart is None else f"{apart.mean:.1f}",
        None if apart is None else ORDERS[0] <= apart.mean <= ORDERS[1],
    )


def _figure_3(found: Mapping[str, Runs], facts: Mapping[str, Any]) -> Section:
    lines, beside = [], []
    for name, runs in found.items():
        groups = [(LOSSES[loss], RATE, list(by.values())) for loss, by in runs.folds.items()]
        groups.append((LOSSES[LOSS], LARGE_RATE, list(runs.large.values())))
        for loss, rate, own in groups:
            errors = [100 * (1 - row.metrics["accuracy"]) for row in own]
            if errors:
                epochs = float(np.mean([row.metrics["epochs"] for row in own]))
                worst = f"{max(errors):.2f}"
                means = (str(number_of(errors)), f"{min(errors):.2f}", worst, f"{epochs:.0f}")
                lines.append((TITLES[name], loss, f"{rate:g}", *means))
        pairs = runs.pairs(LOSS)
        if pairs:
            held = sum(stuck(own, other) for own, other in pairs)
            ours = Number(10 * held / len(pairs), None, len(pairs))
            theirs = Number(float(THEIRS["stuck"]), None, 10)
            beside.append(Comparison((TITLES[name],), theirs, ours))
    grid = Grid(
        title="Test error of the best development epoch, in per cent, over the folds",
        head=("condition", "loss", "rate", "error", "best", "worst", "epochs"),
        rows=tuple(lines),
        note=f"Epochs: when patience, or epoch {facts['epochs']}, ended the runs, on average.",
    )
    return Section(
        title="Figure 3",
        beside=tuple(beside),
        beside_head=("runs of EErr that are stuck",),
        unit="of ten",
        slack=1.0,
        grids=(grid,),
        charts=(folds_chart(found, TITLES), large_rate_chart(found, TITLES)),
    )


def _figure_4(found: Mapping[str, Runs]) -> Section:
    beside = []
    for name, runs in found.items():
        ours = number_of(orders(own, other) for own, other in runs.pairs(LOSS))
        if ours is not None:
            theirs = Number(THEIRS["orders"], None, 1)
            beside.append(Comparison((TITLES[name],), theirs, ours))
    known = sorted({f for r in found.values() for by in r.folds.values() for f in by}, key=int)
    return Section(
        title="Figure 4",
        beside=tuple(beside),
        beside_head=("norms of NegLog's gradients over EErr's",),
        unit="orders of magnitude",
        slack=0.5,
        charts=(norms_chart(found, TITLES, known[0]),),
    )
