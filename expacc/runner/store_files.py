"""The files of a store: which may be there, who may write them, and what a user is told if not.

SQLite trusts what lies beside its file: a rollback journal can name other files to delete, a link
is followed, a view is run. A store of ours has no such thing, so whatever has one is refused before
it is opened. One process writes at a time, by a lock that a dead process cannot keep.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import platform
import sqlite3
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from expacc.files import check_plain, not_plain_error, read_whole, write_whole
from expacc.plain import UsageError
from expacc.runner.items import versions

READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}
FULL = {errno.ENOSPC, errno.EDQUOT}
LONGEST_VALUE, LONGEST_REASON = 60, 300  # characters


def store_error(error: Exception, path: Path) -> Exception:
    """The sentence for an error of the disk or of SQLite; sentences pass unchanged."""
    if isinstance(error, sqlite3.Error):
        return _of_sqlite(error, path)
    if isinstance(error, OSError) and error.errno is not None:
        return _of_system(error, path)
    if isinstance(error, UnicodeError):  # names in the tables, which Python reads for SQLite
        return unreadable_error(path, "text that is not UTF-8")
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
        return unreadable_error(path, f"{error}")
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
        return unreadable_error(path, "tables that take longer to read than their size allows")
    return unreadable_error(path, f"{error}")


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


def unreadable_error(path: Path, got: str) -> UsageError:
    """For a file that is damaged or of another kind."""
    words = " ".join(got.split())[:LONGEST_REASON].rstrip(".")
    words = "".join(letter if letter.isprintable() else "?" for letter in words)
    return UsageError(
        f"{path} must be a study that expacc wrote; got: {words}. "
        f"Use another --out, or --overwrite to delete it and start anew."
    )


def other_study_error(
    folder: Path, there: Mapping[str, Any], here: Mapping[str, Any]
) -> UsageError:
    """For a folder with the rows of other settings: names the first that differs."""
    before, now = dict(_flat(there)), dict(_flat(here))
    differing = sorted(name for name in before | now if before.get(name) != now.get(name))
    name = differing[0]
    more = f" (and {len(differing) - 1} more settings)" if len(differing) > 1 else ""
    return UsageError(
        f"{folder} must hold the same study; {name} is {_short(before, name)} there and "
        f"{_short(now, name)} here{more}. Use another --out, or --overwrite to delete those rows."
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


LOCK_PATIENCE, PAUSE = 1.0, 0.05  # seconds: a look by ``is_locked`` holds the lock for a moment
ASIDE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # no link is followed, no pipe waited for


class Lock:
    """A lock that the operating system takes back when the process ends, however it ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, path: Path) -> "Lock":
        """Take the lock; what is in the file stays until ``sign``.

        Raises:
            BlockingIOError: another process has it.
            ValueError: a link, a pipe or the like lies there.
            OSError: the file cannot be written.
        """
        check_plain(path, alone=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | ASIDE, 0o666)
        try:
            found = os.fstat(descriptor)  # it may have changed since
            if not stat.S_ISREG(found.st_mode):
                raise not_plain_error(path, found.st_mode)
            deadline = time.monotonic() + LOCK_PATIENCE
            while not _locked(descriptor, fcntl.LOCK_EX):
                if time.monotonic() >= deadline:
                    raise BlockingIOError(
                        f"{path.parent} must not be in use by another study; got one that runs as "
                        f"{_holder(descriptor)}. Wait for it, or use another --out."
                    )
                time.sleep(PAUSE)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(descriptor)

    def sign(self) -> None:
        """Write down who has it, for those who wait."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            words = f"process {os.getpid()} on {platform.node()}\n"
            os.pwrite(self._descriptor, words.encode(), 0)

    def release(self) -> None:
        """Give the lock back; the file stays, because deleting it could take another's lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _locked(descriptor: int, kind: int) -> bool:
    """Whether the lock could be had at once."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(descriptor: int) -> str:
    words = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
    return "".join(c if c.isprintable() else " " for c in words) or "another process"


def is_locked(path: Path) -> bool:
    """Whether some process has the lock now; what is no plain file is no lock of ours."""
    try:
        descriptor = os.open(path, os.O_RDONLY | ASIDE)
    except OSError:
        return False
    try:
        plain = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return plain and not _locked(descriptor, fcntl.LOCK_SH)
    except OSError:
        return False
    finally:
        os.close(descriptor)


FILE, LOCK = "study.sqlite", "study.lock"
BESIDE = ("-wal", "-shm", "-journal")
PATIENCE = 30.0  # seconds to wait for a reader that holds the file
LARGEST = 64 << 30  # bytes of a store
LONGEST = 1 << 29  # bytes of one value: the labels of a table, the predictions of a run
STEPS, A_BYTE = 1_000_000, 4  # of SQLite between two looks at how many it took; most for a byte


class Connection(sqlite3.Connection):
    """A connection that a crafted file cannot keep busy, fill with one value or run code in."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self._left = self._most = 0
        self.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
        self.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        if hasattr(self, "setconfig"):  # since Python 3.12
            self.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)  # type: ignore[attr-defined]
        for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0"):
            self.execute(f"PRAGMA {pragma}")
        self.execute("PRAGMA foreign_keys = ON")

    @classmethod
    def to(cls, path: Path, options: str = "mode=rw") -> "Connection":
        """Open a file that ``check_files`` has seen, or that was made a moment ago."""
        where = f"file:{quote(str(path.absolute()))}?{options}"
        found = sqlite3.connect(
            where, uri=True, timeout=PATIENCE, isolation_level=None, factory=cls
        )
        # A byte takes less than a step to read, so whoever needs more goes round in circles.
        found._most = 100 + path.stat().st_size * A_BYTE // STEPS
        found.set_progress_handler(found._count, STEPS)
        found.rested()
        return found

    def rested(self) -> None:
        """Begin to count anew."""
        self._left = self._most

    def _count(self) -> bool:
        self._left -= 1
        return self._left < 0


def check_files(path: Path, *, writing: bool) -> bool:
    """Whether there is a store; nothing is opened.

    Raises:
        ValueError: one of its files is a link, a pipe, a folder, too large, or a rollback journal,
            which a store of ours never has.
    """
    for end in BESIDE:
        # SQLite writes into these even to read.
        found = check_plain(path.with_name(path.name + end), alone=True)
        if found is not None and end == "-journal":
            raise unreadable_error(path, f"a journal beside it, {path.name}{end}, that is not ours")
    found = check_plain(path, alone=writing)
    if found is not None and found.st_size > LARGEST:
        raise unreadable_error(path, f"{found.st_size:,} bytes")
    return found is not None


def delete_files(path: Path) -> None:
    """Delete the store, to begin anew; of a link the link, not what it leads to."""
    # The store first: a write-ahead log without one is nothing, and a store without its log is old.
    for end in ("", *BESIDE):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + end).unlink()


PART = "study.part-"
LARGEST_PART = 4 << 30  # bytes
_HASH = 64  # its first characters: the SHA-256 of all that it is of


class Parts:
    """What is done of items that are not: bytes of the executor's own, in files beside the store.

    A part that is damaged, or was made by another study or by other versions, is none.

    Args:
        folder: of the study.
        study: its settings; parts of others are not ours.
    """

    def __init__(self, folder: Path, study: str) -> None:
        self._folder, self._study = folder, study
        self._counts: dict[str, int] = {}  # of items that have some

    def of(self, item: str) -> tuple[bytes, ...]:
        """The parts of an item in their order, up to the first that is not as it was written."""
        found: list[bytes] = []
        while (data := self._read(item, len(found))) is not None:
            found.append(data)
        if found:
            self._counts[item] = len(found)
        return tuple(found)

    def _read(self, item: str, number: int) -> bytes | None:
        path = self._path(item, number)
        try:
            if check_plain(path) is None:
                return None
            whole = read_whole(path, LARGEST_PART)
        except (ValueError, OSError):
            return None
        data = whole[_HASH:]
        return data if whole[:_HASH] == self._hash(item, number, data) else None

    def add(self, item: str, data: bytes) -> None:
        """Keep one more; on return it is on the disk for good."""
        number = self._counts.get(item, 0)
        write_whole(self._path(item, number), self._hash(item, number, data) + data)
        self._counts[item] = number + 1

    def drop(self, item: str) -> None:
        """Delete those of an item that is saved."""
        for number in range(self._counts.pop(item, 0)):
            self._path(item, number).unlink(missing_ok=True)

    def _path(self, item: str, number: int) -> Path:
        return self._folder / f"{PART}{hashlib.sha256(item.encode()).hexdigest()[:20]}-{number}"

    def _hash(self, item: str, number: int, data: bytes) -> bytes:
        of = json.dumps([self._study, dict(versions()), item, number], sort_keys=True)
        return hashlib.sha256(of.encode() + b"\n" + data).hexdigest().encode()


def delete_parts(folder: Path) -> None:
    """Delete all that lie there, whosever they are."""
    for path in folder.glob(f"{PART}*"):
        with contextlib.suppress(OSError):  # a folder of that name is none of ours
            path.unlink()
