"""The batched loop: right slopes, right optimisers, and a run that never notices its company."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import expacc
from expacc import baselines, functional
from expacc.schedules import focus_gradual, geometric, phases, sigma_tabular
from expacc.training import (
    LOSS_NAMES,
    Model,
    Run,
    TensorTable,
    TrainConfig,
    objective_of,
    train_runs,
)
from expacc.training.batches import Batches
from expacc.training.loop import _drop_out
from expacc.training.loss_slopes import CURVES, Batch
from expacc.training.randomness import seed_of, shuffled, stream_keys, uniform


def table(rows=120, features=5, classes=3, seed=0, dtype=torch.float32, noise=1.0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, features, generator=generator, dtype=torch.float64)
    w = torch.randn(features, classes, generator=generator, dtype=torch.float64)
    blur = noise * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    return TensorTable(x.to(dtype), (x @ w + blur).argmax(1), classes)


EVERY = torch.arange(120)


def assert_same(one, other, *, bits=False, rtol=0, atol=1e-6):
    """Two results with the same weights, to the last bit or to rounding."""
    for mine, theirs in zip(one.model.layers, other.model.layers, strict=True):
        for name in ("weight", "bias"):
            left, right = getattr(mine, name), getattr(theirs, name)
            torch.testing.assert_close(left, right, atol=0 if bits else atol, rtol=rtol)


# ------------------------------------------------------------------------------------ randomness


def test_keys_do_not_repeat_and_numbers_are_uniform():
    seeds = torch.tensor([seed_of(0, f"run {i}") for i in range(500)])
    assert len(set(seeds.tolist())) == 500
    keys = torch.cat([stream_keys(seeds, "order", epoch) for epoch in range(20)])
    assert len(keys.unique()) > 0.999 * len(keys)
    draws = uniform(keys[:200], 1000)
    assert draws.min() >= 0
    assert draws.max() < 1
    assert abs(draws.mean().item() - 0.5) < 4 * math.sqrt(1 / 12 / draws.numel())
    counts = torch.histc(draws, bins=64, min=0, max=1)
    chi2 = ((counts - draws.numel() / 64) ** 2 / (draws.numel() / 64)).sum().item()
    assert chi2 < 63 + 5 * math.sqrt(2 * 63)
    # Neighbours in a run, and the same place in neighbouring runs, are uncorrelated.
    for a, b in ((draws[:, 1:], draws[:, :-1]), (draws[1:], draws[:-1])):
        correlation = torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1]
        assert abs(correlation.item()) < 5 / math.sqrt(a.numel())


def test_permutations_are_fair_and_shorter_runs_have_their_rows_first():
    keys = stream_keys(torch.arange(6000), "order", 3)
    order = shuffled(keys, torch.arange(4).repeat(6000, 1), None)
    assert (order.sort(1).values == torch.arange(4)).all()
    _, counts = order.unique(dim=0, return_counts=True)
    assert len(counts) == 24
    assert counts.min() > 250 - 5 * math.sqrt(250)
    assert counts.max() < 250 + 5 * math.sqrt(250)
    order = shuffled(keys[:50], torch.arange(9).repeat(50, 1), torch.full((50, 1), 7))
    assert (order[:, :7].sort(1).values == torch.arange(7)).all()
    assert (order[:, 7:] == torch.tensor([7, 8])).all()


# ---------------------------------------------------------------------------------------- slopes


def loss_of(name, numbers):
    if name == "cross_entropy":
        return F.cross_entropy
    if name == "exact":
        numbers = {"sigma": 10.0, **numbers}
        return lambda z, y, **kw: functional.exact_error(z, y, **numbers, **kw)
    function = getattr(functional, name, None) or getattr(baselines, name)
    return lambda z, y, **kw: function(z, y, **numbers, **kw)


SETTINGS = [(name, {}) for name in LOSS_NAMES] + [
    ("leaky_expected_error", {"leak": 0.7}),
    ("mixed_expected_error", {"focus": 0.4}),
    ("mixed_expected_error", {"focus": 0.5}),
    ("mixed_expected_error", {"ce_weight": 0.3, "error_weight": 2.0}),
    ("hinge", {"margin": 2.5}),
    ("focal", {"gamma": 0.5, "alpha": 1.0}),
    ("generalized_cross_entropy", {"q": 0.4, "truncation": 0.3}),
    ("tamed_cross_entropy", {"taming": 1.0}),
    ("poly1_cross_entropy", {"epsilon": 3.0}),
    ("taylor_cross_entropy", {"terms": 5}),
    ("jensen_shannon", {"label_share": 0.3}),
    ("symmetric_cross_entropy", {"ce_weight": 6.0, "rce_weight": 0.1}),
    ("asymmetric_generalized_cross_entropy", {"a": 6.0, "q": 1.5}),
    ("asymmetric_unhinged", {"a": 1.3, "q": 0.5}),
    ("asymmetric_exponential", {"a": 0.4}),
    ("expected_distance", {"power": 2.0, "sigma": 0.5}),
    ("expected_f1_error", {"average": "micro", "sigma": 2.0}),
    ("expected_f1_error", {"sigma": 0.5}),
    ("expected_balanced_error", {"sigma": 0.5}),
    ("exact", {"sigma": 0.5, "margin": 0.8}),
    ("exact", {"sigma": 2.0, "standardize": False}),
    ("exact", {"sigma": 1.0, "noise": "gumbel"}),
    ("exact", {"sigma": 1.0, "noise": "laplace", "margin": 1.0}),
    ("exact", {"sigma": 1.0, "log": True}),
    *((name, {"shift": 1.5, "scale": 0.7}) for name in CURVES),
    *((name, {"shift": "auto"}) for name in CURVES),
]


@pytest.mark.parametrize(("name", "numbers"), SETTINGS, ids=lambda v: str(v))
@pytest.mark.parametrize("classes", [2, 4, 70])
def test_slopes_are_the_losses_own(name, numbers, classes):
    generator = torch.Generator().manual_seed(classes)
    logits = torch.randn(2, classes, 9, generator=generator, dtype=torch.float64) * 2
    labels = torch.randint(0, classes, (2, 9), generator=generator)
    objective = objective_of(name, numbers, classes)
    at = {key: torch.full((2, 1, 1), v).double() for key, v in objective.at(0.0).items()}
    found = objective.slope(logits.clone(), Batch(labels.unsqueeze(1), 1 / 9, 9.0), at)
    for run in range(2):
        leaf = logits[run].t().clone().requires_grad_()
        (true,) = torch.autograd.grad(loss_of(name, numbers)(leaf, labels[run]), leaf)
        torch.testing.assert_close(found[run].t(), true, atol=2e-7, rtol=2e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", CURVES)
def test_a_scale_brings_sure_rows_back_with_their_digits(name, dtype):
    lead = torch.linspace(-120, 120, 97, dtype=torch.float64)
    logits = torch.stack([lead, torch.zeros(97), torch.full((97,), -1.0)]).double()
    labels = torch.zeros(97, dtype=torch.int64)
    for moves in ({"scale": 0.1}, {"scale": 0.5, "shift": 2.0}, {"scale": 3.0, "shift": -1.0}):
        objective = objective_of(name, moves, 3)
        at = {k: torch.full((1, 1, 1), v, dtype=dtype) for k, v in objective.at(0.0).items()}
        batch = Batch(labels.view(1, 1, -1), 1.0, 97.0)
        found = objective.slope(logits.to(dtype).unsqueeze(0), batch, at)[0].t().double()
        leaf = logits.t().clone().requires_grad_()
        (true,) = torch.autograd.grad(loss_of(name, moves)(leaf, labels, reduction="sum"), leaf)
        floor = 1e-30 if dtype == torch.float32 else 1e-60
        rtol = 2e-5 if dtype == torch.float32 else 1e-10  # log p/(1 - p) of 120 has seven digits
        torch.testing.assert_close(found, true, rtol=rtol * 3, atol=floor)


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_weights_of_rows_are_copies(name):
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(1, 3, 4, generator=generator, dtype=torch.float64)
    labels = torch.tensor([[0, 2, 1, 1]])
    copies = torch.tensor([2, 0, 3, 1])
    objective = objective_of(name)
    at = {key: torch.full((1, 1, 1), v).double() for key, v in objective.at(0.5).items()}
    weight = copies.double().view(1, 1, 4)
    batch = Batch(labels.unsqueeze(1), weight / 6, weight.sum(2, keepdim=True))
    found = objective.slope(logits, batch, at)
    copied = labels.repeat_interleave(copies, 1).unsqueeze(1)
    true = objective.slope(logits.repeat_interleave(copies, 2), Batch(copied, 1 / 6, 6.0), at)
    summed = torch.stack([part.sum(2) for part in true.split(copies.tolist(), 2)], 2)
    torch.testing.assert_close(found, summed, atol=1e-12, rtol=1e-9)


def test_weights_below_a_row_do_not_turn_the_deviation_round():
    rows = table()
    small = TensorTable(rows.features, rows.labels, 3, torch.full((120,), 1e-3))
    runs = [Run("a", EVERY, loss="exact", loss_params={"sigma": 1.0}, learning_rate=0.05)]
    plan = TrainConfig(batch=1000, epochs=30, keep="last")
    for weighted in (small, rows):
        model = train_runs(weighted, runs, plan)[0].model
        assert (model.logits(rows.features).argmax(1) == rows.labels).float().mean() > 0.75
    none = TensorTable(rows.features, rows.labels, 3, torch.zeros(120))
    assert train_runs(none, runs, plan)[0].failed_step is None


def test_loss_objects_are_the_named_losses():
    for loss, name in (
        (expacc.ExactLoss(sigma=2.0, margin=1.0), "exact"),
        (expacc.HingeLoss(), "hinge"),
        (expacc.ExpectedDistanceLoss(power=2.0), "expected_distance"),
        (expacc.ExpectedF1ErrorLoss(average="micro"), "expected_f1_error"),
        (expacc.ExpectedF1ErrorLoss(sigma=2.0), "expected_f1_error"),
        (nn.CrossEntropyLoss(), "cross_entropy"),
        (expacc.FocalLoss(alpha=None), "focal"),
        (expacc.SymmetricCrossEntropyLoss(ce_weight=2.0), "symmetric_cross_entropy"),
        (expacc.MixedExpectedErrorLoss(ce_weight=1.0, error_weight=2.0), "mixed_expected_error"),
    ):
        assert objective_of(loss).kind[0] == name
    for loss in (  # which the named form does not have
        expacc.ExpectedDistanceLoss(noise="normal"),
        expacc.ExpectedF1ErrorLoss(label_smoothing=0.1),
    ):
        assert objective_of(loss).kind[0] == type(loss).__name__
    assert objective_of(expacc.HingeLoss(ignore_index=-1)).kind[0] == "hinge"  # no label of theirs
    scheduled = expacc.ScheduledLoss(expacc.MixedExpectedErrorLoss(), focus=focus_gradual)
    assert objective_of(scheduled).at(1.0) == {"ce_weight": 0.0, "error_weight": 1.0}


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(ignore_index=0),
        expacc.LeakyExpectedErrorLoss(ignore_index=0),
        expacc.ExactLoss(ignore_index=0, standardize=False),
        expacc.ExpectedF1ErrorLoss(ignore_index=0),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_a_label_that_a_loss_object_ignores(loss):
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(3, 3, 8, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 3, (3, 1, 8), generator=generator)
    labels[2] = 0  # a run of nothing else
    found = objective_of(loss).slope(logits, Batch(labels, 1 / 8, 8.0), {})
    for run in range(2):
        leaf = logits[run].t().clone().requires_grad_()
        (true,) = torch.autograd.grad(loss(leaf, labels[run, 0]), leaf)
        torch.testing.assert_close(found[run].t(), true, atol=1e-12, rtol=1e-9)
    assert not found[2].any()


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(label_smoothing=0.1),
        nn.MultiMarginLoss(),
        lambda z, y: F.cross_entropy(z, y) * 2,
        expacc.ExpectedErrorLoss(label_smoothing=0.2),
    ],
)
def test_any_loss_object_trains(loss):
    rows = table()
    (result,) = train_runs(rows, [Run("a", EVERY, loss=loss)], TrainConfig(epochs=3, batch=50))
    assert result.failed_step is None
    assert torch.isfinite(result.model.logits(rows.features)).all()


# ----------------------------------------------------------------------- against torch.optim alone


def by_hand(rows, start, plan, run, loss, steps):
    """A plain PyTorch loop over full batches."""
    model = start.module()
    weights = [p for name, p in model.named_parameters() if name.endswith("weight")]
    biases = [p for name, p in model.named_parameters() if name.endswith("bias")]
    groups = [{"params": weights, "weight_decay": run.weight_decay}]
    groups += [{"params": biases, "weight_decay": 0.0}]
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    more = {"momentum": run.momentum} if plan.optimizer == "sgd" else {"betas": run.betas}
    optimizer = kinds[plan.optimizer](groups, lr=run.learning_rate, **more)
    normalizer = expacc.GradientNormalizer(optimizer)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model(rows.features[run.rows]), rows.labels[run.rows]).backward()
        if run.clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), run.clip)
        if run.normalize:
            normalizer.step()
        optimizer.step()
    return model


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("hidden", [(), (8,), (7, 6)])
@pytest.mark.parametrize("extra", [{}, {"clip": 0.05}, {"normalize": True}], ids=str)
def test_same_as_a_plain_loop(optimizer, hidden, extra):
    rows = table(dtype=torch.float64)
    plan = TrainConfig(model=Model(hidden), optimizer=optimizer, batch=1000, epochs=40, keep="last")
    rate = 0.05 if optimizer == "sgd" else 0.01
    runs = [
        Run("first", EVERY, learning_rate=rate, weight_decay=0.01, **extra),
        Run("other", EVERY[:70], loss="hinge", learning_rate=rate / 2, weight_decay=0.0),
    ]
    none = TrainConfig(model=plan.model, optimizer=optimizer, batch=1000, epochs=1, keep="last")
    still = [Run(run.key, run.rows, learning_rate=0.0) for run in runs]
    starts = [result.model for result in train_runs(rows, still, none)]
    results = train_runs(rows, runs, plan)
    for run, start, result, loss in zip(
        runs, starts, results, (F.cross_entropy, baselines.hinge), strict=True
    ):
        model = by_hand(rows, start, plan, run, loss, 40)
        for layer, true in zip(result.model.layers, list(model)[::2], strict=True):
            torch.testing.assert_close(layer.weight, true.weight.data, rtol=1e-9, atol=1e-9)
            torch.testing.assert_close(layer.bias, true.bias.data, rtol=1e-9, atol=1e-9)


def test_fixed_first_logit_stays_zero():
    rows = table()
    plan = TrainConfig(model=Model(fixed_first=True), epochs=5)
    (result,) = train_runs(rows, [Run("a", EVERY, loss="exact", normalize=True)], plan)
    logits = result.model.logits(rows.features)
    assert (logits[:, 0] == 0).all()
    assert (logits.argmax(1) == rows.labels).float().mean() > 0.6


# --------------------------------------------------------------------------------------- company


def crowd(count):
    losses = ["cross_entropy", "exact", "leaky_expected_error", "mixed_expected_error", "focal"]
    return [
        Run(f"other {i}", EVERY[i % 7 : 100 + i % 3], loss=losses[i % 5],
            learning_rate=0.01 * (1 + i % 9), weight_decay=0.001 * (i % 4),
            clip=1.0 if i % 2 else None, normalize=i % 5 == 1)
        for i in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("model", "loss", "count"),
    [
        (Model(), "cross_entropy", 499),
        (Model(fixed_first=True), "exact", 40),
        (Model((16,), hidden_dropout=0.3, input_dropout=0.1), "leaky_expected_error", 20),
        (Model(), "maximum_probability_cross_entropy", 40),
    ],
    ids=str,
)
def test_a_run_does_not_notice_its_company(model, loss, count):
    rows = table()
    me = Run("me", EVERY[:100], loss=loss, learning_rate=0.05, weight_decay=0.001)
    plan = TrainConfig(model=model, batch=16, epochs=4, steps=25, keep="last")  # 100 steps
    (alone,) = train_runs(rows, [me], plan)
    others = crowd(count)
    company = [*others[: len(others) // 2], me, *others[len(others) // 2 :]]
    in_crowd = train_runs(rows, company, plan)[len(others) // 2]
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        again = train_runs(rows, company[::-1], plan)[len(company) - 1 - len(others) // 2]
    finally:
        torch.set_num_threads(threads)
    for result in (in_crowd, again):
        assert_same(alone, result)


def test_same_batch_twice_is_the_same_bits_and_a_memory_budget_changes_nothing():
    rows = table()
    plan = TrainConfig(model=Model((8,), hidden_dropout=0.2), batch=16, epochs=3, optimizer="adam")
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = train_runs(rows, crowd(20), plan)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    for a, b in zip(first, train_runs(rows, crowd(20), plan), strict=True):
        assert_same(a, b, bits=True)
    plan = TrainConfig(batch=32, epochs=3, keep="last")
    whole, in_parts = (
        train_runs(rows, crowd(20), plan, memory=memory) for memory in (None, 30_000)
    )
    for a, b in zip(whole, in_parts, strict=True):
        assert_same(a, b)


def test_first_weights_and_batches_are_bit_equal_in_any_company():
    rows = table()
    plan = TrainConfig(batch=16, epochs=1, keep="last")
    still = [Run(run.key, run.rows, learning_rate=0.0) for run in crowd(30)]
    for alone, together in zip(
        [train_runs(rows, [run], plan)[0] for run in still],
        train_runs(rows, still, plan),
        strict=True,
    ):
        assert_same(alone, together, bits=True)
    seeds = torch.tensor([seed_of(0, run.key) for run in still])
    for steps in (None, 20):
        many = Batches(rows, still, seeds, 16, steps)
        one = Batches(rows, still[4:5], seeds[4:5], 16, steps)
        for epoch in range(2):
            for (x, batch), (own_x, own) in zip(many.epoch(epoch), one.epoch(epoch), strict=True):
                count = own.labels.shape[2]
                assert torch.equal(x[4:5, :count], own_x)
                assert torch.equal(batch.labels[4:5, :, :count], own.labels)


def test_every_row_is_seen_once_an_epoch():
    rows = TensorTable(torch.arange(50.0).unsqueeze(1), torch.zeros(50, dtype=torch.int64), 1)
    runs = [Run("a", torch.arange(50)), Run("b", torch.arange(1, 50))]
    seeds = torch.tensor([seed_of(0, "a"), seed_of(0, "b")])
    batches = Batches(rows, runs, seeds, 8, None)
    seen = [[], []]
    for x, batch in batches.epoch(0):
        for run in range(2):
            share = batch.share[run, 0] if isinstance(batch.share, torch.Tensor) else None
            inside = slice(None) if share is None else share > 0
            seen[run] += x[run, inside, 0].tolist()
            if share is not None:
                assert share.sum() == pytest.approx(1)
    assert sorted(seen[0]) == list(range(50))
    assert sorted(seen[1]) == list(range(1, 50))
    streamed = Batches(rows, runs, seeds, 8, 25)
    rows_of_b = torch.cat([x[1, :, 0] for epoch in (0, 1) for x, _ in streamed.epoch(epoch)])
    for lap in rows_of_b.split(49)[:-1]:
        assert sorted(lap.tolist()) == list(range(1, 50))


# ------------------------------------------------------------------------- stopping and diverging


def test_early_stopping_keeps_the_best_epoch():
    rows = table(rows=200)
    train, held = torch.arange(120), torch.arange(120, 200)
    runs = [Run(f"r{i}", train, held, learning_rate=0.02 * 3**i) for i in range(5)]
    plan = TrainConfig(batch=20, epochs=60, patience=4, min_epochs=6)
    results = train_runs(rows, runs, plan)
    assert any(result.stopped for result in results)
    for result in results:
        curve = result.curves["validation_accuracy"]
        assert len(curve) == result.epochs
        assert result.best_epoch == 1 + curve.index(max(curve))
        assert result.epochs >= 6
        if result.stopped:
            assert result.epochs == max(6, result.best_epoch + 4)
        logits = result.model.logits(rows.features[held])
        right = (logits.argmax(1) == rows.labels[held]).float().mean().item()
        assert right == pytest.approx(max(curve), abs=1e-6)
        loss = result.curves["validation_loss"][result.best_epoch - 1]
        assert F.cross_entropy(logits, rows.labels[held]).item() == pytest.approx(loss, rel=1e-5)
    alone = train_runs(rows, runs[2:3], plan)[0]
    assert alone.epochs == results[2].epochs


def test_curves_may_have_fewer_points():
    rows = table(rows=200)
    run = Run("r", torch.arange(120), torch.arange(120, 200), learning_rate=0.02)
    both = ("validation", "train")
    last, best, whole = (
        train_runs(rows, [run], TrainConfig(epochs=7, keep=keep, curves=both, every=every))
        for keep, every in (("last", 3), ("best", 3), ("last", 1))
    )
    for name, curve in whole[0].curves.items():
        assert last[0].curves[name] == (curve[2], curve[5], curve[6])
        # The best epoch can be any: validation rows are looked at in each.
        assert len(best[0].curves[name]) == (7 if name.startswith("validation") else 3)
    assert_same(whole[0], last[0], bits=True)


def test_a_diverged_run_is_marked_and_the_others_go_on():
    rows = table()
    explode = phases((0.1, 1e38), ends=(0.5, 1.0))
    runs = [
        Run("good", EVERY, learning_rate=0.1),
        Run("bad", EVERY, learning_rate=explode, weight_decay=1.0),
        Run("also good", EVERY, learning_rate=0.1),
    ]
    plan = TrainConfig(batch=30, epochs=4, keep="last")  # 4 steps an epoch
    good, bad, also = train_runs(rows, runs, plan)
    assert bad.model is None
    assert 9 <= bad.failed_step <= 12  # the third epoch has the large rate
    assert good.failed_step is None
    assert good.epochs == also.epochs == 4
    alone = train_runs(rows, runs[:1], plan)[0]
    assert_same(good, alone)


def test_schedules_change_once_an_epoch():
    rows = table(dtype=torch.float64)
    rate = geometric(0.1, 0.001)
    plan = TrainConfig(batch=1000, epochs=5, keep="last")
    scheduled = Run("a", EVERY, learning_rate=rate, momentum=0.0)
    (result,) = train_runs(rows, [scheduled], plan)
    still = TrainConfig(batch=1000, epochs=1, keep="last")
    model = train_runs(rows, [Run("a", EVERY, learning_rate=0.0)], still)[0].model.module()
    for epoch in range(5):
        model.zero_grad()
        F.cross_entropy(model(rows.features), rows.labels).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= rate(epoch / 5) * parameter.grad
    torch.testing.assert_close(result.model.layers[0].weight, model[0].weight.data)


def test_dropout_drops_its_share_and_keeps_the_mean():
    plan = TrainConfig(model=Model((50,), input_dropout=0.2, hidden_dropout=0.4))
    inputs = torch.ones(30, 40, 21)
    dropped, (mask,) = _drop_out(plan, inputs, torch.arange(30), step=5)
    assert (dropped[:, :, -1] == 1).all()  # the constant stays
    for values, share in ((dropped[:, :, :-1], 0.2), (mask, 0.4)):
        kept = (values > 0).float()
        assert abs(kept.mean().item() - (1 - share)) < 5 * math.sqrt(0.24 / kept.numel())
        assert torch.allclose(values[values > 0], torch.tensor(1 / (1 - share)))
    assert not torch.equal(mask, _drop_out(plan, inputs, torch.arange(30), step=6)[1][0])


# --------------------------------------------------------------------------------------- refusals

GOOD = table()


def trained(table=GOOD, rows=EVERY, again=(), *, config=None, **run):
    return train_runs(table, [Run("a", rows, **run), *again], config)


def relabelled(features=GOOD.features, classes=3):
    return TensorTable(features, GOOD.labels, classes)


BAD = [
    (lambda: trained(again=[Run("a", EVERY)]), ValueError, "'a' twice"),
    (lambda: trained(rows=EVERY + 1), ValueError, "got 120"),
    (lambda: trained(rows=EVERY[:0]), ValueError, "at least one row"),
    (lambda: trained(rows=[1]), TypeError, "int64"),
    (lambda: trained(loss="exat"), ValueError, "'exat'"),
    (lambda: trained(loss=3), TypeError, "loss"),
    (lambda: trained(clip=0.0), ValueError, "clip"),
    (lambda: trained(config=TrainConfig(epochs=0)), ValueError, "epochs"),
    (lambda: trained(config=TrainConfig(every=0)), ValueError, "every"),
    (lambda: trained(config=TrainConfig(optimizer="lion")), ValueError, "'lion'"),
    (lambda: trained(config=TrainConfig(Model((3,), fixed_first=True))), ValueError, "fixed_first"),
    (lambda: trained(relabelled(classes=2)), ValueError, "got 2"),
    (lambda: trained(relabelled(GOOD.features / 0 * 0)), ValueError, "Impute"),
    (lambda: objective_of("focal", {"sigma": 1}), ValueError, "'sigma'"),
    (lambda: objective_of("focal", {"gamma": -1.0}), ValueError, "gamma"),
    (lambda: objective_of("exact", {"noise": "cauchy"}), ValueError, "noise"),
    (lambda: objective_of("exact", {"sigma": sigma_tabular, "margin": -1.0}), ValueError, "margin"),
]


@pytest.mark.parametrize(("call", "kind", "says"), BAD)
def test_refusals(call, kind, says):
    with pytest.raises(kind) as refusal:
        call()
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert train_runs(GOOD, []) == []


def test_the_weights_of_a_chosen_epoch_are_kept_beside_the_last():
    x = torch.linspace(-1, 1, 20).unsqueeze(1)
    rows, everyone = TensorTable(x, (x[:, 0] > 0).long(), classes=2), torch.arange(20)
    runs = [Run(f"{stop}", everyone, stop=stop) for stop in (None, 3, 9, 10)]
    model = Model((4,), hidden_dropout=0.2)
    found = train_runs(rows, runs, TrainConfig(model, epochs=9, batch=8, keep="every"))
    for run, result in zip(runs, found, strict=True):
        assert (result.at_stop is None) == (run.stop in (None, 10))
        if result.at_stop is not None:
            kept = result.every[run.stop - 1]
            for one, other in zip(result.at_stop.layers, kept.layers, strict=True):
                assert torch.equal(one.weight, other.weight)
    with pytest.raises(ValueError, match="stop must be >= 1; got 0"):
        train_runs(rows, [Run("a", everyone, stop=0)], TrainConfig())
