"""The files of a store: which may be there, how they are made, and how SQLite is let near them.

SQLite trusts what lies beside its file: a rollback journal can name other files to delete, a link
is followed, a view is run. A store of ours has no such thing, so whatever has one is refused before
it is opened.
"""

import contextlib
import sqlite3
from pathlib import Path
from urllib.parse import quote

from expacc.files import check_plain
from expacc.runner.columns import DIGESTS, SCHEMA
from expacc.runner.digests import changed
from expacc.runner.store_errors import unreadable

__all__ = [
    "APPLICATION",
    "FILE",
    "LOCK",
    "VERSION",
    "Connection",
    "check_files",
    "create_tables",
    "delete_files",
    "inspect",
]

FILE, LOCK = "study.sqlite", "study.lock"
BESIDE = ("-wal", "-shm", "-journal")
APPLICATION = 0x45584143  # 'EXAC': tells our files from other SQLite files
VERSION = 2  # 1 had no digests
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
            raise unreadable(path, f"a journal beside it, {path.name}{end}, that is not ours")
    found = check_plain(path, alone=writing)
    if found is not None and found.st_size > LARGEST:
        raise unreadable(path, f"{found.st_size:,} bytes")
    return found is not None


def delete_files(path: Path) -> None:
    """Delete the store, to begin anew; of a link the link, not what it leads to."""
    # The store first: a write-ahead log without one is nothing, and a store without its log is old.
    for end in ("", *BESIDE):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + end).unlink()


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
        raise unreadable(path, "an SQLite file of another program")
    if version > VERSION:
        raise ValueError(
            f"{path} must have version {VERSION} or older; got {version}, written by a "
            f"newer expacc. Update expacc, or use another --out."
        )
    if version < 1 or tables != tables_of(version):
        raise unreadable(path, "tables, views or triggers that are not ours")
    ((verdict,), *_) = connection.execute("PRAGMA integrity_check(1)").fetchall()
    if verdict != "ok":
        raise unreadable(path, str(verdict))
    if connection.execute("PRAGMA foreign_key_check").fetchone() is not None:
        raise unreadable(path, "rows without an item")
    if version > 1 and (what := changed(connection)) is not None:
        raise unreadable(path, what)
    return int(version)
