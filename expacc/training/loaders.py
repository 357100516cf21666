"""Batches in an order that seed and epoch decide, each process with its share of the rows."""

import atexit
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, Sampler

from expacc.training.randomness import reseed, seed_of
from expacc.training.resident import ResidentData


@dataclass(frozen=True)
class Ranks:
    """This process among its equals; alone by default."""

    rank: int = 0
    world: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes the files and shows the progress."""
        return self.rank == 0

    def share(self, rows: int) -> slice:
        """The rows of a batch that this rank takes; none if there are fewer rows than ranks.

        >>> [Ranks(rank, 3).share(7) for rank in range(3)]
        [slice(0, 2, None), slice(2, 4, None), slice(4, 7, None)]
        """
        return slice(rows * self.rank // self.world, rows * (self.rank + 1) // self.world)

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks, in place."""
        if self.world > 1:
            dist.all_reduce(tensor)
        return tensor

    def least(self, tensor: Tensor) -> Tensor:
        """The smallest over all ranks, in place."""
        if self.world > 1:
            dist.all_reduce(tensor, op=dist.ReduceOp.MIN)
        return tensor

    def meet(self) -> None:
        """Wait for all ranks."""
        if self.world > 1:
            dist.barrier()


def find_device(device: str | torch.device) -> torch.device:
    """The device meant; "auto" is this process's CUDA device if there is one, else the CPU."""
    if isinstance(device, str) and device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):
        raise ValueError(
            f"device must be 'auto' or a torch device such as 'cpu' or 'cuda:1'; got {device!r}."
        ) from None
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device must be one of this machine; got {device!r} without CUDA here.")
    if found.type == "cuda" and found.index is None:
        found = torch.device("cuda", int(os.environ.get("LOCAL_RANK", torch.cuda.current_device())))
    return found


def find_ranks(device: torch.device) -> Ranks:
    """This process's place in the process group, which torchrun's variables open if need be.

    A group opened here stays open until the process ends: a second call finds it.
    """
    if not dist.is_available():
        return Ranks()
    if device.type == "cuda":
        torch.cuda.set_device(device)  # where NCCL works
    if not dist.is_initialized():
        if int(os.environ.get("WORLD_SIZE", "1")) == 1 or "RANK" not in os.environ:
            return Ranks()
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        atexit.register(_leave)
    return Ranks(dist.get_rank(), dist.get_world_size())


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def wrap_ddp(model: nn.Module, device: torch.device, ranks: Ranks) -> nn.Module:
    """The model, wrapped so that backward averages the gradients over the ranks."""
    if ranks.world == 1 or isinstance(model, DistributedDataParallel):
        return model
    return DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)


@dataclass(frozen=True)
class Batch:
    """This rank's part of a batch.

    Attributes:
        inputs: what the model is called with.
        target: labels (rows, …) or class probabilities (rows, classes, …).
        rows: rows of the whole batch, over all ranks.
    """

    inputs: Any
    target: Tensor
    rows: int


def split_loaders(loaders: Any) -> tuple[Any, Any]:
    """The training loader and the validation loader or None."""
    if isinstance(loaders, tuple):
        if len(loaders) != 2 or any(isinstance(part, Tensor) for part in loaders):
            kinds = ", ".join(type(part).__name__ for part in loaders)
            raise TypeError(
                f"loaders must be a loader or a pair (training, validation); got a tuple of "
                f"{len(loaders)}: {kinds}. A single batch is [(inputs, target)]."
            )
        return loaders
    return loaders, None


class Batches:
    """What a loader gives, epoch by epoch.

    Of a torch DataLoader over a map-style dataset the order is drawn here, at the start of the
    epoch: ranks agree on it, read only their own rows, and a resumed epoch reads none of the rows
    that are done. Anything else that can be iterated over again is read as it comes.
    """

    def __init__(
        self,
        loader: Any,
        *,
        seed: int,
        ranks: Ranks,
        device: torch.device,
        channels_last: bool = False,
    ) -> None:
        self._loader, self._seed, self._ranks, self._device = loader, seed, ranks, device
        self._layout = torch.channels_last if channels_last else torch.preserve_format
        self._length = _checked_length(loader)
        self._resident = loader.to(device) if isinstance(loader, ResidentData) else None
        # A subclass may iterate in its own way, so it is left to do that.
        self._owned = (
            type(loader) is DataLoader
            and loader.batch_sampler is not None
            and not isinstance(loader.dataset, IterableDataset)
        )
        if self._owned:
            self._picks = _Picks()
            self._generator = torch.Generator()
            self._reader = _with_batches(loader, self._picks, self._generator)

    def __len__(self) -> int:
        return self._length

    def groups(
        self, epoch: int, *, size: int, start: int, before: Callable[[int], None]
    ) -> Iterator[list[Batch]]:
        """Groups of ``size`` batches, the last one smaller, from the group ``start`` on.

        ``before`` is called with a group's number before it is read.
        """
        skips = self._owned or self._resident is not None
        batches = self.epoch(epoch, skip=start * size if skips else 0)
        for number in count(start if skips else 0):
            before(number)
            group = list(islice(batches, size))
            if not group:
                return
            if number >= start:
                yield group

    def epoch(self, epoch: int, skip: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, less the first ``skip``."""
        if self._resident is not None:
            return self._in_place(self._resident.batches(epoch, self._seed, skip))
        generators = _Generators(self._loader, seed_of(self._seed, f"order/{epoch}"))
        if not self._owned:
            return self._as_it_comes(generators, epoch, skip)
        reseed(self._seed, f"order/{epoch}", self._device)  # for samplers without a generator
        with generators:
            _tell_epoch(self._loader, epoch)
            order = [list(batch) for batch in self._loader.batch_sampler][skip:]
        self._picks.batches = [batch[self._ranks.share(len(batch))] or batch[:1] for batch in order]
        self._generator.manual_seed(seed_of(self._seed, f"workers/{epoch}"))
        return self._own(iter(self._reader), [len(batch) for batch in order])

    def _in_place(self, batches: Iterator[tuple[Tensor, Tensor]]) -> Iterator[Batch]:
        for inputs, target in batches:
            part = self._ranks.share(len(target))
            yield Batch(inputs[part], target[part], len(target))

    def _own(self, reader: Iterator[Any], sizes: list[int]) -> Iterator[Batch]:
        for size, content in zip(sizes, reader, strict=True):
            inputs, target = _checked(content)
            rows = len(target) if self._ranks.world == 1 else size
            part = self._ranks.share(rows)
            expected = part.stop - part.start
            if expected == 0:  # one row was read, to know what no rows look like
                inputs, target = _cut(inputs, slice(0)), target[:0]
            elif len(target) != expected:
                raise ValueError(
                    f"loaders must give a row per index when ranks share them; got {len(target)} "
                    f"rows for {expected} indices."
                )
            yield Batch(*self._moved(inputs, target), rows)

    def _as_it_comes(self, generators: "_Generators", epoch: int, skip: int) -> Iterator[Batch]:
        with generators:
            _tell_epoch(self._loader, epoch)
            for content in islice(self._loader, skip, None):
                inputs, target = _checked(content)
                rows = len(target)
                if self._ranks.world > 1:
                    part = self._ranks.share(rows)
                    inputs, target = _cut(inputs, part), target[part]
                yield Batch(*self._moved(inputs, target), rows)

    def _moved(self, inputs: Any, target: Tensor) -> tuple[Any, Tensor]:
        def move(tensor: Tensor) -> Tensor:
            layout = self._layout if tensor.ndim == 4 else torch.preserve_format
            return tensor.to(self._device, non_blocking=True, memory_format=layout)

        return map_tensors(move, inputs), move(target)


class _Picks(Sampler[list[Any]]):
    """The rows that this rank reads, set anew each epoch."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []

    def __iter__(self) -> Iterator[list[Any]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


class _Generators:
    """While entered, a loader's samplers draw from generators of ours; then from their own."""

    def __init__(self, loader: Any, seed: int) -> None:
        self._holders = [part for part in _parts(loader) if hasattr(part, "generator")]
        self._seed = seed

    def __enter__(self) -> None:
        self._before = [holder.generator for holder in self._holders]
        for holder in self._holders:
            holder.generator = torch.Generator().manual_seed(self._seed)

    def __exit__(self, *error: object) -> None:
        for holder, generator in zip(self._holders, self._before, strict=True):
            holder.generator = generator


def _parts(loader: Any) -> list[Any]:
    """A loader and the samplers inside, outermost first."""
    if not isinstance(loader, DataLoader):
        return []
    batches = loader.batch_sampler
    inner = batches.sampler if isinstance(batches, BatchSampler) else loader.sampler
    return [loader, batches, inner]


def _tell_epoch(loader: Any, epoch: int) -> None:
    for part in _parts(loader) or [loader]:
        if callable(getattr(part, "set_epoch", None)):
            part.set_epoch(epoch)


def _with_batches(
    loader: DataLoader[Any], batches: Sampler[list[Any]], generator: torch.Generator
) -> DataLoader[Any]:
    """The same loader over other rows."""
    return DataLoader(
        loader.dataset,
        batch_sampler=batches,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=generator,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
    )


def _checked_length(loader: Any) -> int:
    if isinstance(loader, str | bytes | dict | Tensor) or not hasattr(loader, "__iter__"):
        raise TypeError(
            f"loaders must be a DataLoader or a list of (inputs, target) batches, or a pair of "
            f"those; got {type(loader).__name__}."
        )
    if any(isinstance(part, DistributedSampler) for part in _parts(loader)):
        raise ValueError(
            "loaders must give whole batches; got one with a DistributedSampler. Use "
            "shuffle=True: each rank takes its share of every batch."
        )
    try:
        length = len(loader)
    except TypeError:
        raise TypeError(
            f"loaders must have a length, the number of batches; got {type(loader).__name__} "
            f"without. Use list(...) or a dataset with __len__."
        ) from None
    if length < 1:
        raise ValueError("loaders must give at least one batch; got none.")
    return length


def _checked(content: Any) -> tuple[Any, Tensor]:
    """The pair that a batch must be."""
    if not isinstance(content, Sequence) or isinstance(content, str) or len(content) != 2:
        size = f" of {len(content)}" if isinstance(content, Sequence | dict) else ""
        raise TypeError(
            f"loaders must give pairs (inputs, target); got a {type(content).__name__}{size}."
        )
    inputs, target = content
    if not isinstance(target, Tensor) or target.ndim == 0:
        what = "without axes" if isinstance(target, Tensor) else type(target).__name__
        raise TypeError(f"loaders must give pairs with a tensor as target; got {what}.")
    tensors: list[Tensor] = []
    map_tensors(tensors.append, inputs)
    rows = {len(tensor) for tensor in tensors if tensor.ndim > 0}
    if rows != {len(target)} or len(target) == 0:
        raise ValueError(
            f"loaders must give inputs and target of equally many rows, at least one; got "
            f"{' and '.join(map(str, sorted(rows))) or 'no'} rows and {len(target)} labels."
        )
    return inputs, target


def map_tensors(change: Callable[[Tensor], Any], inputs: Any) -> Any:
    """Inputs, a tensor or a structure of tensors, with each tensor changed."""
    if isinstance(inputs, Tensor):
        return change(inputs)
    if isinstance(inputs, list | tuple):
        parts = [map_tensors(change, part) for part in inputs]
        return type(inputs)(*parts) if hasattr(inputs, "_fields") else type(inputs)(parts)
    if isinstance(inputs, dict):
        return {name: map_tensors(change, part) for name, part in inputs.items()}
    raise TypeError(
        f"loaders must give inputs made of tensors, lists and dicts; got {type(inputs).__name__}."
    )


def _cut(inputs: Any, rows: slice) -> Any:
    return map_tensors(lambda tensor: tensor[rows] if tensor.ndim > 0 else tensor, inputs)
