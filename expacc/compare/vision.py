"""A set of pictures and a network by its name, as ``compare_networks`` takes them."""

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from expacc import networks
from expacc.compare.networks_checks import triangle
from expacc.compare.networks_losses import DEFAULT
from expacc.networks.fast_cnn import WhitenedCNN
from expacc.plain import UsageError
from expacc.training import Augment
from expacc.training.epochs import PRECISIONS
from expacc.training.randomness import caller_randomness_kept

if TYPE_CHECKING:
    from expacc.compare.networks import NetworkStudy
    from expacc.data.images import ImageSet

SMALL = (16, 64, 64)  # widths of 'cnn-small', a quarter of those of 'cnn'
LOSSES_ON_A_CPU = DEFAULT[:3]
_STEPS = {"cpu": 600, "cuda": 1000}  # that a run has at least
_EPOCHS = {"cpu": (3, 30), "cuda": (10, 100)}  # the fewest, and the most to reach that
_MANY = 20_000  # pictures, of which a search takes a CPU too long
_HEAD = 4  # tensors that a head of its own may have
_PROBED = 1.0  # seconds that a probe of the speed takes
# Pictures a second that 'cnn' trains on, 32 × 32, bfloat16, in batches of 1,024: 10 epochs of
# 50,000 in 2.6 s (benchmarks/networks.py). Smaller batches are slower.
H200 = 190_000


@dataclass(frozen=True)
class VisionOptions:
    """What is asked for of a study of pictures; None where the user left it open.

    Args:
        model: 'cnn', 'cnn-small', a name of ``expacc.networks`` or 'timm:NAME'.
        pretrained: a safetensors file of weights to start from.
        losses: names.
        epochs: of a run.
        repeats: runs of each loss, on each fold.
        trials: learning rates that each loss tries.
        folds: parts, where no test part is given.
        label_noise: shares of training labels that are made wrong.
        mirror: whether training mirrors pictures.
        seed: of everything random.
        device: 'auto', 'cpu' or 'cuda'.
    """

    model: str | None = None
    pretrained: Path | None = None
    losses: tuple[str, ...] | None = None
    epochs: int | None = None
    repeats: int | None = None
    trials: int | None = None
    folds: int | None = None
    label_noise: tuple[float, ...] = (0.0,)
    mirror: bool = False
    seed: int = 0
    device: str = "auto"


def arguments_of(images: "ImageSet", asked: VisionOptions) -> dict[str, Any]:
    """The arguments of ``compare_networks``; what is open is smaller on a CPU than on a GPU.

    Raises:
        UsageError: an unknown model, weights that do not fit, …
    """
    kind = "cpu" if asked.device == "cpu" or not torch.cuda.is_available() else "cuda"
    model = asked.model or ("cnn-small" if kind == "cpu" else "cnn")
    pictures = images.images
    if asked.pretrained is not None and images.images.shape[1] == 1:  # weights know three colours
        pictures = pictures.expand(-1, 3, -1, -1)
    build, described, notes = network_of(model, pictures, images.classes, asked.pretrained)
    if images.test is not None and asked.folds is not None:
        raise UsageError(f"--folds must be left out: {images.name} has a test part of its own.")
    folds = asked.folds or 3
    rows = round(len(images) * 0.9 * (1 if images.test is not None else 1 - 1 / folds))
    batch = 128 if rows >= 4096 else 64 if rows >= 1024 else 32
    fewest, most = _EPOCHS[kind]
    enough = math.ceil(_STEPS[kind] * batch / max(1, rows))
    side = min(pictures.shape[2:])
    test = images.test and (images.test.images.expand(-1, *pictures.shape[1:]), images.test.targets)
    rate = 5e-3 if model.startswith("cnn") else 1e-3  # the CNN divides its logits by nine
    rate = rate if asked.pretrained is None else rate / 10

    def optimizer(network: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(network.parameters(), lr=rate)

    return {
        "build": build,
        "train": (pictures, images.targets),
        "test": test,
        "losses": asked.losses or (LOSSES_ON_A_CPU if kind == "cpu" else DEFAULT),
        "seeds": asked.repeats or (2 if test is None else 3 if kind == "cpu" else 5),
        "epochs": asked.epochs or min(most, max(fewest, enough)),
        "batch_size": batch,
        "trials": asked.trials or (3 if kind == "cuda" else 2 if rows < _MANY else 1),
        "label_noise": list(asked.label_noise),
        "augment": Augment(crop=max(1, side // 16), flip="random" if asked.mirror else "none"),
        "folds": folds,
        "schedule": triangle,
        "optimizer": optimizer,
        "network": described,
        "classes": images.classes,
        "name": images.name,
        "target": "class",
        "row_names": [*images.files, *(images.test.files if images.test else ())],
        "notes": [*images.notes, *notes],
        "device": asked.device,
        "seed": asked.seed,
    }


def network_of(
    model: str, pictures: Tensor, classes: Sequence[str], weights: Path | None
) -> tuple[Callable[[], nn.Module], str, list[str]]:
    """What builds a network for these pictures, what it is in words, and lines for the user."""
    make = _maker(model, len(classes), pictures.shape[1], pictures.shape[2])
    with caller_randomness_kept(torch.device("cpu")):
        try:
            first = make()
        except (ValueError, RuntimeError, TypeError) as error:  # timm's own go on for lines
            reason = " ".join(str(error).split())[:200]
            raise UsageError(f"--model {model} cannot be made: {reason}") from None
    if weights is None:
        return make, model, []
    found, digest = _weights(weights)
    fitting, left = _fitting(first, found, weights)

    def build() -> nn.Module:
        network = make()
        network.load_state_dict(fitting, strict=False)
        return network

    told = f"{len(fitting)} of {len(found)} tensors of {weights.name} are taken"
    rest = f"; not {', '.join(left[:3])}{', …' if len(left) > 3 else ''}" if left else ""
    return build, f"{model}, from weights {digest}", [f"{told}{rest}."]


def _maker(model: str, classes: int, channels: int, size: int) -> Callable[[], nn.Module]:
    if model.startswith("timm:"):
        name = model[5:]
        try:
            timm = import_module("timm")
        except ImportError:
            raise UsageError(
                f"--model {model} needs timm, which is not installed. Use pip install timm."
            ) from None
        if name not in timm.list_models():
            near = timm.list_models(f"*{name[:12]}*")[:5]
            raise UsageError(
                f"--model timm:NAME must be one of timm.list_models(); got {name!r:.60}."
                + (f" Close: {', '.join(near)}." if near else "")
            )
        asked = {"pretrained": False, "num_classes": classes, "in_chans": channels}

        def make() -> nn.Module:
            try:  # a transformer must know the size; others do not take it
                return timm.create_model(name, img_size=size, **asked)  # type: ignore[no-any-return]
            except TypeError:
                return timm.create_model(name, **asked)  # type: ignore[no-any-return]

        return make
    if model in ("cnn", "cnn-small"):
        widths = {"widths": SMALL} if model == "cnn-small" else {}
        return lambda: WhitenedCNN(classes, channels, **widths)
    if model not in networks.NAMES:
        raise UsageError(
            f"--model must be cnn, cnn-small, {', '.join(networks.NAMES)} or timm:NAME for "
            f"pictures; got {model!r:.60}."
        )
    return lambda: networks.get(model, classes=classes, channels=channels)


def _weights(path: Path) -> tuple[dict[str, Tensor], str]:
    """The tensors of a safetensors file, which nobody executes, and its digest."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        data = path.read_bytes()
        return load(data), hashlib.sha256(data).hexdigest()[:16]
    except FileNotFoundError:
        raise UsageError(f"--pretrained must be a file; there is none at {path}.") from None
    except (SafetensorError, ValueError, KeyError) as error:
        raise UsageError(
            f"--pretrained must be a safetensors file; got {path} ({str(error)[:80]}). Others can "
            "run code: save it with safetensors.torch.save_file(model.state_dict(), PATH)."
        ) from None


def _fitting(
    network: nn.Module, found: dict[str, Tensor], path: Path
) -> tuple[dict[str, Tensor], list[str]]:
    """Tensors that fit the network, and the names of those of it that start anew."""
    own = network.state_dict()
    fitting = {
        name: tensor
        for name, tensor in found.items()
        if name in own and own[name].shape == tensor.shape
    }
    left = [name for name, tensor in own.items() if name not in fitting and tensor.ndim]
    if not fitting or len(left) > _HEAD:
        raise UsageError(
            f"--pretrained must be weights of this network; of {path.name} {len(fitting)} of "
            f"{len(own)} tensors fit. The network has {', '.join(list(own)[:3])}, …; the file has "
            f"{', '.join(sorted(found)[:3])}, …"
        )
    return fitting, left


def pictures_a_second(study: "NetworkStudy") -> float:
    """How many pictures a second training goes through here, measured by a few steps."""
    with ThreadPoolExecutor(1) as pool:  # in a thread, as the runs are
        return pool.submit(_measure, study).result()


def _measure(study: "NetworkStudy") -> float:
    plan = study.plan
    batch = min(plan.batch, len(plan.train))
    half = PRECISIONS[plan.precision]
    with caller_randomness_kept(plan.device):
        network = plan.build().to(plan.device).train()
        optimizer = plan.optimizer(network)
        inputs = torch.zeros((batch, *plan.train.shape), device=plan.device).normal_()
        labels = torch.arange(batch, device=plan.device) % plan.classes
        spent: list[float] = []
        while len(spent) < 3 or sum(spent) < _PROBED:
            start = _now(plan.device)
            with torch.autocast(plan.device.type, half, enabled=half is not None):
                loss = nn.functional.cross_entropy(network(inputs), labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            spent.append(_now(plan.device) - start)
        return batch / sorted(spent)[len(spent) // 2]


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def pictures_to_train(study: "NetworkStudy", done: set[str]) -> float:
    """How many pictures the runs that are left go through, those to validate at a third."""
    plan, found = study.plan, 0.0
    for item in study.items:
        if item.key not in done:
            rows = len(plan.folds[item.payload["fold"]][0])
            found += plan.epochs * rows * (1 - plan.validation * 2 / 3)
    return found
