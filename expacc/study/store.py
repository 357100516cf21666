"""The rows of a study on disk: what was reported as saved is never lost.

One SQLite file in write-ahead mode. A transaction holds all rows of one work item and returns when
the disk has it, so that killing any process at any moment leaves whole items only.
"""

import datetime
import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from expacc.study.columns import PLAIN, SCHEMA, to_columns, to_json, to_row
from expacc.study.items import check_rows, versions
from expacc.study.lock import Lock, is_locked
from expacc.study.rows import Row
from expacc.study.store_refusals import another_study, refused, unreadable

__all__ = ["FILE", "Store"]

FILE, LOCK = "study.sqlite", "study.lock"
APPLICATION = 0x45584143  # 'EXAC': tells our files from other SQLite files
SCHEMA_VERSION = 1
PATIENCE = 30.0  # seconds to wait for a reader that holds the file


class Store:
    """The rows of one study. Made by ``Store.open`` to write, by ``Store.read`` to look.

    Use it as a context manager, or call ``close``.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: Lock | None) -> None:
        self.path, self._connection, self._lock = path, connection, lock

    @classmethod
    def open(cls, folder: str | Path, study: Mapping[str, Any], *, resume: bool = True) -> "Store":
        """Open the study of ``folder`` for writing, or begin one.

        Args:
            folder: created if there is none.
            study: the settings that decide the results, as JSON would hold them.
            resume: False begins anew and deletes the rows that are there.

        Raises:
            ValueError: the folder holds another study, or a file that cannot be read.
            OSError: another process writes there, or the disk is full or read-only.
        """
        path = Path(folder) / FILE
        settings = to_json(study)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = Lock.take(path.with_name(LOCK))
        except OSError as error:
            raise refused(error, path) from error
        connection = None
        try:
            if not resume:
                for end in ("", "-wal", "-shm"):
                    path.with_name(path.name + end).unlink(missing_ok=True)
            connection = _connect(f"file:{quote(str(path.absolute()))}")
            _prepare(connection, path, settings)
        except (sqlite3.Error, OSError, ValueError) as error:
            if connection is not None:
                connection.close()
            lock.release()
            raise refused(error, path) from error
        return cls(path, connection, lock)

    @classmethod
    def read(cls, folder: str | Path) -> "Store":
        """Open the study of ``folder`` for reading, also while another process writes it.

        Raises:
            FileNotFoundError: there is no study.
            ValueError: the file is not a study, or is damaged.
        """
        path = Path(folder) / FILE
        if not path.is_file():
            raise FileNotFoundError(
                f"{folder} must be the folder of a study; it has no file {FILE}. "
                f"Begin one with expacc compare."
            )
        where = f"file:{quote(str(path.absolute()))}?mode=ro"
        connection = None
        try:
            connection = _connect(where)
            try:
                connection.execute("SELECT count(*) FROM sqlite_schema")
            except sqlite3.OperationalError:
                if path.with_name(path.name + "-wal").exists():
                    raise
                # A folder we may not write to, and no writer: nothing can change under us.
                connection.close()
                connection = _connect(where + "&immutable=1")
            _check_kind(connection, path)
            if not connection.execute("PRAGMA user_version").fetchone()[0]:
                raise unreadable(path, "a file without tables")
        except (sqlite3.Error, ValueError) as error:
            if connection is not None:
                connection.close()
            raise refused(error, path) from error
        return cls(path, connection, None)

    def close(self) -> None:
        """Close the file and let others write."""
        self._connection.close()
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def save(
        self,
        item: str,
        rows: Sequence[Row],
        *,
        failure: str | None = None,
        details: str | None = None,
        seconds: float = 0.0,
        made_with: Mapping[str, str] | None = None,
    ) -> None:
        """Write the rows of a finished item; on return they are on the disk for good.

        Args:
            item: its key.
            rows: all of them, with scores that are finite or with a failure.
            failure: why the item as a whole failed; its rows say so too.
            details: a traceback.
            seconds: the time it took.
            made_with: the versions where it was carried out; this process's if not given.

        Raises:
            ValueError: a row is not as it must be, or the item or a row is there already.
            OSError: the disk is full or the like; nothing of the item is written.
        """
        check_rows(item, rows)
        made = to_json(made_with or versions())
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        try:
            with self._connection as connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(
                    "INSERT INTO items VALUES (?, ?, ?, ?, ?)",
                    (item, failure, details, seconds, now),
                )
                connection.execute("INSERT OR IGNORE INTO versions (packages) VALUES (?)", (made,))
                (number,) = connection.execute(
                    "SELECT number FROM versions WHERE packages = ?", (made,)
                ).fetchone()
                connection.executemany(
                    f"INSERT INTO rows VALUES ({', '.join('?' * 16)})",
                    [(*to_columns(row), number) for row in rows],
                )
        except sqlite3.IntegrityError as error:
            raise ValueError(f"item {item!r} must be new, with new rows; got: {error}.") from error
        except sqlite3.Error as error:
            raise refused(error, self.path) from error

    def done_items(self) -> set[str]:
        """The keys of the items that are saved, failed ones among them."""
        return {key for (key,) in self._select("SELECT key FROM items")}

    def failed_items(self) -> dict[str, str]:
        """The items that failed as a whole: key → reason, and a traceback where there is one."""
        found = self._select(
            "SELECT key, failure, details FROM items WHERE failure IS NOT NULL ORDER BY key"
        )
        return {key: "\n".join(filter(None, (reason, more))) for key, reason, more in found}

    def forget_failed_items(self) -> int:
        """Delete the items that failed as a whole, to try them again; how many there were."""
        try:
            with self._connection as connection:
                return connection.execute("DELETE FROM items WHERE failure IS NOT NULL").rowcount
        except sqlite3.Error as error:
            raise refused(error, self.path) from error

    def rows(
        self, *, kind: str | None = None, table: str | None = None, predictions: bool = True
    ) -> list[Row]:
        """The rows in the order of their keys, whatever the order in which they came.

        Args:
            kind: only those of this kind: 'trial', 'final' or 'outside'.
            table: only those of this table.
            predictions: False leaves predictions and curves out, which are nearly all of the bytes.
        """
        wanted = [("kind", kind), ('"table"', table)]
        chosen = [(column, value) for column, value in wanted if value is not None]
        where = " AND ".join(f"{column} = ?" for column, _ in chosen) or "TRUE"
        heavy = "curves, predictions" if predictions else "'{}', NULL"
        found = self._select(
            f"SELECT {PLAIN}, {heavy} FROM rows WHERE {where} ORDER BY key",
            tuple(value for _, value in chosen),
        )
        return [to_row(columns) for columns in found]

    def study(self) -> dict[str, Any]:
        """The settings that the study was begun with."""
        ((settings,),) = self._select("SELECT settings FROM study")
        return dict(json.loads(settings))

    def made_with(self) -> list[dict[str, str]]:
        """The sets of versions that rows were made with; one, unless something was updated."""
        return [
            json.loads(text)
            for (text,) in self._select("SELECT packages FROM versions ORDER BY number")
        ]

    def set_note(self, name: str, value: Any) -> None:
        """Keep a value that JSON can hold, in place of the one of that name."""
        try:
            with self._connection as connection:
                connection.execute("REPLACE INTO notes VALUES (?, ?)", (name, to_json(value)))
        except sqlite3.Error as error:
            raise refused(error, self.path) from error

    def notes(self) -> dict[str, Any]:
        """All notes by name."""
        return {
            name: json.loads(value) for name, value in self._select("SELECT name, value FROM notes")
        }

    def is_running(self) -> bool:
        """Whether some process writes this study at the moment."""
        return self._lock is not None or is_locked(self.path.with_name(LOCK))

    def check(self) -> None:
        """Read the whole file and raise ValueError if anything in it is damaged."""
        ((verdict,), *_) = self._select("PRAGMA integrity_check(1)")
        strays = self._select("PRAGMA foreign_key_check")
        if verdict != "ok" or strays:
            raise unreadable(self.path, verdict if verdict != "ok" else "rows without an item")

    def _select(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise refused(error, self.path) from error


def _connect(where: str) -> sqlite3.Connection:
    connection = sqlite3.connect(where, uri=True, timeout=PATIENCE, isolation_level=None)
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _prepare(connection: sqlite3.Connection, path: Path, settings: str) -> None:
    """Create the tables, or see that those there are of the same study."""
    if path.stat().st_size:  # before anything is written to a file that may be another's
        _check_kind(connection, path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")  # a commit returns when the disk has it
    ((verdict,), *_) = connection.execute("PRAGMA quick_check(1)").fetchall()
    if verdict != "ok":
        raise unreadable(path, verdict)
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        if not connection.execute("PRAGMA user_version").fetchone()[0]:
            for statement in SCHEMA.split(";"):
                connection.execute(statement)
            connection.execute("INSERT INTO study VALUES (?)", (settings,))
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    (found,) = connection.execute("SELECT settings FROM study").fetchone()
    if found != settings:
        raise another_study(path.parent, json.loads(found), json.loads(settings))


def _check_kind(connection: sqlite3.Connection, path: Path) -> None:
    """Raise unless the file is a study that this version reads."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION and tables:
        raise unreadable(path, "an SQLite file of another program")
    if version > SCHEMA_VERSION:
        raise ValueError(
            f"{path} must have version {SCHEMA_VERSION} or older; got {version}, written by a "
            f"newer expacc. Update expacc, or use another --out."
        )
