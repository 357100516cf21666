"""What models said: reliability, and where the winner and cross entropy part."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from expacc.compare.record import StudyRecord, TableFacts
from expacc.report.figures import Chart, chart, legend_place, tidy_axes
from expacc.report.loss_names import loss_name, loss_order
from expacc.report.palette import MUTED, Look
from expacc.runner.rows import Row
from expacc.stats.score_table import Floats

__all__ = ["Changed", "Confusion", "confusion", "reliability_chart"]

BINS = 10
MOST_CLASSES = 12


def reliability_chart(
    record: StudyRecord, rows: Sequence[Row], look: Mapping[str, Look]
) -> Chart | None:
    """Draw how often predictions of a given confidence are right."""
    said: dict[str, list[tuple[Floats, NDArray[np.bool_]]]] = defaultdict(list)
    for row in rows:
        if row.predictions is not None and row.failure is None:
            labels = record.tables[row.table].labels[row.predictions.rows]
            right = row.predictions.predicted == labels
            said[row.loss].append((row.predictions.confidence.astype(np.float64), right))
    if not said:
        return None
    lines: dict[str, tuple[Floats, Floats, float]] = {}
    for loss in sorted(said, key=loss_order):
        sure = np.concatenate([pair[0] for pair in said[loss]])
        right = np.concatenate([pair[1] for pair in said[loss]])
        bins = np.minimum((sure * BINS).astype(int), BINS - 1)
        counts = np.bincount(bins, minlength=BINS)
        # A bin of a few rows is noise, which a line would make look like news.
        full = counts >= max(5, 0.002 * len(sure))
        with np.errstate(invalid="ignore"):
            mean = np.bincount(bins, sure, BINS) / counts
            share = np.bincount(bins, right, BINS) / counts
        gap = float(np.nansum(np.abs(mean - share) * counts) / len(sure))
        lines[loss] = (100 * mean[full], 100 * share[full], 100 * gap)

    def draw(width: float) -> Figure:
        wide = width > 5
        figure = Figure(figsize=(min(width, 6.4), 3.9 if wide else 3.2 + 0.2 * len(lines)))
        axes = figure.add_subplot()
        least = min([float(line[0].min()) for line in lines.values() if len(line[0])] or [0.0])
        start = max(0.0, 10 * np.floor(least / 10))
        axes.plot([start, 100], [start, 100], color=MUTED, lw=1, ls=(0, (2, 3)))
        for loss, (mean, share, _) in lines.items():
            style = look[loss]
            axes.plot(
                mean, share, color=style.colour, ls=style.dash, marker=style.marker, ms=5, lw=1.6,
                mew=0, label=loss_name(loss),
            )  # fmt: skip
        axes.set_xlabel("confidence of the prediction (%)")
        axes.set_ylabel("predictions that are right (%)")
        axes.set_xlim(start, 101)
        figure.legend(loc=legend_place(width))
        tidy_axes(axes, grid="both")
        return figure

    errors = "; ".join(f"{loss_name(loss)} {line[2]:.1f}" for loss, line in lines.items())
    return chart(
        "reliability",
        "Can its confidence be trusted?",
        "Test predictions in ten classes of confidence, after calibration. On the dotted "
        "line, predictions that claim 80 % are right in 80 of 100 cases; below it a model is too "
        "sure of itself.",
        f"Distance from the dotted line in points, all folds together; 0 is perfect: {errors}.",
        draw,
    )


@dataclass(frozen=True)
class Changed:
    """A row that one loss gets right more often than the other.

    Attributes:
        row: its number, from 0.
        given: the label in the table.
        reference: what cross entropy said most often.
        winner: what the winner said most often.
        reference_right: share of cross entropy's models that are right about it.
        winner_right: share of the winner's.
    """

    row: int
    given: str
    reference: str
    winner: str
    reference_right: float
    winner_right: float


@dataclass(frozen=True, eq=False)
class Confusion:
    """The winner's confusion matrix against that of cross entropy, in rows of the table.

    Attributes:
        classes: names; the last is 'other' where classes were too many.
        counts: given × predicted of the winner, averaged over how often a row was tested.
        change: the same, minus cross entropy's.
        gained: rows that the winner gets right more often, clearest first.
        lost: rows that cross entropy gets right more often, clearest first.
    """

    classes: tuple[str, ...]
    counts: Floats
    change: Floats
    gained: tuple[Changed, ...]
    lost: tuple[Changed, ...]


def _votes(rows: Sequence[Row], facts: TableFacts) -> Floats:
    """Rows × classes: the share of its models that predicted the class."""
    votes = np.zeros((facts.rows, len(facts.classes)))
    for row in rows:
        if row.predictions is not None and row.failure is None:
            np.add.at(votes, (row.predictions.rows, row.predictions.predicted), 1.0)
    votes /= np.maximum(votes.sum(axis=1, keepdims=True), 1)
    return votes


def confusion(
    facts: TableFacts, winner: Sequence[Row], reference: Sequence[Row]
) -> Confusion | None:
    """Compare what two losses said of the rows that both were tested on."""
    ours, theirs = _votes(winner, facts), _votes(reference, facts)
    both = np.flatnonzero((ours.sum(1) > 0) & (theirs.sum(1) > 0))
    if not both.size:
        return None
    labels, ours, theirs = facts.labels[both].astype(int), ours[both], theirs[both]
    classes = len(facts.classes)
    counts, before = np.zeros((classes, classes)), np.zeros((classes, classes))
    np.add.at(counts, labels, ours)
    np.add.at(before, labels, theirs)
    places = np.arange(len(both))
    right, before_right = ours[places, labels], theirs[places, labels]
    gain = right - before_right
    said, once = ours.argmax(1), theirs.argmax(1)

    def changed(places: NDArray[np.intp]) -> tuple[Changed, ...]:
        return tuple(
            Changed(
                int(both[i]),
                given=facts.classes[int(labels[i])],
                reference=facts.classes[int(once[i])],
                winner=facts.classes[int(said[i])],
                reference_right=float(before_right[i]),
                winner_right=float(right[i]),
            )
            for i in places
        )

    order = np.argsort(-gain, kind="stable")
    gained, lost = order[gain[order] > 1e-9], order[::-1][gain[order[::-1]] < -1e-9]
    names, change = facts.classes, counts - before
    if classes > MOST_CLASSES:
        weight = np.abs(change).sum(0) + np.abs(change).sum(1)
        kept = np.sort(np.argsort(-weight, kind="stable")[: MOST_CLASSES - 1])
        group = np.full(classes, len(kept))
        group[kept] = np.arange(len(kept))
        counts, change = _merged(counts, group), _merged(change, group)
        names = (*(facts.classes[int(code)] for code in kept), f"{classes - len(kept)} others")
    return Confusion(tuple(names), counts, change, changed(gained), changed(lost))


def _merged(counts: Floats, group: NDArray[np.intp]) -> Floats:
    size = int(group.max()) + 1
    merged = np.zeros((size, size))
    np.add.at(merged, (group[:, None], group[None, :]), counts)
    return merged
