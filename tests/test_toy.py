"""examples/toy.py finds the EXACT paper's numbers, and the blog's objection is as it says."""

import importlib.util
import math
import sys
from pathlib import Path

import pytest
import torch

SOURCE = Path(__file__).resolve().parent.parent / "examples" / "toy.py"


@pytest.fixture(scope="module")
def toy():
    spec = importlib.util.spec_from_file_location("examples_toy", SOURCE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def trained(toy):
    """Where training k and b together ends."""
    return {
        (data.name, name): toy.train_k_and_b(loss, data)
        for data in (toy.THREE, toy.FIVE)
        for name, loss in toy.LOSSES.items()
    }


def test_the_losses_are_the_papers(toy):
    """Eq. 2, Eq. 4, and 1 - Phi(y f / (sigma √2)), each by hand at f = x - 0.5."""
    offset = torch.tensor(-0.5, dtype=torch.float64)
    leads = [-y * (x - 0.5) for x, y in ((-0.25, -1), (0, -1), (0.25, 1))]  # -y f(x)
    by_hand = {
        "cross entropy": [math.log1p(math.exp(lead)) for lead in leads],
        "hinge": [max(0.0, 1 + lead) for lead in leads],
        "EXACT": [math.erfc(-lead / 2) / 2 for lead in leads],
    }
    for name, rows in by_hand.items():
        value = toy.risk(toy.LOSSES[name], toy.THREE, 1.0, offset).item()
        assert value == pytest.approx(sum(rows) / 3, rel=1e-12)


def test_three_points_cross_entropy(toy):
    found = toy.best_threshold(toy.LOSSES["cross entropy"], toy.THREE)
    assert found.low == pytest.approx(0.7, abs=5e-4)
    assert found.high == pytest.approx(found.low, abs=1e-5)
    assert found.accuracy == pytest.approx((2 / 3, 2 / 3))


def test_three_points_hinge_is_flat(toy):
    found = toy.best_threshold(toy.LOSSES["hinge"], toy.THREE)
    assert (found.low, found.high) == pytest.approx((0.75, 1), abs=5e-4)
    assert found.accuracy == pytest.approx((2 / 3, 2 / 3))


def test_three_points_exact(toy):
    found = toy.train_b_and_sigma(toy.EXACT, toy.THREE)
    assert found.low == pytest.approx(0.125, abs=5e-4)
    assert found.accuracy == (1, 1)


def test_five_points_exact(toy):
    found = toy.train_b_lower_sigma(toy.EXACT, toy.FIVE)
    assert found.low == pytest.approx(-5.35, abs=5e-3)
    assert found.accuracy == pytest.approx((0.8, 0.8))


def test_five_points_exact_needs_the_root_of_two(toy):
    """With noise of standard deviation sigma on f itself the same descent ends elsewhere."""

    def on_f(logits, target, sigma):
        return toy.EXACT(logits * math.sqrt(2), target, sigma=sigma)

    assert toy.train_b_lower_sigma(on_f, toy.FIVE).low == pytest.approx(-5.3436, abs=5e-4)


@pytest.mark.parametrize(("name", "threshold"), [("cross entropy", -7.75), ("hinge", -11)])
def test_five_points_on_the_grid(toy, name, threshold):
    found = toy.best_on_grid(toy.LOSSES[name], toy.FIVE)
    assert found.low == threshold
    assert found.accuracy == pytest.approx((0.6, 0.6))


@pytest.mark.parametrize("name", ["cross entropy", "hinge", "EXACT"])
def test_the_blog_is_right_about_the_three_points(trained, name):
    found = trained["three", name]
    assert found.accuracy == (1, 1)
    assert 0 < found.low < 0.25
    assert found.k > 4


def test_exact_misses_the_three_points_too_when_its_temperature_is_fixed(toy):
    found = toy.best_threshold(toy.EXACT, toy.THREE)
    assert found.low > 0.25
    assert found.accuracy == pytest.approx((2 / 3, 2 / 3))


def test_the_threshold_goes_to_the_middle_as_the_temperature_rises(toy):
    found = [toy.best_threshold(toy.LOSSES["cross entropy"], toy.THREE, k) for k in (1, 4, 8, 32)]
    assert found[0].low > found[1].low > found[2].low > found[3].low
    assert found[0].loss > found[1].loss > found[2].loss > found[3].loss
    assert found[3].low == pytest.approx(0.125, abs=1e-4)


def test_the_objection_stops_at_the_five_points(toy, trained):
    """Cross entropy and hinge have their minima over all k and b at 60 %."""
    found = trained["five", "cross entropy"]
    assert (found.low, found.k) == pytest.approx((-8.3265, 0.07171), abs=1e-3)
    assert found.accuracy == pytest.approx((0.6, 0.6))
    found = trained["five", "hinge"]  # f = 1 costs 2 at both points of class -1: 4 / 5
    assert found.loss == pytest.approx(0.8, abs=1e-3)
    assert found.k == pytest.approx(0, abs=1e-3)
    assert found.accuracy == pytest.approx((0.6, 0.6))
    line = torch.linspace(-3, 3, 121, dtype=torch.float64)
    for k in line.tolist():
        for name, lowest in (("cross entropy", 0.66731), ("hinge", 0.8)):
            assert toy.risk(toy.LOSSES[name], toy.FIVE, k, line).min() >= lowest - 1e-12


def test_exact_is_lowest_where_most_of_the_five_points_are_right(toy, trained):
    sharp = toy.best_threshold(toy.EXACT, toy.FIVE, 8.0)
    assert sharp.accuracy == pytest.approx((0.8, 0.8))
    assert sharp.low == pytest.approx(-5.5, abs=1e-3)
    local = trained["five", "EXACT"]  # but training k from 1, b = 0 does not get there
    assert local.accuracy == pytest.approx((0.6, 0.6))
    assert local.loss > sharp.loss


def test_the_margin_makes_a_minimum_at_a_large_sigma(toy):
    """Figure 4: at sigma = 10 the loss falls for ever without margin, and ends right with one."""
    b = torch.linspace(-1, 1.5, 501, dtype=torch.float64)

    def loss(margin):
        def exact(logits, target):
            return toy.EXACT(logits, target, sigma=10, margin=margin)

        return toy.risk(exact, toy.THREE, 1.0, -b)

    assert loss(None).diff().lt(0).all()
    assert 0 < b[loss(0.1).argmin()] < 0.25


def test_the_figures_are_the_same_bytes_each_time(toy, tmp_path):
    one = toy.Found(0.1, 0.1, 1.0, 0.0, (1.0, 1.0))
    found = {(data, name): one for data in (toy.THREE, toy.FIVE) for name in toy.LOSSES}
    folders = [tmp_path / "first", tmp_path / "second"]
    drawn = []
    for folder in folders:
        folder.mkdir()
        drawn.append([path.read_bytes() for path in toy.draw(folder, found)])
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 3
    assert all(b"<dc:date>" not in picture for picture in drawn[0])
