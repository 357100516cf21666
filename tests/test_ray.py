"""The Ray engine: the rows of the local one, whatever happens to workers and nodes."""

import os
import signal
import sys

import numpy as np
import pytest
from studies import ROWS, content, execute, failed_rows, plan

from expacc.study import cluster
from expacc.study.engine import run_items
from expacc.study.store import Store

# Before Ray is imported: no telemetry, no tokens in the home folder of whoever runs the tests.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_AUTH_MODE"] = "disabled"
ray = pytest.importorskip("ray", reason="the package ray is not installed")

DATA = {
    "rows": np.random.default_rng(0).normal(size=(700, 300)).astype(np.float32),
    "offset": np.array([1.5]),
}


def run(folder, items, executor="studies:execute", **options):
    options = {"engine": "ray", "failed_rows": failed_rows, "progress": False, **options}
    with Store.open(folder, {}) as store:
        outcome = run_items(store, items, executor, **options)
        store.check()
        return outcome, store.rows()


@pytest.fixture(scope="class")
def one_node():
    """A cluster on this machine, as the engine starts it."""
    cluster._connect(ray, None, 2)
    yield
    ray.shutdown()


@pytest.fixture
def two_nodes():
    """Two nodes on this machine, and the one that may be killed."""
    from ray.cluster_utils import Cluster

    nodes = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
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


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "auto"])
def test_no_cluster_at_the_address(tmp_path, monkeypatch, address):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")  # what auto means
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(ConnectionError, match="address must be that of a Ray cluster that runs"):
        run(tmp_path, plan(1), address=address)


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
