"""A training run with everything that has a state, and ways to kill it: for test_checkpoint.py.

In a module of its own, because the processes that run it import it.
"""

import json
import os
import signal
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from expacc import ExactLoss, GradientNormalizer, ScheduledLoss
from expacc.schedules import sigma_vision
from expacc.training import checkpoint
from expacc.training.network import fit


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def at_call(number, then):
    """A function that calls ``then`` at its call ``number``, from 1."""
    calls = 0

    def count(*_):
        nonlocal calls
        calls += 1
        if calls == number:
            then()

    return count


class Watched(nn.Module):
    """A loss that calls ``watch`` before each value, in training and in validation."""

    def __init__(self, watch):
        super().__init__()
        self.inner = ExactLoss(margin=5.0)
        self.sigma, self.watch = 1.0, watch

    def forward(self, logits, target):
        self.watch()
        self.inner.sigma = self.sigma
        return self.inner(logits, target)


STEPS, EPOCHS = 7, 3  # 100 rows in batches of 16: the last has 4


def train(folder, watch=lambda: None, seed=11):
    """A run with everything that has a state."""
    torch.set_num_threads(1)  # a forked process cannot use the threads of its parent
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(100, 8, generator=generator)
    data = TensorDataset(rows, rows[:, :3].argmax(1))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        model = nn.Sequential(
            nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3)
        )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, STEPS * EPOCHS)
    settings = {"optimizer": optimizer, "scheduler": schedule, "scheduler_every": "step"}
    settings |= {"normalizer": GradientNormalizer(optimizer), "epochs": EPOCHS, "seed": seed}
    settings |= {"checkpoint": folder, "checkpoint_every": 2, "device": "cpu", "progress": False}
    loaders = (DataLoader(data, batch_size=16, shuffle=True), DataLoader(data, batch_size=50))
    loss = ScheduledLoss(Watched(watch), sigma=sigma_vision)
    return model, fit(model, loaders, loss, **settings)


def records(result):
    return [
        [r.epoch, r.loss, r.accuracy, r.validation_loss, r.validation_accuracy]
        for r in result.history
    ]


def interrupted(folder, point, number):
    """Train, and die at the point."""
    watch = at_call(number, kill)
    if point == "loss":
        train(folder, watch)
    elif point == "fsync":
        fsync = os.fsync
        os.fsync = lambda file: (watch(), fsync(file))
    elif point == "replace":
        replace = Path.replace
        Path.replace = lambda part, path: (watch(), replace(part, path))
    else:
        write = checkpoint.replace_file

        def half(path, fill):
            def fill_half(part):
                fill(part)
                os.truncate(part, part.stat().st_size // 2)
                watch()
                fill(part)

            write(path, fill_half)

        checkpoint.replace_file = half
    train(folder)


def finished(folder):
    """Train to the end and leave the weights and the records."""
    model, result = train(folder)
    save_file(model.state_dict(), f"{folder}/final.safetensors")
    Path(folder, "records.json").write_text(json.dumps([result.resumed_at, records(result)]))
