"""torch.compile, torch.func and forward-mode AD see the same numbers as plain eager use."""

import pytest
import torch
from losses import CASE_IDS, CASES, LOSSES
from torch.autograd import forward_ad

import expacc

every_case = pytest.mark.parametrize(("row", "numbers"), CASES, ids=CASE_IDS)
every_loss = pytest.mark.parametrize("row", LOSSES, ids=[row.name for row in LOSSES])


def batch(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(*shape, generator=generator, dtype=torch.float64) * 3
    target = torch.randint(0, shape[-1], shape[:-1], generator=generator)
    return logits, target


@every_case
def test_vmap_and_grad(row, numbers):
    logits, target = batch(3, 8, 5)
    target[1, 2] = -100

    def loss(z, t):
        return row.function(z, t, **numbers)

    values = torch.func.vmap(loss)(logits, target)
    expected = torch.stack([loss(z, t) for z, t in zip(logits, target, strict=True)])
    torch.testing.assert_close(values, expected, rtol=1e-12, atol=1e-14)
    grads = torch.func.vmap(torch.func.grad(loss))(logits, target)
    for z, t, grad in zip(logits, target, grads, strict=True):
        leaf = z.clone().requires_grad_()
        torch.testing.assert_close(
            grad, torch.autograd.grad(loss(leaf, t), leaf)[0], rtol=1e-11, atol=1e-14
        )


@every_case
def test_vmap_over_logits_alone(row, numbers):
    logits, target = batch(3, 8, 5)
    values = torch.func.vmap(lambda z: row.function(z, target[0], **numbers))(logits)
    expected = torch.stack([row.function(z, target[0], **numbers) for z in logits])
    torch.testing.assert_close(values, expected, rtol=1e-12, atol=1e-14)


@every_loss
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


@pytest.mark.parametrize(
    ("row", "numbers"),
    [case for case in CASES if case[0].twice],
    ids=[name for case, name in zip(CASES, CASE_IDS, strict=True) if case[0].twice],
)
def test_forward_mode_and_hessian(row, numbers):
    logits, target = batch(4, 3)
    direction = torch.linspace(-1, 1, 12, dtype=torch.float64).view(4, 3)

    def loss(z):
        return row.function(z, target, **numbers)

    leaf = logits.clone().requires_grad_()
    (grad,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
    expected = (grad * direction).sum()
    _, tangent = torch.func.jvp(loss, (logits,), (direction,))
    torch.testing.assert_close(tangent, expected, rtol=1e-11, atol=1e-14)
    with forward_ad.dual_level():
        dual = loss(forward_ad.make_dual(logits, direction))
        found = forward_ad.unpack_dual(dual).tangent
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-14)
    product = torch.einsum("abcd,cd->ab", torch.func.hessian(loss)(logits), direction)
    (expected,) = torch.autograd.grad(expected, leaf)
    torch.testing.assert_close(product, expected, rtol=1e-9, atol=1e-12)


@every_case
def test_compiles_without_a_break(row, numbers):
    """aot_eager: the whole graph is traced, forward and backward, without the C++ compiler."""
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda z, t: row.function(z, t, **numbers), fullgraph=True, backend="aot_eager"
    )
    logits, target = batch(8, 5)
    target[3] = -100
    leaf, twin = (logits.clone().requires_grad_() for _ in range(2))
    value, expected = compiled(leaf, target), row.function(twin, target, **numbers)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-14)
    value.backward()
    expected.backward()
    torch.testing.assert_close(leaf.grad, twin.grad, rtol=1e-11, atol=1e-14)
    bad = target.clone()
    bad[0] = 99
    assert compiled(logits, bad).isnan()
    for value in (float("nan"), float("inf")):
        for place in (target[0], target[0] - 1):  # the label, a rival
            spoiled = logits.clone()
            spoiled[0, place] = value
            leaf = spoiled.requires_grad_()
            loss = compiled(leaf, target)
            loss.backward()
            assert loss.isnan()
            assert leaf.grad[0].isnan().all()
    spoiled = logits.clone()
    spoiled[3] = float("nan")  # ignored
    torch.testing.assert_close(compiled(spoiled, target), expected, rtol=1e-12, atol=1e-14)


def test_inductor_and_soft_targets_and_modules():
    torch._dynamo.reset()
    loss = expacc.ScheduledLoss(
        expacc.MixedExpectedErrorLoss(
            weight=torch.linspace(0.5, 2, 5).double(), label_smoothing=0.1
        ),
        focus=expacc.schedules.focus_gradual,
    )
    compiled = torch.compile(loss, fullgraph=True)
    logits, target = batch(8, 5)
    for progress in (0.0, 0.4, 1.0):  # a schedule changes numbers between calls
        loss.step(progress)
        leaf, twin = (logits.clone().requires_grad_() for _ in range(2))
        value, expected = compiled(leaf, target), loss(twin, target)
        torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-14)
        value.backward()
        expected.backward()
        torch.testing.assert_close(leaf.grad, twin.grad, rtol=1e-11, atol=1e-14)
