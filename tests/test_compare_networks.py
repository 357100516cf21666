"""Losses on a network of one's own: what is compared, resumed, refused, and shown."""

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import expacc
from expacc import compare_networks
from expacc.cli import main
from expacc.compare import networks, networks_reading, networks_work
from expacc.compare.networks_data import read_rows
from expacc.compare.networks_losses import make_loss
from expacc.compare.networks_noise import read_noise
from expacc.compare.standing import STOPPED_ACCURACY
from expacc.plain import UsageError
from expacc.report.words import NULL, STOPPED
from expacc.runner.store import Store
from expacc.schedules import focus_gradual, sigma_vision
from expacc.training import Augment

LEAKY = "leaky_expected_error"


def rows(count, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 6, generator=generator)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 1).long()


TRAIN, TEST = rows(160, 0), rows(90, 1)


def build():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 3))


def fast(network):
    return torch.optim.Adam(network.parameters(), lr=0.03)


def compare(tmp_path, *, network=build, train=TRAIN, test=TEST, page=False, **asked):
    usual = {"losses": [LEAKY], "seeds": 2, "epochs": 2, "trials": 1, "batch_size": 32}
    usual |= {"device": "cpu", "progress": False, "out": tmp_path / "study"}
    with pytest.MonkeyPatch.context() as patch:
        if not page:  # which takes longer than such networks
            patch.setattr(networks, "write_report", lambda *given: None)
        return compare_networks(network, train, test, **{**usual, **asked})


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return compare(
        tmp_path_factory.mktemp("networks"),
        losses=[LEAKY, "mixed_expected_error", "exact"],
        seeds=3,
        trials=2,
        epochs=4,
        label_noise=0.3,
        name="toy",
        page=True,
    )


def finals(found, loss):
    return [row for row in found.record.rows if row.kind == "final" and row.loss == loss]


def test_every_loss_has_its_rows(study):
    losses = ("cross_entropy", LEAKY, "mixed_expected_error", "exact", STOPPED, NULL)
    for loss in losses:
        own = finals(study, loss)
        assert [row.seed for row in own] == [0, 1, 2]
        for row in own:
            assert row.failure is None
            assert {"accuracy", STOPPED_ACCURACY, "wrong_label_accuracy"} <= row.metrics.keys()
            assert np.array_equal(row.predictions.rows, np.arange(160, 250))
    trials = [row for row in study.record.rows if row.kind == "trial"]
    assert len(trials) == 4 * 2
    assert {row.numbers["factor"] for row in trials} == {1.0, 0.5}
    curves = finals(study, LEAKY)[0].curves
    assert {name: len(curve) for name, curve in curves.items()} == dict.fromkeys(
        ("validation_accuracy", "train_accuracy", "validation_loss", "wrong_label_accuracy"), 4
    )
    for row, last in zip(finals(study, STOPPED), finals(study, "cross_entropy"), strict=True):
        assert row.metrics["accuracy"] == last.metrics[STOPPED_ACCURACY]


def test_answer_page_and_files(study):
    assert study.answer.startswith("With 30 % of training labels replaced at random: On toy")
    assert "Of the wrong training labels these were learnt by heart: cross entropy" in study.answer
    assert "Cross entropy from other seeds differs by" in study.answer
    page = (study.folder / "report.html").read_text()
    for piece in ("cross entropy, stopped early", "% of wrong", "what chance does"):
        assert piece in page
    assert "Every seed gave each loss the same initial weights" in page
    board = json.loads((study.folder / "leaderboard.json").read_text())
    tests = {one["loss"]: one["test"] for one in board["tables"][0]["entries"]}
    assert tests[LEAKY]["test"] == "paired runs"
    doubted = (study.folder / "suspects.csv").read_text().splitlines()[1:]
    assert doubted
    assert all(re.search(r",test \d+$", line) for line in doubted)
    assert not (study.folder / "runs").exists() or not list((study.folder / "runs").iterdir())
    # Chance is no contender: neither in the answer nor in the adjustment.
    null = next(one for one in board["tables"][0]["entries"] if one["loss"] == NULL)
    assert null["adjusted_p"] == null["test"]["p_value"]
    assert NULL not in study.accuracy


def test_the_command_line_shows_it_and_fits_no_table_from_it(study, capsys):
    assert main(["show", str(study.folder)]) == 0
    assert "Stopped where the validation rows are best:" in capsys.readouterr().out
    assert main(["fit", "iris", "--from", str(study.folder)]) == 2
    assert "--from must be a study of tables" in capsys.readouterr().err


def test_pairs_share_weights_rows_and_wrong_labels(tmp_path, monkeypatch):
    seen = {}

    def spy(model, loaders, loss, **how):
        training, held = loaders
        key = (type(loss).__name__, len(seen))
        x, y = next(iter(training.batches(0, how["seed"])))
        weight = next(model.parameters()).detach().clone()
        seen[key] = weight, x, y, held._inputs, held._target
        return true_fit(model, loaders, loss, **how)

    true_fit = networks_work.fit
    monkeypatch.setattr(networks_work, "fit", spy)
    compare(tmp_path, seeds=1, label_noise=0.4)
    ce, leaky, null = seen.values()  # of one seed, in this order
    assert all(torch.equal(a, b) for a, b in zip(ce, leaky, strict=True))
    assert not torch.equal(ce[0], null[0])
    assert not torch.equal(ce[1], null[1])
    assert torch.equal(ce[3], null[3])  # the same held-out rows, the same wrong labels
    assert torch.equal(ce[4], null[4])


def test_only_training_labels_are_spoilt(tmp_path):
    noisy = (TRAIN[1] + 1) % 3  # every one wrong
    found = compare(tmp_path, label_noise=noisy, seeds=1, epochs=6, optimizer=fast)
    assert found.record.noise_levels == (1.0,)
    assert "100 % of training labels wrong" in found.answer
    assert np.array_equal(found.record.tables["data"].labels[:160], TRAIN[1])
    row = finals(found, "cross_entropy")[0]
    assert row.metrics["accuracy"] < 0.5 < row.metrics["wrong_label_accuracy"]


def test_folds_without_a_test_set_and_several_shares(tmp_path):
    found = compare(tmp_path, test=None, folds=2, seeds=1, epochs=1, label_noise=[0.0, 0.2])
    tested = np.concatenate(
        [
            row.predictions.rows
            for row in finals(found, LEAKY)
            if row.noise == 0 and row.failure is None
        ]
    )
    assert sorted(tested.tolist()) == list(range(160))
    assert [one.noise for one in found.board.noisy] == [0.2]


def test_the_same_study_gives_the_same_rows_and_is_not_run_again(tmp_path, monkeypatch):
    first = compare(tmp_path, seeds=1, epochs=1)
    runs = []
    monkeypatch.setattr(networks_work, "fit", lambda *a, **k: runs.append(1))
    again = compare(tmp_path, seeds=1, epochs=1)
    assert not runs
    monkeypatch.undo()
    other = compare(tmp_path / "other", seeds=1, epochs=1)
    for found in (again, other):
        for one, two in zip(first.record.rows, found.record.rows, strict=True):
            assert one.metrics == two.metrics
            assert one.predictions.digest() == two.predictions.digest()
    with pytest.raises(
        ValueError, match=r"epochs is 1 there and 2 here. Use another out, or resume=F"
    ):
        compare(tmp_path, seeds=1, epochs=2)


def test_a_killed_study_goes_on_within_its_run(tmp_path):
    code = f"""
    import os
    import expacc.compare.networks_work as work
    from test_compare_networks import compare
    from pathlib import Path

    work.CHECKPOINT_SECONDS = 0.0
    true_fit, done = work.fit, []

    def fit(*given, progress, **how):
        done.append(1)

        def dying(share):
            progress(share)
            if len(done) == 2 and share > 0.7:
                os._exit(9)

        return true_fit(*given, progress=dying, **how)

    work.fit = fit
    compare(Path({str(tmp_path)!r}), epochs=4)
    """
    died = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=Path(__file__).parent)
    assert died.returncode == 9
    with Store.read(tmp_path / "study") as store:
        assert len(store.done_items()) == 1
    resumed = []
    true_fit = networks_work.fit

    def spy(*given, **how):
        found = true_fit(*given, **how)
        resumed.append(found.resumed_at)
        return found

    networks_work.fit = spy
    try:
        found = compare(tmp_path, epochs=4)
    finally:
        networks_work.fit = true_fit
    assert resumed[0] > 0
    assert not any(resumed[1:])
    whole = compare(tmp_path / "whole", epochs=4)
    for one, two in zip(found.record.rows, whole.record.rows, strict=True):
        assert one.predictions.digest() == two.predictions.digest()


class Rows(Dataset):
    def __init__(self, x, y, noisy=False, three=False):
        self.x, self.targets, self.noisy, self.three = x, y, noisy, three

    def __len__(self):
        return len(self.x)

    def __getitem__(self, place):
        x = self.x[place]
        if self.three:
            return x, int(self.targets[place]), place
        return (x + torch.randn_like(x) if self.noisy else x), int(self.targets[place])


class Endless(IterableDataset):
    def __iter__(self):
        return iter([TRAIN])


def test_data_may_come_in_many_forms(tmp_path):
    loader = DataLoader(TensorDataset(*TRAIN), batch_size=40, shuffle=True)
    arrays = (TEST[0].numpy(), TEST[1].numpy().astype(np.uint8))
    found = compare(tmp_path, train=loader, test=arrays, batch_size=None, seeds=1, epochs=1)
    assert found.record.settings["batch_size"] == 40
    plain = compare(tmp_path / "2", train=Rows(*TRAIN), test=Rows(*TEST), batch_size=40,
                    seeds=1, epochs=1)  # fmt: skip
    assert plain.accuracy == found.accuracy
    assert isinstance(read_rows(Rows(*TRAIN), "train").inputs, torch.Tensor)
    changing = Rows(*TRAIN, noisy=True)
    assert read_rows(changing, "train").inputs is changing
    again = compare(tmp_path / "3", train=changing, test=TEST, seeds=1, epochs=1)
    assert all(row.failure is None for row in again.record.rows)
    half = read_rows((TEST[0].half().numpy(), TEST[1]), "test")
    assert half.inputs.dtype == torch.float32
    frame = read_rows((pandas.DataFrame(TEST[0]), pandas.Series(TEST[1])), "test")
    assert torch.equal(frame.inputs, TEST[0])
    bytes_ = torch.randint(256, (5, 9, 9, 3), dtype=torch.uint8)
    assert read_rows((bytes_, [0, 1, 2, 0, 1]), "train").shape == (3, 9, 9)
    assert read_rows((bytes_[..., 0], torch.zeros(5, 1)), "train").shape == (1, 9, 9)


def test_pictures_are_scaled_and_changed(tmp_path):
    generator = torch.Generator().manual_seed(0)
    pictures = torch.randint(256, (120, 1, 8, 8), dtype=torch.uint8, generator=generator)
    labels = (pictures.float().mean((1, 2, 3)) > 128).long()
    pictures[labels == 1, :, :2] = 255

    def network():
        return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 2))

    found = compare(
        tmp_path, network=network, train=(pictures[:80], labels[:80]),
        test=(pictures[80:], labels[80:]), augment=Augment(2, "alternating", 3), seeds=1, epochs=8,
        batch_size=8, classes=["dark", "light"], optimizer="sgd",
    )  # fmt: skip
    assert found.accuracy["cross_entropy"] > 0.8
    mean, deviation = read_rows((pictures, labels), "train").scaling(np.arange(120))
    assert float(mean) == pytest.approx(float(pictures.double().mean() / 255), abs=1e-6)
    assert float(deviation) == pytest.approx(float((pictures / 255).std()), abs=1e-3)


def test_a_run_that_diverges_is_a_row_with_a_reason(tmp_path):
    def broken(logits, target):
        return nn.functional.cross_entropy(logits, target) * float("inf")

    found = compare(tmp_path, losses={"broken": broken, LEAKY: LEAKY}, seeds=1)
    (row,) = finals(found, "broken")
    assert row.failure == (
        "loss must be finite; got a loss that is not at step 1. Lower the learning rate, or use a "
        "normalizer or clip."
    )
    assert not row.metrics
    assert "broken is not compared: it failed" in " ".join(found.board.notes)

    def failing():
        class Net(nn.Linear):
            def forward(self, x):
                if self.training and len(x) < 32:
                    raise RuntimeError("too few rows for me")
                return super().forward(x)

        return Net(6, 3)

    other = compare(tmp_path / "2", network=failing, seeds=1)
    assert {row.failure for row in other.record.rows} == {"RuntimeError: too few rows for me"}
    assert other.board.answer.choice == ""


def test_two_seeds_make_no_claim(tmp_path):
    found = compare(tmp_path, seeds=2, epochs=1)
    entry = found.board.boards[0].entry(LEAKY)
    assert entry.test.p_value == 1
    assert "run at least three" in entry.test.note


def test_losses_start_as_networks_want_them():
    loss, normalised = make_loss("exact", 10)
    assert normalised
    assert (loss.margin, loss.schedules["sigma"]) == (5.0, sigma_vision)
    assert make_loss("exact:sigma=1", 10)[0].sigma == 1.0
    assert make_loss("mixed_expected_error", 10)[0].schedules == {"focus": focus_gradual}
    assert make_loss("expected_error", 100)[0].shift == "auto"
    assert make_loss("normalized_and_reverse_cross_entropy", 100)[0].active_weight == 10
    for name in expacc.list_losses():
        if name != "complement_entropy":
            value = make_loss(name, 4)[0](torch.zeros(3, 4), torch.tensor([0, 1, 3]))
            assert value.shape == ()
    own = nn.CrossEntropyLoss()
    assert make_loss(own, 4)[0] is not own  # what one run changes, another must not meet


def shared():
    made = build()
    return lambda: made


MISUSES = [
    ({"network": build()}, "build must be a function that makes a network; got Sequential."),
    ({"network": lambda: 3}, "build must return a Module; got int."),
    ({"network": shared()}, "build must make a new network each time; got the same weights"),
    ({"network": lambda: 1 / 0}, "build fails with ZeroDivisionError: division by zero"),
    ({"network": lambda: nn.Linear(6, 7)}, "one output for each class, 3; got 7. Name all"),
    ({"network": lambda: nn.Linear(5, 3)}, "takes rows of train; this one fails with RuntimeErr"),
    ({"network": lambda: nn.Flatten()}, "build must return a network with weights to train"),
    ({"network": lambda: nn.Conv1d(6, 3, 1)}, "build must return a network"),
    ({"train": (TRAIN[0], TRAIN[1] - 1)}, "train must have class numbers from 0 as labels; got -1"),
    ({"train": (TRAIN[0], TRAIN[1].float() / 2)}, "train must have class numbers from 0"),
    ({"train": (TRAIN[0], TRAIN[1][:9])}, "train must have as many labels as inputs; got 9"),
    ({"train": (TRAIN[0] / 0, TRAIN[1])}, "train must have finite inputs"),
    ({"train": []}, "train must hold at least one row; got none."),
    ({"train": DataLoader(Endless())}, "whose rows can be asked for by number; got Endless."),
    ({"train": "data.csv"}, "train must"),
    ({"train": 3}, "train must be (inputs, labels), a Dataset or a DataLoader of one"),
    ({"test": rows(0, 0)}, "test must hold at least one row; got none."),
    ({"test": (TEST[0][:, :5], TEST[1])}, "test must have rows of the shape of train's, (6,)"),
    ({"classes": ["a", "b"]}, "labels must lie from 0 to 1, there being 2 classes; got 2."),
    ({"classes": ["a", "a", "b"]}, "classes must be different names"),
    ({"losses": ["leaky_expected_eror"]}, "Did you mean 'leaky_expected_error'?"),
    ({"train": Rows(TRAIN[0], TRAIN[1], three=True)}, "rows (input, label); got tuple of 3."),
    ({"label_noise": "0.2"}, "label_noise must be a share or an array of labels; got '0.2'."),
    ({"out": __file__}, "must be a folder; got a file. Use another out."),
    ({"losses": []}, "losses must name at least one beside cross entropy"),
    ({"losses": {"a|b": "focal"}}, "losses must have plain names, without | and /; got 'a|b'."),
    ({"losses": {"mine": 3}}, "losses must be names or functions of (logits, target)"),
    ({"losses": {"mine": lambda z, y: z}}, "return the mean over rows, one number; 'mine' gives"),
    ({"losses": {"mine": lambda z: z}}, "'mine' fails with TypeError"),
    ({"label_noise": 1.0}, "label_noise must lie in [0, 1); got 1.0."),
    ({"label_noise": TRAIN[1][:5]}, "a label for each training row, 160; got 5."),
    ({"label_noise": TRAIN[1] + 1}, "label_noise must have class numbers below 3; got 3."),
    ({"seeds": 0}, "seeds must be >= 1; got 0."),
    ({"trials": 9}, "trials must be at most 7; got 9."),
    ({"epochs": 2, "steps": 5}, "epochs must be None beside steps; got 2 and 5."),
    ({"epochs": None, "steps": 0}, "steps must be >= 1; got 0."),
    ({"optimizer": "adamm"}, "optimizer must be 'adamw', 'sgd' or a function of the network"),
    ({"optimizer": lambda network: 3}, "optimizer must make an optimizer; got int."),
    ({"optimizer": torch.optim.SGD(build().parameters(), 0.1)}, "got one that is made. Use"),
    ({"validation": 1.5}, "validation must lie in (0, 1); got 1.5."),
    ({"validation": 0.001}, "validation: share must leave rows on both sides"),
    ({"augment": Augment(1)}, "augment must be None unless rows are pictures"),
    ({"device": "cuda:99"}, "device must be"),
    ({"graphs": True, "side_by_side": 2}, "graphs must be False for runs side by side"),
    ({"test": None, "folds": 1}, "folds"),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "piece"), MISUSES, ids=range(len(MISUSES)))
def test_one_sentence_for_every_misuse(asked, piece, tmp_path):
    with pytest.raises((ValueError, TypeError), match=re.escape(piece)) as caught:
        compare(tmp_path, **asked)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "study").exists()


def test_noise_is_read_as_shares_or_labels():
    labels = np.array([0, 1, 2, 1])
    assert [one.share for one in read_noise([0.1, 0.0], labels, 3)] == [0.1, 0.0]
    (given,) = read_noise([0, 1, 2, 2], labels, 3)
    assert given.share == 0.25
    with pytest.raises(UsageError, match="label_noise must be a share or an array"):
        read_noise(True, labels, 3)


class Named(nn.Linear):
    def forward(self, inputs):
        return super().forward(inputs["x"])


class NamedRows(Rows):
    def __getitem__(self, place):
        return {"x": self.x[place]}, int(self.targets[place])


def test_networks_of_many_kinds(tmp_path):
    def lazy():
        return nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(3))

    tokens = torch.randint(20, (160, 5), generator=torch.Generator().manual_seed(0)), TRAIN[1]

    def embedding():
        return nn.Sequential(nn.Embedding(20, 4), nn.Flatten(), nn.Linear(20, 3))

    cases = [
        (lazy, TRAIN, TEST),
        (embedding, tokens, None),
        (lambda: Named(6, 3), NamedRows(*TRAIN), NamedRows(*TEST)),
    ]
    for place, (network, train, test) in enumerate(cases):
        found = compare(tmp_path / str(place), network=network, train=train, test=test, folds=2,
                        seeds=1, epochs=1)  # fmt: skip
        assert {row.failure for row in found.record.rows} == {None}


def test_steps_are_whole_epochs(tmp_path):
    found = compare(tmp_path, epochs=None, steps=7, seeds=1)  # 144 rows, 5 steps an epoch
    assert found.record.settings["epochs"] == 2


def test_runs_side_by_side_give_the_same_as_one_by_one(tmp_path):
    def network():  # without dropout, whose generator threads share
        return nn.Linear(6, 3)

    one = compare(tmp_path / "1", network=network)
    two = compare(tmp_path / "2", network=network, side_by_side=3)
    for left, right in zip(one.record.rows, two.record.rows, strict=True):
        assert left.key == right.key
        assert left.predictions.digest() == right.predictions.digest()
    assert networks_reading.WRONG == "wrong_label"
