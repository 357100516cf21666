"""A digest of everything in a store, so that no bit of what decides an answer changes unnoticed."""

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["changed", "digests", "digests_of", "digests_of_item", "write_digests"]

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
