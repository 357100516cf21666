"""LogitClip: logits of bounded length, before any loss, against wrong labels."""

import torch
from torch import Tensor, nn

from expacc.errors import check_number, logits_error
from expacc.ops import CLASS_AXIS, compute_dtype
from expacc.registry.spec import MANY_CLASSES

__all__ = ["LogitClip", "clip_logits"]

_FEW, _MANY = 1.0, 0.5


def clip_logits(logits: Tensor, norm: float | None = None) -> Tensor:
    """Shorten rows of logits to the Euclidean length ``norm``, for the loss that follows.

    A loss of clipped logits is bounded, whichever it is, so that a wrong label costs only so much;
    but so is p(target) from above, by 1 / (1 + (C - 1) exp(-norm sqrt(C / (C - 1)))): choose a norm
    with the number of classes in mind. Classify with the logits as they were.

    Args:
        logits: scores, (C), (N, C) or (N, C, d1, …), any floating dtype.
        norm: the most, > 0. None is 1 up to 31 classes and 0.5 beyond, the paper's numbers for 10
            and 100; with 10 it has 1.5 where more than 40 % of the labels are wrong, 2.5 where they
            are wrong in one direction.

    Returns:
        logits · min(1, norm / ‖logits‖), row by row. Masked classes (-inf) stay so and do not
        count. The direction has a gradient; the length of a clipped row has none.

    Raises:
        TypeError: logits or a norm of the wrong type.
        ValueError: no classes, or a norm that is not > 0.

    Example:
        A row of length 5 and one of length 1, at most 2:

        >>> clip_logits(torch.tensor([[3.0, 4.0], [0.0, 1.0]]), norm=2)
        tensor([[1.2000, 1.6000],
                [0.0000, 1.0000]])

    Reference:
        Wei et al. 2023, "Mitigating Memorization of Noisy Labels by Clipping the Model Prediction".
        The authors' code clips at a temperature and rescales to its inverse, which is the paper's
        definition at 1 alone.
    """
    if not isinstance(logits, Tensor) or not logits.is_floating_point() or logits.ndim == 0:
        raise logits_error(logits)
    if norm is not None:
        check_number("norm", norm, low=0, open_low=True)
    axis = min(CLASS_AXIS, logits.ndim - 1)
    if logits.shape[axis] == 0:
        raise logits_error(logits)
    if norm is None:
        norm = _MANY if logits.shape[axis] > MANY_CLASSES else _FEW
    scores = logits.to(compute_dtype(logits.dtype))
    masked = scores == -torch.inf
    shown = torch.where(masked, 0, scores)
    # Of numbers up to 1, whose squares do not overflow; and a row of zeros has no direction.
    largest = shown.detach().abs().amax(axis, keepdim=True)
    largest = torch.where(largest == 0, 1, largest)
    scaled = shown / largest
    square = scaled.square().sum(axis, keepdim=True)
    length = torch.where(square == 0, 1, square).sqrt()
    clipped = torch.where(length * largest > norm, scaled / length * norm, shown)
    return torch.where(masked, scores, clipped).to(logits.dtype)


class LogitClip(nn.Module):
    """Shorten rows of logits to the Euclidean length ``norm``; see ``clip_logits``.

    Args:
        norm: the most, > 0; None for the paper's, by the number of classes.

    Returns:
        The Module, from logits to logits: ``loss(clip(logits), target)`` with any loss.

    Raises:
        TypeError: a norm that is no number.
        ValueError: a norm that is not > 0.

    Example:
        >>> import expacc
        >>> clip, loss = LogitClip(norm=1.0), expacc.ExpectedErrorLoss()
        >>> loss(clip(torch.tensor([[30.0, 0.0]])), torch.tensor([1]))  # 1 - 1/(1 + e)
        tensor(0.7311)
    """

    def __init__(self, norm: float | None = None) -> None:
        super().__init__()
        self.norm = None if norm is None else check_number("norm", norm, low=0, open_low=True)

    def forward(self, logits: Tensor) -> Tensor:
        """Clip the logits."""
        return clip_logits(logits, self.norm)

    def extra_repr(self) -> str:
        """Show the norm."""
        return f"norm={self.norm}"
