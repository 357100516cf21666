"""Text that comes from a stranger's file, made fit to be printed, or to be opened elsewhere.

And the error that is no more than such a line, and the plainest checks: here, and not with the
sentences about tensors, because the command line must do without the seconds that torch takes.
"""

import csv
import io
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

_JOINERS = "\u200c\u200d"  # that words of Persian and pictures of people are made with
_FORMULA = "=+-@＝＋－＠"  # the wide ones are meant
_NUMBER = re.compile(r"[+-]?[\d.,]+(?:[eE][+-]?\d+)?")
LONGEST = 10_000  # letters of a line of output


# What ``fit`` and comparisons report to: called with the steps done and numbers by name. Those of
# ``expacc.integrations`` write to TensorBoard, MLflow and Weights & Biases.
Report = Callable[[int, Mapping[str, float]], object]


class UsageError(ValueError):
    """What only the user can mend: the command line prints its one line and exits with 2.

    Every other exception is a bug of ours there, and shown with its traceback.
    """


def check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    """Raise unless ``value`` is one of ``choices``."""
    if not any(value is choice or (type(value) is str and value == choice) for choice in choices):
        *most, last = (repr(choice) for choice in choices)
        raise ValueError(f"{name} must be {', '.join(most)} or {last}; got {value!r}.")


def check_count(name: str, value: object, low: int = 1) -> None:
    """Raise unless ``value`` is an int >= ``low``."""
    if type(value) is not int:
        raise TypeError(f"{name} must be an int; got {value!r}.")
    if value < low:
        raise ValueError(f"{name} must be >= {low}; got {value}.")


def plain(text: str, most: int = 0) -> str:
    """Replace what a name must not bring: controls, direction changes, halves of characters.

    Args:
        text: any string.
        most: letters to keep; 0 for all.

    >>> plain("a\\x1b[31mb"), plain("a long name", 6)
    ('a\ufffd[31mb', 'a lon…')
    """
    kept = "".join("\ufffd" if _bad(letter) else letter for letter in text)
    return kept[: most - 1] + "…" if 0 < most < len(kept) else kept


def _bad(letter: str) -> bool:
    if letter in "\n\t" or " " <= letter <= "~":
        return False
    kind = unicodedata.category(letter)
    return kind in ("Cc", "Cs", "Zl", "Zp") or (kind == "Cf" and letter not in _JOINERS)


def one_line(text: str) -> str:
    """The same for a line of output: no line breaks, and an end.

    >>> one_line("a\\nb")
    'a b'
    """
    return plain(" ".join(text[: LONGEST + 1].splitlines()), LONGEST)


def safe_cell(text: str) -> str:
    """A spreadsheet runs text that starts like a formula; an apostrophe stops it.

    >>> safe_cell("=A1"), safe_cell("-1.5"), safe_cell("-A1"), safe_cell("a=1")
    ("'=A1", '-1.5', "'-A1", 'a=1')
    """
    begins = text.lstrip()[:1]
    risky = text[:1] in ("\t", "\r", "\n") or (begins != "" and begins in _FORMULA)
    return "'" + text if risky and not _NUMBER.fullmatch(text) else text


def csv_text(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table as CSV: six digits of a number, nothing for None, text that no spreadsheet runs.

    >>> csv_text(["a", "=b"], [["=A1", None], [0.1234567, 3]])
    "a,'=b\\n'=A1,\\n0.123457,3\\n"
    """

    def cell(value: Any) -> Any:
        if isinstance(value, float):
            return f"{value:.6g}"
        return safe_cell(value) if isinstance(value, str) else value

    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(map(cell, head))
    writer.writerows([cell(value) for value in row] for row in rows)
    return buffer.getvalue()
