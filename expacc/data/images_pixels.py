"""Arrays of pictures as bytes in torch's order, and labels as class numbers."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from expacc.data.images_arrays import MOST_BYTES
from expacc.data.options import TableError

if TYPE_CHECKING:
    from torch import Tensor

_SIZE, _KEPT, _LEAST = 32, 64, 8
_CHANNELS = (1, 3)


def to_bytes(images: NDArray[Any], size: int | None, name: str) -> "Tensor":
    """Pictures as bytes, (N, channels, height, width), resized if asked for or large.

    Args:
        images: (N, H, W), (N, H, W, C) or (N, C, H, W), C 1 or 3, of any type of numbers.
        size: pixels of a side; None for their own up to 64, else 32.
        name: of the set and part, for messages.

    Raises:
        ValueError: another shape, or numbers that are neither 0 to 1 nor 0 to 255.
    """
    import torch

    whole = _in_order(images, name)
    count, _, high, wide = whole.shape
    kept = size is None and min(high, wide) >= _LEAST and max(high, wide) <= _KEPT
    side = size or _SIZE
    same = kept or (high, wide) == (side, side)
    if not same and count * whole.shape[1] * side**2 > MOST_BYTES:
        raise TableError(name, f"{count:,} pictures of {side} × {side} are too many; lower --size.")
    factor = _factor(whole, name)
    parts = []
    for low in range(0, count, 1024):
        part = whole[low : low + 1024]
        if part.dtype != np.uint8 or factor != 1:
            part = np.clip(np.rint(part.astype(np.float32) * factor), 0, 255).astype(np.uint8)
        block = torch.from_numpy(np.array(part, order="C"))
        if not same:
            block = torch.nn.functional.interpolate(
                block.float(), (side, side), mode="bilinear", antialias=True
            )
            block = block.round().clamp(0, 255).to(torch.uint8)
        parts.append(block)
    return torch.cat(parts)


def _in_order(images: NDArray[Any], name: str) -> NDArray[Any]:
    """A view as (N, C, H, W)."""
    if images.ndim == 3:
        images = images[:, None]
    first, last = (images.ndim == 4 and images.shape[place] in _CHANNELS for place in (1, 3))
    if images.ndim != 4 or first == last or not all(images.shape):
        raise TableError(
            name,
            "pictures must be (N, height, width), (N, height, width, channels) or (N, channels, "
            f"height, width) with 1 or 3 channels; got {images.shape}.",
        )
    return images if first else images.transpose(0, 3, 1, 2)


def _factor(images: NDArray[Any], name: str) -> float:
    """What makes them 0 to 255."""
    if images.dtype == np.uint8:
        return 1
    if images.dtype == np.bool_:
        return 255
    if images.dtype.kind not in "iuf":
        raise TableError(name, f"pictures must be numbers; got {images.dtype}.")
    low, high = float(images.min()), float(images.max())
    if not 0 <= low <= high <= 255:
        raise TableError(
            name,
            f"pixels must be from 0 to 255, or from 0 to 1; got {low:.4g} to {high:.4g}. Save "
            "them before they are standardised.",
        )
    return 255 if images.dtype.kind == "f" and high <= 1 else 1


def class_numbers(
    labels: Mapping[str, NDArray[Any]], names: tuple[str, ...], name: str
) -> tuple[dict[str, NDArray[np.int64]], tuple[str, ...]]:
    """Labels as numbers of classes, and the names of the classes.

    Args:
        labels: part → whole numbers or texts, (N,) or (N, 1), or one-hot; 'train' has all classes.
        names: of the classes, by number; () where the labels are all that is known.
        name: of the set.

    Raises:
        ValueError: labels of another form, fewer than two classes, one that train lacks.
    """
    values = {part: _plain_labels(own, f"{name}, {part}") for part, own in labels.items()}
    known = np.unique(values["train"])
    classes = tuple(map(str, known))
    if names and known.dtype.kind != "U" and 0 <= known[0] <= known[-1] < len(names):
        known, classes = np.arange(len(names)), names
    if len(classes) < 2:
        raise TableError(name, f"there must be two classes or more; got {classes[0]!r:.60} alone.")
    codes = {}
    for part, own in values.items():
        found = np.searchsorted(known, own.astype(known.dtype)).clip(0, len(known) - 1)
        odd = np.flatnonzero(known[found] != own)
        if len(odd):
            label = str(own[odd[0]])
            raise TableError(
                f"{name}, {part}", f"every label must be a class of train; got {label!r:.60}."
            )
        codes[part] = found.astype(np.int64)
    return codes, classes


def _plain_labels(labels: NDArray[Any], name: str) -> NDArray[Any]:
    """Whole numbers, or texts, (N,)."""
    kind = labels.dtype.kind
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    hot = labels.ndim == 2 and kind in "iufb" and np.isin(labels, (0, 1)).all()
    if hot and (labels.sum(1) == 1).all():
        return np.asarray(labels.argmax(1))
    whole = kind in "iub" or (kind == "f" and bool((np.rint(labels) == labels).all()))
    if labels.ndim != 1 or not (whole or kind == "U"):
        raise TableError(
            name,
            "labels must be whole numbers or texts, one a picture; got "
            f"{labels.dtype} of shape {labels.shape}.",
        )
    return labels if kind == "U" else labels.astype(np.int64)
