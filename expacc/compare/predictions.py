"""A table with predictions beside what was in it."""

import csv
import io
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expacc.compare.deploy import Deployed
from expacc.data import ReadOptions, Table
from expacc.data.reading import read_grid
from expacc.files import write_whole
from expacc.plain import plain, safe_cell

__all__ = ["accuracy_on", "check_place", "with_predictions", "write_table"]

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_ROWS = 4096


def check_place(out: Path | None) -> None:
    """Raise for a file that cannot be, or would not be what its name says, before any work."""
    if out is None:
        return
    if out.suffix.lower() not in _DELIMITERS:
        raise ValueError(f"--out must end with .csv or .tsv; got {str(out)!r}.")
    if not out.parent.is_dir():
        raise ValueError(f"--out must be in a folder that exists; {str(out.parent)!r} does not.")


def with_predictions(
    deployed: Deployed,
    data: str | Path,
    given: Mapping[str, Any],
    labels: Sequence[str],
    chances: NDArray[np.float64],
) -> tuple[list[str], list[Iterable[Any]]]:
    """Names and columns: those of the file as written, then prediction and probabilities."""
    grid, _, _ = read_grid(data, ReadOptions(**deployed.reading(given)))
    names = list(grid.names)
    columns: list[Iterable[Any]] = [*grid.columns]
    added: list[tuple[str, Iterable[Any]]] = [("prediction", labels)]
    for place, name in enumerate(deployed.classes):
        # Nine digits say all that a probability of a model can; zeros at the end say nothing.
        shares = map("{:.9g}".format, chances[:, place])
        added.append((f"probability {safe_cell(name)}", shares))
    for name, values in added:
        while name in names:  # the file may hold predictions of another model
            name += "'"
        names.append(name)
        columns.append(values)
    return names, columns


def write_table(names: Sequence[str], columns: Sequence[Iterable[Any]], out: Path | None) -> None:
    """To a file, whole or not at all, or to standard output; always with a header.

    Text that a spreadsheet would run as a formula gets an apostrophe before it.
    """
    sign = "," if out is None else _DELIMITERS[out.suffix.lower()]
    parts = _lines(itertools.chain([names], zip(*columns, strict=True)), sign)
    if out is not None:
        write_whole(out, "".join(parts))
        return
    for part in parts:
        sys.stdout.write(plain(part) if sys.stdout.isatty() else part)


def _lines(rows: Iterable[Sequence[Any]], sign: str) -> Iterator[str]:
    """Lines of text, some thousand at a time: a buffer for all takes four bytes a letter."""
    rows = iter(rows)
    while some := list(itertools.islice(rows, _ROWS)):
        text = io.StringIO(newline="")
        writer = csv.writer(text, delimiter=sign, lineterminator="\n")
        for row in some:
            writer.writerow([safe_cell(cell) if isinstance(cell, str) else cell for cell in row])
        yield text.getvalue()


def accuracy_on(table: Table, predicted: Sequence[str]) -> tuple[int, float] | None:
    """Rows with a label, and the share of them that are predicted right; None without labels."""
    if table.labels is None:
        return None
    pairs = [(a, b) for a, b in zip(table.labels.texts(), predicted, strict=True) if a is not None]
    if not pairs:
        return None
    return len(pairs), sum(a == b for a, b in pairs) / len(pairs)
