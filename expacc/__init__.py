"""Train classifiers for the number people report: their accuracy.

Drop a loss in where ``F.cross_entropy`` stood::

    from expacc.functional import mixed_expected_error

    loss = mixed_expected_error(logits, target)
"""

from expacc import baselines, functional, schedules
from expacc.centers import MaxMahalanobisCenterLoss
from expacc.losses import (
    ComplementEntropyLoss,
    ExactLoss,
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
from expacc.optim import ASAM, GradientNormalizer
from expacc.probabilities import log_orthant_prob, orthant_prob, win_probabilities
from expacc.scheduled import ScheduledLoss

__version__ = "0.1.0"

__all__ = [
    "ASAM",
    "ComplementEntropyLoss",
    "ExactLoss",
    "ExpectedErrorLoss",
    "FocalLoss",
    "GeneralizedCrossEntropyLoss",
    "GradientNormalizer",
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
    "log_orthant_prob",
    "orthant_prob",
    "schedules",
    "win_probabilities",
]
