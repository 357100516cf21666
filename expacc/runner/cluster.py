"""Work items on a Ray cluster: the same items, the same function, the same rows.

Items are Ray tasks of one core each, and of a share of a GPU where they say so, with the shared
data once in the object store. Nothing is left to Ray's own retries, so that a worker or node that
dies means the same here as on one machine: its unfinished items are tried again, twice at most.
When this process ends, however it does, its tasks end, and so does all of a cluster that it
started.
"""

import os
import socket
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from expacc.plain import UsageError
from expacc.runner.items import (
    RETRIES,
    Executor,
    Reply,
    Shared,
    WorkItem,
    check_shared,
    load_executor,
    run_item,
    versions,
)

TICK = 0.2  # seconds between looks at Ctrl-C and the progress bar
CENSUS = 5.0  # seconds between looks at how many cores the cluster has
PATIENCE = 10.0  # seconds for a cluster to answer
AHEAD = 2  # items per core under way, so that no core waits for the next
BOOT = Path(__file__).with_name("boot.py")


def replies(
    items: Sequence[WorkItem],
    executor: str,
    shared: Shared,
    *,
    workers: int | None,
    cores: int,
    address: str | None,
    stopped: Callable[[], bool],
) -> Iterator[tuple[WorkItem, Reply] | None]:
    """Carry out all items and give each with its reply as it comes; None when time passes.

    Args as of ``local.replies``, but:
        executor: is to be imported on every node.
        workers: items at a time; as many as the cluster has cores if None.
        cores: of this machine, for a cluster that is started here.
        address: of a cluster; None starts one here, unless this process is in one already.

    Raises:
        ImportError: the package ray is missing.
        ConnectionError: there is no cluster at ``address``, or it does not take our token.
        ValueError: a node has another version of expacc, this process is in another cluster, or
            the cluster has no GPU for items that take one.
    """
    check_shared(shared)
    ray = _import_ray()
    with _in_cluster(ray, address, workers or cores):
        tasks = _Tasks(ray, items, executor, shared, workers)
        try:
            yield from tasks.work(stopped)
        finally:
            tasks.cancel()


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # what runs here is nobody's business
    try:
        import ray  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise ImportError(
            "engine='ray' needs the package ray, which is not installed. "
            "Use pip install 'ray>=2.59', or engine='local'."
        ) from None
    return ray


@contextmanager
def _in_cluster(ray: Any, address: str | None, cores: int) -> Iterator[None]:
    """Be in the cluster at ``address``, in the one we are in, or in one of our own."""
    if ray.is_initialized():
        here = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", here):
            raise UsageError(
                f"address must be that of the Ray cluster which this process is in already, "
                f"{here}; got {address!r}. Call ray.shutdown() first."
            )
        yield
        return
    _connect(ray, address, cores)
    with nullcontext() if address else _kept():
        try:
            yield
        finally:
            ray.shutdown()


def _connect(ray: Any, address: str | None, cores: int) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        # 'local' even where RAY_ADDRESS names a cluster: nobody asked for that one.
        ray.init("local", num_cpus=cores, include_dashboard=False, **options)
        return
    try:
        _knock(address)
        ray.init(address, **options)
    except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        words = " ".join(str(error).split()) or type(error).__name__
        raise ConnectionError(
            f"address must be that of a Ray cluster that runs and takes our token; got "
            f"{address!r}: {words[:200]} Start one with ray start --head, have RAY_AUTH_MODE and "
            f"the token here as there, or leave address out."
        ) from error


@contextmanager
def _kept() -> Iterator[None]:
    """Have a program that ends the agents of our cluster, should we be killed in this block."""
    try:
        raylets = [each for each in _children(os.getpid()) if _name(each) == "raylet"]
        agents = [str(agent) for raylet in raylets for agent in _children(raylet)]
    except OSError:  # one has ended just now
        agents = []
    with subprocess.Popen(
        [sys.executable, "-I", str(BOOT), "keep", *agents],
        stdin=subprocess.PIPE,  # whose end tells it of ours
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ):
        yield


def _children(process: int) -> list[int]:
    """Numbers of the processes that a process started; none where there is no /proc."""
    threads = Path(f"/proc/{process}/task").glob("*/children")
    return [int(number) for thread in threads for number in thread.read_text().split()]


def _name(process: int) -> str:
    return Path(f"/proc/{process}/comm").read_text().strip()


def _knock(address: str) -> None:
    """Raise OSError if nobody answers at host:port: Ray itself would try for minutes."""
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS", address)  # as Ray does
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()


class _Tasks:
    """The items under way and those to come."""

    def __init__(
        self, ray: Any, items: Sequence[WorkItem], executor: str, shared: Shared, limit: int | None
    ) -> None:
        self._ray, self._executor, self._limit = ray, executor, limit
        self._pending = deque(items)
        self._running: dict[Any, WorkItem] = {}
        self._deaths: Counter[str] = Counter()
        self._slots, self._counted_at = 1, -CENSUS
        self._gpus = max((item.gpus for item in items), default=0.0)
        self._check_gpus()
        self._shared = ray.put(dict(shared))
        self._path = ray.put([place for place in sys.path if place])
        self._call = f"{os.getpid()}-{time.monotonic_ns()}"
        self._carry_out = ray.remote(num_cpus=1, max_retries=0)(_carry_out)

    def _check_gpus(self) -> None:
        """Raise rather than wait forever for what no node has."""
        most = max((node["Resources"].get("GPU", 0) for node in self._ray.nodes()), default=0)
        if self._gpus > most:
            raise UsageError(
                f"--gpus-per-run must be what a node of the Ray cluster has; got {self._gpus:g}, "
                f"and {most:g} there. Start nodes with ray start --num-gpus, or use --device cpu."
            )

    def work(self, stopped: Callable[[], bool]) -> Iterator[tuple[WorkItem, Reply] | None]:
        while self._pending or self._running:
            asked = stopped()
            if not asked:
                self._submit()
            wanted = len(self._running) if asked else 1
            done, _ = self._ray.wait(
                list(self._running), num_returns=wanted, timeout=0 if asked else TICK
            )
            for task in done:
                item = self._running.pop(task)
                if not asked:
                    self._submit()  # before the reply is saved: nobody waits for the disk
                reply = self._fetch(task, item)
                if reply is not None:
                    yield item, reply
            if asked:
                return
            yield None

    def _submit(self) -> None:
        while self._pending and len(self._running) < self._room():
            item = self._pending.popleft()
            task = self._carry_out.options(num_gpus=item.gpus).remote(
                self._executor, item, self._shared, self._path, self._call
            )
            self._running[task] = item

    def _room(self) -> int:
        if self._limit is not None:
            return self._limit
        if time.monotonic() - self._counted_at > CENSUS:  # nodes come and go
            there = self._ray.cluster_resources()
            fit = there.get("CPU", 1)
            if self._gpus:
                fit = min(fit, there.get("GPU", 0) / self._gpus)
            self._slots, self._counted_at = max(1, int(fit)), time.monotonic()
        return AHEAD * self._slots

    def _fetch(self, task: Any, item: WorkItem) -> Reply | None:
        """The reply, or None if its worker or node died and the item is to be tried again."""
        errors = self._ray.exceptions
        try:
            reply: Reply = self._ray.get(task)
        except errors.RayTaskError as error:  # outside the executor: its rows, or its import
            cause = str(error.cause or error).strip().splitlines()[-1]
            return Reply(failure=f"the Ray task failed: {cause}", details=str(error))
        except errors.RayError as error:
            self._deaths[item.key] += 1
            if self._deaths[item.key] <= RETRIES:
                self._pending.append(item)
                return None
            times, kind = self._deaths[item.key], type(error).__name__
            reason = f"the Ray worker or its node died ({kind}), {times} times out of {times}"
            return Reply(failure=reason, details=str(error))
        here, there = versions().get("expacc"), reply.versions.get("expacc")
        if here != there:
            raise UsageError(
                f"expacc must have the same version on every node; got {there} on one and {here} "
                f"here. Update that node."
            )
        return reply

    def cancel(self) -> None:
        """Drop what is under way."""
        for task in self._running:
            self._ray.cancel(task, force=True)


_loaded: dict[str, Executor] = {}


def _carry_out(executor: str, item: WorkItem, shared: Shared, path: list[str], call: str) -> Reply:
    """The task: in a Ray worker, which keeps what it imported for the next one."""
    if executor not in _loaded:
        # Where the caller finds its modules, we do too if we share its disk.
        sys.path += [place for place in path if place not in sys.path and os.path.exists(place)]
        _loaded[executor] = load_executor(executor)
    return run_item(_loaded[executor], item, shared, call)
