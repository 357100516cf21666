"""Ours against the classifiers that people take for tables, clean and with wrong labels.

    python benchmarks/tables.py --data DATA/uci121 --noise 0,0.2,0.4 --only building --workers 16

The first folds of every table's own; training and validation rows together are what a classifier
is given, with that share of the labels drawn at random (or, --kind next, moved to the next class);
test labels are as they are. Mean accuracy, mean rank with Friedman's test, Wilcoxon's test of the
first of ours against each, calibration error, seconds to fit and to predict on one thread. Which
tables are for building and which for reporting: splits.json.
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
from scipy.stats import friedmanchisquare, rankdata, wilcoxon
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from expacc.estimator import AccuracyClassifier
from expacc.estimator.calibration import expected_calibration_error


class StoppedLightGBM:
    """LightGBM, stopped by a tenth of the rows."""

    def fit(self, features, labels):
        from lightgbm import LGBMClassifier, early_stopping

        draw = np.random.default_rng(0).permutation(len(labels))
        held, rows = np.split(draw, [len(labels) // 10])
        known = np.isin(labels[held], labels[rows])
        self.model = LGBMClassifier(n_estimators=500, learning_rate=0.1, verbose=-1, n_jobs=1)
        stop = {
            "eval_set": [(features[held[known]], labels[held[known]])],
            "callbacks": [early_stopping(10, verbose=False)],
        }
        self.model.fit(features[rows], labels[rows], **(stop if known.any() else {}))
        self.classes_ = self.model.classes_
        return self

    def predict_proba(self, features):
        return self.model.predict_proba(features)


MODELS = {
    "ours": AccuracyClassifier,
    "ours, fast": lambda: AccuracyClassifier(effort="fast"),
    "ours, 64 units": lambda: AccuracyClassifier("expected_error", hidden_layer_sizes=(64,)),
    "LogisticRegression": LogisticRegression,
    "SVC": SVC,
    "RandomForest": lambda: RandomForestClassifier(random_state=0),
    "RandomForest leaf 5": lambda: RandomForestClassifier(300, min_samples_leaf=5, random_state=0),
    "HistGradientBoosting": lambda: HistGradientBoostingClassifier(random_state=0),
    "HistGradientBoosting stopped": lambda: HistGradientBoostingClassifier(
        early_stopping=True, random_state=0
    ),
    **({"LightGBM stopped": StoppedLightGBM} if find_spec("lightgbm") else {}),
}


def spoiled(labels: np.ndarray, share: float, kind: str, seed: int) -> np.ndarray:
    """Labels of which a share is drawn at random, or moved to the next class."""
    draw = np.random.default_rng(seed)
    wrong = draw.random(len(labels)) < share
    classes = int(labels.max()) + 1
    other = (labels + 1) % classes if kind == "next" else draw.integers(0, classes, len(labels))
    return np.where(wrong, other, labels)


def scores(
    folder: Path, names: list[str], noise: float, kind: str, number: int, most: int
) -> dict[str, tuple[float, ...]]:
    """Of each model accuracy and calibration error (%), seconds to fit and to predict."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")  # of rare classes, and of limits of steps
    table = prepared(folder)
    features = np.stack([column.values for column in table.columns], 1)
    split = table.given[number]
    rows = np.sort(np.concatenate([split.train, split.validation]))
    given = spoiled(table.target.codes[rows], noise, kind, number)
    if len(rows) > most:
        kept = np.sort(np.random.default_rng(number).permutation(len(rows))[:most])
        rows, given = rows[kept], given[kept]
    scaler = StandardScaler().fit(features[rows])
    x, x_test = scaler.transform(features[rows]), scaler.transform(features[split.test])
    found = {}
    for name in names:
        begin = time.perf_counter()
        try:
            model = MODELS[name]().fit(x, given)
        except ValueError:  # a class of one row cannot be held out
            if not name.endswith("stopped"):
                raise
            model = HistGradientBoostingClassifier(random_state=0).fit(x, given)
        middle = time.perf_counter()
        probable = hasattr(model, "predict_proba")
        chances = (model.predict_proba if probable else model.predict)(x_test)
        seconds = middle - begin, time.perf_counter() - middle
        known = {label: place for place, label in enumerate(model.classes_)}
        if probable:
            codes = np.array([known.get(label, -1) for label in table.target.codes[split.test]])
            right = np.mean(chances.argmax(1) == codes)
            error = 100 * expected_calibration_error(chances, codes)
        else:
            right, error = np.mean(chances == table.target.codes[split.test]), float("nan")
        found[name] = (100 * right, error, *seconds)
    return found


def summary(tables: dict[str, dict[str, list[float]]], names: list[str]) -> dict[str, dict]:
    """Means over tables, and the first of the names against each other one."""
    each = np.array([[table[name] for name in names] for table in tables.values()])
    ranks = rankdata(-each[:, :, 0], axis=1).mean(axis=0)
    friedman = float(friedmanchisquare(*each[:, :, 0].T).pvalue) if len(names) > 2 else None
    found = {"tables": len(tables), "friedman p": friedman, "models": {}}
    for place, name in enumerate(names):
        lead = each[:, 0, 0] - each[:, place, 0]
        accuracy, error, fit, predict = each[:, place].mean(axis=0).tolist()
        found["models"][name] = {
            "accuracy": round(accuracy, 2),
            "rank": round(float(ranks[place]), 2),
            "behind": round(float(lead.mean()), 2),
            "p": float(wilcoxon(lead).pvalue) if lead.any() else 1.0,
            "calibration error": None if np.isnan(error) else round(error, 2),
            "fit": round(fit, 3),
            "predict": round(predict, 4),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of tables with folds")
    parser.add_argument("--noise", default="0,0.2,0.4")
    parser.add_argument("--kind", choices=("random", "next"), default="random")
    parser.add_argument("--only", choices=("building", "reporting"), help="part of splits.json")
    parser.add_argument("--tables", help="names with commas between")
    parser.add_argument("--models", help="names with semicolons between; default: all")
    parser.add_argument("--folds", type=int, default=2, help="of each table's own, the first")
    parser.add_argument("--most", type=int, default=5000, help="training rows, drawn from more")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--save", metavar="NAME", help="write results/NAME.json")
    options = parser.parse_args()
    names = options.models.split(";") if options.models else list(MODELS)
    folders = [each for each in sorted(options.data.iterdir()) if each.is_dir()]
    if options.only:
        folders = [f for f in folders if (f.name in BUILDING) == (options.only == "building")]
    if options.tables:
        folders = [f for f in folders if f.name in options.tables.split(",")]
    levels = [float(share) for share in options.noise.split(",")]
    made = {folder.name: prepared(folder) for folder in folders}

    def cost(folder: Path) -> int:  # the largest first
        table = made[folder.name]
        return min(len(table.given[0].train), options.most) * len(table.target.classes)

    asked = options.kind, options.folds, options.most
    start = time.perf_counter()
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        jobs = {
            (noise, folder.name, number): pool.submit(
                scores, folder, names, noise, options.kind, number, options.most
            )
            for folder in sorted(folders, key=cost, reverse=True)
            for noise in levels
            for number in range(min(options.folds, len(made[folder.name].given)))
        }
        found = {key: job.result() for key, job in jobs.items()}
    tables = {
        f"{noise:g}": {
            folder.name: {
                name: np.mean(
                    [one[name] for key, one in found.items() if key[:2] == (noise, folder.name)], 0
                ).tolist()
                for name in names
            }
            for folder in folders
        }
        for noise in levels
    }
    result = {
        "machine": facts(workers=options.workers, seconds=round(time.perf_counter() - start)),
        "settings": dict(zip(("kind", "folds", "most"), asked, strict=True)),
        "means": {noise: summary(each, names) for noise, each in tables.items()},
    }
    print(json.dumps(result, indent=1))
    if options.save:
        sizes = {
            name: [len(table.rows), len(table.columns), len(table.target.classes)]
            for name, table in made.items()
        }
        content = {**result, "sizes": sizes, "tables": tables}
        (RESULTS / f"{options.save}.json").write_text(json.dumps(content) + "\n")


if __name__ == "__main__":
    main()
