"""Building ``node.cpp``, the fused losses' autograd node in C++, for those who ask for it.

It is a matter of speed alone: the same kernels are launched, by fewer microseconds of Python. So
nothing is compiled or loaded by itself; ``build_native`` does both, and keeps the library in a
cache for the processes to come.
"""

import hashlib
import importlib.machinery
import importlib.util
import os
import platform
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path
from typing import Any

import torch

from expacc.ops.native.cache import locked, private_folder, read_whole, write_whole

__all__ = ["build_native", "library"]

_NAME = "expacc_native"
_SOURCE = Path(__file__).with_name("node.cpp")

_one_at_a_time = threading.Lock()
_library: Any = None


def library() -> Any:
    """The module; None unless ``build_native`` was called."""
    return _library


def build_native() -> None:
    """Launch the fused losses from C++ in this process from now on: small batches gain from it.

    The first time the compiler at hand takes half a minute; the result is kept in
    ``~/.cache/expacc/native`` (or under ``$XDG_CACHE_HOME``), in a folder that must be yours alone.
    What is damaged there is built anew. Calls after the first do nothing.

    Raises:
        RuntimeError: there will be none, and why. The losses work without.
    """
    global _library
    with _one_at_a_time:
        if _library is None:
            try:
                _library = _loaded(_content())
            except (OSError, ImportError) as error:
                raise RuntimeError(f"the C++ node must be built or read; got: {error}") from error


def _content() -> bytes:
    """The library's bytes, after building it if need be."""
    if sys.platform != "linux":
        raise RuntimeError(f"the C++ node is built on Linux only; got {sys.platform}.")
    folder = private_folder(_path())
    try:
        with locked(folder):
            found = read_whole(folder, _NAME)
            if found is None:
                found = _compiled(folder)
                write_whole(folder, _NAME, found)
            return found
    finally:
        os.close(folder)


def _loaded(content: bytes) -> Any:
    """The module of these bytes: from memory that nobody can change, so they are what was checked.

    From a file, a process would die by SIGBUS whenever that is cut short.
    """
    import fcntl

    memory = os.memfd_create(_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(memory, "wb", closefd=False) as stream:
        stream.write(content)
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, seals)
    # Never closed: the dynamic linker knows a library by its path, which must not come to be
    # that of another file.
    loader = importlib.machinery.ExtensionFileLoader(_NAME, f"/proc/self/fd/{memory}")
    spec = importlib.util.spec_from_loader(_NAME, loader)
    if spec is None:
        raise ImportError("the library is no module")
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _path() -> Path:
    """The folder of the library for this source, torch, Python and system."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "")
    if not cache.is_absolute():  # which is to be ignored, as the standard has it
        cache = Path.home() / ".cache"
    facts = (
        _SOURCE.read_text(),
        torch.__version__,
        str(torch.version.git_version),
        str(torch.compiled_with_cxx11_abi()),
        str(sysconfig.get_config_var("SOABI")),
        platform.machine(),
        *platform.libc_ver(),
    )
    key = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    return cache / "expacc" / "native" / key


def _command(output: Path) -> list[str]:
    """The compiler's command line."""
    compiler = (os.environ.get("CXX") or "c++").split()
    if shutil.which(compiler[0]) is None:
        raise RuntimeError(f"a C++ compiler must be installed; got none called {compiler[0]!r}.")
    home = Path(torch.__file__).parent
    python = Path(sysconfig.get_path("include"))
    headers = [home / "include", home / "include/torch/csrc/api/include", python]
    if not (python / "Python.h").exists():
        raise RuntimeError(f"Python's headers must be installed; got no Python.h in {python}.")
    return [
        *compiler,
        *("-O2", "-std=c++20", "-fPIC", "-shared", "-fvisibility=hidden"),
        "-DAT_PER_OPERATOR_HEADERS",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *(f"-isystem{each}" for each in headers),
        str(_SOURCE),
        *("-o", str(output)),
        *(f"-L{home / 'lib'}", "-ltorch_python", "-ltorch_cpu", "-lc10"),
    ]


def _compiled(folder: int) -> bytes:
    """What the compiler makes, all of it within the folder."""
    shutil.rmtree("build", ignore_errors=True, dir_fd=folder)  # of a process that was killed
    os.mkdir("build", 0o700, dir_fd=folder)
    try:
        place = Path(os.readlink(f"/proc/self/fd/{folder}")) / "build"
        output = place / "library.so"
        # In a session of its own: Ctrl-C comes to us, and we end it with all its children.
        with subprocess.Popen(
            _command(output),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, "TMPDIR": str(place)},
            start_new_session=True,
        ) as compiler:
            try:
                _, errors = compiler.communicate()
            except BaseException:
                os.killpg(compiler.pid, signal.SIGKILL)
                raise
        if compiler.returncode != 0:
            raise RuntimeError(f"the compiler must succeed; got: {errors.strip()[:500]}")
        return output.read_bytes()
    finally:
        shutil.rmtree("build", ignore_errors=True, dir_fd=folder)
