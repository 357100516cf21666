"""The ten tables of the EXACT paper from the files that the UCI repository gives out.

A table lies in a folder of its name; each file plain, .gz, .xz or .zst, or in the ZIP archive that
it was downloaded in. Kinds are decided as the authors decide them: a column is numbers if all its
values are, else a category, whose missing values are a level of their own. What they leave out is
left out here: identifiers, and the columns of mice-protein that spell out its classes.
"""

import hashlib
import io
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from expacc.data import Column, Labels, ReadOptions, Split, Table, TableError
from expacc.data.cells import Cell, Cells
from expacc.data.columns import Grid, make_column, make_labels
from expacc.data.containers import read_workbook
from expacc.data.delimited import read_delimited
from expacc.data.options import Position
from expacc.data.source import Source, open_source, table_suffix
from expacc.recipes.exact import TABLES
from expacc.recipes.recipe import data_file, missing_data

FOLDER = "exact-uci"
SHARE, STATE = 0.2, 0  # of the authors' train_test_split
_MOST = 1 << 30  # bytes of one file
_NO_ROWS = np.empty(0, np.int64)


@dataclass(frozen=True)
class Files:
    """How the repository gives out a table.

    Args:
        parts: the training file and, where there is one, the test file; or the only file.
        target: the label's column.
        header: whether the first line holds names.
        drop: columns that are left out.
        instead: other names under which the same table goes about.
        padded: whether lines may lack their last fields.
    """

    parts: tuple[str, ...]
    target: Position = -1
    header: bool = False
    drop: tuple[Position, ...] = ()
    instead: tuple[str, ...] = ()
    padded: bool = False


_FILES = {
    "adult": Files(("adult.data", "adult.test")),
    "annealing": Files(("anneal.data", "anneal.test")),
    "audit-risk": Files(("audit_risk.csv",), "Risk", header=True),
    "balance-scale": Files(("balance-scale.data",), 1),
    "breast-cancer-wisconsin": Files(("wdbc.data",), 2, drop=(1,)),
    "car": Files(("car.data",)),
    "cylinder-bands": Files(("bands.data",), drop=(1, 2, 3, 4), padded=True),
    "dry-bean": Files(("Dry_Bean_Dataset.xlsx",), "Class", header=True),
    "mice-protein": Files(
        ("Data_Cortex_Nuclear.xls",),
        "class",
        header=True,
        drop=("MouseID", "Genotype", "Treatment", "Behavior"),
        instead=("Data_Cortex_Nuclear.xlsx", "Data_Cortex_Nuclear.csv"),
    ),
    "wine": Files(("wine.data",), 1),
}


def files_of(name: str) -> tuple[str, ...]:
    """The files of a table, as paths in the data folder."""
    return tuple(f"{name}/{part}" for part in _FILES[name].parts)


def read_tables(folder: Path, names: Sequence[str] = TABLES) -> tuple[dict[str, Table], list[str]]:
    """The tables that a data folder holds, and a sentence on those that it does not."""
    found: dict[str, Table] = {}
    absent: list[str] = []
    sentences: list[str] = []
    for name in names:
        try:
            table = read_uci(folder / name, name)
        except (TableError, ImportError) as error:
            sentences.append(f"{name} is left out: {error}")
            continue
        if table is None:
            absent += files_of(name)
        else:
            found[name] = table
    if absent:
        sentences.insert(0, missing_data(FOLDER, *absent))
    return found, sentences


def read_uci(place: Path, name: str) -> Table | None:
    """A table of the paper from its own folder; None if its files are not there.

    Raises:
        TableError: a file is there but cannot be read.
    """
    files = _FILES[name]
    parts = [_find(place, part) for part in files.parts]
    if None in parts:
        other = next((path for one in files.instead if (path := _find(place, one))), None)
        if other is None:
            return None
        parts = [other]
    grids, digest = [], hashlib.sha256()
    for part in parts:
        if part is not None:
            grid, sha256 = _grid(part, files)
            grids.append(grid)
            digest.update(sha256.encode())
    return _table(name, grids, files, digest.hexdigest())


def split_of(table: Table, state: int = STATE) -> Split:
    """The test part that came with a table, or the authors' random fifth of its rows."""
    if table.given:
        return table.given[0]
    from sklearn.model_selection import train_test_split

    train, test = train_test_split(np.arange(table.rows), test_size=SHARE, random_state=state)
    return Split(f"split {state}", np.sort(train), _NO_ROWS, np.sort(test))


# ------------------------------------------------------------------------------- finding files


@dataclass(frozen=True)
class _Found:
    """A file on the disk, or a member of a ZIP archive there."""

    path: Path
    member: str = ""

    @property
    def suffix(self) -> str:
        return table_suffix(Path(self.member or self.path.name))


def _find(place: Path, name: str) -> _Found | None:
    if not place.is_dir():
        return None
    for folder in (place, *sorted(path for path in place.iterdir() if path.is_dir())):
        path = data_file(folder, name)
        if path is not None:
            return _Found(path)
    for archive in sorted(place.glob("*.zip")):
        for member in _members(archive):
            if member.rsplit("/", 1)[-1] == name:
                return _Found(archive, member)
    return None


def _members(archive: Path) -> Iterator[str]:
    try:
        with zipfile.ZipFile(archive) as opened:
            yield from opened.namelist()
    except (zipfile.BadZipFile, OSError):  # of no use; the file counts as missing
        return


def _open(found: _Found) -> Source:
    """The bytes, unpacked."""
    if not found.member:
        return open_source(found.path, _MOST)
    raw = found.path.read_bytes()
    digest = hashlib.sha256(raw).hexdigest()
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            if archive.getinfo(found.member).file_size > _MOST:
                raise TableError(found.member, f"it unpacks to more than {_MOST:,} bytes.")
            raw = archive.read(found.member)
    except (OSError, EOFError, zipfile.BadZipFile) as error:
        raise TableError(
            found.member, f"it cannot be unpacked ({error}); fetch it again."
        ) from None
    return Source(found.member, found.suffix, raw, digest, len(raw))


# ------------------------------------------------------------------------------- reading files


def _grid(found: _Found, files: Files) -> tuple[Grid, str]:
    source = _open(found)
    options = ReadOptions(header=files.header, delimiter=",")
    if source.suffix in (".xlsx", ".xls"):
        grid = read_workbook(source, ReadOptions(header=files.header))
    else:
        mended = _mended(source.data, files.padded)
        grid = read_delimited(
            Source(source.name, source.suffix, mended, source.sha256, len(mended)), options
        )
    return grid, source.sha256


def _mended(data: bytes, padded: bool) -> bytes:
    """Without lines that are no data, as the first of adult.test; with all commas, if asked.

    Blank lines take the place of what is left out, so that line numbers stay.
    """
    lines = [b"" if line.startswith(b"|") else line for line in data.splitlines()]
    if padded:
        commas = max((line.count(b",") for line in lines), default=0)
        lines = [line + b"," * (commas - line.count(b",")) if line else line for line in lines]
    return b"\n".join(lines) + b"\n"


def _place(grid: Grid, position: Position) -> int:
    if isinstance(position, str):
        if position not in grid.names:
            raise TableError(grid.source, f"the column {position!r} is missing.")
        return grid.names.index(position)
    if abs(position) > len(grid.names):
        raise TableError(grid.source, f"column {position} is missing; it has {len(grid.names)}.")
    return position - 1 if position > 0 else len(grid.names) + position


def _table(name: str, grids: Sequence[Grid], files: Files, sha256: str) -> Table:
    """One table of all parts, with the second as its test rows."""
    first = grids[0]
    for other in grids[1:]:
        if len(other.names) != len(first.names):
            raise TableError(
                other.source,
                f"{len(other.names)} columns where {first.source} has {len(first.names)}.",
            )
    goal = _place(first, files.target)
    unwanted = {_place(first, position) for position in files.drop}
    columns = [
        Cells.of([cell for grid in grids for cell in grid.columns[place]])
        for place in range(len(first.names))
    ]
    columns[goal] = Cells.of([_label(cell) for cell in columns[goal]])
    lines = [line for grid in grids for line in grid.lines]
    whole = Grid(first.source, first.names, columns, lines, header_line=first.header_line)
    options = ReadOptions(header=files.header)
    labels, _ = make_labels(whole, goal, options)
    kept = np.flatnonzero(labels.codes >= 0)
    if len(kept) == 0 or len(labels.classes) < 2:
        raise TableError(first.source, "its labels must be of two classes or more.")
    features = []
    for place in range(len(columns)):
        if place != goal and place not in unwanted:
            column, _ = make_column(whole, place, options)
            features.append(Column(column.name, column.kind, column.values[kept], column.levels))
    given: tuple[Split, ...] = ()
    if len(grids) > 1:
        is_test = (np.arange(len(lines)) >= grids[0].rows)[kept]
        given = (Split("given", np.flatnonzero(~is_test), _NO_ROWS, np.flatnonzero(is_test)),)
    return Table(
        name,
        tuple(features),
        Labels(labels.name, labels.classes, labels.codes[kept]),
        len(kept),
        np.asarray(lines, np.int64)[kept],
        sha256=sha256,
        options=options,
        width=len(columns),
        given=given,
    )


def _label(cell: Cell) -> Cell:
    """A label without the dot that adult.test puts behind it."""
    return cell.strip().removesuffix(".") if isinstance(cell, str) else cell
