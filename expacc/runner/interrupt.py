"""Ctrl-C that waits for a good moment."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["CtrlC"]


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
