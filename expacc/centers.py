"""The Max-Mahalanobis center loss: fixed, optimal class centres in place of the last layer."""

import torch
from torch import Tensor, nn

from expacc.contract import Reduction, read_batch, reduce_rows
from expacc.errors import check_number
from expacc.ops import CLASS_AXIS, row_dtype

__all__ = ["MaxMahalanobisCenterLoss", "simplex_centers"]


def simplex_centers(num_classes: int, dim: int) -> Tensor:
    """Unit vectors whose pairwise cosine is -1/(num_classes - 1), the least that is possible.

    The vertices of a regular simplex, (num_classes, dim), float64; the first coordinates are used
    and the rest are 0. Built row by row (Pang et al. 2018, Algorithm 1).
    """
    centers = torch.zeros(num_classes, dim, dtype=torch.float64)
    if num_classes == 1:
        centers[0, 0] = 1
        return centers
    cosine = -1 / (num_classes - 1)
    for row in range(num_classes):
        for axis in range(min(row, num_classes - 1)):
            known = centers[row, :axis] @ centers[axis, :axis]
            centers[row, axis] = (cosine - known) / centers[axis, axis]
        if row < num_classes - 1:
            centers[row, row] = (1 - centers[row, :row].square().sum()).sqrt()
    return centers


class MaxMahalanobisCenterLoss(nn.Module):
    r"""Compute half the squared distance of the features to the fixed centre of their class.

    Takes the features before the classifier, not logits: there is no last layer to train. Classify
    with ``loss.logits(features).argmax(1)``. Made for robustness against adversarial inputs; with
    plain accuracy in mind, a comparator.

    Definition:
        L = 0.5 · ‖features - centre_y‖², with centres scale · (vertices of a regular simplex).
        Class probabilities t as target give Σ_j t_j · 0.5 · ‖features - centre_j‖².

    Gradient:
        dL/dfeatures = features - centre_y: grows with the distance, without bound.

    Args:
        num_classes: number of classes, at least 1.
        dim: number of features, at least num_classes - 1, or the centres could not be optimal.
        scale: length of the centres, > 0.
        weight: one factor >= 0 per class.
        ignore_index: a label whose rows contribute nothing.
        reduction: 'none', 'mean' (over the weight of the kept rows) or 'sum'.
        label_smoothing: share in [0, 1] of each label spread evenly over the classes.

    Returns:
        The Module; calling it on features (dim), (N, dim) or (N, dim, d1, …) and a target gives a
        scalar, or one value per row for 'none'.

    Raises:
        TypeError: a tensor or number of the wrong type.
        ValueError: a wrong shape, a number out of its range, or (on CPU, eagerly) a bad label.

    Example:
        Two classes have the centres +10 and -10 on one axis; 8 is 2 away from the first:

        >>> loss = MaxMahalanobisCenterLoss(num_classes=2, dim=1)
        >>> loss(torch.tensor([[8.0]]), torch.tensor([0]))
        tensor(2.)
        >>> loss.logits(torch.tensor([[8.0]]))
        tensor([[  -4., -324.]])

    Reference:
        Pang et al. 2020, "Rethinking Softmax Cross-Entropy Loss for Adversarial Robustness", Eq. 8;
        mixing paper, Eq. 5, where the square is lost in print.
    """

    centers: Tensor
    weight: Tensor | None

    def __init__(
        self,
        num_classes: int,
        dim: int,
        scale: float = 10.0,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        for name, value, least in (("num_classes", num_classes, 1), ("dim", dim, 1)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} must be an int; got {value!r}.")
            if value < least:
                raise ValueError(f"{name} must be >= {least}; got {value}.")
        if dim < num_classes - 1:
            raise ValueError(
                f"dim must be >= num_classes - 1 = {num_classes - 1} for optimal centres; "
                f"got {dim}."
            )
        check_number("scale", scale, low=0, open_low=True)
        self.num_classes, self.dim, self.scale = num_classes, dim, scale
        self.ignore_index = ignore_index
        self.reduction: Reduction = reduction
        self.label_smoothing = label_smoothing
        self.register_buffer("weight", weight)
        self.register_buffer("centers", simplex_centers(num_classes, dim) * scale)
        if isinstance(weight, Tensor):
            self.to(weight.device)
        # Evaluate one row, so that a bad argument fails here and not at the first batch.
        device = self.centers.device
        self(torch.zeros(1, dim, device=device), torch.zeros(1, dtype=torch.int64, device=device))

    def _check_features(self, features: Tensor) -> Tensor:
        """The features as (N, dim, …)."""
        if not isinstance(features, Tensor) or not features.is_floating_point():
            got = features.dtype if isinstance(features, Tensor) else type(features).__name__
            raise TypeError(f"features must be a floating-point tensor; got {got}.")
        axis = min(CLASS_AXIS, features.ndim - 1)
        if features.ndim == 0 or features.shape[axis] != self.dim:
            raise ValueError(
                f"features must have dim = {self.dim} entries on axis {max(axis, 0)}; "
                f"got shape {tuple(features.shape)}."
            )
        return features.unsqueeze(0) if features.ndim == 1 else features

    def logits(self, features: Tensor) -> Tensor:
        """Score the classes: minus the squared distance to each centre, classes on axis 1."""
        rows = self._check_features(features)
        scores = self._negative_square_distance(rows).to(features.dtype)
        return scores.squeeze(0) if features.ndim == 1 else scores

    def _negative_square_distance(self, rows: Tensor) -> Tensor:
        # In float64 the expanded square does not cancel: one matrix product instead of N·C·dim. Nor
        # does autocast shorten it, in backward either.
        centers = self.centers.to(row_dtype(rows.device))
        last = rows.to(centers.dtype).movedim(CLASS_AXIS, -1)
        cross = last @ centers.T
        square = last.square().sum(-1, keepdim=True) + self.scale**2
        return (2 * cross - square).movedim(-1, CLASS_AXIS)

    def forward(self, features: Tensor, target: Tensor) -> Tensor:
        """Compute the loss of ``features`` and ``target``."""
        rows = self._check_features(features)
        # A stand-in of the logits' shape, without memory: the contract reads shapes only.
        shape = (rows.shape[0], self.num_classes, *rows.shape[2:])
        stand_in = rows.detach().new_zeros(()).expand(shape)
        batch = read_batch(
            stand_in[0] if features.ndim == 1 else stand_in,
            target,
            self.weight,
            self.ignore_index,
            self.reduction,
            self.label_smoothing,
        )
        if batch.kept is not None:
            rows = torch.where(batch.kept.unsqueeze(CLASS_AXIS), rows, 0)
        if batch.mass is not None:
            distance = -self._negative_square_distance(rows)
            return reduce_rows((batch.mass * distance).sum(CLASS_AXIS) * 0.5, batch)
        centers = self.centers.to(row_dtype(rows.device))[batch.labels].movedim(-1, CLASS_AXIS)
        return reduce_rows((rows - centers).square().sum(CLASS_AXIS) * 0.5, batch)

    def extra_repr(self) -> str:
        """Show the numbers."""
        return f"num_classes={self.num_classes}, dim={self.dim}, scale={self.scale}"
