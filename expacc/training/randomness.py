"""Random numbers that depend on a run's own seed and on nothing else.

For many runs at once: a generator per run would mean a Python call per run and step; one generator
for all would make a run's numbers depend on its company. So every number is a hash of (the run's
seed, what it is for, its position), computed for all runs together with integer operations that
give the same bits on every device and with any number of threads.

For one network: dropout, and data sets that are read in this process, draw from global generators.
Seeding those before every step makes a step's draws independent of what ran before, so a resumed
run needs no generator's state, only the number of the step.
"""

import functools
import hashlib
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

PURPOSES = {"weights": 1, "order": 2, "dropout": 3}

_MASK32, _MASK64 = (1 << 32) - 1, (1 << 64) - 1


def seed_of(study_seed: int, key: str) -> int:
    """The seed of the run called ``key``: 63 bits that no position or order enters.

    >>> seed_of(0, "car/exact/0") == seed_of(0, "car/exact/0")
    True
    >>> seed_of(0, "car/exact/0") == seed_of(0, "car/exact/1")
    False
    """
    digest = hashlib.blake2b(f"{study_seed}\x1f{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _as_signed(value: int, bits: int) -> int:
    """The integer that a signed register holds for these bits."""
    return value - (1 << bits) if value >> (bits - 1) else value


_GOLDEN, _MIX_1, _MIX_2 = (
    _as_signed(value, 64) for value in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
_LOW_1, _LOW_2 = _as_signed(0x7FEB352D, 32), _as_signed(0x846CA68B, 32)


def _mix64(bits: Tensor) -> Tensor:
    """SplitMix64's finaliser; int64 wraps around, and the masks make its shifts logical."""
    bits = (bits ^ ((bits >> 30) & ((1 << 34) - 1))) * _MIX_1
    bits = (bits ^ ((bits >> 27) & ((1 << 37) - 1))) * _MIX_2
    return bits ^ ((bits >> 31) & ((1 << 33) - 1))


def stream_keys(seeds: Tensor, purpose: str, counter: int | Tensor) -> Tensor:
    """A 32-bit key per run, (R, 1) int32, for a purpose and a counter (epoch, step, layer).

    Args:
        seeds: (R), int64.
        purpose: one of ``PURPOSES``.
        counter: a number, or one per run, (R).
    """
    salted = _mix64(seeds + PURPOSES[purpose] * 0x9E3779B97F4A7)
    jump = counter * _GOLDEN
    if isinstance(jump, int):
        jump = _as_signed(jump & _MASK64, 64)
    return _mix64(salted + jump).to(torch.int32).unsqueeze(1)


def _mix32(bits: Tensor) -> Tensor:
    """Wellons' ``lowbias32``, in place: every output bit depends on every input bit."""
    bits.bitwise_xor_((bits >> 16).bitwise_and_(0xFFFF)).mul_(_LOW_1)  # int32 wraps around
    bits.bitwise_xor_((bits >> 15).bitwise_and_(0x1FFFF)).mul_(_LOW_2)
    return bits.bitwise_xor_((bits >> 16).bitwise_and_(0xFFFF))


@functools.lru_cache(maxsize=8)
def _positions(count: int, device: torch.device) -> Tensor:
    return torch.arange(count, dtype=torch.int32, device=device) * 0x9E3779B  # spread the counter


def _bits(keys: Tensor, count: int) -> Tensor:
    """(R, count) int32 hashes."""
    return _mix32(_mix32(_positions(count, keys.device) ^ keys).add_(keys))


def uniform(keys: Tensor, count: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """(R, count) numbers in [0, 1), multiples of 2⁻²⁴."""
    return (_bits(keys, count) >> 8).bitwise_and_(0xFFFFFF).to(dtype).mul_(2.0**-24)


@functools.cache
def _numpy() -> Any:
    try:
        import numpy
    except ImportError:  # pragma: no cover - torch without numpy
        return None
    return numpy


def shuffled(keys: Tensor, table: Tensor, lengths: Tensor | None) -> Tensor:
    """Each run's row numbers in a random order, (R, n) int64.

    Args:
        keys: (R, 1) int32.
        table: (R, n) row numbers, below 2³².
        lengths: (R, 1), how many of its numbers are a run's own; the others come last, in their
            order. None for all.
    """
    # The row number in the low bits comes along with the hash that is sorted, and makes numbers
    # distinct, so that any sort gives the same order.
    number = _bits(keys, table.shape[1]).to(torch.int64).bitwise_and_((1 << 30) - 1)
    number.bitwise_left_shift_(32).bitwise_or_(table)
    if lengths is not None:
        number = torch.where(
            torch.arange(table.shape[1], device=table.device) < lengths, number, (1 << 62) | table
        )
    numpy = _numpy()
    if number.is_cpu and numpy is not None:  # ten times as fast as torch's
        values = number.numpy()
        values.sort(axis=1)
        ordered = number
    else:
        ordered = number.sort(dim=1).values
    return ordered.bitwise_and_(_MASK32)


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
