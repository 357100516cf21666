"""EXACT of class probabilities and expected cost: one integral for all classes."""

import itertools
import math

import mpmath as mp
import pytest
import torch

from expacc import argmax_probabilities
from expacc.functional import exact_error, expected_cost
from expacc.ops.orthant.rival_cost import rival_cost, rival_cost_op

PLAIN = {"standardize": False, "reduction": "none"}
SPREADS = (0.0, 1e-3, 0.3, 1.0, 3.0, 30.0, 1e4)


def seeded(*shape, seed=0, scale=1.0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype) * scale


def masses(rows, classes, seed=1):
    """Class probabilities: even, peaked, with zeros, one-hot."""
    flat = seeded(rows, classes, seed=seed)
    kinds = [flat.softmax(1), (8 * flat).softmax(1), flat.clamp(min=0) + flat.abs() / 1e9]
    kinds.append(torch.nn.functional.one_hot(flat.argmax(1), classes).double())
    kind = torch.arange(rows) % 4
    mass = torch.stack(kinds)[kind, torch.arange(rows)]
    return mass / mass.sum(1, keepdim=True)


def value_and_gradient(function, logits):
    leaf = logits.clone().requires_grad_()
    value = function(leaf)
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    return value.detach(), gradient


# ------------------------------------------------------------------------- equal to the classes'


@pytest.mark.parametrize("classes", [1, 2, 3, 5, 10, 33, 100, 101, 1000, 3000])
def test_equals_the_sum_over_classes(classes):
    rows = 8 if classes < 1000 else 4
    for spread in SPREADS:
        logits, mass = seeded(rows, classes, seed=classes, scale=spread), masses(rows, classes)
        logits[0, : classes // 2] += 2.5  # a knee
        found = value_and_gradient(lambda z, m=mass: exact_error(z, m, **PLAIN), logits)
        by_class = value_and_gradient(
            lambda z, m=mass: 1 - (m * argmax_probabilities(z)).sum(1), logits
        )
        for a, b in zip(found, by_class, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
        torch.testing.assert_close(found[1].sum(1), torch.zeros(rows).double(), rtol=0, atol=1e-13)
        single = value_and_gradient(
            lambda z, m=mass: exact_error(z, m.float(), **PLAIN), logits.float()
        )
        rounded = value_and_gradient(
            lambda z, m=mass: exact_error(z, m.float().double(), **PLAIN), logits.float().double()
        )
        torch.testing.assert_close(single[0].double(), rounded[0], rtol=2e-6, atol=1e-9)
        torch.testing.assert_close(single[1].double(), rounded[1], rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("lead", [0.0, 0.5, 2.0, 5.0, 9.0, 20.0, 45.0])
@pytest.mark.parametrize("classes", [2, 4, 12, 120])
def test_a_tiny_loss_keeps_its_digits(classes, lead):
    """Probabilities that are surely right, against labels, whose integral has a table by mpmath."""
    logits = seeded(6, classes, seed=3)
    logits[:, 0] = logits[:, 1:].amax(1) + lead
    label, one = torch.zeros(6, dtype=torch.int64), torch.zeros(6, classes).double()
    one[:, 0] = 1
    for mass in (one, one * (1 - 1e-13) + 1e-13 / classes):
        by_label = [exact_error(logits, label + y, **PLAIN) for y in range(classes)]
        true = (mass * torch.stack(by_label, 1)).sum(1)
        torch.testing.assert_close(exact_error(logits, mass, **PLAIN), true, rtol=1e-12, atol=0)
    hard = value_and_gradient(lambda z: exact_error(z, label, **PLAIN), logits)
    soft = value_and_gradient(lambda z: exact_error(z, one, **PLAIN), logits)
    torch.testing.assert_close(soft[0], hard[0], rtol=1e-12, atol=0)
    scale = hard[1].abs().amax(1, keepdim=True)
    torch.testing.assert_close(soft[1] / scale, hard[1] / scale, rtol=0, atol=1e-11)
    if lead <= 9:
        hard = value_and_gradient(lambda z: exact_error(z, label, **PLAIN), logits.float())
        soft = value_and_gradient(lambda z: exact_error(z, one.float(), **PLAIN), logits.float())
        torch.testing.assert_close(soft[0], hard[0], rtol=4e-5, atol=0)
        scale = hard[1].abs().amax(1, keepdim=True)
        torch.testing.assert_close(soft[1] / scale, hard[1] / scale, rtol=0, atol=2e-4)


@pytest.mark.parametrize(
    ("logits", "mass"),
    [
        ([0.0, -1.0, -2.5, 1.0], [0.1, 0.2, 0.3, 0.4]),
        ([12.0, 0.0, -3.0, 1.0], [1.0, 0.0, 0.0, 0.0]),
        ([30.0, 0.0, 0.0, 29.0], [0.5, 0.0, 0.0, 0.5]),
        ([0.0, 8.0, 3.0, 1.0], [0.7, 0.1, 0.1, 0.1]),
        ([1e4, -math.inf, 1e4 - 3, 0.0], [0.5, 0.0, 0.25, 0.25]),
    ],
)
def test_equals_mpmath(logits, mass):
    means = [mp.mpf(z) for z in logits if z > max(logits) - 60]
    q = [mp.mpf(m) for z, m in zip(logits, mass, strict=True) if z > max(logits) - 60]
    with mp.workdps(25):
        costs = [sum(map(mp.mpf, mass)) - m for m in q]

        def density(s):
            each = [mp.ncdf(s - mu) for mu in means]
            upset = sum(
                c * mp.npdf(s - mu) / p for c, mu, p in zip(costs, means, each, strict=True)
            )
            return upset * mp.fprod(each)

        true = mp.quad(density, [max(means) + x for x in range(-18, 11, 2)])
    row, chances = (torch.tensor(x, dtype=torch.float64) for x in (logits, mass))
    found = exact_error(row, chances, **PLAIN)
    assert abs(found.item() - true) <= 1e-12 * true


def test_a_hundred_thousand_equal_classes():
    logits = torch.zeros(2, 100_000, dtype=torch.float64)
    mass = masses(2, 100_000)
    torch.testing.assert_close(
        exact_error(logits, mass, **PLAIN),
        torch.full((2,), 1 - 1e-5, dtype=torch.float64),
        rtol=0,
        atol=1e-12,
    )


@pytest.mark.parametrize("noise", ["normal", "gumbel", "logistic", "laplace"])
def test_chances_sum_to_one_however_many_are_level(noise):
    for classes, spread in itertools.product((10, 30, 1000, 5000), (0.0, 1.0)):
        chances = argmax_probabilities(seeded(2, classes, scale=spread), 1.0, noise)
        torch.testing.assert_close(
            chances.sum(1), torch.ones(2, dtype=torch.float64), rtol=0, atol=4e-12
        )


# ------------------------------------------------------------------------------------ as a loss


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_gradients_of_everything(reduction):
    logits, mass = seeded(5, 4).requires_grad_(), masses(5, 4).requires_grad_()
    sigma = torch.tensor([0.5, 1.0, 2.0, 0.3, 4.0], dtype=torch.float64, requires_grad=True)
    weight = torch.tensor([1.0, 0.0, 2.0, 0.5], dtype=torch.float64)
    labels = torch.tensor([0, -100, 3, 2, 1])
    options = {"reduction": reduction}
    calls = [
        lambda z, m, s: exact_error(z, m, weight, sigma=s, **options),
        lambda z, m, s: exact_error(
            z, m, sigma=s, label_smoothing=0.2, standardize=False, **options
        ),
        lambda z, m, s: exact_error(z, labels, weight, sigma=s, label_smoothing=0.2, **options),
        lambda z, m, s: expected_cost(z, m, m[:4] - 0.3, sigma=s, noise="normal", **options),
        lambda z, m, s: expected_cost(z, labels, m[:4], weight, noise="normal", **options),
    ]
    for call in calls:
        assert torch.autograd.gradcheck(call, (logits, mass, sigma), atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_odd_rows_each_for_itself(dtype):
    inf, nan = math.inf, math.nan
    logits = torch.tensor(
        [
            [0.0, 1.0, -inf, -1.0],  # a class less
            [0.0, -inf, -inf, -inf],  # no rival
            [nan, 0.0, 1.0, 2.0],
            [-inf, -inf, -inf, -inf],
            [1e4, -1e4, 9998.0, -inf],
            [1e30, -1e30, 0.0, 1e29],
        ],
        dtype=dtype,
    )
    mass = torch.tensor([[0.5, 0.25, 0.0, 0.25]], dtype=dtype).repeat(6, 1)
    value, gradient = value_and_gradient(lambda z: exact_error(z, mass, **PLAIN), logits)
    assert value.isnan().tolist() == [False, False, True, True, False, False]
    assert gradient.isnan().any(1).tolist() == [False, False, True, True, False, False]
    torch.testing.assert_close(
        value[0], exact_error(logits[0, [0, 1, 3]], mass[0, [0, 1, 3]], **PLAIN)
    )
    assert value[[1, 5]].tolist() == [0.5, 0.5]
    assert gradient[[1, 5]].abs().max() == 0
    assert gradient[0, 2] == gradient[4, 3] == 0
    assert exact_error(logits[:0], mass[:0]) == 0
    assert exact_error(logits[:2, :1], mass[:2, :1], standardize=False) == 0


def test_many_rows_go_in_chunks():
    for dtype, rtol in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        logits, mass = seeded(1500, 40, scale=3, dtype=dtype), masses(1500, 40).to(dtype)
        whole = exact_error(logits, mass, **PLAIN)
        parts = [
            exact_error(z, m, **PLAIN)
            for z, m in zip(logits.split(100), mass.split(100), strict=True)
        ]
        torch.testing.assert_close(whole, torch.cat(parts), rtol=rtol, atol=0)


def test_costs_of_any_sign():
    logits, target = seeded(6, 4, scale=2), torch.tensor([0, 1, 2, 3, 1, 0])
    cost = seeded(4, 4, seed=5)
    found = value_and_gradient(
        lambda z: expected_cost(z, target, cost, sigma=0.7, noise="normal", reduction="none"),
        logits,
    )
    by_class = value_and_gradient(
        lambda z: (cost[target] * argmax_probabilities(z, 0.7)).sum(1), logits
    )
    for a, b in zip(found, by_class, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


# --------------------------------------------------------------------------------- transforms


def test_transforms_and_refusal():
    leads = seeded(3, 4).abs().requires_grad_()
    costs = seeded(3, 4, seed=1).requires_grad_()
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(rival_cost_op, (leads.detach(), costs.detach()), test_utils=tests)
    whole = rival_cost(leads, costs)
    torch.testing.assert_close(torch.func.vmap(rival_cost)(leads, costs), whole)
    shared = torch.func.vmap(rival_cost, in_dims=(0, None))(leads, costs[0])
    torch.testing.assert_close(shared[0], whole[0])
    gradients = torch.autograd.grad(whole.sum(), (leads, costs), create_graph=True)
    tangents = seeded(3, 4, seed=2), seeded(3, 4, seed=3)
    _, along = torch.func.jvp(rival_cost, (leads.detach(), costs.detach()), tangents)
    expected = sum((g * t).sum(1) for g, t in zip(gradients, tangents, strict=True))
    torch.testing.assert_close(along, expected.detach())
    with pytest.raises(RuntimeError, match="must not be differentiated twice"):
        gradients[0].square().sum().backward()
