"""fit on a CUDA device: the CPU's weights, half precision, compilation, resuming, few waits."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from test_network import Stop, stopping
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from expacc import ASAM, ExactLoss, GradientNormalizer
from expacc.training import ResidentData
from expacc.training.network import fit

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

ROWS = torch.randn(300, 6, generator=torch.Generator().manual_seed(1))
LABELS = ROWS[:, :3].argmax(1)
DATA = TensorDataset(ROWS, LABELS)


def network(dropout=0.0):
    with torch.random.fork_rng():
        torch.manual_seed(2)
        return nn.Sequential(nn.Linear(6, 64), nn.GELU(), nn.Dropout(dropout), nn.Linear(64, 3))


def train(device="cuda", loss=F.cross_entropy, model=None, asam=False, **settings):
    model = model or network()
    # A normalised gradient has length 1 to the end: with large steps it would never settle.
    rate = 0.03 if asam else 0.3
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    if asam:
        optimizer = ASAM(optimizer, rho=0.1)
        settings["normalizer"] = GradientNormalizer(optimizer)
    loaders = (
        DataLoader(DATA, batch_size=32, shuffle=True, pin_memory=device == "cuda"),
        DataLoader(DATA, batch_size=100),
    )
    settings = {"epochs": 4, "progress": False, "optimizer": optimizer, **settings}
    result = fit(model, loaders, loss, device=device, **settings)
    return model, result


def weights(model):
    return torch.cat([value.detach().cpu().flatten() for value in model.state_dict().values()])


def test_the_cpus_weights():
    here, there = train("cpu")[0], train("cuda")[0]
    assert next(there.parameters()).is_cuda
    torch.testing.assert_close(weights(there), weights(here), rtol=0, atol=1e-4)


def test_auto_is_cuda():
    assert next(train("auto", epochs=1)[0].parameters()).is_cuda


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("asam", [False, True])
@pytest.mark.parametrize("loss", [F.cross_entropy, ExactLoss(margin=5.0)], ids=["ce", "exact"])
def test_every_precision_learns(precision, asam, loss):
    _, result = train(loss=loss, precision=precision, asam=asam, epochs=10)
    assert result.history[-1].validation_accuracy > 0.9


def test_compiled():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's compiler
        model, result = train(compile=True)
    assert result.history[-1].validation_accuracy > 0.9
    torch.testing.assert_close(weights(model), weights(train()[0]), rtol=0, atol=1e-3)


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_a_stopped_run_resumes(tmp_path, precision):
    pytest.importorskip("safetensors")
    settings = {"precision": precision, "epochs": 4}
    whole, _ = train(loss=stopping(F.cross_entropy, 0), model=network(0.3), **settings)
    settings |= {"checkpoint": tmp_path, "checkpoint_every": 4}
    with pytest.raises(Stop):
        train(loss=stopping(F.cross_entropy, 25), model=network(0.3), **settings)
    model, result = train(loss=stopping(F.cross_entropy, 0), model=network(0.3), **settings)
    assert result.resumed_at == 20
    torch.testing.assert_close(weights(model), weights(whole), rtol=0, atol=1e-5)


def test_the_step_with_a_nan_is_named_though_seen_later():
    calls = 0

    def loss(logits, target):
        nonlocal calls
        calls += 1
        return F.cross_entropy(logits, target) * (math.nan if calls == 3 else 1)

    with pytest.raises(FloatingPointError, match="at step 3"):
        train(loss=loss)


def test_steps_do_not_wait_for_the_device():
    """Torch raises at any read of a value between the first step of an epoch and its last."""
    calls = 0

    def loss(logits, target):
        nonlocal calls
        calls += 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says that the mode is a prototype
            torch.cuda.set_sync_debug_mode("error" if 2 <= calls < 10 else "default")
        return F.cross_entropy(logits, target)

    try:
        train(loss=loss, epochs=1, clip=1.0)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert calls == 13


def test_the_callers_randomness_stays():
    torch.cuda.manual_seed(5)
    before = torch.cuda.get_rng_state()
    train(model=network(0.5), epochs=1)
    assert torch.equal(torch.cuda.get_rng_state(), before)


def test_recorded_kernels_train_as_launched_ones_do():
    x, y = torch.randint(256, (64, 3, 8, 8), dtype=torch.uint8), torch.arange(64) % 2
    losses = []
    for graphs in (False, True):
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3),
            torch.nn.BatchNorm2d(8),
            torch.nn.Flatten(),
            torch.nn.Linear(288, 2),
        ).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        result = fit(
            model, ResidentData(x, y, batch_size=24), F.cross_entropy, optimizer=optimizer,
            epochs=3, graphs=graphs, channels_last=True, device="cuda", progress=False,
        )  # fmt: skip
        losses.append([record.loss for record in result.history])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
