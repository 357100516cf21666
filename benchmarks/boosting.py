"""Boosted trees on our losses: stopped on held-out rows, at the last round, and textbook curvature.

    python benchmarks/boosting.py --data FOLDER   writes results/boosting.json and docs/boosting.md
    python benchmarks/boosting.py --page          writes the tables again from the results

FOLDER holds the prepared tables of Klambauer et al. (uci121), one folder a table. Of each table at
most 800 rows; 70 % to train on, of whose labels a share is replaced by another at random; 30 % to
test on, with labels as given; two such splits. A fifth of the training rows, wrong labels and all,
chooses the number of rounds. Every loss has the same trees: 15 leaves, learning rate 0.1, 200
rounds, the same rows. Nothing is searched.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import lightgbm
import numpy as np
from machine import RESULTS, facts, heading
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax
from scipy.stats import wilcoxon
from sklearn.model_selection import train_test_split

from expacc.boosting import BoostedClassifier
from expacc.boosting.boosted import best_round
from expacc.data import read_uci121

PAGE = Path(__file__).parent.parent / "docs" / "boosting.md"
TABLES = (
    *("ionosphere", "pima", "statlog-german-credit", "tic-tac-toe", "vertebral-column-3clases"),
    *("car", "wall-following", "waveform", "page-blocks"),
)
NOISE, SPLITS, ROWS, ROUNDS, LEAVES = (0.0, 0.2, 0.4), 2, 800, 200, 15
TEXTBOOK = "expected error, true second derivative cut at 0.001"
METHODS = {
    "LightGBM, cross entropy": ("lightgbm", "cross_entropy"),
    "LightGBM, leaky expected error": ("lightgbm", "leaky_expected_error"),
    "LightGBM, expected error": ("lightgbm", "expected_error"),
    "LightGBM, generalised cross entropy": ("lightgbm", "generalized_cross_entropy"),
    f"LightGBM, {TEXTBOOK}": ("lightgbm", TEXTBOOK),
    "XGBoost, cross entropy": ("xgboost", "cross_entropy"),
    "XGBoost, expected error": ("xgboost", "expected_error"),
}
READINGS = ("stopped", "last round")
Array = NDArray[np.float64]
Rows = tuple[Array, NDArray[np.int64]]


def ours(library: str, loss: str, train: Rows, held: Rows, test: Rows) -> tuple[float, float]:
    """Accuracy on test rows after the chosen number of rounds, and after all."""
    model = BoostedClassifier(
        library, loss, n_estimators=ROUNDS, max_leaves=LEAVES, n_iter_no_change=None, n_jobs=1
    ).fit(*train, eval_set=held)
    known = np.searchsorted(model.classes_, test[1])
    known = np.where(np.isin(test[1], model.classes_), known, -1)
    scores = (model.logits(test[0], rounds).argmax(1) for rounds in (None, model.rounds_))
    return tuple(float((said == known).mean()) for said in scores)  # type: ignore[return-value]


def textbook(train: Rows, held: Rows, test: Rows) -> tuple[float, float]:
    """The same with the expected error's own gradient and its true second derivative, cut off."""
    classes = int(max(rows[1].max() for rows in (train, held, test))) + 1
    hot = np.eye(classes)[train[1]]

    def objective(scores: Array, _: object) -> tuple[Array, Array]:
        chance = softmax(scores.reshape(hot.shape, order="F" if scores.ndim == 1 else "C"), axis=1)
        own = (chance * hot).sum(1, keepdims=True)
        second = own * chance * (1 - 2 * chance) * (1 - hot)
        second -= hot * own * (1 - own) * (1 - 2 * own)
        return own * (chance - hot), np.maximum(second, 1e-3)

    prior = np.log(hot.mean(0) + 1e-9)
    params = {
        "objective": "none",
        "num_class": classes,
        "num_leaves": LEAVES,
        "learning_rate": 0.1,
        "verbose": -1,
        "num_threads": 1,
        "seed": 0,
    }
    start = np.tile(prior, (len(hot), 1)).ravel("F")
    booster = lightgbm.Booster(params, lightgbm.Dataset(*train, init_score=start, params=params))
    parts = [np.tile(prior, (len(rows[1]), 1)) for rows in (held, test)]
    right, nats, tested = [], [], []
    for number in range(ROUNDS):
        booster.update(fobj=objective)
        for part, rows in zip(parts, (held, test), strict=True):
            part += booster.predict(
                rows[0], raw_score=True, start_iteration=number, num_iteration=1
            )
        right.append(float((parts[0].argmax(1) == held[1]).mean()))
        nats.append(-float(log_softmax(parts[0], 1)[np.arange(len(held[1])), held[1]].mean()))
        tested.append(float((parts[1].argmax(1) == test[1]).mean()))
    return tested[best_round(right, nats) - 1], tested[-1]


def cells(folder: Path, report: Callable[[str], None]) -> dict[str, dict[str, list[list[float]]]]:
    """Share of wrong labels → method → by table the mean accuracy of both readings."""
    found: dict[str, dict[str, list[list[float]]]] = {
        str(noise): {name: [] for name in METHODS} for noise in NOISE
    }
    for name in TABLES:
        table = read_uci121(folder / name)
        features = np.stack([column.values for column in table.columns], 1).astype(np.float64)
        labels = np.asarray(table.target.codes)
        for noise in NOISE:
            scores: dict[str, list[tuple[float, float]]] = {method: [] for method in METHODS}
            for seed in range(SPLITS):
                random = np.random.default_rng(seed)
                chosen = random.permutation(len(labels))[:ROWS]
                train, test = train_test_split(chosen, test_size=0.3, random_state=seed)
                noisy = labels.copy()
                wrong = train[random.random(len(train)) < noise]
                classes = len(table.target.classes)
                noisy[wrong] += random.integers(1, classes, len(wrong))
                noisy %= classes
                grown, held = train_test_split(train, test_size=0.2, random_state=seed)
                rows = (features[grown], noisy[grown]), (features[held], noisy[held])
                for method, (library, loss) in METHODS.items():
                    fit = textbook if loss == TEXTBOOK else None
                    last = features[test], labels[test]
                    scores[method].append(
                        fit(*rows, last) if fit else ours(library, loss, *rows, last)
                    )
            for method, pairs in scores.items():
                found[str(noise)][method].append(np.mean(pairs, axis=0).tolist())
            report(f"{name} {noise:g} " + " ".join(
                f"{100 * pair[-1][0]:.1f}/{100 * pair[-1][1]:.1f}"
                for pair in found[str(noise)].values()
            ))  # fmt: skip
    return found


def page(results: dict) -> str:
    """The tables of the page."""
    lines = [f"Measured with `python benchmarks/boosting.py`: {heading(results['facts'])}.", ""]
    for place, reading in enumerate(READINGS):
        lines += [
            f"**{reading[0].upper()}{reading[1:]}**, mean test accuracy over {len(TABLES)} tables, "
            "%; in brackets the tables on which it is better / worse than cross entropy in the "
            "same library, and Wilcoxon's p:",
            "",
            "| | " + " | ".join(f"{100 * noise:g} % wrong labels" for noise in NOISE) + " |",
            "|---|" + "---|" * len(NOISE),
        ]
        for method in METHODS:
            row = [method]
            for noise in NOISE:
                scores = np.array(results["accuracy"][str(noise)][method])[:, place]
                base = np.array(
                    results["accuracy"][str(noise)][f"{method.split(',')[0]}, cross entropy"]
                )[:, place]
                gaps = np.round(scores - base, 9)
                more = ""
                if gaps.any():
                    p = wilcoxon(gaps).pvalue
                    more = f" ({(gaps > 0).sum()} / {(gaps < 0).sum()}, {p:.2g})"
                row.append(f"{100 * scores.mean():.1f}{more}")
            lines.append("| " + " | ".join(row) + " |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="the folder of uci121")
    parser.add_argument("--page", action="store_true", help="write the page of the results")
    asked = parser.parse_args()
    out = RESULTS / "boosting.json"
    if not asked.page:
        start = time.perf_counter()
        accuracy = cells(asked.data, lambda line: print(line, flush=True))
        told = facts(
            lightgbm=lightgbm.__version__,
            xgboost=__import__("xgboost").__version__,
            minutes=round((time.perf_counter() - start) / 60, 1),
        )
        out.write_text(json.dumps({"facts": told, "accuracy": accuracy}, indent=1) + "\n")
    text = PAGE.read_text()
    begin, end = "<!-- measured -->\n", "<!-- end -->"
    before, _, after = text.partition(begin)
    PAGE.write_text(
        before + begin + page(json.loads(out.read_text())) + end + after.partition(end)[2]
    )


if __name__ == "__main__":
    main()
