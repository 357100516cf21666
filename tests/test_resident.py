"""Rows kept on the device, augmented there; what ``fit`` watches and gives back."""

import itertools
import re

import pytest
import torch
import torch.nn.functional as F

from expacc.training import Augment, ResidentData, fit


def pictures(rows=10, channels=3, side=6):
    generator = torch.Generator().manual_seed(0)
    size = (rows, channels, side, side)
    return torch.randint(256, size, dtype=torch.uint8, generator=generator)


def test_resident_rows_come_in_an_order_of_their_own():
    x, y = torch.arange(10.0).unsqueeze(1), torch.arange(10)
    data = ResidentData(x, y, batch_size=4, shuffle=True)
    first = [target.tolist() for _, target in data.batches(0, seed=1)]
    assert sorted(itertools.chain(*first)) == list(range(10))
    assert first == [target.tolist() for _, target in data.batches(0, seed=1)]
    assert first[1:] == [target.tolist() for _, target in data.batches(0, seed=1, skip=1)]
    assert first != [target.tolist() for _, target in data.batches(1, seed=1)]
    assert first != [target.tolist() for _, target in data.batches(0, seed=2)]
    for inputs, target in data:
        assert torch.equal(inputs.squeeze(1), target.float())
    assert [len(t) for _, t in ResidentData(x, y, batch_size=4, drop_last=True)] == [4, 4]
    assert len(ResidentData(x, y, batch_size=16, drop_last=True)) == 1


def test_pictures_are_moved_mirrored_and_blanked_where_they_are():
    x, y = pictures(), torch.arange(10)
    plain = torch.cat([b for b, _ in ResidentData(x, y, batch_size=4)])
    assert torch.allclose(plain, x.float() / 255)
    mean, deviation = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([1.0, 2.0, 4.0])
    scaled = next(iter(ResidentData(x, y, batch_size=10, mean=mean, deviation=deviation)))[0]
    expected = (plain - mean.view(3, 1, 1)) / deviation.view(3, 1, 1)
    assert torch.allclose(scaled, expected, atol=1e-6)

    flips = ResidentData(x, y, batch_size=10, augment=Augment(flip="alternating"))
    seen = [next(flips.batches(epoch, seed=3))[0] for epoch in range(3)]
    mirrored = [torch.equal(a, b) for a, b in zip(seen[0], plain, strict=True)]
    assert 0 < sum(mirrored) < 10
    assert torch.equal(seen[1], seen[0].flip(3))
    assert torch.equal(seen[2], seen[0])

    moved = next(ResidentData(x, y, batch_size=10, augment=Augment(crop=2)).batches(0, seed=0))[0]
    padded = torch.nn.functional.pad(plain, [2] * 4, mode="reflect")
    for row, found in enumerate(moved):
        windows = [padded[row, :, i : i + 6, j : j + 6] for i in range(5) for j in range(5)]
        assert sum(torch.allclose(found, window) for window in windows) >= 1

    cut = ResidentData(
        x, y, batch_size=10, augment=Augment(cutout=3), mean=mean, deviation=deviation
    )
    blank = next(cut.batches(0, seed=0))[0]
    changed = (blank != expected).any(1)
    assert (blank[(blank != expected)] == 0).all()
    assert 4 <= int(changed.sum((1, 2)).max()) <= 9


def test_fit_trains_on_resident_rows_as_on_a_list():
    x, y = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 2
    weights = []
    for loader in (
        ResidentData(x, y, batch_size=8),
        [(x[k : k + 8], y[k : k + 8]) for k in (0, 8, 16)],
    ):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        fit(model, loader, F.cross_entropy, optimizer=optimizer, epochs=2, progress=False)
        weights.append(model.weight.detach())
    assert torch.equal(*weights)


@pytest.mark.parametrize(
    ("given", "piece"),
    [
        ({"inputs": [1.0]}, "inputs and target must be tensors; got list and Tensor."),
        ({"target": torch.zeros(3)}, "equally many rows, at least one; got 10 and 3."),
        ({"inputs": torch.zeros(10, 2), "augment": Augment(1)}, "inputs must be pictures"),
        ({"augment": Augment(6)}, "crop must be less than a side of the pictures, 6; got 6."),
        ({"batch_size": 0}, "batch_size must be >= 1; got 0."),
    ],
)
def test_resident_rows_are_checked(given, piece):
    usual = {"inputs": pictures(), "target": torch.arange(10)}
    with pytest.raises((TypeError, ValueError), match=re.escape(piece)):
        ResidentData(**{**usual, **given})


def test_watched_rows_both_readings_and_a_function_that_is_told(tmp_path):
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    told = []
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    result = fit(
        model, (ResidentData(x, y, batch_size=10, shuffle=True), [(x, y)]), F.cross_entropy,
        optimizer=optimizer, epochs=3, weights="both",
        watch={"same": [(x, y)], "wrong": [(x, 1 - y)]}, progress=told.append,
        checkpoint=tmp_path, checkpoint_seconds=1000.0,
    )  # fmt: skip
    assert told == [(k + 1) / 12 for k in range(12)]
    for record in result.history:
        assert record.watched["same"] == record.validation_accuracy
        assert record.watched["wrong"] == pytest.approx(1 - record.validation_accuracy)
    best = torch.nn.Linear(3, 2)
    best.load_state_dict(result.best_weights)
    right = float((best(x).argmax(1) == y).float().mean())
    assert right == pytest.approx(result.history[result.best_epoch - 1].validation_accuracy)
    assert not list(tmp_path.iterdir())  # too young

    def stop(share):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(model, [(x, y)], F.cross_entropy, optimizer=optimizer, progress=stop)
