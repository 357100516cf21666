"""The losses on a GPU against ``F.cross_entropy``: time forward and backward, and memory.

Medians of ``triton.testing.do_bench`` in several rounds, ours and torch's in turns; a ratio is the
median over rounds of ours to eager ``F.cross_entropy`` of the same kind of target in the same
round.
Peak memory is what forward and backward need beside the logits, their gradient included, over the
size of the logits. Of a batch so small that the device waits, the processor's time of a step is
measured too, for each way to launch.

    python benchmarks/kernels.py            prints the table and writes it to results/
    python benchmarks/kernels.py --native   also with the node in C++, which it builds (30 s)
    python benchmarks/kernels.py --dry-run  writes no results
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from machine import RESULTS, facts, heading
from torch import Tensor

from expacc.functional import (
    binary_exact_error,
    binary_leaky_expected_error,
    exact_error,
    leaky_expected_error,
    linear_mixed_expected_error,
    mixed_expected_error,
)
from expacc.ops import build_native, dispatch
from expacc.ops.triton.launch import Launch

HEAD = (8192, 2048, 128_256)
SMALL = 2**23  # elements; beyond, the processor's time does not matter
Loss = Callable[..., Tensor]
HARD = partial(exact_error, sigma=0.1, margin=5.0)


class Row(NamedTuple):
    """A line of the table: a batch, our loss, torch's, and what is to be reached."""

    name: str
    shape: tuple[int, ...]
    kind: str  # labels, smooth, soft, map, binary
    loss: Loss
    base: Loss
    bar: float | None
    dtype: torch.dtype = torch.float32
    memory_bar: float | None = None


def rows() -> list[Row]:
    wide = torch.bfloat16
    shapes = ((4096, 10), (4096, 1000), (65_536, 1000), (4096, 32_768))
    ce = F.cross_entropy
    found = []
    for name, loss, bars in (
        ("leaky", leaky_expected_error, (0.9, 0.9, 0.6, 0.6)),
        ("EXACT", exact_error, (1.0, 1.2, 3.0, 3.4)),
        ("EXACT, sigma 0.1, margin 5", HARD, (None, 1.5, 4.0, 5.0)),
    ):
        for shape, bar in zip(shapes, bars, strict=True):
            dtype = wide if shape[1] > 10_000 else torch.float32
            found.append(Row(name, shape, "labels", loss, ce, bar, dtype))
    middle = (4096, 1000)
    smooth = {"label_smoothing": 0.1}
    found += [
        Row("leaky, smoothing 0.1", middle, "labels", partial(leaky_expected_error, **smooth),
            partial(ce, **smooth), 0.9),
        Row("leaky, probabilities", middle, "soft", leaky_expected_error, ce, 1.2),
        Row("EXACT, probabilities", middle, "soft", exact_error, ce, 8.0),
    ]  # fmt: skip
    void = {"ignore_index": 255}
    masked = partial(ce, **void)
    for shape, bars, memory in (
        ((8, 21, 512, 512), (1.0, 4.0), 2.0),
        ((2, 21, 64, 64), (1.0, 1.5), None),
    ):
        for name, loss, bar in zip(
            ("leaky", "EXACT"), (leaky_expected_error, exact_error), bars, strict=True
        ):
            ours = partial(loss, **void)
            found.append(Row(name, shape, "map", ours, masked, bar, memory_bar=memory))
    bce = F.binary_cross_entropy_with_logits
    many = (65_536, 100)
    found += [
        Row("binary leaky", many, "binary", binary_leaky_expected_error, bce, 1.0),
        Row("binary EXACT", many, "binary", binary_exact_error, bce, 1.0),
    ]
    return found


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
        cores=os.cpu_count(),
    )
    return found if commit is None else {**found, "commit": commit}


def milliseconds(step: Callable[[], object], repeat: int) -> float:
    from triton.testing import do_bench

    found: float = do_bench(step, warmup=5, rep=repeat, return_mode="median")
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


def host_microseconds(step: Callable[[], object], steps: int = 200) -> float:
    """The processor's time of a step of a batch so small that the device waits for it."""
    for _ in range(20):
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


def batch_of(row: Row) -> tuple[Tensor, Tensor]:
    generator = torch.Generator("cuda").manual_seed(0)
    logits = torch.randn(row.shape, device="cuda", generator=generator).to(row.dtype)
    if row.kind == "soft":
        target = torch.randn(row.shape, device="cuda", generator=generator).softmax(1)
    elif row.kind == "binary":
        target = (torch.rand(row.shape, device="cuda", generator=generator) < 0.5).float()
    else:
        places = row.shape[:1] + row.shape[2:]
        target = torch.randint(0, row.shape[1], places, device="cuda", generator=generator)
        if row.kind == "map":
            target[:, ::16] = 255
    return logits.requires_grad_(), target


def step_of(loss: Loss, logits: Tensor, target: Tensor) -> Callable[[], None]:
    def step() -> None:
        logits.grad = None
        loss(logits, target).backward()

    step()
    step()  # the short way, and the C++ node, if there is one
    return step


def measure(row: Row, repeat: int, rounds: int) -> dict[str, object]:
    logits, target = batch_of(row)
    ours = step_of(row.loss, logits, target)
    theirs = step_of(row.base, logits, target)
    found: dict[str, object] = {**row._asdict(), "dtype": str(row.dtype)[6:]}
    del found["loss"], found["base"]
    pairs = []
    for turn in range(rounds):
        order = (ours, theirs) if turn % 2 == 0 else (theirs, ours)  # no one is always first
        spent = {step: milliseconds(step, repeat) for step in order}
        pairs.append((spent[ours], spent[theirs]))
    found["ms"], found["base_ms"] = (statistics.median(each) for each in zip(*pairs, strict=True))
    ratio = found["ratio"] = statistics.median(mine / other for mine, other in pairs)
    logits.grad = None
    memory = found["peak"] = peak_of(ours, logits) / logits.nbytes
    logits.grad = None
    try:
        found["graph_ms"] = milliseconds(captured(ours), repeat)
    except RuntimeError as error:
        found["graph_ms"] = None
        print(f"no graph: {error!r:.100}")
    over = row.memory_bar is not None and memory > row.memory_bar
    missed = "  MISSED" if over or (row.bar is not None and ratio > row.bar) else ""
    host = ""
    if logits.numel() <= SMALL:
        found["host_us"], found["base_host_us"] = host_microseconds(ours), host_microseconds(theirs)
        host = f"  host {found['host_us']:4.0f} us, torch's {found['base_host_us']:4.0f}"
    shape = "x".join(map(str, row.shape))
    print(
        f"{row.name:27} {shape:14} {found['dtype']:9}{found['ms']:8.3f} ms, torch's "
        f"{found['base_ms']:7.3f}  ratio {ratio:7.2f}  to reach {row.bar}  graph "
        f"{found['graph_ms'] or float('nan'):7.3f} ms  peak {memory:.2f}{host}{missed}",
        flush=True,
    )
    torch.cuda.empty_cache()
    return found


def by_triton(self: Launch, tensors: tuple[Tensor, ...], floats: tuple[float, ...] = ()) -> None:
    """Every launch by ``kernel[grid](...)``."""
    kernel, options = self.triton
    kernel[self.grid](*tensors, *floats, *self._rest, **options)


def measure_ways(native: bool) -> dict[str, dict[str, float]]:
    """Host microseconds of a step of 4096×10 for each way to launch."""
    from expacc.ops.triton.library import row_log_prob

    batch = Row("", (4096, 10), "labels", leaky_expected_error, F.cross_entropy, None)
    logits, target = batch_of(batch)

    def by_operation() -> None:
        logits.grad = None
        row_log_prob(logits, target)[0].mean().backward()

    ways: dict[str, dict[str, float]] = {}
    short = Launch.__call__
    for name, loss in (("leaky", leaky_expected_error), ("EXACT", exact_error)):
        found = ways[name] = {}
        found["F.cross_entropy"] = host_microseconds(step_of(F.cross_entropy, logits, target))
        dispatch.PLANS.clear()
        found["compiled[grid]"] = host_microseconds(step_of(loss, logits, target))
        graph = captured(step_of(loss, logits, target))
        found["CUDA graph"] = host_microseconds(graph)
        Launch.__call__ = by_triton  # type: ignore[method-assign]
        found["kernel[grid]"] = host_microseconds(step_of(loss, logits, target))
        Launch.__call__ = short  # type: ignore[method-assign]
        if native:
            build_native()
            dispatch.PLANS.clear()
            found["C++ node"] = host_microseconds(step_of(loss, logits, target))
            dispatch.native_library = None
            dispatch.PLANS.clear()
    ways["leaky"]["torch.library operation"] = host_microseconds(by_operation)
    for name, found in ways.items():
        listed = ", ".join(f"{way} {spent:.0f}" for way, spent in found.items())
        print(f"host microseconds a step, {name}, 4096x10: {listed}", flush=True)
    return ways


def measure_head(repeat: int) -> dict[str, dict[str, float]]:
    count, width, classes = HEAD
    features = torch.randn(count, width, device="cuda", dtype=torch.bfloat16).requires_grad_()
    weight = torch.randn(classes, width, device="cuda", dtype=torch.bfloat16)
    weight = (weight / width**0.5).requires_grad_()
    target = torch.randint(0, classes, (count,), device="cuda")
    losses: dict[str, Callable[[], Tensor]] = {
        "F.linear, mixed_expected_error": lambda: mixed_expected_error(
            F.linear(features, weight), target
        ),
        "linear_mixed_expected_error": lambda: linear_mixed_expected_error(
            features, weight, None, target
        ),
    }
    found: dict[str, dict[str, float]] = {}
    for name, loss in losses.items():

        def step(loss: Callable[[], Tensor] = loss) -> None:
            features.grad = weight.grad = None
            loss().backward()

        spent = milliseconds(step, repeat)
        features.grad = weight.grad = None
        peak = peak_of(step, features, weight)
        found[name] = {"ms": spent, "peak_bytes": peak}
        apart = found["F.linear, mixed_expected_error"]
        ratios = spent / apart["ms"], peak / apart["peak_bytes"]
        print(
            f"{name:32} {spent:8.3f} ms ({ratios[0]:.2f}, to reach 1.05)  peak "
            f"{peak / 2**20:9.1f} MiB ({ratios[1]:.2f}, to reach 0.20)",
            flush=True,
        )
        features.grad = weight.grad = None
        torch.cuda.empty_cache()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Our losses on a GPU against F.cross_entropy.")
    parser.add_argument(
        "--repeat", type=int, default=25, help="milliseconds of each in a round (default 25)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="default 5")
    parser.add_argument("--dry-run", action="store_true", help="write no result file")
    parser.add_argument("--native", action="store_true", help="also launch from C++, built for it")
    parser.add_argument("--only", default="", help="rows whose name has this")
    parser.add_argument("--commit", help="of the code, where git is not at hand")
    options = parser.parse_args()
    machine = gpu_facts(options.commit)
    print(heading(machine))
    chosen = [row for row in rows() if options.only in row.name]
    found: dict[str, object] = {"machine": machine, "table": []}
    path = RESULTS / f"kernels-triton-{machine['triton']}.json"

    def keep(name: str, part: object) -> None:
        found[name] = part
        if not options.dry_run:
            path.write_text(json.dumps(found, indent=1) + "\n")

    keep("table", [measure(row, options.repeat, options.rounds) for row in chosen])
    if not options.only:
        keep("host_us", measure_ways(False))
        keep("head", measure_head(options.repeat))
        if options.native:  # last, since building takes its time
            keep("host_us_native", measure_ways(True))
    if not options.dry_run:
        print(f"written: {path}")


if __name__ == "__main__":
    main()
