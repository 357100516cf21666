"""What cells mean: labels as text, kinds by every value, and a line for all that is left out."""

import hashlib
import os
import re
from unittest.mock import Mock

import pytest
from hostile.files import parquet, workbook

from expacc.data import ReadOptions, TableError, find_tables, read_table
from expacc.data.cells import Cells, is_number, to_numbers


@pytest.fixture
def write(tmp_path):
    def write(content, name="cars.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def column(table, name):
    return next(column for column in table.columns if column.name == name)


def has_note(table, *parts):
    return any(all(part in note for part in parts) for note in table.notes)


SIXTY = "a,y\n" + "".join(f"{i}.5,{'pq'[i % 2]}\n" for i in range(60))
MANY = "a,b,y\n" + "".join(f"{i % 60}.5,{i % 4},{'pq'[i % 2]}\n" for i in range(200))
DATED = "a,b,y\n2020-01-01,True,p\n2020-01-02,False,q\n"
LEVELS = "a,x,y\n" + "".join(f"v{i % 60},{i % 9},{'pq'[i % 2]}\n" for i in range(300))
LONG = "0" * 5000 + "1"


def counted(form, count, names="a,x,y"):
    """Rows of a form, by their number, with p and q in turn for labels."""
    rows = (f"{form(i)},{i % 3},{'pq'[i % 2]}\n" for i in range(count))
    return f"{names}\n" + "".join(rows)


# A table, options, and parts of a line that is said of it.
NOTED = [
    ("x,y\n1,01\n2,1\n3,1.0\n4,1\n", {}, "'01', '1', '1.0'", "kept apart"),
    ('x,y\n1,Yes\n2,yes\n3," yes"\n4,yes.\n', {}, "differ in writing only"),
    ("x,y\n1,a\n2,\n3,?\n4,b\n", {}, "2 row(s) without a label left out"),
    ("x,y\n" + "".join(f"{i % 3},{i}.5\n" for i in range(30)), {"target": "y"},
     "30 classes in 30 rows"),
    (MANY + "1e400,1,p\n", {}, "a: category, for 1 of 61 values", "line 202",
     "1e400' is beyond float64"),
    ("a,b,c,y\n1,x,NA,p\nNA,NA,NA,q\n2,y,?,p\n3,x,NA,q\n", {}, "a: 1 × 'NA' read as missing"),
    ("a;y\n1,5;p\n2,25;q\n3;p\n", {}, "decimal ','", "--decimal ,"),
    ("a,c,e,y\n1,,x,p\n1,?,z,q\n", {},
     "Left out 'a': every value is the same; 'c': every value is missing."),
    ("a,c,e,f,y\n1,,x,2,p\n1,?,z,2,q\n", {},
     "Left out 'a', 'f': every value is the same; 'c': every value is missing."),
    (counted(lambda i: 2**53 + i, 9), {}, "a: integers beyond 2**53 are rounded"),
    (f"a,y\n{LONG},p\n9007199254740993,q\n", {}, "2**53"),
    ("a,y\n1e-400,p\n0,q\n2,q\n", {}, "too small for float64"),
    ("5.1,3.5,setosa\n4.9,3.0,virginica\n5.0,3.1,setosa\n", {"target": "setosa"},
     "line 1 was taken as names", "'5.1' is a number", "--no-header"),
    ("low,big,acc\nlow,big,acc\nmed,small,no\n", {"target": -1}, "'low' is also a value"),
    (DATED, {}, "a: dates, which become year, month, day of week, days since 1970"),
    (LEVELS, {"max_levels": 59}, "Warning: most of the table's text is not used.",
     "Left out 'a': 60 levels, more than --max-levels 59."),
]  # fmt: skip
SILENT = [
    (SIXTY + "inf,p\n", {"categorical": ["a"]}, "inf"),
    (counted(lambda i: 2**60 + 1024 * i, 9), {}, "2**53"),
    ("a,b,y\n1,2,p\n3,4,q\n", {}, "taken as names"),
    ("0,1,2,class\n5,6,7,p\n8,9,1,q\n", {}, "taken as names"),
]
KINDS = "a,b,y\n1,1,p\n2,x,q\n1,3,p\n"
ABC = "a,b,c\n1,2,3\n4,5,6\n"
REFUSED = [
    (
        "1,2.5,7.1\n2,2.1,7.4\n1,3.3,7\n",
        {},
        "line 1: the first line looks like data .'1' is a number",
    ),
    (
        "low,big,acc\nlow,big,acc\nmed,small,no\n",
        {},
        "line 1: .*'low' is also a value.*--no-header",
    ),
    *(
        ("x,y\n1,a\n2,a\n", options, sentence)
        for options, sentence in (
            ({"target": "y"}, "two classes or more; it has the one class 'a'"),
            ({}, "which column is the target[?] 'y', the last column, has one value only"),
        )
    ),
    *(
        ("x,y\n1,?\n2,\n", options, sentence)
        for options, sentence in (
            ({"target": "y"}, "no label at all"),
            ({}, "which column is the target[?] 'y', the last column, is empty"),
        )
    ),
    (
        LEVELS.replace(",x,", ",id,"),
        {"max_levels": 59, "drop": ["id"]},
        "no feature is left .* 'a': 60 levels, more than --max-levels 59; 'id': as asked",
    ),
    *((ABC, {"target": place}, "a place from 1 to 3") for place in (0, 4, -4, "0")),
    (ABC, {"target": "label"}, r"cars.csv: target 'label' is not a column; it has: a, b, c\."),
    (KINDS, {"numeric": ["b"]}, r"line 3: 'x' is not a number, but 'b' is a column of"),
    (KINDS, {"numeric": ["a"], "categorical": [1]}, "both numeric and categorical"),
    (SIXTY + "inf,p\n", {}, "no feature is left"),
    (parquet(a=[1.5, float("inf")], y=["p", "q"]), {}, "line 2: inf is not a number"),
    ("x,y\n1,a\n2," + "b" * 1001 + "\n3,a\n", {}, "line 3: a label of 'y' has 1,001 characters"),
]


@pytest.mark.parametrize(("text", "options", "parts"), [(t, o, p) for t, o, *p in NOTED])
def test_what_is_odd_is_said(write, text, options, parts):
    table = read_table(write(text), **options)
    assert has_note(table, *parts), table.notes


@pytest.mark.parametrize(("text", "options", "part"), SILENT)
def test_what_is_usual_is_not(write, text, options, part):
    assert not has_note(read_table(write(text), **options), part)


@pytest.mark.parametrize(("text", "options", "sentence"), REFUSED)
def test_what_cannot_be_a_table_is_refused_with_its_place(write, text, options, sentence):
    with pytest.raises(TableError, match=sentence) as caught:
        read_table(write(text, "cars.parquet" if text[:4] == b"PAR1" else "cars.csv"), **options)
    places = re.findall(r"line (\d)", sentence)
    assert caught.value.line == (int(places[0]) if places else None)


# Labels


# A file, options, and the cells that come out: numbers or texts by column, None where missing; what
# is left out has no cells.
INF = float("inf")
PQP = ["p", "q", "p"]
HEAD = "@attribute a {0,1}\n@attribute b numeric\n@attribute y {p,q}\n@data\n"
READ = [
    ("x,y\n1,01\n2,1\n3,1.0\n4,1\n", {}, {"x": [1, 2, 3, 4], "y": ["01", "1", "1.0", "1"]}),
    ('x,y\n1,Yes\n2,yes\n3," yes"\n4,yes.\n', {}, {"y": ["Yes", "yes", " yes", "yes."]}),
    ("x,y\n1,a\n2,\n3,?\n4,b\n", {}, {"x": [1, 4], "y": ["a", "b"]}),
    # a column is a number if every value is
    ("a,b,y\n1,1,p\n?,2,q\n2.5,5more,p\n", {}, {"a": [1, None, 2.5], "b": ["1", "2", "5more"]}),
    # NA is missing beside numbers, and a level elsewhere
    ("a,b,c,y\n1,x,NA,p\nNA,NA,NA,q\n2,y,?,p\n3,x,NA,q\n", {},
     {"a": [1, None, 2, 3], "b": ["x", "NA", "y", "x"], "c": ["NA", "NA", None, "NA"]}),
    # words for what is missing, kinds and the decimal sign can be named
    ("a,b,y\n1,x,p\n-999,NA,q\n2,?,p\n", {"missing": ["-999"]},
     {"a": [1, None, 2], "b": ["x", "NA", "?"]}),
    (workbook(["a", "b", "y"], [1, 5, "p"], [-999, 6, "q"], [2, 7, "p"]), {"missing": ["-999"]},
     {"a": [1, None, 2], "b": [5, 6, 7], "y": PQP}),
    (KINDS, {"categorical": ["a"]}, {"a": ["1", "2", "1"], "b": ["1", "x", "3"]}),
    (KINDS, {"numeric": ["b"], "missing": ["x"]}, {"b": [1, None, 3]}),
    ("a;y\n1,5;p\n2,25;q\n3;p\n", {"decimal": ","}, {"a": [1.5, 2.25, 3]}),
    # dates are days since 1970, but not where they are asked for as written
    (DATED, {}, {"a": [18262, 18263], "b": ["True", "False"]}),
    (DATED, {"categorical": ["a"]}, {"a": ["2020-01-01", "2020-01-02"], "b": ["True", "False"]}),
    # constant and missing columns are left out; one level and missing are two levels
    ("a,b,c,d,e,y\n1,x,,5,x,p\n1,x,?,,,q\n1,x,,5,x,p\n", {},
     {"a": None, "b": None, "c": None, "d": None, "e": ["x", None, "x"]}),
    # what a file declares of its columns is kept
    (HEAD + "0,1,p\n1,?,q\n0,3,p\n", {}, {"a": ["0", "1", "0"], "b": [1, None, 3]}),
    (parquet(a=["1", "2"], b=[1, 2], y=["p", "q"]), {}, {"a": ["1", "2"], "b": [1, 2]}),
    (parquet(a=[1.5, float("nan"), 2.5], y=PQP), {}, {"a": [1.5, None, 2.5]}),
    (parquet(a=[1.5, INF, 2.5], y=PQP), {"missing": ["inf"]}, {"a": [1.5, None, 2.5]}),
    # labels of any type are text
    *((parquet(x=[1.5, 2.5, 3.5], y=labels), {}, {"y": [str(label) for label in labels]})
      for labels in ([1, 2, 1], [1.0, 2.0, 1.0], [True, False, True], ["01", "1", "NA"])),
    (workbook(["x", "y"], [1.5, 1], [2.5, "1.0"], [3.5, True]), {}, {"y": ["1", "1.0", "True"]}),
]  # fmt: skip


def cells(table, name):
    if name == table.target.name:
        return table.target.texts()
    for column in table.columns:
        if column.name == name:
            known = column.levels if column.kind == "category" else None
            pairs = zip(column.values.tolist(), column.missing.tolist(), strict=True)
            return [None if gone else known[cell] if known else cell for cell, gone in pairs]
    return None


@pytest.mark.parametrize(("content", "options", "expected"), READ)
def test_what_cells_mean(write, content, options, expected):
    kinds = {b"PAR1": "t.parquet", b"PK\x03\x04": "t.xlsx", "@att": "t.arff"}
    table = read_table(write(content, kinds.get(content[:4], "t.csv")), **options)
    assert {name: cells(table, name) for name in expected} == expected
    assert {entry.name for entry in table.dropped} == {n for n, c in expected.items() if c is None}


@pytest.mark.parametrize("word", ["NA", "None", "null", "nan", "NaN", "N/A", "NULL"])
def test_words_for_nothing_are_labels(write, word):
    table = read_table(write(f"x,y\n1,{word}\n2,b\n3,{word}\n"))
    assert table.target.texts() == [word, "b", word]
    assert has_note(table, f"'{word}' is kept as a class", "--label-missing")
    table = read_table(write(f"x,y\n1,{word}\n2,b\n3,c\n4,b\n"), label_missing=["", "?", word])
    assert table.target.texts() == ["b", "c", "b"]
    assert column(table, "x").values.tolist() == [2, 3, 4]
    assert table.lines.tolist() == [3, 4, 5]
    assert has_note(table, "1 row(s) without a label left out")


def test_classes_and_levels_are_in_natural_order(write):
    table = read_table(write("x,z,y\n10,b,10\n9,10,9\n2,9,2\n"), categorical=["x"])
    assert table.target.classes == column(table, "x").levels == ("2", "9", "10")
    assert column(table, "z").levels == ("10", "9", "b")


def test_renamed_labels_can_be_those_of_another_table(write):
    labels = read_table(write("x,y\n1,no.\n2,yes.\n3,no.\n")).target
    codes = labels.renamed({"no.": "no", "yes.": "yes"}).as_codes_of(("yes", "no"), "t")
    assert codes.tolist() == [1, 0, 1]
    with pytest.raises(TableError, match=r"'no\.' is not among 'yes', 'no'"):
        labels.as_codes_of(("yes", "no"), "t")
    with pytest.raises(ValueError, match="got 'maybe'"):
        labels.renamed({"maybe": "no"})


# The target


@pytest.mark.parametrize(
    ("target", "name"),
    [(None, "c"), ("a", "a"), (1, "a"), (2, "b"), (-1, "c"), (-3, "a"), ("-2", "b"), ("3", "c")],
)
def test_target_by_name_or_place_from_one(write, target, name):
    table = read_table(write(ABC), target=target)
    assert table.target.name == name
    assert has_note(table, "The target is 'c', the last column") == (target is None)
    named = read_table(write("2,1\nx,3\ny,4\n"), target="2")  # a name goes before a place
    assert named.target.classes == ("x", "y")


# Numbers and categories


@pytest.mark.parametrize(
    "text", ["0", "-1", "+5", "1.", ".5", "1e5", "1E-05", "007", "1.50", "-0.0", "123456789012"]
)
def test_numbers(text):
    assert is_number(text)
    assert to_numbers(Cells.of([text, "1"]), ()).tolist() == [float(text), 1]


@pytest.mark.parametrize(
    "text",
    ["1_000", "0x10", "inf", "-Infinity", "nan", "1e400", "١٢", "１", "1,5", "1 000", "½", "", ".",
     "-", "e5", "1e", "1\n2", "5%", "$5", "2020-01-01", "12:30", "True", " 1", "1 ", "−1", "1e5.5"],
)  # fmt: skip
def test_not_numbers(text):
    assert not is_number(text)
    assert to_numbers(Cells.of([text, "1"]), ()) is None


def test_ids_are_left_out_and_what_may_be_one_is_doubted(write):
    rows = "".join(
        f"u{i:03},{1000 - 7 * i},{7919**3 * (i + 1) % 10**9},{i % 5},{'pq'[i % 2]}\n"
        for i in range(120)
    )
    path = write("user,ticket,number,x,y\n" + rows)
    table = read_table(path)
    assert [c.name for c in table.columns] == ["number", "x"]
    assert has_note(
        table,
        "Left out 'user': id-like text, 120 different values in 120 rows",
        "'ticket': id-like, 120 integers, all different; --numeric keeps it",
    )
    assert has_note(table, "number: id-like, 120 integers, all different; if", "--drop")
    kept = read_table(path, categorical=["user"], numeric=["ticket"], drop=["number"])
    assert [c.name for c in kept.columns] == ["user", "ticket", "x"]
    assert has_note(kept, "Left out 'number': as asked.")


# The header


def test_no_header_names_columns_by_place(write):
    table = read_table(write("vhigh,2,unacc\nlow,4,acc\n", "car.data"), header=False)
    assert [c.name for c in table.columns] == ["column 1", "column 2"]
    assert table.target.name == "column 3"
    assert table.name == "car"


# Another table for a model


def test_like_finds_columns_by_name_and_keeps_kinds(write):
    train = read_table(write("doors,age,y\n2,1,p\n5more,2,q\n4,3,p\n"))
    new = read_table(write("extra,age,doors\nz,NA,2\nw,7,4\n", "new.csv"), like=train.schema)
    assert [(c.name, c.kind) for c in new.columns] == [("doors", "category"), ("age", "number")]
    assert column(new, "doors").levels == ("2", "4")
    assert new.labels is None
    assert has_note(new, "1 column(s) the model does not know are ignored: extra")
    with pytest.raises(TableError, match="must have a target"):
        new.target  # noqa: B018
    labelled = read_table(write("doors,age,y\n2,1,q\n4,1,\n", "new.csv"), like=train.schema)
    assert labelled.rows == 2
    assert labelled.target.texts() == ["q", None]


@pytest.mark.parametrize(
    ("train", "new", "options", "sentence"),
    [
        ("a,b,y\n1,x,p\n2,z,q\n", "b,y\nx,p\n", {}, r"line 1: the column\(s\) 'a' are missing"),
        ("a,b,y\n1,x,p\n2,z,q\n", "a,b\n1,x\ntwo,x\n", {}, "line 3: 'two' is not a number"),
        ("a,b,y\n1,x,p\n2,z,q\n", "1,x\n1,x\n", {}, "--no-header"),
        # column 4 is constant, and asked for all the same
        ("p,1,5,7\nq,2,6,7\n", "1,5,7\n2,6,7\n", {"header": False, "target": 1},
         "3 columns where the training table had 4"),
    ],
)  # fmt: skip
def test_like_says_what_is_missing_or_no_number(write, train, new, options, sentence):
    schema = read_table(write(train), **options).schema
    options = {name: value for name, value in options.items() if name != "target"}
    with pytest.raises(TableError, match=rf"new.csv.*{sentence}"):
        read_table(write(new, "new.csv"), like=schema, **options)


def test_without_header_the_target_may_be_missing(write):
    last = read_table(write("1,5,p\n2,6,q\n"), header=False)
    new = read_table(write("1,5\n2,6\n", "new.csv"), header=False, like=last.schema)
    assert new.rows == 2


# Files and folders


def test_what_is_no_file(tmp_path, write, monkeypatch):
    os.mkfifo(tmp_path / "pipe.csv")
    for path, sentence in (
        (tmp_path / "none.csv", "no such file in"),
        (tmp_path, "it is a folder"),
        (tmp_path / "pipe.csv", "must be a file"),
    ):
        with pytest.raises(TableError, match=sentence):
            read_table(path)
    path = write("a,y\n1,p\n")
    monkeypatch.setattr(type(path), "read_bytes", Mock(side_effect=PermissionError(13, "denied")))
    with pytest.raises(TableError, match="may not be read by this user"):
        read_table(path)


def test_a_missing_package_is_named_with_its_extra(write, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    with pytest.raises(ImportError, match=r"needs zstandard.*pip install 'expacc\[tables\]'"):
        read_table(write(b"\x28\xb5\x2f\xfd", "x.csv.zst"))


@pytest.mark.parametrize(
    ("name", "rows", "classes"),
    [("iris", 150, 3), ("wine", 178, 3), ("breast-cancer", 569, 2), ("digits", 1797, 10)],
)
def test_built_in_tables(name, rows, classes):
    table = read_table(name)
    assert (table.rows, len(table.target.classes)) == (rows, classes)
    assert table.name == name
    assert table.sha256 == read_table(name).sha256


def test_a_file_goes_before_a_built_in_name(write, tmp_path, monkeypatch):
    write("a,y\n1,p\n2,q\n", "iris")
    monkeypatch.chdir(tmp_path)
    table = read_table("iris")
    assert table.rows == 2
    assert has_note(table, "iris is the file here")


def test_description_names_all(write):
    path = write("a,b,y\n1,x,p\n?,z,q\n2,x,p\n")
    table = read_table(path)
    assert table.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert table.describe()[:4] == (
        "cars: 3 rows, 2 feature(s)",
        "target 'y': 'p' 2, 'q' 1",
        "a: number from 1 to 2, 1 missing",
        "b: category, 2 level(s) ('x', 'z')",
    )


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"header": None}, TypeError, "header must be True or False"),
        ({"target": 1.5}, TypeError, "target must be"),
        ({"delimiter": "ab"}, ValueError, "delimiter must be"),
        ({"quote": "ab"}, ValueError, "quote must be"),
        ({"quote": ",", "delimiter": ","}, ValueError, "quote must be"),
        ({"decimal": "'"}, ValueError, "decimal must be"),
        ({"missing": "NA"}, TypeError, "missing must be a sequence"),
        ({"missing": [1]}, TypeError, "missing must hold strings"),
        ({"numeric": [True]}, TypeError, "numeric must hold"),
        ({"max_bytes": 0}, ValueError, "max_bytes must be >= 1"),
        ({"max_cells": 0}, ValueError, "max_cells must be >= 1"),
        ({"max_cells": 1.5}, TypeError, "max_cells must be an int"),
        ({"max_columns": 1.5}, TypeError, "max_columns must be an int"),
        ({"skip_lines": -1}, ValueError, "skip_lines must be >= 0"),
    ],
)  # fmt: skip
def test_bad_options(options, error, words):
    with pytest.raises(error, match=words):
        ReadOptions(**options)


@pytest.mark.parametrize("encoding", ["klingon", "rot13"])
def test_an_unknown_encoding(write, encoding):
    with pytest.raises(ValueError, match="encoding must be one that Python knows"):
        read_table(write("a,y\n1,p\n"), encoding=encoding)


def test_folders_hold_tables(write, tmp_path):
    write("a,y\n1,p\n2,q\n", "b.csv")
    write("a\ty\n1\tp\n2\tq\n", "a.tsv")
    write("x", "README.md")
    found, notes = find_tables(tmp_path)
    assert [table.name for table in found] == ["a", "b"]
    assert [table.read().rows for table in found] == [2, 2]
    assert notes == ("Not tables, ignored: README.md.",)
    write("a,y\n1,p\n2,q\n", "b.data")
    assert [table.name for table in find_tables(tmp_path)[0]] == ["a", "b.csv", "b.data"]
    assert [table.name for table in find_tables("iris")[0]] == ["iris"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(TableError, match="holds no table"):
        find_tables(tmp_path / "empty")


# Limits


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.csv", b"a,b\n" + b"1,x\n2,y\n" * 20),
        ("x.csv", b"a,b\n" + b'1,"x" \n2,"y"\n' * 20),
        ("x.arff", b"@attribute a real\n@attribute b string\n@data\n" + b"1,x\n2,y\n" * 20),
        ("x.parquet", lambda: parquet(a=[1, 2] * 20, b=["x", "y"] * 20)),
        ("x.xlsx", lambda: workbook(["a", "b"], *[[1, "x"], [2, "y"]] * 20)),
    ],
)
def test_cells_are_counted_in_every_format(write, name, content):
    path = write(content() if callable(content) else content, name)
    for most in (10, 30, 79):
        with pytest.raises(TableError, match=r"more than .*--max-cells"):
            read_table(path, max_cells=most)
    assert read_table(path, max_cells=640).rows == 40
    assert read_table(path).rows == 40


def test_notes_on_classes_come_to_an_end(write):
    path = write(
        "x,y\n" + "".join(f"{i % 5},{i}.{'0' * n}\n" for i in range(30) for n in range(30))
    )
    table = read_table(path, target="y", categorical=["y"])
    (note,) = [note for note in table.notes if "differ in writing" in note]
    assert note.count("'") == 20
    assert note.endswith("(and 29 more such groups).")


def test_far_too_many_values_make_no_category(write, monkeypatch):
    monkeypatch.setattr("expacc.data.columns.MOST_LEVELS", 60)
    rows = "".join(f"u{i},{i % 5},{'pq'[i % 2]}\n" for i in range(120))
    path = write("user,x,y\n" + rows)
    assert has_note(read_table(path), "Left out 'user': id-like text, more than")
    for options in ({"categorical": ["user"]}, {"target": "user"}):
        with pytest.raises(TableError, match="'user' has more than 60 different values"):
            read_table(path, **options)
