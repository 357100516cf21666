"""The sweep of all recipes with pictures: what an item asks for, trained by ``training.fit``.

An item says all: network, epochs, batch, changes of the pictures, optimiser, how the learning rate
falls, loss. Runs of a fold and seed share their first weights, the order of rows and the changes,
whatever their loss.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

import expacc
from expacc import networks, schedules
from expacc.data.images import ImageSet
from expacc.functional.softmax import focus_weights
from expacc.ops.sampling import genz_orthant_prob
from expacc.optim import ASAM, GradientNormalizer
from expacc.recipes.exact.noise import leads_of
from expacc.recipes.mixing.uci import gradient_volume
from expacc.recipes.sweep import Ask, Data, Outcome, Place, Predict, Sweep
from expacc.recipes.vision.change import change
from expacc.recipes.vision.sets import open_set
from expacc.training import ComplementObjective, FitResult, ResidentData, fit
from expacc.training.randomness import seed_of

_AT_ONCE, _SCORED = 4096, 1000  # pictures that are changed, or scored, together
Scale = tuple[Tensor, Tensor]  # mean and deviation of the channels
Seen = Callable[[int, nn.Module, Scale], object]
_FOCUS = {
    "0": schedules.focus_constant,
    "0,0.5": schedules.focus_switch,
    "0-0.5": schedules.focus_gradual,
}


class SampledExact(nn.Module):
    """EXACT with the authors' estimate of its gradient.

    Args:
        margin: as EXACT's.
        samples: of each row.
        seed: of the samples.
    """

    def __init__(self, margin: float | None, samples: int, seed: int) -> None:
        super().__init__()
        self.margin, self.samples, self.sigma, self._seed = margin, samples, 1.0, seed
        self._draw: torch.Generator | None = None

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The mean over the rows."""
        if self._draw is None:
            self._draw = torch.Generator(logits.device).manual_seed(self._seed)
        leads = leads_of(logits, target, self.sigma, self.margin)
        return 1 - genz_orthant_prob(leads, samples=self.samples, generator=self._draw).mean()


def loss_of(about: dict[str, Any], epochs: int, seed: int = 0) -> nn.Module:
    """A loss as items describe it: 'name', and its own numbers.

    'sigma' is a pair, from the first epoch to (not quite) the last; 'samples' asks for the authors'
    estimator, 'focus' for one of the mixing paper's schedules.

    >>> loss_of({"name": "leaky_expected_error", "leak": 0.2}, 10)
    LeakyExpectedErrorLoss(leak=0.2)
    """
    given = dict(about)
    name, sigma, focus = given.pop("name"), given.pop("sigma", None), given.pop("focus", None)
    if focus is not None:
        return expacc.ScheduledLoss(expacc.get_loss(name), focus=_FOCUS[focus])
    loss: nn.Module
    if "samples" in given:
        loss = SampledExact(given["margin"], given["samples"], seed)
    else:
        loss = expacc.get_loss(name, **given)
    if sigma is None:
        return loss
    falls = schedules.per_epoch(schedules.geometric(*sigma), epochs)
    return expacc.ScheduledLoss(loss, sigma=falls)


def optimizer_of(name: str, network: nn.Module, rate: float, decay: float) -> torch.optim.Optimizer:
    """SGD with momentum 0.9, the same within ASAM, or Adam."""
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    if name == "adam":
        return torch.optim.Adam(weights, lr=rate, weight_decay=decay)
    sgd = torch.optim.SGD(weights, lr=rate, momentum=0.9, weight_decay=decay)
    return ASAM(sgd, eta=0.0) if name == "asam" else sgd


def _geometric(first: float, last: float, epochs: int, epoch: int) -> float:
    return float((last / first) ** (epoch / max(1, epochs - 1)))


def _steps(shares: Sequence[float], epochs: int, epoch: int) -> float:
    return float(0.1 ** sum(epoch >= round(share * epochs) for share in shares))


def _as_large(factor: Callable[[int], float], epochs: int, epoch: int) -> float:
    """With the gradient volume of the gradual mixture, epoch by epoch."""
    mix = focus_weights(schedules.focus_gradual(epoch / epochs))
    return factor(epoch) * gradient_volume(*mix)


def falling(ask: Ask, rate: float, *, as_large: bool = False) -> Callable[[int], float]:
    """The factor of the learning rate by epoch: by equal ratios, or tenths at shares of the way.

    ``as_large`` is for cross entropy as a control of the mixing paper.
    """
    epochs = ask["epochs"]
    if "rate_end" in ask:
        factor = partial(_geometric, rate, ask["rate_end"], epochs)
    else:
        factor = partial(_steps, ask["rate_falls"], epochs)
    return partial(_as_large, factor, epochs) if as_large else factor


class Pictures(ResidentData):
    """Pictures on the device; many are changed at a time, because a change is many small kernels.

    Args:
        pictures: (rows, channels, height, width), bytes.
        labels: of them.
        batch: rows of one; what is left at the end of an epoch is left out of it.
        changes: their names.
        scale: mean and deviation of the channels.
        begun: is called with the number of an epoch, from 0, when it begins.
    """

    def __init__(
        self,
        pictures: Tensor,
        labels: Tensor,
        *,
        batch: int,
        changes: Sequence[str],
        scale: Scale,
        begun: Callable[[int], object] = lambda epoch: None,
    ) -> None:
        batch = min(batch, len(labels))
        super().__init__(pictures, labels, batch_size=batch, shuffle=True, drop_last=True)
        self._changes, self._scale, self._begun = changes, scale, begun

    def batches(self, epoch: int, seed: int, skip: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of an epoch, less the first ``skip``."""
        self._begun(epoch)
        place, size = self._target.device, self.batch_size
        draw = torch.Generator(place).manual_seed(seed_of(seed, f"pictures/{epoch}"))
        order = torch.randperm(self.rows, generator=draw, device=place)
        together = max(1, _AT_ONCE // size)
        for first in range(0, len(self), together):
            rows = order[first * size : min(first + together, len(self)) * size]
            shown = scaled(change(unit(self._inputs[rows]), self._changes, draw), self._scale)
            parts = (torch.split(tensor, size) for tensor in (shown, self._target[rows]))
            yield from list(zip(*parts, strict=True))[max(0, skip - first) :]


def unit(pictures: Tensor) -> Tensor:
    """Bytes as numbers from 0 to 1."""
    return pictures.float() / 255


def scaled(pictures: Tensor, scale: Scale) -> Tensor:
    """Less the mean and divided by the deviation, with the channels last in memory."""
    mean, deviation = (part.view(1, -1, 1, 1) for part in scale)
    return ((pictures - mean) / deviation).contiguous(memory_format=torch.channels_last)


def scale_of(pictures: Tensor) -> Scale:
    """Mean and deviation of the channels of bytes, from 0 to 1; a constant channel has 1."""
    rows = pictures.shape[0] * pictures[0, 0].numel()
    whole = pictures.sum((0, 2, 3), dtype=torch.float64)
    squares = torch.stack(
        [part.double().square().sum((0, 2, 3)) for part in torch.split(pictures, 8192)]
    )
    mean = whole / rows
    deviation = (squares.sum(0) / rows - mean.square()).clamp(min=0).sqrt()
    deviation = torch.where(deviation > 0, deviation, 255.0)
    return (mean / 255).float(), (deviation / 255).float()


def predictor(network: nn.Module, scale: Scale, half: bool) -> Predict:
    """What scores pictures of bytes with a trained network."""
    network.eval()

    @torch.no_grad()
    def predict(features: Any) -> Any:
        place = scale[0].device
        found = []
        for part in torch.split(torch.from_numpy(np.ascontiguousarray(features)), _SCORED):
            with torch.autocast(place.type, torch.bfloat16, enabled=half):
                found.append(network(scaled(unit(part.to(place)), scale)).float().cpu())
        return torch.cat(found).numpy()

    return predict


def train_place(
    ask: Ask,
    data: Data,
    place: Place,
    device: torch.device,
    seen: Seen = lambda epochs, network, scale: None,
) -> Outcome:
    """Train the network at a place.

    Args:
        ask: what the item asks for.
        data: its rows.
        place: of the run.
        device: where to train.
        seen: is called with the epochs done, from 0 to all of them, the network and the scale; what
            it changes of the network's mode is undone.
    """
    pictures, labels = (tensor.to(device) for tensor in (data.rows.features, data.rows.labels))
    own = data.train[place.fold].to(device)
    seed = seed_of(ask["seed"], f"{ask['table']}/{place.fold}/{place.seed}")
    scale = scale_of(pictures[own])

    network: nn.Module

    def begun(epoch: int) -> None:
        before = network.training
        seen(epoch, network, scale)
        network.train(before)

    training = Pictures(
        pictures[own],
        labels[own],
        batch=ask["batch"],
        changes=ask["changes"],
        scale=scale,
        begun=begun,
    )
    loaders: Any = training
    if (held := data.held.get(place.fold)) is not None:
        parts = torch.split(held.to(device), _SCORED)
        loaders = training, [(scaled(unit(pictures[one]), scale), labels[one]) for one in parts]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = _made(ask, data.rows.classes, pictures.shape[1]).to(device)
    setting, about = place.setting, dict(ask["losses"][place.method])
    rate, as_large = setting["learning_rate"], about.pop("as_large", False)
    twice = about.pop("complement", False)

    def made() -> torch.optim.Optimizer:
        return optimizer_of(ask["optimizer"], network, rate, ask["weight_decay"])

    optimizer = made()
    half = device.type == "cuda"
    try:
        result = fit(
            network,
            loaders,
            loss_of(about, ask["epochs"], seed),
            epochs=ask["epochs"],
            optimizer=optimizer,
            scheduler=LambdaLR(optimizer, falling(ask, rate, as_large=as_large)),
            normalizer=GradientNormalizer(optimizer) if setting.get("normalizer") else None,
            complement=ComplementObjective(made()) if twice else None,
            clip=setting.get("clip"),
            device=device,
            precision="bfloat16" if half else "float32",
            channels_last=True,
            graphs=half,
            weights=ask.get("weights", "last" if held is None else "best"),
            seed=seed,
            progress=False,
        )
    except FloatingPointError as error:
        return Outcome(failure=f"diverged: {error}")
    begun(ask["epochs"])
    return outcome_of(result, predictor(network, scale, half))


def _made(ask: Ask, classes: int, channels: int) -> nn.Module:
    network = networks.get(ask["network"], classes=classes, channels=channels)
    if ask.get("start") == "xavier":
        _xavier(network)
    if "dropout" in ask:
        network[-1] = nn.Sequential(nn.Dropout(ask["dropout"]), network[-1])  # type: ignore[operator, index]
    return network


def _xavier(network: nn.Module) -> None:
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def outcome_of(result: FitResult, predict: Predict) -> Outcome:
    """Of a training run, what its row keeps."""
    history = result.history
    curves = {
        "train_accuracy": tuple(one.accuracy for one in history),
        "train_loss": tuple(one.loss for one in history),
    }
    metrics = {"epochs": float(len(history)), "train_accuracy": history[-1].accuracy}
    if result.best_epoch is not None:
        held = tuple(one.validation_accuracy or 0.0 for one in history)
        curves["validation_accuracy"] = held
        metrics["best_epoch"] = float(result.best_epoch)
        metrics["validation_accuracy"] = held[result.best_epoch - 1]
    return Outcome(metrics, curves, (predict,))


def _train(ask: Ask, data: Data, places: Sequence[Place], _: bool) -> list[Outcome]:
    device = torch.device(ask["device"])
    return [train_place(ask, data, place, device) for place in places]


SWEEP = Sweep(
    "expacc.recipes.vision.train:SWEEP",
    open_set,
    train=_train,
    curves=("train_accuracy", "train_loss", "validation_accuracy"),
)


@cache
def flops(network: str, classes: int, channels: int, size: int) -> float:
    """Floating-point operations of forward and backward of one picture."""
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"):
        made = networks.get(network, classes=classes, channels=channels).eval()
        shown = torch.zeros(1, channels, size, size)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        made(shown)
    return 3.0 * int(counter.get_total_flops())


# Operations a second in training: of M3 on an H200, four runs side by side; and of two cores.
_CARD, _CORES = 60e12, 0.3e12
_STEP = 3e-3  # seconds, about, that launching the kernels of a step takes: the least on a GPU


def minutes_of(work: Sequence[Ask], sets: Mapping[str, ImageSet], device: str) -> float:
    """About how long the runs take on one GPU, or on two cores.

    Args:
        work: what every item asks for.
        sets: by name.
        device: 'cpu' or another.
    """
    total = 0.0
    for ask in work:
        images = sets[ask["table"]]
        shape = len(images.classes), *images.images.shape[1:3]
        rows = ask["epochs"] * len(images.targets[: ask["rows"]])
        twice = any("complement" in loss for loss in ask["losses"].values())
        passes = 2 if twice or ask["optimizer"] == "asam" else 1
        runs = len(ask["folds"]) * len(ask["seeds"]) * len(ask["settings"])
        tested = runs * len((images.test or images).targets[: ask["test_rows"]]) / 3
        each = minutes_for(flops(ask["network"], *shape), device)
        least = 0.0 if device == "cpu" else _STEP / 60 / min(ask["batch"], rows)
        total += max(each, least) * passes * runs * rows + each * tested
    return total


def minutes_for(operations: float, device: str) -> float:
    """How long so many floating-point operations take on one GPU, or on two cores."""
    return operations / (_CORES if device == "cpu" else _CARD) / 60
