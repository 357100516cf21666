"""The Ray engine: the rows of the local one, whatever happens to workers and nodes."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import studies
from studies import ROWS, children, content, execute, gone, plan, wait_for

from expacc.cli.screen import RunOptions
from expacc.plain import UsageError
from expacc.runner import boot, cluster
from expacc.runner.store import Store

# Before Ray is imported: no telemetry, no token in the home folder of whoever runs the tests.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_AUTH_MODE"] = "token"
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
import ray

DATA = {
    "rows": np.random.default_rng(0).normal(size=(700, 300)).astype(np.float32),
    "offset": np.array([1.5]),
}
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


def run(folder, items, executor="studies:execute", **options):
    return studies.run(folder, items, executor, **{"engine": "ray", "workers": None, **options})


@pytest.fixture(scope="class")
def one_node():
    """A cluster on this machine, as the engine starts it."""
    cluster._connect(ray, None, 2)
    yield
    ray.shutdown()


def nodes_of(cpus):
    from ray.cluster_utils import Cluster

    head = {"num_cpus": cpus, "include_dashboard": False}
    return Cluster(initialize_head=True, head_node_args=head)


@pytest.fixture
def two_nodes():
    """Two nodes on this machine, and the one that may be killed."""
    nodes = nodes_of(1)
    victim = nodes.add_node(num_cpus=1)
    yield nodes, victim
    ray.shutdown()
    nodes.shutdown()


@pytest.mark.usefixtures("one_node")
class TestOneNode:
    @pytest.mark.slow
    def test_rows_are_those_of_the_local_engine(self, tmp_path):
        for executor in ("studies:execute", "studies:multiply"):
            folder = tmp_path / executor.replace(":", "-")
            outcome, rows = run(folder / "ray", plan(6), executor, shared=DATA)
            local = {"engine": "local", "shared": DATA, "workers": 0}
            _, expected = run(folder / "local", plan(6), executor, **local)
            assert content(rows) == content(expected)
            assert outcome.failed == 0
        assert ray.is_initialized()  # a cluster that was there stays
        with pytest.raises(ValueError, match="address must be that of the Ray cluster which this"):
            run(tmp_path / "elsewhere", plan(1), address="127.0.0.1:1")

    @pytest.mark.slow
    def test_a_worker_has_one_thread(self, tmp_path):
        _, rows = run(tmp_path, plan(2), "studies:threads")
        assert [row.metrics["accuracy"] for row in rows] == [1, 1]

    @pytest.mark.slow
    def test_a_failure_is_a_row_with_a_reason(self, tmp_path):
        acts = {"1": "raise", "2": "nan", "3": "unpicklable", "4": "exit"}
        outcome, rows = run(tmp_path, plan(6, **acts), "studies:stumble")
        reasons = {row.item: row.failure for row in rows}
        assert reasons["item-00001"] == "ArithmeticError: a sentence of two lines"
        assert "must be finite; got nan" in reasons["item-00002"]
        # Ray's pickle can carry a lambda; the store cannot keep it.
        assert "must be what JSON can hold; got function" in reasons["item-00003"]
        assert reasons["item-00004"] == "SystemExit: 3"
        assert reasons["item-00000"] is None
        assert outcome.failed == 4 * ROWS

    @pytest.mark.slow
    def test_ctrl_c_saves_what_is_complete_and_stops(self, tmp_path):
        saved = []

        def press(rows):
            saved.extend(rows)
            if len(saved) == 3 * ROWS:
                os.kill(os.getpid(), signal.SIGINT)
            return ""

        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, plan(60, wait=0.1), best=press)
        with Store.read(tmp_path) as store:
            store.check()
            done = len(store.done_items())
            assert 3 <= done < 20
            assert len(store.rows()) == ROWS * done
        outcome, rows = run(tmp_path, plan(60), engine="local", workers=0)
        assert (outcome.skipped, len(rows)) == (done, 60 * ROWS)

    @pytest.mark.slow
    def test_another_version_on_a_node_is_refused(self, tmp_path, monkeypatch):
        monkeypatch.setattr(cluster, "versions", lambda: {"expacc": "9.9"})
        with pytest.raises(ValueError, match=r"same version on every node; got .* and 9\.9 here"):
            run(tmp_path, plan(1))

    @pytest.mark.slow
    def test_a_worker_that_dies_is_replaced(self, tmp_path):
        items = plan(5, **{"1": "die once", "3": "die", "folder": str(tmp_path)})
        outcome, rows = run(tmp_path / "study", items, "studies:stumble")
        assert (tmp_path / "died-item-00001").exists()
        assert outcome.failed == ROWS
        failed = {row.item: row.failure for row in rows if row.failure}
        assert list(failed) == ["item-00003"]
        assert "died (WorkerCrashedError), 3 times out of 3" in failed["item-00003"]

    @pytest.mark.slow
    def test_scheduling_costs_little(self, tmp_path):
        outcome, _ = run(tmp_path, plan(12, seconds=0.3), "studies:spin")
        assert outcome.busy >= 12 * 0.3
        assert outcome.waited < 0.05 * outcome.busy


@pytest.mark.slow
def test_a_node_killed_midway_costs_only_its_unfinished_items(tmp_path, two_nodes, monkeypatch):
    nodes, victim = two_nodes
    kept, lost = [], []
    fetch = cluster._Tasks._fetch

    def watch(tasks, task, item):
        reply = fetch(tasks, task, item)
        lost.extend([item.key] if reply is None else [])
        return reply

    monkeypatch.setattr(cluster._Tasks, "_fetch", watch)

    def kill(rows):
        kept.append(rows)
        if len(kept) == 6:
            nodes.remove_node(victim, allow_graceful=False)
        return ""

    count = 40
    outcome, rows = run(
        tmp_path, plan(count, wait=0.2), shared=DATA, address=nodes.address, best=kill
    )
    assert len(kept) == count
    assert 1 <= len(lost) <= cluster.AHEAD
    assert (outcome.done, outcome.failed) == (count * ROWS, 0)
    expected = [row for item in plan(count) for row in execute(item, DATA)]
    assert content(rows) == content(expected)


@pytest.mark.slow
def test_a_share_of_a_gpu_each(tmp_path):
    """Two nodes with a GPU each: four runs at a time on each, and they see that GPU."""
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 4, "num_gpus": 1}
    nodes = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    nodes.add_node(**node)
    try:
        items = [replace(item, gpus=0.25) for item in plan(16, wait=2.0)]
        _, rows = run(tmp_path, items, "studies:show_gpu", address=nodes.address)
        with pytest.raises(
            ValueError, match=r"what a node of the Ray cluster has; got 2, and 1 there"
        ):
            run(tmp_path / "two", [replace(items[0], gpus=2.0)], address=nodes.address)
    finally:
        ray.shutdown()
        nodes.shutdown()
    found = [row.numbers for row in rows]
    assert all(one["gpus"] == ["0"] and one["visible"] == "0" for one in found)
    for node in {one["node"] for one in found}:
        spans = [one["span"] for one in found if one["node"] == node]
        crowd = [sum(a <= begun < b for a, b in spans) for begun, _ in spans]
        assert 2 <= max(crowd) <= 4
    assert len({one["node"] for one in found}) == 2


HEADLESS = """
import os
from studies import failed_rows, plan
from expacc.runner.engine import run_items
from expacc.runner.store import Store
with Store.open("study", {}) as store:
    options = {"engine": "ray", "address": os.environ["CLUSTER"]}
    options |= {"failed_rows": failed_rows, "progress": False}
    run_items(store, plan(40, wait=0.3), "studies:execute", **options)
"""


@pytest.mark.slow
def test_a_head_that_restarts_costs_what_was_under_way(tmp_path):
    """The cluster goes away in the midst; the same command on a new one does the rest."""
    nodes = nodes_of(2)
    paths = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "CLUSTER": nodes.address}
    with subprocess.Popen(
        [sys.executable, "-c", HEADLESS], cwd=tmp_path, env=paths, stderr=subprocess.DEVNULL
    ) as driver:

        def some_are_done():
            assert driver.poll() is None
            with contextlib.suppress(FileNotFoundError), Store.read(tmp_path / "study") as store:
                return len(store.done_items()) >= 5

        wait_for(some_are_done, 120, lambda: "no item is done")
        nodes.shutdown()
        try:
            driver.wait(timeout=90)
        finally:
            driver.kill()
    with Store.read(tmp_path / "study") as store:
        store.check()
        done = len(store.done_items())
    assert 5 <= done < 40
    nodes = nodes_of(2)
    try:
        outcome, rows = run(tmp_path / "study", plan(40, wait=0.0), address=nodes.address)
    finally:
        ray.shutdown()
        nodes.shutdown()
    assert (outcome.skipped, outcome.failed) == (done, 0)
    expected = [row for item in plan(40) for row in execute(item, {})]
    assert content(rows) == content(expected)


def test_gpus_of_the_command_line():
    assert RunOptions(engine="ray", device="cuda").gpus == 1.0
    assert RunOptions(engine="ray", device="cuda", gpus_per_run=0.25).gpus == 0.25
    assert RunOptions(engine="ray", device="cuda", gpus_per_run=0.25).at_once is None
    assert (RunOptions(device="cuda").gpus, RunOptions(device="cuda").at_once) == (0.0, 1)
    for settings, sentence in (
        ({"engine": "local", "device": "cuda", "gpus_per_run": 0.5}, "must stand beside --engine"),
        ({"engine": "ray", "gpus_per_run": 0.5}, "got ray and cpu"),
        ({"engine": "ray", "device": "cuda", "gpus_per_run": 1.5}, "or a whole number; got 1.5"),
        ({"engine": "ray", "device": "cuda", "gpus_per_run": 0.0}, "a share in"),
    ):
        with pytest.raises(UsageError, match=sentence):
            _ = RunOptions(**settings).gpus


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "auto"])
def test_no_cluster_at_the_address(tmp_path, monkeypatch, address):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")  # what auto means
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(ConnectionError, match="address must be that of a Ray cluster that runs"):
        run(tmp_path, plan(1), address=address)


def test_a_token_that_is_missing_or_wrong_is_a_sentence(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise ray.exceptions.AuthenticationError("no authentication token was found.")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse)
    monkeypatch.setattr(cluster, "_knock", lambda address: None)
    with pytest.raises(ConnectionError, match=r"takes our token; got 'h:1': no authentication .*"):
        run(tmp_path, plan(1), address="h:1")


# What is left of a cluster when its driver is killed

DRIVER = """
import os
from studies import failed_rows, plan
from expacc.runner.engine import run_items
from expacc.runner.store import Store
with Store.open("study", {}) as store:
    options = {"engine": "ray", "address": os.environ.get("CLUSTER"), "workers": 2}
    options |= {"failed_rows": failed_rows, "progress": False}
    run_items(store, plan(2, folder=os.getcwd()), "studies:linger", **options)
"""


def descendants(process):
    found = children(process)
    for each in found:
        found += children(each)
    return found


def killed_in_the_midst(folder, **environment):
    """Kill -9 a driver whose two tasks run; what it had started, its tasks, and what it said."""
    paths = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "HOME": str(folder)}
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        del paths[name]
    command = [sys.executable, "-c", DRIVER]
    options = {"cwd": folder, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env={**paths, **environment}, **options) as driver:

        def both_run():
            assert driver.poll() is None, driver.stderr.read()
            return len(list(folder.glob("task-*"))) == 2

        wait_for(both_run, 120, lambda: "no task runs")
        tasks = [int(task.name.partition("-")[2]) for task in folder.glob("task-*")]
        started = descendants(driver.pid)
        driver.kill()
        driver.wait()

        def left():
            each = [process for process in {*started, *tasks} if not gone(process)]
            return [Path(f"/proc/{process}/cmdline").read_text() for process in each]

        everyone = {*started, *tasks}
        wait_for(lambda: all(map(gone, everyone)), 10, lambda: f"outlived the driver: {left()}")
        return started, tasks, driver.stderr.read()


@pytest.mark.slow
@linux
def test_nothing_outlives_a_driver_with_a_cluster_of_its_own(tmp_path):
    started, tasks, said = killed_in_the_midst(tmp_path)
    assert set(tasks) < set(started)
    assert len(started) >= 6  # servers, agents, workers, the keeper
    assert said == ""
    assert (tmp_path / ".ray" / "auth_token").stat().st_size > 0  # tokens are on, unasked


@pytest.mark.slow
@linux
def test_tasks_end_with_their_driver_and_the_cluster_stays(tmp_path):
    token = {name: os.environ[name] for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN")}
    nodes = nodes_of(2)
    try:
        _, tasks, said = killed_in_the_midst(tmp_path, CLUSTER=nodes.address, **token)
        assert all(map(gone, tasks))
        assert said == ""
        _, rows = run(tmp_path / "next", plan(2), address=nodes.address)
        assert len(rows) == 2 * ROWS
    finally:
        ray.shutdown()
        nodes.shutdown()


@linux
def test_the_keeper_ends_what_it_was_told_of():
    with (
        subprocess.Popen(["sleep", "60"]) as kept,
        subprocess.Popen(["sleep", "60"]) as other,
        subprocess.Popen(["true"]) as gone,
    ):
        gone.wait()
        command = [sys.executable, "-I", boot.__file__, "keep", str(gone.pid), str(kept.pid)]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as program:
            time.sleep(0.3)
            assert kept.poll() is None
            program.stdin.close()
            assert program.wait(timeout=10) == 0
        assert kept.wait(timeout=10) == -signal.SIGKILL
        assert other.poll() is None
        other.kill()


@pytest.mark.slow
def test_a_cluster_of_our_own_is_shut_down(tmp_path):
    ray.shutdown()
    outcome, rows = run(tmp_path, plan(4), workers=1)
    assert (outcome.done, len(rows)) == (4 * ROWS, 4 * ROWS)
    assert not ray.is_initialized()


def test_without_the_package_there_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match="engine='ray' needs the package ray"):
        run(tmp_path, plan(1))


class FakeRay:
    """A cluster of two nodes with two cores each, and a GPU on one."""

    def __init__(self):
        self.asked = []

    def remote(self, *arguments, **options):
        return len(self.asked) if arguments else lambda function: self

    def options(self, num_gpus):
        self.asked.append(num_gpus)
        return self

    def put(self, value):
        return value

    def nodes(self):
        return [{"Resources": {"CPU": 2, "GPU": 1}}, {"Resources": {"CPU": 2}}]

    def cluster_resources(self):
        return {"CPU": 4, "GPU": 1}


def test_items_ask_for_their_share_of_a_gpu():
    items = [replace(item, gpus=0.5) for item in plan(3)]
    fake = FakeRay()
    tasks = cluster._Tasks(fake, [*items, *plan(1)], "studies:execute", {}, None)
    assert tasks._room() == cluster.AHEAD * 2  # a GPU has two of them, though there are four cores
    tasks._submit()
    assert fake.asked == [0.5, 0.5, 0.5, 0.0]
    assert cluster._Tasks(fake, plan(1), "studies:execute", {}, None)._room() == cluster.AHEAD * 4
    with pytest.raises(UsageError, match="got 2, and 1 there"):
        cluster._Tasks(fake, [replace(items[0], gpus=2.0)], "studies:execute", {}, None)
