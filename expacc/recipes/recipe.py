"""What a recipe is: what it needs, what it runs, the page that it writes from stored rows, and how
that page came about; which there are, and where their data comes from."""

import difflib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from expacc.recipes.page import Page
from expacc.recipes.paper import load_paper

if TYPE_CHECKING:  # they bring numpy, which the list of recipes does not need
    from expacc.data import SealedTest, TrainRows
    from expacc.data.collections import Found
    from expacc.runner.items import FailedRows, Shared, WorkItem
    from expacc.runner.rows import Row

Paper = Literal["EXACT", "leaky expected error", "mixing", "blog"]


@dataclass(frozen=True)
class RecipeOptions:
    """What the user asked for.

    Args:
        data: the folder that holds the recipes' data folders (``exact-uci``, ``mnist`` …); None
            if none was named.
        seeds: repeats with other seeds; None for the paper's own number.
        quick: a small part of the whole, in a minute or so: fewer tables, seeds and trials, but
            every step of the way.
        seed: of everything random.
        device: where to train.
        short: less than the paper's protocol, minutes on a GPU; what is left out stands on the
            page. On a CPU it is the default, and shorter.
    """

    data: Path | None = None
    seeds: int | None = None
    quick: bool = False
    seed: int = 0
    device: str = "cpu"
    short: bool = False

    @property
    def protocol(self) -> Literal["full", "short", "quick"]:
        """'full', the paper's, on a GPU or where seeds are asked for; else 'short', or 'quick'."""
        if self.quick:
            return "quick"
        full = self.seeds is not None or self.device != "cpu"
        return "full" if full and not self.short else "short"


@dataclass(frozen=True)
class Work:
    """What a recipe runs, cut into items for the engines of a study.

    Args:
        items: a second to a minute each; all rows of an item are saved together.
        executor: carries an item out, as 'package.module:function'.
        failed_rows: the rows of an item that gave none.
        shared: data for every item: bytes and arrays.
        missing: one sentence per part that cannot be done: which files, and where they come from.
        facts: what the page needs to know beside the rows, as JSON holds it. Where data is not in
            ``shared``, 'digests' says which it was: name → SHA-256.
        minutes: about how long it takes where it was planned for; None for the recipe's own.
    """

    items: tuple["WorkItem", ...]
    executor: str
    failed_rows: "FailedRows"
    shared: "Shared" = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    minutes: float | None = None


@dataclass(frozen=True)
class Recipe:
    """One table or figure of a paper, to be done again.

    Args:
        name: as typed after ``expacc reproduce``.
        paper: whose claim it is.
        shows: which tables and figures: 'Tables 1, 2, 8'.
        what: one line.
        needs: data folders under ``--data``; empty for none.
        minutes: on two cores, measured.
        plan: cuts the work; raises a ValueError with one sentence if nothing can be done.
        write: the page, from the rows that there are, all or a part, and the facts of the work.
        alone: True if items measure time, or have all GPUs, and must not run beside each other.
    """

    name: str
    paper: Paper
    shows: str
    what: str
    needs: tuple[str, ...]
    minutes: float
    plan: Callable[[RecipeOptions], Work]
    write: Callable[[Sequence["Row"], Mapping[str, Any]], Page]
    alone: bool = False


@dataclass(frozen=True)
class Failure:
    """Runs that failed for one reason.

    Args:
        what: method and table.
        reason: as the run gave it.
        count: how many.
    """

    what: str
    reason: str
    count: int


@dataclass(frozen=True)
class Account:
    """All that a page says about its own making.

    Args:
        command: what to type to have it again.
        started: when, in words.
        seconds: of work, over all the times that it was resumed.
        machines: those that did it, one unless it was moved.
        versions: package → version, one set unless something was updated.
        commits: of this code; empty where it is no repository.
        quick: whether only a small part was asked for.
        seeds: how many were asked for; None for the paper's own number.
        seed: of everything random.
        device: where it was trained.
        parts: how many the work was cut into.
        parts_done: how many of them are finished.
        runs: how many are finished.
        failures: those of them without a result.
        missing: one sentence for each part of the data that was not there.
    """

    command: str = ""
    started: str = ""
    seconds: float = 0.0
    machines: tuple[str, ...] = ()
    versions: tuple[Mapping[str, str], ...] = ()
    commits: tuple[str, ...] = ()
    quick: bool = False
    seeds: int | None = None
    seed: int = 0
    device: str = "cpu"
    parts: int = 0
    parts_done: int = 0
    runs: int = 0
    failures: tuple[Failure, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether all of the work is done."""
        return self.parts_done >= self.parts

    @property
    def failed(self) -> int:
        """How many runs failed."""
        return sum(failure.count for failure in self.failures)


@dataclass(frozen=True)
class Result:
    """A recipe, the page that its rows gave, and how they came about."""

    recipe: Recipe
    page: Page
    account: Account


def final_row(item: "WorkItem", name: str, **more: Any) -> "Row":
    """A row of an item that is no sweep; ``name`` tells it from others of the item, '' if alone."""
    from expacc.runner.rows import Row

    key = f"{item.key}/{name}" if name else item.key
    return Row(**{"key": key, "item": item.key, "kind": "final", "fold": "", **more})


def failed_row(item: "WorkItem", reason: str) -> list["Row"]:
    """The row of an item that gave none, where items are no sweep over tables."""
    asked = item.payload
    return [
        final_row(
            item,
            "failed",
            table=str(asked.get("toy") or asked.get("case") or asked.get("part", "")),
            loss=str(asked.get("loss") or asked.get("method") or "exact"),
            fold=str(asked.get("part", "")),
            numbers=dict(asked),
            failure=reason,
        )
    ]


# ---------------------------------------------------------------------------------- which there are

PAPERS = ["exact", "leaky", "mixing"]  # the folders, in the order of the recipes
# Further modules that end with RECIPES and are cheap to import.
MODULES: list[str] = []


def paper_titles() -> dict[str, str]:
    """Short name of a paper → its title."""
    found: dict[str, str] = {}
    for paper in map(load_paper, PAPERS):
        found |= {paper["name"]: paper["title"], **paper.get("titles", {})}
    return found


def recipes_of(folder: str) -> list[Recipe]:
    """The recipes that a paper declares; what they run is imported when it is asked for."""
    paper, found = load_paper(folder), []
    for name, one in paper["recipes"].items():
        called = {step: functools.partial(_call, one[step]) for step in ("plan", "write")}
        needs = tuple(one.get("needs", ()))
        found.append(Recipe(name, **{"paper": paper["name"], **one, "needs": needs, **called}))
    return found


def _call(path: str, *given: Any) -> Any:
    """Call the function with the path 'package.module:name'; its module may bring torch."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)(*given)


def recipes() -> dict[str, Recipe]:
    """Every recipe by its name, in the order of the papers.

    Raises:
        ValueError: two recipes have the same name.
    """
    found: dict[str, Recipe] = {}
    declared = [one for folder in PAPERS for one in recipes_of(folder)]
    declared += [one for module in MODULES for one in import_module(module).RECIPES]
    for one in declared:
        if one.name in found:
            raise ValueError(f"recipes must have different names; got {one.name!r} twice.")
        found[one.name] = one
    return found


def recipe(name: str) -> Recipe:
    """The recipe of that name.

    Raises:
        ValueError: there is none; names the one that was probably meant.
    """
    known = recipes()
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    meant = f" Did you mean {close[0]}?" if close else ""
    raise ValueError(
        f"NAME must be a recipe; got {name!r}.{meant} expacc reproduce lists all {len(known)}."
    )


# --------------------------------------------------------------------------------------- their data

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
    "cifar-10-batches-bin": "the six files of CIFAR-10's binary version, data_batch_1.bin … "
    "test_batch.bin, from https://www.cs.toronto.edu/~kriz/cifar.html",
    "cifar-100-binary": "train.bin and test.bin of CIFAR-100's binary version, from "
    "https://www.cs.toronto.edu/~kriz/cifar.html",
    "cinic-10": "the folders train, valid and test of CINIC-10 with a folder for each class, from "
    "https://datashare.ed.ac.uk/handle/10283/3192",
    "imagenet": "the folders train and val of ImageNet-2012 with a folder of pictures for each "
    "class, from https://www.image-net.org",
    "svhn": "the cropped digits train_32x32.mat and test_32x32.mat, from "
    "https://ufldl.stanford.edu/housenumbers",
}


def data_folder(data: Path | None, name: str) -> Path | None:
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


def data_file(place: Path | None, name: str) -> Path | None:
    """The file ``name`` in a folder, plain or compressed; None if there is none.

    >>> data_file(None, "car.data") is None
    True
    """
    if place is None:
        return None
    return next((path for end in ENDINGS if (path := place / (name + end)).is_file()), None)


def missing_data(folder: str, *files: str) -> str:
    """One sentence on what is not there and where it comes from.

    Args:
        folder: a key of ``ORIGINS``.
        files: which are missing, as paths in that folder; none for the whole folder.

    >>> print(missing_data("mnist", "train-images-idx3-ubyte"))
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


def need_data(data: Path | None, name: str) -> Path:
    """As ``data_folder``, for a recipe that can do nothing without it.

    Raises:
        ValueError: with the sentence of ``missing_data``.
    """
    found = data_folder(data, name)
    if found is None:
        raise ValueError(missing_data(name))
    return found


def tables_of(folder: Path, kind: str) -> list["Found"]:
    """The tables of a folder that come with folds of a kind; none of an empty folder."""
    from expacc.data import find_tables

    try:
        return [one for one in find_tables(folder)[0] if one.kind == kind]
    except ValueError:
        return []


def open_folds(
    ask: Mapping[str, Any], shared: "Shared", names: Sequence[str], dtype: str = "float32"
) -> list[dict[str, tuple["TrainRows", "SealedTest"]]]:
    """An item's folds; those of one width, which can train together, are one entry.

    A column that is constant in a fold's training rows is left out there.
    """
    from expacc.compare.serialize import unpack_split, unpack_table
    from expacc.data import open_split

    table = unpack_table(ask["table"], shared)
    widths: dict[int, dict[str, tuple[TrainRows, SealedTest]]] = {}
    for fold in ask["folds"]:
        split = unpack_split(table.name, fold, shared)
        train, test, _ = open_split(table, split, methods=names, seed=ask["seed"], dtype=dtype)
        widths.setdefault(train.features.shape[1], {})[fold] = train, test
    return list(widths.values())
