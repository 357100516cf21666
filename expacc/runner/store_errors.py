"""What a folder that cannot hold the study gets: one sentence with the cure."""

import errno
import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["another_study", "refused", "unreadable"]

READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}
FULL = {errno.ENOSPC, errno.EDQUOT}
LONGEST_VALUE, LONGEST_REASON = 60, 300  # characters


def refused(error: Exception, path: Path) -> Exception:
    """The sentence for an error of the disk or of SQLite; sentences pass unchanged."""
    if isinstance(error, sqlite3.Error):
        return _of_sqlite(error, path)
    if isinstance(error, OSError) and error.errno is not None:
        return _of_system(error, path)
    if isinstance(error, UnicodeError):  # names in the tables, which Python reads for SQLite
        return unreadable(path, "text that is not UTF-8")
    return error


def _of_system(error: OSError, path: Path) -> OSError:
    if error.errno in READ_ONLY:
        return _read_only(path)
    if error.errno in FULL:
        return _full(path)
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return NotADirectoryError(f"{path.parent} must be a folder; got a file. Use another --out.")
    return OSError(f"{path} must be a file to write to; got: {error.strerror}.")


def _of_sqlite(error: sqlite3.Error, path: Path) -> Exception:
    code = getattr(error, "sqlite_errorcode", None)
    kind = code & 0xFF if code is not None else None  # the high bits say more than we need
    if kind == sqlite3.SQLITE_FULL:
        return _full(path)
    if kind in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return _read_only(path)
    if kind in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return unreadable(path, f"{error}")
    if kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return BlockingIOError(
            f"{path} must not be held by another program; got: {error}. Close that program."
        )
    if kind == sqlite3.SQLITE_IOERR:
        return OSError(
            f"{path} must be on a disk that can be written; got: {error}. What was saved before is "
            f"safe: look after the disk, then run the same command again."
        )
    if kind == sqlite3.SQLITE_INTERRUPT:  # by the limit of steps
        return unreadable(path, "tables that take longer to read than their size allows")
    return unreadable(path, f"{error}")


def _read_only(path: Path) -> OSError:
    return PermissionError(
        f"{path.parent} must be a folder to write to; it is read-only for this user. "
        f"Use another --out."
    )


def _full(path: Path) -> OSError:
    return OSError(
        f"{path} must have room to grow; the disk is full. What was saved before is safe: free "
        f"some space, then run the same command again."
    )


def unreadable(path: Path, got: str) -> ValueError:
    """For a file that is damaged or of another kind."""
    words = " ".join(got.split())[:LONGEST_REASON].rstrip(".")
    words = "".join(letter if letter.isprintable() else "?" for letter in words)
    return ValueError(
        f"{path} must be a study that expacc wrote; got: {words}. "
        f"Use another --out, or --fresh to delete it and start anew."
    )


def another_study(folder: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> ValueError:
    """For a folder with the rows of other settings: names the first that differs."""
    before, now = dict(_flat(there)), dict(_flat(here))
    differing = sorted(name for name in before | now if before.get(name) != now.get(name))
    name = differing[0]
    more = f" (and {len(differing) - 1} more settings)" if len(differing) > 1 else ""
    return ValueError(
        f"{folder} must hold the same study; {name} is {_short(before, name)} there and "
        f"{_short(now, name)} here{more}. Use another --out, or --fresh to delete the rows there."
    )


def _flat(value: Any, name: str = "") -> list[tuple[str, str]]:
    """Nested settings as 'search.trials' → '20'."""
    if isinstance(value, Mapping) and value:
        parts = ((f"{name}.{key}" if name else key, part) for key, part in value.items())
        return [pair for key, part in parts for pair in _flat(part, key)]
    return [(name or "the study", json.dumps(value))]


def _short(settings: Mapping[str, str], name: str) -> str:
    text = settings.get(name, "not set")
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"
