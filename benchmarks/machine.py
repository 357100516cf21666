"""What every result carries: hardware, versions, commit, date."""

import datetime
import platform
import subprocess
from pathlib import Path

import torch

import expacc

RESULTS = Path(__file__).parent / "results"
SPEED = Path(__file__).parent.parent / "docs" / "speed.md"


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(
            line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def commit() -> str:
    """The commit measured, with a plus sign if the tree differs from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], capture_output=True, text=True, check=False).stdout

    changed = git("status", "--porcelain", "--", "expacc", "benchmarks/*.py")
    return (git("rev-parse", "--short", "HEAD").strip() or "unknown") + ("+" if changed else "")


def facts(**more: object) -> dict[str, object]:
    return {
        "cpu": cpu_name(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "expacc": expacc.__version__,
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        **more,
    }


def heading(found: dict[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in found.items())
