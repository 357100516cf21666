"""A whole training step on a GPU with each loss, against cross entropy.

Forward, loss, backward and SGD in bfloat16 autocast and channels-last, on random images, with all
threads of the process on one core. Every round makes one step with each loss, in changing order and
without waiting, so that all of them meet the same weather; a step's time is that between two events
on the GPU. The figure is the median over rounds of the ratio to cross entropy in the same round,
with its standard error. The EXACT authors' sampler, with 16 samples, is run where it fits into
memory.

    python benchmarks/train_step.py            prints the table and writes it to results/
    python benchmarks/train_step.py --dry-run  prints it only
"""

import argparse
import itertools
import json
import random
import statistics
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from kernels import gpu_facts, on_one_core
from machine import RESULTS, heading
from torch import Tensor, nn

from expacc.functional import (
    exact_error,
    expected_error,
    leaky_expected_error,
    mixed_expected_error,
)
from expacc.ops.dispatch import BY_DEFAULT
from expacc.ops.sampling import genz_orthant_prob

Loss = Callable[[Tensor, Tensor], Tensor]
BAR = 1.005


class Case(NamedTuple):
    name: str
    make: Callable[[], nn.Module]
    batch: int
    pixels: int
    classes: int
    rounds: int  # at most


def resnet18() -> nn.Module:
    """ResNet-18 for images of 32×32: a 3×3 stem, no pooling after it."""
    from torchvision.models import resnet18 as make

    net = make(num_classes=10)
    net.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    net.maxpool = nn.Identity()
    return net


class WideBlock(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.BatchNorm2d(inside)
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
        self.second = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.shortcut = nn.Identity()
        if inside != outside or stride != 1:
            self.shortcut = nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        active = F.relu(self.first(images))
        same = isinstance(self.shortcut, nn.Identity)
        aside = images if same else self.shortcut(active)
        return aside + self.conv2(F.relu(self.second(self.conv1(active))))


def wide_resnet() -> nn.Module:
    """WRN-28-10."""
    widths = (16, 160, 320, 640)
    parts: list[nn.Module] = [nn.Conv2d(3, widths[0], 3, padding=1, bias=False)]
    for place, (inside, outside) in enumerate(itertools.pairwise(widths)):
        parts.append(WideBlock(inside, outside, 1 if place == 0 else 2))
        parts += [WideBlock(outside, outside, 1) for _ in range(3)]
    parts += [nn.BatchNorm2d(widths[-1]), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*parts, nn.Linear(widths[-1], 100))


def resnet50() -> nn.Module:
    from torchvision.models import resnet50 as make

    return make()


CASES = (
    Case("ResNet-18, 32x32, 10 classes", resnet18, 512, 32, 10, 200),
    Case("WRN-28-10, 32x32, 100 classes", wide_resnet, 512, 32, 100, 240),
    Case("ResNet-50, 224x224, 1000 classes", resnet50, 256, 224, 1000, 40),
)


def sampled_exact(generator: torch.Generator) -> Loss:
    """EXACT by the authors' sampler, on standardised logits."""

    def loss(logits: Tensor, target: Tensor) -> Tensor:
        scores = logits.float()
        scores = (scores - scores.mean()) / scores.std()
        place = torch.arange(scores.shape[1] - 1, device=scores.device)
        rivals = place + (place >= target[:, None])
        margins = scores.gather(1, target[:, None]) - scores.gather(1, rivals)
        chance = genz_orthant_prob(margins, samples=16, generator=generator, max_bytes=80 * 2**30)
        return 1 - chance.mean()

    return loss


def losses() -> dict[str, Loss]:
    return {
        "cross entropy": F.cross_entropy,
        "expected error": expected_error,
        "leaky": leaky_expected_error,
        "mixed": mixed_expected_error,
        "EXACT": exact_error,
        "cross entropy again": F.cross_entropy,
    }


def error_of_median(values: list[float]) -> float:
    """The standard error of a median, from the median distance to it."""
    middle = statistics.median(values)
    spread = 1.4826 * statistics.median(abs(value - middle) for value in values)
    return 1.2533 * spread / len(values) ** 0.5


def measure(case: Case, rounds: int) -> dict[str, dict[str, float | None]]:
    torch.manual_seed(0)
    net = case.make().cuda().to(memory_format=torch.channels_last)
    images = torch.randn(case.batch, 3, case.pixels, case.pixels, device="cuda")
    images = images.to(memory_format=torch.channels_last)
    target = torch.randint(0, case.classes, (case.batch,), device="cuda")
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9)

    def step(loss: Loss) -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            value = loss(net(images), target)
        value.backward()
        optimizer.step()

    def milliseconds(order: list[Loss]) -> list[float]:
        """Of each step, one after the other."""
        events = [torch.cuda.Event(enable_timing=True) for _ in range(len(order) + 1)]
        events[0].record()
        for loss, event in zip(order, events[1:], strict=True):
            step(loss)
            event.record()
        torch.cuda.synchronize()
        return [one.elapsed_time(two) for one, two in itertools.pairwise(events)]

    ours = losses()
    milliseconds(list(ours.values()) * 3)
    rounds = min(rounds, case.rounds)
    shuffle = random.Random(0).shuffle
    order: list[str] = []
    for _ in range(rounds):
        names = list(ours)
        shuffle(names)
        order += names
    # The first steps fill the queue of the GPU.
    all_times = milliseconds([F.cross_entropy] * 5 + [ours[name] for name in order])[5:]
    spent: dict[str, list[float]] = {name: [] for name in ours}
    for name, time in zip(order, all_times, strict=True):
        spent[name].append(time)
    found: dict[str, dict[str, float | None]] = {}
    base = spent["cross entropy"]
    for name, times in spent.items():
        ratios = [mine / theirs for mine, theirs in zip(times, base, strict=True)]
        found[name] = {
            "ms": statistics.median(times),
            "ratio": statistics.median(ratios),
            "standard_error": error_of_median(ratios),
            "bar": None if name.startswith("cross entropy") else BAR,
        }
    nothing = {"ms": None, "ratio": None, "standard_error": None, "bar": None}
    sampled = sampled_exact(torch.Generator("cuda").manual_seed(0))
    try:
        sampler = statistics.median(milliseconds([sampled] * 4)[1:])
        ratio = sampler / statistics.median(base)
        found["authors' sampler"] = {**nothing, "ms": sampler, "ratio": ratio}
    except torch.OutOfMemoryError:
        found["authors' sampler"] = {**nothing}
    for name, row in found.items():
        if row["ms"] is None or row["ratio"] is None:
            print(f"{case.name:34} {name:22} out of memory", flush=True)
            continue
        missed = "  MISSED" if row["bar"] is not None and row["ratio"] > row["bar"] else ""
        error = "" if row["standard_error"] is None else f" ± {row['standard_error']:.4f}"
        print(
            f"{case.name:34} {name:22} {row['ms']:8.2f} ms  {row['ratio']:.4f}{error}{missed}",
            flush=True,
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="A training step with each of our losses.")
    parser.add_argument(
        "--rounds", type=int, default=1000, help="at most (default: as many as fit)"
    )
    parser.add_argument("--case", default="", help="only those whose name contains this")
    parser.add_argument("--dry-run", action="store_true", help="write no result file")
    parser.add_argument("--commit", help="of the code, where git is not at hand")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    for family in BY_DEFAULT:  # whichever are on by default
        BY_DEFAULT[family] = True
    machine = gpu_facts(options.commit)
    print(heading(machine))
    path = RESULTS / "train_step-gpu.json"
    found = json.loads(path.read_text())["found"] if options.case else {}
    for case in CASES:
        if options.case not in case.name:
            continue
        with on_one_core():
            found[case.name] = {"commit": machine["commit"], **measure(case, options.rounds)}
        if not options.dry_run:  # after each: a later one may run out of time
            path.write_text(json.dumps({"machine": machine, "found": found}, indent=1) + "\n")
            print(f"written: {path}")


if __name__ == "__main__":
    main()
