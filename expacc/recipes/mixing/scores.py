"""Test accuracies of mixing-uci out of its rows, and the statistics that Table 4 gives of them."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from expacc.recipes.mixing.uci import CE, EVERY, TABLES
from expacc.runner.rows import Row
from expacc.stats import CriticalDifference, critical_difference

Floats = NDArray[np.float64]
DIGITS = 8  # of accuracies that are compared: equal numbers of right answers are equal


@dataclass(frozen=True, eq=False)
class Scores:
    """Test accuracies of one architecture, in points, of tables on which no score is missing.

    Args:
        shape: 'linear' or 'one hidden layer'.
        tables: names, the paper's in its order, then others.
        seeds: their numbers.
        values: for each table seeds × folds × losses, in the order of ``EVERY``.
        left_out: tables with scores, but not all of them.
    """

    shape: str
    tables: tuple[str, ...]
    seeds: tuple[int, ...]
    values: tuple[Floats, ...]
    left_out: tuple[str, ...]

    def means(self, seed: int | None = None) -> Floats:
        """Tables × losses: mean over folds, and over seeds unless one is named."""
        chosen = slice(None) if seed is None else [self.seeds.index(seed)]
        return np.array([cube[chosen].mean((0, 1)) for cube in self.values])

    def columns(self, names: Sequence[str]) -> list[int]:
        """Where some losses stand in ``values``."""
        return [EVERY.index(name) for name in names]


def scores_of(rows: Sequence[Row], shape: str, folds: dict[str, Sequence[str]]) -> Scores:
    """Gather the scores of an architecture; ``folds`` are those of each table, as planned."""
    found: dict[str, dict[tuple[int, str, str], float]] = defaultdict(dict)
    begun: set[str] = set()
    seeds: set[int] = set()
    for row in rows:
        if row.kind != "final" or row.numbers.get("shape") != shape or row.table not in folds:
            continue
        begun.add(row.table)
        seeds.add(row.seed)
        if row.failure is None:
            found[row.table][row.seed, row.fold, row.loss] = 100 * row.metrics["accuracy"]
    known = [name for name in TABLES if name in begun]
    order = [*known, *sorted(begun - set(known))]
    every = tuple(sorted(seeds))
    tables, values, left_out = [], [], []
    for table in order:
        places = [[[(seed, fold, arm) for arm in EVERY] for fold in folds[table]] for seed in every]
        try:
            cube = [[[found[table][p] for p in line] for line in block] for block in places]
        except KeyError:
            left_out.append(table)
            continue
        tables.append(table)
        values.append(np.array(cube))
    return Scores(shape, tuple(tables), every, tuple(values), tuple(left_out))


@dataclass(frozen=True)
class Statistic:
    """A mean over tables of one split a table, then over splits.

    Args:
        mean: of all.
        spread: standard deviation over splits; None for a single one.
        splits: how many.
        error: standard error over tables, each averaged over its splits; None for a single table.
    """

    mean: float
    spread: float | None
    splits: int
    error: float | None


@dataclass(frozen=True)
class Summary:
    """One loss over all tables, in the manner of Table 4.

    A split is one fold of every table with one seed, which is what the paper's numbers are of.

    Args:
        wins: share of tables, in per cent, on which no other loss is better.
        gain: accuracy less that of CE, in points.
        mean_rank: equals share the best of their ranks.
        better: tables whose accuracy, mean over splits, is above that of CE.
        level: equal to it.
        worse: below it.
    """

    wins: Statistic
    gain: Statistic
    mean_rank: Statistic
    better: int
    level: int
    worse: int


def summary(scores: Scores, names: Sequence[str]) -> dict[str, Summary]:
    """Table 4 for these losses, compared among themselves; CE must be one of them."""
    columns, reference = scores.columns(names), list(names).index(CE)
    folds = max(cube.shape[1] for cube in scores.values)
    shape = (len(scores.seeds) * folds, len(scores.tables), len(columns))
    wins, ranks, gains = (np.full(shape, np.nan) for _ in range(3))  # a table may have fewer folds
    for table, cube in enumerate(scores.values):
        for seed, fold in np.ndindex(cube.shape[:2]):
            line = np.round(cube[seed, fold, columns], DIGITS)
            at = (seed * folds + fold, table)
            wins[at] = 100.0 * (line == line.max())
            ranks[at] = stats.rankdata(-line, method="min")
            gains[at] = line - line[reference]

    def statistic(values: Floats, place: int) -> Statistic:
        one = values[:, :, place]
        by_split, by_table = np.nanmean(one, axis=1), np.nanmean(one, axis=0)
        spread = float(by_split.std(ddof=1)) if len(by_split) > 1 else None
        many = len(by_table)
        error = float(by_table.std(ddof=1)) / many**0.5 if many > 1 else None
        return Statistic(float(by_table.mean()), spread, len(by_split), error)

    means = np.round(scores.means()[:, columns], DIGITS)
    signs = np.sign(means - means[:, [reference]])
    return {
        name: Summary(
            wins=statistic(wins, place),
            gain=statistic(gains, place),
            mean_rank=statistic(ranks, place),
            better=int((signs[:, place] > 0).sum()),
            level=int((signs[:, place] == 0).sum()),
            worse=int((signs[:, place] < 0).sum()),
        )
        for place, name in enumerate(names)
    }


def ranking(
    scores: Scores, names: Sequence[str], seed: int | None = None
) -> CriticalDifference | None:
    """Friedman's and Conover's tests over tables; None where there are too few tables."""
    if len(scores.tables) < 2:
        return None
    means = scores.means(seed)[:, scores.columns(names)]
    return critical_difference(means, list(names), pairs="conover")  # as in the paper
