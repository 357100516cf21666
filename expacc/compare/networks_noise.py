"""Wrong labels for the training rows of a network, and the rows that are held out of them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from expacc.compare.networks_data import Labels, read_labels
from expacc.data import flip_labels, holdout
from expacc.plain import UsageError


@dataclass(frozen=True, eq=False)
class Noise:
    """Wrong labels that training rows are given.

    Attributes:
        share: of rows whose label differs from the given one; for the store.
        labels: of every training row, for human labels; None draws them, anew for each seed.
    """

    share: float
    labels: Labels | None = None


def read_noise(given: Any, labels: Labels, classes: int) -> tuple[Noise, ...]:
    """The levels of noise asked for: a share, several, or an array of noisy labels.

    Raises:
        UsageError: it is neither.
    """
    if isinstance(given, bool | str) or given is None:
        raise UsageError(f"label_noise must be a share or an array of labels; got {given!r}.")
    array = np.asarray(given.cpu() if isinstance(given, Tensor) else given)
    if array.ndim == 0 or (array.dtype.kind == "f" and array.ndim == 1):
        shares = [float(share) for share in np.atleast_1d(array)]
        for share in shares:
            if not 0 <= share < 1:
                raise UsageError(f"label_noise must lie in [0, 1); got {share}.")
        return tuple(Noise(share) for share in dict.fromkeys(shares))
    noisy = read_labels(array, "label_noise")
    if len(noisy) != len(labels):
        raise UsageError(
            f"label_noise must have a label for each training row, {len(labels)}; got {len(noisy)}."
        )
    if int(noisy.max()) >= classes:
        raise UsageError(
            f"label_noise must have class numbers below {classes}; got {int(noisy.max())}."
        )
    return (Noise(round(float((noisy != labels).mean()), 6), noisy),)


@dataclass(frozen=True, eq=False)
class Parts:
    """What one seed trains on.

    Attributes:
        fold: whose training rows they are.
        train: row numbers to train on.
        held: row numbers kept to look at, and to stop by.
        labels: the labels that all training rows carry here, wrong ones among them.
    """

    fold: str
    train: Labels
    held: Labels
    labels: Labels


def parts_of(
    fold: str,
    rows: Labels,
    given: Labels,
    noise: Noise,
    *,
    classes: int,
    share: float,
    seed: int,
    name: str,
) -> Parts:
    """Spoil labels and hold out rows, the same for every loss.

    Args:
        fold: its name.
        rows: the training rows of the fold.
        given: the label of every row of the data.
        noise: which labels are spoilt.
        classes: how many there are.
        share: of the rows that are held out.
        seed: of the study.
        name: of the fold and the seed.
    """
    labels = given.copy()
    if noise.labels is not None:
        labels[: len(noise.labels)] = noise.labels
    elif noise.share:
        labels[rows] = flip_labels(given[rows], noise.share, classes=classes, seed=seed, name=name)[
            0
        ]
    split = holdout(labels[rows], share, seed=seed, name=name).splits[0]
    return Parts(fold, rows[split.train], rows[split.test], labels)
