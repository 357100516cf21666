"""A folder that nobody else can write in, and files in it that are whole or not taken.

For a library, which is code: whoever can change it, or a folder above it, can run what they like in
our process; and a damaged one kills that process with a signal. So every folder from the root on is
looked at through a descriptor, and the next one is opened from there; a file begins with the digest
of its content.
"""

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

__all__ = ["locked", "private_folder", "read_whole", "write_whole"]

LARGEST = 64 << 20  # bytes of a file
_DIGEST = hashlib.sha256


def private_folder(path: Path) -> int:
    """Open a folder that only we can write in, made if need be; its descriptor.

    Args:
        path: whose every folder must belong to us or to root, and be writable for its owner alone
            or, as /tmp is, keep others from what is not theirs.

    Raises:
        PermissionError: somebody else could have put something there.
    """
    path = Path(os.path.realpath(path))  # links are followed here, and nowhere below
    just_pass = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    here = os.open(path.anchor, just_pass)
    try:
        _check(here, path.anchor, last=False)
        for place, part in enumerate(path.parts[1:], start=2):
            last = place == len(path.parts)
            how = just_pass & ~os.O_PATH if last else just_pass
            try:
                below = os.open(part, how, dir_fd=here)
            except FileNotFoundError:
                with contextlib.suppress(FileExistsError):  # another process was faster
                    os.mkdir(part, 0o700, dir_fd=here)
                below = os.open(part, how, dir_fd=here)
            os.close(here)
            here = below
            _check(here, str(Path(*path.parts[:place])), last=last)
    except BaseException:
        os.close(here)
        raise
    return here


def _check(folder: int, name: str, *, last: bool) -> None:
    found, us = os.fstat(folder), os.geteuid()
    owned = found.st_uid == us or (found.st_uid == 0 and not last)
    shared = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    sticky = found.st_mode & stat.S_ISVTX and not last
    if not owned or (shared and not sticky):
        raise PermissionError(
            f"{name} must be writable for you {'alone' if last else 'or root alone'}; got mode "
            f"{stat.S_IMODE(found.st_mode):o} of user {found.st_uid}. Use chmod go-w, or another "
            f"folder in XDG_CACHE_HOME."
        )


@contextlib.contextmanager
def locked(folder: int) -> Iterator[None]:
    """One process at a time; the lock ends with its process, however that ends."""
    import fcntl  # which only Linux and its like have

    how = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    lock = os.open("lock", how, 0o600, dir_fd=folder)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def read_whole(folder: int, name: str) -> bytes | None:
    """What ``write_whole`` wrote; None if it is not there, damaged, or could be somebody else's."""
    how = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a named pipe would block
    try:
        file = os.open(name, how, dir_fd=folder)
    except OSError:
        return None
    with open(file, "rb") as stream:
        found = os.fstat(file)
        ours = found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if not stat.S_ISREG(found.st_mode) or not ours or found.st_size > LARGEST:
            return None
        digest, content = stream.read(_DIGEST().digest_size), stream.read()
    return content if _DIGEST(content).digest() == digest else None


def write_whole(folder: int, name: str, content: bytes) -> None:
    """Put a file there, whole and on the disk, or not at all; under the lock."""
    part = f"{name}.part"
    with contextlib.suppress(FileNotFoundError):  # of a process that was killed
        os.unlink(part, dir_fd=folder)
    how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(part, how, 0o600, dir_fd=folder), "wb") as stream:
        stream.write(_DIGEST(content).digest() + content)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)
