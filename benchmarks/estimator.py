"""The linear AccuracyClassifier against LogisticRegression(): accuracy, calibration, many tables.

Standardised features, the same five stratified folds for both, nothing tuned by hand; with --noise,
a share of the training labels is wrong. Tables: those inside scikit-learn and, with --data, every
table of the folders given (exact-uci and uci121 as in docs/tables.md). With --losses each of them
is the estimator's loss in turn, which is how its default was chosen. --speed times all our fits.
"""

import argparse
import json
import resource
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from contest import prepared
from machine import RESULTS, facts
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn import datasets
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

from expacc.data import Preprocessor, flip_labels, read_table
from expacc.estimator import AccuracyClassifier
from expacc.estimator.calibration import expected_calibration_error

BIG, LARGEST_LOSS, CALIBRATION_RATIO = 500, 2.0, 1.5
DEFAULT = AccuracyClassifier().loss

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


def of_uci121(folder: Path) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    for each in sorted(folder.iterdir()):
        if each.is_dir():
            table = prepared(each)
            features = np.stack([column.values for column in table.columns], 1)
            yield f"uci121 {table.name}", features, table.target.codes


def compare(
    features: np.ndarray, labels: np.ndarray, losses: list[str], noise: float
) -> dict[str, float]:
    """Mean accuracy (%), calibration error (%) and seconds of all, over five folds."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")  # rare classes, and logistic regression's own limit of steps
    rows = []
    folds = StratifiedKFold(5, shuffle=True, random_state=0).split(features, labels)
    for number, (train, test) in enumerate(folds):
        scaler = StandardScaler().fit(features[train])
        x, x_test = scaler.transform(features[train]), scaler.transform(features[test])
        given = flip_labels(
            labels[train], noise, classes=int(labels.max()) + 1, seed=number, name="estimator"
        )[0]
        row = []
        fast = [AccuracyClassifier(loss, effort="fast") for loss in losses]
        for model in (LogisticRegression(), *fast):
            start = time.perf_counter()
            model.fit(x, given)
            seconds = time.perf_counter() - start
            place = {label: code for code, label in enumerate(model.classes_)}
            codes = np.array([place.get(label, -1) for label in labels[test]])
            probability = model.predict_proba(x_test)
            right = np.mean(probability.argmax(1) == codes)
            row += [100 * right, 100 * expected_calibration_error(probability, codes), seconds]
        rows.append(row)
    whom = ["lr", "ours"] if losses == [DEFAULT] else ["lr", *losses]
    names = [f"{who}_{what}" for who in whom for what in ("accuracy", "ece", "seconds")]
    return dict(zip(names, np.mean(rows, axis=0).tolist(), strict=True))


SPEEDS = {  # rows, classes: seconds that a fit may take on two cores
    "full": {(2_000, 2): 5, (10_000, 5): 20, (100_000, 2): 60},
    "fast": {(2_000, 2): 1.5, (10_000, 5): 1.5, (100_000, 2): 60},
}


def fit_and_predict(effort: str, rows: int, classes: int) -> dict[str, float]:
    """Seconds of a fit and of 100,000 predictions, and the memory of the fit over the table's."""
    x, y = datasets.make_classification(
        rows, 20, n_informative=10, n_classes=classes, flip_y=0.05, random_state=0
    )
    AccuracyClassifier(effort=effort).fit(x[:500], y[:500])  # what is loaded once
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = clocks()
    model = AccuracyClassifier(effort=effort).fit(x, y)
    seconds = [stop - begin for begin, stop in zip(start, clocks(), strict=True)]
    memory = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    many = np.resize(x, (100_000, 20))
    model.predict(many[:1000])
    begin = time.perf_counter()
    model.predict(many)
    return {
        "cpu": seconds[0],
        "clock": seconds[1],
        "predict": time.perf_counter() - begin,
        "memory": memory / x.nbytes,
    }


def clocks() -> tuple[float, float]:
    return time.process_time(), time.perf_counter()


def speed() -> dict[str, dict[str, float]]:
    """Every kind of fit in a process of its own, beside what it may take."""
    found = {}
    for effort, bars in SPEEDS.items():
        for (rows, classes), bar in bars.items():
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                one = pool.submit(fit_and_predict, effort, rows, classes).result()
            found[f"{effort}, {rows} x 20, {classes} classes"] = {**one, "bar": bar}
    return found


def write(path: Path, summary: dict, tables: dict) -> None:
    content = {"machine": facts(), "summary": summary, "tables": tables}
    path.write_text(json.dumps(content, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with exact-uci and uci121")
    parser.add_argument("--least-rows", type=int, default=0, help="leave out smaller tables")
    parser.add_argument("--most-rows", type=int, default=10**9, help="leave out larger tables")
    parser.add_argument(
        "--add", action="store_true", help="keep tables measured before, as far as left out"
    )
    parser.add_argument("--noise", type=float, default=0.0, help="share of wrong training labels")
    parser.add_argument("--losses", help="names with commas between, to compare them")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--speed", action="store_true", help="of fits, and nothing else")
    parser.add_argument("--dry-run", action="store_true", help="write no result file")
    options = parser.parse_args()
    if options.speed:
        fits = speed()
        print(json.dumps(fits, indent=1))
        if not options.dry_run:
            write(RESULTS / "estimator-speed-cpu.json", {}, fits)
        return
    tables = list(inside_scikit_learn())
    if options.data:
        if find_spec("pyarrow"):  # which reads text
            tables += list(exact_uci(options.data / "exact-uci"))
        tables += list(of_uci121(options.data / "uci121"))
    losses = options.losses.split(",") if options.losses else [DEFAULT]
    part = "-losses" if options.losses else ""
    part += f"-noise-{options.noise:g}" if options.noise else ""
    path = RESULTS / f"estimator{part}-cpu.json"
    found = json.loads(path.read_text())["tables"] if options.add else {}
    chosen = [each for each in tables if options.least_rows <= len(each[2]) <= options.most_rows]
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        jobs = [pool.submit(compare, *each[1:], losses, options.noise) for each in chosen]
        for each, job in track(
            list(zip(chosen, jobs, strict=True)), description="fitting", transient=True
        ):
            found[each[0]] = {"rows": len(each[2]), **job.result()}
    if options.losses:
        leads = {
            loss: [row[f"{loss}_accuracy"] - row["lr_accuracy"] for row in found.values()]
            for loss in losses
        }
        summary = {
            loss: {"mean_gain": float(np.mean(lead)), "worst": min(lead)}
            for loss, lead in leads.items()
        }
        print(json.dumps({"tables": len(found), "noise": options.noise, **summary}, indent=1))
        if not options.dry_run:
            write(path, summary, found)
        return
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
        write(path, summary, found)
        console.print(f"written: {path}")


if __name__ == "__main__":
    main()
