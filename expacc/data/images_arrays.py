"""Sets of pictures in files of bytes: idx and the binary CIFAR.

Each reader gives parts, 'train' and 'test', of arrays as they are stored; ``images`` makes one set
of them.
"""

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expacc.data.options import TableError
from expacc.files import read_whole

MOST_BYTES = 4 << 30
_SMALL, _RATIO = 64 << 20, 100  # MNIST's files unpack to five times their size
_BYTE = 8  # the code of unsigned bytes in an idx file
_PARTS = {"train": "train", "training": "train", "test": "test", "t10k": "test", "testing": "test"}


@dataclass(frozen=True, eq=False)
class Part:
    """Pictures (N, H, W), (N, H, W, C) or (N, C, H, W), their labels, and where each came from."""

    images: NDArray[Any]
    labels: NDArray[Any]
    files: Sequence[str]


@dataclass(frozen=True)
class Found:
    """What the files hold; ``classes`` are names of the numbers, () if the files name none."""

    parts: Mapping[str, Part]
    classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def most_unpacked(size: int) -> int:
    """Bytes that a file of so many may unpack to."""
    return min(MOST_BYTES, max(_SMALL, _RATIO * size))


def read_plain(path: Path) -> bytes:
    """The bytes of a file, unpacked if it is gzip, whatever its name."""
    data = read_whole(path, MOST_BYTES)
    most = most_unpacked(len(data))
    if not data.startswith(b"\x1f\x8b"):
        return data
    unpacker = zlib.decompressobj(31)
    try:
        found = unpacker.decompress(data, most)
    except zlib.error as error:
        raise TableError(path.name, f"the gzip data are damaged ({error}).") from None
    if unpacker.unconsumed_tail:
        raise TableError(path.name, f"it unpacks to more than {most:,} bytes.")
    if not unpacker.eof:
        raise TableError(path.name, "the gzip data end too early; fetch it again.")
    return found


# ------------------------------------------------------------------------------------------ idx


def is_idx(head: bytes, axes: Sequence[int] = (3, 4)) -> bool:
    """Whether a file that begins so is an idx file of bytes with so many axes."""
    return len(head) >= 4 and head[:3] == b"\0\0\x08" and head[3] in axes


def read_idx(data: bytes, name: str) -> NDArray[np.uint8]:
    """An idx file of bytes: 0, 0, the type, the number of axes, their sizes, and the numbers."""
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] != _BYTE or not data[3]:
        raise TableError(name, f"an idx file of bytes must begin with 0, 0, 8; got {data[:4]!r}.")
    axes = data[3]
    start = 4 + 4 * axes
    shape = [int(size) for size in np.frombuffer(data[4 : min(start, len(data) // 4 * 4)], ">u4")]
    size = int(np.prod(shape, dtype=object)) if len(shape) == axes else -1
    if len(data) - start != size:
        raise TableError(
            name,
            f"the file must hold {size:,} bytes behind its head of {shape}; got "
            f"{len(data) - start:,}. Fetch it again.",
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def read_idx_files(paths: Sequence[Path]) -> Found:
    """Pictures and labels of one or two parts, told apart by what they hold, then by their names.

    Args:
        paths: idx files, plain or gzip; files of one axis are labels.
    """
    arrays = {path: read_idx(read_plain(path), path.name) for path in paths}
    images = {path: array for path, array in arrays.items() if array.ndim in (3, 4)}
    labels = {path: array for path, array in arrays.items() if array.ndim == 1}
    parts: dict[str, Part] = {}
    for path, array in sorted(images.items(), key=lambda one: -len(one[1])):
        own = [other for other in labels if len(labels[other]) == len(array)]
        if len(own) > 1:
            own = [other for other in own if part_of(other.name) == part_of(path.name)]
        if len(own) != 1:
            raise TableError(
                path.name,
                f"one idx file of {len(array):,} labels must lie beside its {len(array):,} "
                f"pictures; got {len(own)}.",
            )
        part = part_of(path.name) or ("test" if "train" in parts else "train")
        if part in parts:
            raise TableError(path.name, f"one idx file must hold the {part} part; got two.")
        parts[part] = Part(array, labels[own[0]], places(path.name, len(array)))
    return Found(parts)


def part_of(name: str) -> str | None:
    """'train' or 'test', if a word of the name says so."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    return next((_PARTS[word] for word in words if word in _PARTS), None)


def places(name: str, count: int) -> list[str]:
    """Where each row of an array came from."""
    return [f"{name}[{place}]" for place in range(count)]


# ---------------------------------------------------------------------------------------- CIFAR

CIFAR = {10: (1, "batches.meta.txt"), 100: (2, "fine_label_names.txt")}  # bytes of labels, names
_PIXELS = 3 * 32 * 32


def read_cifar(train: Sequence[Path], test: Sequence[Path]) -> Found:
    """The binary version: a byte for the label, of CIFAR-100 two, then red, green and blue."""
    blocks = {path: np.frombuffer(read_whole(path, MOST_BYTES), np.uint8) for path in train}
    blocks |= {path: np.frombuffer(read_whole(path, MOST_BYTES), np.uint8) for path in test}
    kind = next((kind for kind in CIFAR if all(_is_cifar(b, kind) for b in blocks.values())), None)
    if kind is None:
        sizes = ", ".join(f"{path.name}: {len(block):,}" for path, block in blocks.items())
        raise TableError(
            train[0].parent.name or "DATA",
            f"files must be of rows of 3,073 bytes (CIFAR-10) or 3,074 (CIFAR-100), the label "
            f"first; got {sizes} bytes. Fetch them again: expacc get cifar10 --to FOLDER.",
        )
    width, names = CIFAR[kind]
    parts = {}
    for part, paths in (("train", train), ("test", test)):
        if paths:
            rows = [blocks[path].reshape(-1, width + _PIXELS) for path in paths]
            whole = np.concatenate(rows)
            files = [f for p, r in zip(paths, rows, strict=True) for f in places(p.name, len(r))]
            images = whole[:, width:].reshape(-1, 3, 32, 32)
            parts[part] = Part(images, whole[:, width - 1].astype(np.int64), files)
    listed = train[0].with_name(names)
    classes: tuple[str, ...] = ()
    if listed.is_file():
        text = read_whole(listed, 1 << 16).decode("utf-8", "replace")
        classes = tuple(line.strip() for line in text.splitlines() if line.strip())
    return Found(parts, classes if len(classes) == kind else ())


def _is_cifar(block: NDArray[np.uint8], kind: int) -> bool:
    width = CIFAR[kind][0]
    if not len(block) or len(block) % (width + _PIXELS):
        return False
    return bool((block.reshape(-1, width + _PIXELS)[:, width - 1] < kind).all())
