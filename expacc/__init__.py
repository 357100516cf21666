"""Train classifiers for the number people report: their accuracy.

Drop a loss in where ``F.cross_entropy`` stood::

    from expacc.functional import mixed_expected_error

    loss = mixed_expected_error(logits, target)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from expacc.ops import build_native
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
    "build_native",
    "functional",
    "log_orthant_prob",
    "orthant_prob",
    "schedules",
    "win_probabilities",
]

# Modules that ``import expacc`` has always made reachable, as in expacc.optim.ASAM.
_ROOMS = {
    *("baselines", "centers", "contract", "functional", "losses", "ops", "optim"),
    *("probabilities", "errors", "scheduled", "schedules"),
}
# Every name is fetched when it is first asked for: torch takes seconds to import, and the command
# line must show its help at once.
_HOMES = {
    "ASAM": "optim",
    "GradientNormalizer": "optim",
    "MaxMahalanobisCenterLoss": "centers",
    "ScheduledLoss": "scheduled",
    "build_native": "ops",
    "log_orthant_prob": "probabilities",
    "orthant_prob": "probabilities",
    "win_probabilities": "probabilities",
}


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"expacc.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'expacc' has no attribute {name!r}")
    found = getattr(import_module(f"expacc.{_HOMES.get(name, 'losses')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
