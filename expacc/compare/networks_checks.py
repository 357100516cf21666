"""What is asked of a network's study, checked: one sentence for each mistake."""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from expacc.compare.networks_data import Labels, NetworkRows
from expacc.compare.record import TEST_SET
from expacc.data import stratified_folds
from expacc.plain import UsageError, check_count
from expacc.training.randomness import caller_randomness_kept

EPOCHS = 10  # where neither epochs nor steps are asked for


def triangle(progress: float) -> float:
    """A learning rate's factor: from 0.2 up to 1 in the first fifth, then down to 0.

    >>> [round(triangle(share), 2) for share in (0, 0.2, 0.6, 1)]
    [0.2, 1.0, 0.5, 0.0]
    """
    return 0.2 + 4 * progress if progress < 0.2 else (1 - progress) / 0.8


def _adamw(model: nn.Module) -> Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def _sgd(model: nn.Module) -> Optimizer:
    return torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True
    )


OPTIMIZERS: Mapping[str, Callable[[nn.Module], Optimizer]] = {"adamw": _adamw, "sgd": _sgd}


def counted(**numbers: Any) -> None:
    """Raise unless each is a whole number from 1 on."""
    for name, number in numbers.items():
        try:
            check_count(name, number)
        except (TypeError, ValueError) as error:
            raise UsageError(str(error)) from None


def read_optimizer(optimizer: Any) -> Callable[[nn.Module], Optimizer]:
    """A function of a network that makes one."""
    if isinstance(optimizer, Optimizer):
        raise UsageError(
            "optimizer must be a function that makes one for each network; got one that is made. "
            "Use optimizer=lambda network: torch.optim.SGD(network.parameters(), lr=0.1)."
        )
    found = OPTIMIZERS.get(optimizer) if isinstance(optimizer, str) else optimizer
    if not callable(found):
        raise UsageError(
            f"optimizer must be 'adamw', 'sgd' or a function of the network; got {optimizer!r}."
        )
    return found


def class_names(classes: Sequence[str] | None, labels: Labels) -> tuple[str, ...]:
    """As given, or numbers up to the largest label."""
    highest = int(labels.max())
    if classes is None:
        names = tuple(str(code) for code in range(highest + 1))
    else:
        names = tuple(str(name) for name in classes)
        if isinstance(classes, str) or len(set(names)) < len(names):
            raise UsageError(f"classes must be different names; got {classes!r:.100}.")
    if highest >= len(names):
        raise UsageError(
            f"labels must lie from 0 to {len(names) - 1}, there being {len(names)} classes; got "
            f"{highest}."
        )
    if len(names) < 2:
        raise UsageError("labels must be of at least two classes; got one.")
    return names


def try_network(
    build: Any, make: Callable[[nn.Module], Optimizer], rows: NetworkRows, device: torch.device
) -> tuple[int, str]:
    """The outputs of a network, and what it is, in words; that all steps of a run can be done.

    Raises:
        UsageError: it cannot be built, called or trained.
    """
    if isinstance(build, nn.Module) or not callable(build):
        cure = " Use build=lambda: …, which makes a new one for each run."
        raise UsageError(
            f"build must be a function that makes a network; got {type(build).__name__}."
            f"{cure if isinstance(build, nn.Module) else ''}"
        )
    with caller_randomness_kept(device):
        try:
            model, other = build(), build()
        except Exception as error:
            raise _fails("build", error) from None
        if not isinstance(model, nn.Module):
            raise UsageError(f"build must return a Module; got {type(model).__name__}.")
        if {id(p) for p in model.parameters()} & {id(p) for p in other.parameters()}:
            raise UsageError("build must make a new network each time; got the same weights twice.")
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise UsageError("build must return a network with weights to train; got none.")
        try:
            with torch.no_grad():
                logits = model.to(device).eval()(rows.example(device))
        except Exception as error:
            raise _fails("build must return a network that takes rows of train; this one", error) \
                from None  # fmt: skip
        if not isinstance(logits, Tensor) or logits.ndim != 2 or not logits.is_floating_point():
            got = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits)
            raise UsageError(
                f"build must return a network that gives logits (rows, classes); got {got}."
            )
        try:
            optimizer = make(model)
        except Exception as error:
            raise _fails("optimizer", error) from None
    if not isinstance(optimizer, Optimizer):
        raise UsageError(f"optimizer must make an optimizer; got {type(optimizer).__name__}.")
    count = sum(parameter.numel() for parameter in model.parameters())
    group = optimizer.param_groups[0]
    numbers = ("lr", "momentum", "betas", "weight_decay", "nesterov")
    told = [f"{name} {group[name]}" for name in numbers if group.get(name)]
    how = f"{type(model).__name__} of {count:,} weights, {type(optimizer).__name__} with "
    return logits.shape[1], how + ", ".join(told)


def _fails(what: str, error: Exception) -> UsageError:
    return UsageError(
        f"{what} fails with {type(error).__name__}: {' '.join(str(error).split())}"[:400]
    )


def epochs_of(epochs: int | None, steps: int | None, rows: int, batch: int) -> int:
    """How many epochs are asked for."""
    if epochs is not None and steps is not None:
        raise UsageError(f"epochs must be None beside steps; got {epochs} and {steps}.")
    if steps is not None:
        counted(steps=steps)
        return math.ceil(steps / max(1, math.ceil(rows / batch)))
    counted(epochs=EPOCHS if epochs is None else epochs)
    return EPOCHS if epochs is None else epochs


def folds_of(
    rows: NetworkRows, test: NetworkRows | None, folds: int, seed: int, names: tuple[str, ...]
) -> dict[str, tuple[Labels, Labels]]:
    """Fold → training rows and test rows; those of a test set come after the training rows."""
    if test is not None:
        own = np.arange(len(rows) + len(test))
        return {TEST_SET: (own[: len(rows)], own[len(rows) :])}
    try:
        splits = stratified_folds(rows.labels, folds, 1, seed=seed, name="network", classes=names)
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from None
    return {str(k + 1): (split.train, split.test) for k, split in enumerate(splits)}


def digest_of_labels(labels: Labels) -> str:
    """A hash of them."""
    return hashlib.sha256(labels.tobytes()).hexdigest()


def digest_of_rows(*parts: NetworkRows | None) -> str:
    """A hash of labels and inputs; of a data set that is read row by row, of its labels."""
    digest = hashlib.sha256()
    for part in parts:
        if part is not None:
            digest.update(part.labels.tobytes())
            if isinstance(part.inputs, Tensor):
                whole = part.inputs.cpu().contiguous()
                digest.update(f"{tuple(whole.shape)} {whole.dtype}".encode())
                digest.update(whole.view(torch.uint8).numpy().data)
    return digest.hexdigest()
