"""Ranked classes: the expected distance against cross entropy, on two real tables.

    python benchmarks/ordinal.py --data FOLDER   writes results/ordinal.json and docs/ordinal.md
    python benchmarks/ordinal.py --page          writes the table again from the results

FOLDER holds uci121/wine-quality-white (Klambauer et al.) and exact-uci/car (UCI), as
``expacc tables`` says. Five times two folds, the same for all losses. For each loss and fold, the
learning rate and weight decay with the least mean absolute error on a quarter of the training rows
that are held out, then trained again on all of them. Cross entropy answers twice: with the class
that is most likely, and with the median of its probabilities, which is the answer that a small
absolute error asks for and costs nothing.
"""

import argparse
import json
import lzma
import statistics
from itertools import product
from pathlib import Path

import numpy as np
import torch
from machine import RESULTS, facts, heading
from sklearn.metrics import cohen_kappa_score
from sklearn.model_selection import RepeatedStratifiedKFold, train_test_split
from torch import Tensor

from expacc.schedules import geometric
from expacc.training import Model, Run, TensorTable, TrainConfig, train_runs
from expacc.training.runs import Trained

PAGE = Path(__file__).parent.parent / "docs" / "ordinal.md"
# name, numbers, and whether it goes on from cross entropy's weights; "again" is their control
LOSSES = {
    "cross entropy": ("cross_entropy", {}, False),
    "cross entropy, again": ("cross_entropy", {}, True),
    "leaky expected error": ("leaky_expected_error", {}, False),
    "expected distance": ("expected_distance", {"power": 1.0}, False),
    "expected error, from cross entropy": ("expected_error", {}, True),
    "expected distance, from cross entropy": ("expected_distance", {"power": 1.0}, True),
    "squared distance, from cross entropy": ("expected_distance", {"power": 2.0}, True),
}
MEDIAN = "cross entropy, median"
RULES = {MEDIAN: "cross entropy"}
MODELS = {"linear": ((), (0.01, 0.05, 0.2)), "network of 64": ((64,), (0.002, 0.01, 0.03))}
DECAYS = (1e-5, 1e-3)
CARS = ("unacc", "acc", "good", "vgood")


def wine(folder: Path) -> TensorTable:
    parts = [folder / "uci121" / "wine-quality-white" / name for name in
             ("wine-quality-white_py.dat.xz", "labels_py.dat.xz")]  # fmt: skip
    texts = [lzma.decompress(part.read_bytes()).decode().splitlines() for part in parts]
    features, labels = (np.loadtxt(text, delimiter=",") for text in texts)
    return TensorTable(torch.tensor(features).float(), torch.tensor(labels).long(), 7)


def car(folder: Path) -> TensorTable:
    rows = [line.split(",") for line in (folder / "exact-uci/car/car.data").read_text().split()]
    columns = list(zip(*rows, strict=True))
    levels = [
        [cell == level for cell in column]
        for column in columns[:-1]
        for level in sorted(set(column))
    ]
    features = torch.tensor(np.array(levels).T).float()
    features = (features - features.mean(0)) / features.std(0)
    return TensorTable(features, torch.tensor([CARS.index(label) for label in columns[-1]]), 4)


TABLES = {"wine-quality-white": wine, "car": car}


def median(logits: Tensor) -> Tensor:
    return (logits.softmax(1).cumsum(1) < 0.5).sum(1).clamp(max=logits.shape[1] - 1)


def scores(answers: Tensor, truth: Tensor) -> dict[str, float]:
    return {
        "accuracy": (answers == truth).double().mean().item(),
        "absolute error": (answers - truth).abs().double().mean().item(),
        "quadratic kappa": float(cohen_kappa_score(truth, answers, weights="quadratic")),
    }


def trained(table: TensorTable, runs: list[Run], hidden: tuple[int, ...]) -> list[Trained | None]:
    """The models of the runs; None for one that failed."""
    config = TrainConfig(
        model=Model(hidden=hidden), optimizer="adam", batch=256, epochs=60, keep="last"
    )
    found = train_runs(table, runs, config)
    return [one.model if one.failed_step is None else None for one in found]


class Contest:
    """The folds of a table, and the runs of a model on them."""

    def __init__(self, table: TensorTable, model: str) -> None:
        self.table, (self.hidden, self.rates) = table, MODELS[model]
        labels = table.labels
        folds = RepeatedStratifiedKFold(n_splits=2, n_repeats=5, random_state=0)
        self.splits = [tuple(map(torch.tensor, one)) for one in folds.split(labels, labels)]

    def run(self, key: str, rows: Tensor, loss: str, setting: tuple, starts: dict) -> Run:
        name, numbers, goes_on = LOSSES[loss]
        rate, decay = setting
        return Run(
            f"{key}/{loss}/{setting}",
            rows,
            loss=name,
            loss_params=numbers,
            learning_rate=geometric(rate, rate / 20),
            weight_decay=decay,
            start=starts[key] if goes_on else None,
        )

    def starts(self, parts: dict[str, Tensor]) -> dict[str, Trained | None]:
        """Cross entropy's weights on each part of the rows, with the middle rate."""
        usual = (self.rates[1], DECAYS[0])
        runs = [self.run(key, rows, "cross entropy", usual, {}) for key, rows in parts.items()]
        return dict(zip(parts, trained(self.table, runs, self.hidden), strict=True))

    def measure(self) -> list[dict[str, object]]:
        labels = self.table.labels
        some, rest = {}, {}
        for fold, (train, _) in enumerate(self.splits):
            # A class of one row cannot be in both parts.
            layers = labels[train] if labels[train].bincount().min() > 1 else None
            pair = train_test_split(train, test_size=0.25, random_state=fold, stratify=layers)
            some[f"inner {fold}"], rest[f"inner {fold}"] = pair
        starts = self.starts(some)
        jobs = list(product(some, LOSSES, product(self.rates, DECAYS)))
        runs = [self.run(key, some[key], loss, setting, starts) for key, loss, setting in jobs]
        best: dict[tuple[str, str], tuple[float, tuple]] = {}
        for model, (key, loss, setting) in zip(
            trained(self.table, runs, self.hidden), jobs, strict=True
        ):
            for rule, found in self.judge(model, loss, rest[key]).items():
                error = found["absolute error"]
                best[key, rule] = min(best.get((key, rule), (np.inf, setting)), (error, setting))
        whole = {f"inner {fold}": train for fold, (train, _) in enumerate(self.splits)}
        starts = self.starts(whole)
        chosen = [(key, rule, setting) for (key, rule), (_, setting) in best.items()]
        wanted = dict.fromkeys(
            (key, RULES.get(rule, rule), setting) for key, rule, setting in chosen
        )
        runs = [self.run(key, whole[key], loss, setting, starts) for key, loss, setting in wanted]
        models = dict(
            zip([run.key for run in runs], trained(self.table, runs, self.hidden), strict=True)
        )
        rows = []
        for key, rule, setting in chosen:
            fold = int(key.split()[1])
            loss = RULES.get(rule, rule)
            model = models[f"{key}/{loss}/{setting}"]
            found = self.judge(model, loss, self.splits[fold][1])[rule]
            rows.append({"fold": fold, "loss": rule, "setting": setting, **found})
        return rows

    def judge(self, model: Trained | None, loss: str, rows: Tensor) -> dict[str, dict[str, float]]:
        """The scores of a model's answers, by rule."""
        if model is None:
            return {}
        logits, truth = model.logits(self.table.features[rows]), self.table.labels[rows]
        found = {loss: scores(logits.argmax(1), truth)}
        if loss == "cross entropy":
            found[MEDIAN] = scores(median(logits), truth)
        return found


def table_of(results: dict) -> str:
    """Means over folds, and how many of ten folds are better than cross entropy's."""
    lines = ["| | model | loss | accuracy | absolute error | better in | quadratic kappa |"]
    lines.append("|---|---|---|---|---|---|---|")
    for name, models in results["tables"].items():
        for model, rows in models.items():
            plain = {
                row["fold"]: row["absolute error"] for row in rows if row["loss"] == "cross entropy"
            }
            for loss in dict.fromkeys(["cross entropy", MEDIAN, *LOSSES]):
                own = [row for row in rows if row["loss"] == loss]
                accuracy, error, kappa = (
                    statistics.mean(row[key] for row in own)
                    for key in ("accuracy", "absolute error", "quadratic kappa")
                )
                better = sum(row["absolute error"] < plain[row["fold"]] for row in own)
                won = "–" if loss == "cross entropy" else f"{better} of {len(own)}"
                cells = f"{100 * accuracy:.1f} | {error:.3f} | {won} | {kappa:.3f}"
                lines.append(f"| {name} | {model} | {loss} | {cells} |")
    return "\n".join([*lines, "", heading(results["machine"]) + "."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of the tables")
    parser.add_argument("--page", action="store_true", help="write the page from the results")
    options = parser.parse_args()
    path = RESULTS / "ordinal.json"
    torch.set_num_threads(1)
    if not options.page:
        if options.data is None:
            parser.error("--data must name the folder of the tables; got none.")
        found = {
            name: {model: Contest(read(options.data), model).measure() for model in MODELS}
            for name, read in TABLES.items()
        }
        path.write_text(json.dumps({"machine": facts(), "tables": found}, indent=1) + "\n")
    results = json.loads(path.read_text())
    before, rest = PAGE.read_text().split("<!-- bench -->")
    after = rest.split("<!-- /bench -->")[1]
    table = table_of(results)
    PAGE.write_text(f"{before}<!-- bench -->\n{table}\n<!-- /bench -->{after}")
    print(table)


if __name__ == "__main__":
    main()
