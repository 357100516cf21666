"""How accuracies were measured, in words, and which test belongs to it."""

import re
from dataclasses import dataclass
from typing import Literal

__all__ = ["Protocol", "read_protocol"]


ROWS = (
    "a sign-flip test of the paired differences of the test rows, with a variance factor for what "
    "rows teach each other"
)


@dataclass(frozen=True)
class Protocol:
    """A way of splitting a table.

    Attributes:
        kind: decides the test.
        text: for sentences, such as '5×2 cv'.
        folds: the names of all folds, where they follow from the protocol; else ().
        parts: how many parts the rows are dealt to, for the size of a test fold; 0 if unknown.
    """

    kind: Literal["5x2", "folds", "holdout"]
    text: str
    folds: tuple[str, ...] = ()
    parts: int = 0

    @property
    def test(self) -> str:
        """The test's name and source, for the methods paragraph."""
        return {
            "5x2": ROWS,
            "folds": ROWS,
            "holdout": "McNemar’s mid-p test (Fagerland, Lydersen and Laake, 2013)",
        }[self.kind]


def read_protocol(folds: str, named: tuple[str, ...] = ()) -> Protocol:
    """Read the setting 'folds'; ``named`` are the folds that a table has of its own.

    >>> read_protocol("5x2").text, read_protocol("10").text, read_protocol("3x10").text
    ('5×2 cv', '10-fold cv', '3×10-fold cv')
    """
    if folds == "5x2":
        names = tuple(f"{repeat}{half}" for repeat in range(1, 6) for half in "ab")
        return Protocol("5x2", "5×2 cv", names, 2)
    if folds.startswith("holdout") and len(named) > 1:
        return Protocol("folds", f"{len(named)} given folds", named, len(named))
    if folds.startswith("holdout"):
        return Protocol("holdout", "one holdout", ("holdout",))
    found = re.fullmatch(r"(?:(\d{1,4})[x×])?(\d{1,4})", folds)
    if not found:
        return Protocol("folds", f"splits {folds!r}")
    repeats, parts = found.groups()
    if repeats:
        return Protocol("folds", f"{repeats}×{parts}-fold cv", named, int(parts))
    names = named or tuple(str(fold) for fold in range(1, int(parts) + 1))
    return Protocol("folds", f"{parts}-fold cv", names, int(parts))
