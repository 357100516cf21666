"""Two processes with a part of each batch train as one with the whole of it."""

import json
import subprocess
import sys

import pytest
import ranks
import torch
from safetensors.torch import load_file
from torch.utils.data import DataLoader, DistributedSampler

from expacc.training.loaders import Ranks
from expacc.training.network import fit


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What two processes left under torchrun, all cases in one start."""
    folder = tmp_path_factory.mktemp("ranks")
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, *command, ranks.__file__, str(folder)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def assert_as_one(folder, name, settings):
    weights, records = ranks.train(**settings)
    tolerance = 1e-6 if weights["0.weight"].dtype == torch.float32 else 1e-13
    for rank in (0, 1):
        found = load_file(folder / f"{name}, rank {rank}.safetensors")
        assert set(found) == set(weights)
        for key, value in weights.items():
            torch.testing.assert_close(found[key], value, rtol=0, atol=tolerance)
        resumed_at, *rest = json.loads((folder / f"{name}, rank {rank}.json").read_text())
        torch.testing.assert_close(torch.tensor(rest), torch.tensor(records[1:]), rtol=0, atol=1e-5)
    return resumed_at


@pytest.mark.parametrize("name", ranks.CASES)
def test_two_ranks_train_as_one(folder, name):
    assert_as_one(folder, name, ranks.CASES[name])


def test_a_shared_run_resumes(folder):
    settings = {"loader": lambda: ranks.shuffled(61)}
    assert assert_as_one(folder, "resumed", settings) == 8


def test_a_checkpoint_of_two_ranks_serves_one(folder):
    weights, records = ranks.train(lambda: ranks.shuffled(61), checkpoint=f"{folder}/checkpoint")
    assert records[0] == 24
    two = load_file(folder / "resumed, rank 0.safetensors")
    assert all(torch.equal(weights[name], two[name]) for name in two)


def test_ranks_fail_together(folder):
    for rank in (0, 1):
        nan, hidden = json.loads((folder / f"failures, rank {rank}.json").read_text())
        assert nan.startswith("loss must be finite; got a loss that is not at step 1.")
        assert hidden.startswith("checkpoint must be a folder that all ranks see; got 0 steps done")


def test_shares_are_all_rows_in_order():
    for world in (1, 2, 3, 7):
        for rows in range(20):
            shares = [list(range(rows))[Ranks(rank, world).share(rows)] for rank in range(world)]
            assert [row for share in shares for row in share] == list(range(rows))
            sizes = [len(share) for share in shares]
            assert max(sizes) - min(sizes) <= 1


def test_a_distributed_sampler_is_refused():
    data = ranks.data(61)
    loader = DataLoader(data, sampler=DistributedSampler(data, num_replicas=2, rank=0))
    with pytest.raises(ValueError, match="loaders must give whole batches; got one with a Distrib"):
        fit(torch.nn.Linear(6, 3), loader, torch.nn.functional.cross_entropy, device="cpu")
