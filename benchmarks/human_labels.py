"""Losses on CIFAR-10 with human labels (CIFAR-10N), by ``expacc.compare_networks``.

    python benchmarks/human_labels.py CIFAR_FOLDER LABELS.npz STUDY_FOLDER
    python benchmarks/human_labels.py … --seeds 6 --epochs 30 --labels worse_label --seconds 270

ResNet-9, batches of 512, SGD with Nesterov's momentum, crops of 4 pixels and mirrors, bfloat16 on a
GPU. A study that is cut off goes on when it is called again. Rows are printed as JSON lines.
"""

import argparse
import json
import os
import signal
import threading
from pathlib import Path

import numpy as np
import torch
from networks import LOSSES, read_cifar

from expacc import compare_networks, networks
from expacc.compare.leaderboard import leaderboard
from expacc.compare.page import write_report
from expacc.compare.study import load_record
from expacc.training import Augment

CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("labels", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--name", default="worse_label", help="an array of the file of labels")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--trials", type=int, default=1)
    parser.add_argument("--rows", type=int, default=50_000, help="of training")
    parser.add_argument("--network", default="resnet9")
    parser.add_argument("--graphs", action="store_true")
    parser.add_argument("--seconds", type=float, default=1e9, help="then stop, to go on later")
    asked = parser.parse_args()
    pictures, clean, test_pictures, test_labels = read_cifar(asked.folder)
    # The labels of people follow the order of the official files.
    noisy = np.load(asked.labels)[asked.name].astype(np.int64)
    torch.backends.cudnn.benchmark = True

    def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            model.parameters(), lr=0.4, momentum=0.9, nesterov=True, weight_decay=5e-4
        )

    stop = threading.Timer(asked.seconds, os.kill, (os.getpid(), signal.SIGINT))
    stop.daemon = True
    stop.start()
    try:
        compare_networks(
            lambda: networks.get(asked.network),
            (pictures[: asked.rows], clean[: asked.rows]),
            (test_pictures, test_labels),
            label_noise=noisy[: asked.rows],
            losses=[loss for loss in LOSSES if loss != "cross_entropy"],
            seeds=asked.seeds,
            epochs=asked.epochs,
            trials=asked.trials,
            batch_size=512,
            optimizer=sgd,
            augment=Augment(4, "alternating"),
            graphs=asked.graphs,
            classes=CLASSES,
            name="CIFAR-10N",
            target=asked.name,
            out=asked.out,
        )
    except KeyboardInterrupt:
        print(json.dumps({"stopped": "call again to go on"}))
    stop.cancel()
    record = load_record(asked.out)
    for row in record.rows:
        kept = {name: getattr(row, name) for name in ("kind", "loss", "seed", "seconds", "failure")}
        told = {"numbers": row.numbers, "metrics": row.metrics, "curves": row.curves}
        print(json.dumps({**kept, **told}))
    board = leaderboard(record)
    write_report(record, asked.out, board)
    print(json.dumps({"answer": board.answer.sentence, "also": board.answer.also}))


if __name__ == "__main__":
    main()
