"""``expacc compare --model``: boosted trees, networks, any classifier, from plan to prediction."""

import csv
import json
import re

import numpy as np
import pytest

from expacc.boosting import BoostedClassifier
from expacc.cli import main
from expacc.compare.models import LOSSES
from expacc.compare.settings import Settings, trains_on
from expacc.compare.study import identity, load_record, plan_study
from expacc.compare.training_budget import fold_seconds, usual_trials
from expacc.data import read_table
from expacc.registry import list_losses

NAIVE = "sklearn.naive_bayes.GaussianNB"
TINY = ["--losses", "expected_error", "--folds", "2", "--trials", "2", "--repeats", "1"]
ASKED = {
    "lightgbm": ["--model", "lightgbm"],
    "xgboost": ["--model", "xgboost"],
    "mlp": ["--model", "mlp", "--hidden", "16,8", "--dropout", "0.1"],
    NAIVE: ["--model", NAIVE],
}
NAMED = {"lightgbm": "LightGBM", "xgboost": "XGBoost", "mlp": "a small network"}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    random = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("tables") / "fruit.csv"
    lines = ["size,weight,kind"]
    for _ in range(90):
        size, weight = random.normal(size=2)
        kind = "apple" if size + weight > 0.7 else "pear" if size > weight else "fig"
        lines.append(f"{size:.4f},{weight:.4f},{kind}")
    path.write_text("\n".join(lines) + "\n")
    return path


def run(capsys, *words):
    capsys.readouterr()  # what a study has said that was run for this
    code = main([*map(str, words)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


class Studies(dict):
    """Model → the folder of its study, which is run when it is first asked for."""

    def __init__(self, table):
        self.table = table

    def __missing__(self, model):
        self[model] = folder = self.table.parent / f"study-{len(self)}"
        line = ["compare", str(self.table), *ASKED[model], *TINY, "-o", str(folder), "-q"]
        assert main([*line, "--references", "none"]) == 0
        return folder


@pytest.fixture(scope="module")
def studies(table):
    return Studies(table)


@pytest.mark.parametrize("model", ASKED)
def test_both_readings_are_reported(model, table, studies, capsys):
    folder = studies[model]
    code, out, _ = run(capsys, "show", folder, "--json")
    assert code == 0
    found = json.loads(out)
    assert found["settings"]["model"] == model
    assert f"with {NAMED.get(model, 'GaussianNB')}" in found["answer"]["sentence"]
    assert "at the last round, cross entropy" in found["answer"]["also"][-1]
    entries = {entry["loss"]: entry for entry in found["tables"][0]["entries"]}
    for loss in ("cross_entropy", "expected_error"):
        assert 0.4 < entries[loss]["metrics"]["last_accuracy"] <= 1
        assert entries[loss]["accuracy"] > 0.6
    lines = list(csv.DictReader((folder / "leaderboard.csv").read_text().splitlines()))
    assert all(line["last_accuracy"] for line in lines if line["loss"] != "majority_class")
    assert "last round" in (folder / "report.html").read_text()
    code, out, _ = run(capsys, "show", folder)
    assert "last round" in re.sub(r"\s+", " ", out)


@pytest.mark.parametrize("model", ASKED)
def test_a_finished_study_is_not_run_again(model, table, studies, capsys):
    line = ["compare", table, *ASKED[model], *TINY, "-o", studies[model], "--references", "none"]
    before = load_record(studies[model]).rows
    code, out, err = run(capsys, *line)
    assert code == 0
    assert "2 of 2 parts were there already." in out + err
    assert [row.key for row in load_record(studies[model]).rows] == [row.key for row in before]
    code, out, _ = run(capsys, *line, "--dry-run", "--json")
    assert json.loads(out)["items_done"] == json.loads(out)["items"] == 2


def test_the_rounds_of_the_final_run_are_those_held_out_rows_preferred(studies):
    for model in ("lightgbm", "xgboost"):
        rows = load_record(studies[model]).rows
        for final in (row for row in rows if row.kind == "final"):
            tried = [row for row in rows if row.kind == "trial" and row.item == final.item]
            rounds = {row.numbers["rounds"] for row in tried if row.loss == final.loss}
            assert final.numbers["rounds"] in rounds
            assert final.numbers["last_round"] >= final.numbers["rounds"]


@pytest.mark.parametrize("model", ["lightgbm", "xgboost", "mlp"])
def test_the_winner_is_fitted_saved_and_predicts(model, table, studies, tmp_path, capsys):
    words = ["--loss", "expected-error", "--from", studies[model], "-o", tmp_path / "model"]
    code, out, err = run(capsys, "fit", table, *words, "-q")
    assert code == 0, err
    assert "expected_error" in out
    new = tmp_path / "new.csv"
    code, _, err = run(capsys, "predict", tmp_path / "model", table, "-o", new)
    assert code == 0, err
    lines = list(csv.DictReader(new.read_text().splitlines()))
    assert np.mean([line["prediction"] == line["kind"] for line in lines]) > 0.75
    chances = np.array([[float(line[f"probability {k}"]) for k in ("apple", "fig", "pear")]
                        for line in lines])  # fmt: skip
    np.testing.assert_allclose(chances.sum(1), 1, atol=1e-6)
    if model == "mlp":
        return
    trees = tmp_path / "model" / "trees.txt"
    assert BoostedClassifier.load(tmp_path / "model").library == model
    trees.write_bytes(trees.read_bytes() + b"\n")
    code, _, err = run(capsys, "predict", tmp_path / "model", table)
    assert code == 2
    assert "it was changed" in err


def test_a_classifier_that_no_file_holds_is_told_in_python(table, studies, tmp_path, capsys):
    code, _, err = run(
        capsys, "fit", table, "--from", studies[NAIVE], "--loss", "expected_error", "-q"
    )
    assert code == 2
    assert err.endswith(
        "In Python: ReweightedClassifier(GaussianNB(), 'expected_error').fit(X, y)\n"
    )
    line = ["compare", table, *ASKED[NAIVE], *TINY, "-o", studies[NAIVE], "--references", "none"]
    _, out, _ = run(capsys, *line)
    assert "on all rows, in Python: " in out
    assert "expacc predict" not in out


def test_trees_choose_no_loss_by_themselves(table, capsys):
    code, _, err = run(capsys, "fit", table, "--model", "xgboost", "-q")
    assert code == 2
    assert "--model xgboost must come with --loss or --from" in err


@pytest.mark.parametrize(
    ("words", "piece"),
    [
        (["--model", "forest"], "or the path of a classifier, module.Class; got 'forest'."),
        (["--model", "no.such.Thing"], "gives ModuleNotFoundError: No module named 'no'"),
        (["--model", "sklearn.svm.Nothing"], "gives AttributeError"),
        (["--model", "sklearn:svm"], "'sklearn:svm' is no class."),
        (["--model", "sklearn.svm.SVC"], "model must have predict_proba; SVC has not."),
        (
            ["--model", "sklearn.neighbors.KNeighborsClassifier"],
            "model must take sample_weight in fit; KNeighborsClassifier does not.",
        ),
        (
            ["--model", "sklearn.linear_model.LinearRegression"],
            "model must be a classifier of scikit-learn, not yet fitted; got LinearRegression.",
        ),
        (["--model", "sklearn.ensemble.VotingClassifier"], "needs no arguments"),
        (["--model", "lightgbm", "--losses", "exact"], "got 'exact'"),
        (["--model", NAIVE, "--losses", "focal"], "got 'focal'"),
        (["--model", "lightgbm", "--hidden", "4"], "hidden must come with model mlp"),
        (["--model", "mlp", "--hidden", "4,0"], "--hidden must be units of layers"),
        (["--model", "mlp", "--hidden", "4,,4"], "--hidden must be units of layers"),
        (["--model", "mlp", "--dropout", "1"], "dropout must lie in [0, 1); got 1.0."),
        (["--dropout", "0.5"], "dropout must come with model mlp; got model linear."),
    ],
)
def test_what_cannot_be_trained_is_refused_in_a_line(words, piece, table, capsys):
    code, _, err = run(capsys, "compare", table, *words, "--dry-run", "-q")
    assert code == 2
    assert piece in err
    assert err.count("\n") == 1


def test_a_library_that_is_not_installed_is_named(table, capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, _, err = run(capsys, "compare", table, "--model", "xgboost", "--dry-run", "-q")
    assert code == 2
    assert "which is not installed. Try: pip install 'expacc[boosting]'" in err


def test_a_classifier_of_ones_own_lies_where_one_works(table, tmp_path, monkeypatch, capsys):
    text = (
        "from sklearn.naive_bayes import GaussianNB\nclass Mine(GaussianNB):\n    '''My own.'''\n"
    )
    (tmp_path / "my_models.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    line = ["compare", table, "--model", "my_models:Mine", *TINY, "-q", "--references", "none"]
    code, out, err = run(capsys, *line)
    assert code == 0, err
    assert "with Mine" in out


def test_families_of_losses_are_those_that_the_model_takes(table, capsys):
    line = ["compare", table, "--model", "lightgbm", "--losses", "ours", "--dry-run", "--json"]
    assert json.loads(run(capsys, *line)[1])["losses"] == [
        "cross_entropy", "leaky_expected_error", "mixed_expected_error", "expected_error",
    ]  # fmt: skip
    assert Settings(model="lightgbm").losses == LOSSES
    assert all(trains_on("xgboost", loss) for loss in LOSSES)
    assert not trains_on("linear", "complement_entropy")
    assert trains_on("mlp", "exact")


def test_settings_of_a_network_are_part_of_what_a_study_is(table):
    def known(**settings):
        return identity(plan_study([read_table(table)], Settings(folds="2", trials=2, **settings)))

    assert "hidden" not in known()
    assert known(model="mlp")["hidden"] == [64]
    assert known(model="mlp") == known(model="mlp", hidden=(64,))
    assert known(model="mlp") != known(model="mlp", dropout=0.1)
    assert Settings(model="lightgbm", seeds=5).seeds == 1  # its runs would be the same


def test_the_forecast_grows_with_the_table():
    for model in ("lightgbm", NAIVE):
        shapes = [(200, 5, 2), (5000, 5, 2), (5000, 100, 2), (5000, 100, 20)]
        seconds = [fold_seconds(*shape, losses=LOSSES, model=model) for shape in shapes]
        assert seconds[1:] == sorted(seconds[1:])  # of fewer rows there are more inner folds
        assert all(1 <= usual_trials(*shape, model) <= 8 for shape in shapes)
    assert list_losses()  # the plan needs no torch, and no library of trees


def test_a_study_that_failed_ends_with_a_sentence(table, tmp_path, monkeypatch, capsys):
    (tmp_path / "broken.py").write_text(
        "from sklearn.naive_bayes import GaussianNB\n"
        "class Broken(GaussianNB):\n"
        "    def fit(self, X, y, sample_weight=None):\n"
        "        raise RuntimeError('no licence')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    words = ["--model", "broken:Broken", *TINY, "--references", "none", "--workers", "0"]
    code, _, err = run(capsys, "compare", table, *words, "-o", tmp_path / "study", "-q")
    assert code == 2
    assert "every run of every loss failed, first with: RuntimeError: no licence" in err
    assert (tmp_path / "study" / "report.html").exists()


def test_a_fold_without_two_classes_is_a_failure_with_its_reason(tmp_path, capsys):
    path = tmp_path / "rare.csv"
    path.write_text("x,y\n" + "".join(f"{n % 7},{'a' if n else 'b'}\n" for n in range(30)))
    words = ["--model", "lightgbm", *TINY, "--target", "y", "--references", "none"]
    code, out, err = run(capsys, "compare", path, *words, "-o", tmp_path / "study", "-q")
    assert code in (0, 2), err
    if code == 0:
        reasons = {row.failure for row in load_record(tmp_path / "study").rows if row.failure}
        assert any("one class" in reason for reason in reasons), out
