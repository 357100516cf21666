"""The command line: end to end, in its errors, and when it is interrupted."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from unittest.mock import Mock

import pytest

from expacc.cli import main
from expacc.compare.study import load_record
from expacc.runner.store import Store
from expacc.training import LOSS_NAMES

TINY = ["--trials", "2", "--folds", "2", "--losses", "exact", "--workers", "0"]
COMMANDS = ["compare", "get", "show", "report", "fit", "predict", "inspect", "reproduce"]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A finished study of iris, and what it printed."""
    folder = tmp_path_factory.mktemp("cli")
    code = (
        f"import sys; from expacc.cli import main; sys.exit(main(['compare', 'iris', *{TINY!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    return folder, done


@pytest.fixture
def there(study, monkeypatch):
    monkeypatch.chdir(study[0])
    return study[0]


def refusal(capsys, *arguments):
    """The one line that an error gets."""
    assert main(list(arguments)) == 2
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert captured.out == ""
    assert lines[-1].startswith("expacc: ")
    assert "Traceback" not in captured.err
    return lines[-1]


def test_a_study_from_a_name_to_a_report(study):
    folder, done = study
    assert done.returncode == 0, done.stderr
    out = folder / "expacc-iris"
    for name in ("report.html", "suspects.csv", "leaderboard.json", "study.sqlite"):
        assert (out / name).stat().st_size > 0
    lines = done.stdout.splitlines()
    assert "cross entropy" in lines[0]
    assert lines[0].endswith(".")
    assert "EXACT" in done.stdout
    assert lines[-1] == "Report: expacc-iris/report.html"
    assert re.fullmatch(r"Train .+ on all rows: expacc fit iris --from expacc-iris", lines[-3])
    predict = "Predict new rows: expacc predict expacc-iris-model NEW.csv -o predicted.csv"
    assert lines[-2] == predict
    assert "target 'class'" in done.stderr
    assert "petal width (cm): number from 0.1 to 2.5" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


def test_the_same_command_again_has_nothing_to_do(there, capsys):
    before = (there / "expacc-iris/leaderboard.csv").read_bytes()
    start = time.perf_counter()
    assert main(["compare", "iris", *TINY]) == 0
    assert time.perf_counter() - start < 20  # no training; the report takes most of it
    assert "4 of 4 parts were there already." in capsys.readouterr().err
    assert (there / "expacc-iris/leaderboard.csv").read_bytes() == before


def test_show_and_report_read_the_store(there, capsys):
    assert main(["show", "expacc-iris"]) == 0
    assert "EXACT" in capsys.readouterr().out
    assert main(["show", "expacc-iris", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["running"], shown["items_done"], shown["items"]) == (False, 4, 4)
    page = there / "expacc-iris/report.html"
    before = page.read_bytes()
    page.unlink()
    assert main(["report", "expacc-iris"]) == 0
    assert page.read_bytes() == before
    assert capsys.readouterr().out == "Report: expacc-iris/report.html\n"


def test_json_is_all_there_is_on_standard_output(there, capsys):
    assert main(["compare", "iris", *TINY, "--json", "--quiet"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert captured.err == ""
    assert found["report"] == "expacc-iris/report.html"
    assert {entry["loss"] for entry in found["tables"][0]["entries"]} >= {"exact", "cross_entropy"}


def test_dry_run_runs_nothing(there, capsys):
    assert main(["compare", "wine", "--dry-run", "--json", "--inject-label-noise", "0,0.1"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["runs"] == 2 * 15 * (6 * 22 + 4)  # and the references
    assert main(["compare", "wine", "--dry-run", "--json", "--references", "none"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == 15 * 6 * 22
    assert planned["seconds"] > 5
    assert not (there / "expacc-wine").exists()
    assert main(["compare", "iris", *TINY, "--dry-run"]) == 0
    assert "4 of 4 parts are done in expacc-iris." in capsys.readouterr().out
    assert main(["compare", "iris", "--losses", "all", "--dry-run", "--json"]) == 0
    losses = json.loads(capsys.readouterr().out)["losses"]  # all but one that never stands alone
    assert set(losses) == set(LOSS_NAMES) - {"complement_entropy"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["compare", "none.csv"], "none.csv: there is no such file"),
        (["compare", "iris", "--target", "zz"], "target 'zz' is not a column"),
        (
            ["compare", "iris", "--losses", "zz"],
            "losses must be names or families of losses; got 'zz'",
        ),
        (["compare", "iris", "--losses", "complement_entropy"], "complement_entropy"),
        (["compare", "iris", "--folds", "zz"], "folds must be 5x2, a number, RxK or holdout"),
        (["compare", "iris", "--inject-label-noise", "a"], "--inject-label-noise must be shares"),
        (["compare", "iris", "--inject-label-noise", "1.5"], "label_noise must lie in [0, 1)"),
        (["compare", "iris", "--inject-label-noise", "1"], "label_noise must lie in [0, 1)"),
        (["compare", "iris", "--trials", "many"], "--trials"),
        (["compare", "iris", "--trials", "0"], "trials must be >= 1"),
        (["compare", "iris", "--model", "tree"], "model must be linear, mlp, lightgbm"),
        (["compare", "iris", "--device", "moon"], "device must be one that torch can use"),
        (["compare", "iris", "--engine", "cloud", *TINY[:6], "-q"], "engine must be"),
        (["compare", "iris", "--nonsense"], "--nonsense"),
        (["compare"], "DATA"),
        (["nonsense"], "nonsense"),
        (["show", "nowhere"], "nowhere must be the folder of a study"),
        (["report", "nowhere"], "nowhere must be the folder of a study"),
        (["fit", "iris", "--loss", "zz"], "losses must be"),
        (["fit", "iris", "--from", "nowhere"], "nowhere must be the folder of a study"),
        (["fit", "iris", "--trials", "3"], "--trials must come with --loss or --from"),
        (["fit", "iris", "--loss", "exact", "--device", "moon"], "device must be one that torch"),
        (["predict", "nowhere", "iris"], "nowhere must be a folder that expacc fit wrote"),
        (["predict", "nowhere", "iris", "-o", "x.xlsx"], "--out must end with .csv, .tsv or .parq"),
        (["predict", "nowhere", "iris", "-o", "no/x.csv"], "--out must be in a folder"),
        (["fit", "iris", "--device", "moon"], "device must be one that torch can use here"),
        (["compare", "iris", "--seed", "-1"], "seed must be >= 0"),
        (["compare", "iris", "--repeats", "0"], "seeds must be >= 1"),
        (
            ["compare", "iris", "--folds", "1"],
            "folds must be at least 2; got '1'. For one split use holdout",
        ),
        (["compare", "iris", "--folds", "1000"], "iris: folds must be at most"),
        (["compare", "iris", "iris"], "tables must have different names"),
        (["compare", "iris", "--decimal", ";"], "decimal must be"),
        (["compare", "iris", "--max-cells", "0"], "max_cells must be"),
        (["inspect", "text.csv", "--encoding", "zz"], "encoding must be one that Python knows"),
        (["inspect", "none.csv"], "none.csv: there is no such file"),
        (["fit", "iris", "--seed", "-1"], "seed must be >= 0"),
        (["fit", "iris", "--model", "tree"], "model must be linear, mlp, lightgbm"),
        (["fit", "iris", "--loss", "exact", "--trials", "0"], "trials must be >= 1"),
    ],
)
def test_an_error_of_the_user_is_one_line(arguments, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.csv").write_text("x,class\n1,a\n2,b\n")
    assert sentence in refusal(capsys, *arguments)


@pytest.mark.parametrize("error", [ValueError, TypeError, KeyError, ModuleNotFoundError])
def test_a_bug_shows_its_traceback_and_asks_for_a_report(error, there, capsys, monkeypatch):
    named = {"name": "expacc.nothing"} if error is ModuleNotFoundError else {}
    broken = Mock(side_effect=error("planted", **named))
    monkeypatch.setattr("expacc.compare.leaderboard.table_board", broken)
    assert main(["show", "expacc-iris"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Traceback")
    assert any("planted" in line for line in lines)
    assert lines[-1] == "expacc: This is a bug of expacc. Please report it, with the lines above."


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("compare wine --dry-run --seeds 3", "compare wine --dry-run --repeats 3"),
        ("compare wine --dry-run --seeds=3", "compare wine --dry-run --repeats=3"),
        (
            "compare wine --dry-run --label-noise 0,0.1",
            "compare wine --dry-run --inject-label-noise 0,0.1",
        ),
        ("compare wine --dry-run --fresh", "compare wine --dry-run --overwrite"),
        ("read wine", "inspect wine"),
    ],
)
def test_an_old_name_works_with_a_remark(old, new, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*old.split(), "--json"]) == 0
    found = capsys.readouterr()
    (name,) = {word.partition("=")[0] for word in {*new.split()} - {*old.split()}}
    assert f"is {name} now; the old name goes with the next release." in found.err.splitlines()[0]
    assert main([*new.split(), "--json"]) == 0
    assert capsys.readouterr().out == found.out
    assert main([old.split()[0], "--help"]) == 0
    shown = capsys.readouterr().out.replace("--inject", "")
    assert not re.search(r"--(seeds|fresh|label-noise)\b", shown)


def test_a_folder_that_cannot_hold_the_study(capsys, there, tmp_path):
    (tmp_path / "file").write_text("x")
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "study.sqlite").write_text("not a database, but long enough to look at" * 9)
    for line, sentence in (
        (["compare", "iris", "--out", f"{tmp_path}/file"], "must be a folder; got a file"),
        (["compare", "iris", "--out", str(bad)], "--overwrite"),
        (["show", str(bad)], "must be a study that expacc wrote"),
        (["compare", "iris", *TINY, "--seed", "3", "--quiet"], "seed is 0 there and 3 here"),
        # the same file, read otherwise
        (["compare", "iris", *TINY, "--drop", "1", "--quiet"], "tables.iris.values"),
    ):
        assert sentence in refusal(capsys, *line)


def test_debug_shows_the_traceback(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"none\.csv"):
        main(["compare", "none.csv", "--debug"])


def test_a_folder_with_one_table_that_cannot_be_read(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "tables"
    folder.mkdir()
    rows = "".join(f"{i % 7},{i % 3},{'ab'[i % 2]}\n" for i in range(40))
    (folder / "good.csv").write_text("x,y,class\n" + rows)
    (folder / "other.csv").write_text("[red]u,v,class\n" + rows)
    (folder / "torn.csv").write_text("x,y,class\n1,2\n")
    assert main(["compare", "tables", "--dry-run", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["tables"] == ["good", "other"]
    assert json.loads(captured.out)["out"] == "expacc-tables"
    (line,) = [line for line in captured.err.splitlines() if "torn" in line]
    assert line.startswith("Left out torn: torn.csv, line 2")
    assert "[red]u: number from 0 to 6" in captured.err


def test_reading_options_reach_the_reader_and_the_next_command(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{i % 7};{i % 5},5;{'ab'[i % 2]};n{i}\n" for i in range(40))
    (tmp_path / "t.data").write_text(rows)
    options = ["--no-header", "--target", "3", "--delimiter", ";", "--decimal", ","]
    options += ["--drop", "4"]
    assert main(["inspect", "t.data", *options, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert [c["kind"] for c in found["columns"]] == ["number", "number"]
    assert found["left_out"] == {"column 4": "as asked"}
    assert found["classes"] == {"a": 20, "b": 20}
    assert main(["compare", "t.data", *options, *TINY, "--quiet"]) == 0
    train, predict = (
        line.split(": expacc ")[1] for line in capsys.readouterr().out.splitlines()[-3:-1]
    )
    assert train == (
        "fit t.data --target 3 --no-header --delimiter ';' --decimal , --drop 4 --from expacc-t"
    )
    assert main([*shlex.split(train), "--quiet"]) == 0
    assert main(shlex.split(predict.replace("NEW.csv", "t.data"))) == 0
    assert len((tmp_path / "predicted.csv").read_text().splitlines()) == 41


def test_a_table_of_many_is_fitted_with_its_own_number_of_trials(tmp_path, monkeypatch, capsys):
    settings = {"model": "linear", "trials": [10, 20], "seed": 3}
    asked = {}

    class Trained(Exception):
        """What there is to see has been seen."""

    def train(table, loss, **settings):
        asked.update(settings)
        raise Trained

    record = Mock(settings=settings, tables={})
    monkeypatch.setattr("expacc.compare.study.load_record", lambda _: record)
    monkeypatch.setattr("expacc.compare.deploy.winner_of", lambda *_: "exact")
    monkeypatch.setattr("expacc.compare.deploy.train_loss", train)
    with pytest.raises(Trained):
        main(["fit", "iris", "--from", str(tmp_path), "--debug"])
    assert asked == {"model": "linear", "seed": 3, "device": "cpu"}


def test_two_tables_and_two_shares_of_noise(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = ["compare", "iris", "wine", *TINY, "--inject-label-noise", "0,0.2", "--quiet"]
    assert main(line) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("Over 2 tables")
    # Which of the two is left open.
    assert re.search(
        r"\nTrain .+ on all rows of one of the tables: expacc fit TABLE\.csv --from expacc"
        r"-study\n.*: expacc predict expacc-TABLE-model NEW\.csv",
        captured.out,
    )
    assert captured.err == ""
    assert main([*line, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["report"] == "expacc-study/report.html"
    boards = {(board["table"], board["noise"]) for board in found["tables"]}
    assert boards == {("iris", 0.0), ("wine", 0.0), ("iris", 0.2), ("wine", 0.2)}


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_a_screen_and_shows_an_example(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*([command] if command else []), "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 80
    assert any(re.search(r"expacc \w+ \S+", line) for line in lines[2:])
    assert any("Example" in line for line in lines)


def test_help_needs_nothing_heavy():
    code = (
        "import sys\n"
        "for name in ('torch', 'sklearn', 'numpy', 'scipy', 'rich'): sys.modules[name] = None\n"
        "from expacc.cli import main\n"
        "sys.exit(main(['compare', '--help']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    assert "--inject-label-noise" in done.stdout


def test_no_command_gets_the_help_and_a_module_its_version(capsys):
    assert main([]) == 0
    assert "compare" in capsys.readouterr().out
    line = [sys.executable, "-m", "expacc", "--version"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"expacc \d+\.\d+\.\d+(\.dev\d+)?\n", done.stdout)


def _results(folder):
    """All that a study found, times left out."""
    return [
        (row.key, row.numbers, row.metrics, row.failure, row.curves)
        for row in load_record(folder).rows
    ]


@pytest.mark.slow
def test_ctrl_c_loses_nothing(tmp_path, capsys):
    """SIGINT to a running study: 130, a line that resumes it, and the result nobody disturbed."""
    settings = ["--trials", "3", "--folds", "6", "--losses", "exact"]
    line = [sys.executable, "-m", "expacc", "compare", "wine", *settings, "--workers", "1"]
    running = subprocess.Popen(
        [*line, "--out", "cut"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        # A job in the background inherits that Ctrl-C is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 120
    while _done(tmp_path / "cut") < 1 and time.monotonic() < deadline and running.poll() is None:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=120)
    assert running.returncode == 130, said
    last = said.splitlines()[-1]
    resume = last.split("To go on: expacc ")[1].split()
    assert "saved in cut" in last
    assert "Traceback" not in said
    assert 1 <= _done(tmp_path / "cut") < 12  # six of the loss, and of the references
    capsys.readouterr()
    assert main(["show", str(tmp_path / "cut")]) == 0
    shown = capsys.readouterr().out
    assert "no answer yet" in shown.splitlines()[0]
    assert re.search(r"Not finished: \d+ of 12 parts are done\.", shown)
    again = [sys.executable, "-m", "expacc", *resume, "--quiet"]
    subprocess.run(again, cwd=tmp_path, check=True, capture_output=True)
    subprocess.run([*line, "--out", "whole", "-q"], cwd=tmp_path, check=True, capture_output=True)
    assert _results(tmp_path / "cut") == _results(tmp_path / "whole")


def _done(folder):
    if not os.path.exists(folder / "study.sqlite"):
        return 0
    try:
        with Store.read(folder) as store:
            return len(store.done_items())
    except ValueError:  # it is being made
        return 0
