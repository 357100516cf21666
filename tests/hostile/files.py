"""Hostile containers: compression, ARFF, Parquet and workbooks, made when they are needed."""

import gzip
import io
import lzma
import zipfile

from hostile.case import give, refuse

AB = ("a", "b")
CSV = b"a,b\n1,2\n"
ONE = (("1", "2"),)


def zst(data: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor().compress(data)


def parquet(**columns) -> bytes:
    import pyarrow as arrow
    import pyarrow.parquet

    out = io.BytesIO()
    arrow.parquet.write_table(arrow.table(columns), out)
    return out.getvalue()


def double_parquet() -> bytes:
    import pyarrow as arrow
    import pyarrow.parquet

    out = io.BytesIO()
    arrow.parquet.write_table(
        arrow.Table.from_arrays([arrow.array([1]), arrow.array([2])], ["a", "a"]), out
    )
    return out.getvalue()


def nested_parquet() -> bytes:
    return parquet(a=[[1, 2], [3]], b=["x", "y"])


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


def lying_workbook() -> bytes:
    """Its own word says one cell; it holds four."""
    return edited(
        workbook(["a", "b"], [1, 2]), "xl/worksheets/sheet1.xml", b'ref="A1:B2"', b'ref="A1"'
    )


def far_row() -> bytes:
    """A second row that calls itself the 99,999,999,999th."""
    part = "xl/worksheets/sheet1.xml"
    return edited(workbook(["a", "b"], [1, 2]), part, b'<row r="2"', b'<row r="99999999999"')


def zip_bomb() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml", b"\0" * 5_000_000)
    return out.getvalue()


PACKED = [
    give("gzip", gzip.compress(CSV), AB, ONE, file="x.csv.gz"),
    give("xz", lzma.compress(CSV), AB, ONE, file="x.csv.xz"),
    give("Zstandard", lambda: zst(CSV), AB, ONE, file="x.csv.zst"),
    give("upper-case endings", gzip.compress(CSV), AB, ONE, file="X.CSV.GZ"),
    give(
        "two gzip members",
        gzip.compress(b"a,b\n") + gzip.compress(b"1,2\n"),
        AB,
        ONE,
        file="x.csv.gz",
    ),
    give(
        "two xz streams",
        lzma.compress(b"a,b\n") + lzma.compress(b"1,2\n"),
        AB,
        ONE,
        file="x.csv.xz",
    ),
    give("two Zstandard frames", lambda: zst(b"a,b\n") + zst(b"1,2\n"), AB, ONE, file="x.csv.zst"),
    refuse("cut gzip", gzip.compress(CSV * 100)[:-9], "end too early", file="x.csv.gz"),
    refuse("cut xz", lzma.compress(CSV * 100)[:-9], "end too early", file="x.csv.xz"),
    refuse("cut Zstandard", lambda: zst(CSV * 100)[:-3], "end too early", file="x.csv.zst"),
    refuse("empty gzip file", b"", "end too early", file="x.csv.gz"),
    refuse("gzip of nothing", gzip.compress(b""), "empty", file="x.csv.gz"),
    refuse(
        "gzip with a wrong checksum",
        gzip.compress(CSV)[:-8] + b"\x00" * 8,
        "undamaged",
        file="x.csv.gz",
    ),
    refuse("rubbish behind gzip", gzip.compress(CSV) + b"rubbish", "undamaged", file="x.csv.gz"),
    refuse("rubbish behind xz", lzma.compress(CSV) + b"rubbish!", "undamaged", file="x.csv.xz"),
    refuse("damaged xz", lzma.compress(CSV)[:20] + b"\xff" * 60, "undamaged", file="x.csv.xz"),
    refuse(
        "rubbish behind Zstandard", lambda: zst(CSV) + b"rubbish", "undamaged", file="x.csv.zst"
    ),
    refuse("plain text named .gz", CSV, "must be gzip data", file="x.csv.gz"),
    refuse("plain text named .xz", CSV, "must be xz data", file="x.csv.xz"),
    refuse("plain text named .zst", CSV, "must be Zstandard data", file="x.csv.zst"),
    refuse("gzip named .csv", gzip.compress(CSV), "gzip data, not text", ".gz", file="x.csv"),
    refuse(
        "gzip bomb",
        lambda: gzip.compress(b"0" * 3000000),
        "unpacks to more than 1,000,000",
        "--max-bytes",
        file="x.csv.gz",
        max_bytes=1000000,
    ),
    refuse(
        "xz bomb",
        lambda: lzma.compress(b"0" * 3000000),
        "unpacks to more than",
        file="x.csv.xz",
        max_bytes=1000000,
    ),
    refuse(
        "Zstandard bomb",
        lambda: zst(b"0" * 3000000),
        "unpacks to more than",
        file="x.csv.zst",
        max_bytes=1000000,
    ),
    refuse("large plain file", CSV * 10, "has more than 10 bytes", max_bytes=10),
    refuse("cut old workbook", b"\xd0\xcf\x11\xe0" + b"\x00" * 9, "damaged", file="x.xls"),
    refuse("CSV named .xls", CSV, "must be an old Excel workbook", file="x.xls"),
    refuse("bzip2", b"BZh91AY&SY", "bzip2", file="x.csv"),
    refuse("JSON", b"{}", ".json files are not read", file="x.json"),
    refuse("picture", b"\x89PNG\r\n", "picture", file="x.csv"),
]

HEAD = b"@relation r\n@attribute a numeric\n@attribute 'b c' {x,'y z',\"?\"}\n@data\n"
ABC = ("a", "b c")

ARFF = [
    give("plain", HEAD + b"1.5,x\n?,'y z'\n", ABC, (("1.5", "x"), (None, "y z")), file="x.arff"),
    give(
        "comments and blank lines",
        b"% c\n\n" + HEAD + b"\n% 1\n1,x % end\n",
        ABC,
        (("1", "x"),),
        file="x.arff",
    ),
    give(
        "keywords in any case",
        HEAD.upper().replace(b"X", b"x") + b"1,x\n",
        ("A", "B C"),
        (("1", "x"),),
        file="x.arff",
    ),
    give("missing in quotes is a level", HEAD + b'1,"?"\n', ABC, (("1", "?"),), file="x.arff"),
    give(
        "escapes",
        b"@attribute a string\n@attribute b string\n@data\n'it\\'s',\"a\\tb\"\n",
        AB,
        (("it's", "a\tb"),),
        file="x.arff",
    ),
    refuse(
        "level that was not declared",
        HEAD + b"1,w\n",
        "'w' is not among the levels",
        at=(5, 3),
        file="x.arff",
    ),
    refuse("level in another case", HEAD + b"1,X\n", "'X' is not among", at=(5, 3), file="x.arff"),
    refuse(
        "text for a number", HEAD + b"one,x\n", "'one' is not a number", at=(5, 1), file="x.arff"
    ),
    refuse("too few", HEAD + b"1\n", "1 field(s) where 2", at=(5, 2), file="x.arff"),
    refuse("too many", HEAD + b"1,x,x\n", "3 field(s) where 2", at=(5, 5), file="x.arff"),
    refuse(
        "weight behind a row", HEAD + b"1,x,{5}\n", "a value is missing", at=(5, 5), file="x.arff"
    ),
    refuse("empty value", HEAD + b",x\n", "a value is missing", at=(5, 1), file="x.arff"),
    refuse("unclosed quote", HEAD + b"1,'y z\n", "never closed", at=(5, 3), file="x.arff"),
    refuse("sparse", HEAD + b"{0 1, 1 x}\n", "sparse", at=(5, None), file="x.arff"),
    refuse(
        "relational", b"@attribute a relational\n@data\n", "relational", at=(1, None), file="x.arff"
    ),
    refuse(
        "double attribute",
        b"@attribute a real\n@attribute a real\n",
        "twice",
        at=(2, None),
        file="x.arff",
    ),
    refuse(
        "double level",
        b"@attribute a {x,y,x}\n@data\n",
        "'x' is declared twice",
        at=(1, None),
        file="x.arff",
    ),
    refuse(
        "open list of levels",
        b"@attribute a {x,y\n@data\n",
        "not closed",
        at=(1, None),
        file="x.arff",
    ),
    refuse("no data", HEAD, "no row of data", file="x.arff"),
    refuse("no @data", HEAD[:-6], "ends without @data", file="x.arff"),
    refuse("a CSV named .arff", CSV, "header line must be", at=(1, None), file="x.arff"),
]

BINARY = [
    give(
        "Parquet",
        lambda: parquet(a=[1, None], b=["01", "1"]),
        AB,
        ((1, "01"), (None, "1")),
        file="x.parquet",
    ),
    give(
        "Parquet with NA as text",
        lambda: parquet(a=[1.5, 2.0], b=["NA", None]),
        AB,
        ((1.5, "NA"), (2.0, None)),
        file="x.parquet",
    ),
    give(
        "Parquet with booleans",
        lambda: parquet(a=[True, False], b=["x", "y"]),
        AB,
        ((True, "x"), (False, "y")),
        file="x.parquet",
    ),
    refuse("Parquet with one name twice", double_parquet, "'a' twice", file="x.parquet"),
    refuse("Parquet with lists", nested_parquet, "'a' holds list", at=(None, 1), file="x.parquet"),
    refuse("cut Parquet", lambda: parquet(a=[1], b=["x"])[:-9], "damaged", file="x.parquet"),
    refuse(
        "Parquet bomb",
        repeated_parquet,
        "unpacks to more than 1,000,000",
        file="x.parquet",
        max_bytes=1000000,
    ),
    refuse(
        "wide Parquet",
        lambda: parquet(**{f"c{i}": [1] for i in range(11)}),
        "11 columns where at most 10",
        file="x.parquet",
        max_columns=10,
    ),
    refuse("CSV named .parquet", CSV, "must be a Parquet file", file="x.parquet"),
    refuse("Parquet named .csv", lambda: parquet(a=[1]), "a Parquet file, not text"),
    refuse("Parquet without rows", lambda: parquet(a=[], b=[]), "no row of data", file="x.parquet"),
    give(
        "workbook",
        lambda: workbook(["a", "b"], [1, "01"], [2.5, None]),
        AB,
        ((1, "01"), (2.5, None)),
        file="x.xlsx",
    ),
    give(
        "workbook in gzip",
        lambda: gzip.compress(workbook(["a", "b"], [1, "x"])),
        AB,
        ((1, "x"),),
        file="x.xlsx.gz",
    ),
    give(
        "workbook with blank rows",
        lambda: workbook([], ["a", "b"], [1, 2], [], [3, 4]),
        AB,
        ((1, 2), (3, 4)),
        "1 blank row(s) skipped, first row 4",
        file="x.xlsx",
    ),
    give("workbook that lies about its size", lying_workbook, AB, ((1, 2),), file="x.xlsx"),
    give(
        "workbook with several sheets",
        lambda: workbook(["a", "b"], [1, 2], sheets=3),
        AB,
        ((1, 2),),
        "the first of 3",
        file="x.xlsx",
    ),
    refuse(
        "workbook, other sheet",
        lambda: workbook(["a"], [1]),
        "no sheet 'May'",
        "it has: 'Sheet'",
        file="x.xlsx",
        sheet="May",
    ),
    refuse(
        "workbook with a wide row",
        lambda: workbook(["a", "b"], [1, 2, 3]),
        "3 cells where",
        at=(2, 3),
        file="x.xlsx",
    ),
    refuse(
        "workbook with one name twice",
        lambda: workbook(["a", "a"], [1, 2]),
        "'a' twice",
        at=(1, 2),
        file="x.xlsx",
    ),
    refuse(
        "formula without a value",
        lambda: workbook(["a", "b"], [1, "=A2*2"]),
        "formula without a saved value",
        at=(2, 2),
        file="x.xlsx",
    ),
    give(
        "formula with its value",
        lambda: edited(
            workbook(["a", "b"], [1, "=A2*2"]), "xl/worksheets/sheet1.xml", b"<v />", b"<v>2</v>"
        ),
        AB,
        ((1, 2),),
        "1 formula(s) read by their saved values",
        file="x.xlsx",
    ),
    refuse(
        "error in a cell",
        lambda: workbook(["a", "b"], [1, "#DIV/0!"]),
        "#DIV/0!",
        "--missing",
        at=(2, 2),
        file="x.xlsx",
    ),
    refuse("cut workbook", lambda: workbook(["a"], [1])[:-30], "damaged", file="x.xlsx"),
    refuse("ZIP that is no workbook", zip_bomb, "damaged", file="x.xlsx"),
    refuse("ZIP bomb", zip_bomb, "unpacks to more than", file="x.xlsx", max_bytes=1000000),
    give("workbook with a row said to be far away", far_row, AB, ((1, 2),), file="x.xlsx"),
    refuse("empty workbook", lambda: workbook(), "sheet is empty", file="x.xlsx"),
    refuse("workbook named .csv", lambda: workbook(["a"], [1]), "ZIP archive or a workbook"),
]

FILES = [*PACKED, *ARFF, *BINARY]
