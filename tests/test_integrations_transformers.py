"""Trainer with our losses: the weights of our own loop, accumulated, clipped, resumed."""

import doctest
import json
from functools import cache
from importlib import import_module
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from loops import (
    CLASSES,
    RATE,
    STEPS,
    assert_same,
    batches,
    network,
    ours,
    run_block,
    scheduled_loss,
)
from torch import nn
from torch.utils.data import SequentialSampler

from expacc import LeakyExpectedErrorLoss, MixedExpectedErrorLoss, functional
from expacc.schedules import focus_gradual


class Classifier(nn.Module):
    """As a Trainer wants it: arguments by name, a dict back."""

    def __init__(self):
        super().__init__()
        self.net = network()

    def forward(self, x, labels=None):
        return {"logits": self.net(x)}


def part(name):
    """A part of our integration, which imports transformers: not at the top, see test_house."""
    return getattr(import_module("expacc.integrations.transformers"), name)


@cache
def in_order():
    class InOrder(import_module("transformers").Trainer):
        def _get_train_sampler(self, *arguments):
            return SequentialSampler(self.train_dataset)

    return InOrder


def trainer_of(folder, loss, *, count=STEPS, callbacks=(), model=None, rows=None, **settings):
    if rows is None:
        rows = [
            {"x": x, "labels": y} for batch in batches(count) for x, y in zip(*batch, strict=True)
        ]
    settings = {
        "per_device_train_batch_size": 6,
        "num_train_epochs": 1,
        "learning_rate": RATE,
        "optim": "sgd",
        "optim_args": "momentum=0.9",
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "logging_strategy": "no",
        **settings,
    }
    arguments = import_module("transformers").TrainingArguments
    return in_order()(
        model=model or Classifier(),
        args=arguments(output_dir=str(folder), **settings),
        train_dataset=rows,
        compute_loss_func=loss,
        callbacks=list(callbacks),
    )


AT_ONCE = {(1, "float32", "as they are"), (4, "float32", "clipped"), (4, "bfloat16", "normalized")}


@pytest.mark.parametrize(
    ("accumulate", "precision", "gradients"),
    [
        pytest.param(*each, marks=() if each in AT_ONCE else pytest.mark.slow)
        for each in product(
            (1, 4), ("float32", "bfloat16"), ("as they are", "clipped", "normalized")
        )
    ],
)
def test_the_weights_of_our_loop(tmp_path, accumulate, precision, gradients):
    loss, clip = scheduled_loss(), 0.1 if gradients == "clipped" else None
    normalize = gradients == "normalized"
    callbacks = [
        part("LossSchedule")(loss),
        *([part("GradientNormalization")()] if normalize else []),
    ]
    trainer = trainer_of(
        tmp_path,
        part("trainer_loss")(loss),
        count=STEPS * accumulate,
        callbacks=callbacks,
        gradient_accumulation_steps=accumulate,
        bf16=precision == "bfloat16",
        max_grad_norm=clip or 0.0,
    )
    trainer.train()
    assert trainer.state.global_step == STEPS
    assert_same(trainer.model.net, ours(accumulate, precision, clip, normalize))


def test_a_resumed_run_is_the_same(tmp_path):
    """A checkpoint in the midst of the run; the mean of the norms is in its trainer_state.json."""
    kept = []
    for start in (None, str(tmp_path / "checkpoint-8")):
        loss = MixedExpectedErrorLoss()
        trainer = trainer_of(
            tmp_path,
            part("trainer_loss")(loss),
            callbacks=[
                part("LossSchedule")(loss, focus=focus_gradual),
                part("GradientNormalization")(),
            ],
            save_strategy="steps",
            save_steps=8,
        )
        trainer.train(resume_from_checkpoint=start)
        kept.append(trainer.model.net)
        assert_same(trainer.model.net, ours(normalize=True))
        state = json.loads((tmp_path / "checkpoint-16/trainer_state.json").read_text())
        ema = state["stateful_callbacks"]["GradientNormalization"]["attributes"]["ema"]
        assert 0 < ema < 10
    for one, two in zip(kept[0].parameters(), kept[1].parameters(), strict=True):
        assert torch.equal(one, two)
    trainer.train()  # anew: the mean of the last run is not carried over, nor is the hook doubled
    assert len(trainer.optimizer.optimizer._optimizer_step_pre_hooks) == 0
    # a checkpoint that knows nothing of the callback is no obstacle
    del state["stateful_callbacks"]["GradientNormalization"]
    (tmp_path / "checkpoint-16/trainer_state.json").write_text(json.dumps(state))
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-16"))


class Tagger(nn.Module):
    """Logits (rows, tokens, classes)."""

    def __init__(self, output=dict, **others):
        super().__init__()
        self.net, self.output = network(), output
        for name, value in others.items():
            setattr(self, name, value)

    def forward(self, x, labels=None):
        return self.output(logits=self.net(x))


def sentences(shift, count=2 * STEPS, tokens=7):
    """Rows of tokens, of which ever fewer are to be learnt: micro-batches weigh differently."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(count * 3, tokens, 5, generator=generator)
    labels = x[..., :CLASSES].argmax(-1)
    if shift:
        labels = labels.roll(1, dims=1)
    for row, one in enumerate(labels):
        one[1 + row % tokens :] = -100
    labels[: 2 * 3] = -100  # a whole step without a label
    return [{"x": one, "labels": label} for one, label in zip(x, labels, strict=True)]


@pytest.mark.parametrize("shift", [False, True])
def test_tokens_count_alike_wherever_the_batches_are_cut(tmp_path, shift):
    """Padding, accumulation and the shift of causal models, against the sum over all tokens."""
    rows = sentences(shift)
    model = Tagger()
    if shift:
        outputs = import_module("transformers.modeling_outputs")
        model = Tagger(outputs.CausalLMOutput, loss_type="ForCausalLM")
    trainer = trainer_of(
        tmp_path,
        part("trainer_loss")(LeakyExpectedErrorLoss()),
        rows=rows,
        model=model,
        per_device_train_batch_size=3,
        gradient_accumulation_steps=2,
    )
    trainer.train()
    by_hand = network()
    optimizer = torch.optim.SGD(by_hand.parameters(), lr=RATE, momentum=0.9)
    for step in range(STEPS):
        some = rows[6 * step : 6 * step + 6]
        x, labels = (torch.stack([row[name] for row in some]) for name in ("x", "labels"))
        logits = by_hand(x)
        if shift:
            logits, labels = logits[:, :-1], labels[:, 1:]
        loss = functional.leaky_expected_error(logits.movedim(-1, 1), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert_same(model.net, by_hand)


def test_shares_of_the_mean():
    """An empty micro-batch gives torch's mean NaN; its share is nothing, and so is its gradient."""
    compute = part("trainer_loss")(F.cross_entropy)
    logits = torch.randn(2, 3, CLASSES, requires_grad=True)
    none = compute({"logits": logits}, torch.full((2, 3), -100), num_items_in_batch=4)
    none.backward()
    assert none == 0
    assert not logits.grad.any()
    labels = torch.tensor([[1, -100, 3], [0, -100, -100]])
    mean = F.cross_entropy(logits.movedim(-1, 1), labels)
    share = compute((logits,), labels, num_items_in_batch=torch.tensor(12))
    torch.testing.assert_close(share, mean * 3 / 12)
    # Under DataParallel the count comes once per GPU, and Trainer multiplies by their number.
    expanded = torch.tensor(12).unsqueeze(0).expand(2, -1)
    torch.testing.assert_close(2 * compute(logits, labels, num_items_in_batch=expanded), share)
    assert compute(logits.bfloat16(), labels).dtype == torch.float32
    # Without a count, as where somebody calls compute_loss alone, the mean.
    torch.testing.assert_close(compute(logits, labels), mean)


@pytest.mark.parametrize("shape", [(2, 3, CLASSES), (2, CLASSES), (2, CLASSES, 5, 5)])
def test_class_probabilities_and_images(shape):
    """Trainer counts every probability; the share is by the same count."""
    logits = torch.randn(shape)
    tokens = logits.movedim(-1, 1) if len(shape) == 3 else logits
    soft = torch.softmax(torch.randn(shape), dim=-1 if len(shape) < 4 else 1)
    expected = F.cross_entropy(tokens, soft.movedim(-1, 1) if len(shape) == 3 else soft)
    compute = part("trainer_loss")(F.cross_entropy)
    count = 2 * soft.numel()
    torch.testing.assert_close(2 * compute(logits, soft, num_items_in_batch=count), expected)
    hard = tokens.argmax(1)
    torch.testing.assert_close(compute(logits, hard), F.cross_entropy(tokens, hard))


@pytest.mark.slow
def test_a_language_model_learns_as_with_its_own_loss(tmp_path):
    """A small GPT-2: cross entropy by way of trainer_loss is the Trainer's own, to rounding."""
    from transformers import GPT2Config, GPT2LMHeadModel

    generator = torch.Generator().manual_seed(6)
    tokens = torch.randint(3, 40, (160, 12), generator=generator)
    rows = [{"input_ids": row, "labels": row.where(row > 5, -100)} for row in tokens]
    models = []
    for loss in (None, part("trainer_loss")(F.cross_entropy)):
        torch.manual_seed(7)
        config = GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=40, n_positions=12)
        config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
        models.append(GPT2LMHeadModel(config))
        trainer_of(
            tmp_path,
            loss,
            rows=rows,
            model=models[-1],
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
        ).train()
    for (name, one), two in zip(models[0].named_parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-5, msg=name)


def test_refusals(tmp_path):
    for loss, kind, sentence in (
        (LeakyExpectedErrorLoss(reduction="sum"), ValueError, "reduction='mean' for Trainer; got"),
        (nn.CrossEntropyLoss(ignore_index=0), ValueError, "ignore_index=-100 for Trainer; got 0"),
        (nn.Linear(2, 2), ValueError, "must have no trainable parameters"),
        ("focal", TypeError, "loss must be callable as loss"),
    ):
        with pytest.raises(kind, match=sentence):
            part("trainer_loss")(loss)
    compute = part("trainer_loss")(F.cross_entropy)
    with pytest.raises(ValueError, match="labels must be in the batch; got none"):
        compute({"logits": torch.zeros(2, 3)}, None)
    with pytest.raises(TypeError, match="outputs; got dict with scores"):
        compute({"scores": torch.zeros(2, 3)}, torch.zeros(2).long())
    with pytest.raises(ValueError, match="loss must give one number"):
        part("trainer_loss")(lambda z, y: z)(torch.zeros(2, 3), torch.zeros(2).long())
    named = part("trainer_loss")(F.cross_entropy, logits="scores")
    assert named({"scores": torch.zeros(2, 3)}, torch.zeros(2).long()) > 1
    trainer = trainer_of(
        tmp_path, compute, callbacks=[part("GradientNormalization")()], max_grad_norm=1.0
    )
    with pytest.raises(ValueError, match="max_grad_norm must be 0 or None beside"):
        trainer.train()
    with pytest.raises(TypeError, match="must be a ScheduledLoss, or come with schedules"):
        part("LossSchedule")(LeakyExpectedErrorLoss())


def test_the_examples_of_the_docstrings():
    assert doctest.testmod(import_module("expacc.integrations.transformers")).failed == 0


def test_the_page(tmp_path):
    arguments = import_module("transformers").TrainingArguments(
        str(tmp_path),
        max_grad_norm=0,
        max_steps=3,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
        dataloader_pin_memory=False,
    )
    rows = [{"x": x, "labels": y} for batch in batches(3) for x, y in zip(*batch, strict=True)]
    names = run_block("Transformers", model=Classifier(), arguments=arguments, rows=rows)
    assert names["trainer"].state.global_step == 3
