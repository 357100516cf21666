"""Which charts a study's page has, and of what."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from expacc.compare.figures_columns import column_chart
from expacc.compare.figures_runs import (
    Confusion,
    confusion,
    curve_chart,
    reliability_chart,
    search_chart,
)
from expacc.compare.figures_scores import (
    difference_chart,
    fold_chart,
    noise_chart,
    profile_chart,
    rank_chart,
    table_difference_chart,
)
from expacc.compare.leaderboard import Leaderboard
from expacc.compare.record import StudyRecord
from expacc.plain import plain
from expacc.report.figures import Chart
from expacc.report.words import REFERENCE, STOPPED, Look, loss_name
from expacc.runner.rows import Row

MOST_LINES = 10  # that can be told apart in one chart


@dataclass(frozen=True, eq=False)
class Charts:
    """In the order of the page.

    Attributes:
        columns: which columns matter.
        first: accuracies.
        runs: how the runs went.
        confusion: what the best loss changes.
        last: the search.
    """

    columns: list[Chart]
    first: list[Chart]
    runs: list[Chart]
    confusion: Confusion | None
    last: list[Chart]


def charts_of(record: StudyRecord, board: Leaderboard, look: Mapping[str, Look]) -> Charts:
    """Draw what there is to be drawn."""
    least = record.noise_levels[0]
    finals = [row for row in record.finals(noise=least) if row.kind == "final"]
    trials = [row for row in record.rows if row.kind == "trial" and row.noise == least]
    finals = [row for row in finals if row.loss != STOPPED]  # whose runs are cross entropy's
    drawn = _best_of_many(finals)
    few = len(drawn) < len(finals)
    note = f" Drawn are the best {MOST_LINES} losses and cross entropy." if few else ""
    spotlight = board.spotlight
    winner, matters = board.rival(spotlight), spotlight.matters
    split = None
    if winner is not None:
        own = [row for row in finals if row.table == spotlight.table]
        split = confusion(
            record.tables[spotlight.table],
            [row for row in own if row.loss == winner.loss],
            [row for row in own if row.loss == REFERENCE],
        )
    columns = None if matters is None else column_chart(matters, spotlight, look)
    return Charts(
        [columns] if columns else [],
        _scores(board, look),
        _drawn(curve_chart(drawn, look, note), reliability_chart(record, drawn, look, note)),
        split,
        _drawn(search_chart([*trials, *finals], look)),
    )


def _drawn(*charts: Chart | None) -> list[Chart]:
    return [chart for chart in charts if chart]


def _best_of_many(rows: Sequence[Row]) -> list[Row]:
    """Rows of the losses that lines can be told apart of: the best, and the reference."""
    scores: dict[str, list[float]] = {}
    for row in rows:
        if "accuracy" in row.metrics:
            scores.setdefault(row.loss, []).append(row.metrics["accuracy"])
    means = {loss: sum(found) / len(found) for loss, found in scores.items()}
    best = sorted(means, key=lambda loss: -means[loss])[:MOST_LINES]
    return [row for row in rows if len(means) <= MOST_LINES or row.loss in {REFERENCE, *best}]


def _scores(board: Leaderboard, look: Mapping[str, Look]) -> list[Chart]:
    """Accuracies, of one table or over several."""
    spotlight, several = board.spotlight, len(board.boards) > 1
    charts: list[Chart | None] = []
    if board.overall is not None:
        charts += [
            table_difference_chart(board.overall, look),
            rank_chart(board.overall.ranks, {loss_name(loss): one for loss, one in look.items()}),
            profile_chart(board.overall, look),
        ]
    if not several:
        paired = spotlight.protocol.kind == "test"  # one fold
        charts += [] if paired else [fold_chart(spotlight, look)]
        charts.append(difference_chart(spotlight, look))
    whose = f"the mean of {len(board.boards)} tables" if several else spotlight.table
    charts.append(noise_chart([*board.boards, *board.noisy], look, title_of=plain(whose)))
    return _drawn(*charts)
