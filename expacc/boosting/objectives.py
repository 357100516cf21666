"""Objectives for LightGBM and XGBoost: our losses as row-weighted log-loss, safely curved."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import logsigmoid

from expacc.boosting.weights import row_weights
from expacc.errors import check_number
from expacc.plain import check_choice, check_count

Array = NDArray[np.float64]
_LEAST = 1e-16  # of a second derivative: no leaf divides by 0


class BoostingObjective:
    """What LightGBM's or XGBoost's ``objective`` may be: gradients and safe second derivatives.

    A row of weight w = L'(-log p), all weights brought to mean 1, has the gradient w·(p_j - 1[j=y])
    and the second derivative w·K/(K - 1)·p_j·(1 - p_j), which is never negative. Where two classes
    have one margin, z, it is w·p·(1 - p): the same step of the difference of two.

    Args:
        loss: a name of ``expacc.boosting.weighting_losses()``, or a variant of it.
        classes: how many, at least 2.
        library: 'lightgbm' or 'xgboost': how flat margins are laid out.
        curvature: in place of K/(K - 1) with a margin a class; XGBoost's own softmax has 2.
        loss_params: numbers of the loss.
    """

    def __init__(
        self,
        loss: str,
        classes: int,
        library: str,
        curvature: float | None,
        loss_params: dict[str, Any],
    ) -> None:
        check_count("classes", classes, low=2)
        check_choice("library", library, ("lightgbm", "xgboost"))
        if curvature is not None:
            check_number("curvature", curvature, low=0, open_low=True)
        self.loss, self.classes, self.library = loss, classes, library
        self.curvature, self.loss_params = curvature, loss_params
        row_weights(loss, classes, loss_params)  # refused here, not in the middle of training
        self.__name__ = f"expacc_{loss}"  # XGBoost asks for it

    def __repr__(self) -> str:
        told = "".join(f", {name}={value!r}" for name, value in self.loss_params.items())
        return f"{self.library}_objective({self.loss!r}, classes={self.classes}{told})"

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> tuple[Any, Any]:
        """Gradient and second derivative, in the shape of the margins.

        Args:
            y_true: class numbers; or the margins, where ``y_pred`` is the library's data set, as
                ``train`` calls it.
            y_pred: raw margins, (n, K) or flat, (n) for two classes; or the data set.
            sample_weight: of the rows; None for 1.
        """
        if hasattr(y_pred, "get_label"):
            y_true, y_pred, sample_weight = y_pred.get_label(), y_true, y_pred.get_weight()
        margins = np.asarray(y_pred, np.float64)
        labels = self._labels(y_true)
        columns = self._columns(margins, len(labels))
        share = None
        if sample_weight is not None and len(sample_weight):
            share = _share(sample_weight, len(labels))
        found = self.of_margins(labels, columns, share)
        return tuple(self._as_given(part, margins) for part in found)  # type: ignore[return-value]

    def of_margins(self, labels: Any, margins: Array, share: Any = None) -> tuple[Array, Array]:
        """The same of class numbers (n), margins (n, K) or (n, 1), and weights (n) or None."""
        columns = margins.shape[1]
        scores, codes = torch.from_numpy(margins), torch.from_numpy(labels)
        if columns == 1:
            scores = torch.cat([torch.zeros_like(scores), scores], 1)
        log_probs = scores.log_softmax(1)
        own = codes.unsqueeze(1)
        # The label against its rivals, not against a sum that has it in: 1 - p keeps its digits.
        others = scores.scatter(1, own, -torch.inf).logsumexp(1)
        lead = scores.gather(1, own).squeeze(1) - others
        weights = row_weights(self.loss, self.classes, self.loss_params)
        lift = weights.renewed(lead, None if share is None else torch.from_numpy(share))
        if share is not None:
            lift = lift * torch.from_numpy(share)
        lift = lift.unsqueeze(1)
        probs = log_probs.exp()
        error = logsigmoid(-lead).exp().unsqueeze(1)  # 1 - p of the label
        rest = (1 - probs).scatter(1, own, error)
        slope = (probs * lift).scatter(1, own, -error * lift)
        factor = self.curvature or self.classes / (self.classes - 1)
        if columns == 1:
            slope, probs, rest = slope[:, 1:], probs[:, 1:], rest[:, 1:]
            factor = 1.0
        second = (probs * rest).mul_(lift).mul_(factor).clamp_(min=_LEAST)
        return slope.numpy(), second.numpy()

    def _labels(self, labels: Any) -> NDArray[np.int64]:
        given = np.asarray(labels, np.float64).ravel()
        codes = np.nan_to_num(given, nan=-1.0).astype(np.int64)
        if (
            not len(given)
            or (codes != given).any()
            or codes.min() < 0
            or codes.max() >= (self.classes)
        ):
            wrong = (codes != given) | (codes < 0) | (codes >= self.classes)
            bad = given[wrong][0] if len(given) else "none"
            raise ValueError(
                f"labels must be class numbers from 0 to {self.classes - 1}; got {bad}. "
                "classes= says how many there are."
            )
        return codes

    def _columns(self, margins: Array, rows: int) -> Array:
        """Margins as (n, K), or (n, 1) for the one margin of two classes."""
        count = margins.size // rows if margins.size % rows == 0 else 0
        if count != self.classes and not (count == 1 and self.classes == 2):
            raise ValueError(
                f"classes must be the number that is trained; got {self.classes} for margins of "
                f"shape {margins.shape} and {rows} rows. With lightgbm.train or xgboost.train also "
                "say num_class."
            )
        if margins.ndim == 1 and self.library == "lightgbm":
            margins = margins.reshape(count, rows).T  # before 4.0: class after class
        margins = np.ascontiguousarray(margins.reshape(rows, count))
        if not np.isfinite(margins).all():
            raise ValueError("margins must be finite; got some that are not. Lower learning_rate.")
        return margins

    def _as_given(self, found: Array, margins: Array) -> Array:
        if margins.ndim == 1 and self.library == "lightgbm":
            return found.T.ravel()
        if self.library == "xgboost" and not _takes_matrices():
            return found.ravel()
        return found.reshape(margins.shape)


def _takes_matrices() -> bool:
    """Does this XGBoost take gradients of shape (n, K)? It wants them since 2.1."""
    import xgboost

    return tuple(map(int, xgboost.__version__.split(".")[:2])) >= (2, 1)


def _share(weight: Any, rows: int) -> Array:
    share = np.ascontiguousarray(weight, np.float64).ravel()
    if len(share) != rows or not np.isfinite(share).all() or not (share >= 0).all():
        raise ValueError(
            f"sample_weight must hold a finite number >= 0 for each of {rows} rows; got others."
        )
    return share


def lightgbm_objective(
    loss: str = "expected_error",
    *,
    classes: int,
    curvature: float | None = None,
    **loss_params: Any,
) -> BoostingObjective:
    """Make a loss into an objective of LightGBM: of LGBMClassifier, or of ``lightgbm.train``.

    Scores begin at 0, not at the log of the classes' shares, as with every objective that is not
    LightGBM's own; ``init_score`` sets them, and must be added again to what is predicted.
    ``expacc.boosting.BoostedClassifier`` does both, and predicts classes and probabilities.

    Args:
        loss: a name of ``expacc.boosting.weighting_losses()``, or a variant of it, such as
            'generalized_cross_entropy:q=0.5'.
        classes: how many, at least 2.
        curvature: in place of the factor K/(K - 1) of the second derivative.
        **loss_params: numbers of the loss.

    Returns:
        A callable of (labels, margins, weights) and of (margins, data set); margins come flat or
        (n, K), and gradients go back alike.

    Raises:
        ValueError: an unknown loss, or one that is not concave in -log p.

    Example:
        >>> objective = lightgbm_objective("leaky_expected_error", classes=3, leak=0.2)
        >>> slope, second = objective(np.array([0, 2]), np.zeros((2, 3)))
        >>> slope.round(3).tolist()[0], second.round(3).tolist()[0]
        ([-0.667, 0.333, 0.333], [0.333, 0.333, 0.333])
    """
    return BoostingObjective(loss, classes, "lightgbm", curvature, loss_params)


def xgboost_objective(
    loss: str = "expected_error",
    *,
    classes: int,
    curvature: float | None = None,
    **loss_params: Any,
) -> BoostingObjective:
    """Make a loss into an objective of XGBoost: of XGBClassifier, or ``obj`` of ``xgboost.train``.

    Args:
        loss: a name of ``expacc.boosting.weighting_losses()``, or a variant of it.
        classes: how many, at least 2.
        curvature: in place of the factor K/(K - 1) of the second derivative; with 2 and cross
            entropy it is XGBoost's own multi:softprob.
        **loss_params: numbers of the loss.

    Returns:
        A callable of (labels, margins, sample_weight) and of (margins, DMatrix).

    Raises:
        ValueError: an unknown loss, or one that is not concave in -log p.

    Example:
        >>> objective = xgboost_objective("expected_error", classes=2)
        >>> objective
        xgboost_objective('expected_error', classes=2)
    """
    return BoostingObjective(loss, classes, "xgboost", curvature, loss_params)
