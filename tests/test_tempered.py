"""The bi-tempered loss against its definition in mpmath: values, gradients, limits."""

import mpmath as mp
import pytest
import torch
import torch.nn.functional as F

from expacc.functional import bi_tempered
from expacc.functional.tempered import tempered_log_probs

TEMPERATURES = [(0.8, 1.2), (0.0, 1.0001), (0.5, 4.0), (1.0, 1.5), (0.9, 30.0)]


def exact(logits, label, t1, t2):
    """Value and gradient from the paper's definition, the normaliser by secants to 60 digits."""
    t1, t2 = mp.mpf(t1), mp.mpf(t2)
    z = [mp.mpf(one) for one in logits]

    def probs(normalizer):
        return [(1 + (1 - t2) * (one - normalizer)) ** (1 / (1 - t2)) for one in z]

    top = max(z)
    high = top - (mp.mpf(len(z)) ** (t2 - 1) - 1) / (1 - t2)
    low, p = top, None
    for _ in range(400):
        middle = (low + high) / 2
        low, high = (middle, high) if mp.fsum(probs(middle)) > 1 else (low, middle)
    p = probs(low)
    log_t = mp.log(p[label]) if t1 == 1 else (p[label] ** (1 - t1) - 1) / (1 - t1)
    value = -log_t - (1 - mp.fsum(one ** (2 - t1) for one in p)) / (2 - t1)
    escort = [one**t2 for one in p]
    escort = [one / mp.fsum(escort) for one in escort]
    powers = [one ** (1 + t2 - t1) for one in p]
    pull = p[label] ** (t2 - t1)
    gradient = [
        -pull * ((j == label) - s) + v - s * mp.fsum(powers)
        for j, (s, v) in enumerate(zip(escort, powers, strict=True))
    ]
    return value, gradient


@pytest.mark.parametrize(("t1", "t2"), TEMPERATURES)
def test_values_and_gradients_are_exact(t1, t2):
    generator = torch.Generator().manual_seed(0)
    for scale in (0.1, 3.0, 100.0, 1e4):
        for classes in (2, 5):
            logits = torch.randn(4, classes, generator=generator, dtype=torch.float64) * scale
            target = torch.cat([logits[:2].argmax(1), logits[2:].argmin(1)])
            leaf = logits.clone().requires_grad_()
            values = bi_tempered(leaf, target, t1=t1, t2=t2, reduction="none")
            (grad,) = torch.autograd.grad(values.sum(), leaf)
            for row in range(4):
                with mp.workdps(120):
                    value, gradient = exact(logits[row].tolist(), int(target[row]), t1, t2)
                    assert (
                        abs(values[row].item() - value) <= 1e-12 * abs(value) + mp.mpf(10) ** -110
                    )
                    largest = max(map(abs, gradient))
                    for found, true in zip(grad[row].tolist(), gradient, strict=True):
                        assert abs(found - true) <= 1e-11 * largest + 1e-15


@pytest.mark.parametrize("t2", [1.0, 1 + 1e-9, 1.2, 2.0, 50.0])
def test_probabilities_sum_to_one_whatever_the_logits(t2):
    generator = torch.Generator().manual_seed(1)
    for classes in (1, 2, 10, 100_000):
        for scale in (0.0, 1.0, 5.0, 1e3, 1e30):
            logits = torch.randn(3, classes, generator=generator, dtype=torch.float64) * scale
            total = tempered_log_probs(logits, t2).exp().sum(1)
            assert (total - 1).abs().max() <= 1e-12


def test_limits():
    logits = torch.randn(20, 6, generator=torch.Generator().manual_seed(2)).double() * 3
    target = torch.arange(20) % 6
    entropy = F.cross_entropy(logits, target, reduction="none")
    for t1, t2 in ((1, 1), (1.0, 1 + 1e-10), (1 - 1e-10, 1)):
        found = bi_tempered(logits, target, t1=t1, t2=t2, reduction="none")
        torch.testing.assert_close(found, entropy, rtol=1e-8, atol=1e-9)
    far = torch.tensor([[0.0, 1e30]]).double()
    assert bi_tempered(far, torch.tensor([0]), t1=0.8).item() == pytest.approx(1 / 0.2)


@pytest.mark.parametrize(
    "numbers", [{}, {"t2": 1.01}, {"t1": 0.0, "t2": 4.0}, {"t1": 1.0}], ids=str
)
@pytest.mark.parametrize("scale", [0.1, 20.0])
def test_large_batches_have_the_digits_of_small_ones(numbers, scale):
    """Found in float32 first, and yet right where all p but one are next to nothing."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(150, 70, 2, generator=generator) * scale
    target = torch.randint(0, 70, (150, 2), generator=generator)
    target[:50] = logits[:50].argmax(1)
    leaf, wide = logits.requires_grad_(), logits.detach().double().requires_grad_()
    values = bi_tempered(leaf, target, reduction="none", **numbers)
    exact = [
        bi_tempered(z, t, reduction="none", **numbers)
        for z, t in zip(wide.split(50), target.split(50), strict=True)
    ]
    torch.testing.assert_close(values, torch.cat(exact).float(), rtol=2e-7, atol=0)
    upstream = torch.linspace(-1, 2, 300).view(150, 2)
    (grad,) = torch.autograd.grad(values, leaf, upstream, retain_graph=True)
    (again,) = torch.autograd.grad(values, leaf, upstream)
    (true,) = torch.autograd.grad(torch.cat(exact), wide, upstream.double())
    assert torch.equal(grad, again)
    assert ((grad - true).abs() <= 2e-7 * true.abs().amax(1, keepdim=True)).all()
