"""Lockstep training on a GPU: recorded steps give what steps on the CPU give, but for rounding."""

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from expacc.recipes.mixing.arms import contenders
from expacc.recipes.mixing.lockstep import Group, train_in_lockstep
from expacc.training import TensorTable


@pytest.mark.parametrize("hidden", [0, 6])
@pytest.mark.parametrize("lengths", [(300, 280, 299), (90, 61), (7, 3)])
def test_same_as_on_the_cpu(hidden, lengths):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(500, 6, generator=generator)
    y = (x @ torch.randn(6, 4, generator=generator)).argmax(1)
    groups = [
        Group(f"group {n}", torch.arange(n, n + length), torch.arange(320, 500))
        for n, length in enumerate(lengths)
    ]
    rivals = [one for each in contenders((0.01, 0.001), 6).values() for one in each]
    here, there = (
        train_in_lockstep(
            TensorTable(x, y, 4),
            groups,
            rivals,
            hidden=hidden,
            batch=8,
            epochs=6,
            seed=0,
            device=device,
        )
        for device in ("cpu", "cuda")
    )
    for one, other in zip(here, there, strict=True):
        for a, b in zip(one, other, strict=True):
            assert a.validation == pytest.approx(b.validation, abs=0.02)
            if a.best_epoch == b.best_epoch:
                for mine, theirs in zip(a.model.layers, b.model.layers, strict=True):
                    torch.testing.assert_close(mine.weight, theirs.weight, atol=2e-5, rtol=1e-4)
