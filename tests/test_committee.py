"""Networks that vote: their inputs, who votes, what they say of rows, and their files."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_iris, make_classification
from sklearn.inspection import permutation_importance
from sklearn.utils.estimator_checks import parametrize_with_checks

from expacc.estimator import AccuracyClassifier, voting
from expacc.estimator.columns import FEW, PIECES, Columns
from expacc.estimator.radial import RadialKind, fit_radial
from expacc.training import TensorTable

IRIS = load_iris(return_X_y=True)


@pytest.fixture(scope="module", autouse=True)
def _two_kinds():
    """A line and a layer are as good as six kinds for what is asked here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(voting, "CANDIDATES", [voting.CANDIDATES[place] for place in (0, 1, -1)])
        yield


def mixed(rows=200, seed=0):
    """Numbers, few values, categories, gaps, a constant, and labels that follow from them."""
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "number": draw.normal(size=rows) ** 3,
            "few": draw.integers(0, 5, rows),
            "letter": pd.Categorical(draw.choice(list("abc"), rows)),
            "gaps": np.where(draw.random(rows) < 0.3, np.nan, draw.normal(size=rows)),
            "constant": 7.0,
        }
    )
    labels = np.where((frame["letter"] == "b") ^ (frame["few"] == 2), "yes", "no")
    return frame, labels


@pytest.fixture(scope="module")
def fitted():
    frame, labels = mixed()
    return AccuracyClassifier(random_state=0).fit(frame, labels)


def columns_of(features, weight=None, categorical=()):
    mask = np.zeros(features.shape[1], bool)
    mask[list(categorical)] = True
    return Columns.fit(features, np.ones(len(features)) if weight is None else weight, mask)


# ------------------------------------------------------------------------------------- the inputs


def test_a_column_becomes_what_it_is():
    draw = np.random.default_rng(0)
    features = np.stack(
        [
            draw.normal(5, 3, 400),  # a number, in pieces
            draw.integers(0, FEW, 400),  # values as well
            draw.integers(0, 2, 400),  # two values are a number
            np.where(np.arange(400) % 4, draw.normal(size=400), np.nan),
            np.full(400, 2.5),  # says nothing
            draw.choice([3.0, 10.0, 11.0], 400),  # a category
        ],
        axis=1,
    )
    found = columns_of(features, categorical=[5])
    assert found.numbers.tolist() == [0, 1, 2, 3]
    assert np.bincount(found.valued).tolist() == [0, FEW, 0, 0, 0, 3]
    assert found.missing.tolist() == [3]
    assert np.bincount(found.pieced).tolist() == [PIECES, 0, 0, PIECES]
    inputs = found.transform(features)
    assert inputs.shape == (400, found.inputs)
    assert np.isfinite(inputs).all()
    assert np.abs(inputs[:, :4]).max() <= 3  # far ends are drawn in
    assert inputs[:, 4 : 4 + FEW].sum(1).tolist() == [1] * 400
    assert abs(inputs[:, 0].mean()) < 0.1
    assert 0.8 < inputs[:, 0].std() < 1.2


def test_a_value_that_is_rounded_otherwise_is_the_nearest_but_a_category_is_none():
    features = np.tile([[0.1], [0.2], [0.4]], (10, 2))
    inputs = columns_of(features, categorical=[1]).transform(np.array([[0.19, 0.15], [9, 0.4]]))
    assert inputs[:, 1:4].tolist() == [[0, 1, 0], [0, 0, 1]]
    assert inputs[:, 4:].tolist() == [[0, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize("value", [1e308, -1e308, np.nan, 5.5])
def test_what_training_did_not_have_has_finite_inputs(value):
    features = np.random.default_rng(0).normal(size=(50, 3))
    inputs = columns_of(features).transform(np.full((2, 3), value))
    assert np.isfinite(inputs).all()
    assert np.abs(inputs).max() <= 3


def test_a_row_of_weight_k_is_k_copies():
    draw = np.random.default_rng(3)
    features = np.round(draw.normal(size=(60, 4)), 1)
    copies = draw.integers(1, 5, 60)
    weighted, copied = (
        columns_of(features, copies.astype(float)),
        columns_of(features.repeat(copies, axis=0)),
    )
    for name, values in weighted.tensors().items():
        np.testing.assert_array_equal(values, copied.tensors()[name])


def test_a_wide_table_has_no_more_inputs_than_fit():
    features = np.random.default_rng(0).integers(0, 10, (30, 3000)).astype(float)
    assert columns_of(features).inputs <= 3000 + 2 * 4096


# -------------------------------------------------------------------------------- as an estimator


@parametrize_with_checks([AccuracyClassifier(cv=2)])
def test_scikit_learns_checks(estimator, check, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    monkeypatch.setattr(voting, "training_length", lambda rows: (200, 16))
    check(estimator)


def test_categories_gaps_and_text_labels(fitted):
    frame, labels = mixed(seed=1)
    assert fitted.score(frame, labels) > 0.95
    assert fitted.feature_names_in_.tolist() == list(frame)
    new = frame.copy()
    new["letter"] = pd.Categorical(["z"] * len(frame))
    assert np.isfinite(fitted.predict_proba(new)).all()  # not known: none of them


def test_categories_of_many_kinds_have_an_order(tmp_path):
    frame, labels = mixed()
    odd = frame.assign(letter=frame["letter"].astype(object).replace({"a": 1, "b": 2.5}))
    odd["letter"] = odd["letter"].astype("category")
    odd["whole"] = pd.array([None, 3] * 100, dtype="Int64")
    model = AccuracyClassifier(random_state=0).fit(odd, labels)
    assert model.score(odd, labels) > 0.9
    again = AccuracyClassifier.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict_proba(odd), model.predict_proba(odd))
    with pytest.raises(ValueError, match="column 'word' holds text"):
        AccuracyClassifier().fit(odd.assign(word="x"), labels)


def test_categories_are_told_by_number_too(fitted):
    frame, labels = mixed()
    model = AccuracyClassifier(random_state=0, categorical_features=[2])
    codes = numbers_of(frame)
    np.testing.assert_array_equal(
        model.fit(codes, labels).predict_proba(codes), fitted.predict_proba(frame)
    )


@pytest.mark.parametrize("asked", ["dtype", [9], ["none"], [True, False], [-1]])
def test_categories_that_are_not_there_are_refused(asked):
    with pytest.raises(ValueError, match="categorical_features must"):
        AccuracyClassifier(categorical_features=asked).fit(*mixed())


def test_nobody_decides_by_their_company(fitted):
    frame, _ = mixed(3000, seed=2)
    whole = fitted.predict_proba(frame)
    np.testing.assert_array_equal(fitted.predict_proba(frame[::-1])[::-1], whole)
    np.testing.assert_array_equal(fitted.predict_proba(frame[7:8]), whole[7:8])


def test_the_same_bits_from_the_same_seed_in_any_order():
    features, labels = IRIS
    order = np.random.default_rng(0).permutation(len(labels))
    one = AccuracyClassifier(random_state=3).fit(features, labels)
    other = AccuracyClassifier(random_state=3).fit(features[order], labels[order])
    np.testing.assert_array_equal(one.predict_proba(features), other.predict_proba(features))
    np.testing.assert_array_equal(one.label_probability_[order], other.label_probability_)


def test_wrong_labels_are_found():
    features, labels = make_classification(600, 10, n_informative=6, class_sep=2, random_state=0)
    wrong = np.random.default_rng(0).choice(600, 90, replace=False)
    given = labels.copy()
    given[wrong] = 1 - given[wrong]
    model = AccuracyClassifier().fit(features, given)
    assert np.isin(model.suspect_rows_[:60], wrong).mean() > 0.9
    assert (np.diff(model.label_probability_[model.suspect_rows_]) >= 0).all()
    assert (model.predict(features) == labels).mean() > 0.9
    assert abs(model.label_noise_ - 0.15) < 0.04
    assert AccuracyClassifier().fit(features, labels).label_noise_ < 0.03


def test_a_row_of_weight_0_is_not_judged():
    features, labels = IRIS
    weight = np.ones(len(labels))
    weight[::10] = 0
    model = AccuracyClassifier().fit(features, labels, sample_weight=weight)
    assert np.isnan(model.label_probability_[::10]).all()
    assert not np.isin(np.arange(0, 150, 10), model.suspect_rows_).any()


def test_who_votes_is_told():
    model = AccuracyClassifier(random_state=0).fit(*IRIS)
    assert len(model.cv_results_["params"]) == 3
    assert model.best_params_ in model.cv_results_["params"]
    with pytest.raises(AttributeError, match="linear"):
        _ = model.coef_


@pytest.mark.parametrize(
    "options",
    [{"loss": "hinge"}, {"epochs": 3}, {"guard": False}, {"loss_params": {}}, {"effort": "fast"}],
    ids=str,
)
def test_training_of_ones_own_is_of_one_model(options):
    model = AccuracyClassifier(**options).fit(*IRIS)
    assert model.committee_ is None
    assert model.coef_.shape == (3, 4)


def test_options_that_cannot_be():
    for options in ({"hidden_layer_sizes": "wide"}, {"effort": "most"}):
        with pytest.raises(ValueError, match=f"^{next(iter(options))} must be .* got "):
            AccuracyClassifier(**options).fit(*IRIS)


def test_so_few_rows_that_none_can_be_held_out():
    features = np.array([[0.0, np.nan], [1.0, 2.0], [2.0, 3.0]])
    model = AccuracyClassifier().fit(features, ["a", "b", "b"])
    assert set(model.predict(np.nan_to_num(features))) <= {"a", "b"}


def test_permutation_importance_works(fitted):
    frame, labels = mixed(80, seed=4)
    found = permutation_importance(fitted, frame, labels, n_repeats=2, random_state=0)
    assert found.importances_mean.argmax() in (1, 2)
    assert found.importances_mean[4] == 0


# ------------------------------------------------------------------------------------- radial units


def radial_fits(features, codes, kinds):
    table = TensorTable(torch.from_numpy(features).float(), torch.from_numpy(codes), 2)
    fold = np.arange(len(codes)) % 4
    folds = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(4)]
    return list(fit_radial(table, np.ones(len(codes)), folds, kinds))


def test_slopes_part_what_counts_from_what_does_not():
    draw = np.random.default_rng(0)
    features = draw.normal(size=(400, 20))
    codes = (features[:, 0] * features[:, 1] > 0).astype(np.int64)
    alike, weighed = radial_fits(features, codes, [RadialKind(False, one) for one in (False, True)])
    right = [np.mean(fit.chances.argmax(1) == codes) for fit in (alike, weighed)]
    assert right[1] > right[0] + 0.1
    assert set(np.argsort(-weighed.radial.factor)[:2]) == {0, 1}


def test_centers_on_top_of_each_other_are_solved_for():
    features = np.zeros((300, 3))
    features[:, 0] = np.arange(300) % 2
    features[:, 1] = 1e-6 * np.random.default_rng(0).normal(size=300)
    (fit,) = radial_fits(features, (features[:, 0] > 0).astype(np.int64), [RadialKind(False, True)])
    assert np.isfinite(fit.line).all()
    assert (fit.chances.argmax(1) == features[:, 0]).all()


def test_labels_that_nothing_tells_leave_inputs_alike():
    features = np.ones((40, 2))
    for fit in radial_fits(features, np.arange(40) // 20, [RadialKind(False, True)]):
        assert np.isfinite(fit.chances).all()


# ---------------------------------------------------------------------------------- modules, files


def numbers_of(frame):
    return frame.assign(letter=frame["letter"].cat.codes).to_numpy(np.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_module_says_the_same(fitted, dtype):
    frame, _ = mixed(100, seed=5)
    logits = fitted.to_torch(dtype)(torch.from_numpy(numbers_of(frame)).to(dtype))
    assert (fitted.classes_[logits.argmax(1).numpy()] == fitted.predict(frame)).all()
    expected = torch.from_numpy(fitted._logits(frame))
    torch.testing.assert_close(logits.double(), expected, rtol=0, atol=1e-4)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's exporter, about torch's own names
def test_the_module_is_exported_to_onnx(fitted, tmp_path):
    import onnxruntime

    frame, _ = mixed(20, seed=6)
    features = torch.from_numpy(numbers_of(frame)).float()
    path = tmp_path / "model.onnx"
    torch.onnx.export(fitted.to_torch(), (features,), path, dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(path)
    (logits,) = session.run(None, {session.get_inputs()[0].name: features.numpy()})
    np.testing.assert_allclose(logits, fitted._logits(frame), atol=1e-4)


def test_saved_and_read_again(fitted, tmp_path):
    frame, _ = mixed(50, seed=7)
    again = AccuracyClassifier.load(fitted.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict_proba(frame), fitted.predict_proba(frame))
    assert again.best_params_ == fitted.best_params_


def _shorter(tensors):
    tensors["member.0.0"] = tensors["member.0.0"][:, :, :-1].contiguous()


def _not_finite(tensors):
    tensors["member.0.0"][0, 0, 0] = torch.nan


def _beyond(tensors):
    tensors["columns.numbers"][0] = 99


def _gone(tensors):
    del tensors["columns.low"]


@pytest.mark.parametrize("change", [_shorter, _not_finite, _beyond, _gone])
def test_tensors_that_cannot_be_are_refused(fitted, tmp_path, change):
    folder = fitted.save(tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    facts = json.loads((folder / "model.json").read_text())
    for name in ("weights_sha256", "seal"):
        facts.pop(name)
    (folder / "model.json").write_text(json.dumps(facts))
    with pytest.raises(ValueError, match=r"must|Save it again"):
        AccuracyClassifier.load(folder)


def test_a_diverged_network_does_not_vote(monkeypatch):
    monkeypatch.setattr(voting, "LEARNING_RATE", 1e30)
    model = AccuracyClassifier().fit(*IRIS)
    assert [each["units"] for each in model.cv_results_["params"]] == ["radial"]
    monkeypatch.setattr(voting, "CANDIDATES", voting.CANDIDATES[:2])
    with pytest.raises(FloatingPointError, match="every one diverged"):
        AccuracyClassifier().fit(*IRIS)
