"""The rows of a study on disk: what was reported as saved is never lost.

One SQLite file in write-ahead mode. A transaction holds all rows of one work item and returns when
the disk has it, so that killing any process at any moment leaves whole items only.
"""

import datetime
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from expacc.files import check_shape, parse_json
from expacc.runner.items import check_rows, versions
from expacc.runner.rows import PLAIN, Row, to_columns, to_json, to_row
from expacc.runner.store_files import FILE as FILE
from expacc.runner.store_files import (
    LOCK,
    Connection,
    Lock,
    Parts,
    check_files,
    delete_files,
    delete_parts,
    is_locked,
    store_error,
    unreadable_error,
)
from expacc.runner.store_tables import (
    digests_of,
    digests_of_item,
    inspect,
    note_texts,
    open_store,
    put_notes,
    write_digests,
)


class Store:
    """The rows of one study. Made by ``Store.open`` to write, by ``Store.read`` to look.

    Use it as a context manager, or call ``close``.
    """

    def __init__(
        self, path: Path, connection: Connection, lock: Lock | None, settings: str = ""
    ) -> None:
        self.path, self._connection, self._lock = path, connection, lock
        self.parts = Parts(path.parent, settings)

    @classmethod
    def open(
        cls,
        folder: str | Path,
        study: Mapping[str, Any],
        *,
        resume: bool = True,
        notes: Mapping[str, Any] | None = None,
    ) -> "Store":
        """Open the study of ``folder`` for writing, or begin one.

        A new study appears in one moment, with its settings and notes; until it is accepted,
        nothing of what lies in the folder is changed.

        Args:
            folder: created if there is none.
            study: the settings that decide the results, as JSON would hold them.
            resume: False begins anew and deletes the rows that are there.
            notes: what the study must have from its first moment; those that it has stay.

        Raises:
            ValueError: the folder holds another study, or a file that cannot be read.
            OSError: another process writes there, or the disk is full or read-only.
        """
        path = Path(folder) / FILE
        settings, texts = to_json(study), note_texts(notes or {})
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if resume:
                check_files(path, writing=True)
            lock = Lock.take(path.with_name(LOCK))
        except OSError as error:
            raise store_error(error, path) from error
        connection = None
        try:
            if not resume:
                delete_files(path)
                delete_parts(path.parent)
            connection = open_store(path, settings, texts)
            lock.sign()
        except BaseException as error:
            if connection is not None:
                connection.close()
            lock.release()
            if isinstance(error, sqlite3.Error | OSError | UnicodeError):
                raise store_error(error, path) from error
            raise
        return cls(path, connection, lock, settings)

    @classmethod
    def read(cls, folder: str | Path) -> "Store":
        """Open the study of ``folder`` for reading, also while another process writes it.

        Raises:
            FileNotFoundError: there is no study.
            ValueError: the file is not a study, or is damaged.
        """
        path = Path(folder) / FILE
        connection = None
        try:
            if not check_files(path, writing=False):
                raise FileNotFoundError(
                    f"{folder} must be the folder of a study; it has no file {FILE}. "
                    f"Begin one with expacc compare."
                )
            # Who may write tidies up: the last to close deletes the log, as SQLite sees to.
            alone = path.stat().st_nlink == 1
            connection = Connection.to(path, "mode=rw" if alone else "mode=ro")
            connection.execute("PRAGMA query_only = ON")
            try:
                connection.execute("SELECT count(*) FROM sqlite_schema")
            except sqlite3.OperationalError:
                if path.with_name(path.name + "-wal").exists():
                    raise
                # A folder we may not write to, and no writer: nothing can change under us.
                connection.close()
                connection = Connection.to(path, "mode=ro&immutable=1")
            connection.execute("BEGIN")  # one moment of a study that may be running
            version = inspect(connection, path)
            connection.execute("COMMIT")
            if not version:
                raise unreadable_error(path, "a file without tables")
        except (sqlite3.Error, OSError, ValueError) as error:
            if connection is not None:
                connection.close()
            raise store_error(error, path) from error
        return cls(path, connection, None)

    def close(self) -> None:
        """Close the file and let others write."""
        self._connection.close()
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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
            with self._transaction() as connection:
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
                write_digests(connection, digests_of_item(connection, item))
                write_digests(connection, digests_of(connection, "versions", number))
        except sqlite3.IntegrityError as error:
            raise ValueError(f"item {item!r} must be new, with new rows; got: {error}.") from error
        self.parts.drop(item)

    def keep(self, item: str, part: bytes) -> None:
        """Write a part of an item that is not finished; on return it is on the disk for good.

        Raises:
            OSError: the disk is full or the like.
        """
        try:
            self.parts.add(item, part)
        except OSError as error:
            raise store_error(error, self.path) from error

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """All of what is written in it, on the disk at its end, or nothing."""
        try:
            self._connection.rested()
            with self._connection as connection:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            raise store_error(error, self.path) from error

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
        with self._transaction() as connection:
            return connection.execute("DELETE FROM items WHERE failure IS NOT NULL").rowcount

    def rows(self, *, predictions: bool = True) -> list[Row]:
        """The rows in the order of their keys, whatever the order in which they came.

        Args:
            predictions: False leaves predictions and curves out, which are nearly all of the bytes.
        """
        heavy = "curves, predictions, predictions_hash" if predictions else "'{}', NULL, NULL"
        found = self._select(f"SELECT {PLAIN}, {heavy} FROM rows ORDER BY key")
        try:
            return [to_row(columns) for columns in found]
        except ValueError as error:
            raise unreadable_error(self.path, f"{error}") from None

    def study(self) -> dict[str, Any]:
        """The settings that the study was begun with."""
        found = self._select("SELECT settings FROM study")
        return dict(self._parsed("settings", found[0][0] if len(found) == 1 else None, dict))

    def made_with(self) -> list[dict[str, str]]:
        """The sets of versions that rows were made with; one, unless something was updated."""
        found = self._select("SELECT packages FROM versions ORDER BY number")
        return [dict(self._parsed("versions", text, {str: str})) for (text,) in found]

    def set_note(self, name: str, value: Any) -> None:
        """Keep a value that JSON can hold, in place of the one of that name."""
        self.set_notes({name: value})

    def set_notes(self, notes: Mapping[str, Any]) -> None:
        """Keep several, all of them or none."""
        texts = note_texts(notes)
        with self._transaction() as connection:
            put_notes(connection, texts)

    def notes(self) -> dict[str, Any]:
        """All notes by name."""
        found = self._select("SELECT name, value FROM notes")
        return {str(name): self._parsed(f"note {name!r:.60}", text) for name, text in found}

    def _parsed(self, name: str, text: Any, shape: Any = None) -> Any:
        """The value of a JSON text of the store, of a shape if one is given."""
        try:
            check_shape(text, str, name)
            value = parse_json(text)
            if shape is not None:
                check_shape(value, shape, name)
        except ValueError as error:
            raise unreadable_error(self.path, f"{name}: {error}") from None
        return value

    def is_running(self) -> bool:
        """Whether some process writes this study at the moment."""
        return self._lock is not None or is_locked(self.path.with_name(LOCK))

    def check(self) -> None:
        """Read the whole file and raise ValueError if anything in it is damaged or changed."""
        self._connection.rested()
        try:
            inspect(self._connection, self.path)
        except (sqlite3.Error, ValueError) as error:
            raise store_error(error, self.path) from error

    def _select(self, query: str) -> list[tuple[Any, ...]]:
        self._connection.rested()
        try:
            return self._connection.execute(query).fetchall()
        except (sqlite3.Error, UnicodeError) as error:
            raise store_error(error, self.path) from error
