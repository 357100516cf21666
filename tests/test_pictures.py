"""``expacc compare`` of a folder of pictures: what it takes for one, a study of it, suspects."""

import base64
import csv
import fnmatch
import json
import re
import shutil
import sys
import types

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from expacc.cli import main
from expacc.compare.networks import compare_networks
from expacc.compare.pictures import png_file
from expacc.compare.study import load_record
from expacc.networks import FastCNN
from expacc.runner.store import Store

RANDOM = np.random.default_rng(0)
QUICK = [
    "--size",
    "8",
    "--epochs",
    "2",
    "--trials",
    "1",
    "--repeats",
    "2",
    "--losses",
    "leaky_expected_error",
]


def write_photos(root, rows=30):
    """Light and dark squares, with two in the wrong folder."""
    for place in range(rows):
        light = place % 2
        shade = RANDOM.integers(160 * light, 90 + 160 * light, (8, 8, 3))
        named = ("dark", "light")[light if place not in (4, 9) else 1 - light]
        (root / named).mkdir(parents=True, exist_ok=True)
        path = root / named / f"{place:02d}.png"
        Image.fromarray(shade.astype(np.uint8)).save(path)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("pictures") / "photos"
    write_photos(root)
    (root / "dark" / "broken.png").write_bytes(b"")
    return root


@pytest.fixture(scope="module")
def studied(photos, tmp_path_factory):
    """A study of them, run to its end by the command."""
    out = tmp_path_factory.mktemp("study") / "out"
    assert main(["compare", str(photos), *QUICK, "-o", str(out), "-q"]) == 0
    return out


def refused(capsys, *words):
    assert main(list(map(str, words))) == 2
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    return line


def test_a_study_shows_suspects_as_pictures_and_names_their_files(photos, studied):
    record = load_record(studied)
    facts = record.tables["photos"]
    assert facts.classes == ("dark", "light")
    assert facts.rows == 30
    assert "Left out dark/broken.png: it is empty." in facts.notes
    assert record.settings["network"].startswith("cnn-small: WhitenedCNN of ")
    assert f"expacc compare {photos}" in record.command
    page = (studied / "report.html").read_text()
    with (studied / "suspects.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["file"] for row in rows} >= {"dark/09.png", "light/04.png"}
    assert {row["line"] for row in rows} == {""}
    shown = re.findall(r'<img src="data:image/png;base64,([^"]+)" alt="([^"]+)"', page)
    disbelieved = [row["file"] for row in rows if row["disbelieved_by_all"] == "yes"]
    assert [name for _, name in shown] == disbelieved[:40]
    assert all(base64.b64decode(text)[1:4] == b"PNG" for text, _ in shown)
    assert "<b>light</b> → dark" in page


def test_it_goes_on_where_it_was_and_says_beforehand_what_would_run(photos, studied, capsys):
    before = len(load_record(studied).rows)
    words = ["compare", str(photos), *QUICK, "-o", str(studied)]
    assert main([*words, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "18 of 18 runs are done." in said
    assert re.search(r"Roughly .* on this (CPU|GPU), at [\d,]+ pictures a second\.", said)
    assert main(["compare", str(photos), *QUICK, "-o", str(studied), "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["report"] == str(studied / "report.html")
    assert len(load_record(studied).rows) == before
    assert main(["show", str(studied)]) == 0


def test_pictures_of_a_study_are_checked(studied, tmp_path):
    folder = shutil.copytree(studied, tmp_path / "study")
    wrong = {"1": base64.b64encode(b"<svg onload=alert(1)>").decode()}
    with Store.read(folder) as store:
        settings = store.study()
    with Store.open(folder, settings) as store:
        store.set_note("pictures", wrong)
    with pytest.raises(ValueError, match="must be a small PNG file of a row"):
        load_record(folder)


def test_what_is_taken_for_what(photos, studied, tmp_path, capsys):
    both = shutil.copytree(photos, tmp_path / "both")
    (both / "cars.csv").write_text("a,b\n1,2\n")
    assert "holds folders of pictures and the table cars.csv" in refused(capsys, "compare", both)
    tables = tmp_path / "tables"
    shutil.copytree(photos / "dark", tables / "figures")
    (tables / "cars.csv").write_text("a,class\n" + "1,x\n2,y\n" * 9)
    assert main(["compare", str(tables), "--dry-run", "-q"]) == 0
    assert "expacc show" in refused(capsys, "compare", studied)
    assert "must be the only DATA; got 2" in refused(capsys, "compare", photos, "iris")
    assert "--target is for tables; DATA is not" in refused(
        capsys, "compare", photos, "--target", "x"
    )
    assert "--hidden is for tables" in refused(capsys, "compare", photos, "--hidden", "9")
    assert "--size is for pictures; DATA is not" in refused(capsys, "compare", "iris", "--size", 9)
    assert "holds pictures, not tables" in refused(capsys, "inspect", photos)
    (tables / "cars.csv").unlink()
    assert "two or more; got the folder 'figures'" in refused(capsys, "compare", tables)


def test_models_and_their_weights(photos, tmp_path, capsys):
    def told(*words):
        return refused(capsys, "compare", photos, "--dry-run", *words)

    assert "--model must be cnn, cnn-small, " in told("--model", "linear")
    assert "needs timm, which is not installed" in told("--model", "timm:resnet18")
    assert "there is none at" in told("--pretrained", tmp_path / "no.safetensors")
    path = tmp_path / "w.safetensors"
    path.write_bytes(b"\x80\x04pickle")
    assert "Others can run code" in told("--pretrained", path)
    save_file({"a": torch.zeros(3)}, path)
    assert "0 of 39 tensors fit" in told("--pretrained", path)
    assert "--folds must be a number from 2 on" in told("--folds", "5x3")
    kept = FastCNN(5, 3, widths=(16, 64, 64)).state_dict()
    save_file(kept, path)
    words = ["compare", str(photos), *QUICK, "--model", "cnn-small", "--pretrained", str(path)]
    assert main([*words, "--dry-run", "--json"]) == 0
    settings = json.loads(capsys.readouterr().out)["settings"]
    assert "from weights " in settings["network"]


def test_a_network_of_timm_is_told_the_size_if_it_takes_one(photos, monkeypatch, capsys):
    """timm is not installed here: what is used of it stands in for it."""
    asked = []

    def create_model(name, **options):
        asked.append((name, options))
        if name == "plain" and "img_size" in options:
            raise TypeError("unexpected img_size")
        flat = options["in_chans"] * 8 * 8
        return torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(flat, options["num_classes"])
        )

    timm = types.ModuleType("timm")
    timm.list_models = lambda pattern="*": fnmatch.filter(["plain", "vit_tiny"], pattern)
    timm.create_model = create_model
    monkeypatch.setitem(sys.modules, "timm", timm)
    words = ["compare", str(photos), *QUICK, "--dry-run", "-q", "--model"]
    for name in ("plain", "vit_tiny"):
        assert main([*words, f"timm:{name}"]) == 0
    sizes = {name: options.get("img_size") for name, options in asked}
    assert sizes == {"plain": None, "vit_tiny": 8}
    assert all(not options["pretrained"] for _, options in asked)
    assert "Close: vit_tiny." in refused(capsys, *words, "timm:vit")


def test_rows_of_ones_own_network_have_names_and_pictures(tmp_path):
    images = torch.from_numpy(RANDOM.integers(0, 256, (24, 1, 8, 8), np.uint8))
    labels = torch.arange(24) % 2
    found = compare_networks(
        lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2)),
        (images[:12], labels[:12]),
        (images[12:], labels[12:]),
        losses=["leaky_expected_error"],
        **{"epochs": 1, "trials": 1, "seeds": 2, "out": tmp_path, "progress": False},
        row_names=[f"row {place}" for place in range(24)],
    )
    doubted = found.record.pictures
    assert doubted  # labels that are no more than chance
    for row, text in doubted.items():
        assert base64.b64decode(text) == png_file(images[int(row)])
        assert int(row) >= 12
        assert f"row {row}\n" in (tmp_path / "suspects.csv").read_text()


@pytest.mark.parametrize("shape", [(1, 5, 7), (3, 40, 200)])
def test_png_files_are_read_by_others(tmp_path, shape):
    picture = torch.randint(0, 256, shape, dtype=torch.uint8)
    (tmp_path / "1.png").write_bytes(png_file(picture))
    read = np.atleast_3d(np.asarray(Image.open(tmp_path / "1.png"))).transpose(2, 0, 1)
    step = 1 if shape[2] < 96 else 3
    assert (read == picture.numpy()[:, ::step, ::step]).all()
