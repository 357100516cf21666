"""Parquet and workbooks, cell by cell, beside the libraries that define them."""

import datetime
import decimal
import io
import itertools
import random
import sys
import warnings
import zipfile

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


COLUMNS = {
    "text": (["x", "yy", None, "é😀"], None),
    "long": (["k", "", "m", "n"], "large_string"),
    "whole": ([1, 2**53 + 1, None, -4], "int64"),
    "large": ([1, 2**64 - 1, 3, None], "uint64"),
    "small": ([1, 2, 3, None], "int8"),
    "real": ([1.5, float("nan"), None, -0.0], "float64"),
    "single": ([0.1, None, 1e30, 2.0], "float32"),
    "half": ([0.1, None, 1.0, 2.0], "float16"),
    "flag": ([True, None, False, True], "bool"),
    "none": ([None] * 4, "null"),
    "day": ([datetime.date(2020, 1, 2), None, datetime.date(1, 1, 1), None], "date32"),
    "time": ([datetime.datetime(2020, 1, 2, 3, 4, 5), None] * 2, "timestamp"),
}


def table(rows):
    kinds = {"timestamp": arrow.timestamp("ms")}
    found = {}
    for name, (cells, kind) in COLUMNS.items():
        known = kind and (kinds.get(kind) or getattr(arrow, kind, None))
        known = arrow.bool_() if kind == "bool" else known
        known = known() if callable(known) else known
        if kind == "float16":
            import numpy as np

            cells = [None if cell is None else np.float16(cell) for cell in cells]
        found[name] = arrow.array((cells * rows)[:rows], known)
    found["levels"] = arrow.array((["u", None, "w"] * rows)[:rows]).dictionary_encode()
    found["codes"] = arrow.array(([7, 8, None] * rows)[:rows]).dictionary_encode()
    prices = [decimal.Decimal("1.25"), decimal.Decimal(3), None]
    found["price"] = arrow.array((prices * rows)[:rows], arrow.decimal128(38, 2))
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


WRITINGS = list(
    itertools.product(
        ["1.0", "2.0"],
        [True, None, "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"],
        [("snappy", 300), ("zstd", 7), ("none", 100)],
    )
)


@pytest.mark.parametrize(("pages", "encoding", "packing"), WRITINGS)
def test_parquet_is_read_as_pyarrow_reads_it(pages, encoding, packing, tmp_path, monkeypatch):
    path = tmp_path / "x.parquet"
    texts = {"text": encoding, "long": encoding} if isinstance(encoding, str) else None
    arrow.parquet.write_table(
        table(300),
        path,
        data_page_version=pages,
        use_dictionary=encoding is True,
        column_encoding=texts,
        compression=packing[0],
        row_group_size=packing[1],
    )
    if packing[0] != "snappy":  # a process for each would take its time
        monkeypatch.setattr(sys, "executable", None)
        monkeypatch.setattr("expacc.data.container_process._BATCH_ROWS", 11)
    whole = arrow.parquet.read_table(path)
    grid, _, _ = read_grid(path, ReadOptions())
    assert grid.names == tuple(whole.column_names)
    for ours, theirs in zip(grid.columns, whole.columns, strict=True):
        same(ours, as_cells(theirs))
    assert grid.declared["day"] == grid.declared["flag"] == "category"
    assert grid.declared["price"] == grid.declared["none"] == grid.declared["codes"] == "number"


def test_a_process_that_cannot_read_is_not_missed(tmp_path, monkeypatch):
    path = tmp_path / "x.parquet"
    arrow.parquet.write_table(arrow.table({"a": [1, 2], "b": ["x", "y"]}), path)
    silent = tmp_path / "python"
    silent.write_text("#!/bin/sh\nexit 1\n")
    silent.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(silent))
    grid, _, _ = read_grid(path, ReadOptions())
    assert [list(column) for column in grid.columns] == [[1, 2], ["x", "y"]]


def test_nothing_of_the_folder_is_imported_to_read_parquet(tmp_path, monkeypatch):
    path = tmp_path / "x.parquet"
    arrow.parquet.write_table(arrow.table({"a": [1, 2], "b": ["x", "y"]}), path)
    for name in ("pyarrow", "numpy", "json"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    read_grid(path, ReadOptions())
    assert not (tmp_path / "ran").exists()


# Workbooks

VALUES = [
    *(
        0,
        1,
        -2,
        10**14,
        1.5,
        -0.25,
        1e300,
        True,
        False,
        "a",
        " b ",
        "x & <y>",
        "é😀",
        "1",
        "=",
        None,
    ),
    datetime.date(2020, 2, 29),
    datetime.datetime(2021, 3, 4, 5, 6, 7),
    datetime.time(8, 9, 10),
    datetime.timedelta(days=2, hours=3),
    "two\nlines",
]


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


def by_hand(sheet, strings="", prefix="", space=MAIN):
    """A workbook as other programs write it: shared strings, prefixes, absolute paths."""
    kinds = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    mark = f"{prefix}:" if prefix else ""
    named = f"xmlns{':' + prefix if prefix else ''}='{space}'"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(
            "_rels/.rels",
            f"<Relationships><Relationship Id='a' Type='{kinds}/officeDocument' "
            "Target='/xl/workbook.xml'/></Relationships>",
        )
        archive.writestr(
            "xl/workbook.xml",
            f"<{mark}workbook {named} xmlns:r='{kinds}'><{mark}sheets>"
            f"<{mark}sheet name='chart' sheetId='1' r:id='c'/>"
            f"<{mark}sheet name='one' sheetId='2' r:id='s'/></{mark}sheets></{mark}workbook>",
        )
        archive.writestr(
            "xl/_rels/workbook.xml.rels",
            "<Relationships>"
            f"<Relationship Id='c' Type='{kinds}/chartsheet' Target='chart.xml'/>"
            f"<Relationship Id='s' Type='{kinds}/worksheet' Target='one.xml'/>"
            f"<Relationship Id='t' Type='{kinds}/sharedStrings' Target='/xl/sharedStrings.xml'/>"
            "</Relationships>",
        )
        archive.writestr("xl/sharedStrings.xml", f"<{mark}sst {named}>{strings}</{mark}sst>")
        archive.writestr(
            "xl/one.xml",
            f"<{mark}worksheet {named}><{mark}sheetData>{sheet}</{mark}sheetData>"
            f"</{mark}worksheet>",
        )
    return out.getvalue()


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
def test_workbooks_of_other_programs(prefix, space, tmp_path):
    texts = [ROWS, STRINGS]
    if prefix:
        texts = [
            text.replace("</", "<\0").replace("<", "<x:").replace("<x:\0", "</x:") for text in texts
        ]
    path = tmp_path / "x.xlsx"
    path.write_bytes(by_hand(*texts, prefix=prefix, space=space))
    grid, _, _ = read_grid(path, ReadOptions())
    assert grid.names == ("a", "b c")
    assert list(grid.lines) == [3, 4]
    assert [list(column) for column in grid.columns] == [[1, 2], ["y", True]]
    assert any("1 blank row(s) skipped, first row 2" in note for note in grid.notes)
    assert any("1 formula(s)" in note for note in grid.notes)


@pytest.mark.parametrize(
    "sheet", ["<row><c r='A-1'><v>1</v></c></row>", "<row><c t='s'><v>9</v></c></row>"]
)
def test_workbooks_that_make_no_sense(sheet, tmp_path):
    path = tmp_path / "x.xlsx"
    path.write_bytes(by_hand(sheet, STRINGS))
    with pytest.raises(TableError, match="damaged"):
        read_grid(path, ReadOptions())


def test_cells_of_a_workbook_stand_where_they_say(tmp_path):
    path = tmp_path / "x.xlsx"
    path.write_bytes(
        by_hand(
            "<row r='3'><c r='B3'><v>4</v></c><c r='A3'><v>3</v></c></row>"
            "<row r='2'><c r='A2' t='s'><v>0</v></c><c r='B2' t='s'><v>1</v></c></row>",
            STRINGS,
        )
    )
    grid, _, _ = read_grid(path, ReadOptions())
    assert grid.names == ("a", "b c")
    assert list(zip(*grid.columns, strict=True)) == [(3, 4)]


def open_document(rows):
    """An .ods of texts and numbers."""
    cells = [
        "".join(
            f"<table:table-cell office:value-type='float' office:value='{cell}'/>"
            if isinstance(cell, float)
            else f"<table:table-cell office:value-type='string'><text:p>{cell}</text:p>"
            "</table:table-cell>"
            for cell in row
        )
        for row in rows
    ]
    body = "".join(f"<table:table-row>{row}</table:table-row>" for row in cells)
    spaces = " ".join(
        f"xmlns:{name}='urn:oasis:names:tc:opendocument:xmlns:{name}:1.0'"
        for name in ("office", "table", "text")
    )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr("META-INF/manifest.xml", "<manifest:manifest xmlns:manifest='x'/>")
        archive.writestr(
            "content.xml",
            f"<office:document-content {spaces}><office:body><office:spreadsheet><table:table "
            f"table:name='one'>{body}</table:table></office:spreadsheet></office:body>"
            "</office:document-content>",
        )
    return out.getvalue()


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
