"""Numbers as large and as small as a dtype holds, and arguments that no number may be."""

import math
from functools import partial

import pytest
import torch
from losses import CASES, LOSSES
from operations import costs_of, labels_of, scores

import expacc
from expacc.functional import exact_error, expected_cost
from expacc.ops.orthant.noise import NOISES

INF, NAN = math.inf, math.nan
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
SIZES = (1e3, 1e15, 1e20, 1e38, 1e150, 1e308)
REACH = [(dtype, size) for dtype in DTYPES for size in SIZES if size <= torch.finfo(dtype).max]
REACH += [(dtype, torch.finfo(dtype).max) for dtype in DTYPES]
every_reach = pytest.mark.parametrize(("dtype", "size"), REACH, ids=str)
ILLEGAL = (0.0, -1.0, NAN, INF, -INF)


def large(dtype, size):
    """Random rows, and rows of the largest numbers: all equal, some equal, opposite."""
    rows = scores(14)
    rows /= rows.abs().max()
    rows[0], rows[1] = 1, -1
    rows[2, :3], rows[3, 0] = 1, -1
    return (rows * size).clamp(-torch.finfo(dtype).max, torch.finfo(dtype).max).to(dtype)


@every_reach
def test_losses_of_large_logits(dtype, size):
    logits, target = large(dtype, size), labels_of(scores(14))
    for row, numbers in CASES:
        settings = [numbers]
        if "standardize" in numbers:
            settings.append({**numbers, "standardize": True})
        for keywords in settings:
            leaf = logits.clone().requires_grad_()
            values = row.function(leaf, target, reduction="none", **keywords)
            assert not values.isnan().any()
            (grad,) = torch.autograd.grad(values.sum(), leaf)
            assert grad[values.isfinite()].isfinite().all()
            if row.name == "exact" and not keywords.get("log"):  # an expected error
                assert ((values >= 0) & (values <= 1)).all()


@every_reach
@pytest.mark.parametrize("noise", NOISES)
def test_probabilities_of_large_logits(dtype, size, noise):
    logits = large(dtype, size).requires_grad_()
    chances = expacc.argmax_probabilities(logits, 1.0, noise)
    assert ((chances >= 0) & (chances <= 1)).all()
    tolerance = 1e-10 if dtype == torch.float64 else 4 * torch.finfo(dtype).eps
    assert (chances.double().sum(1) - 1).abs().max() <= tolerance
    torch.testing.assert_close(chances[0], torch.full_like(chances[0], 1 / 6))
    place = torch.arange(6, dtype=dtype)
    assert torch.autograd.grad((chances * place).sum(), logits)[0].isfinite().all()
    costs = expected_cost(logits, labels_of(logits), costs_of(logits), noise=noise)
    assert costs.isfinite()
    assert torch.autograd.grad(costs, logits)[0].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_standardised_logits_have_no_size(dtype):
    """EXACT of logits a power of two larger or smaller is the same, and its gradient in scale."""
    logits, target = scores(14).to(dtype), labels_of(scores(14))
    leaf = logits.clone().requires_grad_()
    expected = exact_error(leaf, target)
    (slope,) = torch.autograd.grad(expected, leaf)
    powers = (-120, -60, 60, 120) if dtype == torch.float32 else (-900, -300, 300, 1000)
    for power in powers:
        leaf = (logits * 2.0**power).requires_grad_()
        for transform in (lambda f: f, lambda f: lambda z: torch.func.vmap(f)(z[None])[0]):
            value = transform(lambda z: exact_error(z, target))(leaf)
            torch.testing.assert_close(value, expected, rtol=1e-5, atol=0)
            lift = min(max(power, 0), 100)  # so that no small gradient underflows
            (grad,) = torch.autograd.grad(value, leaf, torch.tensor(2.0**lift, dtype=dtype))
            grad = grad * 2.0 ** (power - lift)
            torch.testing.assert_close(grad, slope, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("rivals", [1, 2, 9, 150])
def test_far_behind_is_as_far_as_it_is(rivals):
    """P of rivals m ahead, all alike, is about exp(-m² rivals / (2 (rivals + 1)))."""
    for dtype, sizes in ((torch.float32, (1e6, 1e9, 1e15)), (torch.float64, (1e8, 1e20, 1e100))):
        for size in sizes:
            margins = torch.full((1, rivals), -size, dtype=dtype, requires_grad=True)
            log_prob = expacc.log_orthant_prob(margins)
            true = -(size**2) * rivals / (2 * (rivals + 1))
            assert log_prob.item() == pytest.approx(true, rel=1e-6)
            (grad,) = torch.autograd.grad(log_prob, margins)
            assert grad.sum().item() == pytest.approx(size * rivals / (rivals + 1), rel=2e-3)


# ------------------------------------------------------------------------- illegal arguments


@pytest.mark.parametrize("value", ILLEGAL)
@pytest.mark.parametrize("where", ["all", "row", "class", "logit"])
def test_an_illegal_sigma_is_refused_or_makes_its_rows_nan(value, where):
    logits, target = scores(5).float(), labels_of(scores(5))
    shape = {"all": (), "row": (5, 1), "class": (1, 6), "logit": (5, 6)}[where]
    sigma = torch.ones(shape)
    bad = [True] * 5
    if where == "all":
        sigma.fill_(value)
    else:
        sigma[(2,) * (where != "class") + (0,) * (where == "row") or (0, 2)] = value
        bad = [place == 2 or where == "class" for place in range(5)]

    def exact(z, s, labels=target, noise="normal"):
        return exact_error(z, labels, sigma=s, noise=noise, standardize=False, reduction="none")

    def cost(z, s, noise):
        return expected_cost(z, target, costs_of(z), sigma=s, noise=noise, reduction="none")

    calls = [partial(exact, noise=noise) for noise in NOISES]
    calls.append(lambda z, s: exact(z, s, z.softmax(1)))
    if where in ("all", "row"):
        calls += [partial(cost, noise=noise) for noise in NOISES]
        calls += [
            lambda z, s, n=noise: expacc.argmax_probabilities(z, s, n).amax(1) for noise in NOISES
        ]
    for call in calls:
        with pytest.raises(ValueError, match=r"sigma must be finite and > 0; got .*\."):
            call(logits, sigma)
        traced = torch.func.vmap(call)(logits[None], sigma[None])[0]
        assert traced.isnan().tolist() == bad


@pytest.mark.parametrize("row", LOSSES, ids=[row.name for row in LOSSES])
def test_an_illegal_weight_is_refused_or_makes_its_rows_nan(row):
    logits, target = scores(6).float(), labels_of(scores(6))
    weight = torch.tensor([1.0, -1.0, NAN, INF, 0.0, -INF])
    with pytest.raises(ValueError, match=r"weight must be finite and >= 0 for every class; got -1"):
        row.function(logits, target, weight=weight)

    def traced(**keywords):
        return torch.func.vmap(lambda z, w: row.function(z, target, weight=w, **keywords))(
            logits[None], weight[None]
        )[0]

    assert traced(reduction="none").isnan().tolist() == [False, True, True, True, False, True]
    assert traced().isnan()


def test_an_illegal_cost_is_refused_or_makes_its_rows_nan():
    logits, target = scores(6).float(), labels_of(scores(6))
    for value in (NAN, INF, -INF):
        cost = costs_of(logits)
        cost[1, 4] = value
        with pytest.raises(ValueError, match=r"cost must be finite; got"):
            expected_cost(logits, target, cost)
        values = torch.func.vmap(lambda z, c: expected_cost(z, target, c, reduction="none"))(
            logits[None], cost[None]
        )
        assert values.isnan().tolist() == [[place == 1 for place in range(6)]]


def test_a_sigma_of_the_wrong_shape_is_refused():
    logits, target = scores(6).float(), labels_of(scores(6))
    for sigma in (torch.ones(6), torch.ones(1, 6), torch.ones(5, 1), torch.ones(1, 1, 1, 1)):
        with pytest.raises(ValueError, match="sigma must"):
            expacc.argmax_probabilities(logits, sigma)
        with pytest.raises(ValueError, match="sigma must"):
            expected_cost(logits, target, costs_of(logits), sigma=sigma)
    rows = torch.linspace(0.5, 2, 6)[:, None]
    whole = expacc.argmax_probabilities(logits, rows)
    for row, sigma, one in zip(logits, rows, whole, strict=True):
        torch.testing.assert_close(one, expacc.argmax_probabilities(row, sigma.item()))
