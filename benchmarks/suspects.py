"""Do suspects find wrong labels? Digits with 5 % of its labels flipped, against cleanlab.

    python benchmarks/suspects.py [--seeds N] [--mlp]

Ours: the list that `expacc compare` makes, from the out-of-fold predictions of its accuracy-trained
models. Cleanlab's: its label quality scores on the probabilities of scikit-learn's
LogisticRegression, trained on the same rows of the same folds, averaged over the repetitions; once
with columns standardised, as our models see them, and once with pixels from 0 to 1. Needs cleanlab,
which nothing else in this repository does.
"""

import argparse
import csv
import json
import tempfile
import warnings
from pathlib import Path

import numpy as np
from cleanlab.rank import get_label_quality_scores
from machine import RESULTS, facts, heading
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from expacc.compare.study import Settings, Study, load_record, plan_study, run_study
from expacc.compare.suspects import suspects
from expacc.data import flip_labels, read_table
from expacc.report.words import ACCURACY_TRAINED

CLASSES, SHARE, NAME = 10, 0.05, "flipped"
CLEANLAB = ("self_confidence", "normalized_margin")
MODELS = {
    "standardised": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
    "pixels": lambda: LogisticRegression(max_iter=2000),
}


def flipped(seed: int, folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, Path]:
    """Features, given labels, which of them are wrong, and the table as a file."""
    features, truth = load_digits(return_X_y=True)
    given, wrong = flip_labels(truth, SHARE, classes=CLASSES, seed=seed, name="digits")
    path = folder / f"{NAME}.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"pixel_{place}" for place in range(features.shape[1])), "digit"])
        writer.writerows(
            [*map(int, row), int(label)] for row, label in zip(features, given, strict=True)
        )
    return features / 16, given, np.asarray(wrong), path


def planned(path: Path, seed: int, model: str) -> Study:
    """A small contest: the losses that judge, and cross entropy, on five times two folds."""
    losses = ("cross_entropy", *(loss for loss in sorted(ACCURACY_TRAINED)))
    settings = Settings(losses=losses, folds="5x2", trials=8, seeds=1, model=model, seed=seed)
    return plan_study([read_table(path)], settings)


def ours(study: Study, folder: Path) -> np.ndarray:
    """Row numbers, most suspect first."""
    run_study(study, folder, command="", progress=False)
    return suspects(load_record(folder), NAME).rows


def logistic(study: Study, features: np.ndarray, given: np.ndarray, kind: str) -> np.ndarray:
    """Out-of-fold probabilities on the study's folds, averaged over the repetitions."""
    total = np.zeros((len(given), CLASSES))
    folds = {key.rsplit("/", 1)[0] for key in study.shared if "/split/" in key}
    for fold in sorted(folds):
        train, test = (np.asarray(study.shared[f"{fold}/{part}"]) for part in ("train", "test"))
        model = MODELS[kind]().fit(features[train], given[train])
        total[test] += model.predict_proba(features[test])
    return total / total.sum(axis=1, keepdims=True)


def found(order: np.ndarray, wrong: np.ndarray) -> tuple[float, float]:
    """The share of wrong labels in the first tenth of a ranking, and its area under the curve."""
    score = np.empty(len(wrong))
    score[order] = -np.arange(len(wrong))
    share = wrong[order[: len(wrong) // 10]].sum() / wrong.sum()
    return float(share), float(roc_auc_score(wrong, score))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--mlp", action="store_true", help="with a hidden layer, too")
    asked = parser.parse_args()
    results: dict[str, list[tuple[float, float]]] = {}
    for seed in range(asked.seeds):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            features, given, wrong, path = flipped(seed, folder)
            for model in ("linear", "mlp") if asked.mlp else ("linear",):
                study = planned(path, seed, model)
                order = ours(study, folder / model)
                results.setdefault(f"expacc, {model}", []).append(found(order, wrong))
        for kind in MODELS:
            belief = logistic(study, features, given, kind)
            for method in CLEANLAB:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    quality = get_label_quality_scores(given, belief, method=method)
                order = np.argsort(quality, kind="stable")
                title = f"cleanlab, {method.replace('_', ' ')}, {kind}"
                results.setdefault(title, []).append(found(order, wrong))
    title = f"digits, {SHARE:.0%} of labels flipped, {asked.seeds} seeds: mean (worst)"
    table = Table(title=title)
    for column in ("ranking", "flipped rows in the first 10 %", "area under the curve"):
        table.add_column(column, justify="left" if column == "ranking" else "right")
    for name, pairs in results.items():
        shares, areas = np.array(pairs).T
        table.add_row(
            name,
            f"{shares.mean():.1%} ({shares.min():.1%})",
            f"{areas.mean():.4f} ({areas.min():.4f})",
        )
    known = facts(seeds=asked.seeds)
    console = Console()
    console.print(table)
    console.print(heading(known), style="dim")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "suspects-cpu.json").write_text(
        json.dumps({"facts": known, "share_and_area": results}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
