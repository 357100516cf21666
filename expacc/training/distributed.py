"""Several processes that train one network: who they are and which rows each takes."""

import atexit
import os
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

__all__ = ["Ranks", "find_device", "find_ranks", "wrap_ddp"]


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
