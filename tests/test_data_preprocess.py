"""Preprocessing equals scikit-learn's, learns from training rows only, and is kept as JSON."""

import copy
import json
import math

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from expacc.data import Preprocessor, TableError, read_table


@pytest.fixture
def write(tmp_path):
    def write(text, name="t.csv"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def mixed_table(write, rows=200, seed=0):
    random = np.random.default_rng(seed)
    lines = ["size,job,price,city,y"]
    for _ in range(rows):
        size = "" if random.random() < 0.1 else f"{random.normal(5, 3):.3f}"
        price = "NA" if random.random() < 0.2 else f"{random.lognormal(8, 2):.2f}"
        job = random.choice(["cook", "smith", "?", "10", "9"])
        city = random.choice(["Rom", "Ulm", "Bonn"])
        lines.append(f"{size},{job},{price},{city},{random.choice(['p', 'q'])}")
    return read_table(write("\n".join(lines) + "\n"))


def by_scikit_learn(table, rows):
    """The same by pandas-free scikit-learn on texts, missing categories as a level of their own."""
    numbers = [column for column in table.columns if column.kind == "number"]
    texts = [column for column in table.columns if column.kind == "category"]
    whole = np.empty((table.rows, len(numbers) + len(texts)), dtype=object)
    for place, column in enumerate(numbers):
        whole[:, place] = column.values
    for place, column in enumerate(texts, start=len(numbers)):
        whole[:, place] = ["\0" if c < 0 else column.levels[c] for c in column.values.tolist()]
    count = len(numbers)
    transformer = ColumnTransformer(
        [
            ("n", make_pipeline(SimpleImputer(), StandardScaler()), list(range(count))),
            ("c", OneHotEncoder(handle_unknown="ignore"), list(range(count, whole.shape[1]))),
        ],
        sparse_threshold=0,
    )
    return transformer.fit(whole[rows]).transform(whole).astype(float)


@pytest.mark.parametrize("seed", range(5))
def test_equals_a_column_transformer(write, seed):
    table = mixed_table(write, seed=seed)
    rows = np.random.default_rng(seed).permutation(table.rows)[:80]
    fitted = Preprocessor.fit(table, rows)
    ours, theirs = fitted.transform(table, dtype=np.float64), by_scikit_learn(table, rows)
    assert ours.shape == theirs.shape == (table.rows, fitted.width)
    # Levels stand in natural order here and in text order there.
    order = [0, 1] + [
        2 + place
        for step, start in zip(
            fitted.categories, (0, len(fitted.categories[0].levels)), strict=True
        )
        for place in (start + np.argsort([level or "\0" for level in step.levels])).tolist()
    ]
    np.testing.assert_allclose(ours[:, order], theirs, rtol=0, atol=1e-12)


def test_only_training_rows_are_learnt_from(write):
    table = mixed_table(write)
    rows = np.arange(50)
    changed = copy.copy(table)
    columns = []
    for column in table.columns:
        values = column.values.copy()
        values[50:] = 0 if column.kind == "category" else 1e6
        columns.append(type(column)(column.name, column.kind, values, column.levels))
    object.__setattr__(changed, "columns", tuple(columns))
    assert Preprocessor.fit(table, rows) == Preprocessor.fit(changed, rows)
    assert Preprocessor.fit(table, rows) != Preprocessor.fit(table, np.arange(60))


def test_training_rows_come_out_standardised(write):
    table = mixed_table(write)
    rows = np.arange(0, 200, 2)
    out = Preprocessor.fit(table, rows).transform(table, rows)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out[:, :2].mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(out[:, :2].std(axis=0), 1, atol=1e-6)
    assert set(np.unique(out[:, 2:])) == {0, 1}
    assert (out[:, 2:].sum(axis=1) == 2).all()  # one level of each of two categories


def test_hand_worked(write):
    table = read_table(write("a,b,y\n1,u,p\n3,?,q\n?,w,p\n"))
    fitted = Preprocessor.fit(table, np.array([0, 1]))
    assert fitted.feature_names == ("a", "b=(missing)", "b=u")
    assert fitted.transform(table).tolist() == [[-1, 0, 1], [1, 1, 0], [0, 0, 0]]
    assert fitted.notes_on(table) == (
        "b: 1 row(s) have a value that no training row had, such as 'w' on line 4; they count as "
        "none of the known ones.",
    )
    assert fitted.notes_on(table, np.array([0, 1])) == ()


def test_columns_that_do_not_vary_in_training_rows_are_left_out(write):
    table = read_table(write("a,b,c,d,y\n?,1,u,1,p\n?,1,u,2,q\n7,2,w,3,p\n8,2,w,3,p\n"))
    fitted = Preprocessor.fit(table, np.array([0, 1]))
    assert [entry.name for entry in fitted.dropped] == ["a", "b", "c"]
    assert fitted.dropped[0].why == "missing in every training row"
    assert fitted.transform(table).tolist() == [[-1], [1], [3], [3]]
    with pytest.raises(TableError, match="no feature varies"):
        Preprocessor.fit(table, np.array([0]))
    with pytest.raises(ValueError, match="at least one training row"):
        Preprocessor.fit(table, np.array([], np.int64))


def test_numbers_too_large_are_a_sentence(write):
    table = read_table(write("a,b,y\n1e308,1,p\n-1e308,2,q\n1,3,q\n"))
    with pytest.raises(TableError, match="numbers in 'a' are too large"):
        Preprocessor.fit(table)
    train = read_table(write("a,b,y\n1,1,p\n2,2,q\n"))
    new = read_table(write("a,b\n1,1\n1e300,1\n", "new.csv"), like=train.schema)
    with pytest.raises(TableError, match=r"new, line 3: 1e\+300 in 'a' is too far"):
        Preprocessor.fit(train).transform(new)


def test_a_new_table_is_read_alike(write):
    train = read_table(write("doors,age,y\n2,1,p\n5more,2,q\n4,3,p\n"))
    fitted = Preprocessor.fit(train)
    text = "age,doors\n2,4\nNA,3\n"
    new = read_table(write(text, "new.csv"), like=fitted.schema)
    assert fitted.transform(new).tolist() == [[0, 0, 1, 0], [0, 0, 0, 0]]
    guessed = read_table(write("age,doors,y\n2,4,p\n1,3,q\n", "new.csv"))
    with pytest.raises(TableError, match=r"'doors' must be read as a category.*like="):
        fitted.transform(guessed)
    without = read_table(write("age,other,y\n2,4,p\n1,3,q\n", "new.csv"))
    with pytest.raises(TableError, match="'doors' is missing"):
        fitted.transform(without)


def test_json_there_and_back(write):
    table = mixed_table(write)
    fitted = Preprocessor.fit(table)
    text = json.dumps(fitted.to_json(), allow_nan=False)
    again = Preprocessor.from_json(json.loads(text))
    assert again == fitted
    assert np.array_equal(again.transform(table), fitted.transform(table))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("format",), "pickle"),
        (("version",), 2),
        (("version",), True),
        (("numbers", 0, 3), 0),
        (("numbers", 0, 3), -1),
        (("numbers", 0, 1), math.nan),
        (("numbers", 0, 2), "1"),
        (("numbers", 0, 2), True),
        (("numbers", 0), ["size"]),
        (("numbers", 0, 0), "other"),
        (("numbers",), {}),
        (("categories", 0, 1), []),
        (("categories", 0, 1), ["a", "a"]),
        (("categories", 0, 1), ["a", 1]),
        (("categories", 0), None),
        (("columns", 0, 1), "text"),
        (("columns",), []),
        (("target",), None),
        (("width",), -1),
        (("dropped",), [["a"]]),
    ],
)
def test_a_changed_record_is_refused(write, path, value):
    record = json.loads(json.dumps(Preprocessor.fit(mixed_table(write, rows=40)).to_json()))
    place = record
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(ValueError, match="saved preprocessor must be as it was written"):
        Preprocessor.from_json(record)


def test_a_record_with_other_fields_is_refused(write):
    record = Preprocessor.fit(mixed_table(write, rows=40)).to_json()
    with pytest.raises(ValueError, match="it as well: 'extra'"):
        Preprocessor.from_json({**record, "extra": 1})
    with pytest.raises(ValueError, match="must be an object"):
        Preprocessor.from_json([])
