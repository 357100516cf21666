"""Runs that two processes share and one does alone: for test_network_ranks.py.

In a module of its own, because torchrun starts it as a script.
"""

import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from expacc import ASAM, ExactLoss, GradientNormalizer
from expacc.training.network import fit

ROWS = torch.randn(61, 6, generator=torch.Generator().manual_seed(1))
LABELS = ROWS[:, :3].argmax(1)


def data(rows, dtype=torch.float32):
    return TensorDataset(ROWS[:rows].to(dtype), LABELS[:rows])


def shuffled(rows, dtype=torch.float32):
    return DataLoader(data(rows, dtype), batch_size=8, shuffle=True)


def listed(rows):
    return list(zip(ROWS[:rows].split(8), LABELS[:rows].split(8), strict=True))


class TrainedSigma(nn.Module):
    """EXACT, standardised over all ranks, with a sigma of its own to train."""

    def __init__(self):
        super().__init__()
        self.log_sigma = nn.Parameter(torch.tensor(0.5))
        self.inner = ExactLoss(margin=5.0, standardize="sync")

    def forward(self, logits, target):
        self.inner.sigma = self.log_sigma.exp()
        return self.inner(logits, target)


# 61 rows in batches of 8: the last has 5, so 2 and 3. 57 rows: the last has 1, so 0 and 1.
CASES = {
    "an uneven last batch": {"loader": lambda: shuffled(61)},
    "a last batch of one row": {"loader": lambda: shuffled(57)},
    "a list, a last batch of one row": {"loader": lambda: listed(57)},
    "batches of one row": {"loader": lambda: DataLoader(data(9), batch_size=1)},
    "wrapped by the caller": {"loader": lambda: shuffled(61), "wrapped": True},
    "accumulated": {"loader": lambda: shuffled(61), "accumulate": 3},
    "clipped": {"loader": lambda: shuffled(61), "clip": 0.1},
    # In float64: their steps hardly depend on the gradient's size, so rounding grows fast.
    "ASAM, normalised": {"loader": lambda: shuffled(57, torch.float64), "asam": True},
    "EXACT, a trained sigma": {
        "loader": lambda: shuffled(57, torch.float64),
        "loss": TrainedSigma,
    },
    "EXACT, accumulated": {"loader": lambda: shuffled(61), "loss": TrainedSigma, "accumulate": 2},
}


def train(loader, *, loss=lambda: F.cross_entropy, asam=False, wrapped=False, **settings):
    """Train; return the weights and the records."""
    loader = loader()
    dtype = next(iter(loader))[0].dtype
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3)).to(dtype)
    loss = loss()
    own = list(loss.parameters()) if isinstance(loss, nn.Module) else []
    optimizer = torch.optim.SGD([*model.parameters(), *own], lr=0.2, momentum=0.9)
    if asam:
        optimizer = ASAM(optimizer, rho=0.3)
        settings["normalizer"] = GradientNormalizer(optimizer)
    settings = {"epochs": 3, "device": "cpu", "progress": False, **settings}
    trained = DistributedDataParallel(model) if wrapped and dist.is_initialized() else model
    loaders = (loader, DataLoader(data(57, dtype), batch_size=8))
    result = fit(trained, loaders, loss, optimizer=optimizer, **settings)
    weights = dict(model.named_parameters())
    if own:
        weights |= {"sigma": loss.log_sigma}
    records = [
        [r.loss, r.accuracy, r.validation_loss, r.validation_accuracy] for r in result.history
    ]
    return {name: value.detach() for name, value in weights.items()}, [result.resumed_at, *records]


def leave(folder, name, outcome):
    weights, records = outcome
    place = Path(folder, f"{name}, rank {dist.get_rank()}")
    save_file(weights, f"{place}.safetensors")
    Path(f"{place}.json").write_text(json.dumps(records))


def all_cases(folder):
    """One of two processes: every case, then a run in two parts."""
    for name, settings in CASES.items():  # the first call opens the group, the others find it
        leave(folder, name, train(**settings))
    settings = {"checkpoint": f"{folder}/checkpoint", "checkpoint_every": 3}
    train(lambda: shuffled(61), epochs=1, **settings)
    dist.barrier()
    leave(folder, "resumed", train(lambda: shuffled(61), **settings))
    failures(dist.get_rank(), folder)
    dist.barrier()  # neither closes its connections while the other still talks


def failures(rank, folder):
    """What both ranks must notice together, or one would wait for ever."""

    def nan_on_rank_1(logits, target):
        return F.cross_entropy(logits, target) * (float("nan") if rank == 1 else 1)

    def own_folder():
        train(lambda: shuffled(61), epochs=1, checkpoint=f"{folder}/{rank}")
        dist.barrier()
        train(lambda: shuffled(61), epochs=1, checkpoint=f"{folder}/{rank}")

    sentences = []
    for call in (lambda: train(lambda: shuffled(61), loss=lambda: nan_on_rank_1), own_folder):
        try:
            call()
        except (ValueError, FloatingPointError) as error:
            sentences.append(str(error))
    Path(folder, f"failures, rank {rank}.json").write_text(json.dumps(sentences))


if __name__ == "__main__":  # under torchrun, which says who is who
    torch.set_num_threads(1)
    all_cases(sys.argv[1])
