"""What others put into a folder: links, pipes and journals are neither followed, filled nor run."""

import os
import sqlite3
import stat
import threading
import time

import numpy as np
import pytest
import torch
from study_samples import sample
from test_store import STUDY, row

from expacc import files
from expacc.cli import main
from expacc.compare.page import write_report
from expacc.estimator import AccuracyClassifier
from expacc.estimator.saving import cv_results
from expacc.files import check_plain, read_whole, replace_file, write_whole
from expacc.runner.store import Store
from expacc.runner.store_files import is_locked
from expacc.training.checkpoint import load_state, save_state

PLANTS = ("link", "dangling link", "pipe", "folder")


@pytest.fixture
def victim(tmp_path):
    path = tmp_path / "precious.txt"
    path.write_text("the only copy")
    yield path
    assert path.read_text() == "the only copy"


def plant(path, kind, victim):
    if kind == "link":
        path.symlink_to(victim)
    elif kind == "dangling link":
        path.symlink_to(path.parent / "nowhere")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        os.link(victim, path)


def in_time(work):
    """The result or exception of ``work``; a hang is a failure."""
    found = []

    def run():
        try:
            found.append(work())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(30)
    assert found, "it hangs"
    return found[0]


def assert_refused(found):
    assert isinstance(found, ValueError | OSError)
    assert "\n" not in str(found)
    assert str(found).endswith(".")


# Whole files


def test_a_file_is_old_or_new_and_has_the_usual_rights(tmp_path, monkeypatch):
    def full(_):
        raise OSError("disk full")

    write_whole(tmp_path / "a", "old")
    with pytest.raises(ZeroDivisionError):
        replace_file(tmp_path / "a", lambda part: 1 / 0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="disk full"):
            write_whole(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "old"
    write_whole(tmp_path / "a", b"new")
    assert read_whole(tmp_path / "a", 3) == b"new"
    assert os.listdir(tmp_path) == ["a"]
    (tmp_path / "b").touch()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


@pytest.mark.parametrize("kind", PLANTS)
def test_nothing_is_written_through_what_lies_there(tmp_path, victim, kind):
    path = tmp_path / "a.json"
    plant(path, kind, victim)
    for name in ("a.json.part", ".a.json.part"):  # names that can be guessed
        (tmp_path / name).symlink_to(victim)
    with pytest.raises(ValueError, match=r"a\.json must be a plain file; got a "):
        write_whole(path, "new")
    with pytest.raises(ValueError, match=r"a\.json must be a plain file; got a "):
        check_plain(path)
    write_whole(tmp_path / "b.json", "new")


def test_what_is_read_is_looked_at_first(tmp_path, victim):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(victim)
    assert read_whole(tmp_path / "link", 100) == b"the only copy"
    assert_refused(in_time(lambda: read_whole(tmp_path / "pipe", 100)))
    assert_refused(in_time(lambda: read_whole(tmp_path, 100)))
    with pytest.raises(ValueError, match="must be at most 10 bytes; it has 13"):
        read_whole(tmp_path / "link", 10)
    with pytest.raises(FileNotFoundError):
        read_whole(tmp_path / "nothing", 10)


def test_what_the_dead_left_is_swept_and_nothing_else(tmp_path, victim):
    kept = [".a.json.0123.part", ".b.json.0123.part", ".a.json.4567.part"]
    for name in (*kept, ".a.json.89ab.part", ".a.json.89ab.part-wal"):
        (tmp_path / name).touch()
    old = time.time() - 2 * files.STALE
    for name in (kept[1], ".a.json.89ab.part", ".a.json.89ab.part-wal"):
        os.utime(tmp_path / name, (old, old))
    (tmp_path / ".a.json.cdef.part").symlink_to(victim)
    write_whole(tmp_path / "a.json", "")
    names = {"a.json", "precious.txt", ".a.json.cdef.part", *kept}
    assert set(os.listdir(tmp_path)) == names


# The store


def is_running(folder):
    with Store.read(folder) as store:
        return store.is_running()


STORE_FILES = ("study.sqlite", "study.sqlite-wal", "study.sqlite-shm", "study.sqlite-journal")


@pytest.mark.parametrize("there", [True, False], ids=["in a study", "in an empty folder"])
@pytest.mark.parametrize("kind", [*PLANTS, "hard link"])
@pytest.mark.parametrize("name", [*STORE_FILES, "study.lock"])
def test_a_planted_file_is_refused_before_it_is_opened(tmp_path, victim, name, kind, there):
    folder = tmp_path / "out"
    if there:
        with Store.open(folder, STUDY) as store:
            store.save("a", [row()])
    else:
        folder.mkdir()
    path = folder / name
    if path.exists():
        path.unlink()
    plant(path, kind, victim)
    before = set(os.listdir(folder))
    assert_refused(in_time(lambda: Store.open(folder, STUDY)))
    assert set(os.listdir(folder)) - {"study.lock"} == before - {"study.lock"}
    found = in_time(lambda: is_running(folder))
    if name == "study.lock" and there:  # not needed to read
        assert found is False
    else:
        assert_refused(found)
    if name != "study.lock" and kind != "folder":  # to begin anew is the cure
        Store.open(folder, STUDY, resume=False).close()
        with Store.read(folder) as store:
            assert store.rows() == []


def crafted_journal(path, named):
    """A rollback journal that names a master journal, which SQLite deletes if it has no child."""
    name, magic = os.fsencode(named), bytes.fromhex("d9d505f920a163d7")
    numbers = (0, 0, 2, 512, 4096)  # records, nonce, pages of the file, sector, page
    header = magic + b"".join(number.to_bytes(4, "big") for number in numbers)
    tail = (0x40000000 // 4096 + 1).to_bytes(4, "big") + name
    tail += len(name).to_bytes(4, "big") + sum(name).to_bytes(4, "big") + magic
    path.write_bytes(header.ljust(512, b"\0") + tail)


@pytest.mark.parametrize("content", [b"", b"anything", None])
def test_a_journal_deletes_nothing(tmp_path, victim, content):
    folder = tmp_path / "out"
    Store.open(folder, STUDY).close()
    journal = folder / "study.sqlite-journal"
    crafted_journal(journal, victim) if content is None else journal.write_bytes(content)
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    for work in (Store.open, lambda folder, _: Store.read(folder)):
        for study in (STUDY, {"another": 1}):
            with pytest.raises(ValueError, match=r"a journal beside it, study.sqlite-journal"):
                work(folder, study)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == whole


def test_sqlite_itself_would_have_deleted_it(tmp_path):
    """So that the test above can fail."""
    victim = tmp_path / "victim"
    victim.write_text("x")
    with sqlite3.connect(tmp_path / "a") as file:
        file.execute("CREATE TABLE t (x)")
    file.close()
    crafted_journal(tmp_path / "a-journal", victim)
    file = sqlite3.connect(tmp_path / "a")
    file.execute("SELECT * FROM t").fetchall()
    file.close()
    assert not victim.exists()


def test_a_refused_study_is_not_signed(tmp_path):
    Store.open(tmp_path, STUDY).close()
    (tmp_path / "study.lock").write_text("a file of mine")
    with pytest.raises(ValueError, match="must hold the same study"):
        Store.open(tmp_path, {"another": 1})
    assert (tmp_path / "study.lock").read_text() == "a file of mine"
    with Store.open(tmp_path, STUDY):
        assert f"process {os.getpid()} " in (tmp_path / "study.lock").read_text()


def test_a_log_without_its_store_comes_to_no_other(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    with Store.open(first, STUDY) as store:
        store.save("a", [row()])
        second.mkdir()
        log = (first / "study.sqlite-wal").read_bytes()
    assert log
    (second / "study.sqlite-wal").write_bytes(log)
    with Store.open(second, STUDY) as store:
        assert store.rows() == []


def test_a_pipe_as_lock_is_no_lock(tmp_path):
    os.mkfifo(tmp_path / "lock")
    assert in_time(lambda: is_locked(tmp_path / "lock")) is False


def test_who_holds_a_lock_is_told_without_tricks(tmp_path, monkeypatch):
    monkeypatch.setattr("expacc.runner.store_files.PATIENCE", 0.0)
    with Store.open(tmp_path, STUDY):
        (tmp_path / "study.lock").write_text("\x1b[31mred\nlines")
        with pytest.raises(BlockingIOError, match=r"runs as  \[31mred lines\."):
            Store.open(tmp_path, STUDY)


# Everything else that is written


def test_reports_are_not_written_through_links(tmp_path, victim):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/report.html").symlink_to(victim)
    with pytest.raises(ValueError, match=r"report\.html must be a plain file"):
        write_report(sample(folds="holdout", trials=0), tmp_path / "out")


def a_classifier(scale=1.0, classes=("no", "yes")):
    found = AccuracyClassifier()
    found.classes_, found.n_features_in_ = np.array(classes), 2
    found.layers_ = [(scale * np.eye(2), np.zeros(2))]
    found.temperature_ = found.bend_ = 1.0
    found.best_params_, found.cv_results_ = {"loss": "exact"}, cv_results([])
    return found


@pytest.mark.parametrize("kind", PLANTS)
@pytest.mark.parametrize("name", ["model.safetensors", "model.json"])
def test_models_are_not_written_through_links(tmp_path, victim, name, kind):
    folder = tmp_path / "model"
    folder.mkdir()
    for part in ("model.safetensors.part", "model.json.part", "table.json.part"):
        (folder / part).symlink_to(victim)
    a_classifier().save(folder)
    assert AccuracyClassifier.load(folder).predict([[0.0, 1.0]]) == ["yes"]
    (folder / name).unlink()
    plant(folder / name, kind, victim)
    assert_refused(in_time(lambda: a_classifier().save(folder)))
    found = in_time(lambda: AccuracyClassifier.load(folder))
    assert isinstance(found, ValueError)
    assert len(str(found)) < 500


def test_a_huge_sparse_model_is_refused_at_once(tmp_path):
    a_classifier().save(tmp_path)
    path = tmp_path / "model.safetensors"
    os.truncate(path, 40 << 30)
    with pytest.raises(ValueError, match=r"must be at most 1,048,\d\d\d bytes"):
        AccuracyClassifier.load(tmp_path)
    assert main(["predict", str(tmp_path), "x.csv"]) == 2


@pytest.mark.parametrize("kind", PLANTS)
def test_checkpoints_are_not_written_through_links(tmp_path, victim, kind):
    (tmp_path / "state.part").symlink_to(victim)
    save_state(tmp_path / "state", {"x": torch.ones(2)})
    assert stat.S_ISREG(os.lstat(tmp_path / "state").st_mode)
    (tmp_path / "state").unlink()
    plant(tmp_path / "state", kind, victim)
    assert_refused(in_time(lambda: save_state(tmp_path / "state", {"x": 1})))
    assert_refused(in_time(lambda: load_state(tmp_path / "state")))
