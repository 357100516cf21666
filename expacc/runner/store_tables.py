"""The tables of a store, made from nothing or accepted as a whole from what is there.

A digest of everything is kept, so that no bit of what decides an answer changes unnoticed.
"""

import contextlib
import hashlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from expacc.files import check_shape, parse_json, replace_file
from expacc.plain import UsageError
from expacc.runner.rows import ROW, to_json, to_row
from expacc.runner.store_files import (
    Connection,
    check_files,
    delete_files,
    other_study_error,
    unreadable_error,
)

APPLICATION = 0x45584143  # 'EXAC': tells our files from other SQLite files
VERSION = 2  # 1 had no digests
SCHEMA = """
CREATE TABLE study (settings TEXT NOT NULL);
CREATE TABLE notes (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE versions (number INTEGER PRIMARY KEY, packages TEXT NOT NULL UNIQUE);
CREATE TABLE items (
    key TEXT PRIMARY KEY, failure TEXT, details TEXT, seconds REAL NOT NULL, finished TEXT NOT NULL
);
CREATE TABLE rows (
    key TEXT PRIMARY KEY,
    item TEXT NOT NULL REFERENCES items (key) ON DELETE CASCADE,
    kind TEXT NOT NULL, "table" TEXT NOT NULL, loss TEXT NOT NULL, fold TEXT NOT NULL,
    noise REAL NOT NULL, seed INTEGER NOT NULL,
    numbers TEXT NOT NULL, metrics TEXT NOT NULL, curves TEXT NOT NULL,
    predictions BLOB, predictions_hash TEXT,
    seconds REAL NOT NULL, failure TEXT,
    versions INTEGER NOT NULL REFERENCES versions (number),
    CHECK (failure IS NULL OR (metrics = '{}' AND predictions IS NULL))
);
CREATE INDEX rows_of_item ON rows (item);
CREATE INDEX rows_of_table ON rows ("table", kind);
"""
DIGESTS = "CREATE TABLE digests (name TEXT PRIMARY KEY, digest TEXT NOT NULL)"  # since version 2
KEYS = {"notes": "name", "versions": "number"}
Named = tuple[str, str]  # 'row/KEY' → digest


def _digest(values: Sequence[Any]) -> str:
    """Of values as SQLite gives them back: text, bytes, numbers and None."""
    whole = hashlib.sha256()
    for value in values:
        data = value if isinstance(value, bytes) else repr(value).encode("utf-8", "surrogatepass")
        whole.update(f"{type(value).__name__} {len(data)}\n".encode())
        whole.update(data)
    return whole.hexdigest()


def digests(connection: sqlite3.Connection) -> Iterator[Named]:
    """Name and digest of all that is there, computed anew."""
    settings = connection.execute("SELECT settings FROM study").fetchall()
    yield "study", _digest([value for row in settings for value in row])
    for table in KEYS:
        yield from digests_of(connection, table)
    for (key,) in connection.execute("SELECT key FROM items NOT INDEXED").fetchall():
        yield from digests_of_item(connection, key)


def digests_of(
    connection: sqlite3.Connection, table: str, key: str | int | None = None
) -> Iterator[Named]:
    """Those of the notes or versions, or of the one with this key."""
    where = "" if key is None else f" WHERE {KEYS[table]} = ?"
    for row in connection.execute(f"SELECT * FROM {table}{where}", () if key is None else (key,)):
        yield f"{table}/{row[0]}", _digest(row)


def digests_of_item(connection: sqlite3.Connection, key: str) -> Iterator[Named]:
    """Those of an item's rows, and last its own, which covers them all: no row can get lost."""
    found = connection.execute("SELECT * FROM items WHERE key = ?", (key,)).fetchall()
    whole = [value for item in found for value in item]
    for row in connection.execute("SELECT * FROM rows WHERE item = ? ORDER BY key", (key,)):
        one = _digest(row)
        whole.append(one)
        yield f"row/{row[0]}", one
    yield f"item/{key}", _digest(whole)


def write_digests(connection: sqlite3.Connection, named: Iterator[Named]) -> None:
    """Keep them, in the transaction that wrote what they are of."""
    connection.executemany("REPLACE INTO digests VALUES (?, ?)", list(named))


def changed(connection: sqlite3.Connection) -> str | None:
    """What is not as it was saved, in words; None if everything is."""
    kept = dict(connection.execute("SELECT name, digest FROM digests").fetchall())
    seen = set()
    for name, digest in digests(connection):
        if kept.get(name) != digest:
            return f"{_words(name)} that is not as it was saved"
        seen.add(name)
    # Items may be deleted with their rows, to be done again; a row or a note by itself may not.
    lost = sorted(name for name in kept if name not in seen and str(name).startswith("notes/"))
    return f"no {_words(lost[0])}" if lost else None


def _words(name: str) -> str:
    kind, _, key = name.partition("/")
    return f"{kind.removesuffix('s')} {key!r:.200}" if key else "settings"


def tables_of(version: int) -> set[tuple[str, ...]]:
    """What the schema of a version holds, word for word."""
    with contextlib.closing(sqlite3.connect(":memory:")) as made:
        create_tables(made, version)
        return _tables(made)


def create_tables(connection: sqlite3.Connection, version: int = VERSION) -> None:
    """All that is there before the first value."""
    for statement in SCHEMA.split(";"):
        connection.execute(statement)
    if version > 1:
        connection.execute(DIGESTS)


def _tables(connection: sqlite3.Connection) -> set[tuple[str, ...]]:
    found = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema LIMIT 100")
    return {(kind, name, of, " ".join(str(sql or "").split())) for kind, name, of, sql in found}


def inspect(connection: sqlite3.Connection, path: Path) -> int:
    """The version of a store that is whole and holds what we wrote; 0 for a file without tables.

    Raises:
        ValueError: it is damaged, changed, of another program, or of a newer version.
    """
    tables = _tables(connection)
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if not tables and not version and application in (0, APPLICATION):
        return 0
    if application != APPLICATION:
        raise unreadable_error(path, "an SQLite file of another program")
    if version > VERSION:
        raise UsageError(
            f"{path} must have version {VERSION} or older; got {version}, written by a "
            f"newer expacc. Update expacc, or use another --out."
        )
    if version < 1 or tables != tables_of(version):
        raise unreadable_error(path, "tables, views or triggers that are not ours")
    ((verdict,), *_) = connection.execute("PRAGMA integrity_check(1)").fetchall()
    if verdict != "ok":
        raise unreadable_error(path, str(verdict))
    if connection.execute("PRAGMA foreign_key_check").fetchone() is not None:
        raise unreadable_error(path, "rows without an item")
    if version > 1 and (what := changed(connection)) is not None:
        raise unreadable_error(path, what)
    return int(version)


def open_store(path: Path, settings: str, notes: Mapping[str, str]) -> Connection:
    """A connection to the study of these settings, whole and with these notes."""
    if check_files(path, writing=True):
        connection = _accepted(path, settings, notes)
        if connection is not None:
            return connection
    delete_files(path)  # an empty file, or the log of a store that is gone: no part of a new one
    replace_file(path, lambda part: _create(part, settings, notes))
    return _writing(Connection.to(path))


def _accepted(path: Path, settings: str, notes: Mapping[str, str]) -> Connection | None:
    """The study that is there, if it is this one; None for a file without tables."""
    connection = Connection.to(path)
    try:
        version = inspect(connection, path)
        if not version:
            connection.close()
            return None
        found = connection.execute("SELECT settings FROM study").fetchall()
        if found != [(settings,)]:
            raise other_study_error(path.parent, _settings(found, path), parse_json(settings))
        _writing(connection)
        known = {name for (name,) in connection.execute("SELECT name FROM notes")}
        lacking = {name: text for name, text in notes.items() if name not in known}
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            if version < VERSION:
                _bring_up(connection, path)
            put_notes(connection, lacking)
    except BaseException:
        connection.close()
        raise
    return connection


def _bring_up(connection: Connection, path: Path) -> None:
    """Add the digests of a store of version 1, whose rows are good as far as one can tell."""
    try:
        for columns in connection.execute(f"SELECT {ROW} FROM rows"):
            to_row(columns)
    except ValueError as error:
        raise unreadable_error(path, f"{error}") from None
    connection.execute(DIGESTS)
    write_digests(connection, digests(connection))
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _create(path: Path, settings: str, notes: Mapping[str, str]) -> None:
    """A store that nobody sees before it is whole."""
    connection = _writing(Connection.to(path))
    try:
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            create_tables(connection)
            connection.execute("INSERT INTO study VALUES (?)", (settings,))
            put_notes(connection, notes)
            write_digests(connection, digests(connection))
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        # All of it in the one file that is moved into place; closing would not say if it failed.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.close()


def _writing(connection: Connection) -> Connection:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")  # a commit returns when the disk has it
    return connection


def _settings(found: list[tuple[Any, ...]], path: Path) -> dict[str, Any]:
    try:
        ((text,),) = found
        settings = parse_json(text)
        check_shape(settings, dict, "settings")
    except (ValueError, TypeError):
        raise unreadable_error(path, "settings that are not ours") from None
    return dict(settings)


def note_texts(notes: Mapping[str, Any]) -> dict[str, str]:
    """Notes as they lie in the store."""
    return {name: to_json(value) for name, value in notes.items()}


def put_notes(connection: Connection, texts: Mapping[str, str]) -> None:
    """Write notes and their digests, in a transaction of the caller's."""
    connection.executemany("REPLACE INTO notes VALUES (?, ?)", list(texts.items()))
    for name in texts:
        write_digests(connection, digests_of(connection, "notes", name))
