"""Paired runs on one test set: the test by hand, at its ends, and how often it is wrong."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t

from expacc.stats import paired_runs


@pytest.fixture(scope="module")
def simulated():
    """benchmarks/error_rates_runs.py"""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parent.parent / "benchmarks")
        return importlib.import_module("error_rates_runs").share_of_claims


def test_paired_runs_by_hand():
    gains = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]], float)
    test = paired_runs(gains)
    rows = ((1 + 4 / 9 + 1 / 9 + 1) / 4 - 0.5**2) / 4  # mean squares, with one row more
    seeds = (2 * 0.25**2) / 2 / 3
    assert test.difference == 0.5
    assert test.degrees_of_freedom == (3.0, 2.0)
    assert test.statistic == pytest.approx(0.5 / (rows + seeds) ** 0.5)
    critical = (rows * t.isf(0.025, 3) + seeds * t.isf(0.025, 2)) / (rows + seeds)
    reach = critical * (rows + seeds) ** 0.5
    assert test.interval == pytest.approx((max(-1, 0.5 - reach), min(1, 0.5 + reach)))
    # The p-value is the level at which the interval begins to hold 0.
    exact = paired_runs(gains, confidence=1 - test.p_value)
    assert exact.interval[0] == pytest.approx(0, abs=1e-6)


def test_numbers_chosen_apart_cost_the_variance_of_a_run():
    gains = np.random.default_rng(0).normal(0.2, 0.1, (5, 50)) + np.linspace(-0.1, 0.1, 5)[:, None]
    same, apart = paired_runs(gains), paired_runs(gains, chosen_apart=True)
    added = gains.mean(1).var(ddof=1)
    errors = [(one.difference / one.statistic) ** 2 for one in (same, apart)]
    assert errors[1] - errors[0] == pytest.approx(added)
    assert apart.p_value > same.p_value


def test_paired_runs_at_the_ends():
    assert paired_runs(np.zeros((3, 9))).p_value == 1
    two = paired_runs(np.ones((2, 9)))
    assert (two.p_value, two.interval) == (1.0, (-1.0, 1.0))
    assert "run at least three" in two.note
    sure = paired_runs(np.ones((10, 10_000)))
    assert sure.p_value == pytest.approx(1e-100)
    few = np.zeros((4, 500))
    few[:, :3] = 1  # three rows that agree in every run are no claim
    assert paired_runs(few).p_value > 0.05
    for bad in (np.ones(4), np.full((2, 2), 2.0), np.zeros((0, 3))):
        with pytest.raises(ValueError, match=r"gains must have shape \(seeds, rows\)"):
            paired_runs(bad)


@pytest.mark.parametrize("how", [{"row": 0.3, "seed": 0.1}, {"row": 0.0, "seed": 0.3}])
@pytest.mark.parametrize("seeds", [3, 5])
def test_paired_runs_seldom_make_a_false_claim(simulated, seeds, how):
    wrong = simulated(150, seeds=seeds, rows=200, losses=2, search=True, **how)
    assert wrong <= 0.1  # of 150 studies; docs/statistics.md has more


def test_paired_runs_see_a_gain(simulated):
    how = {"seeds": 5, "rows": 1000, "losses": 1, "row": 0.2, "seed": 0.05, "gain": 0.25}
    assert simulated(60, **how) > 0.9
