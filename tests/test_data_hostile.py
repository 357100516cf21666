"""Hostile files: read exactly, cell by cell, or refused with file, line and column."""

import csv
import gzip
import io
import pickle
import random
import sys

import pytest
from hostile.files import ARFF, FILES, HEAD, parquet, workbook
from hostile.texts import TEXTS

from expacc.data import ReadOptions, TableError
from expacc.data.blocks import BlockParser
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


# Whatever the bytes are, a reader gives a grid or a sentence; CSV agrees with Python's own


def read_or_refuse(path, **options):
    try:
        return read_grid(path, ReadOptions(**options))[0]
    except TableError as error:
        if path.name not in str(error):
            raise
        return None


def test_csv_agrees_with_the_standard_library(tmp_path):
    source = random.Random(1)
    path = tmp_path / "fuzz.csv"
    read = 0
    for _ in range(2000):
        text = "".join(
            source.choices('ab,"\n\r', weights=[4, 2, 4, 3, 2, 1], k=source.randint(1, 24))
        )
        path.write_bytes(text.encode())
        grid = read_or_refuse(path, header=False, delimiter=",")
        if grid is None:
            continue
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
        ours = [list(row) for row in zip(*grid.columns, strict=True)]
        if len(rows[0]) == len(ours[0]) + 1 and not any(row[-1] for row in rows):
            rows = [row[:-1] for row in rows]  # every line ends with a delimiter: documented
        assert ours == rows, repr(text)
        read += 1
    assert read > 200


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_what_the_standard_library_writes_is_read_back(delimiter, tmp_path):
    source = random.Random(2)
    path = tmp_path / "fuzz.csv"
    alphabet = 'ab ,;\t|"\n\ré\u2028\\#%'
    for _ in range(300):
        width = source.randint(2, 4)
        rows = [
            ["".join(source.choices(alphabet, k=source.randint(0, 6))) for _ in range(width)]
            for _ in range(source.randint(1, 5))
        ]
        rows = [["x", *row] for row in rows]  # a row of empty cells is a blank line to no one
        out = io.StringIO(newline="")
        csv.writer(out, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows(rows)
        path.write_bytes(out.getvalue().encode())
        if not any(row[-1] for row in rows):
            continue  # an empty last column: documented
        grid = read_grid(path, ReadOptions(header=False, delimiter=delimiter))[0]
        assert [list(row) for row in zip(*grid.columns, strict=True)] == rows


SEEDS = {
    "x.csv": b'a,b,c\n1,"x ""y""",3\n4,5,6\n',
    "x.tsv": b"a\tb\n1\t2\n",
    "x.data": b"1 2 3\n4 5 6\n",
    "x.arff": HEAD + b"1.5,x\n?,'y z'\n",
    "x.csv.gz": gzip.compress(b"a,b\n1,2\n" * 20, mtime=0),
}


def mutated(source, data):
    data = bytearray(data)
    for _ in range(source.randint(1, 4)):
        place = source.randrange(len(data))
        action = source.randrange(3)
        if action == 0:
            data[place] = source.randrange(256)
        elif action == 1:
            del data[place : place + source.randint(1, 8)]
        else:
            data[place:place] = source.choices(b"\"',\n\r\0{}%?\\ \t\xff@", k=source.randint(1, 3))
        if not data:
            data = bytearray(b"x")
    return bytes(data)


@pytest.mark.parametrize("name", SEEDS)
def test_damaged_text_gives_a_grid_or_a_sentence(name, tmp_path):
    source = random.Random(3)
    path = tmp_path / name
    refused = 0
    for _ in range(400):
        path.write_bytes(mutated(source, SEEDS[name]))
        grid = read_or_refuse(path)
        refused += grid is None
        assert grid is None or {len(column) for column in grid.columns} == {grid.rows}
    assert refused > 0


@pytest.mark.parametrize("name", ["x.parquet", "x.xlsx"])
def test_damaged_containers_give_a_grid_or_a_sentence(name, tmp_path, monkeypatch):
    whole = (
        parquet(a=[1, 2, 3], b=["x", "y", None])
        if name == "x.parquet"
        else workbook(["a", "b"], [1, "x"], [2, "y"])
    )
    source = random.Random(4)
    path = tmp_path / name
    for _ in range(6):
        path.write_bytes(mutated(source, whole))
        read_or_refuse(path)
    # Sixty processes would take their time: read Parquet in this one, as where none can start.
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no python"))
    for _ in range(60):
        path.write_bytes(mutated(source, whole))
        read_or_refuse(path)


PIECES = ["1", "ab", "x y", "", "?", " a", "b\t", '"a"', '" a "', ' "a\nb" ', '"a""b"', '"\r\n\n"']


@pytest.mark.parametrize("delimiter", [",", "\t", "§", "whitespace"])
def test_many_lines_at_once_are_read_as_one_by_one(delimiter, tmp_path, monkeypatch):
    source = random.Random(5)
    path = tmp_path / "x.csv"
    between = " \t" if delimiter == "whitespace" else delimiter

    def outcome(parse):
        monkeypatch.setattr("expacc.data.blocks.BlockParser.parse", parse)
        try:
            grid, _, _ = read_grid(path, ReadOptions(delimiter=delimiter))
        except TableError as error:
            return str(error)
        return grid.names, [*map(list, grid.columns)], list(grid.lines), grid.notes

    taken, at_once = [], BlockParser.parse
    for _ in range(300):
        lines, pieces = [between.join("ab")], PIECES[: source.choice([5, 7, 12])]
        lines += [between.join(source.choices(pieces, k=2)) for _ in range(source.randint(1, 6))]
        lines.insert(source.randint(1, len(lines)), source.choice(["1" + between + "2", "", "  "]))
        path.write_bytes((source.choice(["\n", "\r\n", "\r"]).join(lines) + "\n").encode())
        many = outcome(lambda *given: taken.append(at_once(*given)) or taken[-1])
        assert many == outcome(lambda *_: None), lines
    assert sum(rows is not None for rows in taken) > 10
