"""skorch with our losses: the weights of our own loop, and probabilities."""

import doctest
import pickle
from importlib import import_module

import numpy as np
import pytest
import torch
from loops import RATE, STEPS, assert_same, batches, network, ours, run_block
from sklearn.base import clone
from torch import nn

import expacc
from expacc.schedules import focus_gradual

X = torch.cat([x for x, _ in batches(STEPS)]).numpy()
Y = torch.cat([y for _, y in batches(STEPS)]).numpy()


@pytest.fixture(scope="module")
def integration():
    """Imported here and not at the top, where every worker of pytest would do it."""
    return import_module("expacc.integrations.skorch")


class Start(nn.Module):
    """A network that starts where our loop does, wherever skorch makes it."""

    def __init__(self):
        super().__init__()
        self.net = network()

    def forward(self, x):
        return self.net(x)


def net_of(*callbacks, kind="NeuralNetClassifier", module=Start, **settings):
    settings = {
        "criterion": import_module("expacc.integrations.skorch").MixedExpectedErrorLoss,
        "optimizer": torch.optim.SGD,
        "optimizer__momentum": 0.9,
        "lr": RATE,
        "batch_size": 6,
        "max_epochs": 1,
        "train_split": None,
        "verbose": 0,
        **settings,
    }
    return getattr(import_module("skorch"), kind)(module, callbacks=list(callbacks), **settings)


@pytest.mark.parametrize("gradients", ["as they are", "clipped", "normalized"])
def test_the_weights_of_our_loop(gradients, integration):
    last = {
        "as they are": (),
        "clipped": (import_module("skorch.callbacks").GradientNormClipping(0.1),),
        "normalized": (integration.GradientNormalization(),),
    }
    schedule = integration.LossSchedule({"focus": focus_gradual})
    net = net_of(schedule, *last[gradients]).fit(X, Y)
    clip = 0.1 if gradients == "clipped" else None
    assert_same(net.module_.net, ours(clip=clip, normalize=gradients == "normalized"))


def test_a_resumed_run_is_the_same(tmp_path, integration):
    """Four epochs; or two, a checkpoint, and two more in a net that knows nothing of the first."""

    checkpoint = import_module("skorch.callbacks").Checkpoint

    def new(epochs):
        return net_of(
            integration.LossSchedule({"focus": focus_gradual}, epochs=4),
            integration.GradientNormalization(),
            checkpoint(monitor=None, dirname=str(tmp_path)),
            max_epochs=epochs,
        )

    whole = new(4)
    whole.fit(X, Y)
    new(2).fit(X, Y)
    second = new(2).initialize()
    second.load_params(checkpoint=checkpoint(monitor=None, dirname=str(tmp_path)))
    second.partial_fit(X, Y)
    for one, two in zip(whole.module_.parameters(), second.module_.parameters(), strict=True):
        assert torch.equal(one, two)
    assert second.history[:, "gradient_norm"] == whole.history[:, "gradient_norm"]


def test_predict_proba_gives_probabilities(integration):
    net = net_of(criterion=integration.LeakyExpectedErrorLoss, criterion__leak=0.2, max_epochs=9)
    net = pickle.loads(pickle.dumps(clone(net).fit(X, Y)))
    assert net.criterion_.leak == 0.2
    with torch.no_grad():
        expected = torch.softmax(net.module_(torch.as_tensor(X)), 1).numpy()
    np.testing.assert_allclose(net.predict_proba(X), expected, atol=1e-6)
    assert net.score(X, Y) > 0.8
    # without, they would be logits
    plain = net_of(criterion=expacc.LeakyExpectedErrorLoss).fit(X, Y)
    assert plain.predict_proba(X).min() < 0


def test_binary_probabilities(integration):
    class One(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(5, 1)

        def forward(self, x):
            return self.linear(x).squeeze(1)

    criterion = integration.BinaryExpectedErrorLoss
    net = net_of(kind="NeuralNetBinaryClassifier", module=One, criterion=criterion, max_epochs=5)
    probabilities = net.fit(X, (Y > 1).astype(np.float32)).predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-6)
    assert probabilities.min() >= 0


def test_every_loss_has_its_criterion(integration):
    names = {name for name in expacc.__all__ if name.endswith("Loss")}
    assert names - {"MaxMahalanobisCenterLoss", "ScheduledLoss"} <= set(integration.__all__)
    for name in set(integration.__all__) - {"GradientNormalization", "LossSchedule"}:
        made = getattr(integration, name)()
        known = nn.BCEWithLogitsLoss if made.spec.family == "binary" else nn.CrossEntropyLoss
        assert isinstance(made, known)
        target = torch.ones(2, 3) if made.spec.family == "binary" else torch.tensor([0, 2])
        logits = torch.tensor([[1.0, 0.0, 2.0], [0.5, 1.5, 0.0]])
        assert torch.equal(made(logits, target), getattr(expacc, name)()(logits, target))


def test_refusals(integration):
    for callback, kind, sentence in (
        (integration.LossSchedule(), TypeError, "must be a ScheduledLoss, or come with schedules"),
        (integration.LossSchedule({"leek": focus_gradual}), ValueError, "leek must be a number of"),
        (integration.GradientNormalization(decay=2), ValueError, "decay must lie in"),
    ):
        with pytest.raises(kind, match=sentence):
            net_of(callback).fit(X, Y)


def test_the_examples_of_the_docstrings(integration):
    assert doctest.testmod(integration).failed == 0


def test_the_page():
    names = run_block("skorch", Network=Start, X=X, y=Y)
    np.testing.assert_allclose(names["probabilities"].sum(1), 1, rtol=1e-5)
