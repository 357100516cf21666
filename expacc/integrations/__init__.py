"""Losses, schedules and normalised gradients in other people's training loops, and trackers.

One module per framework, which it imports: ``transformers``, ``lightning``, ``pytorch_lightning``,
``skorch`` train the weights that ``expacc.training.fit`` would (docs/frameworks.md);
``tensorboard``, ``mlflow`` and ``wandb`` are told how a training or a comparison goes.
"""

import os
from importlib import import_module
from typing import Any

from expacc.plain import UsageError

TRACKERS = {"tensorboard": "TensorBoard", "mlflow": "MLflow", "wandb": "WandB"}


def tracker(name: str, folder: str | os.PathLike[str]) -> Any:
    """The tracker of this name; TensorBoard's files are in ``folder``.

    Raises:
        UsageError: there is none of this name, or its package is missing.
    """
    if name not in TRACKERS:
        raise UsageError(f"report-to must be {', '.join(TRACKERS)}; got {name!r}.")
    try:
        made = getattr(import_module(f"expacc.integrations.{name}"), TRACKERS[name])
    except ImportError as error:
        raise UsageError(str(error)) from error
    return made(folder) if name == "tensorboard" else made()
