"""Categories of a data frame, or of named columns, as numbers that a network can have values of."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expacc.plain import UsageError

Levels = NDArray[Any]


def values_of_categories(features: Any, asked: Any) -> dict[int, Levels]:
    """The sorted values of a data frame's columns that are categories, by column.

    Args:
        features: as given to ``fit``.
        asked: as ``category_mask`` takes it.
    """
    if not _is_frame(features):
        return {}
    names = list(features.columns)
    if isinstance(asked, str) or asked is None:
        mask = np.array([_is_category(dtype) for dtype in features.dtypes], np.bool_)
        mask &= asked is not None
    else:
        mask = category_mask(asked, names, len(names))
    levels = {}
    for place in np.flatnonzero(mask):
        column = features.iloc[:, place]
        if _is_category(column.dtype) or column.dtype.kind not in "buif":
            found = np.asarray(column.dropna().unique()).astype(object).tolist()
            # By type first: numbers and texts in one column have no order of their own.
            values = sorted(found, key=lambda value: (type(value).__name__, value))
            levels[int(place)] = np.array([*values, None], dtype=object)[:-1]
    return levels


def category_mask(asked: Any, names: list[Any] | None, count: int) -> NDArray[np.bool_]:
    """Which of so many columns are categories.

    Args:
        asked: 'from_dtype' for the columns of a data frame whose dtype is category; None for
            none; else names, column numbers or a mask, as in HistGradientBoostingClassifier.
        names: of the columns, if they have any.
        count: of the columns.
    """
    mask = np.zeros(count, np.bool_)
    if isinstance(asked, str) and asked != "from_dtype":
        raise UsageError(
            "categorical_features must be 'from_dtype', None, names, column numbers or a mask; "
            f"got {asked!r}."
        )
    if asked is not None and not isinstance(asked, str):
        mask[_places(asked, names, count)] = True
    return mask


def _is_frame(features: Any) -> bool:
    return hasattr(features, "iloc") and hasattr(features, "columns")


def _is_category(dtype: Any) -> bool:
    return str(getattr(dtype, "name", "")) == "category"


def _places(asked: Any, names: list[Any] | None, count: int) -> list[int]:
    given = np.asarray(asked)
    if given.dtype == np.bool_ and given.shape == (count,):
        return [int(place) for place in np.flatnonzero(given)]
    places = []
    for one in given.ravel().tolist():
        if isinstance(one, str) and names is not None and one in names:
            places.append(names.index(one))
        elif isinstance(one, int) and not isinstance(one, bool) and 0 <= one < count:
            places.append(one)
        else:
            has = f"columns {names}" if names is not None else f"{count} columns, from 0"
            raise UsageError(
                f"categorical_features must name columns of X; got {one!r}. X has {has}."
            )
    return places


def as_numbers(features: Any, levels: Mapping[int, Levels]) -> Any:
    """The same features with the values of categories as their numbers; NaN for one not known."""
    if not levels or not _is_frame(features):
        return features
    columns = {}
    for place, name in enumerate(features.columns):
        column = features.iloc[:, place]
        if place in levels and place < features.shape[1]:
            known = {value: float(number) for number, value in enumerate(levels[place])}
            column = column.astype(object).map(known).astype(np.float64)
        columns[name] = column
    return type(features)(columns, index=features.index)
