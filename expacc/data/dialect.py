"""Which character parts the fields: by the file's ending, else by what parts all lines evenly."""

import re
from collections import Counter
from collections.abc import Sequence

from expacc.data.errors import TableError

__all__ = ["WHITESPACE", "delimiter_words", "sniff_delimiter", "split_plain"]

WHITESPACE = "whitespace"
_CANDIDATES = (",", ";", "\t", "|")
_BLANKS = " \t"
_WORD = re.compile(r"[^ \t]++")


def delimiter_words(delimiter: str) -> str:
    """The delimiter as a message names it."""
    return {"\t": "tab", WHITESPACE: "whitespace"}.get(delimiter, f"'{delimiter}'")


def split_plain(line: str, delimiter: str) -> list[str]:
    """The fields of a line without quotes, blanks and all."""
    if delimiter == WHITESPACE:
        # Not str.split(): it would also part at a no-break space.
        return [field for field in line.replace("\t", " ").split(" ") if field]
    return line.split(delimiter)


def _fields(line: str, delimiter: str) -> int:
    """How many fields there are; not parted, for a line may be all the file."""
    if delimiter == WHITESPACE:
        return sum(1 for _ in _WORD.finditer(line))
    return line.count(delimiter) + 1


def _bare(line: str, quote: str | None) -> str:
    """The line with everything between quotes taken out, so that what parts fields remains."""
    if quote is None or quote not in line:
        return line
    return "x".join(line.split(quote)[::2])


def sniff_delimiter(
    source: str, suffix: str, lines: Sequence[str], quote: str | None
) -> tuple[str, str]:
    """The delimiter of a sample of lines and the sentence that says so.

    A candidate must part every line into the same number of fields; among several nothing but the
    user can decide. Where none does, the one that comes nearest is taken, so that the reader names
    the line that breaks the rule.
    """
    if suffix in (".tsv", ".tab"):
        return "\t", "Fields are parted by tab, as the file's ending says."
    bare = [_bare(line, quote) for line in lines if line.strip(_BLANKS)]
    fits: dict[str, tuple[int, int]] = {}
    for candidate in (*_CANDIDATES, WHITESPACE):
        counts = Counter(_fields(line, candidate) for line in bare)
        counts.pop(1, None)
        if counts:
            fields, share = max(counts.items(), key=lambda entry: (entry[1], entry[0]))
            fits[candidate] = (share, fields)
    even = [one for one in _CANDIDATES if one in fits and fits[one][0] == len(bare)]
    if len(even) > 1:
        ways = " and ".join(
            f"{delimiter_words(candidate)} ({fits[candidate][1]} fields)" for candidate in even
        )
        raise TableError(
            source, f"{ways} part every line evenly; say which with --delimiter.", line=1
        )
    if even:
        chosen = even[0]
    else:
        # Spaces within comma-parted text part lines too: whitespace needs every line, or no rival.
        near = [candidate for candidate in _CANDIDATES if candidate in fits]
        if WHITESPACE in fits and fits[WHITESPACE][0] == len(bare) and suffix != ".csv":
            chosen = WHITESPACE
        elif near:
            chosen = max(near, key=lambda candidate: fits[candidate])
        else:
            chosen = WHITESPACE if WHITESPACE in fits and suffix != ".csv" else ","
    return chosen, f"Fields are parted by {delimiter_words(chosen)}, judged by the first lines."
