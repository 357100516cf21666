"""Files in a folder that others may have filled: written whole or not at all, never through a link.

A name in such a folder can be a link to someone's only copy, or a pipe that waits for ever. So what
is written gets a name that nobody can guess and is moved into place; what is read is looked at
before it is opened.
"""

import contextlib
import os
import secrets
import stat
import time
from collections.abc import Callable
from pathlib import Path

from expacc.plain import UsageError

STALE = 3600.0  # seconds since the last byte: whoever wrote this part is dead
_WORDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}
_CLOSED = getattr(os, "O_CLOEXEC", 0)
_ASIDE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | _CLOSED


def not_plain_error(path: Path, mode: int) -> UsageError:
    """For what lies where a plain file should."""
    return UsageError(
        f"{path} must be a plain file; got {_WORDS.get(stat.S_IFMT(mode), 'a device')}. "
        f"Move it away, or use another folder."
    )


def check_plain(path: Path, *, alone: bool = False) -> os.stat_result | None:
    """The size and more of a plain file; None if there is nothing.

    Args:
        path: looked at, not opened.
        alone: also refuse a file with a second name, which is to be written in place.

    Raises:
        ValueError: a link, a pipe, a folder …
    """
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise not_plain_error(path, found.st_mode)
    if alone and found.st_nlink > 1:
        raise UsageError(
            f"{path} must have one name, because it is written in place; got a file with "
            f"{found.st_nlink} (hard links). Copy the folder, or use another."
        )
    return found


def read_whole(path: Path, largest: int) -> bytes:
    """The bytes of a plain file, or of the one that a link leads to.

    Raises:
        ValueError: a pipe, a device, or more than ``largest`` bytes.
        OSError: there is no such file, or it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _CLOSED)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise not_plain_error(path, found.st_mode)
        if found.st_size > largest:
            raise UsageError(f"{path} must be at most {largest:,} bytes; it has {found.st_size:,}.")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that it appears whole or not at all, whenever the power fails."""
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content

    def fill(part: Path) -> None:
        with os.fdopen(os.open(part, os.O_WRONLY | _ASIDE), "wb") as file:
            file.write(data)

    replace_file(path, fill)


def replace_file(path: Path, fill: Callable[[Path], object]) -> None:
    """Let ``fill`` write a new file beside ``path``, then put it in place of ``path`` durably.

    The file at ``path`` is the old one or the new one at every moment, also if the process is
    killed or the power fails.

    Raises:
        ValueError: something lies there that is no plain file.
        OSError: the disk is full, the folder read-only or the like.
    """
    check_plain(path)
    _sweep(path)
    part = path.with_name(f"{_prefix(path)}{secrets.token_hex(8)}.part")
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _ASIDE, 0o666))
    try:
        fill(part)
        descriptor = os.open(part, os.O_RDWR | _ASIDE)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    if hasattr(os, "O_DIRECTORY"):  # elsewhere a folder cannot be opened, and need not be
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)  # the new name itself
        finally:
            os.close(folder)


def _prefix(path: Path) -> str:
    return f".{path.name[:40]}."


def _sweep(path: Path) -> None:
    """Delete what killed processes left of earlier attempts."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(path.parent):
            if entry.name.startswith(_prefix(path)) and ".part" in entry.name:
                found = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(found.st_mode) and time.time() - found.st_mtime > STALE:
                    os.unlink(entry.path)
