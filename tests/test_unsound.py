"""NaN in, NaN out: where there is no winner there is no number, and no gradient."""

import math

import numpy as np
import pytest
import torch
from losses import every_case
from operations import (
    OPERATIONS,
    SLOPES,
    assert_unsound,
    costs_of,
    scores,
    slope_params,
    unsound,
)

import expacc
from expacc import functional
from expacc.estimator import AccuracyClassifier
from expacc.training.loss_slopes import Batch

INF, NAN = math.inf, math.nan
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@every_case()
@every_dtype
def test_every_loss_on_every_path(row, numbers, dtype):
    for classes in (1, 2, 3, 6, 30) if dtype == torch.float32 else (1, 2, 6):
        logits, target, bad = unsound(classes, dtype)

        def loss(z, t=target):
            return row.function(z, t, reduction="none", **numbers)

        assert_unsound(loss, logits, bad)
        assert_unsound(lambda z: torch.func.vmap(loss)(z[None])[0], logits, bad)
        grads = torch.func.grad(lambda z: loss(z).sum())(logits)
        assert torch.equal(grads.isnan().any(1), bad)
        if (row.curve or row.blocks) and classes == 30:  # in blocks
            many = {"logits": logits.repeat(100, 1), "bad": bad.repeat(100)}
            assert_unsound(lambda z, t=target: loss(z, t.repeat(100)), **many)
        if row.soft:
            mix = torch.full_like(logits, 1 / classes)
            assert_unsound(lambda z, m=mix: loss(z, m), logits, bad)
            smooth = {"reduction": "none", "label_smoothing": 0.1, **numbers}
            assert_unsound(lambda z, t=target, k=smooth: row.function(z, t, **k), logits, bad)
        for place in bad.nonzero().flatten():
            some = torch.cat([logits[place : place + 1], logits[6:]])
            for reduction in ("mean", "sum"):
                assert row.function(some, target[:3], reduction=reduction, **numbers).isnan()


@every_case()
def test_an_unsound_row_leaves_the_others_alone_and_may_be_ignored(row, numbers):
    logits, target, bad = unsound(6)
    logits = torch.cat([logits, torch.tensor([[30.0, 0, 0, -300, 1, 2], [-500.0, 0, 0, 0, 1, 2]])])
    target, bad = torch.zeros(10, dtype=torch.int64), torch.cat([bad, torch.zeros(2).bool()])
    values = row.function(logits, target, reduction="none", **numbers)
    alone = row.function(logits[~bad], target[~bad], reduction="none", **numbers)
    torch.testing.assert_close(values[~bad], alone, rtol=1e-6, atol=1e-12)
    leaf = logits.requires_grad_()
    kept = torch.where(bad, -100, target)
    for standardize in (False, True) if "standardize" in numbers else (None,):
        keywords = {**numbers, **({} if standardize is None else {"standardize": standardize})}
        mean = row.function(leaf, kept, **keywords)
        expected = row.function(logits[~bad], target[~bad], **keywords)
        torch.testing.assert_close(mean, expected, rtol=1e-6, atol=1e-12)
        (grad,) = torch.autograd.grad(mean, leaf)
        assert torch.equal(grad[bad], torch.zeros_like(grad[bad]))
        assert grad.isfinite().all()


def test_with_one_unsound_row_a_batch_has_no_deviation():
    for classes in (2, 6):
        logits, target, bad = unsound(classes)
        for place in bad.nonzero().flatten():
            some = torch.cat([logits[place : place + 1], logits[6:]]).requires_grad_()
            values = functional.exact_error(some, target[:3], reduction="none")
            assert values.isnan().all()
            assert torch.autograd.grad(values.sum(), some)[0].isnan().all()


@every_case()
def test_a_masked_label_surely_loses(row, numbers):
    """Its probability is 0: the limit of the loss, as in F.cross_entropy, and no NaN."""
    logits = torch.tensor([[-INF, 0.0, 1.0, -INF, 2.0]])
    far, farther = (torch.tensor([[z, 0.0, 1.0, -INF, 2.0]]) for z in (-1e20, -1e30))
    target = torch.tensor([0])
    for function in (row.function, torch.func.vmap(row.function)):
        lead = (None,) if function is not row.function else ()
        leaf = logits.clone().requires_grad_()
        value = function(leaf[lead], target[lead], **numbers)
        limit = row.function(farther, target, **numbers)
        before = row.function(far, target, **numbers)
        if limit - before > 0.1 * before.abs():  # without bound
            assert value.item() == INF
        else:
            torch.testing.assert_close(value.squeeze(), limit, rtol=1e-3, atol=0)
        (grad,) = torch.autograd.grad(value.sum(), leaf)
        assert grad.isfinite().all() or (value.item() == INF and not row.curve)


# ---------------------------------------------------------------------------------- operations


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation(name):
    for dtype in (torch.float32, torch.float64):
        values = scores(12).to(dtype)
        values[2, 3] = NAN
        leaf = values.requires_grad_()
        found = OPERATIONS[name](leaf)
        if "centers" in name and found.ndim == 0:
            assert found.isnan()
            continue
        rows = found.reshape(12, -1)
        two = "two classes" in name  # which does not look at the fourth
        assert rows.isnan().all(1).tolist() == [place == 2 and not two for place in range(12)]
        (grad,) = torch.autograd.grad(found.sum(), leaf)
        assert not grad[[0, 1, *range(3, 12)]].isnan().any()
        assert grad[2].isnan().any() or two


@pytest.mark.parametrize("noise", ["normal", "gumbel", "logistic", "laplace"])
def test_argmax_probabilities_and_costs_are_those_of_a_winner(noise):
    for classes in (1, 2, 6, 60):
        logits, target, bad = unsound(classes, torch.float64)
        assert_unsound(lambda z: expacc.argmax_probabilities(z, 1.0, noise).amax(1), logits, bad)
        found = expacc.argmax_probabilities(logits, 1.0, noise)
        assert torch.equal(found.isnan().all(1), bad)
        compiled = torch.func.vmap(lambda z: expacc.argmax_probabilities(z, 1.0, noise))(logits)
        assert torch.equal(compiled.isnan().all(1), bad)
        if classes == 6:  # costs of a diverged model are no bargain
            costs = {"noise": noise, "reduction": "none"}
            values = functional.expected_cost(logits, target, costs_of(logits[:, :6]), **costs)
            assert torch.equal(values.isnan(), bad)


def test_margins():
    """+inf is an absent rival, -inf one that cannot be beaten."""
    for dtype in (torch.float32, torch.float64):
        for rivals in (1, 2, 5, 200):
            rows = torch.zeros(4, rivals, dtype=dtype)
            rows[0, 0], rows[1, 0] = NAN, -INF
            rows[2] = -300.0  # far out, beside a NaN
            leaf = rows.requires_grad_()
            log_prob = expacc.log_orthant_prob(leaf)
            torch.testing.assert_close(
                log_prob[2], expacc.log_orthant_prob(leaf[2]), rtol=1e-6, atol=0
            )
            assert log_prob.isnan().tolist() == [True, False, False, False]
            assert log_prob[1].item() == -INF
            (grad,) = torch.autograd.grad(log_prob[1:].sum(), leaf)
            assert grad[1:].isfinite().all()
            chance = expacc.orthant_prob(leaf)
            assert chance.isnan().tolist() == [True, False, False, False]
            assert chance[1].item() == 0


# ---------------------------------------------------------------------------- training, predicting


@pytest.mark.parametrize("bad", [NAN, INF])
def test_slopes_of_training(bad):
    numbers = slope_params(1)
    for slope in SLOPES.values():
        for classes in (2, 3, 4, 5, 20):
            for place in (0, 1):  # the label, a rival
                logits = torch.randn(1, classes, 8)
                logits[0, place, 3] = bad
                batch = Batch(torch.zeros(1, 1, 8, dtype=torch.int64), 1 / 8, 8.0)
                assert slope(logits, batch, numbers)[0, :, 3].isnan().all()
            none = torch.full((1, classes, 8), bad)  # not taken for rows beyond the margin
            assert slope(none, batch, numbers).isnan().any()
    overflow = torch.randn(1, 4, 8) * 1e30  # whose squares are not float32's
    batch = Batch(torch.zeros(1, 1, 8, dtype=torch.int64), 1 / 8, 8.0)
    for share in (1 / 8, torch.full((1, 1, 8), 1 / 8)):
        again = Batch(batch.labels, share, 8.0)
        assert SLOPES["exact True False"](overflow, again, numbers).isnan().all()


def fitted(classes):
    generator = np.random.default_rng(0)
    features = generator.normal(size=(60, 2))
    labels = np.digitize(features[:, 0], np.linspace(-0.5, 0.5, classes - 1))
    return AccuracyClassifier(epochs=2, cv=2).fit(features, labels)


@pytest.mark.parametrize("classes", [2, 3])
def test_no_row_gets_a_label_by_a_number_that_is_none(classes):
    classifier = fitted(classes)
    asks = ("predict", "predict_proba", "predict_log_proba", "decision_function")
    features = np.array([[0, 0], [1.7e308, 1.7e308], [1.5e308, -1.7e308]])
    classifier.layers_[0][0][:] *= 1e10
    refused = r"X must give finite logits; got (nan|-?inf) at row 1"
    for ask in asks:
        with pytest.raises(ValueError, match=refused):
            getattr(classifier, ask)(features)
    classifier.layers_[0][1][0] = NAN
    for ask in asks:
        with pytest.raises(ValueError, match=r"got nan at row 0, one of 1\. Its features are too"):
            getattr(classifier, ask)(features[:1])
    if classes == 2:  # a lead beyond the largest number is no warning
        classifier.layers_ = [(np.array([[-1.0, 0], [1.0, 0]]), np.zeros(2))]
        far = np.array([[1.5e308, 0], [-1.5e308, 0]])
        assert classifier.predict(far).tolist() == [1, 0]
        assert np.isfinite(classifier.decision_function(far)).all()
        assert classifier.predict_proba(far).tolist() == [[0, 1], [1, 0]]
