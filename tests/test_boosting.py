"""Objectives for boosted trees: gradients, curvature, layouts, weights, and what is refused."""

import pickle
import re
import subprocess
import sys
from functools import partial

import lightgbm
import numpy as np
import pytest
import torch
import xgboost
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.utils.estimator_checks import parametrize_with_checks

import expacc
from expacc.boosting import (
    BoostedClassifier,
    lightgbm_objective,
    weighting_losses,
    xgboost_objective,
)
from expacc.boosting.weights import row_weights
from expacc.registry import SPECS
from expacc.schedules import focus_gradual

IRIS, WINE = load_iris(return_X_y=True), load_wine(return_X_y=True)
CANCER = load_breast_cancer(return_X_y=True)
FAST = {"num_leaves": 7, "verbose": -1, "n_jobs": 1}
MAKERS = {"lightgbm": lightgbm_objective, "xgboost": xgboost_objective}


def some(classes, rows=40, spread=2.0, seed=0):
    random = np.random.default_rng(seed)
    return random.integers(0, classes, rows), random.normal(0, spread, (rows, classes))


@pytest.mark.parametrize("classes", [2, 3, 40])
@pytest.mark.parametrize("loss", weighting_losses())
def test_the_gradient_is_that_of_the_loss_at_mean_weight_one(loss, classes):
    labels, margins = some(classes)
    slope, second = lightgbm_objective(loss, classes=classes)(labels, margins)
    logits = torch.tensor(margins, requires_grad=True)
    spec = SPECS[loss]
    arguments = {} if loss == "cross_entropy" else spec.by_classes(classes)
    spec.function(logits, torch.tensor(labels), **arguments, reduction="sum").backward()
    true = logits.grad.numpy()
    places = np.arange(len(labels)), labels
    chance = logits.softmax(1).detach().numpy()
    weight = -slope[places] / (1 - chance[places])
    assert weight.mean() == pytest.approx(1, abs=1e-12)
    factor = np.linalg.norm(slope) / np.linalg.norm(true)
    np.testing.assert_allclose(slope, true * factor, rtol=1e-9, atol=1e-12)
    curved = weight[:, None] * classes / (classes - 1) * chance * (1 - chance)
    np.testing.assert_allclose(second, curved, rtol=1e-9, atol=1e-15)


def test_a_shift_is_part_of_the_curve():
    labels, margins = some(5)
    loss = "expected_error:shift=0.4:scale=0.8"
    slope, _ = lightgbm_objective(loss, classes=5)(labels, margins)
    logits = torch.tensor(margins, requires_grad=True)
    value = expacc.functional.expected_error(
        logits, torch.tensor(labels), shift=0.4, scale=0.8, reduction="sum"
    )
    value.backward()
    factor = np.linalg.norm(slope) / np.linalg.norm(logits.grad.numpy())
    np.testing.assert_allclose(slope, logits.grad.numpy() * factor, rtol=1e-9, atol=1e-12)


def test_what_the_registry_calls_concave_is():
    for spec in SPECS.values():
        if callable(spec.slope):
            try:
                row_weights(spec.name, 10, {})
                concave = True
            except ValueError:
                concave = False
            assert concave == spec.reweights, spec.name


@pytest.mark.parametrize(
    ("data", "usual"), [(WINE, "multiclass"), (CANCER, "binary")], ids=["three", "two"]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_is_lightgbms_own_to_the_digit(data, usual, weighted):
    features, labels = data
    weight = np.random.default_rng(0).uniform(0.2, 2, len(labels)) if weighted else None
    classes = len(np.unique(labels))
    own = lightgbm.LGBMClassifier(objective=usual, boost_from_average=False, **FAST)
    ours = lightgbm.LGBMClassifier(
        objective=lightgbm_objective("cross_entropy", classes=classes), **FAST
    )
    scores = [
        model.fit(features, labels, sample_weight=weight).predict(features, raw_score=True)
        for model in (own, ours)
    ]
    np.testing.assert_array_equal(*scores)
    number = {"num_class": classes} if classes > 2 else {}
    trained = lightgbm.train(
        {"objective": ours.objective, "num_leaves": 7, "verbose": -1, **number},
        lightgbm.Dataset(features, labels, weight=weight),
        100,
    )
    np.testing.assert_array_equal(trained.predict(features, raw_score=True), scores[0])


@pytest.mark.parametrize("data", [WINE, CANCER], ids=["three", "two"])
def test_cross_entropy_is_xgboosts_own(data):
    features, labels = data
    weight = np.random.default_rng(0).uniform(0.2, 2, len(labels))
    classes = len(np.unique(labels))
    objective = xgboost_objective(
        "cross_entropy", classes=classes, curvature=2.0 if classes > 2 else None
    )
    usual = "multi:softprob" if classes > 2 else "binary:logistic"
    margins = [
        xgboost.XGBClassifier(objective=one, n_estimators=20, max_depth=3, base_score=0.5)
        .fit(features, labels, sample_weight=weight)
        .predict(features, output_margin=True)
        for one in (usual, objective)
    ]
    number = {"num_class": classes} if classes > 2 else {}
    data = xgboost.DMatrix(features, labels, weight=weight)
    params = {"objective": usual, "max_depth": 3, "base_score": 0.5, **number}
    trained = xgboost.train(params, data, 20, obj=objective)
    margins.append(trained.predict(data, output_margin=True))
    for found in margins[1:]:
        np.testing.assert_allclose(found, margins[0], atol=2e-5)


@pytest.mark.parametrize("loss", ["expected_error", "leaky_expected_error", "jensen_shannon"])
@pytest.mark.parametrize("library", MAKERS)
def test_no_round_raises_the_loss(library, loss):
    features, labels = WINE
    labels = np.where(np.random.default_rng(0).random(len(labels)) < 0.2, 0, labels)
    model = BoostedClassifier(library, loss, n_estimators=40, validation_fraction=None, n_jobs=1)
    model.fit(features, labels)
    function = partial(SPECS[loss].function, target=torch.tensor(labels))
    losses = [
        float(function(torch.tensor(model.logits(features, rounds + 1)))) for rounds in range(40)
    ]
    assert (np.diff(losses) < 1e-6).all()
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("library", MAKERS)
def test_two_classes_have_one_margin_or_two(library):
    labels, _ = some(2)
    margin = np.random.default_rng(1).normal(size=len(labels))
    objective = MAKERS[library]("leaky_expected_error", classes=2)
    slope, second = objective(labels, margin)
    pair_slope, pair_second = objective(labels, np.stack([np.zeros_like(margin), margin], 1))
    assert slope.shape == second.shape == margin.shape
    pair_slope, pair_second = (np.reshape(one, (-1, 2)) for one in (pair_slope, pair_second))
    np.testing.assert_allclose(slope, pair_slope[:, 1], rtol=1e-12)
    np.testing.assert_allclose(pair_slope.sum(1), 0, atol=1e-12)
    # Two margins that move apart by half a step each make the step of one.
    np.testing.assert_allclose(slope / second, 2 * pair_slope[:, 1] / pair_second[:, 1], rtol=1e-9)


@pytest.mark.parametrize(("library", "order"), [("lightgbm", "F"), ("xgboost", "C")])
def test_flat_margins_go_back_flat(library, order):
    labels, margins = some(4)
    objective = MAKERS[library]("expected_error", classes=4)
    whole, flat = objective(labels, margins), objective(labels, margins.ravel(order))
    for one, other in zip(whole, flat, strict=True):
        np.testing.assert_array_equal(one.ravel(order), other)


def test_xgboost_before_2_1_takes_flat_gradients(monkeypatch):
    labels, margins = some(3)
    monkeypatch.setattr(xgboost, "__version__", "2.0.3")
    slope, _ = xgboost_objective(classes=3)(labels, margins)
    assert slope.shape == (margins.size,)


def test_a_row_of_weight_k_is_k_rows():
    labels, margins = some(3, rows=20)
    counts = np.random.default_rng(2).integers(0, 4, 20)
    objective = lightgbm_objective("expected_error", classes=3)
    weighted = objective(labels, margins, counts.astype(float))
    copied = objective(np.repeat(labels, counts), np.repeat(margins, counts, axis=0))
    for one, other in zip(weighted, copied, strict=True):
        sums = np.zeros_like(one)
        np.add.at(sums, np.repeat(np.arange(20), counts), other)
        np.testing.assert_allclose(one, sums, atol=1e-12)


def test_far_margins_are_numbers():
    labels = np.array([0, 1, 2])
    for loss in weighting_losses():
        for size in (1e-300, 50.0, 1e4, 1e300):
            margins = np.array([[size, 0, 0], [size, -size, 0], [0, 0, size]])
            for found in lightgbm_objective(loss, classes=3)(labels, margins):
                assert np.isfinite(found).all(), (loss, size)


@pytest.mark.parametrize(
    ("call", "error", "piece"),
    [
        (
            lambda: lightgbm_objective("focal", classes=3),
            ValueError,
            "'focal' with gamma 2, alpha 0.25 is not. Use one of",
        ),
        (lambda: lightgbm_objective("exact", classes=3), ValueError, "concave curve over -log p"),
        (
            lambda: lightgbm_objective("asymmetric_unhinged", classes=3, a=1.5, q=4.0),
            ValueError,
            "with a 1.5, q 4 is not",
        ),
        (lambda: lightgbm_objective("nothing", classes=3), ValueError, "got 'nothing'"),
        (lambda: lightgbm_objective(classes=1), ValueError, "classes must be >= 2; got 1"),
        (lambda: lightgbm_objective(classes=3, leak=1), ValueError, "got 'leak'"),
        (
            lambda: xgboost_objective("mixed_expected_error", classes=3, focus=focus_gradual),
            TypeError,
            "focus must be a number here",
        ),
        (lambda: xgboost_objective(torch.nn.CrossEntropyLoss(), classes=3), TypeError, "a name"),
        (lambda: xgboost_objective(classes=3, curvature=0), ValueError, "curvature must be"),
        (
            lambda: lightgbm_objective(classes=3)([0, 3], np.zeros((2, 3))),
            ValueError,
            "class numbers from 0 to 2; got 3.0",
        ),
        (
            lambda: lightgbm_objective(classes=3)([0, np.nan], np.zeros((2, 3))),
            ValueError,
            "got nan",
        ),
        (
            lambda: lightgbm_objective(classes=3)([0, 0.5], np.zeros((2, 3))),
            ValueError,
            "got 0.5",
        ),
        (
            lambda: lightgbm_objective(classes=3)([0, 1], np.zeros((2, 4))),
            ValueError,
            "got 3 for margins of shape (2, 4)",
        ),
        (
            lambda: lightgbm_objective(classes=3)([0, 1], np.zeros(2)),
            ValueError,
            "also say num_class",
        ),
        (
            lambda: lightgbm_objective(classes=2)([0, 1], np.array([0, np.nan])),
            ValueError,
            "margins must be finite",
        ),
        (
            lambda: lightgbm_objective(classes=2)([0, 1], np.zeros(2), [1.0, -1.0]),
            ValueError,
            "sample_weight must hold a finite number >= 0 for each of 2 rows",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(call, error, piece):
    with pytest.raises(error, match=re.escape(piece)):
        call()


def test_an_objective_is_kept_with_its_model():
    objective = lightgbm_objective("leaky_expected_error", classes=3, leak=0.3)
    assert repr(objective) == "lightgbm_objective('leaky_expected_error', classes=3, leak=0.3)"
    model = clone(lightgbm.LGBMClassifier(objective=objective, n_estimators=3, **FAST)).fit(*IRIS)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(*(one.predict(IRIS[0], raw_score=True) for one in (model, again)))


@parametrize_with_checks(
    [BoostedClassifier("lightgbm", n_estimators=20), BoostedClassifier("xgboost", n_estimators=20)],
    expected_failed_checks=lambda _: {
        # The trees' own thresholds depend on how many rows there are, whatever they weigh.
        "check_sample_weight_equivalence_on_dense_data": "as LightGBM's and XGBoost's own",
    },
)
def test_scikit_learns_checks(estimator, check, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    check(estimator)


@pytest.mark.parametrize("library", MAKERS)
@pytest.mark.parametrize("data", [WINE, CANCER], ids=["three", "two"])
def test_trees_are_saved_as_their_librarys_text(library, data, tmp_path):
    features, labels = data
    names = np.array(["a", "b", "c"])[labels]
    model = BoostedClassifier(library, n_estimators=30, n_jobs=1).fit(features, names)
    model.save(tmp_path)
    again = BoostedClassifier.load(tmp_path)
    assert again.n_iter_ == model.n_iter_ <= model.rounds_
    np.testing.assert_array_equal(again.predict(features), model.predict(features))
    np.testing.assert_allclose(again.logits(features), model.logits(features), atol=1e-6)
    text = (tmp_path / "trees.txt").read_bytes()
    (tmp_path / "trees.txt").write_bytes(text + b" ")
    with pytest.raises(ValueError, match=r"must be as BoostedClassifier\.save wrote them"):
        BoostedClassifier.load(tmp_path)
    (tmp_path / "trees.txt").unlink()
    with pytest.raises(ValueError, match=r"got no trees\.txt"):
        BoostedClassifier.load(tmp_path)


def test_rounds_are_chosen_on_rows_that_are_held_out():
    features, labels = WINE
    train, held = np.arange(0, 178, 2), np.arange(1, 178, 2)
    model = BoostedClassifier(n_estimators=60, n_iter_no_change=None, n_jobs=1)
    model.fit(features[train], labels[train], eval_set=(features[held], labels[held]))
    assert model.rounds_ == len(model.validation_accuracy_) == 60
    right = [(model.logits(features[held], n + 1).argmax(1) == labels[held]).mean()
             for n in range(60)]  # fmt: skip
    np.testing.assert_allclose(model.validation_accuracy_, right)
    assert right[model.n_iter_ - 1] == max(right)
    # Labels that training has not seen are wrong, whatever is said.
    other = np.where(held % 3 == 0, 7, labels[held])
    model.fit(features[train], labels[train], eval_set=(features[held], other))
    assert model.validation_accuracy_.max() <= (other != 7).mean()


def test_it_is_found_from_the_package():
    code = "import expacc; expacc.boosting.lightgbm_objective('expected_error', classes=3)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_library_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(ImportError, match=re.escape("pip install 'expacc[boosting]'")):
        BoostedClassifier("lightgbm").fit(*IRIS)
