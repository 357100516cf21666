"""EXACT: the orthant integral against its mpmath table, and the loss around it."""

import itertools
import json
import math
from pathlib import Path

import mpmath as mp
import pytest
import torch
import torch.multiprocessing as multiprocessing
from standardizing_rank import logits_and_target, standardize_rank

import expacc
from expacc import argmax_probabilities, log_orthant_prob, orthant_prob
from expacc.functional import exact_error, expected_cost, expected_error
from expacc.ops.orthant.all_classes import win, win_backward
from expacc.ops.orthant.any_noise import contest, contest_nodes
from expacc.ops.orthant.float32 import is_calm
from expacc.ops.orthant.node import orthant, orthant_chance, orthant_logs

TABLE = json.loads((Path(__file__).parent / "tables" / "orthant.json").read_text())["cases"]
NOISES = ["normal", "gumbel", "logistic", "laplace"]


def seeded(*shape, seed=0, scale=1.0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype) * scale


# ------------------------------------------------------------------------------ the primitive


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("case", TABLE, ids=lambda case: case["name"])
def test_equals_the_mpmath_table(case, dtype):
    margins = torch.cat([torch.full((n,), v, dtype=dtype) for v, n in case["runs"]])[None]
    first = [0, *itertools.accumulate(n for _, n in case["runs"])]
    log_tolerance, score_tolerance = (1e-12, 1e-10) if dtype == torch.float64 else (2e-6, 1e-4)
    if case["group"] == "1e4":
        log_tolerance, score_tolerance = max(log_tolerance, 1e-8), max(score_tolerance, 1e-8)
    log_p, log_q, small, gradient = orthant(margins, 0)
    for found, true in ((log_p, case["log_p"]), (log_q, case["log_q"])):
        with mp.workdps(40):
            error = abs(mp.mpf(found.item()) - mp.mpf(true))
            assert error <= log_tolerance * max(1, abs(mp.mpf(true)))
    # The gradient is scaled by the smaller of P and 1-P, so that it never underflows.
    shift = float(case["log_p"]) - small.item()
    scores = {int(run): math.exp(float(s) + shift) for run, s in case["score"].items()}
    largest = max(scores.values())
    for run, true in scores.items():
        assert abs(gradient[0, first[run]].item() - true) <= score_tolerance * largest


def test_public_functions_and_their_gradients():
    margins = seeded(20, 6, scale=3).requires_grad_()
    log_p = log_orthant_prob(margins)
    torch.testing.assert_close(orthant_prob(margins), log_p.exp())
    assert torch.autograd.gradcheck(log_orthant_prob, margins, atol=1e-8)
    assert torch.autograd.gradcheck(orthant_prob, margins, atol=1e-8)
    assert orthant_prob(margins.half()).dtype == torch.float16
    far = torch.full((1, 3), -60.0, requires_grad=True)  # P underflows in float32
    (grad,) = torch.autograd.grad(log_orthant_prob(far), far)
    assert log_orthant_prob(far).item() == pytest.approx(
        log_orthant_prob(far.detach().double()).item(), rel=2e-6
    )
    assert torch.allclose(grad, grad.flip(1))
    assert 10 < grad[0, 0].item() < 20


def test_identities_of_the_integral():
    logits = seeded(30, 12, scale=2).requires_grad_()
    everyone = []
    for y in range(12):
        others = [i for i in range(12) if i != y]
        everyone.append(orthant_prob(logits[:, y : y + 1] - logits[:, others]))
    chances = torch.stack(everyone, 1)
    torch.testing.assert_close(
        chances.sum(1), torch.ones(30, dtype=torch.float64), rtol=0, atol=1e-12
    )
    # ∂P_y/∂mu_i = ∂P_i/∂mu_y
    rows = [torch.autograd.grad(chances[:, y].sum(), logits, retain_graph=True)[0] for y in (3, 7)]
    torch.testing.assert_close(rows[0][:, 7], rows[1][:, 3], rtol=1e-10, atol=1e-14)
    margins = seeded(5, 8)
    torch.testing.assert_close(
        log_orthant_prob(margins), log_orthant_prob(margins.flip(1)), rtol=1e-13, atol=1e-14
    )
    two = torch.linspace(-30, 30, 61, dtype=torch.float64)
    closed = torch.special.log_ndtr(two / math.sqrt(2))
    torch.testing.assert_close(log_orthant_prob(two[:, None]), closed, rtol=1e-12, atol=1e-15)


def test_vanishing_sigma_gives_the_argmax():
    logits = seeded(50, 7)
    target = torch.randint(0, 7, (50,), generator=torch.Generator().manual_seed(1))
    errors = exact_error(logits, target, sigma=1e-6, standardize=False, reduction="none")
    assert torch.equal(errors.round(), (logits.argmax(1) != target).double())
    assert ((errors < 1e-12) | (errors > 1 - 1e-12)).all()


def test_absent_rivals_and_nan_rows():
    margins = seeded(4, 5)
    wide = torch.cat([margins, torch.full((4, 3), math.inf)], 1).requires_grad_()
    torch.testing.assert_close(log_orthant_prob(wide), log_orthant_prob(margins))
    (grad,) = torch.autograd.grad(log_orthant_prob(wide).sum(), wide)
    assert torch.equal(grad[:, 5:], torch.zeros(4, 3, dtype=torch.float64))
    alone = torch.full((2, 3), math.inf, requires_grad=True)
    assert orthant_prob(alone).tolist() == [1, 1]
    assert torch.autograd.grad(orthant_prob(alone).sum(), alone)[0].abs().max() == 0
    broken = margins.clone()
    broken[1, 2] = math.nan
    values = log_orthant_prob(broken)
    assert values.isnan().tolist() == [False, True, False, False]
    torch.testing.assert_close(values[[0, 2, 3]], log_orthant_prob(margins)[[0, 2, 3]])


def spread_margins(rivals, low, high, rows=300):
    """Float32 margins of rivals from nearly equal to far apart, the nearest from low to high."""
    kinds = []
    for spread in (0.0, 0.05, 1.0, 3.0, 10.0):
        margins = seeded(rows, rivals, seed=rivals, scale=spread)
        nearest = torch.linspace(low, high, rows, dtype=torch.float64)[:, None]
        kinds.append(margins - margins.amin(1, keepdim=True) + nearest)
    pairs = torch.where(torch.arange(rivals) < (rivals + 1) // 2, 0.0, 2.5)
    kinds.append(pairs + torch.linspace(low, high, rows, dtype=torch.float64)[:, None])
    return torch.cat(kinds).float()


@pytest.mark.parametrize("rivals", [2, 5, 9, 10, 15, 16, 31, 32, 33, 63, 64, 99])
def test_the_grid_without_a_search_is_as_good(rivals):
    single = spread_margins(rivals, -7.9, 15.9)
    assert is_calm(single.amin(1), rivals)
    found, true = orthant(single, 0), orthant(single.double(), 0)
    for a, b in zip(found[:2], true[:2], strict=True):
        assert ((a - b).abs() <= 2e-6 * b.abs().clamp(min=1)).all()
    relative = (found[1] - true[1]).expm1().abs()  # of 1-P itself
    assert relative.max() < 2e-5
    scale = (found[2] - true[2]).exp()[:, None]
    error = (found[3] * scale - true[3]).abs().amax(1) / true[3].amax(1)
    assert error.max() < 1e-4


@pytest.mark.parametrize("rivals", [2, 9, 15, 31, 63, 99])
@pytest.mark.parametrize("error", [False, True])
def test_chances_are_right_until_they_underflow(rivals, error):
    single = spread_margins(rivals, -30.0, 30.0).requires_grad_()
    assert not is_calm(single.amin(1), rivals)
    value = orthant_chance(single, 0, error=error, dtype=torch.float64)
    (grad,) = torch.autograd.grad(value.sum(), single)
    double = single.detach().double().requires_grad_()
    true = orthant_logs(double, 0)[error].exp()
    (true_grad,) = torch.autograd.grad(true.sum(), double)
    tiny = torch.finfo(torch.float32).tiny
    sure = true > 50 * tiny
    log_error = (value[sure].log() - true[sure].log()).abs().detach()
    assert (log_error <= 2e-6 * true[sure].detach().log().abs().clamp(min=1)).all()
    assert (value[~sure] <= 100 * tiny).all()
    largest = true_grad.abs().amax(1)
    alive = largest > 50 * tiny
    assert ((grad - true_grad).abs().amax(1) <= 1e-4 * largest)[alive].all()
    assert alive.any()
    assert sure.any()
    dead = single.amin(1).abs() > 20
    assert dead.any()
    assert grad[dead].abs().max() == 0


def test_what_is_not_calm():
    assert not is_calm(torch.tensor([math.nan]), 3)
    assert not is_calm(torch.tensor([0.0]), 100)
    assert not is_calm(torch.tensor([0.0, -8.1]), 3)
    assert not is_calm(torch.empty(0), 3)


def test_chances_of_odd_rows():
    """Absent rivals, NaN, infinitely far ahead or behind: each row for itself."""
    rows = torch.tensor(
        [
            [0.5, 1.0, math.inf],
            [math.inf, math.inf, math.inf],
            [math.nan, 0.0, 1.0],
            [-math.inf, 0.0, 1.0],
            [-1e9, 3.0, -2e9],
        ],
        requires_grad=True,
    )
    value = orthant_prob(rows)
    (grad,) = torch.autograd.grad(value.sum(), rows)
    torch.testing.assert_close(value[0], orthant_prob(rows[0, :2]))
    assert grad[0, 2] < 1e-30
    assert value[1] == 1
    assert value[2].isnan()
    assert value[3:].tolist() == [0, 0]
    assert grad[[1, 3, 4]].abs().max() == 0
    assert orthant_prob(rows[:0]).shape == (0,)
    one = rows[:1].detach()  # one row: its transpose is contiguous as it is
    before = one.clone()
    orthant_prob(one)
    assert torch.equal(one, before)


def test_many_rows_go_in_chunks():
    margins = seeded(1500, 40, scale=3, dtype=torch.float32).requires_grad_()
    whole = orthant_prob(margins)
    parts = torch.cat([orthant_prob(part) for part in margins.split(100)])
    torch.testing.assert_close(whole, parts, rtol=1e-5, atol=0)
    grads = [torch.autograd.grad(v.sum(), margins)[0] for v in (whole, parts)]
    torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-7)


def test_a_hundred_thousand_classes():
    margins = seeded(2, 99_999, dtype=torch.float32).requires_grad_()
    log_p = log_orthant_prob(margins)
    log_p.sum().backward()
    exact = log_orthant_prob(margins.detach().double())
    torch.testing.assert_close(log_p.detach().double(), exact, rtol=2e-6, atol=2e-6)
    assert margins.grad.isfinite().all()


def test_operations_are_registered_well():
    margins = seeded(3, 4).requires_grad_()
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(orthant, (margins, 0), test_utils=tests)
    single = seeded(4, 6, dtype=torch.float32).t().requires_grad_()  # not contiguous
    torch.library.opcheck(orthant, (single, 0), test_utils=tests)
    torch.library.opcheck(win, (margins, "normal"), test_utils=tests)
    torch.library.opcheck(
        win_backward, (margins.detach(), seeded(3, 4), "normal"), test_utils=tests
    )
    torch.library.opcheck(
        contest_nodes,
        (margins.detach(), torch.ones(3, 4).double(), "laplace", 2, False),
        test_utils=tests,
    )
    values = torch.func.vmap(lambda m: orthant_logs(m, 0)[0])(margins[None])
    torch.testing.assert_close(values[0], log_orthant_prob(margins))


def test_double_backward_is_refused_with_a_sentence():
    margins = seeded(3, 4).requires_grad_()
    (grad,) = torch.autograd.grad(log_orthant_prob(margins).sum(), margins, create_graph=True)
    with pytest.raises(RuntimeError, match="orthant_prob must not be differentiated twice"):
        grad.square().sum().backward()
    (grad,) = torch.autograd.grad(argmax_probabilities(margins)[0, 0], margins, create_graph=True)
    with pytest.raises(RuntimeError, match="argmax_probabilities must not be differentiated twice"):
        grad.square().sum().backward()


# ----------------------------------------------------------------------------------- the loss


def test_gumbel_noise_is_softmax():
    logits = seeded(40, 6, scale=3).requires_grad_()
    target = torch.arange(40) % 6
    for reduction in ("none", "mean"):
        ours = exact_error(logits, target, noise="gumbel", standardize=False, reduction=reduction)
        theirs = expected_error(logits, target, reduction=reduction)
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)
    offset = (logits[:, :1] - logits[:, 1:]).detach()
    general = contest(offset, torch.ones_like(offset), "gumbel", 1, single=False, eager=True)
    softmax = expected_error(logits.detach(), torch.zeros(40, dtype=torch.int64), reduction="none")
    torch.testing.assert_close(general.error, softmax, rtol=1e-12, atol=1e-12)


def test_margin_comes_after_standardisation_and_before_sigma():
    logits = seeded(8, 4, scale=5)
    target = torch.arange(8) % 4
    standard = (logits - logits.mean()) / logits.std()
    lead = standard.gather(1, target[:, None]) - standard
    margins = torch.stack([row[torch.arange(4) != y] for row, y in zip(lead, target, strict=True)])
    expected = 1 - orthant_prob(margins.clamp(max=0.7) / 0.3)
    found = exact_error(logits, target, sigma=0.3, margin=0.7, reduction="none")
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


def test_standardisation():
    logits = seeded(9, 4, scale=5).requires_grad_()
    target = torch.arange(9) % 4
    value = exact_error(logits, target)
    torch.testing.assert_close(exact_error(logits * 7 + 3, target), value)  # shift and scale
    assert torch.autograd.gradcheck(lambda z: exact_error(z, target), logits, atol=1e-7)
    kept = torch.cat([target, torch.tensor([-100])])
    spoiled = torch.cat([logits, torch.full((1, 4), math.nan)])
    torch.testing.assert_close(exact_error(spoiled, kept), value)
    masked = torch.cat([logits, torch.full((9, 1), -math.inf)], 1)
    torch.testing.assert_close(exact_error(masked, target), value)
    for constant in (torch.zeros(5, 3), torch.full((5, 3), 7.0), torch.full((1, 1), 2.0)):
        leaf = constant.clone().requires_grad_()
        labels = torch.zeros(len(leaf), dtype=torch.int64)
        loss = exact_error(leaf, labels)
        loss.backward()
        assert leaf.grad.isfinite().all()
        torch.testing.assert_close(loss, torch.tensor(1 - 1 / leaf.shape[1]))


def test_minus_log_probability_where_it_underflows():
    logits = torch.tensor([[0.0, 300.0, 100.0]], requires_grad=True)
    loss = exact_error(logits, torch.tensor([0]), log=True, standardize=False)
    assert loss.item() == pytest.approx(300**2 / 4, rel=1e-3)
    loss.backward()
    assert logits.grad[0, 0].item() == pytest.approx(-150, rel=1e-2)
    assert exact_error(logits, torch.tensor([0]), standardize=False).item() == 1


def test_sure_rows_keep_a_gradient():
    """Where 1 - P is far below float32's rounding of P."""
    logits = torch.tensor([[16.0, 0.0, 1.0]], requires_grad=True)
    loss = exact_error(logits, torch.tensor([0]), standardize=False)
    exact = exact_error(logits.detach().double(), torch.tensor([0]), standardize=False)
    assert 1e-27 < loss.item() < 1e-24
    assert loss.item() == pytest.approx(exact.item(), rel=1e-5)
    loss.backward()
    assert logits.grad[0, 0] < 0


@pytest.mark.parametrize("noise", NOISES)
def test_sigma_per_row_class_and_logit(noise):
    logits, target = seeded(5, 3), torch.tensor([0, 1, 2, 0, 1])
    options = {"standardize": False, "noise": noise, "reduction": "none"}
    row = torch.tensor([0.5, 1.0, 2.0, 3.0, 0.1], dtype=torch.float64)
    by_row = exact_error(logits, target, sigma=row, **options)
    expected = torch.cat(
        [
            exact_error(logits[i : i + 1], target[i : i + 1], sigma=row[i].item(), **options)
            for i in range(5)
        ]
    )
    torch.testing.assert_close(by_row, expected, rtol=1e-11, atol=1e-13)
    same = exact_error(logits, target, sigma=row[:, None].expand(5, 3), **options)
    torch.testing.assert_close(same, expected, rtol=1e-9, atol=1e-11)
    by_class = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    values = exact_error(logits, target, sigma=by_class, **options)
    generator = torch.Generator().manual_seed(0)
    uniform = torch.rand(200_000, 5, 3, generator=generator, dtype=torch.float64)
    draw = {
        "normal": lambda u: torch.special.ndtri(u),
        "gumbel": lambda u: -torch.log(-torch.log(u)),
        "logistic": torch.logit,
        "laplace": lambda u: -(u - 0.5).sign() * torch.log1p(-2 * (u - 0.5).abs()),
    }[noise]
    wins = (logits + by_class * draw(uniform)).argmax(-1) == target
    standard_error = (values * (1 - values) / 200_000).sqrt()
    assert ((1 - wins.double().mean(0) - values).abs() < 5 * standard_error).all()
    sigma = by_class.clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda s: exact_error(logits, target, sigma=s, **options), sigma, atol=1e-7
    )
    scalar = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda s: exact_error(logits, target, sigma=s, **options), scalar, atol=1e-7
    )


def test_module_with_a_trained_sigma():
    """The paper's variance branch: sigma with a gradient of its own."""
    sigma = torch.nn.Parameter(torch.ones(6, dtype=torch.float64))
    loss = expacc.ExactLoss(sigma=sigma, standardize=False)
    loss(seeded(6, 3), torch.arange(6) % 3).backward()
    assert sigma.grad.isfinite().all()
    assert sigma.grad.abs().min() > 0
    scheduled = expacc.ScheduledLoss(expacc.ExactLoss(), sigma=expacc.schedules.sigma_tabular)
    assert scheduled.sigma == 10
    scheduled.step(1.0)
    assert scheduled.sigma == 0.01


def test_topk_agrees_with_monte_carlo():
    """Fifty random cases, each within five standard errors."""
    generator = torch.Generator().manual_seed(4)
    noise = torch.randn(40_000, 12, generator=generator, dtype=torch.float64)
    for case in range(50):
        classes, k = 3 + case % 10, 1 + case % 4
        logits = seeded(1, classes, seed=case, scale=1.5)
        k = min(k, classes)
        value = exact_error(logits, torch.tensor([0]), topk=k, standardize=False).item()
        draws = logits + noise[:, :classes]
        above = (draws[:, 1:] > draws[:, :1]).sum(1)
        found = (above >= k).double().mean().item()
        assert abs(found - value) <= 5 * math.sqrt(max(value * (1 - value), 1e-6) / 40_000)


def test_topk_edges():
    logits, target = seeded(6, 5).requires_grad_(), torch.arange(6) % 5
    one = exact_error(logits, target, topk=1, reduction="none")
    offset = torch.stack(
        [row[y] - row[torch.arange(5) != y] for row, y in zip(logits, target, strict=True)]
    )
    general = contest(offset, torch.ones_like(offset), "normal", 1, single=False, eager=True)
    plain = exact_error(logits, target, standardize=False, reduction="none")
    torch.testing.assert_close(general.error, plain, rtol=1e-11, atol=1e-13)
    errors = [exact_error(logits, target, topk=k, reduction="none").detach() for k in range(1, 6)]
    assert all((a > b).all() for a, b in itertools.pairwise(errors))
    assert torch.equal(
        errors[4], torch.zeros(6, dtype=torch.float64)
    )  # among the five best of five
    torch.testing.assert_close(errors[0], one.detach())
    for k in (2, 3):
        assert torch.autograd.gradcheck(
            lambda z, k=k: exact_error(z, target, topk=k), logits, atol=1e-7
        )


def test_large_contests_go_in_chunks():
    logits, target = seeded(60, 300).requires_grad_(), torch.arange(60)
    whole = exact_error(logits, target, noise="logistic", standardize=False, reduction="none")
    parts = torch.cat(
        [
            exact_error(z, y, noise="logistic", standardize=False, reduction="none")
            for z, y in zip(logits.split(1), target.split(1), strict=True)
        ]
    )
    torch.testing.assert_close(whole, parts, rtol=1e-10, atol=1e-13)
    grads = [torch.autograd.grad(v.sum(), logits)[0] for v in (whole, parts)]
    torch.testing.assert_close(*grads, rtol=1e-8, atol=1e-13)


def test_balanced_accuracy_is_a_weight():
    logits, target = seeded(8, 2), torch.tensor([0, 0, 0, 0, 0, 0, 1, 1])
    weight = 8 / (2 * torch.bincount(target).double())
    rows = exact_error(logits, target, reduction="none")
    balanced = (rows[:6].mean() + rows[6:].mean()) / 2
    torch.testing.assert_close(exact_error(logits, target, weight=weight), balanced)


# ------------------------------------------------------------------------- everyone's chances


@pytest.mark.parametrize("noise", NOISES)
def test_argmax_probabilities(noise):
    logits = seeded(7, 5, scale=2).requires_grad_()
    chances = argmax_probabilities(logits, 0.7, noise)
    for y in range(5):
        labels = torch.full((7,), y)
        error = exact_error(
            logits, labels, sigma=0.7, noise=noise, standardize=False, reduction="none"
        )
        torch.testing.assert_close(chances[:, y], 1 - error, rtol=1e-9, atol=1e-11)
    assert torch.autograd.gradcheck(
        lambda z: argmax_probabilities(z, 0.7, noise), logits, atol=1e-7
    )
    for classes in (1, 2, 10, 100, 1000):
        single = seeded(6, classes, dtype=torch.float32, scale=3)
        total = argmax_probabilities(single, 1.0, noise).sum(-1)
        torch.testing.assert_close(total, torch.ones(6), rtol=0, atol=1e-6)
    masked = torch.tensor([[0.0, -math.inf, 1.0]], requires_grad=True)
    found = argmax_probabilities(masked, 1.0, noise)
    assert found[0, 1] == 0
    (grad,) = torch.autograd.grad(found[0, 0], masked)
    assert grad.isfinite().all()


def test_the_old_name_works_for_one_release():
    logits = seeded(3, 4)
    with pytest.warns(DeprecationWarning, match="is now argmax_probabilities"):
        assert torch.equal(expacc.win_probabilities(logits), argmax_probabilities(logits))


def test_expected_cost():
    logits, target = seeded(6, 3).requires_grad_(), torch.tensor([0, 1, 2, 2, 1, 0])
    ones = 1 - torch.eye(3, dtype=torch.float64)
    torch.testing.assert_close(expected_cost(logits, target, ones), expected_error(logits, target))
    torch.testing.assert_close(
        expected_cost(logits, target, ones, noise="normal", sigma=0.5),
        exact_error(logits, target, sigma=0.5, standardize=False),
    )
    cost = torch.tensor([[0.0, 1.0, 5.0], [2.0, 0.0, 1.0], [0.5, 3.0, 0.0]], dtype=torch.float64)
    by_hand = (logits.softmax(1) * cost[target]).sum(1)
    torch.testing.assert_close(expected_cost(logits, target, cost, reduction="none"), by_hand)
    soft = torch.nn.functional.one_hot(target, 3).double()
    torch.testing.assert_close(expected_cost(logits, soft, cost), by_hand.mean())
    for noise in NOISES:
        assert torch.autograd.gradcheck(
            lambda z, n=noise: expected_cost(z, target, cost, noise=n), logits, atol=1e-7
        )


def test_a_masked_class_leaves_the_standardised_gradient_alone():
    logits, target = seeded(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    logits[2, 3] = logits[4, 0] = -torch.inf
    leaf = logits.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(exact_error(leaf, target, sigma=0.7), leaf)
    for row, column in itertools.product(range(6), range(4)):
        if logits[row, column] == -torch.inf:
            assert gradient[row, column] == 0
            continue
        up, down = logits.clone(), logits.clone()
        up[row, column] += 1e-6
        down[row, column] -= 1e-6
        slope = (exact_error(up, target, sigma=0.7) - exact_error(down, target, sigma=0.7)) / 2e-6
        assert slope.item() == pytest.approx(gradient[row, column].item(), abs=1e-8)


# -------------------------------------------------------------------------------- across ranks


def test_synchronised_standardisation(tmp_path):
    """Two ranks with a part each find what one finds with all."""
    multiprocessing.start_processes(
        standardize_rank, args=(str(tmp_path),), nprocs=2, start_method="spawn"
    )
    ranks = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1)]
    logits, target = logits_and_target()
    logits.requires_grad_()
    whole = exact_error(logits, target, reduction="sum")
    torch.testing.assert_close(ranks[0]["loss"] + ranks[1]["loss"], whole.detach())
    (grad,) = torch.autograd.grad(whole, logits)
    torch.testing.assert_close(torch.cat([ranks[0]["grad"], ranks[1]["grad"]]), grad)
    assert torch.equal(exact_error(logits, target, standardize="sync", reduction="sum"), whole)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("level", [0.0, 1e-25, 3.0, 1e30])
def test_constant_logits_have_the_gradient_of_logits_that_are_not_standardised(dtype, level):
    # Where a linear model starts that begins with zeros.
    target = torch.tensor([0, 2])
    found = []
    for standardize in (True, False):
        leaf = torch.full((2, 3), level, dtype=dtype, requires_grad=True)
        exact_error(leaf, target, standardize=standardize).backward()
        found.append(leaf.grad)
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-7)
