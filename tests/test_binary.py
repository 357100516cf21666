"""The laws of losses of yes/no labels, run over ``BINARY`` of ``losses.py``."""

import inspect
import math

import mpmath as mp
import pytest
import torch
import torch.nn.functional as F
from losses import BINARY, every_setting
from operations import WHERE, both, holds
from torch import nn

from expacc.functional import binary_expected_error, binary_mixed_expected_error

INF, NAN = math.inf, math.nan
SHAPES = [(), (0,), (7,), (5, 3), (2, 0, 3), (2, 3, 4)]
LARGE = (300, 70)  # beyond what is done in float64
SIZES = (1e-8, 1e-3, 1, 5, 10, 30, 80, 100, 1e3, 1e4, 1e38)
EXTREMES = [0.0, *(sign * size for size in SIZES for sign in (1, -1))]
every_case = every_setting(BINARY)
every_loss = pytest.mark.parametrize("row", BINARY, ids=lambda row: row.name)


def batch(shape=(6, 4), dtype=torch.float64, soft=False, seed=0, scale=3.0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(shape, generator=generator, dtype=torch.float64) * scale
    target = torch.rand(shape, generator=generator, dtype=torch.float64)
    target = target if soft else (target > 0.6).double()
    return logits.to(dtype).requires_grad_(), target.to(dtype)


def grad_of(value, leaf):
    return torch.autograd.grad(value.sum(), leaf, retain_graph=True)[0]


@every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_values_and_slopes_are_exact(row, numbers, dtype):
    """Against mpmath, relative, down to the last subnormal number."""
    last, tolerance = {torch.float32: (1.5e-45, 3e-6), torch.float64: (5e-324, 1e-12)}[dtype]
    logits = torch.tensor(EXTREMES, dtype=dtype).requires_grad_()
    for label in (1.0, 0.0):
        values = row.function(logits, torch.full_like(logits, label), reduction="none", **numbers)
        slopes = grad_of(values, logits)
        with mp.workdps(60):
            for z, value, slope in zip(
                logits.tolist(), values.tolist(), slopes.tolist(), strict=True
            ):
                sign = 1 if label else -1
                true = row.exact(sign * z, **numbers)
                if abs(true) < torch.finfo(dtype).max:
                    assert abs(value - true) <= max(tolerance * abs(true), last), z
                if (
                    abs(z) > 1e3
                    or z == numbers.get("margin", NAN)
                    or -z == numbers.get("margin", NAN)
                ):
                    continue
                step = mp.mpf(10) ** -25
                ends = [row.exact(sign * z + d, **numbers) for d in (step, -step)]
                true = sign * (ends[0] - ends[1]) / (2 * step)
                floor = max(last, 1e-25)  # of the quotient
                assert abs(slope - true) <= max(2 * tolerance * abs(true), floor), z


@every_case
@pytest.mark.parametrize("soft", [False, True], ids=["labels", "soft"])
@pytest.mark.parametrize("size", [(40,), LARGE], ids=str)
def test_equals_two_classes(row, numbers, soft, size):
    if size == LARGE and numbers.get("log"):
        size = (500,)  # the sibling takes its time
    logits, target = batch(size, soft=soft)
    values = row.function(logits, target, reduction="none", **numbers)
    pair = torch.stack([torch.zeros_like(logits), logits], -1).reshape(-1, 2)
    mix = torch.stack([1 - target, target], -1).reshape(-1, 2)
    labels = mix if soft else target.reshape(-1).long()
    twin = row.sibling(pair, labels, reduction="none", **numbers).view(size)
    torch.testing.assert_close(values, twin, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        grad_of(values, logits), grad_of(twin, logits), rtol=1e-9, atol=1e-12
    )
    short, few = logits.float(), target.float()
    single = row.function(short, few, reduction="none", **numbers)
    double = row.function(short.double(), few.double(), reduction="none", **numbers)
    digits = 2e-5 if row.gaussian else 2e-6
    torch.testing.assert_close(single.double(), double, rtol=digits, atol=1e-37)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weight"])
@pytest.mark.parametrize("positive", [False, True], ids=["", "pos_weight"])
def test_mixture_without_error_is_torchs(shape, reduction, weighted, positive):
    for soft in (False, True):
        logits, target = batch(shape, soft=soft)
        last = shape[-1:] if shape else ()
        options = {"reduction": reduction}
        if weighted:
            first = (*shape[:1], *[1] * (len(shape) - 1))
            options["weight"] = torch.rand(first, dtype=torch.float64)
        if positive:
            options["pos_weight"] = torch.rand(last, dtype=torch.float64) * 3
        ours = binary_mixed_expected_error(logits, target, ce_weight=1, error_weight=0, **options)
        theirs = F.binary_cross_entropy_with_logits(logits, target, **options)
        if reduction == "mean" and not logits.numel():
            assert ours.item() == 0
            continue
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(
            grad_of(ours, logits), grad_of(theirs, logits), rtol=1e-11, atol=1e-14
        )


@every_case
@pytest.mark.parametrize("size", [(5, 4), LARGE], ids=str)
def test_weights_and_reductions(row, numbers, size):
    for soft in (False, True):
        logits, target = batch(size, soft=soft)
        weight = torch.linspace(0, 2, size[0]).double()[:, None]
        more = torch.linspace(0.5, 3, size[1]).double()
        one, other = (
            row.function(logits, torch.full_like(target, t), reduction="none", **numbers)
            for t in (1, 0)
        )
        expected = weight * (target * more * one + (1 - target) * other)
        options = {"pos_weight": more, **numbers}
        found = row.function(logits, target, weight, reduction="none", **options)  # as torch's
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-13)
        torch.testing.assert_close(
            grad_of(found, logits), grad_of(expected, logits), rtol=1e-10, atol=1e-13
        )
        total = row.function(logits, target, weight, reduction="sum", **options)
        mean = row.function(logits, target, weight, **options)
        torch.testing.assert_close(total, expected.sum())
        torch.testing.assert_close(mean, expected.mean())
        torch.testing.assert_close(
            grad_of(mean, logits), grad_of(expected, logits) / logits.numel()
        )


@every_case
@pytest.mark.parametrize("soft", [False, True], ids=["labels", "soft"])
def test_gradients_of_every_order_and_argument(row, numbers, soft):
    logits, target = batch((4,), soft=True)
    logits = logits.detach().requires_grad_()
    target = (target if soft else target.round()).requires_grad_(soft)
    weight = torch.tensor([0.5, 1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=soft)
    more = torch.tensor(2.0, dtype=torch.float64, requires_grad=soft)

    def loss(z, t, w, p):
        return row.function(z, t, w, pos_weight=p, **numbers)

    assert torch.autograd.gradcheck(loss, (logits, target, weight, more), atol=1e-7, rtol=1e-6)
    assert torch.autograd.gradgradcheck(
        lambda z: row.function(z, target.detach(), reduction="none", **numbers), logits
    )
    if row.gaussian:
        sigma = torch.tensor([0.5, 1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
        own = {**numbers, "sigma": sigma}
        assert torch.autograd.gradcheck(
            lambda z, s: row.function(z, target, **{**own, "sigma": s}), (logits, sigma)
        )


@every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [5, 20_005])
def test_nan_stays_and_infinity_is_as_far_as_it_is(row, numbers, dtype, size):
    logits = torch.ones(size, dtype=dtype)
    logits[:5] = torch.tensor([NAN, INF, -INF, INF, -INF])
    target = torch.ones(size, dtype=dtype)
    target[2:4] = 0
    leaf = logits.requires_grad_()
    for function in (row.function, torch.func.vmap(row.function)):
        values = function(leaf[None], target[None], reduction="none", **numbers)[0]
        assert values.isnan().tolist() == [True] + [False] * (size - 1)
        sure = row.function(torch.tensor(1e4), torch.tensor(1.0), **numbers).to(dtype)  # a margin
        torch.testing.assert_close(values[1:3], sure.expand(2))
        lost = float(row.exact(-1e4, **numbers))
        assert values[3:5].tolist() == ([INF] * 2 if lost > 10 else [pytest.approx(lost)] * 2)
        grad = grad_of(values, leaf)
        assert grad.isnan().tolist() == [True] + [False] * (size - 1)
        assert grad[1:].isfinite().all()
    for soft in (False, True):
        mean = row.function(leaf[2:3], torch.full((1,), 0.5 * soft, dtype=dtype), **numbers)
        assert not mean.isnan()


@every_case
@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [(6, 4), LARGE], ids=str)
def test_half_precision_and_autocast(row, numbers, half, size):
    logits, target = batch(size, dtype=half)
    single = logits.detach().float().requires_grad_()
    for reduction in ("none", "mean"):
        value = row.function(logits, target, reduction=reduction, **numbers)
        full = row.function(single, target.float(), reduction=reduction, **numbers)
        assert value.dtype == half
        assert torch.equal(value, full.to(half))
    torch.testing.assert_close(
        grad_of(value, logits), grad_of(full, single).to(half), rtol=1e-2, atol=1e-7
    )
    assert (
        both(lambda z: row.function(z, target, **numbers), logits.detach(), half, WHERE[0])[0].dtype
        == torch.float32
    )
    holds(lambda z: row.function(z, target.to(z.dtype), **numbers), single.detach(), half)


@every_case
def test_transforms(row, numbers):
    logits, target = batch((3, 8), soft=True)
    logits = logits.detach()

    def loss(z, t):
        return row.function(z, t, **numbers)

    expected = torch.stack([loss(z, t) for z, t in zip(logits, target, strict=True)])
    torch.testing.assert_close(torch.func.vmap(loss)(logits, target), expected)
    slopes = torch.func.vmap(torch.func.grad(loss))(logits, target)
    leaf = logits.clone().requires_grad_()
    torch.testing.assert_close(
        slopes, grad_of(torch.stack([loss(z, t) for z, t in zip(leaf, target, strict=True)]), leaf)
    )
    _, tangent = torch.func.jvp(lambda z: loss(z, target), (logits,), (torch.ones_like(logits),))
    torch.testing.assert_close(tangent, grad_of(loss(leaf, target), leaf).sum())
    found = loss(leaf, target)
    many = torch.autograd.grad(found, leaf, torch.ones(2).double(), is_grads_batched=True)[0]
    torch.testing.assert_close(many[1], grad_of(loss(leaf, target), leaf))
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(leaf, target), expected.mean())
    torch.testing.assert_close(grad_of(compiled(leaf, target), leaf), slopes / 3)
    bad = target.clone()
    bad[1, 2] = 1.5  # which nobody may read here
    assert torch.func.vmap(loss)(logits, bad).isnan().tolist() == [False, True, False]


@every_case
@pytest.mark.parametrize("size", [(6, 4), LARGE], ids=str)
def test_layouts_and_untouched_inputs(row, numbers, size):
    logits, target = batch(size, dtype=torch.float32)
    weight, more = torch.rand(size), torch.rand(size[1])
    inputs = (logits, target, weight, more)
    before = [(t.detach().clone(), t._version) for t in inputs]
    loss = row.function(logits, target, weight, pos_weight=more, **numbers)
    loss.backward(retain_graph=True)
    first = logits.grad.clone()
    logits.grad = None
    loss.backward()
    assert torch.equal(first, logits.grad)
    for tensor, (copy, version) in zip(inputs, before, strict=True):
        assert torch.equal(tensor, copy)
        assert tensor._version == version
    turned = logits.detach().T.contiguous().T.requires_grad_()
    again = row.function(turned, target, weight, pos_weight=more, **numbers)
    assert torch.equal(again, loss)
    assert torch.equal(grad_of(again, turned), first)
    spread = logits.detach()[:1].requires_grad_()
    wide = row.function(spread.expand(size), target[:1].expand(size), reduction="sum", **numbers)
    one = row.function(spread, target[:1], reduction="sum", **numbers)
    torch.testing.assert_close(
        grad_of(wide, spread), grad_of(one, spread) * size[0], rtol=1e-5, atol=1e-6
    )
    for dtype in (torch.bool, torch.int64, torch.uint8):
        assert torch.equal(
            row.function(logits, target.to(dtype), **numbers),
            row.function(logits, target, **numbers),
        )


@every_case
def test_modules(row, numbers):
    logits, target = batch((6, 4), dtype=torch.float32)
    options = {
        "weight": torch.rand(6, 1),
        "pos_weight": torch.rand(4),
        "reduction": "sum",
        **numbers,
    }
    module = row.module(**options)
    assert torch.equal(module(logits, target), row.function(logits, target, **options))
    assert set(module.state_dict()) == {"weight", "pos_weight"}
    function = list(inspect.signature(row.function).parameters.values())[2:]
    assert list(inspect.signature(row.module).parameters.values()) == function
    theirs = set(inspect.signature(nn.BCEWithLogitsLoss).parameters) - {"size_average", "reduce"}
    assert theirs <= {one.name for one in function}
    for name, value in numbers.items():
        assert f"{name}={value!r}" in repr(module)
    assert "pos_weight of shape (4,)" in repr(module)


@every_loss
def test_bad_input_gets_a_sentence(row):
    zeros = torch.zeros(3, 2)
    loss, meta, far = row.function, zeros.to("meta"), zeros / 0
    for call, kind, sentence in (
        (lambda: loss([0.0], zeros), TypeError, "logits must be a torch.Tensor"),
        (lambda: loss(zeros.long(), zeros), TypeError, "logits must be a floating"),
        (lambda: loss(zeros, 0), TypeError, "target must be a torch.Tensor"),
        (lambda: loss(zeros, zeros + 0j), TypeError, "target must hold real numbers"),
        (lambda: loss(zeros, zeros[0]), ValueError, r"target must have .*\(3, 2\); got \(2,\)"),
        (lambda: loss(zeros, zeros - 1), ValueError, r"target must lie in \[0, 1\].* got -1"),
        (lambda: loss(zeros, zeros * NAN), ValueError, r"target must lie in \[0, 1\].* got nan"),
        (lambda: loss(zeros, meta), ValueError, "target must be on .* got meta"),
        (lambda: loss(zeros, zeros, [1]), TypeError, "weight must be a torch.Tensor"),
        (lambda: loss(zeros, zeros, zeros.long()), TypeError, "weight must be a floating"),
        (lambda: loss(zeros, zeros, zeros[:, :1].T), ValueError, r"weight must broadcast"),
        (lambda: loss(zeros, zeros, zeros - 1), ValueError, "weight must be finite and >= 0"),
        (lambda: loss(zeros, zeros, pos_weight=far), ValueError, "pos_weight must be finite"),
        (lambda: loss(zeros, zeros, reduction="avg"), ValueError, "reduction must be 'none'"),
        (lambda: row.module(torch.tensor(-1.0)), ValueError, "weight must be finite"),
    ):
        with pytest.raises(kind, match=sentence):
            call()


def test_bad_numbers_get_a_sentence():
    zeros = torch.zeros(3)
    leaky, _, exact = (row.function for row in BINARY[1:])
    for call, sentence in (
        (lambda: leaky(zeros, zeros, leak=-1.0), "leak must be finite and >= 0"),
        (lambda: binary_mixed_expected_error(zeros, zeros, focus=0.7), "focus must lie in"),
        (lambda: exact(zeros, zeros, sigma=0.0), "sigma must be finite and > 0"),
        (lambda: exact(zeros, zeros, sigma=-torch.ones(3)), "sigma must be finite and > 0"),
        (lambda: exact(zeros, zeros, sigma=torch.ones(2)), "sigma must broadcast"),
        (lambda: exact(zeros, zeros, margin=0.0), "margin must be finite and > 0"),
        (lambda: exact(zeros, zeros, log=2), "log must be True or False"),
    ):
        with pytest.raises(ValueError, match=sentence):
            call()
    assert binary_expected_error(zeros, zeros).item() == 0.5
