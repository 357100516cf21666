"""One optimiser step of a network, and its evaluation: what happens to a batch."""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from expacc.optim import ASAM, GradientNormalizer
from expacc.training.distributed import Ranks
from expacc.training.loaders import Batch

__all__ = ["PRECISIONS", "Score", "Stepper"]

PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Score:
    """Mean loss and accuracy over the rows so far."""

    loss: float
    accuracy: float


class Stepper:
    """Forward, backward and step, in the precision and with the optimiser given.

    Sums stay on the device; nothing here waits for it.
    """

    def __init__(
        self,
        model: nn.Module,
        wrapped: nn.Module,
        loss: Loss,
        optimizer: Optimizer,
        *,
        normalizer: GradientNormalizer | None,
        clip: float | None,
        precision: str,
        compile: bool,
        device: torch.device,
        ranks: Ranks,
    ) -> None:
        self.model, self._wrapped, self._loss = model, wrapped, loss
        self._forward: Callable[[Any], Any] = torch.compile(wrapped) if compile else wrapped
        self._optimizer, self._normalizer, self._clip = optimizer, normalizer, clip
        self._half = PRECISIONS[precision]
        self._device, self._ranks = device, ranks
        self._base = optimizer.base_optimizer if isinstance(optimizer, ASAM) else optimizer
        self.scaler = torch.amp.GradScaler(device.type, enabled=self._half is torch.float16)

    def zeros(self) -> Tensor:
        """The sums before the first row: loss, correct, counted, rows."""
        wide = torch.float32 if self._device.type == "mps" else torch.float64
        return torch.zeros(4, dtype=wide, device=self._device)

    def step(self, group: list[Batch]) -> Tensor:
        """Move the weights by the mean gradient over a group of batches; return the sums."""
        sums = self._backward(group)
        if isinstance(self._optimizer, ASAM):
            if self._normalizer and not self.scaler.is_enabled():
                self._normalizer.step()
            try:
                self._optimizer.first_step()
                self._backward(group)
            finally:  # an error or Ctrl-C leaves no weights halfway up the climb
                self._optimizer.restore()
        self.scaler.unscale_(self._base)
        if self._normalizer:
            self._normalizer.step()
        elif self._clip is not None:
            groups = self._base.param_groups
            nn.utils.clip_grad_norm_([p for group in groups for p in group["params"]], self._clip)
        self.scaler.step(self._base)
        self.scaler.update()
        self._optimizer.zero_grad()
        return sums

    def _backward(self, group: list[Batch]) -> Tensor:
        """Add the gradient of the mean over all rows of the group, on all ranks."""
        rows = sum(batch.rows for batch in group)
        sums = self.zeros()
        for number, batch in enumerate(group, start=1):
            with self._exchange_of_gradients(number == len(group)):
                logits, value = self._evaluated(self._forward, batch)
                here = len(batch.target)
                # A mean over no rows may be NaN; it must still join the other ranks' backward.
                value = value if here else value.nan_to_num()
                # DDP averages over ranks, so a rank's weight is world · its rows / all rows.
                weighted = value * (here * self._ranks.world / rows)
                self.scaler.scale(weighted).backward()  # type: ignore[no-untyped-call]
            sums += self._sums(logits.detach(), value.detach(), batch)
        self._share_gradients_of_the_loss()
        return sums

    @torch.no_grad()
    def score(self, batches: Iterable[Batch]) -> Score:
        """Evaluate the model, on all ranks together."""
        sums = self.zeros()
        # A forward pass through DDP would talk to the other ranks.
        forward = self._forward if self._wrapped is self.model else self.model
        for batch in batches:
            logits, value = self._evaluated(forward, batch)
            value = value if len(batch.target) else value.nan_to_num()
            sums += self._sums(logits, value, batch)
        return self.read(self._ranks.sum(sums))

    @staticmethod
    def read(sums: Tensor) -> Score:
        """The means, on the host."""
        loss, correct, counted, rows = sums.tolist()
        return Score(loss / max(rows, 1), correct / max(counted, 1))

    def _evaluated(self, forward: Callable[[Any], Any], batch: Batch) -> tuple[Tensor, Tensor]:
        """Logits in float32 or better, and the loss."""
        with torch.autocast(self._device.type, self._half, enabled=self._half is not None):
            logits = forward(batch.inputs)
        _check_logits(logits, batch.target)
        if logits.dtype.itemsize < 4:
            logits = logits.float()
        value = self._loss(logits, batch.target)
        _check_value(value)
        return logits, value

    def _sums(self, logits: Tensor, value: Tensor, batch: Batch) -> Tensor:
        target = batch.target
        here = target.new_full((), len(target), dtype=self.zeros().dtype)
        highest, predicted = logits.max(1)
        labels = target.argmax(1) if target.is_floating_point() else target
        # A NaN beside the other logits is the highest, so it is no hit; labels below 0 are ignored.
        correct = (predicted == labels) & highest.isfinite()
        counted = (labels >= 0).sum()
        return torch.stack([value * here, correct.sum(), counted, here])

    def _exchange_of_gradients(self, last: bool) -> Any:
        if last or not isinstance(self._wrapped, DistributedDataParallel):
            return nullcontext()
        return self._wrapped.no_sync()  # once per step is enough

    def _share_gradients_of_the_loss(self) -> None:
        """Average what DDP does not know: the gradients of the loss's own parameters."""
        if self._ranks.world > 1 and isinstance(self._loss, nn.Module):
            for parameter in self._loss.parameters():
                if parameter.grad is not None:
                    self._ranks.sum(parameter.grad).div_(self._ranks.world)


def _check_logits(logits: object, target: Tensor) -> None:
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        got = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
        raise TypeError(f"model must return logits, a floating-point tensor; got {got}.")
    rows = len(target)
    if logits.ndim < 2 or len(logits) != rows:
        raise ValueError(
            f"model must return logits of shape (rows, classes), here ({rows}, …); "
            f"got {tuple(logits.shape)}."
        )
    labels = logits.shape[:1] + logits.shape[2:]
    if target.shape != (logits.shape if target.is_floating_point() else labels):
        raise ValueError(
            f"target must have shape {tuple(labels)} for labels, or {tuple(logits.shape)} for "
            f"class probabilities, beside these logits; got {tuple(target.shape)}, {target.dtype}."
        )


def _check_value(value: object) -> None:
    if not isinstance(value, Tensor) or value.shape != ():
        got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise TypeError(
            f"loss must return one number, a tensor without axes; got {got}. Use reduction='mean'."
        )
