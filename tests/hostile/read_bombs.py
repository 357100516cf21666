"""Run as a program: read hostile files by the command line, each in a process with limits.

Standard input names them; a line of JSON for each says how it ended. The processes are forked, so
that what all need is imported once.
"""

import io
import json
import os
import resource
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from hostile.bombs import TEXT_BOMBS
from hostile.bombs_binary import BINARY_BOMBS

BOMBS = {bomb.key: bomb for bomb in [*TEXT_BOMBS, *BINARY_BOMBS]}


def forked(work, seconds: int) -> tuple[int, int, float]:
    """Run ``work`` in a process of its own: its end, largest memory in bytes, and seconds."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
            code = work()
        finally:
            os._exit(code)
    _, status, used = os.wait4(pid, 0)
    memory = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return os.waitstatus_to_exitcode(status), memory, used.ru_utime + used.ru_stime


def read(words: list[str], path: Path, said: Path) -> int:
    from expacc.cli import main

    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        code = main([*words, str(path)])
    said.write_text(out.getvalue().splitlines()[-1] if code else "", encoding="utf-8")
    return code


def make(key: str, path: Path) -> int:
    path.write_bytes(BOMBS[key].content())
    return 0


def run() -> None:
    import expacc.cli.tables
    import expacc.data
    import expacc.report.words  # noqa: F401

    words = sys.argv[1:]
    for line in sys.stdin:
        key = line.strip()
        with tempfile.TemporaryDirectory() as folder:
            path, said = Path(folder) / BOMBS[key].file, Path(folder) / "said"
            made, _, _ = forked(lambda: make(key, path), 60)  # noqa: B023 # runs at once
            code, memory, seconds = forked(lambda: read(words, path, said), 20)  # noqa: B023
            sentence = said.read_text(encoding="utf-8") if said.exists() else ""
        found = {"key": key, "made": made, "code": code, "memory": memory, "seconds": seconds}
        print(json.dumps({**found, "sentence": sentence}), flush=True)


if __name__ == "__main__":
    run()
