"""The C++ node's cache: nobody else's library, no damaged one, and none that nobody asked for."""

import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from expacc import ops
from expacc.ops import dispatch
from expacc.ops.native import build as native
from expacc.ops.triton import node

if sys.platform != "linux":
    pytest.skip("the node is built on Linux only", allow_module_level=True)

GOOD = bytes(range(256)) * 64  # what the compiler of these tests makes
COMPILER = """#!/bin/sh
echo built >> {log}
for word in "$@"; do
    if [ "$before" = -o ]; then {wait}cp {good} "$word"; fi
    before="$word"
done
"""


class Cache:
    """A cache of its own, with a compiler that copies a file."""

    def __init__(self, folder, monkeypatch):
        self.log, self.home = folder / "log", folder / "cache"
        self.compiler, self.good = folder / "compiler", folder / "good"
        self.good.write_bytes(GOOD)
        self.make()
        monkeypatch.setenv("CXX", str(self.compiler))
        monkeypatch.setenv("XDG_CACHE_HOME", str(self.home))
        monkeypatch.setattr(dispatch, "native_library", None)
        self.folder = native._path()
        self.file = self.folder / native._NAME

    def make(self, wait=""):
        self.compiler.write_text(COMPILER.format(log=self.log, good=self.good, wait=wait))
        self.compiler.chmod(0o700)

    @property
    def builds(self):
        return len(self.log.read_text().split()) if self.log.exists() else 0


@pytest.fixture
def cache(tmp_path, monkeypatch):
    return Cache(tmp_path, monkeypatch)


def damages(whole):
    """Files in the place of a library: cut short, longer, with other bits, of other kinds."""
    size = len(whole)
    for length in (0, 1, 31, 32, 33, 100, 4096, size // 2, size - 4096, size - 1):
        yield f"cut to {length}", lambda path, n=length: os.truncate(path, n)
    for place in (0, 31, 32, 100, 4095, size // 2, size - 1):
        changed = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        yield f"another bit at {place}", lambda path, data=changed: path.write_bytes(data)
    yield "zeros", lambda path: path.write_bytes(bytes(size))
    yield "a page of zeros", lambda path: path.write_bytes(whole[:4096] + bytes(size - 4096))
    yield "longer", lambda path: path.write_bytes(whole + b"\0")
    yield "without a digest", lambda path: path.write_bytes(GOOD)
    yield "huge", lambda path: os.truncate(path, 1 << 40)
    yield "writable for the group", lambda path: path.chmod(0o620)
    yield "writable for all", lambda path: path.chmod(0o602)
    yield "gone", lambda path: path.unlink()
    yield "a link", lambda path: swap(path, lambda: path.symlink_to(path.with_name("elsewhere")))
    yield "a link to itself", lambda path: swap(path, lambda: path.symlink_to(path))
    yield "a named pipe", lambda path: swap(path, lambda: os.mkfifo(path))
    if os.geteuid() == 0:
        yield "of another user", lambda path: os.chown(path, 12345, -1)
    else:
        yield "not readable", lambda path: path.chmod(0)


def swap(path, make):
    path.replace(path.with_name("elsewhere"))
    make()


def test_a_damaged_library_is_built_anew(cache):
    assert native._content() == GOOD
    assert native._content() == GOOD
    assert cache.builds == 1
    cases = list(damages(cache.file.read_bytes()))
    assert len(cases) == 29
    for count, (name, damage) in enumerate(cases, start=2):
        damage(cache.file)
        assert native._content() == GOOD, name
        assert cache.builds == count, name
        assert native._content() == GOOD
        assert cache.builds == count, name


def test_what_a_killed_process_left_is_no_hindrance(cache):
    native._content()
    (cache.folder / "build" / "deep").mkdir(parents=True)
    (cache.folder / f"{native._NAME}.part").write_bytes(b"half")
    cache.file.unlink()
    assert native._content() == GOOD
    assert {path.name for path in cache.folder.iterdir()} == {"lock", native._NAME}
    assert cache.file.stat().st_mode & 0o777 == 0o600


def ancestors(cache):
    return [cache.home, cache.home / "expacc", cache.home / "expacc" / "native", cache.folder]


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o2775])
def test_no_library_below_a_folder_that_others_can_write_in(cache, mode):
    for built, folder in itertools.product([False, True], ancestors(cache)):
        if built:
            native._content()
        else:
            shutil.rmtree(cache.home, ignore_errors=True)
            folder.mkdir(parents=True)
        before = cache.builds
        folder.chmod(mode)
        with pytest.raises(RuntimeError) as refused:
            ops.build_native()
        assert f"{folder} must be writable for you" in str(refused.value)
        assert f"got mode {mode:o} of user {os.geteuid()}. Use chmod go-w" in str(refused.value)
        assert cache.builds == before
        folder.chmod(0o700)
    assert native._content() == GOOD
    if os.geteuid() == 0:  # who may give folders to another user
        for folder in ancestors(cache):
            os.chown(folder, 12345, -1)
            with pytest.raises(RuntimeError, match=r"got mode 7\d\d of user 12345"):
                ops.build_native()
            os.chown(folder, 0, -1)
        assert cache.builds == before


def test_links_are_followed_and_a_folder_like_tmp_may_be_above_but_not_the_last(cache, tmp_path):
    real = tmp_path / "real"
    real.mkdir(mode=0o700)
    cache.home.symlink_to(real)
    assert native._content() == GOOD
    assert (real / "expacc").is_dir()
    real.chmod(0o777)  # it is looked at all the same
    with pytest.raises(RuntimeError, match="real must be writable"):
        ops.build_native()
    real.chmod(0o1777)
    assert native._content() == GOOD
    cache.folder.chmod(0o1777)
    with pytest.raises(RuntimeError, match="writable for you alone"):
        ops.build_native()


def test_a_folder_that_is_exchanged_after_the_look_is_not_used(cache, tmp_path, monkeypatch):
    """As another user would, if a folder above were theirs."""
    native._content()
    check = native._check_folder
    evil = tmp_path / "evil"
    shutil.copytree(cache.home, evil)
    place = evil / cache.file.relative_to(cache.home)
    folder = os.open(place.parent, os.O_RDONLY)
    native._write_whole(folder, place.name, b"evil")
    os.close(folder)

    def exchanged(descriptor, name, *, last):
        check(descriptor, name, last=last)
        if name == str(moment) and cache.home.exists() and evil.exists():
            cache.home.replace(tmp_path / "kept")
            evil.replace(cache.home)

    monkeypatch.setattr(native, "_check_folder", exchanged)
    for moment in ancestors(cache):
        assert native._content() == GOOD, moment
        if not evil.exists():
            cache.home.replace(evil)
            (tmp_path / "kept").replace(cache.home)
    assert cache.builds == 1


def test_one_process_builds_and_the_others_wait(cache):
    cache.make(wait="sleep 0.5; ")
    found = []
    threads = [threading.Thread(target=lambda: found.append(native._content())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (found, cache.builds) == ([GOOD] * 4, 1)


def test_it_is_on_the_disk_before_it_has_its_name(cache, monkeypatch):
    order = []

    def noted(name):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, **k: (order.append(name), real(*a, **k))[1])

    noted("fsync")
    noted("replace")
    native._content()
    assert order == ["fsync", "replace", "fsync"]  # the file, its name, the folder


REASONS = {
    "no-such-compiler": "a C++ compiler must be installed; got none called 'no-such-compiler'",
    "false": "the compiler must succeed; got: ",
    "true": "the C++ node must be built or read; got: ",  # it makes nothing
    None: r"the C\+\+ node must be built or read; got: .*invalid ELF header",  # it is no library
}


@pytest.mark.parametrize("compiler", REASONS)
def test_why_there_is_none(cache, monkeypatch, compiler):
    if compiler:
        monkeypatch.setenv("CXX", compiler)
    reason = re.escape(REASONS[compiler]) if compiler else REASONS[compiler]
    with pytest.raises(RuntimeError, match=f"^{reason}"):
        ops.build_native()
    assert dispatch.native_library is None
    assert {path.name for path in cache.folder.iterdir()} <= {"lock", native._NAME}
    assert (cache.file.exists()) == (compiler is None)


@pytest.mark.parametrize("home", ["", "relative/cache"])
def test_the_usual_folder(monkeypatch, tmp_path, home):
    monkeypatch.setenv("XDG_CACHE_HOME", home)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert native._path().parent == tmp_path / ".cache" / "expacc" / "native"


PROGRAM = """
import torch
from expacc import ExactLoss, build_native, functional
from expacc.ops import dispatch
assert dispatch.native_library is None
logits = torch.randn(8, 3, requires_grad=True)
for loss in (ExactLoss(), functional.leaky_expected_error):
    loss(logits, torch.zeros(8, dtype=torch.long)).backward()
if {asked}:
    build_native()
"""


def program(cache, asked):
    code = PROGRAM.format(asked=asked)
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)


def test_nothing_is_built_unless_asked_for(cache, monkeypatch):
    for value in ("auto", "wait", "on"):  # no variable asks for it
        monkeypatch.setenv("EXPACC_NATIVE", value)
        assert dispatch.native_library is None
    with program(cache, asked=False) as process:
        assert process.wait() == 0, process.stderr.read()
    assert cache.builds == 0
    assert not cache.home.exists()


def test_a_batch_is_given_to_it_once_it_is_built(cache, monkeypatch):
    """What a backward decides, without a GPU: the rest is in tests/gpu."""
    asked, plan = [], SimpleNamespace(native=None)
    monkeypatch.setattr(node, "_native_step", lambda *_: asked.append(True) or False)
    monkeypatch.setattr(node, "_kernel_gradient", lambda *_: torch.ones(2, 3))
    call = SimpleNamespace(saved_tensors=(None, None), call=(plan, None, None))
    for library, native_of_plan in [(None, None)] * 2 + [(object(), False)] * 2:
        monkeypatch.setattr(dispatch, "native_library", library)
        with torch.no_grad():
            node._FusedLoss.backward(call, torch.ones(()))
        assert plan.native is native_of_plan
    assert asked == [True]


def is_there(group):
    """Does a process of the group run? One that ended and waits for its parent's look does not."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, own = stat.read_text().rpartition(")")[2].split()[:3]
            if int(own) == group and state != "Z":
                return True
    return False


def test_ctrl_c_ends_the_compiler(cache):
    cache.make(wait=f"echo $$ > {cache.log}.pid; sleep 60; ")
    note = Path(f"{cache.log}.pid")
    with program(cache, asked=True) as process:
        while not (note.exists() and note.read_text().strip()):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.02)
        group = int(note.read_text())
        process.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in process.stderr.read()
        process.wait()
    deadline = time.monotonic() + 30  # it would sleep for 60
    while is_there(group):  # its children, too
        assert time.monotonic() < deadline, "the compiler outlived us"
        time.sleep(0.05)
    assert {path.name for path in cache.folder.iterdir()} == {"lock"}
