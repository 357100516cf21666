"""The losses on a GPU against ``F.cross_entropy``: time and memory, forward and backward.

Medians of ``triton.testing.do_bench``; every ratio is to eager ``F.cross_entropy`` in the same run.
Peak memory is what forward and backward need beside the logits, over the size of the logits.

    python benchmarks/kernels.py            prints the tables and writes them to results/
    python benchmarks/kernels.py --dry-run  prints them only
    python benchmarks/kernels.py --head     the classifier head and its loss together
"""

import argparse
import json
import platform
import subprocess
from collections.abc import Callable

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
    "EXACT, standardize=False": lambda z, t: exact_error(z, t, standardize=False),
}
SOFTMAX_BARS = (0.9, 0.9, 0.9, 0.6, 0.6, 0.6)
BARS = {
    "expected error": SOFTMAX_BARS,
    "leaky": SOFTMAX_BARS,
    "mixed": SOFTMAX_BARS,
    "EXACT": (0.8, 0.8, 2, 5, 10, None),
}
HEAD = (8192, 2048, 128_256)


def gpu_facts() -> dict[str, object]:
    import triton

    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    name, _, driver = done.stdout.strip().partition(", ")
    return facts(
        gpu=name or torch.cuda.get_device_name(),
        driver=driver or "unknown",
        triton=triton.__version__,
        system=platform.release(),
    )


def milliseconds(step: Callable[[], object], repeat: int) -> float:
    from triton.testing import do_bench

    found: float = do_bench(step, warmup=25, rep=repeat, return_mode="median")
    return found


def peak_of(step: Callable[[], object]) -> int:
    """Bytes beyond what is held before and after."""
    step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    return torch.cuda.max_memory_allocated() - before


def measure(repeat: int) -> list[dict]:
    found = []
    for place, (rows, classes, dtype) in enumerate(SHAPES):
        generator = torch.Generator("cuda").manual_seed(0)
        logits = torch.randn(rows, classes, device="cuda", generator=generator)
        logits = logits.to(dtype).requires_grad_()
        target = torch.randint(0, classes, (rows,), device="cuda", generator=generator)
        row: dict = {"rows": rows, "classes": classes, "dtype": str(dtype)}
        for name, loss in LOSSES.items():

            def step(loss=loss, logits=logits, target=target) -> None:
                logits.grad = None
                loss(logits, target).backward()

            step()
            logits.grad = None
            spent = milliseconds(step, repeat)
            logits.grad = None
            peak = peak_of(step) / logits.nbytes
            ratio = spent / row["cross entropy"]["ms"] if name in BARS or "EXACT" in name else 1.0
            bar = BARS.get(name, (None,) * 6)[place]
            row[name] = {"ms": spent, "ratio": ratio, "bar": bar, "peak": peak}
            missed = "  MISSED" if bar is not None and ratio > bar else ""
            print(
                f"{rows}x{classes} {str(dtype)[6:]:9} {name:25} {spent:8.4f} ms  ratio {ratio:6.2f}"
                f"  bar {bar}  peak {peak:.2f} logits{missed}",
                flush=True,
            )
        found.append(row)
        logits.grad = None
        del logits, step
        torch.cuda.empty_cache()
    return found


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
    found = {}
    for name, way in ways.items():

        def step(way=way) -> None:
            features.grad = weight.grad = None
            way().backward()

        try:
            spent, peak = milliseconds(step, repeat), peak_of(step)
        except Exception as error:
            print(f"{name}: {error}")
            continue
        found[name] = {"ms": spent, "peak_bytes": peak}
        print(f"{name:32} {spent:8.3f} ms  peak {peak / 2**20:9.1f} MiB", flush=True)
        features.grad = weight.grad = None
        torch.cuda.empty_cache()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Our losses on a GPU against F.cross_entropy.")
    parser.add_argument(
        "--repeat", type=int, default=200, help="milliseconds of each (default 200)"
    )
    parser.add_argument("--dry-run", action="store_true", help="write no result file")
    parser.add_argument("--head", action="store_true", help="measure the fused head")
    options = parser.parse_args()
    machine = gpu_facts()
    print(heading(machine))
    found = measure_head(options.repeat) if options.head else measure(options.repeat)
    if not options.dry_run:
        path = RESULTS / ("head-gpu.json" if options.head else "kernels-gpu.json")
        path.write_text(json.dumps({"machine": machine, "found": found}, indent=1) + "\n")
        print(f"written: {path}")


if __name__ == "__main__":
    main()
