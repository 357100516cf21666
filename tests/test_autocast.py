"""Autocast does not reach inside: the same bits with it and without, forward and backward."""

import pytest
import torch
from losses import every_case
from operations import (
    OPERATIONS,
    SAMPLED,
    SLOPES,
    WHERE,
    both,
    head,
    head_by_hand,
    holds,
    labels_of,
    region,
    scores,
    slope_params,
)

from expacc.training import Run, TensorTable, TrainConfig, train_runs
from expacc.training.loss_slopes import Batch

HALVES = (torch.bfloat16, torch.float16)
every_half = pytest.mark.parametrize("half", HALVES, ids=str)


@every_half
@every_case()
def test_losses(row, numbers, half):
    values = scores().float()
    for reduction in ("none", "mean"):
        keywords = {"reduction": reduction, **numbers}
        holds(lambda z, k=keywords: row.function(z, labels_of(z), **k), values, half)
    if row.module:
        module = row.module(**numbers)
        holds(lambda z: module(z, labels_of(z)), values, half)
    if row.soft:
        holds(lambda z: row.function(z, z.detach().softmax(1), **numbers), values, half)
        holds(lambda z: row.function(z, labels_of(z), label_smoothing=0.1, **numbers), values, half)
    if "standardize" in numbers:
        again = {**numbers, "standardize": True}
        holds(lambda z: row.function(z, labels_of(z), **again), values, half)


@every_half
@every_case()
def test_half_logits_lose_nothing_but_their_own_digits(row, numbers, half):
    values = scores().to(half)

    def loss(z):
        return row.function(z, labels_of(z), reduction="none", **numbers)

    true = both(loss, values.double(), half)
    for where in WHERE[:2]:
        value, gradient = both(loss, values, half, where)
        assert value.dtype == torch.float32
        torch.testing.assert_close(value.double(), true[0], rtol=1e-5, atol=2e-5)
        torch.testing.assert_close(gradient.double(), true[1], rtol=2e-2, atol=2e-3)


@every_half
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name, half):
    # Expanded squares of centres that were rounded to float32 are far from those that were not.
    tolerance = 1e-4 if name.startswith("centers") else 2e-5
    holds(OPERATIONS[name], scores().float(), half, tolerance, truth=name not in SAMPLED)


@every_half
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_the_head_is_a_linear_layer_under_autocast_and_a_loss_without(reduction, half):
    """The product is the user's layer, and as short as autocast makes it; the loss is not."""
    for where in (*WHERE[:2], (False, False)):
        values, gradient = both(lambda x: head(x, reduction), scores().float(), half, where)
        expected = both(lambda x: head_by_hand(x, reduction), scores().float(), half, where)
        torch.testing.assert_close(values, expected[0], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(gradient, expected[1], rtol=1e-2, atol=1e-3)


@every_half
def test_slopes_of_training(half):
    logits = torch.stack([scores().float().t(), scores(seed=1).float().t()])
    batch = Batch(labels_of(scores()).expand(2, 1, -1), 1 / 24, 24.0)
    numbers = slope_params(2)
    for slope in SLOPES.values():
        expected = slope(logits, batch, numbers)
        with region(half):
            assert torch.equal(slope(logits, batch, numbers), expected)


@every_half
def test_runs_are_the_same(half):
    rows = TensorTable(scores().float(), labels_of(scores()), classes=6)
    runs = [Run(name, torch.arange(24), loss=name) for name in ("cross_entropy", "exact")]
    expected = train_runs(rows, runs, TrainConfig(epochs=3))
    with region(half):
        found = train_runs(rows, runs, TrainConfig(epochs=3))
    for one, two in zip(found, expected, strict=True):
        for layer, other in zip(one.model.layers, two.model.layers, strict=True):
            assert torch.equal(layer.weight, other.weight)


def test_compiled_under_autocast():
    torch._dynamo.reset()
    values = scores().float()
    name = "exact_error of thirty classes"
    compiled = torch.compile(OPERATIONS[name], fullgraph=True, backend="aot_eager")
    expected = both(OPERATIONS[name], values.double(), torch.bfloat16)
    found = both(compiled, values, torch.bfloat16, (True, True))
    torch.testing.assert_close(found[0].double(), expected[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found[1].double(), expected[1], rtol=1e-4, atol=1e-5)
