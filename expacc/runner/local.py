"""Work items on the cores of this machine: one process per core, one thread per process.

The parent hands out items and gathers replies; it alone writes to the store. A worker is a fresh
Python (never a fork, which torch's thread pools do not survive) that imports the executor by name,
so nothing of the calling script runs twice. It ends with its parent (``boot.py``), and without a
word.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

from expacc.runner.items import (
    RETRIES,
    THREADS,
    Part,
    Reply,
    Shared,
    WorkItem,
    listen,
    load_executor,
    map_shared,
    run_item,
    write_shared,
)

TICK = 0.2  # seconds between looks at Ctrl-C and the progress bar
FAILED_STARTS = 5  # workers in a row that die before they are ready
READY = "ready"
BOOT = Path(__file__).with_name("boot.py")


def replies(
    items: Sequence[WorkItem],
    executor: str,
    shared: Shared,
    *,
    workers: int,
    stopped: Callable[[], bool],
) -> Iterator[tuple[WorkItem, Reply | bytes] | float]:
    """Carry out all items and give each with its reply as it comes, and before with its parts.

    When time passes: how many runs are done of the items that are under way.

    Args:
        items: in the order in which they are begun.
        executor: 'package.module:function'.
        shared: read-only data for every call.
        workers: how many processes.
        stopped: once it says True, replies that are complete are given and the rest is dropped.
    """
    data, parts = write_shared(shared)
    with data:
        pool = _Pool(items, executor, data, parts, workers)
        try:
            yield from pool.work(stopped)
        finally:
            pool.close()


class _Worker:
    """A process, and the items it has: the first is being carried out, others wait."""

    def __init__(self, executor: str, data: IO[bytes], parts: dict[str, Part]) -> None:
        self.link, theirs = Pipe()
        boot = {
            "path": sys.path,
            "executor": executor,
            "parent": os.getpid(),
            "link": theirs.fileno(),
            "data": data.fileno(),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(BOOT), json.dumps(boot)],
            pass_fds=(theirs.fileno(), data.fileno()),
            stdin=subprocess.DEVNULL,
            stdout=2,  # what an executor prints must not mix with results
            env={**os.environ, **THREADS},
            process_group=0,  # Ctrl-C in the terminal is for the parent
        )
        theirs.close()
        self.items: deque[WorkItem] = deque()
        self.ready = False
        self.under_way = 0.0  # runs of the first item that are done
        self.send(parts)

    def send(self, message: Any) -> bool:
        try:
            self.link.send(message)
        except OSError:  # it is dead, which the next look at its link shows
            return False
        return True

    def end(self) -> str:
        """Make sure that it is dead, and say how it died."""
        self.link.close()
        try:
            status = self.process.wait(timeout=1.0)  # its link is closed: it is going
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        if status >= 0:
            return f"ended with exit status {status}"
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        memory = ", as a system without free memory does" if name == "SIGKILL" else ""
        return f"was killed by {name}{memory}"


class _Pool:
    """All workers, and the items that none of them has."""

    def __init__(
        self,
        items: Sequence[WorkItem],
        executor: str,
        data: IO[bytes],
        parts: dict[str, Part],
        workers: int,
    ) -> None:
        self._pending = deque(items)
        self._deaths: Counter[str] = Counter()
        self._failed_starts = 0
        self._start: Callable[[], _Worker] = lambda: _Worker(executor, data, parts)
        self._workers: list[_Worker] = []
        try:
            for _ in range(min(workers, len(items))):
                self._workers.append(self._start())
        except BaseException:
            self.close()
            raise

    def work(self, stopped: Callable[[], bool]) -> Iterator[tuple[WorkItem, Reply | bytes] | float]:
        while self._pending or any(worker.items for worker in self._workers):
            asked = stopped()
            by_link = {worker.link: worker for worker in self._workers}
            active = wait(list(by_link), timeout=0 if asked else TICK)
            for link in active:
                worker = by_link[link]  # type: ignore[index]
                try:
                    message = worker.link.recv()
                except (EOFError, OSError):
                    if asked:
                        self._workers.remove(worker)
                        worker.end()
                    elif (lost := self._replace(worker)) is not None:
                        yield lost
                    continue
                if message == READY:
                    worker.ready, self._failed_starts = True, 0
                    continue
                if isinstance(message, float):
                    worker.under_way += message
                    continue
                if isinstance(message, bytes):
                    item = worker.items[0]
                    worker.items[0] = replace(item, kept=(*item.kept, message))
                    yield item, message
                    continue
                item, worker.under_way = worker.items.popleft(), 0.0
                if not asked:
                    self._feed(worker)  # before the reply is saved: nobody waits for the disk
                yield item, message
            if asked and not active:
                return
            if not asked:
                for worker in self._workers:
                    self._feed(worker)
                yield self._under_way()

    def _under_way(self) -> float:
        """Runs that are done of items that are not."""
        busy = [one for one in self._workers if one.items]
        return sum((min(one.under_way, one.items[0].runs) for one in busy), start=0.0)

    def _feed(self, worker: _Worker) -> None:
        """Keep one item in advance, but none at the end, where another worker may be free."""
        while worker.ready and self._pending:
            if len(worker.items) >= (2 if len(self._pending) > len(self._workers) else 1):
                return
            item = self._pending.popleft()
            if not worker.send(item):
                self._pending.appendleft(item)
                return
            worker.items.append(item)

    def _replace(self, dead: _Worker) -> tuple[WorkItem, Reply] | None:
        """Start another worker; the item that was being carried out is tried again at the end."""
        how = dead.end()
        if not dead.ready:
            self._failed_starts += 1
            if self._failed_starts >= FAILED_STARTS:
                raise RuntimeError(
                    f"workers must start; {FAILED_STARTS} in a row died before they were ready, "
                    f"the last one {how}. Try workers=0 to see why."
                )
        lost = dead.items.popleft() if dead.items else None
        self._pending.extendleft(reversed(dead.items))
        self._workers[self._workers.index(dead)] = self._start()
        if lost is None:
            return None
        self._deaths[lost.key] += 1
        if self._deaths[lost.key] <= RETRIES:
            self._pending.append(lost)
            return None
        times = self._deaths[lost.key]
        return lost, Reply(failure=f"the worker process {how}, {times} times out of {times}")

    def close(self) -> None:
        for worker in self._workers:
            worker.process.kill()  # it has nothing to lose
        for worker in self._workers:
            worker.end()


def serve(executor: str, link: int, data: int) -> None:
    """A worker's life: carry out what comes, until the parent is gone."""
    connection: Connection[Any, Any] = Connection(link)
    inbox: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_listen, args=(connection, inbox), daemon=True).start()
    parts = inbox.get()
    function = load_executor(executor)
    listen(lambda told: _tell(connection, told))
    shared = map_shared(data, parts)
    _tell(connection, READY)
    while True:
        reply = run_item(function, inbox.get(), shared)
        try:
            _tell(connection, reply)
        except Exception as error:  # what cannot be pickled is not sent at all
            _tell(connection, Reply(failure=f"rows must be plain data; got: {error}"))


def _tell(connection: "Connection[Any, Any]", message: Any) -> None:
    try:
        connection.send(message)
    except OSError:
        os._exit(1)  # nobody is there


def _listen(connection: "Connection[Any, Any]", inbox: "SimpleQueue[Any]") -> None:
    """Take in what comes at any time, so that the parent never waits to hand it over."""
    try:
        while True:
            inbox.put(connection.recv())
    except (EOFError, OSError):
        os._exit(0)  # the parent is gone, or is done with us: an item under way is of no use
