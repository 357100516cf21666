"""Hostile files: read exactly, cell by cell, or refused with file, line and column."""

import pickle

import pytest
from hostile.files import ARFF, FILES
from hostile.texts import TEXTS

from expacc.data import ReadOptions, TableError
from expacc.data.reading import read_grid

CASES = [*TEXTS, *FILES]


def test_there_are_enough_and_each_has_its_own_name():
    assert len(CASES) >= 60
    assert len({(case.title, case.file) for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_read_exactly_or_refused_at_its_place(case, tmp_path):
    path = tmp_path / case.file
    path.write_bytes(case.data())
    options = ReadOptions(**case.options)
    if case.rows is None:
        with pytest.raises(TableError) as caught:
            read_grid(path, options)
        error = caught.value
        for part in case.words:
            assert part in str(error)
        assert str(error).startswith(case.file)
        assert "\n" not in str(error)
        line, column = case.at
        if line is not None:
            assert error.line == line
            assert f"line {line}" in str(error)
        if column is not None:
            assert error.column == column
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
        return
    grid, _, digest = read_grid(path, options)
    assert grid.names == case.names
    cells = list(zip(*grid.columns, strict=True))
    assert cells == list(case.rows)
    kinds = [[type(cell) for cell in row] for row in cells]
    assert kinds == [[type(cell) for cell in row] for row in case.rows]
    assert len(grid.lines) == len(cells)
    assert len(digest) == 64
    for note in case.words:
        assert any(note in line for line in grid.notes), grid.notes


@pytest.mark.parametrize("case", [case for case in TEXTS if case.rows], ids=lambda case: case.title)
@pytest.mark.parametrize("end", ["gz", "xz"])
def test_compression_changes_nothing(case, end, tmp_path):
    import gzip
    import lzma

    plain = tmp_path / case.file
    plain.write_bytes(case.data())
    packed = tmp_path / f"{case.file}.{end}"
    packed.write_bytes({"gz": gzip, "xz": lzma}[end].compress(case.data()))
    options = ReadOptions(**case.options)
    first, name, _ = read_grid(plain, options)
    second, packed_name, _ = read_grid(packed, options)
    assert (first.names, first.columns, name) == (second.names, second.columns, packed_name)


def outcome(path, options):
    try:
        grid, _, _ = read_grid(path, options)
    except TableError as error:
        return str(error)
    columns = [list(column) for column in grid.columns]
    return grid.names, columns, list(grid.lines), grid.notes, grid.header_line


SMALL = [case for case in [*TEXTS, *ARFF] if len(case.data()) < 2_000]


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.title)
def test_where_a_text_is_cut_and_how_many_lines_are_read_at_once_change_nothing(
    case, tmp_path, monkeypatch
):
    path = tmp_path / case.file
    path.write_bytes(case.data())
    options = ReadOptions(**case.options)
    whole = outcome(path, options)
    for part in (1, 2, 3, 7):
        monkeypatch.setattr("expacc.data.text._PART", part)
        assert outcome(path, options) == whole
    monkeypatch.undo()
    monkeypatch.setattr("expacc.data.blocks.BlockParser.parse", lambda *_: None)
    assert outcome(path, options) == whole
