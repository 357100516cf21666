"""The long tables of mixing-uci: every table's accuracies, and what validation chose."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from expacc.recipes.mixing.paper import ARMS, CONTROL, SHAPES
from expacc.recipes.mixing.scores import Scores
from expacc.recipes.page import Grid, Section
from expacc.runner.rows import Row

__all__ = ["chosen_section", "tables_section"]

EVERY = (*ARMS, CONTROL)


def chosen_section(rows: Sequence[Row]) -> Section:
    """Learning rates and epochs that validation chose, and runs that diverged."""
    rates: dict[tuple[str, str], Counter[float]] = defaultdict(Counter)
    epochs: dict[tuple[str, str], list[float]] = defaultdict(list)
    diverged: Counter[tuple[str, str]] = Counter()
    trials: Counter[tuple[str, str]] = Counter()
    for row in rows:
        place = (str(row.numbers.get("shape")), row.loss)
        if row.kind == "trial":
            trials[place] += 1
            diverged[place] += row.failure is not None
        elif row.kind == "final" and row.failure is None:
            rates[place][float(row.numbers["learning_rate"])] += 1
            epochs[place].append(row.metrics["best_epoch"])
    every = sorted({rate for counts in rates.values() for rate in counts}, reverse=True)
    lines = []
    for shape in SHAPES:
        for name in EVERY:
            counts = rates[shape, name]
            if not counts.total():
                continue
            shares = (f"{100 * counts[rate] / counts.total():.0f} %" for rate in every)
            lines.append(
                (
                    *(shape, name, *shares),
                    f"{median(epochs[shape, name]):.0f}",
                    f"{diverged[shape, name]} of {trials[shape, name]}",
                )
            )
    grid = Grid(
        title="Chosen by the validation rows",
        head=(
            *("classifier", "loss", *(f"rate {rate:g}" for rate in every)),
            *("median epoch", "runs diverged"),
        ),
        rows=tuple(lines),
        note="Of equally good ones the largest rate and the last epoch are taken.",
    )
    return Section(title="What validation chose", grids=(grid,))


def tables_section(scores: Mapping[str, Scores]) -> Section:
    """Test accuracies of all tables, which the paper has in its supplement."""
    grids = []
    for shape, one in scores.items():
        means = one.means()
        lines, marks = [], []
        for row, (table, values) in enumerate(zip(one.tables, means, strict=True)):
            lines.append((table, *(f"{value:.2f}" for value in values)))
            best = np.round(values, 8) == np.round(values[: len(ARMS)], 8).max()
            marks += [(row, int(column) + 1) for column in np.flatnonzero(best)]
        grids.append(
            Grid(
                title=f"Test accuracy, {shape}",
                head=("table", *EVERY),
                rows=tuple(lines),
                note="Per cent, mean over folds and seeds. In bold: the best of the paper's six, "
                "and a control that equals it.",
                marked=tuple(marks),
            )
        )
    return Section(title="Table by table", grids=tuple(grids))
