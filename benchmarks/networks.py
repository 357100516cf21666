"""How long the fast recipes on CIFAR-10 take with ``training.fit``, and what they reach.

    python benchmarks/networks.py CIFAR_FOLDER              all parts, printed as JSON lines
    python benchmarks/networks.py CIFAR_FOLDER --only fast --seconds 120

CIFAR_FOLDER holds the official binaries (data_batch_1.bin … test_batch.bin). The goals, on one
H200: the network of airbench94 in ten epochs, 94 %, in 4 s a run (2.59 to 3.83 s on an A100 by its
author, arXiv 2404.00498); ResNet-9 in 30 epochs in 10 s; 40 paired seeds of six losses of the short
recipe in 12 minutes. Times are of ``fit`` from a built network to its last step, without the
evaluation; the first run of a kind, which warms up, is told apart.
"""

import argparse
import json
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import facts
from torch import Tensor, nn

from expacc import networks
from expacc.compare.networks_losses import make_loss
from expacc.training import Augment, ResidentData, fit

MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
LOSSES = (
    "cross_entropy",
    "mixed_expected_error",
    "leaky_expected_error",
    "generalized_cross_entropy",
    "exact",
    "expected_error",
)


def read_cifar(folder: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training pictures and labels, then those of testing."""

    def part(names: list[str]) -> tuple[Tensor, Tensor]:
        rows = np.concatenate([np.fromfile(folder / name, np.uint8) for name in names])
        rows = rows.reshape(-1, 3073)
        pictures = torch.from_numpy(rows[:, 1:].copy()).view(-1, 3, 32, 32)
        return pictures, torch.from_numpy(rows[:, 0].astype(np.int64))

    return *part([f"data_batch_{k}.bin" for k in range(1, 6)]), *part(["test_batch.bin"])


class Lookahead(torch.optim.SGD):
    """Nesterov's SGD whose weights are drawn back to a slow copy every five steps, less and less:
    airbench94's, with 0.95^5 (t/T)^3 as the share of the slow one."""

    def __init__(self, groups: Any, model: nn.Module, steps: int, **how: Any) -> None:
        super().__init__(groups, **how)
        self._fast = [t for t in model.state_dict().values() if t.is_floating_point()]
        self._slow = [t.clone() for t in self._fast]
        self._total, self._done = steps, 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        found = super().step(closure)
        self._done += 1
        last = self._done == self._total
        if self._done % 5 == 0 or last:
            decay = 1.0 if last else 0.95**5 * (self._done / self._total) ** 3
            torch._foreach_lerp_(self._slow, self._fast, 1 - decay)
            for fast, slow in zip(self._fast, self._slow, strict=True):
                fast.copy_(slow)
        return found


def airbench_optimizer(model: nn.Module, steps: int, batch: int = 1024) -> Lookahead:
    """The author's numbers; there the loss is a sum over rows, here a mean."""
    scale = 1024 * (1 + 1 / (1 - 0.85))
    rate, decay = 11.5 / scale, 0.0153 * batch / scale
    biases = [m.bias for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    known = {id(bias) for bias in biases}
    others = [p for p in model.parameters() if p.requires_grad and id(p) not in known]
    groups = [
        {"params": some, "lr": of * batch, "weight_decay": decay / of / batch}
        for some, of in ((biases, rate * 64), (others, rate))
    ]
    return Lookahead(groups, model, steps, momentum=0.85, nesterov=True)


def airbench_schedule(share: float) -> float:
    return 0.2 + 0.8 * share / 0.23 if share < 0.23 else 1 + (0.07 - 1) * (share - 0.23) / 0.77


def triangle(share: float) -> float:
    return share / 0.2 if share < 0.2 else (1 - share) / 0.8


@torch.no_grad()
def accuracy(model: nn.Module, test: ResidentData, views: bool) -> float:
    """On the test pictures; with ``views`` the mean over mirrored and moved ones."""
    right = 0
    half = torch.bfloat16 if next(model.parameters()).is_cuda else None
    for pictures, labels in test.batches(0, 0):
        with torch.autocast(pictures.device.type, half, enabled=half is not None):
            if views:
                wide = nn.functional.pad(pictures, (1, 1, 1, 1), mode="reflect")
                moved = (wide[:, :, :32, :32], wide[:, :, 2:, 2:])
                logits = 0.5 * _mirrored(model, pictures)
                logits += 0.25 * sum(_mirrored(model, one) for one in moved)
            else:
                logits = model(pictures).float()
        right += int((logits.argmax(1) == labels).sum())
    return right / test.rows


def _mirrored(model: nn.Module, pictures: Tensor) -> Tensor:
    return model(pictures).float() + model(pictures.flip(3)).float()


class Bench:
    """The data on the device, and one run of each recipe."""

    def __init__(self, folder: Path, device: str) -> None:
        self.device = torch.device(device)
        pictures, labels, test_pictures, test_labels = read_cifar(folder)
        self.pictures, self.labels = pictures.to(self.device), labels.to(self.device)
        self.mean, self.deviation = torch.tensor(MEAN), torch.tensor(DEVIATION)
        self.test = self.data(test_pictures, test_labels, 2000).to(self.device)
        scaled = (pictures[:5000].float() / 255 - self.mean.view(3, 1, 1)) / self.deviation.view(
            3, 1, 1
        )
        self.whitened = scaled

    def data(self, pictures: Tensor, labels: Tensor, batch: int, **how: Any) -> ResidentData:
        return ResidentData(
            pictures, labels, batch_size=batch, mean=self.mean, deviation=self.deviation, **how
        )

    def run(self, recipe: str, seed: int, *, epochs: int, loss: Any = None, **how: Any) -> dict:
        torch.manual_seed(seed)
        batch = 1024 if recipe == "fast_cnn" else 512
        augment = Augment(2 if recipe == "fast_cnn" else 4, "alternating")
        training = self.data(
            self.pictures, self.labels, batch, shuffle=True, drop_last=True, augment=augment
        )
        model = networks.get(recipe)
        steps = epochs * len(training)
        if recipe == "fast_cnn":
            model.whiten(self.whitened)
            # Before the optimiser keeps a copy: the layout gives weights a new place in memory.
            model = model.to(self.device, memory_format=torch.channels_last)
            optimizer: Any = airbench_optimizer(model, steps)
            schedule: Callable[[float], float] = airbench_schedule
            usual = nn.CrossEntropyLoss(label_smoothing=0.2)
        else:
            model = model.to(self.device)
            optimizer = torch.optim.SGD(
                model.parameters(), lr=0.4, momentum=0.9, nesterov=True, weight_decay=5e-4
            )
            schedule, usual = triangle, nn.CrossEntropyLoss()
        function, _ = (usual, False) if loss is None else make_loss(loss, 10)
        rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: schedule(step / steps))
        self.wait()
        start = time.perf_counter()
        fit(
            model, training, function, epochs=epochs, optimizer=optimizer, scheduler=rates,
            scheduler_every="step", device=self.device, seed=seed, progress=False,
            channels_last=True, precision="bfloat16" if self.device.type == "cuda" else "float32",
            **how,
        )  # fmt: skip
        self.wait()
        seconds = time.perf_counter() - start
        return {
            "seconds": round(seconds, 3),
            "ms_a_step": round(1000 * seconds / steps, 3),
            "accuracy": accuracy(model, self.test, False),
            "with_views": accuracy(model, self.test, True),
        }

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def together(self, recipe: str, count: int, *, epochs: int) -> dict:
        """Runs side by side, each in a thread with a stream of its own."""
        failed: list[str] = []

        def work(seed: int) -> None:
            try:
                with torch.cuda.stream(torch.cuda.Stream(self.device)):
                    self.run(recipe, seed, epochs=epochs)
            except Exception as error:
                failed.append(f"{type(error).__name__}: {error}"[:200])

        threads = [threading.Thread(target=work, args=(100 + k,)) for k in range(count)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        each = (time.perf_counter() - start) / count
        return {"seconds_a_run_with_tests": round(each, 3), "failed": failed}


MODES = {"eager": {}, "graphs": {"graphs": True}, "compile": {"compile": True}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--only", nargs="*", default=["fast", "resnet9", "losses", "side", "compile"]
    )
    parser.add_argument("--seconds", type=float, default=280)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=0, help="instead of 10 and 30")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    asked = parser.parse_args()
    began = time.monotonic()

    def tell(**found: Any) -> None:
        print(json.dumps({"at": round(time.monotonic() - began, 1), **found}), flush=True)

    gpu = torch.cuda.get_device_name() if asked.device.startswith("cuda") else ""
    tell(**facts(gpu=gpu))
    bench = Bench(asked.folder, asked.device)
    torch.backends.cudnn.benchmark = True
    short, long = (asked.epochs or 10), (asked.epochs or 30)
    times: dict[str, float] = {}

    def repeat(recipe: str, mode: str, epochs: int, runs: int, **more: Any) -> None:
        found = []
        for seed in range(-1, runs):
            if time.monotonic() - began > asked.seconds:
                tell(recipe=recipe, mode=mode, stopped="out of time", runs=len(found))
                break
            try:
                one = bench.run(
                    recipe, seed, epochs=epochs if seed >= 0 else 1, **MODES[mode], **more
                )
            except Exception as error:
                tell(recipe=recipe, mode=mode, failed=f"{type(error).__name__}: {error}"[:400])
                return
            if seed < 0:
                tell(recipe=recipe, mode=mode, warming_up=True, **one)
            else:
                found.append(one)
        if found:
            middle = {key: statistics.median(one[key] for one in found) for key in found[0]}
            mean = {key: statistics.fmean(one[key] for one in found) for key in found[0]}
            times[f"{recipe}/{mode}/{more.get('loss')}"] = middle["seconds"]
            tell(
                recipe=recipe, mode=mode, epochs=epochs, runs=len(found), **more,
                seconds=middle["seconds"], ms_a_step=middle["ms_a_step"],
                accuracy=round(mean["accuracy"], 5), with_views=round(mean["with_views"], 5),
            )  # fmt: skip

    cuda = bench.device.type == "cuda"
    for mode in ("eager", "graphs") if cuda else ("eager",):
        if "fast" in asked.only:
            repeat("fast_cnn", mode, short, asked.runs)
        if "resnet9" in asked.only:
            repeat("resnet9", mode, long, min(2, asked.runs))
    ends = {m: t for m in MODES if (t := times.get(f"fast_cnn/{m}/None")) is not None}
    best = min(ends, key=ends.__getitem__, default="eager")
    if "losses" in asked.only:
        for loss in LOSSES:
            repeat("fast_cnn", best, short, 1, loss=loss)
        each = [
            times[f"fast_cnn/{best}/{loss}"]
            for loss in LOSSES
            if f"fast_cnn/{best}/{loss}" in times
        ]
        if len(each) == len(LOSSES):
            tell(
                extrapolated="40 seeds of 6 losses",
                mode=best,
                minutes=round(40 * sum(each) / 60, 2),
            )
    if "side" in asked.only and cuda:
        for count in (1, 2, 4):
            if time.monotonic() - began < asked.seconds:
                tell(side_by_side=count, **bench.together("fast_cnn", count, epochs=short))
    if "compile" in asked.only and cuda:
        for recipe, epochs in (("resnet9", long), ("fast_cnn", short)):
            if time.monotonic() - began < asked.seconds - 60:
                repeat(recipe, "compile", epochs, 1)


if __name__ == "__main__":
    main()
