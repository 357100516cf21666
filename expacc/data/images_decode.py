"""The pixels of picture files, by processes with limits (``images_process``).

A picture whose decoder crashes, or takes too long, costs that picture and no more.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from expacc.data import images_process
from expacc.data.images_arrays import MOST_BYTES
from expacc.data.options import TableError, need

_CHUNK = 128

Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Pixels:
    """What was read: (N, size, size, 3) of the paths that could be, and the rest with reasons."""

    images: NDArray[np.uint8]
    read: NDArray[np.bool_]
    said: Mapping[str, int]
    refused: Mapping[str, str]


def read_pictures(
    paths: Sequence[str], size: int, workers: int | None = None, progress: Progress | None = None
) -> Pixels:
    """Decode pictures side by side, each squeezed to a square.

    Args:
        paths: plain files.
        size: pixels of a side.
        workers: processes; None for one a core.
        progress: told how many of all are done.
    """
    need("PIL", "reading pictures", "images")
    count = len(paths)
    if count * size * size * 3 > MOST_BYTES:
        raise TableError(
            "size",
            f"{count:,} pictures of {size} × {size} are more than {MOST_BYTES:,} bytes; "
            "choose a smaller one.",
        )
    images = np.zeros((count, size * size * 3), np.uint8)
    read = np.zeros(count, np.bool_)
    said: dict[str, int] = {}
    refused: dict[str, str] = {}
    chunks = [range(low, min(low + _CHUNK, count)) for low in range(0, count, _CHUNK)]
    lanes: list[_Lane] = []
    own = threading.local()

    def one(chunk: range) -> list[tuple[int, dict[str, Any], bytes]]:
        if not hasattr(own, "lane"):
            own.lane = _Lane(size)
            lanes.append(own.lane)
        lane: _Lane = own.lane
        return list(lane.read([(place, paths[place]) for place in chunk]))

    pool = ThreadPoolExecutor(max(1, min(workers or _cores(), 32, len(chunks))))
    try:
        for chunk, found in zip(chunks, pool.map(one, chunks), strict=True):
            for place, head, pixels in found:
                if "error" in head:
                    refused[paths[place]] = head["error"]
                    continue
                images[place] = np.frombuffer(pixels, np.uint8)
                read[place] = True
                for word in head["said"]:
                    said[word] = said.get(word, 0) + 1
            if progress is not None:
                progress(chunk.stop, count)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for lane in lanes:
            lane.close()
    return Pixels(images.reshape(count, size, size, 3), read, said, refused)


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


class _Lane:
    """One process after another that decodes pictures; a new one where one died."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.process: subprocess.Popen[bytes] | None = None
        self.closed = False

    def read(self, asked: list[tuple[int, str]]) -> Iterator[tuple[int, dict[str, Any], bytes]]:
        """Place, what was found and the pixels, of each place and path."""
        while asked and not self.closed:
            if self.process is None:
                self.process = self._start()
            to, back = cast(IO[bytes], self.process.stdin), cast(IO[bytes], self.process.stdout)
            with suppress(OSError):  # it is gone, and says no more
                to.write(json.dumps([path for _, path in asked]).encode() + b"\n")
                to.flush()
            while asked:
                (place, _), *asked = asked
                head, pixels = self._answer(back)
                yield place, head or {"error": self._end()}, pixels
                if head is None:
                    break

    def _answer(self, back: IO[bytes]) -> tuple[dict[str, Any] | None, bytes]:
        """None of a process that died."""
        line = back.readline()
        if not line.endswith(b"\n"):
            return None, b""
        head = json.loads(line)
        wanted = 0 if "error" in head else self.size * self.size * 3
        pixels = back.read(wanted) if wanted else b""
        return (head, pixels) if len(pixels) == wanted else (None, b"")

    def _start(self) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            [sys.executable, "-I", str(Path(images_process.__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        path = [os.path.abspath(entry) for entry in sys.path if entry]
        to, back = cast(IO[bytes], process.stdin), cast(IO[bytes], process.stdout)
        with suppress(OSError):
            to.write(json.dumps({"path": path, "size": self.size}).encode() + b"\n")
            to.flush()
        if back.readline() != b"ready\n":
            process.kill()
            raise OSError("the process that decodes pictures did not start: is Pillow whole?")
        return process

    def _end(self) -> str:
        """Why the process ended."""
        code = self.process.wait() if self.process else 0
        self._stop()
        if code == -getattr(signal, "SIGALRM", -1):
            return f"reading it takes longer than {images_process.SECONDS} s"
        return "the library that decodes it crashed"

    def _stop(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            for stream in (process.stdin, process.stdout):
                with suppress(OSError):
                    cast(IO[bytes], stream).close()
            process.wait()

    def close(self) -> None:
        """End the process, for good."""
        self.closed = True
        self._stop()
