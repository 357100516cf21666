"""Training rows that anybody may use, and test rows that give one score a method and no label.

A search or a training loop takes ``TrainRows``. The test rows of the same split are a
``SealedTest``: another type, without labels to read. It guards against mistakes; it is no vault.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from expacc.data.preprocess import Preprocessor
from expacc.data.splits import flip_labels
from expacc.data.table import Rows, Split, Table

Features = NDArray[Any]
Predict = Callable[[Features], Any]


@dataclass(frozen=True, eq=False)
class TrainRows:
    """Features and labels to learn from; copies, so nothing leads back to the test rows.

    Attributes:
        rows: row numbers in the table.
        wrong: which labels were replaced by label noise.
        validation: rows that the data's authors set aside for model selection, or None.
    """

    features: Features
    labels: Rows
    classes: tuple[str, ...]
    rows: Rows
    wrong: NDArray[np.bool_]
    validation: "TrainRows | None" = None

    def __post_init__(self) -> None:
        if not len(self.features) == len(self.labels) == len(self.rows) == len(self.wrong):
            raise ValueError(
                f"features, labels, rows and wrong must be equally long; got {len(self.features)}, "
                f"{len(self.labels)}, {len(self.rows)} and {len(self.wrong)}."
            )

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, places: Rows) -> "TrainRows":
        """Some of these rows, by place, as for an inner fold."""
        return TrainRows(
            self.features[places],
            self.labels[places],
            self.classes,
            self.rows[places],
            self.wrong[places],
        )


@dataclass(frozen=True)
class TestScore:
    """What one method did on the test rows of one split; ``undefined`` rows held NaN scores."""

    method: str
    accuracy: float
    correct: int
    rows: int
    undefined: int = 0

    __test__ = False  # not a test of pytest's


class SealedTest:
    """Test rows behind a seal: each method, named beforehand, is scored once.

    ``score`` hands the features to a predictor and compares what comes back with labels that never
    leave. Naming the methods first leaves no name over for trying twice.
    """

    __slots__ = ("__features", "__labels", "__open", "__rows")

    def __init__(
        self, features: Features, labels: Rows, rows: Rows, methods: Sequence[str]
    ) -> None:
        if isinstance(methods, str) or not methods or len(set(methods)) < len(methods):
            raise ValueError(f"methods must be different names, one or more; got {methods!r}.")
        if not len(features) == len(labels) == len(rows) > 0:
            raise ValueError(
                f"features, labels and rows must be equally many, one or more; got "
                f"{len(features)}, {len(labels)} and {len(rows)}."
            )
        self.__features = np.array(features)
        self.__labels = np.array(labels)
        self.__rows = np.array(rows)
        self.__open = dict.fromkeys(methods, True)

    def __len__(self) -> int:
        return len(self.__labels)

    def __repr__(self) -> str:
        left = ", ".join(self.waiting) or "none"
        return f"<SealedTest of {len(self)} rows; still to be scored: {left}>"

    @property
    def waiting(self) -> tuple[str, ...]:
        """Methods that were not scored yet."""
        return tuple(method for method, waits in self.__open.items() if waits)

    @property
    def rows(self) -> Rows:
        """Row numbers in the table, for the record."""
        return self.__rows.copy()

    def score(self, method: str, predict: Predict) -> TestScore:
        """Score one method; ``predict`` maps features to class numbers, or to a score a class.

        A row with a NaN among its scores counts as wrong: its argmax would be class 0.
        """
        return self.score_together([method], lambda features: {method: predict(features)})[method]

    def score_together(
        self, methods: Sequence[str], predict: Callable[[Features], Mapping[str, Any]]
    ) -> dict[str, TestScore]:
        """Score several methods that predict in one batch; ``predict`` returns one entry each."""
        for method in methods:
            if method not in self.__open:
                raise ValueError(
                    f"method must be one of {', '.join(map(repr, self.__open))}; got {method!r}."
                )
            if not self.__open[method]:
                raise RuntimeError(
                    f"{method!r} was scored on these test rows already; they are touched once. "
                    "Select on training rows."
                )
        features = self.__features.copy()  # a predictor may standardise in place
        # The seal is broken before the predictor runs: a failed one may not come back wiser.
        self.__open.update(dict.fromkeys(methods, False))
        found = predict(features)
        if set(found) != set(methods):
            raise ValueError(
                f"predict must return the methods {', '.join(methods)}; got {', '.join(found)}."
            )
        return {method: self.__compare(method, found[method]) for method in methods}

    def __compare(self, method: str, predicted: Any) -> TestScore:
        found, rows = np.asarray(predicted), len(self.__labels)
        undefined = np.zeros(rows, np.bool_)
        if found.ndim == 2 and len(found) == rows and found.dtype.kind == "f" and found.shape[1]:
            undefined = np.isnan(found).any(axis=1)
            found = found.argmax(axis=1)
        if found.shape != (rows,) or found.dtype.kind not in "iu":
            raise ValueError(
                f"predict must return {rows} class numbers, or {rows} rows of scores; got "
                f"{found.dtype} of shape {found.shape}."
            )
        correct = int(((found == self.__labels) & ~undefined).sum())
        return TestScore(method, correct / rows, correct, rows, int(undefined.sum()))

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("a SealedTest must not become an array; its labels are for scoring only.")

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError("a SealedTest must not be copied or pickled; open the split where it is.")


def require_train_rows(value: object) -> TrainRows:
    """The value, if it is TrainRows: for whatever selects or trains."""
    if not isinstance(value, TrainRows):
        raise TypeError(
            f"model selection must be given TrainRows; got {type(value).__name__}. Test rows are "
            "for scoring, once."
        )
    return value


def open_split(
    table: Table,
    split: Split,
    *,
    methods: Sequence[str],
    label_noise: float = 0.0,
    seed: int = 0,
    dtype: Any = np.float32,
) -> tuple[TrainRows, SealedTest, Preprocessor]:
    """Preprocess by the training rows, and part them from the sealed test rows.

    Label noise goes into training and validation rows, which come from the same hand; never into
    test rows. It is seeded by ``seed``, the table's and the split's name.
    """
    labels = table.target
    for code in (split.train, split.validation, split.test):
        if code.size and (labels.codes[code] < 0).any():
            raise ValueError(f"every row of {split.name} of {table.name} must have a label.")
    preprocessor = Preprocessor.fit(table, split.train)

    def learn(rows: Rows, part: str, validation: TrainRows | None = None) -> TrainRows:
        noisy, wrong = flip_labels(
            labels.codes[rows],
            label_noise,
            classes=len(labels.classes),
            seed=seed,
            name=f"{table.name}/{split.name}/{part}",
        )
        features = preprocessor.transform(table, rows, dtype)
        return TrainRows(features, noisy, labels.classes, rows.copy(), wrong, validation)

    validation = learn(split.validation, "validation") if split.validation.size else None
    sealed = SealedTest(
        preprocessor.transform(table, split.test, dtype),
        labels.codes[split.test],
        split.test,
        methods,
    )
    return learn(split.train, "train", validation), sealed, preprocessor
