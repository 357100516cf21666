"""Training: many small runs as one tensor program, or one large network on torch's own tools."""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from expacc.training.loop import train_runs
from expacc.training.objectives import LOSS_NAMES, objective_of
from expacc.training.runs import Layer, Model, Run, RunResult, TensorTable, TrainConfig, Trained

if TYPE_CHECKING:
    from expacc.training.network import EpochRecord, FitResult, fit

__all__ = [
    "LOSS_NAMES",
    "EpochRecord",
    "FitResult",
    "Layer",
    "Model",
    "Run",
    "RunResult",
    "TensorTable",
    "TrainConfig",
    "Trained",
    "fit",
    "objective_of",
    "train_runs",
]

_OLD_NAMES = {"Plan": TrainConfig, "Rows": TensorTable}  # for one release


def __getattr__(name: str) -> Any:
    if name in {"EpochRecord", "FitResult", "fit"}:  # a study of small runs does without them
        return getattr(import_module("expacc.training.network"), name)
    if name not in _OLD_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    new = _OLD_NAMES[name]
    warnings.warn(
        f"expacc.training.{name} is now {new.__name__}; the old name goes in the next release.",
        DeprecationWarning,
        stacklevel=2,
    )
    return new
