"""A table as it is used: numbers, levels, labels, notes, splits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from expacc.data.options import ReadOptions, TableError

Kind = Literal["number", "category", "date", "text"]
Rows = NDArray[np.int64]


def shown(name: str) -> str:
    """A name for a line of output: one that could break or colour the line is quoted.

    >>> shown("age"), shown("a\\nb")
    ('age', "'a\\\\nb'")
    """
    return name if name.isprintable() else repr(name)


@dataclass(frozen=True, eq=False)
class Column:
    """One feature.

    Attributes:
        values: float64 with NaN for missing (number; date: days since 1970), int64 places in
            ``levels`` with -1 for missing (category), or hashed words, a line a row (text).
        levels: the texts of a category, in order; empty for others.
        day_first: of a date such as 3/4/2020.
        width: how many features it may become; None for as many as there are levels, or one.
    """

    name: str
    kind: Kind
    values: NDArray[np.float64] | NDArray[np.int64] | NDArray[np.int32]
    levels: tuple[str, ...] = ()
    day_first: bool = False
    width: int | None = None

    @property
    def features(self) -> int:
        """How many numbers it becomes for a model, at most."""
        return self.width or max(1, len(self.levels))

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Which rows have no value."""
        if self.kind == "text":
            return self.values[:, 0] < 0
        return self.values < 0 if self.kind == "category" else np.isnan(self.values)

    def describe(self) -> str:
        """One line for the user."""
        gaps = int(self.missing.sum())
        tail = f", {gaps:,} missing" if gaps else ""
        if self.kind == "category":
            some = ", ".join(map(repr, self.levels[:4])) + (", …" if len(self.levels) > 4 else "")
            return f"{shown(self.name)}: category, {len(self.levels)} level(s) ({some}){tail}"
        if self.kind == "text":
            return f"{shown(self.name)}: text, up to {self.width} columns of words{tail}"
        if gaps == len(self.values):
            return f"{shown(self.name)}: number{tail}"
        low, high = np.nanmin(self.values), np.nanmax(self.values)
        if self.kind == "date":
            days = np.floor([low, high]).astype("datetime64[D]")
            return f"{shown(self.name)}: date from {days[0]} to {days[1]}{tail}"
        return f"{shown(self.name)}: number from {low:g} to {high:g}{tail}"


@dataclass(frozen=True, eq=False)
class Labels:
    """The target: ``codes`` are places in ``classes``, the texts of the file; -1 is no label."""

    name: str
    classes: tuple[str, ...]
    codes: Rows

    def texts(self) -> list[str | None]:
        """The labels as written."""
        return [self.classes[code] if code >= 0 else None for code in self.codes.tolist()]

    def counts(self) -> dict[str, int]:
        """Rows of each class."""
        counts = np.bincount(self.codes[self.codes >= 0], minlength=len(self.classes))
        return dict(zip(self.classes, counts.tolist(), strict=True))

    def renamed(self, names: Mapping[str, str]) -> "Labels":
        """With other texts for some classes, such as '>50K' for '>50K.'; classes may merge."""
        unknown = [name for name in names if name not in self.classes]
        if unknown:
            raise ValueError(
                f"names must be of the classes {', '.join(map(repr, self.classes))}; "
                f"got {unknown[0]!r}."
            )
        texts = [names.get(name, name) for name in self.classes]
        classes = sorted(set(texts), key=texts.index)
        place = np.array([classes.index(text) for text in texts] + [-1], np.int64)
        return Labels(self.name, tuple(classes), place[self.codes])

    def as_codes_of(self, classes: Sequence[str], source: str) -> Rows:
        """The labels as places in another list of classes, such as that of a training part."""
        known = {name: code for code, name in enumerate(classes)}
        unknown = [name for name, count in self.counts().items() if count and name not in known]
        if unknown:
            raise TableError(
                source,
                f"the label {unknown[0]!r} is not among {', '.join(map(repr, classes))}. "
                "Labels are compared as text, character by character.",
            )
        place = np.array([known.get(name, -1) for name in self.classes] + [-1], np.int64)
        return place[self.codes]  # -1 takes the last entry


@dataclass(frozen=True)
class Dropped:
    """A column that was left out, and why."""

    name: str
    why: str


@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers of one fold; ``validation`` is empty unless the data came with some."""

    name: str
    train: Rows
    validation: Rows
    test: Rows

    @property
    def train_rows(self) -> int:
        """How many there are to learn from."""
        return len(self.train)

    def renamed(self, name: str) -> "Split":
        """The same rows under another name."""
        return replace(self, name=name)


@dataclass(frozen=True)
class Schema:
    """What a model expects of a table.

    Attributes:
        columns: name and kind of each feature.
        target: the label's name.
        width: the number of columns that the file had if they were known by place only, else None.
        day_first: names of dates in which 3/4/2020 is in April.
    """

    columns: tuple[tuple[str, Kind], ...]
    target: str
    width: int | None = None
    day_first: tuple[str, ...] = ()

    @classmethod
    def of(cls, columns: Sequence[Column], target: str, width: int | None) -> "Schema":
        """What a model of these columns expects."""
        kinds = tuple((column.name, column.kind) for column in columns)
        return cls(kinds, target, width, tuple(c.name for c in columns if c.day_first))


@dataclass(frozen=True, eq=False)
class Table:
    """A table as it was written.

    Attributes:
        lines: the line of the file on which each row begins.
        notes: one line each on what was taken for what, dropped or doubtful.
        sha256: digest of the file as it lies on the disk.
        width: the number of columns of the file, with target and dropped ones.
        given: splits that came with the data.
        written: cells as the file has them, by column, without the target; {} of a large table.
    """

    name: str
    columns: tuple[Column, ...]
    labels: Labels | None
    rows: int
    lines: Rows
    notes: tuple[str, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    sha256: str = ""
    options: ReadOptions = field(default_factory=ReadOptions)
    width: int = 0
    given: tuple[Split, ...] = ()
    written: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @property
    def target(self) -> Labels:
        """The labels, for where there must be some."""
        if self.labels is None:
            raise TableError(self.name, "the table must have a target here; it has none.")
        return self.labels

    @property
    def schema(self) -> Schema:
        """Names and kinds, for reading another table alike."""
        return Schema.of(
            self.columns, self.target.name, None if self.options.header else self.width
        )

    @property
    def reading(self) -> dict[str, Any]:
        """How it was read, where that is not the usual way."""
        usual, own = ReadOptions().to_json(), self.options.to_json()
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in own.items()}
        return {name: value for name, value in plain.items() if own[name] != usual[name]}

    def describe(self) -> tuple[str, ...]:
        """Lines for the user: size, target, every column, then the notes."""
        lines = [f"{self.name}: {self.rows:,} rows, {len(self.columns)} feature(s)"]
        if self.labels is not None:
            counts = self.labels.counts()
            some = ", ".join(f"{name!r} {count:,}" for name, count in list(counts.items())[:10])
            more = f", … {len(counts)} in all" if len(counts) > 10 else ""
            lines.append(f"target {self.labels.name!r}: {some}{more}")
        return (*lines, *(column.describe() for column in self.columns), *self.notes)
