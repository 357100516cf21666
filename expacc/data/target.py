"""Which column is the target where nobody said: the last one if it may be, else a question.

A last column is doubted if it cannot hold classes (numbers, dates, identifiers, free text, one
value), if another one is called like a target and it is not, or if all the rest looks like it and
one column does not. A wrong guess costs more than a question.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from expacc.data.cells import Cells, to_numbers
from expacc.data.columns import MOST_NUMBERS, Grid, called_id, is_fraction, numbers_rows
from expacc.data.dates import read_dates
from expacc.data.options import ReadOptions, TableError
from expacc.data.table import shown

FEW_NUMBERS = 20  # different ones that a last column may have
FEW_TEXTS = 50
SOME_ROWS = 20  # so few tell nothing of what is different in each
MOST_CANDIDATES = 5
MOST_CLASSES = 6  # that a candidate shows
_MOST_OTHERS = 300  # that are compared with the last one
_MANY = "many for classes"
_SAMPLE = 20_000  # rows that a column is judged by

_NAMED = re.compile(
    "class|classes|target|label|labels|y|outcome|diagnosis|survived|churn|churned|exited|"
    "species|variety|spam|ham|sentiment|attrition|fraud|poisonous|edible|malignant|stroke|"
    "heartdisease|cardio|potability|transported|defaulted|deposit|subscribed|purchased|"
    "clicked|canceled|cancelled|readmitted|approved|loanstatus|creditrisk|bankrupt|toxic|"
    "truth|groundtruth|ytrue|nobeyesdad|satisfied|classification|prediction|response|diagnose|"
    "creditability|creditworthiness|kredit|goodbad|died|death|dead|survive|survival|vote|voted|"
    "klasse|ziel|zielvariable|etikett|classe|cible|etiquette|clase|objetivo|etiqueta|esito"
)
_MAYBE = re.compile(
    "type|category|status|quality|result|income|rating|grade|group|risk|disease|genre|"
    "activity|default|left|gender|sex|digit|letter|num|decision|level|satisfaction|revenue|"
    "party|choice|deny|denied|admit|admitted|hired|promoted|won|win|winner|released|purchase"
)
_BEFORE, _BEHIND = (
    {"is", "has", "was", "the", "true", "gold"},
    {"flag", "name", "label", "variable"},
)
_FEATURE = re.compile(
    r"(index|idx|row|rownum|rownames?|nr|no|number|year|month|day|weekday|hour|age|zip|zipcode|"
    r"postcode|lat|latitude|lon|lng|long|longitude|price|amount|count|freq|frequency|total|size|"
    r"weight|height|width|length|salary|sex|gender|race|ethnicity|department|region|country|city)"
)


def name_tells(name: str) -> int:
    """2 for a column called like a target, 1 for one that may be, 0 for others."""
    words = re.findall(r"[^\W_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())
    while len(words) > 1 and words[0] in _BEFORE:
        words = words[1:]
    while len(words) > 1 and words[-1] in _BEHIND:
        words = words[:-1]
    whole = "".join(words)
    ends = len(words) == 2 and (
        words[0] in ("class", "target", "label") or words[1] in ("target", "label", "outcome")
    )
    if _NAMED.fullmatch(whole) or ends or whole == "targetclass":
        return 2
    default = whole.startswith("default") and len(words) > 1
    return (
        2
        if default
        else int(bool(_MAYBE.fullmatch(whole)) or words[-1:] in (["status"], ["class"]))
    )


@dataclass
class _Judged:
    """A column as a target may be looked for in it."""

    grid: Grid
    place: int
    options: ReadOptions

    @property
    def name(self) -> str:
        return self.grid.names[self.place]

    @cached_property
    def cells(self) -> Cells:
        whole = self.grid.columns[self.place]
        return Cells(whole.array.slice(0, _SAMPLE), whole.form)

    @cached_property
    def counts(self) -> dict[str, int]:
        """Rows of each class, in natural order."""
        levels, codes = self.cells.levels(frozenset(self.options.label_missing))
        counts = np.bincount(codes[codes >= 0], minlength=len(levels)).tolist()
        return dict(zip(map(str, levels.to_pylist()), counts, strict=True))

    @cached_property
    def rows(self) -> int:
        return sum(self.counts.values())

    @cached_property
    def numeric(self) -> bool:
        if self.grid.declared.get(self.name) == "category":
            return False
        words = self.options.numeric_missing_words
        values = to_numbers(self.cells, words, self.options.decimal, self.options.missing_words)
        return values is not None and not np.isnan(values).all()

    def numbers_rows(self, unnamed: bool) -> bool:
        words = self.options.numeric_missing_words
        values = to_numbers(self.cells, words, self.options.decimal, self.options.missing_words)
        if values is None or len(self.counts) < self.rows:
            return False
        return numbers_rows(values[~np.isnan(values)], unnamed or called_id(self.name))

    @property
    def is_regression(self) -> bool:
        return self.numeric and len(self.counts) > MOST_NUMBERS

    @cached_property
    def tells(self) -> int:
        """What its name says; a y beside an x is a place."""
        tells, names = name_tells(self.name), self.grid.names
        if tells and self.name.lower() == "y" and len(names) > 2:
            return 0 if "x" in {name.lower() for name in names} else tells
        return tells

    @cached_property
    def doubt(self) -> str:
        """Why it can hardly be a target; '' if it can."""
        names, found = self.grid.names, len(self.counts)
        if self.name in self.grid.index:
            return "is the index of the file"
        if found < 2:
            return "has one value only" if found else "is empty"
        unnamed = self.grid.header_line is not None and self.name == f"column {self.place + 1}"
        if self.numeric:
            if self.numbers_rows(unnamed):
                return "numbers the rows" if unnamed else "is different in every row: an identifier"
            if self.is_regression:
                return f"holds {found:,} different numbers: to predict it would be regression"
            parts = is_fraction(self.cells, self.options)
            few = FEW_NUMBERS // 2 if parts else FEW_NUMBERS
            if found > FEW_NUMBERS // 2 and (
                2 * found > self.rows or (found > FEW_NUMBERS and (parts or 5 * found > self.rows))
            ):
                return (
                    f"holds {found} different numbers in {self.rows} rows: to predict it would be "
                    "regression"
                )
            if found > few and self.tells < 2:
                return f"holds {found} different numbers, {_MANY}"
            if parts and found > 2 and not self.tells:
                return f"holds {found} different numbers that are not whole, no names of classes"
            if self.tells < 2 and len(names) > 2 and found > 2 and _says_feature(self.name):
                return f"holds numbers and is called {shown(self.name)}"
            return ""
        if read_dates(list(self.counts)) is not None:
            return "holds dates"
        if found > FEW_TEXTS and 2 * found > self.rows and self.rows > SOME_ROWS:
            long = sum(map(len, self.counts)) > 20 * found
            return "holds free text" if long else "is different in most rows: an identifier"
        if found > FEW_TEXTS and self.tells < 2:
            return f"has {found:,} different values, {_MANY}"
        return ""

    @property
    def is_doubtful(self) -> bool:
        """Whether it may be, though it is doubted: many classes, but they come again."""
        return self.doubt.endswith(_MANY) and 3 * len(self.counts) <= self.rows

    @property
    def worth(self) -> tuple[int, int, int]:
        """The best candidate first."""
        last = self.place == len(self.grid.names) - 1
        return -self.tells, -int(last), len(self.counts)

    def is_candidate(self) -> bool:
        """Whether it is one to name: classes that come again, in at least half of the rows."""
        if self.doubt:
            return False
        every = len(self.grid.lines[:_SAMPLE])
        again = 2 * len(self.counts) <= self.rows or self.rows <= SOME_ROWS
        return (again or self.tells == 2) and 2 * self.rows >= every


def _says_feature(name: str) -> bool:
    words = re.findall(r"[^\W\d_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())
    return bool(words) and (_FEATURE.fullmatch(words[-1]) is not None or called_id(name))


@dataclass(frozen=True)
class Candidate:
    """A column that may be the target, and rows of its classes."""

    name: str
    classes: tuple[tuple[str, int], ...]

    def text(self) -> str:
        """Its classes for a line, of many the largest."""
        most = sorted(self.classes, key=lambda one: -one[1])[:MOST_CLASSES]
        kept = self.classes if len(self.classes) <= MOST_CLASSES else most
        more = f", … {len(self.classes)} in all" if len(self.classes) > len(kept) else ""
        return ", ".join(f"{shown(name[:30])!s} {count:,}" for name, count in kept) + more


class TargetError(TableError):
    """Nobody said which column is the target, and it is not plain.

    Attributes:
        candidates: columns that may be, the likeliest first.
        more: how many others may be.
        doubt: why the last column is not taken.
    """

    def __init__(self, source: str, doubt: str, found: Sequence[Candidate], more: int = 0) -> None:
        self.candidates, self.doubt, self.more = tuple(found), doubt, more
        listed = "; ".join(f"{shown(one.name)} ({one.text()})" for one in found)
        rest = f"; and {more} more" if more else ""
        cure = f" Name it with --target: {listed}{rest}." if found else " No other column may be."
        super().__init__(source, f"which column is the target? {doubt}.{cure}")

    def __reduce__(self) -> tuple[object, ...]:
        return TargetError, (self.source, self.doubt, self.candidates, self.more)


def find_target(grid: Grid, options: ReadOptions) -> int:
    """The place of the last column, if it may be the target.

    Raises:
        TargetError: it may not be, or another is as likely.
    """
    judged = [_Judged(grid, place, options) for place in range(len(grid.names))]
    kept = [one for one in judged if one.name not in grid.index]
    last = kept[-1]
    doubt = f"{shown(last.name)!r}, the last column, {last.doubt}" if last.doubt else ""
    rival = last
    if not doubt:
        doubt, rival = _rival(kept)
    if not doubt:
        return last.place
    found = [one for one in kept if one.is_candidate()]
    found.sort(key=lambda one: (one is last or one is not rival, *one.worth))
    if not found and last.is_doubtful and not last.numeric:
        return last.place
    if not found and (last.is_regression or len(last.counts) < 2):
        return last.place  # and a sentence of its own
    if last.is_doubtful:
        found.insert(1, last)
    candidates = [Candidate(one.name, tuple(one.counts.items())) for one in found]
    more = len(candidates) - MOST_CANDIDATES
    raise TargetError(grid.source, doubt, candidates[:MOST_CANDIDATES], max(0, more))


def _rival(kept: Sequence[_Judged]) -> tuple[str, _Judged]:
    """Why another column may as well be the target, and which; '' if none is."""
    *others, last = kept
    what = f"{shown(last.name)!r} is the last column, but"
    called = [one for one in others if one.tells == 2 and one.is_candidate()]
    if called and last.tells == 2:
        return f"{shown(last.name)!r} and {shown(called[0].name)!r} are both called so", called[0]
    if last.tells == 2:
        return "", last
    if called:
        return f"{what} {shown(called[0].name)!r} is called like a target", called[0]
    if not 3 <= len(others) <= _MOST_OTHERS:
        return "", last
    few = FEW_NUMBERS // 2
    if last.numeric and len(last.counts) > few:
        possible = [one for one in others if one.is_candidate()]
        if len(possible) == 1 and len(possible[0].counts) <= few:
            name = shown(possible[0].name)
            return f"{what} {name!r} is the only other one of few values", possible[0]
    if _says_feature(last.name):
        maybe = [one for one in others if one.tells and one.is_candidate()]
        maybe = [one for one in maybe if not _says_feature(one.name)]
        if maybe:
            return f"{what} {shown(maybe[0].name)!r} may well be it", maybe[0]
    own, first = set(last.counts), others[0]
    both = last.numeric and first.numeric and first.is_candidate()
    if both and first.grid.header_line is None and len(first.counts) <= few:
        return f"{what} nothing has a name, and {shown(first.name)!r} may as well be it", first
    if not first.is_candidate() or (last.numeric and first.numeric):
        return "", last
    bare = first.grid.header_line is None and not any(one.numeric for one in kept)
    two = set(first.counts)
    if bare and len(two) == 2 and all(set(one.counts) != two for one in kept[1:]):
        return f"{what} {shown(first.name)!r} holds two classes that no other column has", first
    if last.numeric:
        odd = all(one.numeric for one in others[1:])
        alike = [one for one in others[1:] if odd and _alike(own, set(one.counts))]
    else:
        odd = not own & set(first.counts)
        alike = [one for one in others[1:] if odd and set(one.counts) == own]
    if odd and 3 * len(alike) >= 2 * (len(others) - 1):
        return f"{what} looks like the others, and {shown(first.name)!r} does not", first
    return "", last


def _alike(own: set[str], other: set[str]) -> bool:
    return 2 * len(own & other) > len(own | other)
