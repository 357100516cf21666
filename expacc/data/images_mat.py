"""SVHN's .mat files: arrays of numbers of MATLAB's version 5, read here.

SciPy's reader crashes the process on a few changed bytes, and knows much that no picture needs.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expacc.data.images_arrays import MOST_BYTES, Found, Part, most_unpacked, part_of, places
from expacc.data.options import TableError
from expacc.files import read_whole

_HEAD = 128
_COMPRESSED, _MATRIX = 15, 14
_TYPES = {
    1: "i1",
    2: "u1",
    3: "i2",
    4: "u2",
    5: "i4",
    6: "u4",
    7: "f4",
    9: "f8",
    12: "i8",
    13: "u8",
}
_CLASSES = range(6, 16)  # of numbers: double, single, and whole ones of each size
_MOST_AXES = 8


def read_mat(paths: Sequence[Path]) -> Found:
    """SVHN's cropped digits: X (32, 32, 3, N) and y (N, 1), where 10 stands for 0."""
    parts: dict[str, Part] = {}
    for path in paths:
        part = part_of(path.name) or ("test" if "train" in parts else "train")
        data = read_whole(path, MOST_BYTES)
        if data.startswith(b"MATLAB 7.3"):
            raise TableError(path.name, "it is MATLAB 7.3; save it with -v7.")
        try:
            held = dict(_arrays(data))
        except (ValueError, struct.error, zlib.error) as error:
            raise TableError(path.name, f"it must be a .mat file, undamaged ({error}).") from None
        images, labels = held.get("X"), held.get("y")
        if images is None or labels is None or images.ndim != 4 or images.dtype != np.uint8:
            got = ", ".join(f"{name} {one.shape} {one.dtype}" for name, one in held.items())
            raise TableError(path.name, f"it must hold X (H, W, C, N) and y; got {got[:200]}.")
        labels = labels.ravel()
        if path.stem.endswith("_32x32") and labels.size and labels.max() == 10:
            labels = labels % 10
        pictures = images.transpose(3, 0, 1, 2)
        parts[part] = Part(pictures, labels, places(path.name, len(pictures)))
    return Found(parts)


def _arrays(data: bytes) -> Iterator[tuple[str, NDArray[Any]]]:
    """Name and content of each array of numbers."""
    order = {b"IM": "<", b"MI": ">"}.get(data[_HEAD - 2 : _HEAD])
    if order is None:
        raise ValueError("its head is not MATLAB's")
    left = most_unpacked(len(data))
    for kind, content in _elements(memoryview(data)[_HEAD:], order):
        if kind == _COMPRESSED:
            unpacker = zlib.decompressobj()
            whole = unpacker.decompress(content, left)
            left -= len(whole)
            if not unpacker.eof or left <= 0:
                raise ValueError("compressed data that end too early, or never")
            kind, content = next(_elements(memoryview(whole), order), (0, content))
        if kind == _MATRIX and (found := _matrix(content, order)) is not None:
            yield found


def _elements(data: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Type and bytes of each element; one of four bytes or less has them within its head."""
    at = 0
    while at < len(data):
        kind, size = struct.unpack_from(order + "II", data, at)
        if kind >> 16:
            kind, size, start, after = kind & 0xFFFF, kind >> 16, at + 4, at + 8
        else:
            start = at + 8
            after = start + size + (0 if kind == _COMPRESSED else -size % 8)
        if start + size > len(data):
            raise ValueError(f"an element of {size:,} bytes that is cut off")
        yield kind, data[start : start + size]
        at = after


def _matrix(data: memoryview, order: str) -> tuple[str, NDArray[Any]] | None:
    """Name and content of an array of real numbers; None of all else."""
    found = list(islice(_elements(data, order), 4))
    kinds, parts = [kind for kind, _ in found], [content for _, content in found]
    if len(parts) < 4 or len(parts[0]) != 8:
        return None
    (flags,) = struct.unpack_from(order + "I", parts[0])
    if flags & 0xFF not in _CLASSES or flags & 0x800 or kinds[3] not in _TYPES:
        return None
    shape = np.frombuffer(parts[1], order + "i4").tolist()
    values = np.frombuffer(parts[3], order + _TYPES[kinds[3]])
    if not 0 < len(shape) <= _MOST_AXES or int(np.prod(shape, dtype=object)) != len(values):
        raise ValueError(f"an array of shape {shape[:_MOST_AXES]} with {len(values):,} numbers")
    name = bytes(parts[2]).decode("latin-1")
    return name, values.reshape(shape, order="F").astype(values.dtype.newbyteorder("="), copy=False)
