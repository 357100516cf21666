"""The page of leerr-uci."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from expacc.recipes.leaky.paper import LOSSES, NAMES, TABLE_3, UNDERLINED, WINS
from expacc.recipes.leaky.significance import LEVEL, Compared, compare, underlined
from expacc.recipes.leaky.uci_charts import errors_chart, rates_chart
from expacc.recipes.leaky.words import listed, mean_spread, p_text, signed
from expacc.recipes.page import Comparison, Grid, Number, Page, Section
from expacc.runner.rows import Row

__all__ = ["write"]

CLAIM = (
    "Logistic regression on six UCI tables, 5×2 folds: against negative log likelihood (NegLog), "
    "the leaky expected error (LEErr) wins on magic, musk2 and ringnorm, ties on the other three, "
    "and is always best or no worse than the best; the expected error (EErr) is significantly "
    "worse than both on pima and polyadenylation (Table 3)."
)
LEAKY, PLAIN, REFERENCE = "leaky_expected_error", "expected_error", "cross_entropy"
PAIRS = ((LEAKY, REFERENCE), (PLAIN, REFERENCE), (LEAKY, PLAIN))

Errors = dict[str, dict[str, dict[str, float]]]  # table → loss → fold → error in per cent


def write(rows: Sequence[Row], facts: Mapping[str, Any]) -> Page:
    """The page from the rows that there are."""
    errors = _errors(rows)
    tables = [*NAMES, *sorted(set(errors) - set(NAMES))]
    errors = {name: errors[name] for name in tables if name in errors}
    about = facts.get("tables", {})
    sections = [_numbers(errors, tables, facts)]
    if errors:
        sections += [_marked(errors, about), _tests(errors, about)]
        rates = _rates(rows, list(errors))
        if rates:
            sections.append(
                Section(
                    title="The learning rate",
                    text=_stuck(rows, list(errors)),
                    charts=(rates_chart(rates),),
                )
            )
    return Page(
        title="Logistic regression on UCI tables",
        claim=CLAIM,
        answer=_answer(errors, about),
        sections=tuple(sections),
        deviations=_deviations(rows, facts),
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


def _number(by_fold: Mapping[str, float]) -> Number | None:
    values = list(by_fold.values())
    if not values:
        return None
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Number(float(np.mean(values)), spread, len(values))


def _compared(errors: Errors, about: Mapping[str, Any], table: str) -> dict[Any, Compared]:
    """The pairs of losses that have two folds or more in common."""
    test_rows = int(about.get(table, {}).get("test_rows", 1))
    found = {}
    for first, second in PAIRS:
        one = compare(errors[table][first], errors[table][second], test_rows)
        if one is not None:
            found[first, second] = one
    return found


def _answer(errors: Errors, about: Mapping[str, Any]) -> str:
    against = {table: _compared(errors, about, table).get((LEAKY, REFERENCE)) for table in errors}
    known = {table: one for table, one in against.items() if one is not None}
    if not known:
        return "No table has two folds of LEErr and NegLog yet, the fewest that a test takes."
    by = {
        outcome: [table for table, one in known.items() if one.says() == outcome]
        for outcome in ("win", "tie", "loss")
    }
    verbs = {"win": "wins on", "tie": "ties on", "loss": "loses on"}
    parts = [f"{verbs[outcome]} {listed(names)}" for outcome, names in by.items() if names]
    said = [f"Against NegLog, LEErr {listed(parts)}, by the paper's own paired t test."]
    papers = [table for table in known if table in NAMES]
    other = [t for t in papers if known[t].says() != ("win" if t in WINS else "tie")]
    if papers:
        what = f"{len(papers)} of the paper's {len(NAMES)} tables"
        if other:
            said.append(f"Of {what}, {listed(other)} came out otherwise than in the paper.")
        else:
            said.append(f"So it is in the paper; {what} are here.")
    judged = {table: one for table, one in known.items() if one.strict_p is not None}
    if judged:
        strict = [table for table, one in judged.items() if one.says(strict=True) == "win"]
        wins = f"on {listed(strict)} only" if strict else "on none of them"
        said.append(
            f"That test takes ten runs on overlapping rows for independent; the 5×2 cv F test, "
            f"which does not, lets LEErr win {wins}."
        )
    return " ".join(said)


def _numbers(errors: Errors, tables: Sequence[str], facts: Mapping[str, Any]) -> Section:
    """Every number of Table 3 beside ours."""
    beside, absent = [], facts.get("absent", ())
    for table in tables:
        theirs = dict(zip(LOSSES, TABLE_3.get(table, ()), strict=False))
        for loss, name in LOSSES.items():
            ours = _number(errors.get(table, {}).get(loss, {}))
            note = "the table is not at hand" if table in absent else ""
            if not note and table not in facts.get("tables", {}):
                note = "left out"
            if ours is not None and ours.count < 10 and not note:
                note = f"{ours.count} of 10 folds"
            beside.append(Comparison((table, name), theirs.get(loss), ours, note))
    means = {
        table: {loss: number for loss in LOSSES if (number := _number(errors[table][loss]))}
        for table in errors
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
        charts=(errors_chart(means),) if means else (),
    )


def _marked(errors: Errors, about: Mapping[str, Any]) -> Section:
    """Both tables as the paper prints its own, with what is underlined there in bold."""
    losses = list(LOSSES)
    lines, marks = [], []
    differing = []
    for place, (table, by_loss) in enumerate(errors.items()):
        lines.append((table, *(mean_spread(_number(by_loss[loss])) for loss in losses)))
        kept = underlined(by_loss, int(about.get(table, {}).get("test_rows", 1)))
        marks += [(place, losses.index(loss) + 1) for loss in kept]
        if table in UNDERLINED and set(kept) != set(UNDERLINED[table]):
            differing.append(table)
    head = ("table", *LOSSES.values())
    ours = Grid(
        title="Ours",
        head=head,
        rows=tuple(lines),
        note="In bold: the smallest mean error, and what the paired t test does not tell from it "
        f"at {LEVEL:g}.",
        marked=tuple(marks),
    )
    paper = Grid(
        title="The paper's",
        head=head,
        rows=tuple((table, *map(mean_spread, TABLE_3[table])) for table in TABLE_3),
        note="In bold what the paper underlines, as far as its text says it in words.",
        marked=tuple(
            (place, losses.index(loss) + 1)
            for place, table in enumerate(TABLE_3)
            for loss in UNDERLINED[table]
        ),
    )
    both = [table for table in errors if table in UNDERLINED]
    if not both:
        text: tuple[str, ...] = ()
    elif differing:
        text = (f"The same losses stand out as in the paper, but for {listed(differing)}.",)
    else:
        text = (f"The same losses stand out as in the paper on {listed(both)}.",)
    return Section(title="Best, or no worse than the best", text=text, grids=(ours, paper))


def _tests(errors: Errors, about: Mapping[str, Any]) -> Section:
    """Every pair of losses on every table."""
    lines = []
    for table in errors:
        for (first, second), one in _compared(errors, about, table).items():
            strict = "–" if one.strict_p is None else p_text(one.strict_p)
            lines.append(
                (
                    table,
                    f"{LOSSES[first]} less {LOSSES[second]}",
                    signed(one.difference),
                    f"{one.fewer} of {one.folds}",
                    p_text(one.p_value),
                    one.says(),
                    strict,
                    "–" if one.strict_p is None else one.says(strict=True),
                )
            )
    grid = Grid(
        title="Differences of error, in points",
        head=("table", "losses", "difference", "fewer on", "p, paired t", "so", "p, 5×2 F", "so"),
        rows=tuple(lines),
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


def _rates(rows: Sequence[Row], tables: Sequence[str]) -> dict[str, Any]:
    """table → loss → rate → best validation errors of its runs, in per cent."""
    found: dict[str, Any] = {}
    for table in tables:
        by_loss: dict[str, dict[float, list[float]]] = {}
        for row in rows:
            if row.kind == "trial" and row.failure is None and row.table == table:
                by_rate = by_loss.setdefault(row.loss, {})
                errors = by_rate.setdefault(float(row.numbers["learning_rate"]), [])
                errors.append(100 * (1 - row.metrics["validation_accuracy"]))
        if by_loss:
            found[table] = {
                loss: {rate: tuple(v) for rate, v in sorted(by_loss[loss].items())}
                for loss in LOSSES
                if loss in by_loss
            }
    return found


STUCK = 5.0  # points of validation error above the best run on the same fold


def _stuck(rows: Sequence[Row], tables: Sequence[str]) -> tuple[str, ...]:
    """How many runs end far above their fold's best, by table and loss."""
    trials = [row for row in rows if row.kind == "trial" and row.failure is None]
    best: dict[tuple[str, str], float] = {}
    for row in trials:
        fold = (row.table, row.fold)
        best[fold] = max(best.get(fold, 0.0), row.metrics["validation_accuracy"])
    said = []
    for table in tables:
        counts = []
        for loss, name in LOSSES.items():
            behind = [
                100 * (best[row.table, row.fold] - row.metrics["validation_accuracy"])
                for row in trials
                if (row.table, row.loss) == (table, loss)
            ]
            counts.append((sum(points > STUCK for points in behind), len(behind), name))
        if any(stuck for stuck, _, _ in counts):
            words = [f"{stuck} of {total} with {name}" for stuck, total, name in counts]
            said.append(f"{table}: {listed(words)}")
    if not said:
        return (f"At no learning rate did a run end {STUCK:g} points behind the best of its fold.",)
    return (
        f"Runs that end more than {STUCK:g} validation points behind the best run of their fold, "
        f"over all learning rates: {'; '.join(said)}. The choice of the learning rate on "
        "validation rows is what keeps them out of Table 3.",
    )


def _deviations(rows: Sequence[Row], facts: Mapping[str, Any]) -> tuple[str, ...]:
    rates = facts.get("rates", [])
    said = [
        "The paper does not give the learning rates that it tried, nor the batch size. Here: "
        f"{len(rates)} rates from {min(rates):g} to {max(rates):g}, chosen per fold and loss by "
        f"validation accuracy (of equals the smallest rate), and batches of {facts.get('batch')}."
        if rates
        else "",
        "The halves are those that come with the tables; whether they are the paper's own is not "
        "known. Features are standardised by the training half.",
    ]
    trials = [row for row in rows if row.kind == "trial" and row.failure is None]
    at_end = sum(row.metrics["stopped"] == 0 for row in trials)
    said.append(
        f"Runs end after {facts.get('epochs')} epochs at the latest; the paper has no limit. "
        f"{at_end} of {len(trials):,} runs came that far."
    )
    extra = [table for table in facts.get("tables", {}) if table not in NAMES]
    if extra:
        said.append(f"Not in the paper, but in the folder: {listed(extra)}.")
    return tuple(filter(None, said))
