"""Time and memory of every loss, forward + backward, as ratios to ``F.cross_entropy``.

One thread, and its own time, without what others took of the core. Each repeat calls every loss,
in an order drawn anew, so that all of them meet the same weather; the ratio is that of the medians.
The heap is kept: left alone, glibc gives freed memory back to the kernel, and whoever asks next
pays for its pages, cross entropy itself up to twice its time. Memory is the growth of the process's
peak during one call, in units of the logits' size, the gradient included (Linux only).

    python benchmarks/losses.py            prints the table, writes it to results/ and docs/speed.md
    python benchmarks/losses.py --dry-run  prints it only
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from machine import RESULTS, SPEED, facts, heading
from rich.console import Console
from rich.progress import track
from rich.table import Table

from expacc.functional import expected_error, mixed_expected_error
from expacc.registry import SPECS, list_losses

HEAP = {
    name: str(2**40) for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
}  # of glibc
SIZES = ((256, 10), (4096, 10), (256, 1000), (4096, 1000))
BARS = {(256, 10): 2.0, (4096, 1000): 1.15}  # for the curves over log p
# Those that are curves over log p(target), and those that look at every rival; EXACT, which
# integrates, has a benchmark of its own.
CURVES: dict[str, Callable] = {
    name: spec.function for name, spec in SPECS.items() if callable(spec.slope)
} | {
    "mixed_expected_error (focus 0.5)": partial(mixed_expected_error, focus=0.5),
    "expected_error (shift 'auto')": partial(expected_error, shift="auto"),
    "expected_error (shift 1, scale 0.5)": partial(expected_error, shift=1.0, scale=0.5),
}
RIVALS: dict[str, Callable] = {
    name: SPECS[name].function
    for name in list_losses()
    if name not in CURVES and name not in ("cross_entropy", "exact")
}
BASE: dict[str, Callable] = {"F.cross_entropy": F.cross_entropy}
LOSSES = {**BASE, **CURVES, **RIVALS}
# Of yes/no labels, one logit each, beside torch's.
BINARY_SIZES, BINARY_BAR = ((4096, 100), (256, 1)), 1.3
BINARY: dict[str, Callable] = {
    "F.binary_cross_entropy_with_logits": F.binary_cross_entropy_with_logits
} | {name: spec.function for name, spec in SPECS.items() if spec.family == "binary"}


def batch(rows: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(rows, classes, generator=generator).requires_grad_()
    return logits, torch.randint(0, classes, (rows,), generator=generator)


def ratios(
    losses: dict[str, Callable], rows: int, classes: int, seconds: float
) -> dict[str, float]:
    """Median time of each loss over that of the first; the first's own in seconds."""
    logits, target = batch(rows, classes)
    if losses is BINARY:
        target = (
            torch.rand(rows, classes, generator=torch.Generator().manual_seed(1)) < 0.3
        ).float()
    spent: dict[str, list[float]] = {name: [] for name in losses}
    stop = time.perf_counter() + seconds
    base, *others = losses
    order, dice = list(losses), random.Random(0)
    while time.perf_counter() < stop or len(spent[base]) < 20:
        dice.shuffle(order)
        for name in order:
            for _ in range(2):  # the first call finds the caches as the one before left them
                logits.grad = None
                start = time.process_time()
                losses[name](logits, target).backward()
                took = time.process_time() - start
            spent[name].append(took)
    median = {name: statistics.median(values[3:]) for name, values in spent.items()}
    return {base: median[base]} | {name: median[name] / median[base] for name in others}


def peak_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise OSError("no VmHWM in /proc/self/status")


def measure_memory(name: str) -> None:
    """In a process of its own: print the growth of the peak in units of the logits' size."""
    logits, target = batch(16384, 1000)
    small, labels = batch(8, 5)
    LOSSES[name](small, labels).backward()  # load what is loaded once
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = peak_bytes()
    LOSSES[name](logits, target).backward()
    print((peak_bytes() - before) / (logits.numel() * 4))


def memory(name: str) -> float | None:
    if not Path("/proc/self/clear_refs").exists():
        return None
    command = [sys.executable, __file__, "--memory-of", name]
    kept = {name: value for name, value in os.environ.items() if name not in HEAP}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=kept)
    return float(done.stdout)


def write_table(found: dict, peaks: dict, machine: dict) -> None:
    """Replace the table of docs/speed.md by ours and the comparators' range."""
    sizes = [f"{rows}x{classes}" for rows, classes in SIZES]
    lines = ["| | " + " | ".join(sizes).replace("x", "×") + " | peak memory, in logits |"]
    lines.append("|---|" + "---|" * (len(sizes) + 1))
    shown = ("expected_error", "leaky_expected_error", "mixed_expected_error", "focal")
    for name in (*BASE, *shown, "generalized_cross_entropy"):
        cells = [
            f"{found[size][name] * 1e6:,.0f} µs" if name in BASE else f"{found[size][name]:.2f}"
            for size in sizes
        ]
        lines.append(
            f"| `{name}` | " + " | ".join(cells) + f" | {peaks[name] or float('nan'):.1f} |"
        )
    table = "\n".join([*lines, "", heading(machine) + "."])
    before, rest = SPEED.read_text().split("<!-- bench -->")
    after = rest.split("<!-- /bench -->")[1]
    SPEED.write_text(f"{before}<!-- bench -->\n{table}\n<!-- /bench -->{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and memory of the losses on one CPU thread.")
    parser.add_argument("--seconds", type=float, default=20, help="per size (default 20)")
    parser.add_argument("--dry-run", action="store_true", help="write no result file")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.memory_of:
        measure_memory(options.memory_of)
        return
    if not os.environ.keys() >= HEAP.keys():  # read when a process starts
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | HEAP)
    found = {
        f"{rows}x{classes}": ratios(BASE | RIVALS, rows, classes, options.seconds / 2)
        | ratios(BASE | CURVES, rows, classes, options.seconds)
        for rows, classes in track(SIZES, description="timing", transient=True)
    }
    binary = {
        f"{rows}x{labels}": ratios(BINARY, rows, labels, options.seconds / 2)
        for rows, labels in BINARY_SIZES
    }
    peaks = {name: memory(name) for name in track(LOSSES, description="memory", transient=True)}

    machine = facts()
    console = Console()
    table = Table(title="forward + backward, ratio to F.cross_entropy", caption=heading(machine))
    table.add_column("loss")
    for rows, classes in SIZES:
        bar = BARS.get((rows, classes))
        table.add_column(f"{rows}×{classes}" + (f"\n(≤ {bar})" if bar else ""), justify="right")
    table.add_column("peak memory\n(logits)", justify="right")
    for name in LOSSES:
        cells = []
        for rows, classes in SIZES:
            ratio = found[f"{rows}x{classes}"][name]
            missed = name in CURVES and ratio > BARS.get((rows, classes), float("inf"))
            text = f"{ratio * 1e6:,.0f} µs" if name in BASE else f"{ratio:.2f}"
            cells.append(f"[bold red]{text}[/]" if missed else text)
        peak = peaks[name]
        table.add_row(name, *cells, "–" if peak is None else f"{peak:.2f}")
    console.print(table)
    table = Table(title=f"yes/no labels, ratio to torch's (bar {BINARY_BAR} at 4096×100)")
    for title in ("loss", *binary):
        table.add_column(title)
    for name in BINARY:
        each = [times[name] for times in binary.values()]
        cells = (f"{one * 1e6:,.0f} µs" if name.startswith("F.") else f"{one:.2f}" for one in each)
        table.add_row(name, *cells)
    console.print(table)
    if not options.dry_run:
        path = RESULTS / "losses-cpu.json"
        result = {"machine": machine, "ratios": found, "peak_memory_in_logits": peaks}
        result["binary_ratios"] = binary
        path.write_text(json.dumps(result, indent=1) + "\n")
        write_table(found, peaks, machine)
        console.print(f"written: {path}, and the table of docs/speed.md")


if __name__ == "__main__":
    main()
