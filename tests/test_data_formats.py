"""Parquet and workbooks, cell by cell, beside the libraries that define them."""

import datetime
import decimal
import io
import random
import re
import sys
import warnings
import zipfile

import numpy as np
import openpyxl
import pyarrow as arrow
import pyarrow.parquet
import pytest
from uci_files import old_workbook

from expacc.data import ReadOptions, TableError
from expacc.data.reading import read_grid


def same(ours, theirs):
    """Equal in value and type; NaN is NaN."""
    ours = list(ours)
    assert [type(cell) for cell in ours] == [type(cell) for cell in theirs]
    assert repr(ours) == repr(theirs)


# Cells, and the type that arrow keeps them as.
COLUMNS = {
    "text": (["x", "yy", None, "é😀"], arrow.string()),
    "long": (["k", "", "m", "n"], arrow.large_string()),
    "whole": ([1, 2**53 + 1, None, -4], arrow.int64()),
    "large": ([1, 2**64 - 1, 3, None], arrow.uint64()),
    "small": ([1, 2, 3, None], arrow.int8()),
    "real": ([1.5, float("nan"), None, -0.0], arrow.float64()),
    "single": ([0.1, None, 1e30, 2.0], arrow.float32()),
    "half": ([np.float16(0.1), None, np.float16(1), np.float16(2)], arrow.float16()),
    "flag": ([True, None, False, True], arrow.bool_()),
    "none": ([None] * 4, arrow.null()),
    "day": ([datetime.date(2020, 1, 2), None, datetime.date(1, 1, 1), None], arrow.date32()),
    "time": ([datetime.datetime(2020, 1, 2, 3, 4, 5), None] * 2, arrow.timestamp("ms")),
    "levels": (["u", None, "w"], arrow.dictionary(arrow.int32(), arrow.string())),
    "codes": ([7, 8, None], arrow.dictionary(arrow.int32(), arrow.int64())),
    "price": ([decimal.Decimal("1.25"), decimal.Decimal(3), None], arrow.decimal128(38, 2)),
}


def table(rows):
    found = {
        name: arrow.array((cells * rows)[:rows], kind) for name, (cells, kind) in COLUMNS.items()
    }
    return arrow.table(found)


def as_cells(column):
    """What a column of pyarrow's means to us."""
    kind = column.type
    if arrow.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    if arrow.types.is_temporal(kind):
        column = column.cast(arrow.string())
    cells = []
    for cell in column.to_pylist():
        if isinstance(cell, decimal.Decimal):
            cell = int(cell) if cell == int(cell) else float(cell)
        cells.append(float(cell) if type(cell).__name__ == "float16" else cell)
    return cells


@pytest.mark.parametrize(("compression", "group"), [("snappy", 300), ("zstd", 7), ("none", 100)])
@pytest.mark.parametrize("encoding", [True, None, "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
@pytest.mark.parametrize("pages", ["1.0", "2.0"])
def test_parquet_is_read_as_pyarrow_reads_it(
    pages, encoding, compression, group, tmp_path, monkeypatch
):
    path = tmp_path / "x.parquet"
    texts = {"text": encoding, "long": encoding} if isinstance(encoding, str) else None
    options = {"data_page_version": pages, "use_dictionary": encoding is True}
    options |= {"compression": compression, "row_group_size": group, "column_encoding": texts}
    arrow.parquet.write_table(table(300), path, **options)
    if compression != "snappy":  # a process for each would take its time
        monkeypatch.setattr(sys, "executable", None)
        monkeypatch.setattr("expacc.data.container_process._BATCH_ROWS", 11)
    whole = arrow.parquet.read_table(path)
    grid, _, _ = read_grid(path, ReadOptions())
    assert grid.names == tuple(whole.column_names)
    for ours, theirs in zip(grid.columns, whole.columns, strict=True):
        same(ours, as_cells(theirs))
    assert grid.declared["day"] == grid.declared["flag"] == "category"
    assert grid.declared["price"] == grid.declared["none"] == grid.declared["codes"] == "number"


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "x.parquet"
    arrow.parquet.write_table(arrow.table({"a": [1, 2], "b": ["x", "y"]}), path)
    return path


def test_a_process_that_cannot_read_is_not_missed(small, tmp_path, monkeypatch):
    silent = tmp_path / "python"
    silent.write_text("#!/bin/sh\nexit 1\n")
    silent.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(silent))
    grid, _, _ = read_grid(small, ReadOptions())
    assert [list(column) for column in grid.columns] == [[1, 2], ["x", "y"]]


def test_nothing_of_the_folder_is_imported_to_read_parquet(small, tmp_path, monkeypatch):
    for name in ("pyarrow", "numpy", "json"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    read_grid(small, ReadOptions())
    assert not (tmp_path / "ran").exists()


# Workbooks

VALUES = [
    0, 1, -2, 10**14, 1.5, -0.25, 1e300, True, False, "a", " b ", "x & <y>", "é😀", "1", "=", None,
    datetime.date(2020, 2, 29), datetime.datetime(2021, 3, 4, 5, 6, 7), datetime.time(8, 9, 10),
    datetime.timedelta(days=2, hours=3), "two\nlines",
]  # fmt: skip


def by_openpyxl(data):
    """The values of the first sheet, as openpyxl's reader gives them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        book = openpyxl.load_workbook(io.BytesIO(data), data_only=True)
    rows = []
    for row in book.worksheets[0].iter_rows(values_only=True):
        cells = []
        for cell in row:
            if isinstance(cell, datetime.date | datetime.time):
                cell = cell.isoformat()
            cells.append(str(cell) if isinstance(cell, datetime.timedelta) else cell)
        rows.append(cells)
    return rows


@pytest.mark.parametrize("seed", range(8))
def test_workbooks_are_read_as_openpyxl_reads_them(seed, tmp_path):
    source = random.Random(seed)
    book = openpyxl.Workbook()
    if seed == 2:
        book.epoch = openpyxl.utils.datetime.MAC_EPOCH
    sheet = book.active
    sheet.append([f"c{place}" for place in range(9)])
    for _ in range(40):
        sheet.append(["row", *source.choices(VALUES, k=7), "end"])
        for cell in sheet[sheet.max_row][1:8]:
            if isinstance(cell.value, str) and cell.value.startswith("="):
                cell.data_type = "s"
            if isinstance(cell.value, float):
                cell.number_format = source.choice(["General", "0.00", '0 "days"', "[Red]0.0"])
    data = io.BytesIO()
    book.save(data)
    path = tmp_path / "x.xlsx"
    path.write_bytes(data.getvalue())
    grid, _, _ = read_grid(path, ReadOptions())
    theirs = by_openpyxl(data.getvalue())
    assert list(grid.names) == theirs[0]
    for ours, cells in zip(zip(*grid.columns, strict=True), theirs[1:], strict=True):
        same(ours, cells)


MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
STRICT = "http://purl.oclc.org/ooxml/spreadsheetml/main"


def zipped(**parts):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return out.getvalue()


def by_hand(sheet, strings="", prefix="", space=MAIN):
    """A workbook as other programs write it: shared strings, prefixes, absolute paths."""
    kinds = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    mark = f"{prefix}:" if prefix else ""

    def element(name, inside, more=""):
        named = f"xmlns{':' + prefix if prefix else ''}='{space}'"
        return f"<{mark}{name} {named} {more}>{inside}</{mark}{name}>"

    def links(*places):
        each = "<Relationship Id='{}' Type='{}/{}' Target='{}'/>"
        listed = "".join(each.format(name, kinds, kind, place) for name, kind, place in places)
        return f"<Relationships>{listed}</Relationships>"

    sheets = "".join(
        f"<{mark}sheet name='{name}' sheetId='{number}' r:id='{name[0]}'/>"
        for number, name in enumerate(("chart", "sheet"), 1)
    )
    relations = (
        ("c", "chartsheet", "chart.xml"),
        ("s", "worksheet", "one.xml"),
        ("t", "sharedStrings", "/xl/sharedStrings.xml"),
    )
    return zipped(
        **{
            "_rels/.rels": links(("a", "officeDocument", "/xl/workbook.xml")),
            "xl/workbook.xml": element(
                "workbook", f"<{mark}sheets>{sheets}</{mark}sheets>", f"xmlns:r='{kinds}'"
            ),
            "xl/_rels/workbook.xml.rels": links(*relations),
            "xl/sharedStrings.xml": element("sst", strings),
            "xl/one.xml": element("worksheet", f"<{mark}sheetData>{sheet}</{mark}sheetData>"),
        }
    )


ROWS = (
    "<row r='1'><c r='A1' t='s'><v>0</v></c><c r='B1' t='s'><v>1</v></c></row>"
    "<row r='3'><c r='A3'><v>1</v></c><c r='B3' t='str'><f>A3</f><v>y</v></c></row>"
    "<row><c><v>2.0</v></c><c t='b'><v>1</v></c></row>"
)
STRINGS = (
    "<si><t>a</t></si>"
    "<si><r><t>b</t></r><r><t xml:space='preserve'> c</t></r><rPh><t>no</t></rPh></si>"
)


@pytest.mark.parametrize("space", [MAIN, STRICT])
@pytest.mark.parametrize("prefix", ["", "x"])
def test_workbooks_of_other_programs(prefix, space, read_sheet):
    texts = [ROWS, STRINGS]
    if prefix:
        texts = [re.sub("<(/?)", r"<\1x:", text) for text in texts]
    grid = read_sheet(*texts, prefix=prefix, space=space)
    assert grid.names == ("a", "b c")
    assert list(grid.lines) == [3, 4]
    assert [list(column) for column in grid.columns] == [[1, 2], ["y", True]]
    assert any("1 blank row(s) skipped, first row 2" in note for note in grid.notes)
    assert any("1 formula(s)" in note for note in grid.notes)


@pytest.fixture
def read_sheet(tmp_path):
    def read(*parts, **more):
        path = tmp_path / "x.xlsx"
        path.write_bytes(by_hand(*parts, **more))
        return read_grid(path, ReadOptions())[0]

    return read


@pytest.mark.parametrize(
    "sheet", ["<row><c r='A-1'><v>1</v></c></row>", "<row><c t='s'><v>9</v></c></row>"]
)
def test_workbooks_that_make_no_sense(sheet, read_sheet):
    with pytest.raises(TableError, match="damaged"):
        read_sheet(sheet, STRINGS)


def test_cells_of_a_workbook_stand_where_they_say(read_sheet):
    grid = read_sheet(
        "<row r='3'><c r='B3'><v>4</v></c><c r='A3'><v>3</v></c></row>"
        "<row r='2'><c r='A2' t='s'><v>0</v></c><c r='B2' t='s'><v>1</v></c></row>",
        STRINGS,
    )
    assert grid.names == ("a", "b c")
    assert list(zip(*grid.columns, strict=True)) == [(3, 4)]


def open_document(rows):
    """An .ods of texts and numbers."""

    def cell(value):
        if isinstance(value, float):
            return f"<table:table-cell office:value-type='float' office:value='{value}'/>"
        text = f"<text:p>{value}</text:p>"
        return f"<table:table-cell office:value-type='string'>{text}</table:table-cell>"

    body = "".join(f"<table:table-row>{''.join(map(cell, row))}</table:table-row>" for row in rows)
    spaces = " ".join(
        f"xmlns:{name}='urn:oasis:names:tc:opendocument:xmlns:{name}:1.0'"
        for name in ("office", "table", "text")
    )
    content = (
        f"<office:document-content {spaces}><office:body><office:spreadsheet><table:table "
        f"table:name='one'>{body}</table:table></office:spreadsheet></office:body>"
        "</office:document-content>"
    )
    manifest = "<manifest:manifest xmlns:manifest='x'/>"
    kind = "application/vnd.oasis.opendocument.spreadsheet"
    parts = {"mimetype": kind, "META-INF/manifest.xml": manifest, "content.xml": content}
    return zipped(**parts)


@pytest.mark.parametrize(("name", "make"), [("x.xls", old_workbook), ("x.ods", open_document)])
def test_other_workbooks_are_read_alike(name, make, tmp_path):
    path = tmp_path / name
    path.write_bytes(make([["a", "b"], [1.5, "01"], [2.0, "NA"]]))
    grid, _, _ = read_grid(path, ReadOptions())
    assert grid.names == ("a", "b")
    same([cell for column in grid.columns for cell in column], [1.5, 2, "01", "NA"])
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(TableError, match="damaged"):
        read_grid(path, ReadOptions())
