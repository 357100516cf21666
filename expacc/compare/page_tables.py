"""The tables of a study, as plain values for page and terminal: numbers become text here."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from expacc.compare.figures_runs import Changed, Confusion
from expacc.compare.leaderboard import Leaderboard, Overall, OverallEntry
from expacc.compare.leaderboard_table import Entry, Failure, TableBoard
from expacc.compare.record import StudyRecord
from expacc.plain import plain
from expacc.report.words import (
    MAJORITY,
    NONE,
    OUTSIDE,
    REFERENCE,
    duration,
    loss_name,
    loss_order,
    p_value_text,
    percent,
    points,
    share_text,
)
from expacc.stats.many_tables import WinTieLoss
from expacc.stats.one_table import PairedTest

MOST_ROWS = 12  # of a list of changed rows
MOST_FAILURES = 30
Values = dict[str, Any]
_NOTES = {REFERENCE: "reference", **dict.fromkeys(OUTSIDE, "scikit-learn, not tested")}
_NOTES[MAJORITY] = "not tested"


def _interval(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f"{points(interval[0])} to {points(interval[1])}"


def _head(first: Sequence[tuple[str, str]], among: str, time: str) -> list[Values]:
    """The head of a leaderboard: label and unit, those of its own first."""
    units = [
        *first,
        ("difference", "points, 95 %"),
        ("p", "adjusted"),
        ("won / tied / lost", among),
    ]
    units += [("calibration error", "points"), ("time", time)]
    return [{"label": "loss", "text": True}, *({"label": a, "unit": b} for a, b in units)]


def _row(
    entry: Entry | OverallEntry,
    note: str,
    first: Sequence[str],
    *,
    interval: tuple[float, float] | None,
    against: Entry | WinTieLoss,
    error: float | None,
) -> Values:
    compared = entry.difference is not None
    counts = f"{against.wins} / {against.ties} / {against.losses}"
    return {
        "loss": entry.loss,
        "name": entry.name,
        "verdict": entry.verdict,
        "note": note,
        "cells": [
            *({"value": text} for text in first),
            {
                "value": points(entry.difference),
                "mark": entry.verdict if entry.verdict in ("better", "worse", "even") else "",
                "more": _interval(interval),
            },
            {"value": p_value_text(entry.adjusted_p)},
            {"value": counts if compared else NONE},
            {"value": percent(error)},
            {"value": duration(entry.seconds)},
        ],
    }


def board_table(board: TableBoard) -> tuple[list[Values], list[Values]]:
    """The head and the rows of one table's leaderboard."""
    rows = [
        _row(
            entry,
            _note(entry, len(board.folds)),
            [percent(entry.accuracy) + (f" ± {percent(spread)}" if spread is not None else "")],
            interval=entry.test.interval if entry.test else None,
            against=entry,
            error=entry.metrics.get("calibration_error"),
        )
        for entry in board.entries
        for spread in [entry.spread]
    ]
    return _head([("accuracy", "% ± spread")], "folds", "with search"), rows


def _note(entry: Entry, folds: int) -> str:
    """What stands below a loss's name: the reference, a failure, or what is missing."""
    if entry.failures:
        runs = "run" if len(entry.failures) == 1 else "runs"
        done = "" if len(entry.folds) == folds else f", {len(entry.folds)} of {folds} folds scored"
        return f"{len(entry.failures)} failed {runs}{done}"
    if entry.loss in _NOTES:
        return _NOTES[entry.loss]
    if len(entry.folds) < folds:
        return f"{len(entry.folds)} of {folds} folds so far"
    return ""


def overall_table(overall: Overall) -> tuple[list[Values], list[Values]]:
    """The head and the rows of the leaderboard over several tables."""
    first = [("mean rank", f"{len(overall.tables)} tables"), ("accuracy", "%, mean")]
    outside = () if overall.outside is None else (overall.outside,)
    rows = [
        _row(
            entry,
            _NOTES.get(entry.loss, ""),
            [NONE if entry in outside else f"{entry.mean_rank:.2f}", percent(entry.accuracy)],
            interval=entry.interval,
            against=entry.against,
            error=entry.calibration_error,
        )
        for entry in (*overall.entries, *outside)
    ]
    return _head(first, "tables", "all tables"), rows


def results_table(record: StudyRecord, board: Leaderboard) -> Values:
    """Tables × losses for studies of several tables."""
    found = {entry.loss for one in board.boards for entry in one.entries}
    losses = sorted(found, key=loss_order)
    rows: list[Values] = []
    for one in board.boards:
        entries = [one.entry(loss) for loss in losses]
        scores = [
            e.accuracy for e in entries if e and e.accuracy and len(e.folds) == len(one.folds)
        ]
        top = max(scores, default=2.0) - 1e-10
        facts = record.tables[one.table]
        cells = [_result_cell(entry, len(one.folds), top) for entry in entries]
        rows.append(
            {"table": one.table, "rows": facts.rows, "classes": len(facts.classes), "cells": cells}
        )
    partial = any(cell["value"].endswith("*") for row in rows for cell in row["cells"])
    return {"names": [loss_name(loss) for loss in losses], "rows": rows, "partial": partial}


def _result_cell(entry: Entry | None, folds: int, top: float) -> Values:
    if entry is None or entry.accuracy is None:
        return {
            "value": "failed" if entry and entry.failures else "–",
            "best": False,
            "verdict": "",
        }
    partial = len(entry.folds) < folds
    return {
        "value": percent(entry.accuracy) + ("*" if partial else ""),
        "best": not partial and entry.accuracy >= top,
        "verdict": entry.verdict,
    }


def _count(number: float) -> str:
    return f"{number:.0f}" if abs(number - round(number)) < 0.05 else f"{number:.1f}"


def confusion_table(found: Confusion, winner: str, table: str) -> Values:
    """The confusion matrix with shades, and the rows that changed."""
    largest = float(np.abs(found.change).max()) or 1.0
    rows = []
    for given, name in enumerate(found.classes):
        cells = []
        for said in range(len(found.classes)):
            change = float(found.change[given, said])
            good = change if given == said else -change
            step = int(np.ceil(3 * (abs(good) / largest) ** 0.6)) if abs(change) >= 0.05 else 0
            shade = f"{'up' if good > 0 else 'down'}-{min(3, step)}" if step else ""
            sign = "+" if change > 0 else "−"
            count = float(found.counts[given, said])
            cells.append(
                {
                    "count": _count(count) if count >= 0.05 or given == said else "·",
                    "change": f"{sign}{_count(abs(change))}" if step else "",
                    "shade": f"{shade}{' diagonal' if given == said else ''}".strip(),
                }
            )
        rows.append({"name": name, "cells": cells})

    def part(title: str, changed: Sequence[Changed]) -> Values:
        more = f", the clearest {MOST_ROWS}" if len(changed) > MOST_ROWS else ""
        return {"title": f"{title}: {len(changed)}{more}", "rows": changed[:MOST_ROWS]}

    # A row may be right in some repeats and wrong in others, so gains are sums of shares.
    net = sum(row.winner_right - row.reference_right for row in (*found.gained, *found.lost))
    return {
        "winner": winner,
        "table": table,
        "classes": found.classes,
        "rows": rows,
        "finding": f"On {len(found.gained)} rows {winner} is right more often, on "
        f"{len(found.lost)} less often; net {'+' if net >= 0 else '−'}{_count(abs(net))} rows.",
        "changed": [
            part(f"Rows that {winner} gets right more often", found.gained),
            part("Rows that cross entropy gets right more often", found.lost),
        ],
    }


def failure_table(failures: Sequence[Failure]) -> tuple[list[Values], int]:
    """Failures of one loss on one table with one reason together, and how many kinds are left."""
    groups: dict[tuple[str, str, str, float], list[Failure]] = defaultdict(list)
    for failure in failures:
        groups[failure.loss, failure.table, failure.reason, failure.noise].append(failure)
    rows: list[Values] = []
    for (loss, table, reason, noise), found in list(groups.items())[:MOST_FAILURES]:
        folds = list(dict.fromkeys(failure.fold for failure in found))
        wrong = f" ({share_text(noise)} wrong labels)" if noise else ""
        rows.append(
            {
                "loss": loss_name(loss),
                "table": table + wrong,
                "runs": len(found),
                "folds": ", ".join(folds[:12]) + (" …" if len(folds) > 12 else ""),
                "reason": reason,
            }
        )
    return rows, max(0, len(groups) - MOST_FAILURES)


def test_table(board: TableBoard) -> list[Values]:
    """Every test of one table, with its numbers."""
    rows: list[Values] = []
    for entry in board.entries:
        tests = [(entry.test, entry.adjusted_p), (entry.second_test, None)]
        rows += [_test_row(entry.name, test, p) for test, p in tests if test is not None]
    return rows


def _test_row(name: str, test: PairedTest, adjusted: float | None) -> Values:
    return {
        "name": name,
        "test": test.test,
        "note": test.note,
        "statistic": f"{test.statistic:.3g}".replace("-", "−"),
        "freedom": ", ".join(f"{number:g}" for number in test.degrees_of_freedom) or "–",
        "p": p_value_text(test.p_value),
        "adjusted": p_value_text(adjusted),
        "interval": _interval(test.interval),
    }


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
    for failure in failures[:MOST_LINES]:
        words = f"{failure['loss']} on {failure['table']}: {failure['runs']} failed: "
        console.print(Padding(_text(words + failure["reason"], "red"), (0, 0, 0, 2)))
    if len(failures) > MOST_LINES:
        console.print(_text(f"… and {len(failures) - MOST_LINES} more kinds of failure.", "red"))


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
