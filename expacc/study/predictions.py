"""A table with predictions beside what was in it."""

import csv
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expacc.data import ReadOptions, Table
from expacc.data.reading import read_grid
from expacc.plain import plain, safe_cell
from expacc.study.deploy import Deployed
from expacc.study.report_files import write_whole

__all__ = ["accuracy_on", "check_place", "with_predictions", "write_table"]

_DELIMITERS = {".csv": ",", ".tsv": "\t"}


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
) -> tuple[list[str], list[Sequence[Any]]]:
    """Names and columns: those of the file as written, then prediction and probabilities."""
    grid, _, _ = read_grid(data, ReadOptions(**deployed.reading(given)))
    names = list(grid.names)
    columns: list[Sequence[Any]] = [*grid.columns]
    added: list[tuple[str, Sequence[Any]]] = [("prediction", labels)]
    for place, name in enumerate(deployed.classes):
        # Nine digits say all that a probability of a model can; zeros at the end say nothing.
        added.append(
            (f"probability {safe_cell(name)}", [f"{p:.9g}" for p in chances[:, place].tolist()])
        )
    for name, values in added:
        while name in names:  # the file may hold predictions of another model
            name += "'"
        names.append(name)
        columns.append(list(values))
    return names, columns


def write_table(names: Sequence[str], columns: Sequence[Sequence[Any]], out: Path | None) -> None:
    """To a file, whole or not at all, or to standard output; always with a header.

    Text that a spreadsheet would run as a formula gets an apostrophe before it.
    """
    text = io.StringIO(newline="")
    sign = "," if out is None else _DELIMITERS[out.suffix.lower()]
    writer = csv.writer(text, delimiter=sign, lineterminator="\n")
    writer.writerow(map(safe_cell, names))
    for row in zip(*columns, strict=True):
        writer.writerow([safe_cell(cell) if isinstance(cell, str) else cell for cell in row])
    if out is None:
        content = text.getvalue()
        sys.stdout.write(plain(content) if sys.stdout.isatty() else content)
    else:
        write_whole(out, text.getvalue())


def accuracy_on(table: Table, predicted: Sequence[str]) -> tuple[int, float] | None:
    """Rows with a label, and the share of them that are predicted right; None without labels."""
    if table.labels is None:
        return None
    pairs = [(a, b) for a, b in zip(table.labels.texts(), predicted, strict=True) if a is not None]
    if not pairs:
        return None
    return len(pairs), sum(a == b for a, b in pairs) / len(pairs)
