"""The engines: nothing saved is lost, whoever is killed; failures are rows; Ctrl-C is clean."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from studies import ROWS, WAIT, children, content, execute, failed_rows, plan, run

from expacc.runner import engine, items
from expacc.runner.engine import run_items, workers_for
from expacc.runner.items import WorkItem, load_executor, run_item
from expacc.runner.store import Store

HERE = Path(__file__).parent


@pytest.fixture
def here_before():
    """Processes that other tests of this session keep: resource trackers, browsers."""
    return set(children(os.getpid()))


# Workers that die


def test_a_worker_that_dies_costs_nothing_and_an_item_that_kills_all_fails_alone(tmp_path):
    acts = {"1": "die once", "4": "die once", "2": "die", "folder": str(tmp_path)}
    items = plan(6, **acts)
    outcome, rows = run(tmp_path / "study", items, "studies:stumble", workers=2)
    assert (tmp_path / "died-item-00001").exists()
    assert (outcome.done, outcome.failed) == (6 * ROWS, ROWS)
    failed = [row for row in rows if row.item == "item-00002"]
    well = [row for row in rows if row.item != "item-00002"]
    assert content(well) == content(
        row for item in items if item.key != "item-00002" for row in execute(item, {})
    )
    assert all(not row.metrics for row in failed)
    assert {row.failure for row in failed} == {
        "the worker process was killed by SIGKILL, as a system without free memory does, "
        "3 times out of 3"
    }


# Failures


@pytest.mark.parametrize("workers", [0, 1])
def test_a_failure_is_a_row_with_a_reason(tmp_path, workers):
    acts = ["raise", "diverge", "nan", "nothing", "unpicklable", "object", "exit", "well"]
    items = plan(len(acts), **{str(number): act for number, act in enumerate(acts)})
    outcome, rows = run(tmp_path, items, "studies:stumble", workers=workers)
    found = [[row for row in rows if row.item == item.key] for item in items]
    reasons = [rows_of_item[0].failure for rows_of_item in found]
    assert reasons[0] == "ArithmeticError: a sentence of two lines"
    assert reasons[1] == "diverged"
    assert [row.failure for row in found[1]] == ["diverged", None]
    assert "accuracy of row 'item-00002/0' must be finite; got nan" in reasons[2]
    assert "must be a list of Row; got NoneType" in reasons[3]
    assert "lambda" in reasons[4] or "function" in reasons[4]
    assert "must be what JSON can hold; got set" in reasons[5]
    assert reasons[6:] == ["SystemExit: 3", None]
    assert all(not row.metrics and row.predictions is None for row in rows if row.failure)
    assert outcome.failed == sum(row.failure is not None for row in rows) == 1 + 6 * ROWS
    with Store.read(tmp_path) as store:
        assert "Traceback" in store.failed_items()["item-00000"]
        assert sorted(store.failed_items()) == [items[n].key for n in (0, 2, 3, 4, 5, 6)]


def test_failed_items_can_be_tried_again(tmp_path):
    run(tmp_path, plan(3, **{"1": "raise"}), "studies:stumble")
    with Store.open(tmp_path, {}) as store:
        assert store.forget_failed_items() == 1
        assert len(store.rows()) == 2 * ROWS
    outcome, rows = run(tmp_path, plan(3))
    assert (outcome.done, outcome.skipped) == (ROWS, 2)
    assert all(row.failure is None for row in rows)


def test_failed_rows_must_have_a_failure(tmp_path):
    options = {"failed_rows": lambda item, reason: execute(item, {})}
    with pytest.raises(ValueError, match="failed_rows must give rows with a failure"):
        run(tmp_path, plan(1, **{"0": "raise"}), "studies:stumble", **options)


def test_workers_that_cannot_start_are_a_sentence(tmp_path, monkeypatch):
    program = tmp_path / "boot.py"
    program.write_text("raise SystemExit(7)")
    monkeypatch.setattr("expacc.runner.local.BOOT", program)
    with pytest.raises(RuntimeError, match=r"workers must start; .* ended with exit status 7"):
        run(tmp_path, plan(2), workers=2)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"engine": "slurm"}, "engine must be 'local' or 'ray'; got 'slurm'."),
        ({"workers": -1}, "workers must be a number of processes >= 0; got -1."),
        ({"workers": 1.5}, "workers must be a number of processes >= 0; got 1.5."),
        ({"engine": "ray"}, "workers must be >= 1 with engine='ray'; got 0"),
        ({"address": "auto"}, "address must be left out with engine='local'; got 'auto'."),
        ({"executor": "studies"}, "executor must be named 'package.module:function'"),
        ({"executor": "studies:nobody"}, "executor must be a function to import"),
        ({"executor": "nowhere:nobody"}, "executor must be a function to import"),
        ({"items": plan(1) * 2}, "items must have different keys; got 'item-00000' twice."),
    ],
)
def test_bad_arguments_are_a_sentence(tmp_path, options, sentence):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        run(tmp_path, **{"items": plan(1), **options})
    assert sentence in str(caught.value)


@pytest.mark.parametrize("value", [[1, 2], "text", np.array([object()])])
def test_shared_data_must_be_plain(tmp_path, value):
    with pytest.raises(TypeError, match=r"shared\['rows'\] must be"):
        run(tmp_path, plan(1), shared={"rows": value})


# Where the work is done makes no difference


def test_workers_give_the_rows_of_one_process(tmp_path):
    data = {"rows": np.random.default_rng(0).normal(size=(700, 300)).astype(np.float32)}
    before = torch.get_num_threads()
    torch.set_num_threads(2)  # the caller's threads must not matter
    try:
        one, two = (
            run(tmp_path / str(workers), plan(4), "studies:multiply", shared=data, workers=workers)
            for workers in (0, 2)
        )
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert content(one[1]) == content(two[1])


def test_a_worker_has_one_thread(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    _, (row,) = run(tmp_path, plan(1), "studies:threads", workers=1)
    assert row.metrics["accuracy"] == 1
    assert row.numbers["omp"] == "1"


def test_shared_data_arrives_as_it_was_sent():
    sent = {
        "text": b"\0bytes",
        "nothing": b"",
        "empty": np.zeros((0, 3)),
        "turned": np.arange(12, dtype=">i2").reshape(3, 4).T,
        "number": np.array(2.5),
        "words": np.array(["a", "käse"]),
        "flags": np.array([True, False]),
    }
    file, parts = items.write_shared(sent)
    with file:
        found = items.map_shared(file.fileno(), parts)
    for name, value in sent.items():
        if isinstance(value, bytes):
            assert found[name] == value
        else:
            np.testing.assert_array_equal(found[name], value, strict=True)
            assert not found[name].flags.writeable


@pytest.mark.parametrize("workers", [0, 1])
def test_shared_data_reaches_the_executor_read_only(tmp_path, workers):
    data = {"offset": np.array([0.5, 1.5])}
    _, rows = run(tmp_path, plan(2), shared=data, workers=workers)
    plain = execute(plan(1)[0], {})
    assert rows[0].metrics["accuracy"] == plain[0].metrics["accuracy"] + 2.0
    assert data["offset"].flags.writeable
    view = engine._read_only(data["offset"])
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1


def test_what_an_executor_prints_stays_off_stdout(tmp_path, capfd):
    program = tmp_path / "talkative.py"
    program.write_text(
        "from studies import execute\n\ndef talk(item, shared):\n    print('hello')\n"
        "    return execute(item, shared)\n"
    )
    sys.path.insert(0, str(tmp_path))
    try:
        run(tmp_path / "study", plan(1), "talkative:talk", workers=1)
    finally:
        sys.path.remove(str(tmp_path))
    assert capfd.readouterr().out == ""


# Resuming, Ctrl-C, progress


def test_a_finished_study_starts_nothing(tmp_path, monkeypatch):
    _, first = run(tmp_path, plan(3))
    monkeypatch.setattr(engine, "run_item", None)
    monkeypatch.setattr("expacc.runner.local.replies", None)
    outcome, second = run(tmp_path, plan(3), workers=2)
    assert (outcome.done, outcome.skipped) == (0, 3)
    assert content(first) == content(second)


def test_best_sees_every_row_once(tmp_path):
    run(tmp_path, plan(2))
    seen = []
    run(tmp_path, plan(4), best=lambda rows: seen.append([row.key for row in rows]) or "")
    assert [len(keys) for keys in seen] == [2 * ROWS, ROWS, ROWS]
    assert len({key for keys in seen for key in keys}) == 4 * ROWS


def interrupt_after(saved):
    """A ``best`` that presses Ctrl-C once that many items are saved."""
    count = 0

    def press(rows):
        nonlocal count
        count += 1
        if count == saved:
            os.kill(os.getpid(), signal.SIGINT)
        return ""

    return press


@pytest.mark.parametrize("workers", [0, 2])
def test_ctrl_c_saves_what_is_complete_and_stops(tmp_path, workers, monkeypatch, here_before):
    monkeypatch.setenv(WAIT, "0.05")
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, plan(200), workers=workers, best=interrupt_after(3))
    assert signal.getsignal(signal.SIGINT) is handler
    assert not (set(children(os.getpid())) - here_before)
    with Store.read(tmp_path) as store:
        store.check()
        saved = len(store.done_items())
        assert len(store.rows()) == ROWS * saved
        assert not store.is_running()
    assert 3 <= saved <= 10
    monkeypatch.setenv(WAIT, "0")
    outcome, rows = run(tmp_path, plan(200), best=None)
    assert (outcome.skipped, len(rows)) == (saved, 200 * ROWS)


@pytest.mark.parametrize("workers", [0, 1])
def test_ctrl_c_does_not_wait_for_long_items(tmp_path, monkeypatch, here_before, workers):
    monkeypatch.setenv(WAIT, "30")
    threading.Timer(0.5 + 0.5 * workers, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    start_time = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, plan(2), workers=workers)
    assert time.monotonic() - start_time < 10
    assert not (set(children(os.getpid())) - here_before)


def test_a_second_ctrl_c_does_not_wait():
    with engine.CtrlC() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.asked
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_is_left_alone_outside_the_main_thread():
    handler, seen = signal.getsignal(signal.SIGINT), []

    def look():
        with engine.CtrlC():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [handler]


def test_a_full_disk_ends_the_study_and_keeps_its_rows(tmp_path, here_before):
    options = {"failed_rows": failed_rows, "workers": 1, "progress": False}
    with Store.open(tmp_path, {}) as store:
        (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
        store._connection.execute(f"PRAGMA max_page_count = {pages + 12}")
        with pytest.raises(OSError, match="must have room to grow; the disk is full"):
            run_items(store, plan(500), "studies:execute", **options)
        assert not (set(children(os.getpid())) - here_before)
        saved = store.done_items()
        assert 0 < len(saved) < 500
        store.check()
    outcome, rows = run(tmp_path, plan(500))  # with room again
    assert outcome.skipped == len(saved)
    assert len(rows) == 500 * ROWS


def test_the_plan_is_noted_and_the_log_tells_how_far_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("expacc.training.progress.PATIENCE", 0.0)
    items = [WorkItem(f"i{n}", {"number": n, "1": "raise"}, runs=10) for n in range(4)]
    run(tmp_path, items, "studies:stumble", progress=True, best=lambda rows: "leaky 93.1 %")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("study: 25 %, runs 10 of 40, failed 0, best leaky 93.1 %, 0:00:")
    assert lines[0].endswith(" left")
    assert lines[-1].startswith("study: 100 %, runs 40 of 40, failed 3, best leaky 93.1 %, after")
    with Store.read(tmp_path) as store:
        assert store.notes()["planned"] == {"items": 4, "runs": 40}


# Time


def test_two_items_are_worked_on_at_a_time(tmp_path):
    outcome, rows = run(tmp_path, plan(12, seconds=0.1), "studies:spin", workers=2)
    assert len({row.numbers["process"] for row in rows}) == 2
    assert outcome.busy >= 12 * 0.1
    assert outcome.waited < 0.05 * outcome.busy


def test_a_reply_tells_what_its_process_waited():
    item, function = plan(1)[0], load_executor("studies:execute")
    run_item(function, item, {})
    time.sleep(0.05)
    reply = run_item(function, item, {})
    assert 0.05 <= reply.waited < 5
    assert reply.versions["numpy"] == np.__version__


def test_a_gpu_gets_one_worker_unless_asked():
    assert workers_for("cuda", None) == 1
    assert workers_for("cuda:1", 3) == 3
    assert workers_for("cpu", None) is None
    assert workers_for("cpu", 0) == 0
