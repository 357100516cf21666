"""The page of leerr-mnist-mlp."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from expacc.recipes.leaky.charts import curves_chart, pairs_chart
from expacc.recipes.leaky.mlp import NOISES
from expacc.recipes.leaky.plateaus import LOSSES
from expacc.recipes.leaky.significance import Compared, compare
from expacc.recipes.page import Claim, Comparison, Grid, Page, Section, number_of
from expacc.recipes.paper import numbers
from expacc.report.words import listed, p_text, p_value_text, share_text, signed
from expacc.runner.rows import Row
from expacc.stats import corrected_paired_t

__all__ = ["write"]

LEAKY, REFERENCE = "leaky_expected_error", "cross_entropy"
TABLE_4 = {
    (float(noise), loss): number
    for noise, by_loss in numbers("leaky", "table_4").items()
    for loss, number in by_loss.items()
}
MARGINS = {noise: TABLE_4[noise, LEAKY].mean - TABLE_4[noise, REFERENCE].mean for noise in NOISES}

Errors = dict[tuple[float, str], dict[str, float]]  # noise, loss → fold → error in per cent
Tests = dict[float, tuple[Compared, float]]  # noise → LEErr less NegLog, and the corrected p


def write(rows: Sequence[Row], facts: Mapping[str, Any]) -> Page:
    """The page from the rows that there are."""
    finals = [row for row in rows if row.kind == "final" and row.failure is None]
    trials = [row for row in rows if row.kind == "trial" and row.failure is None]
    errors: Errors = {cell: {} for cell in TABLE_4}
    for row in finals:
        errors[row.noise, row.loss][row.fold] = 100 * (1 - row.metrics["accuracy"])
    tests = _compared(errors, facts)
    sections = [_numbers(errors)]
    if tests:
        sections.append(_margins(errors, tests))
    if finals:
        sections.append(_training(finals, len(trials)))
    return Page(
        title="A network on MNIST, with and without wrong labels",
        claim=(
            "A 300-200-100 network with dropout on MNIST makes fewer errors with the leaky "
            "expected error (LEErr) than with negative log likelihood (NegLog), by a slight but "
            "significant margin, which grows where 5 % of the labels are drawn at random (Table 4)."
        ),
        answer="",
        sections=tuple(sections),
        deviations=_deviations(trials, facts),
        claims=_claims(tests),
    )


def _compared(errors: Errors, facts: Mapping[str, Any]) -> Tests:
    found = {}
    rows = float(facts["train_rows"])
    for noise in NOISES:
        leaky, plain = errors[noise, LEAKY], errors[noise, REFERENCE]
        one = compare(leaky, plain, int(facts["test_rows"]))
        if one is not None:
            folds = sorted(leaky.keys() & plain.keys())
            # Allows for training rows that folds have in common.
            gaps = [(leaky[fold] - plain[fold]) / 100 for fold in folds]
            found[noise] = one, float(corrected_paired_t(gaps, 0.9 * rows, 0.1 * rows).p_value)
    return found


def _labels(noise: float) -> str:
    return f"{share_text(noise)} drawn at random" if noise else "as they are"


def _claims(tests: Tests) -> tuple[Claim, ...]:
    found = []
    for noise in NOISES:
        one, _ = tests.get(noise, (None, 0.0))
        ours = f"{signed(one.difference)}, {p_text(one.p_value)}" if one else ""
        says = f"LEErr makes significantly fewer errors than NegLog; labels {_labels(noise)}"
        holds = None if one is None else one.says() == "win"
        found.append(Claim(says, signed(MARGINS[noise]), ours, holds, headline=True))
    gaps = [tests[noise][0].difference for noise in NOISES if noise in tests]
    both = len(gaps) == len(NOISES)
    grows = Claim(
        "the margin of LEErr is larger with wrong labels than without",
        " and ".join(signed(MARGINS[noise]) for noise in reversed(NOISES)),
        " and ".join(signed(gap) for gap in reversed(gaps)),
        gaps[1] < gaps[0] if both else None,
    )
    return (*found, grows)


def _numbers(errors: Errors) -> Section:
    beside = []
    for (noise, loss), theirs in TABLE_4.items():
        ours = number_of(errors[noise, loss].values())
        note = f"{ours.count} of 10 folds" if ours and ours.count < 10 else ""
        beside.append(Comparison((_labels(noise), LOSSES[loss]), theirs, ours, note))
    return Section(
        title="Table 4",
        text=("Error rates on the 10,000 test rows, in per cent, over the folds.",),
        beside=tuple(beside),
        beside_head=("labels", "loss"),
        unit="points of error",
        slack=0.0,
    )


def _margins(errors: Errors, tests: Tests) -> Section:
    grid = Grid(
        title="LEErr less NegLog, in points of error",
        head=("labels", "ours", "paper's", "fewer on", "p, paired t", "p, corrected t"),
        rows=tuple(
            (
                _labels(noise),
                signed(one.difference),
                signed(MARGINS[noise]),
                f"{one.fewer} of {one.folds}",
                p_value_text(one.p_value),
                p_value_text(corrected),
            )
            for noise, (one, corrected) in tests.items()
        ),
        note="Fewer on: the folds on which LEErr makes fewer errors. The corrected t test allows "
        "for training rows that folds have in common; the paper's paired t test does not.",
    )
    chart = pairs_chart(errors, TABLE_4, NOISES, _labels)
    return Section(title="The margin", grids=(grid,), charts=(chart,))


def _training(finals: Sequence[Row], trials: int) -> Section:
    """What was chosen, and how training went."""
    lines = []
    for noise, loss in TABLE_4:
        own = [row for row in finals if (row.noise, row.loss) == (noise, loss)]
        if own:
            counts = Counter(
                f"{row.numbers['learning_rate']:g} and {row.numbers['dropout']:g}" for row in own
            )
            chosen = ", ".join(f"{what} ({count})" for what, count in counts.most_common())
            epochs = float(np.mean([row.metrics["best_epoch"] for row in own]))
            held = 100 * (1 - float(np.mean([row.metrics["validation_accuracy"] for row in own])))
            lines.append((_labels(noise), LOSSES[loss], chosen, f"{epochs:.0f}", f"{held:.2f}"))
    grid = Grid(
        title=f"What {trials} runs were narrowed down to, by development rows",
        head=("labels", "loss", "learning rate and dropout (folds)", "best epoch", "dev error"),
        rows=tuple(lines),
        note="The best epoch is the mean over folds. The development rows have wrong labels, too, "
        "which no model can get right.",
    )
    return Section(title="Training", grids=(grid,), charts=(curves_chart(finals, NOISES, _labels),))


PROTOCOLS = {
    "full": "Learning rates and dropout, the same for inputs and hidden units, were tried on every "
    "fold; which ones the paper tried is not known.",
    "short": "Nothing was tuned. The paper's own protocol takes more than a day on two cores; with "
    "--device cuda it is the default, and --repeats 10 asks for it anywhere.",
    "quick": "Only a glance, with one setting.",
}


def _deviations(trials: Sequence[Row], facts: Mapping[str, Any]) -> tuple[str, ...]:
    at_end = sum(row.metrics["stopped"] == 0 for row in trials)
    return (
        f"Batches of {facts['batch']} rows and pixels from 0 to 1; the paper gives neither. "
        "Folds are stratified. Wrong labels are exactly as many as are expected: of the 5 % that "
        "are drawn anew one in ten stays right, so that 4.5 % are wrong.",
        f"{PROTOCOLS[facts['protocol']]} Here: learning rate {listed(facts['rates'])}, dropout "
        f"{listed(facts['dropouts'])}, {facts['all_folds']} folds of {facts['train_rows']:,} rows; "
        "the paper has ten.",
        f"Runs end after {facts['epochs']} epochs at the latest, or 30 without a better "
        f"development accuracy; the paper has no limit. {at_end} of {len(trials)} came that far.",
    )
