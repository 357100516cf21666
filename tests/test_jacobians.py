"""Many gradients at once, and gradients of gradients, wherever F.cross_entropy has them."""

import pytest
import torch
import torch.nn.functional as F
from losses import CASE_IDS, CASES
from operations import OPERATIONS, SAMPLED, head, labels_of, mix_of, scores
from torch.autograd.functional import hessian, jacobian

CROSS_ENTROPY = ("F.cross_entropy", F.cross_entropy, {}, True)  # every test passes for it too
EVERY = [CROSS_ENTROPY] + [
    (name, row.function, numbers, row.soft)
    for (row, numbers), name in zip(CASES, CASE_IDS, strict=True)
]
every_loss = pytest.mark.parametrize(
    ("function", "numbers", "soft"), [each[1:] for each in EVERY], ids=[each[0] for each in EVERY]
)


def by_loop(function, values):
    """The Jacobian, one backward after the other."""
    leaf = values.clone().requires_grad_()
    found = function(leaf)
    rows = [
        torch.autograd.grad(one, leaf, retain_graph=True)[0] for one in found.reshape(-1).unbind()
    ]
    return torch.stack(rows).reshape(*found.shape, *values.shape)


def batched(function, values):
    leaf = values.clone().requires_grad_()
    found = function(leaf)
    each = torch.eye(found.numel(), dtype=found.dtype).reshape(found.numel(), *found.shape)
    (grad,) = torch.autograd.grad(found, leaf, each, is_grads_batched=True)
    return grad.reshape(*found.shape, *values.shape)


def vmapped(function, values):
    """torch.func's vmap over backward passes through a graph that was made outside of it."""
    leaf = values.clone().requires_grad_()
    found = function(leaf)
    each = torch.eye(found.numel(), dtype=found.dtype).reshape(found.numel(), *found.shape)
    grad = torch.func.vmap(
        lambda upstream: torch.autograd.grad(found, leaf, upstream, retain_graph=True)[0]
    )(each)
    return grad.reshape(*found.shape, *values.shape)


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
@every_loss
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
@every_loss
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
@every_loss
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
