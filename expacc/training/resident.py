"""Batches of data that lie where the network is: no loader between them, pictures moved there."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from expacc.errors import check_choice, check_count
from expacc.training.randomness import seed_of


@dataclass(frozen=True)
class Augment:
    """How pictures are changed each time that training sees them.

    Args:
        crop: the most pixels by which a picture is moved, up or down and to a side; what comes in
            at an edge is its mirror image.
        flip: mirror "random" pictures; or "alternating": half of them in the first epoch, and from
            then on each picture every second time, which is the same with less chance in it.
        cutout: the side of a square that is blanked at a random place.

    Example:
        >>> Augment(crop=4, flip="alternating")
        Augment(crop=4, flip='alternating', cutout=0)
    """

    crop: int = 0
    flip: Literal["none", "random", "alternating"] = "none"
    cutout: int = 0

    def __post_init__(self) -> None:
        check_count("crop", self.crop, 0)
        check_count("cutout", self.cutout, 0)
        check_choice("flip", self.flip, ("none", "random", "alternating"))


class ResidentData:
    """Rows that are kept on the device and cut into batches there; a loader for ``fit``.

    The order of an epoch and what happens to its pictures are drawn from the seed and the number of
    the epoch alone, on the device.

    Args:
        inputs: (rows, …). Pictures are (rows, channels, height, width); those of uint8 become
            numbers from 0 to 1, less ``mean`` and divided by ``deviation`` where they are given.
        target: labels or class probabilities, one per row.
        batch_size: rows of a batch; the last one of an epoch is smaller.
        shuffle: draw a new order each epoch.
        augment: what is done to pictures.
        mean: of each channel, from 0 to 1.
        deviation: of each channel, likewise.
        drop_last: leave out the batch that is smaller than the others, as a captured graph wants.

    Example:
        >>> rows, labels = torch.zeros(10, 3), torch.zeros(10, dtype=torch.int64)
        >>> data = ResidentData(rows, labels, batch_size=4)
        >>> [len(target) for _, target in data.batches(epoch=0, seed=0)]
        [4, 4, 2]
    """

    def __init__(
        self,
        inputs: Tensor,
        target: Tensor,
        *,
        batch_size: int = 256,
        shuffle: bool = False,
        augment: Augment | None = None,
        mean: Tensor | None = None,
        deviation: Tensor | None = None,
        drop_last: bool = False,
    ) -> None:
        check_count("batch_size", batch_size)
        if not isinstance(inputs, Tensor) or not isinstance(target, Tensor):
            found = f"{type(inputs).__name__} and {type(target).__name__}"
            raise TypeError(f"inputs and target must be tensors; got {found}.")
        if len(inputs) != len(target) or not len(target):
            raise ValueError(
                f"inputs and target must have equally many rows, at least one; got {len(inputs)} "
                f"and {len(target)}."
            )
        if augment is not None and inputs.ndim != 4:
            raise ValueError(
                f"inputs must be pictures (rows, channels, height, width) to be augmented; got "
                f"shape {tuple(inputs.shape)}."
            )
        self.augment = augment or Augment()
        if inputs.ndim == 4 and self.augment.crop >= min(inputs.shape[2:]):
            raise ValueError(
                f"crop must be less than a side of the pictures, {min(inputs.shape[2:])}; got "
                f"{self.augment.crop}."
            )
        self.rows, self.shuffle, self.batch_size = len(target), shuffle, batch_size
        self._whole = drop_last and len(target) >= batch_size
        self._inputs, self._target, self._mean, self._deviation = inputs, target, mean, deviation
        self._stored: Tensor | None = None

    def __len__(self) -> int:
        whole, rest = divmod(self.rows, self.batch_size)
        return whole + bool(rest and not self._whole)

    def to(self, device: torch.device) -> "ResidentData":
        """Keep the rows there from now on."""
        self._inputs, self._target = self._inputs.to(device), self._target.to(device)
        if self._mean is not None and self._deviation is not None:
            self._mean, self._deviation = self._mean.to(device), self._deviation.to(device)
        self._stored = None
        return self

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self.batches(epoch=0, seed=0)

    def batches(self, epoch: int, seed: int, skip: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of an epoch, less the first ``skip``."""
        device = self._target.device
        order = torch.arange(self.rows, device=device)
        if self.shuffle:  # drawn on the CPU: the same order on every device
            drawn = torch.randperm(self.rows, generator=_generator(seed, f"order/{epoch}", "cpu"))
            order = drawn.to(device)
        pictures = self._inputs.ndim == 4
        moves = self._moves(epoch, seed) if pictures else None
        for number in range(skip, len(self)):
            part = slice(number * self.batch_size, (number + 1) * self.batch_size)
            rows = order[part]
            target = self._target[rows]
            if moves is None:
                yield self._scaled(self._inputs[rows]), target
            else:
                yield self._pictures(rows, *(None if m is None else m[rows] for m in moves)), target

    def _moves(self, epoch: int, seed: int) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Of every row: where its crop begins, whether it is mirrored, where it is blanked."""
        device, asked = self._target.device, self.augment
        height, width = self._inputs.shape[2:]
        drawn = _generator(seed, f"augment/{epoch}", "cpu")
        crop = flip = cut = None
        if asked.crop:
            crop = torch.randint(2 * asked.crop + 1, (self.rows, 2), generator=drawn).to(device)
        if asked.flip == "random":
            flip = torch.rand(self.rows, generator=drawn).to(device) < 0.5
        elif asked.flip == "alternating":
            first = torch.rand(self.rows, generator=_generator(seed, "flip", "cpu")) < 0.5
            flip = (first ^ bool(epoch % 2)).to(device)
        if asked.cutout:
            places = torch.rand(self.rows, 2, generator=drawn) * torch.tensor([height, width])
            cut = places.long().to(device)
        return crop, flip, cut

    def _pictures(
        self, rows: Tensor, crop: Tensor | None, flip: Tensor | None, cut: Tensor | None
    ) -> Tensor:
        """(B, C, H, W) in one gather, channels last in memory."""
        edge = self.augment.crop
        if self._stored is None:
            stored = self._inputs
            if edge:
                wide = stored if stored.is_floating_point() else stored.float()
                padded = torch.nn.functional.pad(wide, [edge] * 4, mode="reflect")
                stored = padded.to(stored.dtype)
            self._stored = stored.permute(0, 2, 3, 1).contiguous()
        height, width = self._inputs.shape[2:]
        down = torch.arange(height, device=rows.device).expand(len(rows), -1)
        across = torch.arange(width, device=rows.device).expand(len(rows), -1)
        if flip is not None:
            across = torch.where(flip[:, None], width - 1 - across, across)
        places = (down, across) if crop is None else (down + crop[:, :1], across + crop[:, 1:])
        found = self._stored[rows[:, None, None], places[0][:, :, None], places[1][:, None, :]]
        found = self._scaled(found.permute(0, 3, 1, 2))
        if cut is not None:
            half = self.augment.cutout // 2
            inside = [
                (place >= middle[:, None] - half)
                & (place < middle[:, None] - half + self.augment.cutout)
                for place, middle in zip((down, across), cut.T, strict=True)
            ]
            found = found.masked_fill((inside[0][:, :, None] & inside[1][:, None, :])[:, None], 0)
        return found

    def _scaled(self, inputs: Tensor) -> Tensor:
        if inputs.dtype == torch.uint8:
            inputs = inputs.float() / 255
        if self._mean is None or self._deviation is None:
            return inputs
        shape = (1, -1, *[1] * (inputs.ndim - 2))
        return (inputs - self._mean.view(shape)) / self._deviation.view(shape)


def _generator(seed: int, key: str, device: Any) -> torch.Generator:
    return torch.Generator(device).manual_seed(seed_of(seed, key))
