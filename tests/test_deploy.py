"""The winner on disk: saved, read elsewhere, refused when damaged."""

import csv
import io
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from expacc.cli import main
from expacc.compare.deploy import Deployed, train_by_choice, train_loss, winner_of
from expacc.compare.record import StudyRecord
from expacc.data import read_table
from expacc.estimator import voting

COLOURS = ("red", "green", "blue")


def write_rows(path, rows, *, header=True):
    lines = [",".join(map(str, row)) for row in rows]
    names = ["size,colour,weight,kind"] if header else []
    path.write_text("\n".join([*names, *lines]) + "\n")
    return path


def some_rows(count=90):
    generator = np.random.default_rng(0)
    rows = []
    for place in range(count):
        colour, size = COLOURS[place % 3], generator.normal()
        kind = "apple" if size + (colour == "red") > 0.5 else "pear"
        rows.append([round(size, 4), colour, round(generator.normal(), 4), kind])
    return rows


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deploy")
    table = read_table(write_rows(folder / "fruit.csv", some_rows()))
    deployed = train_loss(table, "exact", trials=3)
    deployed.save(folder / "model")
    return folder, table, deployed


def elsewhere(folder, *arguments):
    """Predict in another process, in another folder."""
    line = [sys.executable, "-m", "expacc", "predict", str(folder), *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True)


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_it_predicts_the_same_after_loading_and_some_rows_at_a_time(saved, monkeypatch):
    folder, table, deployed = saved
    again = Deployed.load(folder / "model")
    labels, chances = deployed.predict(table)
    more, same = again.predict(again.read(folder / "fruit.csv"))
    assert more == labels
    np.testing.assert_array_equal(same, chances)
    assert accuracy(labels, table) > 0.9
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    places = [again.classes.index(label) for label in labels]
    np.testing.assert_array_equal(chances.argmax(axis=1), places)
    monkeypatch.setattr("expacc.compare.deploy.BLOCK", 1)
    more, same = deployed.predict(table)
    assert more == labels
    np.testing.assert_allclose(same, chances, rtol=1e-12)


def accuracy(labels, table):
    return np.mean([a == b for a, b in zip(labels, table.target.texts(), strict=True)])


def test_the_folder_says_where_it_came_from(saved):
    folder, table, _ = saved
    facts = json.loads((folder / "model/table.json").read_text())
    assert facts["facts"]["sha256"] == table.sha256
    assert facts["classes"] == list(table.target.classes)
    model = json.loads((folder / "model/model.json").read_text())
    assert set(model["versions"]) >= {"expacc", "torch", "python"}
    assert model["chosen"]["loss"] == "exact"


def test_another_machine_and_another_table(saved, tmp_path):
    """Moved folder, new process, columns in another order, one extra, one unseen category."""
    folder, _, deployed = saved
    shutil.copytree(folder / "model", tmp_path / "moved")
    new = tmp_path / "new.csv"
    new.write_text('id,weight,colour,size\n"a,1",0.5,red,2.0\nb,0.5,violet,-2.0\n')
    done = elsewhere(tmp_path / "moved", new)
    assert done.returncode == 0, done.stderr
    first, second = rows_of(done.stdout)
    assert (first["id"], first["size"], first["prediction"]) == ("a,1", "2.0", "apple")
    assert second["prediction"] == "pear"
    assert "violet" in done.stderr
    assert "ignored: id" in done.stderr
    _, chances = deployed.predict(deployed.read(new))
    shown = [float(first[f"probability {name}"]) for name in deployed.classes]
    np.testing.assert_allclose(shown, chances[0], rtol=1e-8)


def test_a_missing_column_is_named(saved, tmp_path, capsys):
    folder, *_ = saved
    (tmp_path / "new.csv").write_text("weight,size\n0.5,2.0\n")
    assert main(["predict", str(folder / "model"), str(tmp_path / "new.csv")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "'colour' are missing, which the model needs" in line


def test_a_file_without_header(tmp_path, capsys):
    table = write_rows(tmp_path / "fruit.data", some_rows(60), header=False)
    out = tmp_path / "model"
    asked = ["--no-header", "--loss", "hinge", "--trials", "2", "--out", str(out), "--quiet"]
    assert main(["fit", str(table), *asked]) == 0
    capsys.readouterr()
    new = tmp_path / "new.data"
    new.write_text("2.0,red,0.1\n-2.0,blue,0.1\n")  # the label is not known yet
    result = tmp_path / "out.csv"
    assert main(["predict", str(out), str(new), "-o", str(result)]) == 0
    found = rows_of(result.read_text())
    assert [row["prediction"] for row in found] == ["apple", "pear"]
    assert [row["column 2"] for row in found] == ["red", "blue"]
    new.write_text("2.0,red\n")
    assert main(["predict", str(out), str(new)]) == 2
    assert "missing" in capsys.readouterr().err


def test_predictions_of_another_model_stay(saved, tmp_path, capsys):
    folder, *_ = saved
    once, twice = tmp_path / "once.csv", tmp_path / "twice.tsv"
    assert main(["predict", str(folder / "model"), str(folder / "fruit.csv"), "-o", str(once)]) == 0
    assert "rows with a label are predicted right" in capsys.readouterr().err
    assert main(["predict", str(folder / "model"), str(once), "-o", str(twice), "-q"]) == 0
    names = twice.read_text().splitlines()[0].split("\t")
    assert names.count("prediction") == 1
    assert "prediction'" in names


@pytest.mark.parametrize(
    ("name", "damage", "sentence"),
    [
        ("model.safetensors", lambda data: data[:-8], "it was changed"),
        ("model.json", lambda data: data.replace(b"exact", b"hinge"), "it was changed"),
        ("model.json", None, "must hold model.json"),
        ("table.json", None, "it has no table.json"),
        ("table.json", lambda data: data[: len(data) // 2], "it is damaged"),
        ("table.json", lambda data: b"[" * 100_000, "it is damaged"),
        ("table.json", lambda data: b"[]", "it is damaged"),
        ("table.json", lambda data: data.replace(b'"version": 1', b'"version": 9', 1), "version 1"),
        ("table.json", lambda data: data.replace(b"apple", b"plum", 1), "they differ"),
        ("table.json", lambda data: data.replace(b'"options": {}', b'"options": {"x": 1}'), "'x'"),
        ("table.json", lambda data: data.replace(b'"numbers"', b'"figures"'), "preprocessor"),
    ],
)
def test_a_damaged_folder_gets_a_sentence(saved, tmp_path, name, damage, sentence):
    folder = tmp_path / "model"
    shutil.copytree(saved[0] / "model", folder)
    if damage is None:
        (folder / name).unlink()
    else:
        data = (folder / name).read_bytes()
        assert damage(data) != data
        (folder / name).write_bytes(damage(data))
    with pytest.raises(ValueError, match=sentence):
        Deployed.load(folder)


def test_without_a_loss_networks_vote(saved, tmp_path, monkeypatch):
    _, table, _ = saved
    monkeypatch.setattr(voting, "CANDIDATES", voting.CANDIDATES[-4:])
    deployed = train_by_choice(table)
    assert deployed.classifier.committee_ is not None
    assert accuracy(deployed.predict(table)[0], table) > 0.9
    again = Deployed.load(deployed.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict(table)[1], deployed.predict(table)[1])


def test_without_a_loss_cross_validation_chooses_one_for_a_model(saved):
    _, table, _ = saved
    deployed = train_by_choice(table, model="linear")
    assert set(deployed.classes) == {"apple", "pear"}
    assert len(deployed.classifier.cv_results_["params"]) > 5
    assert accuracy(deployed.predict(table)[0], table) > 0.9
    with pytest.raises(ValueError, match="DATA must be a table of the study"):
        winner_of(StudyRecord({"losses": ["exact"]}, {}, ()), table)


def test_a_row_that_overflows_gets_no_label(saved, tmp_path, capsys):
    folder, _, _ = saved
    rows = [*some_rows(3), [1e300, "red", -1e300, "pear"]]
    strong = tmp_path / "strong"
    deployed = Deployed.load(folder / "model")
    weight, bias = deployed.classifier.layers_[0]
    deployed.classifier.layers_ = [(weight * 1e12, bias)]
    deployed.save(strong)
    assert main(["predict", str(strong), str(write_rows(tmp_path / "large.csv", rows))]) == 2
    said = capsys.readouterr()
    assert "X must give finite logits" in said.err
    assert "at row 3" in said.err
    assert said.out == ""
