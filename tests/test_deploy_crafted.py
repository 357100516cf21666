"""Model folders that were damaged or made by someone else: the same predictions or one sentence."""

import hashlib
import json
import shutil

import numpy as np
import pytest
from crafted import NASTY, mutated, seeded
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
        sentence = str(error)
    assert "\n" not in sentence
    assert 20 < len(sentence) < 600, sentence
    assert sentence.endswith(".")
    return sentence


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


@pytest.mark.parametrize("name", FILES)
def test_no_flipped_bit_changes_a_prediction(folder, tmp_path, name):
    truth = told(folder)
    assert isinstance(truth, tuple), truth
    copy = shutil.copytree(folder, tmp_path / "model")
    whole, generator, kept = (folder / name).read_bytes(), seeded(name), 0
    for _ in range(150):
        data = bytearray(whole)
        data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        (copy / name).write_bytes(data)
        found = told(copy)
        assert found == truth or isinstance(found, str)
        kept += found == truth
    assert kept < 75


@pytest.mark.parametrize("name", ["model.safetensors", "model.json"])
def test_a_classifier_alone_notices_flipped_bits_too(folder, tmp_path, name):
    def answers(place):
        return AccuracyClassifier.load(place).predict_proba(np.arange(3.0)[:, None]).tolist()

    truth, generator = answers(folder), seeded(name)
    copy = shutil.copytree(folder, tmp_path / "model")
    whole = (folder / name).read_bytes()
    refused = 0
    for _ in range(100):
        data = bytearray(whole)
        data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        (copy / name).write_bytes(data)
        try:
            assert answers(copy) == truth
        except ValueError:
            refused += 1
    assert refused > 50


@pytest.mark.parametrize("name", ["model.json", "table.json"])
def test_no_json_is_a_bug(folder, new, tmp_path, capsys, name):
    generator = seeded(f"{name} by hand")
    whole = json.loads((folder / name).read_text())
    for _ in range(150):
        copy = tmp_path / "model"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        reseal(copy, name, mutated(whole, generator))
        code = main(["predict", str(copy), str(new), "--quiet"])
        captured = capsys.readouterr()
        assert code in (0, 2), captured.err
        assert len(captured.err.splitlines()) == (code == 2), captured.err


@pytest.mark.parametrize("place", ["fill", "mean", "scale"])
def test_no_number_of_the_preprocessor_is_a_bug(folder, new, tmp_path, capsys, place):
    for value in (*NASTY, 10**400, 5e-324):
        copy = tmp_path / "model"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        content = json.loads((copy / "table.json").read_text())
        content["preprocessor"]["numbers"][0][1 + ["fill", "mean", "scale"].index(place)] = value
        reseal(copy, "table.json", content)
        assert main(["predict", str(copy), str(new), "--quiet"]) in (0, 2)
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
