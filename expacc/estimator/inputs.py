"""What people hand to ``fit``, checked and brought into one order.

Identical rows are merged into one with the sum of their weights, and the rows are sorted by a hash
of what they hold. So a row of weight k is k copies of it, and the order of the rows means nothing:
by construction, not to within rounding. Folds belong to the rows, too.
"""

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from expacc.plain import UsageError

Array = NDArray[np.float64]
MOST_VALUES = 500_000_000  # 4 GB


@dataclass(frozen=True)
class Prepared:
    """Distinct rows: features (n, F), class numbers, weights > 0 and a hash of each, (n).

    ``place`` says of every row as given which of these it is; -1 for a row of weight 0.
    """

    features: Array
    codes: NDArray[np.int64]
    weight: Array
    draw: NDArray[np.uint64]  # a random order that belongs to the rows
    place: NDArray[np.int64]
    fold: NDArray[np.int64] | None = None  # where the user says which rows are held out together


def read_features(estimator: Any, features: Any, *, gaps: bool = False) -> Array:
    """Features to predict for, as float64, or a sentence; ``gaps`` allows missing values."""
    found: Array = _validated(estimator, features, reset=False, gaps=gaps)
    return found


def _validated(estimator: Any, features: Any, *labels: Any, reset: bool, gaps: bool = False) -> Any:
    """scikit-learn's checks, with a sentence of our own for text; a sparse matrix becomes dense."""
    how: Any = {"reset": reset, "dtype": np.float64, "accept_sparse": "csr"}
    how["ensure_all_finite"] = "allow-nan" if gaps else True
    try:
        found = validate_data(estimator, features, *labels, **how)
    except ValueError as refused:
        if "could not convert string to float" not in str(refused):
            raise
        column = _first_text_column(features)
        raise UsageError(
            f"X must hold numbers; {column} holds text. Encode it first, "
            "for instance with sklearn.preprocessing.OneHotEncoder."
        ) from refused
    if not labels:
        return _dense(found)
    return _dense(found[0]), found[1]


def _dense(features: Any) -> Array:
    if not sparse.issparse(features):
        return np.asarray(features)
    if math.prod(features.shape) > MOST_VALUES:
        raise UsageError(
            f"X must have at most {MOST_VALUES:,} values once it is dense, zeros and all; got "
            f"{features.shape[0]:,} × {features.shape[1]:,}. Select or hash columns first."
        )
    return np.asarray(features.toarray())


def _first_text_column(features: Any) -> str:
    table = np.asarray(features, dtype=object)
    names = [str(name) for name in getattr(features, "columns", range(table.shape[1]))]
    for place, name in enumerate(names):
        texts = [value for value in table[:, place] if isinstance(value, str | bytes)]
        try:
            np.array(texts, dtype=object).astype(np.float64)
        except (TypeError, ValueError):
            return f"column {name!r}"
    return "a column"


def read_training(
    estimator: Any, features: Any, labels: Any, sample_weight: Any, *, gaps: bool = False
) -> tuple[Array, NDArray[Any], NDArray[np.int64], Array]:
    """Features, classes, class numbers and weights of ``fit``'s arguments."""
    if labels is None:
        raise UsageError(
            f"y must be given: {type(estimator).__name__} requires y to be passed, but the target "
            "y is None."
        )
    checked, labels = _validated(estimator, features, labels, reset=True, gaps=gaps)
    with warnings.catch_warnings():
        # Many classes for few rows: refused below if it cannot be, else nobody's business.
        warnings.simplefilter("ignore", UserWarning)
        check_classification_targets(labels)
    weight = _check_sample_weight(
        sample_weight, checked, dtype=np.float64, ensure_non_negative=True
    )
    classes, codes = np.unique(labels, return_inverse=True)
    codes = codes.astype(np.int64)
    if estimator.class_weight is not None:
        factors = compute_class_weight(
            estimator.class_weight, classes=classes, y=labels, sample_weight=weight
        )
        weight = weight * factors[codes]
    present = np.unique(codes[weight > 0])
    if len(present) < 2:
        only = classes[present[0]] if len(present) else classes[0]
        raise UsageError(
            "y must hold at least two classes among the rows of positive weight; "
            f"got one class, {only!r}. There is nothing to tell apart."
        )
    if len(classes) == len(labels) > 2:
        raise UsageError(
            f"y must hold fewer classes than rows; got {len(classes)} classes in {len(labels)} "
            "rows. Is it a column of names or measurements?"
        )
    return checked, classes, codes, weight


def read_splits(splits: Iterable[tuple[Any, Any]], rows: int) -> NDArray[np.int64]:
    """The fold in which each row is held out, of splits as scikit-learn makes them."""
    fold = np.full(rows, -1)
    for place, (train, test) in enumerate(splits):
        if len(train) + len(test) != rows or (fold[test] >= 0).any():
            break
        fold[test] = place
    if (fold < 0).any():
        raise UsageError(
            "cv must hold out every row once and train on all others; got splits that do not. "
            "Use a number of folds, or KFold and its kin."
        )
    return fold


def prepare(
    features: Array,
    codes: NDArray[np.int64],
    weight: Array,
    seed: int,
    fold: NDArray[np.int64] | None = None,
) -> Prepared:
    """Merge identical rows (of one fold, if given), drop those of weight 0, and sort by hash."""
    kept = weight > 0
    fold = None if fold is None else fold[kept]
    features, codes, weight = features[kept] + 0.0, codes[kept], weight[kept]  # -0.0 becomes 0.0
    known = [codes] if fold is None else [codes, fold]
    digests = _hashes([*features.T, *(each.astype(np.float64) for each in known)], seed)
    draw, first, group = np.unique(digests, return_index=True, return_inverse=True)
    # Summed in sorted order of the parts, so that the sum does not depend on the rows' order.
    order = np.lexsort((weight, group))
    total = np.add.reduceat(weight[order], np.searchsorted(group[order], np.arange(len(draw))))
    place = np.full(len(kept), -1)
    place[kept] = group
    held = None if fold is None else fold[first]
    return Prepared(features[first], codes[first], total, draw, place, held)


def _hashes(columns: Sequence[Array], seed: int) -> NDArray[np.uint64]:
    """64 bits for each row, of all that it holds: equal rows have equal ones."""
    found = np.full(len(columns[0]), seed, np.uint64)
    for column in columns:
        # SplitMix64: every bit of the sum so far and of the next number enters every bit.
        found = (found + np.uint64(0x9E3779B97F4A7C15)) ^ np.ascontiguousarray(column).view(
            np.uint64
        )
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
            found ^= found >> np.uint64(shift)
            found *= np.uint64(factor)
    return found


def content_folds(prepared: Prepared, count: int) -> list[tuple[NDArray[np.int64], ...]]:
    """(training rows, held-out rows) per fold; stratified; a held-out part may lack a rare class.

    Fewer folds where there are few rows, none at all for fewer than four.
    """
    rows = len(prepared.codes)
    if prepared.fold is not None:
        fold = np.unique(prepared.fold, return_inverse=True)[1]
        count = int(fold.max()) + 1
        held = [fold == place for place in range(count)]
        return [(np.flatnonzero(~out), np.flatnonzero(out)) for out in held] if count > 1 else []
    count = min(count, rows // 2)
    if count < 2:
        return []
    fold = np.empty(rows, dtype=np.int64)
    begin = 0
    for code in np.unique(prepared.codes):
        members = np.flatnonzero(prepared.codes == code)  # in the order of their hashes
        fold[members] = (begin + np.arange(len(members))) % count
        begin += len(members)  # go on where the last class ended: folds of equal size
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(count)]
