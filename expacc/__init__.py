"""Train classifiers for the number people report: their accuracy.

Drop a loss in where ``F.cross_entropy`` stood::

    from expacc.functional import mixed_expected_error

    loss = mixed_expected_error(logits, target)

Type checkers read ``__init__.pyi``, written by ``docs/write_losses.py``.
"""

from importlib import import_module
from typing import Any

__version__ = "0.2.0.dev0"

# Every name is fetched when it is first asked for: torch takes seconds to import, and the command
# line must show its help at once.
_HOMES = {
    "ASAM": "optim",
    "EarlyLearningRegularization": "early_learning",
    "GradientNormalizer": "optim",
    "LogitClip": "logit_clip",
    "MaxMahalanobisCenterLoss": "centers",
    "ScheduledLoss": "scheduled",
    "argmax_probabilities": "probabilities",
    "build_native": "ops",
    "clip_logits": "logit_clip",
    "expected_confusion": "functional.confusion",
    "get_loss": "registry",
    "list_losses": "registry",
    "log_orthant_prob": "probabilities",
    "orthant_prob": "probabilities",
}
# These need more than torch, so ``from expacc import *`` leaves them out.
_WITH_EXTRAS = {"compare_networks": "compare.networks"}
# Modules that ``import expacc`` has always made reachable, as in expacc.optim.ASAM.
_ROOMS = {
    *("baselines", "boosting", "centers", "contract", "functional", "losses", "ops", "optim"),
    *("probabilities", "errors", "registry", "scheduled", "schedules"),
}


def _public() -> list[str]:
    """Every public name: those above, and a Module for each loss of the registry."""
    registry = import_module("expacc.registry")
    modules = [spec.module_name for spec in registry.SPECS.values() if spec.has_module]
    return sorted({*_HOMES, *modules, "__version__", "baselines", "functional", "schedules"})


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"expacc.{name}")
    if name == "__all__":
        return _public()
    if name == "win_probabilities":  # its name until 0.1, for one release
        return import_module("expacc.probabilities").win_probabilities
    homes = _HOMES | _WITH_EXTRAS
    if name not in homes and name not in _public():
        raise AttributeError(f"module 'expacc' has no attribute {name!r}")
    found = getattr(import_module(f"expacc.{homes.get(name, 'losses')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_public(), *_WITH_EXTRAS})
