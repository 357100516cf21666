"""One writer at a time: a lock on a file that a dead process cannot keep."""

import contextlib
import fcntl
import os
import platform
import time
from pathlib import Path

__all__ = ["Lock", "is_locked"]

PATIENCE, PAUSE = 1.0, 0.05  # seconds: a look by ``is_locked`` holds the lock for a moment


class Lock:
    """A lock that the operating system takes back when the process ends, however it ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, path: Path) -> "Lock":
        """Take the lock.

        Raises:
            BlockingIOError: another process has it.
            OSError: the file cannot be written.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(PAUSE)
                    continue
                holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
                os.close(descriptor)
                raise BlockingIOError(
                    f"{path.parent} must not be in use by another study; got one that runs as "
                    f"{holder or 'another process'}. Wait for it, or use another --out."
                ) from None
            except OSError:
                os.close(descriptor)
                raise
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {platform.node()}\n".encode(), 0)
            return cls(descriptor)

    def release(self) -> None:
        """Give the lock back; the file stays, because deleting it could take another's lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def is_locked(path: Path) -> bool:
    """Whether some process has the lock now."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    return False
