"""What `expacc compare` makes of a folder of tables as they are: target, baselines, losses, time.

    python benchmarks/trial.py FOLDER --out trial.json
    python benchmarks/trial.py FOLDER --target titanic=Survived --target mails=v1 --folds 5x2

Every file of the folder is read without a word on it, as a newcomer would. Where the target is not
plain, the question is noted and, unless ``--target`` names one, its first candidate is taken.
Results are written after each table.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from machine import facts, heading
from rich.console import Console
from rich.table import Table

from expacc.compare.leaderboard import leaderboard
from expacc.compare.study import Settings, plan_study, run_study
from expacc.data import TableError, find_tables
from expacc.plain import UsageError
from expacc.report.words import FOREST, LOGISTIC, MAJORITY, REFERENCE, TREES

BESIDE = {MAJORITY: "majority", LOGISTIC: "logistic", FOREST: "forest", TREES: "trees"}
NARROW = ("table", "target", "classes", *BESIDE.values(), "cross entropy", "best loss", "seconds")


def read(found: Any, target: str | None) -> tuple[Any, dict[str, Any]]:
    """A table, and what was asked of its target."""
    try:
        return found.read(**({"target": target} if target else {})), {}
    except TableError as error:
        candidates = [one.name for one in getattr(error, "candidates", ())]
        asked = {"asked": str(error), "candidates": candidates}
        return (found.read(target=candidates[0]) if candidates else None), asked


def trial(
    found: Any, target: str | None, settings: Settings, workers: int | None
) -> dict[str, Any]:
    """All that is told of one table."""
    start = time.perf_counter()
    told: dict[str, Any] = {"table": found.name}
    try:
        table, asked = read(found, target)
        told |= asked
        if table is None:
            return told
        told |= {"target": table.target.name, "rows": table.rows}
        told |= {"classes": len(table.target.classes)}
        told |= {"left_out": {one.name: one.why for one in table.dropped}}
        told |= {"notes": list(table.notes)}
        with tempfile.TemporaryDirectory() as folder:
            record, outcome = run_study(
                plan_study([table], settings), folder, workers=workers, progress=False
            )
    except (UsageError, TableError) as error:
        return {**told, "refused": str(error)}
    board = leaderboard(record)
    (one,) = board.boards
    scores = {
        entry.loss: {
            "accuracy": round(entry.accuracy, 4),
            "balanced": round(entry.metrics.get("balanced_accuracy", 0.0), 4),
            "seconds": round(entry.seconds, 1),
        }
        for entry in one.entries
        if entry.accuracy is not None
    }
    for name, short in BESIDE.items():
        told[short] = scores.get(name, {}).get("accuracy")
    told["cross entropy"] = scores[REFERENCE]["accuracy"] if REFERENCE in scores else None
    best = one.losses[0]
    told |= {"best": best.accuracy, "best loss": f"{best.name} {100 * (best.accuracy or 0):.1f}"}
    told |= {"answer": [board.answer.sentence, *board.answer.also], "scores": scores}
    outside = sum(one["seconds"] for name, one in scores.items() if name in BESIDE)
    told |= {"references' share of time": round(outside / outcome.busy, 3) if outcome.busy else 0}
    return {**told, "seconds": round(time.perf_counter() - start, 1)}


def cell(value: object) -> str:
    return f"{100 * value:.1f}" if isinstance(value, float) and value <= 1 else str(value or "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", action="append", default=[], metavar="TABLE=COLUMN")
    parser.add_argument("--folds", default="5x3")
    parser.add_argument("--trials", type=int)
    parser.add_argument("--model", default="linear")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--out", type=Path, default=Path("trial.json"))
    asked = parser.parse_args()
    targets = dict(word.split("=", 1) for word in asked.target)
    settings = Settings(model=asked.model, trials=asked.trials, folds=asked.folds)
    about = facts(folds=asked.folds, trials=asked.trials, model=asked.model)
    console = Console(width=180)
    console.print(heading(about))
    tables, notes = find_tables(str(asked.folder))
    told = []
    for found in tables:
        console.print(f"{found.name} …")
        told.append(trial(found, targets.get(found.name), settings, asked.workers))
        one = told[-1]
        for line in (one.get("asked"), one.get("refused"), *one.get("answer", ())):
            if line:
                console.print(f"  {line}", soft_wrap=True, markup=False)
        asked.out.write_text(json.dumps({"facts": about, "tables": told}, indent=1) + "\n")
    shown = Table(*NARROW)
    for one in told:
        shown.add_row(*(cell(one.get(name)) for name in NARROW))
    console.print(shown)
    for note in notes:
        console.print(note)


if __name__ == "__main__":
    main()
