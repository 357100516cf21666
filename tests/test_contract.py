"""The laws every loss obeys, run over the list in ``losses.py``."""

import inspect
import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from losses import every_case, every_loss

from expacc.functional import mixed_expected_error

SHAPES = [(5,), (7, 5), (3, 5, 4), (2, 5, 3, 2)]
every_soft_case = every_case(lambda row: row.soft)
every_row = every_case(lambda row: True)
every_module = every_case(lambda row: row.module is not None)


def batch(shape=(7, 5), seed=0, dtype=torch.float64, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(shape, generator=generator, dtype=torch.float64) * scale
    classes = shape[min(1, len(shape) - 1)]
    labels = shape[:1] + shape[2:] if len(shape) > 1 else ()
    target = torch.randint(0, classes, labels, generator=generator)
    return logits.to(dtype).requires_grad_(), target


def sizes(row):
    """A small batch, and two that a curve does in blocks; the others have one path."""
    return ((12, 6), (900, 60), (240, 70)) if row.curve or row.blocks else ((12, 6), (90, 20))


def grad_of(value, logits, **kwargs):
    return torch.autograd.grad(value.sum(), logits, **kwargs)[0]


# ------------------------------------------------------------------------------------- values


@every_row
def test_equals_its_numpy_transcription(row, numbers):
    logits, target = batch((12, 6) if row.name == "exact" else (64, 6))  # quadrature is slow
    z, y = logits.detach().numpy(), target.numpy()
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    values = row.function(logits, target, reduction="none", **numbers)
    transcribed = row.numpy(p, y, z, **numbers)
    np.testing.assert_allclose(values.detach(), transcribed, rtol=1e-11)
    mean = row.function(logits, target, **numbers)
    np.testing.assert_allclose(mean.item(), transcribed.mean(), rtol=1e-11)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("soft", [False, True], ids=["labels", "probabilities"])
def test_mixture_without_error_is_cross_entropy(shape, soft):
    for seed, (weighted, ignore_index, reduction, smoothing) in enumerate(
        itertools.product([False, True], [-100, 2], ["none", "mean", "sum"], [0.0, 0.1, 1.0])
    ):
        logits, target = batch(shape, seed)
        if soft:
            if ignore_index >= 0:
                continue
            target = torch.rand_like(logits).softmax(min(1, len(shape) - 1))
        elif len(shape) == 1 and ignore_index == target.item():
            continue  # all ignored: torch gives NaN, we give 0 (tested below)
        options = {
            "weight": torch.linspace(0.1, 2, 5, dtype=torch.float64) if weighted else None,
            "ignore_index": ignore_index,
            "reduction": reduction,
            "label_smoothing": smoothing,
        }
        ours = mixed_expected_error(logits, target, ce_weight=1, error_weight=0, **options)
        theirs = F.cross_entropy(logits, target, **options)
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(
            grad_of(ours, logits), grad_of(theirs, logits), rtol=1e-11, atol=1e-13
        )


@every_case()
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_shape_is_rows_of_logits(row, numbers, shape):
    logits, target = batch(shape)
    values = row.function(logits, target, reduction="none", **numbers)
    assert values.shape == target.shape
    flat = logits.movedim(min(1, len(shape) - 1), -1).reshape(-1, 5)
    expected = row.function(flat, target.reshape(-1), reduction="none", **numbers)
    torch.testing.assert_close(values.reshape(-1), expected, rtol=1e-13, atol=1e-15)


@every_soft_case
def test_soft_targets_are_expectations_over_labels(row, numbers):
    logits, _ = batch((6, 4))
    mix = torch.rand(6, 4, dtype=torch.float64).softmax(1)
    weight = torch.tensor([0.5, 1.0, 2.0, 0.0], dtype=torch.float64)
    expected = sum(
        mix[:, j]
        * row.function(logits, torch.full((6,), j), reduction="none", weight=weight, **numbers)
        for j in range(4)
    )
    values = row.function(logits, mix, reduction="none", weight=weight, **numbers)
    torch.testing.assert_close(values, expected, rtol=1e-12, atol=1e-14)
    mean = row.function(logits, mix, weight=weight, **numbers)
    torch.testing.assert_close(mean, expected.sum() / 6, rtol=1e-12, atol=1e-14)


@every_row
def test_weights_ignore_and_reduction(row, numbers):
    logits, target = batch((9, 4), seed=3)
    target[[1, 5]] = 3
    weight = torch.tensor([0.5, 1.0, 3.0, 7.0], dtype=torch.float64)
    rows = row.function(logits, target, reduction="none", **numbers)
    kept = target != 3
    expected = torch.where(kept, rows * weight[target], 0)
    options = {"weight": weight, "ignore_index": 3, **numbers}
    none = row.function(logits, target, reduction="none", **options)
    torch.testing.assert_close(none, expected, rtol=1e-13, atol=1e-15)
    total = row.function(logits, target, reduction="sum", **options)
    torch.testing.assert_close(total, expected.sum(), rtol=1e-13, atol=1e-15)
    mean = row.function(logits, target, **options)
    torch.testing.assert_close(mean, expected.sum() / weight[target[kept]].sum())
    by_place = row.function(logits, target, options.pop("weight"), **options)  # as F.cross_entropy
    assert torch.equal(by_place, mean)


# ---------------------------------------------------------------------------------- gradients


@every_row
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weight"])
@pytest.mark.parametrize("ignore_index", [-100, 1], ids=["", "ignore"])
def test_gradcheck(row, numbers, reduction, weighted, ignore_index):
    logits, target = batch((5, 4), seed=11)
    options = {
        "reduction": reduction,
        "weight": torch.tensor([0.5, 1.0, 3.0, 0.0], dtype=torch.float64) if weighted else None,
        "ignore_index": ignore_index,
        **numbers,
    }
    assert torch.autograd.gradcheck(
        lambda z: row.function(z, target, **options), logits, atol=1e-7, rtol=1e-6
    )


@every_case(lambda row: row.twice)
def test_double_backward(row, numbers):
    logits, target = batch((3, 4), seed=5)
    for reduction in ("mean", "none"):
        assert torch.autograd.gradgradcheck(
            lambda z, r=reduction: row.function(z, target, reduction=r, **numbers),
            logits,
            atol=1e-6,
            rtol=1e-5,
        )


@every_soft_case
def test_gradcheck_of_soft_and_smoothed_targets(row, numbers):
    logits, target = batch((4, 3), seed=2)
    mix = torch.rand(4, 3, dtype=torch.float64).softmax(1).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda z, t: row.function(z, t, **numbers), (logits, mix), atol=1e-7, rtol=1e-6
    )
    assert torch.autograd.gradcheck(
        lambda z: row.function(z, target, label_smoothing=0.2, **numbers),
        logits,
        atol=1e-7,
        rtol=1e-6,
    )


@every_row
def test_rows_of_the_gradient_sum_to_zero_and_stay_in_bounds(row, numbers):
    for size in sizes(row):
        logits, target = batch(size, dtype=torch.float32, scale=5)
        grad = grad_of(row.function(logits, target, reduction="sum", **numbers), logits)
        assert grad.sum(1).abs().max() < 1e-5
        bound = row.gradient_bound * numbers.get("scale", 1)
        assert grad.abs().max() <= bound * (1 + 1e-5)


@every_row
def test_shift_and_permutation_change_nothing(row, numbers):
    logits, target = batch((8, 5))
    values = row.function(logits, target, reduction="none", **numbers)
    shifted = row.function(logits + 3.25, target, reduction="none", **numbers)
    torch.testing.assert_close(values, shifted, rtol=1e-10, atol=1e-13)
    order = torch.tensor([4, 3, 2, 1, 0] if row.ordered else [3, 0, 4, 1, 2])
    moved = row.function(logits[:, order], order.argsort()[target], reduction="none", **numbers)
    torch.testing.assert_close(values, moved, rtol=1e-12, atol=1e-14)


@every_row
def test_small_and_block_paths_agree(row, numbers):
    for classes in (60, 70) if row.blocks else (60 if row.curve else 10,):
        logits, target = batch((400, classes), dtype=torch.float32, scale=10)
        whole = row.function(logits, target, reduction="none", **numbers)
        parts = torch.cat(
            [
                row.function(z, t, reduction="none", **numbers)
                for z, t in zip(logits.split(100), target.split(100), strict=True)
            ]
        )
        rtol = 1e-6 * numbers.get("scale", 1)  # a power of the odds has so many times their error
        torch.testing.assert_close(whole, parts, rtol=rtol, atol=1e-30)
        # A quadrature's gradient is right relative to its row's largest entry, so is one of sums.
        atol = 1e-30 if row.exact and not row.blocks else 1e-6
        grads = grad_of(whole, logits), grad_of(parts, logits)
        torch.testing.assert_close(*grads, rtol=3e-6, atol=atol)


# -------------------------------------------------------------------------------------- edges


@every_row
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("blocks", [False, True], ids=["small", "blocks"])
def test_ignored_rows_contribute_nothing(row, numbers, value, blocks):
    rows = (4000 if row.curve or row.blocks else 40) if blocks else 4
    logits, target = batch((rows, 5), dtype=torch.float32)
    target[1] = -100
    spoiled = logits.detach().clone()
    spoiled[1] = value
    spoiled.requires_grad_()
    clean = row.function(logits, target, **numbers)
    dirty = row.function(spoiled, target, **numbers)
    torch.testing.assert_close(clean, dirty, rtol=1e-6, atol=0)
    clean_grad, dirty_grad = grad_of(clean, logits), grad_of(dirty, spoiled)
    assert torch.equal(dirty_grad[1], torch.zeros(5))
    torch.testing.assert_close(clean_grad, dirty_grad, rtol=1e-5, atol=1e-12)


@every_row
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_empty_and_all_ignored_batches_give_zero(row, numbers, reduction):
    for logits, target in (
        (torch.zeros(0, 4, requires_grad=True), torch.zeros(0, dtype=torch.int64)),
        (torch.full((3, 4), float("nan"), requires_grad=True), torch.full((3,), -100)),
    ):
        value = row.function(logits, target, reduction=reduction, **numbers)
        assert torch.equal(value, torch.zeros_like(value))
        assert torch.equal(grad_of(value, logits), torch.zeros_like(logits))


@every_row
def test_zero_weight_of_all_rows_gives_zero(row, numbers):
    logits, target = batch((3, 4), dtype=torch.float32)
    value = row.function(logits, target, weight=torch.zeros(4), **numbers)
    assert value.item() == 0
    assert torch.equal(grad_of(value, logits), torch.zeros_like(logits))


@every_case()
def test_masked_class_is_absent(row, numbers):
    for size in ((6, 4), (6000 if row.curve or row.blocks else 60, 4)):
        logits, target = batch(size, dtype=torch.float32)
        masked = torch.cat([logits.detach(), torch.full((size[0], 1), -float("inf"))], 1)
        masked.requires_grad_()
        plain = row.function(logits, target, **numbers)
        value = row.function(masked, target, **numbers)
        torch.testing.assert_close(value, plain, rtol=1e-6, atol=1e-9)
        grad = grad_of(value, masked)
        assert torch.equal(grad[:, 4], torch.zeros(size[0]))
        torch.testing.assert_close(grad[:, :4], grad_of(plain, logits), rtol=1e-5, atol=1e-9)
        if row.soft:
            soft = F.one_hot(target, 5).float()
            value = row.function(masked, soft, **numbers)
            torch.testing.assert_close(value, plain, rtol=1e-6, atol=1e-9)
            assert grad_of(value, masked).isfinite().all()


@every_case()
def test_one_class_gives_zero(row, numbers):
    for logits in (torch.zeros(3, 1), torch.full((1,), 7.0), torch.zeros(2, 1, 3)):
        logits.requires_grad_()
        labels = logits.shape[:1] + logits.shape[2:] if logits.ndim > 1 else ()
        value = row.function(logits, torch.zeros(labels, dtype=torch.int64), **numbers)
        assert value.item() == 0
        assert torch.equal(grad_of(value, logits), torch.zeros_like(logits))


@every_loss
def test_bad_label_names_row_and_value(row):
    logits, target = batch((40, 3))
    target[20] = 7
    with pytest.raises(ValueError, match=r"target must lie in \[0, 3\).*got 7 at row 20"):
        row.function(logits, target)
    if not row.logits:
        return
    grid, labels = batch((2, 3, 4))
    labels[1, 2] = -1
    with pytest.raises(ValueError, match=r"got -1 at row \(1, 2\)"):
        row.function(grid, labels)


@every_loss
def test_bad_label_inside_a_transform_makes_its_row_nan(row):
    logits, target = batch((4, 3))
    target[2] = 7
    values = torch.func.vmap(lambda z, t: row.function(z, t, reduction="none"))(
        logits[None], target[None]
    )
    assert values.isnan().tolist() == [[False, False, True, False]]


# ------------------------------------------------------------------------- dtypes and layouts


@every_row
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("blocks", [0, 1, -1], ids=["small", "blocks", "many classes"])
def test_half_precision_is_computed_in_float32(row, numbers, dtype, blocks):
    logits, target = batch(sizes(row)[blocks], dtype=dtype)
    single = logits.detach().float().requires_grad_()
    half = row.function(logits, target, **numbers)
    full = row.function(single, target, **numbers)
    assert half.dtype == dtype
    torch.testing.assert_close(half, full.to(dtype), rtol=0, atol=0)
    rows = row.function(logits, target, reduction="none", **numbers)
    rows_full = row.function(single, target, reduction="none", **numbers)
    torch.testing.assert_close(rows, rows_full.to(dtype), rtol=0, atol=0)
    seed = torch.ones_like(rows)
    grad = torch.autograd.grad(rows, logits, seed)[0]
    grad_full = torch.autograd.grad(rows_full, single, seed.float())[0]
    assert grad.dtype == dtype
    torch.testing.assert_close(grad, grad_full.to(dtype), rtol=1e-2, atol=1e-7)


@every_loss
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.uint16])
def test_labels_of_any_integer_dtype(row, dtype):
    logits, target = batch((6, 5))
    assert torch.equal(row.function(logits, target.to(dtype)), row.function(logits, target))


@every_row
def test_strides_expanded_inputs_and_upstream_gradients(row, numbers):
    for size in sizes(row):
        logits, target = batch(size)
        plain = row.function(logits, target, reduction="none", **numbers)
        seed = torch.linspace(-1, 2, size[0], dtype=torch.float64)
        expected = torch.autograd.grad(plain, logits, seed)[0]
        turned = logits.detach().T.contiguous().T.requires_grad_()
        value = row.function(turned, target.repeat_interleave(2)[::2], reduction="none", **numbers)
        torch.testing.assert_close(value, plain, rtol=1e-12, atol=1e-14)
        grad = torch.autograd.grad(value, turned, seed)[0]
        torch.testing.assert_close(grad, expected, rtol=1e-10, atol=1e-13)
        one = logits.detach()[:1].requires_grad_()
        spread = one.expand(size)
        value = row.function(spread, target[:1].expand(size[0]), reduction="none", **numbers)
        grad = torch.autograd.grad(value, one, torch.tensor(2.0).double().expand(size[0]))[0]
        single = row.function(one, target[:1], reduction="sum", **numbers)
        expected = torch.autograd.grad(single, one)[0] * 2 * size[0]
        torch.testing.assert_close(grad, expected, rtol=1e-9, atol=1e-12)


@every_row
def test_inputs_are_never_modified(row, numbers):
    for size in sizes(row):
        logits, target = batch(size, dtype=torch.float32)
        target[3] = -100
        weight = torch.linspace(0.5, 2, size[1])
        before = [t.detach().clone() for t in (logits, target, weight)]
        versions = [t._version for t in (logits, target, weight)]
        loss = row.function(logits, target, weight=weight, **numbers)
        loss.backward(retain_graph=True)
        first = logits.grad.clone()
        logits.grad = None
        loss.backward()
        assert torch.equal(first, logits.grad)
        for tensor, copy, version in zip((logits, target, weight), before, versions, strict=True):
            assert torch.equal(tensor, copy)
            assert tensor._version == version


@every_loss
def test_same_bits_twice_and_the_global_rng_untouched(row):
    logits, target = batch((900, 60), dtype=torch.float32)
    state = torch.get_rng_state()
    first, second = row.function(logits, target), row.function(logits, target)
    assert torch.equal(first, second)
    assert torch.equal(grad_of(first, logits), grad_of(second, logits))
    assert torch.equal(state, torch.get_rng_state())


# ------------------------------------------------------------------------------------ modules


@every_module
def test_module_equals_function(row, numbers):
    logits, target = batch((6, 5), dtype=torch.float32)
    weight = torch.linspace(0.5, 2, 5)
    options = {"weight": weight, "ignore_index": 2, "reduction": "sum", **numbers}
    if row.soft:
        options["label_smoothing"] = 0.1
    module = row.module(**options)
    assert torch.equal(module(logits, target), row.function(logits, target, **options))
    assert "weight" in module.state_dict()
    for name, value in numbers.items():
        assert getattr(module, name) == value
        assert f"{name}={value!r}" in repr(module)


@every_module
def test_module_has_the_functions_arguments(row, numbers):
    function = list(inspect.signature(row.function).parameters.values())[2:]
    assert list(inspect.signature(row.module).parameters.values()) == function
    for tool in (row.module.__init__, row.module):  # configurators look here, help() there
        assert "label_smoothing" in inspect.signature(tool).parameters
