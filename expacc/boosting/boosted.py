"""Boosted trees of LightGBM or XGBoost, trained on a loss of ours, and stopped in time."""

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from expacc.boosting.objectives import BoostingObjective
from expacc.boosting.weights import Array
from expacc.data import holdout
from expacc.errors import check_number
from expacc.estimator.calibration import Calibration
from expacc.plain import UsageError, check_choice, check_count

LIBRARIES = ("lightgbm", "xgboost")
Codes = NDArray[np.int64]


def best_round(accuracy: Sequence[float], loss: Sequence[float]) -> int:
    """The round, from 1, with the highest accuracy on held-out rows; of equals that of least loss.

    >>> best_round([0.5, 0.9, 0.9, 0.8], [1.0, 0.4, 0.3, 0.2])
    3
    """
    return 1 + max(range(len(accuracy)), key=lambda place: (accuracy[place], -loss[place]))


class BoostedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Boosted trees on a named loss, with safe curvature; LightGBM or XGBoost grows the trees.

    Scores begin at the log of the classes' shares. A part of the training rows is held out, and the
    number of rounds is the best on it, whatever the loss. Missing values are the trees' business.

    Args:
        library: 'lightgbm' or 'xgboost'.
        loss: a name of ``expacc.boosting.weighting_losses()``, or a variant of it.
        loss_params: numbers of the loss; None for the usual ones.
        n_estimators: rounds at most; a round is a tree a class, or one for two classes.
        learning_rate: of a round, > 0.
        max_leaves: of a tree.
        validation_fraction: part of the training rows that is held out to choose the rounds; None
            for no choice: all rounds, on all rows.
        n_iter_no_change: rounds without a better one before training stops; None for never.
        params: more of the library's own, such as {'min_data_in_leaf': 5}.
        random_state: seeds the rows that are held out and the library; None is a fixed seed.
        n_jobs: threads; None for the library's choice.

    Attributes:
        classes_: labels as given, sorted.
        booster_: of the library, without the scores that it began with.
        prior_: the log of the classes' shares.
        rounds_: how many were trained.
        n_iter_: how many predict.
        validation_accuracy_, validation_loss_: after each round, on the rows held out; the loss is
            cross entropy.
        temperature_, bend_: of ``predict_proba``, as those of ``AccuracyClassifier``; 1 leaves the
            softmax of the scores.
        best_params_: the loss and the number of rounds.
        n_features_in_, feature_names_in_: as in scikit-learn.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> classifier = BoostedClassifier("lightgbm", "expected_error").fit(X, y)
        >>> bool(classifier.score(X, y) > 0.9)
        True
    """

    def __init__(
        self,
        library: str = "lightgbm",
        loss: str = "expected_error",
        *,
        loss_params: dict[str, Any] | None = None,
        n_estimators: int = 200,
        learning_rate: float = 0.1,
        max_leaves: int = 31,
        validation_fraction: float | None = 0.2,
        n_iter_no_change: int | None = 30,
        params: dict[str, Any] | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.library = library
        self.loss = loss
        self.loss_params = loss_params
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.max_leaves = max_leaves
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.params = params
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, eval_set: Any = None) -> Self:
        """Fit to features (n, F) and labels of any kind.

        Args:
            X: numbers; NaN is a missing one.
            y: labels.
            sample_weight: of the rows; None for 1.
            eval_set: (features, labels) to choose the rounds on, in place of a part of the rows.

        Raises:
            ImportError: the library is not installed.
            ValueError: a parameter out of its range, or a loss that is not concave in -log p.
        """
        self._check()
        if y is None:
            raise UsageError(
                "y must be given: BoostedClassifier requires y to be passed, but the target y is "
                "None."
            )
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_all_finite="allow-nan")
        check_classification_targets(y)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        classes, codes = np.unique(y, return_inverse=True)
        present = np.unique(codes[weight > 0])
        if len(present) < 2:
            raise UsageError(
                "y must hold at least two classes among the rows of positive weight; got one "
                f"class, {classes[present[0] if len(present) else 0]!r}."
            )
        seed = int(check_random_state(self.random_state or 0).randint(1 << 31))
        train, held = np.arange(len(y)), None
        if eval_set is not None:
            other = validate_data(
                self, eval_set[0], reset=False, dtype=np.float64, ensure_all_finite="allow-nan"
            )
            # A label that is no class here is one that no prediction meets.
            place = np.minimum(np.searchsorted(classes, eval_set[1]), len(classes) - 1)
            known = classes[place] == np.asarray(eval_set[1])
            held = other, np.where(known, place, -1), np.ones(len(other))
        elif self.validation_fraction is not None:
            split = next(iter(holdout(codes, self.validation_fraction, seed=seed, name="rounds")))
            inside = np.unique(codes[split.train][weight[split.train] > 0])
            if len(split.test) and len(inside) > 1:  # else too few rows to spare any
                train = split.train
                held = X[split.test], codes[split.test], weight[split.test]
        self.classes_ = classes
        self._grow(X[train], codes[train], weight[train], held, seed)
        return self

    def _check(self) -> None:
        check_choice("library", self.library, LIBRARIES)
        check_count("n_estimators", self.n_estimators)
        check_number("learning_rate", self.learning_rate, low=0, open_low=True)
        check_count("max_leaves", self.max_leaves, low=2)
        if self.validation_fraction is not None:
            check_number(
                "validation_fraction",
                self.validation_fraction,
                low=0,
                high=1,
                open_low=True,
                open_high=True,
            )
        if self.n_iter_no_change is not None:
            check_count("n_iter_no_change", self.n_iter_no_change)

    def _grow(self, features: Array, codes: Codes, weight: Array, held: Any, seed: int) -> None:
        count = len(self.classes_)
        objective = BoostingObjective(
            self.loss, count, self.library, None, dict(self.loss_params or {})
        )
        # A class whose rows all have weight 0 is there, and next to impossible.
        shares = np.bincount(codes, weight, minlength=count) / weight.sum()
        self.prior_ = np.log(np.where(shares > 0, shares, 1e-9))
        trees = _TREES[self.library](self._library_params(count, len(codes), seed), objective)
        trees.begin(features, codes, weight, self._start(len(codes)))
        accuracy: list[float] = []
        loss: list[float] = []
        scores = None if held is None else np.tile(self.prior_, (len(held[0]), 1))
        self.rounds_, best = 0, 0
        while self.rounds_ < self.n_estimators and trees.round(self.rounds_):
            self.rounds_ += 1
            if scores is None or held is None:
                continue
            made = trees.scores(held[0], self.rounds_ - 1, self.rounds_)
            scores += _both(made)
            right = (scores.argmax(1) == held[1]).astype(np.float64)
            chance = log_softmax(scores, axis=1)[np.arange(len(right)), held[1]]
            chance = np.where(held[1] < 0, np.log(1e-15), chance)
            accuracy.append(float(np.average(right, weights=_some(held[2]))))
            loss.append(float(-np.average(chance, weights=_some(held[2]))))
            best = best_round(accuracy, loss)
            if self.n_iter_no_change is not None and self.rounds_ - best >= self.n_iter_no_change:
                break
        self.n_iter_ = best or self.rounds_
        self.validation_accuracy_, self.validation_loss_ = np.array(accuracy), np.array(loss)
        self.booster_ = trees.booster
        self.temperature_, self.bend_ = 1.0, 1.0
        self.best_params_ = {"loss": self.loss, "rounds": self.n_iter_}

    def _library_params(self, count: int, rows: int, seed: int) -> dict[str, Any]:
        found = _TREES[self.library].params_of(self, count, rows) | {"seed": seed}
        if self.n_jobs is not None:
            found["nthread"] = self.n_jobs
        return {**found, **(self.params or {})}

    def _start(self, rows: int) -> Array:
        """The scores that training begins with: (n, K), or (n, 1) for two classes."""
        prior = self.prior_[1:] - self.prior_[:1] if len(self.prior_) == 2 else self.prior_
        found: Array = np.tile(prior, (rows, 1))
        return found

    def logits(self, X: Any, rounds: int | None = None) -> Array:
        """Scores (n, C) after so many rounds; None for the best number of them."""
        check_is_fitted(self, "booster_")
        X = validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite="allow-nan")
        found: Array = self.prior_ + _both(
            _TREES[self.library].scores_of(self.booster_, X, 0, rounds or self.n_iter_)
        )
        return found

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of each row, (n)."""
        logits = self.logits(X)
        found: NDArray[Any] = self.classes_[logits.argmax(1)]
        return found

    def predict_proba(self, X: Any) -> Array:
        """Probabilities (n, C); the prediction is always the class of the largest."""
        logits = self.logits(X)
        return Calibration(self.temperature_, self.bend_).probabilities(logits)

    def save(self, folder: str | Path) -> Path:
        """Write to a folder: the library's own text of its trees and JSON, no pickle."""
        from expacc.boosting.saving import write_folder

        check_is_fitted(self, "booster_")
        return write_folder(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path) -> "BoostedClassifier":
        """A classifier that ``save`` wrote; it predicts, and knows of its training what it says.

        Raises:
            ImportError: the library is not installed.
            ValueError: the folder is no saved classifier, or a file of it was changed.
        """
        from expacc.boosting.saving import build, read_files

        return build(Path(folder), read_files(Path(folder)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _both(scores: Array) -> Array:
    """One margin of two classes as two."""
    return np.hstack([np.zeros_like(scores), scores]) if scores.shape[1] == 1 else scores


def _some(weight: Array) -> Array:
    """Weights to average with, where none may be positive."""
    return weight if weight.any() else np.ones_like(weight)


def import_library(name: str) -> Any:
    """LightGBM or XGBoost, or a sentence on how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if error.name != name:
            raise
        raise ImportError(
            f"model {name} needs the package {name}, which is not installed. "
            "Try: pip install 'expacc[boosting]'",
            name=name,
        ) from None


class _LightGBM:
    """Rounds of LightGBM, one at a time."""

    def __init__(self, params: Mapping[str, Any], objective: BoostingObjective) -> None:
        self.library = import_library("lightgbm")
        self.params, self.objective = dict(params), objective

    @staticmethod
    def params_of(classifier: BoostedClassifier, count: int, rows: int) -> dict[str, Any]:
        return {
            "objective": "none",
            "num_class": 1 if count == 2 else count,
            "learning_rate": classifier.learning_rate,
            "num_leaves": classifier.max_leaves,
            "min_data_in_leaf": min(20, max(1, rows // 20)),  # 20 is usual
            "verbose": -1,
            "deterministic": True,
            "force_col_wise": True,  # which else is chosen by time
            "feature_pre_filter": False,  # or a table where nothing can be split is an error
        }

    def begin(self, features: Array, codes: Codes, weight: Array, start: Array) -> None:
        data = self.library.Dataset(
            features, codes, weight=weight, init_score=start.ravel("F"), params=self.params
        )
        self.booster = self.library.Booster(self.params, data)

    def round(self, number: int) -> bool:
        """Add a round; False where no tree can grow."""
        done: bool = self.booster.update(fobj=self.objective)
        return not done

    def scores(self, features: Array, first: int, last: int) -> Array:
        return self.scores_of(self.booster, features, first, last)

    @staticmethod
    def scores_of(booster: Any, features: Array, first: int, last: int) -> Array:
        found: Array = booster.predict(
            features, raw_score=True, start_iteration=first, num_iteration=last - first
        )
        return found.reshape(len(features), -1)


class _XGBoost:
    """Rounds of XGBoost, one at a time."""

    def __init__(self, params: Mapping[str, Any], objective: BoostingObjective) -> None:
        self.library = import_library("xgboost")
        self.params, self.objective = dict(params), objective

    @staticmethod
    def params_of(classifier: BoostedClassifier, count: int, rows: int) -> dict[str, Any]:
        kind = {"objective": "binary:logistic"}
        if count > 2:
            kind = {"objective": "multi:softprob", "num_class": count}  # type: ignore[dict-item]
        return {
            **kind,
            "base_score": 0.5,  # a margin of 0, or the same for all classes
            "learning_rate": classifier.learning_rate,
            "max_leaves": classifier.max_leaves,
            "max_depth": 0,
            "grow_policy": "lossguide",
            "tree_method": "hist",
            "verbosity": 0,
        }

    def begin(self, features: Array, codes: Codes, weight: Array, start: Array) -> None:
        margin = start[:, 0] if start.shape[1] == 1 else start
        self.data = self.library.DMatrix(features, codes, weight=weight, base_margin=margin)
        self.booster = self.library.Booster(self.params, [self.data])

    def round(self, number: int) -> bool:
        """Add a round."""
        self.booster.update(self.data, number, fobj=self.objective)
        return True

    def scores(self, features: Array, first: int, last: int) -> Array:
        return self.scores_of(self.booster, features, first, last)

    @staticmethod
    def scores_of(booster: Any, features: Array, first: int, last: int) -> Array:
        library = import_library("xgboost")
        found: Array = booster.predict(
            library.DMatrix(features), output_margin=True, iteration_range=(first, last)
        )
        return found.astype(np.float64).reshape(len(features), -1)


_TREES: Mapping[str, Any] = {"lightgbm": _LightGBM, "xgboost": _XGBoost}
