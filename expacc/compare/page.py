"""Rows, statistics and pictures → one HTML file that needs nothing else, and tables as files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from expacc.compare.answer import methods_text, setting_text
from expacc.compare.leaderboard import (
    Leaderboard,
    classes_csv,
    leaderboard,
    leaderboard_csv,
    leaderboard_json,
)
from expacc.compare.leaderboard_table import Entry
from expacc.compare.page_rows import class_table, suspect_table
from expacc.compare.page_tables import (
    board_table,
    confusion_table,
    failure_table,
    next_steps,
    overall_table,
    results_table,
    test_table,
)
from expacc.compare.record import StudyRecord, majority_of
from expacc.compare.suspects import SourceRows, Suspects, suspects, suspects_csv
from expacc.files import write_whole
from expacc.plain import plain
from expacc.report.words import (
    MAJORITY,
    NONE,
    OUTSIDE,
    REFERENCE,
    duration,
    looks,
    loss_name,
    p_value_text,
    percent,
    points,
    share_text,
)

MOST_NOISY = 6  # leaderboards with wrong labels on a page
BADGES = {
    "better": "Better than cross entropy",
    "keep": "Keep cross entropy",
    "unfinished": "No answer yet",
    MAJORITY: "No better than one class",
    **{name: f"Use {loss_name(name)} instead" for name in OUTSIDE if name != MAJORITY},
}


def write_report(record: StudyRecord, folder: str | Path, board: Leaderboard | None = None) -> Path:
    """Write report.html, leaderboard.json, leaderboard.csv, classes.csv and suspects.csv.

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
    write_whole(folder / "classes.csv", classes_csv(record, board))
    write_whole(folder / "suspects.csv", suspects_csv(record, found))
    path = folder / "report.html"
    write_whole(path, report_html(record, board, found))
    return path


def report_html(record: StudyRecord, board: Leaderboard, found: list[Suspects]) -> str:
    """The page as text: the same bytes for the same record."""
    from expacc.report.html import render  # it and matplotlib, only where a page is written

    return render("report.html", _page(record, board, found))


def _page(record: StudyRecord, board: Leaderboard, found: list[Suspects]) -> dict[str, Any]:
    from expacc.compare.page_charts import charts_of

    look = looks({REFERENCE, *OUTSIDE} | {row.loss for row in record.rows} | _asked(record))
    spotlight = board.spotlight
    winner = board.rival(spotlight)
    importance = {one.table: one.matters.importance for one in board.boards if one.matters}
    charts = charts_of(record, board, look)
    split = charts.confusion
    matrix = None
    if split is not None and winner is not None:
        source = SourceRows.of(record.tables[spotlight.table])
        cells = importance.get(spotlight.table, {})
        matrix = confusion_table(split, winner.name, spotlight.table, source, cells)
    overall = board.overall
    head, rows = overall_table(overall) if overall else board_table(board.boards[0])
    failures, failures_left = failure_table(board.failures)
    several = len(board.boards) > 1
    parts: dict[str, Any] = {
        "board": board,
        "badge": BADGES.get(board.answer.instead) or BADGES[board.verdict],
        "also": [*board.answer.also, *_noisy_sentences(board)],
        "title": f"{len(record.tables)} tables" if several else spotlight.table,
        "eyebrow": _eyebrow(record, board),
        "key_figures": _key_figures(record, board, winner),
        "steps": next_steps(record, board),
        "leaderboard_caption": _leaderboard_caption(board),
        "board_head": head,
        "board_rows": rows,
        "colours": {loss: style.colour for loss, style in look.items()},
        "notes": board.notes,
        "first_charts": charts.first,
        "noisy": _noisy(board),
        "columns": charts.columns,
        "classes": class_table(record, spotlight, _of_classes(board)) if winner else None,
        "results": results_table(record, board) if several else None,
        "charts": charts.runs,
        "confusion": matrix,
        "last_charts": charts.last,
        "suspects": suspect_table(record, found, importance),
        "failures": failures,
        "failures_left": failures_left,
        "command": record.command,
        "methods": methods_text(record),
        "tests": [] if several else _tests(board),
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


def _noisy_sentences(board: Leaderboard) -> list[str]:
    """The answers at the other shares of wrong labels, for the headline."""
    return [
        f"With {share_text(share)} of the training labels wrong: "
        + " ".join((answer.sentence, *answer.also))
        for share, answer in board.noisy_answers
    ]


def _noisy(board: Leaderboard) -> list[dict[str, Any]]:
    """A leaderboard for each of the other shares of wrong labels."""
    found: list[tuple[float, Any, Any]] = [
        (share, overall.answer, overall_table(overall)) for share, overall in board.noisy_overall
    ]
    if len(board.boards) == 1:
        found = [(one.noise, one.answer, board_table(one)) for one in board.noisy]
    return [
        {
            "title": f"{share_text(share)} of the training labels wrong",
            "sentences": [answer.sentence, *answer.also],
            "head": head,
            "rows": rows,
        }
        for share, answer, (head, rows) in found[:MOST_NOISY]
    ]


def _tests(board: Leaderboard) -> list[dict[str, Any]]:
    """Every test of one table, at each share of wrong labels."""
    return [
        {"title": f"{share_text(one.noise)} wrong labels" if board.noisy else "", "rows": rows}
        for one in (*board.boards, *board.noisy)
        if (rows := test_table(one))
    ]


def _of_classes(board: Leaderboard) -> list[Entry]:
    """Whose accuracies are told class by class: the best losses, cross entropy, the best beside."""
    one = board.spotlight
    rival, reference, outside = board.rival(one), one.entry(REFERENCE), one.best_outside
    chosen = [rival, reference, outside]
    return [entry for entry in chosen if entry is not None and entry.accuracy is not None]


def _asked(record: StudyRecord) -> set[str]:
    return {str(loss) for loss in record.settings.get("losses", ())}


def _eyebrow(record: StudyRecord, board: Leaderboard) -> str:
    facts = next(iter(record.tables.values()))
    what = f"{len(record.tables)} tables"
    if len(record.tables) == 1:
        target = f", predicting {facts.target!r}" if facts.target else ""
        code, share = majority_of(facts)
        what = f"{facts.name}{target}: {facts.rows:,} rows, {len(facts.classes)} classes"
        what += f", always {plain(facts.classes[code], 40)!r} {percent(share)} %"
    losses = len([e for e in board.boards[0].entries if e.loss not in OUTSIDE])
    return f"expacc compare · {what} · {losses} losses · {board.boards[0].protocol.text}"


def _key_figures(
    record: StudyRecord, board: Leaderboard, winner: Entry | None
) -> list[dict[str, str]]:
    """What the first screen shows: what is predicted, from which baseline, how far one gets."""
    overall, one = board.overall, board.boards[0]
    if overall is not None:
        best = overall.entries[0]
        reference = next(e for e in overall.entries if e.loss == REFERENCE)
        rival = best if best is not reference else overall.entries[1]
        targets = list(dict.fromkeys(facts.target for facts in record.tables.values()))
        shown = ", ".join(repr(target) for target in targets[:3])
        figures = [
            _figure("predicted", f"{len(targets)} columns" if targets[1:] else shown, shown),
            _figure("best mean rank", f"{best.mean_rank:.2f}", best.name),
            _figure("cross entropy", f"{reference.mean_rank:.2f}", "mean rank"),
            _figure(
                f"{rival.name}, mean difference",
                points(rival.difference),
                f"points, p = {p_value_text(rival.adjusted_p)}".replace("= <", "<"),
            ),
        ]
        beside = {entry.loss: entry for entry in overall.outside}
        majority = beside.pop(MAJORITY, None)
        if majority is not None:
            figures.append(
                _figure("baseline", f"{percent(majority.accuracy)} %", "most frequent class, mean")
            )
        if beside:
            top = next(iter(beside.values()))
            figures.append(
                _figure("beside the losses", f"{percent(top.accuracy)} %", f"{top.name}, mean")
            )
        return figures
    if len(board.boards) > 1:
        return [*_effort(record, board)]
    facts = record.tables[one.table]
    code, share = majority_of(facts)
    size = f"{len(facts.classes)} classes, {facts.rows:,} rows"
    figures = [
        _figure("predicted column", facts.target or NONE, size),
        _figure("baseline", f"{percent(share)} %", f"always {plain(facts.classes[code], 40)!r}"),
    ]
    reference_entry, outside = one.entry(REFERENCE), one.best_outside
    if winner is not None:
        more = winner.name
        if winner.test is not None:
            low, high = (points(end) for end in winner.test.interval)
            more += f": {points(winner.difference)} points ({low} to {high})"
            p_value = p_value_text(winner.adjusted_p)
            more += f", p {'' if p_value.startswith('<') else '= '}{p_value}"
        figures.append(_figure("best other loss", f"{percent(winner.accuracy)} %", more))
    if reference_entry is not None:
        shown = f"{percent(reference_entry.accuracy)} %"
        figures.append(_figure("cross entropy", shown, "reference"))
    if outside is not None:
        shown = f"{percent(outside.accuracy)} %"
        figures.append(_figure("beside the losses", shown, f"{outside.name}, not tested"))
    if one.matters is not None:
        name, drop = next(iter(one.matters.importance.items()))
        more = f"{points(-drop)} points without it" if drop >= 0.0005 else "no column costs any"
        figures.append(_figure("matters most", name if drop >= 0.0005 else NONE, more))
    return [*figures, *_effort(record, board)][:6]


def _effort(record: StudyRecord, board: Leaderboard) -> list[dict[str, str]]:
    failed = f"{len(board.failures)} failed" if board.failures else "none failed"
    return [
        _figure("runs", str(board.runs), failed),
        _figure("time", duration(record.seconds), record.started),
    ]


def _figure(label: str, value: str, more: str) -> dict[str, str]:
    return {"label": label, "value": value, "more": more}


def _leaderboard_caption(board: Leaderboard) -> str:
    one = board.boards[0]
    noise = f" {share_text(one.noise)} of the training labels were replaced." if one.noise else ""
    if board.overall is not None:
        return (
            "Losses by mean rank over the tables. The difference is to cross entropy, with a 95 % "
            "interval over tables for that comparison alone, not adjusted; p is adjusted for the "
            "number of losses. Green is better and orange worse than cross entropy beyond chance; "
            f"grey is not told apart. What was run beside the losses is not tested.{noise}"
        )
    if len(board.boards) > 1:
        return (
            f"Too few tables are finished to rank the losses; this is {plain(one.table)} alone."
            f"{noise}"
        )
    if one.protocol.kind == "test":
        what = (
            "Mean test accuracy at the last epoch and its spread over seeds; stopped is that at "
            "the epoch which the held-out rows like best, learnt the share of the wrong training "
            "labels that the network says. "
        )
    else:
        what = (
            "Mean test accuracy and its spread over folds; balanced is the mean of the accuracies "
            "on each class. "
        )
    return (
        f"{what}The difference is to cross entropy, with a 95 % interval for that comparison "
        "alone, not adjusted; p is adjusted for the number of losses. Green is better and orange "
        "worse than cross entropy beyond chance; grey is not told apart. What was run beside the "
        f"losses is not tested.{noise}"
    )


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
        "noise": "Falling accuracy",
        "columns": "Which columns",
        "curves": "Training curves",
        "reliability": "Reliability",
        "search": "Search",
    }

    def charts(name: str) -> list[tuple[str, str]]:
        return [(chart.key, short[chart.key]) for chart in parts[name]]

    listed = [("answer", "The answer")]
    listed += [("next", "What now")] if parts["steps"] else []
    listed += [("leaderboard", "Leaderboard")]
    listed += [("noisy", "With wrong labels")] if parts["noisy"] else []
    listed += charts("columns")
    listed += [("classes", "By class")] if parts["classes"] else []
    listed += charts("first_charts")
    listed += [("results", "Every table")] if parts["results"] else []
    listed += charts("charts")
    listed += [("confusion", "What changed")] if parts["confusion"] else []
    listed += charts("last_charts")
    listed += [("suspects", "Suspect labels")] if parts["suspects"] else []
    listed += [("failures", "Failed runs")] if parts["failures"] else []
    return [*listed, ("protocol", "How it was measured")]
