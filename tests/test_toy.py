"""The toy data of the EXACT paper: its numbers are found, and the blog's objection is as we say."""

import dataclasses
import importlib.util
import math
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from expacc.functional import exact_error
from expacc.optim import GradientNormalizer
from expacc.recipes.exact import TOY
from expacc.recipes.exact.toy import (
    FIVE,
    LOSSES,
    THREE,
    TOYS,
    as_the_paper,
    best,
    best_threshold,
    descend_lowering_sigma,
    loss_of,
    risk,
    train_k_and_b,
)

SOURCE = Path(__file__).resolve().parent.parent / "examples" / "toy.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("examples_toy", SOURCE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def trained(example):
    """Where training k and b together ends."""
    return {
        (toy.name, loss): example.trained(toy, loss) for toy in TOYS.values() for loss in LOSSES
    }


def share(found):
    return found.accuracy, found.accuracy_high


def test_the_points_and_the_best_of_them_by_hand():
    assert best(THREE) == (1.0, (0, 0.25))
    assert best(FIVE) == (0.8, (-6, -5))  # only the -1 at 0 is wrong
    for toy in TOYS.values():
        assert set(toy.label) == {0, 1}
        assert len(toy.x) == len(toy.label)


def test_the_losses_are_the_papers():
    """Eq. 2, Eq. 4, and 1 - Phi(y f / (sigma √2)), each by hand at f = x - 0.5."""
    offset = torch.tensor(-0.5, dtype=torch.float64)
    leads = [-y * (x - 0.5) for x, y in ((-0.25, -1), (0, -1), (0.25, 1))]  # -y f(x)
    by_hand = {
        "cross_entropy": [math.log1p(math.exp(lead)) for lead in leads],
        "hinge": [max(0.0, 1 + lead) for lead in leads],
        "exact": [math.erfc(-lead / 2) / 2 for lead in leads],
    }
    for name, rows in by_hand.items():
        value = risk(loss_of(name), THREE, 1.0, offset).item()
        assert value == pytest.approx(sum(rows) / 3, rel=1e-12)


@pytest.mark.parametrize("toy", TOYS.values(), ids=lambda toy: toy.name)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_papers_thresholds_and_accuracies_are_found(toy, loss):
    found = as_the_paper(toy, loss)
    low, high, percent = TOY[toy.name][loss]
    near = 5e-3 if (toy, loss) == (FIVE, "exact") else 5e-4
    assert found.low == pytest.approx(low, abs=near)
    if toy is THREE:
        assert found.high == pytest.approx(high, abs=near)
    assert [100 * one for one in share(found)] == pytest.approx([percent] * 2)


def test_five_points_exact_needs_the_root_of_two():
    """With noise of standard deviation sigma on f itself the same descent ends elsewhere."""

    def on_f(logits, target, sigma):
        return loss_of("exact")(logits * math.sqrt(2), target, sigma=sigma)

    (found,) = descend_lowering_sigma(on_f, FIVE, torch.zeros(1), 1000)
    assert found.low == pytest.approx(-5.3436, abs=5e-4)


def test_the_descent_for_many_starts_is_that_of_the_gradient_normalizer():
    """Each start by itself, as the library's normaliser would have it."""
    starts = torch.tensor([0.0, -3.0, 1.5], dtype=torch.float64)
    together = descend_lowering_sigma(loss_of("exact"), FIVE, starts, 60)
    for start, found in zip(starts, together, strict=True):
        b = start.clone().requires_grad_()
        optimizer = torch.optim.SGD([b], lr=0.01)
        normalizer = GradientNormalizer(optimizer)
        for step in range(1, 61):
            optimizer.zero_grad()
            scores = torch.tensor(FIVE.x, dtype=torch.float64) - b
            logits = torch.stack([torch.zeros_like(scores), scores], 1)
            labels = torch.tensor(FIVE.label)
            exact_error(logits, labels, sigma=100 * 0.99**step, standardize=False).backward()
            normalizer.step()
            optimizer.step()
        assert found.low == pytest.approx(b.item(), rel=1e-12)


def test_starts_do_not_meet():
    k, b = torch.tensor([1.0, 0.3, 2.0]).double(), torch.tensor([0.0, 1.0, -4.0]).double()
    together = train_k_and_b(loss_of("hinge"), FIVE, k, b, 40)
    for i, found in enumerate(together):
        (alone,) = train_k_and_b(loss_of("hinge"), FIVE, k[i : i + 1], b[i : i + 1], 40)
        assert dataclasses.astuple(alone) == pytest.approx(dataclasses.astuple(found), rel=1e-9)


@pytest.mark.parametrize("name", LOSSES)
def test_the_blog_is_right_about_the_three_points(trained, name):
    found = trained["three", name]
    assert share(found) == (1, 1)
    assert 0 < found.low < 0.25
    assert found.k > 4


def test_exact_misses_the_three_points_too_when_its_temperature_is_fixed():
    found = best_threshold(loss_of("exact"), THREE)
    assert found.low > 0.25
    assert share(found) == pytest.approx((2 / 3, 2 / 3))


def test_the_threshold_goes_to_the_middle_as_the_temperature_rises():
    found = [best_threshold(loss_of("cross_entropy"), THREE, k) for k in (1, 4, 8, 32)]
    for metric in ("low", "loss"):
        values = [getattr(one, metric) for one in found]
        assert values == sorted(values, reverse=True)
    assert found[3].low == pytest.approx(0.125, abs=1e-4)


def test_the_objection_stops_at_the_five_points(trained):
    """Cross entropy and hinge have their minima over all k and b at 60 %."""
    found = trained["five", "cross_entropy"]
    assert (found.low, found.k) == pytest.approx((-8.3265, 0.07171), abs=1e-3)
    assert share(found) == pytest.approx((0.6, 0.6))
    found = trained["five", "hinge"]  # f = 1 costs 2 at both points of class -1: 4 / 5
    assert found.loss == pytest.approx(0.8, abs=1e-3)
    assert found.k == pytest.approx(0, abs=1e-3)
    assert share(found) == pytest.approx((0.6, 0.6))
    line = torch.linspace(-3, 3, 121, dtype=torch.float64)
    for k in line.tolist():
        for name, lowest in (("cross_entropy", 0.66731), ("hinge", 0.8)):
            assert risk(loss_of(name), FIVE, k, line).min() >= lowest - 1e-12


def test_exact_is_lowest_where_most_of_the_five_points_are_right(trained):
    sharp = best_threshold(loss_of("exact"), FIVE, 8.0)
    assert share(sharp) == pytest.approx((0.8, 0.8))
    assert sharp.low == pytest.approx(-5.5, abs=1e-3)
    local = trained["five", "exact"]  # but training k from 1, b = 0 does not get there
    assert share(local) == pytest.approx((0.6, 0.6))
    assert local.loss > sharp.loss


def test_the_margin_makes_a_minimum_at_a_large_sigma():
    """Figure 4: at sigma = 10 the loss falls for ever without margin, and ends right with one."""
    b = torch.linspace(-1, 1.5, 501, dtype=torch.float64)
    without, with_one = (
        risk(partial(loss_of("exact"), sigma=10, margin=margin), THREE, 1.0, -b)
        for margin in (None, 0.1)
    )
    assert without.diff().lt(0).all()
    assert 0 < b[with_one.argmin()] < 0.25


def test_the_example_prints_both_tables(example, trained, monkeypatch, capsys):
    monkeypatch.setattr(example, "trained", lambda toy, loss: trained[toy.name, loss])
    monkeypatch.setattr(example, "as_the_paper", lambda toy, loss: trained[toy.name, loss])
    monkeypatch.setattr(example, "TEMPERATURES", {"three": (1.0,), "five": (4.0,)})
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    example.main()
    printed = capsys.readouterr().out
    assert "0.75 … 1" in printed
    assert "trained 0.072" in printed
