"""Our orthant probability against the EXACT authors' samplers: time, memory, errors.

Forward + backward of P(true class wins), 256 rows, float32, one thread; the samplers draw the
authors' 16 samples. Logits are standard normal, standardised as the loss does, margins divided by
sigma; the table shows sigma = 1, the file also 10 and 0.1, where training starts and ends. Each
repeat calls every method once, in turn, so that all of them meet the same weather; times are
medians. Memory is the growth of the process's peak during one call, in a process of its own (Linux
only). Errors are against our rule in float64, which the tests hold to 1e-12 of a table made by
mpmath: the root mean square of P's, and the norm of the gradient's over the norm of the gradient.

    python benchmarks/exact.py            prints the table and writes it to results/
    python benchmarks/exact.py --dry-run  prints it only
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from machine import RESULTS, facts, heading
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

from expacc import orthant_prob
from expacc.ops.sampling import genz_orthant_prob, log_derivative_orthant_prob

ROWS = 256
SAMPLES = 16
CLASSES = (2, 10, 32, 100, 200, 1000)
SIGMAS = (10.0, 1.0, 0.1)
SHOWN_SIGMA = 1.0
DRAWS = 4  # of the samplers, for their errors
BARS = {10: 4, 100: 40}  # times faster than Genz' sampler
OURS, GENZ, LOG_DERIVATIVE = "ours", f"Genz-{SAMPLES}", f"log-derivative-{SAMPLES}"
GENERATOR = torch.Generator().manual_seed(0)
METHODS: dict[str, Callable[[Tensor], Tensor]] = {
    OURS: orthant_prob,
    GENZ: partial(genz_orthant_prob, samples=SAMPLES, generator=GENERATOR),
    LOG_DERIVATIVE: partial(log_derivative_orthant_prob, samples=SAMPLES, generator=GENERATOR),
}


def margins(classes: int, sigma: float, rows: int = ROWS) -> Tensor:
    """The target's lead over each rival, (rows, classes - 1), float64."""
    generator = torch.Generator().manual_seed(classes)
    logits = torch.randn(rows, classes, dtype=torch.float64, generator=generator)
    logits = (logits - logits.mean()) / logits.std()
    target = torch.randint(0, classes, (rows, 1), generator=generator)
    leads = logits.gather(1, target) - logits
    rivals = torch.arange(classes) != target
    return leads[rivals].view(rows, classes - 1) / sigma


def value_and_gradient(method: Callable[[Tensor], Tensor], leads: Tensor) -> tuple[Tensor, Tensor]:
    leads = leads.clone().requires_grad_()
    value = method(leads)
    value.sum().backward()
    return value.detach().double(), leads.grad.double()


def able(classes: int) -> list[str]:
    """The methods that do not refuse this size."""
    leads = margins(classes, SHOWN_SIGMA).float()
    names = []
    for name, method in METHODS.items():
        try:
            value_and_gradient(method, leads)
        except ValueError as refusal:
            if not str(refusal).startswith("max_bytes"):
                raise
        else:
            names.append(name)
    return names


def times(names: list[str], classes: int, seconds: float) -> dict[str, float]:
    """Median seconds of forward + backward."""
    leads = margins(classes, SHOWN_SIGMA).float().requires_grad_()
    spent: dict[str, list[float]] = {name: [] for name in names}
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop or len(spent[OURS]) < 6:
        for name in names:
            leads.grad = None
            start = time.perf_counter()
            METHODS[name](leads).sum().backward()
            spent[name].append(time.perf_counter() - start)
    return {name: statistics.median(values[1:]) for name, values in spent.items()}


def errors(name: str, classes: int, sigma: float) -> dict[str, float]:
    # The truth is that of the margins as float32 has them: rounding them is not the method's error.
    leads = margins(classes, sigma).float()
    true_value, true_gradient = value_and_gradient(orthant_prob, leads.double())
    value_square = gradient_square = 0.0
    for _ in range(DRAWS):
        value, gradient = value_and_gradient(METHODS[name], leads)
        value_square += (value - true_value).square().mean().item() / DRAWS
        gradient_square += (gradient - true_gradient).square().sum().item() / DRAWS
    return {
        "value_rmse": math.sqrt(value_square),
        "gradient_error": math.sqrt(gradient_square) / true_gradient.norm().item(),
    }


def peak_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise OSError("no VmHWM in /proc/self/status")


def measure_memory(name: str, classes: int) -> None:
    """In a process of its own: print the growth of the peak in bytes."""
    leads = margins(classes, SHOWN_SIGMA).float().requires_grad_()
    # Load what is loaded once.
    METHODS[name](margins(5, SHOWN_SIGMA, rows=8).float().requires_grad_()).sum().backward()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = peak_bytes()
    METHODS[name](leads).sum().backward()
    print(peak_bytes() - before)


def memory(name: str, classes: int) -> int | None:
    if not Path("/proc/self/clear_refs").exists():
        return None
    command = [sys.executable, __file__, "--memory-of", name, "--classes", str(classes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    return int(done.stdout)


def measure(seconds: float) -> dict[int, dict[str, dict]]:
    """Per number of classes and method: seconds, ratio to ours, peak bytes, errors by sigma."""
    found: dict[int, dict[str, dict]] = {}
    stages = [(classes, stage) for classes in CLASSES for stage in ("time", "errors", "memory")]
    for classes, stage in track(stages, description="measuring", transient=True):
        if stage == "time":
            median = times(able(classes), classes, seconds)
            found[classes] = {
                name: {"seconds": spent, "times_ours": spent / median[OURS]}
                for name, spent in median.items()
            }
        for name, row in found[classes].items():
            if stage == "errors":
                row["errors"] = {f"{sigma:g}": errors(name, classes, sigma) for sigma in SIGMAS}
            elif stage == "memory":
                row["peak_bytes"] = memory(name, classes)
    return found


def table_of(found: dict[int, dict[str, dict]], machine: dict[str, object]) -> Table:
    table = Table(
        title=f"P(true class wins), {ROWS} rows, float32, forward + backward, sigma {SHOWN_SIGMA:g}"
    )
    table.caption = heading(machine)
    table.add_column("classes", justify="right")
    table.add_column("method")
    for title in ("time", "time / ours", "peak memory", "RMSE of P", "gradient error"):
        table.add_column(title, justify="right")
    for classes, methods in found.items():
        for name in METHODS:
            label = f"{classes:,}" if name == OURS else ""
            if name not in methods:
                table.add_row(label, name, "refused", "–", "–", "–", "–")
                continue
            row = methods[name]
            error, peak = row["errors"][f"{SHOWN_SIGMA:g}"], row["peak_bytes"]
            ratio = f"{row['times_ours']:,.2f}"
            bar = BARS.get(classes)
            if name == GENZ and bar:
                missed = row["times_ours"] < bar
                ratio = f"(≥ {bar}) " + (f"[bold red]{ratio}[/]" if missed else ratio)
            table.add_row(
                label,
                name,
                f"{row['seconds'] * 1e3:,.2f} ms",
                ratio,
                "–" if peak is None else f"{peak / 2**20:,.1f} MiB",
                f"{error['value_rmse']:.1e}",
                f"{error['gradient_error']:.1e}",
            )
        table.add_section()
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Our orthant probability against the EXACT authors' samplers, one CPU thread."
    )
    parser.add_argument(
        "--seconds", type=float, default=10, help="of timing per number of classes (default 10)"
    )
    parser.add_argument("--dry-run", action="store_true", help="write no result file")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    parser.add_argument("--classes", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.memory_of:
        measure_memory(options.memory_of, options.classes)
        return
    found = measure(options.seconds)
    machine = facts(rows=ROWS, samples=SAMPLES)
    console = Console()
    console.print(table_of(found, machine))
    if not options.dry_run:
        path = RESULTS / "exact-cpu.json"
        path.write_text(json.dumps({"machine": machine, "classes": found}, indent=1) + "\n")
        console.print(f"written: {path}")


if __name__ == "__main__":
    main()
