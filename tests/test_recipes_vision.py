"""What recipes with pictures share: sets, changes of pictures, losses, schedules, pairs."""

import math
import tempfile

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from uci_files import write_cifar, write_digits, write_imagenet

from expacc.recipes.exact import vision as exact_vision
from expacc.recipes.mixing import dynamics, escape, imagenet, imagenet_rank
from expacc.recipes.recipe import RecipeOptions
from expacc.recipes.vision import change, policy, sets, train


def pictures(rows=6, channels=3, size=32, seed=0):
    draw = torch.Generator().manual_seed(seed)
    levels = torch.randint(256, (rows, channels, size, size), generator=draw)
    return (levels // 3 + 20).float() / 255  # neither black nor white


def by_pillow(batch, edit):
    """The same done by Pillow, picture by picture."""
    found = []
    for picture in batch:
        image = Image.fromarray((picture * 255).round().byte().permute(1, 2, 0).numpy())
        found.append(torch.tensor(np.asarray(edit(image))).permute(2, 0, 1))
    return torch.stack(found).float() / 255


@pytest.mark.parametrize(
    ("operation", "edit"),
    [
        ("Equalize", ImageOps.equalize),
        ("AutoContrast", ImageOps.autocontrast),
        ("Invert", ImageOps.invert),
        ("Solarize", lambda image: ImageOps.solarize(image, math.ceil(255 * (1 - 5 / 9)))),
        ("Posterize", lambda image: ImageOps.posterize(image, 8 - round(5 / 9 * 4))),
        ("Brightness", lambda image: ImageEnhance.Brightness(image).enhance(1.5)),
        ("Color", lambda image: ImageEnhance.Color(image).enhance(1.5)),
        ("Contrast", lambda image: ImageEnhance.Contrast(image).enhance(1.5)),
        ("Sharpness", lambda image: ImageEnhance.Sharpness(image).enhance(1.5)),
        ("TranslateX", lambda i: i.transform(i.size, Image.AFFINE, (1, 0, 8, 0, 1, 0))),
        ("TranslateY", lambda i: i.transform(i.size, Image.AFFINE, (1, 0, 0, 0, 1, 8))),
        ("ShearY", lambda i: i.transform(i.size, Image.AFFINE, (1, 0, 0, 1 / 6, 1, 0))),
    ],
)
def test_operations_are_pillows(operation, edit):
    batch = pictures()
    found = policy._OPERATIONS[operation](batch, torch.full((6,), 5 / 9))
    far = (found - by_pillow(batch, edit)).abs() * 255
    assert (far > 1.6).float().mean() < (0.05 if operation == "ShearY" else 1e-6)


def test_a_turn_is_pillows():
    batch = pictures(size=16)
    turned = policy._OPERATIONS["Rotate"](batch, torch.full((6,), 0.5))
    both = [by_pillow(batch, lambda image, by=by: image.rotate(by)) for by in (15, -15)]
    assert min((turned - other).abs().mean() for other in both) < 0.01


def test_the_policy_has_25_pairs_and_changes_nothing_outside_0_to_1():
    assert np.shape(policy.PAIRS) == (25, 2, 3)
    draw = torch.Generator().manual_seed(1)
    found = policy.policy(pictures(200), draw)
    assert found.shape == (200, 3, 32, 32)
    assert 0 <= found.min() <= found.max() <= 1
    assert 0.6 < (found != pictures(200)).flatten(1).any(1).float().mean() < 1


@pytest.mark.parametrize("name", change.CHANGES)
@pytest.mark.parametrize("channels", [1, 3])
def test_changes_keep_shape_and_range_and_follow_their_generator(name, channels):
    batch = pictures(40, channels)
    first, again, other = (
        change.change(batch, [name], torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.shape == batch.shape
    assert 0 <= first.min() <= first.max() <= 1 + 1e-6


def test_a_crop_moves_whole_pictures_by_four_pixels_at_most():
    batch = torch.zeros(64, 1, 16, 16)
    batch[:, :, 8, 8] = 1
    found = change.crop(batch, torch.Generator().manual_seed(0)).flatten(1).argmax(1)
    assert {*(found // 16).tolist()} == {*(found % 16).tolist()} == set(range(4, 13))


def test_sets_that_are_there_and_sentences_for_others(tmp_path):
    write_cifar(tmp_path / "cifar-10-batches-bin")
    write_digits(tmp_path / "mnist")
    found, missing = sets.read_sets(tmp_path, ["mnist", "cifar-10", "svhn"])
    assert found["mnist"].images.shape == (400, 1, 32, 32)  # of 4 × 4 pixels
    assert found["cifar-10"].images.shape == (100, 3, 32, 32)
    (sentence,) = missing
    assert sentence.startswith("svhn is missing")
    shared = sets.pack("mnist", found["mnist"])
    ask = {"table": "mnist", "folds": ["3", "10"], "rows": 50, "test_rows": 9, "seed": 0}
    (data,) = sets.open_set(ask, shared, ["a"])
    assert data.rows.features.shape == (50, 1, 32, 32)
    for fold in ("3", "10"):
        both = torch.cat([data.train[fold], data.held[fold]])
        assert sorted(both.tolist()) == list(range(50))
        assert len(data.test[fold]) == 9
    assert not {*data.held["3"].tolist()} & {*data.held["10"].tolist()}


def test_mean_and_deviation_of_bytes():
    shown = torch.randint(256, (9, 2, 5, 5), dtype=torch.uint8)
    shown[:, 1] = 7
    mean, deviation = train.scale_of(shown)
    unit = shown.double() / 255
    assert torch.allclose(mean.double(), unit.mean((0, 2, 3)))
    assert torch.allclose(deviation[0].double(), unit[:, 0].std(correction=0))
    assert deviation[1] == 1


def test_epochs_see_every_row_once_in_orders_of_their_own():
    shown = torch.arange(10, dtype=torch.uint8).view(10, 1, 1, 1)
    scale = torch.zeros(1), torch.ones(1)
    loader = train.Pictures(shown, torch.arange(10), batch=4, changes=(), scale=scale)
    seen = []
    for epoch in (0, 1, 0):
        batches = [*loader.batches(epoch, seed=3)]
        assert [len(target) for _, target in batches] == [4, 4]
        seen.append(torch.cat([target for _, target in batches]).tolist())
        for inputs, target in batches:
            assert torch.equal((inputs.flatten() * 255).round().long(), target)
        ((_, last),) = loader.batches(epoch, seed=3, skip=1)
        assert torch.equal(last, batches[1][1])
    assert seen[0] == seen[2] != seen[1]
    assert len({*seen[0]}) == 8


def test_learning_rates_fall_as_the_papers_say():
    ask = {"epochs": 5, "rate_end": 1e-4}
    rates = [0.5 * train.falling(ask, 0.5)(epoch) for epoch in range(5)]
    assert rates[0] == 0.5
    assert rates[-1] == pytest.approx(1e-4)
    assert rates[2] == pytest.approx((0.5 * 1e-4) ** 0.5)
    ask = {"epochs": 240, "rate_falls": [1 / 2, 2 / 3, 5 / 6]}
    factor = train.falling(ask, 0.1)
    assert [factor(e) for e in (119, 120, 159, 160, 199, 200)] == pytest.approx(
        [1, 0.1, 0.1, 0.01, 0.01, 0.001]
    )


def test_losses_follow_their_schedules():
    loss = train.loss_of({"name": "exact", "margin": 0.5, "sigma": [10.0, 1.0]}, 10)
    loss.step(0.55)
    assert loss.sigma == pytest.approx(10 ** (1 - 5 / 10))
    assert loss.margin == 0.5
    loss = train.loss_of({"name": "mixed_expected_error", "focus": "0,0.5"}, 10)
    loss.step(0.96)
    assert loss.focus == 0.5


def test_the_authors_sampler_comes_close_to_exact():
    logits = torch.randn(64, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    target = torch.arange(64) % 5
    found = []
    for about in ({}, {"samples": 4000}):
        loss = train.loss_of({"name": "exact", "margin": 5.0, "sigma": [2.0, 1.0], **about}, 3)
        value = loss(logits, target)
        found.append((value.detach(), *torch.autograd.grad(value, logits)))
    (value, slope), (sampled, estimate) = found
    assert abs(value - sampled) < 2e-3
    assert (slope - estimate).norm() < 0.05 * slope.norm()


def test_runs_of_a_seed_begin_with_the_same_weights(tmp_path, monkeypatch):
    write_digits(tmp_path / "mnist", 30, 10)
    tiny = {"network": {"mnist": "resnet20"}, "rows": 20, "test_rows": 10}
    monkeypatch.setitem(
        exact_vision.PROTOCOLS, "quick", {**exact_vision.PROTOCOLS["quick"], **tiny}
    )
    monkeypatch.setattr(exact_vision, "OPTIMIZERS", {"sgd": "SGD", "adam": "Adam"})
    work = exact_vision.plan(RecipeOptions(data=tmp_path, quick=True, seeds=2))
    begun = {}

    def begin(network, loaders, loss, **how):
        first = next(iter(loaders))
        weights = torch.cat([weight.flatten() for weight in network.parameters()])
        begun[item.payload["optimizer"], type(loss).__name__, item.key[-1]] = weights, *first
        raise FloatingPointError("that is enough")

    monkeypatch.setattr(train, "fit", begin)
    for item in work.items:
        (data,) = train.open_set(item.payload, work.shared, ["one"])
        places = train.Place(
            "all", *item.payload["settings"], item.payload["seeds"][0], 0,
            next(iter(item.payload["settings"].values()))[0],
        )  # fmt: skip
        (outcome,) = train._train(item.payload, data, [places], False)
        assert "that is enough" in outcome.failure
    assert len(begun) == 12
    for seed in "01":
        same = [value for key, value in begun.items() if key[2] == seed]
        for one in same:
            assert all(torch.equal(a, b) for a, b in zip(one, same[0], strict=True))
    assert not torch.equal(begun["sgd", "HingeLoss", "0"][0], begun["sgd", "HingeLoss", "1"][0])


def test_settings_are_those_of_table_7():
    assert exact_vision.setting("exact", "cifar-10", "asam") == {
        **{"learning_rate": 1.0, "margin": 0.5, "normalizer": 1.0}
    }
    assert exact_vision.setting("hinge", "svhn", "sgd") == {
        **{"learning_rate": 0.5, "clip": 0.1, "margin": 10.0}
    }
    assert exact_vision.setting("cross_entropy", "mnist", "adam") == {
        **{"learning_rate": 0.001, "clip": 10.0}
    }


def test_the_time_of_a_plan_is_its_operations(tmp_path):
    train.flops.cache_clear()  # others' tiny networks
    assert train.flops("resnet20", 10, 3, 32) == pytest.approx(6 * 40.8e6, rel=0.02)
    write_digits(tmp_path / "mnist")
    plans = [
        exact_vision.plan(RecipeOptions(data=tmp_path, device=device, short=short, seeds=seeds))
        for device, short, seeds in (("cuda", False, None), ("cuda", True, None), ("cpu", True, 3))
    ]
    assert [len(one.items) for one in plans] == [45, 27, 27]
    full, short, here = (one.minutes for one in plans)
    assert full / short == pytest.approx(45 * 150 / (27 * 10), rel=0.01)
    assert here > short


def test_traces_of_curvature_and_noise_are_those_of_whole_matrices():
    """A network of 21 weights, whose Hessian and covariance are computed row by row."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 3))
    network = network.double()
    inputs, labels = torch.randn(12, 2).double(), torch.arange(12) % 3
    rows = [(inputs[:5], labels[:5]), (inputs[5:], labels[5:])]
    names = [name for name, _ in network.named_parameters()]
    start = torch.nn.utils.parameters_to_vector(network.parameters()).detach()
    sizes = [weight.numel() for weight in network.parameters()]

    def value(flat, row, of):
        shapes = [weight.shape for weight in network.parameters()]
        parts = [p.view(s) for p, s in zip(flat.split(sizes), shapes, strict=True)]
        state = dict(zip(names, parts, strict=True))
        logits = torch.func.functional_call(network, state, (inputs[row : row + 1],)).float()
        return of(logits.log_softmax(1)[0, labels[row]])

    def matrices(of):
        slopes, bent = [], torch.zeros(len(start), len(start)).double()
        for row in range(12):
            slopes.append(torch.func.grad(value)(start, row, of))
            bent += torch.func.hessian(value)(start, row, of).detach() / 12
        return torch.stack(slopes).detach(), bent

    for of in (escape.mixture(1, 0), escape.mixture(1, 2), escape.mixture(0, 1)):
        slopes, bent = matrices(of)
        spread = slopes - slopes.mean(0)
        exact = torch.trace(bent @ spread.T @ spread / 12)
        draw = torch.Generator().manual_seed(1)
        found = torch.tensor(escape.noise_trace(network, rows, of, probes=100, draw=draw))
        assert abs(found.mean() - exact) < 4 * found.std() / 10 + 1e-6
    slopes, bent = matrices(escape.chance)
    second = slopes.T @ slopes / 12
    draw = torch.Generator().manual_seed(1)
    found = torch.tensor(escape.square_trace(network, rows, probes=100, draw=draw))
    assert abs(found.mean() - (second @ second).trace()) < 4 * found.std() / 10 + 1e-8
    of = {"of_noise": escape.chance, "centred": False}
    raw = escape.noise_trace(network, rows, lambda u: -u.exp(), probes=100, draw=draw, **of)
    found = torch.tensor(raw)
    assert abs(found.mean() - torch.trace(-bent @ second)) < 4 * found.std() / 10 + 1e-8


def test_pictures_are_parted_by_p_of_the_label():
    chances = torch.tensor([0.9, 0.3, -0.4, -0.2, -0.19, -0.01])
    found = {name: rows.tolist() for name, rows in dynamics.groups_of(chances).items()}
    assert found["right"] == [True, True, False, False, False, False]
    assert found["near"] == [False, False, True, True, False, False]
    assert found["far"] == [False, False, False, False, True, True]


def imagenet_item(tmp_path, monkeypatch, **more):
    write_imagenet(tmp_path / "imagenet")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where checkpoints are
    one = {**imagenet.PROTOCOLS["quick"], "size": 32, "networks": ["shufflenet_v2-large"], **more}
    monkeypatch.setitem(imagenet.PROTOCOLS, "quick", one)
    return imagenet.plan(RecipeOptions(data=tmp_path, quick=True)).items[-1]


def test_pictures_of_folders_are_cropped_and_scaled(tmp_path):
    write_imagenet(tmp_path)
    files = imagenet_rank.pictures_of(tmp_path / "train")
    assert [number for _, number in files] == [0] * 6 + [1] * 6 + [2] * 6
    assert {n for _, n in imagenet_rank.pictures_of(tmp_path / "train", 6)} == {0, 1, 2}
    whole = imagenet_rank.Pictures(files, 24, training=False)
    shown, label = whole[14]
    assert (shown.shape, label) == ((3, 24, 24), 2)
    assert shown.mean((1, 2)).argmax() == 2  # the third class is blue
    deviation = torch.tensor(imagenet_rank._DEVIATION).view(3, 1, 1)
    byte = (whole[1][0] * deviation + torch.tensor(imagenet_rank._MEAN).view(3, 1, 1)) * 255
    assert torch.allclose(byte, byte.round(), atol=1e-3)
    assert torch.allclose(byte[0], byte[1], atol=1e-3)  # a grey one
    random = imagenet_rank.Pictures(files, 24, training=True)
    torch.manual_seed(0)
    first, second = random[0][0], random[0][0]
    torch.manual_seed(0)
    assert torch.equal(random[0][0], first)
    assert not torch.equal(first, second)
    for _ in range(200):
        left, top, right, bottom = random._random_box(50, 30)
        assert 0 <= left < right <= 50 + 1e-9
        assert 0 <= top < bottom <= 30 + 1e-9
    assert imagenet_rank.Pictures(files, 24, training=True)._random_box(900, 1) is not None


def test_a_picture_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    item = imagenet_item(tmp_path, monkeypatch)
    path = tmp_path / "imagenet" / "train" / "bee" / "2.jpg"
    path.write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"bee/2\.jpg must be a picture; it cannot be read"):
        imagenet.execute(item, {})


def test_parts_with_other_classes_get_a_sentence(tmp_path, monkeypatch):
    write_imagenet(tmp_path / "imagenet")
    for path in (tmp_path / "imagenet" / "val" / "cat").iterdir():
        path.unlink()
    with pytest.raises(ValueError, match="got 3 and 2 folders with pictures"):
        imagenet.plan(RecipeOptions(data=tmp_path, quick=True))


@pytest.mark.slow
def test_two_ranks_train_one_network(tmp_path, monkeypatch):
    item = imagenet_item(tmp_path, monkeypatch, epochs=2)
    monkeypatch.setattr(imagenet, "ranks_of", lambda device: 2)
    (row,) = imagenet.execute(item, {})
    assert row.failure is None
    assert len(row.curves["train_accuracy"]) == 2
    assert round(row.metrics["accuracy"] * 18) == pytest.approx(row.metrics["accuracy"] * 18)
    (tmp_path / "imagenet" / "train" / "bee" / "2.jpg").write_bytes(b"no picture")
    with pytest.raises(RuntimeError, match=r"bee/2\.jpg must be a picture"):
        imagenet.execute(item, {})
