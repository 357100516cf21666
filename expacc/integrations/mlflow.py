"""For MLflow: what ``fit`` and comparisons report."""

from collections.abc import Mapping
from typing import Any

try:
    import mlflow
except ImportError as error:
    raise ImportError(
        "expacc.integrations.mlflow needs the package mlflow. Use pip install 'expacc[mlflow]'."
    ) from error

__all__ = ["MLflow"]


class MLflow:
    """A ``report`` for ``expacc.training.fit`` and ``compare`` that writes to MLflow.

    Close it when done, or use it in a ``with`` block.

    Args:
        **settings: of ``mlflow.start_run``, such as ``run_name``; the run that is open, if there
            is one and no settings.

    Example:
        >>> from expacc.integrations.mlflow import MLflow
        >>> with MLflow(run_name="leaky") as report:  # doctest: +SKIP
        ...     fit(model, loaders, loss, report=report)
    """

    def __init__(self, **settings: Any) -> None:
        active = None if settings else mlflow.active_run()
        self._own = active is None
        self._run = active or mlflow.start_run(**settings)

    def __call__(self, step: int, numbers: Mapping[str, float]) -> None:
        """Write the numbers of a step."""
        mlflow.log_metrics(dict(numbers), step=step, run_id=self._run.info.run_id)

    def close(self) -> None:
        """Write what is left, and end the run if it was begun here."""
        if self._own:
            mlflow.end_run()

    def __enter__(self) -> "MLflow":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
