"""What a run of a study may take: what the search tries, how long a run trains, what a fold costs.

Every loss has the same number of trials. Trial t has the same draw of learning rate and weight
decay for every loss, so that no loss is lucky; the numbers of its own come from the same
low-discrepancy sequence. Half of the trials go on from the best that cross entropy found from
nothing, at a quarter of the rates, and half begin with nothing. Trial 0 is a default that is good
on most tables, and goes on from there; cross entropy's own begins with nothing and has the weight
decay of scikit-learn's logistic regression.

A run takes about as many steps whatever the table, in equal batches. The cost is the order of
magnitude, no more: fitted by hand to the times of single folds, of tables with 1,300 to 6,000 rows,
4 to 166 features and 2 to 10 classes, on a busy machine.
"""

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.stats import qmc

from expacc.data import Table, derive_seed
from expacc.plain import UsageError
from expacc.registry import spec_of
from expacc.registry.spec import REFERENCE, Range
from expacc.report.words import (
    DEFAULT_LOSSES,
    FOREST,
    LOGISTIC,
    MAJORITY,
    NETWORKS,
    TREES,
    loss_name,
)

# Raised with every change of trials, training or choice: rows of two protocols are not to be mixed.
PROTOCOL = 8
STEPS, EPOCHS = 1000, (10, 250)
LEAST = 64  # rows of a batch
PARTS, LARGEST = 16, 128  # batches an epoch, and rows of a batch up to which there are so many
HUGE = 1024  # rows of a batch, for tables whose rows are not all seen often enough otherwise
POINTS = 50  # of a training curve
MODELS: dict[str, tuple[int, ...]] = {"linear": (), "mlp": (64,)}  # units of hidden layers
SMALL = 2000  # training rows up to which trials are judged on three inner folds, not on one
INNER_FOLDS = 3
LEFT_OUT = 0.25  # of more rows than that


def batch_and_epochs(rows: int) -> tuple[int, int]:
    """The rows of a batch and the number of epochs.

    >>> batch_and_epochs(1600), batch_and_epochs(10**6)
    ((100, 63), (1024, 10))
    """
    fewest, most = EPOCHS
    batch = min(max(rows / PARTS, LEAST), LARGEST)
    # The fewest epochs in the usual number of steps, if such batches are not too large.
    batch = max(batch, min(rows * fewest / STEPS, HUGE))
    steps = math.ceil(rows / batch)
    # Batches of one size: a last one of a few rows would be noise.
    return math.ceil(rows / steps), max(fewest, min(most, math.ceil(STEPS / steps)))


def epochs_a_point(epochs: int) -> int:
    """Epochs from one point of a training curve to the next."""
    return math.ceil(epochs / POINTS)


def pace_text(model: str) -> str:
    """The same in words."""
    if model not in MODELS:
        from expacc.compare.models import pace_text as of_rounds

        return of_rounds(model)
    stop = " The number of passes was the most accurate on validation rows, for every loss alike."
    return (
        f"Models were trained with Adam, the learning rate falling to a fiftieth, for about "
        f"{STEPS:,} steps ({EPOCHS[0]} to {EPOCHS[1]} passes over the rows) in batches of "
        f"1/{PARTS} of the rows, {LEAST} to {LARGEST} (up to {HUGE:,} where {EPOCHS[0]} passes "
        f"need them).{'' if model == 'linear' else stop}"
    )


# Seconds: per step, however few runs share it; per run and row of a batch; per feature of that row,
# which has to be fetched; and per weight. Large products are cheaper.
PER_STEP, EXACT_PER_STEP = 1.3e-4, 4e-4
PER_ROW, EXACT_PER_ROW, PER_FEATURE = 5e-8, 8e-8, 3.5e-10
PER_WEIGHT = {"linear": 2.5e-10, "mlp": 1.5e-10}
# From four rivals on EXACT is an integral with a factor for each.
PER_FACTOR = 7e-8

MOST_CLASSES = 10_000
MOST_VALUES = 2_000_000_000  # of the features of a table: 8 GB

TRIALS, FEWER_TRIALS = (8, 20), (1, 8)  # fewer of models that are not our own
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
    hidden: Sequence[int] | None = None,
) -> float:
    """One core's seconds for the search and the final runs on so many training rows."""
    inner, part = (INNER_FOLDS, 1 - 1 / INNER_FOLDS) if rows < SMALL else (1, 0.75)
    if model not in MODELS:
        from expacc.compare.models import fit_seconds

        one, whole = (fit_seconds(model, n, features, classes) for n in (part * rows, rows))
        return len(losses) * (trials * inner * one + seeds * whole)
    total = 0.0
    for loss in losses:
        for runs, seen in ((trials * inner, math.ceil(part * rows)), (seeds, rows)):
            together, each = run_seconds(loss, seen, features, classes, model, hidden)
            total += together + runs * each
    return total


def run_seconds(
    loss: str,
    rows: int,
    features: int,
    classes: int,
    model: str = "linear",
    hidden: Sequence[int] | None = None,
) -> tuple[float, float]:
    """One core's seconds of runs of a network: of all that train together, and of each of them."""
    widths = (features, *(hidden or MODELS[model]), classes)
    weights = sum(into * out for into, out in itertools.pairwise(widths))
    exact = loss == "exact"
    row = PER_FEATURE * features + PER_WEIGHT[model] * weights
    row += EXACT_PER_ROW if exact else PER_ROW
    if exact and classes > 4:
        row += PER_FACTOR * (classes - 1)
    batch, epochs = batch_and_epochs(rows)
    steps = epochs * math.ceil(rows / batch)
    return steps * (EXACT_PER_STEP if exact else PER_STEP), epochs * rows * row


def features_of(table: Table) -> int:
    """Features of a model: one for a number, one for each level of a category."""
    return sum(column.features for column in table.columns)


def check_size(table: Table) -> None:
    """Raise for a table that can be read, but not be trained on."""
    classes, features = len(table.target.classes), features_of(table)
    if classes > MOST_CLASSES:
        raise UsageError(
            f"{table.name}: the target must have at most {MOST_CLASSES:,} classes; "
            f"{table.target.name!r} has {classes:,}. Is it a number to be predicted, or an "
            "identifier? --target takes another column."
        )
    if table.rows * features > MOST_VALUES:
        raise UsageError(
            f"{table.name}: rows × features must be at most {MOST_VALUES:,}; got {table.rows:,} × "
            f"{features:,}, one for each level of a category. Lower --max-levels, or --drop some."
        )


def trials_for(table: Table, model: str, hidden: Sequence[int] | None = None) -> int:
    """As many trials as the default contest on this table can have in about a minute, 8 to 20.

    The same for every loss, and whatever losses and folds are asked for. Boosted trees and
    classifiers have 1 to 8.
    """
    return usual_trials(table.rows, features_of(table), len(table.target.classes), model, hidden)


def usual_trials(
    rows: int, features: int, classes: int, model: str, hidden: Sequence[int] | None = None
) -> int:
    """``trials_for`` of a table of this shape.

    >>> usual_trials(1728, 21, 4, "linear"), usual_trials(1797, 64, 10, "linear")
    (20, 16)
    """
    cost = functools.partial(
        fold_seconds,
        math.ceil(TRAINED * rows),
        features,
        classes,
        losses=DEFAULT_LOSSES,
        model=model,
        hidden=hidden,
    )
    fixed, one = cost(trials=0), cost(trials=1)
    fewest, most = TRIALS if model in MODELS else FEWER_TRIALS
    return max(fewest, min(most, int((FOLD - fixed) / (one - fixed))))


REFERENCES: dict[str, tuple[str, ...]] = {  # what may be run beside the losses
    "none": (),
    "fast": (MAJORITY, LOGISTIC),
    "all": (MAJORITY, LOGISTIC, FOREST, TREES),  # the dearest last
    "networks": (MAJORITY, LOGISTIC, FOREST, TREES, NETWORKS),
}
# Of the time of the losses as estimated. A third would be a quarter of all, but with few trials and
# many features the losses take half of the estimate.
AT_MOST = 1 / 6


def reference_seconds(name: str, rows: int, features: int, classes: int) -> float:
    """One core's seconds for a reference on so many training rows; as rough as ``fold_seconds``.

    Fitted by hand to 100 to 12,000 rows, 4 to 100 features and 2 to 26 classes.

    >>> [round(reference_seconds(name, 1200, 64, 10), 1) for name in REFERENCES["all"]]
    [0.0, 0.1, 0.4, 3.5]
    """
    if name == LOGISTIC:
        return 1e-7 * rows * features * classes
    if name == FOREST:
        grown = 2.3e-6 * rows * math.log2(rows + 1) * math.sqrt(features)
        return (0.08 + grown) * (1 + 0.02 * classes) + 1.5e-5 * rows
    if name == TREES:
        trees = 100 * (1 if classes == 2 else classes)
        full = min(1.0, rows / 600)  # a leaf has 20 rows at least, a tree 31 leaves at most
        one = full * (7e-4 + 3.4e-5 * features) + 8e-9 * rows * features + 4e-8 * rows
        return trees * one
    if name == NETWORKS:
        steps = min(1.5, max(0.4, math.sqrt(rows / 1900)))  # thousands
        return steps * (2.2 + 0.1 * features) * (4 if rows > 20_000 else 1) + 1 + 1.5e-4 * rows
    return 0.0


def affordable_references(
    asked: str, folds: int, first: int, seconds: float, shape: tuple[int, int, int]
) -> dict[str, int]:
    """Name → on how many folds it is run: all, the first ones, or none.

    Args:
        asked: 'none', 'fast', 'all' or 'networks'.
        folds: of the table.
        first: of its first repetition.
        seconds: that the losses take on all of them.
        shape: training rows, features and classes.

    >>> affordable_references("all", 15, 3, 120.0, (1200, 64, 10))["boosted_trees"]
    3
    >>> affordable_references("networks", 9, 3, 49.0, (1198, 64, 10))["small_networks"]
    3
    """
    left, found = AT_MOST * seconds, {}
    for name in REFERENCES[asked]:
        one = reference_seconds(name, *shape)
        fits = folds
        if name == NETWORKS:  # asked for by name
            fits = first
        elif name not in REFERENCES["fast"]:
            fits = min(folds, int(left / one))
            fits -= fits % first if fits > first else 0  # whole repetitions
        found[name] = fits
        left -= fits * one
    return found


def plan_references(
    table: Table, asked: str, sizes: Sequence[int], *, first: int, **losses: Any
) -> tuple[dict[str, int], list[str]]:
    """Name → on how many folds it is run beside the losses; and lines on what is not, and why.

    Args:
        table: whose folds they are.
        asked: as for ``affordable_references``.
        sizes: training rows of each fold.
        first: folds of a repetition; 0 where that is unknown.
        losses: as ``fold_seconds`` takes them.
    """
    count = len(sizes)
    shape = round(sum(sizes) / count), features_of(table), len(table.target.classes)
    first = first if 0 < first < count else count
    chosen = affordable_references(
        asked, count, first, count * fold_seconds(*shape, **losses), shape
    )
    notes = [
        f"{table.name}: {loss_name(name)} {'are' if name == TREES else 'is'} "
        f"{f'run on {folds} of {count} folds only' if folds else 'left out'}, at about "
        f"{reference_seconds(name, *shape):.1f} s a fold: what is run beside the losses may take "
        "a quarter of the time."
        for name, folds in chosen.items()
        if folds < count and name != NETWORKS  # asked for by name, on one repetition
    ]
    return chosen, notes


_RATES = {"linear": (0.02, 1.0, 0.2), "mlp": (0.001, 0.03, 0.01)}
_DECAYS = (1e-6, 3e-3, 1e-5)
WARM_RATE = 0.25  # of the learning rate, where a solution is gone on from
FIRST_DRAWN = (
    2  # trials before have the usual numbers: one begins with a solution, one with nothing
)
OTHER = 3  # the trial of a loss that has usual numbers of a second kind; it goes on, too
_MOST_DECAY = 10.0  # over the rows: ten times what is usual, for tables of a few


@dataclass(frozen=True)
class Trial:
    """One setting of a loss.

    Args:
        number: which, from 0.
        found: the searched numbers, for the record.
        loss_params: as ``Run`` takes them.
    """

    number: int
    found: Mapping[str, float]
    loss_params: Mapping[str, Any]

    @property
    def learning_rate(self) -> float:
        """Of Adam, at the start."""
        return self.found["learning_rate"]

    @property
    def weight_decay(self) -> float:
        """L2, on the weights."""
        return self.found["weight_decay"]

    @property
    def warm(self) -> bool:
        """Does it go on from what cross entropy found?"""
        return bool(self.found["warm_start"])

    def stop(self, epochs: int) -> int | None:
        """The epoch whose weights held-out rows preferred; None where there was no choice."""
        share = self.found.get("stopped_at")
        return None if share is None else max(1, round(share * epochs))


def number_between(share: float | None, low: float, high: float, usual: float) -> float:
    """A number between low and high by equal ratios; the usual one for None. Four digits."""
    return float(f"{usual if share is None else low * (high / low) ** share:.4g}")


def trials_of(
    loss: str, model: str, count: int, seed: int, name: str, rows: int, classes: int
) -> list[Trial]:
    """The trials of a loss; ``name`` (of table and fold) and ``seed`` decide the draws.

    ``rows`` is how many there are to train on: weight decay is usual at one part in them. Two
    classes have two vectors of weights here where scikit-learn has their difference, and so twice.
    """
    if model not in MODELS:
        from expacc.compare.models import trials_in_rounds

        return trials_in_rounds(loss, model, count, seed, name, classes)
    spec = spec_of(loss)
    ranges: dict[str, Range] = {
        "learning_rate": _RATES[model],
        "weight_decay": _DECAYS,
        **spec.search,
    }
    if model == "linear":
        low, high, _ = _DECAYS
        ranges["weight_decay"] = low, max(high, _MOST_DECAY / rows), (1 + (classes == 2)) / rows
    own_numbers = spec.by_classes(classes)  # its paper's, where they differ with many classes
    # The first two coordinates are the shared numbers: alike for every loss.
    sequence = qmc.Halton(d=5, scramble=True, rng=derive_seed(seed, name, "search"))
    points = sequence.random(count)
    trials = []
    for number in range(count):
        # Not in turn: the sequence's first coordinate is, low and high.
        found, warm = {}, number.bit_count() % 2 == (loss == REFERENCE)
        for place, (title, (low, high, usual)) in enumerate(ranges.items()):
            drawn = number >= FIRST_DRAWN and not (number == OTHER and spec.other)
            share = points[number, place] if drawn else None
            first = own_numbers.get(title, usual)
            if number == OTHER:
                first = spec.other.get(title, first)
            if title == "learning_rate" and warm:
                low, high, first = low * WARM_RATE, high * WARM_RATE, first * WARM_RATE
            if title == "weight_decay" and number != 1:
                first *= spec.decay_factor
            found[title] = number_between(share, low, high, first)
        found["warm_start"] = float(warm)
        own = {name: found[name] for name in spec.search}
        trials.append(Trial(number, found, {**own_numbers, **spec.params_of(own)}))
    return trials
