"""Training: many small runs as one tensor program, or one large network on torch's own tools."""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from expacc.training.checkpoint import EpochRecord
    from expacc.training.complement import ComplementObjective
    from expacc.training.loop import train_runs
    from expacc.training.network import FitResult, fit
    from expacc.training.objectives import LOSS_NAMES, objective_of
    from expacc.training.resident import Augment, ResidentData
    from expacc.training.runs import Layer, Model, Run, RunResult, TensorTable, TrainConfig, Trained

__all__ = [
    "LOSS_NAMES",
    "Augment",
    "ComplementObjective",
    "EpochRecord",
    "FitResult",
    "Layer",
    "Model",
    "ResidentData",
    "Run",
    "RunResult",
    "TensorTable",
    "TrainConfig",
    "Trained",
    "fit",
    "objective_of",
    "train_runs",
]

# Fetched when first asked for: a study of small runs needs no network loop, a bar no torch.
_HOMES = {"train_runs": "loop", "LOSS_NAMES": "objectives", "objective_of": "objectives"}
_HOMES |= {"FitResult": "network", "fit": "network", "EpochRecord": "checkpoint"}
_HOMES |= {"Augment": "resident", "ResidentData": "resident"}
_HOMES["ComplementObjective"] = "complement"
_OLD_NAMES = {"Plan": "TrainConfig", "Rows": "TensorTable"}  # for one release


def __getattr__(name: str) -> Any:
    new = _OLD_NAMES.get(name, name)
    if new not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if new != name:
        warnings.warn(
            f"expacc.training.{name} is now {new}; the old name goes in the next release.",
            DeprecationWarning,
            stacklevel=2,
        )
    return getattr(import_module(f"expacc.training.{_HOMES.get(new, 'runs')}"), new)
