"""The exact sign-flip distribution: the one idea under McNemar's, Wilcoxon's and our row test.

If neither method is better, each difference was as likely to come out with the other sign. So the
sum of all differences has a known distribution, a convolution of scaled binomials; nothing is
assumed about its shape, and ties and zeros need no correction.
"""

import functools

import numpy as np
from numpy.typing import NDArray
from scipy import signal, stats

from expacc.stats.score_table import Floats

LONGEST = 4_000_000  # sums; beyond, the normal distribution is as good and needs no room


@functools.lru_cache(maxsize=4)  # the rivals of a study often have the same sizes
def _distribution(sizes: tuple[int, ...], counts: tuple[int, ...]) -> Floats:
    """Of the sum U of the positive sizes; the sum of the differences is 2U - all."""
    distribution = np.ones(1)
    for size, count in zip(sizes, counts, strict=True):
        if count == 1:  # most of the ranks of Wilcoxon's test
            longer = np.zeros(len(distribution) + size)
            longer[: len(distribution)] = distribution / 2
            longer[size:] += distribution / 2
            distribution = longer
            continue
        steps = np.zeros(size * count + 1)
        steps[::size] = stats.binom.pmf(np.arange(count + 1), count, 0.5)
        distribution = signal.convolve(distribution, steps)
    return distribution


def sign_flip_p(differences: NDArray[np.int64], *, middle: bool, shrink: float = 1.0) -> float:
    """Return the two-sided p of the sum of ``differences`` when every sign is a fair coin.

    Args:
        differences: whole numbers; zeros say nothing and change nothing.
        middle: count the observed value itself half (the mid-p), which removes most of the
            conservatism of a discrete test.
        shrink: divide the observed sum by this first, where differences are known to vary together
            more than coins do.
    """
    sizes = np.abs(differences[differences != 0])
    if sizes.size == 0:
        return 1.0
    everything = int(sizes.sum())
    observed = abs(int(differences.sum())) / shrink
    if everything > LONGEST:
        return float(2 * stats.norm.sf(observed / float((sizes.astype(float) ** 2).sum()) ** 0.5))
    values, counts = np.unique(sizes, return_counts=True)
    distribution = _distribution(tuple(values.tolist()), tuple(counts.tolist()))
    distance = np.abs(2 * np.arange(everything + 1) - everything)
    near = np.abs(distance - observed) < 1e-9 * max(1.0, observed)
    beyond = float(distribution[(distance > observed) & ~near].sum())
    at = float(distribution[near].sum())
    # A convolution by FFT may be off by 1e-16: no p below the smallest that the coins allow.
    smallest = 0.5 ** min(sizes.size, 1000)
    return float(min(1.0, max(beyond + (0.5 if middle else 1.0) * at, smallest)))
