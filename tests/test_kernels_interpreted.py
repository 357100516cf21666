"""The Triton kernels on the CPU, through Triton's interpreter, against the plain losses.

The interpreter is chosen by an environment variable when Triton is imported, so each group of
checks runs this file in a process of its own.
"""

import importlib.util
import json
import math
import os
import subprocess
import sys
import warnings
from itertools import accumulate, product
from pathlib import Path

import pytest
import torch

from expacc.contract import read_batch
from expacc.functional import exact_error, leaky_expected_error, mixed_expected_error

TESTS = Path(__file__).resolve().parent


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize(
    "group", ["mixtures head", "exact table", "long_rows nodes", "hostile", "large"]
)
def test_interpreted(group):
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__)), *group.split()]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def mend_interpreter():
    """NumPy 2.4 no longer makes an int of an array of one number, as Triton 3.6 asks it to."""
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patched(tensor, scope):
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched


def close(found, expected, tolerance):
    scale = expected.abs().max().clamp(min=1e-30)
    error = ((found.double() - expected.double()).abs().max() / scale).item()
    assert error <= tolerance, (error, found, expected)


def batch(rows, classes, seed, spread=5.0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, classes, generator=generator) * spread + 3
    target = torch.randint(0, classes, (rows,), generator=generator)
    target[1] = -100
    weight = torch.rand(classes, generator=generator) + 0.5
    return logits, target, weight, generator


def mixture_of(logits, target, mixture, upstream, weight=None, reduction="none"):
    """Value and gradient of a mixture by the kernels."""
    from expacc.ops.triton.softmax import RowsPlan

    plan = RowsPlan(logits, target, weight, -100, reduction, torch.float32)
    values, scratch = plan.forward(logits, target, weight, *mixture)
    return values, plan.backward(logits, target, weight, *mixture, scratch, upstream)


def exact_of(
    logits, target, upstream, *, weight=None, reduction="none", sigma=1.0, margin=math.inf,
    standardize=False, log=False,
):  # fmt: skip
    """Value and gradient of EXACT by the kernels."""
    from expacc.ops.triton.exact_plan import ExactPlan

    sigmas = sigma if isinstance(sigma, torch.Tensor) else None
    flags = (sigmas, margin < math.inf, standardize, log, True)
    plan = ExactPlan(logits, target, weight, -100, reduction, torch.float32, *flags)
    values, saved = plan.forward(logits, target, weight, sigma, margin)
    return values, plan.backward(logits, target, weight, sigma, margin, saved, upstream)


def mixtures():
    from expacc.ops.triton import softmax

    softmax._LONGEST_BLOCK = 64  # so that a row of 257 is walked along
    weights = ((0.0, 1.0), (0.1, 1.0), (1.0, 0.0))
    shapes = ((3, 1), (70, 3), (5, 10), (4, 257))
    combinations = list(product(shapes, weights, ("none", "mean", "sum"), (False, True)))
    for shape, mixture, reduction, weighted in combinations[::7]:  # every value of each is met
        logits, target, weight, generator = batch(*shape, seed=shape[1])
        keywords = {"weight": weight if weighted else None, "reduction": reduction}
        logits[1] = math.nan  # an ignored row
        wide = torch.zeros(shape[0], 2 * shape[1])
        wide[:, ::2] = logits
        leaf = logits.clone().requires_grad_()
        names = dict(zip(("ce_weight", "error_weight"), mixture, strict=True))
        expected = mixed_expected_error(leaf, target, **names, **keywords)
        upstream = torch.rand(expected.shape, generator=generator)
        expected.backward(upstream)
        for scores in (logits, wide[:, ::2]) if weighted else (logits,):
            values, grad = mixture_of(scores, target, mixture, upstream, **keywords)
            close(values, expected, 3e-7)
            close(grad, leaf.grad, 3e-7)


def compare_exact(shape):
    settings = (
        ("none", True, math.inf, False, 1.0, False),
        ("mean", True, 0.8, False, 0.3, True),
        ("sum", False, math.inf, True, "rows", True),
    )
    for reduction, standardize, margin, log, sigma, weighted in settings:
        logits, target, weight, generator = batch(*shape, seed=shape[1])
        if not standardize:  # a masked class
            logits[0, (target[0] + 1) % shape[1]] = -math.inf
        noise = torch.rand(shape[0], generator=generator) + 0.5 if sigma == "rows" else sigma
        keywords = {"weight": weight if weighted else None, "reduction": reduction}
        keywords |= {"standardize": standardize, "log": log}
        leaf = logits.clone().requires_grad_()
        own = {"margin": None if margin == math.inf else margin}
        own |= {"sigma": noise[:, None] if sigma == "rows" else noise}
        expected = exact_error(leaf, target, **own, **keywords)
        upstream = torch.rand(expected.shape, generator=generator)
        expected.backward(upstream)
        values, grad = exact_of(logits, target, upstream, sigma=noise, margin=margin, **keywords)
        close(values, expected, 2e-6)
        close(grad, leaf.grad, 1e-5)


def exact():
    compare_exact((4, 10))


def long_rows():
    from expacc.ops.triton import exact_plan

    few, exact_plan._FEW_CLASSES = exact_plan._FEW_CLASSES, 8
    compare_exact((3, 20))
    exact_plan._FEW_CLASSES = few


def unsound(classes):
    """Rows without a winner, and three with one; labels, and which have none."""
    logits = torch.zeros(11, classes)
    target = torch.tensor([0, 0, 0, 0, 0, 0, classes, -3, 0, 0, 0])
    logits[0, 1] = math.nan
    logits[1, 0] = math.nan
    logits[2, 1] = math.inf
    logits[3, 0] = math.inf
    logits[4] = -math.inf
    logits[5] = math.inf
    logits[8, 1:] = -math.inf  # nobody else
    logits[9, 0] = -math.inf  # masked itself, and one more
    logits[9, 2] = -math.inf
    logits[10, 1] = 30.0  # surely lost
    return logits, target, [True] * 8 + [False] * 3


def hostile():
    """Where there is no winner there is no number; a masked class and a sure loss are fine.

    A noise or a weight that cannot be makes its rows NaN.
    """
    impossible = torch.tensor([0.0, -1.0, math.nan, math.inf, 1.0])
    for classes in (6, 70):
        logits, target, bad = unsound(classes)
        one = torch.ones(len(logits))
        for mixture, values_of_sound in (((0.0, 1.0), [0, 1, 1]), ((1.0, 0.0), [0, math.inf, 30])):
            values, grad = mixture_of(logits, target, mixture, one)
            assert values.isnan().tolist() == bad
            assert values[8:].tolist() == values_of_sound
            assert grad.isnan().all(1).tolist() == bad
            assert not grad[8:].isnan().any()
        for log in (False, True):
            values, grad = exact_of(logits, target, one, log=log)
            assert values.isnan().tolist() == bad
            assert values[8:10].tolist() == [0, math.inf if log else 1]
            assert grad[:8].isnan().all()
            assert grad[8:10].abs().max() == 0
            assert grad[10].isfinite().all()
        # With one such row, of whichever kind, there is no deviation of the batch.
        for place in range(6):  # those after have a label that no class has
            some, labels = (torch.cat([t[place : place + 1], t[10:]]) for t in (logits, target))
            values, _ = exact_of(some, labels, one[:2], standardize=True)
            assert values.isnan().all(), place
        logits, target = torch.randn(5, classes), torch.arange(5)
        weight = torch.ones(classes)
        weight[:5] = torch.tensor([-1.0, math.nan, math.inf, -math.inf, 1.0])
        for values, grad in (
            exact_of(logits, target, one[:5], sigma=impossible),
            mixture_of(logits, target, (0.1, 1.0), one[:5], weight),
        ):
            assert values.isnan().tolist() == [True] * 4 + [False]
            assert grad.isnan().all(1).tolist() == [True] * 4 + [False]


def large():
    """Logits up to float32's largest: the loss of logits a power of two smaller, standardised."""
    for classes, margin in product((6, 70), (math.inf, 0.7)):
        small, target, _, _ = batch(5, classes, seed=classes)
        leaf = small.double().requires_grad_()
        expected = exact_error(leaf, target, margin=None if margin == math.inf else margin)
        expected.backward()
        upstream = torch.tensor(2.0**100)
        keywords = {"margin": margin, "reduction": "mean", "standardize": True}
        for power in (50, 100, 122):
            values, grad = exact_of(small * 2.0**power, target, upstream, **keywords)
            close(values, expected, 2e-6)
            close(grad.double() * 2.0 ** (power - 100), leaf.grad, 1e-5)
    for classes in (6, 70):
        ends = torch.full((2, classes), -3.4e38)
        ends[:, 0] = 3.4e38  # the first row wins by more than float32 can hold, the second loses
        values, grad = exact_of(ends, torch.tensor([0, 1]), torch.ones(2))
        assert values.tolist() == [0, 1]
        assert grad.abs().max() == 0


def table():
    from expacc.ops.triton.exact_plan import orthant_forward

    cases = json.loads((TESTS / "tables" / "orthant.json").read_text())["cases"]
    cases = [case for case in cases if sum(n for _, n in case["runs"]) <= 99][::26]
    for case in cases:
        runs = case["runs"]
        margins = torch.cat([torch.full((n,), float(v)) for v, n in runs])[None]
        first = [0, *accumulate(n for _, n in runs)]
        small, ahead, gradient = orthant_forward(margins)
        true_p, true_q = float(case["log_p"]), float(case["log_q"])
        true, found = (true_q if ahead.item() else true_p), small.item()
        assert abs(found - true) <= 2e-6 * max(1, abs(true)), (case["name"], found, true)
        shift = true_p - true_q if ahead.item() else 0.0
        scores = {int(run): math.exp(float(s) + shift) for run, s in case["score"].items()}
        for run, score in scores.items():
            error = abs(gradient[0, first[run]].item() - score)
            assert error <= 1e-4 * max(scores.values()), (case["name"], error)


def head():
    from expacc.ops.triton.head import HeadSettings, fused_head

    generator = torch.Generator().manual_seed(0)
    features, weight = (torch.randn(n, 6, generator=generator) for n in (20, 11))
    bias = torch.randn(11, generator=generator)
    target = torch.randint(0, 11, (20,), generator=generator)
    target[3] = -100
    leaves = [part.requires_grad_() for part in (features, weight, bias)]
    keywords = {"weight": torch.rand(11, generator=generator) + 0.5, "ignore_index": -100}
    for reduction in ("none", "mean", "sum"):
        logits = torch.nn.functional.linear(features, weight, bias)
        keywords |= {"reduction": reduction, "label_smoothing": 0.0}
        checked = read_batch(logits, target, **keywords)
        parts = ((0.2, 1.0), checked.scale, -100, checked.summed, torch.float32, 8)
        found = fused_head(features, weight, bias, target, HeadSettings(*parts))
        expected = mixed_expected_error(logits, target, ce_weight=0.2, error_weight=1.0, **keywords)
        close(found, expected, 1e-6)
        upstream = torch.rand(expected.shape, generator=generator)
        ours = torch.autograd.grad(found, leaves, upstream, retain_graph=True)
        again = torch.autograd.grad(found, leaves, upstream)
        theirs = torch.autograd.grad(expected, leaves, upstream)
        for one, two, three in zip(ours, again, theirs, strict=True):
            close(one, three, 1e-5)
            close(two, three, 1e-5)


def files_of(call):
    """The files of ours whose code runs in a call."""
    files = set()
    sys.setprofile(lambda frame, event, _: files.add(frame.f_code.co_filename))
    try:
        call()
    finally:
        sys.setprofile(None)
    package = f"{TESTS.parent / 'expacc'}{os.sep}"  # the clone's own folder may have this name, too
    return {name for name in files if name.startswith(package)}


def nodes():
    """The losses themselves by their fused node, as if this were a GPU; in at most nine files."""
    from expacc.functional import softmax as functional_softmax
    from expacc.ops import dispatch
    from expacc.ops.triton import node

    for module in (node, dispatch, functional_softmax):
        module.is_plain_batch = lambda *_: True
    for loss, classes in ((leaky_expected_error, 6), (exact_error, 6), (exact_error, 70)):
        logits, target, _, generator = batch(5, classes, seed=classes, spread=1.0)
        leaf, plain = (logits.clone().requires_grad_() for _ in range(2))
        both = ((leaf, "auto"), (plain, "reference"))
        found, expected = (loss(z, target, impl=impl) for z, impl in both)
        assert type(found.grad_fn).__name__ == "_FusedLossBackward"
        close(found, expected, 2e-6)
        (once,) = torch.autograd.grad(found, leaf, retain_graph=True)
        (again,) = torch.autograd.grad(found, leaf)  # made anew, since the first was given away
        assert torch.equal(once, again)
        close(once, torch.autograd.grad(expected, plain)[0], 1e-5)
        files = files_of(lambda z=leaf, t=target, f=loss: f(z, t).backward())
        assert 5 < len(files) <= 9, sorted(files)
        upstreams, many, seconds = torch.rand(3, 5, generator=generator), [], []
        for z, impl in both:
            rows = loss(z, target, reduction="none", impl=impl)
            many += torch.autograd.grad(rows, z, upstreams, is_grads_batched=True)
        close(*many, 1e-5)
        if loss is exact_error:
            with pytest.raises(RuntimeError, match="exact_error must not be differentiated twice"):
                torch.autograd.grad(loss(leaf, target), leaf, create_graph=True)
            continue
        for z, impl in both:
            (first,) = torch.autograd.grad(loss(z, target, impl=impl), z, create_graph=True)
            seconds += torch.autograd.grad(first.square().sum(), z)
        close(*seconds, 1e-6)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # NumPy's, about 0/0 and log 0 that are then masked
    mend_interpreter()
    for name in sys.argv[1:]:
        globals()[name]()
