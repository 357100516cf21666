"""Every curve, target and layout by the kernels of a GPU; how they are launched and compiled."""

import itertools
import subprocess
import sys

import kernel_cases
import pytest
import torch
from kernel_cases import check

from expacc.functional import (
    binary_leaky_expected_error,
    exact_error,
    leaky_expected_error,
    normalized_cross_entropy,
)
from expacc.ops import dispatch

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)
pytest.importorskip("triton")

GROUPS = {
    "curves": kernel_cases.curve_cases,
    "soft": kernel_cases.soft_cases,
    "maps": lambda: kernel_cases.map_cases(leaky_expected_error),
    "shares": lambda: kernel_cases.map_cases(normalized_cross_entropy),
    "soft maps": kernel_cases.soft_map_cases,
    "exact maps": lambda: kernel_cases.map_cases(exact_error, long=True),
    "soft exact": kernel_cases.soft_exact_cases,
    "binary": kernel_cases.binary_cases,
}
PIECES = 8
PIECE = [(group, piece) for group in GROUPS for piece in range(PIECES)]


@pytest.fixture(autouse=True)
def no_plans():
    dispatch.PLANS.clear()
    yield
    dispatch.PLANS.clear()


@pytest.mark.parametrize(("group", "piece"), PIECE, ids=str)
def test_as_float64(group, piece):
    for case in itertools.islice(GROUPS[group](), piece, None, PIECES):
        check(case, "cuda", 1e-5 if group == "soft exact" else 2e-6)


@pytest.mark.parametrize("classes", [100, 1000, 5000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_many_classes_as_float64(classes, dtype):
    z = kernel_cases.drawn(33, classes, spread=3.0).to(dtype)
    t = kernel_cases.drawn(33, classes, seed=1).softmax(1)
    y = kernel_cases.labels_of(z)
    tolerance = 1e-5 if dtype == torch.float32 else 8e-3
    for loss in (leaky_expected_error, exact_error):
        for keywords in ({}, {"reduction": "none"}):
            check((loss, z, t, keywords), "cuda", tolerance)
            check((loss, z, y, {"label_smoothing": 0.1, **keywords}), "cuda", tolerance)
    for settings in ({}, {"shift": "auto", "scale": 2.0}):
        check((leaky_expected_error, z, y, settings), "cuda", tolerance)
    check((normalized_cross_entropy, z, y, {}), "cuda", tolerance)


def batch(rows=64, classes=10, dtype=torch.float32):
    generator = torch.Generator("cuda").manual_seed(0)
    logits = torch.randn(rows, classes, device="cuda", generator=generator) * 3
    target = torch.randint(0, classes, (rows,), device="cuda", generator=generator)
    return logits.to(dtype), target


def step(loss, logits, target):
    leaf = logits.detach().requires_grad_()
    value = loss(leaf, target)
    value.sum().backward()
    return value.detach(), leaf.grad


@pytest.mark.parametrize("classes", [10, 300])
@pytest.mark.parametrize("loss", [leaky_expected_error, exact_error])
@pytest.mark.parametrize("fused", [False, True])
def test_digits_with_and_without_fused_multiply_adds(loss, classes, fused, monkeypatch):
    from expacc.ops.triton import launch

    monkeypatch.setattr(launch, "FUSED", {"enable_fp_fusion": fused})
    for spread in (0.1, 3.0, 12.0):
        logits, target = batch(classes=classes)
        logits *= spread
        found = step(loss, logits, target)
        true = step(loss, logits.double(), target)
        for ours, theirs in zip(found, true, strict=True):
            error = (ours.double() - theirs).abs().max() / theirs.abs().max().clamp(min=1e-30)
            assert error <= 2e-6, (spread, error)


@pytest.mark.parametrize("loss", [leaky_expected_error, exact_error])
@pytest.mark.parametrize("classes", [10, 300])
def test_the_short_way_is_found_and_gives_the_same_bits(loss, classes, monkeypatch):
    from expacc.ops.triton.launch import Launch

    logits, target = batch(classes=classes)
    short = [step(loss, logits, target) for _ in range(4)]
    plan = dispatch.PLANS["mixture" if loss is leaky_expected_error else "exact"].plan
    launches = [plan.forward_launch] if hasattr(plan, "forward_launch") else [plan.rows_launch]
    assert all(launch._again is not None for launch in launches)
    dispatch.PLANS.clear()

    def by_triton(self, tensors, floats=()):
        kernel, options = self.triton
        kernel[self.grid](*tensors, *floats, *self._rest, **options)

    monkeypatch.setattr(Launch, "__call__", by_triton)
    value, grad = step(loss, logits, target)
    for found in short:
        assert torch.equal(found[0], value)
        assert torch.equal(found[1], grad)


PROGRAM = """
import torch
from expacc.functional import exact_error, leaky_expected_error
for classes in (10, 300):
    z = torch.randn(64, classes, device="cuda", requires_grad=True)
    y = torch.randint(0, classes, (64,), device="cuda")
    for loss in (leaky_expected_error, exact_error):
        for _ in range(3):
            value = loss(z, y)
            value.backward()
        assert type(value.grad_fn).__name__ == "_FusedLossBackward", value.grad_fn
"""


def test_where_warnings_are_errors():
    setup = "import torch, triton, warnings; warnings.simplefilter('error')"
    command = [sys.executable, "-c", setup + PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("loss", [leaky_expected_error, exact_error])
def test_maps_past_two_to_the_31(loss):
    shape = (3, 21, 6000, 6000)  # 2.3e9 logits
    logits = torch.empty(shape, dtype=torch.bfloat16, device="cuda")
    generator = torch.Generator("cuda").manual_seed(0)
    for part in logits:
        part.normal_(generator=generator)
    target = torch.randint(0, 21, (3, 6000, 6000), device="cuda", generator=generator)
    keywords = {"reduction": "none", "standardize": False}
    if loss is leaky_expected_error:
        del keywords["standardize"]
    leaf = logits.requires_grad_()
    values = loss(leaf, target, **keywords)
    (grad,) = torch.autograd.grad(values, leaf, torch.ones_like(values))
    last = slice(5990, 6000)
    alone = logits.detach()[2:, :, last, last].contiguous().requires_grad_()
    few = loss(alone, target[2:, last, last].contiguous(), **keywords)
    (some,) = torch.autograd.grad(few, alone, torch.ones_like(few))
    torch.testing.assert_close(values[2:, last, last], few, rtol=1e-2, atol=1e-5)
    torch.testing.assert_close(grad[2:, :, last, last], some, rtol=2e-2, atol=1e-5)


@pytest.mark.parametrize("loss", [leaky_expected_error, exact_error])
def test_a_map_takes_two_logits_of_memory(loss):
    logits = torch.randn(4, 21, 256, 256, device="cuda", requires_grad=True)
    target = torch.randint(0, 21, (4, 256, 256), device="cuda")
    for _ in range(2):
        logits.grad = None
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        loss(logits, target).backward()
    assert torch.cuda.max_memory_allocated() - before <= 2 * logits.nbytes


def test_bad_labels_of_binary_losses_are_nan():
    logits = torch.randn(5, device="cuda", requires_grad=True)
    labels = torch.tensor([0.0, 1.0, 2.0, float("nan"), -1.0], device="cuda")
    values = binary_leaky_expected_error(logits, labels, reduction="none")
    assert values.isnan().tolist() == [False, False, True, True, True]


def test_double_backward_of_curves():
    logits, target = batch(rows=5)
    for loss in (leaky_expected_error, normalized_cross_entropy):
        seconds = []
        for z in (logits.clone(), logits.double()):
            leaf = z.requires_grad_()
            (first,) = torch.autograd.grad(loss(leaf, target), leaf, create_graph=True)
            seconds.append(torch.autograd.grad(first.square().sum(), leaf)[0].double())
        torch.testing.assert_close(*seconds, rtol=1e-4, atol=1e-7)
