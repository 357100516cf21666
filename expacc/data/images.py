"""Sets of pictures with labels, from folders and from the files that such sets come in.

``read_images`` takes a folder of class folders (also with train/ and test/), an .npz, MNIST's idx
files, the binary CIFAR and SVHN's .mat, and unpickles nothing.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from expacc.data.images_arrays import Found, Part
from expacc.data.images_folder import find_pictures
from expacc.data.images_kind import image_kind, read_arrays, seen
from expacc.data.options import TableError
from expacc.plain import check_count, plain

if TYPE_CHECKING:
    from torch import Tensor

    from expacc.data.images_decode import Progress

SIZE = 32  # pixels of a side, unless asked for
LEAST_SIZE = 8
_NAMED = 5  # pictures that could not be read, before the rest is counted


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Pictures to learn from, and those to test on, if they were given apart.

    Args:
        name: of the folder or file.
        images: bytes, (N, channels, height, width).
        targets: class numbers, (N,).
        classes: their names.
        files: of each picture its file, within the folder; of arrays file[place].
        test: the given test part, or None.
        notes: lines on what was noticed.

    Example:
        >>> import torch
        >>> images = torch.zeros(2, 1, 8, 8, dtype=torch.uint8)
        >>> ImageSet("two", images, torch.tensor([0, 1]), ("a", "b"), ("a/1.png", "b/1.png"))
        <ImageSet two: 2 pictures, 1 × 8 × 8, 2 classes>
    """

    name: str
    images: "Tensor"
    targets: "Tensor"
    classes: tuple[str, ...]
    files: Sequence[str]
    test: "ImageSet | None" = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.targets)

    def __repr__(self) -> str:
        shape = " × ".join(map(str, self.images.shape[1:]))
        more = "" if self.test is None else f", {len(self.test):,} to test on"
        return (
            f"<ImageSet {self.name}: {len(self):,} pictures, {shape}, {len(self.classes)} "
            f"classes{more}>"
        )

    @cached_property
    def sha256(self) -> str:
        """Of pixels, labels, names and the test part."""
        digest = hashlib.sha256(repr((self.classes, tuple(self.images.shape))).encode())
        for tensor in (self.images, self.targets):
            digest.update(tensor.contiguous().numpy().tobytes())
        for file in self.files:
            digest.update(file.encode() + b"\n")
        digest.update(b"" if self.test is None else self.test.sha256.encode())
        return digest.hexdigest()


def read_images(
    data: str | Path,
    *,
    size: int | None = None,
    workers: int | None = None,
    progress: "Progress | None" = None,
) -> ImageSet:
    """Read a set of pictures.

    A picture that cannot be read is left out and named in the notes. One that is not square is
    squeezed, not cropped; transparent places become white; of an animation the first picture is
    taken; pictures are turned as their EXIF says.

    Args:
        data: a folder of class folders, also with train/ and test/; or an .npz, idx files, the
            binary CIFAR, SVHN's .mat: a file of them, or the folder.
        size: pixels of a side; None for 32, and of arrays up to 64 their own.
        workers: processes that decode; None for one a core.
        progress: told how many pictures of all are done.

    Returns:
        Bytes, class numbers and names, and the given test part.

    Raises:
        ValueError: there is no set of pictures, or it is damaged; says what was seen.

    Example:
        >>> from tempfile import mkdtemp
        >>> path = Path(mkdtemp()) / "two.npz"
        >>> np.savez(path, x=np.zeros((4, 8, 8), np.uint8), y=[0, 1, 0, 1])
        >>> read_images(path)
        <ImageSet two: 4 pictures, 1 × 8 × 8, 2 classes>
    """
    if size is not None:
        check_count("size", size, LEAST_SIZE)
    path = Path(data)
    kind = image_kind(path)
    whole = path.is_dir() or kind in ("idx", "cifar")  # of which a file names the folder
    folder = path if path.is_dir() else path.parent
    name = plain(folder.absolute().name if whole else path.name.split(".")[0])
    if kind is None:
        raise TableError(
            str(data),
            "there must be a set of pictures: a folder with a folder for each class, an .npz, idx "
            f"files, binary CIFAR or SVHN's .mat; got {seen(path)}.",
        )
    if kind == "folder":
        return _of_folder(path, name, size or SIZE, workers, progress)
    return _of_arrays(read_arrays(path, kind), name, size)


def _of_folder(
    path: Path, name: str, size: int, workers: int | None, progress: "Progress | None"
) -> ImageSet:
    from expacc.data.images_decode import read_pictures

    layout = find_pictures(path)
    whole = [
        (part, label, one)
        for part, found in layout.parts.items()
        for label, paths in found.items()
        for one in paths
    ]
    pixels = read_pictures([one for _, _, one in whole], size, workers, progress)
    read = np.flatnonzero(pixels.read)
    notes = list(layout.notes)
    for file, why in list(pixels.refused.items())[:_NAMED]:
        notes.append(f"Left out {plain(str(Path(file).relative_to(path)))}: {why}.")
    if len(pixels.refused) > _NAMED:
        notes.append(f"Left out {len(pixels.refused) - _NAMED:,} more pictures of the kind.")
    for word, text in _SAID.items():
        if pixels.said.get(word):
            notes.append(f"{pixels.said[word]:,} of {len(read):,} pictures {text}")
    if not len(read):
        raise TableError(name, f"none of {len(whole):,} pictures can be read. {' '.join(notes)}")
    grey = pixels.said.get("grey") == len(read)
    parts: dict[str, Part] = {}
    for part in layout.parts:
        own = [place for place in read.tolist() if whole[place][0] == part]
        images = pixels.images[own][..., :1] if grey else pixels.images[own]
        labels = np.array([plain(whole[place][1]) for place in own], str)
        files = [plain(str(Path(whole[place][2]).relative_to(path))) for place in own]
        if own:
            parts[part] = Part(images, labels, files)
    return _of_arrays(Found(parts, (), tuple(notes)), name, size)


_SAID = {
    "oblong": "are not square and were squeezed.",
    "animated": "are animated or have several pages: the first was taken.",
    "clear": "have transparent places, which are white now.",
}


def _of_arrays(found: Found, name: str, size: int | None) -> ImageSet:
    import torch

    from expacc.data.images_pixels import class_numbers, to_bytes

    parts, notes = dict(found.parts), list(found.notes)
    if "train" not in parts:
        raise TableError(name, "there must be a training part; got none.")
    if (held := parts.pop("val", None)) is not None:
        if "test" in parts:
            notes.append("The validation part is left out: held-out rows are drawn from train.")
        else:
            parts["test"] = held
            notes.append("The validation part is the test part: there is no other.")
    for part, held in parts.items():
        if len(held.images) != len(held.labels) or not len(held.labels):
            raise TableError(
                name,
                f"the {part} part must have as many labels as pictures; got {len(held.labels):,} "
                f"and {len(held.images):,}.",
            )
    labels = {part: held.labels for part, held in parts.items()}
    codes, classes = class_numbers(labels, found.classes, name)
    images = {part: to_bytes(held.images, size, f"{name}, {part}") for part, held in parts.items()}
    shapes = {tuple(one.shape[1:]) for one in images.values()}
    if len(shapes) > 1:
        raise TableError(name, f"pictures of both parts must be of one shape; got {shapes}.")
    sets = {
        part: ImageSet(name, images[part], torch.from_numpy(codes[part]), classes, held.files)
        for part, held in parts.items()
    }
    return replace(sets["train"], test=sets.get("test"), notes=tuple(notes))
