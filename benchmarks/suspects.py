"""Do suspects find wrong labels? Digits with 5 % of its labels flipped, against cleanlab.

Five times two folds. Ours: `expacc.study.suspects.rank_rows` over the out-of-fold predictions of
accuracy-trained models, calibrated on validation rows. Cleanlab's: its label quality scores on the
probabilities of scikit-learn's LogisticRegression, trained on the same rows of the same folds,
averaged over the five repetitions. Needs cleanlab, which nothing else in this repository does.
"""

import argparse
import itertools
import json
import warnings
from dataclasses import replace

import numpy as np
import torch
from cleanlab.rank import get_label_quality_scores
from machine import RESULTS, facts, heading
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from expacc.data import five_by_two, flip_labels
from expacc.estimator.calibration import fit_temperature, probabilities
from expacc.schedules import sigma_tabular
from expacc.study.rows import Predictions, Row
from expacc.study.suspects import rank_rows
from expacc.training import Model, Plan, Rows, Run, train_runs

CLASSES, SHARE = 10, 0.05
LOSSES = {
    "leaky_expected_error": {"leak": 0.1},
    "mixed_expected_error": {"focus": 0.0},
    "exact": {"sigma": sigma_tabular, "margin": 5.0},
}
RATES, DECAYS = (0.1, 0.3), (1e-4, 1e-3, 5e-3)
CLEANLAB = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")


def parts(seed: int):
    """Features, given labels, which are wrong, and (train, validation, test) of ten folds."""
    features, truth = load_digits(return_X_y=True)
    given, wrong = flip_labels(truth, SHARE, classes=CLASSES, seed=seed, name="digits")
    folds = []
    for split in five_by_two(given, seed=seed, name="digits"):
        order = np.random.default_rng(seed).permutation(split.train)
        folds.append((order[len(order) // 5 :], order[: len(order) // 5], split.test))
    return features / 16, given, wrong, folds


def ours(features, given, folds, hidden, seed) -> list[Row]:
    """A final row for each loss and fold: numbers chosen on validation rows, then retrained."""
    x, y = torch.tensor(features, dtype=torch.float32), torch.tensor(given)
    runs: dict[tuple[str, int], list[Run]] = {}
    for place, (train, validation, _) in enumerate(folds):
        parts = torch.tensor(train), torch.tensor(validation)
        for (loss, numbers), rate, decay in itertools.product(LOSSES.items(), RATES, DECAYS):
            exact = loss == "exact"
            runs.setdefault((loss, place), []).append(
                Run(
                    f"{loss} {place} {rate} {decay}",
                    *parts,
                    loss,
                    numbers,
                    learning_rate=rate / 6 if exact else rate,
                    weight_decay=decay,
                    normalize=exact,
                )
            )
    plan = Plan(Model(hidden=hidden), batch=64, epochs=40, seed=seed)
    rows = Rows(x, y, CLASSES)
    results = iter(train_runs(rows, list(itertools.chain(*runs.values())), plan))
    finals, temperatures = [], []
    for (_, place), trials in runs.items():
        pairs = [(next(results), trial) for trial in trials]
        best, chosen = max(
            (pair for pair in pairs if pair[0].model is not None),
            key=lambda pair: max(pair[0].curves["validation_accuracy"]),
        )
        train, validation, _ = folds[place]
        logits = best.model.logits(x[validation]).double().numpy()
        temperatures.append(fit_temperature(logits, given[validation], np.ones(len(validation))))
        everyone = torch.tensor(np.concatenate([train, validation]))
        finals.append(replace(chosen, rows=everyone, validation=None))
    found = []
    retrained = train_runs(rows, finals, replace(plan, keep="last"))
    for (loss, place), result, temperature in zip(runs, retrained, temperatures, strict=True):
        test = folds[place][2]
        belief = probabilities(result.model.logits(x[test]).double().numpy(), temperature)
        said = Predictions(
            test.astype(np.int32),
            belief.argmax(1).astype(np.int32),
            belief.max(1).astype(np.float32),
            belief[np.arange(len(test)), given[test]].astype(np.float32),
        )
        found.append(Row(result.key, "", "final", "digits", loss, str(place), predictions=said))
    return found


def logistic(features, given, folds) -> np.ndarray:
    """Out-of-fold probabilities, averaged over the repetitions."""
    total = np.zeros((len(given), CLASSES))
    for train, validation, test in folds:
        rows = np.concatenate([train, validation])
        model = LogisticRegression(max_iter=2000).fit(features[rows], given[rows])
        total[test] += model.predict_proba(features[test])
    return total / total.sum(axis=1, keepdims=True)


def share_found(order: np.ndarray, wrong: np.ndarray) -> float:
    """The share of wrong labels in the first tenth of a ranking."""
    return float(wrong[order[: len(wrong) // 10]].sum() / wrong.sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    results: dict[str, list[tuple[float, float]]] = {}
    for seed in range(seeds):
        features, given, wrong, folds = parts(seed)
        for name, hidden in (("expacc, linear", ()), ("expacc, 64 hidden units", (64,))):
            ranked = rank_rows(ours(features, given, folds, hidden, seed), given, CLASSES)
            score = np.empty(len(given))
            score[ranked.rows] = -np.arange(len(given))  # the order itself, ties broken
            results.setdefault(name, []).append(
                (share_found(ranked.rows, wrong), roc_auc_score(wrong, score))
            )
        belief = logistic(features, given, folds)
        for method in CLEANLAB:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                quality = get_label_quality_scores(
                    given, belief, method=method, adjust_pred_probs=False
                )
            results.setdefault(f"cleanlab, {method.replace('_', ' ')}", []).append(
                (
                    share_found(np.argsort(quality, kind="stable"), wrong),
                    roc_auc_score(wrong, -quality),
                )
            )
    table = Table(title=f"digits, {SHARE:.0%} of labels flipped, {seeds} seeds: mean (worst)")
    for column in ("ranking", "flipped rows in the first 10 %", "area under the curve"):
        table.add_column(column, justify="left" if column == "ranking" else "right")
    for name, pairs in results.items():
        shares, areas = np.array(pairs).T
        table.add_row(
            name,
            f"{shares.mean():.1%} ({shares.min():.1%})",
            f"{areas.mean():.4f} ({areas.min():.4f})",
        )
    known = facts(seeds=seeds)
    console = Console()
    console.print(table)
    console.print(heading(known), style="dim")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "suspects-cpu.json").write_text(
        json.dumps({"facts": known, "share_and_area": results}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
