"""mixing-imagenet: networks on a folder of ImageNet, each run on all GPUs under torchrun.

A run keeps a checkpoint in the folder for temporary files, and goes on from it after a kill.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from expacc.recipes.mixing import imagenet_rank
from expacc.recipes.mixing.uci import CE, CONSTANT, GRADUAL, SWITCH
from expacc.recipes.mixing.vision import LOSSES, page_of
from expacc.recipes.page import Page
from expacc.recipes.paper import numbers
from expacc.recipes.recipe import (
    RecipeOptions,
    Work,
    final_row,
    missing_data,
    need_data,
)
from expacc.recipes.vision.plan import protocol_of
from expacc.recipes.vision.train import flops, minutes_for
from expacc.runner.engine import cores
from expacc.runner.items import Shared, WorkItem
from expacc.runner.rows import Row

FOLDER = "imagenet"
TABLE_2 = {FOLDER: numbers("mixing", "table_2")}
METHODS = (CE, CONSTANT, SWITCH, GRADUAL)
BATCH, RATE, DECAY, LATE = 256, 0.1, 1e-4, [1 / 3, 2 / 3]
_TOLD = 300  # characters of what torchrun says at its end

_ALL = list(TABLE_2[FOLDER])
PROTOCOLS: dict[str, dict[str, Any]] = {
    "full": {"networks": _ALL, "epochs": 90, "size": 224, "rows": None, "seeds": 2},
    "short": {"networks": _ALL[:1], "epochs": 18, "size": 128, "rows": None, "seeds": 1},
    "small": {"networks": _ALL[:1], "epochs": 2, "size": 64, "rows": 5000, "seeds": 1},
    "quick": {"networks": _ALL[:1], "epochs": 1, "size": 64, "rows": 256, "seeds": 1},
}


def plan(options: RecipeOptions) -> Work:
    """An item a run."""
    folder = need_data(options.data, FOLDER)
    parts = {part: folder / part for part in ("train", "val")}
    absent = [part for part, path in parts.items() if not path.is_dir()]
    if absent:
        raise ValueError(missing_data(FOLDER, *absent))
    protocol = protocol_of(options)
    how = PROTOCOLS[protocol]
    test_rows = None if how["rows"] is None else how["rows"] // 2
    files = {part: imagenet_rank.pictures_of(path) for part, path in parts.items()}
    classes = {part: len({number for _, number in found}) for part, found in files.items()}
    if not files["train"] or classes["train"] != classes["val"]:
        raise ValueError(
            f"{FOLDER} must have pictures of the same classes in train and val; got "
            f"{classes['train']} and {classes['val']} folders with pictures."
        )
    names = "\n".join(path for found in files.values() for path, _ in found)
    digest = hashlib.sha256(names.replace(str(folder), "").encode()).hexdigest()
    rows = min(how["rows"] or len(files["train"]), len(files["train"]))
    items = [
        WorkItem(
            f"{protocol}|{network}|{method}|{seed}",
            {
                "folder": str(folder.absolute()),
                "digest": digest,
                "classes": classes["train"],
                "network": network,
                "method": method,
                "loss": LOSSES[method],
                "epochs": how["epochs"],
                "size": how["size"],
                "rows": how["rows"],
                "test_rows": test_rows,
                "batch": min(BATCH, rows),
                "rate": RATE,
                "weight_decay": DECAY,
                "rate_falls": LATE,
                "repeat": seed,
                "seed": options.seed,
                "device": options.device,
            },
        )
        for seed in range(options.seeds or how["seeds"])
        for network in how["networks"]
        for method in METHODS
    ]
    cells = [
        {"key": [FOLDER, network], "network": network, "epochs": how["epochs"], "rows": rows}
        for network in how["networks"]
    ]
    operations = sum(
        flops(item.payload["network"], classes["train"], 3, how["size"]) * rows * how["epochs"]
        for item in items
    )
    facts = {"protocol": protocol, "cells": cells, "batch": BATCH, "digests": {FOLDER: digest}}
    return Work(
        tuple(items),
        "expacc.recipes.mixing.imagenet:execute",
        failed_rows,
        facts={**facts, "rows_text": f"{how['rows'] or 0:,}"},
        minutes=minutes_for(operations, options.device),
    )


def ranks_of(device: str) -> int:
    """Processes of a run: a GPU each."""
    return max(1, torch.cuda.device_count()) if device == "cuda" else 1


def execute(item: WorkItem, shared: Shared) -> list[Row]:
    """Train one network, here or under torchrun."""
    started, ranks = time.perf_counter(), ranks_of(item.payload["device"])
    named = hashlib.sha256(f"{item.key}{item.payload}".encode()).hexdigest()[:16]
    kept = Path(tempfile.gettempdir()) / f"expacc-imagenet-{named}"
    readers = 0 if item.payload["device"] == "cpu" else max(1, min(12, cores() // ranks))
    ask = {**item.payload, "checkpoint": str(kept), "readers": readers}
    found = imagenet_rank.train(ask) if ranks == 1 else _under_torchrun(ask, ranks)
    shutil.rmtree(kept, ignore_errors=True)
    accuracies = tuple(found["train_accuracy"])
    metrics = {
        "accuracy": found["accuracy"],
        "train_accuracy": accuracies[-1],
        "epochs": float(len(accuracies)),
    }
    curves = {"train_accuracy": accuracies, "train_loss": tuple(found["train_loss"])}
    seconds = time.perf_counter() - started
    return [_row(item, metrics=metrics, curves=curves, seconds=seconds)]


def _under_torchrun(ask: Mapping[str, Any], ranks: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        asked, answer = Path(folder) / "ask.json", Path(folder) / "result.json"
        asked.write_text(json.dumps(ask))
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += [f"--nproc-per-node={ranks}", imagenet_rank.__file__, str(asked), str(answer)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not answer.is_file():
            said = [line for line in done.stderr.splitlines() if "Error:" in line]
            raise RuntimeError((said[0] if said else done.stderr.strip())[-_TOLD:])
        found: dict[str, Any] = json.loads(answer.read_text())
        return found


def _row(item: WorkItem, **more: Any) -> Row:
    ask = item.payload
    numbers_ = {"network": ask["network"], "learning_rate": ask["rate"]}
    return final_row(
        item, "", table=FOLDER, loss=ask["method"], seed=ask["repeat"], numbers=numbers_, **more
    )


def failed_rows(item: WorkItem, reason: str) -> list[Row]:
    """The row of an item that gave none."""
    return [_row(item, failure=reason)]


def write(rows: Sequence[Row], facts: Mapping[str, Any]) -> Page:
    """The page of Table 2 from the rows that there are."""
    pairs = [(one, CE) for one in (CONSTANT, SWITCH, GRADUAL)]
    return page_of("mixing-imagenet", "network", rows, facts, TABLE_2, METHODS, pairs)
