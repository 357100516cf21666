"""Where the runs of the leaky-expected-error paper begin: Xavier's random weights."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch

from expacc.data import generator
from expacc.training import Layer, Trained

__all__ = ["xavier"]


def xavier(widths: Sequence[int], seed: int, *names: str | int) -> Trained:
    """Weights uniform in ±√(6/(inputs + outputs)) of their layer, and biases 0.

    Args:
        widths: inputs, hidden layers, classes.
        seed: the study's.
        names: whose weights they are.

    >>> start = xavier((4, 2), 0, "pima")
    >>> start.layers[0].weight.shape, bool(start.layers[0].weight.abs().max() <= 1)
    (torch.Size([2, 4]), True)
    """
    random = generator(seed, *names, "xavier")
    layers = []
    for into, out in pairwise(widths):
        reach = (6 / (into + out)) ** 0.5
        weight = random.uniform(-reach, reach, (out, into)).astype(np.float32)
        layers.append(Layer(torch.from_numpy(weight), torch.zeros(out)))
    return Trained(tuple(layers))
