"""The losses we compare with, under the same contract as our own."""

from expacc.baselines.curves import (
    focal,
    generalized_cross_entropy,
    mean_absolute_error,
    poly1_cross_entropy,
    tamed_cross_entropy,
)
from expacc.baselines.rivals import (
    complement_entropy,
    hinge,
    maximum_probability_cross_entropy,
)

__all__ = [
    "complement_entropy",
    "focal",
    "generalized_cross_entropy",
    "hinge",
    "maximum_probability_cross_entropy",
    "mean_absolute_error",
    "poly1_cross_entropy",
    "tamed_cross_entropy",
]
