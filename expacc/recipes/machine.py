"""What a result was made on: processor, cores, graphics card, and the commit of this code."""

import platform
import subprocess
from pathlib import Path

__all__ = ["commit", "machine"]

PATIENCE = 10.0  # seconds for git, which a slow disk may need


def machine(device: str = "cpu") -> str:
    """The machine in a line: 'AMD EPYC 7763, 2 cores', and the graphics card if it is used.

    Args:
        device: of the training.
    """
    from expacc.runner.engine import cores

    count = cores()
    text = f"{_processor()}, {count} core{'s' if count > 1 else ''}"
    if device.startswith("cuda"):
        import torch

        text += f", {torch.cuda.get_device_name(device)}"
    return text


def _processor() -> str:
    names = (_linux_processor, _mac_processor, platform.processor, platform.machine)
    return next((found for name in names if (found := name())), "unknown processor")


def _linux_processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "")


def _mac_processor() -> str:
    if platform.system() != "Darwin":
        return ""
    return _output(["sysctl", "-n", "machdep.cpu.brand_string"])


def commit() -> str:
    """The commit of this package, '+' added if files differ from it; '' outside its repository."""
    package = Path(__file__).resolve().parent.parent
    git = ["git", "-C", str(package)]
    # An installed package may lie in somebody else's repository, which does not track it.
    if not _output([*git, "ls-files", "__init__.py"]):
        return ""
    changed = _output([*git, "status", "--porcelain", "--untracked-files=no", "--", "."])
    return _output([*git, "rev-parse", "--short=10", "HEAD"]) + ("+" if changed else "")


def _output(words: list[str]) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
