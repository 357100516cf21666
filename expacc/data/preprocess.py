"""Features to numbers: one-hot for categories, mean imputation and standardisation for numbers.

Fitted by scikit-learn's ColumnTransformer on training rows only; applied by the few lines below, so
that a saved model needs plain JSON and no pickle.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expacc.data.options import TableError, need
from expacc.data.table import Column, Dropped, Rows, Schema, Table, shown


@dataclass(frozen=True)
class NumberStep:
    """``(x - mean) / scale`` with ``fill`` where missing."""

    name: str
    fill: float
    mean: float
    scale: float


@dataclass(frozen=True)
class CategoryStep:
    """One output a level; None is the level of missing values, where training rows had some."""

    name: str
    levels: tuple[str | None, ...]


@dataclass(frozen=True)
class Preprocessor:
    """What was learnt from training rows; numbers come first in the output, then categories.

    A level that no training row had becomes all zeros; ``notes_on`` counts them. Columns that are
    constant or wholly missing in the training rows are left out and named in ``dropped``.
    """

    numbers: tuple[NumberStep, ...]
    categories: tuple[CategoryStep, ...]
    dropped: tuple[Dropped, ...]
    schema: Schema

    @classmethod
    def fit(cls, table: Table, rows: Rows | None = None) -> "Preprocessor":
        """Learn means, scales and levels from ``rows`` of a table, or from all."""
        chosen = np.arange(table.rows) if rows is None else np.asarray(rows, np.int64)
        if chosen.size == 0:
            raise ValueError("rows must hold at least one training row; got none.")
        parts = {column.name: column.values[chosen] for column in table.columns}
        dropped = tuple(
            Dropped(column.name, why)
            for column in table.columns
            if (why := _nothing_to_learn(column, parts[column.name]))
        )
        gone = {entry.name for entry in dropped}
        kept = [column for column in table.columns if column.name not in gone]
        if not kept:
            raise TableError(table.name, "no feature varies in the training rows.")
        numbers = [column for column in kept if column.kind == "number"]
        categories = [column for column in kept if column.kind == "category"]
        matrix = np.column_stack(
            [parts[column.name].astype(np.float64) for column in numbers + categories]
        )
        fitted = _column_transformer(len(numbers), len(categories))
        with np.errstate(over="ignore", invalid="ignore"):
            fitted.fit(matrix)
        return cls(
            _number_steps(table.name, numbers, fitted),
            _category_steps(categories, fitted),
            dropped,
            Schema(
                tuple((column.name, column.kind) for column in kept),
                table.labels.name if table.labels else "",
                table.schema.width if table.labels else None,
            ),
        )

    @property
    def width(self) -> int:
        """The number of outputs."""
        return len(self.numbers) + sum(len(step.levels) for step in self.categories)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """A name for each output: ``age``, ``work=private``, ``work=(missing)``."""
        one_hot = (
            f"{step.name}={'(missing)' if level is None else level}"
            for step in self.categories
            for level in step.levels
        )
        return (*(step.name for step in self.numbers), *one_hot)

    def transform(
        self, table: Table, rows: Rows | None = None, dtype: Any = np.float32
    ) -> NDArray[Any]:
        """The features of ``rows``, or of all, as a dense array."""
        chosen = np.arange(table.rows) if rows is None else np.asarray(rows, np.int64)
        columns = self._columns(table)
        out = np.zeros((len(chosen), self.width), dtype)
        for place, step in enumerate(self.numbers):
            values = columns[step.name].values[chosen]
            values = np.where(np.isnan(values), step.fill, values)
            with np.errstate(over="ignore"):
                out[:, place] = (values - step.mean) / step.scale
            bad = np.flatnonzero(~np.isfinite(out[:, place]))
            if bad.size:
                raise TableError(
                    table.name,
                    f"{values[bad[0]]:g} in {step.name!r} is too far from the training rows "
                    f"(mean {step.mean:g}, scale {step.scale:g}) to be computed with.",
                    line=int(table.lines[chosen[bad[0]]]),
                )
        start = len(self.numbers)
        for one_hot in self.categories:
            codes = self._codes(one_hot, columns[one_hot.name])[chosen]
            known = np.flatnonzero(codes >= 0)
            out[known, start + codes[known]] = 1
            start += len(one_hot.levels)
        return out

    def notes_on(self, table: Table, rows: Rows | None = None) -> tuple[str, ...]:
        """A line for each category in which ``table`` has values that training rows had not."""
        chosen = np.arange(table.rows) if rows is None else np.asarray(rows, np.int64)
        columns = self._columns(table)
        notes = []
        for step in self.categories:
            column = columns[step.name]
            unseen = chosen[self._codes(step, column)[chosen] < 0]
            if unseen.size:
                code = int(column.values[unseen[0]])
                what = "a missing value" if code < 0 else repr(column.levels[code])
                notes.append(
                    f"{shown(step.name)}: {unseen.size:,} row(s) have a value that no training row "
                    f"had, such as {what} on line {table.lines[unseen[0]]}; they count as none "
                    "of the known ones."
                )
        return tuple(notes)

    def _columns(self, table: Table) -> dict[str, Column]:
        columns = {column.name: column for column in table.columns}
        for name, kind in self.schema.columns:
            if name not in columns:
                raise TableError(table.name, f"the column {name!r} is missing; the model needs it.")
            if columns[name].kind != kind:
                raise TableError(
                    table.name,
                    f"the column {name!r} must be read as a {kind}, as in training; it was read as "
                    f"a {columns[name].kind}. Use read_table(..., like=preprocessor.schema).",
                )
        return columns

    @staticmethod
    def _codes(step: CategoryStep, column: Column) -> Rows:
        """Places in the step's levels of each row of a column; -1 for what it does not know."""
        known = {level: code for code, level in enumerate(step.levels)}
        place = [known.get(level, -1) for level in column.levels] + [known.get(None, -1)]
        return np.array(place, np.int64)[column.values.astype(np.int64)]  # -1 takes the last

    def to_json(self) -> dict[str, Any]:
        """Plain values; ``from_json`` of them is equal."""
        return {
            "format": "expacc preprocessor",
            "version": 1,
            "target": self.schema.target,
            "width": self.schema.width,
            "columns": [list(entry) for entry in self.schema.columns],
            "numbers": [[step.name, step.fill, step.mean, step.scale] for step in self.numbers],
            "categories": [[step.name, list(step.levels)] for step in self.categories],
            "dropped": [[entry.name, entry.why] for entry in self.dropped],
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Preprocessor":
        """Rebuild from plain values, checked before use."""
        _check_record(record)
        return cls(
            tuple(NumberStep(name, *map(float, rest)) for name, *rest in record["numbers"]),
            tuple(CategoryStep(name, tuple(levels)) for name, levels in record["categories"]),
            tuple(Dropped(name, why) for name, why in record["dropped"]),
            Schema(
                tuple((name, kind) for name, kind in record["columns"]),
                record["target"],
                record["width"],
            ),
        )


def _nothing_to_learn(column: Column, values: NDArray[Any]) -> str | None:
    if column.kind == "category":
        return "the same in every training row" if (values == values[0]).all() else None
    present = values[~np.isnan(values)]
    if not present.size:
        return "missing in every training row"
    return "the same in every training row" if (present == present[0]).all() else None


def _column_transformer(numbers: int, categories: int) -> Any:
    """Numbers in the first columns of a matrix, codes of levels in the others."""
    compose = need("sklearn.compose", "preprocessing a table")
    impute = need("sklearn.impute", "preprocessing a table")
    pipeline = need("sklearn.pipeline", "preprocessing a table")
    preprocessing = need("sklearn.preprocessing", "preprocessing a table")
    number = pipeline.make_pipeline(
        impute.SimpleImputer(strategy="mean"), preprocessing.StandardScaler()
    )
    category = preprocessing.OneHotEncoder(handle_unknown="ignore")
    return compose.ColumnTransformer(
        [
            ("number", number, list(range(numbers))),
            ("category", category, list(range(numbers, numbers + categories))),
        ]
    )


def _number_steps(source: str, columns: list[Column], fitted: Any) -> tuple[NumberStep, ...]:
    if not columns:
        return ()
    imputer, scaler = (step for _, step in fitted.named_transformers_["number"].steps)
    steps = []
    for column, fill, mean, scale, variance in zip(
        columns, imputer.statistics_, scaler.mean_, scaler.scale_, scaler.var_, strict=True
    ):
        # An infinite variance passes for that of a constant there, with a scale of 1.
        if not np.isfinite([fill, mean, scale, variance]).all():
            raise TableError(
                source, f"the numbers in {column.name!r} are too large to be standardised."
            )
        steps.append(NumberStep(column.name, float(fill), float(mean), float(scale)))
    return tuple(steps)


def _category_steps(columns: list[Column], fitted: Any) -> tuple[CategoryStep, ...]:
    if not columns:
        return ()
    found = fitted.named_transformers_["category"].categories_
    return tuple(
        CategoryStep(
            column.name,
            tuple(None if code < 0 else column.levels[int(code)] for code in codes.tolist()),
        )
        for column, codes in zip(columns, found, strict=True)
    )


_FIELDS = {
    "format": str,
    "version": int,
    "target": str,
    "columns": list,
    "numbers": list,
    "categories": list,
    "dropped": list,
}


def _refuse(what: str) -> ValueError:
    return ValueError(f"the saved preprocessor must be as it was written; {what}. Save it again.")


def _is_real(value: object) -> bool:
    if type(value) is int:
        return abs(value) <= 1 << 53  # a longer one may be none that a float can hold
    return type(value) is float and math.isfinite(value)


def _check_record(record: Mapping[str, Any]) -> None:
    """Raise unless ``record``, from wherever it comes, can be a preprocessor's ``to_json``."""
    if not isinstance(record, Mapping):
        raise _refuse(f"it is a {type(record).__name__}, not an object")
    if set(record) != {*_FIELDS, "width"}:
        odd = sorted(map(str, set(record) ^ {*_FIELDS, "width"}))
        raise _refuse(f"its fields differ in {', '.join(odd)}")
    for field, kind in _FIELDS.items():
        if type(record[field]) is not kind:
            raise _refuse(f"{field} is {record[field]!r:.60}")
    if record["format"] != "expacc preprocessor" or record["version"] != 1:
        raise _refuse(f"it is {record['format']!r:.40} version {record['version']}")
    if record["width"] is not None and (type(record["width"]) is not int or record["width"] < 1):
        raise _refuse(f"width is {record['width']!r:.60}")
    _check_columns(record)
    for step in record["numbers"]:
        _check_number(step)
    for step in record["categories"]:
        _check_category(step)
    for entry in record["dropped"]:
        if not (_is_list(entry, 2) and all(isinstance(text, str) for text in entry)):
            raise _refuse(f"a dropped column is {entry!r:.60}")
    for wanted, steps in (("number", "numbers"), ("category", "categories")):
        listed = [name for name, column_kind in record["columns"] if column_kind == wanted]
        if listed != [step[0] for step in record[steps]]:
            raise _refuse(f"{steps} are not those of its columns")


def _is_list(value: object, length: int) -> bool:
    return isinstance(value, list) and len(value) == length


def _check_columns(record: Mapping[str, Any]) -> None:
    names = []
    for entry in record["columns"]:
        if not (
            _is_list(entry, 2) and isinstance(entry[0], str) and entry[1] in ("number", "category")
        ):
            raise _refuse(f"a column is {entry!r:.60}")
        names.append(entry[0])
    if not names or len(set(names)) < len(names):
        raise _refuse("its columns are none, or one is there twice")


def _check_number(step: object) -> None:
    if not (isinstance(step, list) and len(step) == 4 and isinstance(step[0], str)):
        raise _refuse(f"a number's entry is {step!r:.60}")
    if not all(map(_is_real, step[1:])) or step[3] <= 0:
        raise _refuse(f"fill, mean and scale of {step[0]!r:.40} are {step[1:]!r:.60}")


def _check_category(step: object) -> None:
    if not (
        isinstance(step, list)
        and len(step) == 2
        and isinstance(step[0], str)
        and isinstance(step[1], list)
    ):
        raise _refuse(f"a category's entry is {step!r:.60}")
    levels = step[1]
    if (
        not levels
        or not all(level is None or isinstance(level, str) for level in levels)
        or len(set(levels)) < len(levels)
    ):
        raise _refuse(f"the levels of {step[0]!r:.40} are {levels!r:.60}")
