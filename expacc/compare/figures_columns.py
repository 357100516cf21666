"""The chart of the columns that matter."""

from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from expacc.compare.figures_scores import name_rows
from expacc.compare.leaderboard_table import Entry, TableBoard
from expacc.plain import plain
from expacc.report.figures import Chart, chart, tidy_axes
from expacc.report.words import INK, LINES, Look, counted, points

MOST = 15  # bars
WIDEST = {True: 40, False: 20}  # letters of a name on a wide page, and on a phone


def column_chart(entry: Entry, board: TableBoard, look: Mapping[str, Look]) -> Chart | None:
    """Draw the accuracy that the best loss loses where a column is shuffled among test rows."""
    drops = list(entry.importance.items())[:MOST]
    if not drops:
        return None
    values = [100 * drop for _, drop in drops]

    def draw(width: float) -> Figure:
        figure = Figure(figsize=(width, 0.75 + 0.27 * len(drops)))
        axes = figure.add_subplot()
        most = WIDEST[width > 5]
        axes.barh(range(len(drops)), values, height=0.62, color=look[entry.loss].colour)
        name_rows(axes, [_short(name, most) for name, _ in drops], 10.0)
        for place, value in enumerate(values):
            axes.annotate(
                f"{value:.1f}", (max(value, 0), place), (4, 0), textcoords="offset points",
                va="center", color=INK, fontsize=8.5,
            )  # fmt: skip
        axes.axvline(0, color=LINES, lw=1)
        axes.set_xlim(min(0, *values), max(1.0, *values) * (1.1 if width > 5 else 1.25))
        axes.set_xlabel("accuracy lost (points)")  # fits beside long names on a phone
        axes.xaxis.set_major_locator(MaxNLocator(4 if width < 5 else 8))
        tidy_axes(axes, grid="x")
        return figure

    rest = len(entry.importance) - len(drops)
    more = f" The other {counted(rest, 'column')} cost less." if rest else ""
    found = "; ".join(f"{plain(name, 60)} {points(-drop)}" for name, drop in drops)
    return chart(
        "columns",
        "Which columns matter",
        f"The points of test accuracy that {entry.name} loses on {plain(board.table)} where the "
        "values of one column are shuffled among the test rows, averaged over folds. A column that "
        f"others can stand in for costs little, and so does one that only other models use.{more}",
        f"Accuracy of {entry.name} without a column, in points: {found}.",
        draw,
    )


def _short(name: str, most: int) -> str:
    """A name of one line that leaves room for its bar."""
    text = " ".join(plain(name, 200).split())
    return text if len(text) <= most else f"{text[: most - 1]}…"
