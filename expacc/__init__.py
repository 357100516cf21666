"""Train classifiers for the number people report: their accuracy.

Drop a loss in where ``F.cross_entropy`` stood::

    from expacc.functional import mixed_expected_error

    loss = mixed_expected_error(logits, target)
"""

from expacc import baselines, functional, schedules
from expacc.centers import MaxMahalanobisCenterLoss
from expacc.losses import (
    ComplementEntropyLoss,
    ExpectedErrorLoss,
    FocalLoss,
    GeneralizedCrossEntropyLoss,
    HingeLoss,
    LeakyExpectedErrorLoss,
    MaximumProbabilityCrossEntropyLoss,
    MeanAbsoluteErrorLoss,
    MixedExpectedErrorLoss,
    Poly1CrossEntropyLoss,
    TamedCrossEntropyLoss,
)
from expacc.scheduled import ScheduledLoss

__version__ = "0.1.0"

__all__ = [
    "ComplementEntropyLoss",
    "ExpectedErrorLoss",
    "FocalLoss",
    "GeneralizedCrossEntropyLoss",
    "HingeLoss",
    "LeakyExpectedErrorLoss",
    "MaxMahalanobisCenterLoss",
    "MaximumProbabilityCrossEntropyLoss",
    "MeanAbsoluteErrorLoss",
    "MixedExpectedErrorLoss",
    "Poly1CrossEntropyLoss",
    "ScheduledLoss",
    "TamedCrossEntropyLoss",
    "__version__",
    "baselines",
    "functional",
    "schedules",
]
