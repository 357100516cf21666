"""How a page came about: what was run, when, on what, with what, and what failed."""

import platform
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from expacc.recipes.page import Page
from expacc.recipes.recipe import Recipe

if TYPE_CHECKING:
    from expacc.runner.rows import Row

__all__ = ["Account", "Failure", "Result", "commit", "failures_of", "machine"]

PATIENCE = 10.0  # seconds for git, which a slow disk may need


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


def machine(device: str = "cpu") -> str:
    """The machine in a line: 'AMD EPYC 7763, 2 cores', and the graphics card if it is used.

    Args:
        device: of the training.
    """
    from expacc.runner.engine import cores

    count = cores()
    text = f"{_processor()}, {count} core{'s' if count > 1 else ''}"
    if device.startswith("cuda"):
        import torch

        text += f", {torch.cuda.get_device_name(device)}"
    return text


def _processor() -> str:
    names = (_linux_processor, _mac_processor, platform.processor, platform.machine)
    return next((found for name in names if (found := name())), "unknown processor")


def _linux_processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "")


def _mac_processor() -> str:
    if platform.system() != "Darwin":
        return ""
    return _output(["sysctl", "-n", "machdep.cpu.brand_string"])


def commit() -> str:
    """The commit of this package, '+' added if files differ from it; '' outside its repository."""
    package = Path(__file__).resolve().parent.parent
    git = ["git", "-C", str(package)]
    # An installed package may lie in somebody else's repository, which does not track it.
    if not _output([*git, "ls-files", "__init__.py"]):
        return ""
    changed = _output([*git, "status", "--porcelain", "--untracked-files=no", "--", "."])
    return _output([*git, "rev-parse", "--short=10", "HEAD"]) + ("+" if changed else "")


def _output(words: list[str]) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
