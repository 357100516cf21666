"""The batched loop on a GPU: the same batches bit for bit, the same weights but for rounding."""

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from expacc.training import LOSS_NAMES, Model, Run, TensorTable, TrainConfig, train_runs
from expacc.training.batches import Batches
from expacc.training.randomness import seed_of


def table(rows=300, features=6, classes=4):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, features, generator=generator)
    weight = torch.randn(features, classes, generator=generator)
    return TensorTable(x, (x @ weight).argmax(1), classes)


@pytest.mark.parametrize("hidden", [(), (8,)])
def test_same_as_on_the_cpu(hidden):
    rows, everyone = table(), torch.arange(300)
    numbers = {"exact": {"sigma": 1.0}}
    runs = [
        Run(name, everyone, loss=name, loss_params=numbers.get(name, {}), learning_rate=0.02)
        for name in LOSS_NAMES
    ]
    model = Model(hidden, hidden_dropout=0.2 if hidden else 0.0)
    plan = TrainConfig(model, batch=32, epochs=3, keep="last")
    for here, there in zip(
        train_runs(rows, runs, plan), train_runs(rows, runs, plan, device="cuda"), strict=True
    ):
        for a, b in zip(here.model.layers, there.model.layers, strict=True):
            torch.testing.assert_close(a.weight, b.weight, atol=2e-5, rtol=1e-4)


def test_batches_are_the_same_bits():
    rows = table()
    runs = [Run(f"r{i}", torch.arange(300 - i % 2)) for i in range(20)]
    seeds = torch.tensor([seed_of(0, run.key) for run in runs])
    there = TensorTable(rows.features.cuda(), rows.labels.cuda(), rows.classes)
    for steps in (None, 12):
        here = Batches(rows, runs, seeds, 32, steps).epoch(1)
        for (x, _), (y, _) in zip(
            here, Batches(there, runs, seeds.cuda(), 32, steps).epoch(1), strict=True
        ):
            assert torch.equal(x, y.cpu())
