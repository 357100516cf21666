"""Work items: what a study is cut into, and how one is carried out, whatever engine asks for it.

Data for all workers of this machine is in one file that they map, so that it is in memory once. The
file has no name: it vanishes with the last process that holds it, however that one ends.
"""

import importlib
import importlib.metadata
import importlib.util
import math
import mmap
import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from expacc.runner.rows import Row

RETRIES = 2  # of an item whose worker died; after that it is the item that kills workers
THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
PACKAGES = ("expacc", "torch", "numpy", "scikit-learn")
LONGEST_REASON = 300  # characters


@dataclass(frozen=True)
class WorkItem:
    """The unit of scheduling and of saving: its rows are written together or not at all.

    Args:
        key: unique in the study, the same whenever the study is planned again.
        payload: what the executor needs to know, as JSON would hold it. Data goes to ``shared``.
        runs: how many runs it stands for, to show how far a study is.
        gpus: the share of a GPU that it takes on a cluster, where several may have one.
        kept: what its executor gave to ``keep`` when it was begun before, and did not end.
    """

    key: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    runs: int = 1
    gpus: float = 0.0
    kept: tuple[bytes, ...] = field(default=(), repr=False)


Shared = Mapping[str, bytes | NDArray[Any]]  # read-only, the same for all items
Executor = Callable[[WorkItem, Shared], list[Row]]
FailedRows = Callable[[WorkItem, str], list[Row]]  # the rows of an item that gave none, and why


@dataclass(frozen=True)
class Reply:
    """What became of an item.

    Args:
        rows: what the executor returned; empty if the item failed.
        failure: why there are no rows, in one line.
        details: the traceback that belongs to ``failure``.
        seconds: the time in the executor.
        waited: seconds between the end of the item before and the start of this one, in the same
            process: what scheduling costs.
        versions: of the packages in the process that did the work.
    """

    rows: list[Row] = field(default_factory=list)
    failure: str | None = None
    details: str | None = None
    seconds: float = 0.0
    waited: float = 0.0
    versions: Mapping[str, str] = field(default_factory=dict)


def find_executor(name: str) -> tuple[str, str]:
    """The module and the function of an executor's name; not imported: workers do that.

    Raises:
        ValueError: the name has another form, or there is no such module.
    """
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise ValueError(f"executor must be named 'package.module:function'; got {name!r}.")
    try:
        found = module in sys.modules or importlib.util.find_spec(module) is not None
    except ImportError:  # of a package above it
        found = False
    if not found:
        raise ValueError(f"executor must be a function to import; got {name!r}: no such module.")
    return module, function


def load_executor(name: str) -> Executor:
    """The function with the dotted path ``name``, as ``expacc.compare.work:execute``.

    Raises:
        ValueError: the name has another form, or there is no such function.
    """
    module, function = find_executor(name)
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"executor must be a function to import; got {name!r}: {error}.") from None
    return found  # type: ignore[no-any-return]


Told = float | bytes  # runs that are done, or a part of the item under way
_listener: list[Callable[[Told], None]] = []  # who is told of progress in this process


def tell_progress(runs: float) -> None:
    """Say that so many more runs of the item under way are done, to whoever waits."""
    for tell in _listener:
        tell(runs)


def keep(part: bytes) -> None:
    """Have a part of the item under way saved, to be in its ``kept`` should it be begun again."""
    for tell in _listener:
        tell(part)


def listen(tell: Callable[[Told], None] | None) -> None:
    """Be told from now on, of progress and of parts to be kept; None for no longer."""
    _listener[:] = [] if tell is None else [tell]


_last: tuple[str, float] | None = None  # what this process did last, and when it was done


def run_item(
    executor: Executor,
    item: WorkItem,
    shared: Shared,
    call: str = "",
    *,
    every_thread: bool = False,
) -> Reply:
    """Carry out one item on one thread. An exception becomes a failure with its reason.

    ``call`` names the call of the engine; the time between two calls is no waiting. With
    ``every_thread`` torch keeps the threads that it has.
    """
    global _last
    start = time.perf_counter()
    waited = start - _last[1] if _last is not None and _last[0] == call else 0.0
    rows: list[Row] = []
    failure = details = None
    try:
        with nullcontext() if every_thread else one_thread():
            rows = executor(item, shared)
        check_rows(item.key, rows)
    except (Exception, SystemExit) as error:
        rows, failure, details = [], _one_line(error), traceback.format_exc()
    end = time.perf_counter()
    _last = call, end
    return Reply(rows, failure, details, end - start, waited, versions())


def _one_line(error: BaseException) -> str:
    words = " ".join(str(error).split())
    text = f"{type(error).__name__}: {words}" if words else type(error).__name__
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 1] + "…"


def check_rows(item: str, rows: Sequence[Row]) -> None:
    """Raise unless ``rows`` may be saved for ``item``: scores are finite, failures have none."""
    if not isinstance(rows, list | tuple) or not all(isinstance(row, Row) for row in rows):
        raise TypeError(f"rows of item {item!r} must be a list of Row; got {_shape(rows)}.")
    if not rows:
        raise ValueError(f"rows of item {item!r} must be at least one; got none.")
    seen = set()
    for row in rows:
        name = f"row {row.key!r}"
        if row.item != item:
            raise ValueError(f"item of {name} must be {item!r}; got {row.item!r}.")
        if row.key in seen:
            raise ValueError(f"key of {name} must be unique; got it twice in item {item!r}.")
        seen.add(row.key)
        if row.failure is not None:
            if not row.failure.strip():
                raise ValueError(f"failure of {name} must say why; got an empty text.")
            if row.metrics or row.predictions is not None:
                raise ValueError(
                    f"metrics and predictions of {name} must be empty, because it failed "
                    f"({row.failure}); got some."
                )
        elif not row.metrics:
            raise ValueError(f"metrics of {name} must not be empty without a failure; got none.")
        for metric, value in row.metrics.items():
            if not math.isfinite(value):
                raise ValueError(
                    f"{metric} of {name} must be finite; got {value}. "
                    f"A diverged run is a row with a failure and no metrics."
                )


def _shape(rows: object) -> str:
    if not isinstance(rows, list | tuple):
        return type(rows).__name__
    return f"a {type(rows).__name__} with a {next(type(r) for r in rows if type(r) is not Row)}"


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for torch and BLAS in this block: one item per core, and sums in one order."""
    torch, pools = sys.modules.get("torch"), None
    before = torch.get_num_threads() if torch is not None else 1  # the pools may be torch's own
    limited = all(os.environ.get(name) == count for name, count in THREADS.items())
    if "sklearn" in sys.modules and not limited:  # its solvers' pools are unknown to torch
        import threadpoolctl  # type: ignore[import-not-found,import-untyped,unused-ignore]

        pools = threadpoolctl.threadpool_limits(1)
    try:
        if torch is not None:
            torch.set_num_threads(1)
        yield
    finally:
        if pools is not None:
            pools.restore_original_limits()
        if torch is not None:
            torch.set_num_threads(before)


_versions: dict[str, str] = {}


def versions() -> Mapping[str, str]:
    """What a result was made with: packages, Python, platform. Nothing is imported for it."""
    if not _versions:
        for name in PACKAGES:
            module = sys.modules.get(name)
            found = getattr(module, "__version__", None)
            try:
                _versions[name] = str(found or importlib.metadata.version(name))
            except importlib.metadata.PackageNotFoundError:
                continue
        _versions["numpy"] = np.__version__
        _versions["python"] = platform.python_version()
        _versions["platform"] = platform.platform()
        _versions["machine"] = f"{platform.machine()}, {os.cpu_count()} cores"
    return _versions


ALIGNMENT = 64  # bytes: a cache line, and what vector instructions want


@dataclass(frozen=True)
class Part:
    """Where one entry lies in the file; ``dtype`` None stands for bytes."""

    offset: int
    size: int
    dtype: str | None = None
    shape: tuple[int, ...] = ()


def check_shared(shared: Shared) -> None:
    """Raise unless every entry is bytes or an array of numbers."""
    for name, value in shared.items():
        if isinstance(value, np.ndarray):
            if value.dtype.hasobject:
                raise TypeError(
                    f"shared[{name!r}] must be an array of numbers or of fixed-length texts; "
                    f"got dtype {value.dtype}. Use bytes."
                )
        elif not isinstance(value, bytes):
            raise TypeError(
                f"shared[{name!r}] must be bytes or a numpy array; got {type(value).__name__}."
            )


def write_shared(shared: Shared) -> tuple[IO[bytes], dict[str, Part]]:
    """Write all entries into a nameless temporary file, and say where each lies.

    Raises:
        TypeError: an entry is neither bytes nor an array of numbers.
        OSError: the temporary folder is full or read-only.
    """
    check_shared(shared)
    parts = {}
    try:
        file = tempfile.TemporaryFile()  # noqa: SIM115  (the caller closes it)
        for name, value in shared.items():
            file.write(b"\0" * (-file.tell() % ALIGNMENT))
            if isinstance(value, np.ndarray):
                whole = np.ascontiguousarray(value)
                parts[name] = Part(file.tell(), whole.nbytes, value.dtype.str, value.shape)
                file.write(whole.reshape(-1).view(np.uint8).data if whole.nbytes else b"")
            else:
                parts[name] = Part(file.tell(), len(value))
                file.write(value)
        file.write(b"\0")  # a file of nothing cannot be mapped
        file.flush()
    except OSError as error:
        raise OSError(
            f"temporary folder {tempfile.gettempdir()} must have room for the tables; got: "
            f"{error.strerror}. Free some space, or name another folder in TMPDIR."
        ) from error
    return file, parts


def map_shared(descriptor: int, parts: dict[str, Part]) -> Shared:
    """The entries of a file that ``write_shared`` wrote; arrays are read-only views of it."""
    memory = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    found: dict[str, Any] = {}
    for name, part in parts.items():
        if part.dtype is None:
            found[name] = memory[part.offset : part.offset + part.size]
        else:
            dtype = np.dtype(part.dtype)
            count = part.size // dtype.itemsize if dtype.itemsize else 0
            found[name] = np.frombuffer(memory, dtype, count, part.offset).reshape(part.shape)
    return found
