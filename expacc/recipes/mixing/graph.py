"""Steps recorded as a CUDA graph: small kernels then follow each other without Python between."""

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["StepGraph", "block_size"]

_LEAST, _MOST = 16, 48  # steps in a recording


def block_size(steps: int) -> int:
    """How many steps to record, so that few of so many in an epoch are left over.

    >>> block_size(10), block_size(32), block_size(100)
    (10, 32, 25)
    """
    if steps <= _MOST:
        return steps
    return min(range(_MOST, _LEAST - 1, -1), key=lambda size: steps % size)


class StepGraph:
    """A block of steps, recorded once and replayed with other rows.

    Args:
        take: one step on row numbers and labels, (G, B) each, that allocates nothing that stays
            and reads everything else at places that stay.
        steps: (block, G, B), for the shape.
    """

    def __init__(self, take: Callable[[Tensor, Tensor], None], steps: Tensor) -> None:
        self.order, self.labels = torch.zeros_like(steps), torch.zeros_like(steps)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            for number in range(len(steps)):
                take(self.order[number], self.labels[number])

    def replay(self, steps: Tensor, labels: Tensor) -> int:
        """Take whole blocks of the steps (n, G, B), from the first on; how many were taken."""
        block = len(self.order)
        done = len(steps) // block * block
        for low in range(0, done, block):
            self.order.copy_(steps[low : low + block])
            self.labels.copy_(labels[low : low + block])
            self.graph.replay()
        return done
