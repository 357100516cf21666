"""Schedules are pure, exact at their ends, and survive pickling; ScheduledLoss follows them."""

import copy
import itertools
import math
import pickle

import pytest
import torch

import expacc
from expacc import schedules
from expacc.training.objectives import objective_of


@pytest.mark.parametrize(
    "make", [schedules.linear, schedules.cosine, schedules.geometric], ids=lambda f: f.__name__
)
def test_moves_from_start_to_end(make):
    schedule = make(10, 0.01)
    assert schedule(0) == 10
    assert schedule(1) == 0.01
    values = [schedule(i / 100) for i in range(101)]
    assert values == sorted(values, reverse=True)
    assert [schedule(i / 100) for i in range(101)] == values
    assert pickle.loads(pickle.dumps(schedule))(0.37) == schedule(0.37)


def test_known_points():
    assert schedules.linear(2, 4)(0.25) == 2.5
    assert schedules.cosine(1, 0)(1 / 3) == pytest.approx(0.75)
    assert schedules.geometric(10, 0.01)(1 / 3) == pytest.approx(1)
    assert schedules.constant(0.1)(1) == 0.1


def test_phases_begin_on_the_papers_epochs():
    weights = {0: 1, 40: 1.25, 80: 1 / 0.6, 120: 2.5, 160: 5}
    for epoch in range(240):
        focus = schedules.focus_gradual(epoch / 240)
        if epoch >= 200:
            assert focus == 0.5
        else:
            start = epoch // 40 * 40
            assert 1 / (1 - 2 * focus) == pytest.approx(weights[start])
        assert schedules.focus_switch(epoch / 240) == (0.5 if epoch >= 228 else 0)
        assert schedules.focus_constant(epoch / 240) == 0
    for name in ("focus_constant", "focus_switch", "focus_gradual"):
        schedule = getattr(schedules, name)
        assert pickle.loads(pickle.dumps(schedule)) is schedule


def test_phases_are_equal_whatever_their_number():
    for count in range(1, 30):
        schedule = schedules.phases(range(count))
        steps = [schedule(step / (7 * count)) for step in range(7 * count)]
        assert steps == [phase for phase in range(count) for _ in range(7)]


def test_sigma_of_the_exact_paper():
    for schedule, end in ((schedules.sigma_tabular, 0.01), (schedules.sigma_vision, 1)):
        assert (schedule(0), schedule(1)) == (10, end)
        assert schedule(0.5) == pytest.approx((10 * end) ** 0.5)
        assert pickle.loads(pickle.dumps(schedule)) is schedule
        with pytest.raises(ValueError, match="progress"):
            schedule(1.5)


@pytest.mark.parametrize(
    ("sigma", "end"), [(schedules.sigma_tabular, 0.01), (schedules.sigma_vision, 1)]
)
def test_sigma_per_epoch_has_the_authors_exponent(sigma, end):
    epochs, steps = 16, 500
    held = schedules.per_epoch(sigma, epochs)
    reached = schedules.per_epoch(sigma, epochs, reach_end=True)
    for epoch in range(epochs):
        for step in (0, 1, 250, 499):
            progress = (epoch * steps + step) / (epochs * steps)
            assert held(progress) == pytest.approx(10 * (end / 10) ** (epoch / epochs))
            assert reached(progress) == pytest.approx(10 * (end / 10) ** (epoch / (epochs - 1)))
    assert held(1) == held(15 / 16) > end  # one epoch short of the end
    assert reached(15 / 16) == reached(1) == end
    copied = pickle.loads(pickle.dumps(held))
    assert copied(0.37) == held(0.37)


def test_epochs_begin_exactly():
    def share(progress):
        return progress

    for epochs in range(1, 1001):
        held = schedules.per_epoch(share, epochs)
        assert all(held(epoch / epochs) == epoch / epochs for epoch in range(epochs))
        assert held(1) == (epochs - 1) / epochs
    assert 0.29 * 100 < 29  # why this is worth a test
    for epochs in (3, 7, 29, 100, 1000):
        held = schedules.per_epoch(share, epochs)
        for epoch in range(1, epochs):
            before = math.nextafter(epoch / epochs, 0)
            assert held(before) == (epoch - 1) / epochs
        # the last of 7 steps in each epoch still belongs to it
        steps = [held(step / (7 * epochs)) for step in range(7 * epochs)]
        assert steps == [epoch / epochs for epoch in range(epochs) for _ in range(7)]


def test_epochs_that_reach_the_end():
    for epochs in (2, 3, 16, 150):
        held = schedules.per_epoch(schedules.geometric(0.3, 1e-4), epochs, reach_end=True)
        values = [held(epoch / epochs) for epoch in range(epochs)]
        assert (values[0], values[-1]) == (0.3, 1e-4)
        ratios = [b / a for a, b in itertools.pairwise(values)]
        assert ratios == pytest.approx([ratios[0]] * (epochs - 1))


def gradual():
    return expacc.ScheduledLoss(expacc.MixedExpectedErrorLoss(), focus=schedules.focus_gradual)


def test_scheduled_loss_sets_numbers_and_lets_them_be_read():
    loss = gradual()
    logits, target = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    for progress in (0.0, 0.3, 0.99, 1.0):
        loss.step(progress)
        assert loss.focus == loss.loss.focus == schedules.focus_gradual(progress)
        expected = expacc.functional.mixed_expected_error(logits, target, focus=loss.focus)
        assert torch.equal(loss(logits, target), expected)
    assert loss.reduction == "mean"
    with pytest.raises(AttributeError, match="fokus"):
        _ = loss.fokus


def test_numbers_that_are_whole_are_rounded():
    schedule, logits = schedules.linear(1.0, 6.0), torch.randn(4, 3)
    target = torch.tensor([0, 1, 2, 0])
    loss = expacc.ScheduledLoss(expacc.TaylorCrossEntropyLoss(), terms=schedule)
    objectives = [objective_of(loss), objective_of("taylor_cross_entropy", {"terms": schedule})]
    for progress, terms in ((0.0, 1), (0.45, 3), (1.0, 6)):
        loss.step(progress)
        assert loss.terms == terms
        expected = expacc.functional.taylor_cross_entropy(logits, target, terms=terms)
        assert torch.equal(loss(logits, target), expected)
        assert [objective.at(progress)["terms"] for objective in objectives] == [terms, terms]
    loss = expacc.ScheduledLoss(expacc.ExactLoss(), topk=schedules.linear(2.0, 1.0))
    assert loss.topk == 2


def test_either_weight_of_a_mixture_follows_a_schedule_alone():
    for name, other in (("ce_weight", "error_weight"), ("error_weight", "ce_weight")):
        loss = expacc.ScheduledLoss(
            expacc.MixedExpectedErrorLoss(), **{name: schedules.linear(0.5, 0.1)}
        )
        found = objective_of(loss).at(1.0)
        assert (found[name], found[other]) == (0.1, 1.0)


def test_advance_counts_steps():
    loss = gradual()
    seen = []
    for _ in range(12):
        loss.advance(12)
        seen.append(loss.focus)
    assert seen == [schedules.focus_gradual(step / 12) for step in range(12)]
    loss.advance(12)
    assert loss.progress == 1


def test_state_is_saved_and_restored(tmp_path):
    loss = gradual()
    for _ in range(7):
        loss.advance(12)
    torch.save(loss.state_dict(), tmp_path / "loss.pt")
    other = gradual()
    other.load_state_dict(torch.load(tmp_path / "loss.pt", weights_only=True))
    assert (other.focus, other.progress, other.steps) == (loss.focus, loss.progress, loss.steps)
    loss.advance(12)
    other.advance(12)
    assert other.focus == loss.focus
    assert copy.deepcopy(loss).focus == loss.focus


def test_a_bad_progress_leaves_the_loss_as_it_was():
    loss = gradual()
    loss.step(0.5)
    with pytest.raises(ValueError, match="progress"):
        loss.step(1.5)
    assert loss.focus == 0.3


def test_any_module_can_be_scheduled():
    loss = expacc.ScheduledLoss(
        torch.nn.CrossEntropyLoss(), label_smoothing=schedules.linear(0.2, 0)
    )
    assert loss.label_smoothing == 0.2
    loss.step(1.0)
    assert loss.label_smoothing == 0


@pytest.mark.parametrize("name", [name for name in expacc.list_losses() if name != "cross_entropy"])
def test_every_number_of_every_loss_can_be_scheduled(name):
    plain = expacc.get_loss(name)
    for param in plain.params:
        value = getattr(plain, param)
        if not isinstance(value, float):  # a count, a choice
            continue
        loss = expacc.ScheduledLoss(
            expacc.get_loss(name), **{param: schedules.linear(value, value)}
        )
        loss.step(0.5)
        assert getattr(loss, param) == value
        logits = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
        target = torch.tensor([0, 1, 2, 3, 0, 1])
        torch.testing.assert_close(loss(logits, target), plain(logits, target))


def test_a_shift_that_goes_to_zero():
    loss = expacc.ScheduledLoss(
        expacc.get_loss("expected_error", shift="auto"), shift=schedules.linear(2.4, 0.0)
    )
    logits, target = torch.zeros(3, 100), torch.tensor([0, 1, 2])
    assert loss(logits, target).item() == pytest.approx(1 - 1 / (1 + 99 * math.exp(-2.4)))
    loss.step(1.0)
    assert loss(logits, target).item() == pytest.approx(0.99)
