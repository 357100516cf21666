"""The files of a release: what is in them; each extra works alone, where nothing else is."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
pytestmark = pytest.mark.slow


def run(*command, **settings):
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, cwd="/", **settings
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """The wheel and the source archive, of the files that Git knows."""
    place = tmp_path_factory.mktemp("release")
    source = place / "source"
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
    )
    for name in filter(None, names.stdout.split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", place / "dist", source)
    (wheel,) = (place / "dist").glob("*.whl")
    (archive,) = (place / "dist").glob("*.tar.gz")
    yield wheel, archive, source
    shutil.rmtree(place)


def test_what_is_in_the_files(release):
    wheel, archive, source = release
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, archive)
    ours = {str(path.relative_to(source)) for path in (source / "expacc").rglob("*.*")}
    ours = {name for name in ours if (source / name).is_file()}
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
        metadata = next(name for name in names if name.endswith(".dist-info/METADATA"))
        text = opened.read(metadata).decode()
    about = {name for name in names if ".dist-info/" in name}
    assert names - about == ours
    assert "expacc/py.typed" in names
    assert {name.rsplit("/", 1)[1] for name in about} == {
        *("METADATA", "RECORD", "WHEEL", "LICENSE", "entry_points.txt", "top_level.txt")
    }
    assert re.findall(r"^Requires-Dist: ([^;\n]+)$", text, re.M) == ["torch>=2.11"]
    with tarfile.open(archive) as opened:
        inside = {name.split("/", 1)[1] for name in opened.getnames() if "/" in name}
        inside = {name for name in inside if (source / name).is_file()}
    for name in ("Makefile", "constraints.txt", "tests/test_release.py", "docs/frameworks.md"):
        assert name in inside
    assert ours <= inside
    strange = [
        name for name in inside if re.search(r"(^|/)(\.git|\.venv|__pycache__|build/)", name)
    ]
    assert not strange


class Environment:
    """A Python with the wheel and what comes with it, and perhaps what another one has."""

    def __init__(self, folder, other=None):
        venv.create(folder, with_pip=True, symlinks=True)
        self.folder, self.python = folder, folder / "bin/python"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.packages = folder / "lib" / version / "site-packages"
        if other is not None:
            (self.packages / "other.pth").write_text(f"{other.packages}\n")

    def install(self, *wanted):
        options = ("--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt")
        run(self.python, "-m", "pip", "install", *options, *wanted)

    def run(self, code, **settings):
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return run(self.python, "-W", "ignore", "-c", code, env={**environment, **settings})


@pytest.fixture(scope="module")
def plain(release, tmp_path_factory):
    """torch and expacc, nothing else; the environments of the extras look in here."""
    environment = Environment(tmp_path_factory.mktemp("plain"))
    environment.install(release[0])
    yield environment
    shutil.rmtree(environment.folder)


def test_without_extras(plain):
    plain.run(
        "import expacc, torch; from expacc import *; from expacc.functional import focal;"
        "assert expacc.get_loss('focal')(torch.zeros(2, 3), torch.tensor([0, 1])) > 0"
    )
    words = subprocess.run([plain.folder / "bin/expacc", "--help"], capture_output=True, text=True)
    assert words.returncode == 2
    assert words.stderr == (
        "expacc: the command line needs the package typer, which is not installed. "
        "Use pip install 'expacc[compare]'.\n"
    )


X_Y = "import torch; x = torch.randn(60, 4); y = x[:, :3].argmax(1); X, Y = x.numpy(), y.numpy();"
USES = {
    "train": X_Y
    + "from expacc.training import fit, train_runs; import torch.nn.functional as F, tempfile;"
    "fit(torch.nn.Linear(4, 3), [(x, y)], F.cross_entropy, checkpoint=tempfile.mkdtemp())",
    "estimator": X_Y
    + "from expacc.estimator import AccuracyClassifier; AccuracyClassifier().fit(X, Y).predict(X)",
    "tables": "import tempfile, pathlib; from expacc.data import read_table;"
    "path = pathlib.Path(tempfile.mkdtemp()) / 't.csv';"
    "path.write_text('a,b,class\\n' + '1,2,x\\n3,4,y\\n' * 20);"
    "assert read_table(path).rows == 40; assert read_table('iris').rows == 150",
    "compare": "import tempfile; from expacc.cli import main;"
    "words = 'compare iris --folds 2 --trials 1 --losses focal --references none --out'.split();"
    "assert main([*words, tempfile.mkdtemp() + '/study']) == 0",
    "images": "import pathlib, tempfile; from PIL import Image;"
    "from expacc.data.images import read_images; place = pathlib.Path(tempfile.mkdtemp());"
    "[(place / name).mkdir() for name in 'ab'];"
    "[Image.new('RGB', (8, 8), (9 * n, 0, 0)).save(place / 'ab'[n % 2] / f'{n}.png')"
    " for n in range(12)];"
    "assert read_images(str(place)).classes",
    "boosting": X_Y
    + "from expacc.boosting import BoostedClassifier as B; B(n_estimators=5).fit(X, Y).predict(X)",
    "ray": "import tempfile; from expacc.cli import main;"
    "words = 'compare iris --folds 2 --trials 1 --losses focal --references none --engine ray';"
    "assert main([*words.split(), '--out', tempfile.mkdtemp() + '/study']) == 0",
    "examples": f"import runpy; runpy.run_path({str(ROOT / 'examples/gradual.py')!r})",
    "transformers": "import expacc; from expacc.integrations.transformers import *;"
    "from transformers import Trainer; trainer_loss(expacc.LeakyExpectedErrorLoss())",
    "lightning": "from expacc.integrations.lightning import *; GradientNormalization()",
    "skorch": X_Y + "import skorch; from expacc.integrations.skorch import ExpectedErrorLoss as E;"
    "net = skorch.NeuralNetClassifier(torch.nn.Linear(4, 3), criterion=E, verbose=0);"
    "net.fit(X, Y).predict_proba(X)",
    "tensorboard": "import tempfile; from expacc.integrations.tensorboard import TensorBoard;"
    "TensorBoard(tempfile.mkdtemp())(1, {'loss': 0.5})",
    "mlflow": "from expacc.integrations.mlflow import MLflow",
    "wandb": "from expacc.integrations.wandb import WandB",
}


def test_every_extra_is_tried():
    assert USES.keys() == EXTRAS.keys() - {"dev"}


@pytest.mark.parametrize("extra", USES)
def test_each_extra_alone(release, plain, tmp_path, extra):
    environment = Environment(tmp_path / "environment", plain)
    try:
        environment.install(f"{release[0]}[{extra}]")
        environment.run(USES[extra], OMP_NUM_THREADS="1")
    finally:
        shutil.rmtree(environment.folder)


def test_the_source_archive_gives_the_same_package(release, plain, tmp_path):
    wheel, archive, _ = release
    environment = Environment(tmp_path / "environment", plain)
    try:
        environment.install("setuptools>=77")
        environment.install("--no-deps", "--no-build-isolation", "--force-reinstall", archive)
        with zipfile.ZipFile(wheel) as opened:
            for name in opened.namelist():
                if name.startswith("expacc/"):
                    assert (environment.packages / name).read_bytes() == opened.read(name)
    finally:
        shutil.rmtree(environment.folder)
