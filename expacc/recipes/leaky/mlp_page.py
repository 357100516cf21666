"""The page of leerr-mnist-mlp."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from expacc.recipes.leaky.mlp_charts import curves_chart, folds_chart
from expacc.recipes.leaky.paper import LOSSES, TABLE_4
from expacc.recipes.leaky.significance import Compared, compare
from expacc.recipes.leaky.words import listed, p_text, signed
from expacc.recipes.page import Comparison, Grid, Number, Page, Section
from expacc.runner.rows import Row
from expacc.stats import corrected_paired_t

__all__ = ["write"]

CLAIM = (
    "A 300-200-100 network with dropout on MNIST makes fewer errors with the leaky expected error "
    "(LEErr) than with negative log likelihood (NegLog), by a slight but significant margin, which "
    "grows where 5 % of the labels are drawn at random (Table 4)."
)
LEAKY, REFERENCE = "leaky_expected_error", "cross_entropy"
NOISES = (0.0, 0.05)
MARGINS = {noise: TABLE_4[noise, LEAKY].mean - TABLE_4[noise, REFERENCE].mean for noise in NOISES}

Errors = dict[tuple[float, str], dict[str, float]]  # noise, loss → fold → error in per cent


def write(rows: Sequence[Row], facts: Mapping[str, Any]) -> Page:
    """The page from the rows that there are."""
    finals = [row for row in rows if row.kind == "final" and row.failure is None]
    errors: Errors = {cell: {} for cell in TABLE_4}
    for row in finals:
        errors[row.noise, row.loss][row.fold] = 100 * (1 - row.metrics["accuracy"])
    against = {noise: _against(errors, noise, facts) for noise in NOISES}
    sections = [_numbers(errors)]
    if any(against.values()):
        sections.append(_tests(errors, against, facts))
    if finals:
        sections.append(_training(rows, finals))
    return Page(
        title="A network on MNIST, with and without wrong labels",
        claim=CLAIM,
        answer=_answer(errors, against, facts),
        sections=tuple(sections),
        deviations=_deviations(rows, facts),
    )


def _against(errors: Errors, noise: float, facts: Mapping[str, Any]) -> Compared | None:
    test_rows = int(facts.get("test_rows", 1))
    return compare(errors[noise, LEAKY], errors[noise, REFERENCE], test_rows)


def _labels(noise: float) -> str:
    return f"{noise:.0%} drawn at random".replace("%", " %") if noise else "as they are"


def _strict(errors: Errors, noise: float, facts: Mapping[str, Any]) -> float:
    """p of LEErr against NegLog that allows for training rows which folds have in common."""
    leaky, plain = errors[noise, LEAKY], errors[noise, REFERENCE]
    differences = [
        (leaky[fold] - plain[fold]) / 100 for fold in sorted(leaky.keys() & plain.keys())
    ]
    rows = float(facts.get("train_rows", 60_000))
    return float(corrected_paired_t(differences, 0.9 * rows, 0.1 * rows).p_value)


def _answer(
    errors: Errors, against: Mapping[float, Compared | None], facts: Mapping[str, Any]
) -> str:
    said = []
    for noise, one in against.items():
        if one is None:
            continue
        labels = f"With {noise:.0%} of the labels drawn at random".replace("%", " %")
        where = labels if noise else "With clean labels"
        verb = {"win": "significantly fewer", "loss": "significantly more"}.get(one.says())
        share = f"{abs(one.difference):.2f} points"
        if verb:
            said.append(
                f"{where}, LEErr makes {verb} errors than NegLog by the paper's paired t test, by "
                f"{share} over {one.folds} folds (p = {p_text(one.p_value)}; "
                f"{p_text(_strict(errors, noise, facts))} if the test allows for the training rows "
                "that folds share)."
            )
        else:
            said.append(
                f"{where}, no difference is established: {signed(one.difference)} points for LEErr "
                f"over {one.folds} folds, p = {p_text(one.p_value)}."
            )
    both = [one for one in against.values() if one is not None]
    if len(both) == 2:
        clean, noisy = both
        if noisy.difference < clean.difference < 0:
            said.append("The margin of LEErr grows with wrong labels, as in the paper.")
        elif noisy.difference < clean.difference:
            said.append("Wrong labels cost LEErr less than NegLog, as in the paper.")
        else:
            said.append("Wrong labels cost LEErr no less than NegLog, unlike in the paper.")
    return " ".join(said) or "No loss has two folds yet, the fewest that a test takes."


def _numbers(errors: Errors) -> Section:
    beside = []
    for (noise, loss), theirs in TABLE_4.items():
        values = list(errors[noise, loss].values())
        ours = None
        if values:
            spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
            ours = Number(float(np.mean(values)), spread, len(values))
        note = f"{len(values)} of 10 folds" if 0 < len(values) < 10 else ""
        beside.append(Comparison((_labels(noise), LOSSES[loss]), theirs, ours, note))
    return Section(
        title="Table 4",
        text=("Error rates on the 10,000 test rows, in per cent, over the folds.",),
        beside=tuple(beside),
        beside_head=("labels", "loss"),
        unit="points of error",
        slack=0.0,
    )


def _tests(
    errors: Errors, against: Mapping[float, Compared | None], facts: Mapping[str, Any]
) -> Section:
    lines = []
    for noise, one in against.items():
        if one is None:
            continue
        lines.append(
            (
                _labels(noise),
                signed(one.difference),
                signed(MARGINS[noise]),
                f"{one.fewer} of {one.folds}",
                p_text(one.p_value),
                p_text(_strict(errors, noise, facts)),
            )
        )
    grid = Grid(
        title="LEErr less NegLog, in points of error",
        head=("labels", "ours", "paper's", "fewer on", "p, paired t", "p, corrected t"),
        rows=tuple(lines),
        note="Fewer on: the folds on which LEErr makes fewer errors. The corrected t test allows "
        "for training rows that folds have in common; the paper's paired t test does not.",
    )
    return Section(
        title="The margin", grids=(grid,), charts=(folds_chart(errors, NOISES, _labels),)
    )


def _training(rows: Sequence[Row], finals: Sequence[Row]) -> Section:
    """What was chosen, and how training went."""
    lines = []
    for noise, loss in TABLE_4:
        own = [row for row in finals if (row.noise, row.loss) == (noise, loss)]
        if not own:
            continue
        counts: dict[tuple[float, float], int] = {}
        for row in own:
            setting = (float(row.numbers["learning_rate"]), float(row.numbers["dropout"]))
            counts[setting] = counts.get(setting, 0) + 1
        words = [
            f"{rate:g} and {dropout:g}" + (f" ({count} folds)" if len(counts) > 1 else "")
            for (rate, dropout), count in sorted(counts.items(), key=lambda pair: -pair[1])
        ]
        epochs = float(np.mean([row.metrics["best_epoch"] for row in own]))
        held = 100 * (1 - float(np.mean([row.metrics["validation_accuracy"] for row in own])))
        lines.append(
            (_labels(noise), LOSSES[loss], ", ".join(words), f"{epochs:.0f}", f"{held:.2f}")
        )
    trials = [row for row in rows if row.kind == "trial" and row.failure is None]
    return Section(
        title="Training",
        grids=(
            Grid(
                title=f"What {len(trials)} runs were narrowed down to, by development rows",
                head=("labels", "loss", "learning rate and dropout", "best epoch", "dev error"),
                rows=tuple(lines),
                note="The best epoch is the mean over folds. The development rows have wrong "
                "labels, too, which no model can get right.",
            ),
        ),
        charts=(curves_chart(finals, NOISES, _labels),),
    )


def _deviations(rows: Sequence[Row], facts: Mapping[str, Any]) -> tuple[str, ...]:
    rates, dropouts = facts.get("rates", []), facts.get("dropouts", [])
    said = [
        f"Batches of {facts.get('batch')} rows and pixels from 0 to 1; the paper gives neither. "
        "Folds are stratified. Wrong labels are exactly as many as are expected: of the 5 % that "
        "are drawn anew one in ten stays right, so that 4.5 % are wrong.",
    ]
    trials = [row for row in rows if row.kind == "trial" and row.failure is None]
    at_end = sum(row.metrics["stopped"] == 0 for row in trials)
    limit = (
        f"Runs end after {facts.get('epochs')} epochs at the latest, or 30 without a better "
        f"development accuracy; the paper has no limit. {at_end} of {len(trials)} came that far."
    )
    protocol = facts.get("protocol")
    if protocol == "full":
        said.append(
            f"Learning rates {listed([f'{rate:g}' for rate in rates])} and dropout "
            f"{listed([f'{share:g}' for share in dropouts])}, the same for inputs and hidden "
            "units, were tried on every fold; which ones the paper tried is not known."
        )
    elif protocol == "short":
        said.append(
            f"Nothing was tuned: learning rate {rates[0]:g} and dropout {dropouts[0]:g} for both "
            f"losses, on {facts.get('all_folds')} of the paper's ten folds. The paper's own "
            "protocol takes more than a day on two cores; with --device cuda it is the default, "
            "and --seeds 10 asks for it anywhere."
        )
    elif protocol == "quick":
        said.append(
            f"Only a glance: {facts.get('train_rows'):,} training rows, {facts.get('all_folds')} "
            "folds, one setting."
        )
    return (*said, limit)
