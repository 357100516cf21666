"""What scheduling costs, and how much sooner two workers finish than one.

    python benchmarks/engines.py [--ray]

An item is a fixed amount of the interpreter's work. On a shared machine the cores are not ours, so
the gain of two workers is taken from the best of several turns, one worker and two in turn, and
stands beside what two plain processes gain, and beside the items under way on average, which do
not depend on who else is there.
Scheduling is the time that a worker spends between the end of an item and the start of the next,
as a share of its time in items; it contains saving, because the parent does that meanwhile.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from machine import RESULTS, facts

import expacc  # noqa: F401  (before studies, which does without it where it can)
from expacc.runner.engine import Outcome, run_items
from expacc.runner.store import Store

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from studies import failed_rows, plan

SIZES = (0.1, 0.5)  # seconds of an item
TURNS = 2


def measure(seconds: float, count: int, **options: object) -> Outcome:
    with tempfile.TemporaryDirectory() as folder, Store.open(folder, {}) as store:
        items = plan(count, seconds=seconds)
        return run_items(
            store, items, "studies:spin", failed_rows=failed_rows, progress=False, **options
        )


def scheduling(**options: object) -> dict[str, float]:
    """Share of the workers' time by size of the items, the least of the turns."""
    found = {}
    for seconds in SIZES:
        outcomes = [
            measure(seconds, max(8, min(200, int(4 / seconds))), **options) for _ in range(TURNS)
        ]
        found[f"{seconds:g} s"] = min(outcome.waited / outcome.busy for outcome in outcomes)
    return found


def plain_processes(seconds: float, count: int) -> float:
    """Seconds of the same work by processes that know nothing of each other."""
    code = f"import time\nwhile time.thread_time() < {seconds}: sum(range(1000))"
    start = time.monotonic()
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(count)]
    for process in running:
        process.wait()
    return time.monotonic() - start


def speed_up(seconds: float = 0.5, count: int = 12) -> dict[str, float]:
    """How much sooner two workers finish than one, starting them included."""
    times: dict[int, list[float]] = {1: [], 2: []}
    occupied: dict[int, list[float]] = {1: [], 2: []}
    plain: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(TURNS):
        for workers in times:
            outcome = measure(seconds, count, workers=workers)
            times[workers].append(outcome.seconds)
            occupied[workers].append(outcome.busy / outcome.seconds)
            plain[workers].append(plain_processes(seconds * count / workers, workers))
    return {
        "by the clock": min(times[1]) / min(times[2]),
        "two plain processes, by the clock": min(plain[1]) / min(plain[2]),
        "by the items under way on average": max(occupied[2]) / max(occupied[1]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ray", action="store_true", help="measure the Ray engine too")
    found: dict[str, object] = {"scheduling, local": scheduling(workers=2)}
    if parser.parse_args().ray:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
        found["scheduling, ray"] = scheduling(engine="ray")
        ray.shutdown()
    found["two workers against one"] = speed_up()
    known = facts(cores=os.cpu_count(), load=f"{os.getloadavg()[0]:.1f}")
    text = json.dumps({"machine": known, **found}, indent=1)
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "engines-cpu.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
