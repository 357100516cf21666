"""How a page came about: what was run, when, on what, with what, and what failed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from expacc.recipes.page import Page
from expacc.recipes.recipe import Recipe

if TYPE_CHECKING:
    from expacc.runner.rows import Row

__all__ = ["Account", "Failure", "Result", "failures_of"]


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


def failures_of(rows: Sequence["Row"]) -> tuple[Failure, ...]:
    """The failed runs by method, table and reason, the most frequent first."""
    counts = Counter((f"{r.loss} on {r.table}", r.failure) for r in rows if r.failure is not None)
    found = [Failure(what, reason, count) for (what, reason), count in counts.items()]
    return tuple(sorted(found, key=lambda one: (-one.count, one.what, one.reason)))
