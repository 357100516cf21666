"""Networks that vote and what people take instead, on many tables, clean and with wrong labels.

    python benchmarks/tables.py --data DATA/uci121 --noise 0,0.2,0.4 --part building

DATA is a folder of tables as Klambauer et al. made them (NAME/NAME_py.dat.xz and its labels). Each
is cut once in two thirds to train on and one to test; of larger ones 2,500 rows are drawn first. A
share of the training labels is drawn at random among all classes, or, with --by-class, replaced by
the next class. Every classifier has its usual settings. ``splits.json`` says which tables ours was
built on; its figures on those are no evidence. Results are kept as they come, and a second call
goes on.
"""

import argparse
import importlib.util
import json
import lzma
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import RESULTS, facts
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from expacc.estimator import AccuracyClassifier
from expacc.estimator.calibration import expected_calibration_error
from expacc.stats.rank_tests import mean_ranks, wilcoxon_against

PARTS = json.loads((RESULTS.parent / "splits.json").read_text())
OURS, MOST_ROWS = "Networks that vote", 2500


def scaled(model: Any) -> Any:
    return make_pipeline(StandardScaler(), model)


def classifiers() -> dict[str, Callable[[], Any]]:
    found: dict[str, Callable[[], Any]] = {
        OURS: lambda: AccuracyClassifier(hidden_layer_sizes="auto", random_state=0),
        "AccuracyClassifier()": lambda: AccuracyClassifier(random_state=0),
        "LogisticRegression": lambda: scaled(LogisticRegression(max_iter=500)),
        "SVC": lambda: scaled(SVC(random_state=0)),
        "RandomForest": lambda: RandomForestClassifier(random_state=0),
        "RandomForest, leaf 5": lambda: RandomForestClassifier(
            300, min_samples_leaf=5, random_state=0
        ),
        "HistGradientBoosting": lambda: HistGradientBoostingClassifier(random_state=0),
        "HistGradientBoosting, stopped": lambda: HistGradientBoostingClassifier(
            early_stopping=True, random_state=0
        ),
    }
    if importlib.util.find_spec("lightgbm") and importlib.util.find_spec("expacc.boosting"):
        from expacc.boosting import BoostedClassifier

        found["LightGBM, stopped"] = lambda: BoostedClassifier(
            "lightgbm", "cross_entropy", random_state=0
        )
    return found


def read(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    def numbers(name: str) -> np.ndarray:
        with lzma.open(folder / f"{name}_py.dat.xz", "rt") as lines:
            return np.loadtxt(lines, delimiter=",", ndmin=2)

    features, labels = numbers(folder.name), numbers("labels")[:, 0].astype(np.int64)
    if len(labels) > MOST_ROWS:
        kept = np.random.default_rng(0).permutation(len(labels))[:MOST_ROWS]
        features, labels = features[kept], labels[kept]
    return features, np.unique(labels, return_inverse=True)[1]


def cut(
    features: np.ndarray, labels: np.ndarray, noise: float, by_class: bool, seed: int
) -> tuple[np.ndarray, ...]:
    """Training features and (spoilt) labels, test features and labels."""
    draw = np.random.default_rng(1000 + seed)
    order = draw.permutation(len(labels))
    train, test = np.split(order, [len(labels) * 2 // 3])
    given, classes = labels[train].copy(), labels.max() + 1
    wrong = draw.random(len(train)) < noise
    new = (given[wrong] + 1) % classes if by_class else draw.integers(0, classes, wrong.sum())
    given[wrong] = new
    return features[train], given, features[test], labels[test]


def measure(make: Callable[[], Any], parts: tuple[np.ndarray, ...]) -> dict[str, float]:
    features, given, new, truth = parts
    model = make()
    start = time.perf_counter()
    model.fit(features, given)
    fitted = time.perf_counter()
    predicted = model.predict(new)
    done = time.perf_counter()
    found = {"accuracy": 100 * float(np.mean(predicted == truth))}
    found |= {"fit": fitted - start, "predict": done - fitted}
    if hasattr(model, "predict_proba"):
        known = np.isin(truth, model.classes_)
        chances = model.predict_proba(new[known])
        codes = np.searchsorted(model.classes_, truth[known])
        found["calibration"] = 100 * expected_calibration_error(chances, codes)
    return found


def show(rows: dict[str, dict[str, Any]], console: Console) -> dict[str, Any]:
    """Means, ranks and tests by share of wrong labels, of tables that all have finished."""
    summary: dict[str, Any] = {}
    for kind in sorted({row["kind"] for row in rows.values()}):
        some = {key: row for key, row in rows.items() if row["kind"] == kind}
        names = [name for name in classifiers() if all(name in r["scores"] for r in some.values())]
        if len(some) < 2 or OURS not in names:
            continue
        of = {
            what: np.array(
                [[row["scores"][name].get(what, np.nan) for name in names] for row in some.values()]
            )
            for what in ("accuracy", "calibration", "fit", "predict")
        }
        ranked = mean_ranks(of["accuracy"])
        others = wilcoxon_against(of["accuracy"], names.index(OURS))
        shown = Table(title=f"{kind}: {len(some)} tables")
        for head in ("", "accuracy", "rank", "ours ahead by", "p", "calibration", "fit", "predict"):
            shown.add_column(head, justify="left" if not head else "right")
        summary[kind] = {"tables": len(some)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # SVC has no probabilities
            means = {what: np.nanmean(values, 0) for what, values in of.items()}
        for place, name in enumerate(names):
            lead = means["accuracy"][names.index(OURS)] - means["accuracy"][place]
            p = others.adjusted[place]
            line = {what: float(values[place]) for what, values in means.items()}
            summary[kind][name] = {**line, "rank": float(ranked[place]), "p": float(p)}
            shown.add_row(
                name,
                f"{line['accuracy']:.2f}",
                f"{ranked[place]:.2f}",
                "" if name == OURS else f"{lead:+.2f}",
                "" if name == OURS else f"{p:.3f}",
                f"{line['calibration']:.1f}",
                f"{line['fit']:.2f} s",
                f"{1000 * line['predict']:.0f} ms",
            )
        console.print(shown)
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of tables")
    parser.add_argument("--noise", default="0,0.2,0.4", help="shares of wrong labels")
    parser.add_argument("--by-class", action="store_true", help="a wrong label is the next class")
    parser.add_argument("--part", choices=("building", "reporting", "all"), default="building")
    parser.add_argument("--tables", help="these alone, by name")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, help="default: results/tables-PART.json")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore")  # rare classes, and iterations that come to their end
    path = options.out or RESULTS / f"tables-{options.part}.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else {}
    building = set(PARTS["building"])
    folders = sorted(one for one in options.data.iterdir() if one.is_dir())
    if options.tables:
        folders = [one for one in folders if one.name in options.tables.split(",")]
    elif options.part != "all":
        folders = [one for one in folders if (one.name in building) == (options.part == "building")]
    console = Console()
    kinds = [float(one) for one in options.noise.split(",")]
    jobs = [(folder, noise) for folder in folders for noise in kinds]
    for folder, noise in track(jobs, description="fitting", transient=True):
        kind = f"{'next class' if options.by_class and noise else 'any class'} {noise:g}"
        row = rows.setdefault(f"{folder.name} {kind}", {"kind": kind, "scores": {}})
        parts: tuple[np.ndarray, ...] | None = None
        for name, make in classifiers().items():
            if name not in row["scores"]:
                parts = parts or cut(*read(folder), noise, options.by_class, 0)
                row["scores"][name] = measure(make, parts)
        path.write_text(json.dumps({"machine": facts(), "rows": rows}, indent=1) + "\n")
    summary = show(rows, console)
    path.write_text(json.dumps({"machine": facts(), "summary": summary, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
