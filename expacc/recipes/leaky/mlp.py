"""The work of leerr-mnist-mlp: a 300-200-100 network with dropout on MNIST, with and without noise.

The paper tunes learning rate and dropout on the development rows of every fold. That takes a GPU:
on a CPU the default is one setting, half of the folds and fewer epochs; ``--seeds`` asks for the
whole, that many folds of it.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from expacc.data import TrainRows, derive_seed
from expacc.recipes.leaky.digits import Digits, folds_of, pack, read_digits, unpack
from expacc.recipes.leaky.start import xavier
from expacc.recipes.leaky.trials import trial_metrics, validation_accuracy
from expacc.recipes.recipe import RecipeOptions, Work
from expacc.runner.items import Shared, WorkItem
from expacc.runner.rows import Row
from expacc.training import Model, Run, RunResult, TensorTable, TrainConfig, Trained, train_runs

__all__ = ["LOSSES", "NOISES", "execute", "failed_rows", "plan", "protocol_of"]

LOSSES = ("cross_entropy", "leaky_expected_error")
NOISES = (0.0, 0.05)
HIDDEN = (300, 200, 100)
PATIENCE, BATCH, FOLDS = 30, 128, 10
AT_ONCE = 5  # folds of an item on a GPU: what a kill may cost

# What is tried, and how long: the paper's protocol, what two cores do in an hour, and a minute.
PROTOCOLS: dict[str, dict[str, Any]] = {
    "full": {"rates": [3e-4, 1e-3], "dropouts": [0.1, 0.2, 0.3], "epochs": 400, "rows": None},
    "short": {"rates": [1e-3], "dropouts": [0.2], "epochs": 50, "rows": None},
    "quick": {"rates": [1e-3], "dropouts": [0.2], "epochs": 4, "rows": 10_000},
}
USUAL_FOLDS = {"full": FOLDS, "short": 5, "quick": 2}

Setting = tuple[float, float]  # learning rate, dropout


def protocol_of(ask: RecipeOptions) -> str:
    """'full' on a GPU or where seeds are asked for, 'short' on a CPU, 'quick'."""
    if ask.quick:
        return "quick"
    return "full" if ask.seeds is not None or ask.device != "cpu" else "short"


def plan(ask: RecipeOptions) -> Work:
    """On a CPU an item per fold, loss and share of noise; on a GPU five folds and all losses."""
    digits = read_digits(ask.data)
    protocol = protocol_of(ask)
    folds = ask.seeds or USUAL_FOLDS[protocol]
    settings = {
        **PROTOCOLS[protocol],
        "patience": PATIENCE,
        "batch": BATCH,
        "all_folds": folds,
        "seed": ask.seed,
        "device": ask.device,
    }
    tried = len(settings["rates"]) * len(settings["dropouts"])
    items = []
    for noise, numbers, losses in _cuts(folds, ask.device):
        payload = {**settings, "noise": noise, "folds": numbers, "losses": losses}
        named = f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else f"{numbers[0]}"
        key = f"{protocol}|{noise:g}|{named}|{losses[0] if len(losses) == 1 else 'all'}"
        items.append(WorkItem(key, payload, len(numbers) * len(losses) * (tried + 1)))
    train = len(digits.part(settings["rows"]).train_labels)
    return Work(
        items=tuple(items),
        executor="expacc.recipes.leaky.mlp:execute",
        failed_rows=failed_rows,
        shared=pack(digits),
        facts={
            **settings,
            "protocol": protocol,
            "train_rows": train,
            "test_rows": len(digits.test_labels),
        },
    )


def _cuts(folds: int, device: str) -> Iterator[tuple[float, list[int], list[str]]]:
    """Share of noise, folds (from 1) and losses of every item."""
    numbers = list(range(1, folds + 1))
    for noise in NOISES:
        if device != "cpu":  # which wants many runs at once
            for low in range(0, folds, AT_ONCE):
                yield noise, numbers[low : low + AT_ONCE], list(LOSSES)
            continue
        for number in numbers:
            for loss in LOSSES:
                yield noise, [number], [loss]


def execute(item: WorkItem, shared: Shared) -> list[Row]:
    """Train every setting, choose by development rows, and score the chosen on test rows, once."""
    start = time.perf_counter()
    ask = item.payload
    digits = unpack(shared).part(ask["rows"])
    # Noise in training and development rows, as in the paper, and the same for all folds.
    whole = digits.learn(label_noise=ask["noise"], seed=ask["seed"])
    cells = [(loss, fold) for loss in ask["losses"] for fold in ask["folds"]]
    results = _train(whole, digits, cells, ask)
    each = (time.perf_counter() - start) / len(results)
    test = digits.seal([f"{loss}|{fold}" for loss, fold in cells])
    rows = []
    for loss, fold in cells:
        trials = {
            setting: result for (*cell, setting), result in results.items() if cell == [loss, fold]
        }
        rows += [_trial(item, loss, fold, setting, one, each) for setting, one in trials.items()]
        best = _best(trials)
        model = None if best is None else trials[best].model
        if best is None or model is None:
            rows.append(_row(item, "final", loss, fold, failure="every setting diverged"))
            continue
        score = test.score(f"{loss}|{fold}", partial(_classes, model))
        metrics = {**trial_metrics(trials[best]), "accuracy": score.accuracy}
        curves = {"validation_accuracy": trials[best].curves["validation_accuracy"]}
        numbers = {"learning_rate": best[0], "dropout": best[1]}
        rows.append(
            _row(item, "final", loss, fold, numbers=numbers, metrics=metrics, curves=curves)
        )
    return rows


def _classes(model: Trained, features: Any) -> Any:
    return model.logits(torch.from_numpy(features)).argmax(1).numpy()


def _train(
    whole: TrainRows, digits: Digits, cells: Sequence[tuple[str, int]], ask: Mapping[str, Any]
) -> dict[tuple[str, int, Setting], RunResult]:
    """All runs of one dropout together; loss, fold and setting → how it ended."""
    classes = len(whole.classes)
    rows = TensorTable(torch.from_numpy(whole.features), torch.from_numpy(whole.labels), classes)
    splits = folds_of(digits, ask["all_folds"], ask["seed"])
    # One tensor of row numbers per fold, so that all its runs are evaluated in one go.
    parts = {
        fold: (torch.from_numpy(splits[fold - 1].train), torch.from_numpy(splits[fold - 1].test))
        for _, fold in cells
    }
    widths = (whole.features.shape[1], *HIDDEN, classes)
    starts = {fold: xavier(widths, ask["seed"], "mnist", fold) for fold in parts}
    found: dict[tuple[str, int, Setting], RunResult] = {}
    for dropout in ask["dropouts"]:
        runs, tags = [], []
        for loss, fold in cells:
            own, held = parts[fold]
            for rate in ask["rates"]:
                key = f"mnist/{ask['noise']:g}/{fold}/{loss}/{rate:g}/{dropout:g}"
                runs.append(Run(key, own, held, loss=loss, learning_rate=rate, start=starts[fold]))
                tags.append((loss, fold, (rate, dropout)))
        how = TrainConfig(
            Model(HIDDEN, input_dropout=dropout, hidden_dropout=dropout),
            "adam",
            batch=ask["batch"],
            epochs=ask["epochs"],
            patience=ask["patience"],
            seed=derive_seed(ask["seed"], "leerr-mnist-mlp") % (1 << 31),
        )
        found.update(zip(tags, train_runs(rows, runs, how, device=ask["device"]), strict=True))
    return found


def _best(trials: Mapping[Setting, RunResult]) -> Setting | None:
    """The setting of the best development accuracy; of equals the first."""
    good = [setting for setting, result in trials.items() if result.failed_step is None]
    return max(good, key=lambda setting: validation_accuracy(trials[setting]), default=None)


def _trial(
    item: WorkItem, loss: str, fold: int, setting: Setting, result: RunResult, seconds: float
) -> Row:
    numbers = {"learning_rate": setting[0], "dropout": setting[1]}
    more: dict[str, Any] = {"numbers": numbers, "seconds": seconds}
    if result.failed_step is not None:
        more["failure"] = f"diverged at step {result.failed_step}"
    else:
        more["metrics"] = trial_metrics(result)
    return _row(item, "trial", loss, fold, setting, **more)


def _row(
    item: WorkItem, kind: Any, loss: str, fold: int, setting: Setting = (0.0, 0.0), **more: Any
) -> Row:
    tried = f"{setting[0]:g}/{setting[1]:g}" if kind == "trial" else "final"
    return Row(
        key=f"{item.key}|{loss}|{fold}|{tried}",
        item=item.key,
        kind=kind,
        table="mnist",
        loss=loss,
        fold=str(fold),
        noise=item.payload["noise"],
        **more,
    )


def failed_rows(item: WorkItem, reason: str) -> list[Row]:
    """The rows of an item that gave none."""
    ask = item.payload
    return [
        _row(item, "final", loss, fold, failure=reason)
        for loss in ask["losses"]
        for fold in ask["folds"]
    ]
