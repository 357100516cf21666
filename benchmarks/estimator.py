"""AccuracyClassifier() against LogisticRegression(): accuracy and calibration on many tables.

Standardised features, the same five stratified folds for both, nothing tuned by hand. Tables: those
inside scikit-learn and, with --data, every table of the folders given (exact-uci and uci121 as in
docs/tables.md).
"""

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from machine import RESULTS, facts
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn import datasets
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

from expacc.data import Preprocessor, find_tables, read_table
from expacc.estimator import AccuracyClassifier
from expacc.estimator.calibration import expected_calibration_error

BIG, LARGEST_LOSS, CALIBRATION_RATIO = 500, 2.0, 1.5

# How the files of exact-uci are read: the options a person would give.
EXACT_UCI = {
    "adult": ("adult.data", {"header": False}),
    "annealing": ("anneal.data", {"header": False}),
    "balance-scale": ("balance-scale.data", {"header": False, "target": 1}),
    "breast-cancer-wisconsin": ("wdbc.data", {"header": False, "target": 2, "drop": (1,)}),
    "car": ("car.data", {"header": False}),
    "dry-bean": ("Dry_Bean_Dataset.xlsx", {}),
    "wine": ("wine.data", {"header": False, "target": 1}),
}


def inside_scikit_learn() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    for name in ("iris", "wine", "breast_cancer", "digits"):
        yield f"sklearn {name}", *getattr(datasets, f"load_{name}")(return_X_y=True)


def exact_uci(folder: Path) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    for name, (file, options) in EXACT_UCI.items():
        found = sorted((folder / name).glob(f"{file}*"))
        if found:
            table = read_table(found[0], **options)
            features = Preprocessor.fit(table).transform(table, dtype=np.float64)
            yield f"exact-uci {name}", features, np.asarray(table.labels.codes)


def prepared(folder: Path) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    for each in find_tables(folder)[0]:
        table = each.read()
        features = Preprocessor.fit(table).transform(table, dtype=np.float64)
        yield f"uci121 {table.name}", features, np.asarray(table.labels.codes)


def compare(features: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Mean accuracy (%), calibration error (%) and seconds of both, over five folds."""
    rows = []
    for train, test in StratifiedKFold(5, shuffle=True, random_state=0).split(features, labels):
        scaler = StandardScaler().fit(features[train])
        x, x_test = scaler.transform(features[train]), scaler.transform(features[test])
        row = []
        for model in (LogisticRegression(), AccuracyClassifier()):
            start = time.perf_counter()
            model.fit(x, labels[train])
            seconds = time.perf_counter() - start
            place = {label: code for code, label in enumerate(model.classes_)}
            codes = np.array([place.get(label, -1) for label in labels[test]])
            probability = model.predict_proba(x_test)
            right = np.mean(probability.argmax(1) == codes)
            row += [100 * right, 100 * expected_calibration_error(probability, codes), seconds]
        rows.append(row)
    names = [f"{who}_{what}" for who in ("lr", "ours") for what in ("accuracy", "ece", "seconds")]
    return dict(zip(names, np.mean(rows, axis=0).tolist(), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with exact-uci and uci121")
    parser.add_argument("--least-rows", type=int, default=0, help="leave out smaller tables")
    parser.add_argument("--most-rows", type=int, default=10**9, help="leave out larger tables")
    parser.add_argument(
        "--add", action="store_true", help="keep tables measured before, as far as left out"
    )
    parser.add_argument("--dry-run", action="store_true", help="write no result file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")  # rare classes, and logistic regression's own limit of steps
    tables = list(inside_scikit_learn())
    if options.data:
        tables += list(exact_uci(options.data / "exact-uci"))
        tables += list(prepared(options.data / "uci121"))
    path = RESULTS / "estimator-cpu.json"
    found = json.loads(path.read_text())["tables"] if options.add else {}
    for name, features, labels in track(tables, description="fitting", transient=True):
        if options.least_rows <= len(labels) <= options.most_rows:
            found[name] = {"rows": len(labels), **compare(features, labels)}
    console = Console()
    shown = Table(title="Five folds, standardised features: LogisticRegression() and ours")
    for title in ("table", "rows", "LR %", "ours %", "gain", "LR ECE", "our ECE", "LR s", "our s"):
        shown.add_column(title, justify="left" if title == "table" else "right")
    for name, row in found.items():
        shown.add_row(
            name,
            f"{row['rows']:,}",
            f"{row['lr_accuracy']:.2f}",
            f"{row['ours_accuracy']:.2f}",
            f"{row['ours_accuracy'] - row['lr_accuracy']:+.2f}",
            f"{row['lr_ece']:.1f}",
            f"{row['ours_ece']:.1f}",
            f"{row['lr_seconds']:.2f}",
            f"{row['ours_seconds']:.2f}",
        )
    console.print(shown)
    gains = {name: row["ours_accuracy"] - row["lr_accuracy"] for name, row in found.items()}
    large = {name: gain for name, gain in gains.items() if found[name]["rows"] >= BIG}
    worst = min(large, key=large.__getitem__)
    ece = [np.mean([row[f"{who}_ece"] for row in found.values()]) for who in ("lr", "ours")]
    summary = {
        "tables": len(found),
        "mean_gain": float(np.mean(list(gains.values()))),
        "worst_large": {worst: large[worst]},
        "ece_lr": float(ece[0]),
        "ece_ours": float(ece[1]),
    }
    console.print(
        f"{len(found)} tables: mean gain {summary['mean_gain']:+.2f} points (bar: >= 0); worst of "
        f"{BIG} rows or more: {worst} {large[worst]:+.2f} (bar: >= -{LARGEST_LOSS}); calibration "
        f"error {ece[1]:.2f} against {ece[0]:.2f} (bar: <= {CALIBRATION_RATIO} times)"
    )
    if not options.dry_run:
        path.write_text(
            json.dumps({"machine": facts(), "summary": summary, "tables": found}, indent=1) + "\n"
        )
        console.print(f"written: {path}")


if __name__ == "__main__":
    main()
