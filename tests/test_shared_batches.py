"""train_runs(share_batches=True): the same as each run alone, but for rounding, and quicker."""

import pytest
import torch
from test_training import assert_same as same_weights

from expacc import functional
from expacc.schedules import focus_gradual, focus_switch
from expacc.training import Model, Run, TensorTable, TrainConfig, train_runs

MIXED = "mixed_expected_error"
# Losses with their numbers and learning rates: curves over log p, then others as well.
CURVES = [
    (MIXED, {"focus": focus_gradual}, 0.05),
    (MIXED, {"focus": focus_switch}, 0.01),
    (MIXED, {"ce_weight": 1.0, "error_weight": 0.0}, lambda progress: 0.05 * (1 - progress / 2)),
    ("focal", {}, 0.05),
    ("expected_error", {}, 0.05),
]
OTHERS = [*CURVES, ("cross_entropy", {}, 0.05), ("hinge", {}, 0.02), ("exact", {"sigma": 1.0}, 0.1)]


def problem(scale=1.0):
    generator = torch.Generator().manual_seed(0)
    x, noise = (torch.randn(160, n, generator=generator) for n in (5, 3))
    y = (x @ torch.randn(5, 3, generator=generator) + noise).argmax(1)
    return TensorTable(x * scale, y, 3)


def runs_of(losses, lengths):
    held = torch.arange(100, 150)
    rows = [torch.arange(n, n + length) for n, length in enumerate(lengths)]
    return [
        Run(f"{n}/{k}", rows[n], held, loss, numbers, rate, group=f"group {n}")
        for n in range(len(lengths))
        for k, (loss, numbers, rate) in enumerate(losses)
    ]


def alone(rows, run, config):
    """The run by itself, whose key is what its group was."""
    (found,) = train_runs(rows, [Run(**{**vars(run), "key": run.group})], config)
    return found


def assert_same(one, other, atol=2e-6):
    assert one.best_epoch == other.best_epoch
    assert one.curves["validation_accuracy"] == other.curves["validation_accuracy"]
    same_weights(one, other, atol=atol, rtol=1e-4)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("losses", [CURVES, OTHERS], ids=["curves", "others"])
@pytest.mark.parametrize("hidden", [(), (5,)], ids=["linear", "hidden"])
@pytest.mark.parametrize("lengths", [(80, 80), (83, 61, 70, 9), (7, 3)])
def test_shared_is_alone(optimizer, losses, hidden, lengths):
    rows, runs = problem(), runs_of(losses, lengths)
    config = TrainConfig(Model(hidden), optimizer, batch=8, epochs=4, keep="latest best", seed=3)
    found = train_runs(rows, runs, config, share_batches=True)
    assert [one.key for one in found] == [run.key for run in runs]
    for run, one in zip(runs, found, strict=True):
        assert_same(one, alone(rows, run, config), atol=2e-5)


@pytest.mark.parametrize("hidden", [(), (5,)], ids=["linear", "hidden"])
def test_in_turns_is_at_once(hidden):
    rows, runs = problem(), runs_of(CURVES, (40, 49, 43, 60))
    config = TrainConfig(Model(hidden), batch=8, epochs=3)
    together, in_turns = (
        train_runs(rows, runs, config, share_batches=True, memory=memory) for memory in (None, 1)
    )
    for one, other in zip(together, in_turns, strict=True):
        assert_same(one, other)


def test_a_group_shares_its_start_and_order_and_another_has_others():
    rows, everyone = problem(), torch.arange(50)
    runs = [Run(key, everyone, group=key[0]) for key in ("a1", "a2", "b1")]
    one, same, other = (
        result.model.layers[0].weight
        for result in train_runs(rows, runs, TrainConfig(epochs=3, batch=8), share_batches=True)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("hidden", [(), (5,)], ids=["linear", "hidden"])
def test_what_diverges_or_stops_harms_no_other(groups, hidden):
    rows, everyone, held = problem(scale=1e18), torch.arange(50), torch.arange(100, 130)
    rates = {"calm": 1e-38, "wild": 1e25}
    runs = [
        Run(f"{name}{group}", everyone, held, learning_rate=rate, group=str(group))
        for group in range(groups)
        for name, rate in rates.items()
    ]
    config = TrainConfig(Model(hidden), batch=8, epochs=9, patience=2)
    for run, one in zip(runs, train_runs(rows, runs, config, share_batches=True), strict=True):
        expected = alone(rows, run, config)
        assert (one.failed_step is None) == (run.learning_rate == 1e-38)
        assert one.failed_step == expected.failed_step
        assert (one.epochs, one.stopped) == (expected.epochs, expected.stopped)
        assert (one.model is None) == (one.failed_step is not None)


@pytest.mark.parametrize("share", [False, True])
def test_every_epoch_is_kept(share):
    rows, everyone = problem(), torch.arange(160)
    runs = [Run(loss, everyone, loss=loss, learning_rate=0.1) for loss in ("hinge", "exact")]
    config = TrainConfig(batch=50, epochs=5, keep="every", curves=("train", "gradient"))
    for one in train_runs(rows, runs, config, share_batches=share):
        assert len(one.every) == len(one.curves["gradient_norm"]) == one.best_epoch == 5
        for model, accuracy in zip(one.every, one.curves["train_accuracy"], strict=True):
            right = model.logits(rows.features).argmax(1) == rows.labels
            assert accuracy == pytest.approx(float(right.double().mean()))


@pytest.mark.parametrize("loss", ["cross_entropy", "expected_error", "leaky_expected_error"])
def test_gradient_norms_are_those_of_the_loss(loss):
    """One epoch of one batch: the norms at the start, by autograd."""
    rows = problem()
    (start,) = train_runs(rows, [Run("s", torch.arange(9))], TrainConfig(epochs=1))
    runs = [Run(loss, torch.arange(160), loss=loss, start=start.model)]
    config = TrainConfig(batch=160, epochs=1, curves=("gradient",))
    (found,) = train_runs(rows, runs, config, share_batches=True)
    logits = start.model.logits(rows.features).requires_grad_()
    function = getattr(functional, loss, torch.nn.functional.cross_entropy)
    function(logits, rows.labels, reduction="sum").backward()
    expected = float(logits.grad.norm(dim=1).mean())
    assert found.curves["gradient_norm"] == (pytest.approx(expected, rel=1e-5),)


def test_the_latest_of_equally_good_epochs():
    rows, everyone = problem(), torch.arange(50)
    run = Run("r", everyone, everyone[:1], learning_rate=1e-6)  # one row: right or wrong throughout
    first, last = (
        train_runs(rows, [run], TrainConfig(epochs=4, keep=keep))[0].best_epoch
        for keep in ("best", "latest best")
    )
    assert (first, last) == (1, 4)


def test_what_cannot_be_shared_is_refused():
    rows = problem()
    runs = [Run("a", torch.arange(9)), Run("b", torch.arange(8))]
    with pytest.raises(ValueError, match="same rows to share batches; got others in 'b'"):
        train_runs(rows, runs, TrainConfig(), share_batches=True)
    config = TrainConfig(Model(input_dropout=0.1))
    with pytest.raises(ValueError, match="left out with dropout"):
        train_runs(rows, runs[:1], config, share_batches=True)
