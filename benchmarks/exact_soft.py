"""EXACT of class probabilities against EXACT of labels: what soft targets cost.

Forward + backward, one thread; logits are standard normal, probabilities the softmax of others.
Labels, probabilities and label smoothing take turns, so that all meet the same weather; times are
the least of all turns, which other processes disturb least. "class by class" is 1 - Σ q_j P_j with
every P_j by ``argmax_probabilities``, in two turns: the loss before it was one integral.

    python benchmarks/exact_soft.py            prints the table and writes it to results/
    python benchmarks/exact_soft.py --dry-run  prints it only
"""

import argparse
import json
import time
from collections.abc import Callable

import torch
from machine import RESULTS, facts, heading
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

from expacc import argmax_probabilities
from expacc.functional import exact_error

SIZES = ((4096, 10), (4096, 100), (1024, 1000))
DTYPES = (torch.float32, torch.float64)
BAR = 3.0  # times the labels' time, at most
LABELS, SOFT, SMOOTH, EACH = "labels", "probabilities", "label smoothing", "class by class"


def seconds_of(call: Callable[[Tensor], Tensor], logits: Tensor) -> float:
    logits.grad = None
    start = time.perf_counter()
    call(logits).backward()
    return time.perf_counter() - start


def measure(rows: int, classes: int, dtype: torch.dtype, seconds: float) -> dict[str, float]:
    generator = torch.Generator().manual_seed(classes)
    logits, other = torch.randn(2, rows, classes, dtype=dtype, generator=generator)
    labels, mass = other.argmax(1), other.softmax(1)
    logits.requires_grad_()
    calls = {
        LABELS: lambda z: exact_error(z, labels),
        SOFT: lambda z: exact_error(z, mass),
        SMOOTH: lambda z: exact_error(z, labels, label_smoothing=0.1),
    }
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        seconds_of(call, logits)
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop or len(spent[LABELS]) < 5:
        for name, call in calls.items():
            spent[name].append(seconds_of(call, logits))
    found = {name: min(values) for name, values in spent.items()}
    each = [seconds_of(lambda z: 1 - (mass * argmax_probabilities(z)).sum(1).mean(), logits)]
    each.append(seconds_of(lambda z: 1 - (mass * argmax_probabilities(z)).sum(1).mean(), logits))
    return {**found, EACH: min(each)}


def main() -> None:
    parser = argparse.ArgumentParser(description="What class probabilities cost EXACT on the CPU.")
    parser.add_argument("--seconds", type=float, default=6, help="of timing per size (default 6)")
    parser.add_argument("--dry-run", action="store_true", help="write no result file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    machine = facts()
    table = Table(title="EXACT, forward + backward, one thread", caption=heading(machine))
    for title in ("rows × classes", "dtype", LABELS, SOFT, SMOOTH, EACH):
        table.add_column(title, justify="right")
    found = []
    runs = [(*size, dtype) for dtype in DTYPES for size in SIZES]
    for rows, classes, dtype in track(runs, description="measuring", transient=True):
        spent = measure(rows, classes, dtype, options.seconds)
        ratios = {name: value / spent[LABELS] for name, value in spent.items()}
        name = str(dtype).removeprefix("torch.")
        found.append({"rows": rows, "classes": classes, "dtype": name, "seconds": spent})
        cells = [f"{spent[LABELS] * 1e3:,.1f} ms"]
        for key in (SOFT, SMOOTH, EACH):
            missed = key != EACH and ratios[key] > BAR
            cells.append(f"[bold red]{ratios[key]:.2f}×[/]" if missed else f"{ratios[key]:.2f}×")
        table.add_row(f"{rows:,} × {classes:,}", name, *cells)
    console = Console()
    console.print(table)
    if not options.dry_run:
        path = RESULTS / "exact-soft-cpu.json"
        path.write_text(json.dumps({"machine": machine, "sizes": found}, indent=1) + "\n")
        console.print(f"written: {path}")


if __name__ == "__main__":
    main()
