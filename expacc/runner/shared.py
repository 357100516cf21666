"""Data for all workers of this machine in one file that they map, so that it is in memory once.

The file has no name: it vanishes with the last process that holds it, however that one ends.
"""

import mmap
import tempfile
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from expacc.runner.items import Shared

__all__ = ["Part", "check_shared", "map_shared", "write_shared"]

ALIGNMENT = 64  # bytes: a cache line, and what vector instructions want


@dataclass(frozen=True)
class Part:
    """Where one entry lies in the file; ``dtype`` None stands for bytes."""

    offset: int
    size: int
    dtype: str | None = None
    shape: tuple[int, ...] = ()


def check_shared(shared: Shared) -> None:
    """Raise unless every entry is bytes or an array of numbers."""
    for name, value in shared.items():
        if isinstance(value, np.ndarray):
            if value.dtype.hasobject:
                raise TypeError(
                    f"shared[{name!r}] must be an array of numbers or of fixed-length texts; "
                    f"got dtype {value.dtype}. Use bytes."
                )
        elif not isinstance(value, bytes):
            raise TypeError(
                f"shared[{name!r}] must be bytes or a numpy array; got {type(value).__name__}."
            )


def write_shared(shared: Shared) -> tuple[IO[bytes], dict[str, Part]]:
    """Write all entries into a nameless temporary file, and say where each lies.

    Raises:
        TypeError: an entry is neither bytes nor an array of numbers.
        OSError: the temporary folder is full or read-only.
    """
    check_shared(shared)
    parts = {}
    try:
        file = tempfile.TemporaryFile()  # noqa: SIM115  (the caller closes it)
        for name, value in shared.items():
            file.write(b"\0" * (-file.tell() % ALIGNMENT))
            if isinstance(value, np.ndarray):
                whole = np.ascontiguousarray(value)
                parts[name] = Part(file.tell(), whole.nbytes, value.dtype.str, value.shape)
                file.write(whole.reshape(-1).view(np.uint8).data if whole.nbytes else b"")
            else:
                parts[name] = Part(file.tell(), len(value))
                file.write(value)
        file.write(b"\0")  # a file of nothing cannot be mapped
        file.flush()
    except OSError as error:
        raise OSError(
            f"temporary folder {tempfile.gettempdir()} must have room for the tables; got: "
            f"{error.strerror}. Free some space, or name another folder in TMPDIR."
        ) from error
    return file, parts


def map_shared(descriptor: int, parts: dict[str, Part]) -> Shared:
    """The entries of a file that ``write_shared`` wrote; arrays are read-only views of it."""
    memory = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    found: dict[str, Any] = {}
    for name, part in parts.items():
        if part.dtype is None:
            found[name] = memory[part.offset : part.offset + part.size]
        else:
            dtype = np.dtype(part.dtype)
            count = part.size // dtype.itemsize if dtype.itemsize else 0
            found[name] = np.frombuffer(memory, dtype, count, part.offset).reshape(part.shape)
    return found
