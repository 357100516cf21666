"""The batched loop on a GPU: the same batches bit for bit, the same weights but for rounding."""

import pytest
import torch
from test_training import table

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from expacc.training import LOSS_NAMES, Model, Run, TensorTable, TrainConfig, train_runs
from expacc.training.batches import Batches
from expacc.training.randomness import seed_of

ROWS = table(500, features=6, classes=4, noise=0)


@pytest.mark.parametrize("hidden", [(), (8,)])
def test_same_as_on_the_cpu(hidden):
    numbers = {"exact": {"sigma": 1.0}}
    runs = [
        Run(name, torch.arange(300), loss=name, loss_params=numbers.get(name, {}),
            learning_rate=0.02)
        for name in LOSS_NAMES
    ]  # fmt: skip
    model = Model(hidden, hidden_dropout=0.2 if hidden else 0.0)
    plan = TrainConfig(model, batch=32, epochs=3, keep="last")
    for here, there in zip(
        train_runs(ROWS, runs, plan), train_runs(ROWS, runs, plan, device="cuda"), strict=True
    ):
        for a, b in zip(here.model.layers, there.model.layers, strict=True):
            torch.testing.assert_close(a.weight, b.weight, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("hidden", [(), (6,)])
@pytest.mark.parametrize("lengths", [(300, 280, 299), (90, 61), (7, 3)])
def test_shared_batches_are_the_same_as_on_the_cpu(hidden, lengths):
    runs = [
        Run(f"{n}{loss}{rate}", torch.arange(n, n + length), torch.arange(320, 500), loss, {}, rate,
            group=str(n))
        for n, length in enumerate(lengths)
        for loss in ("mixed_expected_error", "focal", "hinge")
        for rate in (0.01, 0.001)
    ]  # fmt: skip
    config = TrainConfig(Model(hidden), batch=8, epochs=6)
    here, there = (
        train_runs(ROWS, runs, config, share_batches=True, device=device)
        for device in ("cpu", "cuda")
    )
    for one, other in zip(here, there, strict=True):
        scores = (max(found.curves["validation_accuracy"]) for found in (one, other))
        assert next(scores) == pytest.approx(next(scores), abs=0.02)
        if one.best_epoch == other.best_epoch:
            for mine, theirs in zip(one.model.layers, other.model.layers, strict=True):
                torch.testing.assert_close(mine.weight, theirs.weight, atol=2e-5, rtol=1e-4)


def test_batches_are_the_same_bits():
    runs = [Run(f"r{i}", torch.arange(300 - i % 2)) for i in range(20)]
    seeds = torch.tensor([seed_of(0, run.key) for run in runs])
    there = TensorTable(ROWS.features.cuda(), ROWS.labels.cuda(), ROWS.classes)
    for steps in (None, 12):
        here = Batches(ROWS, runs, seeds, 32, steps).epoch(1)
        for (x, _), (y, _) in zip(
            here, Batches(there, runs, seeds.cuda(), 32, steps).epoch(1), strict=True
        ):
            assert torch.equal(x, y.cpu())
