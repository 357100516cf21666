"""The slopes that training EXACT needs: right to many digits, each row's its own."""

import math

import pytest
import torch

import expacc
from expacc.ops.orthant.slopes import slopes_within, win_slopes

RIVALS = [1, 2, 3, 4, 5, 9, 15, 16, 30, 200]


def true_slopes(leads):
    leaf = leads.t().double().requires_grad_()
    (true,) = torch.autograd.grad(expacc.orthant_prob(leaf).sum(), leaf)
    return true.t()


def below_margin(leads, limit):
    """The arguments of ``slopes_within``: leads, which are below their row's limit, and limits."""
    clipped = torch.minimum(leads, limit)
    return clipped, clipped < limit, limit


def drawn(rivals, rows, seed=0):
    """Leads of many sizes, won and lost, with margins that most, some or none of them exceed."""
    generator = torch.Generator().manual_seed(1000 * seed + rivals)
    scale = 10 ** (torch.rand(rows, generator=generator) * 2 - 1.3)
    shift = torch.randn(rows, generator=generator) * 1.5
    leads = (torch.randn(rivals, rows, generator=generator) + shift) * scale
    limit = 10 ** (torch.rand(rows, generator=generator) * 3 - 1.7)
    return below_margin(leads, limit)


@pytest.mark.parametrize("rivals", RIVALS)
def test_all_slopes(rivals):
    generator = torch.Generator().manual_seed(rivals)
    for scale in (0.01, 0.3, 3.0):
        for shift in (-4.0, -1.0, 0.0, 1.0, 4.0):
            leads = torch.randn(rivals, 60, generator=generator) * scale + shift
            true = true_slopes(leads)
            error = (win_slopes(leads).double() - true).abs()
            assert error.max() < 4e-7
            assert (error.amax(0) <= 4e-3 * true.amax(0) + 1e-30).all()
    absent = win_slopes(torch.full((rivals, 2), math.inf))
    assert (absent.abs() < 1e-30).all()


@pytest.mark.parametrize("rivals", RIVALS)
def test_slopes_below_a_margin(rivals):
    leads, within, limit = drawn(rivals, 400)
    found = slopes_within(leads, within, limit).double()
    true = true_slopes(leads)
    assert ((found - true) * within).abs().max() < 4e-7
    # A slope beside its row's largest, wherever that is more than nothing.
    largest = (true * within).amax(0)
    counted = largest > 1e-9
    share = ((found - true) * within).abs().amax(0)[counted] / largest[counted]
    assert counted.sum() > 50
    assert share.max() < 4e-3


@pytest.mark.parametrize("rivals", RIVALS)
def test_rows_do_not_depend_on_their_company(rivals):
    leads, within, limit = drawn(rivals, 2999)
    everything, near = win_slopes(leads), slopes_within(leads, within, limit)
    generator = torch.Generator().manual_seed(rivals)
    for count in (1, 7, 64, 701, 2998):
        some = torch.randperm(2999, generator=generator)[:count]
        own = leads[:, some].contiguous()
        assert torch.equal(win_slopes(own), everything[:, some])
        found = slopes_within(own, within[:, some].contiguous(), limit[some])
        # Without a lead below the margin a row may be left out.
        assert torch.equal(found * within[:, some], (near * within)[:, some])


@pytest.mark.parametrize("rivals", [3, 5, 20])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_any_share_of_the_rows_may_count(rivals, share):
    generator = torch.Generator().manual_seed(rivals)
    leads = torch.rand(rivals, 500, generator=generator) * 2
    limit = torch.where(torch.rand(500, generator=generator) < share, 3.0, -1.0)
    leads, within, limit = below_margin(leads, limit)
    found = slopes_within(leads, within, limit) * within
    assert ((found != 0).any(0) == (limit > 0)).all()
    assert (found - win_slopes(leads) * within).abs().max() < 4e-7


@pytest.mark.parametrize("rivals", [2, 3])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.9])
def test_closed_forms_are_the_same_bits(rivals, share):
    generator = torch.Generator().manual_seed(rivals)
    leads = torch.randn(rivals, 1000, generator=generator)
    counted = torch.rand(1000, generator=generator) < share
    slopes = slopes_within(leads, counted.expand(rivals, -1), torch.full((1000,), math.inf))
    assert torch.equal(slopes[:, counted], win_slopes(leads)[:, counted])


@pytest.mark.parametrize("rivals", [3, 5, 20])
def test_nan_leads_give_nan_slopes(rivals):
    leads = torch.zeros(rivals, 70)
    leads[1, 3] = math.nan
    found = slopes_within(leads, torch.ones(rivals, 70, dtype=torch.bool), torch.ones(70))
    assert found[:, 3].isnan().any()
    assert found.isnan().any(0).sum() == 1


def test_lost_rows_have_the_slopes_that_they_have():
    leads = torch.linspace(-30, 0, 64).expand(6, -1).contiguous()
    found = slopes_within(leads, leads < 1, torch.ones(64)).double()
    true = true_slopes(leads)
    assert ((found - true).abs() <= 4e-3 * true + 1e-16).all()
