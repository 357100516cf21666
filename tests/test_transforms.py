"""torch.compile, torch.func, forward mode, many gradients at once: the numbers of eager use."""

import pytest
import torch
import torch.nn.functional as F
from losses import CASE_IDS, CASES, LOSSES, every_case
from operations import OPERATIONS, SAMPLED, head, labels_of, mix_of, scores
from torch.autograd.functional import hessian, jacobian

import expacc
from expacc.registry import SPECS

CROSS_ENTROPY = ("F.cross_entropy", F.cross_entropy, {}, True)  # every test passes for it too
EVERY = [CROSS_ENTROPY] + [
    (name, row.function, numbers, row.soft)
    for (row, numbers), name in zip(CASES, CASE_IDS, strict=True)
]
every_function = pytest.mark.parametrize(
    ("function", "numbers", "soft"), [each[1:] for each in EVERY], ids=[each[0] for each in EVERY]
)


def batch(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(*shape, generator=generator, dtype=torch.float64) * 3
    target = torch.randint(0, shape[-1], shape[:-1], generator=generator)
    return logits, target


@every_case()
def test_vmap_and_grad(row, numbers):
    logits, target = batch(3, 8, 5)
    target[1, 2] = -100

    def loss(z, t):
        return row.function(z, t, **numbers)

    values = torch.func.vmap(loss)(logits, target)
    expected = torch.stack([loss(z, t) for z, t in zip(logits, target, strict=True)])
    torch.testing.assert_close(values, expected, rtol=1e-12, atol=1e-14)
    alone = torch.func.vmap(loss, in_dims=(0, None))(logits, target[0])
    expected = torch.stack([loss(z, target[0]) for z in logits])
    torch.testing.assert_close(alone, expected, rtol=1e-12, atol=1e-14)
    grads = torch.func.vmap(torch.func.grad(loss))(logits, target)
    for z, t, grad in zip(logits, target, grads, strict=True):
        leaf = z.clone().requires_grad_()
        torch.testing.assert_close(
            grad, torch.autograd.grad(loss(leaf, t), leaf)[0], rtol=1e-11, atol=1e-14
        )


@pytest.mark.parametrize("row", LOSSES, ids=lambda row: row.name)
def test_vmap_of_soft_targets(row):
    if not row.soft:
        with pytest.raises(ValueError, match="target must hold integer labels"):
            row.function(*[torch.zeros(2, 3)] * 2)
        return
    logits, _ = batch(3, 8, 5)
    mix = logits.roll(1, 0).softmax(-1)
    values = torch.func.vmap(row.function)(logits, mix)
    expected = torch.stack([row.function(z, t) for z, t in zip(logits, mix, strict=True)])
    torch.testing.assert_close(values, expected, rtol=1e-12, atol=1e-14)


def assert_twins(one, other, logits, target):
    """Value and gradient of two functions are the same."""
    leaf, twin = (logits.clone().requires_grad_() for _ in range(2))
    value, expected = one(leaf, target), other(twin, target)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-14)
    value.backward()
    expected.backward()
    torch.testing.assert_close(leaf.grad, twin.grad, rtol=1e-11, atol=1e-14)


@every_case()
def test_compiles_without_a_break(row, numbers):
    """aot_eager: the whole graph is traced, forward and backward, without the C++ compiler."""
    torch._dynamo.reset()

    def loss(z, t):
        return row.function(z, t, **numbers)

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    logits, target = batch(8, 5)
    target[3] = -100
    assert_twins(compiled, loss, logits, target)
    bad = target.clone()
    bad[0] = 99
    assert compiled(logits, bad).isnan()
    for value in (float("nan"), float("inf")):
        for place in (target[0], target[0] - 1):  # the label, a rival
            leaf = logits.clone()
            leaf[0, place] = value
            value_there = compiled(leaf.requires_grad_(), target)
            value_there.backward()
            assert value_there.isnan()
            assert leaf.grad[0].isnan().all()
    spoiled = logits.clone()
    spoiled[3] = float("nan")  # ignored
    expected = loss(logits, target)
    torch.testing.assert_close(compiled(spoiled, target), expected, rtol=1e-12, atol=1e-14)


# The first number of every loss, and what moves a curve.
SCHEDULED = {
    name: next(one for one, usual in spec.defaults.items() if isinstance(usual, float))
    for name, spec in SPECS.items()
    if spec.has_module and any(isinstance(usual, float) for usual in spec.defaults.values())
} | {"expected_error": "shift", "mean_absolute_error": "scale"}


@pytest.mark.parametrize(("name", "number"), SCHEDULED.items(), ids=SCHEDULED)
def test_compiles_with_numbers_and_sizes_that_change(name, number):
    """As under a schedule, with a last batch that is smaller: constants become symbols."""
    torch._dynamo.reset()
    spec, function = SPECS[name], SPECS[name].function

    def loss(z, t, value):
        return function(z, t, **{number: value})

    compiled = torch.compile(loss, fullgraph=True, dynamic=True, backend="aot_eager")
    for rows, factor in ((8, 1.0), (5, 1.03)):
        logits, target = batch(rows, 5)
        if spec.family == "binary":
            target = logits.sigmoid()
        value = spec.defaults.get(number, 0.5) * factor
        assert_twins(
            lambda z, t, v=value: compiled(z, t, v),
            lambda z, t, v=value: loss(z, t, v),
            logits,
            target,
        )


def test_inductor_and_modules():
    torch._dynamo.reset()
    weight = torch.linspace(0.5, 2, 5).double()
    inner = expacc.MixedExpectedErrorLoss(weight=weight, label_smoothing=0.1)
    loss = expacc.ScheduledLoss(inner, focus=expacc.schedules.focus_gradual)
    compiled = torch.compile(loss, fullgraph=True)
    for progress in (0.0, 0.4, 1.0):  # a schedule changes numbers between calls
        loss.step(progress)
        assert_twins(compiled, loss, *batch(8, 5))


# ------------------------------------------- many gradients at once, and gradients of gradients


def each_of(found):
    """The unit vectors of an output."""
    return torch.eye(found.numel(), dtype=found.dtype).reshape(found.numel(), *found.shape)


def jacobian_by(gradients):
    """A way to a Jacobian: all gradients of a graph made once, by ``gradients(found, leaf)``."""

    def way(function, values):
        leaf = values.clone().requires_grad_()
        found = function(leaf)
        return gradients(found, leaf).reshape(*found.shape, *values.shape)

    return way


def gradient(found, leaf, upstream):
    return torch.autograd.grad(found, leaf, upstream, retain_graph=True)[0]


by_loop = jacobian_by(lambda y, x: torch.stack([gradient(y, x, one) for one in each_of(y)]))
batched = jacobian_by(lambda y, x: torch.autograd.grad(y, x, each_of(y), is_grads_batched=True)[0])
# torch.func's vmap over backward passes through a graph that was made outside of it
vmapped = jacobian_by(lambda y, x: torch.func.vmap(lambda one: gradient(y, x, one))(each_of(y)))


WAYS = {
    "is_grads_batched": batched,
    "vmap of backward": vmapped,
    "jacobian": lambda f, z: jacobian(f, z, vectorize=True),
    "jacobian with a graph": lambda f, z: jacobian(
        f, z.clone().requires_grad_(), vectorize=True, create_graph=True
    ),
    "jacobian, forward": lambda f, z: jacobian(f, z, vectorize=True, strategy="forward-mode"),
    "jacrev": lambda f, z: torch.func.jacrev(f)(z),
    "jacfwd": lambda f, z: torch.func.jacfwd(f)(z),
}
SECOND = {
    "hessian": lambda f, z: hessian(f, z, vectorize=True),
    "hessian, forward": lambda f, z: hessian(
        f, z, vectorize=True, outer_jacobian_strategy="forward-mode"
    ),
    "func.hessian": lambda f, z: torch.func.hessian(f)(z),
    "jacrev of jacrev": lambda f, z: torch.func.jacrev(torch.func.jacrev(f))(z),
}


@pytest.mark.parametrize("way", WAYS)
@every_function
def test_jacobians_are_those_of_a_loop(function, numbers, soft, way):
    values = scores(5)
    targets = [labels_of(values), mix_of(values)] if soft else [labels_of(values)]
    for target in targets:
        for reduction in ("none", "mean"):

            def loss(z, t=target, r=reduction):
                return function(z, t, reduction=r, **numbers)

            found = WAYS[way](loss, values)
            torch.testing.assert_close(found, by_loop(loss, values), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("way", ["is_grads_batched", "vmap of backward"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@every_function
def test_of_blocks_and_ignored_rows_and_weights(function, numbers, soft, dtype, way):
    values = scores(3000 if soft and "standardize" not in numbers else 40).to(dtype)
    target = labels_of(values)
    target[1] = -100
    weight = torch.linspace(0.5, 2, 6).to(dtype)

    def loss(z):
        return function(z, target, weight=weight, reduction="none", **numbers)[:3]

    found = WAYS[way](loss, values)[:, :3]
    exact = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(found, by_loop(loss, values)[:, :3], rtol=exact, atol=exact / 10)


def has_second(numbers, target):
    """EXACT's fast integrals have their gradient with their value, and none of it."""
    if "standardize" not in numbers or numbers.get("noise") == "gumbel":
        return True
    if target.is_floating_point() and not numbers.keys() & {"margin", "topk", "log"}:
        return False  # all classes at once
    return "topk" in numbers or "noise" in numbers


@pytest.mark.parametrize("way", SECOND)
@every_function
def test_hessians_are_those_of_a_loop_or_refused(function, numbers, soft, way):
    values = scores(3)
    for target in [labels_of(values), mix_of(values)] if soft else [labels_of(values)]:

        def loss(z, t=target):
            return function(z, t, **numbers)

        if not has_second(numbers, target):
            for make in (hessian, SECOND[way]):
                with pytest.raises(RuntimeError, match="must not be differentiated twice"):
                    make(loss, values)
            continue
        expected = hessian(loss, values)
        torch.testing.assert_close(SECOND[way](loss, values), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name not in SAMPLED])
def test_operations(name):
    values = scores(3)
    expected = by_loop(OPERATIONS[name], values)
    for way, make in WAYS.items():
        found = make(OPERATIONS[name], values)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12, msg=way)


# Checkpoints know neither forward mode nor a vmap around their backward.
@pytest.mark.parametrize("way", ["is_grads_batched", "jacobian", "jacrev"])
def test_the_head(way):
    for reduction in ("none", "mean"):
        found = WAYS[way](lambda x, r=reduction: head(x, r), scores(20))
        expected = by_loop(lambda x, r=reduction: head(x, r), scores(20))
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
