"""The exact sign-flip distribution: the one idea under McNemar's and Wilcoxon's tests.

If neither method is better, each difference was as likely to come out with the other sign. So the
sum of all differences has a known distribution, a convolution of scaled binomials; nothing is
assumed about its shape, and ties and zeros need no correction.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import signal, stats


def sign_flip_p(differences: NDArray[np.int64], *, middle: bool) -> float:
    """Return the two-sided p of the sum of ``differences`` when every sign is a fair coin.

    Args:
        differences: whole numbers; zeros say nothing and change nothing.
        middle: count the observed value itself half (the mid-p), which removes most of the
            conservatism of a discrete test.
    """
    sizes = np.abs(differences[differences != 0])
    if sizes.size == 0:
        return 1.0
    # Let U be the sum of the positive sizes. Then the sum of differences is 2U - all.
    distribution = np.ones(1)
    for size, count in zip(*np.unique(sizes, return_counts=True), strict=True):
        steps = np.zeros(size * count + 1)
        steps[::size] = stats.binom.pmf(np.arange(count + 1), count, 0.5)
        distribution = signal.convolve(distribution, steps)
    everything = int(sizes.sum())
    distance = np.abs(2 * np.arange(everything + 1) - everything)
    observed = abs(int(differences.sum()))
    beyond = float(distribution[distance > observed].sum())
    at = float(distribution[distance == observed].sum())
    # A convolution by FFT may be off by 1e-16: no p below the smallest that the coins allow.
    smallest = 0.5 ** min(sizes.size, 1000)
    return float(min(1.0, max(beyond + (0.5 if middle else 1.0) * at, smallest)))
