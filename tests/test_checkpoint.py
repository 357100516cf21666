"""Checkpoints: nothing lost, nothing executed, and killed runs end as if never killed."""

import functools
import json
import multiprocessing
import os
import pickle
import re
import signal
from collections import Counter
from pathlib import Path

import pytest
import torch
from interrupted import STEPS, finished, interrupted, records, train
from safetensors.torch import load_file, save_file
from torch import nn

from expacc.training.checkpoint import Position, RunCheckpoint, load_state, save_state

# ---------------------------------------------------------------------------------- the file


def test_a_tree_comes_back(tmp_path):
    shared = torch.arange(6.0).reshape(2, 3)
    tree = {
        "tensors": {"weight": shared, "tied": shared, "view": shared[0], "turned": shared.t()},
        "kinds": [torch.tensor(3), torch.ones(2, dtype=torch.bfloat16), torch.zeros(0, 4)],
        "numbers": [1, -(2**70), 0.1, float("inf"), -float("inf"), True, None, "text / é \x00"],
        "betas": (0.9, (0.999,)),
        "state": {0: {"step": torch.tensor(1.0)}, 1: {}},
        "milestones": Counter({3: 2}),
        "": {"tensor": "weight", "dict": []},
    }
    save_state(tmp_path / "a", tree)
    back = load_state(tmp_path / "a")
    assert list(back) == list(tree)
    assert back["numbers"] == tree["numbers"]
    assert [type(value) for value in back["numbers"]] == [type(v) for v in tree["numbers"]]
    for name in ("betas", "", "milestones"):
        assert back[name] == tree[name]
        assert type(back[name]) is type(tree[name])
    for name, tensor in tree["tensors"].items():
        assert torch.equal(back["tensors"][name], tensor)
    for one, other in zip(back["kinds"], tree["kinds"], strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert torch.equal(one, other)
    assert back["state"] == {0: {"step": torch.tensor(1.0)}, 1: {}}


def test_nan_comes_back(tmp_path):
    save_state(tmp_path / "a", {"loss": float("nan")})
    assert load_state(tmp_path / "a")["loss"] != load_state(tmp_path / "a")["loss"]


def test_tensors_are_there_for_any_reader(tmp_path):
    save_state(tmp_path / "a", {"model": nn.Linear(2, 1).state_dict()})
    assert set(load_file(tmp_path / "a")) == {"model/weight", "model/bias"}


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (print, "builtin"),
        ({1, 2}, "set"),
        (torch.eye(2).to_sparse(), "Tensor"),
        ({(1,): 2}, "dict"),
    ],
)
def test_what_cannot_be_saved_is_named_and_the_old_file_stays(tmp_path, value, named):
    save_state(tmp_path / "a", {"x": 1})
    with pytest.raises(TypeError, match=rf"scheduler/inner must consist of .*; got {named}"):
        save_state(tmp_path / "a", {"scheduler": {"inner": value}})
    assert load_state(tmp_path / "a") == {"x": 1}
    assert os.listdir(tmp_path) == ["a"]


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    save_state(tmp_path / "a", {"x": 1})

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save_state(tmp_path / "a", {"x": 2})
    assert load_state(tmp_path / "a") == {"x": 1}
    assert os.listdir(tmp_path) == ["a"]


def test_file_and_folder_reach_the_disk_in_this_order(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, Path.replace

    def noted_fsync(number):
        calls.append(f"sync {Path(os.readlink(f'/proc/self/fd/{number}')).name}")
        fsync(number)

    def noted_replace(part, path):
        calls.append("replace")
        return replace(part, path)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    save_state(tmp_path / "a", {"x": 1})
    first, *rest = calls
    assert re.fullmatch(r"sync \.a\.[0-9a-f]{16}\.part", first)
    assert rest == ["replace", f"sync {tmp_path.name}"]


def with_header(path, header):
    save_file({"x": torch.ones(2)}, path, {"expacc": header})


def with_state(path, state):
    with_header(path, f'{{"version": 1, "state": {state}}}')


HOSTILE = {
    "nothing": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("hello " * 100),
    "pickle": lambda path: path.write_bytes(pickle.dumps({"a": print})),
    "torch.save": lambda path: torch.save({"a": torch.ones(1)}, path),
    "a header of 2⁶² bytes": lambda path: path.write_bytes((2**62).to_bytes(8, "little") + b"{}"),
    "no header of ours": lambda path: save_file({"x": torch.ones(2)}, path),
    "broken JSON": lambda path: with_header(path, "{"),
    "no version": lambda path: with_header(path, "{}"),
    "a list": lambda path: with_state(path, "[1]"),
    "a number": lambda path: with_header(path, "7"),
    "deep JSON": lambda path: with_header(path, "[" * 200_000),
    "a deep tree": lambda path: with_state(path, '{"tuple":[' * 450 + "]}" * 450),
    "an unknown kind": lambda path: with_state(path, '{"dict": [["a", {"object": "os"}]]}'),
    "two kinds": lambda path: with_state(path, '{"dict": [], "tuple": []}'),
    "a missing tensor": lambda path: with_state(path, '{"dict": [["a", {"tensor": "y"}]]}'),
    "a list as key": lambda path: with_state(path, '{"dict": [[[1], 2]]}'),
    "a float from text": lambda path: with_state(path, '{"dict": [["a", {"float": "1_0"}]]}'),
    "a number of a million digits": lambda path: with_state(path, "9" * 10**6),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files_get_a_sentence(tmp_path, kind):
    HOSTILE[kind](tmp_path / "a")
    with pytest.raises(ValueError, match=r"^checkpoint .* must be a complete file") as caught:
        load_state(tmp_path / "a")
    assert len(str(caught.value)) < 600
    assert "\n" not in str(caught.value)


def test_another_version_gets_a_sentence(tmp_path):
    with_header(tmp_path / "a", json.dumps({"version": 2, "state": {}}))
    with pytest.raises(ValueError, match=r"must have version 1; got 2\."):
        load_state(tmp_path / "a")


def test_every_truncation_is_noticed(tmp_path):
    save_state(tmp_path / "a", {"x": torch.arange(20), "y": [1, 2]})
    whole = (tmp_path / "a").read_bytes()
    for length in range(len(whole)):
        (tmp_path / "b").write_bytes(whole[:length])
        with pytest.raises(ValueError, match="must be a complete file"):
            load_state(tmp_path / "b")


def remembered(folder):
    model = nn.Linear(2, 1)
    parts = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)}
    return RunCheckpoint(folder, {"seed": 0}, parts)


CLAIMS = {
    "a weight": lambda state: state["model"].update(weight=torch.ones(1)),
    "a momentum": lambda state: state["optimizer"]["state"].update(
        {0: {"momentum_buffer": torch.ones(1)}}
    ),
    "a rate": lambda state: state["optimizer"]["param_groups"][0].update(lr=torch.ones(1)),
    "the sums": lambda state: state["position"].update(sums=torch.ones(1)),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_file_that_claims_a_gigabyte_is_refused_by_its_shapes(tmp_path, monkeypatch, claim):
    keeper = remembered(tmp_path)
    keeper.save(Position())
    assert keeper.load() == Position()
    state = load_state(keeper.path)
    CLAIMS[claim](state)
    save_state(keeper.path, state)
    data = keeper.path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    name = next(
        name for name, part in header.items() if part.get("shape") == [1] and "bias" not in name
    )
    end = max(part["data_offsets"][1] for name, part in header.items() if "shape" in part)
    header[name] = {"dtype": "F32", "shape": [2**28], "data_offsets": [end, end + 2**30]}
    # The claim lies behind all others; what it had is given to a tensor that nobody asks for.
    header["left"] = {"dtype": "F32", "shape": [1], "data_offsets": old_place(data, size, name)}
    text = json.dumps(header).encode()
    with keeper.path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data[8 + size :])
        file.truncate(8 + len(text) + end + 2**30)
    monkeypatch.setattr("expacc.training.checkpoint._whole", None)  # no tensor is read
    with pytest.raises(ValueError, match="must come from this same run; got"):
        keeper.load()


def old_place(data, size, name):
    return json.loads(data[8 : 8 + size])[name]["data_offsets"]


# ------------------------------------------------------------------------------ killed runs


@pytest.fixture(autouse=True)
def _threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@functools.cache
def undisturbed():
    model, result = train(None)
    return {name: value.clone() for name, value in model.state_dict().items()}, records(result)


# Calls of the loss: 7 of training and 2 of validation in each epoch. Checkpoints: after the steps
# 2, 4, 6 and the epoch, then 8, 10, 12, 14 and the epoch …
POINTS = {
    "before the first checkpoint": ("loss", 2),
    "between two checkpoints": ("loss", 4),
    "in the last step of an epoch": ("loss", 7),
    "in the validation": ("loss", 9),
    "in the first step of an epoch": ("loss", 10),
    "late": ("loss", 25),
    "before the file is synced": ("fsync", 5),  # two a checkpoint: the file, the folder
    "between sync and replace": ("replace", 3),
    "at the end of an epoch, before the replace": ("replace", 4),
    "after the replace, before the folder is synced": ("fsync", 8),
    "with half of the file written": ("half", 3),
    "in the very last checkpoint": ("replace", 13),
}


def child(target, *arguments):
    """Run a function in a process of its own; return its exit code."""
    # A server that has imported torch forks the children: a tenth of a second each, and no threads.
    context = multiprocessing.get_context("forkserver")
    # The server must find them without pytest's path; an optimiser's first step needs the last one.
    context.set_forkserver_preload(
        ["expacc.training.network", "safetensors.torch", "torch._dynamo"]
    )
    process = context.Process(target=target, args=arguments)
    process.start()
    process.join(60)
    if process.exitcode is None:
        process.kill()
        pytest.fail("the child hangs")
    return process.exitcode


def assert_as_undisturbed(folder):
    weights, history = undisturbed()
    final = load_file(folder / "final.safetensors")
    assert set(final) == set(weights)
    for name, value in weights.items():
        assert torch.equal(final[name], value), name
    resumed_at, found = json.loads((folder / "records.json").read_text())
    assert found == history
    return resumed_at


@pytest.mark.parametrize("name", POINTS)
def test_a_killed_run_ends_with_the_same_bits(tmp_path, name):
    point, number = POINTS[name]
    assert child(interrupted, str(tmp_path), point, number) == -signal.SIGKILL
    assert child(finished, str(tmp_path)) == 0
    resumed_at = assert_as_undisturbed(tmp_path)
    assert (resumed_at > 0) == (name != "before the first checkpoint")


def test_a_run_killed_again_and_again(tmp_path):
    for number in (3, 3, 4, 2, 6):
        assert child(interrupted, str(tmp_path), "loss", number) == -signal.SIGKILL
    assert child(finished, str(tmp_path)) == 0
    assert assert_as_undisturbed(tmp_path) > STEPS


def test_the_seed_alone_decides(tmp_path):
    """And other seeds give other bits, so the comparisons above can fail."""
    weights, _ = undisturbed()
    torch.manual_seed(0)
    model, _ = train(None, lambda: torch.rand(1))
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    other, _ = train(None, seed=12)
    assert not torch.equal(other.state_dict()["0.weight"], weights["0.weight"])
