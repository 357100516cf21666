"""Seeds by name, not by position: adding a table or a loss changes no other run."""

import hashlib
import json

import numpy as np

__all__ = ["derive_seed", "generator"]


def derive_seed(seed: int, *names: str | int | float) -> int:
    """A seed in [0, 2**63) for one purpose, from the study's seed and the purpose's names.

    >>> derive_seed(0, "car", "folds") == derive_seed(0, "car", "folds")
    True
    >>> derive_seed(0, "car", "folds") == derive_seed(0, "car", "noise")
    False
    """
    if type(seed) is not int or seed < 0:
        raise ValueError(f"seed must be an int >= 0; got {seed!r}.")
    # JSON keeps ("a", "b") and ("ab",) apart, and 1 and "1".
    text = json.dumps([seed, *names], ensure_ascii=True, allow_nan=False)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *names: str | int | float) -> np.random.Generator:
    """A generator for one purpose; PCG64 by name, for default_rng may change."""
    return np.random.Generator(np.random.PCG64(derive_seed(seed, *names)))
