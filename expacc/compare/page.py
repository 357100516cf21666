"""Rows, statistics and pictures → one HTML file that needs nothing else, and tables as files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from expacc.compare.answer import methods_text, setting_text
from expacc.compare.figures_runs import confusion, curve_chart, reliability_chart, search_chart
from expacc.compare.figures_scores import (
    difference_chart,
    fold_chart,
    noise_chart,
    profile_chart,
    rank_chart,
    table_difference_chart,
)
from expacc.compare.leaderboard import Leaderboard, leaderboard, leaderboard_csv, leaderboard_json
from expacc.compare.leaderboard_table import Entry, TableBoard
from expacc.compare.page_tables import (
    board_table,
    confusion_table,
    failure_table,
    overall_table,
    results_table,
    test_table,
)
from expacc.compare.record import StudyRecord
from expacc.compare.suspects import Suspects, suspects, suspects_csv
from expacc.files import write_whole
from expacc.plain import plain
from expacc.report.figures import Chart
from expacc.report.html import render
from expacc.report.words import (
    OUTSIDE,
    REFERENCE,
    Look,
    duration,
    looks,
    loss_name,
    p_value_text,
    percent,
    points,
    share_text,
)
from expacc.runner.rows import Row

MOST_SUSPECTS = 20
MOST_LINES = 10  # that can be told apart in one chart
BADGES = {
    "better": "Better than cross entropy",
    "keep": "Keep cross entropy",
    "unfinished": "No answer yet",
}


def write_report(record: StudyRecord, folder: str | Path, board: Leaderboard | None = None) -> Path:
    """Write report.html, leaderboard.json, leaderboard.csv and suspects.csv.

    Each file appears whole or not at all; a study that still runs gets a report of what there is.

    Args:
        record: the study.
        folder: made if it does not exist.
        board: of this record, if it is at hand already.

    Returns:
        The path of report.html.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    board = board or leaderboard(record)
    found = [suspects(record, table) for table in record.tables]
    write_whole(folder / "leaderboard.json", leaderboard_json(record, board))
    write_whole(folder / "leaderboard.csv", leaderboard_csv(board))
    write_whole(folder / "suspects.csv", suspects_csv(record, found))
    path = folder / "report.html"
    write_whole(path, report_html(record, board, found))
    return path


def report_html(record: StudyRecord, board: Leaderboard, found: list[Suspects]) -> str:
    """The page as text: the same bytes for the same record."""
    return render("report.html", _page(record, board, found))


def _best_of_many(rows: Sequence[Row]) -> list[Row]:
    """Rows of the losses that lines can be told apart of: the best, and the reference."""
    scores: dict[str, list[float]] = {}
    for row in rows:
        if "accuracy" in row.metrics:
            scores.setdefault(row.loss, []).append(row.metrics["accuracy"])
    means = {loss: sum(found) / len(found) for loss, found in scores.items()}
    best = sorted(means, key=lambda loss: -means[loss])[:MOST_LINES]
    return [row for row in rows if len(means) <= MOST_LINES or row.loss in {REFERENCE, *best}]


def _page(record: StudyRecord, board: Leaderboard, found: list[Suspects]) -> dict[str, Any]:
    look = looks({REFERENCE, OUTSIDE} | {row.loss for row in record.rows} | _asked(record))
    spotlight = _spotlight(board)
    winner = _winner(board, spotlight)
    first = _first_charts(board, look, spotlight)
    least = record.noise_levels[0]
    finals = record.finals(noise=least)
    trials = [row for row in record.rows if row.kind == "trial" and row.noise == least]
    drawn = _best_of_many(finals)
    few = len(drawn) < len(finals)
    note = f" Drawn are the best {MOST_LINES} losses and cross entropy." if few else ""
    charts = [curve_chart(drawn, look, note), reliability_chart(record, drawn, look, note)]
    last = [search_chart([*trials, *finals], look)]
    matrix = None
    if winner is not None:
        own = [row for row in finals if row.table == spotlight.table]
        split = confusion(
            record.tables[spotlight.table],
            [row for row in own if row.loss == winner.loss],
            [row for row in own if row.loss == REFERENCE],
        )
        matrix = split and confusion_table(split, winner.name, spotlight.table)
    overall = board.overall
    head, rows = overall_table(overall) if overall else board_table(board.boards[0])
    failures, failures_left = failure_table(board.failures)
    several = len(board.boards) > 1
    parts: dict[str, Any] = {
        "board": board,
        "badge": BADGES[board.verdict],
        "title": f"{len(record.tables)} tables" if several else spotlight.table,
        "eyebrow": _eyebrow(record, board),
        "key_figures": _key_figures(record, board, winner),
        "leaderboard_caption": _leaderboard_caption(board),
        "board_head": head,
        "board_rows": rows,
        "colours": {loss: style.colour for loss, style in look.items()},
        "notes": board.notes,
        "first_charts": first,
        "results": results_table(record, board) if several else None,
        "charts": [chart for chart in charts if chart],
        "confusion": matrix,
        "last_charts": [chart for chart in last if chart],
        "suspects": _suspect_table(record, found),
        "failures": failures,
        "failures_left": failures_left,
        "command": record.command,
        "methods": methods_text(record),
        "tests": [] if several else test_table(board.boards[0]),
        "settings": [
            (str(k).replace("_", " "), setting_text(v)) for k, v in record.settings.items()
        ],
        "data": [
            {
                "name": facts.name,
                "size": f"{facts.rows} rows, {facts.features} features, "
                f"{len(facts.classes)} classes",
                "target": facts.target,
                "sha256": facts.sha256,
                "notes": facts.notes,
            }
            for facts in record.tables.values()
        ],
        "versions": list(record.versions.items()),
        "footer": _footer(record),
    }
    return {**parts, "contents": _contents(parts)}


def _asked(record: StudyRecord) -> set[str]:
    return {str(loss) for loss in record.settings.get("losses", ())}


def _first_charts(
    board: Leaderboard, look: Mapping[str, Look], spotlight: TableBoard
) -> list[Chart]:
    several = len(board.boards) > 1
    charts: list[Chart | None] = []
    if board.overall is not None:
        charts += [
            table_difference_chart(board.overall, look),
            rank_chart(board.overall.ranks, {loss_name(loss): one for loss, one in look.items()}),
            profile_chart(board.overall, look),
        ]
    if not several:
        charts += [fold_chart(spotlight, look), difference_chart(spotlight, look)]
    whose = f"the mean of {len(board.boards)} tables" if several else spotlight.table
    charts.append(noise_chart([*board.boards, *board.noisy], look, title_of=plain(whose)))
    return [chart for chart in charts if chart]


def _spotlight(board: Leaderboard) -> TableBoard:
    """The table to look at closely: the one on which a loss differs most from cross entropy."""

    def size(one: TableBoard) -> float:
        winner = _winner(board, one)
        return abs(winner.difference or 0.0) if winner else -1.0

    return max(board.boards, key=size)


def _winner(board: Leaderboard, one: TableBoard) -> Entry | None:
    """The loss to hold against cross entropy: the answer's choice, else the best of the others."""
    rivals = [e for e in one.entries if e.loss not in (REFERENCE, OUTSIDE) and e.folds]
    chosen = [e for e in rivals if e.name == board.answer.choice]
    return next(iter(chosen or rivals), None)


def _eyebrow(record: StudyRecord, board: Leaderboard) -> str:
    facts = next(iter(record.tables.values()))
    what = f"{len(record.tables)} tables"
    if len(record.tables) == 1:
        what = f"{facts.name}: {facts.rows} rows, {len(facts.classes)} classes"
    losses = len([e for e in board.boards[0].entries if e.loss not in OUTSIDE])
    return f"expacc compare · {what} · {losses} losses · {board.boards[0].protocol.text}"


def _key_figures(
    record: StudyRecord, board: Leaderboard, winner: Entry | None
) -> list[dict[str, str]]:
    figures = []
    if board.overall is not None:
        best = board.overall.entries[0]
        reference = next(e for e in board.overall.entries if e.loss == REFERENCE)
        rival = best if best is not reference else board.overall.entries[1]
        figures += [
            _figure("best mean rank", f"{best.mean_rank:.2f}", best.name),
            _figure("cross entropy", f"{reference.mean_rank:.2f}", "mean rank"),
            _figure(f"{rival.name}, mean difference", points(rival.difference), "points"),
            _figure("p, adjusted", p_value_text(rival.adjusted_p), "against cross entropy"),
        ]
    elif len(board.boards) == 1:
        one = board.boards[0]
        reference_entry = one.entry(REFERENCE)
        if winner is not None:
            shown = f"{percent(winner.accuracy)} %"
            figures.append(_figure("best other loss", shown, winner.name))
        if reference_entry is not None:
            shown = f"{percent(reference_entry.accuracy)} %"
            figures.append(_figure("reference", shown, reference_entry.name))
        if winner is not None and winner.test is not None:
            low, high = (points(end) for end in winner.test.interval)
            figures += [
                _figure("difference in points", points(winner.difference), f"{low} to {high}"),
                _figure("p, adjusted", p_value_text(winner.adjusted_p), winner.test.test),
            ]
    if len(figures) < 4:
        failed = f"{len(board.failures)} failed" if board.failures else "none failed"
        figures.append(_figure("runs", str(board.runs), failed))
        figures.append(_figure("time", duration(record.seconds), record.started))
    return figures


def _figure(label: str, value: str, more: str) -> dict[str, str]:
    return {"label": label, "value": value, "more": more}


def _leaderboard_caption(board: Leaderboard) -> str:
    one = board.boards[0]
    noise = f" {share_text(one.noise)} of the training labels were replaced." if one.noise else ""
    if board.overall is not None:
        return (
            "Losses by mean rank over the tables. The difference is to cross entropy, with a 95 % "
            "interval over tables; p is adjusted for the number of losses. Green is better and "
            f"orange worse than cross entropy beyond chance; grey is not told apart.{noise}"
        )
    if len(board.boards) > 1:
        return (
            f"Too few tables are finished to rank the losses; this is {plain(one.table)} alone."
            f"{noise}"
        )
    return (
        "Mean test accuracy and its spread over folds. The difference is to cross entropy, with a "
        "95 % interval; p is adjusted for the number of losses. Green is better and orange worse "
        f"than cross entropy beyond chance; grey is not told apart.{noise}"
    )


def _suspect_table(record: StudyRecord, found: list[Suspects]) -> dict[str, Any] | None:
    kept = [one for one in found if len(one.rows)]
    if not kept:
        return None
    total = sum(int(one.disbelieved.sum()) for one in kept)
    tested = sum(len(one.rows) for one in kept)
    listed = sorted(
        (
            (-float(one.score[i]), place, i)
            for place, one in enumerate(kept)
            for i in one.disbelieved.nonzero()[0][:MOST_SUSPECTS].tolist()
        )
    )[:MOST_SUSPECTS]
    rows = []
    for _, place, i in listed:
        one, facts = kept[place], record.tables[kept[place].table]
        rows.append(
            {
                "table": one.table,
                "row": int(one.rows[i]),
                "given": facts.classes[int(one.given[i])],
                "suggested": facts.classes[int(one.suggested[i])],
                "belief": f"{float(one.belief[i]) * 100:.1f}",
                "against": f"{int(one.against[i])} of {int(one.judged[i])}",
            }
        )
    judges = ", ".join(loss_name(loss) for loss in kept[0].losses)
    most = f" The {len(rows)} most suspect are listed." if total > len(rows) else ""
    return {
        "several": len(record.tables) > 1,
        "rows": rows,
        "caption": f"Of {tested} rows, {total} carry a label that no model trained for accuracy "
        f"predicted ({judges}; each model judged only rows that it was not trained on). Such a "
        f"label may be wrong, or the row may just be hard: look at it.{most} Rows are numbered "
        f"from 0; suspects.csv has every row that at least one model doubts.",
    }


def _footer(record: StudyRecord) -> str:
    started = f"Started {record.started}, " if record.started else ""
    version = record.versions.get("expacc", "")
    return f"{started}{duration(record.seconds)} of work. Made by expacc {version}".strip() + "."


def _contents(parts: Mapping[str, Any]) -> list[tuple[str, str]]:
    short = {
        "folds": "Folds",
        "differences": "Differences",
        "tables": "Differences",
        "ranks": "Critical differences",
        "profile": "Profile",
        "noise": "Wrong labels",
        "curves": "Training curves",
        "reliability": "Reliability",
        "search": "Search",
    }

    def charts(name: str) -> list[tuple[str, str]]:
        return [(chart.key, short[chart.key]) for chart in parts[name]]

    listed = [("answer", "The answer"), ("leaderboard", "Leaderboard"), *charts("first_charts")]
    listed += [("results", "Every table")] if parts["results"] else []
    listed += charts("charts")
    listed += [("confusion", "What changed")] if parts["confusion"] else []
    listed += charts("last_charts")
    listed += [("suspects", "Suspect labels")] if parts["suspects"] else []
    listed += [("failures", "Failed runs")] if parts["failures"] else []
    return [*listed, ("protocol", "How it was measured")]
