"""Training: many small runs as one tensor program, or one large network on torch's own tools."""

from expacc.training.loop import train_runs
from expacc.training.objectives import LOSS_NAMES, objective_of
from expacc.training.runs import Layer, Model, Plan, Rows, Run, RunResult, Trained

__all__ = [
    "LOSS_NAMES",
    "Layer",
    "Model",
    "Plan",
    "Rows",
    "Run",
    "RunResult",
    "Trained",
    "objective_of",
    "train_runs",
]
