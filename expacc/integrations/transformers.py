"""For the Trainer of transformers: any loss, schedules, normalised gradients."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from expacc.errors import check_number
from expacc.integrations.progress import refuse_clipping, scheduled, set_progress
from expacc.optim import GradientNormalizer
from expacc.schedules import Schedule

try:
    from transformers import TrainerCallback
    from transformers.trainer_callback import ExportableState
except ImportError as error:
    raise ImportError(
        "expacc.integrations.transformers needs the package transformers, 4.46 or newer. "
        "Use pip install 'expacc[transformers]'."
    ) from error

__all__ = ["GradientNormalization", "LossSchedule", "trainer_loss"]

IGNORED = -100  # by which Trainer counts a batch's labels


class trainer_loss:
    """Make a ``compute_loss_func`` of any loss that is a mean over rows.

    Trainer counts the labels of all micro-batches of a step and hands over their number: the mean
    over a micro-batch is weighted by its share of them, so a step follows the mean over all labels
    that are not -100, however the batches were cut, on one GPU or several. Class weights weight
    the labels within a micro-batch.

    Logits of shape (rows, tokens, classes) are taken as rows of tokens; (rows, classes, height,
    width) as they are. Half precision is widened first.

    Args:
        loss: of (logits, target): a Module of expacc or torch, a ``ScheduledLoss``, a function.
        shift: compare logits at a token with the label of the next, as causal language models
            need; None does so where the model's output says that it is one's.
        logits: what to train among the model's outputs: its name, or a callable of the outputs.

    Returns:
        A callable for ``Trainer(compute_loss_func=...)``.

    Raises:
        TypeError: ``loss`` is not callable.
        ValueError: ``loss`` has another reduction than "mean", another ``ignore_index`` than -100,
            or trainable parameters, which Trainer's optimizer does not see; a batch has no labels.

    Example:
        >>> import torch, expacc
        >>> from expacc.integrations.transformers import trainer_loss
        >>> compute_loss = trainer_loss(expacc.LeakyExpectedErrorLoss(leak=0.1))
        >>> logits, labels = torch.zeros(2, 3, 4), torch.tensor([[0, 1, -100], [2, -100, -100]])
        >>> whole = compute_loss({"logits": logits}, labels)
        >>> whole == 2 * compute_loss({"logits": logits}, labels, num_items_in_batch=6)
        tensor(True)
    """

    def __init__(
        self,
        loss: Callable[[Tensor, Tensor], Tensor],
        *,
        shift: bool | None = None,
        logits: str | Callable[[Any], Tensor] = "logits",
    ) -> None:
        if not callable(loss):
            raise TypeError(f"loss must be callable as loss(logits, target); got {loss!r}.")
        for name, needed in (("reduction", "mean"), ("ignore_index", IGNORED)):
            got = getattr(loss, name, needed)
            if got != needed:
                raise ValueError(f"loss must have {name}={needed!r} for Trainer; got {got!r}.")
        if isinstance(loss, nn.Module) and any(p.requires_grad for p in loss.parameters()):
            raise ValueError(
                f"loss must have no trainable parameters, which Trainer's optimizer does not see; "
                f"got those of {type(loss).__name__}. Make it a part of the model, which then "
                f"returns its loss."
            )
        self.loss, self.shift, self.logits = loss, shift, logits

    def __call__(
        self,
        outputs: Any,
        labels: Tensor | None,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        """Give the micro-batch's share of the mean over all labels of the step."""
        if labels is None:
            raise ValueError(
                "labels must be in the batch; got none. Name the column 'labels', or list it in "
                "TrainingArguments(label_names=...)."
            )
        logits = self._logits(outputs)
        if isinstance(self.loss, nn.Module):
            self.loss.to(logits.device)
        shift = self.shift
        if shift is None:
            shift = "CausalLM" in type(outputs).__name__
        if shift:  # an ignored label at the end costs less than a copy of the logits
            labels = nn.functional.pad(labels[..., 1:], (0, 1), value=IGNORED)
        counted = labels.ne(IGNORED).sum()  # as Trainer counts, also class probabilities
        value = self.loss(*_rows(logits, labels))
        if not isinstance(value, Tensor) or value.shape != ():
            got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(f"loss must give one number, a mean over rows; got {got}.")
        if num_items_in_batch is None:
            return value
        # Under DataParallel their number comes once per GPU, and Trainer or its rounding undoes
        # just that; a batch without labels may have a mean of NaN, and counts for nothing.
        total = torch.as_tensor(num_items_in_batch, device=logits.device).sum().clamp(min=1)
        return torch.where(counted > 0, value * (counted / total), logits.sum() * 0)

    def _logits(self, outputs: Any) -> Tensor:
        logits: Any
        if callable(self.logits):
            logits = self.logits(outputs)
        elif isinstance(outputs, dict):
            logits = outputs.get(self.logits)
        elif isinstance(outputs, tuple):
            logits = outputs[0]
        else:
            logits = getattr(outputs, self.logits, outputs)
        if not isinstance(logits, Tensor) or not logits.is_floating_point():
            has = f" with {', '.join(outputs)}" if isinstance(outputs, dict) else ""
            raise TypeError(
                f"logits must be a floating-point tensor among the model's outputs; got "
                f"{type(outputs).__name__}{has}. Name it: trainer_loss(loss, logits=...)."
            )
        return logits.float() if logits.dtype.itemsize < 4 else logits


def _rows(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Classes on axis 1: tokens become rows, images stay images."""
    last = logits.shape[-1]
    dense = labels.shape == logits.shape[:1] + logits.shape[2:]
    if logits.ndim == 3 and labels.shape == logits.shape and labels.is_floating_point():
        return logits.reshape(-1, last), labels.reshape(-1, last)
    if labels.shape == logits.shape[:-1] and (logits.ndim == 3 or not dense):
        return logits.reshape(-1, last), labels.reshape(-1)
    return logits, labels


class LossSchedule(TrainerCallback):
    """Let numbers of a loss follow training, set before each step of the optimizer.

    Progress is ``state.global_step / state.max_steps``, which a resumed run has of itself.

    Args:
        loss: the one given to ``trainer_loss``.
        **schedules: for each of its numbers, a callable from progress in [0, 1]; none if ``loss``
            is a ``ScheduledLoss``.

    Raises:
        TypeError, ValueError: as ``expacc.ScheduledLoss``.

    Example:
        >>> from expacc import MixedExpectedErrorLoss
        >>> from expacc.schedules import focus_gradual
        >>> from expacc.integrations.transformers import LossSchedule
        >>> schedule = LossSchedule(MixedExpectedErrorLoss(), focus=focus_gradual)
    """

    def __init__(self, loss: nn.Module, **schedules: Schedule) -> None:
        self.scheduled = scheduled(loss, schedules)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Set the numbers."""
        set_progress([self.scheduled], state.global_step, state.max_steps)


class GradientNormalization(TrainerCallback, ExportableState):
    """Divide the gradients by a running mean of their norm, as ``expacc.GradientNormalizer``.

    It replaces clipping: ``TrainingArguments(max_grad_norm=0)``. The mean is kept in each
    checkpoint's ``trainer_state.json``, and a resumed run goes on with it. Not for FSDP or
    DeepSpeed, where no process has all gradients.

    Args:
        decay: the weight of the past in the mean, in [0, 1).
        floor: the smallest divisor, > 0.

    Raises:
        ValueError: a number out of range, or ``max_grad_norm`` is not 0.

    Example:
        >>> from expacc.integrations.transformers import GradientNormalization
        >>> GradientNormalization(decay=0.95).state()["args"]
        {'decay': 0.95, 'floor': 0.01}
    """

    def __init__(self, decay: float = 0.9, floor: float = 1e-2) -> None:
        self.decay = check_number("decay", decay, low=0, high=1, open_high=True)
        self.floor = check_number("floor", floor, low=0, open_low=True)
        self.normalizer: GradientNormalizer | None = None

    def on_train_begin(
        self, args: Any, state: Any, control: Any, optimizer: Any = None, **_: Any
    ) -> None:
        """Attach to the optimizer, with the checkpoint's mean."""
        refuse_clipping("max_grad_norm", args.max_grad_norm)
        if getattr(args, "deepspeed", None) or getattr(args, "fsdp", None):
            raise ValueError(
                "GradientNormalization must have all gradients in each process; got DeepSpeed or "
                "FSDP. Use DistributedDataParallel."
            )
        self.on_train_end()  # of a call that broke off
        self.normalizer = GradientNormalizer.attach(optimizer, decay=self.decay, floor=self.floor)
        # A checkpoint from before this callback has no place for it, and Trainer wants one.
        kept = state.stateful_callbacks.setdefault(type(self).__name__, self.state())
        kept = kept[0] if isinstance(kept, list) else kept
        ema = kept["attributes"].get("ema")
        if state.global_step and ema is not None:
            self.normalizer.load_state_dict({"ema": torch.tensor(ema)})

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Leave the optimizer."""
        if self.normalizer is not None:
            self.normalizer.detach()

    def state(self) -> dict[str, Any]:
        """For ``trainer_state.json``; the mean is None before the first step."""
        ema = self.normalizer.ema.item() if self.normalizer is not None else None
        known = ema is not None and ema == ema
        return {
            "args": {"decay": self.decay, "floor": self.floor},
            "attributes": {"ema": ema if known else None},
        }
