"""Folds, hold-outs, wrong labels and the seal on test rows."""

import copy
import pickle
import re
from dataclasses import replace

import numpy as np
import pytest

from expacc.data import (
    SealedTest,
    Split,
    TrainRows,
    derive_seed,
    five_by_two,
    flip_labels,
    holdout,
    open_split,
    read_table,
    require_train_rows,
    stratified_folds,
)

LABELS = np.random.default_rng(0).choice(4, size=203, p=[0.6, 0.3, 0.08, 0.02])


def test_seeds_are_by_name():
    seeds = [derive_seed(*name) for name in ((0, "a", "b"), (0, "ab"), (1, "a", "b"), (0,))]
    assert len(set(seeds)) == 4
    # printf '[0, "car", "folds", 3]' | sha256sum: the first 8 bytes, halved. Records rely on it.
    assert derive_seed(0, "car", "folds", 3) == 1770820948132572008
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize("folds", [2, 3, 5, 10])
def test_folds_part_the_rows_evenly(folds):
    splits = stratified_folds(LABELS, folds, repeats=3, seed=1, name="t")
    assert len(splits) == 3 * folds
    for repeat in range(3):
        parts = splits.splits[repeat * folds : (repeat + 1) * folds]
        tests = np.concatenate([split.test for split in parts])
        assert np.array_equal(np.sort(tests), np.arange(len(LABELS)))
        sizes = [len(split.test) for split in parts]
        assert max(sizes) - min(sizes) <= 1
        for code in range(4):
            counts = [int((LABELS[split.test] == code).sum()) for split in parts]
            assert max(counts) - min(counts) <= 1
    for split in splits:
        assert np.array_equal(
            np.sort(np.concatenate([split.train, split.test])), np.arange(len(LABELS))
        )


def test_folds_depend_on_seed_name_and_repeat_alone():
    def tests(folds=5, repeats=1, **change):
        splits = stratified_folds(LABELS, folds, repeats, **{"seed": 1, "name": "t", **change})
        return [split.test.tolist() for split in splits]

    assert tests() == tests()
    assert tests() != tests(seed=2)
    assert tests() != tests(name="u")
    long = tests(2, 5)
    assert tests(2, 2) == long[:4]
    assert len({tuple(rows) for rows in long}) == 10


def test_five_by_two_swaps_halves():
    splits = five_by_two(LABELS, seed=0).splits
    assert len(splits) == 10
    for first, second in zip(splits[::2], splits[1::2], strict=True):
        assert np.array_equal(first.test, second.train)
        assert np.array_equal(first.train, second.test)


def test_a_rare_class_is_explained():
    labels = [0] * 20 + [1] * 20 + [2] * 3 + [3]
    splits = stratified_folds(labels, 5, seed=0, classes=["a", "b", "c", "d"])
    assert splits.notes == (
        "Warning: 2 classes have few rows ('c' 3, 'd' 1), fewer than 5 folds: absent from some "
        "test rows, and those of one row (1) from the training rows of the fold that tests it.",
    )
    assert stratified_folds([0, 0, 0, 1], 2, seed=0, classes=["a", "b"]).notes == (
        "Warning: the class 'b' has 1 row(s), fewer than 2 folds: absent from some test rows, and "
        "from the training rows of the fold that tests it.",
    )
    codes = np.array(labels)
    assert sum(2 not in codes[split.test] for split in splits) == 2
    assert sum(3 not in codes[split.train] for split in splits) == 1
    assert splits.how == {
        "kind": "stratified folds",
        "folds": 5,
        "repeats": 1,
        "seed": 0,
        "name": "",
    }


def sealed_of(rows, labels, methods):
    return SealedTest(np.zeros((rows, 1)), np.zeros(labels, int), np.arange(rows), methods)


BAD = [
    (lambda: derive_seed(-1), ValueError, "seed must be an int >= 0"),
    (lambda: stratified_folds(LABELS, 1, seed=0), ValueError, "folds must be >= 2"),
    (lambda: stratified_folds([0, 1, 0], 4, seed=0), ValueError, "at most the number of rows, 3"),
    (lambda: stratified_folds(["a", "b"], 2, seed=0), ValueError, "labels must be a vector"),
    (lambda: stratified_folds([0, -1], 2, seed=0), ValueError, "labels must be a vector"),
    (lambda: stratified_folds(LABELS, 2.0, seed=0), TypeError, "folds must be an int"),
    (lambda: holdout([0, 1, 2], 0.5, seed=0), ValueError, "share must leave a row to test"),
    (lambda: holdout(LABELS, 0, seed=0), ValueError, "share must lie in"),
    (lambda: holdout(LABELS, 1, seed=0), ValueError, "share must lie in"),
    (lambda: holdout(LABELS, 1.5, seed=0), ValueError, "share must lie in"),
    (lambda: holdout(LABELS, True, seed=0), ValueError, "share must lie in"),
    (lambda: flip_labels([0, 5], 0.1, classes=3, seed=0), ValueError, "classes must exceed every"),
    (lambda: flip_labels([0, 1], 1, classes=2, seed=0), ValueError, r"share must lie in \[0, 1\)"),
    (lambda: sealed_of(2, 2, ["a", "a"]), ValueError, "methods must be different names"),
    (lambda: sealed_of(2, 2, "ab"), ValueError, "methods must be different names"),
    (lambda: sealed_of(2, 3, ["a"]), ValueError, "equally many"),
    (lambda: sealed_of(2, 2, ["a"]).score("a", lambda x: np.zeros(3, int)), ValueError,
     "2 class numbers, or 2 rows of scores"),
    (lambda: sealed_of(2, 2, ["b"]).score("b", lambda x: np.zeros(2)), ValueError, "class numbers"),
    (lambda: require_train_rows(read_table("iris")), TypeError, "given TrainRows; got Table"),
    (lambda: require_train_rows(sealed_of(2, 2, ["a"])), TypeError, "TrainRows; got SealedTest"),
    (lambda: np.asarray(sealed_of(2, 2, ["a"])), TypeError, "must not become an array"),
    (lambda: len(iter(sealed_of(2, 2, ["a"]))), TypeError, "not iterable"),
    *((lambda copier=copier: copier(sealed_of(2, 2, ["a"])), TypeError, "not be copied or pickled")
      for copier in (copy.copy, copy.deepcopy, pickle.dumps)),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "sentence"), BAD)
def test_refusals_are_sentences(call, kind, sentence):
    with pytest.raises(kind, match=sentence):
        call()


@pytest.mark.parametrize("share", [0.1, 0.2, 0.33, 0.5])
def test_holdout_keeps_shares(share):
    split = holdout(LABELS, share, seed=3).splits[0]
    assert len(split.test) == round(share * len(LABELS))
    assert np.array_equal(np.sort(np.concatenate([split.train, split.test])), np.arange(203))
    for code in range(4):
        total = np.count_nonzero(code == LABELS)
        assert abs((LABELS[split.test] == code).sum() - share * total) < 1
        assert (LABELS[split.train] == code).any()


def test_holdout_leaves_a_lone_row_to_training():
    splits = holdout([0] * 10 + [1], 0.5, seed=0, classes=["a", "b"])
    assert 10 in splits.splits[0].train
    assert splits.notes == ("Warning: the class 'b' has 1 row(s), too few for the test rows.",)


@pytest.mark.parametrize("share", [0, 0.05, 0.2, 0.5])
def test_noise_makes_that_share_wrong(share):
    noisy, wrong = flip_labels(LABELS, share, classes=4, seed=5)
    assert wrong.sum() == round(share * len(LABELS))
    assert np.array_equal(noisy != LABELS, wrong)
    assert {*noisy} <= {0, 1, 2, 3}
    again, _ = flip_labels(LABELS, share, classes=4, seed=5)
    assert np.array_equal(noisy, again)


def test_noise_is_uniform_over_the_other_classes_and_reaches_those_that_no_row_has():
    noisy, wrong = flip_labels(np.full(30_000, 2), 0.5, classes=4, seed=0)
    counts = np.bincount(noisy[wrong], minlength=4)
    assert counts[2] == 0
    # Each of three counts is binomial(15000, 1/3): four standard deviations are 231.
    assert np.abs(counts[[0, 1, 3]] - 5000).max() < 231


# The seal


@pytest.fixture
def opened():
    table = read_table("iris")
    split = five_by_two(table.target.codes, seed=0, name="iris").splits[0]
    train, sealed, _ = open_split(table, split, methods=["a", "b"])
    return table, split, train, sealed


def test_scores_come_once_a_method(opened):
    table, split, _, sealed = opened
    truth = table.target.codes[split.test]
    score = sealed.score("a", lambda features: np.zeros(len(features), int))
    assert score.correct == int((truth == 0).sum())
    assert score.accuracy == score.correct / score.rows == 1 / 3
    assert sealed.waiting == ("b",)
    with pytest.raises(RuntimeError, match="'a' was scored on these test rows already"):
        sealed.score("a", lambda features: truth)
    assert sealed.score("b", lambda features: truth).accuracy == 1
    assert sealed.waiting == ()


def test_several_methods_in_one_batch_and_a_row_of_nan_is_wrong_not_class_0(opened):
    *_, sealed = opened
    scores = sealed.score_together(
        ["a", "b"], lambda x: {"a": np.ones(len(x), int), "b": np.full((len(x), 3), np.nan)}
    )
    assert scores["a"].accuracy == pytest.approx(1 / 3)
    assert (scores["b"].correct, scores["b"].undefined) == (0, scores["b"].rows)
    with pytest.raises(RuntimeError, match="touched once"):
        sealed.score_together(["a"], lambda x: {"a": np.zeros(len(x), int)})


def test_cheats_fail(opened):
    _, split, train, sealed = opened
    seen = []
    with pytest.raises(ValueError, match="method must be one of 'a', 'b'; got 'c'"):
        sealed.score("c", lambda features: seen.append(features))
    assert not seen
    # A predictor that fails has had its look.
    with pytest.raises(ZeroDivisionError):
        sealed.score("a", lambda features: 1 / 0)
    with pytest.raises(RuntimeError, match="already"):
        sealed.score("a", lambda features: np.zeros(len(features), int))
    assert require_train_rows(train) is train
    for name in ("labels", "features", "y", "target", "codes"):
        assert not hasattr(sealed, name)
    with pytest.raises(AttributeError):
        sealed.labels = split.test
    public = [name for name in dir(sealed) if not name.startswith("_")]
    assert public == ["rows", "score", "score_together", "waiting"]
    assert "0.1" not in repr(sealed)
    # What a predictor does to its features is nobody else's concern.
    sealed.score("b", lambda features: (features.fill(0), np.zeros(len(features), int))[1])


def test_training_rows_lead_nowhere_else(opened):
    table, split, train, _ = opened
    assert isinstance(train, TrainRows)
    assert np.array_equal(train.rows, split.train)
    assert len(train) == 75
    for array in (train.features, train.labels, train.rows):
        assert array.base is None or len(array.base) == len(train)
        assert not np.shares_memory(array, table.target.codes)
        assert not np.shares_memory(array, split.train)
    part = train.part(np.array([3, 1]))
    assert part.rows.tolist() == split.train[[3, 1]].tolist()


def test_test_labels_do_not_reach_training(opened):
    """The same training rows come out whatever the labels and features of the test rows are."""
    table, split, train, _ = opened
    other = copy.deepcopy(table)
    other.target.codes[split.test] = 0
    for column in other.columns:
        column.values[split.test] = 1e6
    again, _, _ = open_split(other, split, methods=["a"])
    assert np.array_equal(train.features, again.features)
    assert np.array_equal(train.labels, again.labels)


def test_noise_stays_out_of_test_rows():
    table = read_table("iris")
    rows = np.arange(150)
    split = Split("s", rows[::3], rows[1::3], rows[2::3])
    train, sealed, _ = open_split(table, split, methods=["a"], label_noise=0.2, seed=1)
    assert train.wrong.sum() == 10
    assert train.validation.wrong.sum() == 10
    assert not np.array_equal(train.wrong, train.validation.wrong)
    assert np.array_equal(train.labels != table.target.codes[rows[::3]], train.wrong)
    assert sealed.score("a", lambda x: table.target.codes[rows[2::3]]).accuracy == 1


def test_as_many_classes_as_rows_take_no_time_and_few_notes():
    codes = np.random.default_rng(0).permutation(200_000)
    for splits in (stratified_folds(codes, 10, seed=0), holdout([*codes, 0, 0, 0], 1e-5, seed=0)):
        (note,) = splits.notes
        assert re.match(r"Warning: (200,000|199,99\d) classes have few rows \('\d+' 1, ", note)
        assert len(note) < 250


def test_folds_are_dealt_when_their_rows_are_asked_for(monkeypatch):
    def refuse(*_):
        raise AssertionError("dealt")

    with monkeypatch.context() as patch:
        patch.setattr("expacc.data.splits._by_class", refuse)
        splits = list(stratified_folds(LABELS, 3, seed=0))
        assert [split.renamed("x").train_rows for split in splits] == [136] * 3
        with pytest.raises(AssertionError, match="dealt"):
            splits[0].test  # noqa: B018
    again = replace(splits[0], name="other")
    assert again.name == "other"
    assert np.array_equal(again.test, splits[0].renamed("x").test)
