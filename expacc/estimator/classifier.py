"""Classifiers trained for their accuracy, in the manner of scikit-learn."""

import copy
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import check_cv
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import nn

from expacc.errors import check_choice, check_count, check_number
from expacc.estimator.calibration import Calibration
from expacc.estimator.categories import (
    Levels,
    as_numbers,
    category_mask,
    values_of_categories,
)
from expacc.estimator.committee import Committee, committee_module
from expacc.estimator.fitting import (
    START,
    FitConfig,
    Setting,
    fit_model,
    one_thread_if_small,
    settings_for,
)
from expacc.estimator.inputs import (
    Array,
    Prepared,
    content_folds,
    prepare,
    read_features,
    read_splits,
    read_training,
)
from expacc.estimator.renamed import UNUSED, Renamed
from expacc.estimator.saving import (
    cv_results,
    read_folder,
    write_folder,
)
from expacc.estimator.voting import fit_committee, networks_vote
from expacc.plain import UsageError
from expacc.training import Layer, Trained

LINEAR_LOSS = "leaky_expected_error"  # of a linear model by default, the best over many tables


class AccuracyClassifier(Renamed, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Small networks that vote, one network of ReLU layers or a linear one, trained for accuracy.

    By itself ``fit`` trains many small networks at once, lines among them, each on other rows;
    held-out rows say when each kind is to stop, and the best kinds vote. Missing values and
    categories are welcome then. With ``effort='fast'``, layers of your own, or a ``loss`` or
    another parameter of one model's training, it starts from scikit-learn's logistic regression (a
    network: from one trained on cross entropy), trains on from there with ``loss``, and keeps the
    result if held-out rows show that it helped. Features are scaled inside.

    Args:
        loss: of one model: 'auto' for the leaky expected error, a name of
            ``expacc.training.LOSS_NAMES``, a loss Module, or any callable of (logits, target).
            'cross_entropy' gives the start itself.
        hidden_layer_sizes: 'auto' for networks that vote, or the linear model where ``effort`` is
            'fast' or something of one model's training is set; () for a linear model; or widths.
        epochs: of training on from the start; 'auto' for 60 full-batch steps on small data, 300
            steps on larger.
        learning_rate: of Adam, > 0, falling to a twentieth; 'auto' is 0.1.
        loss_params: of the loss, e.g. {'leak': 0.1}; None tries a few.
        weight_decay: L2 on the weights, in units of one row's loss; 'exact' and 'expected_error',
            whose slopes are small, take a tenth.
        batch_size: 'auto' for full batches up to 4,096 rows (128 for networks), 1,024 beyond.
        dropout: share of hidden units dropped in training.
        guard: keep the start unless held-out rows show a gain beyond a standard error.
        calibrate: calibrate ``predict_proba`` on held-out rows. The prediction is always
            the class of the largest probability.
        cv: how many folds, for choosing and for calibrating (of a linear model of more than 4,096
            different rows one is held out); None for 4, or 5 where networks vote; or a splitter of
            scikit-learn, or pairs of row numbers, that hold out every row once.
        class_weight: None, 'balanced' (accuracy then means balanced accuracy) or a dict.
        random_state: seeds the folds and a network's weights; None is a fixed seed.
        device: where to train; predictions are made on the CPU.
        progress: show a bar for fits of over two seconds.
        effort: 'full', or 'fast' for a linear model.
        categorical_features: where networks vote, columns that are categories: 'from_dtype' for a
            data frame's, None, names, column numbers or a mask.
        hidden, folds, numbers: old names of hidden_layer_sizes, cv and loss_params.

    Attributes:
        classes_: labels as given, sorted.
        label_probability_: of networks that vote, for every row of ``fit`` the probability of its
            label by those that did not see it; NaN for a row of weight 0.
        label_noise_: of networks that vote, the share of wrong labels as far as held-out rows tell:
            how many they contradict of the half of the rows that they are most sure of.
        suspect_rows_: rows whose label these contradict, the most doubtful first.
        n_features_in_, feature_names_in_: as in scikit-learn.
        best_params_: the setting that was kept, or {'loss': 'cross_entropy'} for the start.
        cv_results_: of the start and of each setting tried 'params', 'mean_test_score' (accuracy
            on held-out rows) and 'rank_test_score', as in scikit-learn's searches.
        temperature_, bend_: of ``predict_proba``: exp(-(gap / temperature) ** bend), normalised.
        coef_, intercept_: of a linear model, (C, F) and (C); for two classes (1, F) and (1), of
            the lead of the second over the first.
        n_iter_: of the model that was kept: the start's iterations (a network's epochs), and the
            epochs that it was trained on from there.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> classifier = AccuracyClassifier().fit(X, y)
        >>> bool(classifier.score(X, y) > 0.95)
        True
    """

    def __init__(
        self,
        loss: Any = "auto",
        hidden_layer_sizes: Any = "auto",
        epochs: int | str = "auto",
        learning_rate: float | str = "auto",
        *,
        loss_params: dict[str, Any] | None = None,
        weight_decay: float = 1.0,
        batch_size: int | str = "auto",
        dropout: float = 0.0,
        guard: bool = True,
        calibrate: bool = True,
        cv: Any = None,
        class_weight: Any = None,
        random_state: Any = None,
        device: str = "cpu",
        progress: bool = False,
        effort: str = "full",
        categorical_features: Any = "from_dtype",
        hidden: Any = UNUSED,
        folds: Any = UNUSED,
        numbers: Any = UNUSED,
    ) -> None:
        self.loss = loss
        self.hidden_layer_sizes = hidden_layer_sizes
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.loss_params = loss_params
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.dropout = dropout
        self.guard = guard
        self.calibrate = calibrate
        self.cv = cv
        self.class_weight = class_weight
        self.random_state = random_state
        self.device = device
        self.progress = progress
        self.effort = effort
        self.categorical_features = categorical_features
        self.hidden = hidden
        self.folds = folds
        self.numbers = numbers

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to features (n, F) and labels of any kind; a row of weight k is k copies of it.

        A fit that ends in an error or by Ctrl-C changes nothing: what was fitted before stays.
        """
        # On a copy, whose attributes become ours in one instruction once they are complete.
        fresh = copy.copy(self)
        fresh._fit(X, y, sample_weight)
        self.__dict__ = fresh.__dict__
        return self

    _may_vote = True
    committee_: Committee | None = None  # one of these two is had by who is fitted
    layers_: list[tuple[Array, Array]] | None
    _levels: Mapping[int, Levels] = MappingProxyType({})

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        config, votes = self._config(), self._votes()
        self._levels = {}
        if votes:
            self._levels = values_of_categories(X, self.categorical_features)
            X = as_numbers(X, self._levels)
        features, self.classes_, codes, weight = read_training(
            self, X, y, sample_weight, gaps=votes
        )
        classes, seed = len(self.classes_), 0
        if self.random_state is not None:
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        fold = None
        if not isinstance(config.folds, int):
            splits = check_cv(config.folds, codes, classifier=True).split(features, codes)
            fold = read_splits(splits, len(codes))
        if votes:
            gaps = np.isnan(features)
            if gaps.any():  # of one kind, in a copy
                features = np.where(gaps, np.nan, features)
            prepared = prepare(features, codes, weight, seed, fold)
            folds = content_folds(prepared, config.folds)
            names = getattr(self, "feature_names_in_", None)
            categorical = category_mask(
                self.categorical_features,
                None if names is None else list(names),
                self.n_features_in_,
            )
            categorical[list(self._levels)] = True
            if folds:
                return self._fit_committee(prepared, folds, codes, categorical, seed)
            features = np.nan_to_num(features)  # too few rows to hold any out
        config = replace(config, settings=self._settings(classes), classes=classes, seed=seed)
        fitted = fit_model(prepare(features, codes, weight, seed, fold), config)
        self.committee_ = None
        self.layers_ = [
            (layer.weight.cpu().numpy(), layer.bias.cpu().numpy()) for layer in fitted.model.layers
        ]
        self.temperature_ = fitted.calibration.temperature
        self.bend_ = fitted.calibration.bend
        self.n_iter_ = fitted.iterations
        self.cv_results_ = cv_results(fitted.held_out)
        self.best_params_ = dict(START) if fitted.chosen is None else fitted.chosen.describe()

    def __sklearn_tags__(self) -> Any:
        """Sparse matrices are welcome; missing values where networks vote."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self._votes()
        return tags

    def _votes(self) -> bool:
        """Whether networks vote: by default, if nothing of one model's training is set."""
        return self._may_vote and networks_vote(lambda name: self._value(name, warn=False))

    def _fit_committee(
        self,
        prepared: Prepared,
        folds: list[tuple[NDArray[np.int64], ...]],
        codes: NDArray[np.int64],
        categorical: NDArray[np.bool_],
        seed: int,
    ) -> None:
        options: dict[str, Any] = {"device": self.device, "progress": self.progress}
        with one_thread_if_small(prepared):
            classes = len(self.classes_)
            found = fit_committee(prepared, folds, classes, categorical, seed=seed, **options)
        calibration = found.calibration if self.calibrate else Calibration()
        self.committee_ = found.committee
        self.layers_ = None
        self.temperature_, self.bend_ = calibration.temperature, calibration.bend
        self.cv_results_ = cv_results(found.held_out)
        best = int(np.argmax(self.cv_results_["mean_test_score"]))
        self.best_params_ = dict(self.cv_results_["params"][best])
        chances = np.concatenate(
            [calibration.probabilities(found.logits), np.full((1, len(self.classes_)), np.nan)]
        )
        own = chances[prepared.place]  # -1, the last, for rows that do not count
        self.label_probability_ = own[np.arange(len(codes)), codes]
        wrong, sure = own.argmax(axis=1) != codes, own.max(axis=1)
        self.label_noise_ = float(wrong[sure >= np.nanmedian(sure)].mean())
        doubted = np.flatnonzero(wrong & (prepared.place >= 0))
        self.suspect_rows_ = doubted[np.argsort(self.label_probability_[doubted], kind="stable")]

    def _settings(self, classes: int) -> tuple[Setting, ...]:
        params = self._value("loss_params")
        loss = LINEAR_LOSS if isinstance(self.loss, str) and self.loss == "auto" else self.loss
        if isinstance(loss, str) and loss == "cross_entropy" and not params:
            return ()
        return settings_for(loss, params, self.learning_rate, self.weight_decay, classes)

    def _config(self) -> FitConfig:
        """All but what the data decides, checked."""
        hidden, cv = self._value("hidden_layer_sizes"), self._value("cv")
        cv = (5 if self._votes() else 4) if cv is None else cv
        check_choice("effort", self.effort, ("full", "fast"))
        if isinstance(hidden, str) and (hidden != "auto" or not self._may_vote):
            also = " or 'auto'" if self._may_vote else ""
            raise UsageError(f"hidden_layer_sizes must be widths{also}; got {hidden!r}.")
        for name in ("epochs", "batch_size"):
            if getattr(self, name) != "auto":
                check_count(name, getattr(self, name))
        hidden = () if isinstance(hidden, str) else hidden
        hidden = (hidden,) if isinstance(hidden, int) else tuple(hidden)
        for width in hidden:
            check_count("hidden_layer_sizes", width)
        if self.learning_rate != "auto":
            check_number("learning_rate", self.learning_rate, low=0, open_low=True)
        check_number("weight_decay", self.weight_decay, low=0)
        check_number("dropout", self.dropout, low=0, high=1, open_high=True)
        if not hasattr(cv, "split") and not isinstance(cv, Iterable):
            check_count("cv", cv)
        for name in ("guard", "calibrate", "progress"):
            check_choice(name, getattr(self, name), (True, False))
        same = ("dropout", "epochs", "batch_size", "guard", "calibrate", "device", "progress")
        return FitConfig(hidden=hidden, folds=cv, **{name: getattr(self, name) for name in same})

    @property
    def coef_(self) -> Array:
        """Weights of a linear model, (C, F); for two classes (1, F)."""
        return self._linear(0)

    @property
    def intercept_(self) -> Array:
        """Biases of a linear model, (C); for two classes (1)."""
        return self._linear(1)

    def _linear(self, part: int) -> Array:
        check_is_fitted(self, "classes_")
        if self.layers_ is None or len(self.layers_) > 1:
            raise AttributeError(
                "coef_ and intercept_ belong to a linear model; this has layers. "
                "Use effort='fast' or hidden_layer_sizes=()."
            )
        found: Array = self.layers_[0][part]
        return found if len(found) > 2 else found[1:] - found[:1]

    def _logits(self, X: Any) -> Array:
        check_is_fitted(self, "classes_")
        if self.committee_ is not None:
            features = read_features(self, as_numbers(X, self._levels), gaps=True)
            return self.committee_.log_probabilities(features)
        signal = read_features(self, X)
        with np.errstate(over="ignore", invalid="ignore"):  # asked about below
            for index, (weight, bias) in enumerate(self.layers_ or ()):
                signal = np.maximum(signal, 0) if index else signal
                signal = signal @ weight.T + bias
        # The largest of NaN is the first class, and of inf any: no row may get a label by that.
        bad = ~np.isfinite(signal).all(axis=1)
        if bad.any():
            row = int(bad.argmax())
            raise UsageError(
                f"X must give finite logits; got {signal[row][~np.isfinite(signal[row])][0]} at "
                f"row {row}, one of {bad.sum()}. Its features are too large for the weights, or "
                "the weights are not finite."
            )
        return signal

    def decision_function(self, X: Any) -> Array:
        """Logits (n, C); for two classes the lead of the second over the first, (n)."""
        logits = self._logits(X)
        if len(self.classes_) > 2:
            return logits
        with np.errstate(over="ignore"):  # a lead beyond the largest number is that number
            lead: Array = np.nan_to_num(logits[:, 1] - logits[:, 0])
        return lead

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely class of each row."""
        logits = self._logits(X)
        if len(self.classes_) == 2:  # level rows as decision_function > 0 has them
            best = (logits[:, 1] > logits[:, 0]).astype(np.int64)
        else:
            best = logits.argmax(axis=1)
        labels: NDArray[Any] = self.classes_[best]
        return labels

    def predict_proba(self, X: Any) -> Array:
        """Calibrated probabilities (n, C), in the order of ``classes_``."""
        logits = self._logits(X)  # it says so if nothing was fitted
        return Calibration(self.temperature_, self.bend_).probabilities(logits)

    def predict_log_proba(self, X: Any) -> Array:
        """Their logarithms."""
        with np.errstate(divide="ignore"):
            logs: Array = np.log(self.predict_proba(X))
        return logs

    def to_torch(self, dtype: torch.dtype = torch.float32) -> nn.Module:
        """One Module from features as given to logits; argmax indexes ``classes_``.

        Of a single model it is a plain nn.Sequential. Categories of a data frame come as their
        numbers in sorted order.
        """
        check_is_fitted(self, "classes_")
        if self.committee_ is not None:
            return committee_module(self.committee_, dtype)
        layers = tuple(
            Layer(torch.tensor(weight, dtype=dtype), torch.tensor(bias, dtype=dtype))
            for weight, bias in self.layers_ or ()
        )
        return Trained(layers).module()

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the fitted classifier to a folder: safetensors and JSON, nothing that is run."""
        check_is_fitted(self, "classes_")
        return write_folder(self, Path(folder))

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Read what ``save`` wrote, checked before use.

        Raises:
            ValueError: a file that is missing, damaged, too large, or of another version.
        """
        found: Self = read_folder(cls, Path(folder))
        return found
