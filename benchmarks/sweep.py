"""Many small training runs as one tensor program against a plain PyTorch loop, run by run.

The plain loop is what people write: tensor indexing, nn.Linear, torch.optim, no DataLoader. Both do
the same arithmetic: same batch size, model, optimiser, loss and number of steps. Repeats are
interleaved, so that a busy moment of the machine meets both; the ratio is the median of the
repeats' own ratios.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from machine import RESULTS, facts, heading
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn

import expacc
from expacc.schedules import geometric, per_epoch
from expacc.training import Model, Run, TensorTable, TrainConfig, train_runs

ROWS = 1000
CAR_SECONDS, GPU_RATIO = 10.0, 100.0


@dataclass(frozen=True)
class Case:
    name: str
    loss: str
    plain: Callable[[Tensor, Tensor], Tensor]
    classes: int
    batch: int
    hidden: tuple[int, ...] = ()
    bar: float | None = None
    steps: int = 100


CASES = [
    Case("linear, cross entropy", "cross_entropy", F.cross_entropy, 3, 256, bar=10),
    Case("linear, cross entropy", "cross_entropy", F.cross_entropy, 3, 8, bar=30),
    Case("linear, EXACT", "exact", expacc.ExactLoss(sigma=1.0), 4, 256, bar=8, steps=40),
    Case("MLP of 32, cross entropy", "cross_entropy", F.cross_entropy, 3, 8, (32,), bar=15),
    Case("MLP of 32, EXACT", "exact", expacc.ExactLoss(sigma=1.0), 4, 8, (32,), steps=40),
]


def table(classes: int, device: str = "cpu", rows: int = ROWS, features: int = 20) -> TensorTable:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, features, generator=generator)
    weight = torch.randn(features, classes, generator=generator)
    y = (x @ weight + torch.randn(rows, classes, generator=generator)).argmax(1)
    return TensorTable(x.to(device), y.to(device), classes)


def plain_run(rows: TensorTable, case: Case, steps: int) -> None:
    """One run of the loop people write."""
    widths = [rows.features.shape[1], *case.hidden, case.classes]
    parts: list[nn.Module] = []
    for into, out in pairwise(widths):
        parts += [nn.ReLU(), nn.Linear(into, out)] if parts else [nn.Linear(into, out)]
    device = rows.features.device
    model = nn.Sequential(*parts).to(device) if len(parts) > 1 else parts[0].to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    done = 0
    while done < steps:
        order = torch.randperm(len(rows.labels), device=device)
        for rows_of_step in order.split(case.batch):
            if len(rows_of_step) < case.batch and case.batch > 8:
                break  # full batches, as ours
            optimizer.zero_grad()
            case.plain(model(rows.features[rows_of_step]), rows.labels[rows_of_step]).backward()
            optimizer.step()
            done += 1
            if done == steps:
                break


def our_runs(rows: TensorTable, case: Case, count: int, steps: int) -> None:
    everyone = torch.arange(len(rows.labels))
    numbers = {"sigma": 1.0} if case.loss == "exact" else {}
    runs = [Run(f"run {i}", everyone, loss=case.loss, loss_params=numbers) for i in range(count)]
    plan = TrainConfig(Model(case.hidden), batch=case.batch, epochs=1, steps=steps, keep="last")
    train_runs(rows, runs, plan, device=rows.features.device)


def seconds(call: Callable[[], None], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def measure(case: Case, count: int, device: str, repeats: int) -> dict[str, float]:
    """Seconds of one plain run, of all of ours, and how many of ours finish in one plain run's."""
    rows = table(case.classes, device)
    our_runs(rows, case, count, 5)
    plain_run(rows, case, 5)
    plain, ours = [], []
    for _ in range(repeats):
        plain.append(seconds(lambda: plain_run(rows, case, case.steps), device))
        ours.append(seconds(lambda: our_runs(rows, case, count, case.steps), device))
    ratios = [count * p / o for p, o in zip(plain, ours, strict=True)]
    return {
        "plain_seconds": statistics.median(plain),
        "our_seconds": statistics.median(ours),
        "our_runs_per_second": count / statistics.median(ours),
        "ratio": statistics.median(ratios),
    }


def car_run(device: str) -> float:
    """Seconds of the EXACT paper's car run: 16 epochs of 500 steps, batch 256, five seeds.

    The table's shape (1,382 training rows, 21 one-hot columns, four classes) is what costs time;
    ``expacc reproduce exact-uci`` runs the table itself.
    """
    rows = table(4, device, rows=1382, features=21)
    everyone = torch.arange(1382)
    sigma = per_epoch(geometric(10.0, 0.01), 16)
    rate = per_epoch(geometric(0.1, 1e-4), 16, reach_end=True)
    runs = [
        Run(
            f"seed {seed}",
            everyone,
            loss="exact",
            loss_params={"sigma": sigma, "margin": 2.0},
            learning_rate=rate,
            weight_decay=1e-4,
            normalize=True,
        )
        for seed in range(5)
    ]
    plan = TrainConfig(Model(fixed_first=True), batch=256, epochs=16, steps=500, keep="last")
    return seconds(lambda: [None, train_runs(rows, runs, plan, device=device)][0], device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--dry-run", action="store_true", help="write no result file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cpu = options.device == "cpu"
    counts = (64,) if cpu else (64, 1_000, 10_000)
    jobs = [(case, count) for case in (CASES if cpu else CASES[:3]) for count in counts]
    found = []
    for case, count in track(jobs, description="training", transient=True):
        figures = measure(case, count, options.device, options.repeats)
        bar = case.bar if cpu else GPU_RATIO if count == 1_000 else None
        found.append({"case": case.name, "batch": case.batch, "runs": count, "bar": bar, **figures})
    car = statistics.median(car_run(options.device) for _ in range(3 if cpu else 1))
    machine = facts(device=options.device if cpu else torch.cuda.get_device_name())
    shown = Table(title="Runs at once against a plain loop, run by run", caption=heading(machine))
    for title in ("case", "batch", "runs", "plain, s/run", "ours, s", "runs/s", "times"):
        shown.add_column(title, justify="left" if title == "case" else "right")
    for row in found:
        times = f"{row['ratio']:.1f}" + (f" (≥ {row['bar']:g})" if row["bar"] else "")
        missed = row["bar"] and row["ratio"] < row["bar"]
        shown.add_row(
            row["case"],
            str(row["batch"]),
            f"{row['runs']:,}",
            f"{row['plain_seconds']:.3f}",
            f"{row['our_seconds']:.3f}",
            f"{row['our_runs_per_second']:,.0f}",
            f"[red]{times}[/]" if missed else times,
        )
    console = Console()
    console.print(shown)
    console.print(f"car run, 8,000 steps, five seeds: {car:.1f} s (bar: < {CAR_SECONDS:g})")
    if not options.dry_run:
        path = Path(RESULTS) / f"sweep-{options.device}.json"
        content = {"machine": machine, "cases": found, "car_seconds": car}
        path.write_text(json.dumps(content, indent=1) + "\n")
        console.print(f"written: {path}")


if __name__ == "__main__":
    main()
