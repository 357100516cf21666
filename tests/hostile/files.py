"""Hostile containers: compression, ARFF, Parquet and workbooks, made when they are needed."""

import gzip
import io
import lzma
import zipfile

from hostile.case import give, refuse

CSV = b"a,b\n1,2\n"
ONE = (("1", "2"),)


def zst(data: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor().compress(data)


def parquet(columns=None, /, names=None, options=(), **named) -> bytes:
    """A file of these columns: by name, or as lists with ``names``."""
    import pyarrow as arrow
    import pyarrow.parquet

    out = io.BytesIO()
    arrow.parquet.write_table(arrow.table(columns or named, names), out, **dict(options))
    return out.getvalue()


def repeated_parquet() -> bytes:
    """A few kilobytes that stand for a million rows."""
    return parquet(a=["x"] * 1_000_000, b=["y"] * 1_000_000)


def workbook(*rows, sheets: int = 1) -> bytes:
    import openpyxl

    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    for number in range(1, sheets):
        book.create_sheet(f"more {number}").append(["z"])
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def edited(data: bytes, part: str, old: bytes, new: bytes) -> bytes:
    """A workbook with bytes of one of its parts replaced."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as before, zipfile.ZipFile(out, "w") as after:
        for entry in before.infolist():
            content = before.read(entry)
            if entry.filename == part:
                assert old in content
                content = content.replace(old, new)
            after.writestr(entry.filename, content, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def lying_workbook(old: bytes, new: bytes) -> bytes:
    """Two cells below two names, with other words about them."""
    return edited(workbook(["a", "b"], [1, 2]), "xl/worksheets/sheet1.xml", old, new)


def zip_bomb() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml", b"\0" * 5_000_000)
    return out.getvalue()


PACKED = [
    give("x.csv.gz: gzip", gzip.compress(CSV), *ONE),
    give("x.csv.xz: xz", lzma.compress(CSV), *ONE),
    give("x.csv.zst: Zstandard", lambda: zst(CSV), *ONE),
    give("X.CSV.GZ: upper-case endings", gzip.compress(CSV), *ONE),
    give("x.csv.gz: two gzip members", gzip.compress(b"a,b\n") + gzip.compress(b"1,2\n"), *ONE),
    give("x.csv.xz: two xz streams", lzma.compress(b"a,b\n") + lzma.compress(b"1,2\n"), *ONE),
    give("x.csv.zst: two Zstandard frames", lambda: zst(b"a,b\n") + zst(b"1,2\n"), *ONE),
    refuse("x.csv.gz: cut gzip", gzip.compress(CSV * 100)[:-9], "end too early"),
    refuse("x.csv.xz: cut xz", lzma.compress(CSV * 100)[:-9], "end too early"),
    refuse("x.csv.zst: cut Zstandard", lambda: zst(CSV * 100)[:-3], "end too early"),
    refuse("x.csv.gz: empty gzip file", b"", "end too early"),
    refuse("x.csv.gz: gzip of nothing", gzip.compress(b""), "empty"),
    refuse("x.csv.gz: gzip with a wrong checksum", gzip.compress(CSV)[:-8] + b"\x00" * 8,
           "undamaged"),
    refuse("x.csv.gz: rubbish behind gzip", gzip.compress(CSV) + b"rubbish", "undamaged"),
    refuse("x.csv.xz: rubbish behind xz", lzma.compress(CSV) + b"rubbish!", "undamaged"),
    refuse("x.csv.xz: damaged xz", lzma.compress(CSV)[:20] + b"\xff" * 60, "undamaged"),
    refuse("x.csv.zst: rubbish behind Zstandard", lambda: zst(CSV) + b"rubbish", "undamaged"),
    refuse("x.csv.gz: plain text named .gz", CSV, "must be gzip data"),
    refuse("x.csv.xz: plain text named .xz", CSV, "must be xz data"),
    refuse("x.csv.zst: plain text named .zst", CSV, "must be Zstandard data"),
    refuse("x.csv: gzip named .csv", gzip.compress(CSV), "gzip data, not text", ".gz"),
    refuse("x.csv.gz: gzip bomb", lambda: gzip.compress(b"0" * 3000000),
           "unpacks to more than 1,000,000", "--max-bytes", max_bytes=1000000),
    refuse("x.csv.xz: xz bomb", lambda: lzma.compress(b"0" * 3000000), "unpacks to more than",
           max_bytes=1000000),
    refuse("x.csv.zst: Zstandard bomb", lambda: zst(b"0" * 3000000), "unpacks to more than",
           max_bytes=1000000),
    refuse("large plain file", CSV * 10, "has more than 10 bytes", max_bytes=10),
    refuse("x.xls: cut old workbook", b"\xd0\xcf\x11\xe0" + b"\x00" * 9, "damaged"),
    refuse("x.xls: CSV named .xls", CSV, "must be an old Excel workbook"),
    refuse("x.csv: bzip2", b"BZh91AY&SY", "bzip2"),
    refuse("x.json: JSON", b"{}", ".json files are not read"),
    refuse("x.csv: picture", b"\x89PNG\r\n", "picture"),
]  # fmt: skip

HEAD = b"@relation r\n@attribute a numeric\n@attribute 'b c' {x,'y z',\"?\"}\n@data\n"
ABC = ("a", "b c")

ARFF = [
    give("x.arff: plain", HEAD + b"1.5,x\n?,'y z'\n", ("1.5", "x"), (None, "y z"), names=ABC),
    give("x.arff: comments and blank lines", b"% c\n\n" + HEAD + b"\n% 1\n1,x % end\n", ("1", "x"),
         names=ABC),
    give("x.arff: keywords in any case", HEAD.upper().replace(b"X", b"x") + b"1,x\n", ("1", "x"),
         names=("A", "B C")),
    give("x.arff: missing in quotes is a level", HEAD + b'1,"?"\n', ("1", "?"), names=ABC),
    give("x.arff: escapes",
         b"@attribute a string\n@attribute b string\n@data\n'it\\'s',\"a\\tb\"\n",
         ("it's", "a\tb")),
    refuse("x.arff: level that was not declared", HEAD + b"1,w\n", "'w' is not among the levels",
           at=(5, 3)),
    refuse("x.arff: level in another case", HEAD + b"1,X\n", "'X' is not among", at=(5, 3)),
    refuse("x.arff: text for a number", HEAD + b"one,x\n", "'one' is not a number", at=(5, 1)),
    refuse("x.arff: too few", HEAD + b"1\n", "1 field(s) where 2", at=(5, 2)),
    refuse("x.arff: too many", HEAD + b"1,x,x\n", "3 field(s) where 2", at=(5, 5)),
    refuse("x.arff: weight behind a row", HEAD + b"1,x,{5}\n", "a value is missing", at=(5, 5)),
    refuse("x.arff: empty value", HEAD + b",x\n", "a value is missing", at=(5, 1)),
    refuse("x.arff: unclosed quote", HEAD + b"1,'y z\n", "never closed", at=(5, 3)),
    refuse("x.arff: sparse", HEAD + b"{0 1, 1 x}\n", "sparse", at=(5, None)),
    refuse("x.arff: relational", b"@attribute a relational\n@data\n", "relational", at=(1, None)),
    refuse("x.arff: double attribute", b"@attribute a real\n@attribute a real\n", "twice",
           at=(2, None)),
    refuse("x.arff: double level", b"@attribute a {x,y,x}\n@data\n", "'x' is declared twice",
           at=(1, None)),
    refuse("x.arff: open list of levels", b"@attribute a {x,y\n@data\n", "not closed",
           at=(1, None)),
    refuse("x.arff: no data", HEAD, "no row of data"),
    refuse("x.arff: no @data", HEAD[:-6], "ends without @data"),
    refuse("x.arff: a CSV named .arff", CSV, "header line must be", at=(1, None)),
]  # fmt: skip

BINARY = [
    give("x.parquet: plain", lambda: parquet(a=[1, None], b=["01", "1"]), (1, "01"), (None, "1")),
    give("x.parquet: NA as text", lambda: parquet(a=[1.5, 2.0], b=["NA", None]), (1.5, "NA"),
         (2.0, None)),
    give("x.parquet: booleans", lambda: parquet(a=[True, False], b=["x", "y"]), (True, "x"),
         (False, "y")),
    give("x.parquet: one name twice", lambda: parquet([[1], [2]], ["a", "a"]), (1, 2),
         names=("a", "a.1"), notes="called a.1."),
    refuse("x.parquet: one name twice, a number", lambda: parquet([[1], [2]], ["7", "7"]),
           "'7' twice, in fields 1 and 2"),
    refuse("x.parquet: lists", lambda: parquet(a=[[1, 2], [3]], b=["x", "y"]), "'a' holds list",
           at=(None, 1)),
    refuse("x.parquet: cut Parquet", lambda: parquet(a=[1], b=["x"])[:-9], "damaged"),
    refuse("x.parquet: bomb", repeated_parquet, "unpacks to more than 1,000,000",
           max_bytes=1000000),
    refuse("x.parquet: wide Parquet", lambda: parquet(**{f"c{i}": [1] for i in range(11)}),
           "11 columns where at most 10", max_columns=10),
    refuse("x.parquet: CSV named .parquet", CSV, "must be a Parquet file"),
    refuse("Parquet named .csv", lambda: parquet(a=[1]), "a Parquet file, not text"),
    refuse("x.parquet: without rows", lambda: parquet(a=[], b=[]), "no row of data"),
    give("x.xlsx: plain", lambda: workbook(["a", "b"], [1, "01"], [2.5, None]), (1, "01"),
         (2.5, None)),
    give("x.xlsx.gz: workbook in gzip", lambda: gzip.compress(workbook(["a", "b"], [1, "x"])),
         (1, "x")),
    give("x.xlsx: blank rows", lambda: workbook([], ["a", "b"], [1, 2], [], [3, 4]), (1, 2), (3, 4),
         notes="1 blank row(s) skipped, first row 4"),
    give("x.xlsx: one that lies about its size",
         lambda: lying_workbook(b'ref="A1:B2"', b'ref="A1"'), (1, 2)),
    give("x.xlsx: several sheets", lambda: workbook(["a", "b"], [1, 2], sheets=3), (1, 2),
         notes="the first of 3"),
    refuse("x.xlsx: other sheet", lambda: workbook(["a"], [1]), "no sheet 'May'", "it has: 'Sheet'",
           sheet="May"),
    refuse("x.xlsx: a wide row", lambda: workbook(["a", "b"], [1, 2, 3]), "3 cells where",
           at=(2, 3)),
    give("x.xlsx: one name twice", lambda: workbook(["a", "a"], [1, 2]), (1, 2),
         names=("a", "a.1"), notes="called a.1."),
    refuse("x.xlsx: one name twice, a number", lambda: workbook([7, 7], [1, 2]), "'7' twice",
           at=(1, 2)),
    refuse("x.xlsx: formula without a value", lambda: workbook(["a", "b"], [1, "=A2*2"]),
           "formula without a saved value", at=(2, 2)),
    give(
        "x.xlsx: formula with its value",
        lambda: edited(
            workbook(["a", "b"], [1, "=A2*2"]), "xl/worksheets/sheet1.xml", b"<v />", b"<v>2</v>"
        ),
        (1, 2),
        notes="1 formula(s) read by their saved values",
    ),
    refuse("x.xlsx: error in a cell", lambda: workbook(["a", "b"], [1, "#DIV/0!"]), "#DIV/0!",
           "--missing", at=(2, 2)),
    refuse("x.xlsx: cut workbook", lambda: workbook(["a"], [1])[:-30], "damaged"),
    refuse("x.xlsx: ZIP that is no workbook", zip_bomb, "damaged"),
    refuse("x.xlsx: ZIP bomb", zip_bomb, "unpacks to more than", max_bytes=1000000),
    give("x.xlsx: a row said to be far away",
         lambda: lying_workbook(b'<row r="2"', b'<row r="99999999999"'), (1, 2)),
    refuse("x.xlsx: empty workbook", lambda: workbook(), "sheet is empty"),
    refuse("workbook named .csv", lambda: workbook(["a"], [1]), "ZIP archive or a workbook"),
]  # fmt: skip

FILES = [*PACKED, *ARFF, *BINARY]
