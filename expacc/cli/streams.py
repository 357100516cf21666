"""Standard output and error that may go away, as in `expacc compare … | head -1`.

Who reads along has no say in the work: what nobody takes is dropped, and the study goes on, its
rows and its report are written. Only a result that could not be written is an error, at the end.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

__all__ = ["Stream", "lasting_streams"]


class Stream:
    """A text stream whose writes do not fail.

    Args:
        stream: the one to write to.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.lost = ""  # why something was not written, though somebody was there to take it

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, or drop, a text."""
        try:
            self._stream.write(text)
        except OSError as error:
            self._leave(error)
        return len(text)

    def flush(self) -> None:
        """Hand over what is in the buffer, or drop it."""
        try:
            self._stream.flush()
        except OSError as error:
            self._leave(error)

    def _leave(self, error: OSError) -> None:
        """Write to nowhere from now on, and what is in the buffer, which Python flushes at exit."""
        if not isinstance(error, BrokenPipeError):
            self.lost = error.strerror or str(error)
        with contextlib.suppress(OSError):
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())
            self._stream.flush()


@contextlib.contextmanager
def lasting_streams() -> Iterator[Stream]:
    """Both streams in this form while the block runs; the one of the results."""
    _take_places()
    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # for one that is closed
        result: Any = Stream(sys.stdout or nowhere)
        remarks: Any = Stream(sys.stderr or nowhere)
        with contextlib.redirect_stdout(result), contextlib.redirect_stderr(remarks):
            yield result
            remarks.flush()


def _take_places() -> None:
    """Open the three descriptors that a shell may have closed, or a file of ours would get one.

    What a library then prints to standard error would go into that file.
    """
    while True:
        place = os.open(os.devnull, os.O_RDWR)
        if place > 2:
            os.close(place)
            return
        os.set_inheritable(place, True)
