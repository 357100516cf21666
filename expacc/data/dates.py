"""Dates as people write them, read without a guess: one form a column, days since 1970.

29.2.2020, 2020-02-29, 2020/2/29 12:30, 29-Feb-2020, Feb 29, 2020 and 2/29/2020. Where day and month
stand by numbers with slashes or hyphens, the month is first unless a value says otherwise.
"""

import datetime
import re
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from expacc.data.table import Column

PARTS = ("year", "month", "day of week", "days", "hour")
"""What a date becomes; days are counted from 1970-01-01."""

_NAMES = (
    *("jan january januar", "feb february februar", "mar march märz", "apr april", "may mai"),
    *("jun june juni", "jul july juli", "aug august", "sep sept september"),
    *("oct october okt oktober", "nov november", "dec december dez dezember"),
)
_MONTHS = {name: month for month, names in enumerate(_NAMES, 1) for name in names.split()}
_TIME = (
    r"(?:(?:[T ]|, ?)(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,]\d+)?)?"
    r"(?: ?(?P<half>[AaPp])\.?[Mm]\.?)?(?: ?(?:Z|UTC|[+-]\d\d:?(?:\d\d)?))?)?"
)
_WORD = r"(?P<word>[^\W\d_]{3,9})\.?"
_FORMS = tuple(
    re.compile(form + _TIME)
    for form in (
        r"(?P<year>\d{4})(?P<sign>[-/.])(?P<month>\d{1,2})(?P=sign)(?P<day>\d{1,2})",
        r"(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>\d{4}|\d\d)",
        r"(?P<first>\d{1,2})(?P<sign>[-/])(?P<then>\d{1,2})(?P=sign)(?P<year>\d{4}|\d\d)",
        rf"(?P<day>\d{{1,2}})(?:st|nd|rd|th)?[-\s]{_WORD}[-\s,]+(?P<year>\d{{4}}|\d\d)",
        rf"{_WORD}\s(?P<day>\d{{1,2}})(?:st|nd|rd|th)?,?\s(?P<year>\d{{4}})",
    )
)
_COMPACT = re.compile(r"(?P<year>\d{4})(?P<month>\d\d)(?P<day>\d\d)(?P<hour>)(?P<half>)")
_EPOCH = datetime.datetime(1970, 1, 1)
_LOOK = 200  # values that are looked at before all are


def _day(found: re.Match[str], day_first: bool) -> float:
    """The days of a date since 1970.

    Raises:
        ValueError: there is no such day.
    """
    part = found.groupdict()
    day, month = part.get("day"), part.get("month")
    if "first" in part:
        day, month = (part["first"], part["then"])[:: 1 if day_first else -1]
    named = _MONTHS.get(part["word"].lower()) if part.get("word") else None
    if "word" in part and named is None:
        raise ValueError("no month")
    year = int(part["year"])
    if len(part["year"]) == 2:  # as POSIX has it
        year += 1900 if year > 68 else 2000
    hour = int(part["hour"] or 0)
    if part["half"]:
        hour = hour % 12 + 12 * (part["half"] in "pP")
    when = datetime.datetime(
        year, named or int(month or 0), int(day or 0),
        hour, int(part.get("minute") or 0), int(part.get("second") or 0),
    )  # fmt: skip
    if not 1000 <= year <= 2999:
        raise ValueError("no year")
    return (when - _EPOCH) / datetime.timedelta(days=1)


def read_dates(
    texts: Sequence[str], day_first: bool | None = None
) -> tuple[NDArray[np.float64], bool] | None:
    """Days since 1970 of different texts, and whether the day is first; None if one is no date.

    Args:
        texts: all the values.
        day_first: of 3/4/2020; None takes what makes all of them dates, the month first if both do.

    >>> read_dates(["1970-01-03", "1970-01-02 12:00"])
    (array([2. , 1.5]), False)
    >>> read_dates(["13/01/2020", "3/4/2020"])[1], read_dates(["1.5", "2"])
    (True, None)
    """
    if not texts or not any(letter.isdigit() for letter in texts[0]):
        return None
    form = next((one for one in _FORMS if one.fullmatch(texts[0])), None)
    if form is None:
        return None
    if len(texts) > _LOOK and read_dates(texts[:_LOOK]) is None:
        return None
    found = [form.fullmatch(text) for text in texts]
    if any(one is None for one in found):
        return None
    for first in (False, True) if day_first is None else (day_first,):
        try:
            days = [_day(one, first) for one in found if one is not None]
        except ValueError:
            continue
        return np.array(days), first and form is _FORMS[2]
    return None


def read_compact(texts: Sequence[str]) -> NDArray[np.float64] | None:
    """The same of dates such as 20200229, which are numbers too; the caller has a reason."""
    found = [_COMPACT.fullmatch(text) for text in texts]
    try:
        days = np.array([_day(one, False) for one in found if one is not None])
    except ValueError:
        return None
    return days if len(days) == len(texts) > 0 else None


def dates_of(column: Column) -> Column | None:
    """A category of dates, or a number of such as 20200229, as a column of dates; else None."""
    gaps, day_first = column.missing, False
    days = np.full(len(gaps), np.nan)
    if column.kind == "category":
        found = read_dates(column.levels)
        if found is None:
            return None
        days[~gaps], day_first = found[0][column.values[~gaps].astype(np.int64)], found[1]
    else:
        numbers, places = np.unique(column.values[~gaps], return_inverse=True)
        if (numbers % 1).any() or numbers[0] < 1000_01_01 or numbers[-1] > 2999_12_31:
            return None
        read = read_compact([str(int(number)) for number in numbers])
        if read is None:
            return None
        days[~gaps] = read[places]
    return Column(column.name, "date", days, day_first=day_first, width=len(PARTS))


def read_date(text: str, day_first: bool) -> float | None:
    """The same of one date in any form; None if it is none."""
    for form in (*_FORMS, _COMPACT):
        found = form.fullmatch(text)
        if found is not None:
            with suppress(ValueError):
                return _day(found, day_first)
    return None


def parts_of(days: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """What a model is given of dates, NaN where there is none."""
    gone = np.isnan(days)
    whole = np.floor(np.where(gone, 0.0, days))
    date = whole.astype("datetime64[D]")
    year = date.astype("datetime64[Y]")
    months = (date.astype("datetime64[M]") - year.astype("datetime64[M]")).astype(np.float64)
    values = (
        year.astype(np.float64) + 1970,
        months + 1,
        (whole + 3) % 7,  # 1970 began on a Thursday; Monday is 0
        days,
        (np.where(gone, 0.0, days) - whole) * 24,
    )
    return {name: np.where(gone, np.nan, part) for name, part in zip(PARTS, values, strict=True)}
