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
from studies import ROWS, WAIT, children, content, failed_rows, plan

from expacc.study.engine import run_items
from expacc.study.store import Store

HERE = Path(__file__).parent


def run(folder, items, executor="studies:execute", **options):
    """Run or resume a study, and give its outcome and rows."""
    options = {"workers": 0, "progress": False, "failed_rows": failed_rows, **options}
    with Store.open(folder, {}) as store:
        outcome = run_items(store, items, executor, **options)
        store.check()
        return outcome, store.rows()


def start(folder, count, wait):
    return subprocess.Popen(
        [sys.executable, str(HERE / "studies.py"), str(folder), str(count), "2"],
        env={**os.environ, WAIT: str(wait)},
        stderr=subprocess.PIPE,
        text=True,
    )


def gone(process):
    """Whether the process has ended; one that nobody has buried yet counts."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


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
    deadline = time.monotonic() + 60
    while not happened():
        assert parent.poll() is None, f"ended before it was killed: {parent.stderr.read()}"
        assert time.monotonic() < deadline, "nothing happened for a minute"
        time.sleep(0.005)


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
    parent.stderr.close()
    deadline = time.monotonic() + 10
    while not all(map(gone, orphans)):
        assert time.monotonic() < deadline, "a worker outlived its parent"
        time.sleep(0.01)
    return killed


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
