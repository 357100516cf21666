"""Disks and files that will not do: one sentence each, and nothing saved is lost."""

import contextlib
import os
import sqlite3
import tempfile
from pathlib import Path

import pytest
from test_store import STUDY, row

from expacc.runner.store import Store
from expacc.runner.store_files import store_error


@contextlib.contextmanager
def an_ordinary_user():
    """Permissions mean nothing to root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def public_folder():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


def test_a_read_only_folder_cannot_be_written_but_read(public_folder):
    with Store.open(public_folder, STUDY) as store:
        store.save("a", [row()])
    for path in public_folder.iterdir():
        path.chmod(0o444)
    public_folder.chmod(0o555)
    with an_ordinary_user():
        with pytest.raises(PermissionError, match=r"must be a folder to write to; it is read-only"):
            Store.open(public_folder, STUDY)
        with pytest.raises(PermissionError, match=r"Use another --out\."):
            Store.open(public_folder / "new", STUDY)
        with Store.read(public_folder) as store:
            assert len(store.rows()) == 1
            assert not store.is_running()


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(NotADirectoryError, match="must be a folder; got a file"):
            Store.open(folder, STUDY)


def by_sql(path, statement):
    with contextlib.closing(sqlite3.connect(path)) as file:
        file.execute(statement)


FOREIGN = {
    r"must be a study that expacc wrote; got: file is not a": lambda path: path.write_text(
        "accuracy,0.93\n" * 100
    ),
    "got: an SQLite file of another program": lambda path: (
        path.unlink(),
        by_sql(path, "CREATE TABLE trials (number INTEGER)"),
    ),
    r"must have version 2 or older; got 3, .* Update expacc": lambda path: by_sql(
        path, "PRAGMA user_version = 3"
    ),
}


@pytest.mark.parametrize("reading", [False, True])
@pytest.mark.parametrize("sentence", FOREIGN)
def test_a_file_of_another_kind_program_or_version(tmp_path, sentence, reading):
    Store.open(tmp_path, STUDY).close()
    path = tmp_path / "study.sqlite"
    FOREIGN[sentence](path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=sentence):
        Store.read(tmp_path) if reading else Store.open(tmp_path, STUDY)
    assert path.read_bytes() == before
    Store.open(tmp_path, STUDY, resume=False).close()  # --overwrite is the cure


def test_a_file_without_tables_is_begun_anew(tmp_path):
    """What an earlier version left if it was killed in its first moment."""
    for mode in ("WAL", "DELETE"):
        with contextlib.closing(sqlite3.connect(tmp_path / "study.sqlite")) as file:
            file.execute(f"PRAGMA journal_mode = {mode}")
            file.execute("VACUUM")
        with pytest.raises(ValueError, match="got: a file without tables"):
            Store.read(tmp_path)
        with Store.open(tmp_path, STUDY) as store:
            store.save("a", [row()])
        (tmp_path / "study.sqlite").unlink()


def test_damage_is_found(tmp_path):
    with Store.open(tmp_path, STUDY) as store:
        for number in range(100):
            store.save(f"{number}", [row(f"{number}/1", f"{number}")])
    path = tmp_path / "study.sqlite"
    whole = path.read_bytes()
    found = 0
    for page in range(1, len(whole) // 4096):
        path.write_bytes(whole[: page * 4096] + b"\x5a" * 4096 + whole[(page + 1) * 4096 :])
        with contextlib.suppress(ValueError), Store.open(tmp_path, STUDY):
            continue
        found += 1
    assert found == len(whole) // 4096 - 1
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="must be a study that expacc wrote; got: "):
        Store.open(tmp_path, STUDY)
    path.write_bytes(whole)
    with Store.open(tmp_path, STUDY) as store:
        assert len(store.rows()) == 100


@pytest.mark.parametrize(
    ("code", "kind", "sentence"),
    [
        (sqlite3.SQLITE_IOERR_WRITE, OSError, "must be on a disk that can be written"),
        (sqlite3.SQLITE_BUSY, BlockingIOError, "must not be held by another program"),
        (sqlite3.SQLITE_CANTOPEN, PermissionError, "must be a folder to write to"),
        (sqlite3.SQLITE_ERROR, ValueError, "must be a study that expacc wrote"),
    ],
)
def test_errors_of_sqlite_are_sentences(code, kind, sentence):
    error = sqlite3.OperationalError("what SQLite says")
    error.sqlite_errorcode = code
    found = store_error(error, Path("out/study.sqlite"))
    assert isinstance(found, kind)
    assert sentence in str(found)
    assert str(found).endswith(".")
