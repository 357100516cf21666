"""Sets of pictures in .npz files; nothing is unpickled."""

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expacc.data.images_arrays import Found, Part, most_unpacked, part_of, places
from expacc.data.options import TableError

_HELD = ("val", "valid", "validation", "dev")
_IMAGES, _LABELS = ("x", "images", "image", "data"), ("y", "labels", "label", "targets", "target")


def read_npz(path: Path) -> Found:
    """Arrays x and y, x_train and y_train, train_images and train_labels, …; never objects."""
    arrays = _arrays(path)
    found: dict[str, dict[str, NDArray[Any]]] = {}
    classes: tuple[str, ...] = ()
    for name, array in arrays.items():
        words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]
        part = part_of(name) or ("val" if set(words) & set(_HELD) else "train")
        if any(word in _IMAGES for word in words):
            found.setdefault(part, {})["x"] = array
        elif any(word in _LABELS for word in words):
            found.setdefault(part, {})["y"] = array
        elif words in (["classes"], ["class", "names"]) and array.dtype.kind == "U":
            classes = tuple(map(str, array.ravel()))
    whole = {part: both for part, both in found.items() if len(both) == 2}
    if "train" not in whole:
        raise TableError(
            path.name,
            "it must hold pictures and labels by the names x and y, x_train and y_train, or "
            f"images and labels; it holds: {', '.join(arrays) or 'nothing'}.",
        )
    parts = {p: Part(both["x"], both["y"], places(p, len(both["x"]))) for p, both in whole.items()}
    return Found(parts, classes)


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    from numpy.lib import format as npy

    arrays, most = {}, most_unpacked(path.stat().st_size)
    left = most
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if not entry.filename.endswith(".npy"):
                    continue
                left -= entry.file_size
                if left < 0:
                    raise TableError(path.name, f"it unpacks to more than {most:,} bytes.")
                with archive.open(entry) as stream:
                    first = npy.read_magic(stream) == (1, 0)
                    read = npy.read_array_header_1_0 if first else npy.read_array_header_2_0
                    shape, fortran, dtype = read(stream)
                    if dtype.hasobject:
                        raise TableError(
                            path.name,
                            f"{entry.filename} holds Python objects, which are pickled and can "
                            "run code. Save arrays of numbers, labels as numbers or text.",
                        )
                    data = stream.read()
                size = dtype.itemsize * int(np.prod(shape, dtype=object))
                if size != len(data):
                    raise ValueError(f"{entry.filename}: {shape} with {len(data):,} bytes")
                array = np.frombuffer(data, dtype)
                order = "F" if fortran else "C"
                arrays[entry.filename[:-4]] = array.reshape(shape, order=order)  # type: ignore[call-overload]
    except TableError:
        raise
    except Exception as error:  # of zip, of zlib, of the header
        raise TableError(path.name, f"it must be an npz file, undamaged ({error}).") from None
    return arrays
