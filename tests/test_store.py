"""The store: what goes in comes out, and what cannot be kept gets one sentence."""

import contextlib
import dataclasses
import math
import os
import sqlite3
import tempfile
from pathlib import Path

import numpy as np
import pytest

from expacc.runner.items import versions
from expacc.runner.rows import Predictions, Row
from expacc.runner.store import Store
from expacc.runner.store_files import store_error

STUDY = {"losses": ["leaky", "cross_entropy"], "search": {"trials": 20, "seed": 0}}


def row(key="a/1", item="a", **more):
    more = {"metrics": {"accuracy": 0.1 + 0.2}, **more}
    return Row(key, item, "final", "iris", "leaky", "1a", **more)


def predictions():
    return Predictions(
        np.array([4, 2], np.int32),
        np.array([0, 1], np.int32),
        np.array([0.25, 1.0], np.float32),
        np.array([0.25, 0.0], np.float32),
    )


FULL = row(
    noise=0.2,
    seed=3,
    numbers={"learning_rate": 0.1, "hidden": [8, 8], "kind": None},
    metrics={"accuracy": 1 / 3, "log_loss": 5e-324},
    curves={"train_accuracy": (0.5, 1 / 3)},
    predictions=predictions(),
    seconds=1.5,
)


def test_a_row_comes_back_as_it_was(tmp_path):
    with Store.open(tmp_path, STUDY) as store:
        store.save("a", [FULL])
        store.save("b", [row("b/1", "b")])
        hashes = store._select("SELECT predictions_hash FROM rows ORDER BY key")
    with Store.open(tmp_path, STUDY) as store:
        found, _ = store.rows()
    alone = [dataclasses.replace(each, predictions=None) for each in (found, FULL)]
    assert alone[0] == alone[1]
    assert hashes == [(found.predictions.digest(),), (None,)]
    assert found.predictions.digest() == FULL.predictions.digest()
    assert found.predictions.to_bytes() == FULL.predictions.to_bytes()


def test_rows_come_in_the_order_of_their_keys(tmp_path):
    with Store.open(tmp_path, STUDY) as store:
        store.save("b", [row("b/2", "b"), row("b/1", "b", predictions=predictions())])
        other = Row("a/1", "a", "trial", "wine", "leaky", "1a", metrics={"validation_accuracy": 1})
        store.save("a", [other])
        assert [found.key for found in store.rows()] == ["a/1", "b/1", "b/2"]
        assert store.rows()[1].predictions is not None
        assert store.rows(predictions=False)[1].predictions is None


def test_numpy_numbers_are_numbers_and_a_curve_may_end_in_nan(tmp_path):
    numbers = {"leak": np.float32(0.5), "steps": np.int64(3), "on": np.bool_(True)}
    curves = {"loss": (1.0, math.inf, math.nan)}
    with Store.open(tmp_path, STUDY) as store:
        store.save("a", [row(metrics={"accuracy": np.float32(0.5)}, numbers=numbers)])
        store.save("b", [row("b/1", "b", metrics={}, curves=curves, failure="diverged")])
        found, failed = store.rows()
    assert found.numbers == {"leak": 0.5, "steps": 3, "on": True}
    assert found.metrics == {"accuracy": 0.5}
    assert failed.failure == "diverged"
    np.testing.assert_array_equal(failed.curves["loss"], curves["loss"])


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ([row(metrics={"accuracy": math.nan})], "accuracy of row 'a/1' must be finite; got nan"),
        ([row(metrics={"log_loss": math.inf})], "log_loss of row 'a/1' must be finite; got inf"),
        ([row(failure="diverged")], "must be empty, because it failed (diverged); got some"),
        ([row(metrics={}, predictions=predictions(), failure="x")], "must be empty, because"),
        ([row(metrics={})], "must not be empty without a failure; got none"),
        ([row(metrics={}, failure=" ")], "failure of row 'a/1' must say why"),
        ([row(), row()], "key of row 'a/1' must be unique; got it twice in item 'a'"),
        ([row(item="b")], "item of row 'a/1' must be 'a'; got 'b'"),
        ([], "rows of item 'a' must be at least one; got none"),
    ],
)
def test_a_bad_row_is_refused_with_its_item(tmp_path, bad, sentence):
    with Store.open(tmp_path, STUDY) as store:
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            store.save("a", [row("a/0"), *bad] if bad else bad)
        assert sentence in str(caught.value)
        assert store.done_items() == set()
        assert store.rows() == []


def test_what_is_no_row_is_refused_by_the_store_or_its_file(tmp_path):
    with Store.open(tmp_path, STUDY) as store:
        with pytest.raises(TypeError, match="rows of item 'a' must be a list of Row; got str"):
            store.save("a", "row")
        with pytest.raises(TypeError, match="must be what JSON can hold; got set"):
            store.save("a", [row(numbers={"x": {1}})])
        assert store.done_items() == set()
        store.save("a", [row()])
        with pytest.raises(sqlite3.IntegrityError):
            store._connection.execute("UPDATE rows SET failure = 'diverged'")


def test_an_item_is_saved_once(tmp_path):
    with Store.open(tmp_path, STUDY) as store:
        store.save("a", [row()])
        with pytest.raises(ValueError, match="item 'a' must be new, with new rows; got: UNIQUE"):
            store.save("a", [row("a/2")])
        with pytest.raises(ValueError, match="item 'b' must be new, with new rows"):
            store.save("b", [row("b/1", "b"), row("a/1", "b")])
        assert store.done_items() == {"a"}
        assert [found.key for found in store.rows()] == ["a/1"]


def test_versions_are_kept_once(tmp_path):
    with Store.open(tmp_path, STUDY) as store:
        for key in "abc":
            store.save(key, [row(f"{key}/1", key)])
        assert store.made_with() == [dict(versions())]
        store.save("d", [row("d/1", "d")], made_with={"torch": "3.0"})
        assert store.made_with() == [dict(versions()), {"torch": "3.0"}]
    assert {"expacc", "torch", "numpy", "python", "platform"} <= set(versions())


def test_notes_and_settings(tmp_path):
    with Store.open(tmp_path, STUDY) as store:
        store.set_note("planned", {"runs": 3})
        store.set_note("planned", {"runs": 4})
        store.set_note("command", "expacc compare iris.csv")
        assert store.notes() == {"planned": {"runs": 4}, "command": "expacc compare iris.csv"}
    with Store.read(tmp_path) as store:
        assert store.study() == STUDY


# Reading beside a writer


def test_a_reader_sees_what_is_saved_while_another_writes(tmp_path):
    with Store.open(tmp_path, STUDY) as writer:
        with Store.read(tmp_path) as reader:
            assert reader.is_running()
            assert reader.rows() == []
            writer.save("a", [row()])
            assert [found.key for found in reader.rows()] == ["a/1"]
            with pytest.raises(PermissionError):
                reader.set_note("x", 1)
        writer.save("b", [row("b/1", "b")])
    with Store.read(tmp_path) as reader:
        assert not reader.is_running()
        assert len(reader.rows()) == 2
        reader.check()


def test_any_name_of_a_folder_will_do(tmp_path):
    folder = tmp_path / "a b?mode=ro#c%20d" / "ä"
    with Store.open(folder, STUDY) as store:
        store.save("a", [row()])
    assert (folder / "study.sqlite").is_file()
    with Store.read(folder) as store:
        assert len(store.rows()) == 1
    with pytest.raises(FileNotFoundError, match=r"must be the folder of a study; it has no file"):
        Store.read(tmp_path)


# Two studies in one folder


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (
            {**STUDY, "search": {"trials": 50, "seed": 0}},
            "search.trials is 20 there and 50 here. Use another --out, or --overwrite to delete",
        ),
        (
            {**STUDY, "search": {"trials": 20}},
            "search.seed is 0 there and not set here.",
        ),
        (
            {"losses": ["leaky"], "noise": 0.2, "search": STUDY["search"]},
            'losses is ["leaky", "cross_entropy"] there and ["leaky"] here (and 1 more settings)',
        ),
        ({**STUDY, "search": {"trials": 20.0, "seed": 0}}, "search.trials is 20 there and 20.0"),
    ],
)
def test_another_study_is_refused_by_the_setting_that_differs(tmp_path, other, sentence):
    with Store.open(tmp_path, STUDY) as store:
        store.save("a", [row()])
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        Store.open(tmp_path, other)
    assert str(caught.value).startswith(f"{tmp_path} must hold the same study; ")
    assert sentence in str(caught.value)
    with Store.open(tmp_path, STUDY) as store:  # unharmed, and not locked
        assert len(store.rows()) == 1


def test_a_study_goes_on_whatever_the_order_of_its_settings_or_begins_anew(tmp_path):
    with Store.open(tmp_path, STUDY) as store:
        store.save("a", [row()])
    with Store.open(tmp_path, dict(reversed(STUDY.items()))) as store:
        assert len(store.rows()) == 1
    with Store.open(tmp_path, {"losses": []}, resume=False) as store:
        assert store.rows() == []
        assert store.study() == {"losses": []}


def test_two_writers_are_one_too_many(tmp_path, monkeypatch):
    monkeypatch.setattr("expacc.runner.store_files.PATIENCE", 0.1)
    with Store.open(tmp_path, STUDY):
        with pytest.raises(BlockingIOError) as caught:
            Store.open(tmp_path, STUDY)
        with pytest.raises(BlockingIOError):
            Store.open(tmp_path, {}, resume=False)  # fresh must not delete what another writes
    message = f"must not be in use by another study; got one that runs as process {os.getpid()} on"
    assert message in str(caught.value)
    Store.open(tmp_path, STUDY).close()


def test_the_file_is_written_to_survive(tmp_path):
    with Store.open(tmp_path, STUDY) as store:
        assert store._select("PRAGMA journal_mode") == [("wal",)]
        assert store._select("PRAGMA synchronous") == [(2,)]
        assert store._select("PRAGMA foreign_keys") == [(1,)]


# Disks and files that will not do: one sentence each, and nothing saved is lost


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
