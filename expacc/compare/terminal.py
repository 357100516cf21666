"""The leaderboard in a terminal."""

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from expacc.compare.leaderboard import Leaderboard
from expacc.compare.page_tables import board_table, failure_table, overall_table
from expacc.plain import plain
from expacc.report.loss_names import OUTSIDE
from expacc.report.words import share_text

__all__ = ["print_leaderboard"]

_STYLES = {"better": "bold green", "worse": "yellow", "even": "dim", "reference": "bold"}
_ANSWERS = {"better": "bold green", "keep": "bold", "unfinished": "bold yellow"}
MOST_FAILURES, MOST_TABLES = 8, 6


def _text(value: object, style: str = "") -> Text:
    """A user's string as it is: no markup, no control codes, one line."""
    return Text(" ".join(plain(str(value)).split()), style=style)


def print_leaderboard(board: Leaderboard, console: Console | None = None) -> None:
    """Print the answer, then the leaderboard, then what failed.

    Args:
        board: from `expacc.compare.leaderboard.leaderboard`.
        console: where to; None for standard output.
    """
    console = console or Console()
    # In a file or a pipe the answer stays one line, to be found by other programs.
    console.print(
        _text(board.answer.sentence, _ANSWERS[board.verdict]), soft_wrap=not console.is_terminal
    )
    if board.overall is not None:
        console.print(_drawn(*overall_table(board.overall), narrow=console.width < 100))
    else:
        for one in board.boards[:MOST_TABLES]:
            if len(board.boards) > 1:
                console.print(_text(one.table, "bold"))
            console.print(_drawn(*board_table(one), narrow=console.width < 100))
        if len(board.boards) > MOST_TABLES:
            console.print(_text(f"… and {len(board.boards) - MOST_TABLES} more tables.", "dim"))
    for one in board.noisy:
        if len(board.boards) == 1:
            share = f"{share_text(one.noise)} of training labels replaced: "
            console.print(_text(share + one.answer.sentence, "italic"))
    for note in board.notes:
        console.print(_text(note, "yellow"))
    failures, _ = failure_table(board.failures)
    for failure in failures[:MOST_FAILURES]:
        words = f"{failure['loss']} on {failure['table']}: {failure['runs']} failed: "
        console.print(Padding(_text(words + failure["reason"], "red"), (0, 0, 0, 2)))
    if len(failures) > MOST_FAILURES:
        console.print(_text(f"… and {len(failures) - MOST_FAILURES} more kinds of failure.", "red"))


# For terminals of 80 columns.
_SHORT = {
    "won / tied / lost": "w/t/l",
    "calibration error": "calibr.",
    "mean rank": "rank",
    "% ± spread": "%",
    "with search": "",
    "all tables": "",
    "adjusted": "",
}


def _drawn(head: list[dict[str, object]], rows: list[dict[str, object]], *, narrow: bool) -> Table:
    gap = (0, 0, 0, 0) if narrow else (0, 1)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim", padding=gap)
    for column in head:
        label, unit = str(column["label"]), str(column.get("unit", ""))
        if narrow:
            label, unit = _SHORT.get(label, label), _SHORT.get(unit, unit)
        justify = "left" if column.get("text") else "right"
        table.add_column(Text(f"{label}\n{unit}".strip()), justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        style = _STYLES.get(str(row["verdict"]), "")
        note = str(row["note"])
        name = _text(row["name"], "" if row["loss"] != OUTSIDE else "dim")
        if note and note != "reference":
            name.append("\n" + note, "dim")
        cells: Any = row["cells"]
        shown = [name]
        for cell in cells:
            text = _text(cell["value"], style if cell.get("mark") else "")
            if cell.get("more"):
                text.append("\n" + cell["more"], "dim")
            shown.append(text)
        table.add_row(*shown)
    return table
