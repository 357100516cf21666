"""Lightning with our losses: the weights of our own loop, whatever is accumulated or resumed."""

import doctest
import sys
import warnings
from functools import cache
from importlib import import_module

import pytest
import torch
from loops import (
    RATE,
    STEPS,
    assert_same,
    batches,
    changed,
    network,
    ours,
    run_block,
    scheduled_loss,
)
from torch import nn
from torch.utils.data import DataLoader

from expacc import LeakyExpectedErrorLoss, MixedExpectedErrorLoss
from expacc.integrations import lightning_hooks
from expacc.schedules import focus_gradual

# Lightning takes seconds to import: not at the top, where every worker of pytest would do it.
pytestmark = [
    pytest.mark.filterwarnings(each)
    for each in (  # Lightning's own: advice on loaders and folders, and its use of torch
        "ignore::lightning.fabric.utilities.warnings.PossibleUserWarning",
        "ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning",
    )
]


@cache
def classifier(package="lightning"):
    class Classifier(import_module(package).LightningModule):
        def __init__(self, criterion: nn.Module, count: int = STEPS, fused: bool = False):
            super().__init__()
            self.net, self.criterion, self.count, self.fused = network(), criterion, count, fused

        def training_step(self, batch, batch_idx):
            x, y = batch
            return self.criterion(self.net(x).float(), y)

        def configure_optimizers(self):
            parameters = self.net.parameters()
            return torch.optim.SGD(parameters, lr=RATE, momentum=0.9, fused=self.fused)

        def train_dataloader(self):
            return DataLoader(batches(self.count), batch_size=None)

    return Classifier


def callbacks(name="lightning"):
    return import_module(f"expacc.integrations.{name}")


QUIET = {
    "accelerator": "cpu",
    "max_epochs": 1,
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


def trained(module, *hooks, start=None, package="lightning", **settings):
    trainer = import_module(package).Trainer(callbacks=list(hooks), **{**QUIET, **settings})
    trainer.fit(module, ckpt_path=start)
    return trainer


@pytest.mark.parametrize("accumulate", [1, 4])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("gradients", ["as they are", "clipped", "normalized"])
def test_the_weights_of_our_loop(accumulate, precision, gradients):
    clip = 0.1 if gradients == "clipped" else None
    normalize = gradients == "normalized"
    module = classifier()(scheduled_loss(), STEPS * accumulate)
    trainer = trained(
        module,
        callbacks().LossSchedule(),
        *([callbacks().GradientNormalization()] if normalize else []),
        accumulate_grad_batches=accumulate,
        precision="bf16-mixed" if precision == "bfloat16" else "32-true",
        gradient_clip_val=clip,
    )
    assert trainer.global_step == STEPS
    assert_same(module.net, ours(accumulate, precision, clip, normalize))


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* is not empty:UserWarning")
def test_a_resumed_run_is_the_same(tmp_path):
    """Between epochs: within one, Lightning itself begins again with the first batch."""
    from lightning.pytorch.callbacks import ModelCheckpoint

    kept = []
    for start in (None, tmp_path / "epoch=1-step=10.ckpt"):
        module = classifier()(MixedExpectedErrorLoss(), STEPS // 4)
        trained(
            module,
            callbacks().LossSchedule({"focus": focus_gradual}),
            callbacks().GradientNormalization(),
            ModelCheckpoint(tmp_path, every_n_epochs=1, save_top_k=-1),
            start=start,
            max_epochs=4,
            enable_checkpointing=True,
        )
        kept.append(module.net)
    assert_same(kept[0], ours(normalize=True, epochs=4))
    for one, two in zip(kept[0].parameters(), kept[1].parameters(), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("fused", [False, True])
def test_float16_with_a_scaler(fused):
    """The mean is that of the true gradients, also where a fused step would unscale them."""
    from lightning.pytorch.plugins import MixedPrecision

    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    callback = callbacks().GradientNormalization()
    module = classifier()(scheduled_loss(), fused=fused)
    half = MixedPrecision("16-mixed", "cpu", scaler)
    trained(module, callbacks().LossSchedule(), callback, plugins=[half])
    plain = callbacks().GradientNormalization()
    trained(classifier()(scheduled_loss()), callbacks().LossSchedule(), plain)
    ema, expected = (one.state_dict()["ema"][0] for one in (callback, plain))
    torch.testing.assert_close(ema, expected, rtol=0.02, atol=0)


def test_class_paths_of_the_command_line(monkeypatch, tmp_path):
    from lightning.pytorch.cli import LightningCLI

    arguments = [
        "fit",
        "--model.criterion=expacc.MixedExpectedErrorLoss",
        "--model.criterion.reduction=mean",
        "--trainer.callbacks+=expacc.integrations.lightning.LossSchedule",
        "--trainer.callbacks.schedules={focus: expacc.schedules.focus_gradual}",
        "--trainer.callbacks+=expacc.integrations.lightning.GradientNormalization",
        "--trainer.callbacks.decay=0.9",
        *(f"--trainer.{name}={str(value).lower()}" for name, value in QUIET.items()),
    ]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JSONARGPARSE_DEPRECATION_WARNINGS", "off")  # Lightning's own
    monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
    cli = LightningCLI(classifier(), save_config_callback=None, seed_everything_default=False)
    assert_same(cli.model.net, ours(normalize=True))


def test_refusals():
    ours = callbacks()
    follow, normalize = ours.LossSchedule, ours.GradientNormalization
    for callback, settings, kind, sentence in (
        (follow(), {}, ValueError, "must find a ScheduledLoss in the LightningModule"),
        (follow({"leek": focus_gradual}), {}, ValueError, "leek must be a number of the"),
        (follow({"leak": max}, "loss"), {}, TypeError, "that is a loss Module; got 'loss'"),
        (normalize(), {"gradient_clip_val": 1.0}, ValueError, "0 or None beside"),
    ):
        with pytest.raises(kind, match=sentence):
            trained(classifier()(LeakyExpectedErrorLoss()), callback, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        endless = {"max_epochs": -1, "max_steps": -1}
        with pytest.raises(ValueError, match="the Trainer must know when training ends"):
            trained(classifier()(scheduled_loss()), callbacks().LossSchedule(), **endless)


@pytest.mark.slow
def test_the_older_package():
    older = callbacks("pytorch_lightning")
    module = classifier("pytorch_lightning")(scheduled_loss())
    trained(
        module,
        older.LossSchedule(),
        older.GradientNormalization(),
        package="pytorch_lightning",
    )
    assert_same(module.net, ours(normalize=True))


def test_the_examples_of_the_docstrings():
    assert doctest.testmod(lightning_hooks).failed == 0


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_the_page():
    settings = {name: value for name, value in QUIET.items() if name != "max_epochs"}
    model = network()
    loader = DataLoader(batches(20), batch_size=None)
    names = run_block("Lightning", network=model, loader=loader, settings=settings)
    assert names["trainer"].global_step == 20
    assert changed(model)
