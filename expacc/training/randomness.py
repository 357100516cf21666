"""The global random numbers of one training run: a function of its seed, step and rank.

Dropout, and data sets that are read in this process, draw from global generators. Seeding those
before every step makes a step's draws independent of what ran before, so a resumed run needs no
generator's state, only the number of the step.
"""

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from expacc.training.draws import seed_of

__all__ = ["caller_randomness_kept", "reseed", "seed_of"]


def reseed(seed: int, key: str, device: torch.device) -> None:
    """Seed torch's, Python's and NumPy's global generators for the moment called ``key``."""
    number = seed_of(seed, key)
    # Not torch.manual_seed: it visits every kind of device, 100 times as slow.
    torch.default_generator.manual_seed(number)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(number)
    random.seed(number)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(number % 2**32)


@contextmanager
def caller_randomness_kept(device: torch.device) -> Iterator[None]:
    """Put all generators back at the end: who trains in a loop gets new numbers each time."""
    numpy = sys.modules.get("numpy")
    module = None if device.type == "cpu" else torch.get_device_module(device)
    on_host, of_python = torch.get_rng_state(), random.getstate()
    of_numpy = numpy.random.get_state() if numpy is not None else None
    on_device = module.get_rng_state(device) if module is not None else None
    try:
        yield
    finally:
        torch.set_rng_state(on_host)
        random.setstate(of_python)
        if numpy is not None:
            numpy.random.set_state(of_numpy)
        if module is not None:
            module.set_rng_state(on_device, device)
