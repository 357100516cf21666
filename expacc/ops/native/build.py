"""Building ``node.cpp``, the fused losses' autograd node in C++, for those who ask for it.

It is a matter of speed alone: the same kernels are launched, by fewer microseconds of Python. So
nothing is compiled or loaded by itself; ``build_native`` does both, and keeps the library in a
cache for the processes to come.
"""

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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from expacc.ops import dispatch

_NAME = "expacc_native"
_SOURCE = Path(__file__).with_name("node.cpp")

_LARGEST = 64 << 20  # bytes of a file
_DIGEST = hashlib.sha256
_one_at_a_time = threading.Lock()


def build_native() -> None:
    """Launch the fused losses from C++ in this process from now on: small batches gain from it.

    The first time the compiler at hand takes half a minute; the result is kept in
    ``~/.cache/expacc/native`` (or under ``$XDG_CACHE_HOME``), in a folder that must be yours alone.
    What is damaged there is built anew. Calls after the first do nothing.

    Returns:
        Nothing; the losses find the node from then on.

    Raises:
        RuntimeError: there will be none, and why. The losses work without.

    Example:
        >>> import expacc
        >>> expacc.build_native()  # doctest: +SKIP
    """
    with _one_at_a_time:
        if dispatch.native_library is None:
            try:
                dispatch.native_library = _loaded(_content())
            except (OSError, ImportError) as error:
                raise RuntimeError(f"the C++ node must be built or read; got: {error}") from error


def _content() -> bytes:
    """The library's bytes, after building it if need be."""
    if sys.platform != "linux":
        raise RuntimeError(f"the C++ node is built on Linux only; got {sys.platform}.")
    folder = _private_folder(_path())
    try:
        with _locked(folder):
            found = _read_whole(folder, _NAME)
            if found is None:
                found = _compiled(folder)
                _write_whole(folder, _NAME, found)
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


# ------------------------------------------------------------------------------------ the cache

# A folder that nobody else can write in, and files in it that are whole or not taken. A library is
# code: whoever can change it, or a folder above it, can run what they like in our process; and a
# damaged one kills that process with a signal. So every folder from the root on is looked at
# through a descriptor, and the next one is opened from there; a file begins with the digest of its
# content.


def _private_folder(path: Path) -> int:
    """Open a folder that only we can write in, made if need be; its descriptor.

    Args:
        path: whose every folder must belong to us or to root, and be writable for its owner alone
            or, as /tmp is, keep others from what is not theirs.

    Raises:
        PermissionError: somebody else could have put something there.
    """
    path = Path(os.path.realpath(path))  # links are followed here, and nowhere below
    just_pass = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    here = os.open(path.anchor, just_pass)
    try:
        _check_folder(here, path.anchor, last=False)
        for place, part in enumerate(path.parts[1:], start=2):
            last = place == len(path.parts)
            how = just_pass & ~os.O_PATH if last else just_pass
            try:
                below = os.open(part, how, dir_fd=here)
            except FileNotFoundError:
                with contextlib.suppress(FileExistsError):  # another process was faster
                    os.mkdir(part, 0o700, dir_fd=here)
                below = os.open(part, how, dir_fd=here)
            os.close(here)
            here = below
            _check_folder(here, str(Path(*path.parts[:place])), last=last)
    except BaseException:
        os.close(here)
        raise
    return here


def _check_folder(folder: int, name: str, *, last: bool) -> None:
    found, us = os.fstat(folder), os.geteuid()
    owned = found.st_uid == us or (found.st_uid == 0 and not last)
    shared = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    sticky = found.st_mode & stat.S_ISVTX and not last
    if not owned or (shared and not sticky):
        raise PermissionError(
            f"{name} must be writable for you {'alone' if last else 'or root alone'}; got mode "
            f"{stat.S_IMODE(found.st_mode):o} of user {found.st_uid}. Use chmod go-w, or another "
            f"folder in XDG_CACHE_HOME."
        )


@contextlib.contextmanager
def _locked(folder: int) -> Iterator[None]:
    """One process at a time; the lock ends with its process, however that ends."""
    import fcntl  # which only Linux and its like have

    how = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    lock = os.open("lock", how, 0o600, dir_fd=folder)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _read_whole(folder: int, name: str) -> bytes | None:
    """What ``_write_whole`` wrote; None if it is not there, damaged, or somebody else's."""
    how = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a named pipe would block
    try:
        file = os.open(name, how, dir_fd=folder)
    except OSError:
        return None
    with open(file, "rb") as stream:
        found = os.fstat(file)
        ours = found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if not stat.S_ISREG(found.st_mode) or not ours or found.st_size > _LARGEST:
            return None
        digest, content = stream.read(_DIGEST().digest_size), stream.read()
    return content if _DIGEST(content).digest() == digest else None


def _write_whole(folder: int, name: str, content: bytes) -> None:
    """Put a file there, whole and on the disk, or not at all; under the lock."""
    part = f"{name}.part"
    with contextlib.suppress(FileNotFoundError):  # of a process that was killed
        os.unlink(part, dir_fd=folder)
    how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(part, how, 0o600, dir_fd=folder), "wb") as stream:
        stream.write(_DIGEST(content).digest() + content)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)
