"""Columns of cells as they were written, in arrow's memory, and what counts as a number.

A number is a decimal number in ASCII digits that float64 can hold. A cell as an object of Python
takes some 60 bytes, and a table has as many as its file has fields.
"""

import itertools
import json
import math
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from expacc.data.options import need

Cell = str | int | float | bool | None
Form = Literal["plain", "number", "json"]
Codes = NDArray[np.int32]
Floats = NDArray[np.float64]

_NUMBER = {
    point: re.compile(
        rf"[+-]?(?:[0-9]++(?:{re.escape(point)}[0-9]*+)?|{re.escape(point)}[0-9]++)"
        r"(?:[eE][+-]?[0-9]++)?"
    )
    for point in ".,"
}
_WHOLE = re.compile(r"([+-]?[0-9]+)(?:\.0*)?")
_SEGMENT = 4_000_000  # rows that are looked at together for their different values


def as_text(cell: Cell) -> str | None:
    """A cell as text: text as it is, 1 as '1', 1.0 as '1.0', True as 'True', NaN as nothing."""
    if cell is None or isinstance(cell, str):
        return cell
    return None if cell != cell else repr(cell)


def whole_number(value: str | float | None) -> Cell:
    """A number without a fraction is an integer, as workbooks and decimals have it."""
    if value is None:
        return None
    whole = _WHOLE.fullmatch(str(value))
    return int(whole[1]) if whole else float(value)


def _bits(floats: Any) -> Any:
    """Floats as the integers of their bits."""
    arrow = need("pyarrow", "reading tables")
    gaps = floats.is_null().to_numpy(zero_copy_only=False)
    numbers = floats.to_numpy(zero_copy_only=False).astype(np.float64)
    return arrow.array(numbers.view(np.int64), mask=gaps)


class Cells(Sequence[Cell]):
    """The cells of one column.

    Attributes:
        array: texts, numbers or booleans, a chunked array of arrow's; null where nothing stood.
        form: ``plain``; ``number`` if texts or floats stand for numbers that are whole where they
            can be; ``json`` if each text is JSON, for a column that holds cells of several kinds.
    """

    def __init__(self, array: Any, form: Form = "plain") -> None:
        arrow = need("pyarrow", "reading tables")
        self.array = (
            array if isinstance(array, arrow.ChunkedArray) else arrow.chunked_array([array])
        )
        self.form = form

    @classmethod
    def of(cls, cells: Sequence[Cell]) -> "Cells":
        """A column of objects."""
        if isinstance(cells, cls):
            return cells
        arrow = need("pyarrow", "reading tables")
        kinds = set(map(type, cells)) - {type(None)}
        if kinds <= {str}:
            return cls(arrow.array(cells, arrow.string()))
        if kinds in ({float}, {bool}):
            return cls(arrow.array(cells))
        texts = [None if cell is None else json.dumps(cell) for cell in cells]
        return cls(arrow.array(texts, arrow.string()), "json")

    @property
    def is_text(self) -> bool:
        """Whether the array holds the texts of the file, one a row."""
        return self.form == "plain" and str(self.array.type) in ("string", "large_string")

    @property
    def is_numeric(self) -> bool:
        """Whether the array holds integers or floats."""
        return re.match("u?int|float|double", str(self.array.type)) is not None

    def decoded(self, array: Any) -> list[Cell]:
        """A part of the array as objects."""
        raw = array.to_pylist()
        if self.form == "number":
            return list(map(whole_number, raw))
        if self.form == "json":
            return [None if text is None else json.loads(text) for text in raw]
        return list(raw)

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[Cell]:
        return itertools.chain.from_iterable(map(self.decoded, self.array.chunks))

    @overload
    def __getitem__(self, place: int) -> Cell: ...
    @overload
    def __getitem__(self, place: slice) -> list[Cell]: ...
    def __getitem__(self, place: int | slice) -> Cell | list[Cell]:
        if isinstance(place, slice):
            return self.decoded(self.array[place])
        return self.decoded(self.array.slice(range(len(self))[place], 1))[0]

    def __contains__(self, cell: object) -> bool:
        if not self.is_text:
            return cell in self.decoded(self.distinct()[0])
        import pyarrow.compute as compute

        return any(compute.any(compute.equal(part, cell)).as_py() for part in self.array.chunks)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment] # as lists have none

    def is_empty(self) -> bool:
        """Whether every cell is an empty text."""
        import pyarrow.compute as compute

        return (compute.max(compute.binary_length(self.array)).as_py() or 0) == 0

    def letters(self) -> int:
        """The letters of all texts; of numbers, four each."""
        import pyarrow.compute as compute

        if not self.is_text:
            return 4 * len(self)
        return int(compute.sum(compute.binary_length(self.array)).as_py() or 0)

    def where(self, kept: NDArray[np.bool_]) -> "Cells":
        """The cells of some rows."""
        return Cells(self.array.filter(kept), self.form)

    def distinct(self, most: int | None = None) -> tuple[Any, Codes]:
        """The different values that occur, and each row's place among them, -1 for nothing.

        Raises:
            OverflowError: there are more than ``most``; told before all of them are kept.
        """
        arrow = need("pyarrow", "reading tables")
        array, kind = self.array, self.array.type
        given = arrow.types.is_dictionary(kind)
        if given:
            array = array.unify_dictionaries()
        else:
            if arrow.types.is_floating(kind):  # by their bits: 0.0 and -0.0 are two
                array = arrow.chunked_array([_bits(part) for part in array.chunks], arrow.int64())
            for start in range(0, len(array) if most is not None else 0, _SEGMENT):
                if len(array.slice(start, _SEGMENT).unique()) > (most or 0) + 1:
                    raise OverflowError
            array = array.dictionary_encode()
        if not array.num_chunks:
            return arrow.array([], arrow.string()), np.empty(0, np.int32)
        values = array.chunk(0).dictionary
        codes = np.empty(len(array), np.int32)
        start = 0
        for part in array.chunks:
            places = part.indices.fill_null(-1) if part.null_count else part.indices
            codes[start : start + len(part)] = places.to_numpy(zero_copy_only=False)
            start += len(part)
        if given:  # what no row has is not there
            used = np.bincount(codes[codes >= 0], minlength=len(values)) > 0
            codes = np.append(np.cumsum(used) - 1, -1).astype(np.int32)[codes]
            values = values.filter(arrow.array(used))
        if most is not None and len(values) > most:
            raise OverflowError
        if arrow.types.is_floating(kind):
            values = arrow.array(values.to_numpy(zero_copy_only=False).view(np.float64))
        return values, codes

    def levels(self, missing: frozenset[str], most: int | None = None) -> tuple[Any, Codes]:
        """The different texts but ``missing``, in order, and each row's place among them.

        Numbers are in the order of their values ('2' before '10') if all are numbers.

        Raises:
            OverflowError: as for ``distinct``.
        """
        import pyarrow as arrow
        import pyarrow.compute as compute

        values, codes = self.distinct(most)
        if not (self.form == "plain" and values.type in (arrow.string(), arrow.large_string())):
            texts = [as_text(cell) for cell in self.decoded(values)]
            again = Cells(arrow.array(texts, arrow.string()))  # 1.50 and 1.5 may have become one
            values, places = again.distinct()
            codes = np.append(places, np.int32(-1))[codes]
        kept = compute.invert(compute.is_in(values, arrow.array(sorted(missing), values.type)))
        words = values.filter(kept)
        order = compute.sort_indices(words).to_numpy()
        numbers = text_numbers(words)
        if numbers is not None:
            order = order[np.argsort(numbers[order], kind="stable")]
        rank = np.empty(len(order), np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        place = np.full(len(values) + 1, -1, np.int32)  # -1 takes the last
        place[:-1][kept.to_numpy(zero_copy_only=False)] = rank
        return words.take(arrow.array(order)), place[codes]


def is_number(cell: Cell, decimal: str = ".") -> bool:
    """Whether one cell is a number.

    >>> [is_number(text) for text in ("-1.5e3", ".5", "007", "1_000", "0x10", "inf", "1e400")]
    [True, True, True, False, False, False, False]
    """
    if isinstance(cell, str):
        return _NUMBER[decimal].fullmatch(cell) is not None and math.isfinite(
            float(cell.replace(",", "."))
        )
    if isinstance(cell, bool) or cell is None:
        return False
    return abs(cell) <= 1.7976931348623157e308 if isinstance(cell, int) else math.isfinite(cell)


def why_not_a_number(cell: Cell, decimal: str = ".") -> str:
    """Words for a sentence about a cell that is not a number."""
    if isinstance(cell, str) and _NUMBER[decimal].fullmatch(cell):
        return f"{cell!r} is beyond float64"
    return f"{cell!r} is not a number"


def text_numbers(texts: Any, decimal: str = ".") -> Floats | None:
    """An array of texts as float64, NaN for null; None if one is not a number.

    arrow reads a decimal number as Python does, to the last bit; what else it reads (inf, nan, and
    what is beyond float64) is not finite.
    """
    import pyarrow as arrow
    import pyarrow.compute as compute

    if decimal == ",":
        if compute.any(compute.match_substring(texts, ".")).as_py():
            return None
        texts = compute.replace_substring(texts, ",", ".")
    try:
        found = texts.cast(arrow.float64())
    except arrow.ArrowInvalid:
        return None
    values: Floats = found.to_numpy(zero_copy_only=False)
    fine = np.isfinite(values)
    if texts.null_count:
        fine |= texts.is_null().to_numpy(zero_copy_only=False)
    return values if fine.all() else None


def _part(texts: Any, missing: Collection[str], decimal: str) -> Floats | None:
    """As ``text_numbers``, with words for missing values; most columns have none."""
    import pyarrow as arrow
    import pyarrow.compute as compute

    values = None
    if not any(is_number(word, decimal) for word in missing):
        values = text_numbers(texts, decimal)
    if values is None:
        gaps = compute.is_in(texts, arrow.array(sorted(missing), texts.type))
        gone = arrow.scalar(None, texts.type)
        values = text_numbers(compute.if_else(gaps, gone, texts), decimal)
    return values


def to_numbers(
    column: Cells, missing: Collection[str], decimal: str = ".", typed_missing: Collection[str] = ()
) -> Floats | None:
    """The cells as float64, NaN where missing; None if one is neither missing nor a number.

    Args:
        column: the cells.
        missing: texts that count as missing.
        decimal: the decimal sign of texts.
        typed_missing: what typed cells read like that count as missing, such as 99 for '99'.
    """
    if column.is_numeric:
        values = _native(column, typed_missing)
        return None if np.isinf(values).any() else values
    decimals = column.form == "number" and not {*typed_missing} - {"", "?"}
    if column.is_text or decimals:
        whole = np.empty(len(column))
        start = 0
        for texts in column.array.chunks:
            part = _part(texts, missing, decimal)
            if part is None:
                return None
            whole[start : start + len(texts)] = part
            start += len(texts)
        return whole
    distinct, codes = column.distinct()
    found = [_value(cell, missing, decimal, typed_missing) for cell in column.decoded(distinct)]
    if any(value is None for value in found):
        return None
    return np.array([*found, np.nan], np.float64)[codes]


def _native(column: Cells, typed_missing: Collection[str]) -> Floats:
    """Numbers as float64, NaN where missing; infinite ones as they are."""
    parts = [part.to_numpy(zero_copy_only=False) for part in column.array.chunks]
    values = np.concatenate([np.empty(0), *parts]).astype(np.float64, copy=False)
    whole = column.array.type.bit_width if "int" in str(column.array.type) else 0
    for word in typed_missing:
        if is_number(word) or word in ("inf", "-inf"):
            number = float(word)
            cell = int(number) if whole and number % 1 == 0 else number
            if as_text(whole_number(number) if column.form == "number" else cell) == word:
                values[values == number] = np.nan
    return values


def _value(
    cell: Cell, missing: Collection[str], decimal: str, typed_missing: Collection[str]
) -> float | None:
    if isinstance(cell, str):
        if cell in missing:
            return math.nan
        return float(cell.replace(",", ".")) if is_number(cell, decimal) else None
    text = as_text(cell)
    if cell is None or text is None or text in typed_missing:
        return math.nan
    return float(cell) if is_number(cell) else None


def first_odd(
    column: Cells, missing: Collection[str], decimal: str, typed_missing: Collection[str] = ()
) -> int:
    """The first row whose cell is neither missing nor a number; there must be one."""
    if column.is_numeric:
        return int(np.flatnonzero(np.isinf(_native(column, typed_missing)))[0])
    start = 0
    for chunk in column.array.chunks:
        if not column.is_text or _part(chunk, missing, decimal) is None:
            for row, cell in enumerate(column.decoded(chunk)):
                if _value(cell, missing, decimal, typed_missing) is None:
                    return start + row
        start += len(chunk)
    raise ValueError("every cell is a number.")
