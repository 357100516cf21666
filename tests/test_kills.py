"""No kill -9 of a parent or of a worker, at any moment, loses a row that was reported as saved."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from studies import ROWS, WAIT, children, content, gone, plan, run, wait_for

from expacc.runner.store import Store

HERE = Path(__file__).parent


def start(folder, count, wait):
    return subprocess.Popen(
        [sys.executable, str(HERE / "studies.py"), str(folder), str(count), "2"],
        env={**os.environ, WAIT: str(wait)},
        stderr=subprocess.PIPE,
        text=True,
    )


def noted(folder):
    path = folder / "saved.txt"
    if not path.exists():
        return []
    lines = path.read_text().split("\n")[:-1]  # a killed process may leave part of a line
    return [json.loads(line) for line in lines if line.startswith('"') and line.endswith('"')]


def stored(folder):
    with Store.read(folder) as store:
        store.check()
        return [row.key for row in store.rows(predictions=False)]


def until(happened, parent):
    def still():
        assert parent.poll() is None, f"ended before it was killed: {parent.stderr.read()}"
        return happened()

    wait_for(still, 60, lambda: "nothing happened for a minute")


def one_life(folder, count, moment, generator):
    """Start a parent, kill some of its workers and then itself; how many workers were killed."""
    before = len(set(noted(folder)))
    parent, killed = start(folder, count, wait=0.02), 0
    if moment == "with workers":
        until(lambda: children(parent.pid), parent)
    elif moment == "working":
        until(lambda: len(set(noted(folder))) > before, parent)
    if moment != "starting":
        for _ in range(generator.choice([1, 2])):  # a third could hit the same item again
            time.sleep(generator.uniform(0, 0.3))
            until(lambda: children(parent.pid), parent)
            os.kill(generator.choice(children(parent.pid)), signal.SIGKILL)
            killed += 1
    time.sleep(generator.uniform(0, 0.5))
    assert parent.poll() is None, f"ended before it was killed: {parent.stderr.read()}"
    orphans = children(parent.pid)
    parent.kill()
    parent.wait()
    end_of(orphans)
    assert parent.stderr.read() == ""  # which is the workers' too
    parent.stderr.close()
    return killed


def end_of(orphans):
    wait_for(lambda: all(map(gone, orphans)), 5, lambda: "a worker outlived its parent")


def torment(folder, count, kills, seed):
    """Kill workers and parents at random moments, and look at the rows after each parent."""
    generator = random.Random(seed)
    made = {"parent": 0, "worker": 0}
    while sum(made.values()) < kills:
        moment = ("starting", "with workers", "working")[made["parent"] % 3]
        made["worker"] += one_life(folder, count, moment, generator)
        made["parent"] += 1
        if made["parent"] >= 3:  # before that it may have been killed before there were tables
            keys = stored(folder)
            assert len(set(keys)) == len(keys)
            assert set(noted(folder)) <= set(keys)
    return made


@pytest.mark.skipif(sys.platform != "linux", reason="looks for child processes in /proc")
@pytest.mark.parametrize(
    ("kills", "count"), [(20, 400), pytest.param(100, 1500, marks=pytest.mark.slow)]
)
def test_no_kill_loses_a_row(tmp_path, kills, count):
    folder = tmp_path / "tormented"
    made = torment(folder, count, kills, seed=kills)
    assert made["parent"] >= kills // 4
    assert made["worker"] >= kills // 4
    survived = stored(folder)
    assert len(survived) >= ROWS * (made["parent"] // 3)  # it did work between the kills
    last = start(folder, count, wait=0)
    _, complaint = last.communicate(timeout=120)
    assert (last.returncode, complaint) == (0, "")
    _, undisturbed = run(tmp_path / "undisturbed", plan(count))
    with Store.read(folder) as store:
        store.check()
        rows = store.rows()
    assert set(survived) | set(noted(folder)) <= {row.key for row in rows}
    assert content(rows) == content(undisturbed)
    assert len(rows) == ROWS * count


# A parent that leaves its own process number for its workers, and an executor that is slow to
# import for them, or keeps the interpreter's lock, so that no thread of theirs can notice anything.
BUSY = """
import ctypes, os, time
from pathlib import Path
from studies import execute
folder, moment = Path(os.environ["FOLDER"]), os.environ["MOMENT"]
worker = os.environ.get("PARENT", str(os.getpid())) != str(os.getpid())
def note():
    (folder / f"busy-{os.getpid()}").touch()
if worker and moment == "importing":
    note()
    time.sleep(60)
def busy(item, shared):
    note()
    ctypes.PyDLL(None).sleep(60) if moment == "in C" else time.sleep(60)
    return execute(item, shared)
"""
PARENT = """
import contextlib, os
os.environ["PARENT"] = str(os.getpid())
from studies import failed_rows, plan
from expacc.runner.engine import run_items
from expacc.runner.store import Store
study = Store.open(os.environ["FOLDER"] + "/study", {})
with contextlib.suppress(KeyboardInterrupt), study as store:
    options = {"failed_rows": failed_rows, "workers": 2, "progress": False}
    run_items(store, plan(4), "busy:busy", **options)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks for child processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("moment", ["importing", "in C", "in Python"])
def test_workers_end_with_their_parent_and_without_a_word(tmp_path, moment, number):
    (tmp_path / "busy.py").write_text(BUSY)
    paths = os.pathsep.join([str(tmp_path), str(HERE)])
    environment = {"FOLDER": str(tmp_path), "MOMENT": moment, "PYTHONPATH": paths}
    with subprocess.Popen(
        [sys.executable, "-c", PARENT],
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        text=True,
    ) as parent:
        until(lambda: len(list(tmp_path.glob("busy-*"))) == 2, parent)
        workers = [int(path.name.partition("-")[2]) for path in tmp_path.glob("busy-*")]
        assert set(workers) == set(children(parent.pid))
        parent.send_signal(number)
        parent.wait(timeout=20)
        end_of(workers)
        assert parent.stderr.read() == ""


CHILD = """
import os, sys, time
from pathlib import Path
from expacc.runner import boot
if sys.argv[1] == "by itself":
    boot._killed_by_the_system = lambda: False
boot.end_with(os.getppid() if sys.argv[2] == "alive" else 1 << 40)
Path(f"child-{os.getpid()}").touch()
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks for child processes in /proc")
@pytest.mark.parametrize("how", ["by the system", "by itself"])
def test_a_program_ends_with_its_parent(tmp_path, how):
    """Also where the system does not see to it, and if the parent was gone before it was asked."""
    (tmp_path / "child.py").write_text(CHILD)
    places = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": str(HERE)}}
    command = [sys.executable, "child.py", how]
    parent = f"import subprocess; subprocess.run({[*command, 'alive']})"
    with subprocess.Popen(
        [sys.executable, "-c", parent], stderr=subprocess.PIPE, text=True, **places
    ) as process:
        until(lambda: list(tmp_path.glob("child-*")), process)
        (path,) = tmp_path.glob("child-*")
        process.kill()
        process.wait()
        end_of([int(path.name.partition("-")[2])])
        assert process.stderr.read() == ""
    assert subprocess.run([*command, "gone"], check=False, **places).returncode == 1
