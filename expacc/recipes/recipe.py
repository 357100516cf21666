"""What a recipe is: what it needs, what it runs, the page that it writes from stored rows, and how
that page came about."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from expacc.recipes.page import Page

if TYPE_CHECKING:  # they bring numpy, which the list of recipes does not need
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
    """

    data: Path | None = None
    seeds: int | None = None
    quick: bool = False
    seed: int = 0
    device: str = "cpu"


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
    """

    items: tuple["WorkItem", ...]
    executor: str
    failed_rows: "FailedRows"
    shared: "Shared" = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


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
        alone: True if items measure time, and must not run beside each other.
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
