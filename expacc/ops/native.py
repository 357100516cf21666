"""Building ``native.cpp``, the fused losses' autograd node in C++.

It is a matter of speed alone: the same kernels are launched, by fewer microseconds of Python. So
nobody waits for it. The first loss on a GPU starts a compiler in the background, at the lowest
priority; the result is kept in a cache and used from then on. The variable ``EXPACC_NATIVE`` says
otherwise: ``wait`` builds before the first loss returns, ``off`` never builds nor loads.
Unset is ``auto``.
"""

import atexit
import contextlib
import hashlib
import importlib.machinery
import importlib.util
import os
import platform
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path
from typing import Any, Literal

import torch

__all__ = ["library", "why_not"]

_NAME = "expacc_native"
_SOURCE = Path(__file__).with_name("native.cpp")

_lock = threading.Lock()
_library: Any = None  # the module once loaded, False once given up
_reason = ""
_builder: threading.Thread | None = None
_compiler: subprocess.Popen[str] | None = None


def library(wait: bool = False) -> Any | Literal[False] | None:
    """The module; None while it is being built, False where there will be none.

    Args:
        wait: until it is built.
    """
    if _library is not None:
        return _library
    return _begun(wait or _asked() == "wait")


def why_not() -> str:
    """Why ``library`` is False."""
    return _reason


def _asked() -> str:
    return os.environ.get("EXPACC_NATIVE") or "auto"


def _begun(wait: bool) -> Any | Literal[False] | None:
    global _builder
    with _lock:
        if _builder is None:
            _builder = threading.Thread(target=_find, name="expacc-native", daemon=True)
            _builder.start()
    if wait:
        _builder.join()
    return _library


def _find() -> None:
    """Load the library, after building it if need be."""
    global _library, _reason
    try:
        if _asked() == "off":
            raise RuntimeError("EXPACC_NATIVE is 'off'")
        if _asked() not in ("auto", "wait"):  # rather no compiler than one that nobody wanted
            raise RuntimeError(
                f"EXPACC_NATIVE must be 'auto', 'wait' or 'off'; got {_asked()!r}. Unset it."
            )
        if sys.platform != "linux":
            raise RuntimeError(f"it is built on Linux only, not on {sys.platform}")
        path = _folder() / f"{_NAME}.so"
        if not path.exists():
            _build(path)
        _check_owner(path)
        _library = _loaded(path)
    except Exception as error:  # whatever it is, losses work without
        _reason = str(error)
        _library = False


def _check_owner(path: Path) -> None:
    """Refuse a library that somebody else could have put there."""
    for each in (path, path.parent):
        found = each.stat()
        if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise RuntimeError(f"{each} could have been written by another user; remove it")


def _loaded(path: Path) -> Any:
    loader = importlib.machinery.ExtensionFileLoader(_NAME, str(path))
    spec = importlib.util.spec_from_loader(_NAME, loader)
    if spec is None:
        raise RuntimeError(f"{path} is no module")
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _folder() -> Path:
    """Where the library for this source, torch and Python is kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    facts = (
        _SOURCE.read_text(),
        torch.__version__,
        str(torch.version.git_version),
        sys.implementation.cache_tag,
        platform.machine(),
    )
    key = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    return Path(cache) / "expacc" / "native" / key


def _command(output: Path) -> list[str]:
    """The compiler's command line."""
    compiler = os.environ.get("CXX") or "c++"
    if shutil.which(compiler.split()[0]) is None:
        raise RuntimeError(f"there is no C++ compiler {compiler!r}")
    home = Path(torch.__file__).parent
    python = Path(sysconfig.get_path("include"))
    headers = [home / "include", home / "include/torch/csrc/api/include", python]
    if not (python / "Python.h").exists():
        raise RuntimeError(f"Python's headers are not installed; got no Python.h in {python}")
    polite = ["nice", "-n", "19"] if shutil.which("nice") else []
    return [
        *polite,
        *compiler.split(),
        *("-O2", "-std=c++20", "-fPIC", "-shared", "-fvisibility=hidden"),
        "-DAT_PER_OPERATOR_HEADERS",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *(f"-isystem{each}" for each in headers),
        str(_SOURCE),
        *("-o", str(output)),
        *(f"-L{home / 'lib'}", "-ltorch_python", "-ltorch_cpu", "-lc10"),
    ]


def _build(path: Path) -> None:
    """Compile into the cache; one process at a time, the others wait for it."""
    import fcntl  # which only Linux and its like have

    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # which ends with the process, however that ends
        if not path.exists():
            _compile(path)


def _compile(path: Path) -> None:
    global _compiler
    output = path.with_name(f"{os.getpid()}.so")
    atexit.register(_stop)
    try:
        # In a session of its own: Ctrl-C is for the training run, ``_stop`` is for this.
        _compiler = subprocess.Popen(
            _command(output),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        _, errors = _compiler.communicate()
        if _compiler.returncode != 0:
            raise RuntimeError(f"the compiler failed: {errors.strip()[:500]}")
        output.chmod(0o700)
        output.replace(path)
    finally:
        output.unlink(missing_ok=True)
        _compiler = None
        atexit.unregister(_stop)


def _stop() -> None:
    """Leave no compiler behind."""
    compiler = _compiler
    if compiler is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(compiler.pid, signal.SIGKILL)  # it has children of its own
        if _builder is not None:
            _builder.join(timeout=5)
