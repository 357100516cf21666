"""For Weights & Biases: what ``fit`` and comparisons report."""

from collections.abc import Mapping
from typing import Any

try:
    import wandb
except ImportError as error:
    raise ImportError(
        "expacc.integrations.wandb needs the package wandb. Use pip install 'expacc[wandb]'."
    ) from error

__all__ = ["WandB"]


class WandB:
    """A ``report`` for ``expacc.training.fit`` and ``compare`` that writes to Weights & Biases.

    Close it when done, or use it in a ``with`` block.

    Args:
        **settings: of ``wandb.init``, such as ``project``; the run that is open, if there is one
            and no settings.

    Example:
        >>> from expacc.integrations.wandb import WandB
        >>> with WandB(project="noise") as report:  # doctest: +SKIP
        ...     fit(model, loaders, loss, report=report)
    """

    def __init__(self, **settings: Any) -> None:
        active = None if settings else wandb.run
        self._own = active is None
        self._run = active or wandb.init(**settings)

    def __call__(self, step: int, numbers: Mapping[str, float]) -> None:
        """Write the numbers of a step."""
        self._run.log(dict(numbers), step=step)

    def close(self) -> None:
        """Write what is left, and end the run if it was begun here."""
        if self._own:
            self._run.finish()

    def __enter__(self) -> "WandB":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
