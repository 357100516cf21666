"""Batches that runs share, on a GPU: what the CPU gives, but for rounding."""

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from expacc.training import Model, Run, TensorTable, TrainConfig, train_runs


@pytest.mark.parametrize("hidden", [(), (6,)])
@pytest.mark.parametrize("lengths", [(300, 280, 299), (90, 61), (7, 3)])
def test_same_as_on_the_cpu(hidden, lengths):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(500, 6, generator=generator)
    rows = TensorTable(x, (x @ torch.randn(6, 4, generator=generator)).argmax(1), 4)
    runs = [
        Run(f"{n}{loss}{rate}", torch.arange(n, n + length), torch.arange(320, 500), loss, {}, rate,
            group=str(n))
        for n, length in enumerate(lengths)
        for loss in ("mixed_expected_error", "focal", "hinge")
        for rate in (0.01, 0.001)
    ]  # fmt: skip
    config = TrainConfig(Model(hidden), batch=8, epochs=6)
    here, there = (
        train_runs(rows, runs, config, share_batches=True, device=device)
        for device in ("cpu", "cuda")
    )
    for one, other in zip(here, there, strict=True):
        scores = (max(found.curves["validation_accuracy"]) for found in (one, other))
        assert next(scores) == pytest.approx(next(scores), abs=0.02)
        if one.best_epoch == other.best_epoch:
            for mine, theirs in zip(one.model.layers, other.model.layers, strict=True):
                torch.testing.assert_close(mine.weight, theirs.weight, atol=2e-5, rtol=1e-4)
