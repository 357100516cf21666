"""All losses on many tables, clean and with wrong labels: each loss's mean lead over cross entropy.

    python benchmarks/contest.py DATA/uci121 --workers 16 --out contest

DATA is a folder of tables with folds of their own, as Klambauer et al. made them, or names such as
``digits`` (with --folds). It is the study of ``expacc compare``, and goes on where it stopped. Of
the tables of ``splits.json`` the losses' usual numbers were chosen on those for building.
"""

import argparse
import hashlib
import json
import lzma
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
from machine import RESULTS, facts
from sklearn import datasets

from expacc.compare.study import Settings, plan_study, run_study
from expacc.data.table import Column, Labels, Split, Table
from expacc.registry.spec import REFERENCE
from expacc.report.words import DEFAULT_LOSSES

BUILDING = frozenset(json.loads((RESULTS.parent / "splits.json").read_text())["building"])


def prepared(folder: Path) -> Table:
    """A table of Klambauer et al. with its four folds; read with NumPy alone."""

    def numbers(name: str) -> np.ndarray:
        path = folder / f"{name}_py.dat.xz"
        with lzma.open(path, "rt") if path.exists() else path.with_suffix("").open() as lines:
            return np.loadtxt(lines, delimiter=",", ndmin=2)

    tests, held = numbers("folds") > 0, numbers("validation_folds") > 0
    splits = tuple(
        Split(f"fold {k + 1}", *(np.flatnonzero(rows) for rows in (~test & ~kept, kept, test)))
        for k, (test, kept) in enumerate(zip(tests.T, held.T, strict=True))
    )
    return table(folder.name, numbers(folder.name), numbers("labels")[:, 0], splits)


def table(
    name: str, features: np.ndarray, labels: np.ndarray, given: tuple[Split, ...] = ()
) -> Table:
    columns = tuple(Column(f"{k + 1}", "number", x) for k, x in enumerate(features.T.copy()))
    codes = labels.astype(np.int64)
    target = Labels("class", tuple(map(str, range(codes.max() + 1))), codes)
    digest = hashlib.sha256(features.tobytes() + codes.tobytes()).hexdigest()
    rows = np.arange(len(codes))
    return Table(name, columns, target, len(rows), rows, sha256=digest, given=given)


def accuracies(rows) -> dict[float, dict[str, dict[str, float]]]:
    """Share of wrong labels → table → loss → mean accuracy of folds and runs, in per cent."""
    found = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in rows:
        if row.kind == "final":
            if row.failure:
                print(f"{row.table}, {row.loss}: {row.failure}", file=sys.stderr)
            score = 0.0 if row.failure else 100 * row.metrics["accuracy"]
            found[row.noise][row.table][row.loss].append(score)
    return {
        noise: {
            table: {loss: float(np.mean(scores)) for loss, scores in losses.items()}
            for table, losses in tables.items()
        }
        for noise, tables in found.items()
    }


def summary(tables: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Per loss its mean, its mean lead over cross entropy with a standard error, and counts."""
    if not tables:
        return {}
    found = {}
    for loss in next(iter(tables.values())):
        scores = np.array([each[loss] for each in tables.values()])
        lead = scores - [each[REFERENCE] for each in tables.values()]
        found[loss] = {
            "mean": round(float(scores.mean()), 2),
            "lead": round(float(lead.mean()), 2),
            "error": round(float(lead.std(ddof=1) / len(lead) ** 0.5), 2) if len(lead) > 1 else 0.0,
            "better": int((lead > 0).sum()),
            "worse": int((lead < 0).sum()),
            "worst": round(float(lead.min()), 2),
        }
    return dict(sorted(found.items(), key=lambda each: -each[1]["lead"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+", help="folders of tables, or names such as digits")
    parser.add_argument("--folds", default="holdout")
    parser.add_argument("--noise", default="0,0.2", help="shares of wrong training labels")
    parser.add_argument("--losses", help="names with commas between; default: those of compare")
    parser.add_argument("--workers", type=int, help="processes; default: one a core")
    parser.add_argument("--only", choices=("building", "reporting"), help="part of splits.json")
    parser.add_argument("--out", default="expacc-contest", help="folder of the study")
    parser.add_argument("--save", metavar="NAME", help="write results/NAME.json")
    options = parser.parse_args()
    tables = []
    for data in options.data:
        folder = Path(data)
        tables += (
            [prepared(each) for each in sorted(folder.iterdir()) if each.is_dir()]
            if folder.is_dir()
            else [table(data, *getattr(datasets, f"load_{data}")(return_X_y=True))]
        )
    if options.only:
        tables = [t for t in tables if (t.name in BUILDING) == (options.only == "building")]
    settings = Settings(
        losses=tuple(options.losses.split(",")) if options.losses else DEFAULT_LOSSES,
        folds=options.folds,
        label_noise=tuple(map(float, options.noise.split(","))),
        references="none",
    )
    start = time.perf_counter()
    record, _ = run_study(
        plan_study(tables, settings),
        options.out,
        workers=options.workers,
        progress=sys.stderr.isatty(),
    )
    found = accuracies(record.rows)
    result = {
        "machine": facts(workers=options.workers, seconds=round(time.perf_counter() - start)),
        "settings": {"folds": options.folds, "tables": len(tables)},
        "means": {
            f"{noise:g}": {
                "all": summary(scores),
                "building": summary({t: s for t, s in scores.items() if t in BUILDING}),
                "reporting": summary({t: s for t, s in scores.items() if t not in BUILDING}),
            }
            for noise, scores in found.items()
        },
    }
    print(json.dumps(result, indent=1))
    if options.save:
        path = RESULTS / f"{options.save}.json"
        by_noise = {f"{noise:g}": scores for noise, scores in found.items()}
        path.write_text(json.dumps({**result, "tables": by_noise}, indent=1) + "\n")


if __name__ == "__main__":
    main()
