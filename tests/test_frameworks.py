"""docs/frameworks.md: every block of code does what the text around it says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from loops import PAGE, batches, changed, network, run_block
from torch import nn

import expacc
from expacc import functional


def test_every_block_has_its_test():
    headings = re.findall(r"^## (.+)$", PAGE.read_text(), re.M)
    here = Path(__file__).parent
    files = (Path(__file__), here / "test_trackers.py", *here.glob("test_integrations_*.py"))
    tests = "".join(path.read_text() for path in files)
    assert all(f'"{heading}"' in tests for heading in headings), headings
    assert PAGE.read_text().count("```python") == len(headings)


def test_a_loop():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    heading = "A loop of your own, and Accelerate"
    names = run_block(heading, model=model, optimizer=optimizer, loader=batches(20))
    assert changed(model)
    assert names["loss"].focus == 0.5
    assert names["normalizer"].ema > 0


def test_accelerate():
    """Its wrapper of the optimizer steps at every fourth batch; so does the normaliser."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    weights = []
    for attached in ("before", "after", "by hand"):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if attached == "before":
            expacc.GradientNormalizer.attach(optimizer)
        if attached == "by hand":
            normalizer = expacc.GradientNormalizer(optimizer)
        net, wrapped = accelerator.prepare(model, optimizer)
        if attached == "after":
            expacc.GradientNormalizer.attach(wrapped)
        for x, y in batches(8):
            with accelerator.accumulate(net):
                accelerator.backward(functional.expected_error(net(x), y))
                if attached == "by hand" and accelerator.sync_gradients:
                    normalizer.step()
                wrapped.step()
                wrapped.zero_grad()
        weights.append(nn.utils.parameters_to_vector(model.parameters()))
    assert torch.equal(weights[0], weights[2])
    assert torch.equal(weights[1], weights[2])


def test_torchvisions_script():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    heading = "torchvision's reference scripts"
    run_block(heading, torch=torch, model=model, optimizer=optimizer, loader=batches(20))
    assert changed(model)


def test_segmentation():
    """Void pixels: no share in the mean, no gradient."""
    logits = torch.randn(2, 3, 4, 5, requires_grad=True)
    masks = torch.randint(0, 3, (2, 4, 5))
    masks[:, 0] = 255
    names = run_block("Segmentation", logits=logits, masks=masks)
    seen = logits.detach()[:, :, 1:], masks[:, 1:]
    torch.testing.assert_close(names["loss"], functional.leaky_expected_error(*seen, leak=0.1))
    assert not logits.grad[:, :, 0].any()
    assert logits.grad[:, :, 1:].abs().min() > 0


KERAS = """
import sys; sys.path[:0] = {path!r}
import keras, torch, numpy as np, expacc
from loops import run_block
x = np.random.default_rng(0).normal(size=(96, 5)).astype("float32")
y = x[:, :3].argmax(1)
model = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(3)])
names = run_block("Keras 3 on torch", model=model)
logits = torch.randn(4, 6, 3)
labels, loss = logits.argmax(-1), names["KerasLoss"](expacc.LeakyExpectedErrorLoss(leak=0.1))
expected = expacc.functional.leaky_expected_error(logits.movedim(-1, 1), labels, leak=0.1)
torch.testing.assert_close(loss(labels, logits), expected)
soft = torch.softmax(torch.randn(4, 6, 3), -1)
rows = logits.movedim(-1, 1), soft.movedim(-1, 1)
expected = expacc.functional.leaky_expected_error(*rows, leak=0.1)
torch.testing.assert_close(loss(soft, logits), expected)
weight = np.r_[np.ones(48), np.zeros(48)]
kept = model.get_weights()
for some in ((x, y, weight), (x[:48], y[:48])):
    model.set_weights(kept)
    model.fit(some[0], some[1], sample_weight=(*some, None)[2], batch_size=96, verbose=0)
    print((model.get_weights()[0] - kept[0]).ravel().tolist())
model.optimizer.learning_rate = 0.5
history = model.fit(x, y, epochs=30, verbose=0, batch_size=8)
assert history.history["accuracy"][-1] > 0.8, history.history
"""


def apart(code, *folders, **environment):
    """Run in a process of its own: the backend of Keras, and torchvision, are chosen at import."""
    here = Path(__file__).parent
    path = [*map(str, folders), str(here), str(here.parent)]
    done = subprocess.run(
        [sys.executable, "-c", code.replace("{path!r}", repr(path))],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_keras():
    """Order and casts; rows of weight 0 halve the step, as Keras divides by all rows."""
    half, whole = map(json.loads, apart(KERAS, KERAS_BACKEND="torch").splitlines())
    assert [2 * step for step in half] == pytest.approx(whole, rel=1e-3)


# PyPI's torchvision is made for torch with CUDA and cannot be imported beside a torch without; its
# Python part can, once the two operators that it describes at import are declared.
VISION = """
import sys; sys.path[:0] = {path!r}
import torch
try:
    import torchvision
except RuntimeError:
    for name in [name for name in sys.modules if name.startswith("torchvision")]:
        del sys.modules[name]
    operators = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        operators.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
import numpy as np
from loops import run_block
torch.manual_seed(0)
"""
TIMM = """
images = [(torch.randn(4, 3, 32, 32), torch.randint(0, 10, (4,))) for _ in range(3)]
names = run_block("timm", name="test_resnet", loader=images)
assert names["loss"].progress == 5 / 6 and names["normalizer"].ema > 0
"""
FASTAI = """
from fastai.data.core import DataLoaders
from fastai.metrics import accuracy
import expacc
x = torch.randn(240, 5)
y = x[:, :4].argmax(1)
rows = list(zip(x, y))
loaders = DataLoaders.from_dsets(rows, rows, bs=12, device="cpu")
model = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
names = run_block("fastai", loaders=loaders, model=model)
learner, loss = names["learner"], names["loss"]
learner.metrics = [accuracy]
learner.fit(8, 0.02)
assert loss.reduction == "mean" and learner.final_record[-1] > 0.8, learner.final_record
p, _, decoded = learner.get_preds(with_decoded=True)
assert torch.allclose(p.sum(1), torch.ones(240)) and torch.equal(decoded, p.argmax(1))
logits, target = torch.randn(6, 4), torch.randint(0, 4, (6,))
expected = expacc.functional.leaky_expected_error(logits, target, leak=0.1)
torch.testing.assert_close(torch.Tensor(loss(logits, target)), expected)
loss.reduction = "none"
assert loss(logits, target).shape == (6,)
"""


@pytest.mark.slow
def test_timm_and_fastai(tmp_path):
    """Neither is in the extra dev: they need a torchvision that fits the torch at hand."""
    constraints = PAGE.parent.parent / "constraints.txt"
    packages = "timm torchvision fastai fastcore fastdownload fasttransform plum-dispatch beartype"
    packages += " fastprogress==1.0.3"  # 1.1 brings a web server
    command = f"-m pip install --quiet --no-deps --target {tmp_path} -c {constraints}"
    subprocess.run([sys.executable, *command.split(), *packages.split()], check=True)
    apart(VISION + TIMM, tmp_path)
    apart(VISION + FASTAI, tmp_path)
