"""Early-learning regularisation: its definition, its memory, its place in a state_dict."""

import copy

import pytest
import torch
import torch.nn.functional as F

import expacc
from expacc import EarlyLearningRegularization

GENERATOR = torch.Generator().manual_seed(0)
LOGITS = torch.randn(3, 6, 4, generator=GENERATOR, dtype=torch.float64) * 3  # three epochs
TARGET = torch.randint(0, 4, (6,), generator=GENERATOR)
INDEX = torch.tensor([7, 0, 3, 9, 1, 5])


def by_hand(memory, logits, momentum, strength):
    """The papers' formulas, row by row; ``memory`` is changed."""
    total = 0.0
    for row, label, place in zip(logits, TARGET.tolist(), INDEX.tolist(), strict=True):
        p = torch.exp(row) / torch.exp(row).sum()
        within = p.detach().clamp(1e-4, 1 - 1e-4)
        memory[place] = momentum * memory[place] + (1 - momentum) * within / within.sum()
        total = total - p[label].log() + strength * torch.log(1 - (memory[place].clone() * p).sum())
    return total / len(logits)


@pytest.mark.parametrize(
    ("classes", "numbers"), [(4, (0.7, 3.0)), (4, (0.5, 1.0)), (100, (0.9, 7.0))]
)
def test_equals_its_definition_over_epochs(classes, numbers):
    given = () if numbers != (0.5, 1.0) else numbers
    loss = EarlyLearningRegularization(10, classes, *given).double()
    assert (loss.momentum, loss.strength) == numbers
    memory = torch.zeros(10, classes, dtype=torch.float64)
    for logits in LOGITS:
        wide = F.pad(logits, (0, classes - 4), value=-1.0).requires_grad_()
        value = loss(wide, TARGET, INDEX)
        expected = by_hand(memory, wide, *numbers)
        torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(loss.targets, memory, rtol=1e-12, atol=1e-14)
        grads = [torch.autograd.grad(one, wide, retain_graph=True)[0] for one in (value, expected)]
        torch.testing.assert_close(*grads, rtol=1e-8, atol=1e-12)


def test_memory_is_kept_changed_in_training_only_and_resumed():
    loss = EarlyLearningRegularization(10, 4)
    loss(LOGITS[0].float(), TARGET, INDEX)
    before = loss.targets.clone()
    assert (before[INDEX].sum(1) > 0).all()
    assert before.count_nonzero() == 24  # six rows of four
    loss.eval()
    loss(LOGITS[1].float(), TARGET, INDEX)
    assert torch.equal(loss.targets, before)
    other = EarlyLearningRegularization(10, 4)
    other.load_state_dict(loss.state_dict())
    loss.train()
    values = [one(LOGITS[1].float(), TARGET, INDEX) for one in (loss, other, copy.deepcopy(other))]
    assert values[0] == values[1]
    assert torch.equal(loss.targets, other.targets)
    assert loss.to("meta").targets.device.type == "meta"


def test_ignored_rows_and_another_loss():
    loss = EarlyLearningRegularization(10, 4, strength=0.0, loss=expacc.ExpectedErrorLoss())
    expected = expacc.functional.expected_error(LOGITS[0], TARGET)
    torch.testing.assert_close(loss(LOGITS[0], TARGET, INDEX), expected)
    spoiled, target = LOGITS[0].clone(), TARGET.clone()
    spoiled[2], target[2] = torch.nan, -100
    some = [0, 1, 3, 4, 5]
    first, second = (EarlyLearningRegularization(10, 4).double() for _ in range(2))
    torch.testing.assert_close(
        first(spoiled, target, INDEX), second(LOGITS[0][some], TARGET[some], INDEX[some])
    )
    assert torch.equal(first.targets, second.targets)
    assert first(spoiled, torch.full((6,), -100), INDEX) == 0


def test_sure_rows_have_finite_values_and_gradients():
    loss = EarlyLearningRegularization(4, 3)
    logits = torch.tensor([[1e4, 0.0, 0.0], [0.0, -torch.inf, 50.0]], requires_grad=True)
    for _ in range(100):
        value = loss(logits, torch.tensor([0, 2]), torch.tensor([0, 1]))
    assert value.isfinite()
    assert torch.autograd.grad(value, logits)[0].isfinite().all()


def test_it_outweighs_a_label_that_the_memory_denies():
    loss = EarlyLearningRegularization(1, 2)
    sure, label, row = torch.tensor([[5.0, 0.0]]), torch.tensor([1]), torch.tensor([0])
    for _ in range(20):
        loss(sure, label, row)
    leaf = torch.tensor([[2.0, 0.0]], requires_grad=True)
    (grad,) = torch.autograd.grad(loss(leaf, label, row), leaf)
    (alone,) = torch.autograd.grad(F.cross_entropy(leaf, label), leaf)
    assert alone[0, 0] > 0  # towards the label
    assert grad[0, 0] < 0  # away from it


@pytest.mark.parametrize(
    ("arguments", "error", "piece"),
    [
        ({"index": INDEX + 1}, ValueError, r"index must lie in \[0, 10\).*; got 10 at row 3"),
        ({"index": INDEX - 1}, ValueError, "got -1 at row 1"),
        ({"index": INDEX[:3]}, ValueError, r"index must have shape \(6,\)"),
        ({"index": INDEX.double()}, TypeError, "index must be a tensor of integers"),
        ({"logits": LOGITS[0][:, :3]}, ValueError, r"logits must have shape \(N, 4\)"),
        ({"target": LOGITS[0]}, TypeError, "target must be a tensor of integers"),
    ],
)
def test_bad_calls_are_refused(arguments, error, piece):
    loss = EarlyLearningRegularization(10, 4)
    with pytest.raises(error, match=piece):
        loss(**{"logits": LOGITS[0], "target": TARGET, "index": INDEX, **arguments})
    assert not loss.targets.any()


def test_bad_numbers_are_refused():
    for arguments, piece in (
        ({"momentum": 1.0}, r"momentum must lie in \[0, 1\); got 1\.0"),
        ({"strength": -1.0}, "strength must be finite and >= 0"),
        ({"num_rows": 0}, "num_rows must be >= 1"),
        ({"num_classes": 1}, "num_classes must be >= 2"),
    ):
        with pytest.raises(ValueError, match=piece):
            EarlyLearningRegularization(**{"num_rows": 10, "num_classes": 4, **arguments})


def test_an_overflow_is_not_remembered():
    loss = EarlyLearningRegularization(num_rows=3, num_classes=3)
    logits = torch.tensor([[0.0, 1.0, 2.0], [0.0, float("inf"), 0.0], [float("nan"), 0.0, 0.0]])
    target, index = torch.zeros(3, dtype=torch.int64), torch.arange(3)
    assert loss(logits, target, index).isnan()
    assert loss.targets[0].sum() > 0
    assert torch.equal(loss.targets[1:], torch.zeros(2, 3))
    assert loss(torch.zeros(3, 3), target, index).isfinite()


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
def test_labels_of_any_integer_dtype(dtype):
    logits, target, index = torch.eye(3), torch.tensor([0, 2, 55]), torch.arange(3)
    values = [
        EarlyLearningRegularization(3, 3, ignore_index=55)(logits, labels, index.to(torch.int32))
        for labels in (target, target.to(dtype))
    ]
    assert torch.equal(*values)
    with pytest.raises(ValueError, match=r"target must lie in \[0, 3\).*got 55 at row 2"):
        EarlyLearningRegularization(3, 3)(logits, target, index)
