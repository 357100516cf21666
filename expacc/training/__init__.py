"""Training: many small runs as one tensor program, or one large network on torch's own tools."""

from expacc.training.loop import train_runs
from expacc.training.network import EpochRecord, FitResult, fit
from expacc.training.objectives import LOSS_NAMES, objective_of
from expacc.training.runs import Layer, Model, Plan, Rows, Run, RunResult, Trained

__all__ = [
    "LOSS_NAMES",
    "EpochRecord",
    "FitResult",
    "Layer",
    "Model",
    "Plan",
    "Rows",
    "Run",
    "RunResult",
    "Trained",
    "fit",
    "objective_of",
    "train_runs",
]
