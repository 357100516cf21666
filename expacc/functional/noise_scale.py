"""The noise's scale: a number, one per row, or one per row and class."""

from torch import Tensor

from expacc.contract import Batch, legal_values
from expacc.errors import check_number, sigma_error
from expacc.ops import CLASS_AXIS

__all__ = ["is_per_class", "read_sigma"]


def read_sigma(sigma: float | Tensor, batch: Batch, scores: Tensor) -> float | Tensor:
    """sigma as a number, per row (…, 1) or per row and class (…, C), classes last.

    Finite and > 0; where a tensor's values may not be read, NaN in place of any other.
    """
    if not isinstance(sigma, Tensor):
        return check_number("sigma", sigma, low=0, open_low=True)
    shape = batch.logits.shape  # (N, C, …)
    if not sigma.is_floating_point():
        raise sigma_error(sigma, shape)
    sigma = legal_values("sigma", sigma.to(scores.dtype), low=0, open_low=True)
    if sigma.ndim == 0:
        return sigma
    rows, classes = shape[0], shape[CLASS_AXIS]
    per_row, per_class = sigma.shape == (rows,), sigma.shape == (classes,)
    if per_row and per_class and rows > 1:
        raise sigma_error(sigma, shape, ambiguous=True)
    if per_class:
        return sigma
    if per_row:
        return sigma.view(-1, *[1] * (len(shape) - 1))
    if batch.single and sigma.shape == shape[1:]:
        sigma = sigma.unsqueeze(0)
    if sigma.ndim != len(shape) or any(
        have not in (1, need) for have, need in zip(sigma.shape, shape, strict=True)
    ):
        raise sigma_error(sigma, shape)
    return sigma.movedim(CLASS_AXIS, -1)


def is_per_class(scales: float | Tensor) -> bool:
    """Has every class a scale of its own?"""
    return isinstance(scales, Tensor) and scales.ndim > 0 and scales.shape[-1] > 1
