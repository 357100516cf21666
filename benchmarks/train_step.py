"""A whole training step on a GPU with each loss, against cross entropy.

Forward, loss, backward and SGD in bfloat16 autocast and channels-last, on random images. Each round
times a few steps of every loss in turn, so that all of them meet the same weather; the figure is
the median over rounds of the ratio to cross entropy in the same round. The EXACT authors' sampler,
with 16 samples, is run where it fits into memory.

    python benchmarks/train_step.py            prints the table and writes it to results/
    python benchmarks/train_step.py --dry-run  prints it only
"""

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from kernels import gpu_facts
from machine import RESULTS, heading
from torch import Tensor, nn

from expacc.functional import (
    exact_error,
    expected_error,
    leaky_expected_error,
    mixed_expected_error,
)
from expacc.ops.kernels import BY_DEFAULT
from expacc.ops.sampling import genz_orthant_prob

Loss = Callable[[Tensor, Tensor], Tensor]
BAR = 1.005


class Case(NamedTuple):
    name: str
    make: Callable[[], nn.Module]
    batch: int
    pixels: int
    classes: int
    steps: int  # of a loss in a round


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
    Case("ResNet-18, 32x32, 10 classes", resnet18, 512, 32, 10, 12),
    Case("WRN-28-10, 32x32, 100 classes", wide_resnet, 512, 32, 100, 3),
    Case("ResNet-50, 224x224, 1000 classes", resnet50, 256, 224, 1000, 3),
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


def measure(case: Case, rounds: int) -> dict[str, dict[str, float | None]]:
    torch.manual_seed(0)
    net = case.make().cuda().to(memory_format=torch.channels_last)
    images = torch.randn(case.batch, 3, case.pixels, case.pixels, device="cuda")
    images = images.to(memory_format=torch.channels_last)
    target = torch.randint(0, case.classes, (case.batch,), device="cuda")
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9)

    def seconds(loss: Loss, steps: int) -> float:
        """A step's."""
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                value = loss(net(images), target)
            value.backward()
            optimizer.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / steps

    ours = losses()
    spent: dict[str, list[float]] = {name: [] for name in ours}
    for loss in ours.values():
        seconds(loss, 3)
    for turn in range(rounds):
        names = list(ours) if turn % 2 == 0 else list(reversed(ours))  # no one is always first
        for name in names:
            spent[name].append(seconds(ours[name], case.steps))
    found: dict[str, dict[str, float | None]] = {}
    base = spent["cross entropy"]
    for name, times in spent.items():
        ratios = [mine / theirs for mine, theirs in zip(times, base, strict=True)]
        ratio = statistics.median(ratios)
        bar = None if name.startswith("cross entropy") else BAR
        found[name] = {"ms": statistics.median(times) * 1e3, "ratio": ratio, "bar": bar}
    sampled = sampled_exact(torch.Generator("cuda").manual_seed(0))
    try:
        seconds(sampled, 1)
        sampler = statistics.median(seconds(sampled, 1) for _ in range(3))
        found["authors' sampler"] = {
            "ms": sampler * 1e3,
            "ratio": sampler / statistics.median(base),
            "bar": None,
        }
    except torch.OutOfMemoryError:
        found["authors' sampler"] = {"ms": None, "ratio": None, "bar": None}
    for name, row in found.items():
        if row["ms"] is None or row["ratio"] is None:
            print(f"{case.name:34} {name:22} out of memory", flush=True)
            continue
        missed = "  MISSED" if row["bar"] is not None and row["ratio"] > row["bar"] else ""
        print(
            f"{case.name:34} {name:22} {row['ms']:8.2f} ms  {row['ratio']:.4f}{missed}", flush=True
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="A training step with each of our losses.")
    parser.add_argument("--rounds", type=int, default=15, help="of all losses (default 15)")
    parser.add_argument("--dry-run", action="store_true", help="write no result file")
    parser.add_argument("--commit", help="of the code, where git is not at hand")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    for family in BY_DEFAULT:  # whichever are on by default
        BY_DEFAULT[family] = True
    machine = gpu_facts(options.commit)
    print(heading(machine))
    found = {}
    path = RESULTS / "train_step-gpu.json"
    for case in CASES:
        found[case.name] = measure(case, options.rounds)
        if not options.dry_run:  # after each: a later one may run out of time
            path.write_text(json.dumps({"machine": machine, "found": found}, indent=1) + "\n")
            print(f"written: {path}")


if __name__ == "__main__":
    main()
