"""LogitClip: the paper's definition, at any length, with its gradient, before any loss."""

import pytest
import torch

import expacc
from expacc import clip_logits


@pytest.mark.parametrize("shape", [(5,), (7, 5), (3, 5, 4)], ids=str)
def test_equals_the_definition(shape):
    logits = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    axis = min(1, len(shape) - 1)
    for norm in (0.5, 2.0, 100.0):
        length = torch.linalg.vector_norm(logits, dim=axis, keepdim=True)
        expected = torch.where(length >= norm, norm * logits / length, logits)
        torch.testing.assert_close(clip_logits(logits, norm), expected, rtol=1e-14, atol=1e-15)
        assert torch.equal(expacc.LogitClip(norm)(logits), clip_logits(logits, norm))


@pytest.mark.parametrize(("classes", "norm"), [(2, 1.0), (31, 1.0), (32, 0.5), (100, 0.5)])
def test_the_papers_norms_by_the_number_of_classes(classes, norm):
    logits = torch.randn(3, classes, 2, generator=torch.Generator().manual_seed(3)) * 4
    assert torch.equal(clip_logits(logits), clip_logits(logits, norm))
    assert torch.equal(expacc.LogitClip()(logits), clip_logits(logits, norm))


def test_gradients():
    logits = torch.randn(6, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    leaf = (logits * 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: clip_logits(z, 3.0), leaf)
    assert torch.autograd.gradgradcheck(lambda z: clip_logits(z, 3.0), leaf)
    (grad,) = torch.autograd.grad((clip_logits(leaf, 0.1) * leaf.detach()).sum(), leaf)
    assert grad.abs().max() < 1e-15  # along itself a clipped row has none


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_masked_zero_and_huge_rows(dtype):
    logits = torch.tensor([[0, 0, 0], [3, -torch.inf, 4], [1, 1, 1]], dtype=dtype)
    logits[2] *= torch.finfo(dtype).max
    leaf = logits.clone().requires_grad_()
    found = clip_logits(leaf, 1.0)
    assert found.dtype == dtype
    third = 3**-0.5
    expected = torch.tensor([[0, 0, 0], [0.6, -torch.inf, 0.8], [third] * 3], dtype=dtype)
    torch.testing.assert_close(found, expected)
    (grad,) = torch.autograd.grad(found[:, [0, 2]].sum(), leaf)
    assert grad.isfinite().all()
    loss = expacc.get_loss("normalized_cross_entropy")(found, torch.tensor([0, 0, 1]))
    assert loss.isfinite()


def test_transforms_and_training():
    logits = torch.randn(8, 5, generator=torch.Generator().manual_seed(2)) * 4
    torch.testing.assert_close(torch.func.vmap(clip_logits)(logits), clip_logits(logits))
    compiled = torch.compile(expacc.LogitClip(2.0), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(logits), clip_logits(logits, 2.0))
    spoiled = logits.clone()
    spoiled[1, 2] = torch.nan
    assert clip_logits(spoiled).isnan().any(1).tolist() == [row == 1 for row in range(8)]


def test_refusals():
    with pytest.raises(ValueError, match=r"norm must be finite and > 0; got 0\."):
        expacc.LogitClip(0)
    with pytest.raises(TypeError, match="logits must be a floating-point tensor"):
        clip_logits(torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match="logits must have at least one class"):
        clip_logits(torch.zeros(2, 0))
