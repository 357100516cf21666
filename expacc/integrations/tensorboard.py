"""For TensorBoard: what ``fit`` and comparisons report."""

import os
from collections.abc import Mapping
from typing import Any

try:
    from torch.utils.tensorboard import SummaryWriter
except ImportError as error:
    raise ImportError(
        "expacc.integrations.tensorboard needs the package tensorboard. "
        "Use pip install 'expacc[tensorboard]'."
    ) from error

__all__ = ["TensorBoard"]


class TensorBoard:
    """A ``report`` for ``expacc.training.fit`` and ``compare`` that writes to TensorBoard.

    Close it when done, or use it in a ``with`` block.

    Args:
        folder: of the event files; ``tensorboard --logdir FOLDER`` shows them.

    Example:
        >>> from expacc.integrations.tensorboard import TensorBoard
        >>> with TensorBoard("runs/leaky") as report:  # doctest: +SKIP
        ...     fit(model, loaders, loss, report=report)
    """

    def __init__(self, folder: str | os.PathLike[str] = "runs") -> None:
        self._writer = SummaryWriter(os.fspath(folder))

    def __call__(self, step: int, numbers: Mapping[str, float]) -> None:
        """Write the numbers of a step."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()

    def __enter__(self) -> "TensorBoard":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
