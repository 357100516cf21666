"""The losses on a CUDA device: the CPU's numbers, no host sync, no device assert."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from losses import CASE_IDS, CASES, LOSSES

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

FUSED = ("expected_error", "leaky_expected_error", "mixed_expected_error", "exact_error")
every_case = pytest.mark.parametrize(("row", "numbers"), CASES, ids=CASE_IDS)
every_loss = pytest.mark.parametrize("row", LOSSES, ids=[row.name for row in LOSSES])


def batch(rows, classes, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(rows, classes, generator=generator) * 5
    target = torch.randint(0, classes, (rows,), generator=generator)
    target[1] = -100
    return logits.to(dtype), target


@every_case
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_same_numbers_as_on_the_cpu(row, numbers, dtype):
    for rows, classes in ((16, 3), (300, 257)):
        logits, target = batch(rows, classes, dtype)
        logits[1] = float("nan")
        here, there = logits.clone().requires_grad_(), logits.cuda().requires_grad_()
        weight = torch.linspace(0.5, 2, classes)
        expected = row.function(here, target, weight=weight, **numbers)
        found = row.function(there, target.cuda(), weight=weight.cuda(), **numbers)
        half = torch.finfo(dtype).bits == 16
        rtol = torch.finfo(dtype).eps if half else 2e-6  # one rounding of the result
        torch.testing.assert_close(found.cpu(), expected, rtol=rtol, atol=1e-12)
        expected.backward()
        found.backward()
        rtol = max(1e-4, torch.finfo(dtype).eps)
        torch.testing.assert_close(there.grad.cpu(), here.grad, rtol=rtol, atol=1e-7)
        assert torch.equal(there.grad[1].cpu(), torch.zeros_like(here.grad[1]))


@every_case
def test_bad_label_makes_its_row_nan_and_leaves_the_context_usable(row, numbers):
    fused = row.name in FUSED and not {"noise", "topk"} & numbers.keys()
    for classes in (5, 9000) if fused else (5,):
        logits, target = (t.cuda() for t in batch(8, classes))
        logits.requires_grad_()
        target[3], target[5] = classes, -3
        values = row.function(logits, target, reduction="none", **numbers)
        torch.cuda.synchronize()
        assert values.isnan().nonzero().flatten().tolist() == [3, 5]
        assert row.function(logits, target, **numbers).isnan()
        if fused:
            (grad,) = torch.autograd.grad(values.sum(), logits)
            assert grad[[3, 5]].isnan().all()
        assert torch.ones(3, device="cuda").sum().item() == 3


@every_case
def test_no_host_sync(row, numbers):
    logits, target = (t.cuda() for t in batch(64, 10))
    logits.requires_grad_()
    row.function(logits, target, **numbers).backward()  # warm up
    with warnings.catch_warnings(action="ignore"):  # torch says that this mode is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        row.function(logits, target, **numbers).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@every_loss
def test_autocast(row):
    logits, target = (t.cuda() for t in batch(64, 10, torch.float16))
    with torch.autocast("cuda", dtype=torch.float16):
        assert row.function(logits, target).dtype == F.cross_entropy(logits, target).dtype


@every_loss
@pytest.mark.parametrize("classes", [10, 100])
def test_compiled(row, classes):
    torch._dynamo.reset()
    logits, target = (t.cuda() for t in batch(64, classes))
    compiled = torch.compile(row.function, fullgraph=True)
    leaf, twin = (logits.clone().requires_grad_() for _ in range(2))
    found, expected = compiled(leaf, target), row.function(twin, target)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-8)
    found.backward()
    expected.backward()
    torch.testing.assert_close(leaf.grad, twin.grad, rtol=1e-4, atol=1e-8)
    bad = target.clone()
    bad[0] = 999
    assert compiled(logits, bad).isnan().item()
