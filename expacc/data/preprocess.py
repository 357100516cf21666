"""Features to numbers: one-hot for categories, mean imputation and standardisation for numbers,
year, month, day of week and days for dates, TF-IDF of the most common words for texts.

Fitted by scikit-learn on training rows only; applied by the few lines below, so that a saved model
needs plain JSON and no pickle.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expacc.data.dates import PARTS, parts_of
from expacc.data.free_text import BUCKETS, fit_words, weigh_words
from expacc.data.options import TableError, need
from expacc.data.table import Column, Dropped, Rows, Schema, Table, shown
from expacc.files import Between, Numbers, check_shape


@dataclass(frozen=True)
class NumberStep:
    """``(x - mean) / scale`` with ``fill`` where missing; of a date, a ``part`` of it."""

    name: str
    fill: float
    mean: float
    scale: float
    part: str = ""

    @property
    def title(self) -> str:
        """What its output is called."""
        return f"{self.name}: {self.part}" if self.part else self.name


@dataclass(frozen=True)
class CategoryStep:
    """One output a level; None is the level of missing values, where training rows had some."""

    name: str
    levels: tuple[str | None, ...]


@dataclass(frozen=True)
class TextStep:
    """TF-IDF of words: their places in the hash table, and their weights."""

    name: str
    words: tuple[int, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True)
class Preprocessor:
    """What was learnt from training rows; numbers come first, then categories, then texts.

    A level that no training row had becomes all zeros; ``notes_on`` counts them. Columns that are
    constant or wholly missing in the training rows are left out and named in ``dropped``.
    """

    numbers: tuple[NumberStep, ...]
    categories: tuple[CategoryStep, ...]
    dropped: tuple[Dropped, ...]
    schema: Schema
    texts: tuple[TextStep, ...] = ()

    @classmethod
    def fit(cls, table: Table, rows: Rows | None = None) -> "Preprocessor":
        """Learn means, scales and levels from ``rows`` of a table, or from all."""
        chosen = np.arange(table.rows) if rows is None else np.asarray(rows, np.int64)
        if chosen.size == 0:
            raise ValueError("rows must hold at least one training row; got none.")
        parts = {column.name: column.values[chosen] for column in table.columns}
        texts = tuple(
            _text_step(column, parts[column.name])
            for column in table.columns
            if column.kind == "text"
        )
        empty = {step.name for step in texts if not step.words}
        dropped = tuple(
            Dropped(column.name, why)
            for column in table.columns
            if (why := _nothing_to_learn(column, parts[column.name], empty))
        )
        gone = {entry.name for entry in dropped}
        kept = [column for column in table.columns if column.name not in gone]
        if not kept:
            raise TableError(table.name, "no feature varies in the training rows.")
        numbers = {
            (column.name, part): values
            for column in sorted(kept, key=lambda column: column.kind == "date")
            for part, values in _numbers_of(column, parts[column.name]).items()
            if column.kind == "number" or not (np.nan_to_num(values) == values[0]).all()
        }
        categories = [column for column in kept if column.kind == "category"]
        return cls(
            _number_steps(table.name, numbers),
            tuple(
                CategoryStep(
                    column.name,
                    tuple(
                        None if code < 0 else column.levels[code]
                        for code in np.unique(parts[column.name]).tolist()
                    ),
                )
                for column in categories
            ),
            dropped,
            Schema.of(
                kept,
                table.labels.name if table.labels else "",
                table.schema.width if table.labels else None,
            ),
            tuple(step for step in texts if step.words),
        )

    @property
    def width(self) -> int:
        """The number of outputs."""
        one_hot = sum(len(step.levels) for step in self.categories)
        return len(self.numbers) + one_hot + sum(len(step.words) for step in self.texts)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """A name for each output: ``age``, ``work=private``, ``day: year``, ``mail: word 17``."""
        one_hot = (
            f"{step.name}={'(missing)' if level is None else level}"
            for step in self.categories
            for level in step.levels
        )
        words = (f"{step.name}: word {word}" for step in self.texts for word in step.words)
        return (*(step.title for step in self.numbers), *one_hot, *words)

    @property
    def places(self) -> dict[str, Rows]:
        """Column → the places among the outputs of what it became; none if it was left out."""
        widths = [(step.name, 1) for step in self.numbers]  # several of a date
        widths += [(step.name, len(step.levels)) for step in self.categories]
        widths += [(step.name, len(step.words)) for step in self.texts]
        found, start = {entry.name: np.arange(0) for entry in self.dropped}, 0
        for name, width in widths:
            more = np.arange(start, start + width)
            found[name] = np.append(found.get(name, more[:0]), more)
            start += width
        return found

    def transform(
        self, table: Table, rows: Rows | None = None, dtype: Any = np.float32
    ) -> NDArray[Any]:
        """The features of ``rows``, or of all, as a dense array."""
        chosen = np.arange(table.rows) if rows is None else np.asarray(rows, np.int64)
        columns = self._columns(table)
        out = np.zeros((len(chosen), self.width), dtype)
        dates = {
            name: _numbers_of(column, column.values[chosen])
            for name, column in columns.items()
            if column.kind == "date" and name in self._names
        }
        for place, step in enumerate(self.numbers):
            found = columns[step.name]
            values = dates[step.name][step.part] if step.part else found.values[chosen]
            values = np.where(np.isnan(values), step.fill, values)
            with np.errstate(over="ignore"):
                out[:, place] = (values - step.mean) / step.scale
            bad = np.flatnonzero(~np.isfinite(out[:, place]))
            if bad.size:
                raise TableError(
                    table.name,
                    f"{values[bad[0]]:g} in {step.title!r} is too far from the training rows "
                    f"(mean {step.mean:g}, scale {step.scale:g}) to be computed with.",
                    line=int(table.lines[chosen[bad[0]]]),
                )
        start = len(self.numbers)
        for one_hot in self.categories:
            codes = self._codes(one_hot, columns[one_hot.name])[chosen]
            known = np.flatnonzero(codes >= 0)
            out[known, start + codes[known]] = 1
            start += len(one_hot.levels)
        for text in self.texts:
            words = columns[text.name].values[chosen].astype(np.int32, copy=False)
            width = len(text.words)
            for at in range(0, len(words), _ROWS):  # its working memory is 8 bytes a cell
                weighed = weigh_words(
                    words[at : at + _ROWS], np.array(text.words), np.array(text.weights)
                )
                out[at : at + _ROWS, start : start + width] = weighed
            start += width
        return out

    @property
    def _names(self) -> set[str]:
        return {step.name for step in self.numbers}

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
            "numbers": [_plain(step) for step in self.numbers if not step.part],
            "dates": [[*_plain(step), step.part] for step in self.numbers if step.part],
            "categories": [[step.name, list(step.levels)] for step in self.categories],
            "dropped": [[entry.name, entry.why] for entry in self.dropped],
            "texts": [[step.name, list(step.words), list(step.weights)] for step in self.texts],
            "day_first": list(self.schema.day_first),
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Preprocessor":
        """Rebuild from plain values, checked before use."""
        try:
            check_shape(record, _SHAPE, "it")
            _check_names(record)
        except ValueError as error:
            raise ValueError(
                f"the saved preprocessor must be as it was written; {error} Save it again."
            ) from None
        return cls(
            tuple(
                NumberStep(name, float(fill), float(mean), float(scale), *part)
                for name, fill, mean, scale, *part in (
                    *record["numbers"],
                    *record.get("dates", ()),
                )
            ),
            tuple(CategoryStep(name, tuple(levels)) for name, levels in record["categories"]),
            tuple(Dropped(name, why) for name, why in record["dropped"]),
            Schema(
                tuple((name, kind) for name, kind in record["columns"]),
                record["target"],
                record["width"],
                tuple(record.get("day_first", ())),
            ),
            tuple(
                TextStep(name, tuple(words), tuple(weights))
                for name, words, weights in record.get("texts", ())
            ),
        )


_ROWS = 8192


def _plain(step: NumberStep) -> list[Any]:
    return [step.name, step.fill, step.mean, step.scale]


def _numbers_of(column: Column, values: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """What is standardised of a column: a number itself, a date's parts, nothing of others."""
    if column.kind == "number":
        return {"": values}
    if column.kind != "date":
        return {}
    return parts_of(values)


def _text_step(column: Column, values: NDArray[Any]) -> TextStep:
    words, weights = fit_words(values, column.features)
    return TextStep(column.name, tuple(words.tolist()), tuple(weights.tolist()))


def _nothing_to_learn(column: Column, values: NDArray[Any], empty: Collection[str]) -> str | None:
    if column.kind == "text":
        return "no word recurs in the training rows" if column.name in empty else None
    if column.kind == "category":
        return "the same in every training row" if (values == values[0]).all() else None
    present = values[~np.isnan(values)]
    if not present.size:
        return "missing in every training row"
    return "the same in every training row" if (present == present[0]).all() else None


def _number_steps(
    source: str, parts: Mapping[tuple[str, str], NDArray[Any]]
) -> tuple[NumberStep, ...]:
    if not parts:
        return ()
    impute = need("sklearn.impute", "preprocessing a table")
    preprocessing = need("sklearn.preprocessing", "preprocessing a table")
    matrix = np.array(list(parts.values()), np.float64).T
    with np.errstate(over="ignore", invalid="ignore"):
        imputer = impute.SimpleImputer(strategy="mean").fit(matrix)
        scaler = preprocessing.StandardScaler().fit(imputer.transform(matrix))
    steps = []
    for (name, part), fill, mean, scale, variance in zip(
        parts, imputer.statistics_, scaler.mean_, scaler.scale_, scaler.var_, strict=True
    ):
        # An infinite variance passes for that of a constant there, with a scale of 1.
        if not np.isfinite([fill, mean, scale, variance]).all():
            raise TableError(source, f"the numbers in {name!r} are too large to be standardised.")
        steps.append(NumberStep(name, float(fill), float(mean), float(scale), part))
    return tuple(steps)


_SCALE = Between(5e-324, 1e308)
_SHAPE = {
    "format": {"expacc preprocessor"},
    "version": Between(1, 1),
    "target": str,
    "width": (Between(1), None),
    "columns": [[str, {"number", "category", "date", "text"}]],
    "numbers": [[str, float, float, _SCALE]],
    "categories": [[str, [(str, None)]]],
    "dates?": [[str, float, float, _SCALE, {*PARTS}]],
    "dropped": [[str, str]],
    "texts?": [[str, Numbers(0, BUCKETS - 1, whole=True), Numbers(0.0, 100.0)]],
    "day_first?": [str],
}


def _check_names(record: Mapping[str, Any]) -> None:
    """Raise unless columns and levels differ among themselves, and each column has its step."""
    names = [name for name, _ in record["columns"]]
    for which, values in (("columns", names), *record["categories"]):
        if not values or len(set(values)) < len(values):
            raise ValueError(f"{which!r:.40} must hold different values, one or more.")
    for wanted, steps in (("number", "numbers"), ("category", "categories")):
        listed = [name for name, kind in record["columns"] if kind == wanted]
        if listed != [step[0] for step in record[steps]]:
            raise ValueError(f"{steps} must be those of its columns.")
    dates = {name for name, kind in record["columns"] if kind == "date"}
    if not {*record.get("day_first", ())} <= dates == {one[0] for one in record.get("dates", ())}:
        raise ValueError("dates must be those of its columns.")
    texts = record.get("texts", ())
    if [name for name, kind in record["columns"] if kind == "text"] != [one[0] for one in texts]:
        raise ValueError("texts must be those of its columns.")
    for _, words, weights in texts:
        if not words or len(words) != len(weights) or words != sorted(set(words)):
            raise ValueError("words must be in order, each with its weight.")
