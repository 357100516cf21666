"""Stores that were damaged or made by someone else: the same answer, or one sentence."""

import contextlib
import json
import sqlite3
import zlib

import numpy as np
import pytest
from crafted import NASTY, as_version_1, changing, flipped, make_study, mutated, seeded, told

from expacc.cli import main
from expacc.compare.page import write_report
from expacc.compare.study import run_study
from expacc.runner.rows import Predictions
from expacc.runner.store import Store


@pytest.fixture(scope="module")
def study_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("crafted") / "study"
    return make_study(folder), folder


@pytest.fixture(scope="module")
def folder(study_folder):
    return study_folder[1]


@pytest.fixture(scope="module")
def truth(folder):
    found = told(folder)
    assert isinstance(found, tuple), found
    return found


def refused(found):
    assert isinstance(found, str), "it was not refused"
    return found


# (a) Damage


@pytest.mark.parametrize("part", range(5))
def test_no_flipped_bit_changes_the_answer(folder, truth, tmp_path, part):
    generator, refusals = seeded(part), 0
    for _ in range(60):
        data = flipped((folder / "study.sqlite").read_bytes(), generator)
        (tmp_path / "study.sqlite").write_bytes(data)
        found = told(tmp_path)
        assert found == truth or isinstance(found, str)
        refusals += isinstance(found, str)
    assert refusals > 10  # it is not all empty pages


@pytest.mark.parametrize("where", ["rows", "items", "notes", "versions", "study", "digests"])
def test_no_flipped_bit_of_a_value_changes_the_answer(folder, truth, tmp_path, where):
    """As above, but every flip hits a value, and the file is in order."""
    generator = seeded(where)
    with changing(tmp_path, sealed=False, source=folder) as file:
        names = [row[1] for row in file.execute(f"PRAGMA table_info({where})")]
        keys = [key for (key,) in file.execute(f"SELECT rowid FROM {where}")]
    for _ in range(25):
        name, key = generator.choice(names), generator.choice(keys)
        with changing(tmp_path, sealed=False, source=folder) as file:
            query = f'SELECT CAST("{name}" AS BLOB) FROM {where} WHERE rowid = ?'
            data = flipped(file.execute(query, (key,)).fetchone()[0] or b"x", generator)
            kind = "BLOB" if name == "predictions" else "TEXT"
            change = f'UPDATE {where} SET "{name}" = CAST(? AS {kind}) WHERE rowid = ?'
            with contextlib.suppress(sqlite3.IntegrityError):
                file.execute(change, (data, key))
        found = told(tmp_path)
        assert found == truth or isinstance(found, str)


def test_a_changed_accuracy_is_refused_by_the_name_of_its_row(folder, tmp_path):
    for sealed in (True, False):
        with changing(tmp_path, sealed=sealed, source=folder) as file:
            query = "SELECT key, metrics FROM rows WHERE kind = 'final' ORDER BY key LIMIT 1"
            key, metrics = file.execute(query).fetchone()
            better = json.dumps({**json.loads(metrics), "accuracy": 0.999})
            file.execute("UPDATE rows SET metrics = ? WHERE key = ?", (better, key))
        assert repr(key) in refused(told(tmp_path))


def change_predictions(file, change):
    """Give the predictions of one row other numbers, and the digest that they then have."""
    query = "SELECT key, predictions FROM rows WHERE kind = 'final' AND predictions NOT NULL"
    key, blob = file.execute(query).fetchone()
    parts = {name: np.array(values) for name, values in vars(Predictions.from_bytes(blob)).items()}
    change(parts)
    other = Predictions(**parts)
    values = (other.to_bytes(), other.digest(), key)
    file.execute("UPDATE rows SET predictions = ?, predictions_hash = ? WHERE key = ?", values)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("what", ["predictions", "predictions_hash", "labels", "fold", "loss"])
def test_what_decides_is_checked_against_the_rest(folder, tmp_path, what, version):
    with changing(tmp_path, source=folder) as file:
        if what == "predictions":
            change_predictions(file, lambda said: said.update(predicted=2 - said["predicted"]))
        elif what == "labels":
            (text,) = file.execute("SELECT value FROM notes WHERE name = 'tables'").fetchone()
            tables = json.loads(text)
            tables[0]["labels"][7] = 2
            file.execute("UPDATE notes SET value = ? WHERE name = 'tables'", (json.dumps(tables),))
        else:
            other = {"fold": "1' || '", "loss": "exact", "predictions_hash": "0" * 64}[what]
            some = "SELECT key FROM rows WHERE kind = 'final' AND predictions NOT NULL LIMIT 1"
            file.execute(f"UPDATE rows SET {what} = ? WHERE key = ({some})", (other,))
    if version == 1:
        as_version_1(tmp_path)
    assert "row '" in refused(told(tmp_path))


def test_a_lost_row_is_noticed(folder, tmp_path):
    with changing(tmp_path, sealed=False, source=folder) as file:
        file.execute("DELETE FROM rows WHERE key = (SELECT max(key) FROM rows)")
    assert "item 'iris|0|" in refused(told(tmp_path))
    with changing(tmp_path, sealed=False, source=folder) as file:
        file.execute("DELETE FROM notes WHERE name = 'tables'")
    assert "no note 'tables'" in refused(told(tmp_path))


# Older stores


def test_a_store_of_version_1_is_read_and_goes_on(study_folder, truth, tmp_path):
    study, folder = study_folder
    with changing(tmp_path, sealed=False, source=folder):
        pass
    as_version_1(tmp_path)
    assert told(tmp_path) == truth
    with Store.read(tmp_path) as store:
        store.check()
        assert store._select("PRAGMA user_version") == [(1,)]  # reading changes nothing
    with changing(tmp_path, sealed=False) as file:
        file.execute("DELETE FROM rows WHERE item LIKE '%|2'")
        file.execute("DELETE FROM items WHERE key LIKE '%|2'")
    run_study(study, tmp_path, workers=0, progress=False, command="expacc compare iris")
    with Store.read(tmp_path) as store:
        store.check()
        assert store._select("PRAGMA user_version") == [(2,)]
    assert json.loads(told(tmp_path)[0])["answer"] == json.loads(truth[0])["answer"]


# (b) Made by someone else


SCHEMES = {
    "a view": "CREATE VIEW extra AS SELECT 1",
    "a view in place of a table": "DROP TABLE notes; "
    "CREATE VIEW notes AS SELECT 'a' AS name, '1' AS value",
    "a view that never ends": "DROP TABLE notes; CREATE VIEW notes AS WITH RECURSIVE n(x) AS "
    "(SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS name, '1' AS value FROM n",
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON items BEGIN DELETE FROM rows; END",
    "another table": "CREATE TABLE extra (x)",
    "a virtual table": "CREATE VIRTUAL TABLE extra USING fts5(x)",
    "an index with an expression": "CREATE INDEX extra ON rows (length(key))",
    "a generated column": "ALTER TABLE notes ADD COLUMN more AS (hex(zeroblob(1e8)))",
    "a column more": "ALTER TABLE rows ADD COLUMN more TEXT DEFAULT 'x'",
    "a column less": "ALTER TABLE items DROP COLUMN details",
    "a table without its checks": "ALTER TABLE notes RENAME TO old; "
    "CREATE TABLE notes AS SELECT * FROM old; DROP TABLE old",
    "no table": "DROP TABLE digests",
    "version 0": "PRAGMA user_version = 0",
    "a negative version": "PRAGMA user_version = -5",
    "version 1 with digests": "PRAGMA user_version = 1",
    "two studies": "INSERT INTO study SELECT * FROM study",
    "no study": "DELETE FROM study",
    "rows without items": "PRAGMA foreign_keys = OFF; DELETE FROM items",
    "statistics": "ANALYZE",
}


@pytest.mark.parametrize("writing", [False, True], ids=["read", "written"])
@pytest.mark.parametrize("kind", SCHEMES)
def test_tables_that_are_not_ours_are_refused(study_folder, tmp_path, kind, writing):
    study, folder = study_folder
    with changing(tmp_path, sealed=False, source=folder) as file:
        file.executescript(SCHEMES[kind])
    before = (tmp_path / "study.sqlite").read_bytes()
    if writing:
        with pytest.raises(ValueError, match=r"must (be a study|hold the same)"):
            run_study(study, tmp_path, workers=0, progress=False)
        assert (tmp_path / "study.sqlite").read_bytes() == before
    else:
        refused(told(tmp_path))


def test_tables_that_lead_round_in_circles_are_refused(folder, monkeypatch):
    """Should the check of the structure miss it, the steps are counted."""
    monkeypatch.setattr("expacc.runner.store_files.STEPS", 1)
    monkeypatch.setattr("expacc.runner.store_files.A_BYTE", 0)
    assert "take longer to read" in refused(told(folder))


@pytest.mark.parametrize("column", ["key", "numbers", "metrics", "curves", "failure", "seconds"])
def test_values_of_another_type_are_refused(folder, truth, tmp_path, column):
    values = ("CAST(X'ff' AS TEXT)", "X'00ff'", "1e999", "-1", "''", "'[' || hex(zeroblob(99))")
    for value in (*values, "replace(hex(zeroblob(50000)), '0', '[')"):
        with changing(tmp_path, sealed=False, source=folder) as file:
            with contextlib.suppress(sqlite3.IntegrityError):
                file.execute(f"UPDATE rows SET {column} = {value} WHERE rowid = 3")
            with contextlib.suppress(sqlite3.OperationalError):  # bytes that Python cannot decode
                file.execute("DELETE FROM digests")
                file.execute("DROP TABLE digests")
                file.execute("PRAGMA user_version = 1")
        found = told(tmp_path)
        assert found == truth or isinstance(found, str)


def test_bytes_that_unpack_without_end_are_refused(folder, tmp_path):
    bomb = zlib.compressobj(9)
    data = bomb.compress(b'{"count": 134217728}\n')
    block = bytes(1 << 20)
    data += b"".join(bomb.compress(block) for _ in range(64))  # 64 MB in 64 kB; 2 GB are alike
    data += bomb.flush()
    with pytest.raises(ValueError, match="these bytes are damaged"):
        Predictions.from_bytes(data)
    with changing(tmp_path, source=folder) as file:
        file.execute("UPDATE rows SET predictions = ? WHERE rowid = 3", (data,))
    assert "predictions of row" in refused(told(tmp_path))


def test_a_value_too_long_to_hold_is_refused(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("expacc.runner.store_files.LONGEST", 1 << 20)
    with changing(tmp_path, source=folder) as file:
        file.execute("UPDATE rows SET curves = hex(zeroblob(700000)) WHERE rowid = 3")
    refused(told(tmp_path))
    monkeypatch.setattr("expacc.runner.store_files.LARGEST", 1 << 20)
    assert "bytes" in refused(told(tmp_path))


def test_predictions_beyond_the_table_are_refused(folder, tmp_path):
    for name, value in (("rows", 150), ("rows", -1), ("predicted", 3), ("predicted", -1)):
        with changing(tmp_path, source=folder) as file:
            change_predictions(file, lambda said: said[name].put(0, value))  # noqa: B023
        assert "must be of rows and classes of its table" in refused(told(tmp_path))


PLACES = ("study.settings", "notes.value", "rows.numbers", "rows.metrics", "rows.curves",
          "versions.packages")  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_no_json_is_a_bug(folder, tmp_path, capsys, place):
    """Values of any shape, by someone who makes the digests again: an answer or one sentence."""
    generator = seeded(place)
    table, column = place.split(".")
    for _ in range(40):
        with changing(tmp_path, source=folder) as file:
            found = file.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
            rowid, text = generator.choice(found)
            value = mutated(json.loads(text), generator)
            change = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"
            with contextlib.suppress(sqlite3.IntegrityError):
                file.execute(change, (json.dumps(value), rowid))
        code = main(["show", str(tmp_path), "--json"])
        captured = capsys.readouterr()
        assert code in (0, 2), captured.err
        assert len(captured.err.splitlines()) == (code == 2)


@pytest.mark.parametrize("column", ["item", "kind", "table", "loss", "fold", "noise", "seed"])
def test_no_column_is_a_bug(folder, tmp_path, capsys, column):
    values = [value for value in NASTY if isinstance(value, str | int | float)]
    for value in values:
        with changing(tmp_path, source=folder) as file:
            file.execute("PRAGMA foreign_keys = OFF")
            with contextlib.suppress(sqlite3.IntegrityError, OverflowError, UnicodeEncodeError):
                file.execute(f'UPDATE rows SET "{column}" = ? WHERE rowid = 3', (value,))
        assert main(["show", str(tmp_path)]) in (0, 2)
    capsys.readouterr()


def test_a_study_that_is_read_gets_its_report(folder, tmp_path):
    """What passes the checks can be drawn: the largest and smallest values that do."""
    from expacc.compare.study import load_record

    with changing(tmp_path, source=folder) as file:
        file.execute("UPDATE rows SET seconds = 1e12, curves = '{}' WHERE rowid = 1")
        curves = json.dumps({"validation_accuracy": [0.0, 1.0]})
        file.execute("UPDATE rows SET curves = ? WHERE kind = 'final'", (curves,))
        file.execute("UPDATE notes SET value = '1e12' WHERE name = 'seconds'")
    write_report(load_record(tmp_path), tmp_path)
