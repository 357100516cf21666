"""Hostile containers: compression, ARFF, Parquet and workbooks, made when they are needed."""

import gzip
import io
import lzma
import zipfile

from hostile.case import Case

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
    Case("gzip", gzip.compress(CSV), AB, ONE, file="x.csv.gz"),
    Case("xz", lzma.compress(CSV), AB, ONE, file="x.csv.xz"),
    Case("Zstandard", lambda: zst(CSV), AB, ONE, file="x.csv.zst"),
    Case("upper-case endings", gzip.compress(CSV), AB, ONE, file="X.CSV.GZ"),
    Case(
        "two gzip members",
        gzip.compress(b"a,b\n") + gzip.compress(b"1,2\n"),
        AB,
        ONE,
        file="x.csv.gz",
    ),
    Case(
        "two xz streams",
        lzma.compress(b"a,b\n") + lzma.compress(b"1,2\n"),
        AB,
        ONE,
        file="x.csv.xz",
    ),
    Case("two Zstandard frames", lambda: zst(b"a,b\n") + zst(b"1,2\n"), AB, ONE, file="x.csv.zst"),
    Case("cut gzip", gzip.compress(CSV * 100)[:-9], refused=("end too early",), file="x.csv.gz"),
    Case("cut xz", lzma.compress(CSV * 100)[:-9], refused=("end too early",), file="x.csv.xz"),
    Case(
        "cut Zstandard", lambda: zst(CSV * 100)[:-3], refused=("end too early",), file="x.csv.zst"
    ),
    Case("empty gzip file", b"", refused=("end too early",), file="x.csv.gz"),
    Case("gzip of nothing", gzip.compress(b""), refused=("empty",), file="x.csv.gz"),
    Case(
        "gzip with a wrong checksum",
        gzip.compress(CSV)[:-8] + b"\0" * 8,
        refused=("undamaged",),
        file="x.csv.gz",
    ),
    Case(
        "rubbish behind gzip",
        gzip.compress(CSV) + b"rubbish",
        refused=("undamaged",),
        file="x.csv.gz",
    ),
    Case(
        "rubbish behind xz",
        lzma.compress(CSV) + b"rubbish!",
        refused=("undamaged",),
        file="x.csv.xz",
    ),
    Case(
        "damaged xz",
        lzma.compress(CSV)[:20] + b"\xff" * 60,
        refused=("undamaged",),
        file="x.csv.xz",
    ),
    Case(
        "rubbish behind Zstandard",
        lambda: zst(CSV) + b"rubbish",
        refused=("undamaged",),
        file="x.csv.zst",
    ),
    Case("plain text named .gz", CSV, refused=("must be gzip data",), file="x.csv.gz"),
    Case("plain text named .xz", CSV, refused=("must be xz data",), file="x.csv.xz"),
    Case("plain text named .zst", CSV, refused=("must be Zstandard data",), file="x.csv.zst"),
    Case(
        "gzip named .csv", gzip.compress(CSV), refused=("gzip data, not text", ".gz"), file="x.csv"
    ),
    Case(
        "gzip bomb",
        lambda: gzip.compress(b"0" * 3_000_000),
        refused=("unpacks to more than 1,000,000", "--max-bytes"),
        file="x.csv.gz",
        options={"max_bytes": 1_000_000},
    ),
    Case(
        "xz bomb",
        lambda: lzma.compress(b"0" * 3_000_000),
        refused=("unpacks to more than",),
        file="x.csv.xz",
        options={"max_bytes": 1_000_000},
    ),
    Case(
        "Zstandard bomb",
        lambda: zst(b"0" * 3_000_000),
        refused=("unpacks to more than",),
        file="x.csv.zst",
        options={"max_bytes": 1_000_000},
    ),
    Case(
        "large plain file", CSV * 10, refused=("has more than 10 bytes",), options={"max_bytes": 10}
    ),
    Case("cut old workbook", b"\xd0\xcf\x11\xe0" + b"\0" * 9, refused=("damaged",), file="x.xls"),
    Case("CSV named .xls", CSV, refused=("must be an old Excel workbook",), file="x.xls"),
    Case("bzip2", b"BZh91AY&SY", refused=("bzip2",), file="x.csv"),
    Case("JSON", b"{}", refused=(".json files are not read",), file="x.json"),
    Case("picture", b"\x89PNG\r\n", refused=("picture",), file="x.csv"),
]

HEAD = b"@relation r\n@attribute a numeric\n@attribute 'b c' {x,'y z',\"?\"}\n@data\n"
ABC = ("a", "b c")

ARFF = [
    Case("plain", HEAD + b"1.5,x\n?,'y z'\n", ABC, (("1.5", "x"), (None, "y z")), file="x.arff"),
    Case(
        "comments and blank lines",
        b"% c\n\n" + HEAD + b"\n% 1\n1,x % end\n",
        ABC,
        (("1", "x"),),
        file="x.arff",
    ),
    Case(
        "keywords in any case",
        HEAD.upper().replace(b"X", b"x") + b"1,x\n",
        ("A", "B C"),
        (("1", "x"),),
        file="x.arff",
    ),
    Case("missing in quotes is a level", HEAD + b'1,"?"\n', ABC, (("1", "?"),), file="x.arff"),
    Case(
        "escapes",
        b"@attribute a string\n@attribute b string\n@data\n'it\\'s',\"a\\tb\"\n",
        AB,
        (("it's", "a\tb"),),
        file="x.arff",
    ),
    Case(
        "level that was not declared",
        HEAD + b"1,w\n",
        refused=("'w' is not among the levels",),
        line=5,
        column=3,
        file="x.arff",
    ),
    Case(
        "level in another case",
        HEAD + b"1,X\n",
        refused=("'X' is not among",),
        line=5,
        column=3,
        file="x.arff",
    ),
    Case(
        "text for a number",
        HEAD + b"one,x\n",
        refused=("'one' is not a number",),
        line=5,
        column=1,
        file="x.arff",
    ),
    Case(
        "too few", HEAD + b"1\n", refused=("1 field(s) where 2",), line=5, column=2, file="x.arff"
    ),
    Case(
        "too many",
        HEAD + b"1,x,x\n",
        refused=("3 field(s) where 2",),
        line=5,
        column=5,
        file="x.arff",
    ),
    Case(
        "weight behind a row",
        HEAD + b"1,x,{5}\n",
        refused=("a value is missing",),
        line=5,
        column=5,
        file="x.arff",
    ),
    Case(
        "empty value",
        HEAD + b",x\n",
        refused=("a value is missing",),
        line=5,
        column=1,
        file="x.arff",
    ),
    Case(
        "unclosed quote",
        HEAD + b"1,'y z\n",
        refused=("never closed",),
        line=5,
        column=3,
        file="x.arff",
    ),
    Case("sparse", HEAD + b"{0 1, 1 x}\n", refused=("sparse",), line=5, file="x.arff"),
    Case(
        "relational",
        b"@attribute a relational\n@data\n",
        refused=("relational",),
        line=1,
        file="x.arff",
    ),
    Case(
        "double attribute",
        b"@attribute a real\n@attribute a real\n",
        refused=("twice",),
        line=2,
        file="x.arff",
    ),
    Case(
        "double level",
        b"@attribute a {x,y,x}\n@data\n",
        refused=("'x' is declared twice",),
        line=1,
        file="x.arff",
    ),
    Case(
        "open list of levels",
        b"@attribute a {x,y\n@data\n",
        refused=("not closed",),
        line=1,
        file="x.arff",
    ),
    Case("no data", HEAD, refused=("no row of data",), file="x.arff"),
    Case("no @data", HEAD[:-6], refused=("ends without @data",), file="x.arff"),
    Case("a CSV named .arff", CSV, refused=("header line must be",), line=1, file="x.arff"),
]

BINARY = [
    Case(
        "Parquet",
        lambda: parquet(a=[1, None], b=["01", "1"]),
        AB,
        ((1, "01"), (None, "1")),
        file="x.parquet",
    ),
    Case(
        "Parquet with NA as text",
        lambda: parquet(a=[1.5, 2.0], b=["NA", None]),
        AB,
        ((1.5, "NA"), (2.0, None)),
        file="x.parquet",
    ),
    Case(
        "Parquet with booleans",
        lambda: parquet(a=[True, False], b=["x", "y"]),
        AB,
        ((True, "x"), (False, "y")),
        file="x.parquet",
    ),
    Case("Parquet with one name twice", double_parquet, refused=("'a' twice",), file="x.parquet"),
    Case(
        "Parquet with lists",
        nested_parquet,
        refused=("'a' holds list",),
        column=1,
        file="x.parquet",
    ),
    Case(
        "cut Parquet", lambda: parquet(a=[1], b=["x"])[:-9], refused=("damaged",), file="x.parquet"
    ),
    Case(
        "Parquet bomb",
        repeated_parquet,
        refused=("unpacks to more than 1,000,000",),
        file="x.parquet",
        options={"max_bytes": 1_000_000},
    ),
    Case(
        "wide Parquet",
        lambda: parquet(**{f"c{i}": [1] for i in range(11)}),
        refused=("11 columns where at most 10",),
        file="x.parquet",
        options={"max_columns": 10},
    ),
    Case("CSV named .parquet", CSV, refused=("must be a Parquet file",), file="x.parquet"),
    Case("Parquet named .csv", lambda: parquet(a=[1]), refused=("a Parquet file, not text",)),
    Case(
        "Parquet without rows",
        lambda: parquet(a=[], b=[]),
        refused=("no row of data",),
        file="x.parquet",
    ),
    Case(
        "workbook",
        lambda: workbook(["a", "b"], [1, "01"], [2.5, None]),
        AB,
        ((1, "01"), (2.5, None)),
        file="x.xlsx",
    ),
    Case(
        "workbook in gzip",
        lambda: gzip.compress(workbook(["a", "b"], [1, "x"])),
        AB,
        ((1, "x"),),
        file="x.xlsx.gz",
    ),
    Case(
        "workbook with blank rows",
        lambda: workbook([], ["a", "b"], [1, 2], [], [3, 4]),
        AB,
        ((1, 2), (3, 4)),
        notes=("1 blank row(s) skipped, first row 4",),
        file="x.xlsx",
    ),
    Case("workbook that lies about its size", lying_workbook, AB, ((1, 2),), file="x.xlsx"),
    Case(
        "workbook with several sheets",
        lambda: workbook(["a", "b"], [1, 2], sheets=3),
        AB,
        ((1, 2),),
        notes=("the first of 3",),
        file="x.xlsx",
    ),
    Case(
        "workbook, other sheet",
        lambda: workbook(["a"], [1]),
        refused=("no sheet 'May'", "it has: 'Sheet'"),
        options={"sheet": "May"},
        file="x.xlsx",
    ),
    Case(
        "workbook with a wide row",
        lambda: workbook(["a", "b"], [1, 2, 3]),
        refused=("3 cells where",),
        line=2,
        column=3,
        file="x.xlsx",
    ),
    Case(
        "workbook with one name twice",
        lambda: workbook(["a", "a"], [1, 2]),
        refused=("'a' twice",),
        line=1,
        column=2,
        file="x.xlsx",
    ),
    Case(
        "formula without a value",
        lambda: workbook(["a", "b"], [1, "=A2*2"]),
        refused=("formula without a saved value",),
        line=2,
        column=2,
        file="x.xlsx",
    ),
    Case(
        "formula with its value",
        lambda: edited(
            workbook(["a", "b"], [1, "=A2*2"]), "xl/worksheets/sheet1.xml", b"<v />", b"<v>2</v>"
        ),
        AB,
        ((1, 2),),
        file="x.xlsx",
        notes=("1 formula(s) read by their saved values",),
    ),
    Case(
        "error in a cell",
        lambda: workbook(["a", "b"], [1, "#DIV/0!"]),
        refused=("#DIV/0!", "--missing"),
        line=2,
        column=2,
        file="x.xlsx",
    ),
    Case("cut workbook", lambda: workbook(["a"], [1])[:-30], refused=("damaged",), file="x.xlsx"),
    Case("ZIP that is no workbook", zip_bomb, refused=("damaged",), file="x.xlsx"),
    Case(
        "ZIP bomb",
        zip_bomb,
        refused=("unpacks to more than",),
        file="x.xlsx",
        options={"max_bytes": 1_000_000},
    ),
    Case("workbook with a row said to be far away", far_row, AB, ((1, 2),), file="x.xlsx"),
    Case("empty workbook", lambda: workbook(), refused=("sheet is empty",), file="x.xlsx"),
    Case(
        "workbook named .csv", lambda: workbook(["a"], [1]), refused=("ZIP archive or a workbook",)
    ),
]

FILES = [*PACKED, *ARFF, *BINARY]
