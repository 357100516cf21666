"""Do our losses need a shift with many classes? Tables of 15 to 100, and networks on 100.

Every loss is trained with ``shift=0`` and with ``shift='auto'``, log((K - 1)/9), on labels of
which a part was changed to another class. Tables: those with 15 classes or more of Klambauer et
al.'s collection, their own four folds; learning rate and weight decay are chosen for each loss by
the validation rows, whose labels are as wrong as those of training. Pictures: two digits, or two
pieces of clothing, side by side, 100 classes; a small convolutional network, last epoch. Accuracy
is on clean test rows.

    python benchmarks/many_classes.py tables --data DIR [--device cuda] --out parts/tables.json
    python benchmarks/many_classes.py pictures --data DIR --sets mnist --seeds 0 --device cuda \
        --out parts/mnist-0.json
    python benchmarks/many_classes.py gather parts/*.json    writes results/ and the page
"""

import argparse
import gzip
import json
import lzma
import math
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from machine import RESULTS, facts
from torch import nn

import expacc
from expacc.registry import SPECS
from expacc.schedules import focus_gradual
from expacc.training import Model, Run, TensorTable, TrainConfig, train_runs

LOSSES = {
    "cross_entropy": {},
    "expected_error": {},
    "leaky_expected_error": {"leak": 0.1},
    "mixed_expected_error": {"focus": focus_gradual},
    "generalized_cross_entropy": {"q": 0.7},
}
SHIFTS = (0.0, "auto")
METHODS = [
    (name, shift) for name in LOSSES for shift in SHIFTS if name != "cross_entropy" or shift == 0
]
Keep = Callable[[list[dict[str, object]]], None]
LEAST_CLASSES = 15
NOISE = (0.0, 0.4)
GRID = {
    "linear": [(rate, decay) for rate in (0.02, 0.1, 0.5) for decay in (1e-5, 1e-3)],
    "mlp": [(rate, decay) for rate in (0.001, 0.003, 0.01, 0.03) for decay in (1e-5,)],
}


def changed(labels: np.ndarray, classes: int, noise: float, seed: int) -> np.ndarray:
    """A part ``noise`` of the labels, each moved to one of the other classes."""
    draw = np.random.default_rng(seed)
    moved = draw.random(len(labels)) < noise
    return np.where(moved, (labels + draw.integers(1, classes, len(labels))) % classes, labels)


# -------------------------------------------------------------------------------------- tables


def read_uci(folder: Path, part: str) -> np.ndarray:
    with lzma.open(folder / f"{part}_py.dat.xz", "rt") as lines:
        return np.loadtxt(lines, delimiter=",", ndmin=2)


def tables(data: Path, device: str, names: list[str], keep: Keep) -> list[dict[str, object]]:
    found = []
    for folder in sorted((data / "uci121").iterdir()):
        if names and folder.name not in names:
            continue
        labels = read_uci(folder, "labels")[:, 0].astype(int)
        classes = int(labels.max()) + 1
        if classes < LEAST_CLASSES:
            continue
        features = read_uci(folder, folder.name)
        tests, held = read_uci(folder, "folds"), read_uci(folder, "validation_folds")
        wrong = [changed(labels, classes, noise, seed=1) for noise in NOISE]
        # One version of the rows below the other, by how many of the labels are wrong.
        stacked = TensorTable(
            torch.tensor(np.tile(features, (len(NOISE), 1)), dtype=torch.float32),
            torch.tensor(np.concatenate(wrong)),
            classes,
        )
        for model, grid in GRID.items():
            runs, places = [], {}
            for level, noise in enumerate(NOISE):
                for fold in range(4):
                    own = torch.tensor(np.flatnonzero((tests + held)[:, fold] == 0))
                    chosen = torch.tensor(np.flatnonzero(held[:, fold] == 1))
                    first = level * len(labels)
                    for name, shift in METHODS:
                        params = dict(LOSSES[name]) | ({"shift": shift} if shift else {})
                        for rate, decay in grid:
                            key = f"{noise} {fold} {name} {shift} {rate} {decay}"
                            places[key] = (noise, fold, name, shift)
                            runs.append(
                                Run(
                                    key,
                                    own + first,
                                    chosen + first,
                                    loss=name,
                                    loss_params=params,
                                    learning_rate=rate,
                                    weight_decay=decay,
                                )
                            )
            hidden = (64,) if model == "mlp" else ()
            # About 4,000 steps, whatever the number of rows.
            batch = 256 if len(labels) > 2000 else 64
            steps = math.ceil(len(labels) / 2 / batch)
            config = TrainConfig(
                Model(hidden), "adam", batch, epochs=max(30, min(200, 4000 // steps)), patience=40
            )
            results = train_runs(stacked, runs, config, device=device, progress=False)
            best: dict[tuple, tuple] = {}
            for result in results:
                if result.model is None:
                    continue
                score = max(result.curves["validation_accuracy"])
                place = places[result.key]
                if place not in best or score > best[place][0]:
                    best[place] = (score, result.model)
            scores = defaultdict(list)
            for (noise, fold, name, shift), (_, trained) in best.items():
                kept = np.flatnonzero(tests[:, fold] == 1)
                rows = torch.tensor(features[kept], dtype=torch.float32)
                device_of = trained.layers[0].weight.device
                guess = trained.logits(rows.to(device_of)).argmax(1).cpu().numpy()
                scores[noise, name, shift].append(float((guess == labels[kept]).mean()))
            for (noise, name, shift), values in scores.items():
                found.append(
                    {
                        "set": folder.name,
                        "classes": classes,
                        "rows": len(labels),
                        "model": model,
                        "noise": noise,
                        "loss": name,
                        "shift": shift,
                        "accuracies": values,
                    }
                )
            print(folder.name, classes, model, len(runs), "runs", flush=True)
            keep(found)
    return found


# ------------------------------------------------------------------------------------ pictures


def idx(path: Path) -> np.ndarray:
    raw = gzip.decompress(path.read_bytes())
    shape = np.frombuffer(raw, ">i4", raw[3], 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape)


def pairs(folder: Path, part: str, count: int, seed: int) -> tuple[torch.Tensor, np.ndarray]:
    """(count, 1, 28, 56) pictures of two, and 10 · left + right."""
    pictures = idx(folder / f"{part}-images-idx3-ubyte.gz")
    labels = idx(folder / f"{part}-labels-idx1-ubyte.gz").astype(int)
    left, right = np.random.default_rng(seed).integers(0, len(labels), (2, count))
    both = torch.tensor(np.concatenate([pictures[left], pictures[right]], 2)).float()
    return ((both - 60) / 80).unsqueeze(1), labels[left] * 10 + labels[right]


def network() -> nn.Module:
    layers: list[nn.Module] = []
    before = 1
    for width, stride in ((32, 1), (64, 2), (128, 2), (128, 2)):
        layers += [
            nn.Conv2d(before, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        ]
        before = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 4 * 7, 256), nn.ReLU(),
                         nn.Linear(256, 100))  # fmt: skip


def train(
    rows: torch.Tensor, labels: torch.Tensor, loss: nn.Module, epochs: int, seed: int, rate: float
) -> nn.Module:
    torch.manual_seed(seed)
    model = network().to(rows.device)
    steps = epochs * (len(rows) // 512)
    optimizer = torch.optim.SGD(
        model.parameters(), rate, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, steps, pct_start=0.2)
    for step in range(steps):
        if isinstance(loss, expacc.ScheduledLoss):
            loss.advance(steps)
        place = step % (len(rows) // 512)
        if place == 0:
            order = torch.randperm(len(rows), device=rows.device)
        some = order[place * 512 : (place + 1) * 512]
        with torch.autocast(rows.device.type, torch.bfloat16):
            logits = model(rows[some])
        value = loss(logits.float(), labels[some])
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        optimizer.step()
        schedule.step()
    return model.eval()


def pictures(
    data: Path,
    device: str,
    sets: list[str],
    seeds: list[int],
    levels: list[float],
    epochs: int,
    keep: Keep,
) -> list[dict[str, object]]:
    found = []
    for name in sets:
        rows, labels = pairs(data / name, "train", 60_000, seed=0)
        test, truth = pairs(data / name, "t10k", 10_000, seed=1)
        rows, test = rows.to(device), test.to(device)
        for noise in levels:
            wrong = torch.tensor(changed(labels, 100, noise, seed=2)).to(device)
            for loss_name, shift in METHODS:
                scores = []
                for seed in seeds:
                    params = {k: v for k, v in LOSSES[loss_name].items() if not callable(v)}
                    moves = {"shift": shift} if shift else {}
                    loss = expacc.get_loss(loss_name, **params, **moves)
                    if "focus" in LOSSES[loss_name]:
                        loss = expacc.ScheduledLoss(loss, focus=focus_gradual)
                    model = train(rows, wrong, loss, epochs, seed, rate=0.05)
                    with torch.no_grad():
                        guess = torch.cat([model(part).argmax(1) for part in test.split(2000)])
                    scores.append(float((guess.cpu().numpy() == truth).mean()))
                found.append(
                    {
                        "set": f"{name} pairs",
                        "classes": 100,
                        "rows": len(labels),
                        "model": f"CNN, {epochs} epochs",
                        "noise": noise,
                        "loss": loss_name,
                        "shift": shift,
                        "seeds": seeds,
                        "accuracies": scores,
                    }
                )
                print(name, noise, loss_name, shift, scores, flush=True)
                keep(found)
    return found


# -------------------------------------------------------------------------------------- gather


def gather(parts: list[Path]) -> None:
    merged: dict[tuple, dict] = {}
    about = []
    for path in parts:
        part = json.loads(path.read_text())
        about.append(part["facts"])
        for row in part["rows"]:
            key = tuple(row[k] for k in ("set", "model", "noise", "loss", "shift"))
            if key in merged:
                merged[key]["accuracies"] += row["accuracies"]
                merged[key]["seeds"] += row["seeds"]
            else:
                merged[key] = row
    target = RESULTS / "many-classes.json"
    target.write_text(json.dumps({"facts": about[0], "rows": list(merged.values())}, indent=1))
    lines: dict[tuple, dict] = defaultdict(dict)
    for (name, model, noise, loss, shift), row in merged.items():
        lines[name, row["classes"], model, noise][loss, shift] = 100 * np.mean(row["accuracies"])
    head = ["data", "classes", "model", "wrong", *(SPECS[name].label for name in LOSSES)]
    table = [head, ["---"] * len(head)]
    for (name, classes, model, noise), cells in lines.items():
        told = [
            " → ".join(f"{cells[loss, s]:.1f}" for s in SHIFTS if (loss, s) in cells)
            for loss in LOSSES
        ]
        table.append([name, str(classes), model, f"{noise:.0%}", *told])
    text = "\n".join(f"| {' | '.join(row)} |" for row in table)
    print(text)
    page = RESULTS.parent.parent / "docs" / "many-classes.md"
    before, rest = page.read_text().split("<!-- many classes -->")
    after = rest.split("<!-- /many classes -->")[1]
    page.write_text(f"{before}<!-- many classes -->\n{text}\n<!-- /many classes -->{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("about", choices=("tables", "pictures", "gather"))
    parser.add_argument("parts", nargs="*", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sets", help="some of them, by name; default: all")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--noise", default="0,0.4", help="shares of wrong labels, of pictures")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--commit", help="where there is no repository")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if asked.about == "gather":
        gather(asked.parts)
        return
    device = torch.cuda.get_device_name() if asked.device == "cuda" else "cpu"
    about = facts(device=device) | ({"commit": asked.commit} if asked.commit else {})
    asked.out.parent.mkdir(parents=True, exist_ok=True)

    def keep(rows: list[dict[str, object]]) -> None:
        asked.out.write_text(json.dumps({"facts": about, "rows": rows}))

    names = asked.sets.split(",") if asked.sets else []
    if asked.about == "tables":
        tables(asked.data, asked.device, names, keep)
    else:
        seeds = [int(seed) for seed in asked.seeds.split(",")]
        levels = [float(share) for share in asked.noise.split(",")]
        chosen = names or ["mnist", "fashion-mnist"]
        pictures(asked.data, asked.device, chosen, seeds, levels, asked.epochs, keep)


if __name__ == "__main__":
    main()
