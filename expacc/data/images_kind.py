"""Which set of pictures lies at a path, by what the files hold, and its arrays."""

import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path

from expacc.data.images_arrays import Found, is_idx, read_cifar, read_idx_files
from expacc.data.images_folder import class_folders, entries, is_picture, part_folders
from expacc.data.images_mat import read_mat
from expacc.data.images_npz import read_npz
from expacc.data.options import TableError

_PICKLED = ("batches.meta", "data_batch_1", "cifar-10-python.tar.gz", "cifar-100-python.tar.gz")


def image_kind(data: str | Path) -> str | None:
    """What set of pictures lies there: 'folder', 'npz', 'idx', 'cifar', 'mat'; None if it is none.

    A folder is one of pictures if two or more folders in it, or in its train/, hold pictures.

    Raises:
        ValueError: pictures without class folders, or pickled ones; says what was seen.
    """
    path = Path(data)
    if path.is_file():
        if path.name in _PICKLED:
            raise _pickled(path.name)
        if path.suffix.lower() in (".npz", ".mat"):
            return path.suffix.lower()[1:]
        if path.suffix.lower() == ".bin":
            return "cifar"
        if is_picture(str(path)):
            raise TableError(
                path.name, "it is one picture; give the folder that holds a folder for each class."
            )
        return "idx" if _is_idx_file(path) else None
    if not path.is_dir():
        return None
    files, folders, _ = entries(path)
    if any(name in _PICKLED for name in files) or {"train", "test", "meta"} <= set(files):
        raise _pickled(path.name)
    if any(Path(name).suffix == ".bin" and _cifar_part(name) for name in files):
        return "cifar"
    if any(name.lower().endswith("_32x32.mat") for name in files):
        return "mat"
    if any(_is_idx_file(Path(one)) for one in list(files.values())[:100]):
        return "idx"
    parts = part_folders(folders)
    train = next((folders[name] for name, part in parts.items() if part == "train"), None)
    found = class_folders(train or path)
    if len(found) > 1:
        return "folder"
    beside = entries(train)[0] if train else files
    loose = [name for name, one in beside.items() if is_picture(one)]
    if (loose or found) and all(map(is_picture, files.values())):  # else there may be tables
        where = f"{path.name}/{Path(train).name}" if train else path.absolute().name
        seen = [f"the folder {name!r} with pictures" for name in found]
        seen += [f"{len(loose):,} pictures without a folder, such as {loose[0]!r}"] if loose else []
        raise TableError(
            where,
            "a set of pictures must hold a folder for each class, two or more; got "
            f"{' and '.join(seen) or 'no folder with pictures'}.",
        )
    return None


def _pickled(name: str) -> TableError:
    return TableError(
        name,
        "this is CIFAR's python version, a pickle, which can run code; it is not opened. Take the "
        "binary version: expacc get cifar10 --to FOLDER (or cifar100).",
    )


def _is_idx_file(path: Path, axes: Sequence[int] = (3, 4)) -> bool:
    """By the first bytes of the content."""
    try:
        with path.open("rb") as file:
            head = file.read(4)
        if head.startswith(b"\x1f\x8b"):
            with gzip.open(path) as stream:
                head = stream.read(4)
    except (OSError, EOFError, zlib.error):
        return False
    return is_idx(head, axes)


def _cifar_part(name: str) -> str | None:
    stem = name.lower().removesuffix(".bin")
    if stem == "train" or (stem.startswith("data_batch_") and stem[11:].isdigit()):
        return "train"
    return "test" if stem in ("test", "test_batch") else None


def seen(path: Path) -> str:
    """What lies there, for a message."""
    if not path.is_dir():
        return "a file of another kind" if path.exists() else "nothing"
    files, folders, _ = entries(path)
    named = [*(f"{folder}/" for folder in folders), *files]
    return (
        f"{', '.join(named[:8])}{', …' if len(named) > 8 else ''}" if named else "an empty folder"
    )


def read_arrays(path: Path, kind: str) -> Found:
    """The arrays of a file or folder of one of these kinds, but 'folder'."""
    folder = path if path.is_dir() else path.parent
    if kind == "npz":
        return read_npz(path)
    files = [Path(one) for one in entries(folder)[0].values()]
    if kind == "mat":
        names = [one for one in files if one.name.lower() in ("train_32x32.mat", "test_32x32.mat")]
        return read_mat(sorted(names, reverse=True) if path in names or path == folder else [path])
    if kind == "cifar":
        parts = {one: _cifar_part(one.name) for one in files if one.suffix.lower() == ".bin"}
        if path != folder and parts.get(path) is None:
            return read_cifar([path], [])
        train, test = (sorted(o for o, p in parts.items() if p == w) for w in ("train", "test"))
        return read_cifar(train or test, test if train else [])
    return read_idx_files([one for one in files if _is_idx_file(one, (1, 3, 4))])
