"""What the text of the paper says of Figures 2 to 4, as questions that curves can answer.

A run *lags* in an epoch if it is more than 3 points of accuracy behind negative log likelihood on
the same fold in the same epoch; it is *stuck* if its best is that far behind the other's best.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from expacc.recipes.leaky.words import signed
from expacc.runner.rows import Row

__all__ = ["BEHIND", "Runs", "Statement", "lag", "orders", "statements", "stuck"]

BEHIND = 3.0  # points of accuracy
ORDERS = (1.5, 2.5)  # "two orders of magnitude"
LOSS, LEAKY, REFERENCE = "expected_error", "leaky_expected_error", "cross_entropy"


@dataclass(frozen=True)
class Runs:
    """The good runs of one condition.

    Args:
        whole: loss → its run on all training rows (Figure 2).
        folds: loss → fold → its run at the small learning rate (Figure 3).
        large: fold → the run of the expected error at the large learning rate.
    """

    whole: Mapping[str, Row]
    folds: Mapping[str, Mapping[str, Row]]
    large: Mapping[str, Row]

    def pairs(self, loss: str) -> list[tuple[Row, Row]]:
        """Runs of a loss and of negative log likelihood on the same folds."""
        own = self.large if loss == "large" else self.folds.get(loss, {})
        other = self.folds.get(REFERENCE, {})
        return [(own[fold], other[fold]) for fold in sorted(own.keys() & other.keys(), key=int)]


@dataclass(frozen=True)
class Statement:
    """One statement of the paper.

    Args:
        source: where it stands.
        says: what it says.
        holds: whether it is so here; None without the runs for it.
        found: what was found, with numbers.
    """

    source: str
    says: str
    holds: bool | None
    found: str


def lag(curve: Sequence[float], reference: Sequence[float]) -> int:
    """The number of epochs in which ``curve`` lags; a run that has ended keeps its last value.

    >>> lag([0.60, 0.65, 0.90, 0.92], [0.80, 0.85, 0.90])
    2
    """
    last = len(reference) - 1
    return sum(
        100 * (reference[min(epoch, last)] - value) > BEHIND for epoch, value in enumerate(curve)
    )


def stuck(run: Row, reference: Row) -> bool:
    """Whether a run never gets near the reference on the development rows."""
    best = reference.metrics["validation_accuracy"] - run.metrics["validation_accuracy"]
    return 100 * best > BEHIND


def orders(run: Row, reference: Row) -> float:
    """How many orders of magnitude the gradient norms are apart, the mean over common epochs."""
    pairs = zip(reference.curves["gradient_norm"], run.curves["gradient_norm"], strict=False)
    logs = [np.log10(theirs / own) for theirs, own in pairs if own > 0 and theirs > 0]
    return float(np.mean(logs)) if logs else float("inf")


def statements(runs: Runs) -> list[Statement]:
    """All statements, of one condition."""
    return [*_figure_2(runs), *_figure_3(runs), *_figure_4(runs)]


def _figure_2(runs: Runs) -> list[Statement]:
    own, other = runs.whole.get(LOSS), runs.whole.get(REFERENCE)
    found = []
    for metric, where in (("train_accuracy", "training"), ("accuracy", "test")):
        says = f"EErr ends above NegLog on {where} rows"
        if own is None or other is None:
            found.append(Statement("Figure 2", says, None, "–"))
            continue
        ours, theirs = 100 * own.metrics[metric], 100 * other.metrics[metric]
        text = f"{ours:.1f} against {theirs:.1f}: {signed(ours - theirs, 1)}"
        found.append(Statement("Figure 2", says, ours > theirs, text))
    says = "EErr stays behind at first, and catches up"
    if own is None or other is None:
        return [*found, Statement("Figure 2", says, None, "–")]
    curve, reference = own.curves["test_accuracy"], other.curves["test_accuracy"]
    epochs = lag(curve, reference)
    caught = 100 * (reference[-1] - curve[-1]) <= BEHIND
    text = f"{BEHIND:g} points behind in {epochs} epochs, {'not' if caught else 'also'} in the last"
    text = text if epochs else f"never {BEHIND:g} points behind"
    return [*found, Statement("Figure 2", says, epochs > 0 and caught, text)]


def _figure_3(runs: Runs) -> list[Statement]:
    pairs, large, leaky = runs.pairs(LOSS), runs.pairs("large"), runs.pairs(LEAKY)
    count = len(pairs)
    behind = sum(
        lag(own.curves["validation_accuracy"], other.curves["validation_accuracy"]) > 0
        for own, other in pairs
    )
    above = sum(own.metrics["accuracy"] > other.metrics["accuracy"] for own, other in pairs)
    held, still, never = (
        sum(stuck(own, other) for own, other in some) for some in (pairs, large, leaky)
    )
    figure, section = "Figure 3", "Section 3.1"
    return [
        _counted(figure, "EErr stays behind at first on every fold",
                 behind, count, behind == count),
        _counted(figure, "on many folds EErr ends above NegLog on test rows",
                 above, count, above >= count / 2),
        _counted(figure, "one run of EErr never gets over it (stuck)",
                 held, count, 0 < held < count / 2),
        _counted(section, "EErr is stuck no less often at a learning rate of 1e-2",
                 still, len(large), still >= max(1, held)),
        _counted(section, "LEErr is the way out (stuck)", never, len(leaky), never == 0),
    ]  # fmt: skip


def _counted(source: str, says: str, number: int, count: int, holds: bool) -> Statement:
    if not count:
        return Statement(source, says, None, "–")
    return Statement(source, says, holds, f"{number} of {count}")


def _figure_4(runs: Runs) -> list[Statement]:
    says = "gradient norms of EErr and NegLog are two orders of magnitude apart"
    apart = [orders(own, other) for own, other in runs.pairs(LOSS)]
    if not apart:
        return [Statement("Figure 4", says, None, "–")]
    mean = float(np.mean(apart))
    return [Statement("Figure 4", says, ORDERS[0] <= mean <= ORDERS[1], f"{mean:.1f}")]
