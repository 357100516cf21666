"""Check a saved preprocessor before anything is built from it: it may come from anywhere."""

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["check_record"]

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


def check_record(record: Mapping[str, Any]) -> None:
    """Raise unless ``record`` can be a preprocessor's ``to_json``."""
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
