"""Model folders that were damaged or made by someone else: the same predictions or one sentence."""

import hashlib
import json
import shutil

import numpy as np
import pytest
from crafted import NASTY, flipped, mutated, one_sentence, seeded
from dying import model, table

from expacc.cli import main
from expacc.compare.deploy import Deployed
from expacc.estimator import AccuracyClassifier
from expacc.files import seal

FILES = ("model.safetensors", "model.json", "table.json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("crafted") / "model"
    model(folder)
    return folder


@pytest.fixture(scope="module")
def new(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "new.csv"
    path.write_text("x\n1\n7\n")
    return path


def told(folder):
    try:
        labels, chances = Deployed.load(folder).predict(table())
        return labels, chances.tolist()
    except (ValueError, OSError) as error:
        return one_sentence(error, 600)


def alone(folder):
    """What the classifier says without the table it was made from."""
    try:
        return AccuracyClassifier.load(folder).predict_proba(np.arange(3.0)[:, None]).tolist()
    except ValueError as error:
        return str(error)


def reseal(folder, name, content):
    """As someone would who knows how the files vouch for each other."""
    (folder / name).write_text(json.dumps(content))
    if name == "model.json" and isinstance(content, dict):
        (folder / name).write_text(json.dumps(seal(content)))
    facts = json.loads((folder / "table.json").read_text())
    if isinstance(facts, dict) and isinstance(facts.get("sha256"), dict):
        for part in FILES[:2]:
            if name != "table.json":
                facts["sha256"][part] = hashlib.sha256((folder / part).read_bytes()).hexdigest()
        (folder / "table.json").write_text(json.dumps(seal(facts)))


@pytest.mark.parametrize(
    ("says", "name"),
    [(told, name) for name in FILES] + [(alone, name) for name in FILES[:2]],
)
def test_no_flipped_bit_changes_a_prediction(folder, tmp_path, says, name):
    truth = says(folder)
    assert not isinstance(truth, str), truth
    copy = shutil.copytree(folder, tmp_path / "model")
    generator, kept = seeded(name), 0
    for _ in range(150):
        (copy / name).write_bytes(flipped((folder / name).read_bytes(), generator))
        found = says(copy)
        assert found == truth or isinstance(found, str)
        kept += found == truth
    assert kept < 75


def predict_with(folder, copy, name, content, new):
    """The exit status of a prediction by a copy of the model with other content."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    reseal(copy, name, content)
    return main(["predict", str(copy), str(new), "--quiet"])


@pytest.mark.parametrize("name", ["model.json", "table.json"])
def test_no_json_is_a_bug(folder, new, tmp_path, capsys, name):
    generator = seeded(f"{name} by hand")
    whole = json.loads((folder / name).read_text())
    for _ in range(150):
        code = predict_with(folder, tmp_path / "model", name, mutated(whole, generator), new)
        captured = capsys.readouterr()
        assert code in (0, 2), captured.err
        assert len(captured.err.splitlines()) == (code == 2), captured.err


@pytest.mark.parametrize("place", ["fill", "mean", "scale"])
def test_no_number_of_the_preprocessor_is_a_bug(folder, new, tmp_path, capsys, place):
    content = json.loads((folder / "table.json").read_text())
    for value in (*NASTY, 10**400, 5e-324):
        content["preprocessor"]["numbers"][0][1 + ["fill", "mean", "scale"].index(place)] = value
        assert predict_with(folder, tmp_path / "model", "table.json", content, new) in (0, 2)
    capsys.readouterr()


def test_a_folder_of_before_still_loads(folder, tmp_path):
    """Without the seals, as earlier versions wrote it."""
    copy = shutil.copytree(folder, tmp_path / "model")
    facts = json.loads((copy / "model.json").read_text())
    for name in ("seal", "weights_sha256"):
        del facts[name]
    (copy / "model.json").write_text(json.dumps(facts))
    content = json.loads((copy / "table.json").read_text())
    del content["seal"]
    content["sha256"]["model.json"] = hashlib.sha256((copy / "model.json").read_bytes()).hexdigest()
    (copy / "table.json").write_text(json.dumps(content))
    assert told(copy) == told(folder)


def test_weights_of_one_and_facts_of_another_are_refused(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "model")
    model(tmp_path / "other", scale=3.0)
    shutil.copy(tmp_path / "other/model.safetensors", copy / "model.safetensors")
    with pytest.raises(ValueError, match=r"must be the file that model\.json was written with"):
        AccuracyClassifier.load(copy)
