"""Memory around the launches: scratch, counters, and examples to allocate by."""

import torch
from torch import Tensor

from expacc.ops.triton.launch import DEFAULT_STREAM

__all__ = ["Scratch", "counter_of", "like"]

_LARGEST_LIKE = 2**16  # elements
_LARGEST_SPARE, _MOST_SPARE = 2**17, 4
_COUNTERS: dict[tuple[int, int], Tensor] = {}


def like(size: int | None, dtype: torch.dtype, device: torch.device) -> Tensor:
    """For ``torch.empty_like``, the cheapest way to a new vector, or to a number if None."""
    if size is None or size <= _LARGEST_LIKE:
        return torch.empty(() if size is None else size, dtype=dtype, device=device)
    return torch.empty((), dtype=dtype, device=device).expand(size)  # takes no memory


class Scratch:
    """The float64 numbers that a step of one kind of batch needs, its next step may have.

    On the default stream, where launches follow each other.
    """

    __slots__ = ("_example", "_spare", "size")

    def __init__(self, size: int, device: torch.device) -> None:
        self.size = size
        self._example = like(size, torch.float64, device)
        self._spare: list[Tensor] = []

    def take(self, stream: int) -> Tensor:
        """Of undefined content."""
        if stream == DEFAULT_STREAM:
            try:
                return self._spare.pop()
            except IndexError:  # asked for, not looked for: another thread may have been quicker
                pass
        return torch.empty_like(self._example)

    def give_back(self, numbers: Tensor, stream: int) -> None:
        """When all launches that need it are under way."""
        few = len(self._spare) < _MOST_SPARE
        if stream == DEFAULT_STREAM and self.size <= _LARGEST_SPARE and few:
            self._spare.append(numbers)


def counter_of(device: torch.device, stream: int) -> Tensor:
    """A zero for the programs of one launch to count themselves; the last one makes it 0 again.

    One per stream, whose launches follow each other. A graph being captured gets its own, since it
    may be replayed beside anything.
    """
    index = device.index
    # The default stream cannot be captured.
    if stream != DEFAULT_STREAM or index is None:  # noqa: SIM102
        if index is None or torch._C._cuda_isCurrentStreamCapturing():
            return torch.zeros(1, dtype=torch.int32, device=device)
    found = _COUNTERS.get((index, stream))
    if found is None:
        found = _COUNTERS[index, stream] = torch.zeros(1, dtype=torch.int32, device=device)
    return found
