"""Time and memory of losses, forward and backward.

All methods of a setting take turns, so that they meet the same weather. On the CPU the clock is
that of the process, one thread, which other processes do not move; on a GPU it is the wall's, after
synchronising. Memory is the peak of what torch allocates during one call, the gradient included.
"""

import importlib.util
import os
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from expacc.functional import exact_error
from expacc.ops.sampling import genz_orthant_prob
from expacc.probabilities import orthant_prob
from expacc.recipes.exact.noise import leads_of
from expacc.recipes.recipe import RecipeOptions, Work, failed_row, final_row
from expacc.runner.items import Shared, WorkItem
from expacc.runner.rows import Row

SIGMA, MARGIN = 1.0, 5.0
LEAST = 2e-3  # seconds of one timing: shorter calls are repeated within it
Ask = Mapping[str, Any]  # the payload of an item
Call = Callable[[], None]
Loss = Callable[[Tensor, Tensor], Tensor]


ROWS = 256  # the paper's batch
CLASSES = (2, 4, 10, 20, 32, 50, 100, 200, 500, 1000, 2000, 4000)
QUICK_CLASSES = (2, 10, 32, 50, 100, 1000)
NODES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
USUAL_SAMPLES, USUAL_CLASSES = 16, 32  # of the paper's Figure 7
LINEAR_CLASSES = (2, 4, 8)  # as many as its tables have
NETWORKS = ((16, 8, 10), (28, 10, 10), (28, 10, 100))  # depth, width, classes, Section 6.3
IMAGES, IMAGES_ON_GPU = 4, 256


def plan(ask: RecipeOptions) -> Work:
    """A setting an item, its methods taking turns."""
    usual = {"rows": ROWS, "samples": USUAL_SAMPLES, "device": ask.device}
    usual["seconds"] = 0.5 if ask.quick else 4.0
    images = IMAGES_ON_GPU if ask.device.startswith("cuda") else IMAGES
    settings: list[dict[str, Any]] = [
        *({"part": "classes", "classes": c} for c in (QUICK_CLASSES if ask.quick else CLASSES)),
        *(
            {"part": "samples", "classes": USUAL_CLASSES, "samples": samples}
            for samples in (NODES[::2] if ask.quick else NODES)
        ),
        *({"part": "linear", "classes": c, "features": 50} for c in LINEAR_CLASSES),
        *(
            {"part": "network", "depth": depth, "width": width, "classes": c, "rows": images}
            for depth, width, c in (NETWORKS[:1] if ask.quick else NETWORKS)
        ),
    ]
    items = []
    for setting in settings:
        words = [f"{n}={setting[n]}" for n in ("classes", "samples", "depth") if n in setting]
        items.append(WorkItem("/".join([setting["part"], *words]), {**usual, **setting}))
    facts = {"device": ask.device, "quick": ask.quick}
    return Work(tuple(items), "expacc.recipes.exact.cost:execute", failed_row, facts=facts)


def execute(item: WorkItem, shared: Shared) -> list[Row]:
    """The rows of one setting: time, and of losses alone memory, too."""
    ask, rows = item.payload, []
    part, device, samples = ask["part"], ask["device"], ask["samples"]
    calls = {"linear": _linear, "network": _network}.get(part, _losses)(ask)
    needed, limit = genz_bytes(ask["rows"], ask["classes"] - 1, samples), room(device)
    if part in ("classes", "samples") and needed > limit:
        del calls["genz"]
        rows.append(_row(item, "genz", needed_bytes=float(needed), room_bytes=float(limit)))
    seconds = _take_turns(calls, device, ask["seconds"])
    for name, call in calls.items():
        metrics = {"seconds": seconds[name]}
        if part in ("classes", "samples"):
            metrics["peak_bytes"] = float(peak_bytes(call, device))
        rows.append(_row(item, name, **metrics))
    return rows


def _row(item: WorkItem, method: str, **metrics: float) -> Row:
    ask = item.payload
    numbers = {name: ask[name] for name in ("classes", "samples", "rows", "device")}
    return final_row(item, method, table=ask["part"], loss=method, numbers=numbers, metrics=metrics)


# ------------------------------------------------------------------------------------ the losses


def _logits(rows: int, classes: int, device: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(classes)
    logits = torch.randn(rows, classes, generator=generator).to(device)
    target = torch.randint(0, classes, (rows,), generator=generator).to(device)
    return logits, target


def genz_loss(logits: Tensor, target: Tensor, samples: int, generator: torch.Generator) -> Tensor:
    """EXACT as its authors compute it."""
    leads = leads_of(logits, target, SIGMA, MARGIN)
    needed = genz_bytes(leads.shape[0], leads.shape[1], samples)
    chances = genz_orthant_prob(leads, samples=samples, generator=generator, max_bytes=needed)
    return 1 - chances.mean()


def nodes_loss(logits: Tensor, target: Tensor, nodes: int) -> Tensor:
    """EXACT by our rule with so many nodes."""
    return 1 - orthant_prob(leads_of(logits, target, SIGMA, MARGIN), nodes=nodes).mean()


def genz_bytes(rows: int, rivals: int, samples: int) -> int:
    """What Genz' sampler allocates for value and gradient in float32."""
    columns = rivals + 1
    return 4 * samples * rows * (rivals * columns + 3 * columns + rivals)


def room(device: str) -> int:
    """Bytes that one loss may take: 2 GiB, or half of a GPU's free memory."""
    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(device)[0]) // 2
    return 2 * 2**30


def _losses(ask: Ask) -> dict[str, Call]:
    """Value and gradient of losses alone."""
    logits, target = _logits(ask["rows"], ask["classes"], ask["device"])
    losses = _candidates(ask)
    if ask["part"] == "samples":
        losses["ours"] = partial(nodes_loss, nodes=ask["samples"])
        losses.pop("ours_plain", None)  # kernels have as many nodes as they need: this is plain
    return {name: _call(loss, logits, target) for name, loss in losses.items()}


def _candidates(ask: Ask) -> dict[str, Loss]:
    """The losses by name; where kernels do the work, EXACT in plain torch too."""
    generator = torch.Generator(ask["device"]).manual_seed(0)
    exact = partial(exact_error, sigma=SIGMA, margin=MARGIN)
    losses: dict[str, Loss] = {
        "cross_entropy": F.cross_entropy,
        "genz": partial(genz_loss, samples=ask["samples"], generator=generator),
        "ours": exact,
    }
    if ask["device"].startswith("cuda") and importlib.util.find_spec("triton") is not None:
        losses["ours"] = partial(exact, impl="triton")
        losses["ours_plain"] = partial(exact, impl="reference")
    return losses


def _call(loss: Loss, logits: Tensor, target: Tensor) -> Call:
    leaf = logits.clone().requires_grad_()

    def run() -> None:
        torch.autograd.grad(loss(leaf, target), leaf)

    return run


# ------------------------------------------------------------------------- clocks and memory


def _clock(device: str) -> float:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
        return time.perf_counter()
    return time.process_time()


def _take_turns(calls: dict[str, Call], device: str, budget: float) -> dict[str, float]:
    """Median seconds of each call, until each has had its budget, three turns at least."""
    inner: dict[str, int] = {}
    spent: dict[str, list[float]] = {}
    for name, call in calls.items():
        call()  # what is loaded once
        start = _clock(device)
        call()
        inner[name] = max(1, int(LEAST / max(1e-7, _clock(device) - start)))
        spent[name] = []
    start = time.perf_counter()
    while min(map(len, spent.values())) < 3 or time.perf_counter() - start < budget:
        for name, call in calls.items():
            before = _clock(device)
            for _ in range(inner[name]):
                call()
            spent[name].append((_clock(device) - before) / inner[name])
    return {name: statistics.median(times) for name, times in spent.items()}


def peak_bytes(call: Call, device: str) -> int:
    """The most that torch had allocated at once during the call, beyond what it had before."""
    if device.startswith("cuda"):
        call()
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler tells stderr when it starts
    from torch.profiler import ProfilerActivity, profile

    call()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        call()
    events = seen.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    now = most = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


# ------------------------------------------------------------------------------------ overheads


def _linear(ask: Ask) -> dict[str, Call]:
    """A step of the paper's linear model: its loss, the backward pass and SGD with momentum."""
    width, device = ask["features"], ask["device"]
    _, target = _logits(ask["rows"], ask["classes"], device)
    random = torch.Generator().manual_seed(1)
    features = torch.randn(ask["rows"], width, generator=random).to(device)
    return {
        name: _step(nn.Linear(width, ask["classes"]).to(device), loss, features, target)
        for name, loss in _candidates(ask).items()
    }


def _step(model: nn.Module, loss: Loss, features: Tensor, target: Tensor) -> Call:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def run() -> None:
        optimizer.zero_grad()
        torch.autograd.backward(loss(model(features), target))
        optimizer.step()

    return run


def _network(ask: Ask) -> dict[str, Call]:
    """Forward and backward of a Wide ResNet, its loss left out: the gradient comes from outside."""
    rows, classes, device = ask["rows"], ask["classes"], ask["device"]
    model = WideResNet(ask["depth"], ask["width"], classes).to(device)
    batch, outside = images(rows, device), torch.ones(rows, classes, device=device)

    def run() -> None:
        model.zero_grad()
        torch.autograd.backward(model(batch), outside)

    return {f"wrn-{ask['depth']}-{ask['width']}": run}


# ------------------------------------------------------------------------------------ the network


class _Block(nn.Module):
    """Two 3×3 convolutions, each after normalisation and ReLU, and a way around them."""

    def __init__(self, channels: int, wider: int, stride: int) -> None:
        super().__init__()
        self.first_norm, self.second_norm = nn.BatchNorm2d(channels), nn.BatchNorm2d(wider)
        self.first = nn.Conv2d(channels, wider, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(wider, wider, 3, padding=1, bias=False)
        changes = stride > 1 or channels != wider
        self.around = nn.Conv2d(channels, wider, 1, stride, bias=False) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        ready = F.relu(self.first_norm(x))
        out: Tensor = self.second(F.relu(self.second_norm(self.first(ready))))
        return out + (x if self.around is None else self.around(ready))


class WideResNet(nn.Module):
    """WRN-depth-width for images of 32 × 32 pixels (Zagoruyko and Komodakis, 2016).

    Args:
        depth: 6 n + 4.
        width: by which the channels 16, 32, 64 are multiplied.
        classes: of the last layer.
    """

    def __init__(self, depth: int, width: int, classes: int) -> None:
        super().__init__()
        channels, parts = 16, []
        for group in range(3):
            wider = 16 * 2**group * width
            for place in range((depth - 4) // 6):
                parts.append(_Block(channels, wider, stride=2 if group and not place else 1))
                channels = wider
        self.stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.blocks, self.norm = nn.Sequential(*parts), nn.BatchNorm2d(channels)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of images (rows, 3, 32, 32)."""
        features = F.relu(self.norm(self.blocks(self.stem(x)))).mean((2, 3))
        logits: Tensor = self.head(features)
        return logits


def images(rows: int, device: str) -> Tensor:
    """Noise in the shape of CIFAR's images."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(rows, 3, 32, 32, generator=generator).to(device)
