"""Carry out the work items of a study that are not done yet, and save each as it is done."""

import functools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, Literal

import numpy as np

from expacc.plain import UsageError
from expacc.runner.items import (
    FailedRows,
    Reply,
    Shared,
    Told,
    WorkItem,
    check_shared,
    find_executor,
    listen,
    load_executor,
    run_item,
)
from expacc.runner.rows import Row
from expacc.runner.store import Store


class CtrlC:
    """Ctrl-C as a question that is answered between two items, so that no row is cut in two."""

    def __init__(self) -> None:
        self.asked = False
        self._at_once = False
        self._before: Any = None

    def __enter__(self) -> "CtrlC":
        main = threading.current_thread() is threading.main_thread()
        # Others have handlers of their own, and a job in the background ignores Ctrl-C.
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked or self._at_once:  # the second one, or nothing is to be kept
            raise KeyboardInterrupt
        self.asked = True

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Let Ctrl-C cut this block short."""
        if self.asked:
            raise KeyboardInterrupt
        self._at_once = True
        try:
            yield
        finally:
            self._at_once = False


Engine = Literal["local", "ray"]
ENGINES = ("local", "ray")
Best = Callable[[Sequence[Row]], str]
# Gives the replies of items as they are done, parts of them to keep, and how many runs go on.
Replies = Iterator[tuple[WorkItem, Reply | bytes] | float | None]
Source = Callable[[Sequence[WorkItem], Callable[[], bool]], Replies]


@dataclass
class Outcome:
    """What a call of ``run_items`` did.

    Args:
        done: rows saved by it.
        failed: those among them that have a failure.
        skipped: items that were there already.
        seconds: from start to end.
        busy: seconds in executors, all workers together.
        waited: seconds between two items of a worker, all workers together: what scheduling costs.
    """

    done: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    busy: float = 0.0
    waited: float = 0.0

    def add(self, reply: Reply, rows: Sequence[Row]) -> None:
        """Count the rows that an item gave."""
        self.done += len(rows)
        self.failed += sum(row.failure is not None for row in rows)
        self.busy += reply.seconds
        self.waited += reply.waited


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def workers_for(device: str, workers: int | None) -> int | None:
    """As asked; by default one for a GPU, which a second process would only make wait."""
    return 1 if workers is None and device != "cpu" else workers


def run_items(
    store: Store,
    items: Sequence[WorkItem],
    executor: str | Source,
    *,
    failed_rows: FailedRows,
    shared: Shared | None = None,
    engine: Engine = "local",
    workers: int | None = None,
    address: str | None = None,
    progress: bool = True,
    best: Best | None = None,
) -> Outcome:
    """Carry out the items that the store does not have, and save each as it is done.

    An executor that raises, and an item whose worker died three times, become rows of failure; the
    study goes on. Ctrl-C saves what is complete, ends the workers and then raises
    KeyboardInterrupt; a second one does not wait.

    Args:
        store: open for writing.
        items: all items of the study, done or not.
        executor: the function that carries out an item, as 'package.module:function'. It is
            called as ``function(item, shared)`` on one thread and returns the item's rows. Or what
            carries out all items that are left, in this process and in an order of its own.
        failed_rows: makes the rows of an item that failed, from the item and the reason.
        shared: bytes and arrays for every call, read-only, handed to each process once.
        engine: 'local' for processes on this machine, 'ray' for a Ray cluster.
        workers: how many at a time; None for all cores. 0 works in this process, to debug.
        address: of a Ray cluster that runs, or 'auto'; None starts one on this machine.
        progress: show a bar on stderr.
        best: is given the stored rows of a resumed study, without curves and predictions, then
            the rows of each item once they are saved; its answer is shown as the best so far,
            and on a terminal the lines of its ``table()``, if it has one.

    Raises:
        ValueError: an argument is not as it must be.
        OSError: the disk is full or the like; all that was saved stays.
        KeyboardInterrupt: after Ctrl-C, with everything in order.
    """
    _check(items, engine, workers, address)
    shared = shared or {}
    check_shared(shared)
    if isinstance(executor, str):
        find_executor(executor)  # a wrong name is best known here
    start = time.monotonic()
    finished = store.done_items()
    left = [
        replace(item, kept=store.parts.of(item.key)) for item in items if item.key not in finished
    ]
    runs, runs_left = (sum(item.runs for item in part) for part in (items, left))
    store.set_note("planned", {"items": len(items), "runs": runs})
    outcome, runs_done, shown = Outcome(skipped=len(items) - len(left)), runs - runs_left, ""
    if best is not None and finished:
        shown = best(store.rows(predictions=False))
    with CtrlC() as stop, _bar(runs, runs_done, progress) as bar:
        if isinstance(executor, str):
            source = _replies(store, left, executor, shared, engine, workers, address, stop)
        else:
            source = executor(left, lambda: stop.asked)
        try:
            for found in source:
                under_way = found if isinstance(found, float) else 0.0
                if found is not None and not isinstance(found, float):
                    item, reply = found
                    if isinstance(reply, bytes):
                        store.keep(item.key, reply)
                        continue
                    rows = _save(store, item, reply, failed_rows)
                    outcome.add(reply, rows)
                    runs_done += item.runs
                    shown = (best(rows) if best is not None else "") or shown
                if bar is not None:
                    bar.table = getattr(best, "table", tuple)()
                    fields = {"runs": f"{runs_done} of {runs}", "failed": str(outcome.failed)}
                    bar.update(
                        runs_done + under_way, None, **fields, **({"best": shown} if shown else {})
                    )
        finally:
            source.close()  # type: ignore[attr-defined]
    if stop.asked:
        raise KeyboardInterrupt
    outcome.seconds = time.monotonic() - start
    return outcome


def _check(
    items: Sequence[WorkItem], engine: str, workers: int | None, address: str | None
) -> None:
    if engine not in ENGINES:
        raise UsageError(f"engine must be 'local' or 'ray'; got {engine!r}.")
    if workers is not None and (type(workers) is not int or workers < 0):
        raise UsageError(f"workers must be a number of processes >= 0; got {workers!r}.")
    if engine == "ray" and workers == 0:
        raise UsageError("workers must be >= 1 with engine='ray'; got 0. Use engine='local'.")
    if address is not None and engine != "ray":
        raise UsageError(f"address must be left out with engine={engine!r}; got {address!r}.")
    keys = [item.key for item in items]
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"items must have different keys; got {twice!r} twice.")


def _replies(
    store: Store,
    items: Sequence[WorkItem],
    executor: str,
    shared: Shared,
    engine: Engine,
    workers: int | None,
    address: str | None,
    stop: CtrlC,
) -> Replies:
    """The engine asked for; with nothing left to do none is started."""
    if not items:
        yield from ()
    elif engine == "ray":
        from expacc.runner import cluster

        yield from cluster.replies(
            items,
            executor,
            shared,
            workers=workers,
            cores=cores(),
            address=address,
            stopped=lambda: stop.asked,
        )
    elif workers == 0:
        function, views = load_executor(executor), {k: _read_only(v) for k, v in shared.items()}
        call = f"{time.monotonic_ns()}"
        for item in items:
            listen(functools.partial(_keep, store, item.key))
            try:
                with stop.at_once():
                    reply = run_item(function, item, views, call)
            finally:
                listen(None)
            yield item, reply
    else:
        from expacc.runner import local

        count = cores() if workers is None else workers
        yield from local.replies(items, executor, shared, workers=count, stopped=lambda: stop.asked)


def _keep(store: Store, item: str, told: Told) -> None:
    if isinstance(told, bytes):
        store.keep(item, told)


def _read_only(value: Any) -> Any:
    """As workers see it."""
    if isinstance(value, np.ndarray):
        value = value.view()
        value.flags.writeable = False
    return value


def _save(store: Store, item: WorkItem, reply: Reply, failed_rows: FailedRows) -> Sequence[Row]:
    """Save what the item gave, or its rows of failure; the rows that were saved."""
    failure = reply.failure
    made = {"seconds": reply.seconds, "made_with": reply.versions or None}
    if failure is None:
        try:
            store.save(item.key, reply.rows, **made)  # type: ignore[arg-type]
            return reply.rows
        except (ValueError, TypeError) as error:  # rows that no store can hold
            failure = str(error)
    rows = failed_rows(item, failure)
    if any(row.failure is None for row in rows):
        raise ValueError(f"failed_rows must give rows with a failure; got others for {item.key!r}.")
    store.save(item.key, rows, failure=failure, details=reply.details, **made)  # type: ignore[arg-type]
    return rows


def _bar(total: int, done: int, shown: bool) -> AbstractContextManager[Any]:
    if not shown:
        return nullcontext(None)
    from expacc.training.progress import progress_bar  # brings torch, which a quiet study may not

    return progress_bar(total=total, title="study", done=done)
