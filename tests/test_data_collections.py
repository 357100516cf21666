"""Prepared collections: made small here, and the real ones where EXPACC_DATA names a folder."""

import json
import lzma
import os
from pathlib import Path

import numpy as np
import pytest

from expacc.data import (
    TableError,
    find_tables,
    given_splits,
    open_split,
    read_split5x2,
    read_table,
    read_uci121,
)


@pytest.fixture
def prepared(tmp_path):
    def make(**change):
        folder = tmp_path / "all" / "toy"
        folder.mkdir(parents=True, exist_ok=True)
        parts = {
            "toy_py.dat": "0.5,1\n-0.5,2\n1e-3,3\n.25,4\n",
            "labels_py.dat": "0\n1\n0\n1\n",
            "folds_py.dat": "1,0\n0,0\n0,1\n0,1\n",
            "validation_folds_py.dat": "0,1\n1,0\n0,0\n0,0\n",
            **change,
        }
        for name, text in parts.items():
            if text is not None:
                (folder / (name + ".xz")).write_bytes(lzma.compress(text.encode()))
        return folder

    return make


def parts_of(split):
    return tuple(part.tolist() for part in (split.train, split.validation, split.test))


def test_a_prepared_table_and_its_folds(prepared):
    folder = prepared()
    (folder / "toy_py.csv").write_text("the source, beside it")
    table = read_uci121(folder)
    assert table.name == "toy"
    values = [column.values.tolist() for column in table.columns]
    assert values == [[0.5, -0.5, 0.001, 0.25], [1, 2, 3, 4]]
    assert table.target.texts() == ["0", "1", "0", "1"]
    first, second = given_splits(table)
    assert parts_of(first) == ([2, 3], [1], [0])
    assert parts_of(second) == ([1], [0], [2, 3])
    train, sealed, _ = open_split(table, first, methods=["m"])
    assert (len(train), len(train.validation), len(sealed)) == (2, 1, 1)
    for place in (folder, folder.parent):
        found, notes = find_tables(place)
        assert [(t.name, t.kind) for t in found] == [("toy", "uci121")]
        assert notes == ()
    assert found[0].read().rows == 4


def test_a_class_without_training_rows_is_named(prepared):
    splits = given_splits(read_uci121(prepared(**{"labels_py.dat": "2\n1\n0\n1\n"})))
    assert splits.notes == (
        "Warning: fold 1: no training row has the class(es) '2' (and 1 more split(s) lack some).",
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels_py.dat": "0\n1\n0\n"}, "equally long; got 4, 3, 4 and 4"),
        ({"labels_py.dat": "0,1\n1,1\n0,1\n1,1\n"}, "one label a line"),
        ({"folds_py.dat": "1,0\n0,2\n0,1\n0,1\n"}, "line 2: field 2 must be 0 or 1; got '2'"),
        ({"toy_py.dat": "0.5,1\n-0.5,x\n1,3\n1,4\n"}, "line 2: field 2 must be a number; got 'x'"),
        ({"toy_py.dat": "0.5,1\n-0.5\n1,3\n1,4\n"}, "line 2, column 5: 1 field"),
        ({"validation_folds_py.dat": "0\n1\n0\n0\n"}, "2 folds but 1 validation folds"),
        ({"other_py.dat": "1\n"}, "one NAME_py.dat; it holds 2"),
    ],
)
def test_prepared_tables_that_do_not_fit(prepared, change, words):
    with pytest.raises(TableError, match=words):
        read_uci121(prepared(**change))


def test_given_splits_must_not_overlap(prepared):
    table = read_uci121(prepared(**{"validation_folds_py.dat": "1,1\n1,0\n0,0\n0,0\n"}))
    with pytest.raises(ValueError, match="each of 4 rows once at most"):
        given_splits(table)
    with pytest.raises(ValueError, match="must come with splits"):
        given_splits(read_table("iris"))


@pytest.fixture
def halves(tmp_path):
    def make(record, rows="1,p\n2,q\n3,p\n4,q\n5,p\n6,q\n"):
        folder = tmp_path / "toy"
        folder.mkdir(exist_ok=True)
        (folder / "data.csv").write_text(rows)
        text = record if isinstance(record, str) else json.dumps(record)
        (folder / "split5x2.json.xz").write_bytes(lzma.compress(text.encode()))
        return folder

    return make


GOOD = {"n": 6, "test": [0, 2], "folds": [{"a": [2, 3], "b": [4, 5]}]}


def test_pairs_of_halves(halves):
    folder = halves(GOOD)
    first, second = given_splits(read_split5x2(folder))
    assert parts_of(first) == ([2, 3], [4, 5], [0, 1])
    assert parts_of(second) == ([4, 5], [2, 3], [0, 1])
    assert [t.kind for t in find_tables(folder)[0]] == ["split5x2"]


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ([], "an object with n, test and folds"),
        ({**GOOD, "n": 7}, "n must be the table's number of rows, 6; got 7"),
        ({**GOOD, "test": [2, 2]}, "first < last"),
        ({**GOOD, "test": [0, 9]}, "test must be a list of row numbers below 7"),
        ({**GOOD, "folds": []}, "one or more"),
        ({**GOOD, "folds": [{"a": [2]}]}, "pair 1 must be an object with a and b"),
        ({**GOOD, "folds": [{"a": [2.0], "b": [3]}]}, "a of pair 1 must be a list of row numbers"),
        ({**GOOD, "folds": [{"a": [2], "b": [6]}]}, "b of pair 1 must be a list of row numbers"),
    ],
)
def test_pairs_that_do_not_fit(halves, record, words):
    with pytest.raises(TableError, match=words):
        read_split5x2(halves(record))


def test_a_row_without_label_does_not_shift_the_pairs(halves):
    with pytest.raises(TableError, match="n must be the table's number of rows, 5"):
        read_split5x2(halves(GOOD, rows="1,p\n2,\n3,p\n4,q\n5,p\n6,q\n"))


# Real files


def real(*parts):
    root = os.environ.get("EXPACC_DATA")
    if not root:
        pytest.skip("EXPACC_DATA names no folder of real data")
    path = Path(root).joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


EXACT = [
    (("adult", "adult.data.xz"), {}, 32561, 14, {"<=50K": 24720, ">50K": 7841}),
    (("adult", "adult.test.xz"), {"skip_lines": 1}, 16281, 14, {"<=50K.": 12435, ">50K.": 3846}),
    (("annealing", "anneal.data"), {}, 798, 38, {"1": 8, "2": 88, "3": 608, "5": 60, "U": 34}),
    (("annealing", "anneal.test"), {}, 100, 38, {"2": 11, "3": 76, "5": 7, "U": 6}),
    (("balance-scale", "balance-scale.data"), {"target": 1}, 625, 4, {"B": 49, "L": 288, "R": 288}),
    (("breast-cancer-wisconsin", "wdbc.data"), {"target": 2, "drop": [1]}, 569, 31,
     {"B": 357, "M": 212}),
    (("car", "car.data"), {}, 1728, 6, {"acc": 384, "good": 69, "unacc": 1210, "vgood": 65}),
    (("dry-bean", "Dry_Bean_Dataset.xlsx"), {"header": True}, 13611, 16, {"BARBUNYA": 1322,
      "BOMBAY": 522, "CALI": 1630, "DERMASON": 3546, "HOROZ": 1928, "SEKER": 2027, "SIRA": 2636}),
    (("wine", "wine.data"), {"target": 1}, 178, 13, {"1": 59, "2": 71, "3": 48}),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "options", "rows", "features", "counts"), EXACT)
def test_uci_originals(parts, options, rows, features, counts):
    table = read_table(real("exact-uci", *parts), **{"header": False, **options})
    assert table.rows == rows
    assert len(table.columns) + len(table.dropped) == features
    assert table.target.counts() == counts


def test_adult_test_part_is_read_like_its_training_part():
    train = read_table(real("exact-uci", "adult", "adult.data.xz"), header=False)
    path = real("exact-uci", "adult", "adult.test.xz")
    test = read_table(path, header=False, skip_lines=1, like=train.schema)
    labels = test.target.renamed({"<=50K.": "<=50K", ">50K.": ">50K"})
    codes = labels.as_codes_of(train.target.classes, test.name)
    assert np.bincount(codes).tolist() == [12435, 3846]


def test_originals_with_the_wrong_options_are_refused_with_the_cure():
    with pytest.raises(TableError, match=r"line 2, column 5: 15 field.*--skip-lines"):
        read_table(real("exact-uci", "adult", "adult.test.xz"), header=False)
    with pytest.raises(TableError, match=r"'vhigh' twice.*--no-header"):
        read_table(real("exact-uci", "car", "car.data"))


@pytest.mark.slow
def test_every_prepared_table():
    found, _ = find_tables(real("uci121"))
    for entry in found:
        table = entry.read()
        assert len(given_splits(table)) == 4
        assert len(table.target.classes) >= 2


PREPARED = [
    (read_uci121, "uci121/car", 1728, 6, 4),
    (read_uci121, "uci121/horse-colic", 368, 25, 4),
    (read_split5x2, "leerr-uci/pima", 768, 8, 10),
    (read_split5x2, "leerr-uci/magic", 19020, 10, 10),
]


@pytest.mark.parametrize(("read", "name", "rows", "features", "splits"), PREPARED)
def test_prepared_tables(read, name, rows, features, splits):
    table = read(real(*name.split("/")))
    assert (table.rows, len(table.columns)) == (rows, features)
    assert len(given_splits(table)) == splits
