"""The losses on a GPU against ``F.cross_entropy``: time and memory, forward and backward.

Medians of ``triton.testing.do_bench``, of which every loss has one in each of several rounds; a
ratio is the median over rounds of that to eager ``F.cross_entropy`` in the same round. A small
batch costs what Python costs, and waking a thread for autograd costs what the machine likes: so
small batches are also timed with all threads on one core, where nobody sleeps, and as a CUDA graph,
where only the kernels count; and the processor's time of a step is measured by itself. Peak memory
is what forward and backward need beside the logits, their gradient included, over the size of the
logits.

    python benchmarks/kernels.py            prints the tables and writes them to results/
    python benchmarks/kernels.py --native   with the node in C++, which it builds
    python benchmarks/kernels.py --head     the classifier head and its loss together
    python benchmarks/kernels.py --dry-run  writes no results
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from machine import RESULTS, facts, heading
from torch import Tensor

from expacc.functional import (
    exact_error,
    expected_error,
    leaky_expected_error,
    linear_mixed_expected_error,
    mixed_expected_error,
)
from expacc.ops import build_native
from expacc.ops.dispatch import BY_DEFAULT

SHAPES = (
    (4096, 10, torch.float32),
    (4096, 100, torch.float32),
    (4096, 1000, torch.float32),
    (65_536, 1000, torch.float32),
    (4096, 32_768, torch.bfloat16),
    (8192, 128_256, torch.bfloat16),
)
LOSSES: dict[str, Callable[..., Tensor]] = {
    "cross entropy": F.cross_entropy,
    "expected error": expected_error,
    "leaky": leaky_expected_error,
    "mixed": mixed_expected_error,
    "EXACT": exact_error,
    "EXACT, sigma 0.1, margin 5": partial(exact_error, sigma=0.1, margin=5.0),
    "cross entropy again": F.cross_entropy,
}
SOFTMAX_BARS = (0.9, 0.9, 0.9, 0.6, 0.6, 0.6)
BARS = {
    "expected error": SOFTMAX_BARS,
    "leaky": SOFTMAX_BARS,
    "mixed": SOFTMAX_BARS,
    "EXACT": (0.8, 0.8, 2, 5, 10, None),
}
HEAD = (8192, 2048, 128_256)
SMALL = 2**23  # elements; beyond, the processor's time does not matter


def gpu_facts(commit: str | None) -> dict[str, object]:
    import triton

    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    name, _, driver = done.stdout.strip().partition(", ")
    found = facts(
        gpu=name or torch.cuda.get_device_name(),
        driver=driver or "unknown",
        triton=triton.__version__,
        system=platform.release(),
    )
    return found if commit is None else {**found, "commit": commit}


def milliseconds(step: Callable[[], object], repeat: int) -> float:
    from triton.testing import do_bench

    found: float = do_bench(step, warmup=10, rep=repeat, return_mode="median")
    return found


def captured(step: Callable[[], object]) -> Callable[[], object]:
    """The step as a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def host_microseconds(step: Callable[[], object], steps: int = 300) -> float:
    """The processor's time of a step of a batch so small that the device waits for it."""
    for _ in range(30):
        step()
    spent = []
    for _ in range(5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            step()
        spent.append((time.perf_counter() - start) / steps * 1e6)
    return sorted(spent)[2]


def peak_of(step: Callable[[], object], *leaves: Tensor) -> int:
    """Bytes beyond what is held before, the leaves' gradients included."""
    step()
    for leaf in leaves:
        leaf.grad = None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    return torch.cuda.max_memory_allocated() - before


@contextlib.contextmanager
def on_one_core() -> Iterator[None]:
    """All threads of this process on one core: none has to be woken on another."""
    cores = os.sched_getaffinity(0)

    def move(where: set[int]) -> None:
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(OSError):  # it may have ended
                os.sched_setaffinity(int(thread), where)

    move({max(cores)})
    try:
        yield
    finally:
        move(cores)


def in_rounds(
    steps: dict[str, Callable[[], None]], rounds: int, repeat: int
) -> tuple[dict[str, float], dict[str, float]]:
    """(milliseconds, ratio to cross entropy) of every step."""
    spent: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds):
        names = list(steps) if turn % 2 == 0 else list(reversed(steps))  # no one is always first
        for name in names:
            spent[name].append(milliseconds(steps[name], repeat))
    base = spent["cross entropy"]
    ratios = {
        name: statistics.median(mine / theirs for mine, theirs in zip(times, base, strict=True))
        for name, times in spent.items()
    }
    return {name: statistics.median(times) for name, times in spent.items()}, ratios


def measure_shape(place: int, repeat: int, rounds: int) -> dict:
    rows, classes, dtype = SHAPES[place]
    generator = torch.Generator("cuda").manual_seed(0)
    logits = torch.randn(rows, classes, device="cuda", generator=generator)
    logits = logits.to(dtype).requires_grad_()
    target = torch.randint(0, classes, (rows,), device="cuda", generator=generator)
    small = rows * classes <= SMALL

    def step_of(loss: Callable[..., Tensor]) -> Callable[[], None]:
        def step() -> None:
            logits.grad = None
            loss(logits, target).backward()

        step()
        step()  # by the C++ node, if there is one
        return step

    steps = {name: step_of(loss) for name, loss in LOSSES.items()}
    times, ratios = in_rounds(steps, rounds if small else 3, repeat)
    pinned: dict[str, float] = {}
    if small:
        with on_one_core():
            _, pinned = in_rounds(steps, rounds, repeat)
    row: dict = {"rows": rows, "classes": classes, "dtype": str(dtype)}
    for name, step in steps.items():
        bar = BARS.get(name, (None,) * len(SHAPES))[place]
        found = {"ms": times[name], "ratio": ratios[name], "bar": bar}
        if small:
            found["one_core_ratio"] = pinned[name]
            found["host_us"] = host_microseconds(step)
        logits.grad = None
        found["peak"] = peak_of(step, logits) / logits.nbytes
        logits.grad = None
        found["graph_ms"] = milliseconds(captured(step), repeat)
        logits.grad = None
        found["graph_ratio"] = found["graph_ms"] / row.get("cross entropy", found)["graph_ms"]
        row[name] = found
        missed = "  MISSED" if bar is not None and found["ratio"] > bar else ""
        host = ""
        if small:
            host = f"  one core {pinned[name]:.2f}  host {found['host_us']:4.0f} us"
        print(
            f"{rows}x{classes} {str(dtype)[6:]:9} {name:27} {found['ms']:8.4f} ms"
            f"  ratio {found['ratio']:6.2f}  bar {bar}{host}  graph {found['graph_ms']:8.4f} ms"
            f"  ratio {found['graph_ratio']:6.2f}  peak {found['peak']:.2f} logits{missed}",
            flush=True,
        )
        torch.cuda.empty_cache()
    return row


def measure_head(repeat: int) -> dict[str, dict[str, float]]:
    rows, width, classes = HEAD
    features = torch.randn(rows, width, device="cuda", dtype=torch.bfloat16).requires_grad_()
    weight = torch.randn(classes, width, device="cuda", dtype=torch.bfloat16)
    weight = (weight / width**0.5).requires_grad_()
    target = torch.randint(0, classes, (rows,), device="cuda")
    ways: dict[str, Callable[[], Tensor]] = {
        "F.linear, F.cross_entropy": lambda: F.cross_entropy(F.linear(features, weight), target),
        "F.linear, mixed_expected_error": lambda: mixed_expected_error(
            F.linear(features, weight), target
        ),
        "linear_mixed_expected_error": lambda: linear_mixed_expected_error(
            features, weight, None, target
        ),
    }
    if hasattr(F, "linear_cross_entropy"):
        ways["F.linear_cross_entropy"] = lambda: F.linear_cross_entropy(features, weight, target)
    found: dict[str, dict[str, float]] = {}
    for name, way in ways.items():

        def step(way=way) -> None:
            features.grad = weight.grad = None
            way().backward()

        spent = milliseconds(step, repeat)
        features.grad = weight.grad = None
        peak = peak_of(step, features, weight)
        found[name] = {"ms": spent, "peak_bytes": peak}
        apart = found.get("F.linear, mixed_expected_error", found[name])
        ratios = spent / apart["ms"], peak / apart["peak_bytes"]
        print(
            f"{name:32} {spent:8.3f} ms ({ratios[0]:.2f})  peak {peak / 2**20:9.1f} MiB "
            f"({ratios[1]:.2f})",
            flush=True,
        )
        features.grad = weight.grad = None
        torch.cuda.empty_cache()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Our losses on a GPU against F.cross_entropy.")
    parser.add_argument(
        "--repeat", type=int, default=60, help="milliseconds of each in a round (default 60)"
    )
    parser.add_argument(
        "--rounds", type=int, default=15, help="of a small batch (default 15); others have 3"
    )
    parser.add_argument("--dry-run", action="store_true", help="write no result file")
    parser.add_argument("--native", action="store_true", help="launch from C++, built for it")
    parser.add_argument("--head", action="store_true", help="measure the fused head")
    parser.add_argument("--commit", help="of the code, where git is not at hand")
    options = parser.parse_args()
    for family in BY_DEFAULT:  # whichever are on by default
        BY_DEFAULT[family] = True
    machine = gpu_facts(options.commit)
    if options.native:
        build_native()
    machine["native"] = options.native
    print(heading(machine))
    print(f"launched from {'C++ (build_native)' if options.native else 'Python (the default)'}")
    found: object
    if options.head:
        found = measure_head(options.repeat)
    else:
        found = [
            measure_shape(place, options.repeat, options.rounds) for place in range(len(SHAPES))
        ]
    if not options.dry_run:
        what = "kernels" + "-head" * options.head + "-native" * options.native
        path = RESULTS / f"{what}-gpu.json"
        path.write_text(json.dumps({"machine": machine, "found": found}, indent=1) + "\n")
        print(f"written: {path}")


if __name__ == "__main__":
    main()
