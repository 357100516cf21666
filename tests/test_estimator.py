"""The classifiers: habits of scikit-learn, honest choices, safe files."""

import json
import pickle
import re

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.base import clone
from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    load_iris,
    load_wine,
    make_classification,
)
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    HalvingRandomSearchCV,
    ShuffleSplit,
    StratifiedKFold,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import expacc
from expacc.estimator import AccuracyClassifier, AccuracyClassifierCV
from expacc.estimator.calibration import (
    Calibration,
    expected_calibration_error,
    fit_calibration,
)
from expacc.schedules import geometric

IRIS = load_iris(return_X_y=True)
WINE = load_wine(return_X_y=True)


@pytest.fixture(scope="module")
def fitted():
    return AccuracyClassifier(random_state=0, effort="fast").fit(*IRIS)


def noisy(rows=300, classes=3, seed=0, flip=0.1):
    return make_classification(
        rows, 8, n_informative=5, n_classes=classes, flip_y=flip, random_state=seed
    )


# --------------------------------------------------------------------------- scikit-learn's habits


def test_pipeline_and_searches():
    x, y = noisy(120)
    pipeline = make_pipeline(StandardScaler(), AccuracyClassifier(epochs=5))
    assert cross_val_score(pipeline, x, y, cv=2, n_jobs=2).mean() > 0.5
    grid = GridSearchCV(AccuracyClassifier(epochs=3), {"loss": ["exact", "hinge"]}, cv=2).fit(x, y)
    assert set(grid.cv_results_["param_loss"]) == {"exact", "hinge"}
    halving = HalvingRandomSearchCV(
        AccuracyClassifier(epochs=2),
        {"learning_rate": [0.01, 0.05, 0.1], "loss": ["exact", "focal"]},
        random_state=0,
        cv=2,
        min_resources=40,
    ).fit(x, y)
    assert halving.best_estimator_.predict(x).shape == y.shape


def test_clones_pickles_and_seeds(fitted):
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict_proba(IRIS[0]), fitted.predict_proba(IRIS[0]))
    assert clone(fitted).get_params() == fitted.get_params()
    assert all(isinstance(part, np.ndarray) for layer in fitted.layers_ for part in layer)
    for order in (slice(None), np.random.default_rng(1).permutation(len(IRIS[1]))):
        again = AccuracyClassifier(random_state=0, effort="fast").fit(
            IRIS[0][order], IRIS[1][order]
        )
        assert np.array_equal(again.coef_, fitted.coef_)


@pytest.mark.parametrize("loss", ["exact", "leaky_expected_error", "hinge", "cross_entropy"])
@pytest.mark.parametrize("hidden", [(), (6,)])
def test_weight_k_is_k_copies(loss, hidden):
    x, y = noisy(80)
    copies = np.random.default_rng(0).integers(0, 4, len(y))
    options = {
        "loss": loss,
        "hidden_layer_sizes": hidden,
        "epochs": 20 if hidden else "auto",
        "guard": False,
    }
    weighted = AccuracyClassifier(**options).fit(x, y, sample_weight=copies)
    copied = AccuracyClassifier(**options).fit(x.repeat(copies, axis=0), y.repeat(copies))
    np.testing.assert_allclose(
        weighted.predict_proba(x), copied.predict_proba(x), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"hidden": (3,)}, {"hidden_layer_sizes": (3,)}),
        ({"folds": 2}, {"cv": 2}),
        ({"numbers": {"leak": 0.2}}, {"loss_params": {"leak": 0.2}}),
    ],
    ids=str,
)
def test_an_old_parameter_works_with_a_warning(old, new):
    model, today = (
        clone(AccuracyClassifier("leaky_expected_error", epochs=2, **named)) for named in (old, new)
    )
    with pytest.warns(DeprecationWarning, match=f"{next(iter(old))} is {next(iter(new))} now"):
        model.fit(*IRIS)
    assert np.array_equal(model.predict_proba(IRIS[0]), today.fit(*IRIS).predict_proba(IRIS[0]))
    leaks = {params.get("leak") for params in model.cv_results_["params"]}
    assert (0.2 in leaks) == ("numbers" in old)


def test_cv_takes_what_scikit_learn_takes():
    x, y = noisy(90)
    splitter = StratifiedKFold(3)
    models = [AccuracyClassifier(epochs=3, cv=cv) for cv in (splitter, [*splitter.split(x, y)])]
    one, other = (model.fit(x, y).predict_proba(x) for model in models)
    assert np.array_equal(one, other)
    with pytest.raises(ValueError, match="cv must hold out every row once"):
        AccuracyClassifier(cv=ShuffleSplit(2, random_state=0)).fit(x, y)
    with pytest.raises(TypeError, match=r"cv must be an int; got 2\.5"):
        AccuracyClassifier(cv=2.5).fit(x, y)


def test_results_have_the_form_of_scikit_learns_searches(fitted, tmp_path):
    found = fitted.cv_results_
    best = int(np.argmin(found["rank_test_score"]))
    assert found["mean_test_score"][best] == found["mean_test_score"].max()
    assert found["params"][0] == {"loss": "cross_entropy"}
    assert fitted.best_params_ in found["params"]
    with pytest.warns(DeprecationWarning, match="held_out_ is cv_results_ now"):
        assert fitted.held_out_["start"] == found["mean_test_score"][0]
    with pytest.warns(DeprecationWarning, match="chosen_ is best_params_ now"):
        assert fitted.chosen_ == fitted.best_params_
    again = AccuracyClassifier.load(fitted.save(tmp_path))
    assert again.cv_results_["params"] == found["params"]
    assert again.cv_results_["mean_test_score"].tolist() == found["mean_test_score"].tolist()


def test_a_folder_of_before_still_loads(fitted, tmp_path):
    def renamed(facts):
        del facts["seal"]
        facts["parameters"] = {"loss": "exact", "hidden": [], "folds": 3, "numbers": None}

    damage_json(renamed)(fitted.save(tmp_path))
    again = AccuracyClassifier.load(tmp_path)
    assert (again.cv, again.hidden_layer_sizes, again.folds) == (3, (), "deprecated")
    assert np.array_equal(again.predict(IRIS[0]), fitted.predict(IRIS[0]))


LABELS = {
    "text": ["no", "yes", "maybe"],
    "numbers as text": ["01", "1", "1.0"],
    "unicode": ["ja", "ñandú", "是"],
    "negative": [-5, -1, 3],
    "floats that are whole": [1.0, 2.0, 7.0],
    "objects": np.array(["a", "b", "c"], dtype=object),
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_labels_of_any_kind(labels, tmp_path):
    x, codes = IRIS
    classes = np.asarray(labels)
    model = AccuracyClassifier(epochs=5).fit(x, classes[codes])
    assert set(model.predict(x)) <= set(classes)
    assert model.score(x, classes[codes]) > 0.9
    model.save(tmp_path)
    again = AccuracyClassifier.load(tmp_path)
    assert (again.predict(x) == model.predict(x)).all()
    assert type(again.classes_[0].item() if classes.dtype != object else "") is type(
        model.classes_[0].item() if classes.dtype != object else ""
    )


def test_bools_and_categories():
    x, codes = load_breast_cancer(return_X_y=True)
    model = AccuracyClassifier(epochs=5).fit(x, codes.astype(bool))
    assert model.predict(x).dtype == bool
    import pandas

    category = pandas.Categorical.from_codes(IRIS[1], ["x", "y", "z"])
    frame = pandas.DataFrame(IRIS[0], columns=list("abcd"))
    model = AccuracyClassifier(epochs=5).fit(frame, category)
    assert list(model.feature_names_in_) == list("abcd")
    assert model.score(frame, np.asarray(category)) > 0.9


def test_a_class_absent_from_a_fold():
    x, y = noisy(60)
    y = y.copy()
    y[:1] = 7  # a single row of its own class
    model = AccuracyClassifier(effort="fast").fit(x, y)
    assert list(model.classes_) == [0, 1, 2, 7]
    assert np.isfinite(model.predict_proba(x)).all()


def test_balanced_weights_trade_for_the_rare_class():
    x, y = make_classification(
        600, 6, n_informative=4, weights=[0.92], flip_y=0.05, class_sep=0.5, random_state=3
    )
    plain = AccuracyClassifier(effort="fast").fit(x, y)
    balanced = AccuracyClassifier(class_weight="balanced", effort="fast").fit(x, y)
    recall = [np.mean(model.predict(x)[y == 1] == 1) for model in (plain, balanced)]
    assert recall[1] > recall[0] + 0.1


# ------------------------------------------------------------------------------- choosing, honestly


def test_cross_entropy_is_logistic_regression():
    x, y = StandardScaler().fit_transform(WINE[0]), WINE[1]
    ours = AccuracyClassifier("cross_entropy", calibrate=False).fit(x, y)
    theirs = LogisticRegression(max_iter=200).fit(x, y)
    np.testing.assert_allclose(ours.predict_proba(x), theirs.predict_proba(x), atol=1e-3)
    assert ours.best_params_ == {"loss": "cross_entropy"}


def test_the_start_stays_unless_it_is_beaten():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3))
    model = AccuracyClassifier(effort="fast").fit(x, rng.integers(0, 2, 400))  # nothing to learn
    assert model.best_params_ == {"loss": "cross_entropy"}
    assert len(model.cv_results_["params"]) == 3


@pytest.mark.parametrize(
    ("loss", "params", "share"),
    [
        ("leaky_expected_error", None, 0.95),
        ("exact", None, 0.98),
        # The smaller the noise, the nearer to the error rate itself.
        ("exact", {"sigma": geometric(1.0, 0.03)}, 0.99),
    ],
)
def test_outliers_that_fool_cross_entropy_do_not_fool_ours(loss, params, share):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(600, 1))
    y = (x[:, 0] > 0.3).astype(int)
    x[:30], y[:30] = 3.0, 0  # far on the wrong side
    model = AccuracyClassifier(loss, loss_params=params).fit(x, y)
    assert model.best_params_["loss"] == loss
    assert model.score(x[30:], y[30:]) > share
    assert LogisticRegression().fit(x, y).score(x[30:], y[30:]) < 0.9


def test_cv_tries_every_loss():
    model = AccuracyClassifierCV(losses=("exact", "hinge", expacc.FocalLoss())).fit(*noisy(150))
    assert len(model.cv_results_["params"]) == 1 + 3 + 1 + 1
    assert model.get_params()["cv"] == 5


@pytest.mark.parametrize(
    "loss", [expacc.ExactLoss(sigma=0.3), torch.nn.CrossEntropyLoss(label_smoothing=0.1)]
)
def test_loss_objects(loss):
    model = AccuracyClassifier(loss, epochs=10, guard=False).fit(*IRIS)
    assert model.best_params_["loss"] == type(loss).__name__
    assert model.score(*IRIS) > 0.9


def test_network_beats_a_line_where_a_line_cannot_do():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    y = (x[:, 0] * x[:, 1] > 0).astype(int)
    assert AccuracyClassifier(hidden_layer_sizes=(16,), cv=2).fit(x, y).score(x, y) > 0.95
    assert AccuracyClassifier(effort="fast").fit(x, y).score(x, y) < 0.7


def test_large_data_in_batches():
    x, y = noisy(6000, seed=2)
    model = AccuracyClassifier(epochs=2).fit(x, y)
    assert model.score(x, y) >= LogisticRegression().fit(x, y).score(x, y) - 0.01


# --------------------------------------------------------------------------------- probabilities


@pytest.mark.parametrize(("temperature", "bend"), [(5.0, 1.0), (2.0, 0.4)])
def test_calibration_of_known_logits(temperature, bend):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(20000, 3)) * (temperature if bend == 1 else 4)
    chance = Calibration(temperature, bend).probabilities(logits)
    codes = (chance.cumsum(1) < rng.random((20000, 1))).sum(1)
    found = fit_calibration(logits, codes, np.ones(20000))
    assert found.temperature == pytest.approx(temperature, rel=0.05 if bend == 1 else 0.1)
    assert found.bend == pytest.approx(bend, abs=0.05 if bend == 1 else 0.04)
    assert (chance.argmax(1) == logits.argmax(1)).all()


@pytest.mark.parametrize("logits", [np.zeros((6, 3)), np.eye(3)[[0, 1, 2] * 2] * 1e300])
def test_calibration_of_odd_logits_is_finite(logits):
    codes = np.array([0, 1, 2] * 2)
    for labels in (codes, codes[::-1].copy()):
        found = fit_calibration(logits, labels, np.ones(6))
        assert np.isfinite([found.temperature, found.bend]).all()
        assert np.isfinite(found.probabilities(logits)).all()


def test_probabilities_are_calibrated_and_keep_the_argmax():
    x, y = load_digits(return_X_y=True)
    wrong = np.random.default_rng(0).random(len(y)) < 0.2  # which probabilities should allow for
    y = np.where(wrong, (y + 1) % 10, y)
    train, test = np.arange(0, 1200), np.arange(1200, 1797)
    model = AccuracyClassifier("expected_error", guard=False).fit(x[train], y[train])
    raw = clone(model).set_params(calibrate=False).fit(x[train], y[train])
    assert (model.predict(x) == raw.predict(x)).all()
    assert (model.classes_[model.predict_proba(x).argmax(1)] == model.predict(x)).all()
    honest = expected_calibration_error(model.predict_proba(x[test]), y[test])
    assert honest < 0.06
    assert honest < expected_calibration_error(raw.predict_proba(x[test]), y[test]) - 0.1


# ------------------------------------------------------------------------------------------ files


def test_attributes_have_the_shapes_of_scikit_learns():
    for classes in (2, 3):
        x, y = noisy(200, classes)
        ours, theirs = AccuracyClassifier(effort="fast").fit(x, y), LogisticRegression().fit(x, y)
        assert ours.coef_.shape == theirs.coef_.shape
        assert ours.intercept_.shape == theirs.intercept_.shape
        scores = x @ ours.coef_.T + ours.intercept_
        np.testing.assert_allclose(scores.squeeze(), ours.decision_function(x), rtol=1e-9)
        assert ours.n_iter_ >= 1
    network = AccuracyClassifier("cross_entropy", (4,), epochs=3).fit(x, y)
    assert network.n_iter_ == 3


@pytest.mark.parametrize("hidden", [(), (5, 4)])
def test_save_and_load(tmp_path, hidden):
    model = AccuracyClassifier(hidden_layer_sizes=hidden, epochs=5).fit(*IRIS)
    folder = model.save(tmp_path / "new" / "folder")
    again = AccuracyClassifier.load(folder)
    assert np.array_equal(again.predict_proba(IRIS[0]), model.predict_proba(IRIS[0]))
    assert again.get_params() == model.get_params()
    assert again.best_params_ == model.best_params_
    assert again.n_features_in_ == 4
    assert sorted(path.name for path in folder.iterdir()) == ["model.json", "model.safetensors"]


def damage_json(change):
    def damage(folder):
        path = folder / "model.json"
        facts = json.loads(path.read_text())
        change(facts)
        path.write_text(json.dumps(facts))

    return damage


HOSTILE = {
    "nothing": lambda f: [path.unlink() for path in f.iterdir()],
    "no weights": lambda f: (f / "model.safetensors").unlink(),
    "cut weights": lambda f: (f / "model.safetensors").write_bytes(
        (f / "model.safetensors").read_bytes()[:-9]
    ),
    "a pickle": lambda f: (f / "model.safetensors").write_bytes(pickle.dumps(print)),
    "empty weights": lambda f: (f / "model.safetensors").write_bytes(b""),
    "cut JSON": lambda f: (f / "model.json").write_text("{"),
    "deep JSON": lambda f: (f / "model.json").write_text("[" * 100_000),
    "not an object": lambda f: (f / "model.json").write_text("[1]"),
    "newer format": damage_json(lambda facts: facts.update(format=99)),
    "no classes": damage_json(lambda facts: facts.pop("classes")),
    "classes of code": damage_json(lambda facts: facts["classes"].update(kind="O")),
    "classes of mixed type": damage_json(lambda facts: facts["classes"].update(values=[0, "1", 2])),
    "fewer classes": damage_json(lambda facts: facts["classes"].update(values=[0, 1])),
    "other shapes": damage_json(lambda facts: facts.update(layers=[[3, 5]])),
    "other features": damage_json(lambda facts: facts.update(features=7)),
    "a wild temperature": damage_json(lambda facts: facts.update(temperature=-1)),
    "a wild bend": damage_json(lambda facts: facts.update(bend=2)),
    "names that do not fit": damage_json(lambda facts: facts.update(feature_names=["a"])),
    "a huge layer": damage_json(lambda facts: facts.update(layers=[[3, 10**9]], features=10**9)),
}


@pytest.mark.parametrize("damage", HOSTILE.values(), ids=HOSTILE)
def test_hostile_folders_get_a_sentence(fitted, tmp_path, damage):
    fitted.save(tmp_path)
    damage(tmp_path)
    with pytest.raises(ValueError, match="must") as refusal:
        AccuracyClassifier.load(tmp_path)
    assert "\n" not in str(refusal.value)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's exporter, about torch's own names
def test_to_torch_and_onnx(fitted, tmp_path):
    import onnxruntime

    logits = fitted.to_torch(torch.float64)(torch.tensor(IRIS[0])).detach().numpy()
    np.testing.assert_allclose(logits, fitted.decision_function(IRIS[0]), atol=1e-12)
    x = torch.tensor(IRIS[0], dtype=torch.float32)
    torch.onnx.export(fitted.to_torch().eval(), (x,), str(tmp_path / "m.onnx"), dynamo=True)
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    (again,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    for found in (logits, again):
        assert (fitted.classes_[found.argmax(1)] == fitted.predict(IRIS[0])).all()


# --------------------------------------------------------------------------------------- refusals

X, Y = noisy(30)
BAD = [
    (lambda: AccuracyClassifier(effort="fast").fit(np.where(X > 2, np.nan, X), Y), "impute"),
    (lambda: AccuracyClassifier(effort="fast").fit(X, np.zeros(30)), "one class"),
    (lambda: AccuracyClassifier(effort="fast").fit(X, np.arange(30)), "30 classes in 30 rows"),
    (lambda: AccuracyClassifier(effort="fast").fit([["a", 1], ["b", 2]] * 15, Y), "OneHotEncoder"),
    (lambda: AccuracyClassifier("exat").fit(X, Y), "'exat'"),
    (lambda: AccuracyClassifier(epochs=0).fit(X, Y), "epochs"),
    (lambda: AccuracyClassifier(learning_rate=-1.0).fit(X, Y), "learning_rate"),
    (lambda: AccuracyClassifier(hidden_layer_sizes=(0,)).fit(X, Y), "hidden_layer_sizes"),
    (lambda: AccuracyClassifier(loss_params={"sigma": 1.0}).fit(X, Y), "'sigma'"),
    (
        lambda: AccuracyClassifier(effort="fast").fit(X, Y, sample_weight=-np.ones(30)),
        "sample_weight",
    ),
    (lambda: AccuracyClassifier(calibrate="yes").fit(X, Y), "calibrate"),
]


@pytest.mark.parametrize(("call", "says"), BAD)
def test_refusals(call, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        call()


# Every check of the installed scikit-learn, none excused


@parametrize_with_checks(
    [
        AccuracyClassifier(effort="fast"),
        AccuracyClassifier(loss="leaky_expected_error", calibrate=False, guard=False),
        AccuracyClassifier(hidden_layer_sizes=(8,), epochs=30),
        AccuracyClassifierCV(losses=("exact", "hinge")),
    ]
)
def test_scikit_learns_checks(estimator, check, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # or those with array_api_dispatch are skipped
    check(estimator)


@pytest.mark.parametrize("kind", ["csr_matrix", "csc_array", "coo_matrix"])
def test_sparse_features_are_those_of_the_dense_table(kind, monkeypatch):
    dense = np.random.default_rng(0).integers(0, 2, (60, 5)).astype(float)
    labels = (dense.sum(axis=1) > 2).astype(int)
    features = getattr(scipy.sparse, kind)(dense)
    one = AccuracyClassifier(loss="leaky_expected_error").fit(features, labels)
    two = AccuracyClassifier(loss="leaky_expected_error").fit(dense, labels)
    np.testing.assert_array_equal(one.predict_proba(features), two.predict_proba(dense))
    monkeypatch.setattr("expacc.estimator.inputs.MOST_VALUES", 299)
    with pytest.raises(ValueError, match=r"at most 299 values once it is dense.* 60 × 5"):
        one.predict(features)
