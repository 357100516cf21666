"""On a GPU too: no winner, no number; nothing lost to autocast; many gradients at once."""

import math

import pytest
import torch
from losses import CASE_IDS, CASES
from operations import (
    OPERATIONS,
    SAMPLED,
    assert_unsound,
    both,
    head,
    head_by_hand,
    holds,
    labels_of,
    scores,
    unsound,
)

import expacc
from expacc.functional import exact_error, leaky_expected_error

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

every_case = pytest.mark.parametrize(("row", "numbers"), CASES, ids=CASE_IDS)
HALVES = (torch.bfloat16, torch.float16)
every_half = pytest.mark.parametrize("half", HALVES, ids=str)


@every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALVES], ids=str)
def test_every_loss(row, numbers, dtype):
    for classes in (1, 2, 6, 70):
        logits, target, bad = unsound(classes, dtype, "cuda")
        assert_unsound(lambda z, t=target: row.function(z, t, reduction="none", **numbers),
                       logits, bad)  # fmt: skip
        assert row.function(logits, target, **numbers).isnan()
        kept = torch.where(bad, -100, target)
        leaf = logits.clone().requires_grad_()
        for _ in range(3):  # Python's launches, then those of C++ where there is a compiler
            value = row.function(leaf, kept, **numbers)
            (grad,) = torch.autograd.grad(value, leaf)
            assert value.isfinite()
            assert torch.equal(grad[bad], torch.zeros_like(grad[bad]))
        if row.soft:
            mix = torch.full_like(logits, 1 / classes)
            assert_unsound(lambda z, m=mix: row.function(z, m, reduction="none", **numbers),
                           logits, bad)  # fmt: skip


@pytest.mark.parametrize("classes", [6, 70])
def test_compiled(classes):
    logits, target, bad = unsound(classes, device="cuda")
    for loss in (leaky_expected_error, lambda z, t, **k: exact_error(z, t, standardize=False, **k)):
        torch._dynamo.reset()
        compiled = torch.compile(lambda z, f=loss: f(z, target, reduction="none"), fullgraph=True)
        assert_unsound(compiled, logits, bad)


def test_with_one_unsound_row_a_batch_has_no_deviation():
    for classes in (6, 70):
        logits, target, bad = unsound(classes, device="cuda")
        for place in bad.nonzero().flatten():
            some = torch.cat([logits[place : place + 1], logits[6:]]).requires_grad_()
            values = exact_error(some, target[:3], reduction="none")
            assert values.isnan().all()
            assert torch.autograd.grad(values.sum(), some)[0].isnan().all()


def test_an_illegal_sigma_or_weight_makes_its_rows_nan():
    bad = torch.tensor([0.0, -1.0, math.nan, math.inf, 1.0], device="cuda")
    wrong = [True] * 4 + [False]
    for classes in (6, 70):
        logits = torch.randn(5, classes, device="cuda").requires_grad_()
        target = torch.arange(5, device="cuda")
        values = exact_error(logits, target, sigma=bad, standardize=False, reduction="none")
        assert values.isnan().tolist() == wrong
        (grad,) = torch.autograd.grad(values.sum(), logits)
        assert grad.isnan().all(1).tolist() == wrong
        assert expacc.argmax_probabilities(logits, bad[:, None]).isnan().all(1).tolist() == wrong
        weight = torch.ones(classes, device="cuda")
        weight[:4] = torch.tensor([-1.0, math.nan, math.inf, -math.inf])
        for loss in (leaky_expected_error, exact_error):
            values = loss(logits, target, weight=weight, reduction="none")
            assert values.isnan().tolist() == wrong
            assert loss(logits, target, weight=weight).isnan()


@pytest.mark.parametrize("classes", [6, 70])
@pytest.mark.parametrize("margin", [None, 0.7])
def test_standardised_logits_have_no_size(classes, margin):
    small, target = torch.randn(9, classes, device="cuda"), torch.arange(9, device="cuda") % 6
    leaf = small.double().requires_grad_()
    expected = exact_error(leaf, target, margin=margin)
    (slope,) = torch.autograd.grad(expected, leaf)
    for power in (50, 100, 124):
        leaf = (small * 2.0**power).requires_grad_()
        for _ in range(3):
            value = exact_error(leaf, target, margin=margin)
            torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=0)
            (grad,) = torch.autograd.grad(value, leaf, torch.tensor(2.0**100, device="cuda"))
            grad = grad.double() * 2.0 ** (power - 100)
            torch.testing.assert_close(grad, slope, rtol=1e-3, atol=1e-7)


def test_the_largest_logits():
    for classes in (6, 70):
        ends = torch.full((3, classes), -3.4e38, device="cuda")
        ends[:2, 0] = 3.4e38
        target = torch.tensor([0, 1, 0], device="cuda")
        for row, numbers in CASES:
            leaf = ends.clone().requires_grad_()
            values = row.function(leaf, target, reduction="none", **numbers)
            assert not values.isnan().any()
            (grad,) = torch.autograd.grad(values.sum(), leaf)
            assert grad[values.isfinite()].isfinite().all()


# ------------------------------------------------------------------------------------- autocast


@every_half
@every_case
def test_losses_under_autocast(row, numbers, half):
    values = scores().float().cuda()
    for reduction in ("none", "mean"):
        keywords = {"reduction": reduction, **numbers}
        holds(lambda z, k=keywords: row.function(z, labels_of(z), **k), values, half)
    if row.soft:
        holds(lambda z: row.function(z, z.detach().softmax(1), **numbers), values, half)


@every_half
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_under_autocast(name, half):
    tolerance = 1e-4 if name.startswith("centers") else 2e-5
    values = scores().float().cuda()
    holds(OPERATIONS[name], values, half, tolerance, truth=name not in SAMPLED)


@every_half
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_the_head_under_autocast(reduction, half):
    for where in ((True, True), (True, False)):
        values, gradient = both(lambda x: head(x, reduction), scores().float().cuda(), half, where)
        expected = both(lambda x: head_by_hand(x, reduction), scores().float().cuda(), half, where)
        torch.testing.assert_close(values, expected[0], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(gradient, expected[1], rtol=1e-2, atol=1e-3)


def test_tf32_does_not_reach_the_costs():
    name = "expected_cost of probabilities"
    exact = OPERATIONS[name](scores().cuda())
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        found = OPERATIONS[name](scores().float().cuda())
    finally:
        torch.set_float32_matmul_precision(before)
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-6)


# ----------------------------------------------------------------------------- many gradients


@every_case
@pytest.mark.parametrize("classes", [6, 70])
def test_many_gradients_at_once(row, numbers, classes):
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(9, classes, generator=generator).cuda()
    target = torch.arange(9, device="cuda") % 6
    settings = [numbers]
    if "standardize" in numbers:
        settings.append({**numbers, "standardize": True})
    for keywords in settings:
        leaf = values.clone().requires_grad_()
        for _ in range(3):  # the last from the node in C++
            found = row.function(leaf, target, reduction="none", **keywords)
            each = torch.eye(9, device="cuda")
            loop = torch.stack(
                [torch.autograd.grad(found, leaf, one, retain_graph=True)[0] for one in each]
            )
        (many,) = torch.autograd.grad(found, leaf, each, is_grads_batched=True)
        torch.testing.assert_close(many, loop, rtol=1e-3, atol=2e-6)
