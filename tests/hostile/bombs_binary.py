"""Small Parquet files and workbooks that ask for much memory or time."""

import gzip
import io
import zipfile
import zlib

from hostile.bombs import MB, Bomb, slow
from hostile.files import edited, workbook
from hostile.raw_parquet import (
    BYTE_ARRAY,
    PLAIN,
    billions,
    data_page,
    dictionary_page,
    raw_parquet,
    repeated,
)

SHEET = "xl/worksheets/sheet1.xml"
MAIN = b"http://schemas.openxmlformats.org/spreadsheetml/2006/main"


def packed_page(codec: str, size: int) -> bytes:
    """A page that unpacks to ``size`` zeros."""
    import pyarrow as arrow

    return bytes(arrow.Codec(codec).compress(b"\0" * size))


def page_bomb(codec: str, size: int = 1500 * MB) -> bytes:
    page = data_page(size // 8, packed_page(codec, size), PLAIN, size=size)
    return raw_parquet(page, rows=1000, codec=codec, columns=2, stated=1000)


def lying_page(size: int = 2**31 - 1) -> bytes:
    page = data_page(1000, packed_page("zstd", 8000), PLAIN, size=size)
    return raw_parquet(page, rows=1000, codec="zstd", columns=2)


def long_texts(length: int, rows: int) -> bytes:
    """One long text in a dictionary, for every row."""
    first = dictionary_page(1, length.to_bytes(4, "little") + b"x" * length)
    pages = first + data_page(rows, repeated(rows))
    return raw_parquet(pages, rows=rows, kind=BYTE_ARRAY, columns=2, dictionary=len(first))


def nested(depth: int) -> bytes:
    first = dictionary_page(1, bytes(8))
    pages = first + data_page(10, repeated(10))
    return raw_parquet(pages, rows=10, dictionary=len(first), depth=depth)


def parquet_of(rows: int, columns: int, **options) -> bytes:
    import numpy as np
    import pyarrow as arrow
    import pyarrow.parquet

    out = io.BytesIO()
    names = [f"c{i}" for i in range(columns)]
    data = [arrow.array(np.zeros(rows, np.int64))] * columns
    arrow.parquet.write_table(arrow.table(data, names=names), out, **options)
    return out.getvalue()


PARQUET = [
    Bomb("two billion rows", "x.parquet", lambda: billions(2000000000, columns=2)),
    Bomb(
        "two billion values that are said to be ten",
        "x.parquet",
        lambda: billions(2000000000, columns=2, claimed=10),
    ),
    Bomb(
        "rows beyond all counting", "x.parquet", lambda: billions(2**31 - 1, columns=2, groups=4000)
    ),
    Bomb("a negative number of rows", "x.parquet", lambda: billions(1000, columns=2, claimed=-5)),
    slow("forty million cells of a number", "x.parquet", lambda: billions(2000000, columns=20)),
    slow("many row groups", "x.parquet", lambda: billions(1, columns=2, groups=200000)),
    slow("columns by row groups", "x.parquet", lambda: billions(1, columns=5000, groups=100)),
    slow("too many columns", "x.parquet", lambda: billions(1, columns=200000)),
    slow("a wide table of few rows", "x.parquet", lambda: billions(4000, columns=9999)),
    *(
        slow(f"a page that unpacks by {codec}", "x.parquet", lambda codec=codec: page_bomb(codec))
        for codec in ("gzip", "brotli", "zstd")
    ),
    slow("a page that unpacks by snappy", "x.parquet", lambda: page_bomb("snappy", 400 * MB)),
    Bomb("a page that lies", "x.parquet", lying_page),
    Bomb("a page of a negative size", "x.parquet", lambda: lying_page(-1)),
    Bomb("a long text in every row", "x.parquet", lambda: long_texts(20000, 250000)),
    slow("a long text in a million rows", "x.parquet", lambda: long_texts(MB, 1000000)),
    Bomb("a long text in a billion rows", "x.parquet", lambda: long_texts(10 * MB, 1000000000)),
    slow("texts that grow", "x.parquet", lambda: growing_texts(40000)),
    Bomb("groups in groups", "x.parquet", lambda: nested(100)),
    Bomb("a hundred thousand groups in groups", "x.parquet", lambda: nested(100000)),
    slow("real zeros", "x.parquet", lambda: parquet_of(6000000, 8, row_group_size=6000000)),
    Bomb(
        "a footer said to be large",
        "x.parquet",
        lambda: b"PAR1" + b"\x00" * 100 + b"\xff\xff\xff\x7fPAR1",
    ),
    slow(
        "gzip of zeros in Parquet",
        "x.parquet.gz",
        lambda: gzip.compress(
            b"PAR1" + bytes(200 * MB) + (200 * MB).to_bytes(4, "little") + b"PAR1"
        ),
    ),
]


def sheet(
    rows: bytes, times: int = 1, part: str = SHEET, tail: bytes = b"", **texts: bytes
) -> bytes:
    """A workbook whose sheet holds ``rows``, repeated."""
    return parts(
        {
            part: (
                b"<worksheet xmlns='%s'><sheetData>" % MAIN,
                rows,
                times,
                b"</sheetData></worksheet>" + tail,
            )
        }
        | texts
    )


def parts(changed: dict, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A usual workbook with some parts replaced by (head, piece, times, tail)."""
    out = io.BytesIO()
    usual = workbook(["a", "b"], [1, "x"], [2, "y"])
    with zipfile.ZipFile(io.BytesIO(usual)) as before, zipfile.ZipFile(out, "w", method) as after:
        for entry in before.infolist():
            if entry.filename not in changed:
                after.writestr(entry.filename, before.read(entry))
        for name, (head, piece, times, tail) in changed.items():
            many = max(1, min(times, MB // max(1, len(piece))))
            with after.open(name, "w") as stream:
                stream.write(head)
                for _ in range(times // many):
                    stream.write(piece * many)
                stream.write(tail)
    return out.getvalue()


def laughs() -> bytes:
    """Entities that grow tenfold, ten times."""
    lines = [b'<!ENTITY e0 "ha">']
    lines += [b'<!ENTITY e%d "%s">' % (i, b"&e%d;" % (i - 1) * 10) for i in range(1, 11)]
    kind = b"<!DOCTYPE x [" + b"".join(lines) + b"]>"
    row = b"<row r='1'><c r='A1' t='inlineStr'><is><t>&e10;</t></is></c></row>"
    head = b"<?xml version='1.0'?>" + kind + b"<worksheet xmlns='%s'><sheetData>" % MAIN
    return parts({SHEET: (head, row, 1, b"</sheetData></worksheet>")})


def strings(piece: bytes, times: int, tail: bytes = b"</sst>") -> bytes:
    link = b"<Relationship Id='s' Target='/xl/sharedStrings.xml' Type='x/sharedStrings'/>"
    name = "xl/_rels/workbook.xml.rels"
    with zipfile.ZipFile(io.BytesIO(workbook(["a"], [1]))) as usual:
        links = usual.read(name).replace(b"</Relationships>", link + b"</Relationships>")
    head = b"<sst xmlns='%s'>" % MAIN
    return parts({name: (links, b"", 1, b""), "xl/sharedStrings.xml": (head, piece, times, tail)})


def many_sheets(count: int) -> bytes:
    names = b"".join(
        b"<sheet name='s%d' sheetId='%d' r:id='rId1'/>" % (i, i + 1) for i in range(count)
    )
    old = b"<sheet "
    whole = workbook(["a", "b"], [1, "x"])
    return edited(
        whole,
        "xl/workbook.xml",
        b"<sheets>"
        if b"<sheets>" in zipfile.ZipFile(io.BytesIO(whole)).read("xl/workbook.xml")
        else old,
        b"<sheets>"
        + names.replace(
            b"r:id",
            b"xmlns:r='http://schemas.openxmlformats.org/officeDocument/2006/relationships' r:id",
        ),
    )


def overlapping() -> bytes:
    """Hundreds of parts that are all the same bytes of the file."""
    data = zlib.compress(b"\0" * 10 * MB, 9)[2:-4]
    local = b"PK\x03\x04" + bytes(22) + (1).to_bytes(2, "little") + bytes(2) + b"a" + data
    out = io.BytesIO(workbook(["a", "b"], [1, "x"]))
    with zipfile.ZipFile(out) as archive:
        start, count = archive.start_dir, len(archive.infolist())
    whole = out.getvalue()
    entries = whole[start:-22]
    many = b"".join(
        b"PK\x01\x02"
        + bytes(6)
        + b"\x08\0"
        + bytes(4)
        + zlib.crc32(b"\0" * 10 * MB).to_bytes(4, "little")
        + len(data).to_bytes(4, "little")
        + (10 * MB).to_bytes(4, "little")
        + (4).to_bytes(2, "little")
        + bytes(12)
        + start.to_bytes(4, "little")
        + b"p%03d" % i
        for i in range(500)
    )
    directory = entries + many
    end = b"PK\x05\x06" + bytes(4) + 2 * (count + 500).to_bytes(2, "little")
    end += (
        len(directory).to_bytes(4, "little") + (start + len(local)).to_bytes(4, "little") + bytes(2)
    )
    return whole[:start] + local + directory + end


def far_cells(rows: int, column: bytes = b"XFD", value: bytes = b"<v>1</v>") -> bytes:
    cell = b"<row r='%d'><c r='%s%d'>%s</c></row>"
    return sheet(b"".join(cell % (i, column, i, value) for i in range(1, rows + 1)))


def growing_texts(rows: int) -> bytes:
    """Each text is the one before it and a letter more, and only that is written."""
    import pyarrow as arrow
    import pyarrow.parquet

    out = io.BytesIO()
    texts = arrow.array(("a" * i for i in range(rows)), arrow.large_string(), size=rows)
    arrow.parquet.write_table(
        arrow.table({"a": texts, "b": texts}),
        out,
        use_dictionary=False,
        column_encoding={"a": "DELTA_BYTE_ARRAY", "b": "DELTA_BYTE_ARRAY"},
        write_statistics=False,
    )
    return out.getvalue()


WORKBOOKS = [
    Bomb("a far cell in every row", "x.xlsx", lambda: far_cells(30000)),
    Bomb("a cell not so far in every row", "x.xlsx", lambda: far_cells(30000, b"NTP")),
    Bomb("nothing far away in every row", "x.xlsx", lambda: far_cells(30000, value=b"")),
    Bomb(
        "one far cell",
        "x.xlsx",
        lambda: sheet(b"<row r='1048576'><c r='XFD1048576'><v>1</v></c></row>"),
    ),
    Bomb(
        "a header and a far cell",
        "x.xlsx",
        lambda: sheet(
            b"<row r='1'><c r='A1' t='str'><v>a</v></c><c r='B1' t='str'><v>b</v></c></row>"
            b"<row r='1048576'><c r='B1048576'><v>1</v></c></row>"
        ),
    ),
    slow(
        "rows without numbers",
        "x.xlsx",
        lambda: sheet(b"<row><c><v>1</v></c><c><v>2</v></c></row>", 1000000),
    ),
    slow("rows of nothing", "x.xlsx", lambda: sheet(b"<row/>", 30000000)),
    Bomb(
        "one number for all rows",
        "x.xlsx",
        lambda: sheet(b"<row r='1'><c><v>1</v></c></row>", 1000000),
    ),
    Bomb(
        "cells of nothing", "x.xlsx", lambda: sheet(b"<row r='1'>" + b"<c/>" * 16000 + b"</row>", 1)
    ),
    slow("elements of nothing", "x.xlsx", lambda: sheet(b"<a/>", 100000000)),
    slow("elements in elements", "x.xlsx", lambda: sheet(b"<a>", 20000000)),
    slow("a long token", "x.xlsx", lambda: sheet(b"<a b='" + b"x" * 100 * MB + b"'/>")),
    Bomb(
        "many attributes",
        "x.xlsx",
        lambda: sheet(b"<a " + b" ".join(b"b%d='1'" % i for i in range(200000)) + b"/>"),
    ),
    slow(
        "a long text",
        "x.xlsx",
        lambda: sheet(b"<row><c t='str'><v>" + b"x" * 300 * MB + b"</v></c></row>"),
    ),
    slow(
        "a long text in pieces",
        "x.xlsx",
        lambda: sheet(
            b"<row><c t='inlineStr'><is><r><t>"
            + b"x</t></r><r><t>" * 3000000
            + b"</t></r></is></c></row>"
        ),
    ),
    slow(
        "a long number",
        "x.xlsx",
        lambda: sheet(b"<row><c><v>" + b"1" * 4000 + b"</v></c></row>", 20000),
    ),
    Bomb("entities that grow", "x.xlsx", laughs),
    slow("many strings", "x.xlsx", lambda: strings(b"<si><t>abc</t></si>", 20000000)),
    slow(
        "a long string", "x.xlsx", lambda: strings(b"<si><t>" + b"a" * 200 * MB + b"</t></si>", 1)
    ),
    slow(
        "many styles",
        "x.xlsx",
        lambda: parts(
            {
                "xl/styles.xml": (
                    b"<styleSheet xmlns='%s'><cellXfs>" % MAIN,
                    b"<xf numFmtId='14'/>",
                    10000000,
                    b"</cellXfs></styleSheet>",
                )
            }
        ),
    ),
    slow(
        "many formats",
        "x.xlsx",
        lambda: parts(
            {
                "xl/styles.xml": (
                    b"<styleSheet xmlns='%s'><numFmts>" % MAIN,
                    b"".join(
                        b"<numFmt numFmtId='%d' formatCode='%s'/>" % (i, b"[" * 2000)
                        for i in range(200, 20000)
                    ),
                    1,
                    b"</numFmts></styleSheet>",
                )
            }
        ),
    ),
    Bomb("many sheets", "x.xlsx", lambda: many_sheets(50000)),
    slow("parts over one another", "x.xlsx", overlapping),
    Bomb(
        "many parts", "x.xlsx", lambda: parts({f"p{i}": (b"", b"", 1, b"") for i in range(20000)})
    ),
    slow(
        "parts packed by LZMA",
        "x.xlsx",
        lambda: parts({SHEET: (b"<a>", b" " * 100, 3 * MB, b"</a>")}, zipfile.ZIP_LZMA),
    ),
    slow("blanks", "x.xlsx", lambda: sheet(b" " * 1000, 400000)),
]

BINARY_BOMBS = [*PARQUET, *WORKBOOKS]
