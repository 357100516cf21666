"""Who reads along has no say in the work: closed, broken and full streams."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from expacc.cli import main
from expacc.training.progress import progress_bar

TINY = ["--trials", "2", "--folds", "2", "--losses", "exact", "--workers", "0"]
needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


def broken():
    """A pipe that nobody reads, as after `| head -0`."""
    reads, writes = os.pipe()
    os.close(reads)
    return open(writes, "w")


def full():
    return open("/dev/full", "w")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streams") / "study"
    assert main(["compare", "iris", *TINY, "--quiet", "--out", str(folder)]) == 0
    return folder


def test_a_study_goes_on_when_nobody_reads(tmp_path, monkeypatch):
    streams = [broken(), broken()]
    for name, stream in zip(("stdout", "stderr"), streams, strict=True):
        monkeypatch.setattr(sys, name, stream)
    monkeypatch.setattr("expacc.training.progress.PATIENCE", 0.0)  # a bar, too
    assert main(["compare", "iris", *TINY, "--out", str(tmp_path / "study")]) == 0
    assert (tmp_path / "study" / "report.html").stat().st_size > 0
    for stream in streams:
        stream.close()  # as Python does at exit: nothing is left in the buffer to fail


@pytest.mark.parametrize("names", [["stdout"], ["stderr"], ["stdout", "stderr"]], ids=str)
def test_closed_streams(study, monkeypatch, names):
    (study / "report.html").unlink()
    for name in names:
        monkeypatch.setattr(sys, name, None)
    assert main(["compare", "iris", *TINY, "--out", str(study)]) == 0
    assert (study / "report.html").stat().st_size > 0


@needs_full
@pytest.mark.parametrize("as_json", [True, False])
def test_a_result_that_was_lost_is_an_error(study, monkeypatch, capsys, as_json):
    (study / "report.html").unlink()
    with full() as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        arguments = ["compare", "iris", *TINY, "--quiet", "--out", str(study)]
        assert main([*arguments, *["--json"] * as_json]) == 2
    assert (study / "report.html").stat().st_size > 0  # it went on to the end
    assert capsys.readouterr().err == (
        "expacc: standard output must take the result; got: No space left on device.\n"
    )


@needs_full
def test_remarks_that_were_lost_are_not(study, monkeypatch, capsys):
    with full() as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        assert main(["inspect", "iris", "--json"]) == 0
        assert main(["show", str(study / "nowhere")]) == 2
    assert '"iris"' in capsys.readouterr().out


ASKED = ["inspect iris --json", "show study", "show study --json", "report study", "--help"]


@pytest.mark.parametrize("arguments", [*ASKED, "--version", "show nowhere"])
def test_nothing_is_said_of_a_broken_pipe(study, monkeypatch, capsys, arguments):
    code = 2 if "nowhere" in arguments else 0
    monkeypatch.chdir(study.parent)
    stream = broken()
    monkeypatch.setattr(sys, "stdout", stream)
    assert main(arguments.split()) == code
    stream.close()
    assert (capsys.readouterr().err == "") == (code == 0)


def test_who_waits_before_a_terminal_is_told_what_is_read(capsys, monkeypatch):
    for watched in (False, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda watched=watched: watched)
        assert main(["inspect", "iris", "--json"]) == 0
        assert ("Reading iris …" in capsys.readouterr().err) == watched


@pytest.mark.parametrize("streams", ["| true", "0>&- 1>&- 2>&-"])
def test_the_same_of_a_whole_process(study, streams):
    """Python's own flush at exit included."""
    command = f"set -o pipefail; {sys.executable} -m expacc inspect iris --json {streams}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_no_file_becomes_standard_error(tmp_path):
    """Where a shell closed it, the next file to be opened would."""
    code = (
        "from expacc.cli.screen import lasting_streams\n"
        "with lasting_streams():\n    print(open(__import__('sys').argv[1], 'w').fileno() > 2, "
        f"file=open({str(tmp_path / 'said')!r}, 'w'), flush=True)\n"
    )
    command = f'exec {sys.executable} -c "$1" {tmp_path / "file"} 0>&- 1>&- 2>&-'
    subprocess.run(["bash", "-c", command, "-", code], check=True)
    assert (tmp_path / "said").read_text() == "True\n"


def test_a_bar_without_standard_error_shows_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with progress_bar(total=1, title="training") as bar:
        bar.update(1)
