"""One writer at a time: a lock on a file that a dead process cannot keep."""

import fcntl
import os
import platform
import stat
import time
from pathlib import Path

from expacc.files import check_plain, not_plain

__all__ = ["Lock", "is_locked"]

PATIENCE, PAUSE = 1.0, 0.05  # seconds: a look by ``is_locked`` holds the lock for a moment
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
                raise not_plain(path, found.st_mode)
            deadline = time.monotonic() + PATIENCE
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
