"""The program that a worker is: it ends with its parent, then imports its executor and serves.

Run by its path and with the standard library alone, so that it watches its parent before the
seconds in which torch is imported.
"""

import ctypes
import importlib
import json
import os
import signal
import sys
import threading
import time

__all__ = ["end_with"]

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


if __name__ == "__main__":
    boot = json.loads(sys.argv[1])
    end_with(boot["parent"])
    sys.path[:] = boot["path"]
    # The executor's module comes first: what it needs is all that a worker imports.
    importlib.import_module(boot["executor"].partition(":")[0])
    importlib.import_module("expacc.runner.local").serve(
        boot["executor"], boot["link"], boot["data"]
    )
