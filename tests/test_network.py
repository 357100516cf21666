"""fit: what it trains, what it leaves alone, how it resumes, and what it refuses."""

import math
import random

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Sampler,
    TensorDataset,
    WeightedRandomSampler,
)

from expacc import ASAM, ExactLoss, ExpectedErrorLoss, GradientNormalizer, ScheduledLoss
from expacc.functional import complement_entropy
from expacc.training import ComplementObjective
from expacc.training.checkpoint import FILE, load_state, save_state
from expacc.training.network import fit

ROWS = torch.randn(70, 6, generator=torch.Generator().manual_seed(1))
LABELS = ROWS[:, :3].argmax(1)
DATA = TensorDataset(ROWS, LABELS)


def network(dropout=0.2):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Dropout(dropout), nn.Linear(12, 3))


def loader(**settings):
    return DataLoader(DATA, **{"batch_size": 16, "shuffle": True, **settings})


def quiet(model, loaders, loss=F.cross_entropy, **settings):
    return fit(model, loaders, loss, **{"device": "cpu", "progress": False, **settings})


def weights(model):
    return torch.cat([value.detach().double().flatten() for value in model.state_dict().values()])


def sgd(model, **settings):
    return torch.optim.SGD(model.parameters(), **{"lr": 0.3, **settings})


# ---------------------------------------------------------------------------------- training


def test_it_learns_and_says_so():
    model = network()
    result = quiet(model, (loader(), loader(shuffle=False)), epochs=15, optimizer=sgd(model))
    assert [record.epoch for record in result.history] == list(range(1, 16))
    assert result.steps == 15 * 5
    assert (result.stopped, result.resumed_at) == ("epochs", 0)
    last = result.history[-1]
    with torch.no_grad():  # the model is left in evaluation mode
        logits = model(ROWS)
    assert last.validation_accuracy == (logits.argmax(1) == LABELS).double().mean().item()
    assert last.validation_accuracy > 0.9
    assert last.validation_loss == pytest.approx(F.cross_entropy(logits, LABELS).item(), rel=1e-6)
    best = max(record.validation_accuracy for record in result.history)
    assert result.history[result.best_epoch - 1].validation_accuracy == best


def test_the_same_as_a_loop_by_hand():
    batches = [(ROWS[:40], LABELS[:40]), (ROWS[40:], LABELS[40:])]
    model, by_hand = network(0), network(0)
    result = quiet(model, batches, epochs=3, optimizer=sgd(model, momentum=0.9), clip=0.5)
    optimizer = sgd(by_hand, momentum=0.9)
    losses = []
    for _ in range(3):
        for x, y in batches:
            loss = F.cross_entropy(by_hand(x), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(by_hand.parameters(), 0.5)
            optimizer.step()
            losses.append(loss.item())
    assert torch.equal(weights(model), weights(by_hand))
    mean = (losses[-2] * 40 + losses[-1] * 30) / 70
    assert result.history[-1].loss == pytest.approx(mean, rel=1e-12)
    assert result.best_epoch is None
    assert result.history[-1].validation_accuracy is None


def test_accumulation_is_the_mean_over_rows():
    """Batches of 16, 16, 16, 16 and 6 rows, all in one step."""
    whole, parts = network(0), network(0)
    quiet(whole, [(ROWS, LABELS)], epochs=4, optimizer=sgd(whole))
    quiet(parts, loader(), epochs=4, optimizer=sgd(parts), accumulate=5)
    torch.testing.assert_close(weights(parts), weights(whole), rtol=0, atol=1e-6)
    three = network(0)
    assert quiet(three, loader(), epochs=4, optimizer=sgd(three), accumulate=3).steps == 8


def test_asam_and_normalizer_as_by_hand():
    model, by_hand = network(0), network(0)
    optimizer = ASAM(sgd(model), rho=0.5)
    normalizer = GradientNormalizer(optimizer)
    quiet(model, [(ROWS, LABELS)], epochs=4, optimizer=optimizer, normalizer=normalizer)
    optimizer = ASAM(sgd(by_hand), rho=0.5)
    other = GradientNormalizer(optimizer)
    for _ in range(4):
        for step in (optimizer.first_step, optimizer.second_step):
            F.cross_entropy(by_hand(ROWS), LABELS).backward()
            other.step()
            step()
    assert torch.equal(weights(model), weights(by_hand))
    assert torch.equal(normalizer.ema, other.ema)


def test_a_complement_objective_is_a_second_step_on_the_same_batch(tmp_path):
    def trained(folder=None, loss=F.cross_entropy):
        model = network(0)
        optimizer, second = sgd(model, momentum=0.9), sgd(model, momentum=0.9)
        settings = {"optimizer": optimizer, "complement": ComplementObjective(second)}
        settings |= {"scheduler": lr_scheduler.ExponentialLR(optimizer, 0.5), "epochs": 4}
        quiet(model, [(ROWS, LABELS)], loss, **settings, checkpoint=folder)
        return weights(model)

    by_hand = network(0)
    optimizers = [sgd(by_hand, momentum=0.9) for _ in range(2)]
    for epoch in range(4):
        for number, optimizer in enumerate(optimizers):
            optimizer.param_groups[0]["lr"] = 0.3 * 0.5**epoch
            logits = by_hand(ROWS)
            own = F.cross_entropy(logits, LABELS)
            (complement_entropy(logits, LABELS) / 3 if number else own).backward()
            optimizer.step()
            by_hand.zero_grad()
    assert torch.allclose(trained(), weights(by_hand), atol=1e-12, rtol=1e-5)
    with pytest.raises(Stop):
        trained(tmp_path, stopping(F.cross_entropy, 3))
    assert torch.equal(trained(tmp_path), trained())
    with pytest.raises(TypeError, match="must be an optimizer, made already; got float"):
        ComplementObjective(0.1)


def test_a_scheduled_loss_sees_the_share_of_training():
    seen = []
    loss = ScheduledLoss(ExpectedErrorLoss(label_smoothing=0.0), label_smoothing=lambda p: p / 10)
    loss.register_forward_pre_hook(lambda *_: seen.append(loss.label_smoothing * 10))
    quiet(network(), loader(), loss, epochs=2)
    assert seen == pytest.approx([step / 10 for step in range(10)])


@pytest.mark.parametrize("asam", [False, True])
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_every_precision_trains(precision, asam):
    model, dtypes, inner = network(), set(), set()

    def loss(logits, target):
        dtypes.add(logits.dtype)
        return F.cross_entropy(logits, target)

    model[0].register_forward_hook(lambda *args: inner.add(args[2].dtype))
    settings = {"optimizer": sgd(model), "epochs": 8, "precision": precision}
    if asam:
        optimizer = ASAM(sgd(model), rho=0.1)
        normalizer = GradientNormalizer(optimizer)
        settings |= {"optimizer": optimizer, "normalizer": normalizer, "epochs": 12}
    assert quiet(model, loader(), loss, **settings).history[-1].accuracy > 0.8
    assert dtypes == {torch.float32}
    assert inner == {getattr(torch, precision)}


class Two(nn.Linear):
    def forward(self, inputs):
        return super().forward(inputs["a"] + inputs["b"][0])


def test_soft_targets_dense_targets_and_structured_inputs():
    soft, found = F.one_hot(LABELS, 3).float(), []
    for target in (LABELS, soft):
        model = network(0)
        found.append(quiet(model, [(ROWS, target)], epochs=2, optimizer=sgd(model)).history)
    assert [r.accuracy for r in found[0]] == [r.accuracy for r in found[1]]

    dense = nn.Conv2d(1, 3, 1)
    pictures, labels = torch.randn(5, 1, 4, 4), torch.randint(0, 3, (5, 4, 4))
    labels[0] = -100
    record = quiet(dense, ([(pictures, labels)], [(pictures, labels)]), epochs=1).history[0]
    right = (dense(pictures).argmax(1) == labels)[1:].double().mean().item()
    assert record.validation_accuracy == pytest.approx(right)
    quiet(Two(6, 3), [({"a": ROWS, "b": (ROWS,)}, LABELS)], epochs=1)


def test_a_nan_in_the_logits_is_no_hit():
    class Broken(nn.Linear):
        def forward(self, x):
            logits = super().forward(x)
            return logits if self.training else logits * math.nan

    zeros = torch.zeros(8, dtype=torch.long)
    batch = [(ROWS[:8], zeros)]
    assert quiet(Broken(6, 3), (batch, batch), epochs=1).history[0].validation_accuracy == 0


def test_patience_and_the_best_weights():
    # Validation rows have the other labels: the better it trains, the worse it scores.
    loaders = [(ROWS, LABELS)], [(ROWS, (LABELS + 1) % 3)]
    model, seen = network(0), []
    model[3].register_forward_hook(
        lambda module, *_: None if module.training else seen.append(weights(model))
    )
    settings = {"optimizer": sgd(model), "patience": 3, "weights": "best"}
    result = quiet(model, loaders, epochs=50, **settings)
    assert result.stopped == "patience"
    assert len(result.history) == result.best_epoch + 3
    assert torch.equal(weights(model), seen[result.best_epoch - 1])


def test_the_callers_randomness_and_loader_stay():
    generator = torch.Generator().manual_seed(9)
    batches = loader(generator=generator)
    states = torch.get_rng_state(), generator.get_state()
    python, old = random.getstate(), numpy.random.get_state()[1].copy()  # noqa: NPY002
    quiet(network(), batches, epochs=1)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert torch.equal(generator.get_state(), states[1])
    assert batches.sampler.generator is generator
    assert random.getstate() == python
    assert numpy.array_equal(numpy.random.get_state()[1], old)  # noqa: NPY002


@pytest.mark.parametrize(
    ("make", "rate"),
    [
        (lambda o: lr_scheduler.StepLR(o, 1, gamma=0.5), 0.125),
        # a threshold that nothing is better by
        (lambda o: lr_scheduler.ReduceLROnPlateau(o, "min", 0.1, 0, 1e9, "abs"), 0.01),
    ],
)
def test_a_scheduler_per_epoch_and_plateau(make, rate):
    model = network()
    optimizer = sgd(model, lr=1.0)
    settings = {"optimizer": optimizer, "scheduler": make(optimizer)}
    quiet(model, (loader(), loader()), epochs=3, **settings)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(rate)


def test_progress_is_on_stderr_or_silent(monkeypatch, capfd):
    monkeypatch.setattr("expacc.training.progress.PATIENCE", 0.0)
    fit(network(), (loader(), loader()), F.cross_entropy, epochs=2, device="cpu")
    out, err = capfd.readouterr()
    assert out == ""
    assert "epoch 2/2: 100 %, accuracy" in err
    assert ", validation " in err
    assert " left" in err
    quiet(network(), loader(), epochs=2)
    assert capfd.readouterr() == ("", "")


# ---------------------------------------------------------------------------------- resuming


class Stop(Exception):
    pass


def stopping(loss, number):
    """The loss, failing at its call ``number``."""
    calls = 0

    def cross_entropy(logits, target):
        nonlocal calls
        calls += 1
        if calls == number:
            raise Stop
        return loss(logits, target)

    return cross_entropy


class Noisy(Dataset):
    """Rows with noise from three global generators, as augmentation in this process is."""

    def __len__(self):
        return len(ROWS)

    def __getitem__(self, row):
        noise = torch.rand(6) + random.random() + numpy.random.rand()  # noqa: NPY002
        return ROWS[row] + noise / 10, LABELS[row]


class Careless(Sampler):
    """Shuffles with the global generator and hides it."""

    def __iter__(self):
        return iter(torch.randperm(70).tolist())

    def __len__(self):
        return 70


class Subclass(DataLoader):
    def __iter__(self):
        return super().__iter__()


class Stream(IterableDataset):
    """Rows in an order of its own, told the epoch."""

    epoch = 0

    def __len__(self):
        return 70

    def __iter__(self):
        order = torch.randperm(70, generator=torch.Generator().manual_seed(self.epoch))
        return iter([DATA[row] for row in order])


class StreamLoader(DataLoader):
    def set_epoch(self, epoch):
        self.dataset.epoch = epoch


LOADERS = {
    "a stream": lambda: DataLoader(Stream(), 16),
    "a stream that is told the epoch": lambda: StreamLoader(Stream(), 16),
    "shuffled": loader,
    "in this process, augmented": lambda: DataLoader(Noisy(), 16, shuffle=True),
    "a sampler without generator": lambda: loader(shuffle=False, sampler=Careless()),
    "weighted": lambda: loader(
        shuffle=False, sampler=WeightedRandomSampler(torch.rand(70).tolist(), 70)
    ),
    "drop last": lambda: loader(drop_last=True),
    "a subclass": lambda: Subclass(DATA, 16, shuffle=True),
    "a subclass, augmented": lambda: Subclass(Noisy(), 16, shuffle=True),
    "one by one": lambda: DataLoader(DATA, batch_size=16, shuffle=True, num_workers=1),
    "a list": lambda: list(zip(ROWS.split(16), LABELS.split(16), strict=True)),
}


@pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)  # workers
@pytest.mark.parametrize("name", LOADERS)
def test_a_resumed_epoch_sees_the_rows_it_has_not_seen(tmp_path, name):
    torch.manual_seed(0)
    batches = LOADERS[name]()

    def run(loss, folder):
        model = network()
        settings = {"epochs": 3, "checkpoint": folder, "checkpoint_every": 1, "seed": 4}
        return model, quiet(model, batches, loss, **settings)

    whole, expected = run(stopping(F.cross_entropy, 0), None)
    for stop in (4, 6):
        with pytest.raises(Stop):
            run(stopping(F.cross_entropy, stop), tmp_path)
    model, result = run(stopping(F.cross_entropy, 0), tmp_path)
    assert result.resumed_at == 8
    assert torch.equal(weights(model), weights(whole))
    assert [r.loss for r in result.history] == [r.loss for r in expected.history]


def sequence(optimizer):
    warm = lr_scheduler.LinearLR(optimizer, 0.1, 1, 3)
    return lr_scheduler.SequentialLR(
        optimizer, [warm, lr_scheduler.ExponentialLR(optimizer, 0.9)], [4]
    )


# An optimiser of parameters, a schedule of the optimiser.
STATES = {
    "Adam, steps": (lambda p: torch.optim.Adam(p, amsgrad=True),
        lambda o: lr_scheduler.MultiStepLR(o, [3, 5, 5])),
    "AdamW, cosine": (torch.optim.AdamW, lambda o: lr_scheduler.CosineAnnealingLR(o, 15)),
    "SGD, one cycle": (lambda p: torch.optim.SGD(p, lr=0.3, momentum=0.9, nesterov=True),
        lambda o: lr_scheduler.OneCycleLR(o, 0.5, 15)),
    "RMSprop, lambda": (lambda p: torch.optim.RMSprop(p, momentum=0.5),
        lambda o: lr_scheduler.LambdaLR(o, lambda step: 1 / (step + 1))),
    "Adafactor, restarts": (torch.optim.Adafactor,
        lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 4)),
    "ASAM, a sequence": (lambda p: ASAM(torch.optim.SGD(p, lr=0.3, momentum=0.9)), sequence),
    "Adagrad, none": (torch.optim.Adagrad, lambda o: None),
}  # fmt: skip


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_every_state_is_resumed(tmp_path, name, precision):
    make_optimizer, make_scheduler = STATES[name]

    def run(loss, folder):
        model = network()
        optimizer = make_optimizer(model.parameters())
        settings = {"scheduler": make_scheduler(optimizer), "scheduler_every": "step"}
        settings |= {"checkpoint": folder, "checkpoint_every": 3, "weights": "best"}
        settings |= {"optimizer": optimizer, "precision": precision, "epochs": 3}
        quiet(model, (loader(), loader()), loss, **settings)
        return weights(model), optimizer.param_groups[0]["lr"]

    whole, rate = run(stopping(F.cross_entropy, 0), None)
    with pytest.raises(Stop):
        run(stopping(F.cross_entropy, 20), tmp_path)
    again, rate_again = run(stopping(F.cross_entropy, 0), tmp_path)
    assert torch.equal(again, whole)
    assert rate_again == rate


def test_a_finished_run_comes_back_and_goes_on(tmp_path):
    def run(epochs, **settings):
        model = network()
        optimizer = sgd(model)
        settings |= {"scheduler": lr_scheduler.ReduceLROnPlateau(optimizer)}
        settings |= {"epochs": epochs, "optimizer": optimizer, "checkpoint": tmp_path}
        result = quiet(model, (loader(), loader()), **settings)
        return weights(model), result

    first, result = run(2)
    again, same = run(2)
    assert torch.equal(first, again)
    assert same.history == result.history
    assert same.resumed_at == 10
    more, longer = run(3)
    assert longer.history[:2] == result.history
    anew, _ = run(3, resume=False)
    assert torch.equal(more, anew)


# ---------------------------------------------------------------------------------- refusals


def bad_batches(*batches):
    return lambda: quiet(network(), [*batches])


X, Y = ROWS[:4], LABELS[:4]
REFUSED = [
    (lambda: quiet("net", loader()), TypeError, "model must be a Module; got str"),
    (lambda: quiet(network(), loader(), "ce"), TypeError, "loss must be callable"),
    (lambda: quiet(network(), loader(), epochs=0), ValueError, "epochs must be >= 1; got 0"),
    (lambda: quiet(network(), loader(), patience=2.5), TypeError, "patience must be an int"),
    (lambda: quiet(network(), loader(), seed="0"), TypeError, "seed must be an int; got '0'"),
    (lambda: quiet(network(), loader(), precision="int8"), ValueError,
     "precision must be 'float32'"),
    (lambda: quiet(network(), loader(), weights="first"), ValueError, "weights must be 'last'"),
    (lambda: quiet(network(), loader(), device="gpu"), ValueError, "device must be 'auto'"),
    (lambda: quiet(network(), loader(), device=3.5), ValueError, "device must be 'auto'"),
    (lambda: quiet(network(), loader(), clip=0), ValueError, "clip must be finite and > 0"),
    (lambda: quiet(network(), loader(), patience=2), ValueError, r"for patience=2; got one loader"),
    (lambda: quiet(network(), loader(), weights="best"), ValueError, "for weights='best'"),
    (lambda: quiet(network(), loader(), optimizer="sgd"), TypeError, "optimizer must be an optim"),
    (lambda: quiet(network(), loader(), optimizer=sgd(network())), ValueError, "of the model; got"),
    (lambda: quiet(nn.Identity(), loader()), ValueError, "model must have parameters"),
    (lambda: quiet(network(), loader(), scheduler=3), TypeError, "scheduler must be a torch.optim"),
    (lambda: quiet(network(), loader(), scheduler=lr_scheduler.StepLR(sgd(network()), 1)),
     ValueError, "made for the optimizer"),
    (lambda: quiet(network(), []), ValueError, "loaders must give at least one batch; got none"),
    (lambda: quiet(network(), (loader(), [])), ValueError, "loaders must give at least one batch"),
    (lambda: quiet(network(), (X, Y)), TypeError, r"got a tuple of 2: Tensor, Tensor\. A single"),
    (lambda: quiet(network(), X), TypeError, "loaders must be a DataLoader or a list"),
    (lambda: quiet(network(), iter([(X, Y)])), TypeError, "loaders must have a length"),
    (bad_batches(X), TypeError, r"pairs \(inputs, target\); got a Tensor"),
    (bad_batches((X, Y, Y)), TypeError, "got a tuple of 3"),
    (bad_batches({"x": X, "y": Y}), TypeError, "got a dict of 2"),
    (bad_batches((X, [0, 1, 2, 0])), TypeError, "a tensor as target; got list"),
    (bad_batches((X, Y[:3])), ValueError, "got 4 rows and 3 labels"),
    (bad_batches((X[:0], Y[:0])), ValueError, "at least one; got 0 rows and 0 labels"),
    (bad_batches(("words", Y)), TypeError, "inputs made of tensors, lists and dicts; got str"),
    (bad_batches((X, Y.float())), ValueError, r"target must have shape \(4,\) for labels"),
    (bad_batches((X, Y.unsqueeze(1))), ValueError, r"got \(4, 1\), torch.int64"),
    (lambda: quiet(nn.Flatten(0), [(X, Y)], optimizer=None), ValueError, "must have parameters"),
    (lambda: quiet(Returns(lambda z: z[:, 0]), [(X, Y)]), ValueError, r"here \(4, …\); got \(4,\)"),
    (lambda: quiet(Returns(lambda z: z[:2]), [(X, Y)]), ValueError, r"got \(2, 3\)"),
    (lambda: quiet(Returns(lambda z: (z, z)), [(X, Y)]), TypeError, "got tuple"),
    (lambda: quiet(Returns(lambda z: z.argmax(1)), [(X, Y)]), TypeError, "got torch.int64"),
    (lambda: quiet(network(), [(X, Y)], per_row), TypeError, r"got shape \(4,\)\. Use reduction"),
    (lambda: quiet(network(), [(X, Y)], lambda z, y: 1.0), TypeError, "one number, .*; got float"),
    (lambda: normalized_and_clipped(), ValueError, "clip must be None beside a normalizer"),
]  # fmt: skip


class Returns(nn.Module):
    def __init__(self, change):
        super().__init__()
        self.layer, self.change = nn.Linear(6, 3), change

    def forward(self, x):
        return self.change(self.layer(x))


def per_row(logits, target):
    return F.cross_entropy(logits, target, reduction="none")


def normalized_and_clipped():
    model = network()
    quiet(model, loader(), normalizer=GradientNormalizer(model.parameters()), clip=1.0)


@pytest.mark.parametrize(("call", "kind", "sentence"), REFUSED)
def test_refusals(call, kind, sentence):
    with pytest.raises(kind, match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_loss_that_is_not_finite_stops_and_the_checkpoint_stays(tmp_path):
    calls = 0

    def loss(logits, target):
        nonlocal calls
        calls += 1
        return F.cross_entropy(logits, target) * (math.nan if calls == 8 else 1)

    settings = {"checkpoint": tmp_path, "checkpoint_every": 1}
    with pytest.raises(FloatingPointError, match=r"at step 8\. .* stays in .*\.safetensors\.$"):
        quiet(network(), loader(), loss, **settings)
    model = network()
    assert quiet(model, loader(), loss, epochs=2, **settings).resumed_at == 7
    assert weights(model).isfinite().all()


def trained(folder, model=None, loss=F.cross_entropy, batches=None, make=sgd, **settings):
    model = model or network()
    settings = {"epochs": 2, "checkpoint": folder, "optimizer": make(model), **settings}
    quiet(model, batches or loader(), loss, **settings)


OTHERS = {
    "seed 0 there and 1 here": {"seed": 1},
    "batches 5 there and 3 here": {"batches": loader(batch_size=30)},
    "accumulate 1 there and 2 here": {"accumulate": 2},
    "optimizer 'SGD' there and 'Adam' here": {"make": lambda m: torch.optim.Adam(m.parameters())},
    "loss 'cross_entropy' there and 'ExactLoss' here": {"loss": ExactLoss()},
    r"model '0.weight' of shape \(12, 6\), .* there and \(9, 6\)": {
        "model": nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Tanh(), nn.Linear(9, 3))
    },
    "model '0.bias' on one side only": {"model": nn.Sequential(nn.Linear(6, 12, bias=False))},
    "other parameter groups": {
        "make": lambda m: torch.optim.SGD([{"params": [p]} for p in m.parameters()], lr=0.1)
    },
}  # fmt: skip


@pytest.mark.parametrize("sentence", OTHERS)
def test_a_checkpoint_of_another_run_is_refused(tmp_path, sentence):
    trained(tmp_path)
    with pytest.raises(ValueError, match=f"must come from this same run; got {sentence}"):
        trained(tmp_path, **OTHERS[sentence])


DAMAGES = [
    (("optimizer", "state", 0, "momentum_buffer"), torch.ones(5), "'momentum_buffer' of shape"),
    (("optimizer", "state"), {99: {"x": torch.ones(1)}}, "IndexError"),
    (("optimizer", "param_groups"), 3, "TypeError"),
    (("scheduler", "step"), 3, "number of the scheduler 'step' on one side"),
    (("scheduler",), [], "list as state of the scheduler"),
    (("model", "0.weight"), 1.0, "float as model"),
    (("model",), None, "NoneType"),
    (("position", "epoch"), -1, "epoch -1"),
    (("position", "epoch"), 3, "epoch 3 with 10 records"),
    (("position", "step"), "2", "not a number"),
    (("position", "sums"), torch.ones(9), "sums of shape"),
    (("position", "history"), [{"x": 1}], "TypeError"),
    (("position", "more"), 1, "TypeError"),
    (("more",), 1, "part 'more' on one side only"),
    (("identity",), {}, "seed None there"),
]


def test_damaged_states_get_a_sentence(tmp_path):
    def run():
        model = network()
        optimizer = sgd(model, momentum=0.9)
        scheduler = lr_scheduler.StepLR(optimizer, 1)
        quiet(model, loader(), optimizer=optimizer, scheduler=scheduler, checkpoint=tmp_path)

    run()
    (tmp_path / FILE).rename(tmp_path / "whole")
    for path, value, sentence in DAMAGES:
        place = state = load_state(tmp_path / "whole")
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        save_state(tmp_path / FILE, state)
        with pytest.raises(ValueError, match=f"must come from this same run; got .*({sentence})"):
            run()
    (tmp_path / FILE).write_bytes(b"half of a f")
    with pytest.raises(ValueError, match="must be a complete file that expacc wrote"):
        run()


def test_without_safetensors_it_says_so_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ImportError, match="checkpoint needs the package safetensors"):
        trained(tmp_path, epochs=10**6)
