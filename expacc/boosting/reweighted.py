"""Any classifier of scikit-learn that takes sample weights, trained on a loss of ours."""

import warnings
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    MetaEstimatorMixin,
    clone,
)
from sklearn.model_selection import check_cv
from sklearn.utils import _safe_indexing, column_or_1d, get_tags, indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import (
    _check_sample_weight,
    _num_samples,
    check_is_fitted,
    validate_data,
)

from expacc.boosting.bases import check_base
from expacc.boosting.weights import FARTHEST, Array, row_weights
from expacc.errors import check_number
from expacc.plain import UsageError, check_count

_LEAST = float(np.finfo(np.float64).tiny)


def _base_has(name: str) -> Any:
    """Is there such a method in what was fitted, or is to be?"""

    def check(classifier: "ReweightedClassifier") -> bool:
        fitted = getattr(classifier, "estimators_", None)
        getattr(fitted[-1] if fitted else classifier.base, name)
        return True

    return check


class ReweightedClassifier(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that is fitted again and again, with row weights that a loss renews.

    The first fit is that of ``base`` itself. Then each row weighs L'(-log p) of the probability p
    that its label was given, with mean 1: rows whose label the model does not believe count less.
    For a ``base`` that minimises weighted log-loss, no refit raises the loss on the training rows
    (iteratively reweighted fitting).

    Args:
        base: a classifier whose ``fit`` takes ``sample_weight`` and that has ``predict_proba``.
        loss: a name of ``expacc.boosting.weighting_losses()``, or a variant of it.
        loss_params: numbers of the loss; None for the usual ones.
        max_iter: refits at most.
        tol: stop when no weight moves by more.
        cv: where the probabilities of the training rows come from: None for the fitted model's own,
            which a forest or boosted trees make too good; a number of folds, or a splitter of
            scikit-learn, for those of models that did not see the row.

    Attributes:
        classes_: labels as given, sorted.
        estimators_: the first fit and every refit.
        estimator_: the last of them, which predicts.
        n_iter_: how many fits there were, the first among them.
        sample_weight_: of the last fit, one for each row; the given ones are in them.
        n_features_in_, feature_names_in_: as in scikit-learn.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.linear_model import LogisticRegression
        >>> X, y = load_iris(return_X_y=True)
        >>> base = LogisticRegression(max_iter=1000)
        >>> classifier = ReweightedClassifier(base, loss="leaky_expected_error").fit(X, y)
        >>> bool(classifier.score(X, y) > 0.95)
        True
    """

    def __init__(
        self,
        base: Any,
        loss: str = "expected_error",
        *,
        loss_params: dict[str, Any] | None = None,
        max_iter: int = 10,
        tol: float = 1e-3,
        cv: Any = None,
    ) -> None:
        self.base = base
        self.loss = loss
        self.loss_params = loss_params
        self.max_iter = max_iter
        self.tol = tol
        self.cv = cv

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit, and refit until the weights stay.

        Args:
            X: features, as ``base`` takes them.
            y: labels.
            sample_weight: of the rows; None for 1.

        Raises:
            TypeError: ``base`` does not take weights, or has no probabilities.
            ValueError: a loss that is not concave in -log p.
        """
        check_count("max_iter", self.max_iter)
        check_number("tol", self.tol, low=0)
        check_base(self.base)
        if y is None:
            raise UsageError(
                "y must be given: ReweightedClassifier requires y to be passed, but the target y "
                "is None."
            )
        validate_data(self, X, y, skip_check_array=True)
        y = column_or_1d(y, warn=True)
        rows = _num_samples(X)
        given = None
        if sample_weight is not None:
            given = _check_sample_weight(
                sample_weight, np.empty((rows, 1)), dtype=np.float64, ensure_non_negative=True
            )
        found = [_fitted(self.base, X, y, given)]
        classes = found[0].classes_
        codes = np.searchsorted(classes, y)
        weights = row_weights(self.loss, max(2, len(classes)), self.loss_params or {})
        share = None if given is None else torch.from_numpy(given)
        known = torch.ones(rows, dtype=torch.float64)
        while len(found) <= self.max_iter:
            total = known.numpy() if given is None else known.numpy() * given
            leads = self._leads(found[-1], X, y, codes, total)
            renewed = weights.renewed(torch.from_numpy(leads), share)
            if bool((renewed - known).abs().max() <= self.tol) or not bool(renewed.any()):
                break
            known = renewed
            total = known.numpy() if given is None else known.numpy() * given
            found.append(_fitted(self.base, X, y, total))
        self.estimators_, self.estimator_ = found, found[-1]
        self.classes_, self.n_iter_ = classes, len(found)
        self.sample_weight_ = known.numpy() if given is None else known.numpy() * given
        return self

    def _leads(
        self, fitted: Any, features: Any, labels: Any, codes: NDArray[np.int64], weight: Array
    ) -> Array:
        """log p/(1 - p) of each training row's label."""
        if self.cv is None:
            return _leads_of(fitted, features, codes)
        found = np.empty(len(codes))
        features, labels = indexable(features, labels)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of classes rarer than folds: see below
            splits = list(check_cv(self.cv, codes, classifier=True).split(features, codes))
        for train, test in splits:
            own = _fitted(
                self.base,
                _safe_indexing(features, train),
                _safe_indexing(labels, train),
                weight[train],
            )
            # A class that these rows lack gets no chance: its row there would be the last.
            place = np.searchsorted(own.classes_, fitted.classes_[codes[test]])
            place = np.minimum(place, len(own.classes_) - 1)
            lacking = own.classes_[place] != fitted.classes_[codes[test]]
            leads = _leads_of(own, _safe_indexing(features, test), place)
            found[test] = np.where(lacking, -FARTHEST, leads)
        return found

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of each row, (n)."""
        found: NDArray[Any] = self._fitted_to(X).predict(X)
        return found

    def predict_proba(self, X: Any) -> Array:
        """Probabilities (n, C), as the last refit has them."""
        found: Array = self._fitted_to(X).predict_proba(X)
        return found

    @available_if(_base_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Array:
        """Scores, as the last refit has them."""
        found: Array = self._fitted_to(X).decision_function(X)
        return found

    def _fitted_to(self, features: Any) -> Any:
        check_is_fitted(self, "estimator_")
        if getattr(features, "ndim", 2) == 2:  # what is none, the base tells better
            validate_data(self, features, reset=False, skip_check_array=True)
        return self.estimator_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.base).input_tags
        return tags


def _fitted(base: Any, features: Any, labels: Any, weight: Array | None) -> Any:
    more = {} if weight is None else {"sample_weight": weight}
    return clone(base).fit(features, labels, **more)


def _leads_of(fitted: Any, features: Any, codes: NDArray[np.int64]) -> Array:
    """log p/(1 - p) of the classes at ``codes``, the other classes' probabilities added up."""
    chances = np.array(fitted.predict_proba(features), np.float64)  # a copy of our own
    place = np.arange(len(codes)), codes
    own = chances[place]
    chances[place] = 0.0
    found: Array = np.log(np.maximum(own, _LEAST)) - np.log(np.maximum(chances.sum(1), _LEAST))
    return found
