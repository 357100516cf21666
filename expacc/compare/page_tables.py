"""The tables of a study, as plain values for page and terminal: numbers become text here."""

import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from expacc.compare.leaderboard import Leaderboard
from expacc.compare.leaderboard_table import Entry, Failure, TableBoard
from expacc.compare.overall import Overall, OverallEntry
from expacc.compare.page_rows import cells_of, place_of
from expacc.compare.record import NETWORK, StudyRecord, majority_of
from expacc.compare.standing import LAST, STOPPED_ACCURACY
from expacc.compare.suspects import SourceRows
from expacc.plain import plain
from expacc.report.words import (
    MAJORITY,
    NETWORKS,
    NONE,
    NULL,
    OUTSIDE,
    REFERENCE,
    SCIKIT_LEARN,
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

if TYPE_CHECKING:  # they draw, which a terminal does not ask for
    from expacc.compare.figures_runs import Changed, Confusion

MOST_ROWS = 12  # of a list of changed rows
MOST_FAILURES = 30
Values = dict[str, Any]
_NOTES = {REFERENCE: "reference", **dict.fromkeys(OUTSIDE, "scikit-learn")}
_NOTES |= {MAJORITY: "", NETWORKS: "expacc", NULL: "what chance does, p not adjusted"}


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
    first: Sequence[Values],
    *,
    interval: tuple[float, float] | None,
    against: Entry | WinTieLoss,
    error: float | None,
) -> Values:
    """A line of a leaderboard; on a phone ``small`` cells stand below the others, labelled."""
    compared = entry.difference is not None
    counts = f"{against.wins} / {against.ties} / {against.losses}"
    return {
        "loss": entry.loss,
        "name": entry.name,
        "verdict": entry.verdict,
        "note": note,
        "cells": [
            *first,
            {
                "value": points(entry.difference),
                "mark": entry.verdict if entry.verdict in ("better", "worse", "even") else "",
                "more": _interval(interval),
            },
            {"value": p_value_text(entry.adjusted_p), "small": "p"},
            {"value": counts if compared else NONE, "small": "w/t/l"},
            {"value": percent(error), "small": "calibr."},
            {"value": duration(entry.seconds), "small": "time"},
        ],
    }


def board_table(board: TableBoard) -> tuple[list[Values], list[Values]]:
    """The head and the rows of one table's leaderboard."""
    paired = board.protocol.kind == "test"
    known = {name for entry in board.entries for name in entry.metrics}
    extra = [(name, head) for name, head in _EXTRA.items() if name in known]
    rows = [
        _row(
            entry,
            _note(entry, len(board.folds)),
            [
                {
                    "value": percent(entry.accuracy)
                    + (f" ± {percent(entry.spread)}" if entry.spread is not None else ""),
                    "more": f"always {plain(entry.says, 30)!r}"
                    if entry.says and entry.loss != MAJORITY
                    else "",
                },
                {"value": percent(entry.metrics.get("balanced_accuracy")), "small": "balanced"},
                *(
                    {"value": percent(entry.metrics.get(name)), "small": head[0]}
                    for name, head in extra
                ),
            ],
            interval=entry.test.interval if entry.test else None,
            against=entry,
            error=entry.metrics.get("calibration_error"),
        )
        for entry in board.entries
    ]
    first = [("accuracy", "% ± spread"), ("balanced", "%"), *(head for _, head in extra)]
    head = _head(first, "seeds" if paired else "folds", "with search")
    if paired:  # room for two columns more; classes.csv and the page's charts have these
        for row in rows:
            del row["cells"][-2], row["cells"][1]
        head = [one for one in head if one["label"] not in ("balanced", "calibration error")]
    return head, rows


_EXTRA = {
    LAST: ("last round", "%"),
    STOPPED_ACCURACY: ("stopped", "%"),
    "wrong_label_accuracy": ("learnt", "% of wrong"),
}


def _note(entry: Entry, folds: int) -> str:
    """What stands below a loss's name: the reference, a failure, or what is missing."""
    if entry.failures:
        runs = "run" if len(entry.failures) == 1 else "runs"
        done = "" if len(entry.folds) == folds else f", {len(entry.folds)} of {folds} folds scored"
        return f"{len(entry.failures)} failed {runs}{done}"
    note = _NOTES.get(entry.loss, "")
    if entry.loss == MAJORITY and entry.says:
        note = f"always {plain(entry.says, 30)!r}"
    if len(entry.folds) < folds:
        part = f"{len(entry.folds)} of {folds} folds"
        return f"{note}, {part}" if entry.loss in OUTSIDE else f"{part} so far"
    return note


def overall_table(overall: Overall) -> tuple[list[Values], list[Values]]:
    """The head and the rows of the leaderboard over several tables."""
    first = [("mean rank", f"{len(overall.tables)} tables"), ("accuracy", "%, mean")]
    outside = overall.outside
    stopped = any(entry.last_accuracy is not None for entry in overall.entries)
    first += [_EXTRA[LAST]] if stopped else []
    rows = [
        _row(
            entry,
            _NOTES.get(entry.loss, ""),
            [
                {"value": NONE if entry in outside else f"{entry.mean_rank:.2f}"},
                {"value": percent(entry.accuracy)},
                *([{"value": percent(entry.last_accuracy), "small": "last round"}] * stopped),
            ],
            interval=entry.interval,
            against=entry.against,
            error=entry.calibration_error,
        )
        for entry in (*overall.entries, *outside)
    ]
    return _head(first, "tables", "all tables"), rows


def results_table(record: StudyRecord, board: Leaderboard) -> Values:
    """Tables × losses for studies of several tables."""
    found = {entry.loss for one in board.boards for entry in one.entries} - {MAJORITY}
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
        code, share = majority_of(facts)
        rows.append(
            {
                "table": one.table,
                "target": one.target,
                "rows": facts.rows,
                "classes": len(facts.classes),
                "share": percent(share),
                "majority": facts.classes[code],
                "cells": cells,
            }
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


def confusion_table(
    found: "Confusion",
    winner: str,
    table: str,
    source: SourceRows,
    importance: Mapping[str, float],
) -> Values:
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
        rows.append({"name": plain(name, 18), "cells": cells})

    def part(title: str, changed: Sequence["Changed"]) -> Values:
        more = f", the clearest {MOST_ROWS}" if len(changed) > MOST_ROWS else ""
        rows = [
            {
                "row": row,
                "place": place_of(source, row.row),
                "cells": cells_of(source, row.row, importance),
            }
            for row in changed[:MOST_ROWS]
        ]
        return {"title": f"{title}: {len(changed)}{more}", "rows": rows}

    # A row may be right in some repeats and wrong in others, so gains are sums of shares.
    net = sum(row.winner_right - row.reference_right for row in (*found.gained, *found.lost))
    return {
        "winner": winner,
        "table": table,
        "classes": [plain(name, 18) for name in found.classes],
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


@dataclass(frozen=True)
class NextStep:
    """What to do now: in words, and the command."""

    what: str
    command: str


def next_steps(record: StudyRecord, board: Leaderboard) -> tuple[NextStep, ...]:
    """How to train what is recommended and how to predict with it; none without an answer."""
    answer = board.answer
    if not answer.choice:
        return ()
    several = len(record.tables) > 1
    path = str(record.settings.get("model", "linear"))
    if path == NETWORK:
        from expacc.compare.networks_words import network_steps

        return tuple(NextStep(*step) for step in network_steps(record, answer.choice))
    if "." in path or ":" in path:  # a classifier that no file holds
        from expacc.compare.models import in_python

        loss = next(loss for loss in record.settings["losses"] if loss_name(loss) == answer.choice)
        what = f"Train {answer.choice} on all rows, in Python:"
        return (NextStep(what, plain(in_python(path, loss))),)
    table = "TABLE" if several else next(iter(record.tables))
    fit = record.next_step or "expacc fit TABLE.csv --from STUDY"
    model = shlex.quote(plain(f"expacc-{table}-model"))
    rows = "rows of one of the tables" if several else "rows"
    steps = [
        NextStep(f"Train {answer.choice} on all {rows}:", fit),
        NextStep("Predict new rows:", f"expacc predict {model} NEW.csv -o predicted.csv"),
    ]
    if answer.one_class:
        hint = (
            "No loss learnt from these columns: others, or more rows, would help more than a loss."
        )
        steps.insert(0, NextStep(hint, ""))
    if answer.instead == NETWORKS:
        files = fit.partition(" --from ")[0]  # by itself fit trains the networks
        target = "" if several else shlex.join(["--target", plain(record.tables[table].target)])
        steps.insert(
            0, NextStep("Train the networks that did better:", f"{files} {target}".strip())
        )
    if answer.instead in SCIKIT_LEARN:
        name = SCIKIT_LEARN[answer.instead]
        module = "linear_model" if name.startswith("Logistic") else "ensemble"
        first = NextStep(
            f"The {loss_name(answer.instead)} that did better, in Python:",
            f"from sklearn.{module} import {name}",
        )
        steps.insert(0, first)
    return tuple(steps)
