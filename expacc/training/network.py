"""Train one network with torch's own tools: what can be asked for, and whether it can be done."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from expacc.errors import check_choice, check_count, check_number
from expacc.optim import GradientNormalizer
from expacc.plain import Report
from expacc.scheduled import ScheduledLoss
from expacc.training.checkpoint import EpochRecord, RunCheckpoint
from expacc.training.complement import ComplementObjective
from expacc.training.epochs import PRECISIONS, NetworkRun
from expacc.training.loaders import Batches, find_device, find_ranks, split_loaders, wrap_ddp
from expacc.training.randomness import caller_randomness_kept


@dataclass(frozen=True)
class FitResult:
    """What a training run came to.

    Attributes:
        history: one record per epoch.
        best_epoch: the first epoch with the highest validation accuracy; None without validation.
        stopped: why training ended, "epochs" or "patience".
        steps: optimiser steps done, those before a resume included.
        resumed_at: the steps that were done when this call took over; 0 for a new run.
        best_weights: the state of the model after the best epoch, on the CPU, with
            ``weights="both"``.
    """

    history: tuple[EpochRecord, ...]
    best_epoch: int | None
    stopped: Literal["epochs", "patience"]
    steps: int
    resumed_at: int
    best_weights: Mapping[str, Any] | None = None


def fit(
    model: nn.Module,
    loaders: Any,
    loss: Callable[[Tensor, Tensor], Tensor],
    *,
    epochs: int = 10,
    optimizer: Optimizer | None = None,
    scheduler: LRScheduler | None = None,
    scheduler_every: Literal["epoch", "step"] = "epoch",
    normalizer: GradientNormalizer | None = None,
    complement: ComplementObjective | None = None,
    clip: float | None = None,
    accumulate: int = 1,
    device: str | torch.device = "auto",
    precision: Literal["float32", "bfloat16", "float16"] = "float32",
    compile: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int | None = None,
    checkpoint_seconds: float = 0.0,
    resume: bool = True,
    weights: Literal["last", "best", "both"] = "last",
    patience: int | None = None,
    watch: Mapping[str, Any] | None = None,
    channels_last: bool = False,
    graphs: bool = False,
    seed: int = 0,
    progress: bool | Callable[[float], object] = True,
    report: Report | None = None,
) -> FitResult:
    """Train a classifier in place, with any loss; return what each epoch came to.

    The same seed gives the same bits on a CPU, also if the run is killed and called again with the
    same ``checkpoint`` folder. Under torchrun, or with a process group open, the ranks share the
    rows of every batch and move as one process with the whole batch would; rank 0 writes the
    checkpoints and shows the progress. The model is left on the device and in evaluation mode; by
    Ctrl-C or an error in the midst, with the weights of the last step and in training mode.

    Args:
        model: called with a batch's inputs, returns logits (rows, classes) or (rows, classes, …).
        loaders: what gives the batches (inputs, target), or a pair of those, for training and for
            validation: a torch DataLoader, whose shuffling then follows ``seed``, a list, or a
            ``ResidentData``, which keeps its rows on the device.
        loss: a function or Module of (logits, target) that returns the mean over rows. A
            ``ScheduledLoss`` is set to the share of training done before each step.
        epochs: how often the training loader is read, those before a resume included.
        optimizer: made for the model's parameters; an ``ASAM`` gets its two passes. None means
            AdamW with its own defaults, on the parameters of model and loss.
        scheduler: of learning rates, made for the optimizer. ReduceLROnPlateau looks at the
            validation loss, or the training loss without validation.
        scheduler_every: call it once an "epoch" or after each "step".
        normalizer: divides the gradients; it replaces ``clip``.
        complement: takes a second step on every batch. Neither normalizer nor clip touches it.
        clip: the largest norm of the gradient.
        accumulate: batches per step; the gradient is the mean over all their rows.
        device: "auto" is CUDA if there is any, else the CPU.
        precision: of the forward pass under autocast. The loss always gets float32 logits; float16
            scales its gradients.
        compile: use torch.compile on the model.
        checkpoint: a folder for the file checkpoint.safetensors, which is replaced at each epoch's
            end. Needs the package safetensors.
        checkpoint_every: also every so many steps.
        checkpoint_seconds: write none at an epoch's end when the last is younger.
        resume: go on from the checkpoint if there is one; False overwrites it.
        weights: leave the model with the "last" weights or the "best" epoch's; "both" leaves the
            last and returns the best.
        patience: stop after so many epochs without a higher validation accuracy.
        watch: name → a loader, on which accuracy is measured at the end of every epoch. It enters
            no decision.
        channels_last: lay out pictures and the weights of convolutions with the channel last, which
            tensor cores want.
        graphs: record the kernels of the network on a GPU once and play them back, which saves the
            time of launching them. For networks without loops or branches that depend on values;
            batches of another size run as usual.
        seed: of shuffling, dropout and what data sets draw in this process.
        progress: show a bar, or lines in a log, on stderr; or a function that is called after each
            step with the share of training done. What it raises ends the training.
        report: called by rank 0 at the end of every epoch with the steps done and what is known by
            then: 'train/loss', 'train/accuracy', 'validation/loss', 'validation/accuracy',
            'learning_rate', and the numbers that a ``ScheduledLoss`` has moved, as 'loss/focus'.
            ``expacc.integrations.tensorboard`` and its neighbours have some.

    Returns:
        The loss and accuracy of every epoch, the best epoch, and why training ended.

    Raises:
        TypeError, ValueError: an argument, a batch, the model's output or the checkpoint is not as
            it must be; the sentence says what was found.
        FloatingPointError: the loss is not finite; the last checkpoint stays.

    Example:
        >>> x = torch.tensor([[-1.0], [-0.5], [0.5], [1.0]])
        >>> y = torch.tensor([0, 0, 1, 1])
        >>> model = torch.nn.Linear(1, 2)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        >>> result = fit(model, ([(x, y)], [(x, y)]), torch.nn.functional.cross_entropy,
        ...              optimizer=optimizer, epochs=20, progress=False)
        >>> result.history[-1].validation_accuracy
        1.0
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a Module; got {type(model).__name__}.")
    if not callable(loss):
        raise TypeError(f"loss must be callable as loss(logits, target); got {loss!r}.")
    if report is not None and not callable(report):
        raise TypeError(f"report must be callable as report(step, numbers); got {report!r}.")
    check_count("epochs", epochs)
    check_count("accumulate", accumulate)
    for name, number in {"patience": patience, "checkpoint_every": checkpoint_every}.items():
        if number is not None:
            check_count(name, number)
    check_choice("scheduler_every", scheduler_every, ("epoch", "step"))
    check_choice("precision", precision, tuple(PRECISIONS))
    check_choice("weights", weights, ("last", "best", "both"))
    check_number("checkpoint_seconds", checkpoint_seconds, low=0)
    if type(seed) is not int:
        raise TypeError(f"seed must be an int; got {seed!r}.")
    if clip is not None:
        check_number("clip", clip, low=0, open_low=True)
        if normalizer is not None:
            raise ValueError(
                f"clip must be None beside a normalizer, which replaces it; got {clip}."
            )
    training, validation = split_loaders(loaders)
    if validation is None and (patience is not None or weights != "last"):
        asked = f"patience={patience}" if patience is not None else f"weights={weights!r}"
        raise ValueError(
            f"loaders must be a pair (training, validation) for {asked}; got one loader."
        )

    place = find_device(device)
    ranks = find_ranks(place)
    bare = model.module if isinstance(model, DistributedDataParallel) else model
    bare.to(place)
    if channels_last:
        bare.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    parameters = list(bare.parameters())
    if isinstance(loss, nn.Module):
        loss.to(place)
        parameters += list(loss.parameters())
    optimizer = _checked_optimizer(optimizer, parameters)
    _check_scheduler(scheduler, scheduler_every, optimizer)
    batches_of = partial(Batches, seed=seed, ranks=ranks, device=place, channels_last=channels_last)
    train_batches = batches_of(training)
    with caller_randomness_kept(place):
        run = NetworkRun(
            model=bare,
            wrapped=wrap_ddp(model, place, ranks),
            loss=loss,
            optimizer=optimizer,
            normalizer=normalizer,
            complement=complement,
            clip=clip,
            precision=precision,
            compile=compile,
            graphs=graphs and place.type == "cuda" and ranks.world == 1,
            device=place,
            ranks=ranks,
            scheduler=scheduler,
            scheduler_every=scheduler_every,
            training=train_batches,
            validation=None if validation is None else batches_of(validation),
            watched={name: batches_of(loader) for name, loader in (watch or {}).items()},
            checkpoint_every=checkpoint_every,
            checkpoint_seconds=checkpoint_seconds,
            epochs=epochs,
            accumulate=accumulate,
            keep_best=weights != "last",
            patience=patience,
            seed=seed,
            report=report,
        )
        if checkpoint is not None:
            parts = {"model": bare, "optimizer": optimizer}
            others = {"loss": loss, "scheduler": scheduler, "normalizer": normalizer}
            parts |= {name: part for name, part in others.items() if hasattr(part, "state_dict")}
            if complement is not None:
                parts["complement"] = complement.optimizer
            if precision == "float16":
                parts["scaler"] = run.scaler
            identity = {
                "seed": seed,
                "batches": len(train_batches),
                "accumulate": accumulate,
                "precision": precision,
                "optimizer": type(optimizer).__name__,
                "loss": _name(loss),
            }
            run.checkpoint = RunCheckpoint(Path(checkpoint), identity, parts)
        end, before = run.train(resume=resume, progress=progress)
        if weights == "best" and end.best is not None:
            bare.load_state_dict(end.best)
    return FitResult(
        history=tuple(end.history),
        best_epoch=end.best_epoch(),
        stopped="epochs" if end.epoch >= epochs else "patience",
        steps=run.steps_done(end),
        resumed_at=before,
        best_weights=end.best if weights == "both" else None,
    )


def _name(loss: object) -> str:
    if isinstance(loss, ScheduledLoss):
        return f"scheduled {type(loss.loss).__name__}"
    return getattr(loss, "__name__", type(loss).__name__)


def _checked_optimizer(optimizer: Optimizer | None, parameters: list[nn.Parameter]) -> Optimizer:
    if optimizer is None:
        if not parameters:
            raise ValueError("model must have parameters to train; got none.")
        return torch.optim.AdamW(parameters)
    if not isinstance(optimizer, Optimizer):
        raise TypeError(
            f"optimizer must be an optimizer, made already; got {type(optimizer).__name__}. "
            f"Use torch.optim.SGD(model.parameters(), lr=0.1)."
        )
    known = {id(parameter) for parameter in parameters}
    if not any(id(p) in known for group in optimizer.param_groups for p in group["params"]):
        raise ValueError(
            "optimizer must hold parameters of the model; got none of them. "
            "Make it from model.parameters() after the model is complete."
        )
    return optimizer


def _check_scheduler(scheduler: object, every: str, optimizer: Optimizer) -> None:
    if scheduler is None:
        return
    if not isinstance(scheduler, LRScheduler):
        raise TypeError(
            f"scheduler must be a torch.optim.lr_scheduler; got {type(scheduler).__name__}."
        )
    if scheduler.optimizer not in (optimizer, getattr(optimizer, "base_optimizer", None)):
        raise ValueError("scheduler must be made for the optimizer given; got one for another.")
    if every == "step" and isinstance(scheduler, ReduceLROnPlateau):
        raise ValueError("scheduler_every must be 'epoch' for ReduceLROnPlateau; got 'step'.")
