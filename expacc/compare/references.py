"""What is run beside the losses, on the same rows, and how any prediction is judged.

The references are scikit-learn's classifiers as they come, once a fold, and always saying the most
frequent class. They see what the losses see: the same training rows with the same wrong labels, and
the same features, which are numbers with the mean where one is missing, and a column of zeros and
ones for each level of a category, missing values among them. Trees get these columns too.
"""

import functools
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expacc.compare.kept import Kept, entry_of_row, row_of_entry
from expacc.compare.serialize import row_of, unpack_split, unpack_table
from expacc.data import SealedTest, TrainRows, derive_seed, open_split
from expacc.estimator.calibration import Calibration, expected_calibration_error
from expacc.report.words import FOREST, LOGISTIC, MAJORITY, NETWORKS, TREES
from expacc.runner.items import Shared, WorkItem
from expacc.runner.rows import Predictions, Row

Array = NDArray[np.float64]
Places = NDArray[np.int64]


def judge(
    logits: Any, calibration: Calibration, rows: Places, given: Places
) -> tuple[dict[str, float], Predictions]:
    """Metrics of logits, and what was predicted."""
    chance = calibration.probabilities(logits)
    predicted = logits.argmax(axis=1)
    right = predicted == given
    own = chance[np.arange(len(given)), given]
    recall = [right[given == code].mean() for code in np.unique(given)]
    metrics = {
        "accuracy": float(right.mean()),
        "balanced_accuracy": float(np.mean(recall)),
        "log_loss": float(-np.log(np.maximum(own, 1e-300)).mean()),
        "calibration_error": expected_calibration_error(chance, given),
    }
    predictions = Predictions(
        rows.astype(np.int32),
        predicted.astype(np.int32),
        chance.max(axis=1).astype(np.float32),
        own.astype(np.float32),
    )
    return metrics, predictions


class _Majority:
    """The shares of the classes among the training rows, whatever the features say."""

    def fit(self, features: Any, labels: Places) -> "_Majority":
        """Count."""
        self.classes_, counts = np.unique(labels, return_counts=True)
        self.shares = counts / len(labels)
        return self

    def predict_proba(self, features: Any) -> Array:
        """The same for every row."""
        return np.tile(self.shares, (len(features), 1))


def _logistic(labels: Places, seed: int) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression()


def _trees(labels: Places, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    # From 10,000 rows on it keeps a tenth for early stopping, in which each class must have a row.
    counts = np.unique(labels, return_counts=True)[1]
    rare = counts.min() < 2 or len(counts) > len(labels) // 10
    return HistGradientBoostingClassifier(
        random_state=seed, early_stopping=False if rare else "auto"
    )


def _forest(labels: Places, seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(random_state=seed)


def _networks(labels: Places, seed: int) -> Any:
    from expacc.estimator import AccuracyClassifier

    return AccuracyClassifier(random_state=seed)


_MAKERS: Mapping[str, Callable[[Places, int], Any]] = {
    MAJORITY: lambda labels, seed: _Majority(),
    LOGISTIC: _logistic,
    TREES: _trees,
    FOREST: _forest,
    NETWORKS: _networks,
}
NEVER = -1e9  # the logit of a class that a model gives no chance
LEAST = 1e-7  # of a probability: a forest of a hundred trees says 0 where it means few


def execute_references(item: WorkItem, shared: Shared) -> list[Row]:
    """Run what the item names; one row each, with a reason where one fails."""
    import sklearn.ensemble
    import sklearn.linear_model  # noqa: F401 # not in the time of the first one

    asked = item.payload
    table = unpack_table(asked["table"], shared)
    split = unpack_split(asked["table"], asked["fold"], shared)
    names = asked["references"]
    train, test, _ = open_split(
        table, split, methods=names, label_noise=asked["noise"], seed=asked["seed"]
    )
    given = np.asarray(table.target.codes)[test.rows]  # for the record, after the scoring
    kept, rows = Kept(item.kept), []
    for name in names:
        if entries := kept.get([name]):
            rows.append(row_of_entry(entries[0]))
            continue
        rows.append(_reference_row(item, name, train, test, given))
        kept.put({name: functools.partial(entry_of_row, rows[-1])})
    return rows


def _reference_row(
    item: WorkItem, name: str, train: TrainRows, test: SealedTest, given: Places
) -> Row:
    start = time.perf_counter()
    try:
        model, logits = _fit_and_score(item, name, train, test)
    except Exception as error:  # whatever scikit-learn says: the others go on
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        return row_of(item, "outside", name, 0, failure=reason)
    metrics, predictions = judge(logits, Calibration(), test.rows, given)
    said = model.classes_[model.predict_proba(train.features).argmax(axis=1)]
    metrics["train_accuracy"] = float((said == train.labels).mean())
    seconds = time.perf_counter() - start
    return row_of(
        item, "outside", name, 0, metrics=metrics, predictions=predictions, seconds=seconds
    )


def _fit_and_score(
    item: WorkItem, name: str, train: TrainRows, test: SealedTest
) -> tuple[Any, Array]:
    """The fitted model, and log probabilities of the test rows for all classes of the table."""
    if name != MAJORITY and len(np.unique(train.labels)) < 2:
        raise ValueError("one class in training rows")
    seed = derive_seed(item.payload["seed"], item.key, name) % (1 << 32)
    features = train.features.astype(np.float64)
    logits = np.full((len(test), len(train.classes)), NEVER)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own limit of steps
        model = _MAKERS[name](train.labels, seed).fit(features, train.labels)

    def predict(rows: Any) -> Array:
        chance = model.predict_proba(rows.astype(np.float64))
        logits[:, model.classes_] = np.log(np.maximum(chance, LEAST))
        return logits

    test.score(name, predict)
    return model, logits
