"""Free text as numbers: each row's words, hashed, and of those that recur TF-IDF columns.

Reading a table hashes words, which learns nothing. Which words get a column, and their weights, is
learnt by ``fit_words`` from training rows alone.
"""

import re
import zlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from expacc.data.cells import Codes
from expacc.data.table import Column, shown

Words = NDArray[np.int32]  # (rows, words): places of a hash table, -1 behind the last

BUCKETS = 1 << 20
MOST_WORDS = 256  # of a text; the rest of a longer one is left out
_MOST_CELLS = 20_000_000
_LEAST_WORDS = 5.0  # on average, of free text; names and addresses have fewer
_LOOK = 2_000  # texts that are looked at
_SCALE = 4.0  # length of a row, beside features of deviation 1
# Letters of a script without blanks are words of their own.
_WORD = re.compile(r"[぀-ヿ㐀-鿿豈-﫿ｦ-ﾝ฀-๿]|[^\W_]+(?:['’][^\W\d_]+)?")


def words_of(text: str) -> list[str]:
    """The words of a text, in small letters.

    >>> words_of("It's 3 o'clock: WIN!")
    ["it's", '3', "o'clock", 'win']
    """
    return _WORD.findall(text.lower())


def is_free_text(texts: Sequence[str]) -> bool:
    """Whether texts, all different, are sentences rather than names or keys."""
    some = texts[:: max(1, len(texts) // _LOOK)]
    parted = [words_of(text) for text in some]
    count = sum(map(len, parted))
    return count >= _LEAST_WORDS * len(some) and len({w for one in parted for w in one}) < count


def hash_words(texts: Sequence[str], codes: Codes) -> Words:
    """Each row's words.

    Args:
        texts: different ones.
        codes: the place of each row's text among them, -1 for none.
    """
    most = max(8, min(MOST_WORDS, _MOST_CELLS // max(1, len(codes))))
    places: dict[str, int] = {}
    found = np.full((len(texts) + 1, most), -1, np.int32)
    widest = 1
    for row, text in enumerate(texts):
        own = words_of(text[: 64 * most])[:most]
        for word in own:
            if word not in places:
                places[word] = zlib.crc32(word.encode()) % BUCKETS
        found[row, : len(own)] = [places[word] for word in own]
        widest = max(widest, len(own))
    return np.ascontiguousarray(found[:, :widest])[codes]  # -1 takes the last, which is empty


def hash_texts(columns: Sequence[Column], most: int, rows: int) -> tuple[list[Column], list[str]]:
    """Columns of texts, which come as categories, as their words; a line that says so.

    Args:
        columns: all of a table.
        most: features that all texts together may become.
        rows: of the table, of which a half is the most as well.
    """
    texts = [column for column in columns if column.kind == "text"]
    width = max(1, min(most, max(64, rows // 2)) // len(texts))
    found = [
        replace(
            column,
            values=hash_words(column.levels, column.values.astype(np.int32)),
            levels=(),
            width=width,
        )
        if column.kind == "text"
        else column
        for column in columns
    ]
    names = ", ".join(shown(column.name) for column in texts)
    return found, [
        f"{names}: free text; its most common words, up to {width:,} and of a text's first "
        f"{MOST_WORDS}, become TF-IDF columns (--text-columns, --drop)."
    ]


def fit_words(words: Words, most: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The words that most rows have, two at least, in order of their hashes; their weights."""
    rows = np.zeros(BUCKETS, np.int64)
    ordered = np.sort(words, axis=1)
    first = ordered >= 0
    first[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    np.add.at(rows, ordered[first], 1)
    known = np.flatnonzero((rows > 1) & (rows < len(words)))
    kept = np.sort(known[np.argsort(-rows[known], kind="stable")[:most]])
    return kept, np.log((1 + len(words)) / (1 + rows[kept])) + 1


def weigh_words(
    words: Words, kept: NDArray[np.int64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """TF-IDF of rows: log(1 + count) times a word's weight, each row of one length."""
    place = np.full(BUCKETS + 1, -1, np.int64)
    place[kept] = np.arange(len(kept))
    column = place[words]
    row, at = np.nonzero(column >= 0)
    counts = np.zeros((len(words), len(kept)))
    np.add.at(counts, (row, column[row, at]), 1)
    found = np.log1p(counts) * weights
    length = np.sqrt((found * found).sum(axis=1, keepdims=True))
    return np.asarray(_SCALE * found / np.maximum(length, 1e-12))
