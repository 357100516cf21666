"""The page of leerr-uci."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from expacc.recipes.leaky.charts import errors_chart, rates_chart
from expacc.recipes.leaky.significance import LEVEL, Compared, compare, underlined
from expacc.recipes.leaky.uci import LOSSES, NAMES
from expacc.recipes.page import Claim, Comparison, Grid, Page, Section, number_of
from expacc.recipes.paper import load_paper, numbers
from expacc.report.words import listed, p_text, p_value_text, signed
from expacc.runner.rows import Row

__all__ = ["write"]

LEAKY, PLAIN, REFERENCE = "leaky_expected_error", "expected_error", "cross_entropy"
PAIRS = ((LEAKY, REFERENCE), (PLAIN, REFERENCE), (LEAKY, PLAIN))
TABLE_3 = numbers("leaky", "table_3")
UNDERLINED: dict[str, list[str]] = load_paper("leaky")["underlined"]
STUCK = 5.0  # points of validation error above the best run on the same fold

Errors = dict[str, dict[str, dict[str, float]]]  # table → loss → fold → error in per cent
Tests = dict[tuple[str, str, str], Compared]  # table and two losses → how they compare


def write(rows: Sequence[Row], facts: Mapping[str, Any]) -> Page:
    """The page from the rows that there are."""
    errors = _errors(rows)
    tables = [*NAMES, *sorted(set(errors) - set(NAMES))]
    errors = {name: errors[name] for name in tables if name in errors}
    test_rows = {name: int(about["test_rows"]) for name, about in facts["tables"].items()}
    tests: Tests = {}
    for table, by_loss in errors.items():
        for first, second in PAIRS:
            one = compare(by_loss[first], by_loss[second], test_rows[table])
            if one is not None:
                tests[table, first, second] = one
    best = {table: underlined(by_loss, test_rows[table]) for table, by_loss in errors.items()}
    trials = [row for row in rows if row.kind == "trial" and row.failure is None]
    sections = [_numbers(errors, tables, facts)]
    if errors:
        sections += [_marked(errors, best), _tests(tests)]
    if trials:
        sections.append(_rates(trials))
    return Page(
        title="Logistic regression on UCI tables",
        claim=(
            "Logistic regression on six UCI tables, 5×2 folds: against negative log likelihood "
            "(NegLog), the leaky expected error (LEErr) wins on magic, musk2 and ringnorm, ties on "
            "the other three, and is always best or no worse than the best; the expected error "
            "(EErr) is significantly worse than both on pima and polyadenylation (Table 3)."
        ),
        answer="",
        sections=tuple(sections),
        deviations=_deviations(trials, facts),
        claims=tuple(_claims(tests, best)),
    )


def _errors(rows: Sequence[Row]) -> Errors:
    """Test errors by fold, averaged over repeats first."""
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for row in rows:
        if row.kind == "final" and row.failure is None:
            found[row.table, row.loss, row.fold].append(100 * (1 - row.metrics["accuracy"]))
    errors: Errors = {}
    for (table, loss, fold), values in found.items():
        by_loss = errors.setdefault(table, {name: {} for name in LOSSES})
        by_loss[loss][fold] = float(np.mean(values))
    return errors


def _claims(tests: Tests, best: Mapping[str, Sequence[str]]) -> list[Claim]:
    said = [tests[t, LEAKY, REFERENCE].says() for t in NAMES if (t, LEAKY, REFERENCE) in tests]
    tally = " / ".join(str(said.count(outcome)) for outcome in ("win", "tie", "loss"))
    holds = tally == "3 / 3 / 0" if len(said) == len(NAMES) else None
    what = "LEErr against NegLog: tables won / tied / lost"
    found = [Claim(what, "3 / 3 / 0", tally if said else "", holds, headline=True)]
    for table in NAMES:
        # What is underlined is the best, or not told from it.
        theirs = "tie" if REFERENCE in UNDERLINED[table] else "win"
        one = tests.get((table, LEAKY, REFERENCE))
        ours = f"{one.says()}, {signed(one.difference)}, {p_text(one.p_value)}" if one else ""
        holds = None if one is None else one.says() == theirs
        found.append(Claim(f"LEErr against NegLog on {table}", theirs, ours, holds))
    for table in NAMES:
        theirs, ours = (
            listed([name for loss, name in LOSSES.items() if loss in some])
            for some in (UNDERLINED[table], best.get(table, ()))
        )
        says, done = f"best, or no worse than the best, on {table}", table in best
        holds = ours == theirs if done else None
        found.append(Claim(says, theirs, ours if done else "", holds))
    return found


def _numbers(errors: Errors, tables: Sequence[str], facts: Mapping[str, Any]) -> Section:
    """Every number of Table 3 beside ours."""
    beside, absent = [], facts.get("absent", ())
    for table in tables:
        for loss, name in LOSSES.items():
            ours = number_of(errors.get(table, {}).get(loss, {}).values())
            note = "the table is not at hand" if table in absent else ""
            if not note and table not in facts["tables"]:
                note = "left out"
            if ours is not None and ours.count < 10 and not note:
                note = f"{ours.count} of 10 folds"
            theirs = TABLE_3.get(table, {}).get(loss)
            beside.append(Comparison((table, name), theirs, ours, note))
    means = {
        table: {loss: one for loss in LOSSES if (one := number_of(by_loss[loss].values()))}
        for table, by_loss in errors.items()
    }
    return Section(
        title="Table 3",
        text=(
            "Error rates on the test rows, in per cent, with the standard deviation over the ten "
            "runs of the 5×2 folds.",
        ),
        beside=tuple(beside),
        beside_head=("table", "loss"),
        unit="points of error",
        charts=(errors_chart(means, TABLE_3),) if means else (),
    )


def _marked(errors: Errors, best: Mapping[str, Sequence[str]]) -> Section:
    """Our table as the paper prints its own, with what would be underlined there in bold."""
    losses = list(LOSSES)
    grid = Grid(
        title="Ours",
        head=("table", *LOSSES.values()),
        rows=tuple(
            (table, *(str(number_of(by_loss[loss].values()) or "–") for loss in losses))
            for table, by_loss in errors.items()
        ),
        note="In bold: the smallest mean error, and what the paired t test does not tell from it "
        f"at {LEVEL:g}.",
        marked=tuple(
            (row, losses.index(loss) + 1)
            for row, table in enumerate(errors)
            for loss in best[table]
        ),
    )
    return Section(title="Best, or no worse than the best", grids=(grid,))


def _tests(tests: Tests) -> Section:
    """Every pair of losses on every table."""
    grid = Grid(
        title="Differences of error, in points",
        head=("table", "losses", "difference", "fewer on", "p, paired t", "so", "p, 5×2 F", "so"),
        rows=tuple(
            (
                table,
                f"{LOSSES[first]} less {LOSSES[second]}",
                signed(one.difference),
                f"{one.fewer} of {one.folds}",
                p_value_text(one.p_value),
                one.says(),
                p_value_text(one.strict_p),
                "–" if one.strict_p is None else one.says(strict=True),
            )
            for (table, first, second), one in tests.items()
        ),
        note="Fewer on: the folds on which the first loss has fewer errors. A win is a "
        "significantly smaller error of the first loss.",
    )
    return Section(
        title="Told apart, or not",
        text=(
            "The paper compares by the paired t test over the ten runs. Their training halves "
            "overlap and their test rows are the same, so that it claims a difference too easily; "
            "the combined 5×2 cv F test was made for such folds, and is on the cautious side.",
        ),
        grids=(grid,),
    )


def _rates(trials: Sequence[Row]) -> Section:
    """What the learning rate does, and how many runs end far behind the best of their fold."""
    tables = list(dict.fromkeys(row.table for row in trials))
    best: dict[tuple[str, str], float] = {}
    rates: dict[str, dict[str, dict[float, list[float]]]] = {
        table: {loss: defaultdict(list) for loss in LOSSES} for table in tables
    }
    for row in trials:
        fold, held = (row.table, row.fold), row.metrics["validation_accuracy"]
        best[fold] = max(best.get(fold, 0.0), held)
        rates[row.table][row.loss][float(row.numbers["learning_rate"])].append(100 * (1 - held))
    behind: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for row in trials:
        gap = 100 * (best[row.table, row.fold] - row.metrics["validation_accuracy"])
        behind[row.table, row.loss].append(gap > STUCK)
    stuck = Grid(
        title=f"Runs that end more than {STUCK:g} validation points behind the best of their fold",
        head=("table", *LOSSES.values()),
        rows=tuple(
            (table, *(f"{sum(own)} of {len(own)}" for own in (behind[table, x] for x in LOSSES)))
            for table in tables
        ),
        note="Over all learning rates. The choice of the learning rate on validation rows is what "
        "keeps them out of Table 3.",
    )
    return Section(title="The learning rate", grids=(stuck,), charts=(rates_chart(rates),))


def _deviations(trials: Sequence[Row], facts: Mapping[str, Any]) -> tuple[str, ...]:
    rates = facts["rates"]
    at_end = sum(row.metrics["stopped"] == 0 for row in trials)
    extra = [table for table in facts["tables"] if table not in NAMES]
    return (
        "The paper does not give the learning rates that it tried, nor the batch size. Here: "
        f"{len(rates)} rates from {min(rates):g} to {max(rates):g}, chosen per fold and loss by "
        f"validation accuracy (of equals the smallest rate), and batches of {facts['batch']}.",
        "The halves are those that come with the tables; whether they are the paper's own is not "
        "known. Features are standardised by the training half.",
        f"Runs end after {facts['epochs']} epochs at the latest; the paper has no limit. "
        f"{at_end} of {len(trials):,} runs came that far.",
        f"Not in the paper, but in the folder: {listed(extra)}.",
    )
