"""Ours against the classifiers that people take for tables, clean and with wrong labels.

    python benchmarks/tables.py --data DATA/uci121 --noise 0,0.2,0.4 --only building --workers 16

Every table's own folds; training and validation rows together are what a classifier is given, with
that share of the labels drawn at random (or, --kind next, moved to the next class); test labels are
as they are. Mean accuracy, mean rank, Wilcoxon's test of the first of ours against each, seconds to
fit and to predict. Which tables are for building and which for reporting: splits.json.
"""

import argparse
import json
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from contest import BUILDING, prepared
from machine import RESULTS, facts
from scipy.stats import rankdata, wilcoxon
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from expacc.estimator import AccuracyClassifier


def lightgbm():
    from lightgbm import LGBMClassifier

    return LGBMClassifier(verbose=-1, n_jobs=1)


MODELS = {
    "ours": AccuracyClassifier,
    "ours EXACT": lambda: AccuracyClassifier("exact"),
    "ours, networks that vote": lambda: AccuracyClassifier(hidden_layer_sizes="auto"),
    "ours 64 units": lambda: AccuracyClassifier("expected_error", hidden_layer_sizes=(64,)),
    "LogisticRegression": LogisticRegression,
    "SVC": SVC,
    "RandomForest": lambda: RandomForestClassifier(random_state=0),
    "RandomForest leaf 5": lambda: RandomForestClassifier(300, min_samples_leaf=5, random_state=0),
    "HistGradientBoosting": lambda: HistGradientBoostingClassifier(random_state=0),
    "HistGradientBoosting stopped": lambda: HistGradientBoostingClassifier(
        early_stopping=True, random_state=0
    ),
    **({"LightGBM": lightgbm} if find_spec("lightgbm") else {}),
}


def spoiled(labels: np.ndarray, share: float, kind: str, seed: int) -> np.ndarray:
    """Labels of which a share is drawn at random, or moved to the next class."""
    draw = np.random.default_rng(seed)
    wrong = draw.random(len(labels)) < share
    classes = int(labels.max()) + 1
    other = (labels + 1) % classes if kind == "next" else draw.integers(0, classes, len(labels))
    return np.where(wrong, other, labels)


def scores(folder: Path, names: list[str], noise: float, kind: str) -> dict[str, list[float]]:
    """Accuracy (%), seconds to fit and to predict of each model: means of the table's folds."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")  # of rare classes, and of limits of steps
    table = prepared(folder)
    features = np.stack([column.values for column in table.columns], 1)
    found = {name: [] for name in names}
    for number, split in enumerate(table.given):
        rows = np.sort(np.concatenate([split.train, split.validation]))
        scaler = StandardScaler().fit(features[rows])
        x, x_test = scaler.transform(features[rows]), scaler.transform(features[split.test])
        given = spoiled(table.target.codes[rows], noise, kind, number)
        for name in names:
            begin = time.perf_counter()
            model = MODELS[name]().fit(x, given)
            middle = time.perf_counter()
            right = model.predict(x_test) == table.target.codes[split.test]
            seconds = middle - begin, time.perf_counter() - middle
            found[name].append((100 * right.mean(), *seconds))
    return {name: np.mean(each, axis=0).tolist() for name, each in found.items()}


def summary(tables: dict[str, dict[str, list[float]]], names: list[str]) -> dict[str, dict]:
    """Means over tables, and the first of the names against each other one."""
    each = np.array([[table[name] for name in names] for table in tables.values()])
    ranks = rankdata(-each[:, :, 0], axis=1).mean(axis=0)
    found = {}
    for place, name in enumerate(names):
        lead = each[:, 0, 0] - each[:, place, 0]
        accuracy, fit, predict = each[:, place].mean(axis=0).tolist()
        found[name] = {
            "accuracy": round(accuracy, 2),
            "rank": round(float(ranks[place]), 2),
            "behind": round(float(lead.mean()), 2),
            "p": float(wilcoxon(lead).pvalue) if lead.any() else 1.0,
            "fit": fit,
            "predict": predict,
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of tables with folds")
    parser.add_argument("--noise", default="0,0.2,0.4")
    parser.add_argument("--kind", choices=("random", "next"), default="random")
    parser.add_argument("--only", choices=("building", "reporting"), help="part of splits.json")
    parser.add_argument("--tables", help="names with commas between")
    parser.add_argument("--models", help="names with commas between; default: all")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--save", metavar="NAME", help="write results/NAME.json")
    options = parser.parse_args()
    names = options.models.split(",") if options.models else list(MODELS)
    folders = [each for each in sorted(options.data.iterdir()) if each.is_dir()]
    if options.only:
        folders = [f for f in folders if (f.name in BUILDING) == (options.only == "building")]
    if options.tables:
        folders = [f for f in folders if f.name in options.tables.split(",")]
    levels = [float(share) for share in options.noise.split(",")]
    result = {"machine": facts(workers=options.workers), "kind": options.kind, "means": {}}
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        jobs = {
            (noise, folder.name): pool.submit(scores, folder, names, noise, options.kind)
            for noise in levels
            for folder in folders
        }
        tables = {
            f"{noise:g}": {f.name: jobs[noise, f.name].result() for f in folders}
            for noise in levels
        }
    result["means"] = {noise: summary(found, names) for noise, found in tables.items()}
    print(json.dumps(result, indent=1))
    if options.save:
        path = RESULTS / f"{options.save}.json"
        path.write_text(json.dumps({**result, "tables": tables}, indent=1) + "\n")


if __name__ == "__main__":
    main()
