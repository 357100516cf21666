"""The C++ node of fused losses, on the CPU: kernels are functions of this file instead of a GPU's.

The loss is ``first · Σ logits + second``, per row or in all; its gradient is ``first · upstream``.
"""

import ctypes
import gc
import sys

import pytest
import torch

from expacc.ops import dispatch
from expacc.ops.native import build as native

ROWS, CLASSES = 3, 5
FORWARD, BACKWARD = 1, 2
LOGITS, TARGET, VALUES, _, SCRATCH, _, UPSTREAM, GRADIENT = range(8)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        try:
            native.build_native()
        except RuntimeError as reason:
            pytest.skip(f"not built here: {reason}")
    return dispatch.native_library


class Driver:
    """cuLaunchKernel, as far as these tests need it."""

    def __init__(self):
        self.launched = []
        self.code = 0
        places = ctypes.POINTER(ctypes.c_void_p)
        kind = ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, places, places
        )
        self.function = kind(self.launch)
        self.address = ctypes.cast(self.function, ctypes.c_void_p).value

    def launch(self, function, programs, _y, _z, threads, _v, _w, shared, stream, places, _extra):
        self.launched.append((function, programs, threads, shared, stream))
        address = ctypes.c_void_p.from_address

        def floats(place, count):
            return (ctypes.c_float * count).from_address(address(places[place]).value)

        first = ctypes.c_float.from_address(places[2]).value
        if function == FORWARD:
            second = ctypes.c_double.from_address(places[3]).value
            assert ctypes.c_int32.from_address(places[4]).value == -7
            sums = [
                first * sum(floats(0, ROWS * CLASSES)[row * CLASSES : (row + 1) * CLASSES])
                for row in range(ROWS)
            ]
            if self.reduced:
                floats(1, 1)[0] = sum(sums) + second
            else:
                floats(1, ROWS)[:] = [each + second for each in sums]
        else:
            upstream = floats(0, 1 if self.reduced else ROWS)
            for place in range(ROWS * CLASSES):
                above = upstream[0 if self.reduced else place // CLASSES]
                floats(1, ROWS * CLASSES)[place] = first * above
        return self.code


@pytest.fixture
def driver():
    return Driver()


def plan(library, driver, reduction="mean", fallback=None, in_gradient=False):
    """A plan for batches like ``batch()``."""
    logits, target = batch()
    driver.reduced = reduction != "none"
    values = torch.empty(()) if driver.reduced else torch.empty(ROWS)
    minus_seven = (1 << 32) - 7
    forward = [("s", LOGITS, 0), ("s", VALUES, 0), ("f", 0, 0), ("d", 1, 0), ("c", 0, minus_seven)]
    backward = [("s", UPSTREAM, 0), ("s", GRADIENT, 0), ("f", 0, 0)]
    return library.make(
        *(logits.detach(), target, values, torch.ones_like(values), -100, reduction),
        (8, 0, 0),  # sizes
        in_gradient,
        (driver.address, 0, 0, 0),
        [(FORWARD, 6, 128, 64, forward)],
        [(BACKWARD, 7, 32, 0, backward)],
        fallback or unexpected,
        (),  # kept alive
    ).run


def unexpected(*arguments):
    raise AssertionError("not for Python")


def batch(dtype=torch.float32, classes=CLASSES):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(ROWS, classes, generator=generator).to(dtype).requires_grad_()
    return logits, torch.zeros(ROWS, dtype=torch.int64)


@pytest.fixture
def step(library, driver):
    """A step with 2 and 0.5 for numbers, by a plan with these changes: the loss and its logits."""

    def step(reduction="mean", **changes):
        run = plan(library, driver, reduction, **changes)
        logits, target = batch()
        return run(logits, target, -100, reduction, 2.0, 0.5), logits

    return step


def test_forward_and_backward(step, driver):
    loss, logits = step()
    torch.testing.assert_close(loss, 2 * logits.sum() + 0.5)
    assert loss.grad_fn.name() == "FusedLossBackward"
    (3 * loss).backward()
    torch.testing.assert_close(logits.grad, torch.full_like(logits, 6.0))
    assert driver.launched == [(FORWARD, 6, 128, 64, None), (BACKWARD, 7, 32, 0, None)]
    losses, logits = step("none")
    torch.testing.assert_close(losses, 2 * logits.sum(1) + 0.5)
    (grad,) = torch.autograd.grad(losses, logits, torch.tensor([1.0, 2.0, 3.0]))
    torch.testing.assert_close(grad, torch.tensor([[2.0], [4.0], [6.0]]).expand(ROWS, CLASSES))


def test_other_batches_are_for_python(library, driver):
    run = plan(library, driver)
    logits, target = batch()

    class Special(torch.Tensor):
        pass

    usual = {"logits": logits, "target": target, "ignore_index": -100, "reduction": "mean"}
    others = {
        "logits": [
            batch(torch.float64)[0],
            batch(classes=4)[0],
            torch.randn(ROWS, 2 * CLASSES)[:, ::2],
            logits.view(-1),
            logits.detach().as_subclass(Special),
            torch.randn(ROWS * CLASSES + 1)[1:].view(ROWS, CLASSES),
            None,
        ],
        "target": [target.int(), target[:2], target.repeat(2)[::2], 3],
        "ignore_index": [0, 1 << 70, True],
        "reduction": ["sum", None],
    }
    for name, values in others.items():
        for value in values:
            assert run(*{**usual, name: value}.values(), 1.0, 0.0) is None, (name, value)
    with torch.inference_mode():  # its tensors have other keys
        assert run(torch.randn(ROWS, CLASSES), target, -100, "mean", 1.0, 0.0) is None
    assert driver.launched == []
    # Without a gradient there is no graph.
    assert run(logits.detach(), target, -100, "mean", 1.0, 0.0).grad_fn is None
    with torch.no_grad():
        assert run(logits, target, -100, "mean", 1.0, 0.0).grad_fn is None


def test_python_is_asked_for_what_is_unusual_and_its_error_reaches_the_user(step, driver):
    asked = []

    def fallback(logits, target, upstream, first, second):
        asked.append((torch.is_grad_enabled(), upstream.dtype, first, second))
        if len(asked) == 2:
            raise RuntimeError("must not be differentiated twice")
        return logits * upstream

    loss, logits = step(fallback=fallback)
    (grad,) = torch.autograd.grad(loss, logits, create_graph=True)
    (second,) = torch.autograd.grad(grad.square().sum(), logits)
    torch.testing.assert_close(second, 2 * logits)
    assert asked == [(True, torch.float32, 2.0, 0.5)]
    assert [function for function, *_ in driver.launched] == [FORWARD]
    loss, logits = step(fallback=fallback)
    with pytest.raises(RuntimeError, match="must not be differentiated twice"):
        torch.autograd.grad(loss, logits, create_graph=True)


def test_second_backward(step):
    loss, logits = step()
    loss.backward(retain_graph=True)
    loss.backward()
    torch.testing.assert_close(logits.grad, torch.full_like(logits, 4.0))
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    asked = []  # a gradient that is spent is computed again
    spent = {"fallback": lambda z, *_: asked.append(1) or torch.ones_like(z), "in_gradient": True}
    loss, logits = step(**spent)
    first, second = (torch.autograd.grad(loss, logits, retain_graph=True)[0] for _ in range(2))
    torch.testing.assert_close(first, torch.full_like(logits, 2.0))
    torch.testing.assert_close(second, torch.ones_like(logits))
    assert asked == [1]


def test_changed_logits_are_noticed_and_a_refused_launch_is_an_error(library, step, driver):
    run = plan(library, driver)
    logits, target = batch()
    hidden = logits * 1
    loss = run(hidden, target, -100, "mean", 2.0, 0.5)
    with torch.no_grad():
        hidden.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    driver.code = 700
    with pytest.raises(RuntimeError, match="refused to launch a kernel of expacc; got error 700"):
        step()


def test_saved_tensors_go_through_hooks(step):
    packed = []

    def pack(tensor):
        packed.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss, logits = step()
        loss.backward()
    assert [tensor.dtype for tensor in packed] == [torch.float32, torch.int64]
    torch.testing.assert_close(logits.grad, torch.full_like(logits, 2.0))


def test_nothing_is_kept(library, driver):
    run = plan(library, driver)
    logits, target = batch()

    def counts():
        gc.collect()
        return sys.getrefcount(logits), sys.getrefcount(target), sys.getrefcount(unexpected)

    before = counts()
    for _ in range(20):
        run(logits, target, -100, "mean", 1.0, 0.0).backward()
        run(logits, target, -100, "mean", 1.0, 0.0)  # and no backward
    assert counts() == before
    del run
    assert counts()[2] < before[2]


def test_the_library_in_memory_cannot_be_changed_and_is_built_once(library, monkeypatch):
    path = library.__spec__.origin or library.__spec__.loader.path
    assert path.startswith("/proc/self/fd/")
    assert path.rpartition("/")[2].isdecimal()
    for change in (lambda file: file.write(b"x"), lambda file: file.truncate(10)):
        with pytest.raises(PermissionError), open(path, "r+b", buffering=0) as file:
            change(file)
    monkeypatch.setattr(native, "_content", None)
    native.build_native()
    assert dispatch.native_library is library
