"""Small pictures of the rows that a page shows, as PNG files within it."""

import base64
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from expacc.compare.record import PNG, StudyRecord
from expacc.compare.suspects import suspects

MOST = 40  # of a page
SIDE = 96  # the largest that is kept of a picture

Draw = Callable[[Sequence[int]], Sequence[bytes]]
"""PNG files of rows by number."""


def thumbnails(record: StudyRecord, draw: Draw) -> dict[str, str]:
    """Row → its picture in base64, of the rows that are doubted most."""
    found = suspects(record, next(iter(record.tables)))
    rows = found.rows[found.disbelieved][:MOST].tolist()
    return {
        str(row): base64.b64encode(file).decode()
        for row, file in zip(rows, draw(rows) if rows else (), strict=True)
    }


def draw_bytes(train: Any, test: Any) -> Draw | None:
    """How pictures in bytes, (rows, 1 or 3, height, width), are drawn; None of other rows."""
    parts = [one for one in (train, test) if one is not None]
    for one in parts:
        fits = isinstance(one, Tensor) and one.ndim == 4 and one.dtype == torch.uint8
        if not fits or one.shape[1] not in (1, 3):
            return None

    def draw(rows: Sequence[int]) -> list[bytes]:
        first = len(parts[0])
        return [png_file(parts[0][r] if r < first else parts[1][r - first]) for r in rows]

    return draw


def png_file(picture: Tensor) -> bytes:
    """A PNG file of bytes (1 or 3, height, width); of a large one every second pixel, or third …

    >>> png_file(torch.zeros(3, 2, 2, dtype=torch.uint8))[1:4]
    b'PNG'
    """
    step = -(-max(picture.shape[1:]) // SIDE)
    picture = picture[:, ::step, ::step].cpu()
    channels, height, width = picture.shape
    lines = picture.permute(1, 2, 0).reshape(height, -1)
    kind = {1: 0, 3: 2}[channels]  # grey, or red, green and blue
    parts: Mapping[bytes, bytes] = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0),
        b"IDAT": zlib.compress(b"".join(b"\0" + line.numpy().tobytes() for line in lines), 9),
        b"IEND": b"",
    }
    return PNG + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts.items()
    )
