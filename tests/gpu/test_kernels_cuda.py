"""The Triton kernels on a CUDA device: right, deterministic, and well behaved."""

import itertools
import json
import math
import warnings
from functools import partial
from pathlib import Path

import pytest
import torch

from expacc.functional import (
    exact_error,
    expected_error,
    leaky_expected_error,
    linear_mixed_expected_error,
    mixed_expected_error,
)
from expacc.ops import dispatch
from expacc.ops.orthant.node import orthant

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)
pytest.importorskip("triton")

TABLE = json.loads((Path(__file__).parents[1] / "tables" / "orthant.json").read_text())["cases"]
CLASSES = (1, 2, 3, 10, 100, 257, 1000, 8192, 32_769, 50_257)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MIXTURES = (expected_error, leaky_expected_error, mixed_expected_error)


@pytest.fixture(autouse=True)
def every_family(monkeypatch):
    """'auto' takes all kernels, whichever are on by default."""
    dispatch.PLANS.clear()
    for family in dispatch.BY_DEFAULT:
        monkeypatch.setitem(dispatch.BY_DEFAULT, family, True)
    yield
    dispatch.PLANS.clear()


def seeded(seed):
    return torch.Generator("cuda").manual_seed(seed)


def batch(rows, classes, dtype, seed, spread=5.0, layout="plain"):
    generator = seeded(seed)
    logits = torch.randn(rows, classes, device="cuda", generator=generator) * spread
    target = torch.randint(0, classes, (rows,), device="cuda", generator=generator)
    logits = logits.to(dtype)
    if layout == "columns":
        logits = logits.t().contiguous().t()
    elif layout == "strided":
        wide = torch.empty(rows, 2 * classes + 1, dtype=dtype, device="cuda")
        wide[:, 1::2] = logits
        logits = wide[:, 1::2]
    return logits, target


def gradient_of(loss, logits, upstream):
    leaf = logits.detach().requires_grad_()
    value = loss(leaf)
    (grad,) = torch.autograd.grad(value, leaf, upstream.to(value.dtype).expand_as(value))
    return value.detach(), grad


def drawn_upstream(shape, seed):
    return torch.randn(shape, device="cuda", generator=seeded(seed)).double()


# --------------------------------------------------------------------------------- softmax family

CASES = [
    (classes, dtype, layout, reduction, weighted, ignoring)
    for classes, dtype, layout, reduction in itertools.product(
        CLASSES, DTYPES, ("plain", "strided", "columns"), ("none", "mean", "sum")
    )
    for weighted, ignoring in itertools.product((False, True), (False, True))
]  # 1080 combinations for each of three losses


@pytest.mark.parametrize("classes", CLASSES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_mixtures_are_as_good_as_the_eager_reference(classes, dtype):
    rows = 33 if classes < 5000 else 5
    for seed, (_, _, layout, reduction, weighted, ignoring) in enumerate(
        case for case in CASES if case[:2] == (classes, dtype)
    ):
        logits, target = batch(rows, classes, dtype, seed, layout=layout)
        weight = torch.rand(classes, device="cuda", generator=seeded(seed)) + 0.5
        weight = weight if weighted else None
        if ignoring:
            target[::3] = -100
            logits[0] = math.nan
        upstream = drawn_upstream(rows if reduction == "none" else (), seed)
        for function in MIXTURES:
            loss = partial(function, target=target, weight=weight, reduction=reduction)
            before = logits.clone()
            found = gradient_of(partial(loss, impl="triton"), logits, upstream)
            assert torch.equal(logits.nan_to_num(7), before.nan_to_num(7))
            plain = partial(loss, impl="reference")
            reference = gradient_of(plain, logits, upstream)
            true = gradient_of(plain, logits.double(), upstream)
            for ours, theirs, exact in zip(found, reference, true, strict=True):
                scale = exact.abs().max().clamp(min=1e-30)
                allowed = 2 * (theirs.double() - exact).abs().max() / scale
                # One rounding of the result is always granted.
                allowed = allowed.clamp(min=torch.finfo(dtype).eps)
                error = (ours.double() - exact).abs().max() / scale
                assert error <= allowed, (function.__name__, layout, reduction, weighted, ignoring)


# ------------------------------------------------------------------------------------------ EXACT


@pytest.mark.parametrize("group", sorted({case["group"] for case in TABLE}))
def test_orthant_equals_the_mpmath_table(group):
    for case in (case for case in TABLE if case["group"] == group):
        runs = case["runs"]
        margins = torch.cat([torch.full((n,), v) for v, n in runs])[None].cuda()
        first = [0, *itertools.accumulate(n for _, n in runs)]
        log_p, log_q, small, gradient = orthant(margins, 0)
        true_p, true_q = float(case["log_p"]), float(case["log_q"])
        for found, true in ((log_p, true_p), (log_q, true_q)):
            assert found.item() == true or abs(found.item() - true) <= 2e-6 * max(1, abs(true))
        # The gradient is that of log P, or of -log(1-P) where that is the smaller.
        ahead = small.item() == log_q.item()
        shift = true_p - true_q if ahead else 0.0
        scores = {int(run): math.exp(float(s) + shift) for run, s in case["score"].items()}
        for run, true in scores.items():
            error = abs(gradient[0, first[run]].item() - true)
            assert error <= 1e-4 * max(scores.values()), case["name"]


# Few variants of the kernels, which take seconds to compile, and many values in each: reduction,
# standardize, log, sigma and weight by row, margin.
VARIANTS = (("mean", True, False, False, None), ("none", False, True, True, 0.7))
VALUES = tuple(itertools.product((0.05, 1.0, 10.0), (0.0, 1e-3, 1.0, 5.0), range(2)))


@pytest.mark.parametrize("classes", CLASSES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_exact_is_as_good_as_the_eager_reference(classes, dtype):
    rows = 19 if classes < 5000 else 3
    for (sigma, spread, seed), variant in itertools.product(VALUES, VARIANTS):
        reduction, standardize, log, by_row, margin = variant
        if by_row and rows == classes:
            continue
        # Nearly equal logits, or equal ones, are where training starts.
        layout = "columns" if by_row else "plain"
        logits, target = batch(rows, classes, dtype, seed, spread, layout)
        target[1] = -100
        weight = torch.rand(classes, device="cuda", generator=seeded(1)) + 0.5 if by_row else None
        noise = torch.full((rows,), sigma, device="cuda") if by_row else sigma
        keywords = {"weight": weight, "reduction": reduction, "margin": margin, "log": log}
        keywords |= {"standardize": standardize, "sigma": noise}
        upstream = drawn_upstream(rows if reduction == "none" else (), seed)

        def loss(z, impl, target=target, keywords=keywords):
            return exact_error(z, target, impl=impl, **keywords)

        before = logits.clone()
        found = gradient_of(partial(loss, impl="triton"), logits, upstream)
        assert torch.equal(logits, before)
        reference = gradient_of(partial(loss, impl="reference"), logits, upstream)
        true = gradient_of(partial(loss, impl="reference"), logits.double(), upstream)
        largest = torch.finfo(dtype).max
        if any(t.abs().max() > largest or not t.isfinite().all() for t in true):
            continue  # beyond float16
        for ours, theirs, exact in zip(found, reference, true, strict=True):
            scale = exact.abs().max().clamp(min=1e-30)
            allowed = 2 * (theirs.double() - exact).abs().max() / scale
            # One rounding of the result is always granted, and the integral's own 2e-6.
            steps = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps / scale
            allowed = allowed.clamp(min=max(torch.finfo(dtype).eps, 2e-6)) + steps
            error = (ours.double() - exact).abs().max() / scale
            assert error <= allowed, (error, allowed, sigma, spread, seed, variant)


def test_second_backward_through_the_same_graph():
    for classes in (10, 9000):
        logits, target = batch(4, classes, torch.float32, 0)
        leaf = logits.requires_grad_()
        value = exact_error(leaf, target)
        (first,) = torch.autograd.grad(value, leaf, retain_graph=True)
        kept = first.clone()
        (second,) = torch.autograd.grad(value, leaf)
        assert torch.equal(first, kept)
        assert torch.equal(first, second)
        value = exact_error(leaf, target)
        with pytest.raises(RuntimeError, match="differentiated twice"):
            torch.autograd.grad(value, leaf, create_graph=True)


# ----------------------------------------------------------------------------------- good manners

EVERY = {
    "leaky": leaky_expected_error,
    "exact": exact_error,
    "exact plain": lambda z, t, **k: exact_error(z, t, standardize=False, **k),
}
every = pytest.mark.parametrize("loss", EVERY.values(), ids=EVERY)


@every
@pytest.mark.parametrize("classes", [10, 1000, 20_000])
def test_the_same_bits_twenty_times(loss, classes):
    logits, target = batch(64, classes, torch.float32, 0)
    one = torch.ones((), device="cuda")
    value, grad = gradient_of(lambda z: loss(z, target), logits, one)
    for _ in range(19):
        again = gradient_of(lambda z: loss(z, target), logits, one)
        assert torch.equal(again[0], value)
        assert torch.equal(again[1], grad)


@every
def test_no_host_sync_and_graph_capture(loss):
    logits, target = batch(64, 10, torch.float32, 0)
    leaf = logits.requires_grad_()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            leaf.grad = None
            loss(leaf, target).backward()
    torch.cuda.current_stream().wait_stream(side)
    expected = leaf.grad.clone()
    with warnings.catch_warnings(action="ignore"):
        torch.cuda.set_sync_debug_mode("error")
    try:
        leaf.grad = None
        loss(leaf, target).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    leaf.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = loss(leaf, target)
        value.backward()
    leaf.grad.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(leaf.grad, expected)


def test_operations_pass_opcheck():
    from expacc.ops.triton.library import row_log_prob

    logits, target = batch(5, 7, torch.float32, 0)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(row_log_prob, (logits.requires_grad_(), target), test_utils=tests)


def test_compiled_under_vmap():
    torch._dynamo.reset()
    logits = torch.randn(3, 8, 20, device="cuda", generator=seeded(0))
    target = torch.randint(0, 20, (3, 8), device="cuda", generator=seeded(1))
    many = torch.compile(torch.vmap(leaky_expected_error), fullgraph=True)
    leaf, twin = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    found = many(leaf, target)
    pairs = zip(twin, target, strict=True)
    expected = torch.stack([leaky_expected_error(z, t) for z, t in pairs])
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-8)
    found.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(leaf.grad, twin.grad, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("loss", [expected_error, EVERY["exact plain"]], ids=["expected", "exact"])
def test_past_two_to_the_31(loss):
    rows, classes = 65_537, 32_769
    logits = torch.empty(rows, classes, dtype=torch.bfloat16, device="cuda")
    for part in logits.split(8192):
        part.normal_(generator=seeded(len(part)))
    target = torch.randint(0, classes, (rows,), device="cuda")
    one = torch.ones(rows, device="cuda")
    values, grad = gradient_of(lambda z: loss(z, target, reduction="none"), logits, one)
    for part in (slice(0, 64), slice(rows - 64, rows)):
        alone = gradient_of(
            lambda z, part=part: loss(z, target[part], reduction="none"), logits[part], one[part]
        )
        assert torch.equal(values[part], alone[0])
        assert torch.equal(grad[part], alone[1])


def test_why_not():
    logits, target = torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(ValueError, match="needs a CUDA tensor; logits are on cpu"):
        exact_error(logits, target, impl="triton")
    with pytest.raises(ValueError, match="needs float32, bfloat16 or float16"):
        exact_error(logits.cuda().double(), target.cuda(), impl="triton")
    with pytest.raises(ValueError, match="needs int64 labels or probabilities"):
        leaky_expected_error(logits.cuda(), target.cuda().int(), impl="triton")
    with pytest.raises(ValueError, match="normal noise"):
        exact_error(logits.cuda(), target.cuda(), impl="triton", noise="laplace")


# ------------------------------------------------------------------------------------------- head


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("with_bias", [False, True])
def test_head_equals_logits_then_loss(reduction, with_bias):
    generator = seeded(0)
    features = torch.randn(50, 16, device="cuda", generator=generator)
    weight = torch.randn(301, 16, device="cuda", generator=generator)
    bias = torch.randn(301, device="cuda", generator=generator) if with_bias else None
    target = torch.randint(0, 301, (50,), device="cuda", generator=generator)
    target[7] = -100
    class_weight = torch.rand(301, device="cuda", generator=generator) + 0.5
    leaves = [t.requires_grad_() for t in (features, weight, bias) if t is not None]
    shared = {"ignore_index": -100, "reduction": reduction, "focus": 0.3}
    found = linear_mixed_expected_error(
        features, weight, bias, target, class_weight=class_weight, chunk_rows=16, **shared
    )
    logits = torch.nn.functional.linear(features, weight, bias)
    expected = mixed_expected_error(logits, target, weight=class_weight, **shared)
    upstream = torch.rand_like(expected)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    ours = torch.autograd.grad(found, leaves, upstream, retain_graph=True)
    again = torch.autograd.grad(found, leaves, upstream)
    theirs = torch.autograd.grad(expected, leaves, upstream)
    for one, two, three in zip(ours, again, theirs, strict=True):
        torch.testing.assert_close(one, three, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(two, one)
