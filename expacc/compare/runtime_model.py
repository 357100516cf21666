"""What a fold of a study costs on one core, by the shape of its table, and what trials that buys.

The order of magnitude, no more: fitted by hand to the times of single folds, of tables with 1,300
to 6,000 rows, 4 to 166 features and 2 to 10 classes, on a busy machine.
"""

import functools
import itertools
import math
from collections.abc import Sequence

from expacc.compare.selection import INNER_FOLDS, SMALL
from expacc.compare.training_budget import pace
from expacc.compare.work import MODELS
from expacc.data import Table
from expacc.report.loss_names import DEFAULT_LOSSES

__all__ = ["check_size", "features_of", "fold_seconds", "trials_for"]

# Seconds: per step, however few runs share it; per run and row of a batch; per feature of that row,
# which has to be fetched; and per weight. Large products are cheaper.
PER_STEP, EXACT_PER_STEP = 2.5e-4, 1e-3
PER_ROW, EXACT_PER_ROW, PER_FEATURE = 1.0e-7, 1.5e-7, 7e-10
PER_WEIGHT = {"linear": 5e-10, "mlp": 3e-10}
# From four rivals on EXACT is an integral with a factor for each, in the end for the nearest only.
PER_FACTOR, PER_RIVAL, FACTORS = 8e-8, 1e-8, (4, 8)

MOST_CLASSES = 10_000
MOST_VALUES = 2_000_000_000  # of the features of a table: 8 GB

TRIALS = (8, 20)
FOLD = 8.5  # seconds that trials may take: fifteen folds on two cores are then about a minute
SEEDS = 2
TRAINED = 2 / 3  # of the rows, with three folds


def fold_seconds(
    rows: int,
    features: int,
    classes: int,
    *,
    losses: Sequence[str],
    model: str = "linear",
    trials: int = TRIALS[1],
    seeds: int = SEEDS,
) -> float:
    """One core's seconds for the search and the final runs on so many training rows."""
    widths = (features, *MODELS[model].hidden, classes)
    weights = sum(into * out for into, out in itertools.pairwise(widths))
    inner, part = (INNER_FOLDS, 1 - 1 / INNER_FOLDS) if rows < SMALL else (1, 0.75)
    total = 0.0
    for loss in losses:
        exact = loss == "exact"
        row = PER_FEATURE * features + PER_WEIGHT[model] * weights
        row += EXACT_PER_ROW if exact else PER_ROW
        if exact:
            first, most = FACTORS
            row += PER_RIVAL * classes
            row += PER_FACTOR * min(classes - 1, most) if classes > first else 0
        for runs, seen in ((trials * inner, math.ceil(part * rows)), (seeds, rows)):
            batch, epochs = pace(seen, loss)
            steps = epochs * math.ceil(seen / batch)
            total += steps * (EXACT_PER_STEP if exact else PER_STEP) + runs * epochs * seen * row
    return total


def features_of(table: Table) -> int:
    """Features of a model: one for a number, one for each level of a category."""
    return sum(max(1, len(column.levels)) for column in table.columns)


def check_size(table: Table) -> None:
    """Raise for a table that can be read, but not be trained on."""
    classes, features = len(table.target.classes), features_of(table)
    if classes > MOST_CLASSES:
        raise ValueError(
            f"{table.name}: the target must have at most {MOST_CLASSES:,} classes; "
            f"{table.target.name!r} has {classes:,}. Is it a number to be predicted, or an "
            "identifier? --target takes another column."
        )
    if table.rows * features > MOST_VALUES:
        raise ValueError(
            f"{table.name}: rows × features must be at most {MOST_VALUES:,}; got {table.rows:,} × "
            f"{features:,}, one for each level of a category. Lower --max-levels, or --drop some."
        )


def trials_for(table: Table, model: str) -> int:
    """As many trials as the default contest on this table can have in about a minute, 8 to 20.

    The same for every loss, and whatever losses and folds are asked for.
    """
    return usual_trials(table.rows, features_of(table), len(table.target.classes), model)


def usual_trials(rows: int, features: int, classes: int, model: str) -> int:
    """``trials_for`` of a table of this shape.

    >>> usual_trials(1728, 21, 4, "linear"), usual_trials(1797, 64, 10, "linear")
    (13, 8)
    """
    cost = functools.partial(
        fold_seconds,
        math.ceil(TRAINED * rows),
        features,
        classes,
        losses=DEFAULT_LOSSES,
        model=model,
    )
    fixed, one = cost(trials=0), cost(trials=1)
    fewest, most = TRIALS
    return max(fewest, min(most, int((FOLD - fixed) / (one - fixed))))
