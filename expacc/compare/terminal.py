"""The answer and the leaderboard in a terminal: what the page says, shorter."""

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from expacc.compare.leaderboard import Leaderboard
from expacc.compare.page_tables import board_table, failure_table, overall_table
from expacc.plain import plain
from expacc.report.words import OUTSIDE, points, share_text

_STYLES = {"better": "bold green", "worse": "yellow", "even": "dim", "reference": "bold"}
_ANSWERS = {"better": "bold green", "keep": "bold", "unfinished": "bold yellow"}
MOST_LINES, MOST_TABLES = 8, 6  # of failures, and of tables, in a terminal


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
    # In a file or a pipe a sentence stays one line, to be found by other programs.
    wrap = not console.is_terminal
    console.print(_text(board.answer.sentence, _ANSWERS[board.verdict]), soft_wrap=wrap)
    for sentence in board.answer.also:
        console.print(_text(sentence), soft_wrap=wrap)
    for share, answer in board.noisy_answers:
        said = " ".join([answer.sentence, *answer.also])
        said = f"{share_text(share)} of training labels replaced: {said}"
        console.print(_text(said, "italic"), soft_wrap=wrap)
    narrow = console.width < 100
    if board.overall is not None:
        console.print(_drawn(*overall_table(board.overall), narrow=narrow))
    else:
        for one in board.boards[:MOST_TABLES]:
            if len(board.boards) > 1:
                console.print(_text(one.table, "bold"))
            console.print(_drawn(*board_table(one), narrow=narrow))
        if len(board.boards) > MOST_TABLES:
            console.print(_text(f"… and {len(board.boards) - MOST_TABLES} more tables.", "dim"))
    if line := matters_text(board):
        console.print(_text(line, "dim"))
    for note in board.notes:
        console.print(_text(note, "yellow"))
    failures, _ = failure_table(board.failures)
    for failure in failures[:MOST_LINES]:
        words = f"{failure['loss']} on {failure['table']}: {failure['runs']} failed: "
        console.print(Padding(_text(words + failure["reason"], "red"), (0, 0, 0, 2)))
    if len(failures) > MOST_LINES:
        console.print(_text(f"… and {len(failures) - MOST_LINES} more kinds of failure.", "red"))


def matters_text(board: Leaderboard, most: int = 5) -> str:
    """The columns without which the best loss on one table loses most, on a line."""
    entry = board.spotlight.matters if len(board.boards) == 1 else None
    if entry is None:
        return ""
    top = [(name, drop) for name, drop in entry.importance.items() if drop >= 0.0005][:most]
    told = ", ".join(f"{plain(name, 40)} {points(-drop)}" for name, drop in top)
    if not told:
        return f"No column matters to {entry.name}: shuffled among test rows, none costs accuracy."
    return f"Columns that matter most to {entry.name} (points lost when shuffled): {told}."


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
        name = _text(row["name"], "" if row["loss"] not in OUTSIDE else "dim")
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
