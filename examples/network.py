"""Train a small convolutional network with three losses through ``fit``, labels 20 % wrong.

Data: the handwritten digits that ship inside scikit-learn. One seed and one recipe for all: this
shows how to call ``fit``; it is not a fair contest. Interrupt it and start it again with
``--checkpoint FOLDER``: it goes on where it was. Start it by ``torchrun --nproc-per-node 2`` and
two processes share the batches.
"""

import argparse
import os
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import expacc
from expacc.schedules import sigma_vision
from expacc.training.network import fit

EPOCHS, BATCH, WRONG = 20, 64, 0.2


def losses() -> dict[str, nn.Module]:
    return {
        "cross entropy": nn.CrossEntropyLoss(),
        "leaky expected error": expacc.LeakyExpectedErrorLoss(),
        "EXACT": expacc.ScheduledLoss(
            expacc.ExactLoss(margin=5.0, standardize="sync"), sigma=sigma_vision
        ),
    }


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(32 * 16, 10),
    )


def digits() -> tuple[TensorDataset, TensorDataset]:
    """Training rows, a fifth of them with a wrong label, and validation rows with the true ones."""
    pictures, labels = load_digits(return_X_y=True)
    x, x_valid, y, y_valid = (
        torch.tensor(part)
        for part in train_test_split(pictures / 16, labels, test_size=0.3, random_state=0)
    )
    generator = torch.Generator().manual_seed(0)
    wrong = torch.rand(len(y), generator=generator) < WRONG
    other = (y + torch.randint(1, 10, y.shape, generator=generator)) % 10
    x, x_valid = (part.float().reshape(-1, 1, 8, 8) for part in (x, x_valid))
    return TensorDataset(x, torch.where(wrong, other, y)), TensorDataset(x_valid, y_valid)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", type=Path, help="folder for the checkpoints")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help=f"(default {EPOCHS})")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    training, validation = digits()
    table = Table(title=f"Digits, {WRONG:.0%} of the training labels wrong")
    for column in ("loss", "training accuracy", "validation accuracy", "seconds"):
        table.add_column(column, justify="left" if column == "loss" else "right")
    for name, loss in losses().items():
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        # EXACT's gradient grows as sigma falls; the others do not need the normaliser.
        normalizer = expacc.GradientNormalizer(optimizer) if name == "EXACT" else None
        start = time.perf_counter()
        result = fit(
            model,
            (DataLoader(training, BATCH, shuffle=True), DataLoader(validation, 512)),
            loss,
            epochs=arguments.epochs,
            optimizer=optimizer,
            normalizer=normalizer,
            checkpoint=arguments.checkpoint and arguments.checkpoint / name.replace(" ", "-"),
        )
        last = result.history[-1]
        table.add_row(
            name,
            f"{last.accuracy:.1%}",
            f"{last.validation_accuracy:.1%}",
            f"{time.perf_counter() - start:.1f}",
        )
    if os.environ.get("RANK", "0") == "0":
        Console().print(table)


if __name__ == "__main__":
    main()
