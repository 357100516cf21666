"""A recipe from its plan to its page: run what is not done yet, keep the rows, read them back."""

import datetime
import hashlib
import json
import platform
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from expacc.files import Between, check_shape
from expacc.recipes.recipe import Account, Failure, Recipe, RecipeOptions, Result, Work
from expacc.runner.engine import Engine, Outcome, cores, run_items, workers_for
from expacc.runner.rows import LONGEST, Row
from expacc.runner.store import FILE, Store
from expacc.runner.store_files import other_study_error, unreadable_error

PATIENCE = 10.0  # seconds for git, which a slow disk may need

_ASKED = {
    **{"recipe": str, "quick": bool, "seeds": (Between(1), None), "seed": int},
    "short?": bool,
}
_NOTES = {
    "started": str,
    "command": str,
    "digests": {str: str},
    "items": {str: Between(0)},
    "missing": [str],
    "facts": dict,
    "machines?": [str],
    "commits?": [str],
    "device?": str,
    "seconds?": Between(0.0, LONGEST),
    "planned?": {"items": Between(0), "runs": Between(0)},
}


@dataclass(frozen=True)
class How:
    """How the work is done, which does not change its results.

    Args:
        command: as it was typed, for the page.
        engine: 'local' or 'ray'.
        workers: None for all cores.
        address: of a Ray cluster.
        progress: show a bar.
        fresh: delete the rows that are there.
        gpus: the share of a GPU that an item takes on a Ray cluster.
    """

    command: str = ""
    engine: Engine = "local"
    workers: int | None = None
    address: str | None = None
    progress: bool = True
    fresh: bool = False
    gpus: float = 0.0


def identity(recipe: Recipe, ask: RecipeOptions) -> dict[str, Any]:
    """What makes a run this one, for the store; the data is compared apart, see ``digests``."""
    asked = {"recipe": recipe.name, "quick": ask.quick, "seeds": ask.seeds, "seed": ask.seed}
    return {**asked, "short": True} if ask.short else asked


def digests(work: Work) -> dict[str, str]:
    """Which data it is: name → SHA-256, of what is shared and of what the facts name.

    Shared names are taken up to the first '/', so that a table is one entry.
    """
    hashes: dict[str, Any] = {}
    for key in sorted(work.shared):
        value = work.shared[key]
        shape = f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else len(value)
        one = hashes.setdefault(key.partition("/")[0], hashlib.sha256())
        one.update(f"{key} {shape}\n".encode())
        one.update(value.tobytes() if isinstance(value, np.ndarray) else value)
    found = {name: one.hexdigest() for name, one in hashes.items()}
    return {**found, **{str(k): str(v) for k, v in work.facts.get("digests", {}).items()}}


def run_recipe(
    recipe: Recipe, ask: RecipeOptions, work: Work, folder: str | Path, how: How | None = None
) -> tuple[Result, Outcome]:
    """Run what is not done yet, and give the page of all of it.

    Parts that failed as a whole are tried again. Tables that were not there the first time are
    added; tables that are no longer there keep their rows, and their place when they come back.

    Raises:
        ValueError: the folder holds another run, or the same with other data.
        OSError: the disk is full or the like.
        KeyboardInterrupt: after Ctrl-C, with everything in order.
    """
    how = how or How()
    folder = Path(folder)
    with Store.open(folder, identity(recipe, ask), resume=not how.fresh) as store:
        store.forget_failed_items()
        before = _notes(store)
        known, here = before.get("digests", {}), digests(work)
        if any(known.get(name, value) != value for name, value in here.items()):
            shared = {name: known[name] for name in here if name in known}
            raise other_study_error(folder, {"data": shared}, {"data": here})
        _note(store, before, ask, work, how, {**known, **here})
        start = time.monotonic()
        try:
            outcome = run_items(
                store,
                [replace(item, gpus=how.gpus) for item in work.items],
                work.executor,
                failed_rows=work.failed_rows,
                shared=work.shared,
                engine=how.engine,
                workers=_workers(recipe, ask, how),
                address=how.address,
                progress=how.progress,
            )
        finally:  # an interrupted hour is an hour of work, too
            spent = time.monotonic() - start
            store.set_note("seconds", float(before.get("seconds", 0.0)) + spent)
    return load_result(recipe, folder, ours=not outcome.skipped), outcome


def _workers(recipe: Recipe, ask: RecipeOptions, how: How) -> int | None:
    """One at a time where time is measured; 0, this process, is one, too."""
    if recipe.alone and how.workers != 0:
        return 1
    return how.workers if how.gpus else workers_for(ask.device, how.workers)


def _note(
    store: Store,
    before: Mapping[str, Any],
    ask: RecipeOptions,
    work: Work,
    how: How,
    data: Mapping[str, str],
) -> None:
    """Keep with the rows all that the page will need beside them."""
    now = datetime.datetime.now(datetime.UTC)
    notes: dict[str, Any] = {"started": before.get("started", now.strftime("%Y-%m-%d %H:%M UTC"))}
    done = store.done_items()
    if any(item.key not in done for item in work.items):  # or this machine does nothing
        for name, value in (("machines", machine(ask.device)), ("commits", commit())):
            notes[name] = list(dict.fromkeys(filter(None, [*before.get(name, ()), value])))
        notes["device"] = ask.device
    notes["command"] = how.command
    notes["digests"] = dict(data)
    notes["items"] = {item.key: item.runs for item in work.items}
    notes["missing"] = list(work.missing)
    notes["facts"] = dict(work.facts)
    store.set_notes(notes)  # all or none: no death leaves a run without its facts


def has_rows(folder: str | Path) -> bool:
    """Whether a folder holds the rows of a recipe."""
    return (Path(folder) / FILE).is_file()


def parts_done(recipe: Recipe, ask: RecipeOptions, work: Work, folder: str | Path) -> int:
    """How many parts of this work a folder has already; 0 if it holds something else."""
    if not has_rows(folder):
        return 0
    with Store.read(folder) as store:
        same = store.study() == json.loads(json.dumps(identity(recipe, ask)))
        done = store.done_items() if same else set()
    return sum(item.key in done for item in work.items)


def load_result(recipe: Recipe, folder: str | Path, *, ours: bool = False) -> Result:
    """The page of the rows that a folder holds, all or, while it runs, a part.

    Args:
        recipe: whose page it is.
        folder: of the rows.
        ours: all of them were made just now, so that an error of the page is no damage but a bug.

    Raises:
        FileNotFoundError: it holds none.
        ValueError: it holds something else.
    """
    none = FileNotFoundError(
        f"{folder} must hold the rows of {recipe.name}; it has none. "
        f"Run expacc reproduce {recipe.name}."
    )
    if not has_rows(folder):
        raise none
    with Store.read(folder) as store:
        asked, notes, where = store.study(), _notes(store), store.path
        if asked.get("recipe") != recipe.name:
            raise other_study_error(Path(folder), asked, {**asked, "recipe": recipe.name})
        if "facts" not in notes:  # killed as soon as it was begun
            raise none
        _check(where, asked, _ASKED, "settings")
        _check(where, notes, _NOTES, "notes")
        items, done = notes["items"], store.done_items()
        # Rows of tables that were there once are kept, but the facts no longer speak of them.
        rows = [row for row in store.rows() if row.item in items]
        account = Account(
            command=notes["command"],
            started=notes["started"],
            seconds=float(notes.get("seconds", 0.0)),
            machines=tuple(notes.get("machines", ())),
            versions=_worth_telling(store.made_with()),
            commits=tuple(notes.get("commits", ())),
            quick=bool(asked["quick"]),
            seeds=asked["seeds"],
            seed=int(asked["seed"]),
            device=notes.get("device", "cpu"),
            parts=len(items),
            parts_done=sum(key in done for key in items),
            runs=sum(runs for key, runs in items.items() if key in done),
            failures=failures_of(rows),
            missing=tuple(notes["missing"]),
        )
    try:
        page = recipe.write(rows, notes["facts"])
    except Exception as error:
        if ours:
            raise
        # Each recipe has facts of its own, so who writes the page is the first to see them.
        raise unreadable_error(
            where,
            f"rows and facts that {recipe.name} cannot read ({type(error).__name__}: {error})",
        ) from error
    return Result(recipe, page, account)


def _notes(store: Store) -> dict[str, Any]:
    """The notes of a run, as far as it is, of the shapes that ``_note`` gave them."""
    notes = store.notes()
    for name, value in notes.items():
        shape = _NOTES.get(name, _NOTES.get(f"{name}?"))
        if shape is not None:
            _check(store.path, value, shape, f"note {name}")
    return notes


def _check(path: Path, value: Any, shape: Any, name: str) -> None:
    try:
        check_shape(value, shape, name)
    except ValueError as error:
        raise unreadable_error(path, f"{error}") from None


def _worth_telling(made_with: Sequence[Mapping[str, str]]) -> tuple[Mapping[str, str], ...]:
    """Sets of versions without the machine, which is told in better words."""
    found = [
        {k: v for k, v in one.items() if k not in ("machine", "platform")} for one in made_with
    ]
    return tuple(one for place, one in enumerate(found) if one not in found[:place])


# ------------------------------------------------------------------------------------- provenance


def failures_of(rows: Sequence[Row]) -> tuple[Failure, ...]:
    """The failed runs by method, table and reason, the most frequent first."""
    counts = Counter((f"{r.loss} on {r.table}", r.failure) for r in rows if r.failure is not None)
    found = [Failure(what, reason, count) for (what, reason), count in counts.items()]
    return tuple(sorted(found, key=lambda one: (-one.count, one.what, one.reason)))


def machine(device: str = "cpu") -> str:
    """The machine in a line: 'AMD EPYC 7763, 2 cores', and the graphics card if it is used."""
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
