"""Where the data of the recipes comes from, and where it is looked for under ``--data``."""

from pathlib import Path

ENDINGS = ("", ".gz", ".xz", ".zst")  # a file is read plain or compressed

MOST_FILES = 6  # that are named before the rest is counted

# Folder under --data → what belongs there, and where that comes from.
ORIGINS = {
    "exact-uci": "one folder per table (adult, car, wine …) with the files as the UCI repository "
    "has them, https://archive.ics.uci.edu",
    "leerr-uci": "one folder per table with data.csv (no header, label last; from "
    "https://archive.ics.uci.edu, pima and ringnorm from https://www.openml.org) and its "
    "folds in split5x2.json",
    "uci121": "the prepared folders of Klambauer et al. 2017, one per table, from "
    "https://github.com/bioinf-jku/SNNs",
    "mnist": "the four original idx files, from https://yann.lecun.com/exdb/mnist or "
    "https://storage.googleapis.com/cvdf-datasets/mnist",
}


def folder(data: Path | None, name: str) -> Path | None:
    """The data folder ``name`` under the one that the user named; None if it is not there.

    Args:
        data: ``RecipeOptions.data``. It may also be the folder itself: ``--data somewhere/mnist``.
        name: a key of ``ORIGINS``.
    """
    if data is None:
        return None
    for path in (data / name, data):
        if path.name == name and path.is_dir():
            return path
    return None


def file(place: Path | None, name: str) -> Path | None:
    """The file ``name`` in a folder, plain or compressed; None if there is none.

    >>> file(None, "car.data") is None
    True
    """
    if place is None:
        return None
    return next((path for end in ENDINGS if (path := place / (name + end)).is_file()), None)


def missing(folder: str, *files: str) -> str:
    """One sentence on what is not there and where it comes from.

    Args:
        folder: a key of ``ORIGINS``.
        files: which are missing, as paths in that folder; none for the whole folder.

    >>> print(missing("mnist", "train-images-idx3-ubyte"))
    mnist/train-images-idx3-ubyte is missing: the folder mnist under --data holds the four original
    idx files, from https://yann.lecun.com/exdb/mnist or
    https://storage.googleapis.com/cvdf-datasets/mnist.
    """
    shown = [f"{folder}/{name}" for name in files[:MOST_FILES]]
    if len(files) > MOST_FILES:
        shown.append(f"{len(files) - MOST_FILES} more")
    *most, last = shown or [folder]
    what = f"{', '.join(most)} and {last} are" if most else f"{last} is"
    return f"{what} missing: the folder {folder} under --data holds {ORIGINS[folder]}."


def need(data: Path | None, name: str) -> Path:
    """As ``folder``, for a recipe that can do nothing without it.

    Raises:
        ValueError: with the sentence of ``missing``.
    """
    found = folder(data, name)
    if found is None:
        raise ValueError(missing(name))
    return found
