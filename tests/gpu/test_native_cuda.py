"""The fused losses through the C++ node: the same bits as through Python, and the same manners."""

import itertools
import threading

import pytest
import torch

from expacc.functional import exact_error, leaky_expected_error, mixed_expected_error
from expacc.ops import dispatch
from expacc.ops.native import build as native

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)
pytest.importorskip("triton")

LOSSES = {
    "leaky": leaky_expected_error,
    "mixed": mixed_expected_error,
    "exact": exact_error,
    "exact, margin": lambda z, t, **k: exact_error(z, t, margin=5.0, sigma=0.1, **k),
    "exact, plain log": lambda z, t, **k: exact_error(z, t, standardize=False, log=True, **k),
}
every = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


@pytest.fixture(autouse=True)
def no_plans():
    native.build_native()
    dispatch.PLANS.clear()
    yield
    dispatch.PLANS.clear()


def batch(rows, classes, dtype=torch.float32, seed=0, spread=3.0):
    generator = torch.Generator("cuda").manual_seed(seed)
    logits = torch.randn(rows, classes, device="cuda", generator=generator) * spread
    target = torch.randint(0, classes, (rows,), device="cuda", generator=generator)
    target[rows // 2] = -100
    return logits.to(dtype).requires_grad_(), target


def step(loss, logits, target, upstream=None, **keywords):
    value = loss(logits, target, **keywords)
    upstream = torch.ones_like(value) if upstream is None else upstream
    (grad,) = torch.autograd.grad(value, logits, upstream)
    return value, grad


def is_native(value):
    return value.grad_fn.name() == "FusedLossBackward"


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_the_same_bits_as_through_python(loss, dtype):
    shapes = [(1, 2), (4096, 10), (300, 64), (300, 65), (300, 100), (33, 101), (200, 1000)]
    shapes += [(50, 1024), (50, 1025), (9, 20_000), (9000, 10)]
    for (rows, classes), reduction in itertools.product(shapes, ("mean", "sum", "none")):
        dispatch.PLANS.clear()
        logits, target = batch(rows, classes, dtype)
        if rows == 1:
            target.zero_()
        upstream = torch.tensor(0.75, dtype=dtype, device="cuda")
        if reduction == "none":
            upstream = torch.linspace(0.5, 2, rows, device="cuda").to(dtype)
        first = step(loss, logits, target, upstream, reduction=reduction)
        assert not is_native(first[0])
        for _ in range(3):
            again = step(loss, logits, target, upstream, reduction=reduction)
            assert is_native(again[0]), (rows, classes, reduction)
            assert torch.equal(first[0], again[0])
            assert torch.equal(first[1], again[1]), (rows, classes, reduction)
        fresh = batch(rows, classes, dtype, seed=1)
        found = step(loss, *fresh, upstream, reduction=reduction)
        assert is_native(found[0])
        dispatch.PLANS.clear()
        expected = step(loss, *fresh, upstream, reduction=reduction)
        assert not is_native(expected[0])
        assert torch.equal(found[0], expected[0])
        assert torch.equal(found[1], expected[1]), (rows, classes, reduction)


@every
def test_not_unless_it_was_asked_for(loss, monkeypatch):
    """By Python until then; a batch seen before is taken over at its next backward."""
    library = dispatch.native_library
    monkeypatch.setattr(dispatch, "native_library", None)
    logits, target = batch(64, 100)
    found = [step(loss, logits, target) for _ in range(3)]
    assert not any(is_native(value) for value, _ in found)
    monkeypatch.setattr(dispatch, "native_library", library)
    found += [step(loss, logits, target) for _ in range(2)]
    assert [is_native(value) for value, _ in found] == [False] * 4 + [True]
    assert all(torch.equal(value, found[0][0]) for value, _ in found)
    assert all(torch.equal(grad, found[0][1]) for _, grad in found)


@every
def test_unusual_backwards(loss):
    logits, target = batch(64, 100)
    expected = step(loss, logits, target)
    value = loss(logits, target)
    assert is_native(value)
    firsts = [torch.autograd.grad(value, logits, retain_graph=True)[0] for _ in range(3)]
    assert all(torch.equal(grad, expected[1]) for grad in firsts)
    (twice,) = torch.autograd.grad(value, logits, torch.tensor(2.0, device="cuda").double().float())
    torch.testing.assert_close(twice, 2 * expected[1])
    value = loss(logits * 1, target)
    assert is_native(value)
    value.backward()
    assert torch.equal(logits.grad, expected[1])


def test_double_backward():
    logits, target = batch(16, 10)
    step(leaky_expected_error, logits, target)
    value = leaky_expected_error(logits, target)
    assert is_native(value)
    (grad,) = torch.autograd.grad(value, logits, create_graph=True)
    (second,) = torch.autograd.grad(grad.square().sum(), logits)
    plain = leaky_expected_error(logits, target, impl="reference")
    (grad,) = torch.autograd.grad(plain, logits, create_graph=True)
    (expected,) = torch.autograd.grad(grad.square().sum(), logits)
    torch.testing.assert_close(second, expected)
    step(exact_error, logits, target)
    value = exact_error(logits, target)
    assert is_native(value)
    with pytest.raises(RuntimeError, match="differentiated twice"):
        torch.autograd.grad(value, logits, create_graph=True)


@every
def test_what_it_leaves_to_python(loss):
    logits, target = batch(64, 10)
    expected = step(loss, logits, target)
    assert is_native(loss(logits, target))
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        value, grad = step(loss, logits.detach().requires_grad_(), target)
        torch.cuda.synchronize()
    assert not is_native(value)
    assert torch.equal(grad, expected[1])
    weight = torch.ones(10, device="cuda")
    assert not is_native(loss(logits, target, weight=weight))
    with torch.no_grad():
        assert torch.equal(loss(logits, target), expected[0])
    half = logits.bfloat16()
    step(loss, half, target)
    assert loss(half, target).dtype == torch.bfloat16
    with torch.autocast("cuda"):
        step(loss, half, target)
        value = loss(half, target)
        assert value.dtype == torch.float32
        assert is_native(value)
    with pytest.raises(ValueError, match="impl"):
        loss(logits, target, impl="foo")


@every
def test_labels_out_of_range(loss):
    logits, target = batch(64, 10)
    step(loss, logits, target, reduction="none", upstream=torch.ones(64, device="cuda"))
    target[3] = 10
    values = loss(logits, target, reduction="none")
    assert is_native(values)
    assert values.isnan().nonzero().flatten().tolist() == [3]


@pytest.fixture(params=["native", "python"])
def way(request, monkeypatch):
    if request.param == "python":
        monkeypatch.setattr(dispatch, "native_library", None)
    return request.param


@every
def test_peak_memory_is_one_gradient(loss, way):
    shapes = [(65_536, 10, torch.float32), (65_536, 100, torch.float32)]
    shapes += [(65_536, 1000, torch.bfloat16), (1024, 4096, torch.float32)]
    for rows, classes, dtype in [*shapes, (1024, 16_384, torch.float32)]:
        logits, target = batch(rows, classes, dtype)
        for _ in range(2):
            logits.grad = None
            loss(logits, target).backward()
        logits.grad = None
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        value = loss(logits, target)
        assert is_native(value) == (way == "native")
        value.backward()
        extra = torch.cuda.max_memory_allocated() - before
        of_rows = 40 * rows  # a softmax has three float64 of every row, and two of a program
        assert extra <= 1.02 * logits.nbytes + of_rows + 2**20, (classes, extra / logits.nbytes)


@every
def test_threads(loss, way):
    """Several threads train side by side on the default stream."""
    batches = [batch(257, 10, seed=seed) for seed in range(4)]
    expected = [step(loss, *each) for each in batches]
    wrong = []

    def train(place):
        for _ in range(50):
            value, grad = step(loss, *batches[place])
            if not (
                torch.equal(value, expected[place][0]) and torch.equal(grad, expected[place][1])
            ):
                wrong.append(place)

    threads = [threading.Thread(target=train, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
