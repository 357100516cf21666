"""Executors and a study for tests of the engines, to be run, killed and resumed.

In a module of its own, because workers import it.
"""

import contextlib
import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from expacc.runner.items import WorkItem
from expacc.runner.rows import Predictions, Row

ROWS = 3  # of an item
WAIT = "STUDY_WAIT"  # environment: seconds of an item


def plan(count, **payload):
    return [
        WorkItem(f"item-{number:05d}", {"number": number, **payload}) for number in range(count)
    ]


def make_row(item, number, **more):
    return Row(f"{item.key}/{number}", item.key, "final", "toy", "leaky", str(number), **more)


def failed_rows(item, reason):
    return [make_row(item, number, failure=reason) for number in range(ROWS)]


def execute(item, shared):
    """Rows that depend on the item and on the shared data alone."""
    time.sleep(item.payload.get("wait", float(os.environ.get(WAIT, 0))))
    offset = float(shared["offset"].sum()) if "offset" in shared else 0.0
    rows = []
    for number in range(ROWS):
        digest = hashlib.sha256(f"{item.key}/{number}".encode()).digest()
        labels = np.frombuffer(digest, np.uint8).astype(np.int32)
        share = (labels / 255).astype(np.float32)
        rows.append(
            make_row(
                item,
                number,
                numbers={"leak": 0.1 * number},
                metrics={"accuracy": float(share[0]) + offset},
                curves={"train_accuracy": tuple(share[:4].tolist())},
                predictions=Predictions(np.arange(32, dtype=np.int32), labels, share, share),
            )
        )
    return rows


def stumble(item, shared):
    """Raises, diverges or dies where the payload says so."""
    act = item.payload.get(str(item.payload["number"]))
    if act == "raise":
        raise ArithmeticError("a sentence\nof two lines")
    if act == "exit":
        sys.exit(3)
    if act in ("die", "die once"):
        marker = Path(item.payload.get("folder", "")) / f"died-{item.key}"
        if act == "die" or not marker.exists():
            marker.touch() if act == "die once" else None
            os.kill(os.getpid(), signal.SIGKILL)
    good = {"accuracy": 1.0}
    odd = {
        "diverge": [make_row(item, 0, failure="diverged"), make_row(item, 1, metrics=good)],
        "nan": [make_row(item, 0, metrics={"accuracy": float("nan")})],
        "nothing": None,
        "unpicklable": [make_row(item, 0, metrics=good, numbers={"f": lambda: 0})],
        "object": [make_row(item, 0, metrics=good, numbers={"f": {1, 2}})],
    }
    return odd[act] if act in odd else execute(item, shared)


def spin(item, shared):
    """A known number of operations of the interpreter: as long as the core is ours."""
    start = time.thread_time()
    while time.thread_time() - start < item.payload["seconds"]:
        sum(range(1000))
    return [make_row(item, 0, metrics={"accuracy": 1.0}, numbers={"process": os.getpid()})]


def linger(item, shared):
    """Leave the number of this process, and stay."""
    (Path(item.payload["folder"]) / f"task-{os.getpid()}").touch()
    time.sleep(120)
    return execute(item, shared)


def show_gpu(item, shared):
    """Which GPUs Ray has given this task, and how long it had them."""
    import ray

    begun = time.time()
    time.sleep(item.payload["wait"])
    numbers = {
        "gpus": [str(number) for number in ray.get_gpu_ids()],
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "node": ray.get_runtime_context().get_node_id(),
        "span": [begun, time.time()],
    }
    return [make_row(item, 0, metrics={"accuracy": 1.0}, numbers=numbers)]


def multiply(item, shared):
    """Sums whose last digits depend on the number of threads."""
    import torch

    rows = torch.tensor(shared["rows"])
    total = (rows @ rows.T).sum() * (1 + item.payload["number"])
    return [make_row(item, 0, metrics={"accuracy": float(total)})]


def threads(item, shared):
    import torch

    metrics = {"accuracy": float(torch.get_num_threads())}
    return [make_row(item, 0, metrics=metrics, numbers={"omp": os.environ.get("OMP_NUM_THREADS")})]


def children(parent):
    with contextlib.suppress(OSError):
        return [int(n) for n in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    return []


def gone(process):
    """Whether the process has ended; one that nobody has buried yet counts."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


def wait_for(happened, seconds, why):
    """Wait until it has happened; ``why()`` says what is wrong where that takes too long."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, why()
        time.sleep(0.01)


def content(rows):
    """All of the rows but their duration, to compare two studies."""
    return [
        vars(row) | {"seconds": 0, "predictions": row.predictions and row.predictions.to_bytes()}
        for row in rows
    ]


def run(folder, items, executor="studies:execute", **options):
    """Run or resume a study, and give its outcome and rows."""
    from expacc.runner.engine import run_items
    from expacc.runner.store import Store

    options = {"workers": 0, "progress": False, "failed_rows": failed_rows, **options}
    with Store.open(folder, {}) as store:
        outcome = run_items(store, items, executor, **options)
        store.check()
        return outcome, store.rows()


def main(folder, count, workers):
    """Run or resume a study, and write down each item that was reported as saved."""
    from expacc.runner.engine import run_items
    from expacc.runner.store import Store

    with (
        Store.open(folder, {"items": count}) as store,
        open(Path(folder) / "saved.txt", "a") as saved,
    ):

        def note(rows):
            saved.write("".join(f"{json.dumps(row.key)}\n" for row in rows))
            saved.flush()  # in the system's hands, which a kill does not reach
            return ""

        # Stored rows of an earlier process are given first: they were noted then, or are news.
        options = {"failed_rows": failed_rows, "workers": workers, "progress": False, "best": note}
        run_items(store, plan(count), "studies:execute", **options)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
