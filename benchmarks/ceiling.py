"""How much is there to gain on a table? Linear models from many starts, trained to the end.

    python benchmarks/ceiling.py car.data --no-header

On the whole table: the best training accuracy that EXACT and cross entropy find at all, over many
random starts and several margins, sigma lowered until the loss counts errors. On the folds of
`expacc compare`: train and test accuracy of the same runs, of the start that fits best, and of the
mean of several starts' weights. No number is chosen by test rows; all are printed.
"""

import argparse
import json
from dataclasses import dataclass

import numpy as np
import torch
from machine import RESULTS, facts, heading
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

from expacc.compare.serialize import unpack_split
from expacc.compare.study import Settings, plan_study
from expacc.compare.training_budget import batch_and_epochs
from expacc.data import Preprocessor, read_table
from expacc.schedules import geometric
from expacc.training import Model, Run, TensorTable, TrainConfig, train_runs

MARGINS, LAST_SIGMA = (0.01, 0.05, 0.5), 0.0005
TOGETHER = 8  # starts whose weights are averaged


@dataclass(frozen=True)
class Kind:
    """Runs that differ in their start alone."""

    name: str
    loss: str
    numbers: dict[str, object]
    rate: float
    decay: float


KINDS = [
    *(
        Kind(
            f"EXACT, margin {margin:g}",
            "exact",
            {"sigma": geometric(10.0, LAST_SIGMA), "margin": margin},
            0.01,
            0.0,
        )
        for margin in MARGINS
    ),
    *(
        Kind(f"cross entropy, decay {decay:g}", "cross_entropy", {}, 0.2, decay)
        for decay in (0.0, 1e-5, 1e-4)
    ),
]


def trained(kind: Kind, rows: TensorTable, starts: int, epochs: int) -> Tensor:
    """Weights and biases (starts, classes, features + 1), each scaled to logits of deviation 1."""
    everyone = torch.arange(len(rows.labels))
    runs = [
        Run(
            f"{kind.name}/{start}",
            everyone,
            loss=kind.loss,
            loss_params=kind.numbers,
            learning_rate=geometric(kind.rate, kind.rate / 100),
            weight_decay=kind.decay,
            normalize=kind.loss == "exact",
        )
        for start in range(starts)
    ]
    # EXACT, standardised here as in its paper, divides by the deviation of its batch.
    quarter = min(len(everyone) // 4, 512)
    batch = quarter if kind.loss == "exact" else batch_and_epochs(len(everyone))[0]
    plan = TrainConfig(Model(), "adam", batch=batch, epochs=epochs, keep="last", seed=0)
    layers = [result.model.layers[0] for result in train_runs(rows, runs, plan)]
    found = torch.stack([torch.cat([each.weight, each.bias[:, None]], 1) for each in layers])
    found = found.double() - found.double().mean(1, keepdim=True)
    return found / logits(found, rows.features).flatten(1).std(1)[:, None, None]


def logits(weights: Tensor, features: Tensor) -> Tensor:
    ones = torch.ones(len(features), 1, dtype=torch.float64)
    return torch.einsum("scf,nf->snc", weights, torch.cat([features.double(), ones], 1))


def accuracy(weights: Tensor, rows: TensorTable) -> np.ndarray:
    right = logits(weights, rows.features).argmax(2) == rows.labels
    return 100 * right.double().mean(1).numpy()


def numbered(table, chosen: np.ndarray, preprocessor: Preprocessor) -> TensorTable:
    features = torch.from_numpy(preprocessor.transform(table, chosen, np.float32))
    labels = torch.from_numpy(np.asarray(table.target.codes, np.int64)[chosen])
    return TensorTable(features, labels, len(table.target.classes))


def main() -> None:
    parser = argparse.ArgumentParser(description="How much is there to gain on a table?")
    parser.add_argument("file")
    parser.add_argument("--no-header", action="store_true")
    parser.add_argument("--starts", type=int, default=32, help="of each kind of run (default 32)")
    parser.add_argument("--epochs", type=int, default=240)
    parser.add_argument("--dry-run", action="store_true", help="write no result file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = read_table(options.file, header=not options.no_header)
    study = plan_study([table], Settings())
    everything = np.arange(len(table.target.codes))
    whole = numbered(table, everything, Preprocessor.fit(table))
    folds = []
    for item in study.items:
        split = unpack_split(item.payload["table"], item.payload["fold"], study.shared)
        fitted = Preprocessor.fit(table, split.train)
        folds.append([numbered(table, part, fitted) for part in (split.train, split.test)])

    size = (options.starts, options.epochs)
    shown = Table("runs", "whole table, best fit", "fit", "test", "best-fitting start", "centre")
    shown.title = f"{table.name}: accuracy of linear models, mean ± standard error over folds"
    found = {}
    for kind in track(KINDS, description="training"):
        best = accuracy(trained(kind, whole, *size), whole).max()
        columns: dict[str, list[float]] = {name: [] for name in ("fit", "test", "picked", "centre")}
        for train, test in folds:
            weights = trained(kind, train, *size)
            fit, score = accuracy(weights, train), accuracy(weights, test)
            columns["fit"].append(fit.mean())
            columns["test"].append(score.mean())
            columns["picked"].append(score[fit == fit.max()].mean())
            groups = weights[: options.starts // TOGETHER * TOGETHER]
            centres = groups.unflatten(0, (-1, TOGETHER)).mean(1)
            columns["centre"].append(accuracy(centres, test).mean())
        found[kind.name] = {"whole": best, **columns}
        spread = {
            name: f"{np.mean(each):.2f} ± {np.std(each, ddof=1) / len(each) ** 0.5:.2f}"
            for name, each in columns.items()
        }
        shown.add_row(kind.name, f"{best:.2f}", *spread.values())
    Console(width=120).print(shown)
    machine = facts(starts=options.starts, epochs=options.epochs)
    print(heading(machine))
    if not options.dry_run:
        path = RESULTS / f"ceiling-{table.name}.json"
        path.write_text(json.dumps({"machine": machine, "found": found}, indent=1) + "\n")
        print(f"written: {path}")


if __name__ == "__main__":
    main()
