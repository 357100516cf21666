"""The laws of losses of a whole batch, run over ``BATCH`` of ``losses.py``, and of their matrix."""

import inspect
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from losses import BATCH, every_setting
from operations import WHERE, both, holds

import expacc
from expacc import argmax_probabilities, expected_confusion
from expacc.functional import expected_balanced_error, expected_error, expected_f1_error
from expacc.ops.orthant.noise import NOISES

NAN, INF = math.nan, math.inf
every_case = every_setting(BATCH)


def batch(shape=(30, 4), dtype=torch.float64, seed=0, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(shape, generator=generator, dtype=torch.float64) * scale
    labels = shape[:1] + shape[2:] if len(shape) > 1 else ()
    target = torch.randint(0, shape[min(1, len(shape) - 1)], labels, generator=generator)
    return logits.to(dtype).requires_grad_(), target


def grad_of(value, leaf):
    return torch.autograd.grad(value, leaf, retain_graph=True)[0]


# --------------------------------------------------------------------------------- the matrix


@pytest.mark.parametrize("noise", NOISES)
def test_matrix_is_what_drawing_gives(noise):
    logits, target = batch((12, 3))
    draws = 40_000
    law = {
        "normal": lambda g: torch.randn(g),
        "gumbel": lambda g: -torch.empty(g).exponential_().log(),
        "logistic": lambda g: torch.rand(g, dtype=torch.float64).logit(),
        "laplace": lambda g: torch.distributions.Laplace(0.0, 1.0).sample(g),
    }[noise]
    torch.manual_seed(1)
    winners = (logits.detach() + 1.5 * law((draws, 12, 3))).argmax(-1)
    counts = torch.zeros(3, 3, dtype=torch.float64)
    for row, label in enumerate(target.tolist()):
        counts[label] += winners[:, row].bincount(minlength=3) / draws
    found = expected_confusion(logits, target, sigma=1.5, noise=noise)
    spread = 5 * math.sqrt(12 / 4 / draws)  # five deviations of a sum of twelve
    assert (found - counts).abs().max() < spread
    for row, numbers in ((BATCH[0], {}), (BATCH[1], {}), (BATCH[1], {"average": "micro"})):
        value = row.function(logits, target, sigma=1.5, noise=noise, **numbers)
        drawn = row.numpy(counts.numpy(), np.ones(3), **numbers)
        assert value.item() == pytest.approx(drawn, abs=spread)


@pytest.mark.parametrize("shape", [(5,), (9, 4), (3, 4, 5), (0, 3)], ids=str)
def test_matrix_counts_rows(shape):
    logits, target = batch(shape)
    matrix = expected_confusion(logits, target)
    classes = matrix.shape[0]
    counts = target.reshape(-1).bincount(minlength=classes).double()
    torch.testing.assert_close(matrix.sum(1), counts)
    flat = logits.movedim(min(1, len(shape) - 1), -1).reshape(-1, classes)
    chances = argmax_probabilities(flat, noise="gumbel")
    torch.testing.assert_close(matrix.sum(0), chances.sum(0))
    one_hot = F.one_hot(target.reshape(-1), classes).double()
    torch.testing.assert_close(matrix, one_hot.T @ chances)
    mixed = expected_confusion(flat, one_hot)
    torch.testing.assert_close(mixed, matrix)
    assert expected_confusion(logits.half(), target).dtype == torch.float32


# --------------------------------------------------------------------------------- the losses


@every_case
def test_equals_its_numpy_transcription(row, numbers):
    for shape in ((30, 4), (4, 5), (6, 4, 5)):  # in the second, classes are absent
        logits, target = batch(shape)
        weight = torch.linspace(0.5, 2, shape[1]).double()
        matrix = expected_confusion(logits, target).detach().numpy()
        for given in (None, weight):
            value = row.function(logits, target, given, **numbers)
            own = np.ones(shape[1]) if given is None else weight.numpy()
            assert value.item() == pytest.approx(row.numpy(matrix, own, **numbers), rel=1e-12)


def test_what_they_are_where_all_classes_are_alike():
    logits, _ = batch((20, 4))
    target = torch.arange(20) % 4
    mean = expected_error(logits, target)
    torch.testing.assert_close(expected_balanced_error(logits, target), mean)
    torch.testing.assert_close(expected_f1_error(logits, target, average="micro"), mean)


def test_digits_of_small_errors_are_kept():
    logits = torch.tensor([[60.0, 0.0], [0.0, 70.0]])
    target = torch.tensor([0, 1])
    true = (math.exp(-60) + math.exp(-70)) / 2
    for row in BATCH:
        leaf = logits.clone().requires_grad_()
        value = row.function(leaf, target)
        assert value.item() == pytest.approx(true, rel=1e-5)
        assert grad_of(value, leaf)[0, 0].item() == pytest.approx(-math.exp(-60) / 2, rel=1e-5)


def test_a_class_that_is_nowhere_has_no_say_in_the_gradient():
    logits = torch.tensor([[0.0, 9.0, -744.0], [4.0, 0.0, -744.0]], dtype=torch.float64)
    for row in BATCH:
        leaf = logits.clone().requires_grad_()
        pair = logits[:, :2].clone().requires_grad_()
        target = torch.tensor([0, 1])
        grad = grad_of(row.function(leaf, target), leaf)
        torch.testing.assert_close(grad[:, :2], grad_of(row.function(pair, target), pair))
        assert grad[:, 2].abs().max() < 1e-300


@every_case
@pytest.mark.parametrize("noise", NOISES)
def test_gradients(row, numbers, noise):
    logits, target = batch((5, 3))
    target[1] = -100
    options = {"weight": torch.tensor([0.5, 1.0, 0.0]).double(), "noise": noise, **numbers}

    def loss(z):
        return row.function(z, target, **options)

    assert torch.autograd.gradcheck(loss, logits, atol=1e-7, rtol=1e-6)
    mix = torch.rand(5, 3, dtype=torch.float64).softmax(1).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda z, t: row.function(z, t, noise=noise, **numbers), (logits, mix), atol=1e-7
    )
    if noise == "gumbel":
        assert torch.autograd.gradgradcheck(loss, logits)
    grad = grad_of(loss(logits), logits)
    assert grad.sum(1).abs().max() < 1e-10
    assert torch.equal(grad[1], torch.zeros(3, dtype=torch.float64))


@every_case
def test_shift_permutations_and_copies_change_nothing(row, numbers):
    logits, target = batch((12, 5))
    value = row.function(logits, target, **numbers)
    order = torch.tensor([3, 0, 4, 1, 2])
    rows = torch.randperm(12)
    for other in (
        row.function(logits + 3.25, target, **numbers),
        row.function(logits[:, order], order.argsort()[target], **numbers),
        row.function(logits[rows], target[rows], **numbers),
        row.function(logits.repeat(3, 1), target.repeat(3), **numbers),
        row.function(logits, F.one_hot(target, 5).double(), **numbers),
        row.function(logits.T.contiguous().T, target, **numbers),
        row.function(logits.T.reshape(5, 3, 4).movedim(0, 1), target.view(3, 4), **numbers),
    ):
        torch.testing.assert_close(other, value, rtol=1e-12, atol=1e-14)


@every_case
def test_ignored_rows_absent_and_masked_classes(row, numbers):
    logits, target = batch((9, 4), dtype=torch.float32)
    expected = row.function(logits, target, **numbers)
    for value in (NAN, INF, -INF):
        more = torch.cat([logits.detach(), torch.full((2, 4), value)]).requires_grad_()
        found = row.function(more, torch.cat([target, torch.tensor([-100, -100])]), **numbers)
        torch.testing.assert_close(found, expected)
        assert torch.equal(grad_of(found, more)[9:], torch.zeros(2, 4))
    masked = torch.cat([logits.detach(), torch.full((9, 1), -INF)], 1).requires_grad_()
    found = row.function(masked, target, **numbers)
    torch.testing.assert_close(found, expected)
    grad = grad_of(found, masked)
    assert torch.equal(grad[:, 4], torch.zeros(9))
    torch.testing.assert_close(grad[:, :4], grad_of(expected, logits))
    lost = row.function(torch.tensor([[-INF, 0.0], [1.0, 0.0]]), torch.tensor([0, 0]), **numbers)
    assert lost.isfinite()


@every_case
def test_no_rows_no_weight_and_one_class_give_zero(row, numbers):
    none, ignored = torch.zeros(0, dtype=torch.int64), torch.full((3,), -100)
    for logits, target, weight in (
        (torch.zeros(0, 4), none, None),
        (torch.full((3, 4), NAN), ignored, None),
        (torch.randn(3, 4), torch.arange(3), torch.zeros(4)),
        (torch.randn(3, 1), torch.zeros(3, dtype=torch.int64), None),
        (torch.randn(1), torch.tensor(0), None),
    ):
        leaf = logits.requires_grad_()
        value = row.function(leaf, target, weight, **numbers)
        assert value.item() == 0
        assert torch.equal(grad_of(value, leaf), torch.zeros_like(leaf))


@every_case
@pytest.mark.parametrize("noise", NOISES)
def test_one_unsound_row_leaves_no_number(row, numbers, noise):
    for value in (NAN, INF):
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            logits, target = batch((6, 3), dtype=dtype)
            spoiled = logits.detach().clone()
            spoiled[2, 1] = value
            leaf = spoiled.requires_grad_()
            found = row.function(leaf, target, noise=noise, **numbers)
            assert found.isnan()
            assert grad_of(found, leaf)[2].isnan().all()
    for size in (1e4, 1e15, 3e38):
        leaf = (torch.randn(6, 3).sign() * size).requires_grad_()
        found = row.function(leaf, target, noise=noise, **numbers)
        assert 0 <= found.item() <= 1
        assert grad_of(found, leaf).isfinite().all()


@every_case
@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_and_autocast(row, numbers, half):
    logits, target = batch(dtype=half)
    single = logits.detach().float().requires_grad_()
    value, full = (row.function(z, target, **numbers) for z in (logits, single))
    assert value.dtype == half
    assert torch.equal(value, full.to(half))
    close = {"rtol": 1e-2, "atol": 1e-7}
    torch.testing.assert_close(grad_of(value, logits), grad_of(full, single).to(half), **close)

    def loss(z):
        return row.function(z, target, **numbers)

    assert both(loss, logits.detach(), half, WHERE[0])[0].dtype == torch.float32
    holds(loss, single.detach(), half)


@every_case
def test_transforms(row, numbers):
    logits, target = batch((3, 8, 5))
    logits, target = logits.detach(), target % 5
    target = torch.randint(0, 5, (3, 8), generator=torch.Generator().manual_seed(0))
    target[0, 1] = -100

    def loss(z, t):
        return row.function(z, t, **numbers)

    expected = torch.stack([loss(z, t) for z, t in zip(logits, target, strict=True)])
    torch.testing.assert_close(torch.func.vmap(loss)(logits, target), expected)
    slopes = torch.func.vmap(torch.func.grad(loss))(logits, target)
    leaf = logits[0].clone().requires_grad_()
    torch.testing.assert_close(slopes[0], grad_of(loss(leaf, target[0]), leaf))
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(leaf, target[0]), expected[0])
    torch.testing.assert_close(grad_of(compiled(leaf, target[0]), leaf), slopes[0])
    bad = target.clone()
    bad[1, 2] = 9  # which nobody may read here
    assert torch.func.vmap(loss)(logits, bad).isnan().tolist() == [False, True, False]


@every_case
def test_inputs_are_never_modified(row, numbers):
    logits, target = batch((8, 4), dtype=torch.float32)
    target[2] = -100
    weight = torch.rand(4)
    before = [(t.detach().clone(), t._version) for t in (logits, target, weight)]
    row.function(logits, target, weight, **numbers).backward()
    for tensor, (copy, version) in zip((logits, target, weight), before, strict=True):
        assert torch.equal(tensor, copy)
        assert tensor._version == version


@every_case
def test_modules(row, numbers):
    logits, target = batch((6, 5), dtype=torch.float32)
    options = {"weight": torch.rand(5), "ignore_index": 2, "label_smoothing": 0.1, **numbers}
    module = row.module(**options)
    assert torch.equal(module(logits, target), row.function(logits, target, **options))
    assert "weight" in module.state_dict()
    assert "label_smoothing=0.1" in repr(module)
    function = list(inspect.signature(row.function).parameters.values())[2:]
    assert list(inspect.signature(row.module).parameters.values()) == function
    assert type(expacc.get_loss(row.name)) is row.module
    with pytest.raises(TypeError, match="reduction"):
        expacc.get_loss(row.name, reduction="none")


def test_bad_input_gets_a_sentence():
    logits, target = batch()
    for call, sentence in (
        (lambda: expected_confusion(logits, target, noise="none"), "noise must be"),
        (lambda: expected_confusion(logits, target + 1), r"target must lie in \[0, 4\).*got 4"),
        (lambda: expected_confusion(logits, target, sigma=0.0), "sigma must be finite and > 0"),
        (lambda: expected_balanced_error(logits, target, sigma=torch.ones(1, 4)), "sigma must be"),
        (lambda: expected_balanced_error(logits, target, -torch.ones(4)), "weight must be finite"),
        (lambda: expected_balanced_error(logits, target, torch.ones(3)), "weight must hold one"),
        (lambda: expected_f1_error(logits, target, average="weighted"), "average must be 'macro'"),
        (lambda: expected_f1_error(logits, target, label_smoothing=2.0), "label_smoothing must"),
    ):
        with pytest.raises(ValueError, match=sentence):
            call()
