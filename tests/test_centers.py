"""The Max-Mahalanobis center loss."""

import pytest
import torch

from expacc import MaxMahalanobisCenterLoss
from expacc.centers import simplex_centers


@pytest.mark.parametrize(
    ("classes", "dim"), [(1, 1), (2, 1), (3, 2), (10, 9), (10, 64), (100, 128)]
)
def test_centers_form_a_regular_simplex(classes, dim):
    centers = simplex_centers(classes, dim)
    cosines = centers @ centers.T
    expected = torch.full((classes, classes), -1 / max(1, classes - 1), dtype=torch.float64)
    expected.fill_diagonal_(1)
    torch.testing.assert_close(cosines, expected, rtol=0, atol=1e-12)


def loss_and_batch(**options):
    loss = MaxMahalanobisCenterLoss(4, 6, **options)
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(5, 6, generator=generator, dtype=torch.float64).requires_grad_()
    return loss, features, torch.tensor([0, 3, 2, 1, 1])


def test_value_logits_and_gradient():
    loss, features, target = loss_and_batch(reduction="none")
    expected = 0.5 * (features - loss.centers[target]).square().sum(1)
    torch.testing.assert_close(loss(features, target), expected)
    logits = loss.logits(features)
    torch.testing.assert_close(logits.gather(1, target[:, None]).squeeze(1), -2 * expected)
    grad = torch.autograd.grad(loss(features, target).sum(), features)[0]
    torch.testing.assert_close(grad, (features - loss.centers[target]).detach())
    assert torch.equal(loss.logits(loss.centers).argmax(1), torch.arange(4))
    torch.testing.assert_close(loss.logits(features[0]), logits[0])


def test_contract():
    weight = torch.tensor([1.0, 2.0, 0.5, 0.0])
    loss, features, target = loss_and_batch(weight=weight, ignore_index=2)
    rows = MaxMahalanobisCenterLoss(4, 6, reduction="none")(features, target)
    kept = target != 2
    expected = (rows * weight[target])[kept].sum() / weight[target[kept]].sum()
    torch.testing.assert_close(loss(features, target), expected)
    assert torch.autograd.gradcheck(lambda z: loss(z, target), features)
    spoiled = features.detach().clone()
    spoiled[2] = float("nan")
    spoiled.requires_grad_()
    grad = torch.autograd.grad(loss(spoiled, target), spoiled)[0]
    assert torch.equal(grad[2], torch.zeros(6, dtype=torch.float64))
    assert grad.isfinite().all()


def test_soft_targets_shapes_and_dtypes():
    loss, features, target = loss_and_batch()
    one_hot = torch.nn.functional.one_hot(target, 4).double()
    torch.testing.assert_close(loss(features, one_hot), loss(features, target))
    grid = features.T.reshape(1, 6, 5)
    torch.testing.assert_close(loss(grid, target[None]), loss(features, target))
    torch.testing.assert_close(
        loss(features[0], target[0]), MaxMahalanobisCenterLoss(4, 6)(features[:1], target[:1])
    )
    half = features.detach().bfloat16()
    assert loss(half, target).dtype == torch.bfloat16
    assert loss.logits(half).dtype == torch.bfloat16
