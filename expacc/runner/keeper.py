"""The program that ends what is left of a Ray cluster of ours when its driver is gone.

However that ends, Ray's servers and workers end with it; two agents of theirs do not for another
minute, in which they call for their server. Run by its path, in a session of its own.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterable

__all__ = ["keep"]


def keep(processes: Iterable[int]) -> None:
    """Wait until nobody holds the other end of standard input, then kill what is still there.

    Args:
        processes: their numbers; held by descriptors, so that no later process is meant.
    """
    held = []
    for process in processes:
        with contextlib.suppress(OSError):
            held.append(os.pidfd_open(process))
    sys.stdin.read()
    for process in held:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(process, signal.SIGKILL)


if __name__ == "__main__":
    keep(map(int, sys.argv[1:]))
