"""A store from nothing, or from what is there: accepted as a whole, or not touched."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from expacc.files import replace_file
from expacc.runner.columns import DIGESTS, ROW, to_json, to_row
from expacc.runner.digests import digests, digests_of, write_digests
from expacc.runner.store_errors import another_study, unreadable
from expacc.runner.store_files import (
    APPLICATION,
    VERSION,
    Connection,
    check_files,
    create_tables,
    delete_files,
    inspect,
)
from expacc.stored import check_shape, parse_json

__all__ = ["note_texts", "open_store", "put_notes"]


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
            raise another_study(path.parent, _settings(found, path), parse_json(settings))
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
        raise unreadable(path, f"{error}") from None
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
        raise unreadable(path, "settings that are not ours") from None
    return dict(settings)


def note_texts(notes: Mapping[str, Any]) -> dict[str, str]:
    """Notes as they lie in the store."""
    return {name: to_json(value) for name, value in notes.items()}


def put_notes(connection: Connection, texts: Mapping[str, str]) -> None:
    """Write notes and their digests, in a transaction of the caller's."""
    connection.executemany("REPLACE INTO notes VALUES (?, ?)", list(texts.items()))
    for name in texts:
        write_digests(connection, digests_of(connection, "notes", name))
