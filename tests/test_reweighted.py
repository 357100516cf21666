"""Refits with renewed weights: scikit-learn's contract, descent, and what is refused."""

import re

import numpy as np
import pandas
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.linear_model import LinearRegression, LogisticRegression, Perceptron
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from expacc.boosting import ReweightedClassifier
from expacc.registry import SPECS


@parametrize_with_checks(
    [
        ReweightedClassifier(LogisticRegression(max_iter=1000)),
        ReweightedClassifier(DecisionTreeClassifier(max_depth=3, random_state=0)),
        ReweightedClassifier(
            LogisticRegression(max_iter=1000), "leaky_expected_error", cv=3, max_iter=2
        ),
    ]
)
def test_scikit_learns_checks(estimator, check, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # or those with array_api_dispatch are skipped
    check(estimator)


def noisy(seed=0, rows=300):
    random = np.random.default_rng(seed)
    features = random.normal(size=(rows, 4))
    truth = (features[:, :3] @ random.normal(size=(3, 3))).argmax(1)
    wrong = random.random(rows) < 0.3
    return features, np.where(wrong, (truth + 1) % 3, truth), truth


@pytest.mark.parametrize("loss", ["expected_error", "leaky_expected_error", "jensen_shannon"])
def test_no_refit_raises_the_loss(loss):
    features, labels, _ = noisy()
    base = LogisticRegression(C=1e6, tol=1e-9, max_iter=5000)  # log-loss, and nothing beside
    model = ReweightedClassifier(base, loss, max_iter=8, tol=0).fit(features, labels)
    target = torch.tensor(labels)
    losses = [
        float(SPECS[loss].function(torch.tensor(one.predict_log_proba(features)), target))
        for one in model.estimators_
    ]
    assert len(losses) == 9
    assert (np.diff(losses) < 1e-6).all()
    assert losses[-1] < losses[0]


def test_weights_are_the_slope_at_the_probability_of_the_label():
    features, labels, _ = noisy()
    model = ReweightedClassifier(LogisticRegression(), "expected_error", max_iter=1)
    model.fit(features, labels)
    first = model.estimators_[0].predict_proba(features)[np.arange(len(labels)), labels]
    np.testing.assert_allclose(model.sample_weight_, first / first.mean(), rtol=1e-9)
    assert model.n_iter_ == len(model.estimators_) == 2


def test_cross_entropy_is_the_base_itself():
    features, labels, _ = noisy()
    model = ReweightedClassifier(LogisticRegression(), "cross_entropy").fit(features, labels)
    base = LogisticRegression().fit(features, labels)
    assert model.n_iter_ == 1
    np.testing.assert_array_equal(model.predict_proba(features), base.predict_proba(features))


def test_wrong_labels_cost_less():
    """On 20 draws, so that it is no luck."""
    scores = []
    for seed in range(20):
        features, labels, truth = noisy(seed)
        base = LogisticRegression(C=100.0).fit(features, labels)
        model = ReweightedClassifier(LogisticRegression(C=100.0)).fit(features, labels)
        scores.append(model.score(features, truth) - base.score(features, truth))
    assert np.mean(scores) > 0.01


def test_texts_frames_sparse_and_classes_that_a_fold_lacks():
    features, labels, _ = noisy()
    names = np.array(["low", "mid", "top"], "U4")[labels]
    names[0] = "once"  # in one fold of three it is held out
    frame = pandas.DataFrame(features, columns=list("abcd"))
    for given in (frame, csr_matrix(features), features.tolist()):
        model = ReweightedClassifier(LogisticRegression(), cv=3, max_iter=2)
        said = model.fit(given, pandas.Series(names)).predict(given)
        assert set(said) <= {"low", "mid", "top", "once"}
        assert np.isfinite(model.sample_weight_).all()
    assert model.classes_.tolist() == ["low", "mid", "once", "top"]
    assert list(ReweightedClassifier(LogisticRegression()).fit(frame, names).feature_names_in_) == [
        *"abcd"
    ]


@pytest.mark.parametrize(
    ("base", "arguments", "error", "piece"),
    [
        (LinearRegression(), {}, ValueError, "must be a classifier of scikit-learn"),
        (LogisticRegression, {}, ValueError, "not yet fitted; got type"),
        (KNeighborsClassifier(), {}, ValueError, "KNeighborsClassifier does not. In a pipeline"),
        (
            make_pipeline(StandardScaler(), LogisticRegression()),
            {},
            ValueError,
            "put ReweightedClassifier around its last step",
        ),
        (Perceptron(), {}, ValueError, "Put sklearn.calibration.CalibratedClassifierCV"),
        (LogisticRegression(), {"loss": "focal"}, ValueError, "'focal' with gamma"),
        (LogisticRegression(), {"loss": "exact"}, ValueError, "'exact' is not"),
        (LogisticRegression(), {"loss_params": {"q": 1}}, ValueError, "got 'q'"),
        (LogisticRegression(), {"max_iter": 0}, ValueError, "max_iter must be >= 1"),
        (LogisticRegression(), {"tol": -1.0}, ValueError, "tol must be"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(base, arguments, error, piece):
    features, labels, _ = noisy()
    with pytest.raises(error, match=re.escape(piece)):
        ReweightedClassifier(base, **arguments).fit(features, labels)
