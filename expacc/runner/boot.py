"""The programs that end with their parent: a worker, and the keeper of a Ray cluster of ours.

Run by its path and with the standard library alone, so that a worker watches its parent before the
seconds in which torch is imported.
"""

import contextlib
import ctypes
import importlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

PR_SET_PDEATHSIG = 1  # of <sys/prctl.h>
TICK = 0.5  # seconds between looks at the parent, where the system does not tell us


def end_with(parent: int) -> None:
    """End this process when its parent does, however that ends and whatever is done here then.

    Linux kills us, more precisely when the thread that started us ends, as it closes its workers
    before; elsewhere a thread looks who our parent is.

    Args:
        parent: its process number.
    """
    if not _killed_by_the_system():
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # it was gone before we asked
        os._exit(1)


def _killed_by_the_system() -> bool:
    if sys.platform != "linux":
        return False
    try:
        return bool(ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(TICK)
    os._exit(1)


def keep(processes: Iterable[int]) -> None:
    """Wait until nobody holds the other end of standard input, then kill what is still there.

    However the driver of a Ray cluster ends, Ray's servers and workers end with it; two agents of
    theirs do not for another minute, in which they call for their server.

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


def work(boot: dict[str, Any]) -> None:
    """Be a worker: import the executor and carry out what comes, until the parent is gone.

    Args:
        boot: the numbers of the parent and of the descriptors, the path and the executor's name.
    """
    end_with(boot["parent"])
    sys.path[:] = boot["path"]
    # The executor's module comes first: what it needs is all that a worker imports.
    importlib.import_module(boot["executor"].partition(":")[0])
    serve = importlib.import_module("expacc.runner.local").serve
    serve(boot["executor"], boot["link"], boot["data"])


if __name__ == "__main__":
    if sys.argv[1] == "keep":
        keep(map(int, sys.argv[2:]))
    else:
        work(json.loads(sys.argv[1]))
