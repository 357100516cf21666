"""Read Parquet by pyarrow: types are the file's own, so nothing is guessed."""

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from expacc.data import parquet_process
from expacc.data.cells import Cells, Codes, Plain, Values
from expacc.data.errors import TableError, need
from expacc.data.grid import Grid, Kind, name_columns
from expacc.data.limits import TEXT, Budget, too_many_columns
from expacc.data.options import ReadOptions
from expacc.data.parquet_process import Frame, frames, read_frame
from expacc.data.source import Source, most_unpacked

__all__ = ["read_parquet"]

_MEMORY = 768 << 20  # bytes that reading may take beside the file itself
_SECONDS, _BYTES_A_SECOND = 12, 4 << 20  # of computing, and more for large files
_TEXT_BYTES = 256 << 20
_KINDS: dict[str, Kind] = {"text": "category", "boolean": "category"}  # all else is a number


def read_parquet(source: Source, options: ReadOptions) -> Grid:
    """Read a Parquet file; numbers are numbers, text and booleans are categories."""
    if find_spec("pyarrow") is None:  # not imported: the process that reads it does so
        need("pyarrow", "reading Parquet")
    return _Reader(source, options).read()


class _Reader:
    def __init__(self, source: Source, options: ReadOptions) -> None:
        self.source = source
        self.name = source.name
        self.options = options
        self.budget = Budget(source, options, per_byte=2)  # real columns are packed well
        self.most_text = max(_TEXT_BYTES, 2 * len(source.data), options.max_bytes or 0)
        self.text_bytes = 0
        self.memory = max(_MEMORY + 2 * len(source.data), options.max_bytes or 0)
        self.seconds = _SECONDS + len(source.data) // _BYTES_A_SECOND
        self.seconds = max(self.seconds, _SECONDS * (options.max_cells or 0) // TEXT)

    def read(self) -> Grid:
        with closing(self._frames()) as found:
            facts, _ = self._next(found)
            names, notes = self._check(facts)
            columns = [Cells() for _ in names]
            levels: list[list[str]] = [[] for _ in names]
            rows = 0
            batch, data = self._next(found)
            while "end" not in batch:
                rows += batch["rows"]
                self.budget.check(rows, len(names))
                self._add(columns, levels, facts["kinds"], batch, memoryview(data))
                batch, data = self._next(found)
        if rows == 0:
            raise TableError(self.name, "there are columns but no row of data.")
        declared = {
            name: _KINDS.get(kind, "number")
            for name, kind in zip(names, facts["kinds"], strict=True)
        }
        numbers = range(1, rows + 1)
        return Grid(self.name, names, [*columns], numbers, declared=declared, notes=notes)

    def _check(self, facts: dict[str, Any]) -> tuple[tuple[str, ...], list[str]]:
        """What the file says of itself is not proof, but reason enough to refuse it."""
        width = max(len(facts["names"]), facts["leaves"])
        if width > self.options.max_columns:
            raise too_many_columns(self.name, f"{width:,}", self.options, None)
        names, notes = name_columns(self.name, facts["names"], 1)
        for place, kind in enumerate(facts["kinds"]):
            if not kind:
                raise TableError(
                    self.name,
                    f"the column {names[place]!r} holds {facts['types'][place]}, which is neither "
                    "number nor text. Leave it out of the file.",
                    column=place + 1,
                )
        stated = facts["bytes"]
        if self.options.max_bytes:
            stated = max(stated, 8 * facts["rows"] * width)
        most = most_unpacked(self.options.max_bytes, len(self.source.data))
        if stated > most:
            raise TableError(
                self.name,
                f"it unpacks to more than {most:,} bytes, the most that is read. Raise "
                "--max-bytes if you trust the file.",
            )
        self.budget.check(facts["rows"], width)
        return names, notes

    def _add(
        self,
        columns: list[Cells],
        levels: list[list[str]],
        kinds: list[str],
        facts: dict[str, Any],
        data: memoryview,
    ) -> None:
        rows = facts["rows"]
        at = 0

        def take(size: int) -> memoryview:
            nonlocal at
            at += size
            return data[at - size : at]

        for column, known, kind, part in zip(columns, levels, kinds, facts["parts"], strict=True):
            if kind == "null":
                column.append(Values(np.zeros(rows), np.ones(rows, np.bool_)))
            elif kind == "decimal":
                column.append(Plain(bytes(take(part["size"])).decode(), rows))
            elif kind == "text":
                lengths = np.frombuffer(take(4 * part["texts"]), np.uint32).tolist()
                self.text_bytes += part["size"]
                if self.text_bytes > self.most_text:
                    raise self._refusal("memory")
                joined = str(take(part["size"]), "utf-8")
                ends = [0, *itertools.accumulate(lengths)]
                known += [joined[a:b] for a, b in itertools.pairwise(ends)]
                codes = np.frombuffer(take(4 * rows), np.int32).copy()
                column.append(Codes(codes, known))
            else:
                form = np.dtype(part["type"])
                values = np.frombuffer(take(form.itemsize * rows), form).copy()
                gaps = np.frombuffer(take(rows), np.bool_).copy() if part["gaps"] else None
                column.append(Values(values, gaps))

    def _next(self, found: Iterator[Frame]) -> Frame:
        frame = next(found)
        if "error" in frame[0]:
            raise self._refusal(frame[0]["error"], frame[0].get("reason", ""))
        return frame

    def _refusal(self, what: str, reason: str = "") -> TableError:
        if what == "memory":
            return TableError(
                self.name,
                f"reading it takes more than {self.memory >> 20:,} MiB of memory, the most for a "
                "file of its size. Raise --max-bytes if you trust it, or save it in smaller row "
                "groups.",
            )
        if what == "time":
            return TableError(
                self.name,
                f"reading it takes longer than {self.seconds} s, the most for a file of its size. "
                "Raise --max-cells if you trust it, or save it in fewer row groups.",
            )
        return TableError(self.name, f"the Parquet file is damaged ({reason}).")

    def _frames(self) -> Generator[Frame, None, None]:
        """From a process of its own, or, where none can be started, from this one."""
        asked = {
            "path": [os.path.abspath(entry) for entry in sys.path if entry],
            "memory": self.memory,
            "seconds": self.seconds,
        }
        quiet = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
        try:
            process = subprocess.Popen(
                [sys.executable or "", "-I", str(Path(parquet_process.__file__))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=os.environ | quiet | {"ARROW_DEFAULT_MEMORY_POOL": "system"},
            )
        except OSError:
            yield from frames(self.source.data)
            return
        to, back = cast(IO[bytes], process.stdin), cast(IO[bytes], process.stdout)
        try:
            with suppress(OSError):  # if it is gone it will not say that it is ready
                to.write(json.dumps(asked).encode() + b"\n")
                to.flush()
            if read_frame(back) is None:
                yield from frames(self.source.data)
                return
            with suppress(OSError):
                to.write(self.source.data)
                to.close()
            while (frame := read_frame(back)) is not None:
                yield frame
            yield {"error": self._end_of(process.wait()), "reason": "its reader crashed"}, b""
        finally:
            process.kill()
            back.close()
            with suppress(OSError):
                to.close()
            process.wait()

    def _end_of(self, code: int) -> str:
        """Why a process ended without a word: its time was up, memory was refused to it, or not."""
        if code in (-getattr(signal, "SIGXCPU", 0), -getattr(signal, "SIGKILL", 0)):
            return "time"
        return "memory" if code == -getattr(signal, "SIGABRT", 0) else "damaged"
