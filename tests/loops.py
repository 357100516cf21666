"""One small training run, by ``expacc.training.fit``: what every framework's loop is held to."""

import re
from pathlib import Path

import torch
from torch import nn

from expacc import GradientNormalizer, MixedExpectedErrorLoss, ScheduledLoss
from expacc.schedules import focus_gradual
from expacc.training.network import fit

PAGE = Path(__file__).parent.parent / "docs/frameworks.md"
STEPS, ROWS, CLASSES, RATE = 20, 6, 4, 0.2


def network(dtype=torch.float32):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, CLASSES)).to(dtype)


def batches(count):
    """So many batches of rows."""
    generator = torch.Generator().manual_seed(4)
    inputs = torch.randn(count, ROWS, 5, generator=generator)
    return [(x, x[:, :CLASSES].argmax(1)) for x in inputs]


def scheduled_loss():
    return ScheduledLoss(MixedExpectedErrorLoss(), focus=focus_gradual)


def block(heading):
    """The first Python block of a section of docs/frameworks.md."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.search(r"```python\n(.*?)```", section, re.S).group(1)


def run_block(heading, **names):
    """Run it with these names; return all that it leaves."""
    exec(compile(block(heading), f"{PAGE.name}: {heading}", "exec"), names)
    return names


def changed(model):
    """Has every parameter moved?"""
    pairs = zip(model.parameters(), network().parameters(), strict=True)
    return all((one - two).abs().max() > 1e-3 for one, two in pairs)


def ours(accumulate=1, precision="float32", clip=None, normalize=False, epochs=1):
    """The weights after 20 steps with the mixed loss, its focus moving."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    fit(
        model,
        batches(STEPS * accumulate // epochs),
        scheduled_loss(),
        epochs=epochs,
        optimizer=optimizer,
        accumulate=accumulate,
        precision=precision,
        clip=clip,
        normalizer=GradientNormalizer(optimizer) if normalize else None,
        device="cpu",
        progress=False,
    )
    return model


def assert_same(model, expected, digits=6):
    """The same weights, to the rounding of sums in another order."""
    pairs = zip(model.state_dict().items(), expected.state_dict().items(), strict=True)
    for (_, one), (name, two) in pairs:
        torch.testing.assert_close(one, two, rtol=0, atol=10**-digits, msg=name)
    moved = network().state_dict().values()
    steps = [
        (a - b).abs().max() for a, b in zip(expected.state_dict().values(), moved, strict=True)
    ]
    assert min(steps) > 0.05  # it has trained
